"""A grid in this process: a user's own strategy and ClientApp without Ray and without a SuperLink, for tests and small audits.

    grid = LocalGrid(client_app, nodes=20)
    strategy.start(grid=grid, initial_arrays=arrays, num_rounds=10)

About a millisecond per client and round on top of the client's own work, and no start-up. What a client does wrong comes back
as an error reply, as in a deployment; nodes in `silent` do not answer at all.

Flower's DP strategies draw their noise from NumPy's global generator. In a deployment clients are other processes and cannot
touch it; here every node has global generators of its own (NumPy's, Python's and PyTorch's on the CPU), which are put in place
while it works. What the server draws is therefore the same whatever its clients draw or seed. A node's generators start from
the server's, read and not advanced, and from the node's number: who seeds the server before training repeats the clients too.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
from flwr.app import Context, Error, Message, RecordDict
from flwr.serverapp import Grid

from coalmine import _validate
from coalmine.adapters.flower.records import copied

_RUN, _SERVER, _TASK = 1, 1, 1
_FIRST_NODE = 1000
_RAISED = 2  # Flower's code for an exception in a ClientApp
_WORDS = 8  # of 32 bits, read from the server's generators for those of a node


class LocalGrid(Grid):
    """Nodes of this process, each with a context of its own that lasts over the rounds.

    `nodes` is how many there are, or the node configuration of each; by default a node knows its partition, as in Flower's
    simulation: {"partition-id": 3, "num-partitions": 20}.
    """

    def __init__(
        self,
        client_app: Callable[[Message, Context], Message],
        nodes: int | Sequence[Mapping[str, Any]],
        run_config: Mapping[str, Any] | None = None,
    ):
        if isinstance(nodes, int):
            count = _validate.whole("nodes", nodes, least=1)
            nodes = [{"partition-id": place, "num-partitions": count} for place in range(count)]
        self._app = client_app
        self._contexts = {
            _FIRST_NODE + place: Context(
                run_id=_RUN,
                node_id=_FIRST_NODE + place,
                node_config=dict(each),
                state=RecordDict(),
                run_config=dict(run_config or {}),
            )
            for place, each in enumerate(nodes)
        }
        self._generators: dict[int, dict[str, Any]] = {}  # by node, as its last task left them
        self._waiting: dict[str, Message] = {}
        self._sent = 0
        self.silent: set[int] = set()  # places of nodes that do not answer
        _identify()

    def set_run(self, run: Any) -> None:
        """There is one run."""

    @property
    def run(self) -> Any:
        """What strategies read of a run."""
        return SimpleNamespace(run_id=_RUN)

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str = "", ttl: float | None = None
    ) -> Message:
        """A message for a node."""
        return Message(content, dst_node_id=dst_node_id, message_type=message_type, group_id=group_id, ttl=ttl)

    def get_node_ids(self) -> list[int]:
        """All nodes."""
        return list(self._contexts)

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        """Let the nodes work; their replies wait under the names that are returned."""
        names = []
        for message in messages:
            self._sent += 1
            names.append(f"message-{self._sent}")
            reply = self._reply(message)
            if reply is not None:
                self._waiting[names[-1]] = reply
        return names

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        """The replies that wait under these names."""
        return [self._waiting.pop(name) for name in message_ids if name in self._waiting]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        """Let the nodes work, one after the other, and bring their replies."""
        return self.pull_messages(self.push_messages(messages))

    def _reply(self, message: Message) -> Message | None:
        node = message.metadata.dst_node_id
        if node - _FIRST_NODE in self.silent:
            return None
        about = {"message_type": message.metadata.message_type, "group_id": message.metadata.group_id}
        own = Message(copied(message.content), dst_node_id=node, **about)
        try:
            with self._as_in_its_own_process(node):
                return self._app(own, self._contexts[node])
        except Exception as error:  # what a SuperNode reports
            return Message(Error(_RAISED, f"{type(error).__name__}: {error}"), reply_to=message)

    @contextmanager
    def _as_in_its_own_process(self, node: int) -> Iterator[None]:
        """The node's own global generators; afterwards the server's are as they were."""
        before = _states()
        own = self._generators.setdefault(node, {})
        missing = [name for name in before if name not in own]  # PyTorch may be loaded later than the others
        if missing:
            _seed(missing, node)
        _restore(own)
        try:
            yield
        finally:
            self._generators[node] = _states()
            _restore(before)


def _global_generators() -> dict[str, tuple[Callable[[], Any], Callable[[Any], Any], Callable[[int], Any]]]:
    """By name, how to read the state of a global generator, how to set it, and how to seed it."""
    found: dict[str, tuple[Any, Any, Any]] = {
        "numpy": (np.random.get_state, np.random.set_state, np.random.seed),
        "python": (random.getstate, random.setstate, random.seed),
    }
    torch = sys.modules.get("torch")  # whoever has not loaded it draws nothing from it
    if torch is not None:
        generator = torch.default_generator
        found["torch"] = (generator.get_state, generator.set_state, generator.manual_seed)
    return found


def _states() -> dict[str, Any]:
    return {name: read() for name, (read, _, _) in _global_generators().items()}


def _restore(states: Mapping[str, Any]) -> None:
    known = _global_generators()
    for name, state in states.items():
        known[name][1](state)


def _seed(names: Sequence[str], node: int) -> None:
    """Generators of a node that has none: from the server's, which are in place, and from the node's number."""
    drawn = [*np.random.randint(0, 2**32, _WORDS, dtype=np.uint32).tolist(), *(random.getrandbits(32) for _ in range(_WORDS))]
    seeds = np.random.SeedSequence([*drawn, node]).generate_state(len(names))
    for name, seed in zip(names, seeds.tolist(), strict=True):
        _global_generators()[name][2](seed)


def _identify() -> None:
    """Newer versions want to know which task runs before a message can be made, and offer no public way to say it."""
    try:
        from flwr.supercore.task_identity import TaskIdentity
    except ImportError:  # older versions do not ask
        return
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = _RUN, _SERVER, _TASK
