"""The figures of a report, each a function that returns a matplotlib figure: for pages, and for notebooks.

    from coalmine.report import figures
    from coalmine.report.evidence import Evidence

    seen = Evidence.of("runs/first")
    figures.densities(seen.primary)

In a notebook a figure shows itself. `coalmine.report.style.svg(figure)` is the document, `figure.savefig` writes other formats.
A figure that its input has nothing for is a `NothingToShow`, which says why.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator, PercentFormatter
from scipy import special

from coalmine.contracts import Array
from coalmine.nulls import CosineNull, as_cosine
from coalmine.report.evidence import Round, series
from coalmine.report.number_line import number_line as number_line
from coalmine.report.presented import Presentations as Presentations
from coalmine.report.style import BLUE, GREEN, INK, MUTED, ORANGE, Drawing, drawing, house_style
from coalmine.result import AuditResult
from coalmine.scores import Scores

WIDTH, HEIGHT = 350.0, 226.0
MOST_POINTS = 160  # of a line or a cloud: more cannot be told apart, and would only make a page large
_LEGEND = 0.86  # of the width of a figure; the rest is for the labels of the axis at its left
_TAIL = 20  # the farthest scores are all drawn
NORMAL = "normal with the null’s mean and width"


class NothingToShow(ValueError):
    """This input has nothing for this figure."""


@dataclass(frozen=True, eq=False)
class Standardised:
    """Scores in units of the null, and the law that they are compared with."""

    inserted: Array
    held_out: Array
    law: str  # name of the curve; empty: none is known
    exact: CosineNull | None = None

    @staticmethod
    def of(scores: Scores) -> Standardised:
        """By the null's centre and spread; where it has none, by those of the held-out scores."""
        null, held_out = scores.null, scores.held_out_values
        shifted = _shifted_normal(scores)
        if null is not None and shifted:
            inserted, others = ((values - null.center) / null.spread for values in (scores.inserted_values, held_out))
            exact = as_cosine(null)
            return Standardised(inserted, others, "exact null" if exact or null.slack == 0 else "null: the normal law", exact)
        spread = float(held_out.std(ddof=1)) if held_out.size > 1 and np.ptp(held_out) > 0 else 0.0
        if not spread > 0:
            raise NothingToShow("there are no held-out scores to measure the width of the null by.")
        law = NORMAL if shifted else ""
        return Standardised((scores.inserted_values - held_out.mean()) / spread, (held_out - held_out.mean()) / spread, law)

    def density(self, z: Array) -> Array:
        """That of the law."""
        if self.exact is None:
            return np.asarray(np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi))
        cosine, dim = np.clip(z * self.exact.spread, -1.0, 1.0), self.exact.dim
        with np.errstate(divide="ignore"):
            logarithm = (dim - 3) / 2 * np.log1p(-(cosine**2)) - special.betaln(0.5, (dim - 1) / 2)
        return np.asarray(np.exp(logarithm) * self.exact.spread)


def densities(source: Scores | AuditResult) -> Drawing:
    """The scores of inserted and of held-out canaries, in units of the null, and the null's own law (Figure 1 of the paper).

    From a result alone the counts that it keeps are drawn.
    """
    if isinstance(source, AuditResult):
        edges, inserted, held_out = _kept(source)
        shown = Standardised(np.empty(0), np.empty(0), NORMAL if source.shifted_normal else "")
    else:
        shown = Standardised.of(source)
        edges = _edges(np.concatenate([shown.inserted, shown.held_out]), shown.inserted.size)
        inserted, held_out = (np.histogram(values, edges)[0].astype(float) for values in (shown.inserted, shown.held_out))
    with house_style():
        figure, (axes,) = drawing(WIDTH, HEIGHT)
        for counts, colour, name in ((held_out, BLUE, "held out"), (inserted, ORANGE, "inserted")):
            if counts.sum() > 0:
                heights = counts / (counts.sum() * np.diff(edges))
                label = f"{name} ({counts.sum():,.0f})"
                axes.stairs(heights, edges, fill=True, color=colour, alpha=0.22)
                axes.stairs(heights, edges, color=colour, linewidth=1.3, label=label)
        if shown.law:
            z = np.linspace(min(edges[0], -3.5), max(3.5, min(edges[-1], 5.0)), 121)
            axes.plot(z, shown.density(z), color=INK, linewidth=1.3, linestyle=(0, (4, 2)), label=shown.law)
        axes.set_xlabel("score, in standard deviations of the null")
        axes.set_yticks([])
        axes.grid(visible=False)
        _legend(axes)
    return figure


def quantiles(scores: Scores) -> Drawing:
    """Scores against the normal law; on the lines they would be normal with the width of the null, which the estimate assumes.

    The bands hold 95 % of the scores of such a law, each for itself.
    """
    if not _shifted_normal(scores):
        raise NothingToShow(f"{scores.statistic}: no estimate takes such scores for normal ones.")
    shown = Standardised.of(scores)
    with house_style():
        figure, (axes,) = drawing(WIDTH, HEIGHT)
        for values, colour, name in ((shown.held_out, BLUE, "held out"), (shown.inserted, ORANGE, "inserted")):
            if values.size < 2:
                continue
            ordered, rank = np.sort(values), np.arange(1, values.size + 1)
            keep = thinned(values.size)
            normal, centre = special.ndtri((rank - 0.5) / values.size), float(values.mean())
            low, high = (special.ndtri(special.betaincinv(rank, values.size + 1 - rank, share)) for share in (0.025, 0.975))
            axes.fill_between(normal[keep], centre + low[keep], centre + high[keep], color=colour, alpha=0.13, linewidth=0)
            ends = normal[[0, -1]]
            axes.plot(ends, centre + ends, color=colour, linewidth=1)
            axes.plot(normal[keep], ordered[keep], "o", color=colour, markersize=2.6, markeredgewidth=0, label=name)
        axes.set_xlabel("quantile of the normal law")
        axes.set_ylabel("score")
        _legend(axes)
    return figure


def presentations(points: Sequence[Presentations]) -> Drawing:
    """Epsilon by how often canaries took part: estimates with their intervals, and the accountant's claim (Figure 2)."""
    if not points:
        raise NothingToShow("no canaries of several numbers of presentations.")
    colours = (ORANGE, BLUE, GREEN, INK)
    markers = ("o", "s", "D", "^")
    with house_style():
        figure, (axes,) = drawing(WIDTH, HEIGHT)
        for place, name in enumerate(dict.fromkeys(point.series for point in points)):
            line = sorted((point for point in points if point.series == name), key=lambda point: point.times)
            colour, times = colours[place % 4], [point.times for point in line]
            claimed = [(point.times, point.claim) for point in line if point.claim is not None and np.isfinite(point.claim)]
            if claimed:
                axes.plot(*zip(*claimed, strict=True), color=colour, linewidth=1.2, linestyle=(0, (4, 2)))
            middle = np.array([point.estimate.epsilon for point in line])
            errors = [
                middle - [point.estimate.low for point in line],
                np.array([point.estimate.high for point in line]) - middle,
            ]
            axes.errorbar(times, middle, np.maximum(errors, 0.0), fmt=markers[place % 4], color=colour, markersize=5, capsize=3,
                          linewidth=1.4, label=name or "estimate")  # fmt: skip
        axes.plot([], [], color=MUTED, linewidth=1.2, linestyle=(0, (4, 2)), label="claim")
        axes.set_xlabel("presentations of a canary")
        axes.set_ylabel("ε", rotation=0, labelpad=8)
        axes.set_ylim(bottom=0)
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        _legend(axes)
    return figure


def epsilon_over_rounds(rounds: Sequence[Round], claim_for_one: float | None = None) -> Drawing:
    """Epsilon claimed and measured so far, with a band that may be looked at after every round.

    Each edge of the band holds at all times at once; both are valid under a Gaussian shape. What is measured is the effect of
    one presentation: where canaries have several, give the claim for one, to compare like with like.
    """
    number, low = series(rounds, "epsilon_measured")
    if number.size < 2:
        raise NothingToShow("no round recorded what was measured so far.")
    with house_style():
        figure, (axes,) = drawing(WIDTH, HEIGHT)
        upper, high = series(rounds, "epsilon_at_most")
        common, first, second = np.intersect1d(number, upper, return_indices=True)
        keep = evenly(common.size)
        if common.size:
            axes.fill_between(common[keep], low[first][keep], high[second][keep], color=BLUE, alpha=0.16, linewidth=0,
                              label="anytime band")  # fmt: skip
        _line(axes, (number, low), color=GREEN, label="its lower edge")
        _line(axes, series(rounds, "epsilon_estimated"), color=BLUE, label="about")
        estimated = series(rounds, "epsilon_estimated")[1]
        claimed = series(rounds, "epsilon_claimed")
        if claim_for_one is not None:
            claimed = (claimed[0], np.full(claimed[0].size, claim_for_one))
        name = "claim" if claim_for_one is None else "claim for one presentation"
        _line(axes, claimed, color=INK, linewidth=1.3, linestyle=(0, (4, 2)), label=name, drawstyle="steps-post")
        top = max(float(values.max(initial=0.1)) for values in (claimed[1], estimated[estimated.size // 4 :], low))
        axes.set_ylim(0, 1.4 * top)
        axes.set_ylabel("epsilon", fontsize=13)  # half as large on a phone
        _round_axis(axes)
        _legend(axes, ncols=2)
    return figure


def training_curves(rounds: Sequence[Round], reference: Sequence[Round] = (), baseline: float | None = None) -> Drawing:
    """Loss and accuracy over rounds; the same without noise and canaries, and always saying the most frequent, if known.

    The band around the accuracy is its 95 % interval.
    """
    loss, accuracy = series(rounds, "training_loss"), series(rounds, "accuracy")
    panels = [name for name, found in (("loss", loss), ("accuracy", accuracy)) if found[0].size > 1]
    if not panels:
        raise NothingToShow("no round recorded a loss or an accuracy.")
    without = {"color": MUTED, "linestyle": (0, (4, 2)), "linewidth": 1.2, "label": "without noise and canaries"}
    with house_style():
        figure, axes = drawing(WIDTH, HEIGHT, len(panels))
        for name, each in zip(panels, axes, strict=True):
            if name == "loss":
                _line(each, series(reference, "training_loss"), **without)
                _line(each, loss, color=BLUE, label="this run")
                each.set_ylabel("training loss")
            else:
                _line(each, series(reference, "accuracy"), **without)
                number, error = series(rounds, "accuracy_error")
                if number.size == accuracy[0].size:
                    keep, spread = evenly(number.size), 1.96 * error
                    edges = (accuracy[1] - spread)[keep], (accuracy[1] + spread)[keep]
                    each.fill_between(number[keep], *edges, color=BLUE, alpha=0.16, linewidth=0)
                _line(each, accuracy, color=BLUE, marker="o" if number.size <= 30 else "", markersize=3.5, label="this run")
                if baseline is not None:
                    each.axhline(baseline, color=ORANGE, linewidth=1.1, linestyle=":", label="most frequent")
                each.set_ylabel("accuracy")
                each.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        _round_axis(axes[-1])
        _legend(axes[-1])
    return figure


def canary_share(rounds: Sequence[Round]) -> Drawing:
    """Canaries' share of each cohort, and what they do to clipping: updates that pass unclipped, without and with them."""
    share = series(rounds, "canary_share")
    if share[0].size < 2:
        raise NothingToShow("no round recorded canaries.")
    with house_style():
        unclipped = series(rounds, "unclipped_clients")  # not known where an engine shows the mean alone
        figure, (upper, *lowers) = drawing(WIDTH, HEIGHT, 2 if unclipped[0].size else 1)
        keep = evenly(share[0].size)
        upper.fill_between(share[0][keep], 0, share[1][keep], color=ORANGE, alpha=0.22, linewidth=0, step="mid")
        _line(upper, share, color=ORANGE, drawstyle="steps-mid", linewidth=1.2)
        upper.set_ylim(0, 1.25 * max(float(share[1].max()), 0.01))
        upper.set_ylabel("canaries")
        for lower in lowers:
            _line(lower, unclipped, color=BLUE, label="without canaries")
            _line(lower, series(rounds, "unclipped_with_canaries"), color=ORANGE, linestyle=(0, (4, 2)), label="with canaries")
            lower.set_ylim(0, 1.08)
            lower.set_ylabel("unclipped")
            _legend(lower)
        for axes in (upper, *lowers):
            axes.yaxis.set_major_locator(MaxNLocator(4))
            axes.yaxis.set_major_formatter(PercentFormatter(1.0))
        _round_axis(axes)
    return figure


def accuracies(found: Sequence[tuple[str, float, float]]) -> Drawing:
    """What several runs learned: (label, accuracy, standard error), with 95 % intervals."""
    if not found:
        raise NothingToShow("no run recorded an accuracy.")
    with house_style():
        figure, (axes,) = drawing(WIDTH, max(26.0 * len(found) + 50, 130.0))
        place = np.arange(len(found))
        axes.errorbar([each[1] for each in found], place, xerr=[1.96 * each[2] for each in found], fmt="o", color=BLUE,
                      markersize=5, capsize=3)  # fmt: skip
        axes.set_yticks(place, [label if len(label) <= 22 else f"{label[:21]}…" for label, *_ in found], color=INK)
        axes.set_ylim(len(found) - 0.5, -0.5)
        axes.xaxis.set_major_formatter(PercentFormatter(1.0))
        axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.set_xlabel("accuracy")
    return figure


def thinned(count: int, most: int = MOST_POINTS) -> Any:
    """Positions of sorted scores to draw: both tails in full, the middle thinned."""
    if count <= most:
        return np.arange(count)
    middle = np.linspace(_TAIL, count - 1 - _TAIL, most - 2 * _TAIL).astype(int)
    return np.unique(np.concatenate([np.arange(_TAIL), middle, np.arange(count - _TAIL, count)]))


def evenly(count: int, most: int = MOST_POINTS) -> Any:
    """Positions of rounds to draw, the first and the last among them."""
    return np.arange(count) if count <= most else np.unique(np.linspace(0, count - 1, most).astype(int))


def _line(axes: Axes, points: tuple[Array, Array], **how: Any) -> None:
    keep = evenly(points[0].size)
    if keep.size:
        axes.plot(points[0][keep], points[1][keep], **how)


def _round_axis(axes: Axes) -> None:
    axes.set_xlabel("round")
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))


def _legend(axes: Axes, ncols: int = 3) -> None:
    """Above the axes, where no data are."""
    handles, _ = axes.get_legend_handles_labels()
    figure = axes.get_figure(root=True)
    for columns in range(min(len(handles), ncols), 0, -1):
        legend = axes.legend(loc="lower left", bbox_to_anchor=(-0.01, 0.99), ncols=columns, borderaxespad=0.2,
                             columnspacing=1.2, handletextpad=0.5)  # fmt: skip
        if figure is None or legend.get_window_extent().width <= _LEGEND * figure.bbox.width:
            return


def _shifted_normal(scores: Scores) -> bool:
    """Whether inserted scores are held-out ones that moved, and both normal: no maximum over rounds, no likelihood ratio."""
    return not scores.maximum and not scores.likelihood_ratio


def _edges(values: Array, smaller: int) -> Array:
    """Bins for both histograms: as wide as the smaller one needs."""
    low, high = float(values.min()), float(values.max())
    width = max(0.25, min(0.7, 3.2 * max(smaller, 1) ** (-1 / 3)))
    count = int(np.clip(np.ceil((high - low) / width), 4, 60))
    return np.linspace(low, max(high, low + 1e-9), count + 1)


def _kept(result: AuditResult) -> tuple[Array, Array, Array]:
    """The counts that a result keeps of its scores, if it does."""
    kept: Any = getattr(result, "histogram", None) or {}
    try:
        edges, inserted, held_out = (np.asarray(kept.get(name, ()), dtype=float) for name in ("edges", "inserted", "held_out"))
    except (TypeError, ValueError):
        edges = inserted = held_out = np.empty(0)
    held_out = held_out if held_out.size else np.zeros(inserted.size)
    good = edges.size >= 2 and inserted.size == held_out.size == edges.size - 1 and (np.diff(edges) > 0).all()
    if not good or not np.isfinite(edges).all():
        raise NothingToShow("the result keeps no counts of its scores; give the scores.")
    return edges, inserted, held_out


__all__ = [
    "NothingToShow",
    "Presentations",
    "accuracies",
    "canary_share",
    "densities",
    "epsilon_over_rounds",
    "number_line",
    "presentations",
    "quantiles",
    "training_curves",
]
