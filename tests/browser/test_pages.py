"""Reports and comparisons as readers meet them: on a phone and on a screen, light and dark, on paper, without JavaScript."""

import re

import pytest

from coalmine import AuditResult, Once, audit_scores, claim, simulate_gaussian_mechanism
from coalmine.audit.statements import with_conformance
from coalmine.report.compare import compare
from coalmine.report.page import report
from conforming import conformance

PHONE, SCREEN = (390, 844), (1280, 800)
LEAST_CONTRAST = 4.5  # WCAG AA


@pytest.fixture(scope="module")
def pages(finished, hostile, tmp_path_factory):
    """By name, the files: every verdict, a hostile one, a comparison."""
    folder = tmp_path_factory.mktemp("pages")
    texts = {"run": report(finished()), "hostile": report(hostile)}
    texts["comparison"] = compare(
        [finished(), finished("mechanism.noise_multiplier=1.0"), finished("canaries.pool=0")]
    ).to_html()
    for word, sigma, canaries in (("violated", 0.4, 400), ("inconclusive", 1.0, 20), ("consistent", 1.0, 600)):
        scores = simulate_gaussian_mechanism(dim=100_000, canaries=canaries, sigma=sigma, seed=3)
        result = audit_scores(scores, delta=1e-5, claim=claim(Once(), noise_multiplier=1.0, delta=1e-5))
        assert result.verdict.word == word.upper()
        texts[word] = report(result)
    audited = AuditResult.load(finished())
    missing = {"cohorts": "no-cohorts", "treated-alike": "no-samples"}
    texts["conforming"] = report(with_conformance(audited, conformance()))
    texts["deviates"] = report(
        with_conformance(audited, conformance({"noise-scale": "less", "noise-mean": "unknown"}, missing))
    )
    texts["more"] = report(with_conformance(audited, conformance({"noise-scale": "more"})))
    for name, text in texts.items():
        (folder / f"{name}.html").write_text(text, encoding="utf-8")
    return {name: folder / f"{name}.html" for name in texts}


NAMES = ("run", "hostile", "comparison", "violated", "inconclusive", "consistent", "conforming", "deviates", "more")


def luminance(colour):
    parts = [value / 255 for value in colour]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(first, second):
    low, high = sorted((luminance(first), luminance(second)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("size", [PHONE, SCREEN], ids=["phone", "screen"])
@pytest.mark.parametrize("name", NAMES)
def test_nothing_complains_loads_or_scrolls_sideways(reader, pages, name, size, theme):
    opened = reader(pages[name], width=size[0], height=size[1], theme=theme)
    assert opened.complaints == [] and opened.requests == [pages[name].as_uri()]
    wide = opened.page.evaluate("document.documentElement.scrollWidth")
    assert wide <= size[0]
    right_edge = "Math.max(...[...document.querySelectorAll('main *')].map(each => each.getBoundingClientRect().right))"
    assert opened.page.evaluate(right_edge) <= size[0] + 1  # nothing is cut off either


@pytest.mark.parametrize("size", [PHONE, SCREEN], ids=["phone", "screen"])
@pytest.mark.parametrize("name", ["run", "violated", "inconclusive", "consistent"])
def test_the_first_screen_has_verdict_and_sentence(reader, pages, name, size):
    opened = reader(pages[name], width=size[0], height=size[1])
    for selector in ("#question", "#verdict", "#answer", "#quote"):
        box = opened.box(selector)
        assert box["y"] >= 0 and box["y"] + box["height"] <= size[1], selector
    assert opened.page.inner_text("#verdict") in ("CONSISTENT", "VIOLATED", "INCONCLUSIVE")
    assert opened.page.inner_text("#quote").startswith("An adversary who")
    line = ".line .narrow" if size is PHONE else ".line .wide"
    assert opened.box(line)["y"] < size[1]  # the number line begins on the first screen
    if name == "run":  # and its first rows are there: the claim that is tested, and the one for real people
        for row in ("all but the target known", "a real client"):
            box = opened.page.locator(f"{line} svg").get_by_text(row).first.bounding_box()
            assert box["y"] + box["height"] + 30 <= size[1], row


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("name", ["violated", "inconclusive", "consistent", "deviates", "more"])
def test_verdicts_can_be_read_in_both_themes(reader, pages, name, theme):
    opened = reader(pages[name], theme=theme)
    paper = opened.colour(".hero", "background-color")
    assert (luminance(paper) < 0.1) == (theme == "dark")
    for selector in ("#verdict", "#quote", "#noticed", ".note", ".line .wide svg text"):
        kind = "fill" if selector.endswith("text") else "color"
        assert contrast(opened.colour(selector, kind), paper) >= LEAST_CONTRAST, selector


def test_verdicts_differ_in_shape_too(reader, pages):
    shapes = {
        reader(pages[name]).page.inner_html(".verdict svg").strip() for name in ("violated", "inconclusive", "consistent")
    }
    assert len(shapes) == 3


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_figures_have_the_colours_of_the_theme(reader, pages, theme):
    opened = reader(pages["run"], theme=theme)
    script = """[...document.querySelectorAll('.plate svg path, .plate svg text')].flatMap(each => {
        const style = getComputedStyle(each); return [style.fill, style.stroke] })"""
    used = set(opened.page.evaluate(script))
    assert ("rgb(27, 36, 45)" in used) == (theme == "light")  # ink
    assert ("rgb(232, 235, 238)" in used) == (theme == "dark")


@pytest.mark.parametrize("name", NAMES)
def test_it_can_be_read_without_javascript(reader, pages, name):
    opened = reader(pages[name], java_script_enabled=False)
    assert "epsilon" in opened.page.inner_text("main")


def test_hostile_strings_are_shown_as_text(reader, pages, hostile_text):
    opened = reader(pages["hostile"])
    assert opened.complaints == []
    assert hostile_text in opened.page.inner_text("main")
    assert opened.page.locator("img").count() == 0 and opened.page.locator("script").count() == 1


@pytest.mark.parametrize(("name", "pages_of_paper"), [("run", (2, 4)), ("hostile", (2, 4)), ("violated", (1, 2))])
def test_it_prints_on_few_pages(reader, pages, name, pages_of_paper):
    printed = reader(pages[name], theme="dark").page.pdf(prefer_css_page_size=True)
    count = len(re.findall(rb"/Type\s*/Page\b", printed))
    assert pages_of_paper[0] <= count <= pages_of_paper[1]
    sizes = {tuple(round(float(part)) for part in box.split()) for box in re.findall(rb"/MediaBox\s*\[([^\]]*)\]", printed)}
    assert sizes == {(0, 0, 595, 842)}  # A4


def test_paper_is_white_in_the_dark(reader, pages):
    opened = reader(pages["run"], theme="dark")
    opened.page.emulate_media(media="print")
    assert opened.colour("body", "background-color") == (255, 255, 255)
    assert luminance(opened.colour("#quote")) < 0.1


@pytest.mark.parametrize("name", NAMES)
def test_pages_are_small(pages, name):
    assert pages[name].stat().st_size < 500_000
