"""The short form in notebooks: it says all that matters, is well-formed, and nothing in it can run or be fetched."""

import re
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest

from coalmine import AuditResult, Claim, CosineNull, GaussianNull, MaxNull, Scores, audit_scores, bound_band
from coalmine.contracts import Caveat
from coalmine.drawing import Picture, svg
from coalmine.result import SecondaryView

SCORES = Scores.of(np.linspace(-1, 3, 100), np.linspace(-2, 2, 200))
ALLOWED = {"div", "p", "span", "table", "tbody", "tr", "th", "td", "ul", "li", "b", "svg", "path", "rect", "text"}
KINDS = {
    "CONSISTENT": lambda: audit_scores(SCORES, delta=1e-5, claim=Claim(3.0, 1e-5, question=lambda factor: 1e9)),
    "VIOLATED": lambda: audit_scores(
        Scores.of(np.linspace(4, 6, 100), null=GaussianNull()), delta=1e-5, claim=Claim(1.0, 1e-5)
    ),
    "INCONCLUSIVE": lambda: audit_scores(Scores.of([1.0], [0.0]), delta=1e-5, claim=Claim(30.0, 1e-5)),
    "NO CLAIM": lambda: audit_scores(Scores.of([0.05], null=MaxNull(CosineNull(10_000), 30)), delta=1e-5),
}


def words_of(html):
    return " ".join("".join(ElementTree.fromstring(html).itertext()).split())


@pytest.mark.parametrize("word", KINDS)
def test_it_says_what_the_print_says(word):
    result = KINDS[word]()
    html = result._repr_html_()
    said = words_of(html)
    icon = {"CONSISTENT": "✓", "VIOLATED": "✗", "INCONCLUSIVE": "?", "NO CLAIM": "·"}[word]
    assert said.startswith(f"{icon} {word} {result.verdict.reason if result.verdict else ''}".rstrip())
    for text in (result.claim or "none given", result.estimate or "none", result.bound, *result.caveats):
        assert str(text) in said
    assert "ceiling" in said and "<svg" in html
    assert AuditResult.from_json(result.to_json())._repr_html_() == html


@pytest.mark.parametrize("word", KINDS)
def test_nothing_runs_and_nothing_is_fetched(word):
    root = ElementTree.fromstring(KINDS[word]()._repr_html_())  # (well-formed)
    for element in root.iter():
        assert element.tag.split("}")[-1] in ALLOWED
        assert not {name for name in element.attrib if name.startswith("on") or name in ("href", "src")}
        assert "url(" not in element.attrib.get("style", "")


def test_the_text_has_the_colour_of_the_page():
    """White on a badge with a colour of its own; everything else is the page's."""
    html = KINDS["VIOLATED"]()._repr_html_()
    assert set(re.findall(r"[; \"]color:([^;\"]+)", html)) == {"inherit", "#fff"}
    assert set(re.findall(r'<text[^>]*fill="([^"]+)"', html)) == {"currentColor"}


def test_other_views_are_shown():
    beside = SecondaryView("every <i>release</i>", "s", None, bound_band(SCORES, delta=1e-5), None)
    said = words_of(replace(KINDS["CONSISTENT"](), views=(beside,))._repr_html_())
    assert str(beside) in said


def test_every_string_is_escaped():
    bad = "<script>alert(1)</script>&\"'<img src=x onerror=y>"
    result = KINDS["VIOLATED"]()
    beside = SecondaryView(bad, bad, None, result.bound, None)
    bad_result = replace(
        result,
        claim=Claim(1.0, 1e-5, accountant=bad),
        estimates=(replace(result.estimate, method=bad),),
        bounds=(replace(result.bound, method=bad),),
        views=(beside,),
        caveats=(Caveat("note", {"name": "mine", "text": bad}),),
    )
    html = bad_result._repr_html_()
    assert "<script" not in html and "<img" not in html
    assert words_of(html).count("<script>alert(1)</script>") == 5


def test_the_picture_is_scaled_to_each_rows_own_total():
    drawn = svg(Picture((0.0, 1.0, 2.0), {"many": (1000, 1000), "few": (1, 1)}), width=132, height=136)
    areas = re.findall(r'<path d="([^"]+)" fill="#', drawn)
    assert areas == ["M16.0 100V4.0H66.0V4.0H116.0V100Z"] * 2


def test_nothing_is_no_picture():
    assert svg(Picture((), {})) == ""
    assert "<svg" not in replace(KINDS["VIOLATED"](), histogram={})._repr_html_()
