"""The study: an auditor audits each bug and the correct twin of its setting, with one secret seed after the other.

A bug is caught in a run whose verdict fails a gate: VIOLATED by canaries, or DEVIATES by the tests of the description. Runs are
real ones, in memory; the statement that decides was named by the setting before. Another auditor can be studied in place of
ours: it sees every round and says whether the claim is false.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from coalmine import _validate
from coalmine.audit.conclude import conclude
from coalmine.audit.conforming import Clients
from coalmine.audit.score import Scorer
from coalmine.clients import quiet_threads
from coalmine.contracts import Claim, Observed, plain
from coalmine.result import AuditResult
from coalmine.training import run_in_memory
from coalmine.training.crafting import frozen_round
from coalmine.training.federation import Federation
from coalmine.views import VIEWS
from coalmine.workers import Workers
from coalmine.zoo.bug import Bug, WrongClaim
from coalmine.zoo.bugs import BUGS
from coalmine.zoo.records import audit_record
from coalmine.zoo.settings import SETTINGS, Setting

CAUGHT = 0.95  # of the runs of a bug that can be seen
RISK = 0.05  # of a false alarm, at the confidence of the statements
UNLIKELY = 0.001  # the chance that a right auditor fails the study of correct runs
_AT_ONCE = 32  # runs between two signs of progress: workers wait for each other there
Case = tuple[Setting, Bug | None, int]  # one run: where, what bug, and the secret seed
Key = tuple[Setting, Bug | None]


class Auditor(Protocol):
    """Whoever is studied: sees every round of a run, then says what it proves."""

    def observe(self, seen: Observed) -> None:
        """One round: what was released, and all that adversaries may know."""

    def conclude(self, scorer: Scorer) -> AuditResult:
        """The verdict; a statement of one's own scores is made by `coalmine.audit.audit_scores`."""


class Coalmine:
    """This package's own audit."""

    def observe(self, seen: Observed) -> None:
        """The recorder sees every round by itself."""

    def conclude(self, scorer: Scorer) -> AuditResult:
        """The primary view and its layers."""
        return conclude(scorer)


@dataclass(frozen=True)
class SeedVerdict:
    """What one run came to."""

    seed: int
    word: str
    view: str
    layer: str | None
    bound: float
    claim: float
    method: str
    failed: bool = False  # whether a gate fails: the claim is false, or was computed for another mechanism
    false: tuple[str, ...] = ()  # sentences of the description that were found false, the clearest first


def audit_once(setting: Setting, bug: Bug | None, seed: int, auditor: Callable[[], Auditor] = Coalmine) -> AuditResult:
    """One audited run of a setting, correct or with a bug; nothing is written.

    >>> audit_once(SETTINGS["once"], BUGS["half-noise"], seed=0).verdict.word
    'VIOLATED'
    """
    if setting.records and auditor is not Coalmine:
        raise ValueError(f"the setting {setting.name!r} has no rounds that another auditor could observe: leave out its bugs.")
    if setting.records:
        return audit_record(bug, seed)
    spec, right = setting.config.spec, setting.job(seed)
    job = right if bug is None else bug.kind.into(right, seed)
    stated = claimed(setting, right, bug)
    watching = auditor()
    seen = run_in_memory(spec, job, seed, watching.observe, told(right, bug))
    result = watching.conclude(_with_crafted(setting, job, replace(seen, stated=stated)))
    if result.claim is None or result.claim.epsilon != stated.epsilon:
        raise ValueError(
            f"the claim of this setting is epsilon = {stated.epsilon:g}; the auditor compared with "
            f"{result.claim.epsilon if result.claim else None}. Auditors measure, they do not choose the claim: take it from "
            "`scorer.stated`."
        )
    return result


def _with_crafted(setting: Setting, job: Federation, seen: Scorer) -> Scorer:
    """With what data canaries show of the final model, in settings that have them."""
    config = setting.config
    if config.crafting.mode == "off":
        return seen
    statement, finding = frozen_round(config, job, {**job.start(), "parameters": seen.final}, job.rounds)
    return replace(seen.with_findings([finding]), further=(statement,))


def told(right: Federation, bug: Bug | None) -> Clients:
    """Who takes part, as the accountant is told: as it should be, or as the bug says."""
    assert right.canary_setup is not None
    stated = bug.kind.stated(right) if bug is not None and isinstance(bug.kind, WrongClaim) else right.participation
    return Clients(stated, len(right.data), right.seed, right.canary_setup.schedule.pattern)


def claimed(setting: Setting, right: Federation, bug: Bug | None) -> Claim:
    """What the accountant says: of the training as it should be, against the adversary of the setting; or what the bug says."""
    delta = setting.config.privacy.delta
    if bug is not None and isinstance(bug.kind, WrongClaim):
        return bug.kind.claimed(right, delta)
    assert right.canary_setup is not None
    view = VIEWS[setting.config.audit.view]()
    return view.claim(right.canary_setup.schedule, right.mechanism.describe(), delta=delta)


@dataclass(frozen=True)
class BugRow:
    """All runs of one bug, or of the correct twin of a setting."""

    name: str
    setting: str
    papers: tuple[SeedVerdict, ...]
    canaries: bool | None  # whether canaries see it; None: correct
    where: str | None = None
    sentence: str = ""  # that is false

    @property
    def caught(self) -> int:
        """Runs in which a gate fails: VIOLATED, or DEVIATES with less protection than claimed."""
        return sum(paper.failed for paper in self.papers)

    @property
    def violated(self) -> int:
        """Those of them that canaries caught."""
        return sum(paper.word == "VIOLATED" for paper in self.papers)

    @property
    def named(self) -> int:
        """Runs that found the sentence false that is."""
        return sum(self.sentence in paper.false for paper in self.papers)

    @property
    def located(self) -> int:
        """Those of them that name the layer."""
        named = (paper.layer == self.where for paper in self.papers if paper.word == "VIOLATED")
        return sum(named) if self.where is not None else 0

    @property
    def passed(self) -> bool:
        """Whether this is what must come out: bugs are caught and their sentence is named, correct code is no false alarm."""
        if self.canaries is None:  # (odd code is not the mechanism that is described, and yet leaks no more than is claimed)
            return (self.violated if self.sentence else self.caught) <= most_false_alarms(len(self.papers))
        least = math.ceil(CAUGHT * len(self.papers))
        seen = self.violated >= least or not self.canaries
        named = self.named >= least or not any(paper.false for paper in self.papers)  # (auditors that name none)
        enough = self.caught >= least and named and seen
        return enough and (self.where is None or self.located == self.violated)

    @property
    def view(self) -> str:
        """The view that decided most often."""
        return Counter(paper.view for paper in self.papers).most_common(1)[0][0]

    @property
    def bound(self) -> float:
        """The median of the lower bounds."""
        return float(np.median([paper.bound for paper in self.papers]))

    @property
    def claim(self) -> float:
        """The median of the claims."""
        return float(np.median([paper.claim for paper in self.papers]))


@dataclass(frozen=True)
class Study:
    """The rows of a study."""

    rows: tuple[BugRow, ...]
    results: tuple[tuple[str, AuditResult], ...] = field(default=(), repr=False)  # the first run of every row, to be shown

    @property
    def passed(self) -> bool:
        """Whether all that can be seen was caught, and correct runs gave no more false alarms than they may."""
        return all(row.passed for row in self.rows)

    def to_json(self) -> str:
        """As one JSON document."""
        rows = [
            {
                "name": row.name,
                "setting": row.setting,
                "kind": {None: "correct", True: "seen by canaries", False: "not seen by canaries"}[row.canaries],
                "runs": len(row.papers),
                "violated": row.caught,
                "located": row.located if row.where else None,
                "where": row.where,
                "view": row.view,
                "bound": plain(row.bound),
                "claim": plain(row.claim),
                "passed": row.passed,
                "papers": plain(row.papers),
            }
            for row in self.rows
        ]
        document = {"schema": "coalmine-zoo/1", "passed": self.passed, "rows": rows}
        return json.dumps(document, indent=2, sort_keys=True) + "\n"

    def __str__(self) -> str:
        lines = [f"{'':<26}{'caught':>11}  {'claim':>8}{'median bound':>14}  seen by"]
        for title, canaries in (("bugs", True), ("bugs that canaries cannot see", False), ("correct", None)):
            rows = [row for row in self.rows if row.canaries is canaries]
            if rows:
                lines += ["", title, *(_line(row) for row in rows)]
        return "\n".join([*lines, "", "as it must be" if self.passed else "NOT AS IT MUST BE: see the lines marked !"])


def _line(row: BugRow) -> str:
    caught = f"{row.caught}/{len(row.papers)}"
    if row.canaries is None:
        caught += f" ≤{most_false_alarms(len(row.papers))}"
    seen = f"{row.papers[0].method} on {row.view}"
    if row.where is not None:
        seen += f" ({row.located} of {row.caught} name it)"
    mark = " " if row.passed else "!"
    return f"{mark} {row.name:<24}{caught:>11}  {row.claim:>8.3g}{row.bound:>14.3g}  {seen}"


def most_false_alarms(runs: int) -> int:
    """False alarms that correct runs may give: fewer than the 0.999 quantile of Binomial(runs, 0.05).

    >>> most_false_alarms(200), most_false_alarms(20)
    (20, 4)
    """
    from scipy.stats import binom

    return max(int(binom.ppf(1 - UNLIKELY, runs, RISK)) - 1, 0)


def audit_all(
    names: Sequence[str] = (),
    *,
    seeds: int = 20,
    correct: int = 20,
    workers: int = 2,
    auditor: Callable[[], Auditor] = Coalmine,
    track: Callable[[Sequence[Any]], Iterable[Any]] = iter,
) -> Study:
    """Bugs by their names (none: all), and the correct twins of their settings, each with secret seeds 0, 1, 2, …

    `track` wraps the sequence of batches of runs, for a progress bar.
    """
    papers: dict[Key, list[SeedVerdict]] = {}
    results: dict[Key, AuditResult] = {}
    chosen = cases(names, seeds=seeds, correct=correct, records=auditor is Coalmine)
    for (setting, each, seed), result in run_all(chosen, workers=workers, auditor=auditor, track=track):
        papers.setdefault((setting, each), []).append(seed_verdict(seed, result))
        results.setdefault((setting, each), result)
    rows = {key: row_of(*key, found) for key, found in papers.items()}
    return Study(tuple(rows.values()), tuple((rows[key].name, result) for key, result in results.items()))


def cases(names: Sequence[str] = (), *, seeds: int = 20, correct: int = 20, records: bool = True) -> list[Case]:
    """The runs of a study: bugs by their names (none: all), then the correct twins of their settings.

    Without `records`, settings whose rounds no other auditor can observe are left out of "all".
    """
    for name in names:
        _validate.one_of("bug", name, BUGS)
    names = list(dict.fromkeys(names))
    seeds, correct = _validate.whole("seeds", seeds, least=1), _validate.whole("correct", correct)
    open_to = {name for name, each in SETTINGS.items() if records or not each.records}
    chosen = [BUGS[name] for name in names] or [each for each in BUGS.values() if each.setting in open_to]
    settings = list(dict.fromkeys(bug.setting for bug in chosen)) if names else [name for name in SETTINGS if name in open_to]
    tasks: list[Case] = [(SETTINGS[each.setting], each, seed) for each in chosen for seed in range(seeds)]
    return tasks + [(SETTINGS[setting], None, seed) for setting in settings for seed in range(correct)]


def row_name(setting: Setting, each: Bug | None) -> str:
    """What a row of the study is called."""
    return each.name if each is not None else f"correct: {setting.name}"


def row_of(setting: Setting, each: Bug | None, papers: Sequence[SeedVerdict]) -> BugRow:
    """All runs of one bug, or of the correct twin of a setting."""
    known = (None if each.innocent else each.canaries, each.where, each.sentence) if each is not None else (None, None, "")
    return BugRow(row_name(setting, each), setting.name, tuple(papers), *known)


def run_all(
    tasks: Sequence[Case],
    *,
    workers: int = 2,
    auditor: Callable[[], Auditor] = Coalmine,
    track: Callable[[Sequence[Any]], Iterable[Any]] = iter,
) -> Iterator[tuple[Case, AuditResult]]:
    """All runs in several processes, each with its result, in the order of the tasks."""
    batches = [tasks[first : first + _AT_ONCE] for first in range(0, len(tasks), _AT_ONCE)]
    with Workers(workers, _Work(auditor)) as pool:
        for batch in track(batches):
            for task, text in zip(batch, pool.map(batch), strict=True):
                yield task, AuditResult.from_json(text)


def seed_verdict(seed: int, result: AuditResult) -> SeedVerdict:
    """What one run came to, in short."""
    word = result.verdict.word if result.verdict is not None else "NO CLAIM"
    claim = result.claim.epsilon if result.claim is not None else math.inf
    setting = result.setting
    failed = result.verdict is not None and result.verdict.failed
    false = () if result.conformance is None else result.conformance.deviations
    keys = tuple(each.key for each in sorted(false, key=lambda each: each.p_value))
    return SeedVerdict(seed, word, setting["view"], setting["layer"], result.bound.epsilon, claim, result.method, failed, keys)


@dataclass(frozen=True)
class _Work:
    """The work of a process: one run after the other."""

    auditor: Callable[[], Auditor]

    def prepare(self) -> None:
        """One thread for each worker."""
        quiet_threads()

    def __call__(self, task: Case) -> str:
        """The result of one run, as the text that travels."""
        return audit_once(*task, self.auditor).to_json()
