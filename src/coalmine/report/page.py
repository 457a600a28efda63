"""report.html: one audit on one self-contained page, equal for equal audits."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import jinja2
from markupsafe import Markup

from coalmine.contracts import percent
from coalmine.contracts.sentences import QUESTION
from coalmine.report import conforming, crafted, digits, facts, figures, rankings, spectrum, strategies, words
from coalmine.report.evidence import Evidence
from coalmine.report.noise_chart import noise_by_round
from coalmine.report.presented import claim_for, within_run
from coalmine.report.style import Drawing, inline_svg
from coalmine.result import AuditResult


class Shown(NamedTuple):
    """A figure of a page with its title and its caption."""

    name: str
    title: str
    svg: Markup
    caption: str


def report(source: AuditResult | Evidence | str | Path) -> str:
    """The page of a result, of a result file or of a run directory, as HTML."""
    evidence = source if isinstance(source, Evidence) else Evidence.of(source)
    result = evidence.result
    return (
        environment()
        .get_template("report.html")
        .render(
            evidence=evidence,
            result=result,
            numbers=facts.numbers(result),
            lines=number_lines(result),
            figures=list(_figures(evidence)),
            noise=_noise(result),
            embedded=embedded(result.to_dict()),
            facts=facts,
            words=words,
            digits=digits,
            conforming=conforming,
            question=QUESTION,
        )
    )


@cache
def environment() -> jinja2.Environment:
    """The templates of this package: everything is escaped, and a name that is missing is an error."""
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("coalmine.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["number"] = digits.number
    made.filters["at_least"] = digits.at_least
    made.filters["power_of_ten"] = digits.power_of_ten
    made.filters["unbroken"] = unbroken
    return made


def unbroken(text: str) -> Markup:
    """Escaped text in which no line ends between epsilon or delta and its value."""
    parts = re.split(r"((?:delta|epsilon) = (?:[\d.,]*\d(?:e-?\d+)?|∞))", text)
    return Markup().join(
        Markup('<span class="nobr">{}</span>').format(part) if place % 2 else part for place, part in enumerate(parts)
    )


def embedded(data: Any) -> Markup:
    """Data as JSON that cannot end the element that it stands in."""
    text = json.dumps(data, sort_keys=True, allow_nan=False)
    return Markup(text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e"))


def element(figure: Drawing, name: str, description: str) -> Markup:
    """A figure as an element of a page."""
    return Markup(inline_svg(figure, name, description))


def number_lines(result: AuditResult) -> dict[str, Markup]:
    """The number line, for wide and for narrow places; a page shows one of them."""
    said = words.quote(result)
    return {
        name: element(figures.number_line(result, narrow=name == "narrow"), f"line-{name}", said) for name in ("wide", "narrow")
    }


def _noise(result: AuditResult) -> Shown | None:
    """The noise that was measured in every round."""
    figure = noise_by_round(result.conformance) if result.conformance is not None else None
    if figure is None:
        return None
    title, caption = "Noise by round", "Measured from what was released and what was summed, beside the noise that was claimed."
    return Shown("noise", title, element(figure, "noise", f"{title}. {caption}"), caption)


def _figures(evidence: Evidence) -> Iterator[Shown]:
    """The figures that this evidence has something for."""
    for name, title, draw, caption in _plates(evidence):
        try:
            figure = draw()
        except figures.NothingToShow:
            continue
        yield Shown(name, title, element(figure, name, f"{title}. {caption}"), caption)


def _plates(evidence: Evidence) -> Iterator[tuple[str, str, Callable[[], Drawing], str]]:
    result, scores, rounds = evidence.result, evidence.primary, evidence.rounds
    unit = words.game_of(result).unit or "client"
    targets = "users" if result.rankings else "canaries"
    if result.rankings:
        yield (
            "rankings",
            "How well are users ranked?",
            lambda: rankings.aurocs(result.rankings),
            "The chance that somebody who took part has a higher score than somebody who did not, with its interval. A "
            "ranking says nothing about the worst case: it is no epsilon.",
        )
        if scores is not None:
            yield (
                "roc",
                "How many are found at few false alarms?",
                lambda: rankings.roc(scores),
                "Every threshold of the score, from the strictest at the left. Described, without confidence: where a line "
                "lies far above guessing, single users are found.",
            )
    yield (
        "densities",
        f"Can {targets} be told apart?",
        lambda: figures.densities(scores if scores is not None else result),
        f"Scores of {targets} that took part and of {targets} that did not, and the law of the latter. The farther apart, the "
        "more leaked.",
    )
    points = within_run(evidence)
    yield (
        "presentations",
        "Epsilon by number of presentations",
        lambda: figures.presentations(points),
        "Canaries of this run grouped by how often they took part, each group with its interval and with the claim for so many "
        f"rounds. Groups of fewer than 20 are left out; the claim of a real {unit} is that of its own participation.",
    )
    if scores is not None and not result.rankings:
        yield (
            "quantiles",
            "Are the scores normal?",
            lambda: figures.quantiles(scores),
            "On its line a score is where the normal law of the null's width has it, as the estimate assumes; shaded, where "
            "95 % of such scores lie.",
        )
    attendance = words.game_of(result).participation
    once = attendance is None or attendance.times == 1 or result.claim is None
    one = None if once or result.claim is None else claim_for(result.claim, 1)
    often = "" if once else " Measured is the effect of one presentation."
    watching = evidence.watching
    if watching is not None:
        yield (
            "rounds",
            "Epsilon so far",
            lambda: figures.epsilon_over_rounds(rounds, one),
            f"{words.adversary(watching)} could say this after each round. Each edge of the band holds with "
            f"{percent(evidence.confidence)} confidence at all times at once, if the scores are Gaussian. It decides nothing."
            + often,
        )
    yield from crafted.plates(result.training)
    yield from spectrum.plates(evidence)
    yield from strategies.plates(evidence)
    baseline = result.training.get("baseline_accuracy")
    yield (
        "training",
        "What the model learned",
        lambda: figures.training_curves(rounds, evidence.reference, baseline if isinstance(baseline, float) else None),
        result.in_words.get("learned", "Loss and accuracy of the training."),
    )
    yield (
        "share",
        "What the canaries cost",
        lambda: figures.canary_share(rounds),
        result.in_words.get("canaries", "Canaries' share of each round, and their effect on clipping."),
    )
