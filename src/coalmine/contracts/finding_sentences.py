"""Sentences of conformance: what each test is about, and why one could not be made. Keys are those of the checks."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

Numbers = Mapping[str, Any]

FINDINGS: dict[str, str | Callable[[Numbers], str]] = {
    "noise-scale": "the noise has the standard deviation that was claimed",
    "noise-by-round": "the noise is as strong in every round",
    "noise-by-layer": "the noise is as strong in every layer",
    "noise-by-coordinate": "the noise is as strong on every coordinate",
    "noise-fresh": "the noise is new in every round",
    "noise-independent": "the noise is independent across coordinates",
    "noise-gaussian": "the noise is Gaussian",
    "noise-resolution": "the noise is not rounded to few values",
    "noise-mean": "the noise has mean zero",
    "noise-unpredictable": "the noise does not come from a guessable seed",
    "clipping": "every contribution is clipped to the clip norm",
    "treated-alike": "every contribution is clipped and counted in the same way, once",
    "trained-alone": "what a client contributes does not depend on who is trained beside it",
    "canaries-whole": "canaries arrive whole and once",
    "denominator": "the sum is divided by the number that was announced",
    "cohorts": "cohorts are drawn as claimed",
    "quantile-noise": "the quantile of adaptive clipping is noisy",
    "earlier-rounds": "nothing of earlier rounds comes back",
}
WHITENED = {"noise-fresh": "whitened by its strategy, the noise is new in every round"}  # of correlated noise
SIZES = "cohorts are as large as their sampling makes them"  # where nobody says who they are
MEASURED = {  # what the number of a finding is, where its sentence does not say so
    "noise-by-coordinate": "coordinates without noise",
    "noise-gaussian": "as fourth moment",
    "noise-resolution": "as share of repeated values",
    "noise-mean": "standard deviations",
    "noise-fresh": "as correlation of two rounds",
    "noise-independent": "as correlation of coordinates",
    "noise-unpredictable": "as cosine with other noise",
    "earlier-rounds": "as mean score",
    "clipping": "clip norms",
    "treated-alike": "contributions that differ",
    "trained-alone": "clip norms in the sum",
    "canaries-whole": "of what they must add",
    "cohorts": "in a round",
}
NOT_TESTED: dict[str, str | Callable[[Numbers], str]] = {
    "no-residual": "the sum of the contributions is not known in this view, so that the noise cannot be separated",
    "noise-too-small": "the noise is within the rounding of the sum",
    "no-noise": "no noise was claimed",
    "no-samples": "no contribution was seen before and after clipping",
    "no-cohorts": "who took part is not recorded",
    "not-adaptive": "the clip norm is fixed",
    "one-round": "there is one round only",
    "not-described": "the mechanism does not describe this part",
    "secret-weights": "examples have secret weights, so that nobody knows what becomes of them",
    "one-layer": "there is one layer only",
    "few-coordinates": "the model has too few parameters for it",
    "all-clamped": "the share of unclipped updates was at its limit in every round",
    "no-counts": "how many updates were unclipped is not known",
}

NO_PART = ("not-described", "not-adaptive", "one-round", "one-layer")  # reasons by which a sentence is no part of a description


def finding(key: str, details: Numbers) -> str:
    """The sentence of the description that a check tests."""
    made: str | Callable[[Numbers], str] = WHITENED.get(key, "") if details.get("whitened") else ""
    made = made or (SIZES if details.get("sizes_only") else FINDINGS.get(key, key))
    return made if isinstance(made, str) else made(details)


def not_tested(code: str, data: Numbers) -> str:
    """Why a test was not made."""
    made = NOT_TESTED.get(code, code)
    return made if isinstance(made, str) else made(data)


MARKS = {
    "none": "as claimed",
    "less": "less than claimed",
    "more": "more than claimed",
    "unknown": "not as claimed",
}


def finding_line(found: Any) -> str:
    """One finding for people, in a line."""
    unit = f" {MEASURED[found.key]}" if found.key in MEASURED else ""
    numbers = "" if found.measured is None else f": measured {with_interval(found.measured, found.low, found.high)}{unit}"
    numbers += "" if found.claimed is None else f", claimed {figure(found.claimed)}"
    if found.deviates and None not in (found.measured, found.claimed) and figure(found.measured) == figure(found.claimed):
        numbers = ""  # what is wrong is not in this number
    numbers += f", {found.where}" if found.where else ""
    return f"{found.sentence}{numbers} ({chance(found.p_value)}, {MARKS[found.side]})"


def conformance_line(about: Any) -> str:
    """All tests in a line."""
    noise, clip, fresh = about.noise, about.finding("clipping"), about.finding("noise-fresh")
    parts = []
    if noise is not None and noise.measured is not None:
        claimed = "" if noise.claimed is None else f" (claimed {noise.claimed:.4g})"
        parts.append(f"noise {with_interval(noise.measured, noise.low, noise.high)}{claimed}")
    if clip is not None and clip.measured is not None:
        parts.append(f"clip {clip.measured:.4f}")
    if fresh is not None and not fresh.deviates:
        parts.append("independent between rounds after whitening" if fresh.details.get("whitened") else "fresh every round")
    count = len(about.findings)
    parts.append(f"{count} test{'s' * (count != 1)}")
    if count:
        least = min(each.p_value for each in about.findings)
        parts.append(f"smallest {chance(least)}".replace(" = ", " "))
    return ", ".join(parts)


def conformance_lines(about: Any) -> list[tuple[str, str]]:
    """All tests for `print`, as (name, text): a line about all, one for each sentence found false, and what was not tested."""
    by_reason: dict[str, list[str]] = {}
    for each in about.not_tested:
        if each.code not in NO_PART:
            by_reason.setdefault(each.reason, []).append(finding(each.key, {}))
    missing = [("not tested", f"{'; '.join(said)}: {reason}") for reason, said in by_reason.items()]
    return [("mechanism", conformance_line(about)), *(("found false", str(each)) for each in about.deviations), *missing]


def figure(value: float) -> str:
    """A number with four digits; large whole ones with all of theirs, since they are counts.

    >>> figure(27350.0), figure(0.62893), figure(3.0)
    ('27,350', '0.6289', '3')
    """
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e15 and float(value).is_integer() else f"{value:.4g}"


def with_interval(value: float, low: float | None = None, high: float | None = None) -> str:
    """A number with half the width of its interval, of which two digits count.

    >>> with_interval(0.62893, 0.62771, 0.63015), with_interval(3.0), with_interval(0.5, 0.5, 0.5)
    ('0.6289 ± 0.0012', '3', '0.5')
    """
    half = (high - low) / 2 if low is not None and high is not None else 0.0
    if not (0 < half < math.inf and math.isfinite(value)):
        return figure(value)
    digits = min(max(1 - math.floor(math.log10(half)), 0), 12)
    return f"{value:.{digits}f} ± {half:.{digits}f}"


def chance(p_value: float) -> str:
    """A p-value.

    >>> chance(0.2134), chance(0.0)
    ('p = 0.21', 'p < 1e-12')
    """
    return f"p = {p_value:.2g}" if p_value >= 1e-12 else "p < 1e-12"
