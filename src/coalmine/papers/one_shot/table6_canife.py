"""The column CANIFE of Table 6: its recipe on the models of private trainings, composed as printed.

Each training is as Table 6 states, without other canaries; three of its models are attacked with one canary each, made by the
recipe of the published code (covariance loss, Adam with learning rate 1, 2,500 steps), 100 frozen draws with a coin each; every
draw is a release of the package's own mechanism. The trainings themselves are those of `coalmine.training.clipped_steps`.
Which limit of the error rates the column has is not stated in the paper; Jeffreys' is inferred, and the others stand beside it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from coalmine._random import stream
from coalmine.gaussian import gaussian_epsilon
from coalmine.papers.canife.attack import PAPERS, Outcome
from coalmine.papers.canife.grounds import CLIP
from coalmine.papers.canife.monitoring import Monitored, composed, measure
from coalmine.papers.canife.tasks import DELTA, Training
from coalmine.papers.kit.experiment import Ask
from coalmine.papers.kit.paper_result import PaperCheck, PaperRow, ResultPart, RowVerdict
from coalmine.papers.kit.printed import read_mean
from coalmine.papers.kit.rules import NOT_A_BOUND
from coalmine.papers.one_shot.numbers import SIMULATIONS, TABLE6
from coalmine.training.assembly import federation, load_task
from coalmine.training.clipped_steps import clipped_steps
from coalmine.training.config import Config, parse_config, write_config

_NOISE, _AUDITS = 0.2, 3
_STANDARD_ERRORS = 3.0
FAMILY = Monitored(
    words="Fashion-MNIST, mlp",
    key="table6",
    preset="fashion-mnist",
    changes=("data.held_out=0", "audit.paper_views=false", "model.options={hidden=[128], classes=10}"),
    quick=("data.users=3000", "model.options={hidden=[32], classes=10}"),
    population=60_000,
    cohort=128,
    rounds=469,
    every=93,
    mock=512,
    others=1000,
    options=PAPERS,
)


def canife_runs(ask: Ask) -> ResultPart:
    """At full scale ten runs of three measured rounds."""
    runs = ask.repeat(full=10, quick=2)
    family = replace(FAMILY, options={**PAPERS, "iterations": ask.pick(full=2500, quick=50)})
    configs = {f"{FAMILY.key}-{run:02d}": family.config(ask, _NOISE, ask.seed * 1_000_003 + run) for run in range(runs)}
    paths = dict(zip(configs, ask.each(_train, [_Task.of(ask, *each) for each in configs.items()], "trainings"), strict=True))
    measured = list(measure(ask, family, paths, {name: (_NOISE, config) for name, config in configs.items()}).values())
    training = Training("Fashion-MNIST", FAMILY.population, FAMILY.cohort, FAMILY.rounds, (_NOISE,))
    columns = {
        "Jeffreys limit": [composed(training, rounds, "jeffreys") for rounds in measured],
        "Clopper-Pearson limit": [composed(training, rounds, "low") for rounds in measured],
        "largest finite plug-in value": [composed(training, rounds) for rounds in measured],
    }
    rows = [_row(words, values, judged=words == "Jeffreys limit") for words, values in columns.items()]
    rounds = [each for run in measured for each in run]
    analytic = float(gaussian_epsilon(0.0, _NOISE, 1.0, _NOISE, DELTA))
    rows.append(_known(rounds, analytic))
    efficiency, separated = (np.array([each[name] for each in rounds], float) for name in ("efficiency", "infinite"))
    least = ask.pick(full=0.98, quick=0.7)  # quick designs have few steps
    checks = (
        PaperCheck(f"median efficiency of the canaries {np.median(efficiency):.3f}", bool(np.median(efficiency) > least)),
        PaperCheck(
            f"{separated.mean():.0%} of {len(rounds)} measured rounds are separated without an error", bool(separated.any())
        ),
    )
    notes = (
        f"One round has epsilon {analytic:.1f} at delta {DELTA:g}; read at delta 0.01 from 100 scores it cannot exceed 3.9.",
        f"The mean agrees if it is within {_STANDARD_ERRORS:g} standard errors of the difference of the printed mean of "
        f"{SIMULATIONS} runs.",
        NOT_A_BOUND,
    )
    details = {
        "measured": [[{k: v for k, v in each.items() if k not in ("with", "without")} for each in run] for run in measured]
    }
    return ResultPart(rows, checks, notes, {"canife_runs": runs, "measured_rounds": _AUDITS}, details)


@dataclass(frozen=True)
class _Task:
    """One training, and where its models go."""

    folder: str
    config: str

    @staticmethod
    def of(ask: Ask, name: str, config: Config) -> _Task:
        """Beside the other runs of this experiment."""
        return _Task(str(ask.out / "runs" / f"{ask.scale}-{ask.seed}" / "canife" / name), write_config(config, {}))


def _train(task: _Task) -> Path:
    """The folder with the models of a training before some of its rounds; made once."""
    from safetensors.numpy import save_file

    folder, config = Path(task.folder), parse_config(task.config)
    job = federation(config, load_task(config), config.run.seed)
    kept = [round(job.rounds * (number + 1) / (_AUDITS + 0.04)) for number in range(_AUDITS)]
    if all((folder / f"model-{number:06d}.safetensors").is_file() for number in kept):
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    examples, rng = job.data.all_examples(), stream(config.run.seed, "training of Table 6")
    trained = clipped_steps(
        job.model,
        job.initial,
        examples,
        rng.permutation(len(examples)),
        batch=round(job.denominator),
        steps=job.rounds,
        clip_norm=CLIP,
        noise_multiplier=_NOISE,
        learning_rate=config.server.learning_rate,
        momentum=config.server.momentum,
        rng=rng,
    )
    for number, parameters in trained:
        if number in kept:
            save_file({"parameters": parameters}, folder / f"model-{number:06d}.safetensors")
    return folder


def _row(words: str, values: list[float], *, judged: bool) -> PaperRow:
    mean, std = read_mean(TABLE6["canife"])
    ours, spread = float(np.mean(values)), float(np.std(values, ddof=1))
    error = np.hypot(spread / len(values) ** 0.5, std / SIMULATIONS**0.5)
    near: RowVerdict = "same shape" if abs(ours - mean) <= _STANDARD_ERRORS * error else "differs"
    place = {"how": "canife-runs", "column": "canife", "limit": words}
    what, printed = f"CANIFE, recipe as published, {words}", TABLE6["canife"] if judged else ""
    return PaperRow(what, printed, ours, spread, near if judged else None, f"{len(values)} runs", place)


def _known(rounds: list[Outcome], analytic: float) -> PaperRow:
    """The same canaries and as many draws, with the others' part known: what a round really shows."""
    values = [each["known"]["epsilon"] for each in rounds]
    holds = sum(each["known"]["low"] <= analytic <= each["known"]["high"] for each in rounds)
    bound = float(np.mean([each["known"]["bound"] for each in rounds]))
    note = (
        f"analytic {analytic:.1f}, in the 95 % interval of {holds} of {len(rounds)} rounds; valid bound {bound:.1f} on average"
    )
    place = {"how": "canife-runs", "column": "one round, known others"}
    return PaperRow("same canaries and draws, one round, others known", "", float(np.mean(values)),
                    float(np.std(values, ddof=1)), None, note, place)  # fmt: skip
