"""Noise that is correlated over rounds: wrong matrices, wrong normals, wrong sensitivities. The right line stands beside."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from coalmine.contracts import Array, Claim, Description, IndexArray, Participation, Separation, State, Streams
from coalmine.mechanisms.correlated import Correlated
from coalmine.mechanisms.strategies import Banded, Restarted
from coalmine.mechanisms.strategies.strategy import Draw
from coalmine.participation import Once, Pattern, Separated
from coalmine.zoo.bug import Replacing, bug

if TYPE_CHECKING:  # a list of bugs loads no trainer
    from coalmine.training.federation import Federation

_RESTART = 12  # rounds; not a multiple of the distance of a canary's rounds, which would hide it from itself
_CUT = 8  # terms of an inverse that is cut off


def _planted(job: Federation, actual: Pattern, secret_seed: int) -> Federation:
    """The same federation with canaries that take part as `actual` says."""
    assert job.canary_setup is not None
    schedule = job.canary_setup.schedule.draw(
        actual, pool=job.canary_setup.schedule.pool, rounds=job.rounds, secret_seed=secret_seed
    )
    return replace(job, canary_setup=replace(job.canary_setup, schedule=schedule))


def _claimed(job: Federation, delta: float, limits: Any, description: Description | None = None) -> Claim:
    """The claim of a federation for canaries with these rounds."""
    assert job.canary_setup is not None
    described = job.mechanism.describe() if description is None else description
    from coalmine import accounting  # with scipy, which a list does not need

    return accounting.claim_of(described, job.canary_setup.schedule.pattern, delta=delta, rounds=job.rounds, constraint=limits)


def _times(job: Federation) -> Separation:
    """How often canaries take part, and how far apart, as the setting says."""
    assert job.canary_setup is not None
    pattern: Any = job.canary_setup.schedule.pattern
    return Separation(pattern.times, pattern.separation, job.rounds)


def _regenerated(weights: Array, dim: int, draw: Draw) -> Array:
    """Σ_s weights[s] z_s."""
    made = np.zeros(dim)
    for number, weight in enumerate(weights):
        made += weight * draw("noise", number)
    return made


@bug(
    "separation-not-kept",
    "correlated",
    "A minimum separation that is configured for the accountant, and never enforced when devices check in.",
)
class ComesBackAtOnce:
    """Clients take part in consecutive rounds, and the accountant was told that they stay away for eight.

    Banded noise has not forgotten a client after one round: its columns overlap, and four rounds show more than twice as much.
    """

    @classmethod
    def into(cls, job: Federation, secret_seed: int) -> Federation:
        """The same federation, with clients that come back at once."""
        # right: return job
        return _planted(job, Separated(_times(job).times, 1), secret_seed)


@bug(
    "single-sensitivity",
    "correlated",
    "jax_privacy pull request 238 mends an example that left repeated participation out of its sensitivity.",
)
class SensitivityOfOneRound:
    """The sensitivity is that of one participation, the largest column norm, and clients take part four times.

    Columns that are eight rounds apart are orthogonal, so that the canaries show twice as much.
    """

    @classmethod
    def into(cls, job: Federation, secret_seed: int) -> Federation:
        """The training itself is right."""
        return job

    @classmethod
    def stated(cls, job: Federation) -> Participation:
        """The accountant knows who takes part when."""
        return job.participation

    @classmethod
    def claimed(cls, job: Federation, delta: float) -> Claim:
        """The claim of one participation."""
        # right: return _claimed(job, delta, _times(job))
        from coalmine import accounting  # with scipy, which a list does not need

        return accounting.claim_of(job.mechanism.describe(), Once(), delta=delta, rounds=job.rounds)


@bug(
    "root-of-k",
    "correlated-root",
    "The sensitivity of banded noise, the root of the number of participations, used for a strategy without bands.",
)
class RootOfParticipations:
    """Eight participations count as the root of eight, although the columns of a square-root Toeplitz matrix overlap.

    What a client leaves in later rounds adds up with what it sends there.
    """

    @classmethod
    def into(cls, job: Federation, secret_seed: int) -> Federation:
        """The training itself is right."""
        return job

    @classmethod
    def stated(cls, job: Federation) -> Participation:
        """The accountant knows who takes part when."""
        return job.participation

    @classmethod
    def claimed(cls, job: Federation, delta: float) -> Claim:
        """The claim of orthogonal columns."""
        # right: return _claimed(job, delta, _times(job))
        mechanism: Any = job.mechanism
        from coalmine import accounting  # with scipy, which a list does not need

        return _claimed(job, delta, _times(job), accounting.plain_gaussian(mechanism.noise_multiplier))


@bug(
    "matrix-not-inverted",
    "correlated",
    "The strategy matrix where its inverse is meant: both are lower triangular Toeplitz matrices of the same size.",
    sentence="noise-fresh",
)
@dataclass(frozen=True)
class MatrixInsteadOfInverse(Replacing, Correlated):
    """The normals are multiplied with C instead of its inverse.

    The noise adds up in the model instead of cancelling, and yet it hides less of a canary than is claimed.
    """

    def correlated(self, number: int, dim: int, draw: Draw, state: State) -> tuple[Array, State]:
        """The noise of a round."""
        # right: return super().correlated(number, dim, draw, state)
        return _regenerated(self.strategy.matrix()[number, : number + 1], dim, draw), state


@bug(
    "noise-made-even",
    "correlated",
    "A check that every release has noise of the stated standard deviation, satisfied by rescaling the noise of every round.",
    sentence="noise-scale",
)
@dataclass(frozen=True)
class NoiseOfEvenSize(Replacing, Correlated):
    """The noise of every round is scaled to the noise multiplier itself.

    Releases of correlated noise must have more noise than that; scaled down, the canaries stand out by as much.
    """

    def correlated(self, number: int, dim: int, draw: Draw, state: State) -> tuple[Array, State]:
        """The noise of a round."""
        made, kept = super().correlated(number, dim, draw, state)
        # right: return made, kept
        return made / np.linalg.norm(self.strategy.row(number)), kept


@bug(
    "restart-repeats",
    "correlated",
    "A noise generator that is made again, from the same seed, when a job is restarted.",
    sentence="noise-fresh",
)
@dataclass(frozen=True)
class RestartRepeatsNormals(Replacing, Correlated):
    """After a restart the normals are those of the beginning.

    Rounds with the same noise differ by what clients sent, and the matched filter subtracts one from the other.
    """

    def correlated(self, number: int, dim: int, draw: Draw, state: State) -> tuple[Array, State]:
        """The noise of a round."""
        place = number % _RESTART
        # right: return super().correlated(number, dim, draw, state)
        return super().correlated(place, dim, draw, state if place else self.strategy.init(dim))


@bug(
    "marginal-noise-accounted",
    "correlated",
    "The standard deviation of a release, as it is measured in a log, handed to an accountant of independent noise.",
)
class NoiseOfAReleaseAccounted:
    """The accountant is told the noise of a single release, which is larger than the noise multiplier of correlated noise.

    An adversary who whitens the releases sees through the part of the noise that cancels.
    """

    @classmethod
    def into(cls, job: Federation, secret_seed: int) -> Federation:
        """The training itself is right."""
        return job

    @classmethod
    def stated(cls, job: Federation) -> Participation:
        """The accountant knows who takes part when."""
        return job.participation

    @classmethod
    def claimed(cls, job: Federation, delta: float) -> Claim:
        """The claim of too large a noise."""
        mechanism: Any = job.mechanism
        # right: marginal = 1.0
        marginal = float(np.linalg.norm(mechanism.strategy.row(job.rounds - 1)))
        return _claimed(job, delta, _times(job), job.mechanism.describe().scaled(marginal))


@bug(
    "coefficients-as-printed",
    "correlated-root",
    "Noise coefficients -t^(-3/2), as an asymptotic formula without its constant 1/(2 sqrt(pi)) is printed on slides.",
    sentence="noise-fresh",
)
@dataclass(frozen=True)
class CoefficientsAsPrinted(Replacing, Correlated):
    """The noise coefficients are -t^(-3/2), without the factor 1/(2 sqrt(pi)) of the formula that they come from.

    Such noise takes back more than was added, and a combination of releases has almost none of it.
    """

    def correlated(self, number: int, dim: int, draw: Draw, state: State) -> tuple[Array, State]:
        """The noise of a round."""
        lags = np.arange(number, -1, -1)
        # right: weights = self.strategy.row(number)
        weights = np.where(lags == 0, 1.0, -(np.maximum(lags, 1.0) ** -1.5)) / self.strategy.first
        return _regenerated(weights, dim, draw), state


@dataclass(frozen=True)
class Neighbours(Separated):
    """Once in each period, in its last round and then in the first of the next: what reshuffled epochs may deal out."""

    def _check(self, population: int, rounds: int) -> None:
        pass

    def _draw(self, population: int, rounds: int, streams: Streams, start: int) -> Iterator[IndexArray]:
        borders = [rounds * number // self.times for number in range(self.times + 1)]
        taken = {borders[number + 1] - 1 if number % 2 == 0 else borders[number] for number in range(self.times)}
        for number in range(start, rounds):
            yield np.arange(population) if number in taken else np.zeros(0, np.int64)


@bug(
    "periods-as-separation",
    "correlated",
    "Epochs that are shuffled anew, accounted as if two rounds of a client were always an epoch apart.",
)
class ShuffledAccountedAsSeparated:
    """Every epoch is shuffled anew, and the accountant is told that a client's rounds are an epoch apart.

    Whoever comes last in one epoch and first in the next takes part twice in a row, and its columns overlap.
    """

    @classmethod
    def into(cls, job: Federation, secret_seed: int) -> Federation:
        """The same federation, with clients whom the shuffling dealt neighbouring rounds."""
        limits = _times(job)
        # right: return job
        return _planted(job, Neighbours(limits.times, limits.separation), secret_seed)


@bug(
    "restart-forgets",
    "correlated",
    "Buffers of the noise that are not part of a checkpoint, so that a restart begins with empty ones.",
    sentence="noise-fresh",
    innocent=True,
)
@dataclass(frozen=True)
class RestartForgetsBuffers(Replacing, Correlated):
    """After a restart in the middle of training the noise knows nothing of the noise before; its normals are new ones.

    The model has more noise than it needs, and a canary shows no more than is claimed.
    """

    def correlated(self, number: int, dim: int, draw: Draw, state: State) -> tuple[Array, State]:
        """The noise of a round."""
        strategy: Any = self.strategy
        half = -(-strategy.rounds // 2)
        # right: return super().correlated(number, dim, draw, state)
        return Restarted(strategy.rounds, Banded(half, strategy.values)).noise(number, dim, draw, state)


@bug(
    "inverse-cut-off",
    "correlated-root",
    "Noise coefficients that are cut off after a few terms, to save memory.",
    sentence="noise-fresh",
    innocent=True,
)
@dataclass(frozen=True)
class InverseCutOff(Replacing, Correlated):
    """The noise of a round uses the normals of the last eight rounds only.

    What is cut off would have taken back noise of earlier rounds: there is more noise in the model, and no more of a canary.
    """

    def correlated(self, number: int, dim: int, draw: Draw, state: State) -> tuple[Array, State]:
        """The noise of a round."""
        weights = self.strategy.row(number).copy()
        weights[: max(number + 1 - _CUT, 0)] = 0.0  # right: without this line
        return _regenerated(weights, dim, draw), state
