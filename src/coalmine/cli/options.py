"""From the words of the command line to the objects of the library; what does not go together is a ValueError."""

from __future__ import annotations

from dataclasses import replace
from inspect import signature
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coalmine import _validate, accounting
from coalmine.canaries import FAMILIES
from coalmine.canaries.transform import SIGNS_SLACK
from coalmine.cli.speech import INCONCLUSIVE, VIOLATED
from coalmine.contracts import Claim, Game, Null, Participation, Verdict
from coalmine.data import SOURCES
from coalmine.estimators import BOUNDS
from coalmine.estimators._rates import AllThresholds, Fixed, Split
from coalmine.estimators.one_run import Guesses
from coalmine.estimators.power import LARGEST_DESIGN, Design
from coalmine.nulls import CosineNull, MaxNull
from coalmine.participation import ExamplePoisson, FixedSize, Once, Poisson, Repeated
from coalmine.verdict import judge, judge_conformance
from coalmine.views import VIEWS

if TYPE_CHECKING:
    from coalmine.result import AuditResult
    from coalmine.training.config import Config


def stated_claim(
    epsilon: float | None, noise: float | None, pattern: Participation, relation: str | None, delta: float
) -> Claim | None:
    """The claim of the options of `estimate`, if there is one."""
    if epsilon is not None and noise is not None:
        raise ValueError("give --claim or --noise-multiplier, not both.")
    if noise is not None:
        how: Any = {"relation": relation}
        return accounting.claim(pattern, noise_multiplier=noise, delta=delta, **how)
    if pattern != Once() or relation is not None:
        raise ValueError(
            "--participations, --sampling-rate, --cohort-size, --rounds and --relation describe the claim of "
            "--noise-multiplier; give that too."
        )
    if epsilon is None:
        return None
    return Claim(_validate.non_negative("claim", epsilon), _validate.delta(delta, allow_zero=True))


def two_of_three(
    pattern: Participation, noise: float | None, epsilon: float | None, delta: float | None, how: Any
) -> tuple[float, float]:
    """(noise multiplier, delta) from any two of the three options of `account`."""
    if epsilon is None and noise is not None and delta is not None:
        return noise, delta
    if noise is None and epsilon is not None and delta is not None:
        return accounting.calibrate_noise(pattern, epsilon=epsilon, delta=delta, **how), delta
    if delta is None and noise is not None and epsilon is not None:
        found = accounting.claimed_delta(pattern, noise_multiplier=noise, epsilon=epsilon, **how)
        if not 0 < found < 1:
            raise ValueError(f"noise multiplier {noise:g} has delta = {found:g} at epsilon = {epsilon:g}: nothing to state.")
        return noise, found
    task = {"--noise-multiplier": noise, "--epsilon": epsilon, "--delta": delta}
    named = ", ".join(name for name, value in task.items() if value is not None)
    raise ValueError(f"give exactly two of {', '.join(task)}; got {named or 'none'}.")


def design(canaries: int, held_out: int | None, family: str) -> Design:
    """The design that `plan` is asked about."""
    inserted = _validate.whole("canaries", canaries, least=1, most=LARGEST_DESIGN)
    _validate.one_of("family", family, FAMILIES)
    if held_out is not None:
        return Design(inserted, _validate.whole("held_out", held_out, least=1, most=LARGEST_DESIGN))
    return Design(inserted, slack=SIGNS_SLACK if family == "transform" else 0.0)


def null_law(dim: int | None, rounds: int | None) -> Null | None:
    """The null of --dim and --max-over-rounds."""
    if dim is None:
        if rounds is not None:
            raise ValueError("--max-over-rounds needs --dim: the union bound starts from the exact law of one round.")
        return None
    return CosineNull(dim) if rounds is None else MaxNull(CosineNull(dim), rounds)


def participation_pattern(
    times: int | None, rate: float | None, cohort: int | None, population: int | None, rounds: int | None
) -> Participation:
    """The participation pattern of the options, `Once` without any."""
    patterns = [times is not None, rate is not None, cohort is not None]
    if sum(patterns) > 1:
        raise ValueError("give one of --participations, --sampling-rate and --cohort-size.")
    if (rate is not None or cohort is not None) and rounds is None:
        raise ValueError("--sampling-rate and --cohort-size need --rounds.")
    if rate is not None and population is not None:
        raise ValueError("--population belongs to --cohort-size; a rate already says what share of it takes part.")
    if rate is not None and rounds is not None:
        return Poisson(rate, rounds)
    if cohort is not None and rounds is not None:
        if population is None:
            raise ValueError("--cohort-size needs --population.")
        return FixedSize(cohort, population, rounds)
    if rounds is not None or population is not None:
        raise ValueError("--rounds and --population belong to --sampling-rate or --cohort-size; else give --participations.")
    return Once() if times is None else Repeated(times)


def of_examples(pattern: Participation, group_size: int) -> Participation:
    """The pattern of a client whose examples are sampled one by one."""
    sampling = pattern.sampling
    if sampling is None or sampling.cohort_size is not None:
        raise ValueError("--group-size needs --sampling-rate (of an example) and --rounds.")
    return ExamplePoisson(sampling.rate, sampling.rounds, group_size)


def game(words: list[str] | None) -> Game | None:
    """The game of the scores, from 'field=value' words."""
    if not words:
        return None
    stated: dict[str, Any] = {}
    for word in words:
        name, separator, value = word.partition("=")
        if name not in ("unit", "relation", "participation", "knowledge") or not separator:
            raise ValueError(f"--game {word!r}: write unit=..., relation=..., participation=... or knowledge=...")
        stated[name] = value
    return Game(**stated)


def view(words: str | None) -> str | None:
    """The key of a threat model that was named in words, as "known others"; other words stay as they are."""
    key = words.strip().lower().replace(" ", "-") if words is not None else None
    return key if key in VIEWS else words


def bound_options(method: str, guesses: str | None, threshold: str | None) -> dict[str, Any]:
    """Further arguments of the primary bound: --guesses HIGHEST+LOWEST and --threshold NUMBER, split or all."""
    options: dict[str, Any] = {}
    if guesses is not None:
        if not BOUNDS[method].takes_guesses:
            raise ValueError("--guesses belongs to --method one-run or one-run-fdp.")
        highest, separator, lowest = guesses.partition("+")
        if not (separator and highest.isdigit() and lowest.isdigit()):
            raise ValueError(f"--guesses {guesses!r}: write how many of the highest and lowest scores, as 40+40.")
        options["guesses"] = Guesses(int(highest), int(lowest))
    if threshold is not None:
        if not BOUNDS[method].takes_threshold:
            raise ValueError("--threshold belongs to --method threshold, gdp, bayesian or lifted.")
        named = {"split": Split(), "all": AllThresholds()}
        options["threshold"] = named[threshold] if threshold in named else Fixed(_validate.number("threshold", threshold))
    return options


def run_config(name: str, changes: list[str], data_dir: Path | None, workers: int | None) -> Config:
    """The configuration of `run`: a file or a preset, --set, --data-dir and --workers."""
    from coalmine.training.config import read_config

    config = read_config(name, [*changes, *([f"run.workers={workers}"] if workers is not None else [])])
    if data_dir is None:
        return config
    if "data_dir" not in signature(SOURCES[_validate.one_of("data.source", config.data.source, SOURCES)]).parameters:
        raise ValueError(f"--data-dir: source {config.data.source!r} reads no files from a data folder; leave it out.")
    return config.model_copy(
        update={"data": config.data.model_copy(update={"options": {**config.data.options, "data_dir": str(data_dir)}})}
    )


def free_directory(name: str) -> Path:
    """runs/NAME, or the first of runs/NAME-2, runs/NAME-3, … that is free."""
    stem = Path(name).stem
    tries = (Path("runs") / (stem if number == 1 else f"{stem}-{number}") for number in count(1))
    return next(path for path in tries if not path.exists())


def judged(max_epsilon: float, audited: AuditResult) -> Verdict:
    """The verdict of `check`: the audit against a limit. What canaries would show at half the noise stays what it was.

    Tests of the mechanism hold for any limit that its own claim does not exceed.
    """
    limit = Claim(epsilon=max_epsilon, delta=audited.bound.delta, accountant="limit")
    power = audited.verdict.power if audited.verdict is not None and audited.training else None
    verdict = judge(limit, audited.bound, half_noise_epsilon=None if power is None else power.half_noise_epsilon)
    verdict = judge_conformance(verdict, audited.conformance, audited.estimate, limit, audited.claim)
    claimed = float(audited.training.get("epsilon_of_clients", 0.0))  # infinity is text in a file
    if claimed <= max_epsilon or "CONSISTENT" not in (verdict.word, verdict.otherwise):
        return verdict
    # a run does not pass a limit that its accountant does not even claim for its clients
    if verdict.word == "DEVIATES":
        return replace(verdict, otherwise="INCONCLUSIVE")
    numbers = {"clients": claimed, "limit": max_epsilon}
    return replace(verdict, word="INCONCLUSIVE", code="clients-claim-above-limit", numbers=numbers)


def exit_code(verdict: Verdict) -> int:
    """Of `check`. More noise than claimed fails nothing: what counts is what would be said without it."""
    if verdict.failed:
        return VIOLATED
    word = verdict.otherwise if verdict.word == "DEVIATES" else verdict.word
    return 0 if word == "CONSISTENT" else INCONCLUSIVE
