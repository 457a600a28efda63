"""Our own training on Flower's simulation: the clients of a round are shared out as messages to simulated nodes.

`run` is `coalmine.training.run` with a grid in the place of worker processes. Seeds, cohorts, clipping, order-free sums and
noise are those of the embedded engine, so that the result is the same, bit for bit. What differs is who does the work and the
time it takes: some ten seconds to start Ray, and the parameters in every message. `coalmine resume` goes on with such a run
as with any.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MessageType, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from coalmine.contracts import Public
from coalmine.errors import CoalmineError
from coalmine.mechanisms.sums import FixedPointSum
from coalmine.training import RunResult
from coalmine.training import run as train
from coalmine.training.assembly import federation, load_task
from coalmine.training.config import Config, located, parse_config, write_config
from coalmine.training.federation import Evaluate, Group, Outcome, Work

_TASK = "task"


class GridWorkers:
    """The nodes of a grid as workers: one message for every task, results in the order of the tasks."""

    def __init__(self, grid: Grid):
        self._grid = grid

    def __enter__(self) -> GridWorkers:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def map(self, tasks: Sequence[Group | Evaluate]) -> list[Outcome]:
        """The results of the tasks, in their order."""
        nodes = sorted(self._grid.get_node_ids())
        messages = [
            Message(packed(task, place), dst_node_id=nodes[place % len(nodes)], message_type=MessageType.TRAIN)
            for place, task in enumerate(tasks)
        ]
        found: dict[int, Outcome] = {}
        for reply in self._grid.send_and_receive(messages):
            if reply.has_error():
                raise CoalmineError(f"a node of Flower failed: {reply.error.reason}. Run with the embedded engine to see more.")
            found[int(reply.content[_TASK]["place"])] = outcome_of(reply.content)
        if len(found) < len(tasks):
            raise CoalmineError(f"only {len(found)} of {len(tasks)} tasks came back from Flower's nodes. Start the run again.")
        return [found[place] for place in range(len(tasks))]


def client_app(config: str) -> ClientApp:
    """A client that does one task; it makes the model and reads the data once in a process."""
    app = ClientApp()

    @app.train()  # type: ignore[untyped-decorator]
    def work(message: Message, context: Context) -> Message:
        done = _work(config)(task_of(message.content))
        total = done.total
        about = {
            "place": message.content[_TASK]["place"],
            "count": total.count,
            "below": total.below,
            "clip_norm": total.clip_norm,
        }
        arrays = ArrayRecord({"total": Array(total.total()), "values": Array(done.values)})
        return Message(RecordDict({"arrays": arrays, _TASK: ConfigRecord(about)}), reply_to=message)

    return app


def run(config: Config, out: str | Path, *, nodes: int | None = None, **options: Any) -> RunResult:
    """`coalmine.training.run` on so many simulated nodes (as many as there are workers)."""
    from flwr.simulation import run_simulation

    os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
    server = ServerApp()
    ended: list[RunResult | BaseException] = []

    @server.main()  # type: ignore[untyped-decorator]
    def main(grid: Grid, context: Context) -> None:
        try:
            ended.append(train(config, out, make_workers=lambda count, work: GridWorkers(grid), **options))
        except BaseException as error:  # of another thread: to be raised where somebody waits for it
            ended.append(error)

    app = client_app(write_config(located(config), {}))
    resources = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}, "init_args": {"num_cpus": config.run.workers}}
    run_simulation(server, app, num_supernodes=nodes or config.run.workers, backend_config=resources)
    if not ended:
        raise CoalmineError("Flower's simulation ended without a result. What it said is above.")
    if isinstance(ended[0], BaseException):
        raise ended[0]
    return ended[0]


def packed(task: Group | Evaluate, place: int) -> RecordDict:
    """A task as records."""
    about: dict[str, Any] = {"place": place, "users": list(task.users)}
    if isinstance(task, Group):
        public = task.public
        about |= {"round": public.round, "clip_norm": public.clip_norm, "denominator": public.denominator}
    return RecordDict({"arrays": ArrayRecord({"parameters": Array(np.asarray(task.parameters))}), _TASK: ConfigRecord(about)})


def task_of(content: RecordDict) -> Group | Evaluate:
    """The inverse of `packed`."""
    about, parameters = content[_TASK], content["arrays"]["parameters"].numpy()
    users = tuple(str(user) for user in about["users"])
    if "round" not in about:
        return Evaluate(parameters, users)
    public = Public(int(about["round"]), float(about["clip_norm"]), float(about["denominator"]))
    return Group(public, parameters, users)


def outcome_of(content: RecordDict) -> Outcome:
    """What a node sent back."""
    about, arrays = content[_TASK], content["arrays"]
    total = FixedPointSum.of(arrays["total"].numpy(), float(about["clip_norm"]), int(about["count"]), int(about["below"]))
    return Outcome(total, arrays["values"].numpy())


@lru_cache(maxsize=1)
def _work(config: str) -> Work:
    parsed = parse_config(config)
    work = federation(parsed, load_task(parsed), secret_seed=0).work()  # nothing of a secret is needed for local training
    work.prepare()
    return work
