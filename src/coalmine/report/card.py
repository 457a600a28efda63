"""A fragment for the documentation of a model: the audit in Markdown, to be pasted into a model card."""

from __future__ import annotations

import html
import re
from pathlib import Path

from coalmine.contracts.finding_sentences import conformance_lines
from coalmine.contracts.sentences import QUESTION
from coalmine.report import digits, facts, words
from coalmine.report.conforming import TITLE, at_measured
from coalmine.report.evidence import Evidence
from coalmine.result import AuditResult
from coalmine.terminal import harmless


def card(source: AuditResult | Evidence | str | Path) -> str:
    """The Markdown of a result, of a result file or of a run directory."""
    evidence = source if isinstance(source, Evidence) else Evidence.of(source)
    result = evidence.result
    return "\n".join(
        [
            "## Privacy audit",
            "",
            f"**{words.verdict_word(result)}**. {QUESTION} {_text(words.answer(result))}",
            "",
            f"> {_text(words.quote(result))}",
            "",
            *(line for said in (words.noticed(result), words.attacker(result)) if said for line in (_text(said), "")),
            *_tests(result),
            "| adversary | claim | at least | about | could show at most |",
            "|---|---:|---:|---:|---:|",
            *(_row(each) for each in facts.numbers(result)),
            "",
            f"Epsilon at delta = {digits.power_of_ten(result.bound.delta)}; *at least* is proved by the audit, *about* is an "
            "estimate with its interval and decides nothing.",
            "",
            *(f"- **{_text(name)}**: {_text(text)}" for name, text in facts.setting(evidence)),
            "",
            "What this does not show:",
            "",
            *(f"- {_text(limit)}" for limit in words.not_shown(result)),
            "",
            f"Scores SHA-256 `{re.sub('[^0-9a-f]', '', str(result.setting.get('sha256', '')))}`; "
            + _text(", ".join(f"{name} {version}" for name, version in sorted(evidence.versions.items())))
            + ".",
            *_files(evidence),
            "",
        ]
    )


def _files(evidence: Evidence) -> list[str]:
    """What the files of the run can be compared with, or that there is nothing."""
    if evidence.digest is not None:
        return ["", f"All files: SHA-256 `{evidence.digest}` of their manifest, for `coalmine verify DIR --digest`."]
    unverified = "**Unverified**: there was no manifest beside this result; nobody can tell whether it was edited."
    return ["", unverified] if evidence.lone else []


def _tests(result: AuditResult) -> list[str]:
    """The tests of the mechanism: one line about all, and what was found false or could not be tested."""
    if result.conformance is None:
        return []
    lines = [f"- **{name}**: {_text(text)}" for name, text in conformance_lines(result.conformance)]
    more = at_measured(result)
    return [TITLE, "", *lines, *([f"- {_text(more)}"] if more else []), ""]


def _row(each: facts.Numbers) -> str:
    about = f"{digits.number(each.estimate.epsilon)} ({each.interval})" if each.estimate else "–"
    claim = digits.number(each.claim.epsilon) if each.claim else "–"
    name = each.view if not each.name else f"{each.view} ({each.name})"
    name += ": decides" if each.primary else ""
    cells = (name, claim, digits.at_least(each.bound.epsilon), about, digits.most(each.bound.ceiling))
    return f"| {' | '.join(_text(cell) for cell in cells)} |"


def _text(text: str) -> str:
    """Text that Markdown and HTML take as text."""
    escaped = html.escape(harmless(" ".join(text.split())), quote=False)
    return re.sub(r"([\\`*_\[\]|~#])", r"\\\1", escaped)
