"""Table 1: texts of canaries on Shakespeare, the paper's and ours, and what ours are worth.

The paper's begin as training sentences. Ours begin as texts of mock clients (whose data are public here) or as random
characters, and are made by flips of characters; one is made by the paper's Gumbel softmax. Only their look can be compared.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from coalmine.data import Vocabulary
from coalmine.papers.canife.attack import OURS, Attack, designed
from coalmine.papers.canife.grounds import Where, ground
from coalmine.papers.kit.experiment import Ask
from coalmine.papers.kit.paper_result import PaperResult, PaperRow

NOISE, COHORT = 0.516, 60
# three texts, one after the other as the paper's text has them; where each ends is not marked
PRINTED = (
    "mRnt,,,,,,,,,d,,,,,R,,,,,A,,,,,,,,,,,,,A,,,,,,,,,,,,,AA,,,V2,E >H &3 4i Yet I confess that often ere thisMday,x?h\\n"
    "nPImh!v7DhNAd}I!H';kXXI'PmPIIert 6Fa th, nothing bu; aZ empty box, sir, wQich in my lord's bealf I cote to e? rtat 3"
)


def reproduce(ask: Ask) -> PaperResult:
    """Three texts of ours, a row each."""
    where = Where.of(ask, "shakespeare")
    here, pool, (steps, relaxed) = ground(where), ask.pick(full=64, quick=16), ask.pick(full=(20, 60), quick=(2, 2))
    made = {
        "flips from a mock client's text": {**OURS, "init": "sample", "iterations": steps},
        "flips from random characters": {**OURS, "iterations": steps},
        f"Gumbel softmax, {relaxed} steps": {**OURS, "text_method": "gumbel", "loss": "covariance", "temperature": (1.0, 1.0),
                                            "samples": 1, "iterations": relaxed},
    }  # fmt: skip
    rows, texts = [], {}
    for name, options in made.items():
        attack = Attack(where, COHORT, pool, NOISE, options)
        crafted = designed(here, attack)
        x = here.projections(crafted.directions.update(0))
        reach = float(crafted.metrics["reach"][0])
        value = reach * NOISE / float(np.hypot(NOISE, np.sqrt(COHORT * np.mean(x**2))))
        texts[name] = _text(crafted.samples[0])
        rows.append(PaperRow(f"{name}: efficiency", "", value, None, None, f"reach {reach:.2f}; text: {texts[name]!r}",
                             {"method": name}))  # fmt: skip
    return PaperResult(
        "canife-table1",
        "CANIFE, Table 1: texts of canaries on Shakespeare",
        tuple(rows),
        "",
        (),
        (f"Three texts in the paper, one after the other: {PRINTED!r}.",
         f"Efficiency on clients that no design saw, cohorts of {COHORT}, noise {NOISE}."),
        ask.about(steps=where.steps, model_accuracy=round(here.accuracy or 0.0, 3)),
        {"texts": texts, "printed": PRINTED},
    )  # fmt: skip


def _text(sample: Any) -> str:
    """The characters of a canary, targets included."""
    tokens = np.concatenate([np.asarray(sample.features[0]), np.asarray(sample.targets[0])[-1:]])
    names = Vocabulary.ascii().tokens
    return "".join(names[int(token) - 4] if int(token) >= 4 else "□" for token in tokens)
