"""Independent noise, C = I: the strategy that all others are compared with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from coalmine.mechanisms.strategies.banded import Banded
from coalmine.mechanisms.strategies.strategy import CorrelatedStrategy, Plan


@dataclass(frozen=True)
class Independent(Banded):
    """One band.

    >>> round(Independent(16).rms_error(), 6)
    2.915476
    """

    kind: ClassVar[str] = "independent"
    options: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def from_options(cls, options: Mapping[str, Any], plan: Plan) -> CorrelatedStrategy:
        """For so many rounds."""
        return cls(plan.rounds)
