"""The work of benchmarks/peers.py on pfl-research: one process with its share of the clients, its own local SGD.

Runs in an environment of its own: python peer_pfl.py FOLDER ROUNDS SHARE OF
"""

import sys
from pathlib import Path

import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import MinimizeReuseUserSampler
from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Metrics
from pfl.model.pytorch import PyTorchModel

sys.path.insert(0, str(Path(__file__).parent))
from peer_work import BATCH, RATE, Turns, load_clients, plain_cnn

FOLDER, ROUNDS, SHARE, OF = Path(sys.argv[1]), *(int(word) for word in sys.argv[2:5])


class Cnn(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = plain_cnn()

    def loss(self, features: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(self.layers(features), targets)

    def metrics(self, features: torch.Tensor, targets: torch.Tensor) -> dict:
        return {}


class Gate(TrainingProcessCallback):
    def __init__(self) -> None:
        self.turns = Turns(FOLDER, f"pfl.{SHARE}")

    def on_train_begin(self, *, model: object) -> Metrics:
        self.turns.next()
        return Metrics()

    def after_central_iteration(self, metrics: object, model: object, *, central_iteration: int) -> tuple[bool, Metrics]:
        return not self.turns.next(), Metrics()


def main() -> None:
    torch.set_num_threads(1)
    clients = load_clients(FOLDER)[SHARE::OF]
    data = [Dataset([torch.from_numpy(each) for each in client], user_id=str(place)) for place, client in enumerate(clients)]
    federated = FederatedDataset(lambda user: data[user], MinimizeReuseUserSampler(list(range(len(data)))))
    module = Cnn()
    model = PyTorchModel(module, torch.optim.SGD, torch.optim.SGD(module.parameters(), lr=1.0))
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=ROUNDS, evaluation_frequency=10 * ROUNDS, train_cohort_size=len(data), val_cohort_size=None
        ),
        SimulatedBackend(training_data=federated, val_data=federated),
        model,
        NNTrainHyperParams(local_num_epochs=1, local_learning_rate=RATE, local_batch_size=BATCH),
        NNEvalHyperParams(local_batch_size=BATCH),
        callbacks=[Gate()],
        send_metrics_to_platform=False,
    )


if __name__ == "__main__":
    main()
