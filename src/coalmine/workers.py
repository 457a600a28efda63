"""Processes that share the work of a round. What comes out does not depend on how many there are, nor on who is first.

A task's result must depend on the task alone. Results come back in the order of the tasks, and of several errors the first in
that order; a worker that dies is replaced and its tasks are done again. With one worker everything happens in this process.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from pickle import PicklingError
from types import TracebackType
from typing import Any, Generic, Protocol, TypeVar

from coalmine import _validate
from coalmine.errors import CoalmineError

Task = TypeVar("Task", contravariant=True)
Result = TypeVar("Result", covariant=True)
_DEATHS = 5  # of workers in one round, before it is taken for more than bad luck
_FIRST_DEATHS = 2  # the same, while no worker has ever finished anything


class Job(Protocol[Task, Result]):
    """What workers do; it travels to them once."""

    def prepare(self) -> None:
        """Called once in every worker process."""

    def __call__(self, task: Task) -> Result:
        """One task."""


class Workers(Generic[Task, Result]):
    """`count` workers for one job, to be used as a context."""

    def __init__(self, count: int, job: Job[Task, Result]):
        self.count = _validate.whole("workers", count, least=1)
        self._job = job
        self._pool: ProcessPoolExecutor | None = None
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
        if kind is not None:  # nobody waits for what they are doing now
            self._voice.close()
        if self._pool is not None:
            self._pool.shutdown()  # nothing is cancelled: Python 3.11 stumbles over cancelled tasks of workers that left
            self._pool = None
        self._voice.close()
        self._ears.close()

    def map(self, tasks: Sequence[Task]) -> list[Result]:
        """The results of the tasks, in their order."""
        if self.count == 1:
            return [self._job(task) for task in tasks]
        results: dict[int, Result] = {}
        deaths = 0
        while len(results) < len(tasks):
            try:
                self._collect(tasks, results)
            except BrokenProcessPool:
                self._pool = None  # a worker died: its tasks, and those that waited, are done again by new ones
                deaths += 1
                self._despair(deaths)
        return [results[number] for number in range(len(tasks))]

    def _collect(self, tasks: Sequence[Task], results: dict[int, Result]) -> None:
        """Fill in the results that are missing."""
        futures: dict[int, Future[Any]] = {}
        try:
            with _in_peace():
                pool = self._started()
                for number, task in enumerate(tasks):
                    if number not in results:
                        futures[number] = pool.submit(_work, task)
            for number, future in futures.items():
                results[number] = future.result()
        except BrokenProcessPool:
            for number, future in futures.items():
                if future.done() and future.exception() is None:
                    results[number] = future.result()
            raise
        finally:
            self._proven = self._proven or bool(results)

    def _started(self) -> ProcessPoolExecutor:
        if self._pool is None:
            context = multiprocessing.get_context("spawn")
            pool = ProcessPoolExecutor(self.count, context, initializer=_begin, initargs=(self._job, self._ears))
            try:
                pool.submit(os.getpid)  # with it the processes are started, and the job is sent
            except (PicklingError, AttributeError, TypeError) as error:
                raise CoalmineError(
                    f"this work cannot travel to other processes: {error}. Define the model, its loss and the mechanism as "
                    "classes and functions of a module that can be imported, or use one worker."
                ) from error
            self._pool = pool
        return self._pool

    def _despair(self, deaths: int) -> None:
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
    if not hasattr(signal, "pthread_sigmask"):  # then they hear it until `_begin`
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


_job: Job[Any, Any] | None = None


def _begin(job: Job[Any, Any], parent: Connection) -> None:
    """In a new worker process: the job, and an ear for the parent."""
    global _job
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_leave_with, args=(parent,), daemon=True).start()
    job.prepare()
    _job = job


def _leave_with(parent: Connection) -> None:
    """A parent that is killed outright cannot stop its workers, and they would wait for it for ever."""
    with suppress(EOFError, OSError):
        parent.recv_bytes()
    os._exit(1)


def _work(task: Any) -> Any:
    if _job is None:
        raise RuntimeError("this process is no worker")
    return _job(task)
