"""Faults invented without a look at the tests that are to find them, each audited on the preset `tiny`.

Every fault is a mechanism, a participation pattern or a data set that says of itself what the right one says. Each one either
weakens privacy or makes the claim false; its docstring says how. Noise and clipping are subclasses of `Gaussian`, sampling
faults are patterns with a line of their own in `coalmine.participation.PATTERNS`, which is all that a user needs to do.

The secret seeds are fixed, so that the table can be made again. Nothing was tuned after the first audit: misses stay in.

Writes benchmarks/results/blind_faults.json and docs/blind-faults.md.

    python benchmarks/blind_faults.py [--seeds 3] [--right 5] [--only NAME ...] [--page] [--look]
"""

import argparse
import hashlib
import json
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.fft import dct
from scipy.special import ndtri
from scipy.stats import binom, chi2

from coalmine import data
from coalmine._random import stream
from coalmine.contracts import Contribution, Public, Release, Streams, Total
from coalmine.mechanisms import Gaussian
from coalmine.participation import PATTERNS, Epochs, FixedSize, Poisson
from coalmine.training import Task, run
from coalmine.training.assembly import load_task
from coalmine.training.config import read_config

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "blind_faults.json"  # of the blind trial: not to be made again
NOW = HERE / "results" / "blind_faults_now.json"
PAGE = HERE.parent / "docs" / "blind-faults.md"
ALWAYS = ["run.workers=1", "run.reference=false"]
POISSON = ["participation.rounds=24", "participation.cohort_size=24"]
ROUNDS = 24  # of the preset
VENDOR_KEY = 0x5EED_0F_7E4D04  # known to whoever wrote the code
WORDS = ("VIOLATED", "DEVIATES", "INCONCLUSIVE", "CONSISTENT")


def public(*names: Any) -> np.random.Generator:
    """A generator that everybody can make: constants of the code are known."""
    return np.random.default_rng(zlib.crc32(repr(names).encode()))


# ---------------------------------------------------------------------------------------------------------------- noise


class OnePercentShort(Gaussian):
    """The noise multiplier is rounded down in a table of settings: 1 % less noise, so epsilon is larger than claimed."""

    @property
    def update_noise_multiplier(self) -> float:
        return 0.99 * self.noise_multiplier


class LostPackets(Gaussian):
    """Half a percent of the coordinates, others in every round, lose their noise on the way and are released bare."""

    def noise(self, dim: int, public: Public, secret: Streams) -> np.ndarray:
        lost = secret("lost", public.round).random(dim) < 0.005
        return np.where(lost, 0.0, super().noise(dim, public, secret))


class Annealed(Gaussian):
    """A schedule lowers the noise by 8 % in the last two rounds; the accountant was told of no schedule."""

    def noise(self, dim: int, public: Public, secret: Streams) -> np.ndarray:
        return super().noise(dim, public, secret) * (0.92 if public.round >= ROUNDS - 2 else 1.0)


class ShuffledCache(Gaussian):
    """Every second round takes the noise of the round before, with places and signs shuffled by a generator that is public:
    undo the shuffle, subtract, and the noise of two rounds is gone."""

    def noise(self, dim: int, public_: Public, secret: Streams) -> np.ndarray:
        found = super().noise(dim, replace(public_, round=public_.round // 2 * 2), secret)
        if public_.round % 2:
            rng = public("shuffle", public_.round)
            found = found[rng.permutation(dim)] * rng.choice([-1.0, 1.0], dim)
        return found


def rotated(vector: np.ndarray, number: int) -> np.ndarray:
    """A rotation that everybody knows, another one for every number."""
    for step in range(2):
        vector = dct(vector * public("rotation", number, step).choice([-1.0, 1.0], vector.size), norm="ortho")
    return vector


class RotatedCache(Gaussian):
    """Noise is drawn once; each round takes a publicly known rotation of it. Rotate back, subtract two rounds: no noise."""

    def noise(self, dim: int, public: Public, secret: Streams) -> np.ndarray:
        return rotated(super().noise(dim, replace(public, round=0), secret), public.round)


class RotatedAndRescaled(Gaussian):
    """As rotated-cache, but the length is drawn anew in each round, so that it varies as it should: one unknown number a
    round is all the noise that is left."""

    def noise(self, dim: int, public: Public, secret: Streams) -> np.ndarray:
        found = rotated(super().noise(dim, replace(public, round=0), secret), public.round)
        return found * np.sqrt(secret("length", public.round).chisquare(dim)) / np.linalg.norm(found)


class SinglePrecision(Gaussian):
    """The noise is float32, the sum finer: the lowest bits of every released number are those of the sum, without noise."""

    def noise(self, dim: int, public: Public, secret: Streams) -> np.ndarray:
        return secret("noise", public.round).standard_normal(dim, dtype=np.float32).astype(np.float64)


class NoiseTable(Gaussian):
    """Noise is read from a table of 65,536 normal numbers, shipped with the code, from a random place on: 65,536 guesses."""

    def noise(self, dim: int, public_: Public, secret: Streams) -> np.ndarray:
        table = public("table").standard_normal(1 << 16)
        return np.take(table, int(secret("start", public_.round).integers(1 << 16)) + np.arange(dim), mode="wrap")


class TwelveUniforms(Gaussian):
    """Twelve uniform numbers added, minus six: never beyond six, tails too light, so that far outcomes prove presence."""

    def noise(self, dim: int, public: Public, secret: Streams) -> np.ndarray:
        return secret("noise", public.round).random((12, dim)).sum(axis=0) - 6.0


class SixteenBits(Gaussian):
    """Normal quantiles of 16-bit uniform numbers: noise has 65,536 values, so that a release fits the true sum alone."""

    def noise(self, dim: int, public: Public, secret: Streams) -> np.ndarray:
        return ndtri((secret("noise", public.round).integers(1 << 16, size=dim) + 0.5) / (1 << 16))


class Mirrored(Gaussian):
    """Antithetic noise: the second half of the vector is minus the first, backwards. A sum of two mirrored coordinates is
    released without noise."""

    def noise(self, dim: int, public: Public, secret: Streams) -> np.ndarray:
        found = super().noise(dim, public, secret)
        found[dim - dim // 2 :] = -found[: dim // 2][::-1]
        return found


class InSubspace(Gaussian):
    """To save time noise is drawn in an eighth of the dimensions and spread by a public transform: seven eighths of all
    directions have no noise at all, though every coordinate has the right one."""

    def noise(self, dim: int, public_: Public, secret: Streams) -> np.ndarray:
        few = np.zeros(dim)
        drawn = public("subspace").permutation(dim)[: dim // 8]
        few[drawn] = secret("noise", public_.round).standard_normal(drawn.size) * np.sqrt(dim / drawn.size)
        return dct(few * public("signs").choice([-1.0, 1.0], dim), norm="ortho")


class ContentSeed(Gaussian):
    """The seed is a hash of the sum, for reproducible runs: who guesses the sum can compute the release and compare."""

    def release(self, state: Any, total: Total, public: Public, secret: Streams) -> tuple[Release, Any]:
        seed = int.from_bytes(hashlib.sha256(total.vector().tobytes()).digest()[:16], "big")
        return super().release(
            state, total, public, lambda *names: np.random.default_rng([seed, zlib.crc32(repr(names).encode())])
        )


class VendorKey(Gaussian):
    """The seed is a constant of the code and the round: whoever wrote the code subtracts the noise."""

    def noise(self, dim: int, public: Public, secret: Streams) -> np.ndarray:
        return np.random.default_rng([VENDOR_KEY, public.round]).standard_normal(dim)


class ClockSeed(Gaussian):
    """The seed is the time in whole seconds: anybody who knows the day has 86,400 guesses."""

    def noise(self, dim: int, public: Public, secret: Streams) -> np.ndarray:
        return np.random.RandomState(int(time.time()) + public.round).standard_normal(dim)


class BestOfFour(Gaussian):
    """Of four draws the one that spoils the sum least is taken: the noise depends on the data that it is to hide."""

    def release(self, state: Any, total: Total, public: Public, secret: Streams) -> tuple[Release, Any]:
        vector = total.vector()
        draws = [secret("noise", public.round, "draw", number).standard_normal(vector.size) for number in range(4)]
        return released(self, state, vector, max(draws, key=lambda draw: float(draw @ vector)), public)


class Centred(Gaussian):
    """The mean of the noise is subtracted from it, against a bias: the mean of all coordinates is released without noise."""

    def noise(self, dim: int, public: Public, secret: Streams) -> np.ndarray:
        found = super().noise(dim, public, secret)
        return found - found.mean()


class Standardised(Gaussian):
    """The noise is divided by its standard deviation, so that it is 'exact': its length is known, and what the length of a
    release has beyond it is the sum's."""

    def noise(self, dim: int, public: Public, secret: Streams) -> np.ndarray:
        found = super().noise(dim, public, secret)
        return found / np.sqrt(np.mean(found**2))


class FollowsCohort(Gaussian):
    """Noise in proportion to those who really came: less than claimed in small rounds, and it tells how many they were."""

    def release(self, state: Any, total: Total, public: Public, secret: Streams) -> tuple[Release, Any]:
        vector = total.vector()
        noise = self.noise(vector.size, public, secret) * (total.count / public.denominator)
        return released(self, state, vector, noise, public)


class QuietBiases(Gaussian):
    """The ten biases of the output layer have 80 % of the noise: they tell most about a client's labels."""

    def noise(self, dim: int, public: Public, secret: Streams) -> np.ndarray:
        found = super().noise(dim, public, secret)
        found[-10:] *= 0.8
        return found


class QuietPeaks(Gaussian):
    """The hundredth of the coordinates where the sum is largest has 60 % of the noise, 'to keep the signal'."""

    def release(self, state: Any, total: Total, public: Public, secret: Streams) -> tuple[Release, Any]:
        vector = total.vector()
        noise = self.noise(vector.size, public, secret)
        noise[np.argsort(np.abs(vector))[-vector.size // 100 :]] *= 0.6
        return released(self, state, vector, noise, public)


def released(mechanism: Gaussian, state: Any, vector: np.ndarray, noise: np.ndarray, public: Public) -> tuple[Release, Any]:
    """The noisy mean, with noise that was made elsewhere."""
    noisy = (vector + mechanism.update_noise_multiplier * public.clip_norm * noise) / public.denominator
    return Release(public.round, noisy, public.clip_norm, public.denominator), state


# ------------------------------------------------------------------------------------------------------------- clipping


def clipped(update: np.ndarray, norm: float, public: Public) -> Contribution:
    """An update, cut to the clip norm by what is believed to be its norm."""
    kept = update if norm <= public.clip_norm else update * (public.clip_norm / norm)
    return Contribution(kept, unclipped=norm <= public.clip_norm)


class TenPercentSlack(Gaussian):
    """A tolerance in a comparison: an update up to 10 % too long is not cut, and moves the sum by more than a clip norm."""

    def client(self, update: np.ndarray, public: Public, examples: int = 1) -> Contribution:
        if np.linalg.norm(update) <= 1.1 * public.clip_norm:
            return Contribution(update, unclipped=True)
        return super().client(update, public, examples)


class GrossOutliersOnly(Gaussian):
    """Only updates longer than a hundred clip norms are cut, 'since others do not occur': one that does moves the sum by up
    to a hundred clip norms."""

    def client(self, update: np.ndarray, public: Public, examples: int = 1) -> Contribution:
        if np.linalg.norm(update) <= 100 * public.clip_norm:
            return Contribution(update, unclipped=True)
        return super().client(update, public, examples)


class SketchedNorm(Gaussian):
    """The norm is estimated from a sketch of 256 numbers, right up to about 5 %: half of what is cut stays too long."""

    def client(self, update: np.ndarray, public_: Public, examples: int = 1) -> Contribution:
        rng = public("sketch")
        places, signs = rng.integers(256, size=update.size), rng.choice([-1.0, 1.0], update.size)
        return clipped(update, float(np.linalg.norm(np.bincount(places, signs * update, minlength=256))), public_)


class MedianNorm(Gaussian):
    """A 'robust' norm: 64 pieces, the median of their squares times 64. Right for spread-out vectors, far too small for an
    update that lives in few coordinates, which is then hardly cut."""

    def client(self, update: np.ndarray, public: Public, examples: int = 1) -> Contribution:
        pieces = [float(np.square(piece, dtype=np.float64).sum()) for piece in np.array_split(update, 64)]
        return clipped(update, float(np.sqrt(64 * np.median(pieces))), public)


class QuantisedAfterwards(Gaussian):
    """Updates are cut and then rounded at random to 8 bits for the wire: rounding makes them longer than the clip norm."""

    def client(self, update: np.ndarray, public_: Public, examples: int = 1) -> Contribution:
        sent = super().client(update, public_, examples)
        grain = max(float(np.abs(sent.vector).max()), 1e-12) / 127
        chance = np.random.default_rng(zlib.crc32(update.tobytes())).random(update.size)
        return replace(sent, vector=np.floor(sent.vector / grain + chance) * grain)


class CreepingNorm(Gaussian):
    """Clients raise the clip norm by half a percent a round, the server's noise does not follow: 12 % too much at the end."""

    def client(self, update: np.ndarray, public: Public, examples: int = 1) -> Contribution:
        return super().client(update, replace(public, clip_norm=public.clip_norm * 1.005**public.round), examples)


class TwoFaces(Gaussian):
    """The clipped update stands in the field that is looked at, and one that is a tenth longer goes into the sum."""

    def client(self, update: np.ndarray, public: Public, examples: int = 1) -> Contribution:
        shown = super().client(update, public, examples)
        return replace(shown, vector=shown.vector * 1.1, without_noise=shown.vector)


class SmallClientsCountMore(Gaussian):
    """A client with fewer than ten examples is weighted up after clipping, 'for fairness': beyond the clip norm."""

    def client(self, update: np.ndarray, public: Public, examples: int = 1) -> Contribution:
        sent = super().client(update, public, examples)
        return sent if examples >= 10 else replace(sent, vector=sent.vector * (10 / examples))


class OneInTwoHundred(Gaussian):
    """A race between threads: one update in two hundred is sent before it is cut."""

    def client(self, update: np.ndarray, public: Public, examples: int = 1) -> Contribution:
        if zlib.crc32(update.tobytes()) % 200 == 0:
            return Contribution(update, unclipped=True)
        return super().client(update, public, examples)


# ------------------------------------------------------------------------------------------------------------- sampling


class FavouredTenth(Poisson):
    """A tenth of the clients, the fast devices, comes half as often again as claimed, the others a little less."""

    def _draw(self, population: int, rounds: int, streams: Streams, start: int) -> Iterator[np.ndarray]:
        rates = np.where(np.arange(population) % 10 == 0, 1.5, 1 - 0.5 / 9) * self.rate
        for number in range(start, rounds):
            yield np.flatnonzero(streams("cohort", number).random(population) < rates)


class MoreInTheEnd(Poisson):
    """The rate is 30 % higher in the last third of the rounds, to 'finish faster'."""

    def _draw(self, population: int, rounds: int, streams: Streams, start: int) -> Iterator[np.ndarray]:
        for number in range(start, rounds):
            rate = self.rate * (1.3 if 3 * number >= 2 * rounds else 1.0)
            yield np.flatnonzero(streams("cohort", number).random(population) < rate)


class Sticky(Poisson):
    """Half of a cohort stays for the next round, as connections are open; each round alone looks right. Amplification by
    sampling needs independent rounds."""

    def _draw(self, population: int, rounds: int, streams: Streams, start: int) -> Iterator[np.ndarray]:
        present = np.zeros(population, bool)
        for number in range(rounds):
            rng = streams("cohort", number)
            new, stays = rng.random(population) < self.rate, rng.random(population) < 0.5
            present = np.where(stays, present, new) if number else new
            if number >= start:
                yield np.flatnonzero(present)


class HashedClients(Poisson):
    """A client comes if a hash of its number and the round is small: anybody can compute who came, and nothing is amplified."""

    def _draw(self, population: int, rounds: int, streams: Streams, start: int) -> Iterator[np.ndarray]:
        for number in range(start, rounds):
            lots = [int(hashlib.md5(f"{number}:{client}".encode()).hexdigest()[:8], 16) for client in range(population)]
            yield np.flatnonzero(np.array(lots) / 2**32 < self.rate)


class CappedCohort(Poisson):
    """A cohort beyond the memory for 26 clients loses the last ones: one client more pushes another out, so neighbouring data
    differ in two contributions and who comes depends on the others."""

    def _draw(self, population: int, rounds: int, streams: Streams, start: int) -> Iterator[np.ndarray]:
        for cohort in super()._draw(population, rounds, streams, start):
            yield cohort[:26]


class Households(Poisson):
    """Two neighbouring clients share one coin: who sees one of them in a round knows that the other is there."""

    def _draw(self, population: int, rounds: int, streams: Streams, start: int) -> Iterator[np.ndarray]:
        for number in range(start, rounds):
            coins = streams("cohort", number).random(-(-population // 2)) < self.rate
            yield np.flatnonzero(np.repeat(coins, 2)[:population])


class ReplayedRound(Poisson):
    """After a crash round 13 is trained again with the cohort of round 12: two rounds for one draw."""

    def _draw(self, population: int, rounds: int, streams: Streams, start: int) -> Iterator[np.ndarray]:
        for number in range(start, rounds):
            yield np.flatnonzero(streams("cohort", 12 if number == 13 else number).random(population) < self.rate)


class TestDevice(Poisson):
    """One client, somebody's forgotten test device, takes part in every round: no amplification for its owner."""

    def _draw(self, population: int, rounds: int, streams: Streams, start: int) -> Iterator[np.ndarray]:
        for cohort in super()._draw(population, rounds, streams, start):
            yield np.union1d(cohort, [77])


class WithReplacement(FixedSize):
    """The default of a library: drawn with replacement, so that a client may count twice or more in one round."""

    def _draw(self, population: int, rounds: int, streams: Streams, start: int) -> Iterator[np.ndarray]:
        for number in range(start, rounds):
            yield np.sort(streams("cohort", number).choice(population, self.cohort_size, replace=True))


class OverlappingPasses(Epochs):
    """The last cohort of the first pass is filled up with two of those who had been there: five times instead of four."""

    def _draw(self, population: int, rounds: int, streams: Streams, start: int) -> Iterator[np.ndarray]:
        for number, cohort in enumerate(super()._draw(population, rounds, streams, start), start=start):
            if number != rounds // self.times - 1:
                yield cohort
            else:
                yield np.union1d(cohort, np.setdiff1d(np.arange(population), cohort)[:2])


def second_devices(task: Task) -> Task:
    """A tenth of the people has a second device with the same data and an id of its own: eight rounds instead of four."""
    train = task.train
    users, features, targets = [], [], []
    for place, (user, examples) in enumerate(train):
        for name in (user, f"{user} tablet")[: 2 if place % 10 == 0 else 1]:
            users += [name] * len(examples)
            features.append(examples.features)
            targets.append(examples.targets)
    doubled = data.group_examples(users, np.concatenate(features), np.concatenate(targets), name=train.name)
    return replace(task, train=doubled)


# --------------------------------------------------------------------------------------------------------------- audits


@dataclass(frozen=True)
class Fault:
    """One of them, and the setting in which it is audited."""

    name: str
    kind: str
    made: Any  # a mechanism, a pattern, or a change of the data
    clip_norm: float = 1.0
    options: tuple[str, ...] = ()

    @property
    def why(self) -> str:
        return " ".join(str(self.made.__doc__).split())


def of_noise(made: Any, name: str) -> Fault:
    return Fault(name, "noise", made)


def of_clipping(made: Any, name: str, clip_norm: float = 0.3) -> Fault:
    """With a clip norm that, as usual, cuts about half of the clients; the preset's own cuts canaries alone."""
    return Fault(name, "clipping", made, clip_norm)


def of_sampling(made: Any, name: str, *options: str) -> Fault:
    return Fault(name, "sampling", made, options=options or tuple(POISSON))


FAULTS = (
    of_noise(OnePercentShort, "one-percent-short"),
    of_noise(LostPackets, "lost-packets"),
    of_noise(Annealed, "annealed"),
    of_noise(ShuffledCache, "shuffled-cache"),
    of_noise(RotatedCache, "rotated-cache"),
    of_noise(RotatedAndRescaled, "rotated-and-rescaled"),
    of_noise(SinglePrecision, "single-precision"),
    of_noise(NoiseTable, "noise-table"),
    of_noise(TwelveUniforms, "twelve-uniforms"),
    of_noise(SixteenBits, "sixteen-bits"),
    of_noise(Mirrored, "mirrored"),
    of_noise(InSubspace, "in-subspace"),
    of_noise(ContentSeed, "content-seed"),
    of_noise(VendorKey, "vendor-key"),
    of_noise(ClockSeed, "clock-seed"),
    of_noise(BestOfFour, "best-of-four"),
    of_noise(Centred, "centred"),
    of_noise(Standardised, "standardised"),
    of_noise(FollowsCohort, "follows-cohort"),
    of_noise(QuietBiases, "quiet-biases"),
    of_noise(QuietPeaks, "quiet-peaks"),
    of_clipping(TenPercentSlack, "ten-percent-slack"),
    of_clipping(GrossOutliersOnly, "gross-outliers-only", 1.0),
    of_clipping(SketchedNorm, "sketched-norm"),
    of_clipping(MedianNorm, "median-norm"),
    of_clipping(QuantisedAfterwards, "quantised-afterwards"),
    of_clipping(CreepingNorm, "creeping-norm"),
    of_clipping(TwoFaces, "two-faces"),
    of_clipping(SmallClientsCountMore, "small-clients-count-more"),
    of_clipping(OneInTwoHundred, "one-in-two-hundred"),
    of_sampling(FavouredTenth, "favoured-tenth"),
    of_sampling(MoreInTheEnd, "more-in-the-end"),
    of_sampling(Sticky, "sticky"),
    of_sampling(HashedClients, "hashed-clients"),
    of_sampling(CappedCohort, "capped-cohort"),
    of_sampling(Households, "households"),
    of_sampling(ReplayedRound, "replayed-round"),
    of_sampling(TestDevice, "test-device"),
    of_sampling(WithReplacement, "with-replacement"),
    of_sampling(OverlappingPasses, "overlapping-passes", "participation.epochs=4", "participation.rounds=24"),
    of_sampling(second_devices, "second-devices", "participation.epochs=4", "participation.rounds=24"),
)
RIGHT = (
    Fault("right", "none", Gaussian),
    Fault("right, clip norm 0.3", "none", Gaussian, 0.3),
    Fault("right, Poisson", "none", Poisson, options=tuple(POISSON)),
    Fault("right, fixed size", "none", FixedSize, options=tuple(POISSON)),
)
LONGER = tuple(  # what few rounds may not show: the same with 200 of them
    Fault(f"{name}, 200 rounds", kind, made, options=tuple(options))
    for name, kind, made, options in (
        ("right", "none", Gaussian, ["participation.rounds=200"]),
        ("right, Poisson", "none", Poisson, [POISSON[1], "participation.rounds=200"]),
        ("one-percent-short", "noise", OnePercentShort, ["participation.rounds=200"]),
        ("twelve-uniforms", "noise", TwelveUniforms, ["participation.rounds=200"]),
        ("favoured-tenth", "sampling", FavouredTenth, [POISSON[1], "participation.rounds=200"]),
        ("more-in-the-end", "sampling", MoreInTheEnd, [POISSON[1], "participation.rounds=200"]),
        ("capped-cohort", "sampling", CappedCohort, [POISSON[1], "participation.rounds=200"]),
        ("households", "sampling", Households, [POISSON[1], "participation.rounds=200"]),
    )
)


def audit(fault: Fault, seed: int) -> dict[str, Any]:
    """One audit: the verdict, and what was found false."""
    options, mechanism, task = [*ALWAYS, *fault.options], Gaussian, None
    if isinstance(fault.made, type) and issubclass(fault.made, Gaussian):
        mechanism = fault.made
    elif isinstance(fault.made, type):
        PATTERNS["of-one's-own"] = fault.made
        options.append("participation.pattern=of-one's-own")
        if "epochs" not in fault.made.keys:
            options.append("participation.epochs=1")
    config = read_config("tiny", options)
    if fault.made is second_devices:
        task = second_devices(load_task(config))
    made = mechanism(clip_norm=fault.clip_norm, noise_multiplier=0.5)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        result = run(config, Path(folder) / "run", task=task, mechanism=made, secret_seed=seed, quiet=True).result
    found = result.conformance
    return {
        "seed": seed,
        "verdict": result.verdict.word,
        "false": [
            {"key": each.key, "sentence": each.sentence, "p": each.adjusted, "side": each.side} for each in found.deviations
        ],
        "smallest_p": {each.key: each.adjusted for each in sorted(found.findings, key=lambda each: each.adjusted)[:3]},
        "seconds": round(time.monotonic() - began, 1),
    }


# -------------------------------------------------------------------------------------------------------- after the audits


def look(made: type[Gaussian], seed: int, clip_norm: float = 1.0) -> dict[str, float]:
    """What tests that do not exist would have seen of a mechanism, in the run of the same seed."""
    sums, noises, lengths = [], [], []

    class Watched(made):  # type: ignore[misc, valid-type]
        def client(self, update: np.ndarray, public: Public, examples: int = 1) -> Contribution:
            sent = super().client(update, public, examples)
            lengths.append((np.linalg.norm(update) / public.clip_norm, np.linalg.norm(sent.vector) / public.clip_norm))
            return sent

        def release(self, state: Any, total: Total, public: Public, secret: Streams) -> tuple[Release, Any]:
            vector = total.vector()
            release, state = super().release(state, total, public, secret)
            sums.append(vector)
            noises.append((release.vector * release.denominator - vector) / (0.5 * public.clip_norm))
            return release, state

    with tempfile.TemporaryDirectory() as folder:
        mechanism = Watched(clip_norm=clip_norm, noise_multiplier=0.5)
        run(read_config("tiny", ALWAYS), Path(folder) / "run", mechanism=mechanism, secret_seed=seed, quiet=True)
    noise, total = np.array(noises[:ROUNDS]), np.array(sums[:ROUNDS])
    peaks = np.take_along_axis(noise, np.argsort(np.abs(total), axis=1)[:, -24:], axis=1)
    sent, kept = np.array(lengths).T
    return {
        "p of little noise on the last ten coordinates": chi2.cdf(np.square(noise[:, -10:]).sum(), 10 * ROUNDS),
        "p of little noise where the sum is largest": chi2.cdf(np.square(peaks).sum(), peaks.size),
        "p of means that are too good": chi2.cdf(np.square(noise.sum(axis=1)).sum() / noise.shape[1], ROUNDS),
        "farthest from single precision": np.abs(noise - noise.astype(np.float32)).max(),
        "farthest from the last round's noise under another secret": np.abs(noises[ROUNDS] - noise[-1]).max(),
        "updates between 1 and 100 clip norms": int(np.count_nonzero((sent > 1) & (sent < 100))),
        "contributions that are too long": int(np.count_nonzero(kept > 1 + 1e-4)),
    }


def look_at_cohorts(made: type[Poisson], seed: int) -> dict[str, float]:
    """The same of a Poisson pattern: the cohorts are those of the audit of that seed."""
    present = np.zeros((ROUNDS, 144), np.int64)
    for number, cohort in enumerate(made(24 / 144, ROUNDS).cohorts(144, ROUNDS, partial(stream, seed, "cohorts"))):
        present[number, cohort] = 1
    same = Counter(column.tobytes() for column in present.T).values()
    return {
        "most clients that two rounds share": int(np.triu(present @ present.T, 1).max()),
        "pairs of clients with the same rounds": sum(times * (times - 1) // 2 for times in same),
        "p of many clients in the last third": binom.sf(int(present[16:].sum()) - 1, 8 * 144, 24 / 144),
        "largest cohort": int(present.sum(axis=1).max()),
    }


def look_at_all(seeds: int) -> None:
    """Printed, and kept in the text of `MISSES`."""
    for made in (Gaussian, SinglePrecision, VendorKey, Centred, QuietBiases, QuietPeaks, GrossOutliersOnly, OneInTwoHundred):
        for number in range(seeds):
            print(made.__name__, look(made, 1000 + number, 0.3 if made is OneInTwoHundred else 1.0), flush=True)
    for pattern in (Poisson, MoreInTheEnd, CappedCohort, Households, ReplayedRound):
        for number in range(seeds):
            print(pattern.__name__, look_at_cohorts(pattern, 1000 + number))


# ----------------------------------------------------------------------------------------------------------------- page


MISSES = {  # name: (whether any audit could have seen it, what check would have to exist)
    "one-percent-short": (
        "Yes, one with more numbers: 57,840 of them show 1.4 % with probability 0.8, as the audit itself says (`detectable`). "
        "With 200 rounds it is found.",
        "None is missing.",
    ),
    "rotated-and-rescaled": (
        "No, not from releases: without the rotation they have the law of fresh noise. But the code asks for the same "
        "secret stream in every round, and the audit hands those out.",
        "Which streams `secret` was asked for, in which round, and how many numbers were drawn from each.",
    ),
    "single-precision": (
        "Yes: released value minus sum is a float32 number up to 4e-16 everywhere, against 2e-7 for the right noise.",
        "Whether the noise lies on the grid of single precision while the sum does not; the check of rounding allows for it.",
    ),
    "twelve-uniforms": (
        "Yes, and two audits did: the fourth moment is off by five standard errors, just about what correction needs.",
        "None is missing; more rounds see it, as below.",
    ),
    "content-seed": (
        "Yes, if it may call the code twice: the same sum with another secret gives the same release. Not from releases alone.",
        "Release one round's sum again under another secret: noise that comes out the same does not come from the secret.",
    ),
    "vendor-key": (
        "Yes, in this very run: the last round is released a second time for tests, with another secret, and has the same "
        "noise up to 9e-16. From the releases of one run alone, no.",
        "Compare the noise of the release without canaries with that of the last round; they must be independent.",
    ),
    "clock-seed": (
        "Yes: the times around a run are few guesses.",
        "Seconds (and milliseconds) between the beginning and the end of the run, and these plus the round, among the guessed "
        "seeds; or that `secret` was never asked.",
    ),
    "centred": (
        "Yes: the squares of the rounds' mean noise add up to 0 where a chi-square of 24 is claimed, p = 0.",
        "The dispersion of means over rounds, both tails: means that are too good; the check looks for large ones only. The "
        "same for every layer.",
    ),
    "quiet-biases": (
        "Sometimes: the ten biases alone give p = 0.03, 7e-7 and 2e-5, of which correction for many tests leaves one. Weights "
        "and biases of a layer are tested as one, where 10 in 330 are lost.",
        "Layers by tensor, not by module.",
    ),
    "quiet-peaks": (
        "Yes, easily: the noise on the hundredth of coordinates that the sum moves most gives p below 1e-46.",
        "Squares by size of the sum in more than three classes (top 50, 10, 1 and 0.1 %); 'more than average' is too coarse.",
    ),
    "gross-outliers-only": (
        "In the run that missed it no update was between 1 and 100 clip norms: nothing wrong happened. An audit that "
        "sends updates of its own could see it always; canaries are ten thousand clip norms long.",
        "Updates of many lengths (1.01, 1.5, 10, 100 clip norms) and shapes (dense, sparse, one layer) through `client`, "
        "released to nobody.",
    ),
    "one-in-two-hundred": (
        "In the two runs that missed it no long update was among the few that the race let pass: nothing wrong happened. More "
        "rounds would show it.",
        "A thousand updates of its own through `client`, as above: 99 % to see one in two hundred.",
    ),
    "favoured-tenth": (
        "Hardly: 15 clients with 6 rounds instead of 4 raise the dispersion by about one standard error; see 200 rounds below.",
        "None is missing.",
    ),
    "more-in-the-end": (
        "Nearly: clients of the last eight rounds alone give p = 3e-6, 3e-6 and 5e-4; correction needs about 1e-6.",
        "Sizes of cohorts over time: a trend, and the worst of halves, thirds and single rounds.",
    ),
    "hashed-clients": (
        "Yes, if it draws twice: other secrets give the same cohorts. Not from cohorts alone, unless the hash is guessed.",
        "Draw all cohorts again with another secret, which costs nothing: cohorts that come out the same are public. Or that "
        "the secret streams were never asked for.",
    ),
    "capped-cohort": (
        "Hardly in 24 rounds: no cohort above 26 has probability 3e-4; see 200 rounds below.",
        "The law of sizes beyond their dispersion: the largest size, both tails, and how often it occurs.",
    ),
    "households": (
        "Yes: 72 to 80 pairs of clients have the same rounds, against 1 to 4 by chance.",
        "How many pairs of clients have identical rounds, and the dispersion of sizes within blocks of neighbours.",
    ),
    "replayed-round": (
        "Yes: two rounds have 19, 25 and 24 clients in common (all of them), where 9 to 12 is the most by chance.",
        "The largest overlap of any two rounds; the check sums overlaps of each lag, where one round in 23 is lost.",
    ),
    "second-devices": (
        "Only since these devices hold the same data, which a comparison of data or updates shows. Two devices with different "
        "data are two clients to everybody; no audit can know whose they are.",
        "Clients with equal data (a hash of the examples), as a warning; the unit of the claim must be read by a person.",
    ),
}
INTRO = """# Blind faults

{faults} faults of noise, clipping and sampling, invented without a look at the tests that are to find them, at the code of the
bug zoo or at any description of them; the round loop, the mechanisms, the participation patterns, what an audit prints and the
names of the files of the tests were known. Each one weakens privacy or makes the claim false while it describes itself as
right. Every fault was audited {seeds} times on the preset `tiny` (24 rounds, 2,410 parameters, 144 clients, noise multiplier
0.5). The tests were those of commit b1f62e5. Nothing was changed after its audits; what was missed stands here as it came out.

**Found in every audit: {always} of {faults}. In some: {some}. In none: {none}.** Audits that found the fault, by kind:
{kinds}. Right mechanisms: {alarms} false alarms in {right} audits.

`python benchmarks/blind_faults.py` makes this page and `benchmarks/results/blind_faults.json` again. Clipping faults have a
clip norm of 0.3, which cuts some of the clients; with that of the preset, 1, almost nobody is clipped but canaries (only
`gross-outliers-only` was run so). Sampling faults are Poisson with a mean of 24 of 144 clients unless their sentence says
otherwise.

| fault | kind | why it is wrong | verdicts | sentences found false |
|---|---|---|---|---|
"""


def counts(audits: list[dict[str, Any]]) -> str:
    found = Counter(each["verdict"] for each in audits)
    return ", ".join(f"{found[word]} {word}" for word in WORDS if found[word])


def caught(audits: list[dict[str, Any]]) -> int:
    return sum(each["verdict"] in WORDS[:2] for each in audits)


def false_sentences(audits: list[dict[str, Any]]) -> str:
    found = Counter(each["sentence"] for one in audits for each in one["false"])
    return "; ".join(f"{sentence} ({times})" for sentence, times in found.most_common()) or "none"


def write_page(results: dict[str, Any]) -> None:
    """The table, as it came out."""
    shown = [(fault, results[fault.name]["audits"]) for fault in FAULTS if fault.name in results]
    shares = [(fault, caught(audits) / len(audits), audits) for fault, audits in shown]
    kinds = []
    for kind in ("noise", "clipping", "sampling"):
        those = [audits for fault, audits in shown if fault.kind == kind]
        kinds.append(f"{kind} {sum(map(caught, those))} of {sum(map(len, those))}")
    right = [
        one for fault in (*RIGHT, *LONGER) if fault.kind == "none" for one in results.get(fault.name, {"audits": []})["audits"]
    ]
    lines = [
        INTRO.format(
            faults=len(shown),
            seeds=max(len(audits) for _, audits in shown),
            always=sum(share == 1 for _, share, _ in shares),
            some=sum(0 < share < 1 for _, share, _ in shares),
            none=sum(share == 0 for _, share, _ in shares),
            kinds=", ".join(kinds),
            alarms=caught(right),
            right=len(right),
        ).rstrip()
    ]
    for fault, audits in shown:
        lines.append(f"| {fault.name} | {fault.kind} | {fault.why} | {counts(audits)} | {false_sentences(audits)} |")
    lines += ["", "## Right mechanisms", "", "| mechanism | verdicts | sentences found false |", "|---|---|---|"]
    for fault in (*RIGHT, *LONGER):
        if fault.kind == "none" and fault.name in results:
            audits = results[fault.name]["audits"]
            lines.append(f"| {fault.name} | {counts(audits)} | {false_sentences(audits)} |")
    lines += [
        "",
        "## Misses",
        "",
        "The tests were read after these audits. p-values are from the same seeds (`--look`), not corrected for many tests.",
        "",
    ]
    lines += ["| fault | missed | could any audit have seen it? | check that would have to exist |", "|---|---|---|---|"]
    for fault, share, audits in shares:
        if share < 1:
            could, check = MISSES.get(fault.name, ("", ""))
            lines.append(f"| {fault.name} | {len(audits) - caught(audits)} of {len(audits)} | {could} | {check} |")
    lines += ["", "## With 200 rounds", "", "Faults that 24 rounds may be too few for, once more.", ""]
    lines += ["| fault | verdicts | sentences found false |", "|---|---|---|"]
    for fault in LONGER:
        if fault.kind != "none" and fault.name in results:
            audits = results[fault.name]["audits"]
            lines.append(f"| {fault.name} | {counts(audits)} | {false_sentences(audits)} |")
    lines += ["", AFTERWARDS.rstrip()]
    if NOW.exists():
        lines.append(since(results, json.loads(NOW.read_text())))
    PAGE.write_text("\n".join(lines) + "\n")


AFTERWARDS = """## What the table shows

- **A right verdict may come with a wrong sentence.** `best-of-four` and `two-faces` are found by the check of the denominator,
  `mirrored` by that of rounding, `rotated-cache` by the strength of the noise. A reader who looks for the cause there looks in
  the wrong place.
- **Tests look for numbers that are too large, less often for those that are too good.** `centred` is the plainest case: one
  direction has no noise at all.
- **The audit owns what the code draws from.** It hands out the secret streams and can call the code again. Writing down which
  streams were asked for, and releasing one sum twice, would show `vendor-key`, `clock-seed`, `content-seed`,
  `rotated-and-rescaled` and `hashed-clients`, of which releases show nothing. A mechanism may have a source of its own and be
  right, so that an unused secret is a reason to ask, not a deviation.
- **Clipping is tested on what happens to come.** Between the longest client and the canaries, ten thousand clip norms long,
  there is a gap in which nothing is sent.
"""
SINCE = """
## Since then

The tables above stay as they came out. Added to the tests afterwards, with these misses in view, so that what follows is no
blind trial: the dispersion of the rounds' means, in all and by tensor; noise by parameter tensor and where the sum is largest;
fourth moments that vary too little; the last round's noise against that of two releases under other secrets, one of them of the
very same sum; cohorts drawn again under another secret; updates of many lengths and shapes through the code of clients; the
largest overlap of two rounds; clients of one history; sizes of cohorts over time.

The same faults and seeds, `python benchmarks/blind_faults.py --now`: **found in every audit {always} of {faults}, in some
{some}, in none {none}**; right mechanisms: {alarms} false alarms in {right} audits. Where the verdicts differ from those above:

| fault | verdicts then | verdicts now | sentences found false now |
|---|---|---|---|
{rows}

Still called CONSISTENT in some audits: {missed}.
"""


def since(before: dict[str, Any], now: dict[str, Any]) -> str:
    """What the same faults give with the tests of today."""
    faults = [(fault.name, now[fault.name]["audits"]) for fault in FAULTS if fault.name in now]
    shares = {name: caught(audits) / len(audits) for name, audits in faults}
    right = [
        one for fault in (*RIGHT, *LONGER) if fault.kind == "none" for one in now.get(fault.name, {"audits": []})["audits"]
    ]
    rows = [
        f"| {name} | {counts(before[name]['audits'])} | {counts(audits)} | {false_sentences(audits)} |"
        for name, audits in faults
        if counts(before[name]["audits"]) != counts(audits)
    ]
    return SINCE.format(
        faults=len(faults),
        always=sum(share == 1 for share in shares.values()),
        some=sum(0 < share < 1 for share in shares.values()),
        none=sum(share == 0 for share in shares.values()),
        alarms=caught(right),
        right=len(right),
        rows="\n".join(rows),
        missed=", ".join(f"`{name}`" for name, share in shares.items() if share < 1),
    ).rstrip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3, help="audits of every fault")
    parser.add_argument("--right", type=int, default=5, help="audits of every right one")
    parser.add_argument("--only", nargs="*", help="these faults alone; the others keep their results")
    parser.add_argument("--now", action="store_true", help="the tests of today; the results of the blind trial stay")
    parser.add_argument("--page", action="store_true", help="write the page from the results that there are")
    parser.add_argument("--look", action="store_true", help="print what tests that do not exist would have seen")
    options = parser.parse_args()
    if options.look:
        return look_at_all(options.seeds)
    file = NOW if options.now else RESULTS
    results = json.loads(file.read_text()) if (options.only or options.page) and file.exists() else {}
    for fault in () if options.page else (*RIGHT, *FAULTS, *LONGER):
        if options.only and fault.name not in options.only:
            continue
        count = options.right if fault in RIGHT else options.seeds
        results[fault.name] = {"kind": fault.kind, "audits": [audit(fault, 1000 + number) for number in range(count)]}
        counted = Counter(each["verdict"] for each in results[fault.name]["audits"])
        keys = sorted({found["key"] for each in results[fault.name]["audits"] for found in each["false"]})
        print(f"{fault.name:<26} {dict(counted)} {keys}", flush=True)
        file.write_text(json.dumps(results, indent=1) + "\n")
    write_page(json.loads(RESULTS.read_text()))


if __name__ == "__main__":
    main()
