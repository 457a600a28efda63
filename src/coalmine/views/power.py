"""The epsilon that canaries would show, were the noise too small by a factor: closed forms, from what was recorded.

In clip norms, a canary adds `kept` in each of its rounds. It is hidden by the noise; from whoever does not know them, also by
the clients' sum X_t and, among independent directions, by the k_t other canaries: sigma² + (|X_t|² + k_t)/d. What a final model
hides has no closed form for every server. Neither has the power of a largest cosine over rounds, where a canary's own rounds
compete with all others, nor that of a likelihood ratio. Nothing is promised for these.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from coalmine.canaries.setup import CanarySetup
from coalmine.contracts import Array, Strategy
from coalmine.gaussian import gaussian_epsilon

Visible = Callable[[float], float]  # factor by which the noise is too small, to the epsilon that would show
LEAST_NOISE = 1e-3  # of what else is in a vector: less is the rounding of single precision
_STANDARD_ERRORS = 5.0  # of the squared length of noise


def nothing_promised(factor: float) -> float:
    """For views whose power has no closed form."""
    return 0.0


@dataclass(frozen=True, eq=False)
class Hiding:
    """What hides canaries in a run: the noise, and what was recorded of every round."""

    records: Sequence[Mapping[str, Any]]
    setup: CanarySetup
    noise: float  # as the mechanism describes it, all that is released taken together
    delta: float
    independent: bool  # canaries are independent directions, which hide each other
    design: Strategy | None = None  # how the noise is correlated over rounds; None: it is new in each
    kept_share: float | None = None  # of a canary, on average, where a strategy that nobody knows may keep less: measured
    gaps: Array | None = None  # by round, what taking part adds to a score where noise depends on the direction

    @property
    def dim(self) -> int:
        """Number of parameters."""
        return self.setup.canaries.dim

    @property
    def clients_known(self) -> bool:
        """Whether the lengths of the clients' sums were recorded."""
        return all("clients_norm" in record for record in self.records)

    @cached_property
    def presence(self) -> Array:
        """Rounds that released something, by canary that has a round: a failed round shows nothing."""
        schedule = self.setup.schedule
        released = [record.get("round", place) for place, record in enumerate(self.records)]
        return schedule.presence[released][:, schedule.times > 0].astype(np.float64)

    @property
    def _canaries(self) -> Array:
        return np.array([record["canaries"] for record in self.records]) / self.dim

    def squares(self, factor: float, *, residual: bool) -> Array:
        """By round, the squared signal of a canary against what hides it, were the noise too small by a factor."""
        hidden = LEAST_NOISE**2 * (self._canaries + self.noise**2)
        if not residual:
            hidden += np.square([record["clients_norm"] for record in self.records]) / self.dim
            hidden += self._canaries if self.independent else 0.0
        found: Array = self.setup.kept**2 / ((self.noise / factor) ** 2 + hidden)
        return found

    def among_correlated_noise(self) -> Visible:
        """Whitened by its description: |C s| of every canary, over the noise. Rounds that are missing break the chain."""
        rounds = self.presence.shape[0]
        if self.design is None or [record.get("round", place) for place, record in enumerate(self.records)] != [*range(rounds)]:
            return nothing_promised
        seen, _ = self.design.whiten(self.presence, {})
        effect = self.setup.kept * float(np.linalg.norm(seen, axis=0).mean())
        return lambda factor: self.epsilon(effect * factor / (self.noise * np.sqrt(1 + (LEAST_NOISE * factor) ** 2)))

    def epsilon(self, effect: float) -> float:
        """Of scores that lie so many standard deviations above those of held-out canaries."""
        return float(gaussian_epsilon(0.0, 1.0, effect, 1.0, self.delta))

    def among_unknown_clients(self) -> Visible:
        """The same where nobody knows the clients' sums X_t: they may point the same way in all of a canary's rounds.

        A row of g releases (one, as a rule) holds the canary g times, noise of variance g sigma² and clients. Rows count with
        g/s², s² = g sigma² + |X|²/d, so that the score of a canary has

            mean       sum of g²/s²
            variance   sum of g sigma² g²/s⁴  +  (sum of |X| g/s²)²/d          all clients in one direction, in all rounds

        For T rounds alike that is T/(sigma² + T |X|²/d), as a square of signal to noise. What an unknown strategy keeps of a
        canary is measured, since an optimiser on the server may shrink it. Releases that are shorter than their noise alone are
        not what was stated: nothing is promised about them.
        """
        if _too_short(self.records, self.noise, self.dim):
            return nothing_promised
        came = self.kept_share
        if came is None:
            came = float(np.mean([record.get("kept_share", 0.0) for record in self.records]))
        kept, spans = min(self.setup.canary_norm, max(came, 0.0), 1.0), _spans(self.records)
        rounding = LEAST_NOISE**2 * (self._canaries + self.noise**2)

        def epsilon(factor: float) -> float:
            clients = norms_of_unknown_clients(self.records, self.noise, self.dim, factor)
            own = spans * (self.noise / factor) ** 2 + rounding
            weights = spans / (own + clients**2 / self.dim)
            mean, variance = (weights * spans) @ self.presence, (weights**2 * own) @ self.presence
            variance += ((weights * clients) @ self.presence) ** 2 / self.dim
            effects = np.divide(kept * mean, np.sqrt(variance), out=np.zeros_like(mean), where=variance > 0)
            return self.epsilon(float(effects.mean()))

        return epsilon


def norms_of_unknown_clients(records: Sequence[Mapping[str, Any]], noise: float, dim: int, factor: float = 1.0) -> Array:
    """Norms of the clients' sums that nobody knows, in clip norms, were the noise too small by a factor.

    With the noise that is stated, clients are what noise and canaries leave of a release. With less noise they may be more:
    its length does not tell one from the other. Then they are at most all of the rest, and at most all in one direction.
    """
    spans, squares = _spans(records), _squares(records)
    canaries, clients = (np.array([record[name] for record in records]) for name in ("canaries", "clients"))
    stated, lacking = (
        np.maximum(squares - spans * (noise / much) ** 2 * dim - spans**2 * canaries, 0.0) for much in (1.0, factor)
    )
    return np.asarray(np.sqrt(np.maximum(stated, np.minimum(lacking, (spans * clients) ** 2))))


def _too_short(records: Sequence[Mapping[str, Any]], noise: float, dim: int) -> bool:
    """Whether some release is shorter than its noise alone, by more than chance."""
    least = 1 - _STANDARD_ERRORS * np.sqrt(2 / dim)
    return bool((_squares(records) < least * _spans(records) * noise**2 * dim).any())


def _squares(records: Sequence[Mapping[str, Any]]) -> Array:
    """Squared lengths of what was released, as sums and in clip norms."""
    return np.square([record["release_norm"] * record["denominator"] / record["clip_norm"] for record in records])


def _spans(records: Sequence[Mapping[str, Any]]) -> Array:
    """How many releases each record is of."""
    return np.array([float(record.get("releases", 1)) for record in records])
