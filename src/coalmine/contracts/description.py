"""What a mechanism says of itself: one frozen value that the accountant, the auditor and the tests of conformance all read.

    symbol (Choquette-Choo et al. 2023)   here                          meaning
    C, zeta                               Clip.norm                     an update longer than this is clipped to it
    sigma                                 Noise.accounted               what the accountant is told
    sigma                                 Noise.multiplier              on the sum of updates, in clip norms
    W = C⁻¹                               Noise.rounds (a `Strategy`)   noise_t = multiplier · clip · Σ_s W[t, s] z_s

`accounted` and `multiplier` are both stored and never derived from each other: adaptive clipping is accounted at z and adds
z_Delta to the updates. Nothing in a description is secret. JSON stores every part that may be of somebody else's class as
{"kind": ..., "parameters": ...}; a kind that nobody here knows is read as `Opaque`, so that pages still render.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from coalmine.contracts.arrays import Array, State

Over = Literal["update", "layer", "coordinate", "example"]
Denominator = Literal["expected", "realised", "none"]


@dataclass(frozen=True)
class Separation:
    """One client takes part at most `times` times, at least `separation` rounds apart (1: in any rounds)."""

    times: int
    separation: int
    rounds: int

    @property
    def most(self) -> int:
        """The largest number of rounds of one client."""
        return self.times


@dataclass(frozen=True)
class PerPeriod:
    """One client takes part once in each of `times` equal periods: two of its rounds may be neighbours."""

    times: int
    rounds: int

    @property
    def most(self) -> int:
        """The largest number of rounds of one client."""
        return self.times


@dataclass(frozen=True, eq=False)
class Explicit:
    """The sets of rounds themselves: a row for every round, a column for every different set."""

    presence: NDArray[np.bool_]

    @property
    def most(self) -> int:
        """The largest number of rounds of one client."""
        return int(self.presence.sum(axis=0).max(initial=0))

    @property
    def rounds(self) -> int:
        """The number of rounds."""
        return int(self.presence.shape[0])


Constraint = Separation | PerPeriod | Explicit


@runtime_checkable
class Strategy(Protocol):
    """How the noise of a round depends on that of the others: noise_t = multiplier · clip · Σ_s W[t, s] z_s, z_s ~ N(0, I).

    Normalised so that one participation is accounted as one Gaussian of noise `accounted`: the largest column norm of the
    inverse of W is 1.
    """

    kind: ClassVar[str]

    @property
    def memory(self) -> int | None:
        """Vectors that whitening keeps from round to round; None: all of the past."""

    def whiten(self, rows: Array, state: State) -> tuple[Array, State]:
        """Rows of consecutive rounds, in units of multiplier · clip, to rows whose noise is N(0, I); and what to keep."""

    def sensitivity(self, constraint: Constraint) -> float:
        """How far one client moves all whitened rows together, in clip norms: the accountant's mu is this over `accounted`."""


@dataclass(frozen=True)
class Fresh:
    """New noise in every round, independent of all before."""

    kind: ClassVar[str] = "fresh"

    @property
    def memory(self) -> int:
        """Nothing is kept."""
        return 0

    def whiten(self, rows: Array, state: State) -> tuple[Array, State]:
        """The rows as they are."""
        return rows, state

    def sensitivity(self, constraint: Constraint) -> float:
        """The root of the number of rounds."""
        return math.sqrt(constraint.most)


@dataclass(frozen=True)
class Isotropic:
    """The same noise in every coordinate."""

    kind: ClassVar[str] = "isotropic"


@dataclass(frozen=True)
class AtLeast:
    """A covariance of at least floor² in every direction, in clip norms: noise is added where the data have too little.

    With several `blocks` of coordinates each is filled by itself, and its weights are its own.
    """

    floor: float
    blocks: int = 1
    kind: ClassVar[str] = "at-least"


@dataclass(frozen=True)
class ByServer:
    """The server adds the noise."""

    kind: ClassVar[str] = "server"


@dataclass(frozen=True)
class ByClients:
    """Every client adds a part of the noise; the claim counts on `honest` of `count` clients in a round."""

    count: int
    honest: int
    kind: ClassVar[str] = "clients"


@dataclass(frozen=True)
class Opaque:
    """A part whose kind is not known here, as it was read from a file."""

    kind: str
    parameters: Mapping[str, Any]


Part = Any  # a `Strategy`, or one of the small classes above, or somebody else's with a `kind`


@dataclass(frozen=True)
class Clip:
    """How contributions are bounded. `norm` None: announced anew in every round; several: one for every layer."""

    norm: float | tuple[float, ...] | None
    over: Over = "update"
    by: Literal["client", "server"] = "client"


@dataclass(frozen=True)
class Noise:
    """Gaussian noise: what is accounted, what is added to the sum of updates in clip norms, and its structure."""

    accounted: float
    multiplier: float
    rounds: Part = Fresh()
    coordinates: Part = Isotropic()
    added_by: Part = ByServer()


@dataclass(frozen=True)
class Extra:
    """A further release with noise of its own, as the number of unclipped updates that adaptive clipping follows."""

    kind: str
    noise: float  # standard deviation, in what one client can change
    target: float | None = None
    rate: float | None = None


@dataclass(frozen=True)
class ProtectedExamples:
    """What single examples have to do with an update, where they are protected and not clients.

    Each client has `count` of them. Its update is their mean ("equal"), the mean of a secret batch drawn without replacement
    ("batch"), or their sum with secret weights N(1/count, 1/(batch count)) ("gaussian").
    """

    count: int
    batch: int
    weights: Literal["equal", "batch", "gaussian"] = "equal"


@dataclass(frozen=True)
class Description:
    """A mechanism in one value; `noise` None: the application states an epsilon, and not how it is reached."""

    clip: Clip
    noise: Noise | None
    denominator: Denominator = "expected"
    extras: tuple[Extra, ...] = ()
    examples: ProtectedExamples | None = None  # None: clients are protected, whatever examples they have

    def scaled(self, factor: float) -> Description:
        """The same mechanism with so many times its noise: what would be claimed for half of it, say.

        >>> Description(Clip(1.0), Noise(1.0, 1.0)).scaled(0.5).noise.accounted
        0.5
        """
        if self.noise is None:
            return self
        coordinates = self.noise.coordinates
        if isinstance(coordinates, AtLeast):
            coordinates = replace(coordinates, floor=coordinates.floor * factor)
        noise = replace(
            self.noise,
            accounted=self.noise.accounted * factor,
            multiplier=self.noise.multiplier * factor,
            coordinates=coordinates,
        )
        return replace(self, noise=noise, extras=tuple(replace(each, noise=each.noise * factor) for each in self.extras))

    @property
    def fresh(self) -> bool:
        """Whether the noise of a round is independent of that of all others."""
        return self.noise is None or isinstance(self.noise.rounds, Fresh)

    @property
    def design(self) -> Strategy | None:
        """How the noise of a round depends on that of others; None: it does not, or nobody here knows how."""
        if self.noise is None or self.fresh or isinstance(self.noise.rounds, Opaque):
            return None
        known: Strategy = self.noise.rounds
        return known

    @property
    def has_noise(self) -> bool:
        """Whether noise is stated, and is not zero."""
        return self.noise is not None and self.noise.accounted > 0

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        noise = None
        if self.noise is not None:
            noise = {
                "accounted": self.noise.accounted,
                "multiplier": self.noise.multiplier,
                **{name: _part(getattr(self.noise, name)) for name in PARTS},
            }
        clip = {**vars(self.clip), "norm": list(self.clip.norm) if isinstance(self.clip.norm, tuple) else self.clip.norm}
        found = {"clip": clip, "noise": noise, "denominator": self.denominator, "extras": [dict(vars(e)) for e in self.extras]}
        return found if self.examples is None else {**found, "examples": dict(vars(self.examples))}


PARTS = ("rounds", "coordinates", "added_by")  # of the noise, each of a class that somebody else may have written
Reader = Callable[[str, Mapping[str, Any]], Any]  # (kind, parameters) to the part
_KNOWN = {each.kind: each for each in (Fresh, Isotropic, AtLeast, ByServer, ByClients)}


def known_part(kind: str, parameters: Mapping[str, Any]) -> Any:
    """A part of a kind of this module; others are `Opaque`."""
    made = _KNOWN.get(kind)
    return Opaque(kind, dict(parameters)) if made is None else made(**parameters)


def read_description(data: Mapping[str, Any], part: Reader = known_part) -> Description:
    """The inverse of `Description.to_dict`; what does not fit is a ValueError.

    Keys that a later version adds are left out. A part with parameters that are not known here is `Opaque`: without them it
    would be another one.
    """
    try:
        noise, clip = data["noise"], _known(Clip, data["clip"])
        if isinstance(clip["norm"], list):
            clip["norm"] = tuple(float(each) for each in clip["norm"])
        made = None
        if noise is not None:
            parts = {name: _read_part(part, str(noise[name]["kind"]), dict(noise[name]["parameters"])) for name in PARTS}
            made = Noise(float(noise["accounted"]), float(noise["multiplier"]), **parts)
        extras = tuple(Extra(**_known(Extra, each)) for each in data["extras"])
        single = None if data.get("examples") is None else ProtectedExamples(**_known(ProtectedExamples, data["examples"]))
        return Description(Clip(**clip), made, data["denominator"], extras, single)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"the description of the mechanism cannot be read: {error!r}") from None


def _known(kind: type[Any], stored: Mapping[str, Any]) -> dict[str, Any]:
    names = [item.name for item in fields(kind)]
    return {name: value for name, value in dict(stored).items() if name in names}


def _read_part(part: Reader, kind: str, parameters: Mapping[str, Any]) -> Any:
    try:
        return part(kind, parameters)
    except TypeError:
        return Opaque(kind, parameters)


def _part(value: Any) -> dict[str, Any]:
    if isinstance(value, Opaque):
        return {"kind": value.kind, "parameters": dict(value.parameters)}
    return {"kind": value.kind, "parameters": {item.name: _plain(getattr(value, item.name)) for item in fields(value)}}


def _plain(value: Any) -> Any:
    """A parameter; one that is a part itself, as the strategy that is restarted, in the same form."""
    return _part(value) if hasattr(value, "kind") and is_dataclass(value) else value
