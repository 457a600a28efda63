"""The noise has the standard deviation that was claimed: in all, in every round, in every layer, on every coordinate."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
from scipy.special import gammainc, gammaincc, gammaincinv

from coalmine.conformance import by_round, noise_blocks, noise_left, noise_spectrum, totals
from coalmine.conformance.check import FAMILY, Check, Memory, Round, Subject, Summed, found, needs_noise
from coalmine.conformance.laws import (
    Tail,
    binomial,
    both_sides,
    chi_square,
    least_likely,
    normal,
    normal_score,
    noticed_factor,
    spread_interval,
    worst,
)
from coalmine.conformance.residual import layers_of, noises, window
from coalmine.contracts import Array, ByClients, Finding, Glance, NotTested, Side

_MOVED = (
    "unmoved",
    "little moved",
    "much moved",
    "most moved, a tenth",
    "most moved, a hundredth",
    "most moved, a thousandth",
    "moved up",
)
_MOST, _SAMPLED = (0.9, 0.99, 0.999), 4096  # where the last three begin, by so many coordinates
_SPREAD = 1 << 16  # coordinates of which it is said how much they vary
_SHARES = (0.001, 0.01, 0.1, 0.9, 0.99, 0.999)  # of coordinates that a chi-square leaves below


class NoiseScale:
    """Σ z² over everything: chi-square with as many degrees of freedom as there are coordinates and rounds.

    Where clients add the noise, a round with fewer of them than the claim counts on has less noise, whatever the numbers say.
    """

    key: ClassVar[str] = "noise-scale"

    def applies(self, subject: Subject) -> str | None:
        """Where noise is claimed."""
        return needs_noise(subject)

    def init(self, subject: Subject) -> Memory:
        """The sum of squares, of how many, and whether they may hold more; the fewest clients that added noise, and when."""
        return {"sums": np.zeros(3), "fewest": np.array([math.inf, 0.0])}

    def observe(self, memory: Memory, seen: Round, subject: Subject) -> None:
        """One round."""
        if seen.noise is not None:
            moments = seen.noise.moments
            memory["sums"] += [moments.totals[1], moments.count, float(seen.noise.at_least)]
        told = subject.description.noise
        if told is not None and isinstance(told.added_by, ByClients):
            clients, _ = noises(seen.seen, told.added_by)
            if clients < memory.setdefault("fewest", np.array([math.inf, 0.0]))[0]:
                memory["fewest"][:] = clients, seen.seen.round

    def glance(self, memory: Memory, seen: Glance) -> None:
        """A step between two audited ones."""
        memory["sums"] += [seen.squares.sum(), seen.sizes.sum(), 0.0]

    def conclude(self, memory: Memory, shared: Memory, subject: Subject) -> Finding | NotTested:
        """The noise multiplier that was measured; where other things are in it, only that it is not too small."""
        total, count, at_least = memory["sums"].tolist()
        if not count:
            return NotTested(self.key, "noise-too-small")
        told = subject.description.noise
        assert told is not None
        tail = both_sides(*chi_square(total, count), lower_only=bool(at_least))
        fewest, number = memory.get("fewest", np.array([math.inf, 0.0])).tolist()
        if isinstance(told.added_by, ByClients) and fewest < told.added_by.honest:
            tail = Tail(
                0.0, "less", f"round {number + 1:.0f} with the noise of {fewest:.0f} clients for {told.added_by.honest}"
            )
        if at_least:
            return found(self.key, tail, claimed=told.multiplier, one_sided=True)
        low, high = (told.multiplier * each for each in spread_interval(max(total, 1e-300), count, subject.confidence))
        measured = told.multiplier * float(np.sqrt(total / count))
        factor = noticed_factor(count, subject.level / FAMILY)
        return found(
            self.key, tail, claimed=told.multiplier, measured=measured, interval=(low, high),
            detectable=told.multiplier * (1 - factor), factor=factor,
        )  # fmt: skip


class NoiseByRound:
    """Σ z² of every round: the worst one, their dispersion, and a trend."""

    key: ClassVar[str] = "noise-by-round"

    def applies(self, subject: Subject) -> str | None:
        """Where noise is claimed."""
        return needs_noise(subject)

    def init(self, subject: Subject) -> Memory:
        """By round: the sum of squares, of how many, whether they may hold more than the noise; the least likely rounds."""
        nothing = np.array([[1.0, 0], [1.0, 0]])
        return {"by_round": by_round.empty(3), "extremes": nothing, "between": nothing.copy(), "glances": np.zeros(3)}

    def observe(self, memory: Memory, seen: Round, subject: Subject) -> None:
        """One round."""
        if seen.noise is not None:
            moments = seen.noise.moments
            total, count = float(moments.totals[1]), moments.count
            memory["by_round"] = by_round.appended(memory["by_round"], [total, count, float(seen.noise.at_least)])
            for side, tail in enumerate(chi_square(total, count)):
                if tail < memory["extremes"][side, 0]:
                    memory["extremes"][side] = tail, seen.seen.round

    def glance(self, memory: Memory, seen: Glance) -> None:
        """A step between two audited ones: as a whole, and in its least likely layer."""
        total, count = float(seen.squares.sum()), float(seen.sizes.sum())
        memory["glances"] += [1 + seen.sizes.size, total, count]
        parts = [(total, count), *zip(seen.squares.tolist(), seen.sizes.tolist(), strict=True)]
        for side, tail in enumerate(np.min([chi_square(*part) for part in parts], axis=0)):
            if tail < memory["between"][side, 0]:
                memory["between"][side] = tail, seen.step

    def conclude(self, memory: Memory, shared: Memory, subject: Subject) -> Finding | NotTested:
        """The worst of the three."""
        rows = memory["by_round"]
        if rows.shape[0] < 2:
            return NotTested(self.key, "one-round" if rows.size else "noise-too-small")
        lower_only = bool(rows[:, 2].any())
        tails = [self._single(memory, lower_only, int(rows[:, 3].sum()))]
        if not lower_only:
            scores = np.array([normal_score(total, count) for total, count, *_ in rows])
            slope = np.arange(scores.size) - (scores.size - 1) / 2
            furthest_one = int(np.argmax(np.abs(scores)))
            side = both_sides(*chi_square(*rows[furthest_one, :2])).side
            tails.append(both_sides(*chi_square(float(np.square(scores).sum()), scores.size)))
            tails[-1] = Tail(tails[-1].p_value, side)
            tails.append(normal(float(slope @ scores / np.linalg.norm(slope)), "over the rounds"))
        tails += self._between(memory)
        spreads = np.sqrt(rows[:, 0] / rows[:, 1])
        told = subject.description.noise
        assert told is not None
        furthest = float(spreads[int(np.argmax(np.abs(np.log(np.maximum(spreads, 1e-12)))))])
        measured = None if lower_only else told.multiplier * furthest
        return found(self.key, worst(tails), claimed=told.multiplier, measured=measured)

    def _between(self, memory: Memory) -> list[Tail]:
        """Steps between the audited ones: the least likely of them, and all together; nothing where there were none."""
        tried, total, count = memory["glances"].tolist()
        if not tried:
            return []
        (low, first), (high, second) = memory["between"].tolist()
        less = both_sides(low, 1.0, f"step {int(first) + 1}, between audited ones")
        more = both_sides(1.0, high, f"step {int(second) + 1}, between audited ones")
        return [least_likely([less, more], int(tried)), both_sides(*chi_square(total, count), "between audited steps")]

    def _single(self, memory: Memory, lower_only: bool, rounds: int) -> Tail:
        """The least likely round of all."""
        (low, first), (high, second) = memory["extremes"].tolist()
        less = both_sides(low, 1.0, f"round {int(first) + 1}", lower_only=lower_only)
        more = both_sides(1.0, high, f"round {int(second) + 1}")
        return least_likely([less] if lower_only else [less, more], rounds)


class NoiseByLayer:
    """Σ z² of every layer, over all rounds and in the worst round; and how much it varies, which may be too little."""

    key: ClassVar[str] = "noise-by-layer"

    def applies(self, subject: Subject) -> str | None:
        """Where noise is claimed, and there are layers."""
        return needs_noise(subject) or ("one-layer" if len(layers_of(subject)) < 2 else None)

    def init(self, subject: Subject) -> Memory:
        """By layer: the sum of squares, of how many; the worst tails of a round so far, with round and layer; Σ of squared
        normals, rounds.
        """
        sums = {name: np.zeros((2, len(layers_of(subject)))) for name in ("sums", "varied")}
        return {**sums, "worst": np.array([[1.0, 0, 0], [1.0, 0, 0]]), "tried": np.zeros(2)}

    def observe(self, memory: Memory, seen: Round, subject: Subject) -> None:
        """One round."""
        if seen.noise is None:
            return
        moments = seen.noise.moments
        squares, sizes = moments.sums[1], moments.sizes
        memory["sums"] += [squares, sizes]
        there = sizes > 0
        tails = np.ones((2, sizes.size))
        tails[0, there] = gammainc(sizes[there] / 2, squares[there] / 2)
        tails[1, there] = gammaincc(sizes[there] / 2, squares[there] / 2)
        memory["varied"] += [np.where(there, np.square(noise_blocks.normal_scores(*tails)), 0.0), there]
        for side, row in enumerate(tails):
            layer = int(np.argmin(row))
            if row[layer] < memory["worst"][side, 0]:
                memory["worst"][side] = row[layer], seen.seen.round, layer
        memory["tried"] += [there.sum(), float(seen.noise.at_least)]

    def glance(self, memory: Memory, seen: Glance) -> None:
        """A step between two audited ones."""
        memory["sums"] += [seen.squares, seen.sizes]

    def conclude(self, memory: Memory, shared: Memory, subject: Subject) -> Finding | NotTested:
        """The worst layer, over all rounds or in one of them."""
        tried, at_least = memory["tried"]
        if not tried:
            return NotTested(self.key, "noise-too-small")
        lower_only, names = bool(at_least), list(layers_of(subject))
        over_all = worst(
            [
                both_sides(*chi_square(total, size), f"layer {name}", lower_only=lower_only)
                for name, total, size in zip(names, *memory["sums"], strict=True)
                if size
            ]
        )
        (low, *where_low), (high, *where_high) = memory["worst"]
        number, layer = where_low if lower_only or low <= high else where_high
        once = both_sides(low, high, f"layer {names[int(layer)]} in round {int(number) + 1}", lower_only=lower_only)
        once = Tail(min(1.0, once.p_value * tried), once.side, once.where)
        tails = [over_all, once] if lower_only else [over_all, once, self._varied(memory, names)]
        return found(self.key, worst(tails), layers=len(names))

    def _varied(self, memory: Memory, names: list[str]) -> Tail:
        """Rounds of a layer that differ less than chance makes them; or more, to the side on which the layer is."""
        tails = []
        for name, squares, rounds, total, size in zip(names, *memory["varied"].tolist(), *memory["sums"].tolist(), strict=True):
            if rounds:
                low, high = chi_square(squares, rounds)
                side: Side = "unknown" if low < high else "less" if total < size else "more"
                tails.append(Tail(min(1.0, 2 * min(low, high)), side, f"layer {name}, by how much its rounds differ"))
        return worst(tails)


class NoiseByCoordinate:
    """Σ_t z² of every coordinate, both ways; of coordinates by how much the clients moved them; of neighbours in a round;
    strength that repeats with a period; and of what is left of correlated noise in the sum of all releases.
    """

    key: ClassVar[str] = "noise-by-coordinate"

    def applies(self, subject: Subject) -> str | None:
        """Where noise is claimed."""
        return needs_noise(subject)

    def init(self, subject: Subject) -> Memory:
        """Squares and numbers of coordinates by how much the sum moves them, with canaries and without; of neighbours."""
        by_size = {name: np.zeros((2, len(_MOVED))) for name in ("by_size", "bare_by_size")}
        return {**by_size, **noise_left.init(), "at_least": np.zeros(1), "blocks": np.zeros((0, 6))}

    def observe(self, memory: Memory, seen: Round, subject: Subject) -> None:
        """One round; squares by coordinate are in `totals`."""
        noise = seen.noise
        if noise is None:
            return
        memory["at_least"] += float(noise.at_least)
        if not memory["blocks"].size:
            memory["blocks"] = noise_blocks.nothing(noise.values.size)
        noise_blocks.observe(memory["blocks"], noise.values, seen.seen.round)
        noise_left.observe(memory, seen, subject)
        if seen.total is None:
            return
        memory["by_size"] += _by_size(noise.values, seen.total)
        if seen.bare is not None and (clients := seen.clients) is not None:
            memory["bare_by_size"] += _by_size(seen.bare, clients)

    def conclude(self, memory: Memory, shared: Memory, subject: Subject) -> Finding | NotTested:
        """The worst of all."""
        rounds, squares = int(shared["rounds"][0]), shared["squares"]
        if not rounds:
            return NotTested(self.key, "noise-too-small")
        lower_only = bool(memory["at_least"][0])
        tails = [*self._extremes(squares, rounds, lower_only), *self._shares(squares, rounds, lower_only)]
        tails += noise_blocks.tails(memory["blocks"], squares.size, lower_only)
        tails.append(noise_left.tail(memory, subject))
        if shaped := int(shared["rounds"][1]):
            some, power = shared["magnitudes"].size, shared["magnitude_power"]
            tails.append(noise_spectrum.tail(power, totals.transform_length(some), some, shaped, "strength"))
        for kept, how in (("by_size", ""), ("bare_by_size", ", without canaries")):
            for name, total, size in zip(_MOVED, *memory[kept], strict=True):
                if size:
                    tails.append(both_sides(*chi_square(total, size), f"coordinates {name}{how}", lower_only=lower_only))
        silent = int(np.count_nonzero(squares < 1e-12 * rounds))
        return found(self.key, worst(tails), claimed=0.0, measured=float(silent), without_noise=silent)

    def _extremes(self, squares: Array, rounds: int, lower_only: bool) -> list[Tail]:
        least, most = int(np.argmin(squares)), int(np.argmax(squares))
        low, high = chi_square(float(squares[least]), rounds)[0], chi_square(float(squares[most]), rounds)[1]
        count = squares.size
        tails = [Tail(min(1.0, count * low), "less", f"coordinate {least}")]
        if lower_only:
            return tails
        some = squares[window(count, _SPREAD)].astype(np.float64) / 2
        scores = noise_blocks.normal_scores(gammainc(rounds / 2, some), gammaincc(rounds / 2, some))
        varied = noise_blocks.dispersion(float(scores @ scores), some.size, low, high, "coordinates, which differ")
        return [*tails, Tail(min(1.0, count * high), "more", f"coordinate {most}"), varied]

    def _shares(self, squares: Array, rounds: int, lower_only: bool) -> list[Tail]:
        tails = []
        for share in _SHARES:
            below = int(np.count_nonzero(squares < 2 * gammaincinv(rounds / 2, share)))
            few, many = binomial(below, squares.size, share)  # many coordinates with little noise: less
            tails.append(both_sides(many, few, lower_only=lower_only))
        return tails


def _by_size(noise: Array | Summed, total: Summed) -> list[Array]:
    """Squares and numbers of coordinates by how much the sum moves them: not at all, less than on average, more; most; upwards.

    Where these begin is read off a part of the coordinates: any bound that does not look at the noise would do.
    """
    sampled = np.abs(total[window(total.size, _SAMPLED)])
    average, edges = float(sampled.mean()), np.quantile(sampled, _MOST)
    sums, counts = np.zeros(len(_MOVED)), np.zeros(len(_MOVED))
    for block, summed in total.blocks():
        size, squares = np.abs(summed), np.square(noise[block])
        for place, mask in ((0, size == 0), (2, size > average), (len(_MOVED) - 1, summed > 0)):
            counts[place] += np.count_nonzero(mask)
            sums[place] += float(np.einsum("i,i->", squares, mask.astype(np.float64))) if mask.any() else 0.0
        sums[1] += float(squares.sum())
        most = np.flatnonzero(size > edges[0])
        for place, edge in enumerate(edges, start=3):
            most = most[size[most] > edge]
            counts[place] += most.size
            sums[place] += float(squares[most].sum())
    counts[1], sums[1] = total.size - counts[0] - counts[2], sums[1] - sums[0] - sums[2]
    return [sums, counts]


SCALE: tuple[Check, ...] = (NoiseScale(), NoiseByRound(), NoiseByLayer(), NoiseByCoordinate())
