"""Where codes become sentences for people. Nothing reads a sentence back: whoever needs to know has the code.

A reason of a verdict and a caveat are stored as a code with its numbers; what is printed of them is made here. Sentences that a
page adds on its own are in `coalmine.report.words`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

from coalmine.contracts.finding_sentences import MEASURED, figure, finding
from coalmine.contracts.notation import NOTATION
from coalmine.contracts.power_sentences import strength
from coalmine.rounding import percent, rounded_up, told_apart

Numbers = Mapping[str, Any]
_TIGHT = 0.98  # of a claim: an audit that can see so much of it can reach it


def view_name(view: str, layer: str | None = None) -> str:
    """A view's key in words, and the layer that it was limited to.

    >>> view_name("known-others", "dense1")
    'known others, within dense1'
    """
    name = view.replace("-", " ") if view.replace("-", "").isalpha() and view.islower() else view
    return name if layer is None else f"{name}, within {layer}"


def reason(code: str, numbers: Numbers) -> str:
    """Why a verdict is what it is, in half a sentence; two reasons are two codes with a plus sign."""
    try:
        known = [REASONS[each](numbers) for each in code.split("+") if each in REASONS]
    except (KeyError, TypeError, ValueError):  # a file whose numbers were edited
        return f"for a reason whose numbers are missing ({code})"
    return "; ".join(known) if known else f"for a reason that this version does not know ({code})"


def brief(code: str, numbers: Numbers) -> str:
    """The same without what would have been noticed."""
    return "; ".join(BRIEF.get(each) or reason(each, numbers) for each in code.split("+"))


def caveat(code: str, data: Numbers) -> tuple[str, str]:
    """(what it is about, the sentence)."""
    if code not in CAVEATS:
        return str(data.get("name", "note")), str(data.get("text", code))
    name, made = CAVEATS[code]
    try:
        return (str(data["name"]) if name is None else name), (made if isinstance(made, str) else made(data))
    except (KeyError, TypeError, ValueError):  # a file whose numbers were edited
        return name or "note", f"{code}, whose numbers are missing"


def attendance(how: Any) -> str:
    """How often and when somebody takes part."""
    made = ATTENDANCES.get(how.kind)
    return made(how) if made is not None else str(how.kind if how.text is None else how.text)


def _above(numbers: Numbers) -> str:
    least, claimed = told_apart(numbers["bound"], numbers["claim"])
    return f"with {percent(numbers['confidence'])} confidence epsilon is at least {least}, more than the {claimed} claimed"


def _missed(numbers: Numbers) -> str:
    factor = numbers["factor"]
    seen = f"the canaries would have noticed only noise at {strength(factor)} of its claimed strength or less"
    if math.isinf(factor):
        seen = "no lack of noise would have been noticed: what this adversary does not know hides the canaries"
    return f"{seen}; half the noise would probably have been missed"


def _incomplete(numbers: Numbers) -> str:
    said = f"the tests of the mechanism would have noticed noise weaker by {too_small(numbers['noticed'])}"
    return f"{said}, but {numbers['untested']:.0f} of the sentences that the claim rests on could not be tested"


def _consistent(numbers: Numbers) -> str:
    said, factor = "no leak above the claim was found", numbers["factor"]
    if factor > 1:  # else this design would take even a correct mechanism for a wrong one: nothing to boast of
        said += f"; noise at {strength(factor)} of its claimed strength would have been noticed"
    return said


def _deviates(numbers: Numbers) -> str:
    false = [finding(key, numbers) for key in numbers["found_false"]]
    first = f"the code is not the mechanism that was claimed. Found false: {', '.join(false[:1])}{_both(numbers)}"
    return f"{first}{_and_more(len(false) - 1)}{_interval_above(numbers)}"


def _more_noise(numbers: Numbers) -> str:
    said = f"the code adds more noise than was claimed{_both(numbers)}"
    return f"{said} and nothing else was found false: more protection, paid for by accuracy{_interval_above(numbers)}"


def _both(numbers: Numbers) -> str:
    if not ("measured" in numbers and "claimed" in numbers):
        return ""
    if figure(numbers["measured"]) == figure(numbers["claimed"]):  # what was found is not in this number
        return ""
    unit = MEASURED.get(next(iter(numbers.get("found_false", ())), ""), "")
    return f" (measured {figure(numbers['measured'])}{f' {unit}' * bool(unit)}, claimed {figure(numbers['claimed'])})"


def _and_more(count: int) -> str:
    return f", and {count} more sentence{'s' * (count > 1)}" if count > 0 else ""


def _interval_above(numbers: Numbers) -> str:
    """That the estimate lies above the claim, where it does: `low`, `high`, `claim` and `confidence` are there then."""
    return f"; {_estimate_above(numbers)}" if "low" in numbers else ""


def _estimate_above(numbers: Numbers) -> str:
    low, claimed = told_apart(numbers["low"], numbers["claim"])
    sure = percent(numbers["confidence"])
    return f"the {sure} interval of the estimate, {low} to {numbers['high']:.3g}, lies wholly above the {claimed} claimed"


def _conforms(numbers: Numbers) -> str:
    said = f"{BRIEF['conforms']} ({numbers['tests']:.0f} tests); "
    return f"{said}noise weaker by {too_small(numbers['noticed'])} would have been noticed{_interval_above(numbers)}"


def too_small(factor: float) -> str:
    """By how many percent noise of so many times the claimed strength is too small, rounded up.

    >>> too_small(0.9975), too_small(0.9)
    ('0.25%', '10%')
    """
    return percent(rounded_up(round(1 - factor, 9)))


def _seen(numbers: Numbers) -> str:
    """How much of a canary shows through correlated noise, and to whom."""
    claimed, most, described, diagonal = (numbers[name] for name in ("claimed", "most", "described", "diagonal"))
    said = (
        f"a canary stands out by {described:.3g} standard deviations on average for whoever knows how the noise is correlated "
        f"({numbers['strategy']}), by {diagonal:.3g} for whoever takes it for new in every round; claimed is {claimed:.3g}"
    )
    tight = most > _TIGHT * claimed
    return said if tight else f"{said}, and the releases show no canary by more than {most:.3g}"


def _diverged(numbers: Numbers) -> str:
    said = f"the clients' loss rose from {numbers['begun']:.3g} to {numbers['ended']:.3g}, so that the model is worse than at "
    said += "its start. "
    if "clip_begun" in numbers:
        said += f"The clip norm went from {numbers['clip_begun']:.3g} to {numbers['clip_ended']:.3g}: it follows long updates, "
        said += "and the noise follows it. Fix it, or lower"
    else:
        said += "Lower"
    return f"{said} the learning rates, take more clients a round, or less noise"


def how_often(stored: Any, *, by: bool = False) -> str:
    """An attendance, or what a file says of one; `by`: as something that is done, where it is a way of sampling."""
    how = SimpleNamespace(**stored) if isinstance(stored, Mapping) else stored
    said = attendance(how) if isinstance(stored, Mapping) else str(stored)
    return f"by {said}" if by and getattr(how, "rate", None) is not None else said


REASONS: dict[str, Callable[[Numbers], str]] = {
    "bound-above-claim": _above,
    "claim-infinite": lambda n: "the claim is infinite: nothing could exceed it",
    "ceiling-below-claim": lambda n: (
        f"even perfect separation would show only {n['ceiling']:.3g}, not more than the {n['claim']:.3g} claimed; "
        "use more canaries or an exact null"
    ),
    "nothing-detectable": lambda n: "no violation would have been noticed",
    "delta-zero": lambda n: "at delta = 0 it is not known which violation would have been noticed",
    "half-noise-missed": _missed,
    "not-all-tested": _incomplete,
    "maximum-hidden": lambda n: (
        "a maximum over rounds that shows nothing says nothing here. What a mechanism with the claimed noise leaks would "
        f"stand out from the other rounds in only {percent(n['share'])} of runs"
    ),
    "clients-claim-above-limit": lambda n: (
        f"the accountant's own claim for those who take part in this run is {n['clients']:.3g}, more than {n['limit']:.3g}; "
        "the canaries took part less often, and show less"
    ),
    "consistent": _consistent,
    "deviates": _deviates,
    "more-noise": _more_noise,
    "estimate-above-claim": lambda n: f"{_estimate_above(n)}; nothing that was tested confirms it",
    "conforms": _conforms,
    "conforms-estimate-above": lambda n: f"{_conforms(n)}, as it does in a few of a hundred correct runs",
}

BRIEF = {  # the same without what would have been noticed, for pages that say that in a line of its own
    "consistent": "no leak above the claim was found",
    "half-noise-missed": "half the noise would probably have been missed",
    "conforms": "the code does what was claimed, and no leak above the claim was found",
    "conforms-estimate-above": "the code does what was claimed, and no leak above the claim was found; the estimate lies above "
    "the claim, as it does in a few of a hundred correct runs",
}

QUESTION = "Is the DP implementation right?"
ANSWERS = {  # by the word of the verdict, and by its side where that matters; a gloss follows
    "CONSISTENT": "As far as this audit sees, yes",
    "VIOLATED": "No",
    "DEVIATES": "No",
    "more": "Not as described",
    "INCONCLUSIVE": "Not known",
    "NO CLAIM": "Not asked",
}

CAVEATS: dict[str, tuple[str | None, str | Callable[[Numbers], str]]] = {
    "secret-given": ("secret seed", "it was given, so that this result is reproducible and the run is not private"),
    "canaries-participation": (
        "participation",
        lambda n: (
            f"claim and measurement are those of the canaries, {how_often(n['canaries'])}; "
            f"{n.get('unit', 'client')}s take part {how_often(n['clients'], by=True)}, "
            f"and their own claim is epsilon = {n['epsilon']:.3g}"
        ),
    ),
    "actual-denominator": (
        "denominator",
        "the sum is divided by the number of updates that came, as Algorithm 2 is printed; under random sampling "
        "that number is itself a release which no noise protects",
    ),
    "fewer-noises": (
        "noise of clients",
        lambda n: (
            f"the claim counts on the noise of {n['promised']} clients in every sum, and a round had {n['least']}: of so many "
            f"epsilon is {n['epsilon']:.4g}"
        ),
    ),
    "correlated-final": (
        "final model",
        lambda n: (
            f"noise that is correlated over rounds ({n['strategy']}) cancels in the model: one participation stands out by "
            f"{n['gap']:.3g} standard deviations of the noise in the sum of all releases, against {n['independent']:.3g} with "
            "independent noise of the same epsilon"
        ),
    ),
    "correlated-seen": ("all releases", lambda n: _seen(n)),
    "correlated-clipping": (
        "clip norm",
        lambda n: (
            f"noise is in units of the round's clip norm ({n['least']:.3g} to {n['largest']:.3g}) and cancels as far as it "
            f"stands still: the sum of all releases has {n['more']:.3g} times the noise of a fixed one of the same mean"
        ),
    ),
    "correlated-denominator": ("denominator", "noise of different rounds is divided by different numbers: less of it cancels"),
    "diverged": ("diverged", lambda n: _diverged(n)),
    "layers": (
        "layers",
        lambda n: (
            f"this is one of {n['statements']} statements of which any may convict; each holds with "
            f"{percent(n['each'])} confidence, all together with {percent(n['together'])}"
        ),
    ),
    "not-a-bound": (
        "not a bound",
        lambda n: (
            f"values of single rounds at delta = {n['measured']:.2g} are put into an upper-bound theorem and extrapolated to "
            f"delta = {n['delta']:.2g} as if every round were Gaussian; the result may be above or below the true epsilon"
        ),
    ),
    "as-printed": (
        "as printed",
        lambda n: (
            f"the best of all thresholds at delta = {n['delta']:.2g}, without a correction for the choice; "
            f"{n['scores']} scores cannot show more than {n['ceiling']:.3g} unless they are separated perfectly"
        ),
    ),
    "as-published": (
        "as published",
        lambda n: f"the published code replaces values below {n['least']:g} by {n['least']:g}, and so does this number",
    ),
    "view-failed": (None, lambda n: f"nothing is said about this view. {n['error']}"),
    "no-estimate-delta-zero": ("no estimate", "at delta = 0 a Gaussian shape has infinite epsilon"),
    "no-estimate-likelihood-ratio": ("no estimate", "a likelihood ratio is no shifted normal; the bound uses its tail alone"),
    "no-estimate-maximum": ("no estimate", "a maximum over rounds is no shifted normal; the bound uses its tail alone"),
    "no-estimate": ("no estimate", lambda n: n["error"]),
    "no-power": ("no power", lambda n: REASONS["maximum-hidden"](n)),
    "tail-contradicted": (
        "tail-contradicted",
        lambda n: (
            f"at delta = {n['delta']:.2g} the scores alone prove epsilon >= {n['bound']:.3g}, "
            f"above the interval of the fit ({n['fit']:.3g}); do not trust the estimate"
        ),
    ),
    "tail-extrapolation": (
        "tail-extrapolation",
        lambda n: (
            f"delta = {n['delta']:.2g} is below 1/{n['count']}; the estimate rests on the Gaussian shape "
            f"at {n['distance']:.1f} standard deviations, the farthest score lies at {n['largest']:.1f}"
        ),
    ),
    "reversed": ("reversed", "inserted canaries score lower than held-out ones; check the sign of the scores"),
    "maximum": ("maximum", "a maximum over rounds is not normal; its width turns into epsilon (the papers' estimate)"),
    "interference": (
        "interference",
        lambda n: (
            f"the {n['count']} canaries disturb each other in {n['dim']} dimensions; "
            f"without each other they would suggest epsilon {float(n['epsilon']):.3g}"
        ),
    ),
    "variance": (
        "variance",
        lambda n: f"the inserted scores have {n['width']:.3g} times the width of the null (p = {n['p_value']:.2g})",
    ),
    "width-fitted": (
        "width is fitted",
        lambda n: (
            f"the estimate fits the width of the scores too, since it is not that of the null (p = {n['p_value']:.2g}); "
            f"it is {n['fitted']:.3g}, and {n['mean_only']:.3g} by the mean alone"
        ),
    ),
    "normality": (
        "normality",
        lambda n: f"the inserted scores are not normal (Anderson–Darling) (p = {n['p_value']:.2g})",
    ),
    "skewness": ("skewness", lambda n: f"the inserted scores are skewed (p = {n['p_value']:.2g})"),
    "heavy-tail": (
        "heavy-tail",
        lambda n: f"the tails of the inserted scores are heavier than normal (p = {n['p_value']:.2g})",
    ),
    "claim-unstated": (
        "claim",
        lambda n: f"{', '.join(n['fields'])} not stated on both sides; make sure that it is the claim for these canaries",
    ),
    "assignment-unknown": ("assignment", "held-out canaries must differ from inserted ones in nothing but taking part"),
    "scope": ("scope", "one run and the canaries of this run; another attack may find more"),
    "claim-computed": (
        "claim",
        lambda n: f"computed here for the canaries from the noise multiplier that {n['application']} states",
    ),
    "claim-own": ("claim", lambda n: f"{n['accountant']}; it is the application's own and was not recomputed"),
    "rounds-missing": (
        "rounds",
        lambda n: f"{n['released']} of {n['rounds']} released something; nothing is said about the others",
    ),
    "no-trace": (
        "canaries",
        "no trace of any of them was found. That is seen if noise hides them, and also if the clients have "
        "another secret than the server, or no canary_mod: then this result says nothing",
    ),
    "note": (None, lambda n: n["text"]),
}


ATTENDANCES: dict[str, Callable[[Any], str]] = {**NOTATION}  # may be reworded: what is compared is the notation itself
