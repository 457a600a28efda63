"""Processes that share the work of a round. What comes out does not depend on how many there are, nor on who is first.

A task's result must depend on the task alone. Results come back in the order of the tasks, and of several errors the first in
that order; a worker that dies is replaced and its task is done again. With one worker everything happens in this process.

Every worker has a pipe of its own, of which the parent keeps one end: a worker that is killed in the middle of a sentence is
the end of its pipe. (The pools of the standard library share one pipe, and wait for ever for the rest of the sentence.)

Large arrays do not travel through pipes. Those of tasks are written once a call into memory that all processes read, however
many tasks hold them. Where results are summed up (`Workers.fold`), a worker adds up its own tasks and hands over one sum; one
that dies takes its sum with it, and all of its tasks are done again.

Where sharing is slower than doing everything here, everything is done here: `coalmine.pace`. So it is in a script that other
processes cannot import: it would begin anew in each of them.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from pickle import PicklingError, loads
from types import TracebackType
from typing import Any, Generic, Protocol, TypeVar

from coalmine import _validate
from coalmine.errors import CoalmineError
from coalmine.pace import Pace
from coalmine.shared_memory import Room

Task = TypeVar("Task", contravariant=True)
Result = TypeVar("Result", covariant=True)
_DEATHS = 5  # of workers in one round, before it is taken for more than bad luck
_FIRST_DEATHS = 2  # the same, while no worker has ever finished anything
_PATIENCE = 5.0  # seconds for a worker to leave by itself


class Job(Protocol[Task, Result]):
    """What workers do; it travels to them once."""

    def prepare(self) -> None:
        """Called once in every worker process."""

    def __call__(self, task: Task) -> Result:
        """One task."""


class Sum(Protocol):
    """What workers add up."""

    def merge(self, other: Any) -> None:
        """All that another one holds."""


class SummingJob(Job[Task, Result], Protocol):
    """A job whose results can be added up where they are made."""

    def nothing(self, task: Task) -> Sum:
        """An empty sum for such tasks."""

    def fold(self, total: Any, task: Task) -> Result:
        """One task: its sum is added to `total`, and what is left of its result comes back."""


class _Worker:
    """A process, this end of the pipe to it, and what it has done of the present call."""

    def __init__(self, parent: Connection, tasks: Room):
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.sums, self.done, self.job = Room(), list[int](), -1
        self.process: SpawnProcess = context.Process(target=_serve, args=(theirs, parent, tasks, self.sums), daemon=True)
        try:
            with _in_peace():
                self.process.start()
        finally:
            theirs.close()  # theirs alone: if they die, the pipe ends

    def take(self, number: int, written: bytes) -> None:
        """A job, through our own pipe: as an argument it would go through one whose reading end we hold ourselves, and if
        the process dies before it has read everything (a script without its guard, say) we would wait for ever."""
        if self.job == number:
            return
        self.job = number
        with suppress(OSError):  # it died: its pipe is at its end, which is seen when it gets a task
            self.pipe.send_bytes(written)

    def leave(self, *, at_once: bool) -> None:
        """Ask to leave, by closing the pipe, or make it."""
        self.pipe.close()
        self.sums.close()
        if not at_once:
            self.process.join(_PATIENCE)
        self.process.kill()
        self.process.join()


class Workers(Generic[Task, Result]):
    """`count` workers for one job after the other, to be used as a context."""

    def __init__(self, count: int, job: Job[Task, Result]):
        count = _validate.workers(count)
        self.count = count if _script_is_guarded() else 1
        self._job, self._jobs = job, 0
        self._workers: list[_Worker] = []
        self._proven = False  # whether a worker has ever finished anything
        self._written: bytes | None = None
        self._pace, self._prepared = Pace(), False  # whether the job is ready in this process

    def __enter__(self) -> Workers[Task, Result]:
        if self.count == 1:
            self._job.prepare()
        else:
            # nothing is ever sent: workers leave when the parent's end is closed, by it or, if it was killed, by the system
            self._receive, self._send = multiprocessing.get_context("spawn").Pipe(duplex=False)
            self._tasks = Room()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None) -> None:
        if self.count == 1:
            return
        for worker in self._workers:
            worker.leave(at_once=kind is not None)  # nobody waits for what they are doing now
        self._workers = []
        self._send.close()
        self._receive.close()
        self._tasks.close()

    def give(self, job: Job[Task, Result]) -> None:
        """Another job from now on, for the same processes."""
        self._job, self._jobs, self._written, self._pace, self._prepared = job, self._jobs + 1, None, Pace(), False
        if self.count == 1:
            job.prepare()

    def map(self, tasks: Sequence[Task]) -> list[Result]:
        """The results of the tasks, in their order."""
        if self.count == 1:
            return [self._job(task) for task in tasks]
        return self._shared(tasks, None)

    def fold(self, tasks: Sequence[Task], total: Sum) -> list[Result]:
        """The same for a `SummingJob`: sums are added to `total`, whatever the order, and do not travel with every task."""
        if self.count == 1:
            return self._alone(tasks, total)
        count = self._pace.part(len(tasks))
        if count and not self._prepared:
            self._job.prepare()
            self._prepared = True
        began = time.perf_counter()
        found = self._alone(tasks[:count], total)
        own = time.perf_counter() - began
        if count < len(tasks):
            found += self._shared(tasks[count:], total)
        if 0 < count < len(tasks):
            self._pace.sampled(own * len(tasks) / count)
        else:
            self._pace.took(time.perf_counter() - began)
        return found

    def _alone(self, tasks: Sequence[Task], total: Sum) -> list[Result]:
        return [self._job.fold(total, task) for task in tasks]  # type: ignore[attr-defined]

    def _shared(self, tasks: Sequence[Task], total: Sum | None) -> list[Result]:
        waiting, busy, deaths = deque(range(len(tasks))), dict[Connection, tuple[_Worker, int]](), 0
        results, errors = dict[int, Any](), dict[int, BaseException]()
        self._tasks.clear()
        for worker in self._workers:
            worker.done.clear()
        while waiting or busy:
            for worker in self._idle(busy, len(waiting)):
                number = waiting.popleft()
                busy[worker.pipe] = worker, number
                self._hand_over(worker, tasks[number], summed=total is not None)
            lost, ready = list[_Worker](), wait(list(busy))
            for pipe in [each for each in busy if each in ready]:
                worker, number = busy.pop(pipe)
                worker.done.append(number)
                try:
                    good, answer = worker.pipe.recv()
                except (EOFError, OSError):
                    lost.append(worker)
                    continue
                self._proven = True
                (results if good else errors)[number] = answer
            if total is not None and not (waiting or busy or errors or lost):
                lost = self._collect(total)
            for worker in lost:
                self._workers.remove(worker)
                worker.leave(at_once=True)
                again = worker.done if total is not None else worker.done[-1:]
                waiting.extendleft(sorted(again, reverse=True))
                deaths += 1
                self._give_up(deaths)
            if errors:  # what comes after the first of them is not needed any more
                waiting = deque(number for number in waiting if number < min(errors))
        self._tasks.clear()
        if errors:
            raise errors[min(errors)]
        return [results[number] for number in range(len(tasks))]

    def _hand_over(self, worker: _Worker, task: Task, *, summed: bool) -> None:
        try:
            if self._written is None:
                self._written = bytes(ForkingPickler.dumps(self._job))
        except (PicklingError, AttributeError, TypeError) as error:
            raise CoalmineError(
                f"this work cannot travel to other processes: {error}. Define the model, its loss and the mechanism as "
                "classes and functions of a module that can be imported, or use one worker."
            ) from error
        worker.take(self._jobs, self._written)
        packed = self._tasks.pack(task)
        with suppress(OSError):  # it died: its pipe is at its end, which is seen when its answer is read
            worker.pipe.send((_TASK if not summed else _AGAIN if worker.done else _FIRST, packed))

    def _collect(self, total: Any) -> list[_Worker]:
        """The sum of every worker that has one, added to `total`; returns those that died instead."""
        lost, asked = list[_Worker](), [worker for worker in self._workers if worker.done]
        for worker in asked:
            with suppress(OSError):
                worker.pipe.send((_SUM, None))
        for worker in asked:
            try:
                _, packed = worker.pipe.recv()
            except (EOFError, OSError):
                lost.append(worker)
                continue
            total.merge(worker.sums.unpack(packed))
            worker.done.clear()
        return lost

    def _idle(self, busy: dict[Connection, tuple[_Worker, int]], wanted: int) -> list[_Worker]:
        """Workers that have nothing to do, started if there are fewer than there may be."""
        while len(self._workers) < min(self.count, len(busy) + wanted):
            self._workers.append(_Worker(self._receive, self._tasks))
        return [worker for worker in self._workers if worker.pipe not in busy][:wanted]

    def _give_up(self, deaths: int) -> None:
        if not self._proven and deaths >= _FIRST_DEATHS:
            raise CoalmineError(
                "the workers died before they did anything; what they printed says why. In a script, the call must stand "
                'under `if __name__ == "__main__":`, and what the model is made of in a module that can be imported. '
                "If memory is short, use one worker."
            )
        if deaths >= _DEATHS:
            raise CoalmineError(
                f"workers died {_DEATHS} times in one round, probably for lack of memory. "
                "What was finished is kept: resume with fewer workers (--workers 1)."
            )


def _script_is_guarded() -> bool:
    """Whether new processes may import the script that runs here, as they all do: not if all of it stands at its top.

    Many have no `if __name__ == "__main__":`. Each process would begin them anew, and perhaps remove what the first wrote.
    """
    main = sys.modules.get("__main__")
    path, spec = getattr(main, "__file__", None), getattr(main, "__spec__", None)
    if path is None or (spec is not None and spec.name.endswith("__main__")):  # a console, `-c`, a package: not imported
        return True
    try:
        return "__main__" in Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return True


@contextmanager
def _in_peace() -> Iterator[None]:
    """Processes started here do not hear Ctrl-C, not even while they begin: an interruption is the parent's affair."""
    if not hasattr(signal, "pthread_sigmask"):  # then they hear it until `_serve`
        yield
        return
    resource_tracker.ensure_running()  # the first worker would start it, and it allows Ctrl-C again once it has begun
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


_TASK, _FIRST, _AGAIN, _SUM = range(4)  # a task; one that begins a sum, one that goes on with it; the sum


def _serve(pipe: Connection, parent: Connection, tasks: Room, sums: Room) -> None:
    """In a worker process: a job, then task after task, until the pipe is closed. A job comes as bytes, before its tasks."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_leave_with, args=(parent,), daemon=True).start()
    job: Any = None
    total: Any = None
    with suppress(EOFError, OSError):
        while True:
            message = loads(pipe.recv_bytes())
            if not isinstance(message, tuple):
                job = message
                job.prepare()
                continue
            kind, packed = message
            if kind == _SUM:
                _answer(pipe, (True, sums.pack(total)))
                sums.clear()
                total = None
                continue
            try:
                task = tasks.unpack(packed, private=True)
                if kind == _FIRST:
                    total = job.nothing(task)
                answer = True, job(task) if kind == _TASK else job.fold(total, task)
            except Exception as error:
                answer = False, error
            del message, packed
            _answer(pipe, answer)


def _answer(pipe: Connection, answer: tuple[bool, Any]) -> None:
    try:
        pipe.send(answer)
    except (PicklingError, AttributeError, TypeError):  # an error of a kind that cannot travel is told in words
        pipe.send((False, CoalmineError(f"a worker failed: {type(answer[1]).__name__}: {answer[1]}")))


def _leave_with(parent: Connection) -> None:
    """A parent that is killed outright cannot stop its workers, and they would work on for nobody."""
    with suppress(EOFError, OSError):
        parent.recv_bytes()
    os._exit(1)
