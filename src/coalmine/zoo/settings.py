"""The settings of the study: what is trained, and the one statement that decides, named before any run.

All are the preset `zoo` with changes. Each is also trained correctly; an alarm there is a false one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from coalmine.training.assembly import Task, federation, load_task
from coalmine.training.config import Config, read_config
from coalmine.training.federation import Federation


@dataclass(frozen=True)
class Setting:
    """A correct federation, and what decides about it."""

    name: str
    about: str
    changes: tuple[str, ...] = ()
    records: bool = False  # no training: releases of a mechanism for single records, by `coalmine.zoo.records`

    @property
    def config(self) -> Config:
        """As a configuration."""
        return read_config("zoo", self.changes)

    def job(self, secret_seed: int) -> Federation:
        """As a federation: canaries, coins and noise from the secret seed, everything else always the same."""
        return federation(self.config, _material(self), secret_seed)


@cache
def _material(setting: Setting) -> Task:
    return load_task(setting.config)


_DEEP = "model.options.hidden=[93, 93, 93, 93, 93, 93]"
_TWICE = ("participation.pattern=epochs", "participation.epochs=2", "participation.rounds=16")
_CHAT = (
    "data.source=chat",
    "data.options={}",
    "data.at_least=20",
    "data.cap=100",
    "data.unit=characters",
    "data.vocabulary=ascii",
    "data.length=16",
    "data.packing=joined",
    "model.name=chat-lstm",
    "model.options={embedding=16, hidden=91, tied=false}",
    "client.learning_rate=5.0",
    "client.max_steps=1",
    "mechanism.clip_norm=1.0",
)
_FTRL = (
    "participation.pattern=epochs",
    "participation.epochs=4",
    "participation.reshuffled=false",
    "participation.rounds=32",
    "canaries.pattern=separated",
    "mechanism.kind=correlated",
    "mechanism.noise_multiplier=0.25",
)
SETTINGS = {
    setting.name: setting
    for setting in (
        Setting("once", "canaries take part once in 8 rounds, noise 0.5; known others"),
        Setting("rounds", "the same; known rounds, so that clients hide canaries", ("audit.view=known-rounds",)),
        Setting(
            "layers",
            "seven layers, noise 1; known others, of the whole and of every layer",
            (
                _DEEP,
                "mechanism.noise_multiplier=1.0",
                "audit.layers=true",
                "audit.unused_rows=128",
            ),
        ),
        Setting(
            "adaptive",
            "a clip norm that grows until nine in ten updates pass",
            (
                "mechanism.kind=adaptive",
                "mechanism.clip_norm=0.002",
                "mechanism.target_quantile=0.9",
                "mechanism.count_noise=5.0",
            ),
        ),
        Setting(
            "afterwards",
            "24 rounds, seven layers; from a canary's first round on",
            (
                _DEEP,
                "participation.pattern=epochs",
                "participation.epochs=3",
                "participation.rounds=24",
                "audit.view=afterwards",
                "audit.unused_rows=8192",
            ),
        ),
        Setting("eight", "16 rounds, canaries take part 8 times; known others", (*_TWICE, "canaries.presentations=8")),
        Setting(
            "poisson",
            "16 rounds of Poisson sampling at 1/2, noise 1.5; unknown rounds, beside the amplified claim",
            (
                "data.options.group=16",
                "client.batch_size=16",
                "data.users=100",
                "participation.pattern=poisson",
                "participation.cohort_size=50",
                "participation.rounds=16",
                "canaries.pattern=as-clients",
                "mechanism.noise_multiplier=1.5",
                "audit.view=unknown-rounds",
                "audit.unused_rows=40000",  # so that the ceiling is above the claim
            ),
        ),
        Setting(
            "poisson-known",
            "16 rounds of Poisson sampling at 1/8, noise 0.5; known others, beside the claim without amplification",
            (
                "participation.pattern=poisson",
                "participation.cohort_size=50",
                "participation.rounds=16",
                "canaries.pattern=as-clients",
            ),
        ),
        Setting(
            "dealt",
            "8 epochs of 12 rounds, noise 1; known others",
            (
                "data.options.group=2",
                "data.users=600",
                "participation.pattern=epochs",
                "participation.epochs=8",
                "participation.rounds=96",
                "canaries.pattern=as-clients",
                "mechanism.noise_multiplier=1.0",
                "audit.null=theory",
            ),
        ),
        Setting(
            "correlated",
            "32 rounds of banded noise (8 bands), noise 0.25; canaries take part 4 times, 8 rounds apart; known others",
            (*_FTRL, "mechanism.strategy=banded", "mechanism.bands=8", "canaries.presentations=4", "canaries.separation=8"),
        ),
        Setting(
            "correlated-root",
            "32 rounds of square-root Toeplitz noise, noise 0.25; canaries take part 8 times, 4 rounds apart; known others",
            (*_FTRL, "mechanism.strategy=toeplitz", "canaries.presentations=8", "canaries.separation=4"),
        ),
        Setting(
            "crafted",
            "as once, and data canaries crafted for the final model, in frozen draws",
            (
                "crafting.mode=frozen",
                "crafting.every=8",
                "crafting.canaries=32",
                "crafting.draws=4",
                "crafting.pool=40",
                "crafting.options={iterations=100}",
            ),
        ),
        Setting(
            "records", "1,500 sums of 16 users whose records are protected, one record by a coin; all else known", records=True
        ),
        Setting("chat", "a character LSTM on chats, whose writers have 20 to 100 utterances; known others", _CHAT),
    )
}
