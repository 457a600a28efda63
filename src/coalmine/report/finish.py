"""The page at the end of a run: written if it can be, and never a reason to lose an audit."""

from __future__ import annotations

import sys

from coalmine.errors import RunDirectoryError
from coalmine.runs import RunDirectory


def write_page(directory: RunDirectory) -> None:
    """Write report.html, or say in one line why there is none."""
    try:
        from coalmine.report.page import report

        directory.write("report.html", report(directory.path).encode())
    except RunDirectoryError:  # the disk is full: the run is not finished, and `resume` goes on from here
        raise
    except ModuleNotFoundError as error:
        _say(f'it needs {error.name}; pip install "coalmine[report]"')
    except Exception as error:  # whatever it is, the audit is in result.json
        _say(f"{type(error).__name__}, {error}")


def _say(why: str) -> None:
    sys.stderr.write(f"coalmine: no report.html was written: {why}\n")
