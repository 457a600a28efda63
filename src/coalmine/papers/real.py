"""Rows and checks of real runs: the papers' columns, our own views, and what must be true of them."""

from __future__ import annotations

import math
from collections.abc import Mapping

from coalmine.papers.modelled import COLUMNS, Printed
from coalmine.papers.outcome import Check, Row, in_order
from coalmine.papers.trained import Trained

OTHERS, ROUNDS, DRIFT = "known others", "known rounds", "final model"


def epsilon_rows(printed: Printed, real: Mapping[float, Trained]) -> list[Row]:
    """The papers' four columns; a column has the paper's order, or the numbers that break it differ."""
    rows = []
    for column in COLUMNS:
        noises = list(real)
        ours = [real[noise].column(column) for noise in noises]
        errors = [real[noise].standard_error(column) for noise in noises]
        paper = [float(printed.value(noise, column)) for noise in noises]
        good = in_order(paper, ours, errors)
        for noise, value, error, fits in zip(noises, ours, errors, good, strict=True):
            rows.append(
                Row(
                    f"runs, noise {noise:g}, {COLUMNS[column]}",
                    printed.value(noise, column),
                    value,
                    None if math.isinf(value) else error,
                    "same shape" if fits else "differs",
                    place={"how": "runs", "noise": noise, "column": column},
                )
            )
    return sorted(rows, key=lambda row: list(real).index(row.place["noise"]))


def own_rows(real: Mapping[float, Trained]) -> list[Row]:
    """Our own statements beside: estimate of whoever knows all others, of whoever knows the rounds, of the final model."""
    rows = []
    for noise, run in real.items():
        for view in (OTHERS, ROUNDS, DRIFT):
            estimate, bound, claim = run.stated(view)
            at_least = f"at least {bound.epsilon:.3g} ({bound.method}), claim {claim:.3g}"
            value = None if estimate is None else estimate.epsilon
            error = None if estimate is None or not math.isfinite(estimate.high) else (estimate.high - estimate.low) / 3.92
            place = {"how": "runs", "noise": noise, "column": view}
            rows.append(Row(f"runs, noise {noise:g}, our view: {view}", "", value, error, note=at_least, place=place))
    return rows


def own_checks(real: Mapping[float, Trained]) -> list[Check]:
    """What must be true on real data, for every noise."""
    found = []
    for noise, run in real.items():
        for view in (OTHERS, ROUNDS):
            estimate, bound, claim = run.stated(view)
            if estimate is None:
                continue
            found.append(
                Check(
                    f"noise {noise:g}, {view}: valid bound {bound.epsilon:.3g} <= estimate {estimate.epsilon:.3g} "
                    f"[{estimate.low:.3g}, {estimate.high:.3g}] <= claim {claim:.3g}, within the interval",
                    bound.epsilon <= estimate.high and bound.epsilon <= claim and estimate.low <= claim,
                )
            )
        if noise:
            estimate, _, claim = run.stated(OTHERS)
            if estimate is not None:
                found.append(
                    Check(
                        f"noise {noise:g}: known others has the claim in its interval", estimate.low <= claim <= estimate.high
                    )
                )
            others, rounds = (run.stated(view)[0] for view in (OTHERS, ROUNDS))
            if others is not None and rounds is not None:
                text = f"noise {noise:g}: who knows the rounds alone sees no more than who knows all others"
                found.append(Check(text, rounds.low <= others.high))
    return found
