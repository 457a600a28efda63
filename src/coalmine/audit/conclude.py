"""One end for every audit: scores of all views, what they prove, the files, and the page.

    session   →   scorer   →   statements   →   result   →   page

Whoever trains hands over what was observed and the final parameters, and gets the result back; nothing is asked of the trainer
again. Without a directory the same happens in memory.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from coalmine.audit.conforming import at_measured_noise
from coalmine.audit.observe import Record
from coalmine.audit.score import Scorer
from coalmine.audit.statements import Measured, audit_views, with_conformance
from coalmine.contracts import Caveat, plain
from coalmine.result import AuditResult
from coalmine.scores import Scores
from coalmine.views import KnownOthers, KnownRounds

_TRACE = 0.01  # a p-value above it is no trace of canaries


def conclude(
    scorer: Scorer,
    training: Mapping[str, Any] | None = None,
    caveats: Sequence[Caveat] = (),
    *,
    engine_decided: bool = False,
    last: bool = True,
) -> AuditResult:
    """What a finished training's canaries prove; with what was recorded of it, and what else a reader must know.

    `training` None: a run of which only the statements matter, as in a study of hundreds. `engine_decided`: the canaries were
    clients of another engine. They may never have sent anything, and nobody but the result would know. With the files that are
    written the run is finished, unless this is not the `last` word about it.
    """
    deciding, beside = scorer.deciding(), scorer.beside()
    result = proved(scorer, deciding, beside)
    conformance = scorer.conformance
    if conformance is not None:
        if training is not None:
            conformance = at_measured_noise(conformance, result.claim)
        result = with_conformance(result, conformance)
    if training is None:
        return result
    if engine_decided and result.estimate is not None and result.estimate.p_value > _TRACE:
        caveats = (*caveats, Caveat("no-trace"))
    about = {**training, **_hidden(result)}
    result = replace(result, training=plain(about), caveats=(*caveats, *scorer.gaps_seen(), *result.caveats))
    if scorer.record.path is not None:
        _write(scorer.record, result, deciding, beside, last=last)
    return result


def proved(scorer: Scorer, deciding: Sequence[Measured], beside: Sequence[Measured]) -> AuditResult:
    """What these scores prove."""
    spec, schedule = scorer.spec, scorer.recorder.setup.schedule
    return audit_views(
        deciding,
        beside,
        delta=spec.delta,
        method=spec.bound,
        also=spec.also,
        confidence=spec.confidence,
        presentations=float(schedule.times.mean()),
        fit_maximum=spec.paper_views,
    )


def finish(
    record: Record, training: Mapping[str, Any], result: AuditResult | None = None, scores: Sequence[Scores] | None = None
) -> None:
    """The manifest, the page that prints its digest, and what was recorded of the training: with it a run is finished."""
    about = {**training, "audited": result is not None}
    last = (json.dumps(plain(about), indent=2, sort_keys=True) + "\n").encode()
    record.seal("training.json", last)
    if result is not None and (record.path is not None or scores is not None):
        write_page(record, result, scores)
    record.write("training.json", last)


def _write(
    record: Record, result: AuditResult, deciding: Sequence[Measured], beside: Sequence[Measured], *, last: bool
) -> None:
    record.write("scores.npz", _packed(deciding[0].scores))
    for each in (*deciding[1:], *beside):
        record.write(f"views/{_file(each.scores)}.npz", _packed(each.scores))
    record.write("result.json", result.to_json().encode())
    scores = [each.scores for each in (*deciding, *beside)]
    if last:
        finish(record, result.training, result, scores)
    else:
        write_page(record, result, scores)


def _packed(scores: Scores) -> bytes:
    packed = BytesIO()
    scores.save(packed)
    return packed.getvalue()


def _file(scores: Scores) -> str:
    """The name of a file of scores: the view's key, and the layer's name as far as file systems allow."""
    if scores.layer is None:
        return scores.view
    allowed = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in scores.layer.lower())
    return f"{scores.view}-within-{allowed}"


def _hidden(result: AuditResult) -> dict[str, float]:
    """By how much the estimate of whoever knows all other updates exceeds that of whoever knows the rounds only."""
    about = {result.setting["view"]: result.estimate, **{view.view: view.estimate for view in result.views if not view.layer}}
    others, rounds = about.get(KnownOthers.key), about.get(KnownRounds.key)
    if others is None or rounds is None or not (np.isfinite(others.epsilon) and np.isfinite(rounds.epsilon)):
        return {}
    return {"hidden_by_the_others": max(others.epsilon - rounds.epsilon, 0.0)}


def write_page(record: Record, result: AuditResult, scores: Sequence[Scores] | None) -> None:
    """report.html of a result that is still in memory; a full disk is an error: `resume` goes on from here.

    `scores` None: those of the directory.
    """
    page = make_page(record.path or Path(), result, scores)
    if page is not None:
        record.write("report.html", page)


def make_page(path: Path, result: AuditResult, scores: Sequence[Scores] | None) -> bytes | None:
    """The page of a result; or one line that says why there is none: the audit is in result.json."""
    try:
        from coalmine.report.evidence import Evidence, scores_of
        from coalmine.report.page import report

        shown = scores_of(path, result) if scores is None else scores
        return report(Evidence.of_run(path, result, shown)).encode()
    except ModuleNotFoundError as error:
        _no_page(f'it needs {error.name}; pip install "coalmine[report]"')
    except Exception as error:  # whatever it is, it is no reason to lose an audit
        _no_page(f"{type(error).__name__}, {error}")
    return None


def _no_page(why: str) -> None:
    sys.stderr.write(f"coalmine: no report.html was written: {why}\n")
