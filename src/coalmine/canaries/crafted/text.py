"""The search over tokens: single flips, chosen by the gradient and judged exactly; or the Gumbel-softmax of the paper.

A canary is one row of tokens. For a model of the next token its targets are the same row, one later, so that a flip changes
both; for a model of one label per text the label stays. One canary after the other, each told to stay away from those before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from coalmine.canaries.crafted.objectives import Objective
from coalmine.canaries.crafted.options import Crafting
from coalmine.canaries.crafted.pool import MockClients
from coalmine.contracts import Streams
from coalmine.data.dataset import Examples
from coalmine.models.language import SPECIAL

_CANDIDATES = 24  # flips that are judged in a step
Tokens = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class TextSearch:
    """What does not change from canary to canary."""

    clients: MockClients
    objective: Objective
    options: Crafting
    allowed: Tokens
    first: int | None  # the token that every row begins with, if all rows of the pool do
    length: int  # of a row, targets included
    label: int | None  # of a text, where targets are no tokens

    def judged(self, rows: Tokens, done: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """(loss, gradient) of every row, exactly, beside the directions of canaries that are done."""
        gradients = row_gradients(self.clients, self.examples(rows))
        norms = torch.sqrt(gradients.square().sum(1) + 1e-12)
        unit = gradients / norms[:, None]
        assert self.clients.rows is not None
        cosines, near = self.clients.rows @ unit.T, self._near(unit, done)
        losses = [self.objective(cosines[:, [row]], norms[[row]], _gram(near[row]))[0] for row in range(len(rows))]
        return torch.stack(losses), gradients

    def examples(self, rows: Tokens) -> Examples:
        """Rows as a client has them."""
        if self.label is not None:
            return Examples(rows, np.full(len(rows), self.label))
        return Examples(rows[:, :-1], rows[:, 1:])

    def relaxed(self, soft: Tensor, done: Sequence[Tensor]) -> Tensor:
        """The loss of one row of probabilities over tokens, (length, vocabulary); to be differentiated."""
        assert self.clients.flat is not None
        inputs = soft if self.label is not None else soft[:-1]
        with _soft_embedding(self.clients.flat.module, inputs):
            outputs = self.clients.flat.module(inputs.argmax(-1).unsqueeze(0))
        if self.label is None:
            loss = -(soft[1:] * functional.log_softmax(outputs[0], -1)).sum(-1).mean()
        else:
            loss = functional.cross_entropy(outputs, torch.tensor([self.label]))
        gradient = self.clients.differentiated(loss)
        seen = self.clients.seen_by([gradient])
        near = self._near(gradient[None] / seen.norms[:, None], done)[0]
        return self.objective(seen.cosines, seen.norms, _gram(near))[0]

    @staticmethod
    def _near(unit: Tensor, done: Sequence[Tensor]) -> Tensor:
        return unit @ torch.stack(list(done)).T if done else unit.new_zeros(len(unit), 0)

    def random_rows(self, rng: np.random.Generator, count: int) -> Tokens:
        """Rows of allowed tokens."""
        rows = self.allowed[rng.integers(self.allowed.size, size=(count, self.length))]
        if self.first is not None:
            rows[:, 0] = self.first
        return rows


def craft_texts(
    search: TextSearch, pool: Sequence[Examples], streams: Streams, *, count: int, enough: float | None
) -> list[Examples]:
    """Canaries of one text each."""
    found: list[Examples] = []
    done: list[Tensor] = []
    craft: Callable[..., tuple[Tokens, Tensor]] = _flips if search.options.text_method == "flips" else _gumbel
    for number in range(count):
        rng = streams("text", number)
        start = search.random_rows(rng, 1)[0]
        if search.options.init == "sample":
            start = _sample(search, pool, rng)
        row, gradient = craft(search, start, rng, done, enough)
        done.append(gradient / gradient.norm())
        found.append(search.examples(row[None]))
    return found


def _sample(search: TextSearch, pool: Sequence[Examples], rng: np.random.Generator) -> Tokens:
    """A text of the pool, without tokens that are not allowed."""
    client = pool[int(rng.integers(len(pool)))]
    place = int(rng.integers(len(client)))
    row = np.asarray(client.features[place], np.int64)
    if search.label is None:
        row = np.concatenate([row, np.asarray(client.targets[place][-1:], np.int64)])
    strange = ~np.isin(row, search.allowed)
    strange[0] = strange[0] and search.first is None
    return np.where(strange, search.random_rows(rng, 1)[0], row)


def _flips(
    search: TextSearch, row: Tokens, rng: np.random.Generator, done: Sequence[Tensor], enough: float | None
) -> tuple[Tokens, Tensor]:
    """Each step judges the flips that the gradient likes best, and random ones where none of these helps."""
    losses, gradients = search.judged(row[None], done)
    loss, gradient = float(losses[0]), gradients[0]
    goal = -np.inf if enough is None or search.objective.loss != "log" else 0.5 * np.log(enough)
    for _ in range(search.options.steps("flips")):
        if loss <= goal:
            break
        for candidates in (_promising(search, row, done), _random_flips(search, row, rng)):
            losses, gradients = search.judged(candidates, done)
            place = int(losses.argmin())
            if float(losses[place]) < loss:
                row, loss, gradient = candidates[place], float(losses[place]), gradients[place]
                break
    return row, gradient


def _promising(search: TextSearch, row: Tokens, done: Sequence[Tensor]) -> Tokens:
    """The flips that lower the loss most by its derivative."""
    vocabulary = _embedding(search.clients.flat.module).num_embeddings  # type: ignore[union-attr]
    soft = functional.one_hot(torch.from_numpy(row), vocabulary).float().requires_grad_()
    slopes = torch.nan_to_num(torch.autograd.grad(search.relaxed(soft, done), soft)[0]).numpy()
    gain = slopes - slopes[np.arange(row.size), row][:, None]
    forbidden = np.ones(vocabulary, np.bool_)
    forbidden[search.allowed] = False
    gain[:, forbidden] = np.inf
    gain[np.arange(row.size), row] = np.inf
    if search.first is not None:
        gain[0] = np.inf
    best = np.argsort(gain, axis=None, kind="stable")[:_CANDIDATES]
    return _flipped(row, *np.unravel_index(best, gain.shape))


def _random_flips(search: TextSearch, row: Tokens, rng: np.random.Generator) -> Tokens:
    places = rng.integers(int(search.first is not None), row.size, size=_CANDIDATES)
    return _flipped(row, places, search.allowed[rng.integers(search.allowed.size, size=_CANDIDATES)])


def _flipped(row: Tokens, places: NDArray[Any], tokens: NDArray[Any]) -> Tokens:
    rows = np.repeat(row[None], len(places), 0)
    rows[np.arange(len(places)), places] = tokens
    return rows


def _gumbel(
    search: TextSearch, row: Tokens, rng: np.random.Generator, done: Sequence[Tensor], enough: float | None
) -> tuple[Tokens, Tensor]:
    """Adam on the logits of every token, with noise; at the end the best of some hard samples."""
    options, steps = search.options, search.options.steps("gumbel")
    vocabulary = _embedding(search.clients.flat.module).num_embeddings  # type: ignore[union-attr]
    logits = torch.from_numpy(rng.random((row.size, vocabulary)).astype(np.float32))
    if options.init == "sample":
        logits = 12 * functional.one_hot(torch.from_numpy(row), vocabulary).float()
    closed = torch.full((vocabulary,), -1e9)
    closed[torch.from_numpy(search.allowed)] = 0
    logits.requires_grad_()
    optimiser = torch.optim.Adam([logits], lr=options.learning_rate)
    for step in range(steps):
        share = step / max(steps - 1, 1)
        temperature = options.temperature[0] * (1 - share) + options.temperature[1] * share
        noise = torch.from_numpy(rng.gumbel(size=logits.shape).astype(np.float32))
        soft = torch.softmax((logits + closed + noise) / temperature, -1)
        logits.grad = torch.nan_to_num(torch.autograd.grad(search.relaxed(soft, done), logits)[0])
        optimiser.step()
    open_logits = (logits + closed).detach().numpy()
    hard = (open_logits + rng.gumbel(size=(options.samples, *open_logits.shape))).argmax(-1)
    if search.first is not None:
        hard[:, 0] = search.first
    losses, gradients = search.judged(hard, done)
    place = int(losses.argmin())
    return hard[place], gradients[place]


def _gram(near: Tensor) -> Tensor:
    """The part of a Gram matrix that a single canary needs: its cosines with those that are done."""
    size = len(near) + 1
    made = torch.cat([torch.cat([near.new_ones(1), near])[None], near.new_zeros(size - 1, size)])
    return made[:1] if size == 1 else made


def _embedding(module: nn.Module) -> nn.Embedding:
    for inner in module.modules():
        if isinstance(inner, nn.Embedding):
            return inner
    raise ValueError("text canaries need a model with an embedding of tokens (torch.nn.Embedding).")


@contextmanager
def _soft_embedding(module: nn.Module, soft: Tensor) -> Iterator[None]:
    """Inside, the embedding of a single text is a mean by these probabilities, whichever way the model turns its rows."""

    def mixed(layer: nn.Module, inputs: tuple[Tensor, ...], outputs: Tensor) -> Tensor:
        return (soft @ layer.get_parameter("weight")).view_as(outputs)

    handle = _embedding(module).register_forward_hook(mixed)
    try:
        yield
    finally:
        handle.remove()


def row_gradients(clients: MockClients, examples: Examples) -> Tensor:
    """The gradient of each text's loss, (texts, dim); texts without padding, so that a loss is a plain mean."""
    assert clients.flat is not None
    module = clients.flat.module
    values = {name: parameter.detach() for name, parameter in module.named_parameters() if parameter.requires_grad}

    def loss(values: dict[str, Tensor], tokens: Tensor, target: Tensor) -> Tensor:
        outputs = torch.func.functional_call(module, values, (tokens.unsqueeze(0),))
        return functional.cross_entropy(outputs[0] if target.ndim else outputs, target if target.ndim else target[None])

    features, targets = (
        torch.from_numpy(np.ascontiguousarray(each, np.int64)) for each in (examples.features, examples.targets)
    )
    found = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))(values, features, targets)
    return torch.cat([found[name].reshape(len(features), -1) for name in values], dim=1).detach()


def allowed_tokens(vocabulary: int, *, specials: bool) -> Tokens:
    """Tokens that may be in a canary."""
    return np.arange(1 if specials else SPECIAL, vocabulary)
