"""What an experiment is told, and what it is."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from coalmine import _validate

if TYPE_CHECKING:  # a list of experiments makes none of them
    from coalmine.papers.kit.paper_result import PaperResult, ResultPart

Scale = Literal["full", "quick"]
SCALES: tuple[Scale, ...] = ("quick", "full")
SMALLER = "Quick: fewer users, rounds and canaries, and a smaller model, than titles and notes say. A trial, no result."
_BATCHES = 40  # signs of progress, at most
_SEEDS = 10**9  # experiments multiply theirs, and runs keep 64 bits
_MOST = 100_000  # simulations
Piece = TypeVar("Piece")
Found = TypeVar("Found")


@dataclass(frozen=True)
class Ask:
    """How an experiment is to be made. Workers, folders and quietness change no number."""

    scale: Scale = "quick"
    seed: int = 0
    simulations: int | None = None  # of experiments that simulate; None: as many as the scale says
    workers: int = 1
    out: Path = Path("runs/papers")  # runs that train are kept in it, and are shared by the experiments
    data_dir: Path | None = None
    part: str | None = None  # of an experiment that has several
    quiet: bool = True
    changes: tuple[str, ...] = field(default=(), repr=False)  # of every configuration, for tests

    def __post_init__(self) -> None:
        _validate.one_of("scale", self.scale, SCALES)
        if _validate.whole("seed", self.seed) >= _SEEDS:
            raise ValueError(f"seed={self.seed!r} is not allowed: it must be below {_SEEDS:,}.")
        _validate.workers(self.workers)
        if self.simulations is not None:
            _validate.whole("simulations", self.simulations, least=2, most=_MOST)

    @property
    def full(self) -> bool:
        """Whether everything is to have the papers' size, or what comes nearest to it on two cores."""
        return self.scale == "full"

    def pick(self, *, full: Any, quick: Any) -> Any:
        """By scale."""
        return full if self.full else quick

    def repeat(self, *, full: int, quick: int) -> int:
        """How many simulations."""
        return self.simulations or (full if self.full else quick)

    def heading(self, what: str, *, model: str, runs: str) -> str:
        """What a table is called: by what it is made of."""
        made = {"model": (model,), "runs": (runs,)}.get(self.part or "", (model, runs))
        return f"{what} {' and '.join(made)}"

    def named(self, experiment: str) -> str:
        """What the result is called: by the part that is asked for."""
        return experiment if self.part is None else f"{experiment}-{self.part}"

    def parts(self, **makes: Callable[[Ask], ResultPart]) -> list[ResultPart]:
        """Those that are asked for, made."""
        return [make(self) for name, make in makes.items() if self.part in (None, name)]

    def about(self, **further: Any) -> dict[str, Any]:
        """What a document says of how it was made."""
        return {"scale": self.scale, "seed": self.seed, **further}

    def each(self, function: Callable[[Piece], Found], jobs: Sequence[Piece], description: str) -> list[Found]:
        """The function of every job, in their order, by several processes if asked for, with progress."""
        from coalmine.progress import track
        from coalmine.workers import Workers

        size = max(self.workers, len(jobs) // _BATCHES)
        batches = [jobs[start : start + size] for start in range(0, len(jobs), size)]
        with Workers(min(self.workers, max(len(jobs), 1)), _Calls(function)) as workers:
            done = (found for batch in batches for found in workers.map(batch))
            return list(track(done, description, total=len(jobs), quiet=self.quiet))


@dataclass(frozen=True)
class _Calls:
    """A function as the job of workers."""

    function: Callable[[Any], Any]

    def prepare(self) -> None:
        """Nothing has to be made ready."""

    def __call__(self, task: Any) -> Any:
        """One task."""
        return self.function(task)


@dataclass(frozen=True)
class Experiment:
    """A table or a figure of a paper, as a command."""

    name: str
    what: str
    run: Callable[[Ask], PaperResult]
    trains: bool = False
    needs: str = ""  # data files beyond what the package brings
    parts: tuple[str, ...] = ()  # that can be made one by one
    short: Mapping[str, str] = field(default_factory=dict)  # further names of parts

    def check(self, ask: Ask) -> None:
        """Whether this can be asked of it."""
        if ask.part is not None and not self.parts:
            raise ValueError(f"--part {ask.part!r}: {self.name} has no parts; leave it out.")
        if ask.part is not None:
            _validate.one_of("part", self.short.get(ask.part, ask.part), self.parts)

    def __call__(self, ask: Ask) -> PaperResult:
        """Make it."""
        from importlib.metadata import version

        self.check(ask)
        ask = replace(ask, part=self.short.get(ask.part or "", ask.part))
        begun = time.monotonic()
        found = self.run(ask)
        if self.trains and not ask.full and ask.part != "model":
            found = replace(found, notes=(*found.notes, SMALLER))
        packages = ("coalmine", "numpy", "scipy", *(("torch",) if self.trains and ask.part != "model" else ()))
        made = {
            "command": self._command(ask),
            **found.about,
            "seconds": round(time.monotonic() - begun, 1),
            "workers": ask.workers,
            "machine": f"{os.cpu_count()} cores, {platform.machine()}",
            "versions": ", ".join(f"{name} {version(name)}" for name in packages),
        }
        return replace(found, about=made)

    def _command(self, ask: Ask) -> str:
        """What to type to get the same numbers."""
        further = {"--part": ask.part, "--simulations": ask.simulations}
        options = "".join(f" {name} {value}" for name, value in further.items() if value is not None)
        return f"coalmine reproduce {self.name} --scale {ask.scale} --seed {ask.seed}{options}"

    def __str__(self) -> str:
        said = ("trains" if self.trains else "", f"parts {', '.join(self.parts)}" if self.parts else "")
        marks = [mark for mark in (*said, f"needs {self.needs}" if self.needs else "") if mark]
        return f"{self.name:<12} {self.what}" + (f" ({'; '.join(marks)})" if marks else "")
