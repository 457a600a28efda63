"""What every engine of benchmarks/peers.py has in common: the clients' data, the plain model, and taking turns by files.

This file runs in the engines' own environments: it needs numpy and torch alone.
"""

import json
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn

BATCH, RATE = 16, 0.01


def plain_cnn() -> nn.Sequential:
    convolutions = [nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
    return nn.Sequential(nn.Unflatten(1, (1, 28)), *convolutions, nn.Linear(9216, 128), nn.ReLU(), nn.Linear(128, 62))


def load_clients(folder: Path) -> list[tuple[np.ndarray, np.ndarray]]:
    with np.load(folder / "clients.npz", allow_pickle=False) as found:
        return list(zip(found["features"], found["targets"], strict=True))


def train(module: nn.Module, features: torch.Tensor, targets: torch.Tensor) -> None:
    """One epoch of SGD, as everybody writes it."""
    optimizer = torch.optim.SGD(module.parameters(), lr=RATE)
    for rows in torch.randperm(len(targets)).split(BATCH):
        optimizer.zero_grad()
        nn.functional.cross_entropy(module(features[rows]), targets[rows]).backward()
        optimizer.step()


class Turns:
    """A process waits for the file go-N, works, and writes its seconds to NAME-N.json; at the file `stop` it ends."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name, self.number, self.start = folder, name, 0, 0.0

    def next(self) -> bool:
        """Ends the turn before, if there was one, and waits for the next; False if there is none."""
        if self.start:
            self._write(time.perf_counter() - self.start)
            self.number += 1
        while not (self.folder / f"go-{self.name.split('.')[0]}-{self.number}").exists():
            if (self.folder / "stop").exists():
                return False
            time.sleep(0.005)
        self.start = time.perf_counter()
        return True

    def _write(self, seconds: float) -> None:
        aside = self.folder / f"{self.name}-{self.number}.aside"
        aside.write_text(json.dumps({"seconds": seconds}))
        aside.rename(self.folder / f"{self.name}-{self.number}.json")
