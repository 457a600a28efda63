"""Processes that share the work of a round. What comes out does not depend on how many there are, nor on who is first.

A task's result must depend on the task alone. Results come back in the order of the tasks; a worker that dies is replaced and
its tasks are done again. With one worker everything happens in this process.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from pickle import PicklingError
from types import TracebackType
from typing import Any, Generic, Protocol, TypeVar

from coalmine import _validate
from coalmine.errors import CoalmineError

Task = TypeVar("Task", contravariant=True)
Result = TypeVar("Result", covariant=True)
_DEATHS = 5  # of workers in one round, before it is taken for more than bad luck


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

    def __enter__(self) -> Workers[Task, Result]:
        if self.count == 1:
            self._job.prepare()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=kind is None, cancel_futures=True)
            self._pool = None

    def map(self, tasks: Sequence[Task]) -> list[Result]:
        """The results of the tasks, in their order."""
        if self.count == 1:
            return [self._job(task) for task in tasks]
        results: dict[int, Result] = {}
        for _ in range(_DEATHS):
            try:
                self._collect(tasks, results)
                return [results[number] for number in range(len(tasks))]
            except BrokenProcessPool:
                self._pool = None  # a worker died: its tasks, and those that waited, are done again by new ones
        raise CoalmineError(
            f"workers died {_DEATHS} times in one round, probably for lack of memory. "
            "What was finished is kept: resume with fewer workers (--workers 1)."
        )

    def _collect(self, tasks: Sequence[Task], results: dict[int, Result]) -> None:
        """Fill in the results that are missing."""
        pool = self._started()
        futures: dict[Future[Any], int] = {}
        try:
            for number, task in enumerate(tasks):
                if number not in results:
                    futures[pool.submit(_work, task)] = number
            for future in as_completed(futures):
                results[futures[future]] = future.result()
        except (PicklingError, AttributeError) as error:
            raise CoalmineError(
                f"this work cannot travel to other processes: {error}. Define the model, its loss and the mechanism as classes "
                "and functions of a module that can be imported, or use one worker."
            ) from error
        finally:
            for future in futures:
                future.cancel()

    def _started(self) -> ProcessPoolExecutor:
        if self._pool is None:
            self._pool = ProcessPoolExecutor(
                self.count, mp_context=multiprocessing.get_context("spawn"), initializer=_begin, initargs=(self._job,)
            )
        return self._pool


_job: Job[Any, Any] | None = None


def _begin(job: Job[Any, Any]) -> None:
    """In a new worker process: the job, and an eye on the parent."""
    global _job
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interruption is the parent's affair
    threading.Thread(target=_leave_with_the_parent, daemon=True).start()
    job.prepare()
    _job = job


def _leave_with_the_parent() -> None:
    """A parent that is killed outright cannot stop its workers, and they would wait for it for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _work(task: Any) -> Any:
    if _job is None:
        raise RuntimeError("this process is no worker")
    return _job(task)
