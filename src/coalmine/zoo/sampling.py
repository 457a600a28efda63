"""Who takes part, how often and with what weight, if it is not what the accountant was told. The right line stands beside."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from coalmine._random import stream
from coalmine.canaries.planting import Planting
from coalmine.contracts import Contribution, Public, Vector
from coalmine.federation import Federation
from coalmine.mechanisms import Gaussian
from coalmine.participation import Epochs, Participation, Periods, Poisson
from coalmine.views import KnownOthers
from coalmine.zoo.inmate import InPlaceOfTheRightOne, inmate


@dataclass(frozen=True)
class RoundsThatEverybodyKnows(KnownOthers):
    """An adversary that is claimed not to know the rounds, and does."""

    knows_rounds = False


def _with_rounds(job: Federation, claimed: Participation, actual: Participation, secret_seed: int) -> Federation:
    """Canaries that take part as `actual` says, while the accountant believes `claimed`."""
    assert job.plants is not None
    planting = Planting.draw(actual, pool=job.plants.planting.pool, rounds=job.rounds, secret_seed=secret_seed)
    return replace(job, plants=replace(job.plants, planting=replace(planting, pattern=claimed)))


@inmate(
    "too-often",
    "once",
    "A client that is let in again whenever its device restarts; jax_privacy pull request 238 mends a sensitivity that was too "
    "small by the number of participations.",
)
class LetInFourTimes:
    """A client is let in four times, and the accountant was told once.

    The adversary who knows the rounds adds them up and sees twice as much as claimed.
    """

    @classmethod
    def into(cls, job: Federation, secret_seed: int) -> Federation:
        """The same federation, more open."""
        # right: actual = Periods(1)
        actual = Periods(4)
        return _with_rounds(job, Periods(1), actual, secret_seed)


@inmate(
    "weighted-cohort",
    "chat",
    "Federated averaging as it is printed weighs by examples; McMahan et al. 2018 cap the weights, for the sensitivity's sake.",
)
@dataclass(frozen=True)
class WeightedByExamples(InPlaceOfTheRightOne, Gaussian):
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


@inmate(
    "wrong-rate",
    "poisson",
    "The sampling rate of examples where that of users is meant: cohort over examples instead of cohort over users.",
)
class RateOfExamples:
    """Clients are sampled at a rate of 1/2, and the accountant is told the rate of an example, 16 times less.

    An adversary who does not know the rounds tests all of them at once and finds more than so rare a client could leave.
    """

    @classmethod
    def into(cls, job: Federation, secret_seed: int) -> Federation:
        """The same federation with another claim."""
        clients, examples = len(job.data), int(job.data.sizes.sum())
        assert isinstance(job.participation, Poisson)
        actual = job.participation
        # right: claimed = actual
        claimed = replace(actual, rate=actual.rate * clients / examples)
        return _with_rounds(job, claimed, actual, secret_seed)


@inmate(
    "shuffled",
    "sampled",
    "Chua et al. 2024, How Private are DP-SGD Implementations: batches of a shuffled data set, accounted as Poisson samples.",
    view=RoundsThatEverybodyKnows(),
)
class ShuffledWithAPublicSeed:
    """The run deals all clients out once in every epoch, by the public seed, and the claim is that of Poisson sampling.

    Whoever has the seed knows the rounds, so that nothing is amplified, and sees eight presentations of a canary.
    """

    @classmethod
    def into(cls, job: Federation, secret_seed: int) -> Federation:
        """The same federation, dealt out."""
        assert job.plants is not None and isinstance(job.participation, Poisson)
        claimed = job.participation
        # right: rounds = claimed.cohorts(pool, job.rounds, <the secret streams>)
        dealt = Epochs(round(claimed.rate * job.rounds))
        rounds = dealt.cohorts(job.plants.planting.pool, job.rounds, partial(stream, job.seed, "order"))
        planting = replace(job.plants.planting, assigned=tuple(rounds))
        return replace(job, participation=dealt, plants=replace(job.plants, planting=planting))


@inmate(
    "shuffled-in-secret",
    "sampled",
    "Chua et al. 2024, as above, with an order that nobody knows.",
    visible=False,
    instead="The rounds: nobody takes part twice in an epoch, which Poisson sampling would let a quarter of them do, "
    "and an accountant for shuffling.",
)
class ShuffledInSecret:
    """The run deals all clients out once in every epoch in a secret order, and the claim is that of Poisson sampling.

    At this noise the two leak so nearly the same that hundreds of canaries cannot tell; the gap opens in the far tail.
    """

    @classmethod
    def into(cls, job: Federation, secret_seed: int) -> Federation:
        """The same federation, dealt out."""
        assert job.plants is not None and isinstance(job.participation, Poisson)
        claimed = job.participation
        # right: actual = claimed
        actual = Epochs(round(claimed.rate * job.rounds))
        return _with_rounds(replace(job, participation=actual), claimed, actual, secret_seed)
