"""The quantile of adaptive clipping is noisy: its noise is read off the clip norms that follow each other.

    C_(t+1) = C_t exp(−eta (b_t − gamma))   (Andrew et al. 2021)
    b_t = (unclipped_t − count_t / 2 + sigma_b x_t) / n + 1/2, clamped to [0, 1]

x_t is standard normal; where the share was clamped it is not known, and the others follow a normal that is cut there.
"""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
from scipy.special import ndtr, ndtri

from coalmine.conformance.check import Check, Memory, Round, Subject, found, needs_noise
from coalmine.conformance.laws import both_sides, chi_square, normal, worst
from coalmine.contracts import Extra, Finding, NotTested

KIND = "quantile"
_CLAMPED = 1e-9


class QuantileNoise:
    """How small and how large |x| is over the rounds (Fisher's sum of logarithms), and the sum of x."""

    key: ClassVar[str] = "quantile-noise"

    def applies(self, subject: Subject) -> str | None:
        """Where a clip norm follows a noisy quantile."""
        return "not-adaptive" if _extra(subject) is None else needs_noise(subject)

    def init(self, subject: Subject) -> Memory:
        """The last round: clip norm, centred count, denominator; then the scores, and the noise in counts."""
        return {"last": np.zeros(0), "scores": np.zeros((2, 0)), "noise": np.zeros(0), "clamped": np.zeros(1)}

    def observe(self, memory: Memory, seen: Round, subject: Subject) -> None:
        """A round ends the one before: its clip norm says what the share was."""
        extra = _extra(subject)
        if extra is None or extra.rate is None or extra.target is None:
            return
        if memory["last"].size:
            clip, centred, divisor = memory["last"]
            share = extra.target - math.log(seen.clip_norm / clip) / extra.rate
            noise = (share - 0.5) * divisor - centred
            if _CLAMPED < share < 1 - _CLAMPED:
                edges = ((-divisor / 2 - centred) / extra.noise, (divisor / 2 - centred) / extra.noise)
                pair = [[_score(noise / extra.noise, *edges)], [_size(noise / extra.noise, *edges)]]
                memory["scores"] = np.hstack([memory["scores"], pair])
                memory["noise"] = np.append(memory["noise"], noise)
            else:
                memory["clamped"] += 1
        observed = seen.seen
        if observed.unclipped is None or observed.count is None:
            memory["last"] = np.zeros(0)
        else:
            memory["last"] = np.array([seen.clip_norm, observed.unclipped - observed.count / 2, seen.denominator])

    def conclude(self, memory: Memory, shared: Memory, subject: Subject) -> Finding | NotTested:
        """The noise on the number of unclipped updates."""
        (scores, sizes), extra = memory["scores"], _extra(subject)
        if not scores.size or extra is None:
            return NotTested(self.key, "all-clamped" if memory["clamped"][0] else "no-counts")
        small, large = (-2 * float(np.log(np.clip(each, 1e-300, 1.0)).sum()) for each in (sizes, 1 - sizes))
        count = 2 * scores.size
        tails = [both_sides(chi_square(small, count)[1], chi_square(large, count)[1])]
        tails.append(normal(float(scores.sum() / math.sqrt(scores.size))))
        measured = float(np.sqrt(np.mean(np.square(memory["noise"]))))
        return found(self.key, worst(tails), claimed=extra.noise, measured=measured, clamped=int(memory["clamped"][0]))


def _extra(subject: Subject) -> Extra | None:
    return next((each for each in subject.description.extras if each.kind == KIND), None)


def _score(value: float, low: float, high: float) -> float:
    """A normal that is cut to (low, high), as a standard normal."""
    if low > 0:  # the upper tail is more exact there
        return -_score(-value, -high, -low)
    share = (ndtr(value) - ndtr(low)) / (ndtr(high) - ndtr(low))
    return float(np.clip(ndtri(min(max(share, 0.0), 1.0)), -38.0, 38.0))


def _size(value: float, low: float, high: float) -> float:
    """P(|X| <= |value|) of a normal X that is cut to (low, high)."""
    inside = [float(np.clip(each, low, high)) for each in (-abs(value), abs(value))]
    return float((ndtr(inside[1]) - ndtr(inside[0])) / (ndtr(high) - ndtr(low)))


QUANTILE: tuple[Check, ...] = (QuantileNoise(),)
