"""The three trainings of CANIFE as numbers, and what a perfect canary shows in them by the paper's own estimator.

A perfect canary is orthogonal to every other update and as long as the clip norm: its scores are N(0, sigma²) without it and
N(1, sigma²) with it. No other canary can be seen better.
"""

from __future__ import annotations

from dataclasses import dataclass

from coalmine.accounting.rounds import compose_canife, one_round_epsilon
from coalmine.estimators.composed import Perfect, perfect_canary
from coalmine.gaussian import gaussian_epsilon
from coalmine.papers.kit.experiment import Ask
from coalmine.papers.kit.paper_result import PaperRow, RowVerdict

DELTA, DRAWS = 1e-5, 100
LEAST_GAP, MOST_GAP = 4.0, 5.0  # section 4.2: 4.5 for Sent140, "4 - 5" for all three
EPSILONS = (10, 30, 50)


@dataclass(frozen=True)
class Training:
    """Appendices B and C.3, and the noise multipliers that reach epsilon 10, 30 and 50."""

    name: str
    population: int
    cohort: int
    rounds: int
    noises: tuple[float, ...]

    @property
    def rate(self) -> float:
        """Of Poisson sampling."""
        return self.cohort / self.population

    def composed(self, epsilon: float) -> float:
        """The paper's epsilon of the training, if every round shows this one at delta = 1/100."""
        return compose_canife([epsilon], self.rounds, self.rate, DELTA, measured_delta=1 / DRAWS).epsilon

    def composed_exactly(self, noise: float) -> float:
        """The accountant's epsilon with this noise in every round."""
        return self.composed(one_round_epsilon(noise, 1 / DRAWS))


TRAININGS = (
    Training("Sent140", 59_214, 100, 8_895, (0.483, 0.366, 0.321)),
    Training("CelebA", 8_408, 100, 2_550, (0.684, 0.486, 0.419)),
    Training("Shakespeare", 1_016, 60, 510, (1.00, 0.621, 0.516)),
)


@dataclass(frozen=True)
class TrainedModel:
    """One training at one epsilon."""

    training: Training
    epsilon: int
    noise: float
    perfect: Perfect

    @property
    def place(self) -> dict[str, object]:
        """In the table."""
        return {"task": self.training.name, "epsilon": self.epsilon}

    @property
    def what(self) -> str:
        """In words."""
        return f"{self.training.name}, epsilon {self.epsilon}"

    @property
    def theory(self) -> float:
        """Of one round, as the paper computes it."""
        return one_round_epsilon(self.noise, DELTA)

    @property
    def composed(self) -> float:
        """By a perfect canary's mean estimate."""
        return self.training.composed(self.perfect.mean)


def shown(ask: Ask) -> list[TrainedModel]:
    """All nine, simulated."""
    runs = ask.repeat(full=20_000, quick=2_000)
    return [
        TrainedModel(training, epsilon, noise, perfect_canary(noise, draws=DRAWS, simulations=runs, seed=ask.seed))
        for training in TRAININGS
        for epsilon, noise in zip(EPSILONS, training.noises, strict=True)
    ]


def round_row(each: TrainedModel) -> PaperRow:
    """The estimate of one round by a perfect canary; what is printed is the gap."""
    same = gaussian_epsilon(0.0, each.noise, 1.0, each.noise, 1 / DRAWS)
    exact = gaussian_epsilon(0.0, each.noise, 1.0, each.noise, DELTA)
    note = f"one round: {each.theory:.1f} by Rényi orders, exactly {exact:.1f}, and {same:.1f} at delta 0.01"
    return PaperRow(f"{each.what}, one round", "", each.perfect.mean, each.perfect.std, note=note,
                    place={**each.place, "column": "round"})  # fmt: skip


def gap_row(each: TrainedModel) -> PaperRow:
    """How many times the theoretical epsilon of a round is larger."""
    gap = each.theory / each.perfect.mean
    printed = ("4.5" if each.training.name == "Sent140" else "4 - 5") if each.epsilon == EPSILONS[-1] else ""
    verdict: RowVerdict | None = None if not printed else ("model-based" if LEAST_GAP <= gap <= MOST_GAP else "differs")
    return PaperRow(f"{each.what}, gap", printed, gap, verdict=verdict, place={**each.place, "column": "gap"})


def composed_row(each: TrainedModel) -> PaperRow:
    """The whole training."""
    printed = "6" if each.training.name == "CelebA" and each.epsilon == EPSILONS[-1] else ""
    verdict: RowVerdict | None = None if not printed else ("model-based" if round(each.composed) == 6 else "differs")
    most = each.training.composed(each.perfect.ceiling)
    note, place = f"{DRAWS} scores cannot show more than {most:.1f}", {**each.place, "column": "composed"}
    return PaperRow(f"{each.what}, composed", printed, each.composed, verdict=verdict, note=note, place=place)
