"""An epsilon that is computed from known inputs and a model of the noise: it tests no code, and never decides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Computed:
    """What an attack would learn if `assumptions` hold. No sampling error, no confidence: it is neither a bound nor a claim."""

    epsilon: float
    delta: float
    method: str
    assumptions: tuple[str, ...]
    details: Mapping[str, float] = field(default_factory=dict)
    valid: bool = False  # it measures nothing of the code

    def __float__(self) -> float:
        return self.epsilon

    def __str__(self) -> str:
        return f"epsilon = {self.epsilon:.4g} at delta = {self.delta:.3g}, computed ({self.method})"
