"""What the server does with a released mean: SGD with momentum, or Adam (FedAdam, Reddi et al. 2021).

A released mean is already private, so whatever a server does with it is too. The mean points where the clients want to go
(their updates are final minus initial), so that a step adds.
"""

from dataclasses import dataclass

import numpy as np

from coalmine import _validate
from coalmine.contracts import State, Vector


@dataclass(frozen=True)
class ServerSGD:
    """velocity = momentum · velocity + mean; step = learning_rate · velocity."""

    learning_rate: float = 1.0
    momentum: float = 0.0

    def __post_init__(self) -> None:
        _validate.positive("learning_rate", self.learning_rate)
        if not 0 <= _validate.number("momentum", self.momentum) < 1:
            raise ValueError(f"momentum={self.momentum!r} is not allowed: it must be at least 0 and below 1.")

    def init(self, dim: int) -> State:
        """The velocity, if there is momentum."""
        return {"velocity": np.zeros(dim, dtype=np.float32)} if self.momentum else {}

    def step(self, state: State, mean: Vector) -> tuple[Vector, State]:
        """What to add to the parameters."""
        if not self.momentum:
            return (self.learning_rate * mean).astype(np.float32), {}
        velocity = (self.momentum * state["velocity"] + mean).astype(np.float32)
        return (self.learning_rate * velocity).astype(np.float32), {"velocity": velocity}


@dataclass(frozen=True)
class ServerAdam:
    """Adam on the released mean, with bias correction; `stabiliser` is added to the root of the second moment."""

    learning_rate: float = 0.01
    first_decay: float = 0.9
    second_decay: float = 0.99
    stabiliser: float = 1e-3

    def __post_init__(self) -> None:
        _validate.positive("learning_rate", self.learning_rate)
        _validate.positive("stabiliser", self.stabiliser)
        for name in ("first_decay", "second_decay"):
            if not 0 <= _validate.number(name, getattr(self, name)) < 1:
                raise ValueError(f"{name}={getattr(self, name)!r} is not allowed: it must be at least 0 and below 1.")

    def init(self, dim: int) -> State:
        """Both moments, and how many steps there were."""
        return {
            "first": np.zeros(dim, dtype=np.float32),
            "second": np.zeros(dim, dtype=np.float32),
            "steps": np.zeros((), dtype=np.int64),
        }

    def step(self, state: State, mean: Vector) -> tuple[Vector, State]:
        """What to add to the parameters."""
        first = (self.first_decay * state["first"] + (1 - self.first_decay) * mean).astype(np.float32)
        second = (self.second_decay * state["second"] + (1 - self.second_decay) * np.square(mean)).astype(np.float32)
        steps = int(state["steps"]) + 1
        upward = first / (1 - self.first_decay**steps)
        width = np.sqrt(second / (1 - self.second_decay**steps)) + self.stabiliser
        step = (self.learning_rate * upward / width).astype(np.float32)
        return step, {"first": first, "second": second, "steps": np.array(steps, dtype=np.int64)}
