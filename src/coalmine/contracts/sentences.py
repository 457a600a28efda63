"""Where codes become sentences for people. Nothing reads a sentence back: whoever needs to know has the code.

A reason of a verdict and a caveat are stored as a code with its numbers; what is printed of them is made here. Sentences that a
page adds on its own are in `coalmine.report.words`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

from coalmine.contracts.finding_sentences import finding
from coalmine.rounding import rounded_up, told_apart

Numbers = Mapping[str, Any]


def percent(share: float) -> str:
    """A share in percent, never rounded up to certainty.

    >>> percent(0.95), percent(0.999)
    ('95%', '99.9%')
    """
    return f"{100 * share:.10g}%"


def view_name(view: str, layer: str | None = None) -> str:
    """A view's key in words, and the layer that it was limited to.

    >>> view_name("known-others", "dense1")
    'known others, within dense1'
    """
    name = view.replace("-", " ") if view.replace("-", "").isalpha() and view.islower() else view
    return name if layer is None else f"{name}, within {layer}"


def reason(code: str, numbers: Numbers) -> str:
    """Why a verdict is what it is, in half a sentence; two reasons are two codes with a plus sign."""
    known = [REASONS[each](numbers) for each in code.split("+") if each in REASONS]
    return "; ".join(known) if known else f"for a reason that this version does not know ({code})"


def caveat(code: str, data: Numbers) -> tuple[str, str]:
    """(what it is about, the sentence)."""
    if code not in CAVEATS:
        return str(data.get("name", "note")), str(data.get("text", code))
    name, made = CAVEATS[code]
    return (str(data["name"]) if name is None else name), (made if isinstance(made, str) else made(data))


def attendance(how: Any) -> str:
    """How often and when somebody takes part."""
    made = ATTENDANCES.get(how.kind)
    return made(how) if made is not None else str(how.kind if how.text is None else how.text)


def _above(numbers: Numbers) -> str:
    least, claimed = told_apart(numbers["bound"], numbers["claim"])
    return f"with {percent(numbers['confidence'])} confidence epsilon is at least {least}, more than the {claimed} claimed"


def _missed(numbers: Numbers) -> str:
    factor = numbers["factor"]
    seen = f"only noise too small by a factor of {rounded_up(factor):.2g} would have been noticed"
    if math.isinf(factor):
        seen = "no lack of noise would have been noticed: what this adversary does not know hides the canaries"
    return f"{seen}; half the noise would probably have been missed"


def _consistent(numbers: Numbers) -> str:
    said, factor = "no leak above the claim was found", numbers["factor"]
    if factor > 1:  # else this design would take even a correct mechanism for a wrong one: nothing to boast of
        said += f"; noise too small by a factor of {rounded_up(factor):.2g} would have been noticed"
    return said


def _deviates(numbers: Numbers) -> str:
    false = [finding(key, {}) for key in numbers["found_false"]]
    first = f"the code is not the mechanism that was claimed. Found false: {', '.join(false[:1])}{_both(numbers)}"
    return f"{first}{_and_more(len(false) - 1)}{_interval_above(numbers)}"


def _more_noise(numbers: Numbers) -> str:
    said = f"the code adds more noise than was claimed{_both(numbers)}"
    return f"{said} and nothing else was found false: more protection, paid for by accuracy{_interval_above(numbers)}"


def _both(numbers: Numbers) -> str:
    known = "measured" in numbers and "claimed" in numbers
    return f" (measured {numbers['measured']:.4g}, claimed {numbers['claimed']:.4g})" if known else ""


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
    return f"{said}noise {too_small(numbers['noticed'])} too small would have been noticed{_interval_above(numbers)}"


def too_small(factor: float) -> str:
    """By how many percent noise of so many times the claimed strength is too small, rounded up.

    >>> too_small(0.9975), too_small(0.9)
    ('0.25%', '10%')
    """
    return percent(rounded_up(round(1 - factor, 9)))


def _diverged(numbers: Numbers) -> str:
    said = f"the clients' loss rose from {numbers['begun']:.3g} to {numbers['ended']:.3g}, so that the model is worse than at "
    said += "its start. "
    if "clip_begun" in numbers:
        said += f"The clip norm went from {numbers['clip_begun']:.3g} to {numbers['clip_ended']:.3g}: it follows long updates, "
        said += "and the noise follows it. Fix it, or lower"
    else:
        said += "Lower"
    return f"{said} the learning rates, take more clients a round, or less noise"


def training_words(facts: Numbers) -> dict[str, str]:
    """What a training recorded, as sentences by their names: our own trainer's, or another engine's application."""
    if "rounds" not in facts or "mean_clients" not in facts:
        return {}
    engine = facts.get("engine")
    released = facts.get("released", facts["rounds"])
    of_steps = facts.get("unit") == "example"
    steps, many = ("steps", "examples") if of_steps else ("rounds", "clients")
    head = f"{released} {steps} of {facts['mean_clients']:.0f} {many}, {facts['parameters']:,} parameters; "
    words = {}
    if engine is not None:
        words["training"] = f"{head}{facts['model']} on {engine}"
        if facts.get("audited_every"):
            words["training"] += f"; one of {facts['audited_every']} {steps} is audited"
        if facts.get("later_rounds"):
            words["training"] += f"; {facts['later_rounds']} more {steps} without canaries"
        if "epsilon_of_clients" in facts:
            words["own claim"] = _own_claim(facts, "an example" if of_steps else "a client")
        share = _share_of_steps(facts) if of_steps else _share_of_rounds(facts)
        if "mean_unclipped_clients" in facts:
            share += f"; unclipped {many} {100 * facts['mean_unclipped_clients']:.0f}%"
    else:
        words["training"] = f"{head}a client's own claim: epsilon = {float(facts['epsilon_of_clients']):.3g} "
        words["training"] += f"({_how_often(facts['participation'])})"
        share = f"{100 * facts['mean_canary_share']:.1f}% of a cohort (at most {100 * facts['largest_canary_share']:.1f}%); "
        share += f"unclipped updates {100 * facts['mean_unclipped_clients']:.0f}%, "
        share += f"with canaries {100 * facts['mean_unclipped_with_canaries']:.0f}%"
    words["canaries"] = share
    if "baseline_accuracy" in facts:
        words["learned"] = _learned(facts)
    if "hidden_by_the_others" in facts:
        words["hidden"] = f"by the other {many}: epsilon about {facts['hidden_by_the_others']:.3g}"
    return words


def _own_claim(facts: Numbers, one: str) -> str:
    by = f", by {facts['accountant_of_clients']}" if "accountant_of_clients" in facts else ""
    return f"of {one}: epsilon = {float(facts['epsilon_of_clients']):.3g} ({_how_often(facts['participation'])}){by}"


def _share_of_steps(facts: Numbers) -> str:
    return f"{facts['mean_canaries']:.1f} in a step on average, {100 * facts['mean_canary_share']:.1f}% of a batch"


def _share_of_rounds(facts: Numbers) -> str:
    share = f"{facts['mean_places']:.0f} places in a round for {facts['mean_canaries']:.1f} canaries on average, "
    return share + f"{100 * facts['mean_canary_share']:.1f}% of a cohort"


def _how_often(stored: Any, *, by: bool = False) -> str:
    """An attendance, or what a file says of one; `by`: as something that is done, where it is a way of sampling."""
    how = SimpleNamespace(**stored) if isinstance(stored, Mapping) else stored
    said = attendance(how) if isinstance(stored, Mapping) else str(stored)
    return f"by {said}" if by and getattr(how, "rate", None) is not None else said


def _learned(facts: Numbers) -> str:
    shown = f"accuracy {_share(facts, 'accuracy', 'accuracy_error')} on held-out {facts['held_out_kind']}; "
    shown += f"always the most frequent: {_share(facts, 'baseline_accuracy', 'baseline_error')}"
    if facts.get("reference_finished"):
        shown += f"; without noise and canaries: {_share(facts, 'reference_accuracy', 'reference_error')}"
    elif "reference_finished" in facts:
        shown += "; without noise and canaries it diverged"
    return shown


def _share(facts: Numbers, name: str, error: str) -> str:
    return f"{100 * facts[name]:.1f} ± {100 * facts[error]:.1f}%"


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
    "conforms": "no leak above the claim was found, and the code does what was claimed",
}

CAVEATS: dict[str, tuple[str | None, str | Callable[[Numbers], str]]] = {
    "secret-given": ("secret seed", "it was given, so that this result is reproducible and the run is not private"),
    "canaries-participation": (
        "participation",
        lambda n: (
            f"claim and measurement are those of the canaries, {_how_often(n['canaries'])}; "
            f"{n.get('unit', 'client')}s take part {_how_often(n['clients'], by=True)}, "
            f"and their own claim is epsilon = {n['epsilon']:.3g}"
        ),
    ),
    "actual-denominator": (
        "denominator",
        "the sum is divided by the number of updates that came, as Algorithm 2 is printed; under random sampling "
        "that number is itself a release which no noise protects",
    ),
    "diverged": ("diverged", lambda n: _diverged(n)),
    "layers": (
        "layers",
        lambda n: (
            f"this is one of {n['statements']} statements of which any may convict; each holds with "
            f"{percent(n['each'])} confidence, all together with {percent(n['together'])}"
        ),
    ),
    "view-failed": (None, lambda n: f"nothing is said about this view. {n['error']}"),
    "no-estimate-delta-zero": ("no estimate", "at delta = 0 a Gaussian shape has infinite epsilon"),
    "no-estimate-likelihood-ratio": (
        "no estimate",
        "a likelihood ratio is no shifted normal; the bound uses its tail alone",
    ),
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
    "scope": ("scope", "one run and random canaries; a crafted attack may find more"),
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

ATTENDANCES: dict[str, Callable[[Any], str]] = {
    "repeated": lambda how: "once" if how.times == 1 else f"{how.times} times",
    "poisson": lambda how: f"Poisson sampling at rate {how.rate:g} for {how.rounds} rounds",
    "example-poisson": lambda how: (
        f"Poisson sampling of each of {how.times} examples at rate {how.rate:g} for {how.rounds} rounds"
    ),
    "fixed-size": lambda how: f"{how.cohort_size} of {how.population} clients without replacement for {how.rounds} rounds",
    "min-separation": lambda how: f"at most {how.most} times, at least {how.separation} rounds apart",
    "trace": lambda how: f"at most {how.most} times, by a trace of {how.rounds} rounds",
}
