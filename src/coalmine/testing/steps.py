"""`assert_conforms`: one private step under test, with gradients that are made for it.

    C   clip_norm           norm to which each gradient must be clipped
    z   noise_multiplier    noise on the sum of clipped gradients, in clip norms
    n   denominator         what the noisy sum is divided by; the batch size unless it is stated

The gradients of a step have norms from C/10 to 10 C, some of them in one half of the parameters only; a few are far longer. The
sum of their clips is computed here, so that all that is left of a release is the noise, which the tests of
`coalmine.conformance` look at. Correct code fails by chance with probability `level`.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from coalmine import _validate
from coalmine._random import stream
from coalmine.conformance import CHECKS, Battery, Subject
from coalmine.contracts import (
    Array,
    Clip,
    Conformance,
    Description,
    Finding,
    Noise,
    Observed,
    Public,
    Release,
    RoundCanaries,
    Vector,
)
from coalmine.contracts.conformance import LEVEL

_LONG = 4  # gradients of a step that are far too long
_TIMES = 1e4  # as long as this many clip norms
_SPREAD = 10.0  # the others are from C / 10 to 10 C long
_FIRST = ("canaries-whole", "denominator")  # what says most about a fault, if it is found false
_SENTENCES = {
    "canaries-whole": "a gradient that is longer than the clip norm is clipped to it, and counted once",
    "denominator": "the sum of clipped gradients is in the release once, divided by the number that was stated",
}


def assert_conforms(
    step: Callable[[Vector], Any],
    *,
    dim: int,
    clip_norm: float,
    noise_multiplier: float,
    steps: int = 64,
    batch: int = 64,
    seed: int | None = None,
    denominator: float | None = None,
    groups: Mapping[str, slice] | None = None,
    level: float = LEVEL,
) -> Conformance:
    """Call `step(gradients)` so many times, and fail with the sentence that is false: what was claimed, what was measured.

    Args:
        step: The code under test: (batch, dim) per-example gradients to the noisy mean, with new noise in every call.
        dim: Parameters.
        clip_norm: As claimed.
        noise_multiplier: As claimed: standard deviation of the noise on the sum, in clip norms.
        steps: How often `step` is called.
        batch: Gradients in a call.
        seed: Fixes the gradients, not your noise.
        denominator: What the noisy sum is divided by, if not by the batch: 1 for a sum.
        groups: Layers by their slices, which are then looked at one by one.
        level: Probability with which correct code fails.

    Returns:
        All findings, also where nothing failed.

    Raises:
        AssertionError: With the sentence that is false.
    """
    _validate.whole("dim", dim, least=2)
    _validate.whole("steps", steps, least=2)
    _validate.whole("batch", batch, least=_LONG + 1)
    clip, noise = _validate.positive("clip_norm", clip_norm), _validate.positive("noise_multiplier", noise_multiplier)
    divisor = float(batch) if denominator is None else _validate.positive("denominator", denominator)
    description = Description(Clip(clip), Noise(noise, noise), "none" if divisor == 1 else "expected")
    battery = Battery(Subject(description, dim, dict(groups or {}), rounds=steps, level=level), CHECKS)
    secret = secrets.randbits(64) if seed is None else _validate.whole("seed", seed)
    for number in range(steps):
        gradients = _gradients(stream(secret, "gradients of a test", number), batch, dim, clip)
        battery.observe(_observed(number, gradients, _vector(step(gradients.copy()), dim), clip, divisor))
    found = battery.conclude()
    if found.side in ("less", "unknown"):
        raise AssertionError(_message(found, denominator is None))
    return found


def _gradients(rng: np.random.Generator, batch: int, dim: int, clip: float) -> Vector:
    """The far too long ones first, then every third in the first half of the parameters and every third in the second."""
    rows = rng.standard_normal((batch, dim)).astype(np.float32)
    rows[_LONG + 1 :: 3, dim // 2 :] = 0.0
    rows[_LONG + 2 :: 3, : dim // 2] = 0.0
    lengths = clip * _SPREAD ** rng.uniform(-1.0, 1.0, batch)
    lengths[:_LONG] = clip * _TIMES
    made: Vector = rows * (lengths / np.linalg.norm(rows, axis=1))[:, None].astype(np.float32)
    return made


def _clipped(rows: Vector, clip: float) -> Array:
    norms = np.sqrt(np.einsum("ij,ij->i", rows, rows, dtype=np.float64))
    return np.asarray(np.minimum(1.0, clip / np.maximum(norms, 1e-300)) @ rows.astype(np.float64))


def _observed(number: int, gradients: Vector, release: Vector, clip: float, divisor: float) -> Observed:
    return Observed(
        round=number,
        release=Release(number, release, clip, divisor),
        canaries=RoundCanaries(np.arange(_LONG), None, _clipped(gradients[:_LONG], clip) / divisor),
        others=_clipped(gradients[_LONG:], clip) / divisor,
        public=Public(number, clip, divisor),
        count=len(gradients),
    )


def _vector(release: Any, dim: int) -> Vector:
    """What a step returned, of whatever library, as one vector."""
    parts = list(release) if isinstance(release, list | tuple) else [release]
    if any(hasattr(part, "detach") for part in parts):
        parts = [part.detach().to("cpu") for part in parts]
    vector: Vector = np.concatenate([np.asarray(part).reshape(-1) for part in parts])
    if vector.shape != (dim,) or not np.issubdtype(vector.dtype, np.floating):
        raise ValueError(f"the step returned {vector.size} numbers of type {vector.dtype}; it must return {dim} floats.")
    if not np.isfinite(vector).all():
        raise AssertionError("the step returned NaN or infinity for finite gradients.")
    return vector


def _message(found: Conformance, assumed: bool) -> str:
    """The sentence that is false, first that which says most."""
    rank = {key: place for place, key in enumerate(_FIRST)}
    order = sorted(found.deviations, key=lambda each: (rank.get(each.key, len(rank)), each.p_value))
    said = f"not as claimed: {_line(order[0])}"
    if len(order) > 1:
        said += "; also false: " + "; ".join(_SENTENCES.get(each.key, each.sentence) for each in order[1:])
    divided = found.finding("denominator")
    if assumed and divided is not None and 0.5 < (divided.measured or 0.0) < 2:
        said += ". (If the step returns a sum and not a mean, state denominator=1.)"
    return said


def _line(finding: Finding) -> str:
    numbers = "" if finding.measured is None else f": measured {finding.measured:.4g}"
    numbers += "" if finding.claimed is None else f", claimed {finding.claimed:.4g}"
    return f"{_SENTENCES.get(finding.key, finding.sentence)}{numbers} (p = {finding.adjusted:.2g})"
