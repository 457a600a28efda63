"""The verbs that need scores or a claim and train nothing: `estimate`, `plan` and `account`."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from coalmine.cli import strategies
from coalmine.cli.speech import VIOLATED, AsJson, Quiet, check_output
from coalmine.cli.speech import say as _say
from coalmine.cli.speech import show as _show

_FEW = 16  # examples of a client, for which nobody has to wait
_MANY = 200_000  # canaries; beyond this a plan takes longer
_LARGE_FILE = 20_000_000  # bytes; beyond this reading takes seconds, which is worth a word

Delta = Annotated[float, typer.Option(help="Delta of the privacy statement; 1/population**1.1 is customary.")]
Confidence = Annotated[float, typer.Option(help="Confidence of bounds and intervals.")]
Noise = Annotated[float | None, typer.Option(help="Noise on the sum of clipped updates, in clip norms.")]
Participations = Annotated[
    int | None, typer.Option(help="Rounds in which a client (a canary) takes part, known to the adversary.")
]
Rate = Annotated[float | None, typer.Option(help="Probability of taking part in a round (Poisson sampling).")]
Cohort = Annotated[int | None, typer.Option(help="Clients per round, drawn without replacement.")]
Population = Annotated[int | None, typer.Option(help="All clients (with --cohort-size).")]
Related = Annotated[str | None, typer.Option(help="What neighbours differ in: add-or-remove-one or replace-one.")]
Rounds = Annotated[int | None, typer.Option(help="Number of rounds (with --sampling-rate or --cohort-size).")]


def estimate(
    scores: Annotated[Path, typer.Argument(help="csv, npz or parquet: 'value,inserted' or 'inserted,held_out' columns.")],
    delta: Delta,
    dim: Annotated[int | None, typer.Option(help="The scores are cosines in this many dimensions: exact null.")] = None,
    max_over_rounds: Annotated[
        int | None, typer.Option(help="With --dim: each score is the largest of this many rounds.")
    ] = None,
    method: Annotated[
        list[str] | None, typer.Option(help="Bound; the first one decides, others are shown. Default: band.")
    ] = None,
    assignment: Annotated[str | None, typer.Option(help="How canaries were chosen: coins, fixed or unknown.")] = None,
    claim: Annotated[float | None, typer.Option(help="The epsilon claimed; or give --noise-multiplier.")] = None,
    noise_multiplier: Noise = None,
    participations: Participations = None,
    sampling_rate: Rate = None,
    cohort_size: Cohort = None,
    population: Population = None,
    rounds: Rounds = None,
    relation: Related = None,
    game: Annotated[
        list[str] | None,
        typer.Option(help="What the scores are about, checked against the claim: 'participation=8 times'."),
    ] = None,
    view: Annotated[str | None, typer.Option(help="What the adversary sees, in words, for the report.")] = None,
    guesses: Annotated[str | None, typer.Option(help="One-run bounds: highest+lowest scores to guess about, as 40+40.")] = None,
    threshold: Annotated[str | None, typer.Option(help="Threshold bounds: a number fixed beforehand, split or all.")] = None,
    confidence: Confidence = 0.95,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Also write the result to this file.")] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Audit canary scores from any trainer: estimate, lower bound, claim, verdict.

    Columns: 'value,inserted' with one row per canary (also canary, run, round, replicate, group), or two columns of scores
    'inserted,held_out'. Higher scores must mean "more likely inserted".

    \b
    Example:
      coalmine estimate scores.csv --delta 1e-5 --dim 100000 --noise-multiplier 1.0
    """
    from coalmine import _validate
    from coalmine.audit.statements import audit_scores
    from coalmine.cli import options
    from coalmine.estimators import BOUNDS
    from coalmine.scores import Scores

    _validate.delta(delta, allow_zero=True)
    _validate.confidence(confidence)
    for name in method or ():
        _validate.one_of("method", name, BOUNDS)
    methods = method or ["band"]
    further = options.bound_options(methods[0], guesses, threshold)
    pattern = options.participation_pattern(participations, sampling_rate, cohort_size, population, rounds)
    stated = options.stated_claim(claim, noise_multiplier, pattern, relation, delta)
    law, played, view = options.null_law(dim, max_over_rounds), options.game(game), options.view(view)
    check_output(output, scores, kinds=(".json",))
    if scores.is_file() and scores.stat().st_size > _LARGE_FILE:
        _say(f"reading {scores.name}, {scores.stat().st_size / 1e6:.0f} MB; this takes a while", quiet)
    table = Scores.from_file(scores, assignment=assignment, dim=dim, null=law, game=played, view=view)
    result = audit_scores(
        table,
        delta=delta,
        claim=stated,
        method=methods[0],
        also=tuple(methods[1:]),
        confidence=confidence,
        options=further,
    )
    if output is not None:
        result.save(output)
    _show(result, as_json)
    if result.verdict is not None and result.verdict.failed:
        raise typer.Exit(VIOLATED)


def plan(
    claim: Annotated[float | None, typer.Option(help="The epsilon to be tested.")] = None,
    delta: Annotated[float | None, typer.Option(help="Delta of the claim.")] = None,
    canaries: Annotated[int, typer.Option(help="Canaries to be inserted.")] = 1000,
    held_out: Annotated[int | None, typer.Option(help="Held-out canaries, if the null law is not known.")] = None,
    family: Annotated[
        str, typer.Option(help="transform, as in `run`, or sphere: any family with an exact null.")
    ] = "transform",
    confidence: Confidence = 0.95,
    runs: Annotated[int | None, typer.Option(help="Instead: the largest lifted bound of so many runs.")] = None,
    lifted: Annotated[str, typer.Option("--design", help="With --runs: coins, separate or same-run.")] = "coins",
    els_uls: Annotated[
        bool, typer.Option("--els-uls", help="Instead: noise of sampling examples or users, for a user-level epsilon.")
    ] = False,
    population: Annotated[int | None, typer.Option(help="With --els-uls: users.")] = None,
    batch_size: Annotated[float | None, typer.Option(help="With --els-uls: mean number of examples in a round.")] = None,
    group_size: Annotated[int | None, typer.Option(help="With --els-uls: most examples of a user.")] = None,
    strategy: strategies.Compared = None,
    bands: strategies.Bands = None,
    buffers: strategies.Buffers = None,
    damping: strategies.Damping = None,
    objective: strategies.Objective = None,
    honaker: strategies.Honaker = None,
    file: strategies.File = None,
    rounds: strategies.Rounds = None,
    participations: Participations = None,
    separation: strategies.Separation = None,
    momentum: strategies.Momentum = 0.0,
    dim: Annotated[int | None, typer.Option(help="Parameters of the model, for the memory of each strategy.")] = None,
    picture: Annotated[Path | None, typer.Option(help="With --strategy: also draw the strategies into this SVG file.")] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Before the run: ceiling, smallest violation that would be noticed, canaries needed; or strategies of correlated noise.

    \b
    Examples:
      coalmine plan --claim 3 --delta 1e-6 --canaries 1000
      coalmine plan --claim 4 --delta 1e-5 --runs 500 --canaries 64
      coalmine plan --els-uls --claim 4 --delta 1e-6 --population 1000 --batch-size 64 --group-size 4 --rounds 100
      coalmine plan --strategy all --rounds 512 --separation 64 --dim 1000000 --picture strategies.svg
    """
    if els_uls:
        _say("accounting examples one by one, up to some minutes", quiet)
        _plan_sampling(claim, delta, population, batch_size, group_size, rounds, as_json=as_json)
        return
    from coalmine import _validate
    from coalmine.cli import options
    from coalmine.estimators.power import plan as make_plan

    if strategy is not None:
        own = {"bands": bands, "buffers": buffers, "damping": damping, "objective": objective, "honaker": honaker, "file": file}
        check_output(picture, kinds=(".svg",))
        planned = strategies.planned(rounds, participations, separation, momentum)
        _say(said := strategies.patience(planned, bands), quiet or not said)
        found = strategies.compare(strategy, own, planned, dim, _given_both(claim, delta))
        if picture is not None:
            from coalmine import manifest

            manifest.put(picture, found.picture())
            _say(f"wrote {picture}", quiet)
        _show(found, as_json)
        return
    if claim is None or delta is None:
        raise ValueError("give --claim and --delta, the statement to be tested; or --strategy, to compare strategies of noise.")
    if runs is not None:
        from coalmine.estimators.lifted_plan import plan_lifted

        _show(plan_lifted(claim, delta=delta, runs=runs, canaries=canaries, design=lifted, confidence=confidence), as_json)
        return
    design = options.design(canaries, held_out, family)
    delta, confidence = _validate.delta(delta), _validate.confidence(confidence)
    claim = _validate.positive("claim", claim)
    _say(f"planning by simulation, {'up to a minute' if (canaries or 0) > _MANY else 'a few seconds'}", quiet)
    _show(make_plan(claim, delta=delta, design=design, confidence=confidence), as_json)


def _plan_sampling(
    epsilon: float | None,
    delta: float | None,
    population: int | None,
    batch_size: float | None,
    group_size: int | None,
    rounds: int | None,
    *,
    as_json: bool,
) -> None:
    from coalmine.accounting.els_uls import compare_sampling, in_words
    from coalmine.contracts import plain

    if epsilon is None or delta is None or population is None or batch_size is None or group_size is None or rounds is None:
        raise ValueError("--els-uls needs --claim, --delta, --population, --batch-size, --group-size and --rounds.")
    found = compare_sampling(
        population, batch_size=batch_size, group_size=group_size, rounds=rounds, epsilons=[epsilon], delta=delta
    )
    rows = [{**plain(each), "ratio": each.ratio, "diverse": each.diverse, "alike": each.alike} for each in found]
    typer.echo(json.dumps(rows, indent=2) if as_json else in_words(found))


def _given_both(claim: float | None, delta: float | None) -> tuple[float, float] | None:
    """The epsilon and delta for which noise is calibrated, if they are stated."""
    if (claim is None) != (delta is None):
        raise ValueError("--claim and --delta belong together: the noise of every strategy for this epsilon.")
    return None if claim is None or delta is None else (claim, delta)


def account(
    noise_multiplier: Noise = None,
    epsilon: Annotated[float | None, typer.Option(help="Epsilon; leave out what is to be computed.")] = None,
    delta: Annotated[float | None, typer.Option(help="Delta; leave out what is to be computed.")] = None,
    participations: Participations = None,
    sampling_rate: Rate = None,
    cohort_size: Cohort = None,
    population: Population = None,
    rounds: Rounds = None,
    group_size: Annotated[
        int | None, typer.Option(help="Examples of a client, each sampled at --sampling-rate; the epsilon is the client's.")
    ] = None,
    accountant: Annotated[str, typer.Option(help="auto, analytic, pld or rdp.")] = "auto",
    relation: Related = None,
    honest: Annotated[int | None, typer.Option(help="Clients add the noise: the number of honest ones claimed for.")] = None,
    survivors: Annotated[int | None, typer.Option(help="With --honest: honest clients whose noise is in the sum.")] = None,
    water_filling: Annotated[bool, typer.Option("--water-filling", help="Gaussian weights and water-filling noise.")] = False,
    users: Annotated[int | None, typer.Option(help="With --water-filling: users in a round.")] = None,
    examples: Annotated[int | None, typer.Option(help="With --water-filling: examples of each user.")] = None,
    batch: Annotated[float | None, typer.Option(help="Scale of the Gaussian weights: variance 1/(batch examples).")] = None,
    clip_norm: Annotated[float | None, typer.Option(help="With --water-filling: clip norm of single gradients.")] = None,
    floor: Annotated[float | None, typer.Option(help="Least variance of each user in every direction.")] = None,
    formula: Annotated[str | None, typer.Option(help="tight (default), theorem4 or printed (Zhang & Psounis 2024).")] = None,
    gradients: Annotated[Path | None, typer.Option(help="npz file of gradients: epsilon of every record, no noise.")] = None,
    users_key: Annotated[
        str | None, typer.Option(help="With --gradients: the array that names each record's user; default: user.")
    ] = None,
    zcdp: Annotated[float | None, typer.Option(help="Stated zCDP, rho: its epsilon, as of a Gaussian mechanism.")] = None,
    strategy: strategies.Strategy = None,
    bands: strategies.Bands = None,
    buffers: strategies.Buffers = None,
    damping: strategies.Damping = None,
    objective: strategies.Objective = None,
    honaker: strategies.Honaker = None,
    restart_every: strategies.RestartEvery = None,
    file: strategies.File = None,
    separation: strategies.Separation = None,
    groups: strategies.Groups = None,
    momentum: strategies.Momentum = 0.0,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """The analytic epsilon, delta or noise multiplier: give two of the three. With --strategy, of correlated noise.

    With --water-filling: two of floor, epsilon and delta. With --gradients: what secure aggregation without noise leaks.

    \b
    Examples:
      coalmine account --noise-multiplier 1 --delta 1e-5
      coalmine account --noise-multiplier 1 --delta 1e-5 --sampling-rate 0.01 --rounds 1000
      coalmine account --epsilon 3 --delta 1e-6 --participations 8
      coalmine account --strategy banded --bands 16 --rounds 2048 --separation 256 --epsilon 8 --delta 1e-5
      coalmine account --zcdp 0.81 --delta 1e-10
    """
    own = {"bands": bands, "buffers": buffers, "damping": damping, "objective": objective, "honaker": honaker}
    own |= {"restart_every": restart_every, "file": file}
    asked: dict[str, Any] = {"users": users, "examples": examples, "batch": batch, "clip_norm": clip_norm, "floor": floor}
    asked |= {"formula": formula, "users_key": users_key}
    if water_filling or gradients is not None:
        from coalmine.cli import secure_aggregation as shared

        asked |= {"honest": honest, "survivors": survivors, "rounds": rounds}
        others: dict[str, Any] = {"noise_multiplier": noise_multiplier, "participations": participations, "zcdp": zcdp}
        others |= {"sampling_rate": sampling_rate, "cohort_size": cohort_size, "population": population, "relation": relation}
        others["accountant"] = None if accountant == "auto" else accountant
        others |= {"group_size": group_size, "strategy": strategy, "separation": separation, "groups": groups, **own}
        if gradients is not None:
            others |= {"epsilon": epsilon, "water_filling": water_filling or None}
            return shared.account_gradients(gradients, asked, others, delta, as_json)
        return shared.account_water_filling(asked, others, epsilon, delta, as_json)
    strategies.refuse_alone(asked, "--water-filling or --gradients")
    from coalmine import accounting
    from coalmine.cli import options
    from coalmine.contracts import plain

    if zcdp is not None:
        others = {"noise_multiplier": noise_multiplier, "epsilon": epsilon, "participations": participations, "rounds": rounds}
        others |= {"sampling_rate": sampling_rate, "cohort_size": cohort_size, "population": population, "relation": relation}
        others |= {"group_size": group_size, "honest": honest, "survivors": survivors, "strategy": strategy}
        others |= {"separation": separation, "groups": groups, **own}
        _show(strategies.of_zcdp(zcdp, delta, others), as_json)
        return
    if strategy is not None:
        strategies.refuse_beside(
            "--strategy", {"group_size": group_size, "honest": honest, "survivors": survivors}, "independent noise"
        )
        planned = strategies.planned(rounds, participations, separation, momentum)
        _say(said := strategies.patience(planned, bands), quiet or not said)
        sampled = strategies.sampled(planned, groups, sampling_rate, cohort_size, population)
        wanted = strategies.StrategyQuestion(noise_multiplier, epsilon, delta, accountant, relation)
        _show(strategies.account(strategy, own, planned, sampled, wanted), as_json)
        return
    strategies.refuse_alone({**own, "separation": separation, "groups": groups}, "--strategy")
    pattern = options.participation_pattern(participations, sampling_rate, cohort_size, population, rounds)
    if group_size is not None:
        pattern = options.of_examples(pattern, group_size)
        _say("accounting examples one by one, up to some minutes", quiet or group_size < _FEW)
    elif noise_multiplier is None and pattern.sampling is not None:
        _say("searching the noise multiplier, up to a minute", quiet)
    how: Any = {"accountant": accountant, "relation": relation}
    there: dict[str, Any] = {}
    if honest is not None or survivors is not None:
        from coalmine.cli.secure_aggregation import shared_noise

        noise_multiplier, there = shared_noise(_needed(noise_multiplier), honest, survivors)
    noise, at = options.two_of_three(pattern, noise_multiplier, epsilon, delta, how)
    found = accounting.claim(pattern, noise_multiplier=noise, delta=at, **how)
    about = {"noise multiplier": f"{noise:.6g}", "participation": str(pattern), "relation": found.game.relation, **there}
    text = "\n".join([str(found), *(f"  {name:<18} {value}" for name, value in about.items())])
    document = {**plain(found), "noise_multiplier": noise, "half_noise_epsilon": plain(found.at_noise(0.5)), **there}
    typer.echo(json.dumps(document, indent=2) if as_json else text)


def _needed(noise: float | None) -> float:
    if noise is None:
        raise ValueError("--honest and --survivors need --noise-multiplier, the noise that the claim was made for.")
    return noise
