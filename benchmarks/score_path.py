"""Which modules does a score pass on its way from a release to the page? Traces one audited run of the preset `tiny`.

    python benchmarks/score_path.py [--json] [--paths]

What carries scores is any object of the classes in CARRIERS: an observed round, inner products, tables of scores, statements, a
result, what a page is made from. Whenever one of them is an argument or the result of a call that crosses from one module of
the package to another, that is a hop; equal hops count once. A question to a carrier itself (a method, a property) is no hop.
Helpers that look at a carrier and give back a number, a sentence or a drawing are not on the way: a module counts when a
carrier comes in and a carrier goes out. A return is a carrier that comes back to the trainer and is handed on by it.

    0d7ec67, before there was one audit    15 modules of 11 packages, 31 hops, 2 returns to the trainer
    with one audit                         15 modules of 7 packages, 30 hops, no return
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
END = "report.page"
OTHER = (
    "views.running",
    "audit.conforming",
    "conformance.battery",
    "conformance.residual",
)  # other numbers
SOURCE = ("federation", "training.federation")  # where the way begins
CHANGES = ("run.workers=1", "run.evaluate_every=0", "data.held_out=0", "audit.views=[]")  # one view: one score


def module_of(frame: FrameType | None) -> str | None:
    name = frame.f_globals.get("__name__", "") if frame is not None else ""
    return name.removeprefix("coalmine.") if name.startswith("coalmine.") else None


def carried(value: Any, depth: int = 0) -> str | None:
    """The class of what carries scores here; "rows" for inner products of a round, by the name of their log."""
    if type(value).__name__ in CARRIERS:
        return type(value).__name__
    if depth < 2 and type(value) in (list, tuple):
        return next((found for each in value[:4] if (found := carried(each, depth + 1))), None)
    if type(value) is dict and value:
        if all(str(name).partition("@")[0] in KINDS for name in value):
            return "rows"
        return next((found for each in list(value.values())[:4] if depth < 2 and (found := carried(each, depth + 1))), None)
    return None


class Tracer:
    """Hops between modules with what they carry, in the order in which they happened."""

    def __init__(self) -> None:
        self.hops: list[tuple[str, str, str]] = []  # from, to, what

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
        own = frame.f_locals.get("self")
        if there is None or there == here or carried(own):  # asking a carrier is not handing it on
            return
        if event == "call":
            names = frame.f_code.co_varnames[: frame.f_code.co_argcount + frame.f_code.co_kwonlyargcount]
            what = next((found for name in names if (found := carried(frame.f_locals.get(name)))), None)
            hop = (there, here, what)
        else:
            what = carried(argument) if frame.f_code.co_name != "__init__" else None
            hop = (here, there, what)
        if what is not None:
            self.hops.append((hop[0], hop[1], what))

    def on_the_way(self) -> dict[tuple[str, str], None]:
        """The different hops whose modules pass carriers on."""
        hops = dict.fromkeys((start, end) for start, end, _ in self.hops if not {start, end} & set(OTHER))
        while True:
            comes, goes = {end for _, end in hops} | set(TRAINER), {start for start, _ in hops} | {END}
            left = {hop: None for hop in hops if set(hop) <= comes & goes}
            if len(left) == len(hops):
                return left
            hops = left

    def returns(self) -> list[str]:
        """What comes back to the trainer and is handed on by it to somebody else."""
        found = {}
        for place, (start, end, what) in enumerate(self.hops):
            if end in TRAINER and start not in (*TRAINER, *SOURCE):
                on = (there for here, there, that in self.hops[place:] if here in TRAINER and that == what)
                if (there := next(on, None)) is not None:
                    found[f"{what}: {start} -> {end} -> {there}"] = None
        return list(found)


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
    hops, returns = tracer.on_the_way(), tracer.returns()
    modules = sorted({module for hop in hops for module in hop})
    packages = sorted({module.partition(".")[0] for module in modules})
    found = {"modules": modules, "packages": packages, "hops": len(hops), "returns": returns}
    if arguments.json:
        print(json.dumps(found, indent=2))
        return
    print(f"{len(modules)} modules of {len(packages)} packages, {len(hops)} hops, {len(returns)} returns to the trainer")
    print(*(f"  {module}" for module in modules), sep="\n")
    print(*(f"  {text}" for text in returns), sep="\n")
    for start, end in hops if arguments.paths else ():
        print(f"  {start} -> {end}")


if __name__ == "__main__":
    main()
