"""A grid in this process: a user's own strategy and ClientApp without Ray and without a SuperLink, for tests and small audits.

    grid = LocalGrid(client_app, nodes=20)
    strategy.start(grid=grid, initial_arrays=arrays, num_rounds=10)

About a millisecond per client and round on top of the client's own work, and no start-up. What a client does wrong comes back
as an error reply, as in a deployment; nodes in `silent` do not answer at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from flwr.app import Context, Error, Message, RecordDict
from flwr.serverapp import Grid

from coalmine import _validate
from coalmine.adapters.flower.records import copied

_RUN, _SERVER, _TASK = 1, 1, 1
_FIRST_NODE = 1000
_RAISED = 2  # Flower's code for an exception in a ClientApp


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
        own = Message(copied(message.content), dst_node_id=node, message_type=message.metadata.message_type)
        try:
            return self._app(own, self._contexts[node])
        except Exception as error:  # what a SuperNode reports
            return Message(Error(_RAISED, f"{type(error).__name__}: {error}"), reply_to=message)


def _identify() -> None:
    """Newer versions want to know which task runs before a message can be made, and offer no public way to say it."""
    try:
        from flwr.supercore.task_identity import TaskIdentity
    except ImportError:  # older versions do not ask
        return
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = _RUN, _SERVER, _TASK
