"""A measured round for people: what `coalmine craft` prints."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from coalmine.contracts import Finding, from_plain
from coalmine.contracts.crafted_sentences import finite_printed, printed_words


def in_words(found: Mapping[str, Any]) -> str:
    """A line for every statement."""
    return "\n".join(f"{name:<15}{text}" for name, text in _lines(found))


def _lines(found: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    estimate, design, composed = (found[name] for name in ("estimate", "design", "composed"))
    many = "1 canary" if design["canaries"] == 1 else f"{design['canaries']} canaries"
    yield "round", f"{found['round']}, {many}, {found['scores']} scores"
    if (draws := found["draws"])["made"] > draws["asked"]:
        few = draws["asked"] * design["canaries"]
        yield "", f"{draws['made']} draws in place of {draws['asked']}: {few} scores are too few to show any epsilon"
    yield (
        "efficiency",
        (
            f"{design['efficiency']:.3f} (visibility {design['visibility']:.3f}, reach {design['reach']:.3f}, "
            f"overlap {design['overlap']:.3f})"
        ),
    )
    yield "noise", f"{found['noise']['measured']:.4g} measured, {found['noise']['claimed']:.4g} claimed"
    yield "estimate", f"epsilon {_number(estimate['epsilon'])} ({_number(estimate['low'])} to {_number(estimate['high'])})"
    yield "lower bound", f"epsilon {_number(found['bound']['epsilon'])} at {100 * found['confidence']:g} % confidence"
    if (free := found["held_out_bound"])["epsilon"] != found["bound"]["epsilon"]:
        text = f"epsilon {_number(free['epsilon'])} by held-out scores alone, whatever the noise is"
        yield "", f"{text}; so many scores can show {_number(free['ceiling'])}"
    yield "claim", f"epsilon {_number(found['claim'])} of one round, at the same delta {found['delta']:g}"
    yield from _printed(found["printed"])
    if (computed := found["computed"]) is not None and computed["epsilon"] is not None:
        yield "others unknown", f"epsilon {_number(computed['epsilon'])}, computed for the stated noise; decides nothing"
    yield from _composed(composed)
    cost = found["frozen_draws"]
    yield (
        "frozen draws",
        (
            f"{cost['draws']}, {cost['release']}; published, they would raise a client's epsilon from "
            f"{_number(cost['epsilon'])} to {_number(cost['if_published'])}"
        ),
    )
    yield from _verdict(found)


def _verdict(found: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Whether a bound is above the claim, and what was found false of the mechanism itself."""
    findings = [from_plain(Finding, found[name], name) for name in ("noise_scale", "trained_alone") if name in found]
    lines = ["VIOLATED: the bound is above the claim"] if found["violated"] else []
    lines += [f"DEVIATES: found false: {each}" for each in findings if each.deviates]
    for place, line in enumerate(lines or ["the claim is not contradicted"]):
        yield "" if place else "verdict", line


def _printed(printed: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The paper's number of this round."""
    if "epsilon" not in printed:
        return
    yield (
        "as printed",
        (
            f"{printed_words(printed)}, at delta 1/n = {printed['delta']:.3g}: not a bound; "
            f"so many scores give {_number(printed['ceiling'])} at most"
        ),
    )
    yield "", f"a perfect canary would show {_number(printed['perfect_canary']['epsilon'])} by this estimator"
    if "at_mock_threshold" in printed:
        yield "", f"with the threshold chosen on mock rounds: {printed_words(printed['at_mock_threshold'])}"


def _composed(composed: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The whole training."""
    if "printed" in composed:
        yield (
            "composed",
            (
                f"epsilon {_number(finite_printed(composed['printed']))} of the whole training as printed: not a bound; "
                f"a perfect canary would show {_number(composed['printed']['perfect_canary'])}"
            ),
        )
    if (code := composed.get("as_published")) is not None:
        yield "", f"epsilon {_number(code['epsilon'])} {code['note']}"
    if composed["bound"]["epsilon"] is not None:
        yield "", f"at least {_number(composed['bound']['epsilon'])}, if rounds are Gaussian and clients sampled as stated"


def _number(value: Any) -> str:
    return f"{float(value):.3f}" if math.isfinite(float(value)) else "without limit"
