"""What Flower's SecAgg+ does to noise that clients add: it clips every coordinate and rounds it, after weighting by examples.

    symbol   here              meaning (flwr 1.41, secaggplus_mod and SecAggPlusWorkflow)
    r        clipping_range    coordinates are cut to ±r (8.0)
    L        levels            stochastic rounding to so many levels (2^22), by numpy's global generator
    w/W      num_examples / max_weight   what an update is multiplied by before

What is masked are the numbers that a client returns: return differences, not parameters. Rounding happens at each client, so
the sum is not post-processing of a Gaussian sum; where a step is a hundredth of the noise or less, that is flagged as a
caveat and not refused.
"""

from __future__ import annotations

from collections.abc import Sequence

from coalmine import _validate

STEPS = 100  # of rounding in one standard deviation of noise, at least
WIDTHS = 6.0  # standard deviations of noise that must fit into the range


def rounding_step(
    num_examples: float, *, max_weight: float = 1000.0, clipping_range: float = 8.0, levels: int = 1 << 22
) -> float:
    """The grain of an update after SecAgg+, in units of the update itself.

    >>> round(rounding_step(100), 8)
    3.815e-05
    """
    share = _validate.positive("num_examples", num_examples) / _validate.positive("max_weight", max_weight)
    return 2 * _validate.positive("clipping_range", clipping_range) / _validate.whole("levels", levels, least=2) / share


def check_quantisation(
    noise: float,
    num_examples: Sequence[float],
    *,
    largest: float = 0.0,
    max_weight: float = 1000.0,
    clipping_range: float = 8.0,
    levels: int = 1 << 22,
) -> str:
    """Refuses settings of SecAgg+ in which a claim for noise of the clients would be wrong; else a sentence for the caveats.

    `noise` is the standard deviation of one client's noise in a coordinate, `largest` the largest coordinate without it.
    """
    noise = _validate.positive("noise", noise)
    if not num_examples or min(num_examples) != max(num_examples):
        raise ValueError(
            "clients must report the same num_examples: SecAgg+ multiplies each update by it, and sensitivity and noise would "
            "scale apart. Return the same number from every client."
        )
    weight = float(num_examples[0])
    if weight > max_weight:
        raise ValueError(f"num_examples={weight:g} is above max_weight={max_weight:g}: Flower only warns. Raise max_weight.")
    farthest = (largest + WIDTHS * noise) * weight / max_weight
    if farthest > clipping_range:
        raise ValueError(
            f"coordinates reach {farthest:.3g} after weighting, and SecAgg+ cuts them at {clipping_range:g}: the noise would "
            "lose its tails. Raise clipping_range or max_weight."
        )
    step = rounding_step(weight, max_weight=max_weight, clipping_range=clipping_range, levels=levels)
    if not noise >= STEPS * step:
        raise ValueError(
            f"a step of rounding, {step:.3g}, is not small beside the noise of a client, {noise:.3g}: at least {STEPS} steps "
            "are needed. Lower clipping_range, or report more num_examples (up to max_weight)."
        )
    return f"rounded by secure aggregation at every client, by {step / noise:.1e} of its noise: not a Gaussian sum exactly"
