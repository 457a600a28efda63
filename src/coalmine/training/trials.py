"""Trials of a mechanism's own code, released to nobody: updates that no client happens to send, and draws under another secret.

Clients and canaries show what becomes of the updates that they send. Between the longest client and a canary, ten thousand clip
norms long, there may be nothing: code that clips by a part of the parameters, from some length on or now and then, would not
be seen. So a few updates of many lengths and shapes pass through the code of a client in every round.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from coalmine.contracts import Array, ByClients, Compared, Description, Mechanism, Public, State, Streams, Vector
from coalmine.mechanisms.gaussian import length
from coalmine.mechanisms.sums import FixedPointSum
from coalmine.training.work import contribute, look

Counted = tuple[tuple[int, int], tuple[int, int]]  # of clients and of canaries: how many, and how many unclipped
Releases = tuple[Vector | None, Vector | None]  # of clients alone, of the same sum
LENGTHS = (0.3, 0.9, 1.02, 1.08, 1.5, 2.0, 5.0, 20.0, 100.0, 1000.0, 1e5, 1e7)  # clip norms
EXAMPLES = (1, 3, 10, 100)
MOST, LEAST = 500, 12  # updates of a run: a fault in 1 % of them is seen with probability 0.99; of a large model fewer
COORDINATES = 1 << 24  # of all updates together, above which there are fewer


@dataclass(frozen=True, eq=False)
class Trials:
    """Of one mechanism, as it describes itself, in a training of so many rounds; all chance is the training's secret."""

    mechanism: Mechanism
    described: Description
    rounds: int
    groups: Mapping[str, slice]
    secret: Streams = field(repr=False)

    def updates(self, public: Public, dim: int) -> Iterator[Compared]:
        """Updates of this round through the code of a client, each beside what the description makes of it."""
        if self.described.clip.over == "example":
            return
        for place in range(_share(public.round, self.rounds, dim)):
            rng = self.secret("trial", public.round, place)
            update = _update(rng, dim, self.groups, public.clip_norm)
            secret = partial(self.secret, "noise of a trial", public.round, place) if self._noise_of_clients else None
            contribution = contribute(self.mechanism, update.copy(), public, int(rng.choice(EXAMPLES)), secret)
            compared = look(self.described, update, contribution, public, self.groups)
            if compared is not None:
                yield compared

    def releases(self, state: State, clients: Array, canaries: Array, public: Public, counted: Counted) -> Releases:
        """What the mechanism makes of the same round under two other secrets; None where clients add it, or rounds share it.

        Of the clients alone: canaries move every coordinate, and code that leaves out the noise where nothing moves shows it
        only without them. Of the very same sum: noise that comes back does not come from the secret. Both in single precision,
        and one after the other: they are of the last round only, and should not be what it needs most memory for.
        """
        if self._noise_of_clients or not self.described.has_noise or not self.described.fresh:
            return None, None
        made: list[Vector] = []
        for name, counts in (("without canaries", counted[:1]), ("released again", counted)):
            total = FixedPointSum(clients.size, public.clip_norm)
            for vector, (count, unclipped) in zip((clients, canaries), counts, strict=False):
                total.add_vector(vector, count=count, unclipped=unclipped)
            release, _ = self.mechanism.release(state, total, public, partial(self.secret, name))
            del total
            made.append(release.vector.astype(np.float32))
            del release
        return made[0], made[1]

    @property
    def _noise_of_clients(self) -> bool:
        noise = self.described.noise
        return noise is not None and isinstance(noise.added_by, ByClients)


def _share(number: int, rounds: int, dim: int) -> int:
    """How many of a run's trials are in this round: they are spread evenly, whatever their number."""
    count = min(MOST, max(LEAST, COORDINATES // dim))
    return (number + 1) * count // rounds - number * count // rounds


def _update(rng: np.random.Generator, dim: int, groups: Mapping[str, slice], clip_norm: float) -> Vector:
    """A random update: everywhere, on few coordinates, on one, in one layer, or in one half."""
    shape, place = int(rng.integers(5)), slice(0, dim)
    if shape == 3 and groups:
        place = list(groups.values())[int(rng.integers(len(groups)))]
    elif shape == 4:
        place = slice(0, max(dim // 2, 1)) if rng.integers(2) else slice(dim // 2, dim)
    made = np.zeros(dim, np.float32)
    if shape in (1, 2):
        some = rng.integers(dim, size=max(dim // 100, 1) if shape == 1 else 1)
        made[some] = rng.choice(np.array([-1.0, 1.0], np.float32), some.size)
    else:
        made[place] = rng.standard_normal(place.stop - place.start, dtype=np.float32)
    scale: Any = np.float32(float(rng.choice(LENGTHS)) * clip_norm / max(length(made), 1e-30))
    return np.asarray(made * scale, dtype=np.float32)
