"""Our own training on the machines of a Ray cluster: actors in the place of worker processes.

`run` is `coalmine.training.run` with actors that Ray spreads over its nodes. The job is put into Ray's object store once, the
parameters once a round; every actor adds up its own tasks and hands over one sum. Sums are order-free, so that the result is
the same, bit for bit, as on one machine. A node that dies takes its sums with it, and their tasks are done again elsewhere.
`coalmine resume` goes on with such a run on one machine.
"""

from __future__ import annotations

import platform
import socket
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import ray
from ray.exceptions import GetTimeoutError, ObjectLostError, RayActorError, RayError, WorkerCrashedError

from coalmine.errors import CoalmineError, MismatchError
from coalmine.training import RunResult
from coalmine.training import run as train
from coalmine.training.federation import Federation

_GONE = (RayActorError, WorkerCrashedError, ObjectLostError)
_DEATHS = 20  # of actors in one round, before it is taken for more than bad luck
_PATIENCE = 120.0  # seconds for actors to start
_PACKAGES = ("coalmine", "numpy", "scipy", "torch")


def versions() -> dict[str, str]:
    """What must be the same on every node, for the bits to be the same."""
    return {"python": platform.python_version(), **{name: version(name) for name in _PACKAGES}}


class Actor:
    """A process on some node, which does one task at a time."""

    def hello(self) -> dict[str, str]:
        """The versions on this node."""
        return versions()

    def take(self, job: Any) -> None:
        """The job of the tasks to come."""
        self.job = job
        job.prepare()

    def do(self, task: Any, parameters: Any) -> tuple[bool, Any]:
        """One task; an error is an answer as well."""
        try:
            return True, self.job(_whole(task, parameters))
        except Exception as error:
            return False, error

    def add(self, task: Any, parameters: Any, first: bool) -> tuple[bool, Any]:
        """One task, whose sum is added to what this actor has since its first one; what is left of the result comes back."""
        try:
            task = _whole(task, parameters)
            if first:
                self.total = self.job.nothing(task)
            return True, self.job.fold(self.total, task)
        except Exception as error:
            return False, error

    def summed(self) -> Any:
        """The sum of its tasks, which it does not keep."""
        total, self.total = self.total, None
        return total


def _whole(task: Any, parameters: Any) -> Any:
    """A task with its parameters; what lies in the store cannot be written to."""
    return task if parameters is None else replace(task, parameters=np.array(parameters))


@dataclass(eq=False)
class _Member:
    """An actor that has the job, and which tasks of the present call are in its sum."""

    actor: Any
    done: list[int] = field(default_factory=list)


class RayWorkers:
    """`count` actors for one job, to be used as a context: results in the order of the tasks."""

    def __init__(self, count: int, job: Any):
        self.count, self._job = count, job
        self._ready: list[_Member] = []
        self._starting: dict[Any, Any] = {}  # by what they will answer

    def __enter__(self) -> RayWorkers:
        check_resources(self.count)
        try:
            self._stored = ray.put(self._job)
        except (TypeError, AttributeError) as error:
            raise CoalmineError(f"this work cannot travel to other machines: {error}. Use the embedded engine.") from error
        for _ in range(self.count):
            self._start()
        done, late = ray.wait([*self._starting], num_returns=self.count, timeout=_PATIENCE)
        if late:
            raise CoalmineError(
                f"only {len(done)} of {self.count} workers started within {_PATIENCE:.0f} seconds: the other processors of the "
                "cluster are taken. Wait for them, or use fewer workers (--workers)."
            )
        for answer in done:
            self._welcome(answer)
        return self

    def __exit__(self, *_: object) -> None:
        for actor in (*(member.actor for member in self._ready), *self._starting.values()):
            ray.kill(actor)
        self._ready, self._starting = [], {}

    def _start(self) -> None:
        actor = ray.remote(num_cpus=1, scheduling_strategy="SPREAD", max_restarts=0)(Actor).remote()
        self._starting[actor.hello.remote()] = actor

    def _welcome(self, answer: Any) -> None:
        """An actor that has started gets the job, if it is of our versions; one that could not start is an error."""
        actor = self._starting.pop(answer)
        try:
            theirs = ray.get(answer)
        except RayError as error:
            said = str(error).strip().splitlines()[-1]
            raise CoalmineError(f"a worker could not start on a node of Ray: {said}. Install coalmine[ray] there.") from None
        compare_versions(theirs)
        actor.take.remote(self._stored)
        self._ready.append(_Member(actor))

    def map(self, tasks: Sequence[Any]) -> list[Any]:
        """The results of the tasks, in their order."""
        return self._shared(tasks, None)

    def fold(self, tasks: Sequence[Any], total: Any) -> list[Any]:
        """The same for a job whose results are added up where they are made: one sum of every actor is added to `total`."""
        return self._shared(tasks, total)

    def _shared(self, tasks: Sequence[Any], total: Any) -> list[Any]:
        stored: dict[int, Any] = {}  # parameters, once however many tasks hold them
        waiting, busy = deque(range(len(tasks))), dict[Any, tuple[_Member, int]]()
        results, errors, deaths = dict[int, Any](), dict[int, BaseException](), 0
        for member in self._ready:
            member.done = []
        while waiting or busy:
            idle = [member for member in self._ready if all(member is not other for other, _ in busy.values())]
            for member, number in zip(idle, [*waiting], strict=False):
                waiting.popleft()
                busy[self._hand_over(member, _parts(tasks[number], stored), summed=total is not None)] = member, number
                member.done.append(number)
            lost, (done, _) = list[_Member](), ray.wait([*busy, *self._starting], num_returns=1)
            for answer in done:
                if answer in self._starting:
                    self._welcome(answer)
                    continue
                member, number = busy.pop(answer)
                try:
                    good, found = ray.get(answer)
                except _GONE:
                    lost.append(member)
                    continue
                (results if good else errors)[number] = found
            if total is not None and not (waiting or busy or errors or lost):
                lost = self._collect(total)
            for member in lost:
                deaths += 1
                waiting.extendleft(reversed(member.done if total is not None else member.done[-1:]))
                self._replace(member, deaths)
            if errors:  # what comes after the first of them is not needed any more
                waiting = deque(number for number in waiting if number < min(errors))
        if errors:
            raise errors[min(errors)]
        return [results[number] for number in range(len(tasks))]

    def _hand_over(self, member: _Member, parts: tuple[Any, Any], *, summed: bool) -> Any:
        return member.actor.add.remote(*parts, not member.done) if summed else member.actor.do.remote(*parts)

    def _collect(self, total: Any) -> list[_Member]:
        """The sums of all actors, one after the other; returns those that died instead."""
        lost, asked = list[_Member](), [(member, member.actor.summed.remote()) for member in self._ready if member.done]
        for member, answer in asked:
            try:
                total.merge(ray.get(answer))
                member.done = []
            except _GONE:
                lost.append(member)
        return lost

    def _replace(self, gone: _Member, deaths: int) -> None:
        """Another actor for one that died, where a processor is left for it: else it would wait for ever."""
        self._ready = [member for member in self._ready if member is not gone]
        if deaths >= _DEATHS:
            raise CoalmineError(
                f"workers died {_DEATHS} times in one round, probably for lack of memory. What was finished is kept: "
                "`coalmine resume` goes on, on this machine."
            )
        if ray.cluster_resources().get("CPU", 0) > len(self._ready) + len(self._starting):
            self._start()
        if not self._ready and not self._starting:
            raise CoalmineError(
                "all workers are gone and no node of the cluster has a processor left. What was finished is kept: "
                "`coalmine resume` goes on, on this machine."
            )


def _parts(task: Any, stored: dict[int, Any]) -> tuple[Any, Any]:
    """A task without its parameters, and where these are in the object store."""
    parameters = getattr(task, "parameters", None)
    if parameters is None:
        return task, None
    if id(parameters) not in stored:
        stored[id(parameters)] = ray.put(parameters)
    return replace(task, parameters=None), stored[id(parameters)]


def check_resources(count: int) -> None:
    """Actors for which there is no processor would wait for ever, in silence."""
    there = int(ray.cluster_resources().get("CPU", 0))
    if there < count:
        raise MismatchError(
            f"{count} workers need {count} processors; this Ray cluster has {there}. Use --workers {max(there, 1)}, or add "
            "nodes (ray start --address=HOST:PORT)."
        )


def compare_versions(theirs: dict[str, str]) -> None:
    """Other versions would give other bits."""
    ours = versions()
    other = [f"{name} {theirs.get(name)} (here: {ours[name]})" for name in ours if theirs.get(name) != ours[name]]
    if other:
        raise MismatchError(
            f"a node of Ray has {', '.join(other)}; the result would not be that of one machine. Install the same versions on "
            "all nodes."
        )


def check_address(address: str | None, patience: float = 5.0) -> None:
    """Where nobody listens, Ray would try again for minutes."""
    host, colon, port = (address or "").rpartition(":")
    if not colon or "://" in host:  # none, "auto", or a kind of address that Ray reads itself
        return
    try:
        socket.create_connection((host, int(port)), timeout=patience).close()
    except (OSError, ValueError, OverflowError) as error:
        raise MismatchError(
            f"no Ray cluster at {address}: {error}. Start one (ray start --head --port=6379), and write HOST:PORT."
        ) from None


@contextmanager
def cluster(address: str | None, processors: int) -> Iterator[None]:
    """The cluster at an address, or one of this machine alone for the time of a run."""
    if ray.is_initialized():
        yield
        return
    check_address(address)
    try:
        if address is None:
            ray.init("local", num_cpus=processors, include_dashboard=False, log_to_driver=False, _node_ip_address="127.0.0.1")
        else:
            ray.init(address, log_to_driver=False)
    except (ConnectionError, RuntimeError, ValueError, GetTimeoutError) as error:
        said = str(error).strip().splitlines()[0]
        raise MismatchError(f"no Ray cluster at {address or 'this machine'}: {said}") from None
    try:
        yield
    finally:
        ray.shutdown()


def refuse_secrets(job: Federation) -> None:
    """Noise that clients add comes from the secret of the run, which does not leave its directory."""
    if job.work().secret is not None:
        raise MismatchError("clients of this mechanism add noise of their own, from the secret: use the embedded engine.")


def run(config: Any, out: str | Path, *, address: str | None = None, **options: Any) -> RunResult:
    """`coalmine.training.run` with `run.workers` actors on the cluster at `address`, or on a Ray of this machine."""
    with cluster(address, config.run.workers):
        check_resources(config.run.workers)
        return train(config, out, make_workers=RayWorkers, check=refuse_secrets, **options)


def engine(address: str | None) -> Any:
    """`run` for one address."""
    return partial(run, address=address)
