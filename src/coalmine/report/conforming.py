"""The panel "Does the code do what was claimed?": a row for every sentence of the mechanism's description."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

from coalmine.contracts import Conformance, Finding, NotTested
from coalmine.contracts.finding_sentences import MARKS, NO_PART, chance, finding, with_interval
from coalmine.contracts.sentences import too_small
from coalmine.report.digits import number
from coalmine.result import AuditResult

TITLE = "Does the code do what was claimed?"
_ORDER = ("less", "unknown", "more", "none")
_SIGNS = {"less": "✕", "unknown": "≠", "more": "+", "none": "✓"}


class SentenceRow(NamedTuple):
    """One sentence: what was claimed, what was measured with its interval, and whether it holds."""

    sentence: str
    claimed: str
    measured: str
    kind: str  # side of the finding, or "untested"
    mark: str
    note: str  # p-value and place; why there was no test

    @staticmethod
    def of(found: Finding) -> SentenceRow:
        """The row of a test."""
        claimed = "" if found.claimed is None else f"{found.claimed:.4g}"
        measured = "" if found.measured is None else with_interval(found.measured, found.low, found.high)
        note = f"{chance(found.p_value)}{f', {found.where}' if found.where else ''}"
        return SentenceRow(found.sentence, claimed, measured, found.side, f"{_SIGNS[found.side]} {MARKS[found.side]}", note)

    @staticmethod
    def without(missing: NotTested) -> SentenceRow:
        """The row of a sentence that was not tested."""
        return SentenceRow(finding(missing.key, missing.data), "", "", "untested", "– not tested", missing.reason)


def rows(conformance: Conformance) -> list[SentenceRow]:
    """What was found false first, then what holds, then what was not tested."""
    found = sorted(conformance.findings, key=lambda each: _ORDER.index(each.side))
    missing = sorted(conformance.not_tested, key=lambda each: each.code in NO_PART)
    return [*(SentenceRow.of(each) for each in found), *(SentenceRow.without(each) for each in missing)]


def said(result: AuditResult) -> Iterator[str]:
    """The sentences above the rows."""
    about = result.conformance
    if about is None:
        return
    false, count = len(about.deviations), len(about.findings)
    if not count:
        yield "No sentence of the mechanism's description could be tested."
        return
    if false:
        yield f"No. {false} of {count} tests found a sentence of the mechanism's description false."
    else:
        yield f"As far as {count} tests see, yes: none found a sentence of the mechanism's description false."
    missing = sum(each.code not in NO_PART for each in about.not_tested)
    if missing:
        yield f"{missing} {'sentence' if missing == 1 else 'sentences'} could not be tested."
    often = f"{1 / about.level:,.0f}" if about.level > 0 else "∞"
    yield f"All tests together give a false alarm in at most one of {often} correct runs."
    if about.noticed_noise_factor is not None and 0 < about.noticed_noise_factor < 1:
        yield f"Noise {too_small(about.noticed_noise_factor)} too small would have been noticed with probability 0.8."


def at_measured(result: AuditResult) -> str:
    """The claim of the same accountant for the noise that was measured; empty where nobody can say."""
    found: Any = result.conformance.epsilon_at_measured if result.conformance is not None else ()
    if len(found) != 3 or any(math.isnan(value) for value in found):
        return ""
    epsilon, low, high = found
    return (
        "With the noise that was measured, the same accountant gives "
        f"epsilon = {number(epsilon)} [{number(low)}, {number(high)}]. "
        "This is an estimate under the mechanism's description, no bound, and decides nothing."
    )
