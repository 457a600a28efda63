"""All experiments by their names. A new one is a file with `reproduce(ask)` in the folder of its paper, and a line here."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from coalmine import _validate
from coalmine.papers.kit.experiment import Ask, Experiment

if TYPE_CHECKING:
    from coalmine.papers.kit.paper_result import PaperResult

MNIST, SHAKESPEARE, FASHION = "MNIST and QMNIST", "Shakespeare's roles", "Fashion-MNIST"
MODEL_AND_RUNS: Mapping[str, Any] = {"trains": True, "parts": ("model", "runs")}


def entry(paper: str, name: str, what: str, **about: Any) -> Experiment:
    """The experiment in coalmine/papers/PAPER/NAME.py, loaded when it is made: some need torch, and a list must not."""
    return Experiment(name, what, partial(_reproduce, f"coalmine.papers.{paper}.{name.replace('-', '_')}"), **about)


def _reproduce(module: str, ask: Ask) -> PaperResult:
    found: PaperResult = import_module(module).reproduce(ask)
    return found


_one_shot = partial(entry, "one_shot")
_secagg = partial(entry, "secure_aggregation", needs="MNIST")
_user_level = partial(entry, "user_level")
_canife = partial(entry, "canife")
_ALL = (
    _one_shot("table1", "one-shot audits of the Gaussian mechanism; Figure 4, one run or ten"),
    _one_shot("table2", "epsilon against noise: pure-noise model, and word LSTM on chats", **MODEL_AND_RUNS),
    _one_shot(
        "table3",
        "accuracy with and without canaries",
        trains=True,
        needs=f"{MNIST}, {SHAKESPEARE}; part chat: nothing",
        parts=("mnist", "shakespeare", "chat"),
    ),
    _one_shot("table4", "are the cosines normal? Anderson–Darling by noise and presentations, on chats", **MODEL_AND_RUNS),
    _one_shot(
        "table5",
        "the EMNIST study on MNIST by writer: epsilon against noise",
        needs=f"{MNIST}; part model: nothing",
        **MODEL_AND_RUNS,
    ),
    _one_shot(
        "table6",
        "Fashion-MNIST, the setting of the comparison with CANIFE, 50 runs",
        needs=f"{FASHION}; parts model and canife: nothing",
        trains=True,
        parts=("model", "runs", "canife", "canife-runs"),
    ),
    _one_shot("figure1", "densities of cosines by noise and presentations, chats", trains=True),
    _one_shot("figure2", "epsilon by noise and presentations, chats", trains=True),
    _one_shot("figure3", "epsilon by noise and presentations, on MNIST by writer", trains=True, needs=MNIST),
    _one_shot("v1-table1", "first version: the Gaussian mechanism at a million dimensions"),
    _one_shot(
        "v1-table2",
        "first version, its Table 3: epsilon against noise, pure-noise model, and word LSTM on chats",
        **MODEL_AND_RUNS,
    ),
    _one_shot("v1-table3", "first version: the unbiased estimate by a split threshold"),
    entry(
        "user_level",
        "lifted",
        "k canaries in each of n models: bounds, and what they are worth in models",
        needs=f"part fashion: {FASHION}",
        parts=("gaussian", "fashion", "bias", "debug"),
    ),
    entry(
        "user_level",
        "user-inference",
        "who was in the fine-tuning of a language model, and what helps against that",
        trains=True,
        parts=("users", "texts", "phrases", "mitigations", "transformer", "secrets"),
    ),
    _one_shot("assumptions", "Table 7 for this package: what every method needs and sees"),
    entry("secure_aggregation", "secagg-table1", "secure aggregation: epsilon of three mechanisms, as printed and corrected"),
    _secagg("secagg-span", "secure aggregation alone, audited outside the span", parts=("mnist", "counterexample")),
    _secagg("secagg-users", "secure aggregation alone: epsilon of single records by users and pixels"),
    _secagg("secagg-figure4", "water-filling and isotropic noise on a spectrum"),
    _secagg(
        "secagg-figure5",
        "accuracy of three mechanisms at equal epsilon",
        parts=("linear", "cnn-small", "noniid", "efficiency"),
        short={"cnn": "cnn-small"},
    ),
    _secagg("secagg-wfna-audit", "an audit of water-filling noise with aimed canaries"),
    _secagg("secagg-blocked", "blocks with shared weights break the guarantee"),
    _canife("canife-table-perfect", "what a perfect canary shows by CANIFE's estimator, in all of its trainings"),
    _canife(
        "canife-figure1",
        "CANIFE: composed epsilon against the accountant's, perfect canary and private trainings",
        needs=f"{MNIST}, {SHAKESPEARE}; part model: nothing",
        **MODEL_AND_RUNS,
    ),
    _canife(
        "canife-figure3",
        "CANIFE: attacks on clients of one example, and what mock clients and cohorts change",
        trains=True,
        needs=f"{FASHION}; part cifar: CIFAR-10",
        parts=("fashion", "cifar"),
    ),
    _canife(
        "canife-figure4",
        "CANIFE: measured rounds along private trainings, and what a perfect canary would show",
        trains=True,
        needs=f"{MNIST}, {SHAKESPEARE}",
        parts=("writers", "shakespeare"),
    ),
    _canife("canife-figure5", "CANIFE: starts, mock clients, steps of the design, checkpoints", trains=True, needs=MNIST),
    _canife(
        "canife-figure6",
        "CANIFE: rounds of Shakespeare with and without noise, perfect canary and private trainings",
        needs=f"{SHAKESPEARE}; part model: nothing",
        **MODEL_AND_RUNS,
    ),
    _canife("canife-figure7", "CANIFE: the estimate of a round against the accuracy of the attack, normal scores"),
    _canife("canife-figure8", "CANIFE: two losses, and clients per round", trains=True, needs=MNIST),
    _canife("canife-figure9", "CANIFE: the length asked of a canary's gradient", trains=True, needs=MNIST),
    _canife("canife-table1", "CANIFE: texts of canaries, and what they are worth", trains=True, needs=SHAKESPEARE),
    _canife(
        "canife-time",
        "CANIFE: time of a design beside the paper's recipe",
        trains=True,
        needs=f"{FASHION}, {MNIST}, {SHAKESPEARE}",
    ),
    _canife(
        "canife-pools", "CANIFE: mock clients, their origin, and the likelihood ratio", trains=True, needs=f"{FASHION}, {MNIST}"
    ),
    _user_level("correlated-mean", "correlated noise: stationary error of mean estimation, closed form and simulation"),
    _user_level("correlated-linear", "correlated noise: linear regression, effective dimension against dimension"),
    _user_level(
        "correlated-rates",
        "correlated noise: exponents in the number of steps, cost of factorizations, clipped training",
        parts=("rates", "cost", "dp-linear"),
    ),
    _user_level(
        "correlated-training",
        "correlated noise: accuracy at equal epsilon against independent noise, audited",
        trains=True,
        needs=f"{MNIST}, {SHAKESPEARE}; part example-level: CIFAR-10 or {FASHION}; part chat: nothing",
        parts=("chat", "mnist", "shakespeare", "example-level"),
    ),
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
