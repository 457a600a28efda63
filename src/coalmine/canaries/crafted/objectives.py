"""What a design minimises, one number per canary.

    paper          here              meaning
    u_i            rows of `clients` clipped updates of mock clients, in clip norms
    g              gradient          of the canary's loss
    <u_i, g>/|g|   cosines           (mock clients, canaries)
    c              needed            the length of the gradient that gives the update its clip norm and the margin
    r              cohort            clients of a round

`covariance` is what the published code minimises (its Loss 2), `mean` its Loss 1, `printed` equation 1 as it stands in the
paper, whose first term falls with |g|: it is kept to show that it collapses. `log` is ours: a logarithm makes the step
independent of how small the overlap already is.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

_SMALLEST = 1e-12  # of the overlap, so that its logarithm is finite
_HINGE = 10.0  # weight of the length beside a logarithm


@dataclass(frozen=True)
class Objective:
    """One of the losses, for one length that is needed and one number of clients in a round."""

    loss: str
    hinge: str
    needed: float
    cohort: float

    def __call__(self, cosines: Tensor, norms: Tensor, gram: Tensor | None = None) -> Tensor:
        """The loss of every canary; `gram` holds their cosines with each other, where they are to be orthogonal."""
        short = torch.clamp(1 - norms / self.needed, min=0)
        short = short if self.hinge == "linear" else short.square()
        mutual = mutual_overlap(gram) if gram is not None else torch.zeros_like(norms)
        if self.loss == "log":
            inner = self.cohort * cosines.square().mean(0) + mutual / 2
            found: Tensor = 0.5 * torch.log(inner + _SMALLEST) + _HINGE * short
            return found
        if self.loss == "printed":
            return (cosines * norms).square().sum(0) + mutual + short * self.needed**2
        clients = cosines.mean(0).square() if self.loss == "mean" else cosines.square().mean(0)
        return clients + mutual / (2 * self.cohort) + short * self.needed**2


def mutual_overlap(gram: Tensor) -> Tensor:
    """The sum of squared cosines of each canary with the others."""
    return (gram - torch.diag_embed(torch.diagonal(gram))).square().sum(-1)
