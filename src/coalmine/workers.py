"""Processes that share the work of a round. What comes out does not depend on how many there are, nor on who is first.

A task's result must depend on the task alone. Results come back in the order of the tasks, and of several errors the first in
that order; a worker that dies is replaced and its task is done again. With one worker everything happens in this process.

Every worker has a pipe of its own, of which the parent keeps one end: a worker that is killed in the middle of a sentence is
the end of its pipe. (The pools of the standard library share one pipe, and wait for ever for the rest of the sentence.)
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from multiprocessing.reduction import ForkingPickler
from pickle import PicklingError
from types import TracebackType
from typing import Any, Generic, Protocol, TypeVar

from coalmine import _validate
from coalmine.errors import CoalmineError

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


class _Worker:
    """A process, and this end of the pipe to it."""

    def __init__(self, job: Job[Any, Any], ears: Connection):
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        try:
            written = bytes(ForkingPickler.dumps(job))
        except (PicklingError, AttributeError, TypeError) as error:
            raise CoalmineError(
                f"this work cannot travel to other processes: {error}. Define the model, its loss and the mechanism as "
                "classes and functions of a module that can be imported, or use one worker."
            ) from error
        self.process: SpawnProcess = context.Process(target=_serve, args=(theirs, ears), daemon=True)
        try:
            with _in_peace():
                self.process.start()
        finally:
            theirs.close()  # theirs alone: if they die, the pipe ends
        self._send(written)

    def _send(self, written: bytes) -> None:
        """The job, through our own pipe: as an argument it would go through one whose reading end we hold ourselves, and if
        the process dies before it has read everything (a script without its guard, say) we would wait for ever."""
        try:
            with suppress(OSError):  # it died: its pipe is at its end, which is seen when it gets a task
                self.pipe.send_bytes(written)
        except BaseException:  # interrupted
            self.leave(at_once=True)
            raise

    def leave(self, *, at_once: bool) -> None:
        """Ask to leave, by closing the pipe, or make it."""
        self.pipe.close()
        if not at_once:
            self.process.join(_PATIENCE)
        self.process.kill()
        self.process.join()


class Workers(Generic[Task, Result]):
    """`count` workers for one job, to be used as a context."""

    def __init__(self, count: int, job: Job[Task, Result]):
        self.count = _validate.whole("workers", count, least=1)
        self._job = job
        self._workers: list[_Worker] = []
        self._proven = False  # whether a worker has ever finished anything

    def __enter__(self) -> Workers[Task, Result]:
        if self.count == 1:
            self._job.prepare()
        else:
            # nothing is ever sent: workers leave when the parent's end is closed, by it or, if it was killed, by the system
            self._ears, self._voice = multiprocessing.get_context("spawn").Pipe(duplex=False)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None) -> None:
        if self.count == 1:
            return
        for worker in self._workers:
            worker.leave(at_once=kind is not None)  # nobody waits for what they are doing now
        self._workers = []
        self._voice.close()
        self._ears.close()

    def map(self, tasks: Sequence[Task]) -> list[Result]:
        """The results of the tasks, in their order."""
        if self.count == 1:
            return [self._job(task) for task in tasks]
        waiting, busy = deque(range(len(tasks))), dict[Connection, tuple[_Worker, int]]()
        results, errors, deaths = dict[int, Any](), dict[int, BaseException](), 0
        while waiting or busy:
            for worker in self._idle(busy, len(waiting)):
                number = waiting.popleft()
                busy[worker.pipe] = worker, number
                with suppress(OSError):  # it died: its pipe is at its end, which is seen below
                    worker.pipe.send(tasks[number])
            ready = wait(list(busy))
            for pipe in [each for each in busy if each in ready]:
                worker, number = busy.pop(pipe)
                try:
                    good, answer = worker.pipe.recv()
                except (EOFError, OSError):
                    self._workers.remove(worker)
                    worker.leave(at_once=True)
                    waiting.appendleft(number)
                    deaths += 1
                    self._give_up(deaths)
                    continue
                self._proven = True
                (results if good else errors)[number] = answer
            if errors:  # what comes after the first of them is not needed any more
                waiting = deque(number for number in waiting if number < min(errors))
        if errors:
            raise errors[min(errors)]
        return [results[number] for number in range(len(tasks))]

    def _idle(self, busy: dict[Connection, tuple[_Worker, int]], wanted: int) -> list[_Worker]:
        """Workers that have nothing to do, started if there are fewer than there may be."""
        while len(self._workers) < min(self.count, len(busy) + wanted):
            self._workers.append(_Worker(self._job, self._ears))
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


def _serve(pipe: Connection, parent: Connection) -> None:
    """In a worker process: the job, then task after task, until the pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_leave_with, args=(parent,), daemon=True).start()
    try:
        written = pipe.recv_bytes()
    except (EOFError, OSError):
        return
    job: Job[Any, Any] = ForkingPickler.loads(written)
    del written
    job.prepare()
    with suppress(EOFError, OSError):
        while True:
            task = pipe.recv()
            try:
                answer = True, job(task)
            except Exception as error:
                answer = False, error
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
