"""The private trainings whose rounds are measured: MNIST by writer for CelebA, Shakespeare's roles for Shakespeare and Sent140.

Presets with changes, trained to the paper's epsilons by the paper's accountant for their own population, cohort and rounds.
"""

from __future__ import annotations

from collections.abc import Mapping

from coalmine.papers.canife.monitoring import Monitored, noise_for
from coalmine.papers.canife.tasks import EPSILONS

WRITERS = Monitored(
    words="MNIST by writer, mlp",
    key="writers",
    preset="canife-writers",
    changes=("participation.epochs=30", "participation.rounds=1800"),
    quick=("data.users=240", "participation.epochs=1", "participation.rounds=8"),
    population=3_072,
    cohort=51,
    rounds=1800,
    every=360,
    mock=100,
    others=600,
    options={},
)
SHAKESPEARE = Monitored(
    words="Shakespeare's roles, LSTM",
    key="shakespeare",
    preset="canife-shakespeare",
    changes=("participation.epochs=30", "participation.rounds=300"),
    quick=("data.users=110", "participation.epochs=1", "participation.rounds=4", "model.options={hidden=16}"),
    population=644,
    cohort=64,
    rounds=300,
    every=60,
    mock=64,
    others=250,
    options={},
)
FAMILIES: Mapping[str, Monitored] = {"writers": WRITERS, "shakespeare": SHAKESPEARE}


def noises(family: Monitored) -> dict[str, float]:
    """By the epsilon that the training has with it."""
    return {
        f"epsilon{epsilon}": round(noise_for(family.population, family.cohort, family.rounds, float(epsilon)), 3)
        for epsilon in EPSILONS
    }
