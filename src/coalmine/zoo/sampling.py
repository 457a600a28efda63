"""Who takes part, how often and with what weight, if it is not what the accountant was told. The right line stands beside."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from coalmine.contracts import Claim, Contribution, Public, Vector
from coalmine.mechanisms import Gaussian
from coalmine.participation import Epochs, Pattern, Periods, Poisson
from coalmine.zoo.bug import Replacing, bug

if TYPE_CHECKING:  # a list of bugs loads no trainer
    from coalmine.training.federation import Federation


def _with_rounds(job: Federation, actual: Pattern, secret_seed: int) -> Federation:
    """The same federation with canaries that take part as `actual` says."""
    assert job.canary_setup is not None
    schedule = job.canary_setup.schedule.draw(
        actual, pool=job.canary_setup.schedule.pool, rounds=job.rounds, secret_seed=secret_seed
    )
    return replace(job, canary_setup=replace(job.canary_setup, schedule=schedule))


@bug(
    "too-often",
    "once",
    "A client that is let in again whenever its device restarts; jax_privacy pull request 238 mends an example that left "
    "repeated participation out of its sensitivity.",
    sentence="cohorts",
)
class LetInFourTimes:
    """A client is let in four times, and the accountant was told once.

    The adversary who knows the rounds adds them up and sees twice as much as claimed.
    """

    @classmethod
    def into(cls, job: Federation, secret_seed: int) -> Federation:
        """The same federation, more open."""
        # right: return job
        return _with_rounds(job, Periods(4), secret_seed)


@bug(
    "weighted-cohort",
    "chat",
    "Federated averaging as it is printed weighs by examples; McMahan et al. 2018 cap the weights, for the sensitivity's sake.",
    sentence="treated-alike",
)
@dataclass(frozen=True)
class WeightedByExamples(Replacing, Gaussian):
    """Clipped updates are weighted by the number of examples, and the noise stays what equal weights ask for.

    A client with the most examples counts several times, and canaries say that they have as many.
    """

    average: float = 1.0

    def client(self, update: Vector, public: Public, examples: int = 1) -> Contribution:
        """The update, cut and weighted."""
        cut = super().client(update, public)
        # right: return cut
        return replace(cut, vector=cut.vector * (examples / self.average))

    @classmethod
    def further(cls, job: Federation) -> dict[str, Any]:
        """It knows how many examples a client has on average."""
        return {"average": float(job.data.sizes.mean())}


@bug(
    "counted-twice",
    "once",
    "A reply that is sent again after a time-out, and summed both times.",
    canaries=False,
    sentence="treated-alike",
)
@dataclass(frozen=True)
class CountedTwice(Replacing, Gaussian):
    """One contribution in ten is counted twice.

    Nine canaries in ten look as they should, and the noise is right.
    """

    def client(self, update: Vector, public: Public, examples: int = 1) -> Contribution:
        """The update, cut, now and then twice."""
        cut = super().client(update, public)
        # right: return cut
        again = hashlib.sha256(np.ascontiguousarray(update).tobytes()).digest()[0] < 26
        return replace(cut, vector=cut.vector * 2) if again else cut


@bug(
    "wrong-rate",
    "poisson",
    "The sampling rate of examples where that of users is meant: cohort over examples instead of cohort over users.",
    sentence="cohorts",
)
class RateOfExamples:
    """Clients are sampled at a rate of 1/2, and the accountant is told the rate of an example, 16 times less.

    An adversary who does not know the rounds tests all of them at once and finds more than so rare a client could leave.
    """

    @classmethod
    def into(cls, job: Federation, secret_seed: int) -> Federation:
        """The training itself is right."""
        return job

    @classmethod
    def stated(cls, job: Federation) -> Pattern:
        """The rate that the accountant is told."""
        sampled = job.participation.sampling
        assert sampled is not None
        # right: return job.participation
        return Poisson(sampled.rate * len(job.data) / int(job.data.sizes.sum()), sampled.rounds)

    @classmethod
    def claimed(cls, job: Federation, delta: float) -> Claim:
        """The claim of that rate."""
        from coalmine import accounting  # with scipy, which a list does not need

        return accounting.claim_of(job.mechanism.describe(), cls.stated(job), delta=delta)


@bug(
    "shuffled",
    "dealt",
    "Chua et al. 2024, How Private are DP-SGD Implementations: batches of a shuffled data set, accounted as Poisson samples.",
    sentence="cohorts",
)
class ShuffledAndClaimedAsSampled:
    """All clients are dealt out once in every epoch, in an order that is known, and the claim is that of Poisson sampling.

    Nothing is amplified, and eight presentations of a canary show more than is claimed.
    """

    @classmethod
    def into(cls, job: Federation, secret_seed: int) -> Federation:
        """The training itself is right."""
        return job

    @classmethod
    def stated(cls, job: Federation) -> Pattern:
        """A sampling that never takes place."""
        # right: return job.participation
        return Poisson(job.participation.expected_size(len(job.data), job.rounds) / len(job.data), job.rounds)

    @classmethod
    def claimed(cls, job: Federation, delta: float) -> Claim:
        """Its claim."""
        from coalmine import accounting  # with scipy, which a list does not need

        return accounting.claim_of(job.mechanism.describe(), cls.stated(job), delta=delta)


@bug(
    "shuffled-in-secret",
    "poisson",
    "Chua et al. 2024, as above, with an order that nobody knows.",
    canaries=False,
    sentence="cohorts",
)
class ShuffledInSecret:
    """All clients are dealt out once in every epoch in a secret order, and the claim is that of Poisson sampling.

    Where the two differ is in a far tail, and the scores of some hundred canaries do not reach it.
    """

    @classmethod
    def into(cls, job: Federation, secret_seed: int) -> Federation:
        """The same federation, dealt out."""
        sampled = job.participation.sampling
        assert sampled is not None
        # right: return job
        dealt = Epochs(round(sampled.rate * job.rounds))
        return _with_rounds(replace(job, participation=dealt), dealt, secret_seed)
