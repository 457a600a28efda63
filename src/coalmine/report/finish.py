"""The page at the end of a run: written if it can be, and never a reason to lose an audit."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from coalmine.errors import RunDirectoryError
from coalmine.result import AuditResult
from coalmine.scores import Scores


def write_page(write: Callable[[str, bytes], None], path: Path, result: AuditResult, scores: Sequence[Scores]) -> None:
    """Write report.html of a result that is still in memory, or say in one line why there is none; `path` is of its run."""
    try:
        from coalmine.report.evidence import Evidence
        from coalmine.report.page import report

        write("report.html", report(Evidence.of_run(path, result, scores)).encode())
    except RunDirectoryError:  # the disk is full: the run is not finished, and `resume` goes on from here
        raise
    except ModuleNotFoundError as error:
        _say(f'it needs {error.name}; pip install "coalmine[report]"')
    except Exception as error:  # whatever it is, the audit is in result.json
        _say(f"{type(error).__name__}, {error}")


def _say(why: str) -> None:
    sys.stderr.write(f"coalmine: no report.html was written: {why}\n")
