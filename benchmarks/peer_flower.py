"""The work of benchmarks/peers.py on Flower's simulation with Ray: two actors, each client's round a plain PyTorch loop.

Runs in an environment of its own: python peer_flower.py FOLDER ROUNDS
"""

import sys
from pathlib import Path

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

sys.path.insert(0, str(Path(__file__).parent))
from peer_work import Turns, load_clients, plain_cnn, train

FOLDER, ROUNDS = Path(sys.argv[1]), int(sys.argv[2])
CLIENTS = len(load_clients(FOLDER))
HERE = str(Path(__file__).parent)
client_app, server_app = ClientApp(), ServerApp()
kept: dict = {}


def fit(message: Message, context: Context) -> Message:
    torch.set_num_threads(1)
    if "module" not in kept:  # what an actor keeps from one client to the next
        kept.update(module=plain_cnn(), clients=load_clients(FOLDER))
    module = kept["module"]
    module.load_state_dict(message.content["arrays"].to_torch_state_dict())
    features, targets = kept["clients"][int(context.node_config["partition-id"])]
    train(module, torch.from_numpy(features), torch.from_numpy(targets))
    content = {"arrays": ArrayRecord(module.state_dict()), "metrics": MetricRecord({"num-examples": len(targets)})}
    return Message(RecordDict(content), reply_to=message)


@client_app.train()
def _(message: Message, context: Context) -> Message:
    return fit(message, context)


@server_app.main()
def _(grid: Grid, context: Context) -> None:
    turns = Turns(FOLDER, "flower")

    def after_round(number: int, arrays: ArrayRecord) -> MetricRecord:
        turns.next()
        return MetricRecord()

    strategy = FedAvg(fraction_train=1.0, fraction_evaluate=0.0, min_available_nodes=CLIENTS, min_train_nodes=CLIENTS)
    strategy.start(grid, ArrayRecord(plain_cnn().state_dict()), ROUNDS, train_config=ConfigRecord(), evaluate_fn=after_round)


if __name__ == "__main__":
    resources = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}, "init_args": {"num_cpus": 2}}
    run_simulation(server_app, client_app, num_supernodes=CLIENTS, backend_config=resources)
