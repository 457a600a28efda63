"""A model of one label per text: an embedding, recurrent layers (LSTM), and the classes at a text's last token.

The network of LEAF's Sent140 (Caldas et al. 2018), as CANIFE has it, with sizes that one chooses: two layers of 100 by default.
Features are rows of tokens, (texts, time), filled up with padding (token 0) at their end; targets are classes. Data of tokens
do not say how many there are: give `vocabulary`, the four special tokens included.
"""

from functools import partial

import torch
from torch import Tensor, nn

from coalmine import _validate
from coalmine.models.language import PAD, SPECIAL, Lstm
from coalmine.models.model import Model


class TextClassifier(nn.Module):
    """Embedding, recurrent layers, and the classes of what they are after the last token."""

    def __init__(self, vocabulary: int, embedding: int, hidden: int, layers: int, classes: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, embedding)
        nn.init.normal_(self.embedding.weight, std=embedding**-0.5)
        self.recurrent = nn.Sequential(*(Lstm(hidden if number else embedding, hidden) for number in range(layers)))
        self.output = nn.Linear(hidden, classes)

    def forward(self, tokens: Tensor) -> Tensor:
        """Outputs of the classes, one row for each text."""
        inner: Tensor = self.recurrent(self.embedding(tokens.T))
        last = ((tokens != PAD).sum(1) - 1).clamp(min=0)
        places = last[None, :, None].expand(1, -1, inner.shape[2])
        outputs: Tensor = self.output(inner.gather(0, places).squeeze(0))
        return torch.as_tensor(outputs)


def text_classifier(*, vocabulary: int, classes: int = 2, embedding: int = 100, hidden: int = 100, layers: int = 2) -> Model:
    """A label for each text; `vocabulary` counts the four special tokens.

    >>> text_classifier(vocabulary=1_000).dim
    261002
    """
    build = partial(
        TextClassifier,
        _validate.whole("vocabulary", vocabulary, least=SPECIAL + 1),
        _validate.whole("embedding", embedding, least=1),
        _validate.whole("hidden", hidden, least=1),
        _validate.whole("layers", layers, least=1, most=_validate.MOST_LAYERS),
        _validate.whole("classes", classes, least=2),
    )
    return Model("text-classifier", build, features="tokens")
