"""Strategies of correlated noise on the command line: `account --strategy`, `account --zcdp` and `plan --strategy`."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

import typer

Strategy = Annotated[
    str | None, typer.Option(help="Noise correlated over rounds: independent, toeplitz, banded, blt, tree or matrix.")
]
Compared = Annotated[str | None, typer.Option(help="Compare strategies of noise: a name as in `account`, or all.")]
Bands = Annotated[int | None, typer.Option(help="Strategy banded: coefficients; default: the separation.")]
Buffers = Annotated[
    int | None, typer.Option(help="Strategy blt: buffers, default 3; toeplitz: so many in the place of all rounds.")
]
Damping = Annotated[float | None, typer.Option(help="Strategy toeplitz: damping, nu; default 0, the square root.")]
Objective = Annotated[str | None, typer.Option(help="Strategies banded, blt: minimise the mean or the max error.")]
Honaker = Annotated[str | None, typer.Option(help="Strategy tree: none, below or full; default below.")]
RestartEvery = Annotated[int | None, typer.Option(help="Begin the strategy anew after so many rounds.")]
File = Annotated[str | None, typer.Option(help="Strategy matrix: a lower triangular matrix, .npy, .npz or .csv.")]
Separation = Annotated[int | None, typer.Option(help="Smallest distance of two rounds of a client; default 1.")]
Groups = Annotated[int | None, typer.Option(help="Poisson sampling in turns: groups, at least as many as bands.")]
Momentum = Annotated[float, typer.Option(help="Momentum of the server, for the error of the model.")]
Rounds = Annotated[int | None, typer.Option(help="Number of rounds.")]

_MANY = 1 << 16  # rounds · participations, or rounds · bands
_MOST_RHO = 1e100
_HEAD = ("strategy", "sensitivity", "rms error", "max error", "loss", "vectors")


@dataclass(frozen=True)
class StrategyQuestion:
    """Two of noise, epsilon and delta, and how they are accounted."""

    noise: float | None
    epsilon: float | None
    delta: float | None
    accountant: Any = "auto"
    relation: str | None = None


def planned(rounds: int | None, participations: int | None, separation: int | None, momentum: float) -> Any:
    """What a strategy is made for; without --participations, as many as the separation allows."""
    from coalmine import _validate
    from coalmine.mechanisms.strategies import Plan

    if rounds is None:
        raise ValueError("--strategy needs --rounds: a strategy is normalised for so many of them.")
    rounds = _validate.whole("rounds", rounds, least=1)
    apart = _validate.whole("separation", 1 if separation is None else separation, least=1)
    most = -(-rounds // apart)  # no client can come more often
    usual = 1 if separation is None else most
    times = usual if participations is None else _validate.whole("participations", participations, least=1)
    if not 0 <= momentum < 1:
        raise ValueError(f"momentum={momentum!r} is not allowed: it must be at least 0 and below 1.")
    if times > most:
        said = f"{rounds} rounds have room for {most} participations that are at least {apart} apart"
        typer.echo(f"note: {said}. Accounted for {most}, not for {times}.", err=True)
    return Plan(rounds, min(times, most), apart, momentum)


def patience(plan: Any, bands: int | None) -> str:
    """What to say before a search that takes long; nothing before a short one."""
    width = max(plan.participations, plan.separation if bands is None else bands)
    return "searching coefficients, up to some minutes" if plan.rounds * width > _MANY else ""


def sampled(plan: Any, groups: int | None, rate: float | None, cohort: int | None, population: int | None) -> Any:
    """Poisson sampling in turns, if options ask for it."""
    if groups is None and rate is None and cohort is None and population is None:
        return None
    from coalmine.participation import CyclicPoisson

    if rate is None and cohort is not None and population is not None:
        rate = cohort * (groups or 1) / population
    if rate is None:
        raise ValueError(
            "sampling with a strategy needs --groups and --sampling-rate, or --groups, --cohort-size, --population."
        )
    return CyclicPoisson(rate, groups or 1, plan.rounds)


def refuse_alone(options: Mapping[str, Any], of: str) -> None:
    """Options that mean nothing without another one."""
    stated = [name for name, value in options.items() if value is not None]
    if stated:
        raise ValueError(f"--{stated[0].replace('_', '-')} belongs to {of}, which is missing.")


def refuse_beside(what: str, options: Mapping[str, Any], of: str) -> None:
    """Options that another one leaves without a meaning."""
    stated = [name for name, value in options.items() if value is not None]
    if stated:
        raise ValueError(f"--{stated[0].replace('_', '-')} means nothing beside {what}: it is for {of}.")


@dataclass(frozen=True)
class Accounted:
    """A claim for a strategy, and what the strategy costs."""

    claim: Any
    noise: float
    numbers: Mapping[str, Any]

    def to_json(self) -> str:
        """As one JSON document."""
        from coalmine.contracts import plain

        document = {**plain(self.claim), "noise_multiplier": self.noise, **plain(dict(self.numbers))}
        return json.dumps(document, indent=2) + "\n"

    def __str__(self) -> str:
        shown = self.numbers
        exact = "" if shown["sensitivity_exact"] else " (an upper bound)"
        rows = {
            "noise multiplier": f"{self.noise:.6g} (with c_0 = 1: {shown['noise_multiplier_first_one']:.6g})",
            "participation": str(self.claim.game.participation),
            "relation": self.claim.game.relation,
            "sensitivity": f"{shown['sensitivity']:.6g}{exact}",
            "rms error": f"{shown['rms_error']:.6g}, largest {shown['max_error']:.6g}",
            "loss": f"{shown['loss']:.6g} = sensitivity · rms error",
            "memory": f"{shown['memory_vectors']} vectors",
        }
        return "\n".join([str(self.claim), *(f"  {name:<18} {value}" for name, value in rows.items())])


def account(name: str, options: Mapping[str, Any], plan: Any, sampling: Any, asked: StrategyQuestion) -> Accounted:
    """Epsilon of a noise multiplier, or the noise multiplier of an epsilon, for a strategy."""
    from coalmine import _validate, accounting
    from coalmine.contracts import Clip, Description, Noise, Separation
    from coalmine.mechanisms.strategies import make_strategy
    from coalmine.participation import Separated

    if asked.delta is None or (asked.noise is None) == (asked.epsilon is None):
        raise ValueError("with --strategy give --delta, and --noise-multiplier or --epsilon.")
    if asked.noise is not None:
        _validate.non_negative("noise_multiplier", asked.noise)
    strategy = make_strategy(name, options, plan)
    say_approximation(name, options, strategy, plan)
    rounds: Any = strategy
    if strategy.bands == 1:
        from coalmine.contracts import Fresh

        rounds = Fresh()
    described = Description(Clip(None), Noise(1.0, 1.0, rounds=rounds))
    pattern = sampling or Separated(plan.participations, plan.separation)
    limits = Separation(plan.participations, plan.separation, plan.rounds)
    how: Any = {"accountant": asked.accountant, "relation": asked.relation, "constraint": None if sampling else limits}
    noise = asked.noise
    if noise is None:
        assert asked.epsilon is not None
        noise = accounting.calibrate_noise(pattern, epsilon=asked.epsilon, delta=asked.delta, description=described, **how)
    claim = accounting.claim_of(described.scaled(noise), pattern, delta=asked.delta, rounds=plan.rounds, **how)
    if not sampling:
        say_overlap(strategy, plan)
    often = {} if sampling else {"participations": plan.participations, "separation": plan.separation}
    numbers = {"strategy": name, **often, **measures(strategy, plan), "noise_multiplier_first_one": noise * strategy.first}
    return Accounted(claim, noise, numbers)


def say_approximation(name: str, options: Mapping[str, Any], strategy: Any, plan: Any) -> None:
    """How near buffers are to the damped Toeplitz noise that they stand for."""
    if name != "toeplitz" or options.get("buffers") is None or options.get("restart_every") is not None:
        return
    from coalmine.mechanisms.strategies import Toeplitz, off_by

    meant = Toeplitz(plan.rounds, options.get("damping") or 0.0)
    more = measures(strategy, plan)["loss"] / measures(meant, plan)["loss"] - 1
    typer.echo(
        f"note: {strategy.vectors} buffers stand for all {plan.rounds} rounds. Coefficients differ by at most "
        f"{off_by(strategy, meant):.2%}, the loss by {more:+.2%}; accounted is what is used.",
        err=True,
    )


def say_overlap(strategy: Any, plan: Any) -> None:
    """More bands than rounds between two participations: what it costs in sensitivity."""
    bands, times = strategy.bands, plan.participations
    if strategy.kind != "banded" or times == 1 or bands <= plan.separation:
        return
    from coalmine.contracts import Separation

    moved = strategy.sensitivity(Separation(times, plan.separation, plan.rounds)) / math.sqrt(times)
    typer.echo(
        f"note: {bands} bands are more than the {plan.separation} rounds between two participations of a client. Their columns "
        f"overlap, and the sensitivity is {moved - 1:.0%} above the root of {times} that at most {plan.separation} bands have.",
        err=True,
    )


def measures(strategy: Any, plan: Any) -> dict[str, Any]:
    """Sensitivity, errors and memory, all of the matrix whose largest column norm is 1."""
    from coalmine.contracts import Separation

    moved = strategy.bound(Separation(plan.participations, plan.separation, plan.rounds))
    errors = strategy.errors(plan.momentum)
    rms, largest = math.sqrt(float(errors.mean())), math.sqrt(float(errors.max()))
    return {
        "sensitivity": moved.value,
        "sensitivity_exact": moved.exact,
        "rms_error": rms,
        "max_error": largest,
        "loss": moved.value * rms,
        "memory_vectors": strategy.vectors,
    }


@dataclass(frozen=True)
class StatedEpsilon:
    """The epsilon of a stated zCDP."""

    rho: float
    epsilon: float
    delta: float

    def to_json(self) -> str:
        """As one JSON document."""
        return json.dumps({"zcdp": self.rho, "epsilon": self.epsilon, "delta": self.delta}, indent=2) + "\n"

    def __str__(self) -> str:
        classic = self.rho + 2 * math.sqrt(self.rho * math.log(1 / self.delta))
        return (
            f"epsilon = {self.epsilon:.4g} at delta = {self.delta:g} (of the Gaussian mechanism with rho = {self.rho:g}, "
            f"mu = {math.sqrt(2 * self.rho):.4g})\n  for any mechanism with this rho, by the classic formula: {classic:.4g}"
        )


def of_zcdp(rho: float, delta: float | None, others: Mapping[str, Any]) -> StatedEpsilon:
    """A Gaussian mechanism of zCDP rho has mu = sqrt(2 rho)."""
    from coalmine import _validate
    from coalmine.gaussian import gaussian_epsilon

    stated = [name for name, value in others.items() if value is not None]
    if delta is None or stated:
        had = f"; --{stated[0].replace('_', '-')} means nothing beside it" if stated else ", which is missing"
        raise ValueError(f"--zcdp goes with --delta and nothing else{had}.")
    rho, delta = _validate.positive("zcdp", rho), _validate.delta(delta)
    if rho > _MOST_RHO:
        raise ValueError(f"zcdp={rho:g} is not allowed: it must be at most {_MOST_RHO:g}; no privacy is left far below that.")
    return StatedEpsilon(rho, float(gaussian_epsilon(0.0, 1.0, math.sqrt(2 * rho), 1.0, delta)), delta)


@dataclass(frozen=True)
class StrategyComparison:
    """Strategies side by side."""

    plan: Any
    rows: Mapping[str, Mapping[str, Any]]
    made: Mapping[str, Any] = field(repr=False)  # the strategies themselves

    def to_json(self) -> str:
        """As one JSON document."""
        return json.dumps({"plan": vars(self.plan), "strategies": self.rows}, indent=2) + "\n"

    def __str__(self) -> str:
        plan = self.plan
        often = "once" if plan.participations == 1 else f"{plan.participations} times, {plan.separation} rounds apart"
        cells: list[tuple[str, ...]] = [_HEAD]
        for name, row in self.rows.items():
            numbers = (f"{row[key]:.4g}" for key in ("sensitivity", "rms_error", "max_error", "loss"))
            cells.append((name, *numbers, str(row["memory_vectors"])))
        extras = [key for key in ("memory_mb", "noise_multiplier") if any(key in row for row in self.rows.values())]
        for key in extras:
            column = [key.replace("_", " "), *(f"{row[key]:.4g}" for row in self.rows.values())]
            cells = [(*row, value) for row, value in zip(cells, column, strict=True)]
        widths = [max(len(row[place]) for row in cells) for place in range(len(cells[0]))]
        lines = [f"{plan.rounds} rounds, a client takes part {often}; smaller loss is better"]
        lines += [
            "  ".join([row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))])
            for row in cells
        ]
        return "\n".join(lines)

    def picture(self) -> str:
        """As an SVG document."""
        from coalmine.report.strategies import drawn

        return drawn(self.made, self.plan)


def compare(
    name: str, options: Mapping[str, Any], plan: Any, dim: int | None, target: tuple[float, float] | None
) -> StrategyComparison:
    """One strategy beside independent noise, or all of them."""
    from coalmine import _validate
    from coalmine.gaussian import gaussian_gap
    from coalmine.mechanisms.strategies import NAMES, make_strategy

    _validate.one_of("strategy", name, ("all", *NAMES))
    names = [each for each in NAMES if each != "matrix" or options.get("file")] if name == "all" else ["independent", name]
    made, rows = {}, {}
    for each in dict.fromkeys(names):
        own = {key: value for key, value in options.items() if key in NAMES[each].options}
        if each == "toeplitz" and name == "all":
            own.pop("buffers", None)  # they are those of blt
        made[each] = make_strategy(each, own, plan)
        rows[each] = measures(made[each], plan)
        if dim is not None:
            rows[each]["memory_mb"] = 8 * made[each].stored * _validate.whole("dim", dim, least=1) / 2**20
        if target is not None:
            rows[each]["noise_multiplier"] = rows[each]["sensitivity"] / gaussian_gap(*target)
    return StrategyComparison(plan, rows, made)
