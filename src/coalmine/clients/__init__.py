"""One client's local training: parameters and examples in, update out."""

from coalmine.clients.local_training import Evaluation, LocalTraining, Update
from coalmine.clients.trainer import Trainer, quiet_threads

__all__ = ["Evaluation", "LocalTraining", "Trainer", "Update", "quiet_threads"]
