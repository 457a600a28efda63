"""Sentences about a training: what a run recorded of itself, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from coalmine.contracts.crafted_sentences import crafted_words
from coalmine.contracts.sentences import how_often

Numbers = Mapping[str, Any]


def training_words(facts: Numbers) -> dict[str, str]:
    """What a training recorded, as sentences by their names: our own trainer's, or another engine's application."""
    if "rounds" not in facts or "mean_clients" not in facts:
        return {}
    engine = facts.get("engine")
    released = facts.get("released", facts["rounds"])
    one = "an example" if facts.get("unit") == "example" else "a client"
    of_steps = engine is not None and one == "an example"  # our own trainer has rounds of clients, whoever is protected
    steps, many = ("steps", "examples") if of_steps else ("rounds", "clients")
    head = f"{released} {steps} of {facts['mean_clients']:.0f} {many}, {facts['parameters']:,} parameters; "
    words = {}
    if engine is not None:
        words["training"] = f"{head}{facts['model']} on {engine}"
        if facts.get("audited_every"):
            words["training"] += f"; one of {facts['audited_every']} {steps} has canaries, the noise of all is measured"
        if facts.get("later_rounds"):
            words["training"] += f"; {facts['later_rounds']} more {steps} without canaries"
        if "epsilon_of_clients" in facts:
            words["own claim"] = _own_claim(facts, one)
        share = _share_of_steps(facts) if of_steps else _share_of_rounds(facts)
        if "mean_unclipped_clients" in facts:
            share += f"; unclipped {many} {100 * facts['mean_unclipped_clients']:.0f}%"
    else:
        words["training"] = f"{head}{one}'s own claim: epsilon = {float(facts['epsilon_of_clients']):.3g} "
        words["training"] += f"({how_often(facts['participation'])})"
        share = f"{100 * facts['mean_canary_share']:.1f}% of a cohort (at most {100 * facts['largest_canary_share']:.1f}%); "
        share += f"unclipped updates {100 * facts['mean_unclipped_clients']:.0f}%, "
        share += f"with canaries {100 * facts['mean_unclipped_with_canaries']:.0f}%"
    words["canaries"] = share
    if "baseline_accuracy" in facts:
        words["learned"] = _learned(facts)
    if "crafted" in facts:
        words |= crafted_words(facts["crafted"])
    if "hidden_by_the_others" in facts:
        words["hidden"] = f"by the other {many}: epsilon about {facts['hidden_by_the_others']:.3g}"
    return words


def _own_claim(facts: Numbers, one: str) -> str:
    by = f", by {facts['accountant_of_clients']}" if "accountant_of_clients" in facts else ""
    return f"of {one}: epsilon = {float(facts['epsilon_of_clients']):.3g} ({how_often(facts['participation'])}){by}"


def _share_of_steps(facts: Numbers) -> str:
    return f"{facts['mean_canaries']:.1f} in a step on average, {100 * facts['mean_canary_share']:.1f}% of a batch"


def _share_of_rounds(facts: Numbers) -> str:
    share = f"{facts['mean_places']:.0f} places in a round for {facts['mean_canaries']:.1f} canaries on average, "
    return share + f"{100 * facts['mean_canary_share']:.1f}% of a cohort"


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
