"""The noise does not come from a guessable seed: it is compared with what common generators make of seeds that people choose.

Seeds are 0 … 1000 and a few favourites, the run's public seed, the round's number, and sums and pairs of these; the clock, in
whole seconds, of which only a hit is remembered, so that a result does not depend on the time of day. Generators are
those of NumPy, of Python, and of PyTorch and JAX where they are loaded: a library that is not loaded has not made the noise.

A key that nobody guesses but its owner shows where the last round is released once more under another secret, as the trainer
does with its clients alone and with the very same sum (whose noise a seed that is made of the sum repeats): the noises must be
independent.

Where a trainer holds the generator of the noise, and its seed is one that can be tried, it draws the noise of a round once more
from the generator's state before it (`Observed.redrawn`): then it does not matter how many numbers were drawn since the seed.
"""

from __future__ import annotations

import math
import random
import sys
import time
from collections.abc import Callable
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from coalmine.conformance.check import Check, Memory, Round, Subject, Summed, found, needs_noise
from coalmine.conformance.laws import Tail, cosine, worst
from coalmine.conformance.residual import BEGINNING, Residuals, beginnings
from coalmine.contracts import Array, Finding, NotTested

NUMBERS = BEGINNING  # coordinates that are compared: a right guess has a cosine of 1, others about 1/16
FAVOURITES = (
    *(1234, 1337, *range(1950, 2040), 4242, 12345, 31337, 42424242, 123456, 1234567, 123456789, 987654321),
    *(1111, 1729, 2222, 2718, 3141, 3333, 3407, 4321, 4357, 4444, 5489, 5555, 6666, 7777, 8888, 9999, 10_000),
    *(31415, 65535, 65536, 99999, 271828, 314159, 0xBADC0DE, 0xC0FFEE, 0xDEADBEEF, 2**31 - 1, 2**32 - 1),
)
UNSEEDED = 67280421310721  # of a `torch.Generator()` that nobody has seeded: the same in every process
_LARGEST = 2**32
_SECONDS = 4  # of the clock that are tried in a round: training takes longer, the noise is drawn at its end
_WIDTH = 80  # of words that are remembered
_HIT = 0.9  # cosine of a right guess
Numbers = NDArray[np.float32]


def _legacy(seed: Any) -> Any:
    return np.random.RandomState(seed).standard_normal(NUMBERS)


def _generator(seed: Any) -> Any:
    return np.random.default_rng(seed).standard_normal(NUMBERS)


def _single(seed: Any) -> Any:
    return np.random.default_rng(seed).standard_normal(NUMBERS, dtype=np.float32)


def _philox(seed: Any) -> Any:
    return np.random.Generator(np.random.Philox(seed)).standard_normal(NUMBERS)


def _mersenne(seed: Any) -> Any:
    return np.random.Generator(np.random.MT19937(seed)).standard_normal(NUMBERS)


def _python(seed: int) -> Any:
    draw = random.Random(seed).gauss
    return [draw(0.0, 1.0) for _ in range(NUMBERS)]


def _python_variate(seed: int) -> Any:
    draw = random.Random(seed).normalvariate
    return [draw(0.0, 1.0) for _ in range(NUMBERS)]


def _torch(seed: int, double: bool = False) -> Any:
    torch = sys.modules["torch"]
    made = torch.Generator().manual_seed(seed)
    return torch.randn(2 * NUMBERS, generator=made, dtype=torch.float64 if double else torch.float32)[:NUMBERS].numpy()


def _torch_double(seed: int) -> Any:
    return _torch(seed, double=True)


OF_NUMBERS: dict[str, Callable[[int], Any]] = {
    "numpy.random.seed": _legacy,
    "numpy.random.default_rng": _generator,
    "numpy.random.default_rng in float32": _single,
    "numpy.random.Philox": _philox,
    "numpy.random.MT19937": _mersenne,
    "random.gauss": _python,
    "random.normalvariate": _python_variate,
}
OF_TORCH: dict[str, Callable[[int], Any]] = {"torch.manual_seed": _torch, "torch.manual_seed in float64": _torch_double}
OF_PAIRS: dict[str, Callable[[Any], Any]] = {"numpy.random.default_rng": _generator, "numpy.random.seed": _legacy}


@lru_cache(maxsize=2)
def _table(with_torch: bool) -> tuple[Numbers, tuple[tuple[str, int], ...]]:
    """Rows of unit length for all seeds that do not depend on the run, and what each is."""
    made = OF_NUMBERS | (OF_TORCH if with_torch else {})
    names = tuple((name, seed) for name in made for seed in (*range(1001), *FAVOURITES))
    names += tuple((name, UNSEEDED) for name in OF_TORCH if with_torch)
    return _unit([made[name](seed) for name, seed in names]), names


@lru_cache(maxsize=512)
def _row(name: str, seed: Any) -> Numbers:
    """What a generator makes of a seed, of unit length: the next round tries some of the same seeds again."""
    if isinstance(seed, tuple):
        made = OF_PAIRS[name]([each % _LARGEST for each in seed])
    else:
        made = (OF_NUMBERS | OF_TORCH)[name](seed % _LARGEST)
    row: Numbers = _unit([made])[0]
    row.setflags(write=False)
    return row


def _of_the_round(number: int, seed: int, with_torch: bool) -> tuple[Numbers, tuple[tuple[str, Any], ...]]:
    """The same for seeds that follow from the round and the run's public seed."""
    single = {number, number + 1, seed, seed + number, seed + number + 1, seed ^ number, 1000 * seed + number}
    single = {each % _LARGEST for each in single if not 0 <= each <= 1000}
    made = OF_NUMBERS | (OF_TORCH if with_torch else {})
    names: list[tuple[str, Any]] = [(name, each) for name in made for each in sorted(single)]
    pairs = sorted({(seed, number), (number, seed), (seed, number + 1), (0, number), (number, 0), (42, number)})
    names += [(name, pair) for pair in pairs for name in OF_PAIRS]
    return np.stack([_row(*each) for each in names]), tuple(names)


def _of_jax(number: int, seed: int, dim: int, loaded: Any) -> tuple[Numbers, tuple[tuple[str, Any], ...]]:
    """What JAX makes depends on the shape: few seeds, and the whole vector for each."""
    seeds = sorted({0, 1, 42, number, seed, seed + number})
    rows = [np.asarray(loaded.random.normal(loaded.random.PRNGKey(each), (dim,)))[:NUMBERS] for each in seeds]
    return _unit(rows), tuple(("jax.random.PRNGKey", each) for each in seeds)


def _of_the_clock(with_torch: bool) -> tuple[Numbers, tuple[tuple[str, Any], ...]]:
    """The same for the seconds before now: the time at which the noise was drawn."""
    now, made = int(time.time()), OF_NUMBERS | (OF_TORCH if with_torch else {})
    names = tuple((name, now - ago) for name in made for ago in range(_SECONDS))
    return np.stack([_row(*each) for each in names]), names


class NoiseUnpredictable:
    """The largest cosine of the beginnings of a round's noise with what a guessed seed makes; or of all with a second one."""

    key: ClassVar[str] = "noise-unpredictable"

    def applies(self, subject: Subject) -> str | None:
        """Where noise is claimed, of enough coordinates."""
        return needs_noise(subject) or ("few-coordinates" if subject.dim < NUMBERS else None)

    def init(self, subject: Subject) -> Memory:
        """The largest cosine, its round, what was guessed; how many guesses; cosines under other secrets, of how many; of
        noise that was drawn once more the cosine, coordinates, the round and how many were tried, and the generator."""
        return {
            "largest": np.zeros(2),
            "tried": np.zeros(1),
            "guess": _text(""),
            "others": np.zeros((2, 2)),
            "redrawn": np.zeros(4),
            "generator": _text(""),
        }

    def observe(self, memory: Memory, seen: Round, subject: Subject) -> None:
        """One round."""
        noise = seen.shaped
        if noise is None:
            return
        for place, other in enumerate((seen.bare, seen.again)):
            if other is not None:
                memory["others"][place] = _cosine(noise.values, other), other.size
        for guess in seen.seen.redrawn:
            memory["redrawn"][3] += 1
            same = _cosine(noise.values, Summed(((1.0, guess.values),)))
            if same > memory["redrawn"][0]:
                memory["redrawn"][:3] = same, guess.values.size, seen.seen.round
                memory["generator"] = _text(guess.generator)
        parts = _unit(_parts(noise.values, subject))
        number, torch, jax = seen.seen.round, "torch" in sys.modules, sys.modules.get("jax")
        tables = [_table(torch), _of_the_round(number, subject.seed, torch)]
        if jax is not None and hasattr(jax, "random"):
            tables.append(_of_jax(number, subject.seed, subject.dim, jax))
        tables.append(_of_the_clock(torch))
        for rows, names in tables:
            cosines = np.abs(rows @ parts.T)
            row, part = np.unravel_index(int(np.argmax(cosines)), cosines.shape)
            memory["tried"] += cosines.size
            largest = round(abs(float(np.einsum("i,i->", rows[row], parts[part], dtype=np.float64))), 6)
            if largest > memory["largest"][0] and (largest > _HIT or rows is not tables[-1][0]):
                memory["largest"] = np.array([largest, number], dtype=np.float64)
                memory["guess"] = _text(f"{names[row][0]}, seed {names[row][1]}")

    def conclude(self, memory: Memory, shared: Memory, subject: Subject) -> Finding | NotTested:
        """The best guess; none is expected to be near."""
        tried = float(memory["tried"][0])
        if not tried:
            return NotTested(self.key, "noise-too-small")
        largest, number = memory["largest"]
        tails = [
            Tail(min(1.0, tried * cosine(float(largest), NUMBERS)), where=f"round {int(number) + 1}: {_said(memory, 'guess')}")
        ]
        cosines = [float(largest)]
        again, dim, at, times = memory["redrawn"].tolist()
        if times:
            where = f"round {int(at) + 1}: {_said(memory, 'generator')}"
            tails.append(Tail(min(1.0, times * cosine(again, int(dim))) if dim else 1.0, where=where))
            cosines.append(again)
        for (same, dim), what in zip(memory["others"].tolist(), ("clients alone", "sum"), strict=True):
            if dim:
                tails.append(Tail(cosine(same, int(dim)), where=f"the last round's {what}, released under another secret"))
                cosines.append(same)
        nearest = min(range(len(tails)), key=lambda place: tails[place].p_value)
        return found(self.key, worst(tails), claimed=0.0, measured=cosines[nearest], guesses=int(tried))


def _text(said: str) -> NDArray[np.uint8]:
    return np.frombuffer(said.encode()[:_WIDTH].ljust(_WIDTH), np.uint8).copy()


def _said(memory: Memory, name: str) -> str:
    return memory[name].tobytes().decode(errors="replace").strip()


def _parts(values: Array, subject: Subject) -> list[Array]:
    """The beginnings of a vector of which all, or some coordinates are there."""
    taken, starts = Residuals(subject).coordinates, np.array(beginnings(subject))
    if taken is not None:
        starts = np.searchsorted(taken, starts)
    return [values[start : start + NUMBERS] for start in starts]


def _cosine(first: Array, second: Summed) -> float:
    """|cosine|; 0 where one of them is nothing."""
    product = one = two = 0.0
    for block, other in second.blocks():
        part = first[block]
        product += float(np.einsum("i,i->", part, other))
        one += float(np.einsum("i,i->", part, part))
        two += float(np.einsum("i,i->", other, other))
    return min(abs(product) / max(math.sqrt(one * two), 1e-300), 1.0)


def _unit(rows: list[Any]) -> Numbers:
    table = np.array(rows, dtype=np.float32)
    lengths: Array = np.sqrt(np.einsum("ij,ij->i", table, table, dtype=np.float64))
    return np.asarray(table / lengths[:, None], dtype=np.float32)


GUESSES: tuple[Check, ...] = (NoiseUnpredictable(),)
