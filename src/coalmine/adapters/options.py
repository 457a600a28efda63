"""What an audit of another engine's training may be told beyond the few words of every audit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from coalmine import _validate, config
from coalmine.federation import OVER_LONG

PRIMARY = "known-others"
WITHOUT_OTHERS = "known-rounds"  # where an engine does not show what the clients sent
_VIEWS: tuple[config.ViewName, ...] = ("final-model", "every-release", "known-rounds", "known-others")


@dataclass(frozen=True)
class Statement:
    """What decides, and what is shown beside it; fixed before the first release.

    `view` is the adversary; "auto" knows what all others sent, or only the rounds, if the engine does not show the others.
    Every other name means what it means in the section `[audit]` of a configuration.
    """

    view: str = "auto"
    bound: str = "band"
    also: Sequence[str] = ()
    views: Sequence[str] = _VIEWS
    null: str = "auto"
    confidence: float = 0.95
    layers: bool = False
    unused_rows: int = 8192

    def section(self) -> dict[str, Any]:
        """As a section of a configuration."""
        config = {**vars(self), "also": tuple(self.also), "views": tuple(self.views)}
        return config | {"view": PRIMARY if self.view == "auto" else self.view}


@dataclass(frozen=True)
class Replies:
    """What a canary's reply says: how many clip norms long it is, and of how many examples.

    Code that weighs clients by their examples is at its worst with the largest number that a client may say: `examples`, by
    default the largest seen so far.
    """

    over_long: float = OVER_LONG
    examples: float | None = None

    def __post_init__(self) -> None:
        _validate.positive("over_long", self.over_long)
        if self.examples is not None:
            _validate.positive("examples", self.examples)


@dataclass(frozen=True)
class Stated:
    """What the application says of its privacy where its strategy does not: clipping and noise, or a claim (an epsilon)."""

    clip_norm: float | None = None
    noise_multiplier: float | None = None
    claim: float | None = None

    def __post_init__(self) -> None:
        if self.clip_norm is not None:
            _validate.positive("clip_norm", self.clip_norm)
        if self.noise_multiplier is not None:
            _validate.non_negative("noise_multiplier", self.noise_multiplier)
        if self.claim is not None:
            _validate.non_negative("claim", self.claim)


AS_EVER, OVER_LONG_ONES, NOTHING = Statement(), Replies(), Stated()
