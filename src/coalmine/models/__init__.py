"""The papers' models in PyTorch, each small, with its parameters as one flat vector.

`MODELS` names every constructor for the command line and for configurations. What the data determine (`classes`, `shape`,
`vocabulary`) and what one may choose are keywords. A module of one's own goes in as `Model(name, build, loss)`.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from coalmine.models.classified import text_classifier
from coalmine.models.dense import logistic, mlp
from coalmine.models.federated_images import leaf_cnn, resnet18_gn
from coalmine.models.images import emnist_cnn
from coalmine.models.language import chat_lstm, shakespeare_lstm, stack_overflow_lstm
from coalmine.models.model import FlatModule, Model
from coalmine.models.transformer import gpt

__all__ = [
    "MODELS",
    "FlatModule",
    "Model",
    "chat_lstm",
    "emnist_cnn",
    "gpt",
    "leaf_cnn",
    "logistic",
    "mlp",
    "resnet18_gn",
    "shakespeare_lstm",
    "stack_overflow_lstm",
    "text_classifier",
]

MODELS: Mapping[str, Callable[..., Model]] = MappingProxyType(
    {
        "emnist-cnn": emnist_cnn,
        "leaf-cnn": leaf_cnn,
        "resnet18-gn": resnet18_gn,
        "stack-overflow-lstm": stack_overflow_lstm,
        "shakespeare-lstm": shakespeare_lstm,
        "chat-lstm": chat_lstm,
        "text-classifier": text_classifier,
        "gpt": gpt,
        "mlp": mlp,
        "logistic": logistic,
    }
)
