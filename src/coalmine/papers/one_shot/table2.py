"""Table 2 (ICLR): epsilon of all iterates and of the final model against the noise.

By the pure-noise model at the paper's size, and by real runs of a word LSTM on chats, which are not Stack Overflow. A number of
a real run has the verdict "same shape" if it stands in the paper's order within its column.
"""

from __future__ import annotations

from coalmine.papers.kit.experiment import Ask
from coalmine.papers.kit.paper_result import PaperResult, PaperRow, ResultPart
from coalmine.papers.one_shot.modelled import COLUMNS, FULL, PURE_NOISE, constant_note, modelled
from coalmine.papers.one_shot.noise_model import PureNoiseRun, Simulated, measure
from coalmine.papers.one_shot.numbers import TABLE2


def reproduce(ask: Ask) -> PaperResult:
    """The model, the model without momentum, and the runs."""
    about = ask.about(delta=TABLE2.delta, simulations=ask.repeat(full=FULL, quick=20))
    return PaperResult.of(
        ask.named("table2"),
        f"{ask.heading('Table 2', model=PURE_NOISE, runs='on chats')}: epsilon against noise, all iterates and final model; "
        f"delta = {TABLE2.delta:.3g}",
        [
            ResultPart((), notes=("The paper's numbers are of one run each.",), about=about),
            *ask.parts(model=_model, runs=_runs),
        ],
        error="standard deviation over runs of the model; of a real run the standard error, by drawing canaries again",
    )


def _model(ask: Ask) -> ResultPart:
    return ResultPart([*modelled(ask, TABLE2), *_without_momentum(ask)], notes=(constant_note(TABLE2),))


def _runs(ask: Ask) -> ResultPart:
    from coalmine.papers.one_shot.families import CHATS, ON_CHATS, chat  # these need torch, the model does not
    from coalmine.papers.one_shot.real import by_noise, epsilons

    return epsilons(ask, TABLE2, by_noise(ask, chat, TABLE2.noises), ON_CHATS, CHATS)


def _without_momentum(ask: Ask) -> list[PaperRow]:
    """Algorithm 3 as printed looks at the released mean, before the server's momentum."""
    runs, rows = ask.repeat(full=50, quick=5), []
    for noise in TABLE2.noises[1:]:
        model = PureNoiseRun(noise, TABLE2.model.dim, TABLE2.model.rounds, TABLE2.model.canaries, momentum=0.0)
        tasks = [(model, ("est-all",), TABLE2.delta, ask.seed * 1_000_003 + number) for number in range(runs)]
        found = Simulated.of([value for (value,) in ask.each(measure, tasks, "table 2, no momentum")])
        paper = TABLE2.value(noise, "est-all")
        rows.append(
            PaperRow(
                f"model, Algorithm 3 as printed (no momentum), noise {noise:g}, {COLUMNS['est-all']}",
                paper,
                found.mean,
                found.std,
                found.verdict(paper),
                f"analytic {TABLE2.analytic(noise):.3g}",
                {"how": "model, no momentum", "noise": noise, "column": "est-all"},
            )
        )
    return rows
