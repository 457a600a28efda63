"""The only place that phrases argument errors.

Every check is written in its positive form (`if not low < value`), so that NaN fails it.
Each function returns the value it accepted, converted to a plain number.
"""

import math
from collections.abc import Collection
from numbers import Integral
from operator import index
from typing import Any

MOST_WORKERS = 1024
MOST_LAYERS = 1000  # of a model
MOST_ROUNDS = 10_000_000
_SUREST = 1 - 1e-12  # confidence, beyond which rounding decides
_LEAST_SURE = 1e-12  # confidence, below which too
SMALLEST_CLIP = 1e-12


def number(name: str, value: Any) -> float:
    """Any real number or infinity, not NaN."""
    try:
        converted = float(value)
    except (TypeError, ValueError, OverflowError):  # the last for whole numbers beyond the largest float
        raise ValueError(f"{name}={value!r} is not a number.") from None
    if math.isnan(converted):
        raise ValueError(f"{name} is NaN; a number is needed.")
    return converted


def between(name: str, value: Any, low: float, high: float, *, hint: str = "") -> float:
    """A number strictly between `low` and `high`."""
    converted = number(name, value)
    if not low < converted < high:
        raise ValueError(_message(name, value, f"between {low:g} and {high:g}, both excluded", hint))
    return converted


def delta(value: Any, *, allow_zero: bool = False) -> float:
    """A probability for the tail of differential privacy: 0 < delta < 1, with zero only where it makes sense."""
    converted = number("delta", value)
    if allow_zero and converted == 0.0:
        return 0.0
    hint = "1 / population**1.1 is customary"
    if allow_zero and not 0 < converted < 1:
        raise ValueError(_message("delta", value, "at least 0 and below 1", hint))
    if converted == 0.0:
        hint = "a Gaussian shape has infinite epsilon at delta=0; bound_band and bound_threshold accept it"
    return between("delta", value, 0.0, 1.0, hint=hint)


def confidence(value: Any) -> float:
    """A confidence level: 0 < confidence < 1 (0.95, never 0.05 or 95)."""
    converted = number("confidence", value)
    hint = ""
    if 1.0 < converted < 100.0:
        hint = f"for {converted:g} percent write {converted / 100:g}"
    if _SUREST < converted < 1.0:
        raise ValueError(_message("confidence", value, "at most 1 - 1e-12", "beyond that, rounding decides"))
    if 0.0 < converted < _LEAST_SURE:
        raise ValueError(_message("confidence", value, f"at least {_LEAST_SURE:g}", "0.95 is customary"))
    return between("confidence", value, 0.0, 1.0, hint=hint)


def non_negative(name: str, value: Any) -> float:
    """A finite number of at least zero."""
    converted = number(name, value)
    if not 0.0 <= converted < math.inf:
        raise ValueError(_message(name, value, "at least 0 and finite"))
    return converted


def positive(name: str, value: Any) -> float:
    """A finite number above zero."""
    converted = number(name, value)
    if not 0.0 < converted < math.inf:
        raise ValueError(_message(name, value, "above 0 and finite"))
    return converted


def clip_norm(value: Any) -> float:
    """A clip norm with which the squares of single-precision coordinates neither vanish nor overflow."""
    converted = number("clip_norm", value)
    if not SMALLEST_CLIP <= converted <= 1 / SMALLEST_CLIP:
        allowed = f"between {SMALLEST_CLIP:g} and {1 / SMALLEST_CLIP:g}"
        raise ValueError(
            _message("clip_norm", value, allowed, "single precision holds nothing smaller or larger; scale the loss")
        )
    return converted


def whole(name: str, value: Any, *, least: int = 0, most: int | None = None) -> int:
    """A whole number of at least `least`, and at most `most`."""
    converted = number(name, value)
    if not (least <= converted < math.inf and converted == math.floor(converted) and (most is None or converted <= most)):
        limit = "" if most is None else f" and at most {most:,}"
        raise ValueError(_message(name, value, f"a whole number of at least {least}{limit}"))
    return int(value) if isinstance(value, Integral) else int(converted)  # a float cannot hold every large whole number


def workers(value: Any) -> int:
    """A number of worker processes."""
    return whole("workers", value, least=1, most=MOST_WORKERS)


def rounds(value: Any) -> int:
    """A number of rounds: accountants and schedules answer up to the limit."""
    return whole("rounds", value, least=1, most=MOST_ROUNDS)


def one_of(name: str, value: str, allowed: Collection[str]) -> str:
    """One of the words in `allowed`."""
    if not isinstance(value, str) or value not in allowed:
        raise ValueError(_message(name, value, "one of " + ", ".join(repr(word) for word in allowed)))
    return value


def secret(name: str, value: Any) -> int:
    """A whole number of at least zero that no message shows."""
    if not isinstance(value, Integral) or isinstance(value, bool) or not int(value) >= 0:
        raise ValueError(f"{name} is not allowed: it must be a whole number of at least 0. (Its value is not shown.)")
    return int(value)


def span(name: str, value: Any, size: int) -> slice:
    """A slice of neighbouring coordinates of a vector of `size`, with both ends stated."""
    if not isinstance(value, slice) or value.step not in (None, 1):
        raise ValueError(_message(name, value, "a slice without a step"))
    try:
        start, stop = index(value.start), index(value.stop)
    except TypeError:
        raise ValueError(_message(name, value, "a slice with both ends stated")) from None
    if not 0 <= start < stop <= size:
        raise ValueError(_message(name, value, f"a slice of at least one coordinate within 0 and {size}"))
    return slice(start, stop)


def _message(name: str, value: Any, allowed: str, hint: str = "") -> str:
    return f"{name}={value!r} is not allowed: it must be {allowed}." + (f" ({hint})" if hint else "")
