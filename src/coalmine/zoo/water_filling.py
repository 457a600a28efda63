"""Bugs of noise that protects single records under secure aggregation, and an audit of single records that sees them.

The setting is small and synthetic: 16 users of 12 records in 24 dimensions, whose gradients share one strong direction
across both halves of the coordinates. One record of the first user is +C c or -C c by a coin, over-long; the auditor knows
everything else, subtracts the known mean and looks along c. Every number comes out of the mechanism's own `client`.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coalmine._random import stream
from coalmine.accounting import claim_of
from coalmine.accounting.water_filling import example_game
from coalmine.audit.statements import audit_scores
from coalmine.contracts import Array, Claim, Contribution, Public, Streams, Vector
from coalmine.mechanisms import FullGradient, WaterFilling
from coalmine.mechanisms.spectrum import Spectrum
from coalmine.participation import Once
from coalmine.result import AuditResult
from coalmine.scores import Scores

USERS, EXAMPLES, BATCH, DIM, CLIP, FLOOR, DELTA = 16, 12, 4, 24, 1.0, 0.087, 1e-4
RUNS = 1500  # each with one canary
ACROSS = np.zeros(DIM)
ACROSS[[0, DIM // 2]] = 1 / math.sqrt(2), -1 / math.sqrt(2)  # what all gradients share
WITHIN = np.abs(ACROSS)  # orthogonal to it, in the same two coordinates
LONE = np.eye(DIM)[DIM - 1]  # a coordinate that nobody uses


@dataclass(frozen=True)
class SharedWeightsInBlocks(WaterFilling):
    """Blocks of coordinates are filled separately, and one weight per example serves all of them.

    The covariance between blocks stays: a direction across them has hardly any noise.
    """

    def _update(self, rows: NDArray[Any], secret: Streams) -> tuple[Array, Array]:
        weights = secret("weights").standard_normal(len(rows)) / math.sqrt(self.batch * self.examples)
        noise = np.asarray(weights @ rows, np.float64)  # right: new weights for every block
        for block, half in enumerate((slice(0, DIM // 2), slice(DIM // 2, DIM))):
            spectrum = Spectrum(rows[:, half], 1 / (self.batch * self.examples))
            noise[half] += self.water(spectrum, secret("noise", block).standard_normal(DIM // 2))
        return self._mean(rows), noise


@dataclass(frozen=True)
class WaterOnFullGradients(WaterFilling):
    """The water is added to the plain mean of all gradients, whose weights are not random.

    Where the covariance is above the water nothing is added at all.
    """

    def _update(self, rows: NDArray[Any], secret: Streams) -> tuple[Array, Array]:
        spectrum = Spectrum(rows, 1 / (self.batch * self.examples))
        return self._mean(rows), self.water(
            spectrum, np.asarray(secret("noise").standard_normal(rows.shape[1]))
        )  # right: + G w


@dataclass(frozen=True)
class WaterOnBatches(WaterFilling):
    """The water is added to the mean of a batch, whose weights are not Gaussian.

    Above the water a record shows or does not show: nothing blurs it.
    """

    def _update(self, rows: NDArray[Any], secret: Streams) -> tuple[Array, Array]:
        spectrum = Spectrum(rows, 1 / (self.batch * self.examples))
        batch = secret("batch").permutation(len(rows))[: self.batch]
        mean = np.asarray(rows[batch].sum(axis=0, dtype=np.float64) / self.batch)  # right: Gaussian weights
        water = self.water(spectrum, np.asarray(secret("noise").standard_normal(rows.shape[1])))
        return self._mean(rows), np.asarray(mean - self._mean(rows) + water)


@dataclass(frozen=True)
class FloorAsTotal(WaterFilling):
    """The floor of each user is taken for that of the sum, and divided by the number of users.

    The variance is too small by the number of users, as if each of them relied on the others twice.
    """

    def _update(self, rows: NDArray[Any], secret: Streams) -> tuple[Array, Array]:
        own = WaterFilling(
            self.clip_norm, self.floor / self.honest, self.examples, self.honest, self.batch
        )  # right: self.floor
        return own._update(rows, secret)


@dataclass(frozen=True)
class ClippedAfterWeights(WaterFilling):
    """The weighted sum is clipped, and not each gradient before it is weighted.

    One long gradient is the whole update of its user.
    """

    def client(
        self, update: Vector, public: Public, examples: int = 1, own: NDArray[Any] | None = None, *, secret: Streams
    ) -> Contribution:
        """Weights first."""
        rows = np.asarray(update)[None] if own is None else own
        mean, noise = replace(self, floor=0.0)._update(rows, secret)  # right: clipped_rows(rows, self.clip_norm) before
        whole = mean + noise
        whole *= min(1.0, self.clip_norm / max(float(np.linalg.norm(whole)), 1e-300))
        water = math.sqrt(self.floor) * secret("water").standard_normal(whole.size)
        return Contribution(whole + water, without_noise=np.zeros(whole.size))


@dataclass(frozen=True)
class CentredCovariance(WaterFilling):
    """The water is measured on the centred covariance, although the weights do not sum to one.

    More is added than needed along the mean gradient, and nothing leaks.
    """

    def _update(self, rows: NDArray[Any], secret: Streams) -> tuple[Array, Array]:
        _, noise = super()._update(rows - rows.mean(axis=0), secret)  # right: the rows themselves
        return self._mean(rows), noise


@dataclass(frozen=True)
class InconsistentModels(WaterFilling):
    """The server sends users different models, and their gradients leave each other's span; no noise is added.

    A record with a coordinate to itself is seen in the sum (Pasquini et al. 2022).
    """

    def _update(self, rows: NDArray[Any], secret: Streams) -> tuple[Array, Array]:
        return replace(self, floor=0.0)._noiseless(rows, secret)  # right: the same model for all, and noise

    def _noiseless(self, rows: NDArray[Any], secret: Streams) -> tuple[Array, Array]:
        weights = secret("weights").standard_normal(len(rows)) / math.sqrt(self.batch * self.examples)
        return self._mean(rows), np.asarray(weights @ rows, np.float64)


@dataclass(frozen=True)
class RecordBug:
    """A mechanism for single records with one bug, the direction that shows it, and where it comes from."""

    name: str
    kind: type[FullGradient]
    direction: Array
    source: str
    visible: bool = True
    absolute: bool = False  # the weight's sign is random: look at sizes
    method: str = "band"  # the bound that decides; "gdp" where right code has two normal laws of one variance

    @property
    def fault(self) -> str:
        """What is wrong, in a sentence."""
        return " ".join(inspect.cleandoc(self.kind.__doc__ or "").split("\n\n")[0].split())


_PAPER = "Zhang & Psounis 2024"
RECORD_BUGS = {
    each.name: each
    for each in (
        RecordBug("blocked-shared-weights", SharedWeightsInBlocks, WITHIN, f"{_PAPER}, Section 5.1."),
        RecordBug("wf-on-full-gradient", WaterOnFullGradients, -ACROSS, f"{_PAPER}, Table 1: no guarantee."),
        RecordBug("iid-weights", WaterOnBatches, -ACROSS, f"{_PAPER}, Table 1: no guarantee."),
        RecordBug("floor-as-total", FloorAsTotal, WITHIN, f"{_PAPER}: sigma² is each user's.", method="gdp"),
        RecordBug("clip-after-weights", ClippedAfterWeights, WITHIN, f"{_PAPER}, Assumption 1.", method="gdp"),
        RecordBug("centred-covariance", CentredCovariance, WITHIN, f"{_PAPER}, (16): a second moment.", visible=False),
        RecordBug("inconsistent-models", InconsistentModels, LONE, "Pasquini et al. 2022.", absolute=True),
    )
}


def correct() -> WaterFilling:
    """The mechanism without a bug."""
    return WaterFilling(CLIP, FLOOR, EXAMPLES, USERS, BATCH)


def record_claim() -> Claim:
    """What is claimed for one record that is replaced, in one round."""
    claim = claim_of(correct().describe(), Once(), delta=DELTA, relation="replace-one", unit="example")
    return replace(claim, game=example_game("replace-one", 1))


def audit_record(bug: RecordBug | None, seed: int, method: str = "band") -> AuditResult:
    """Many releases with one canary each, by a coin, and what they prove against the claim; `method` without a bug."""
    method = method if bug is None else bug.method
    direction = WITHIN if bug is None else bug.direction
    mechanism: FullGradient = correct()
    if bug is not None:
        mechanism = bug.kind(CLIP, FLOOR, EXAMPLES, USERS, BATCH)  # type: ignore[call-arg]
    size = abs if bug is not None and bug.absolute else float
    rng = stream(seed, "coins of records")
    coins = rng.random(RUNS) < 0.5
    values = [_score(mechanism, direction, bool(coin), seed, run, size) for run, coin in enumerate(coins)]
    scores = Scores(np.array(values), coins, assignment="coins", view="the sum, all data and models known",
                    game=example_game("replace-one", 1))  # fmt: skip
    return audit_scores(scores, delta=DELTA, claim=record_claim(), method=method)


def _score(
    mechanism: FullGradient, direction: Array, inserted: bool, seed: int, run: int, size: Callable[[float], float]
) -> float:
    """The sum of all users along the canary's direction, the known mean of all other records subtracted."""
    public, total, known = mechanism.announce({}, 0, float(USERS)), 0.0, 0.0
    for user in range(USERS):
        rows = _records(user)
        if user == 0:
            rows = rows.copy()
            rows[0] = (100.0 if inserted else -100.0) * direction
            if size is abs and not inserted:
                rows[0] = 0.0
        own = mechanism.client(rows[0], public, EXAMPLES, own=rows, secret=partial(stream, seed, "record", run, user))
        total += float(own.vector @ direction)
        known += float(np.clip(_records(user)[user == 0 :] @ direction, -CLIP, CLIP).sum()) / EXAMPLES
    return size(total - known)


@cache
def _records(user: int) -> Array:
    """Gradients of norm below C: the shared direction, and a little of everything but the lone coordinate."""
    rng = stream(0, "records of the zoo", user)
    rows = 0.95 * ACROSS + 0.02 * rng.standard_normal((EXAMPLES, DIM))
    rows[:, DIM - 1] = 0.0
    return np.asarray(rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), CLIP))
