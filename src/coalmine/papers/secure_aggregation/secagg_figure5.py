"""Figure 5: accuracy of full gradients (GD-DP), Gaussian weights with water-filling (GSGD-DP) and batches (SGD-DP).

The paper prints no number of it: only the order GD-DP > GSGD-DP > SGD-DP at equal epsilon. Where ours is the same, the rows
of that epsilon are of the same shape. Our choices: softmax regression, and a small convolutional network, on pooled MNIST;
FedSGD; the best of a few learning rates for GD-DP (also used for GSGD-DP) and for SGD-DP; noise by the exact Gaussian curve
(GD), by the tight curve (GSGD) and by dp-accounting's Rényi accountant for batches without replacement (SGD).
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from coalmine._random import stream
from coalmine.accounting.events import Event
from coalmine.accounting.water_filling import WaterFillingEvent, floor_for
from coalmine.contracts import Array, Sampling
from coalmine.gaussian import gaussian_gap
from coalmine.mechanisms import BatchGradient, FullGradient, WaterFilling
from coalmine.papers.kit.experiment import Ask
from coalmine.papers.kit.paper_result import PaperCheck, PaperResult, PaperRow, ResultPart, RowVerdict
from coalmine.papers.secure_aggregation.cnn import Network
from coalmine.papers.secure_aggregation.mnist import Users, accuracy, users_of

CLIP, BATCH, DELTA = 10.0, 32, 1e-4
TITLES = {
    "linear": "Figure 5, softmax regression on MNIST: accuracy at equal epsilon",
    "noniid": "Figure 5, softmax regression on MNIST, two label shards a user: accuracy at equal epsilon",
    "cnn-small": "Figure 5, a small convolutional network on MNIST: accuracy at equal epsilon",
    "efficiency": "Figure 5, efficiency: seconds of a round, and epsilon by the size of a batch",
}
NAMES = ("GD-DP", "GSGD-DP", "SGD-DP")
RATES: tuple[float, ...] = (0.5, 1.5, 4.0)
SIDE, CNN_CLIP, CNN_RATES = 7, 1.0, (1.0, 3.0)
ORDER = " > ".join(NAMES)


def reproduce(ask: Ask) -> PaperResult:
    """The linear model on users alike and not alike, a small network, and what a round takes."""
    makes: dict[str, Callable[[Ask], ResultPart]] = {
        "linear": _linear,
        "noniid": partial(_linear, noniid=True),
        "cnn-small": _cnn,
        "efficiency": _efficiency,
    }
    return PaperResult.of(
        ask.named("secagg-figure5"),
        TITLES.get(ask.part or "", TITLES["linear"]),
        ask.parts(**makes),
        error="standard deviation over seeds",
    )


def floor_of(name: str, epsilon: float, users: int, examples: int, rounds: int, clip_norm: float = CLIP) -> float:
    """The variance of each user for this epsilon, by the accountant of each mechanism."""
    if name == "GD-DP":
        return 4 * rounds * clip_norm**2 / (examples**2 * users * gaussian_gap(epsilon, DELTA) ** 2)
    if name == "GSGD-DP":
        return floor_for(WaterFillingEvent(clip_norm, examples, BATCH, users, 1.0), epsilon, DELTA, rounds, "tight")
    sampling = Sampling(BATCH / examples, rounds, BATCH, examples)
    low, high = -3.0, 8.0
    for _ in range(40):  # noise in units of what one example adds to the sum
        middle = (low + high) / 2
        event = Event(math.exp(middle), math.sqrt(rounds), sampling, "rdp", "replace-one")
        low, high = (middle, high) if event.epsilon(DELTA) > epsilon else (low, middle)
    return (math.exp(high) * clip_norm / BATCH) ** 2 / users


@dataclass(frozen=True, eq=False)
class Task:
    """What is trained, and how often."""

    data: Users | Network
    accuracy: Callable[[Array], float]
    rounds: int
    seeds: int
    rates: tuple[float, ...]
    clip_norm: float

    def reached(self, name: str, floor: float, rates: tuple[float, ...], seed: int) -> tuple[float, float, float]:
        """(mean, standard deviation) of the accuracy over seeds at the best learning rate, and that rate."""
        tried = {
            rate: [
                self.accuracy(train(name, floor, self.data, self.rounds, rate, seed + place, self.clip_norm))
                for place in range(self.seeds)
            ]
            for rate in rates
        }
        mean, rate = max((float(np.mean(found)), rate) for rate, found in tried.items())
        return mean, float(np.std(tried[rate], ddof=1)), rate


def train(
    name: str, floor: float, data: Users | Network, rounds: int, rate: float, seed: int, clip_norm: float = CLIP
) -> Array:
    """The model after so many rounds of FedSGD with this mechanism."""
    users, examples = data.targets.shape
    make: dict[str, Callable[[], FullGradient]] = {
        "GD-DP": lambda: FullGradient(clip_norm, floor, examples, users),
        "GSGD-DP": lambda: WaterFilling(clip_norm, floor, examples, users, BATCH),
        "SGD-DP": lambda: BatchGradient(clip_norm, floor, examples, users, BATCH),
    }
    mechanism, parameters = make[name](), np.array(data.started)
    for number in range(rounds):
        public = mechanism.announce({}, number, float(users))
        total = np.zeros(data.dim)
        for user in range(users):
            rows = data.gradients(user, parameters, clip_norm).astype(np.float32)
            secret = partial(stream, seed, name, number, user)
            total += mechanism.client(rows[0], public, examples, own=rows, secret=secret).vector
        parameters -= rate * total / users
    return parameters


def _linear(ask: Ask, noniid: bool = False) -> ResultPart:
    full = (7, 50, 300, 30, 3) if noniid else (7, 50, 600, 30, 3)
    side, users, examples, rounds, seeds = ask.pick(full=full, quick=(7, 10, 200, 10, 2))
    data = users_of(ask, users=users, examples=examples, side=side)
    if noniid:  # two label shards a user: sorted by class, dealt out in pieces
        order = np.argsort(data.targets.ravel(), kind="stable").reshape(2 * users, -1)
        order = order[stream(ask.seed, "shards").permutation(2 * users)].reshape(users, examples)
        data = Users(data.features.reshape(-1, data.features.shape[2])[order], data.targets.ravel()[order])
    test = users_of(ask, users=1, examples=10_000, side=side, split="test")
    task = Task(data, partial(accuracy, test=test), rounds, seeds, RATES, CLIP)
    rows, checks = _compared(ask, task, ask.pick(full=(0.2, 0.5), quick=(0.5, 2.0)), "non-iid, " if noniid else "")
    return ResultPart(rows, checks, (f"{side} x {side} pixels, {users} users of {examples}, {rounds} rounds.",),
                      ask.about(delta=DELTA, batch=BATCH, clip_norm=CLIP))  # fmt: skip


def _cnn(ask: Ask) -> ResultPart:
    """A small network: its gradients are shorter than those of softmax regression, so is the clip norm."""
    users, examples, rounds, seeds = ask.pick(full=(20, 200, 20, 2), quick=(4, 64, 3, 2))
    test = users_of(ask, users=1, examples=ask.pick(full=10_000, quick=1000), side=SIDE, split="test")
    data = Network(users_of(ask, users=users, examples=examples, side=SIDE), test, SIDE)
    task = Task(data, data.accuracy, rounds, seeds, CNN_RATES, CNN_CLIP)
    rows, checks = _compared(ask, task, ask.pick(full=(8.0,), quick=(16.0,)), "network, ")
    notes = (
        f"{data.dim:,} parameters, {users} users of {examples}, {rounds} rounds; clip norm {CNN_CLIP:g}, not the paper's.",
    )
    return ResultPart(rows, checks, notes, ask.about(delta=DELTA, batch=BATCH, clip_norm=CNN_CLIP))


def _compared(ask: Ask, task: Task, epsilons: tuple[float, ...], what: str) -> tuple[list[PaperRow], list[PaperCheck]]:
    """Accuracy of the three mechanisms at each epsilon; GSGD-DP takes the learning rate that is best for GD-DP."""
    users, examples = task.data.targets.shape
    rows, checks = [], []
    for epsilon in epsilons:
        found, rates = [], task.rates
        for name in NAMES:
            floor = floor_of(name, epsilon, users, examples, task.rounds, task.clip_norm)
            mean, spread, rate = task.reached(name, floor, rates, ask.seed * 100)
            rates = (rate,) if name == "GD-DP" else task.rates
            note = f"sigma² {floor:.3g}, learning rate {rate:g}"
            found.append(PaperRow(f"{what}epsilon {epsilon:g}, {name}: accuracy", ORDER, mean, spread, note=note,
                                  place={"epsilon": epsilon, "mechanism": name}))  # fmt: skip
        means = [float(row.ours or 0.0) for row in found]
        rows += [replace(row, verdict=ordered(means)) for row in found]
        text = " > ".join(f"{name} {mean:.3f}" for name, mean in zip(NAMES, means, strict=True))
        checks.append(PaperCheck(f"{what}epsilon {epsilon:g}: {text}", ordered(means) == "same shape"))
    return rows, checks


def ordered(means: Sequence[float]) -> RowVerdict:
    """Whether accuracies have the order of the paper's figure."""
    return "same shape" if all(before > after for before, after in itertools.pairwise(means)) else "differs"


def _efficiency(ask: Ask) -> ResultPart:
    """Seconds of a round, all users on one core; the least noise by B, which approaches that of full gradients."""
    users, examples = ask.pick(full=(10, 1200), quick=(5, 300))
    data = users_of(ask, users=users, examples=examples, side=14)
    rows = []
    for name in NAMES:
        begun = time.perf_counter()
        train(name, 1e-3, data, 2, 0.1, ask.seed)
        rows.append(PaperRow(f"{name}: seconds of a round of {users} users", "SGD < GD < GSGD",
                             (time.perf_counter() - begun) / 2, note="all gradients are computed in all three"))  # fmt: skip
    gaps = []
    for batch in (32, 150, 600, 1200):
        sampling = Sampling(batch / 1200, 30, batch, 1200) if batch < 1200 else None
        noise = 50.0 * batch / 1200  # the same variance on the sum, in units of what one example adds, C/B
        event = Event(noise, math.sqrt(30), sampling, "rdp" if sampling else "analytic", "replace-one")
        gaps.append(event.epsilon(DELTA))
        rows.append(PaperRow(f"epsilon of 30 rounds at the same noise, batches of {batch}", "falls to that of GD", gaps[-1]))
    falls = all(after <= before * 1.001 for before, after in itertools.pairwise(gaps))
    return ResultPart(rows, [PaperCheck("B/D towards 1 makes SGD-DP into GD-DP", falls)])
