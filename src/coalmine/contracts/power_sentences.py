"""Sentences about what an audit would have noticed, and about what an attacker finds."""

from __future__ import annotations

import math
from typing import Any

from coalmine.rounding import percent, rounded_down


def strength(factor: float) -> str:
    """How much of the claimed noise is left when it is too small by this factor, rounded down.

    >>> strength(1.84), strength(2.0), strength(250.0)
    ('54%', '50%', '0.4%')
    """
    return percent(rounded_down(1 / factor, 2) if factor > 1 else 1.0)


def attacker(numbers: Any, confidence: float, one: str = "client") -> str:
    """What claim and bound mean for an attacker, for people who do not read epsilon."""
    alarms = f"{100 * numbers.false_alarms:g}%"
    parts = [] if numbers.by_claim is None else [f"at most {_targets(numbers.by_claim, up=True)} of the targets by the claim"]
    if numbers.shown is not None:
        part = f"at least {_targets(numbers.shown)} by what was shown ({percent(confidence)} confidence)"
        parts.append(part if numbers.shown > numbers.false_alarms else "and no more than by guessing by what was shown")
    said = f"An attacker with {alarms} false alarms finds {', '.join(parts)}"
    if numbers.by_claim_of_clients is not None:
        most = _targets(numbers.by_claim_of_clients, up=True)
        said += f"; by the claim for a real {one}, at most {most}{', so that claim alone rules nothing out' * (most == '100%')}"
    return f"{said}."


def _targets(share: float, *, up: bool = False) -> str:
    """A share in percent with two digits, never rounded to the other side.

    >>> _targets(0.0927), _targets(0.0921, up=True), _targets(0.99997), _targets(0.99997, up=True)
    ('9.2%', '9.3%', '99.9%', '100%')
    """
    tenths = 1000 * share
    return f"{(math.ceil(tenths - 1e-9) if up else math.floor(tenths + 1e-9)) / 10:g}%"


def could_find(bound: Any, verdict: Any) -> str:
    """What a design would have shown above the claim, and above nothing at all."""
    if math.isinf(bound.detectable):
        return "not known at delta = 0" if bound.delta == 0 else "no leak of any size"
    found = f"any leak from epsilon {bound.detectable:.3g} on"
    if verdict is not None:
        above = "nothing" if math.isinf(verdict.detectable) else f"epsilon {verdict.detectable:.3g} or more"
        found = f"above the claim: {above}; {found}"
    return f"{found} (probability 0.8, Gaussian scores)"
