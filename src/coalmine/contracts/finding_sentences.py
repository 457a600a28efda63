"""Sentences of conformance: what each test is about, and why one could not be made. Keys are those of the checks."""

from __future__ import annotations

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
    "treated-alike": "every client is clipped and counted in the same way, once",
    "canaries-whole": "canaries arrive whole and once",
    "denominator": "the sum is divided by the number that was announced",
    "cohorts": "cohorts are drawn as claimed",
    "quantile-noise": "the quantile of adaptive clipping is noisy",
    "earlier-rounds": "nothing of earlier rounds comes back",
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
}


def finding(key: str, details: Numbers) -> str:
    """The sentence of the description that a check tests."""
    made = FINDINGS.get(key, key)
    return made if isinstance(made, str) else made(details)


def not_tested(code: str, data: Numbers) -> str:
    """Why a test was not made."""
    made = NOT_TESTED.get(code, code)
    return made if isinstance(made, str) else made(data)


def finding_line(found: Any) -> str:
    """One finding for people, in a line."""
    mark = {"none": "as claimed", "less": "LESS THAN CLAIMED", "more": "more than claimed", "unknown": "NOT AS CLAIMED"}
    numbers = "" if found.measured is None else f": measured {found.measured:.4g}"
    numbers += "" if found.claimed is None else f", claimed {found.claimed:.4g}"
    return f"{found.sentence}{numbers} (p = {found.p_value:.2g}, {mark[found.side]})"


def conformance_line(about: Any) -> str:
    """All tests in a line."""
    noise = about.noise
    start = []
    if noise is not None and noise.measured is not None:
        start.append(f"noise {noise.measured:.4g} ± {(noise.high - noise.low) / 2:.2g} (claimed {noise.claimed:.4g})")
    start += [f"found false: {each.sentence}" for each in about.deviations]
    least = min((each.p_value for each in about.findings), default=1.0)
    return ", ".join([*start, f"{len(about.findings)} tests", f"smallest p {least:.2g}"])
