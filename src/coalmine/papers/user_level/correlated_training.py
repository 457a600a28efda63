"""Training with correlated noise at equal epsilon: accuracy by strategy, each with its own tuned learning rate, and audited.

All strategies are accounted without amplification by sampling, for clients that come in the same order in every epoch. Every
method has the same grid of learning rates and momenta, each tried twice, without canaries and with other seeds than the runs
that count; at full scale it is tried on the small setting. The same training without noise says how much there is to gain. Runs
are made once and kept; a study that was killed goes on.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import permutations, product
from pathlib import Path
from typing import Any

import numpy as np

from coalmine import accounting
from coalmine.papers.kit.experiment import Ask
from coalmine.papers.kit.making import obtain
from coalmine.papers.kit.paper_result import PaperCheck, PaperResult, PaperRow, ResultPart
from coalmine.papers.user_level.training_families import METHODS, PARTS, Family, family
from coalmine.result import AuditResult
from coalmine.training.assembly import federation, load_task
from coalmine.training.config import Config

EPSILONS = (2.0, 8.0, 16.0)
SEEDS = 3
TUNING = (1000003, 1000033)  # seeds of the runs that a setting is chosen by: one alone chose badly
DELTA = 1e-5
MOST_BANDS = 40  # so that checkpoints of a million parameters stay below 512 MB
QUICK_METHODS = ("independent", "banded", "blt", "toeplitz")
QUICK_GRID = ((1.0, 0.0), (0.3, 0.9), (1.0, 0.9), (2.0, 0.9))
_NO_MOMENTUM: tuple[str, ...] = (
    "mechanism.momentum=0.0",
)  # of the server, that a strategy is found for: one for the whole grid
_WRONG = {"VIOLATED", "DEVIATES"}


def reproduce(ask: Ask) -> PaperResult:
    """Accuracies by epsilon and method; all families, or the part that is asked for."""
    wanted = {name: lambda ask, name=name: study(ask, name) for name in PARTS}
    title = "Training at equal epsilon: correlated noise against independent noise, without amplification"
    found = PaperResult.of(ask.named("correlated-training"), title, ask.parts(**wanted), error="standard error over runs")
    return replace(found, about=ask.about(**found.about))


def study(ask: Ask, name: str) -> ResultPart:
    """One family: tuning without canaries, then fresh runs with canaries at the best setting."""
    own, notes = family(ask, name)
    names = ask.pick(full=own.methods, quick=QUICK_METHODS)
    small, more = _methods(ask, own, names, small=True)
    made, more = (small, more) if not ask.full else _methods(ask, own, tuple(small), small=False)
    base = f"correlated-{name}"
    wanted = {
        (epsilon, method): Wanted(f"{base}-eps{epsilon:g}-{method}", small[method], made[method], epsilon)
        for epsilon in EPSILONS
        for method in made
    }
    wanted[0.0, "no noise"] = Wanted(f"{base}-no-noise", small["independent"], made["independent"], None)
    cells = _trained(ask, own, wanted)
    silent = cells.pop((0.0, "no noise"))
    rows = [row for (epsilon, method), cell in cells.items() for row in cell.rows(name, own, epsilon, made[method], cells)]
    note = f"nothing to gain beyond; rate {silent.tuned[0]:g}, momentum {silent.tuned[1]:g}"
    place = {"family": name, "epsilon": "none", "method": "no noise"}
    rows.append(PaperRow(f"{own.title}, without noise: accuracy", "", silent.mean, silent.error, None, note, place))
    checks = [*_audits(own, cells), *_orders(own, made, cells)]
    table = {f"{epsilon:g}": {each: cells[epsilon, each].accuracies for each in made} for epsilon in EPSILONS}
    about = {"runs_per_cell": SEEDS, "settings_tried_per_cell": len(_grid(ask, own))}
    table["without noise"] = {"independent": silent.accuracies}
    notes = [*_notes(ask, own, names), *_alike(own, made), *notes, *more]
    return ResultPart(rows, checks, notes, about, {f"accuracy_{name}": table})


@dataclass(frozen=True)
class Made:
    """A method in a family: its options, and what it costs."""

    method: str
    options: tuple[str, ...]
    job: Any
    loss: float
    small: bool


@dataclass(frozen=True)
class Wanted:
    """What is trained for one epsilon and one method, None being no noise at all, under names that begin with `base`."""

    base: str
    small: Made  # what it is tuned on
    made: Made
    epsilon: float | None


@dataclass(frozen=True)
class TrainingCell:
    """What came out for one epsilon and one method."""

    method: str
    tuned: tuple[float, float]
    accuracies: list[float]
    verdicts: list[str]

    @property
    def mean(self) -> float:
        """Over the runs."""
        return float(np.mean(self.accuracies))

    @property
    def error(self) -> float:
        """Standard error of the mean."""
        return float(np.std(self.accuracies, ddof=1) / len(self.accuracies) ** 0.5)

    def rows(
        self, name: str, own: Family, epsilon: float, made: Made, cells: Mapping[tuple[float, str], TrainingCell]
    ) -> list[PaperRow]:
        """The accuracy, and what it gains over independent noise."""
        note = f"loss {made.loss:.3g}, rate {self.tuned[0]:g}, momentum {self.tuned[1]:g}, audits {_counted(self.verdicts)}"
        place = {"family": name, "epsilon": epsilon, "method": self.method}
        what = f"{own.title}, ε = {epsilon:g}, {self.method}"
        rows = [PaperRow(f"{what}: accuracy", "", self.mean, self.error, None, note, place)]
        if self.method != "independent":
            gain, error = _gain(cells, epsilon, self.method)
            rows.append(PaperRow(f"{what}: gain", "", gain, error, None, "over independent noise", {**place, "gain": True}))
        return rows


def _methods(ask: Ask, own: Family, names: tuple[str, ...], *, small: bool) -> tuple[dict[str, Made], list[str]]:
    """The methods that fit, and a note for each that does not."""
    task, found, notes = load_task(own.config(ask, "independent", (), small)), {}, []
    for method in names:
        options = _NO_MOMENTUM  # not that of the preset: what is accounted must be what runs
        try:
            job = federation(own.config(ask, method, options, small), task, 0)
            strategy: Any = getattr(job.mechanism, "strategy")  # noqa: B009
            if method == "banded" and strategy.bands > MOST_BANDS:
                options = (*options, f"mechanism.bands={MOST_BANDS}")
            if method == "toeplitz":
                options = (*options, f"mechanism.damping={_damping(job)!r}")
            if options != _NO_MOMENTUM:
                job = federation(own.config(ask, method, options, small), task, 0)
        except ValueError as error:
            notes.append(f"{own.title}: {method} is left out. {error}")
            continue
        strategy = getattr(job.mechanism, "strategy")  # noqa: B009
        limits = job.participation.constraint(job.rounds)
        found[method] = Made(method, options, job, strategy.sensitivity(limits) * strategy.rms_error(), small)
    return found, notes


def _damping(job: Any) -> float:
    """The best of some ν, by the loss."""
    from coalmine.mechanisms.strategies import Toeplitz

    limits = job.participation.constraint(job.rounds)
    tried = [Toeplitz(job.rounds, float(f"{nu:.3g}")) for nu in (0.0, *np.geomspace(1e-4, 0.3, 24))]
    return min(tried, key=lambda each: each.sensitivity(limits) * each.rms_error()).damping


def _grid(ask: Ask, own: Family) -> list[tuple[float, float]]:
    """(learning rate, momentum) of the server, the same for every method."""
    return [*product(own.rates, own.momenta)] if ask.full else [*QUICK_GRID]


def _trained(ask: Ask, own: Family, wanted: Mapping[tuple[float, str], Wanted]) -> dict[tuple[float, str], TrainingCell]:
    """Tuned on the small setting, measured on the one of this scale: all trials, then all runs, so that no process waits."""
    trials = {place: _trials(ask, own, each) for place, each in wanted.items()}
    tried = obtain(ask, {key: config for each in trials.values() for key, (config, _) in each.items()}, apart=True)
    tuned = {place: _best(each, _accuracies(tried)) for place, each in trials.items()}
    runs = {place: _runs(ask, own, each, tuned[place]) for place, each in wanted.items()}
    paths = obtain(ask, {key: config for each in runs.values() for key, config in each.items()}, apart=True)
    accuracies, cells = _accuracies(paths), {}
    for place, own_runs in runs.items():
        verdicts = [AuditResult.load(paths[key]).verdict for key, config in own_runs.items() if config.canaries.pool]
        words: list[str] = [verdict.word for verdict in verdicts if verdict is not None]
        cells[place] = TrainingCell(place[1], tuned[place], [accuracies[key] for key in own_runs], words)
    return cells


def _trials(ask: Ask, own: Family, wanted: Wanted) -> dict[str, tuple[Config, tuple[float, float]]]:
    """Runs without canaries on the small setting, with the learning rate and momentum of each."""
    trials, noise = {}, _noise(wanted.small, wanted.epsilon)
    for (rate, momentum), number in product(_grid(ask, own), range(len(TUNING))):
        changes = (*_setting(wanted.small, noise, rate, momentum), "canaries.pool=0", f"run.seed={TUNING[number]}")
        config = own.config(ask, wanted.small.method, changes, True)
        trials[f"{wanted.base}-lr{rate:g}-m{momentum:g}-tuning{number or ''}"] = config, (rate, momentum)
    return trials


def _best(trials: Mapping[str, tuple[Config, tuple[float, float]]], accuracies: Mapping[str, float]) -> tuple[float, float]:
    """The learning rate and momentum with the best mean accuracy."""
    totals: dict[tuple[float, float], float] = {}
    for key, (_, place) in trials.items():
        totals[place] = totals.get(place, 0.0) + accuracies[key]
    return max(totals, key=lambda place: totals[place])


def _runs(ask: Ask, own: Family, wanted: Wanted, tuned: tuple[float, float]) -> dict[str, Config]:
    """Fresh runs at a setting; the first ones have canaries, if there is noise."""
    runs, made, noise = {}, wanted.made, _noise(wanted.made, wanted.epsilon)
    audited = 0 if wanted.epsilon is None else ask.pick(full=SEEDS, quick=1)
    for number in range(SEEDS):
        canaries = "canaries.pattern=periods" if number < audited else "canaries.pool=0"
        changes = (*_setting(made, noise, *tuned), f"run.seed={ask.seed * 1009 + number}", canaries)
        runs[f"{wanted.base}-run{number}"] = own.config(ask, made.method, changes, made.small)
    return runs


def _noise(made: Made, epsilon: float | None) -> float:
    """The noise multiplier with this epsilon of a client; None: no noise."""
    if epsilon is None:
        return 0.0
    job = made.job
    limits, described = job.participation.constraint(job.rounds), job.mechanism.describe()
    return accounting.calibrate_noise(job.participation, epsilon=epsilon, delta=DELTA, description=described, constraint=limits)


def _setting(made: Made, noise: float, rate: float, momentum: float) -> tuple[str, ...]:
    """Noise and server."""
    return (
        *made.options,
        f"privacy.delta={DELTA!r}",
        f"mechanism.noise_multiplier={noise!r}",
        f"server.learning_rate={rate!r}",
        f"server.momentum={momentum!r}",
    )


def _accuracies(paths: Mapping[str, Path]) -> dict[str, float]:
    found = {}
    for name, path in paths.items():
        recorded = json.loads((path / "training.json").read_bytes())
        found[name] = float(recorded.get("accuracy") or 0.0)
    return found


def _gain(cells: Mapping[tuple[float, str], TrainingCell], epsilon: float, method: str) -> tuple[float, float]:
    """(accuracy above that of independent noise, its standard error)."""
    here, there = cells[epsilon, method], cells[epsilon, "independent"]
    return here.mean - there.mean, math.hypot(here.error, there.error)


def _audits(own: Family, cells: Mapping[tuple[float, str], TrainingCell]) -> list[PaperCheck]:
    words = [word for cell in cells.values() for word in cell.verdicts]
    text = f"{own.title}: no audit of {len(words)} is violated or deviates ({_counted(words)})"
    return [PaperCheck(text, not _WRONG & set(words))]


def _orders(own: Family, made: Mapping[str, Made], cells: Mapping[tuple[float, str], TrainingCell]) -> list[PaperCheck]:
    """What the theory expects: accuracies in the order of losses, and more to gain where noise is larger."""
    from scipy.stats import spearmanr

    checks = []
    losses = [-each.loss for each in made.values()]
    for epsilon in EPSILONS:
        found = [cells[epsilon, method].mean for method in made]
        if len(set(found)) > 1:
            agreement = float(spearmanr(losses, found).statistic)
            text = f"{own.title}, ε = {epsilon:g}: order of losses and of accuracies, Spearman {agreement:.2f} (at least .8)"
            checks.append(PaperCheck(text, agreement >= 0.8 - 1e-9))  # rounding of .8 itself
    others = [method for method in made if method != "independent"]
    low, high = (max(_gain(cells, epsilon, method)[0] for method in others) for epsilon in (EPSILONS[0], EPSILONS[-1]))
    text = f"{own.title}: the best gain is larger at ε = {EPSILONS[0]:g} ({low:.3f}) than at {EPSILONS[-1]:g} ({high:.3f})"
    return [*checks, PaperCheck(text, low > high)]


def _alike(own: Family, made: Mapping[str, Made]) -> list[str]:
    """How often methods whose losses are nearly the same come out in the order of their losses."""
    from scipy.stats import spearmanr

    losses = [each.loss for method, each in made.items() if method != "independent"]
    if len(losses) < 2:
        return []
    ranks = range(len(losses))
    agreements = [float(spearmanr([*ranks, len(ranks)], [*order, len(ranks)]).statistic) for order in permutations(ranks)]
    share = sum(agreement >= 0.8 - 1e-9 for agreement in agreements) / len(agreements)
    return [
        f"{own.title}: the largest loss of correlated noise is {max(losses) / min(losses) - 1:.0%} above the smallest. If "
        f"accuracies did not tell these {len(losses)} apart, and independent noise came last, the check of their order would "
        f"hold with probability {share:.2f}."
    ]


def _notes(ask: Ask, own: Family, names: tuple[str, ...]) -> list[str]:
    """What a reader must know, and what was left out."""
    notes = [
        "Without amplification by sampling: DP-SGD with secret samples can be better at small sampling rates.",
        f"Delta is {DELTA:g}. Learning rate and momentum are the best of the same grid for every method, by the accuracy on "
        f"the same test data, mean of {len(TUNING)} runs with other seeds.",
    ]
    absent = [method for method in METHODS if method not in names]
    if ask.full:
        notes += [f"Tuned on the small setting ({', '.join(own.small)}).", *(f"Left out, {each}." for each in own.left_out)]
    else:
        notes.append(f"Small setting: {', '.join(own.small)}. Of every cell's {SEEDS} runs the first has canaries.")
    return [*notes, *([f"Left out: {', '.join(absent)}."] if absent else [])]


def _counted(words: list[str]) -> str:
    return ", ".join(f"{words.count(word)} {word}" for word in sorted(set(words)))
