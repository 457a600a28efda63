"""The area under the ROC curve with an interval (DeLong, DeLong and Clarke-Pearson 1988), on the logit scale.

    symbol    here                    meaning
    psi       1[a > b] + 1[a = b]/2   whether an inserted score a beats a held-out score b
    A         auroc                   mean of psi over all pairs
    V10, V01  placements              means of psi over the rows, over the columns
    se        standard_error          sqrt(var(V10)/n1 + var(V01)/n0), each variance with n - 1
    logit     low, high               logit A ± z se/(A (1 - A)), mapped back

The unit is whatever one score stands for: give one number per user, not one per text. Texts of a user are not independent of
each other, and as units they make the interval far too narrow. On the logit scale the interval covers close to its level from
ten scores of each kind on; A ± z se does not, and leaves [0, 1].
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy import special, stats

from coalmine import _validate
from coalmine.contracts import Array, Ranking
from coalmine.errors import NonFiniteError, NotEnoughCanariesError

FALSE_ALARMS = (0.001, 0.01, 0.05, 0.1)
_ASSUMES = (
    "one score per user, and the users are independent draws; scored by one shared model they depend on each other weakly",
    "the interval is asymptotic",
)


def estimate_auroc(inserted: ArrayLike, held_out: ArrayLike, confidence: float = 0.95, *, label: str = "") -> Ranking:
    """How well scores rank those who took part above those who did not, with an interval: one score per user.

    >>> found = estimate_auroc([3, 2, 1.5, 0.5], [0, 1, 2, -1, 0.2])
    >>> round(found.auroc, 3), round(found.standard_error, 6), round(found.low, 3), round(found.high, 3)
    (0.825, 0.149304, 0.383, 0.973)

    Args:
        inserted: Scores of those who took part.
        held_out: Scores of those who did not.
        confidence: Of the interval.
        label: What was ranked, for people.

    Returns:
        The area under the curve with its interval; never an epsilon.
    """
    confidence = _validate.confidence(confidence)
    took, did_not = _column("inserted", inserted), _column("held_out", held_out)
    v10, v01 = _placements(took, did_not)
    auroc = float(v10.mean())
    error, missing = math.nan, ""
    if min(took.size, did_not.size) < 2:
        error, missing = 0.0, "an interval needs at least two scores of both kinds"
    else:
        error = math.sqrt(v10.var(ddof=1) / took.size + v01.var(ddof=1) / did_not.size)
        if not (0 < auroc < 1 and error > 0):
            missing = "the scores are separated perfectly or do not vary, where this interval is not defined"
    low = high = None
    if not missing:
        middle, half = special.logit(auroc), _quantile(confidence) * error / (auroc * (1 - auroc))
        low, high = float(special.expit(middle - half)), float(special.expit(middle + half))
    return Ranking(
        auroc=auroc,
        low=low,
        high=high,
        confidence=confidence,
        inserted=took.size,
        held_out=did_not.size,
        standard_error=error,
        method="DeLong, on the logit scale",
        assumptions=_ASSUMES,
        unavailable=missing,
        tpr_at={f"{rate:g}": _share_above(took, did_not, rate) for rate in FALSE_ALARMS},
        label=label,
    )


def _placements(took: Array, did_not: Array) -> tuple[Array, Array]:
    """V10 and V01 by ranks: the mean of psi over the other kind, in O(n log n)."""
    together = stats.rankdata(np.concatenate([took, did_not]))
    v10 = (together[: took.size] - stats.rankdata(took)) / did_not.size
    v01 = 1 - (together[took.size :] - stats.rankdata(did_not)) / took.size
    return v10, v01


def _share_above(took: Array, did_not: Array, rate: float) -> float | None:
    """The share of inserted scores above the threshold that at most this share of held-out scores exceeds.

    None below one held-out score in n: no threshold shows so small a rate.
    """
    allowed = math.floor(rate * did_not.size + 1e-9)
    if allowed < 1:
        return None
    threshold = np.sort(did_not)[did_not.size - allowed - 1] if allowed < did_not.size else -math.inf
    return float(np.mean(took > threshold))


def _quantile(confidence: float) -> float:
    return float(special.ndtri((1 + confidence) / 2))


def _column(name: str, values: ArrayLike) -> Array:
    try:
        found = np.atleast_1d(np.asarray(values, dtype=np.float64))
    except (TypeError, ValueError):
        raise ValueError(f"{name} must hold numbers only.") from None
    if found.ndim != 1:
        raise ValueError(f"{name} must be a flat column, one score per user; got shape {found.shape}.")
    if not found.size:
        raise NotEnoughCanariesError(f"{name} is empty: a ranking needs scores of both kinds.")
    if not np.isfinite(found).all():
        raise NonFiniteError(f"{name} contains NaN or infinity at position {int(np.argmin(np.isfinite(found)))}.")
    return found
