"""What is learned: the next character of a chat message, one user per client."""

from functools import cache

import torch
from torch import Tensor, nn
from torch.nn import functional

from coalmine import data
from coalmine.data import SPECIAL

LENGTH, CHARACTERS = 32, 60


class Model(nn.Module):
    """A small recurrent network."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(CHARACTERS + SPECIAL, 16)
        self.memory = nn.GRU(16, 48, batch_first=True)
        self.out = nn.Linear(48, CHARACTERS + SPECIAL)

    def forward(self, characters: Tensor) -> Tensor:
        """Scores of every next character."""
        return self.out(self.memory(self.embedding(characters))[0])


@cache
def users():
    """Windows of characters, user by user."""
    texts = data.read("chat").at_least(60).capped(60)
    vocabulary = texts.vocabulary("characters", size=CHARACTERS)
    return texts.windows(vocabulary, length=LENGTH, packing="joined")


def train(model: Model, partition: int, learning_rate: float) -> float:
    """One pass over a user's messages; returns the mean loss."""
    everybody = users()
    own = everybody.examples_of(everybody.users[partition % len(everybody.users)])
    optimiser = torch.optim.SGD(model.parameters(), lr=learning_rate)
    losses = []
    for start in range(0, len(own.features), 16):
        optimiser.zero_grad()
        scores = model(torch.from_numpy(own.features[start : start + 16]))
        targets = torch.from_numpy(own.targets[start : start + 16])
        loss = functional.cross_entropy(scores.flatten(0, 1), targets.flatten())
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    return sum(losses) / len(losses)
