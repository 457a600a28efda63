"""Table 3 of the first version: the epsilons by noise. (Its Table 2, the accuracies, is Table 3 of the ICLR version.)"""

from __future__ import annotations

from coalmine.papers.kit.experiment import Ask
from coalmine.papers.kit.paper_result import PaperResult, ResultPart
from coalmine.papers.one_shot.modelled import FULL, ONE_RUN_EACH, PURE_NOISE, constant_note, modelled
from coalmine.papers.one_shot.numbers import V1_TABLE3


def reproduce(ask: Ask) -> PaperResult:
    """The epsilons by noise, from the pure-noise model and from real runs on chats."""
    return PaperResult.of(
        ask.named("v1-table2"),
        f"{ask.heading('First version, Table 3', model=PURE_NOISE, runs='on chats')}: epsilon against noise, all iterates and "
        "final model",
        [ResultPart((), about=ask.about(delta=V1_TABLE3.delta)), *ask.parts(model=_model, runs=_runs)],
        error="standard deviation over runs of the model; of a real run the standard error, by drawing canaries again",
    )


def _model(ask: Ask) -> ResultPart:
    size = "4,050,748 dimensions, 2,048 rounds, 1,000 + 1,000 canaries"
    notes = (ONE_RUN_EACH, constant_note(V1_TABLE3), f"The model has {size}, and a momentum of 0.9, which is assumed.")
    return ResultPart(modelled(ask, V1_TABLE3), notes=notes, about={"simulations": ask.repeat(full=FULL, quick=20)})


def _runs(ask: Ask) -> ResultPart:
    from coalmine.papers.one_shot.families import CHATS, ON_CHATS, chat  # these need torch, the model does not
    from coalmine.papers.one_shot.real import by_noise, epsilons

    return epsilons(ask, V1_TABLE3, by_noise(ask, chat, V1_TABLE3.noises), ON_CHATS, CHATS)
