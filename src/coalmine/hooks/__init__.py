"""Hooks: whoever wants to hear of a run while it goes on, and cannot disturb it.

A hook is a callable that takes one event, a mapping of plain data:

    event      when                                     holds
    "start"    before the first round, or going on      directory, config, rounds, round (the first that is to come)
    "round"    after a round was saved                  the line of `events.jsonl`: round, losses, epsilon so far, ...
    "end"      after the audit                          verdict, reason, claim, lower_bound, estimate, ...

Every hook gets a copy of its own. One that raises is reported once, in a line on standard error and in `hooks/errors.jsonl` of
the run directory, is closed, and hears nothing more; the run goes on with the same bits. Ctrl-C is the user's and passes. No
event holds the secret seed, a score or a canary; but losses and norms are not protected by the noise, so that the writers below
stay on this machine unless told otherwise.
"""

from collections.abc import Iterable

from coalmine.hooks.runner import FOLDER, Event, Hook, HookRunner
from coalmine.hooks.trackers import HOOKS, MLflow, TensorBoard, WeightsAndBiases

__all__ = ["FOLDER", "HOOKS", "Event", "Hook", "HookRunner", "MLflow", "TensorBoard", "WeightsAndBiases", "hooks_of"]


def hooks_of(wanted: Iterable[Hook | str]) -> list[Hook]:
    """Names as writers with their defaults, each once, callables as they are; what is neither is refused."""
    found: list[Hook] = []
    names: set[str] = set()
    for each in wanted:
        if isinstance(each, str):
            if each not in HOOKS:
                raise ValueError(f"there is no hook {each!r}; known are {', '.join(HOOKS)}, or give a callable.")
            if each not in names:
                found.append(HOOKS[each]())
            names.add(each)
        elif callable(each):
            found.append(each)
        else:
            raise ValueError(f"a hook is a callable that takes one event, or a name of {', '.join(HOOKS)}; got {each!r}.")
    return found
