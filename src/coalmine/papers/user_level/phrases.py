"""Canary users in the fine-tuning of a small transformer: by the length of their shared string, and what helps against it."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from coalmine._random import stream
from coalmine.attacks.user_inference import group_label
from coalmine.clients import quiet_threads
from coalmine.papers.kit.experiment import Ask
from coalmine.papers.kit.paper_result import PaperCheck, PaperRow, ResultPart
from coalmine.training.config import read_config
from coalmine.training.inference import InferenceResult, Setup, attack_once

QUICK = ("data.users=80", "data.cap=20", "inference.reference_users=60", "inference.reference_steps=200")
EPOCHS, SHARED = (1.0, 2.0, 4.0), (4, 8, 16, 32)


def phrases(ask: Ask) -> ResultPart:
    """AUROC of canary users by length of their string and by epochs."""
    setup, rows, last = _setup(ask, (f"inference.shared={list(SHARED)}",)), [], {}
    for epochs in EPOCHS:
        found = _attacked(setup.changed([f"inference.epochs={epochs}"]))
        for ranking in found.result.rankings:
            where = {"who": ranking["label"], "epochs": epochs}
            rows.append(_row(f"{ranking['label']}, {epochs:g} epochs", ranking, where))
            last[ranking["label"]] = ranking["auroc"]
    checks = [
        PaperCheck(f"16 shared characters are found after 4 epochs: AUROC {_of(last, 16):.3f}", _of(last, 16) >= 0.95),
        PaperCheck(f"4 shared characters too: AUROC {_of(last, 4):.3f}", _of(last, 4) > 0.8),
    ]
    return ResultPart(rows, tuple(checks), about=ask.about(parameters=setup.reference.model.dim))


def transformer(ask: Ask) -> ResultPart:
    """AUROC of canary users, held-out loss and claim by what is done against the attack."""
    setup = _setup(ask)
    ways = {
        "nothing": (),
        "cap of 5 texts": ("data.cap=5",),
        "deduplication within users": ("inference.dedup=within-user",),
        "early stopping, 1 epoch": ("inference.epochs=1",),
        "example-level DP, noise multiplier 4": (
            "inference.protection=example", "mechanism.noise_multiplier=4.0", "inference.epochs=1", "client.batch_size=128",
        ),
        "user-level DP, epsilon 32": ("inference.protection=user", "inference.epsilon=32", "client.batch_size=32"),
        "user-level DP, epsilon 4": ("inference.protection=user", "inference.epsilon=4", "client.batch_size=32"),
    }  # fmt: skip
    losses = [(0.0, setup.reference.mean_loss(setup.held_out))]
    for epochs in (0.5, 1.0, 2.0, 4.0):
        losses.append((epochs, _attacked(setup.changed([f"inference.epochs={epochs}"])).about["loss"]))
    rows, found = [], {}
    for name, changes in ways.items():
        done = _attacked(setup.changed(changes))
        claim = "none" if done.result.claim is None else f"{done.result.claim.epsilon:.3g}"
        loss = done.about["loss"]
        note = f"loss {loss:.3f}, claim {claim}, non-private epochs to this loss {_epochs_to(loss, losses)}"
        for ranking in done.result.rankings:
            rows.append(_row(f"{name}: {ranking['label']}", ranking, {"way": name, "who": ranking["label"]}, note))
            found[name, ranking["label"]] = ranking["auroc"]
    few = group_label(4)
    with_dp, without = found["user-level DP, epsilon 4", few], found["nothing", few]
    check = PaperCheck(
        f"user-level DP at epsilon 4 hides 4 shared characters: AUROC {with_dp:.3f}, without {without:.3f}", with_dp < without
    )
    notes = (
        "The paper: DP for examples at epsilon 32 lowers Enron's AUROC from 0.88 to 0.70; early stopping does not help.",
        "Where the loss is that of 0 epochs, the model has hardly learned: its low AUROC then says nothing about DP. See "
        "the part mitigations for a model that learns with DP.",
    )
    about = ask.about(reference_loss=round(losses[0][1], 4), losses_by_epoch=losses)
    return ResultPart(rows, (check,), notes=notes, about=about)


def _setup(ask: Ask, more: tuple[str, ...] = ()) -> Setup:
    quiet_threads()
    changes = [*(() if ask.full else QUICK), *more, f"run.seed={ask.seed}", *ask.changes]
    return Setup(read_config("infer-chat", changes), partial(stream, ask.seed, "secret of user inference"))


def _attacked(setup: Setup) -> InferenceResult:
    with tempfile.TemporaryDirectory() as folder:
        return attack_once(setup, Path(folder))


def _row(what: str, ranking: Any, where: dict[str, Any], note: str = "") -> PaperRow:
    said = "no interval" if ranking["unavailable"] else f"[{ranking['low']:.3f}, {ranking['high']:.3f}]"
    return PaperRow(what, "", ranking["auroc"], None, None, f"{said}; {note}" if note else said, where)


def _of(found: dict[str, float], shared: int) -> float:
    return found[group_label(shared)]


def _epochs_to(loss: float, losses: list[tuple[float, float]]) -> str:
    """The fewest epochs, of those looked at, after which training without privacy is as good; 0 is before it begins."""
    reached = [epochs for epochs, value in losses if value <= loss]
    if 0.0 in reached:
        return "0"
    return f"at most {min(reached):g}" if reached else f"more than {losses[-1][0]:g}"
