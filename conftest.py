"""For all tests: one thread, which are left alone where Flower is not installed, and how long those of each directory took.

Flower lives in an environment of its own (`make flower`): where it is not installed, its files are left alone.
"""

import os
import warnings
from collections import Counter
from importlib.util import find_spec

# Workers of pytest share the cores: libraries with threads of their own would only stand in each other's way. This is before
# anything loads numpy or torch, and holds for processes that tests start as well.
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")

# Seconds of tests by directory, all workers together. Two workers share them, so that a sum of 2,400 is 20 minutes. A
# directory over its budget is marked at the end of a run; no test fails for it.
BUDGET = {
    "src": 30,
    "tests": 40,
    "tests/attach": 155,
    "tests/browser": 60,
    "tests/conformance": 60,
    "tests/contracts": 200,
    "tests/coverage": 180,
    "tests/docs": 160,
    "tests/flower": 200,
    "tests/oracle": 190,
    "tests/papers": 130,
    "tests/reference": 50,
    "tests/survival": 330,
    "tests/machines": 45,
    "tests/training": 170,
    "tests/unit": 250,
    "tests/zoo": 150,
}

collect_ignore = ["src/coalmine/adapters/flower", "tests/flower"]

if find_spec("flwr"):
    collect_ignore = []
    os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
    with warnings.catch_warnings():  # while it is loaded, its older typer meets a newer click
        warnings.simplefilter("ignore", DeprecationWarning)
        import flwr.clientapp.mod
        import flwr.serverapp.strategy  # noqa: F401


def directory(nodeid):
    """The directory of a test that a budget is for: `tests/unit`, `tests` for files that lie there themselves, or `src`."""
    parts = nodeid.partition("::")[0].split("/")[:-1]
    return "/".join(parts[:2] if parts[:1] == ["tests"] else parts[:1]) or "."


def pytest_terminal_summary(terminalreporter):
    """The time of every directory beside its budget. With xdist, the reports of all workers arrive here."""
    seconds = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if hasattr(report, "duration") and hasattr(report, "nodeid"):
                seconds[directory(report.nodeid)] += report.duration
    if not seconds:
        return
    terminalreporter.section("seconds by directory, all workers together")
    for name, spent in sorted(seconds.items()):
        budget = BUDGET.get(name)
        over = "over budget" if budget is not None and spent > budget else ""
        shown = "-" if budget is None else f"{budget}"
        terminalreporter.write_line(f"{name:<20}{spent:>9.1f}  of {shown:>5}  {over}".rstrip())
    terminalreporter.write_line(f"{'together':<20}{sum(seconds.values()):>9.1f}  of {sum(BUDGET.values()):>5}")
