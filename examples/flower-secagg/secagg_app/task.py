"""What is learned, digits by a network of one hidden layer in NumPy; and the audit that both sides know."""

from functools import cache
from typing import Any

import numpy as np
from flwr.app import Context

from coalmine.adapters.flower import Audit

PIXELS, HIDDEN, CLASSES = 64, 64, 10


def initial() -> dict[str, np.ndarray]:
    """The model before training."""
    rng = np.random.default_rng(0)
    hidden, out = rng.standard_normal((PIXELS, HIDDEN)) / 8, rng.standard_normal((HIDDEN, CLASSES)) / 8
    return {"hidden": hidden.astype(np.float32), "out": out.astype(np.float32)}


@cache
def images() -> tuple[np.ndarray, np.ndarray]:
    """Grey values from 0 to 1, and which digit it is."""
    from sklearn.datasets import load_digits

    pixels, classes = load_digits(return_X_y=True)
    return (pixels / 16).astype(np.float32), classes


def train(model: dict[str, np.ndarray], partition: int, partitions: int, rate: float = 0.2) -> dict[str, np.ndarray]:
    """One pass over this client's share of the images."""
    pixels, classes = images()
    x, y = pixels[partition::partitions], classes[partition::partitions]
    hidden, out = model["hidden"].copy(), model["out"].copy()
    for start in range(0, len(x), 32):
        batch, target = x[start : start + 32], y[start : start + 32]
        active = np.maximum(batch @ hidden, 0)
        scores = active @ out
        error = np.exp(scores - scores.max(axis=1, keepdims=True))
        error /= error.sum(axis=1, keepdims=True)
        error[np.arange(len(target)), target] -= 1
        error /= len(target)
        back = (error @ out.T) * (active > 0)
        out -= rate * active.T @ error
        hidden -= rate * batch.T @ back
    return {"hidden": hidden, "out": out}


def audit_of(context: Context, **options: Any) -> Audit:
    """The same audit on both sides: canaries and coins come from a file that the server and canary clients share."""
    config = context.run_config
    return Audit(
        delta=1e-5,
        rounds=int(config["rounds"]),
        pool=int(config["canaries"]),
        secret_file=str(config["secret-file"]),
        **options,
    )
