"""Our own training by Flower's messages: the clients of a round are shared out to a ClientApp on the nodes of a grid.

`run` is `coalmine.training.run` with a grid in the place of worker processes. Seeds, cohorts, clipping, order-free sums and
noise are those of the embedded engine, so that the result is the same, bit for bit. What differs is who does the work: nodes of
this process, one after the other, with the parameters in every message. (Flower's own simulation was used before; Flower has
deprecated the function that starts it, and gives no other to a program.) `coalmine resume` goes on with such a run as with any.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from flwr.app import Context, Message, MessageType
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid

from coalmine.adapters.flower.grid import LocalGrid
from coalmine.adapters.flower.sending import (
    TASK,
    outcome_of,
    packed,
    packed_outcome,
    read_mechanism,
    refuse_noise_of_clients,
    task_of,
    written_mechanism,
)
from coalmine.contracts import Mechanism
from coalmine.errors import CoalmineError, MismatchError
from coalmine.training import RunResult
from coalmine.training import run as train
from coalmine.training.assembly import Task, federation, load_task
from coalmine.training.config import Config, located, parse_config, write_config
from coalmine.training.work import ClientBatch, Evaluate, Outcome, Work


class GridWorkers:
    """The nodes of a grid as workers: one message for every task, results in the order of the tasks.

    `mechanism` is the one that nodes clip with; None: that of their configuration.
    """

    def __init__(self, grid: Grid, mechanism: Mechanism | None = None):
        self._grid = grid
        self._mechanism = "" if mechanism is None else written_mechanism(mechanism)

    def __enter__(self) -> GridWorkers:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def map(self, tasks: Sequence[ClientBatch | Evaluate]) -> list[Outcome]:
        """The results of the tasks, in their order."""
        nodes = sorted(self._grid.get_node_ids())
        messages = [
            Message(packed(task, place, self._mechanism), dst_node_id=nodes[place % len(nodes)], message_type=MessageType.TRAIN)
            for place, task in enumerate(tasks)
        ]
        found: dict[int, Outcome] = {}
        for reply in self._grid.send_and_receive(messages):
            if reply.has_error():
                raise CoalmineError(f"a node of Flower failed: {reply.error.reason}. Run with the embedded engine to see more.")
            found[int(reply.content[TASK]["place"])] = outcome_of(reply.content)
        if len(found) < len(tasks):
            raise CoalmineError(f"only {len(found)} of {len(tasks)} tasks came back from Flower's nodes. Start the run again.")
        return [found[place] for place in range(len(tasks))]


def client_app(config: str) -> ClientApp:
    """A client that does one task; it makes the model and reads the data once in a process."""
    app = ClientApp()

    @app.train()  # type: ignore[untyped-decorator]
    def work(message: Message, context: Context) -> Message:
        about = message.content[TASK]
        done = _work(config, str(about["mechanism"]))(task_of(message.content))
        return Message(packed_outcome(done, int(about["place"])), reply_to=message)

    return app


def run(
    config: Config, out: str | Path, *, nodes: int | None = None, mechanism: Mechanism | None = None, **options: Any
) -> RunResult:
    """`coalmine.training.run` on so many nodes of this process (as many as there are workers).

    Nodes read the data and make the model as the configuration says, and clip with the same mechanism as the server.
    """
    if options.get("task") is not None:
        raise MismatchError(
            "data and a model that are handed over cannot be sent to nodes of Flower, which read those of the configuration: "
            "train with the embedded engine."
        )
    if config.crafting.mode == "running":
        raise MismatchError(
            "crafted canaries cannot join rounds on nodes of Flower, which know the users of the data set only: set "
            'crafting.mode = "frozen", or train with the embedded engine.'
        )
    if mechanism is not None:
        written_mechanism(mechanism)  # what cannot travel is refused before anything starts
    grid = LocalGrid(client_app(write_config(located(config), {})), nodes or config.run.workers)
    return train(config, out, mechanism=mechanism, **on_grid(grid, mechanism), **options)


def on_grid(grid: Grid, mechanism: Mechanism | None = None) -> dict[str, Any]:
    """What `coalmine.training.run` is told to work on a grid; `mechanism` as it is told itself."""

    def make_workers(count: int, work: Work) -> GridWorkers:
        return GridWorkers(grid, None if mechanism is None else work.mechanism)  # that of this job: a reference has no noise

    return {"make_workers": make_workers, "check": lambda job: refuse_noise_of_clients(job.mechanism)}


@lru_cache(maxsize=1)
def _work(config: str, mechanism: str) -> Work:
    handed = read_mechanism(mechanism) if mechanism else None
    # nothing of a secret is needed for local training
    work = federation(parse_config(config), _task(config), secret_seed=0, mechanism=handed).work()
    work.prepare()
    return work


@lru_cache(maxsize=1)
def _task(config: str) -> Task:
    return load_task(parse_config(config))
