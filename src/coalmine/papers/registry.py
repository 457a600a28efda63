"""All experiments by their names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from types import MappingProxyType

from coalmine import _validate
from coalmine.papers.experiment import Ask, Experiment
from coalmine.papers.outcome import Outcome

MNIST, SHAKESPEARE, FASHION = "MNIST and QMNIST", "Shakespeare's roles", "Fashion-MNIST"


def _in(module: str, function: str) -> Callable[[Ask], Outcome]:
    """A function of a module of this package that is loaded when it is called: some need torch."""

    def call(ask: Ask) -> Outcome:
        found: Outcome = getattr(import_module(f"coalmine.papers.{module}"), function)(ask)
        return found

    return call


_ALL = (
    Experiment("table1", "one-shot audits of the Gaussian mechanism; Figure 4, one run or ten", _in("table1", "experiment")),
    Experiment(
        "table2",
        "epsilon against noise: pure-noise model, and word LSTM on chats",
        _in("table2", "table2"),
        trains=True,
        parts=("model", "runs"),
    ),
    Experiment(
        "table3",
        "accuracy with and without canaries",
        _in("table3", "table3"),
        trains=True,
        needs=f"{MNIST}, {SHAKESPEARE}; part chat: nothing",
        parts=("mnist", "shakespeare", "chat"),
    ),
    Experiment(
        "table4",
        "are the cosines normal? Anderson–Darling by noise and presentations, on chats",
        _in("table4", "table4"),
        trains=True,
        parts=("model", "runs"),
    ),
    Experiment(
        "table5",
        "the EMNIST study on MNIST by writer: epsilon against noise",
        _in("table5", "table5"),
        trains=True,
        needs=f"{MNIST}; part model: nothing",
        parts=("model", "runs"),
    ),
    Experiment(
        "table6",
        "Fashion-MNIST, the setting of the comparison with CANIFE, 50 runs",
        _in("table6", "table6"),
        trains=True,
        needs=f"{FASHION}; part model: nothing",
        parts=("model", "runs"),
    ),
    Experiment("figure1", "densities of cosines by noise and presentations, chats", _in("presented", "figure1"), trains=True),
    Experiment("figure2", "epsilon by noise and presentations, chats", _in("presented", "figure2"), trains=True),
    Experiment(
        "figure3",
        "epsilon by noise and presentations, on MNIST by writer",
        _in("presented", "figure3"),
        trains=True,
        needs=MNIST,
    ),
    Experiment("v1-table1", "first version: the Gaussian mechanism at a million dimensions", _in("v1", "v1_table1")),
    Experiment(
        "v1-table2",
        "first version, its Table 3: epsilon against noise, pure-noise model, and word LSTM on chats",
        _in("v1", "v1_table2"),
        trains=True,
        parts=("model", "runs"),
    ),
    Experiment("v1-table3", "first version: the unbiased estimate by a split threshold", _in("v1", "v1_table3")),
    Experiment("assumptions", "Table 7 for this package: what every method needs and sees", _in("assumptions", "assumptions")),
)
EXPERIMENTS: Mapping[str, Experiment] = MappingProxyType({each.name: each for each in _ALL})


def experiment(name: str) -> Experiment:
    """By its name.

    >>> print(experiment("v1-table1"))
    v1-table1    first version: the Gaussian mechanism at a million dimensions
    """
    return EXPERIMENTS[_validate.one_of("name", name, EXPERIMENTS)]


def listing() -> str:
    """All of them, a line each."""
    return "\n".join(str(each) for each in EXPERIMENTS.values())
