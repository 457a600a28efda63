"""Contributions are clipped as described, clients treated alike, canaries arrive whole, the denominator is what was said."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

from coalmine.conformance.check import Check, Memory, Round, Subject, found, needs_noise
from coalmine.conformance.comparing import compare
from coalmine.conformance.laws import Tail, chi_square, normal, worst
from coalmine.conformance.residual import layers_of
from coalmine.contracts import Array, Compared, Finding, Glance, NotTested

ROUNDING = 1e-4  # clip norms by which a contribution may differ from its clip: the arithmetic of single precision


def _of_examples(subject: Subject) -> str | None:
    """Why contributions cannot be tested where single examples are clipped; None: they can."""
    examples = subject.description.examples
    return None if examples is not None and examples.weights == "equal" else "secret-weights"


def _samples(seen: Round, subject: Subject) -> list[Compared]:
    """What was seen of single contributions, as numbers."""
    clip, made = subject.description.clip, []
    for each in seen.seen.samples:
        if isinstance(each, Compared):
            made.append(each)
        elif (one := compare(each.update, each.contribution, clip, seen.clip_norm, subject.groups)) is not None:
            made.append(one)
    return made


class Clipping:
    """The length of contributions; the clip norm that is announced is the one that was described."""

    key: ClassVar[str] = "clipping"

    def applies(self, subject: Subject) -> str | None:
        """Where whole updates, layers, or examples of equal weight are clipped."""
        over = subject.description.clip.over
        if over == "example":
            return _of_examples(subject)
        return None if over in ("update", "layer") else "not-described"

    def init(self, subject: Subject) -> Memory:
        """The longest contribution in clip norms and its round; announced clip norms that are longer or shorter; how many."""
        places = {name: np.zeros(2) for name in ("longest", "announced", "between", "smaller")}
        return {**places, "seen": np.zeros(1)}

    def observe(self, memory: Memory, seen: Round, subject: Subject) -> None:
        """One round."""
        for each in _samples(seen, subject):
            memory["seen"] += 1
            if not each.kept <= memory["longest"][0]:
                memory["longest"] = np.array([each.kept, seen.seen.round], dtype=np.float64)
        norm = subject.description.clip.norm
        if isinstance(norm, float) and not seen.clip_norm <= norm * (1 + ROUNDING):
            memory["announced"] = np.array([seen.clip_norm / norm, seen.seen.round], dtype=np.float64)
        elif isinstance(norm, float) and seen.clip_norm < norm * (1 - ROUNDING):
            memory["smaller"] = np.array([seen.clip_norm / norm, seen.seen.round], dtype=np.float64)

    def glance(self, memory: Memory, seen: Glance) -> None:
        """A step between two audited ones."""
        if seen.longest is not None:
            memory["seen"] += 1
            if not seen.longest <= memory["between"][0]:
                memory["between"] = np.array([seen.longest, seen.step], dtype=np.float64)

    def conclude(self, memory: Memory, shared: Memory, subject: Subject) -> Finding | NotTested:
        """Exact up to rounding: a single one that is too long decides."""
        if not memory["seen"][0]:
            return NotTested(self.key, "no-samples")
        places = {name: memory[name].tolist() for name in ("longest", "announced", "between")}
        name = max(places, key=lambda each: (math.isnan(places[each][0]), *places[each]))
        longest, number = places[name]
        where = f"step {int(number) + 1}, between audited ones" if name == "between" else f"round {int(number) + 1}"
        smaller, number = memory["smaller"].tolist()
        if not longest <= 1 + ROUNDING:
            tail = Tail(0.0, "less", where)
        elif smaller:  # what it follows need not be public
            tail, longest = Tail(0.0, "unknown", f"the clip norm that round {int(number) + 1} announced"), smaller
        else:
            tail = Tail(1.0, "less")
        return found(self.key, tail, claimed=1.0, measured=longest, contributions=int(memory["seen"][0]))


class TreatedAlike:
    """Every contribution that was looked at against the clip of the update before it."""

    key: ClassVar[str] = "treated-alike"

    def applies(self, subject: Subject) -> str | None:
        """Where the description says what becomes of one update."""
        return _of_examples(subject) if subject.description.clip.over == "example" else None

    def init(self, subject: Subject) -> Memory:
        """Contributions seen, that differ, that are longer than they should be; the largest difference and its round."""
        return {"counts": np.zeros(3), "largest": np.zeros(2)}

    def observe(self, memory: Memory, seen: Round, subject: Subject) -> None:
        """One round."""
        for each in _samples(seen, subject):
            expected = min(each.sent, 1.0)
            differs = not each.difference <= ROUNDING
            longer = differs and not each.kept <= expected * (1 + ROUNDING)
            memory["counts"] += [1, differs, longer]
            if not each.difference <= memory["largest"][0]:
                memory["largest"] = np.array([each.difference, seen.seen.round], dtype=np.float64)

    def conclude(self, memory: Memory, shared: Memory, subject: Subject) -> Finding | NotTested:
        """Exact up to rounding; what would have been seen is a fault in so large a share of contributions."""
        count, differ, longer = memory["counts"].tolist()
        if not count:
            return NotTested(self.key, "no-samples")
        largest, number = memory["largest"].tolist()
        tail = Tail(0.0, "less" if longer else "unknown", f"round {int(number) + 1}") if differ else Tail(1.0)
        return found(
            self.key, tail, claimed=0.0, measured=differ, detectable=1 - 0.2 ** (1 / count),
            contributions=int(count), largest_difference=largest,
        )  # fmt: skip


class CanariesWhole:
    """What canaries added to the release, as a share of what they must add."""

    key: ClassVar[str] = "canaries-whole"

    def applies(self, subject: Subject) -> str | None:
        """Where noise is claimed, which tells how near the share must be."""
        return needs_noise(subject)

    def init(self, subject: Subject) -> Memory:
        """Σ <noise, canaries>, as it is and over its spread, Σ |canaries|², how many; the largest difference, and its round."""
        return {"sums": np.zeros(4), "own": np.zeros(2)}

    def observe(self, memory: Memory, seen: Round, subject: Subject) -> None:
        """One round."""
        canaries, noise = seen.seen.canaries, seen.noise
        if canaries.own is not None and canaries.own.size:
            shares = canaries.own / (seen.seen.release.clip_norm / seen.seen.release.denominator) / subject.kept
            if canaries.fitted:
                self._fitted(memory, shares, subject, 1.0 if noise is None else noise.spread)
                return
            worst_one = float(np.abs(shares - 1).max())
            if not worst_one <= memory["own"][0]:
                memory["own"] = np.array([worst_one, seen.seen.round], dtype=np.float64)
        if noise is None or noise.at_least or seen.part is None:
            return
        length = float(np.einsum("i,i->", seen.part, seen.part)) * seen.scale**2
        inner = float(np.einsum("i,i->", noise.values, seen.part)) * seen.scale
        memory["sums"] += [inner, inner / max(noise.spread, 1e-12), length, canaries.indices.size]

    def _fitted(self, memory: Memory, shares: Array, subject: Subject, spread: float) -> None:
        """Shares that were read off the release: each has the noise of one direction."""
        told = subject.description.noise
        if told is not None and told.multiplier:
            missing = float((shares - 1).sum()) * subject.kept**2
            inner = missing / told.multiplier
            memory["sums"] += [inner, inner / max(spread, 1e-12), shares.size * subject.kept**2, shares.size]

    def conclude(self, memory: Memory, shared: Memory, subject: Subject) -> Finding | NotTested:
        """The share, with its interval."""
        inner, scaled, squares, count = memory["sums"].tolist()
        if not squares:
            return NotTested(self.key, "no-residual")
        told = subject.description.noise
        assert told is not None
        score, spread = scaled / math.sqrt(squares), told.multiplier / math.sqrt(squares)
        share = 1 + inner * told.multiplier / squares
        difference, number = memory["own"].tolist()
        tails = [Tail(normal(score).p_value, "less" if score > 0 else "unknown")]
        if not difference <= ROUNDING:
            tails.append(Tail(0.0, "unknown", f"round {int(number) + 1}"))
        return found(
            self.key, worst(tails), claimed=1.0, measured=share, interval=(share - 1.96 * spread, share + 1.96 * spread),
            presentations=int(count),
        )  # fmt: skip


class Denominator:
    """What the release was divided by, as it is said and as the sum shows it, in all and by layer: the sum is in it once."""

    key: ClassVar[str] = "denominator"

    def applies(self, subject: Subject) -> str | None:
        """Always: it is said with every release."""
        return None

    def init(self, subject: Subject) -> Memory:
        """Rounds and the largest difference of what is said; Σ <noise, sum>, Σ |sum|², scores, number; Σ n; by layer.

        And what was announced over what the trainer expected, in the first round; the largest difference from it, its round.
        """
        layers = np.zeros((2, len(layers_of(subject))))  # Σ <noise, sum> over the noise's spread, Σ |sum|²
        return {"said": np.zeros(3), "sums": np.zeros(5), "announced": np.zeros(1), "layers": layers, "fixed": np.zeros(3)}

    def observe(self, memory: Memory, seen: Round, subject: Subject) -> None:
        """One round."""
        used = seen.seen.release.denominator
        memory["said"][0] += 1
        memory["announced"] += seen.denominator
        difference = abs(used / seen.denominator - 1) if seen.denominator else 0.0
        if difference > memory["said"][1]:
            memory["said"][1:] = difference, seen.seen.round
        self._fixed(memory["fixed"], seen)
        total = seen.apart
        if total is None or seen.noise is None or seen.noise.at_least:
            return
        whole = total.size == subject.dim  # else a part of the coordinates is looked at
        places = list(layers_of(subject).values()) if whole else [slice(0, total.size)]
        inner, length = np.zeros(len(places)), np.zeros(len(places))
        for layer, place in enumerate(places):
            for block, summed in total.blocks(place):
                length[layer] += float(np.einsum("i,i->", summed, summed))
                inner[layer] += float(np.einsum("i,i->", seen.noise.values[block], summed))
        if length.sum() > 0:
            scaled = inner / max(seen.noise.spread, 1e-12)
            score = scaled.sum() ** 2 / length.sum()
            memory["sums"] += [inner.sum(), length.sum(), scaled.sum(), score, 1.0]
            if whole:  # each layer by the strength of its own noise: that it is as claimed is another sentence
                sizes, squares = seen.noise.moments.sizes, seen.noise.moments.sums[1]
                memory["layers"] += [inner / np.maximum(np.sqrt(squares / sizes), 1e-12), length]

    def _fixed(self, memory: Array, seen: Round) -> None:
        """A number that is announced, but follows the data, is not fixed."""
        if seen.seen.expected and seen.seen.public is not None:
            share = seen.seen.public.denominator / seen.seen.expected
            memory[0] = memory[0] or share
            if (difference := abs(share / memory[0] - 1)) > memory[1]:
                memory[1:] = difference, seen.seen.round

    def conclude(self, memory: Memory, shared: Memory, subject: Subject) -> Finding | NotTested:
        """The worst of what is said and what is seen."""
        rounds, difference, number = memory["said"].tolist()
        if not rounds:
            return NotTested(self.key, "no-residual")
        announced = float(memory["announced"][0]) / rounds
        tails = [Tail(0.0 if difference > 1e-9 else 1.0, "unknown", f"round {int(number) + 1}")]
        _, difference, number = memory["fixed"].tolist()
        tails.append(Tail(0.0 if difference > 1e-9 else 1.0, "unknown", f"the number that round {int(number) + 1} announced"))
        inner, squares, scaled, scores, count = memory["sums"].tolist()
        measured, interval, told = None, (None, None), subject.description.noise
        if count and told is not None:
            tails += [normal(scaled / math.sqrt(squares)), Tail(min(1.0, 2 * min(chi_square(scores, count))))]
            tails += _by_layer(memory["layers"], subject)
            share, spread = 1 + inner * told.multiplier / squares, 1.96 * told.multiplier / math.sqrt(squares)
            if share - spread > 0:
                measured, interval = announced / share, (announced / (share + spread), announced / (share - spread))
        return found(self.key, worst(tails), claimed=announced, measured=measured, interval=interval)


def _by_layer(sums: Array, subject: Subject) -> list[Tail]:
    """Whether the sum of one layer is in the release once, as that of the others."""
    rows = [row for row in zip(layers_of(subject), *sums.tolist(), strict=True) if row[2] > 0]
    return [worst([normal(inner / math.sqrt(squares), f"layer {name}") for name, inner, squares in rows])] if rows[1:] else []


CONTRIBUTIONS: tuple[Check, ...] = (Clipping(), TreatedAlike(), CanariesWhole(), Denominator())
