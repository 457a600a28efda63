"""Which modules does a score pass on its way from a release to the page? Traces one audited run of the preset `tiny`.

    python benchmarks/score_path.py [--json] [--paths]

What carries scores is any object of the classes in CARRIERS: a finished round, inner products, tables of scores, statements, a
result, what a page is made from. Whenever one of them is an argument or the result of a call that crosses from one module of
the package to another, that is a hop; equal hops count once. A return is a hop that brings a carrier back to the trainer (the
modules in TRAINER) after it was handed on: the trainer then has to hand it to the next room itself.

A question to a carrier itself (a method, a property) is no hop. Helpers that look at a carrier and give back a number or a
sentence (a width, a word) are not on the way: a module counts when a carrier comes in and a carrier goes out.

Commit 0d7ec67, before there was one audit: 21 modules, 48 hops, 4 returns to the trainer.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from types import FrameType
from typing import Any

CARRIERS = {
    *("Round", "Observed", "Sight", "ProjectionRow", "Sightings", "Projections", "Scores", "Measured"),
    *("LowerBound", "PointEstimate", "Verdict", "AuditResult", "Beside", "SecondaryView", "Finished", "RunResult", "Evidence"),
}
KINDS = ("mean", "residual", "step")  # logs of inner products, by what was released
TRAINER = ("training", "training.running")
CHANGES = ("run.workers=1", "run.evaluate_every=0", "data.held_out=0", "audit.views=[]")  # one view: one score


def module_of(frame: FrameType | None) -> str | None:
    name = frame.f_globals.get("__name__", "") if frame is not None else ""
    return name.removeprefix("coalmine.") if name.startswith("coalmine.") else None


def carries(value: Any, depth: int = 0) -> bool:
    if type(value).__name__ in CARRIERS:
        return True
    if depth < 2 and isinstance(value, (list, tuple)):
        return any(carries(each, depth + 1) for each in value[:4])
    if isinstance(value, dict) and _of_a_round(value):
        return True
    if depth < 2 and isinstance(value, dict):
        return any(carries(each, depth + 1) for each in list(value.values())[:4])
    return False


def _of_a_round(value: dict[Any, Any]) -> bool:
    """Rows of inner products, or the record of a round that holds what they came to."""
    rows = bool(value) and all(str(name).partition("@")[0] in KINDS for name in value)
    return rows or "epsilon_measured" in value


class Tracer:
    """Hops between modules, in the order in which they were first seen."""

    def __init__(self) -> None:
        self.given: dict[tuple[str, str], None] = {}  # caller to callee
        self.returned: dict[tuple[str, str], None] = {}  # callee to caller

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        if event not in ("call", "return"):
            return
        here = module_of(frame)
        if here is None or frame.f_code.co_name.startswith("<"):
            return
        back = frame.f_back
        while back is not None and (module_of(back) is None or back.f_code.co_name.startswith("<")):
            back = back.f_back  # through the standard library, comprehensions and lambdas
        there = module_of(back)
        if there is None or there == here:
            return
        if event == "call":
            count = frame.f_code.co_argcount + frame.f_code.co_kwonlyargcount
            names = frame.f_code.co_varnames[:count]
            if names[:1] == ("self",) and carries(frame.f_locals.get("self")):  # asking a carrier is not handing it on
                return
            if any(carries(frame.f_locals.get(name)) for name in names):
                self.given[there, here] = None
        elif carries(argument) and frame.f_code.co_name != "__init__" and not carries(frame.f_locals.get("self")):
            self.returned[here, there] = None

    def on_the_way(self) -> list[tuple[str, str]]:
        """The hops whose modules pass carriers on."""
        hops = {**self.given, **self.returned}
        passing = {module for _, module in hops} & {module for module, _ in hops}
        return [hop for hop in hops if hop[0] in passing and hop[1] in passing]


def trace() -> Tracer:
    """One run, from the first round to the page."""
    try:
        from coalmine.training.config import read_config
    except ImportError:  # an older plan of the package
        from coalmine.config import read_config
    from coalmine.training import run

    config, tracer = read_config("tiny", CHANGES), Tracer()
    with tempfile.TemporaryDirectory() as folder:
        sys.setprofile(tracer)
        try:
            run(config, Path(folder, "run"), secret_seed=1, quiet=True)
        finally:
            sys.setprofile(None)
    return tracer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--paths", action="store_true", help="also every hop")
    arguments = parser.parse_args()
    tracer = trace()
    hops = tracer.on_the_way()
    modules = sorted({module for hop in hops for module in hop})
    returns = [hop for hop in tracer.returned if hop[1] in TRAINER and hop in hops]
    found = {"modules": len(modules), "hops": len(hops), "returns": len(returns), "names": modules}
    if arguments.json:
        print(json.dumps(found, indent=2))
        return
    print(f"{found['modules']} modules, {found['hops']} hops, {found['returns']} returns to the trainer")
    print(*(f"  {module}" for module in modules), sep="\n")
    for start, end in hops if arguments.paths else returns:
        print(f"  {start} -> {end}")


if __name__ == "__main__":
    main()
