"""Training with correlated noise at equal epsilon: accuracy by strategy, each with its own tuned learning rate, and audited.

All strategies are accounted without amplification by sampling, for clients that come in the same order in every epoch. Runs are
made once and kept; a study that was killed goes on.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from coalmine import accounting
from coalmine.papers.kit.experiment import Ask
from coalmine.papers.kit.making import obtain
from coalmine.papers.kit.paper_result import PaperCheck, PaperResult, PaperRow, ResultPart
from coalmine.result import AuditResult
from coalmine.training.assembly import federation, load_task
from coalmine.training.config import Config, changed, checked, read_config

METHODS = ("independent", "banded", "blt", "toeplitz", "tree")
EPSILONS = (2.0, 8.0, 16.0)
SEEDS = 3
DELTA = 1e-5
MOST_BANDS = 48  # so that checkpoints of a million parameters stay below 512 MB
_FIXED = ("participation.pattern=epochs", "participation.reshuffled=false", "mechanism.kind=correlated", "run.evaluate_every=0")


@dataclass(frozen=True)
class Family:
    """A data set with its model, and what is tried for every method."""

    preset: str
    title: str
    changes: tuple[str, ...] = ()
    quick: tuple[str, ...] = ()
    rates: tuple[float, ...] = (0.25, 0.5, 1.0, 2.0)  # learning rates of the server
    momenta: tuple[float, ...] = (0.0, 0.9)
    reads_files: bool = False


FAMILIES = {
    "chat": Family(
        "quickstart",
        "characters of chats",
        ("run.reference=false",),
        ("data.users=300", "participation.epochs=4", "participation.rounds=16", "client.max_steps=1", "canaries.pool=100",
         "model.options={embedding=8, hidden=24, tied=false}", "audit.unused_rows=500"),
    ),
    "mnist": Family(
        "mnist-writers",
        "MNIST by writer",
        ("data.held_out_kind=examples", "mechanism.clip_norm=0.3", "participation.epochs=5"),
        ("data.users=300", "participation.epochs=2", "participation.cohort_size=30", "canaries.pool=100",
         "audit.unused_rows=500"),
        reads_files=True,
    ),
    "shakespeare": Family(
        "shakespeare",
        "Shakespeare's roles",
        ("mechanism.clip_norm=0.5",),
        ("data.users=60", "client.max_steps=2", "model.options={hidden=64}", "participation.epochs=2",
         "participation.cohort_size=12", "canaries.pool=100", "audit.unused_rows=500"),
        reads_files=True,
    ),
    "example-level": Family(
        "fashion-mnist",
        "Fashion-MNIST, single examples",
        ("participation.epochs=8", "data.held_out=0.1"),
        ("data.users=2000", "model.options={hidden=[32]}", "participation.cohort_size=100", "participation.epochs=4",
         "canaries.pool=100", "audit.unused_rows=500"),
        reads_files=True,
    ),
}  # fmt: skip


def reproduce(ask: Ask) -> PaperResult:
    """Accuracies by epsilon and method; all families, or the part that is asked for."""
    wanted = {name: lambda ask, name=name: study(ask, name) for name in FAMILIES}
    title = "Training at equal epsilon: correlated noise against independent noise, without amplification"
    found = PaperResult.of(ask.named("correlated-training"), title, ask.parts(**wanted), error="standard error over runs")
    return PaperResult(
        found.name, title, found.rows, found.error, found.checks, found.notes, ask.about(**found.about), found.details
    )


def study(ask: Ask, name: str) -> ResultPart:
    """One family: tuning without canaries, then fresh runs with canaries at the best setting."""
    family = FAMILIES[name]
    epsilons = ask.pick(full=EPSILONS, quick=(8.0,))
    methods, notes = _methods(ask, family, ask.pick(full=METHODS, quick=("independent", "banded", "blt")))
    rows, checks, table = [], [], {}
    for epsilon in epsilons:
        found = {}
        for method, made in methods.items():
            tuned = _tuned(ask, name, family, method, made, epsilon)
            accuracies, words = _measured(ask, name, family, method, made, epsilon, tuned)
            found[method] = float(np.mean(accuracies))
            error = float(np.std(accuracies, ddof=1) / len(accuracies) ** 0.5) if len(accuracies) > 1 else None
            note = f"loss {made.loss:.3g}, rate {tuned[0]:g}, momentum {tuned[1]:g}, audits {', '.join(sorted(set(words)))}"
            place = {"family": name, "epsilon": epsilon, "method": method}
            what = f"{family.title}, ε = {epsilon:g}, {method}: accuracy"
            rows.append(PaperRow(what, "", found[method], error, None, note, place))
            checks.append(PaperCheck(f"{what}: no audit is violated", "VIOLATED" not in words))
        table[str(epsilon)] = found
        if ask.full and len(found) > 2:
            agreement = _spearman([-methods[each].loss for each in found], list(found.values()))
            text = f"{family.title}, ε = {epsilon:g}: order of losses and of accuracies, Spearman {agreement:.2f}"
            checks.append(PaperCheck(text, agreement >= 0.8))
    notes = ["Without amplification by sampling: DP-SGD with secret samples can be better at small sampling rates.", *notes]
    return ResultPart(rows, checks, notes, {"runs_per_cell": ask.pick(full=SEEDS, quick=1)}, {f"accuracy_{name}": table})


@dataclass(frozen=True)
class Made:
    """A method in a family: its options, and what it costs."""

    options: tuple[str, ...]
    job: Any
    loss: float


def _methods(ask: Ask, family: Family, names: tuple[str, ...]) -> tuple[dict[str, Made], list[str]]:
    """The methods that fit, and a note for each that does not."""
    task, found, notes = load_task(_config(ask, family, "independent", ())), {}, []
    for method in names:
        options: tuple[str, ...] = ()
        try:
            job = federation(_config(ask, family, method, options), task, 0)
            strategy: Any = getattr(job.mechanism, "strategy")  # noqa: B009
            if method == "banded" and strategy.bands > MOST_BANDS:
                options = (f"mechanism.bands={MOST_BANDS}",)
                job = federation(_config(ask, family, method, options), task, 0)
            if method == "toeplitz":
                options = (f"mechanism.damping={_damping(job)!r}",)
                job = federation(_config(ask, family, method, options), task, 0)
        except ValueError as error:
            notes.append(f"{family.title}: {method} is left out. {error}")
            continue
        strategy = getattr(job.mechanism, "strategy")  # noqa: B009
        limits = job.participation.constraint(job.rounds)
        found[method] = Made(options, job, strategy.sensitivity(limits) * strategy.rms_error())
    return found, notes


def _damping(job: Any) -> float:
    """The best of some ν, by the loss."""
    from coalmine.mechanisms.strategies import Toeplitz

    limits = job.participation.constraint(job.rounds)
    tried = [Toeplitz(job.rounds, float(nu)) for nu in (0.0, *np.geomspace(1e-4, 0.3, 24))]
    return min(tried, key=lambda each: each.sensitivity(limits) * each.rms_error()).damping


def _tuned(ask: Ask, name: str, family: Family, method: str, made: Made, epsilon: float) -> tuple[float, float]:
    """The learning rate and momentum with the best accuracy, the same grid for every method."""
    grid = [*product(family.rates, family.momenta)] if ask.full else [(1.0, 0.0), (1.0, 0.9)]
    wanted: dict[str, Config] = {}
    places = {}
    for rate, momentum in grid:
        key = f"correlated-{name}-eps{epsilon:g}-{method}-lr{rate:g}-m{momentum:g}-tuning"
        changes = (*_setting(made, epsilon, rate, momentum), "canaries.pool=0", "run.seed=1000003")
        wanted[key], places[key] = _config(ask, family, method, changes), (rate, momentum)
    found = _accuracies(obtain(ask, wanted, apart=True))
    return places[max(found, key=lambda key: found[key])]


def _measured(
    ask: Ask, name: str, family: Family, method: str, made: Made, epsilon: float, tuned: tuple[float, float]
) -> tuple[list[float], list[str]]:
    """(accuracies, verdicts) of fresh runs."""
    wanted = {}
    for number in range(ask.pick(full=SEEDS, quick=1)):
        key = f"correlated-{name}-eps{epsilon:g}-{method}-run{number}"
        changes = (*_setting(made, epsilon, *tuned), f"run.seed={ask.seed * 1009 + number}", "canaries.pattern=periods")
        wanted[key] = _config(ask, family, method, changes)
    paths = obtain(ask, wanted, apart=True)
    results = [AuditResult.load(path) for path in paths.values()]
    words = [result.verdict.word if result.verdict is not None else "none" for result in results]
    return list(_accuracies(paths).values()), words


def _setting(made: Made, epsilon: float, rate: float, momentum: float) -> tuple[str, ...]:
    """Noise for this epsilon of a client, and the server. A strategy is made for no momentum: the same for the whole grid."""
    job = made.job
    described = job.mechanism.describe()
    limits = job.participation.constraint(job.rounds)
    noise = accounting.calibrate_noise(
        job.participation, epsilon=epsilon, delta=DELTA, description=described, constraint=limits
    )
    return (
        *made.options,
        f"privacy.delta={DELTA!r}",
        f"mechanism.noise_multiplier={noise!r}",
        f"server.learning_rate={rate!r}",
        f"server.momentum={momentum!r}",
        "mechanism.momentum=0.0",
    )


def _config(ask: Ask, family: Family, method: str, changes: tuple[str, ...]) -> Config:
    files = []
    if family.reads_files and ask.data_dir is not None:
        files = [f"data.options.data_dir={str(Path(ask.data_dir).resolve())!r}"]
    quick = () if ask.full else (*family.quick, "run.workers=1")
    config = read_config(family.preset)
    data = {**config.model_dump(exclude_none=True), "mechanism": {"kind": "correlated", "strategy": method, "clip_norm": 1.0}}
    return changed(checked(data), [*_FIXED, *family.changes, *quick, *files, *changes, *ask.changes])


def _accuracies(paths: Mapping[str, Path]) -> dict[str, float]:
    found = {}
    for name, path in paths.items():
        recorded = json.loads((path / "training.json").read_bytes())
        found[name] = float(recorded.get("accuracy") or 0.0)
    return found


def _spearman(first: list[float], second: list[float]) -> float:
    from scipy.stats import spearmanr

    return float(spearmanr(first, second).statistic)
