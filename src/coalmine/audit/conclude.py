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
from coalmine.errors import RunDirectoryError
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
) -> AuditResult:
    """What a finished training's canaries prove; with what was recorded of it, and what else a reader must know.

    `training` None: a run of which only the statements matter, as in a study of hundreds. `engine_decided`: the canaries were
    clients of another engine. They may never have sent anything, and nobody but the result would know.
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
    result = replace(result, training=plain(about), caveats=(*caveats, *result.caveats))
    if scorer.record.path is not None:
        _write(scorer.record, result, deciding, beside)
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


def write_training(record: Record, training: Mapping[str, Any], *, audited: bool) -> None:
    """What was recorded of the training: the last file, with which a run is finished."""
    about = {**training, "audited": audited}
    record.write("training.json", (json.dumps(plain(about), indent=2, sort_keys=True) + "\n").encode())


def _write(record: Record, result: AuditResult, deciding: Sequence[Measured], beside: Sequence[Measured]) -> None:
    record.write("scores.npz", _packed(deciding[0].scores))
    for each in (*deciding[1:], *beside):
        record.write(f"views/{_file(each.scores)}.npz", _packed(each.scores))
    record.write("result.json", result.to_json().encode())
    write_page(record, result, [each.scores for each in (*deciding, *beside)])


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


def write_page(record: Record, result: AuditResult, scores: Sequence[Scores]) -> None:
    """report.html of a result that is still in memory; or one line that says why there is none: the audit is in result.json."""
    try:
        from coalmine.report.evidence import Evidence
        from coalmine.report.page import report

        record.write("report.html", report(Evidence.of_run(record.path or Path(), result, scores)).encode())
    except RunDirectoryError:  # the disk is full: the run is not finished, and `resume` goes on from here
        raise
    except ModuleNotFoundError as error:
        _no_page(f'it needs {error.name}; pip install "coalmine[report]"')
    except Exception as error:  # whatever it is, it is no reason to lose an audit
        _no_page(f"{type(error).__name__}, {error}")


def _no_page(why: str) -> None:
    sys.stderr.write(f"coalmine: no report.html was written: {why}\n")
