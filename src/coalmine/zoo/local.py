"""Bugs in a client's own training, before anything is clipped: no direction canary gets there. The right line stands beside."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from coalmine.zoo.bug import bug

if TYPE_CHECKING:  # a list of bugs loads no trainer
    from coalmine.training.federation import Federation


@bug(
    "momentum-kept",
    "crafted",
    "Simulations that train many clients in one process and make the optimiser once; statistics of batch normalisation that "
    "are not reset leak in the same way.",
    sentence="trained-alone",
)
class MomentumKept:
    """The momentum that one client's training leaves in the optimiser is the beginning of the next one's.

    Every update is clipped and direction canaries see nothing; a client's data move the updates of those who come after, and
    data canaries, which are trained as clients are, stand out by more than one clip norm.
    """

    @classmethod
    def into(cls, job: Federation, secret_seed: int) -> Federation:
        """The same federation, whose workers keep the optimiser."""
        from coalmine.zoo._kept import KeepingFederation

        # right: return job
        return KeepingFederation(**{each.name: getattr(job, each.name) for each in fields(job)})
