"""What is trained in the study of correlated noise: data sets with their models, and what is tried for every method."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from coalmine.data import SOURCES
from coalmine.errors import InputFileError
from coalmine.papers.kit.experiment import Ask
from coalmine.training.config import Config, changed, checked, read_config

METHODS = ("independent", "banded", "blt", "toeplitz", "tree")
CHECKED = ("canaries.pool=100", "audit.unused_rows=500", 'audit.views=["known-others"]', "run.workers=1")  # of small runs
_FIXED = ("participation.pattern=epochs", "participation.reshuffled=false", "mechanism.kind=correlated", "run.evaluate_every=0")


@dataclass(frozen=True)
class Family:
    """A data set with its model. Its small setting is that of the quick scale, and the one that a full study is tuned on."""

    title: str
    preset: str
    full: tuple[str, ...]
    small: tuple[str, ...]
    methods: tuple[str, ...] = METHODS  # of the full scale
    rates: tuple[float, ...] = (0.25, 1.0, 4.0)  # learning rates of the server
    momenta: tuple[float, ...] = (0.0, 0.9)
    left_out: tuple[str, ...] = ()
    reads_files: bool = True
    replaced: Mapping[str, str] = field(default_factory=dict)  # of the preset, where a change cannot say it

    def config(self, ask: Ask, method: str, changes: tuple[str, ...], small: bool) -> Config:
        """The configuration of a run with a method."""
        files: tuple[str, ...] = ()
        if self.reads_files and ask.data_dir is not None:
            files = (f"data.options.data_dir={str(Path(ask.data_dir).resolve())!r}",)
        preset = read_config(self.preset).model_dump(exclude_none=True)
        preset["mechanism"] = {"kind": "correlated", "strategy": method, "clip_norm": 1.0}
        for section, name in self.replaced.items():
            preset[section] = {**preset[section], {"data": "source", "model": "name"}[section]: name}
            preset[section].pop("options", None)
        own = (*self.small, *CHECKED) if small else self.full
        return changed(checked(preset), [*_FIXED, *own, *files, *changes, *ask.changes])


CHAT = Family(
    "characters of chats",
    "quickstart",
    ("run.reference=false", 'audit.views=["known-others"]'),
    ("run.reference=false", "data.users=300", "participation.epochs=4", "participation.rounds=24",
     "model.options={embedding=8, hidden=24, tied=false}"),
    reads_files=False,
)  # fmt: skip
MNIST = Family(
    "MNIST by writer",
    "mnist-writers",
    ("data.held_out_kind=examples", "mechanism.clip_norm=0.3", "participation.epochs=3", "participation.cohort_size=160",
     "model.name=leaf-cnn", 'audit.views=["known-others"]'),
    ("data.held_out_kind=examples", "mechanism.clip_norm=0.3", "data.users=500", "participation.epochs=3",
     "participation.cohort_size=50", "model.name=logistic"),
    left_out=("full: the papers' network of 1.2 million parameters, in which noise hides all and one run takes 13 minutes, "
              "and 5 epochs of cohorts of 34",),
)  # fmt: skip
SHAKESPEARE = Family(
    "Shakespeare's roles",
    "shakespeare",
    ("mechanism.clip_norm=1.0", "client.max_steps=4", "client.batch_size=4", "client.learning_rate=5.0",
     "model.options={hidden=128}", "participation.epochs=4", 'audit.views=["known-others"]'),
    ("mechanism.clip_norm=1.0", "data.users=260", "client.max_steps=2", "client.batch_size=4", "client.learning_rate=5.0",
     "model.options={hidden=24}", "participation.epochs=4", "participation.cohort_size=40"),  # the least that learns
    left_out=("full: a recurrent layer of 256, and ten steps of a client",),
)  # fmt: skip
FASHION = Family(
    "Fashion-MNIST, single examples",
    "fashion-mnist",
    ("participation.epochs=4", "participation.cohort_size=2000", "data.held_out=0.1", "audit.paper_views=false",
     'audit.views=["known-others"]'),
    ("data.users=3000", "data.held_out=0.1", "model.name=logistic", "model.options={}", "participation.cohort_size=200",
     "participation.epochs=4", "audit.paper_views=false"),
)  # fmt: skip
CIFAR = Family(
    "CIFAR-10, single examples",
    "fashion-mnist",
    FASHION.full,
    FASHION.small,
    replaced=MappingProxyType({"data": "cifar10"}),
)
FAMILIES: Mapping[str, Family] = MappingProxyType({"chat": CHAT, "mnist": MNIST, "shakespeare": SHAKESPEARE})
PARTS = (*FAMILIES, "example-level")


def family(ask: Ask, name: str) -> tuple[Family, list[str]]:
    """The family of a part; single examples are those of CIFAR-10, or of Fashion-MNIST where its files are not there."""
    if name != "example-level":
        return FAMILIES[name], []
    missing = "this version has no source 'cifar10'"
    if "cifar10" in SOURCES:
        try:
            SOURCES["cifar10"](**({} if ask.data_dir is None else {"data_dir": ask.data_dir}))
            return CIFAR, []
        except InputFileError as error:
            missing = str(error)
    return FASHION, [f"Fashion-MNIST in the place of CIFAR-10: {missing}"]
