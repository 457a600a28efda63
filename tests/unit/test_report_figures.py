"""Figures: what they show is what is in their input, they stay small, and equal input gives equal bytes."""

import re

import numpy as np
import pytest
from matplotlib.figure import Figure

from coalmine import AuditResult, CosineNull, GaussianNull, MaxNull, Scores, audit_scores, simulate_gaussian_mechanism
from coalmine._random import stream
from coalmine.report import figures, style
from coalmine.report.evidence import series
from coalmine.report.figures import Presentations, Standardised
from coalmine.report.number_line import _apart, _Label

ROUNDS = [
    {"round": number, "training_loss": 3 / (number + 1), "accuracy": 0.1 + number / 1000, "accuracy_error": 0.01,
     "canary_share": 0.1, "unclipped_clients": 0.5, "unclipped_with_canaries": 0.4, "epsilon_claimed": 4.0,
     "epsilon_measured": 2.0, "epsilon_estimated": 3.5, "epsilon_at_most": 5.0}
    for number in range(500)
]  # fmt: skip


@pytest.fixture(scope="module")
def scores():
    return simulate_gaussian_mechanism(dim=100_000, canaries=2_000, sigma=0.5, seed=1)


@pytest.fixture(scope="module")
def result(scores):
    return audit_scores(scores, delta=1e-5)


def drawn(scores, result):
    estimate = result.estimate
    return {
        "number_line": figures.number_line(result),
        "narrow": figures.number_line(result, narrow=True),
        "densities": figures.densities(scores),
        "quantiles": figures.quantiles(scores),
        "presentations": figures.presentations([Presentations(times, estimate, 4.0) for times in (1, 2, 4)]),
        "epsilon_over_rounds": figures.epsilon_over_rounds(ROUNDS),
        "training_curves": figures.training_curves(ROUNDS, ROUNDS, 0.1),
        "canary_share": figures.canary_share(ROUNDS),
        "accuracies": figures.accuracies([("a", 0.4, 0.01), ("b", 0.5, 0.02)]),
    }


def test_every_figure_is_small_repeatable_and_has_text_as_text(scores, result):
    first, second = drawn(scores, result), drawn(scores, result)
    for name, figure in first.items():
        assert isinstance(figure, Figure)
        text = style.svg(figure)
        assert text == style.svg(second[name]), name
        assert "<text" in text and "dc:date" not in text and len(text) < 60_000, name
        shown = figure._repr_svg_()
        paper = re.search(r'<svg[^>]*>\s*(<rect width="100%" height="100%"[^>]*/>)\n ', shown)  # first of all, so behind all
        assert style.PAPER in paper[1] and shown.replace(f"\n {paper[1]}", "") == text


def test_a_dollar_is_a_dollar(result):
    from dataclasses import replace

    shown = replace(result, setting={**result.setting, "view": "cost: $5 and $x_1$ <b>"})
    text = style.inline_svg(figures.number_line(shown, narrow=True), "a", 'quote " <')
    assert "$5 and $x_1$ &lt;b&gt;" in text and 'aria-label="quote &quot; &lt;"' in text


def test_ids_are_those_of_the_figure(scores):
    one, two = (style.inline_svg(figures.densities(scores), name, "") for name in ("one", "two"))
    assert 'id="one-' in one and "url(#one-" in one and "one-" not in two


def test_thinning_keeps_the_tails_and_the_ends():
    keep = figures.thinned(2_000)
    assert keep.size <= figures.MOST_POINTS and set(range(20)) <= set(keep) and set(range(1980, 2000)) <= set(keep)
    assert figures.thinned(50).tolist() == list(range(50))
    rounds = figures.evenly(500)
    assert rounds.size <= figures.MOST_POINTS and (rounds[0], rounds[-1]) == (0, 499)


def test_what_is_drawn_of_the_scores(scores):
    (axes,) = figures.densities(scores).axes
    heights = [patch.get_data() for patch in axes.patches]
    for data in heights:
        assert (data.values * np.diff(data.edges)).sum() == pytest.approx(1.0)
    shown = Standardised.of(scores)
    assert shown.inserted.mean() == pytest.approx(2.0, abs=0.15)  # sigma = 0.5; 0.15 is 6.7 standard errors


def test_the_exact_null_is_exact():
    law = CosineNull(5)
    shown = Standardised.of(Scores.of([0.1, 0.2], null=law))
    assert shown.law == "exact null"
    z = np.linspace(-np.sqrt(5), np.sqrt(5), 20_001)
    assert np.trapezoid(shown.density(z), z) == pytest.approx(1.0, abs=1e-4)
    below = z <= 0.7
    assert np.trapezoid(shown.density(z[below]), z[below]) == pytest.approx(law.cdf(z[below][-1] / np.sqrt(5)), abs=1e-4)


def test_units_of_scores_without_a_law_of_one_round():
    rng = stream(0, "figures")
    inserted, held_out = rng.normal(3, 2, 50), rng.normal(1, 2, 80)
    for null in (None, MaxNull(GaussianNull(), 4)):
        shown = Standardised.of(Scores.of(inserted, held_out, null=null))
        assert shown.held_out.mean() == pytest.approx(0) and shown.held_out.std(ddof=1) == pytest.approx(1)
        assert (shown.law == "") == (null is not None)
    with pytest.raises(figures.NothingToShow, match="held-out"):
        figures.densities(Scores.of(inserted, null=MaxNull(GaussianNull(), 4)))


@pytest.mark.parametrize("draw", [figures.epsilon_over_rounds, figures.training_curves, figures.canary_share])
def test_rounds_that_say_nothing(draw):
    for rounds in ([], [{"round": 0}], [{"round": number, "training_loss": None, "accuracy": "x"} for number in range(5)]):
        with pytest.raises(figures.NothingToShow):
            draw(rounds)


def test_nothing_to_compare(result):
    with pytest.raises(figures.NothingToShow):
        figures.presentations([])
    with pytest.raises(figures.NothingToShow):
        figures.accuracies([])
    with pytest.raises(figures.NothingToShow, match="keeps no counts"):
        figures.densities(AuditResultWithout(result))


class AuditResultWithout:
    """A result without counts, whatever fields results have."""

    def __new__(cls, result):
        from dataclasses import fields, replace

        return replace(result, **{item.name: {} for item in fields(result) if item.name == "histogram"})


def test_series_takes_numbers_only():
    rounds = [{"round": 0, "a": 1}, {"round": 1, "a": None}, {"round": 2, "a": float("inf")}, {"a": 2}, {"round": 3, "a": True}]
    assert [values.tolist() for values in series(rounds, "a")] == [[1.0], [1.0]]


def test_labels_never_overlap():
    rng = stream(0, "labels")
    for _ in range(200):
        labels = [
            _Label(float(place), "x" * int(size), "")
            for place, size in zip(rng.uniform(0, 500, 3), rng.integers(5, 25, 3), strict=True)
        ]
        placed = _apart(labels, 500.0)
        ends = [0.0]
        for start, label in placed:
            assert start >= ends[-1] - 1e-9
            ends.append(start + label.width)
        assert ends[-1] <= 500 + 1e-9


def test_real_people_stand_beside_the_row_that_decides(finished):
    shown = AuditResult.load(finished())
    for narrow in (False, True):
        (axes,) = figures.number_line(shown, narrow=narrow).axes
        names = ("all but the target known", "a real client", "the final model only")
        places = [next(each.get_position()[1] for each in axes.texts if each.get_text().startswith(name)) for name in names]
        assert places == sorted(places)


def test_one_presentation_is_compared_with_its_own_claim():
    (axes,) = figures.epsilon_over_rounds(ROUNDS, claim_for_one=1.5).axes
    line = next(line for line in axes.lines if line.get_label() == "claim for one presentation")
    assert set(line.get_ydata()) == {1.5}


def inside(figure):
    """Whether every legend lies within its figure."""
    style.svg(figure)  # lays it out
    width = figure.bbox.width
    boxes = [axes.get_legend().get_window_extent() for axes in figure.axes if axes.get_legend()]
    return bool(boxes) and all(box.x0 >= 0 and box.x1 <= width for box in boxes)


def test_legends_stay_inside(scores, result):
    lone = audit_scores(Scores.of(scores.inserted_values, scores.held_out_values[:0], null=scores.null), delta=1e-5)
    wide = Scores.of(*(stream(0, "wide").normal(size=(2, 100_000))))
    figured = drawn(scores, result)
    shown = [figured[name] for name in ("densities", "quantiles", "presentations", "epsilon_over_rounds", "training_curves")]
    for figure in (*shown, figures.densities(lone), figures.densities(wide), figures.epsilon_over_rounds(ROUNDS, 1.5)):
        assert inside(figure)


@pytest.mark.parametrize("combined", ["maximum", "likelihood-ratio"])
def test_no_normal_law_is_drawn_for_what_is_no_shifted_normal(combined):
    from dataclasses import replace

    rng = stream(0, "no normal")
    scores = replace(Scores.of(rng.normal(3, 1, 60), rng.normal(2, 1, 60)), combined=combined)
    lone = audit_scores(scores, delta=1e-5)
    assert not figures.densities(scores).axes[0].lines
    assert not figures.densities(lone).axes[0].lines
    with pytest.raises(figures.NothingToShow, match="normal"):
        figures.quantiles(scores)


def test_the_epsilon_so_far_says_what_it_assumes():
    (axes,) = figures.epsilon_over_rounds(ROUNDS).axes
    assert "its lower edge" in [line.get_label() for line in axes.lines]
