"""The study as a page: every bug beside its claim, its first run as number lines."""

from __future__ import annotations

from coalmine.contracts.finding_sentences import finding
from coalmine.report.compare import Audited
from coalmine.report.compare import page as comparison
from coalmine.zoo.bugs import BUGS
from coalmine.zoo.settings import SETTINGS
from coalmine.zoo.study import Study, most_false_alarms

_LEAD = (
    "Differentially private training with one known bug each, and correct training in the same settings. A run is caught if "
    "its verdict is VIOLATED, or DEVIATES with less protection than claimed; the numbers and lines shown are those of the run "
    "with secret seed 0."
)


def page(exam: Study) -> str:
    """One self-contained page."""
    first = dict(exam.results)
    audits = []
    for row in exam.rows:
        found = BUGS.get(row.name)
        what = found.fault if found else _sentence(SETTINGS[row.setting].about)
        if row.where is not None:
            what += f" {row.located} of {row.caught} name the layer, {row.where}."
        if row.canaries is not None and row.sentence:
            what += f" Found false: {finding(row.sentence, {})} ({row.named} of {len(row.papers)})."
        if row.canaries is None:
            what += f" Fewer than {most_false_alarms(len(row.papers)) + 1} may be false alarms."
        seen = f"{row.papers[0].method}, {row.view}"
        columns = {"caught": f"{row.caught} of {len(row.papers)}", "seen by": seen, "what": what}
        audits.append(Audited(row.name, first[row.name], columns))
    return comparison("The bug zoo", audits, lead=_LEAD, axes=("caught", "seen by"))


def _sentence(words: str) -> str:
    return f"{words[0].upper()}{words[1:]}."
