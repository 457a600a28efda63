"""Sentences about crafted canaries: what measured rounds of a run showed, in words."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

Numbers = Mapping[str, Any]


def crafted_words(crafted: Numbers) -> dict[str, str]:
    """The lines of a printed result; the bound and the estimate of all measured rounds are among the views."""
    rounds = crafted["rounds"]
    design, last = rounds[-1]["design"], rounds[-1]
    many = "1 round" if len(rounds) == 1 else f"{len(rounds)} rounds"
    how = "frozen draws, the training unchanged" if crafted["mode"] == "frozen" else "canaries joined running rounds"
    words = {
        "crafted": f"{many} measured ({how}); efficiency {design['efficiency']:.3f}, noise measured "
        f"{last['noise']['measured']:.4g}, claimed {last['noise']['claimed']:.4g}; claim of one round: epsilon = "
        f"{_number(last['claim'])}"
    }
    above = [str(each["round"]) for each in rounds if each["violated"]]
    if above:
        words["crafted"] += f"; above it by themselves: round {', '.join(above)}"
    printed = last["printed"]
    if "epsilon" in printed:
        words["as printed"] = (
            f"{printed_words(printed)} of round {last['round']} at delta {printed['delta']:.3g}, not a bound; "
            f"a perfect canary would show {_number(printed['perfect_canary']['epsilon'])} by this estimator"
        )
        composed = crafted["composed"].get("printed")
        if composed is not None:
            words["as printed"] += (
                f"; composed {_number(finite_printed(composed))}, not a bound; a perfect canary would show "
                f"{_number(composed['perfect_canary'])}"
            )
        if (code := crafted["composed"].get("as_published")) is not None:
            words["as published"] = f"composed {_number(code['epsilon'])} {code['note']}"
    if (bound := crafted["composed"]["bound"])["epsilon"] is not None:
        words["composed"] = (
            f"epsilon of the training at least {_number(bound['epsilon'])}, if rounds are Gaussian and sampling is as stated; "
            "rounds that were not measured count as nothing"
        )
    if (computed := last["computed"]) is not None and computed["epsilon"] is not None:
        words["unknown"] = (
            f"an adversary who does not know the others learns epsilon = {_number(computed['epsilon'])} of round "
            f"{last['round']}; computed for the stated noise, decides nothing"
        )
    if "frozen_draws" in crafted:
        words["frozen draws"] = draws_in_words(crafted["frozen_draws"])
    return words


def printed_words(printed: Numbers) -> str:
    """The paper's epsilon of a round. Without an error its formula divides by zero: then the most that can be finite."""
    if math.isfinite(float(printed["epsilon"])):
        return f"epsilon {_number(printed['epsilon'])}"
    capped = _number(printed["capped"])
    return f"no error among the scores, for which the formula has no finite value; capped at epsilon {capped}"


def finite_printed(printed: Numbers) -> float:
    """The paper's epsilon of a round or a training, capped where scores without an error have no finite value."""
    value = float(printed["epsilon"])
    return value if math.isfinite(value) else float(printed["capped"])


def draws_in_words(draws: Numbers) -> str:
    """What frozen draws cost, or would cost."""
    before, after = _number(draws["epsilon"]), _number(draws["if_published"])
    if draws["release"] == "published":
        return f"{draws['draws']}, published: a client's epsilon is {after}; without them it would be {before}"
    return f"{draws['draws']}, kept inside; published, they would raise a client's epsilon from {before} to {after}"


def _number(value: Any) -> str:
    return f"{float(value):.3g}"
