"""The sentences of a report: what may be quoted, what would have been noticed, what is not shown.

Every sentence is made from the result alone, so that a page, a card and a table say the same.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from coalmine.contracts import Attendance, Game, LowerBound, Verdict, from_plain, percent
from coalmine.contracts.power_sentences import attacker as _attacker
from coalmine.contracts.power_sentences import strength
from coalmine.contracts.sentences import ANSWERS, too_small, view_name
from coalmine.estimators.diagnostics import SUSPICIOUS
from coalmine.report.digits import at_least, number, power_of_ten
from coalmine.result import AuditResult
from coalmine.rounding import told_apart
from coalmine.trade_off import clients_of
from coalmine.verdict import ABOVE
from coalmine.views import VIEWS

NO_CLAIM = "NO CLAIM"
_OTHERS = {  # scores that no view of a run made
    "one-release": "sees one release",
    "crafted-canaries": "has data of its own in a round, crafted for its model, and knows what all other clients sent",
}
_OFTEN = "(in 4 of 5 such audits)"
_CHANCE = "(in 4 of 5 such audits, if scores are Gaussian)"
_LIMITS = {  # what each verdict does not say
    "VIOLATED": "Why the claim fails. Rule out first that the claim was computed for another game; what remains is the "
    "code: too little noise, wrong clipping, wrong counting.",
    "DEVIATES": "What epsilon is. The accountant was told another mechanism than the one that ran, so the claim is about "
    "something else; how much privacy is lost by that is not shown, only that the code and its description differ.",
    "CONSISTENT": "That the training is private, that the claim is true, or that epsilon is near the estimate. One attack "
    "found nothing above the claim, and the line above says how small the noise would have had to be to be noticed.",
    "INCONCLUSIVE": "Whether the claim holds. This design would probably have missed a violation: its silence says nothing.",
    NO_CLAIM: "Whether any claim holds: none was given.",
}
_RANDOM = "Canaries are random directions in one run; crafted ones, another run or another training"
_AIMED = "Canaries are aimed, in one run, at where this mechanism hides them least; another run or another training"
_KINDS = {  # by the view: what was looked for, and what was not
    **dict.fromkeys(VIEWS, _RANDOM),
    **dict.fromkeys(("whitened", "likelihood-ratio"), _AIMED),
    "crafted-canaries": "Canaries are data crafted for the model of a round; other data, another round or another training",
}
_KIND = "One kind of canary was looked for, in one run; others, another run or another training"  # scores of others
_TWICE = {"client": "one person with two ids", "example": "an example that is in the data twice"}
_RELATIONS = {"add-or-remove-one": "add or remove one", "replace-one": "replace one"}


def verdict_word(result: AuditResult) -> str:
    """The word, or that there was nothing to compare with."""
    return result.verdict.word if result.verdict is not None else NO_CLAIM


def reason(result: AuditResult) -> str:
    """The verdict in half a sentence."""
    return result.verdict.reason if result.verdict is not None else "a measurement without a claim to compare it with"


def answer(result: AuditResult) -> str:
    """The verdict as an answer to the question whether the implementation is right."""
    verdict = result.verdict
    only_more = verdict is not None and verdict.word == "DEVIATES" and not verdict.failed
    return f"{ANSWERS['more' if only_more else verdict_word(result)]}: {gloss(result)}."


def gloss(result: AuditResult) -> str:
    """The reason, without what `noticed` says in a line of its own."""
    return result.verdict.brief if result.verdict is not None else reason(result)


def game_of(result: AuditResult) -> Game:
    """The claim's game, which the scores were checked against; without a claim that of the scores."""
    return result.claim.game if result.claim is not None else result.game


def adversary(view: str, layer: str | None = None) -> str:
    """The threat model, as the beginning of a sentence.

    >>> adversary("known-rounds")
    'An adversary who sees every release and knows in which rounds its target took part'
    """
    limited = f", limited to the layer {layer}" if layer else ""
    described = VIEWS[view].adversary if view in VIEWS else _OTHERS.get(view)
    if described is not None:
        return f"An adversary who {described}{limited}"
    return "An adversary whose view was not stated" if view == "unstated" else f"An adversary with the view “{view}”{limited}"


def shown_view(result: AuditResult) -> str:
    """The primary view, by its name."""
    return view_name(result.setting["view"], result.setting.get("layer"))


def label(view: str, layer: str | None = None) -> str:
    """A view in few words, beside a row; views of others by their names.

    >>> label("known-others"), label("my own", "dense1")
    ('all but the target known', 'my own, within dense1')
    """
    short = VIEWS[view].short if view in VIEWS else ""
    return short if short and layer is None else view_name(view, layer)


def clients_attendance(result: AuditResult) -> Attendance | None:
    """How often and when clients of a run take part; None where that is not recorded."""
    try:
        found: Attendance = from_plain(Attendance, result.training.get("participation"))
    except ValueError:
        return None
    return found


def quote(result: AuditResult) -> str:
    """The one sentence that may be quoted: adversary, targets, confidence, bound, game and claim, and nothing else."""
    bound, violated = result.bound, verdict_word(result) == "VIOLATED"
    least, claimed = at_least(bound.epsilon), number(result.claim.epsilon if result.claim is not None else 0.0)
    if violated and result.claim is not None and not _read(least) > _read(claimed):  # rounded alike, and not alike
        least, claimed = told_apart(bound.epsilon, result.claim.epsilon, 4)
    head = f"{adversary(result.setting['view'], result.setting.get('layer'))} {_targets(result)}."
    return f"{head} {_shown(bound, least)} {_at(result)}. {_against(result, claimed)}{people(result)}"


def noticed(result: AuditResult) -> str:
    """What this audit would have found: by tests of the noise, and by canaries; empty where any factor would be noticed."""
    by_canaries = _by_canaries(result)
    seen = result.conformance.noticed_noise_factor if result.conformance is not None else None
    if seen is None or not 0 < seen < 1:
        return by_canaries
    by_noise = f"Had the code added {too_small(seen)} less noise than claimed, the tests would have noticed it {_OFTEN}."
    alone = f" Canaries without these tests: {by_canaries[0].lower()}{by_canaries[1:]}" if by_canaries else ""
    return f"{by_noise}{alone}"


def attacker(result: AuditResult) -> str:
    """The numbers for people who do not read epsilon; empty without a claim."""
    found = result.attacker
    return "" if found is None else _attacker(found, result.bound.confidence, _unit(result))


def _by_canaries(result: AuditResult) -> str:
    verdict, bound = result.verdict, result.bound
    if verdict is None:
        if math.isinf(bound.detectable):
            return "Which leak would have been noticed is not known."
        return f"Any leak from epsilon {number(bound.detectable)} on would have been noticed {_CHANCE}."
    factor = verdict.noticeable_noise_factor
    if math.isinf(factor):
        return "No lack of noise would have been noticed."
    if factor <= 1:
        return ""
    weak = verdict.word == "INCONCLUSIVE" or (result.conformance is not None and not _sees_half(result))
    some = "Only noise" if weak else "Noise"
    text = f"{some} at {strength(factor)} of its claimed strength or less would have been noticed"
    claimed = f" instead of the {number(result.claim.epsilon)} that is claimed" if result.claim is not None else ""
    reached = f", which is an epsilon of {number(verdict.detectable)}{claimed}" if math.isfinite(verdict.detectable) else ""
    return f"{text}{reached} {_CHANCE}."


def _sees_half(result: AuditResult) -> bool:
    """Whether canaries alone would probably have noticed half the noise."""
    return result.verdict is not None and result.verdict.noticeable_noise_factor <= 2


def people(result: AuditResult) -> str:
    """What is claimed for those who are no canaries, as the end of the quoted sentence; empty where there is nothing to add."""
    own = clients_of(result.claim, result.training)
    if own is None:
        return ""
    how, epsilon = own
    taken = f"by {how}" if how.rate is not None or how.cohort_size is not None else how
    failed = result.verdict is not None and result.verdict.failed
    but = ", for the same code, and cannot be relied on either" if failed else ""
    return f" For a real {_unit(result)}, taking part {taken}, the claim is epsilon = {number(epsilon)}{but}."


def not_shown(result: AuditResult) -> list[str]:
    """What a reader might take from the page and may not."""
    game, view, who = game_of(result), shown_view(result), _unit(result)
    one = f"{'an' if who[0] in 'aeio' else 'a'} {who}"
    limits = [_first_limit(result)]
    if not _noise_seen(result):
        limits.append(
            "Noise with structure, or noise that can be predicted. The noise itself could not be looked at: noise on part of "
            "the coordinates, repeated noise, or noise from a guessable seed protects less than its strength says, and "
            "canaries may not see it."
        )
    else:
        limits.append(
            "Faults that leave no trace in one run, or too little of it: a seed that somebody else knows, or can find by more "
            "guesses than were tried here; one noise vector that is turned in another way in every round; noise that is "
            "missing along a few directions; noise in single precision, behind which the last digits of the sum can be read; "
            f"{one} that comes somewhat more often than claimed; {_TWICE.get(who, 'one person who is there twice')}."
        )
    if not result.bound.valid:
        limits.append("A proof. The bound is approximate and may lie above the truth more often than its confidence says.")
    limits.append(f"What a stronger attack would find. {_KINDS.get(result.setting['view'], _KIND)} may show more.")
    limits.append(f"What other adversaries see. The statement is for the view “{view}” alone.")
    others = {"client": "single examples", "example": "people with several examples"}.get(game.unit or "")
    if others:
        limits.append(f"Anything about {others}: who is protected here is one {game.unit}.")
    clients = clients_attendance(result)
    if game.participation is not None and clients is not None and clients != game.participation:
        limits.append(
            f"What {one} of this run risks: canaries take part {game.participation}, {who}s {clients}. "
            f"The accountant's claim for {one} is epsilon = {number(_float(result.training.get('epsilon_of_clients')))}."
        )
    limits.append(
        "That a model remembers nobody: canaries test clipping, noise and counting, not what a model learned by heart."
    )
    return limits


def _first_limit(result: AuditResult) -> str:
    """What the word of the verdict does not say."""
    word, code = verdict_word(result), result.verdict.code if result.verdict is not None else ""
    if ABOVE in code.split("+"):
        return "Whether the claim holds. The estimate lies above it, which is no proof; nothing else in this audit explains it."
    if code in ("conforms", "conforms-estimate-above"):
        return (
            "That the training is private, or that epsilon is near the estimate. In this run the code did what the accountant "
            "was told, as far as the tests see; the accountant's proof and other runs were not tested."
        )
    return _LIMITS[word]


def _noise_seen(result: AuditResult) -> bool:
    """Whether somebody looked at the noise itself, and would have seen structure or a guessable seed."""
    about = result.conformance
    return about is not None and all(about.finding(key) is not None for key in ("noise-independent", "noise-unpredictable"))


def diagnostics(result: AuditResult) -> list[tuple[str, str]]:
    """(what was looked at, what was found) about the shape that the estimate assumes."""
    shape = result.diagnostics
    if not shape:
        return [("Shape", "not tested: this view has no estimate that would rest on it.")]
    tests = [
        ("Width", "variance_p_value", f"inserted scores are {_float(shape.get('std')):.3g} times as wide as the null"),
        ("Shape", "normality_p_value", f"the normal law {_fits(shape)} the inserted scores (Anderson–Darling)"),
        ("Symmetry", "skewness_p_value", f"skewness {_float(shape.get('skewness')):.2g}"),
        ("Tails", "heavy_tail_p_value", f"excess kurtosis {_float(shape.get('excess_kurtosis')):.2g}"),
    ]
    gap = f"inserted scores lie {_float(shape.get('mean')):.3g} standard deviations above the null on average"
    found = [("Gap", f"{gap}, the farthest {_float(shape.get('largest')):.2g} from their own mean.")]
    for name, key, words in tests:
        p_value = shape.get(key)
        if isinstance(p_value, int | float):
            judged = "as assumed" if p_value >= SUSPICIOUS else "not as assumed: read the estimate with care"
            found.append((name, f"{words}; {_chance(p_value)}, {judged}."))
    return found


def _fits(shape: Mapping[str, Any]) -> str:
    p_value = shape.get("normality_p_value")
    return "does not fit" if isinstance(p_value, int | float) and p_value < SUSPICIOUS else "fits"


def _chance(p_value: float) -> str:
    return f"p = {p_value:.2g}" if p_value >= 1e-300 else "p < 1e-300"


def caveats(result: AuditResult) -> list[tuple[str, str]]:
    """(name, sentence) of every caveat of the result."""
    return [(caveat.name, caveat.text) for caveat in result.caveats]


def _unit(result: AuditResult) -> str:
    """Who takes part beside the canaries."""
    return game_of(result).unit or "client"


def _targets(result: AuditResult) -> str:
    """What the adversary tried."""
    unit, inserted, pool = game_of(result).unit, result.design.inserted, result.design.pool
    many = f"test {unit}s (canaries)" if unit in ("client", "example") else "canaries"
    if result.setting.get("assignment") == "coins" and pool:
        return f"tried to tell which of {pool:,} {many} took part ({inserted:,} did, by coin flips)"
    if inserted == 1:
        return "looked for one canary"
    return f"looked for {inserted:,} {many}"


def _read(shown: str) -> float:
    """The value of what `number` says."""
    return math.inf if shown == "∞" else float(shown.replace(",", ""))


def _shown(bound: LowerBound, least: str) -> str:
    sure = f"with {percent(bound.confidence)} confidence"
    if not bound.valid:
        how = f"by an approximate method ({bound.method}), which proves nothing,"
        return f"It would find epsilon roughly at least {least} {how}"
    if math.isinf(bound.epsilon):
        return f"It showed {sure} that no finite epsilon holds"
    if bound.epsilon == 0:
        return f"It could not show {sure} any leakage: epsilon is at least 0"
    return f"It showed {sure} that epsilon is at least {least}"


def _at(result: AuditResult) -> str:
    game = game_of(result)
    level = [f"{game.unit} level"] if game.unit else []
    level += [_RELATIONS.get(game.relation, game.relation)] if game.relation else []
    return f"at delta = {power_of_ten(result.bound.delta)}" + (f" ({', '.join(level)})" if level else "")


def _against(result: AuditResult, claimed: str) -> str:
    if result.claim is None or result.verdict is None:
        return "There is no claim to compare it with."
    if math.isinf(result.claim.epsilon):
        return "The claim is infinite, and nothing could exceed it."
    if result.verdict.word == "VIOLATED":
        return f"That is more than the epsilon = {claimed} that is claimed{_for_whom(game_of(result))}."
    return f"The claim is epsilon = {claimed}{_for_whom(game_of(result))}{_but(result.verdict)}."


def _but(verdict: Verdict) -> str:
    """What must be quoted with a claim that was not exceeded."""
    if verdict.word == "DEVIATES" and verdict.failed:
        return ", computed for another mechanism than the code that ran"
    if ABOVE in verdict.code.split("+"):
        return ", and the interval of the estimate lies above it"
    return ", and this audit was too weak to test it" if verdict.word == "INCONCLUSIVE" else ""


def _for_whom(game: Game) -> str:
    """For how many participations a claim is, where that is known: an epsilon for one is not that of a whole training."""
    how = game.participation
    if how is None:
        return ""
    times = how.times if how.times is not None else how.most
    if times is None:
        return f" under {how}" if how.rate is not None else f" for {how}"
    most = "" if how.times is not None else "at most "
    apart = f", at least {how.separation} rounds apart" if how.separation is not None else ""
    traced = f", by a trace of {how.rounds} rounds" if how.kind == "trace" else ""
    counted = "one participation" if times == 1 and not most else f"{times} participation{'s' * (times != 1)}"
    return f" for {most}{counted}{apart}{traced}"


def _float(value: object) -> float:
    """A number of a file; infinity is text there."""
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return math.inf
