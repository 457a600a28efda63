"""Models of the next token: an embedding, a recurrent layer (LSTM), perhaps a projection, and an output for each token.

    model                  tokens    embedding   LSTM   output                         parameters
    stack_overflow_lstm    10,004    96          670    projection to 96, then all     4,050,748
    shakespeare_lstm       given     8           256    all                            295,210 for 90 tokens
    chat_lstm              given     64          128    projection, tied by default    172,072 for 1,000 tokens

The first is that of Reddi et al. 2021 ("Adaptive Federated Optimization"), the second that of McMahan et al. 2017
("Communication-Efficient Learning of Deep Networks from Decentralized Data"), who have two recurrent layers (`layers=2`).

Features and targets are rows of tokens, (examples, time); outputs are (examples, time, tokens). Padding (token 0) is never
counted. The loss is a mean over all other targets, bos, eos and unk included: they are part of what a user writes. The
accuracy counts none of the four special tokens, since "the text ends" and "some rare word" are easily right and say little.

Where we depart, and why:

* One bias for each gate, as in those papers; torch.nn.LSTM would have two, whose sum alone matters.
* Embeddings begin as Gaussian vectors of about unit length, and forget gates with a bias of 1, so that plain SGD gets going.
"""

from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from coalmine import _validate
from coalmine.models.model import Model

PAD = 0
SPECIAL = 4  # tokens below are pad, bos, eos and unk, as `coalmine.data.vocabulary` numbers them


class Lstm(nn.Module):
    """A recurrent layer over (time, examples, inputs), beginning at zero, with one bias for each gate."""

    zeros: Tensor

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.hidden = hidden
        bound = hidden**-0.5
        self.weight_ih = nn.Parameter(torch.empty(4 * hidden, inputs).uniform_(-bound, bound))
        self.weight_hh = nn.Parameter(torch.empty(4 * hidden, hidden).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.zeros(4 * hidden))
        with torch.no_grad():
            self.bias[hidden : 2 * hidden] = 1.0  # gates are input, forget, cell, output
        self.register_buffer("zeros", torch.zeros(4 * hidden), persistent=False)

    def forward(self, inputs: Tensor) -> Tensor:
        """The outputs at all times, (time, examples, hidden)."""
        begin = inputs.new_zeros(1, inputs.shape[1], self.hidden)
        weights = [self.weight_ih, self.weight_hh, self.bias, self.zeros]
        outputs: Tensor = torch.lstm(inputs, (begin, begin), weights, True, 1, 0.0, self.training, False, False)[0]
        return outputs


class NextToken(nn.Module):
    """Embedding, recurrent layers, projection to the size of the embedding (or none), output."""

    def __init__(self, vocabulary: int, embedding: int, hidden: int, *, layers: int, projected: bool, tied: bool) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, embedding)
        nn.init.normal_(self.embedding.weight, std=embedding**-0.5)
        self.recurrent = nn.Sequential(*(Lstm(hidden if number else embedding, hidden) for number in range(layers)))
        self.projection = nn.Linear(hidden, embedding) if projected or tied else None
        self.output = nn.Linear(embedding if projected or tied else hidden, vocabulary)
        if tied:
            self.output.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        """Outputs of all tokens as the next one, (examples, time, tokens); in memory time comes first."""
        return self.outputs(self.inner(tokens)).transpose(0, 1)

    def inner(self, tokens: Tensor) -> Tensor:
        """What the recurrent layers make of the tokens, (time, examples, hidden)."""
        made: Tensor = self.recurrent(self.embedding(tokens.T))
        return made

    def outputs(self, inner: Tensor) -> Tensor:
        """Outputs of all tokens for what is in the last dimension."""
        outputs: Tensor = self.output(inner if self.projection is None else self.projection(inner))
        return outputs


class MeanTokenLoss:
    """The mean cross entropy over all targets but padding; zero if there is nothing else."""

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """From all outputs."""
        wanted = targets.T.reshape(-1)  # in the order in which the outputs lie in memory
        total = functional.cross_entropy(outputs.transpose(0, 1).flatten(0, 1), wanted, ignore_index=PAD, reduction="sum")
        return total / max(count_tokens(targets), 1)

    def direct(self, module: nn.Module, tokens: Tensor, targets: Tensor) -> Tensor:
        """The same for the price of the outputs that count.

        Of utterances that each fill a row about half is padding, and the outputs are most of the work.
        """
        if not isinstance(module, NextToken):
            return self(module(tokens), targets)
        counted = targets.T != PAD
        times = max(int((counted.any(1) * torch.arange(1, len(counted) + 1)).max()), 1)  # until the last target
        places = counted[:times].flatten().nonzero().squeeze(1)
        inner = module.inner(tokens[:, :times]).flatten(0, 1).index_select(0, places)
        wanted = targets.T[:times].flatten().index_select(0, places)
        return functional.cross_entropy(module.outputs(inner), wanted, reduction="sum") / max(len(places), 1)


mean_token_loss = MeanTokenLoss()


def count_tokens(targets: Tensor) -> int:
    """How many targets are no padding: what the loss is a mean of."""
    return int((targets != PAD).sum())


def count_words(outputs: Tensor, targets: Tensor) -> tuple[int, int]:
    """(how many targets have the largest output, how many count): special tokens do not."""
    counted = targets >= SPECIAL
    right = (outputs.argmax(-1) == targets) & counted
    return int(right.sum()), int(counted.sum())


def _model(name: str, vocabulary: int, embedding: int, hidden: int, layers: int, *, projected: bool, tied: bool) -> Model:
    build = partial(
        NextToken,
        _validate.whole("vocabulary", vocabulary, least=SPECIAL + 1),
        _validate.whole("embedding", embedding, least=1),
        _validate.whole("hidden", hidden, least=1),
        layers=_validate.whole("layers", layers, least=1, most=_validate.MOST_LAYERS),
        projected=projected,
        tied=tied,
    )
    return Model(name, build, mean_token_loss, count_words, count_tokens, "tokens")


def stack_overflow_lstm(*, vocabulary: int = 10_004, embedding: int = 96, hidden: int = 670) -> Model:
    """The word model of Stack Overflow; `vocabulary` counts the four special tokens.

    >>> stack_overflow_lstm().dim
    4050748
    """
    return _model("stack-overflow-lstm", vocabulary, embedding, hidden, 1, projected=True, tied=False)


def shakespeare_lstm(*, vocabulary: int, embedding: int = 8, hidden: int = 256, layers: int = 1) -> Model:
    """The character model of Shakespeare; `vocabulary` counts the four special tokens.

    >>> shakespeare_lstm(vocabulary=90).dim
    295210
    """
    return _model("shakespeare-lstm", vocabulary, embedding, hidden, layers, projected=False, tied=False)


def chat_lstm(*, vocabulary: int, embedding: int = 64, hidden: int = 128, layers: int = 1, tied: bool = True) -> Model:
    """A small model of words or characters; `tied` outputs use the weights of the embedding, through a projection.

    >>> chat_lstm(vocabulary=1_000).dim
    172072
    """
    return _model("chat-lstm", vocabulary, embedding, hidden, layers, projected=False, tied=bool(tied))
