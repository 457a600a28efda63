"""The client: local training, clipping, masks; and inside of these, some clients are canaries."""

from functools import cache
from typing import Any

from flwr.app import Context, Message
from flwr.client import Client, NumPyClient
from flwr.client.mod import fixedclipping_mod, secaggplus_mod
from flwr.clientapp import ClientApp

from coalmine.adapters.flower import Audit, canary_mod, last_partitions
from secagg_app.task import audit_of, initial, train


class Learner(NumPyClient):
    """One pass over a share of the images."""

    def __init__(self, partition: int, partitions: int):
        self.partition, self.partitions = partition, partitions

    def fit(self, parameters: Any, config: Any) -> tuple[list[Any], int, dict[str, Any]]:
        """Every client weighs the same, as the noise of the server assumes."""
        model = dict(zip(initial(), parameters, strict=True))
        return list(train(model, self.partition, self.partitions).values()), 1, {}


def client_fn(context: Context) -> Client:
    """The client of a node."""
    node = context.node_config
    return Learner(int(node["partition-id"]), int(node["num-partitions"])).to_client()


_audits: dict[str, Audit] = {}


def audit(context: Context) -> Audit:
    """Made once in a process."""
    file = str(context.run_config["secret-file"])
    if file not in _audits:
        _audits[file] = audit_of(context)
    return _audits[file]


def clip_on_clients(message: Message, context: Context, call_next: Any) -> Message:
    """Clip here, as one must under secure aggregation; or leave it to the server, which then clips the mean."""
    if context.run_config["clip-on"] == "clients":
        return fixedclipping_mod(message, context, call_next)
    return call_next(message, context)


@cache
def canaries(count: int, clip_norm: float) -> Any:
    """The canary mod for these settings."""
    return canary_mod(audit, clip_norm=clip_norm, who=last_partitions(count), labelled=False)


def some_are_canaries(message: Message, context: Context, call_next: Any) -> Message:
    """The last partitions are canaries; how many, the configuration says."""
    config = context.run_config
    return canaries(int(config["canaries"]), float(config["clip-norm"]))(message, context, call_next)


app = ClientApp(client_fn, mods=[secaggplus_mod, clip_on_clients, some_are_canaries])
