"""Made-up tests of a mechanism's description, for tests of what is said about them."""

from dataclasses import replace

from coalmine.contracts import Conformance, Finding, NotTested
from coalmine.contracts.finding_sentences import FINDINGS

NOISE = 0.63


def finding(key, side="none", **changes):
    """The test of a sentence; one that found it false is certain."""
    p_value = 0.21 if side == "none" else 1e-9
    made = Finding(key, None, None, None, None, p_value, side, 1.0 if side == "none" else 1e-8)
    if key == "noise-scale":
        measured = {"none": 0.6289, "less": 0.31, "more": 0.9, "unknown": 0.7}[side]
        made = replace(made, claimed=NOISE, measured=measured, low=measured - 0.0012, high=measured + 0.0012)
    if key == "clipping":
        made = replace(made, claimed=1.0, measured=1.0)
    return replace(made, **changes)


def conformance(false=None, missing=None, noticed=0.9975, **changes):
    """All sentences but the `missing` ones (key to code) were tested; `false` has the sides of those that were found false."""
    false, missing = false or {}, {"quantile-noise": "not-adaptive", **(missing or {})}
    made = [key for key in FINDINGS if key in false or key != "trained-alone"]  # which only crafted canaries test
    findings = tuple(finding(key, false.get(key, "none")) for key in made if key not in missing)
    wave = tuple(NOISE * (1 + 0.003 * ((7 * number) % 5 - 2) / 2) for number in range(8))
    made = Conformance(
        findings,
        not_tested=tuple(NotTested(key, code) for key, code in missing.items()),
        rounds=8,
        coordinates=54_692,
        noise_by_round=wave,
        noticed_noise_factor=noticed,
        epsilon_at_measured=(7.561, 7.528, 7.597),
    )
    return replace(made, **changes)
