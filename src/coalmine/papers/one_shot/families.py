"""The configurations of the papers' experiments that train: presets with changes, at full size or quick.

    family        stands for                       what is different
    chat          Stack Overflow, next word        20,000 clients made of 1,315 users, 1.2 million parameters, 500 rounds
    mnist         federated EMNIST                 MNIST by writer, 539 writers split into 3,234 clients, digits alone
    shakespeare   (no table of the papers)         Shakespeare's roles, next character
    fashion       Fashion-MNIST, as in the paper   the size of the network is not stated; 128 hidden units

No result on a substitute carries the original's name.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from coalmine.papers.kit.experiment import Ask
from coalmine.training.config import Config, read_config

Family = Callable[..., tuple[str, Config]]  # (ask, noise, …) to the name of a run and its configuration
# As many unused directions as canaries: with the default a run of 500 rounds would keep 120 MB of projections.
FEW_ROWS = "audit.unused_rows=2048"
# Adaptive clipping counts who was clipped and pays for it with a little more noise on the updates, 1/sigma² less 1/(2 b)² of
# noise b on the count. In the small cohorts of quick runs that would show; at full size b is 2 and it is below 0.5 %.
FREE_COUNT = "mechanism.count_noise=5"
# With this much noise adaptive clipping runs away on chats: noise lengthens the updates, the clip norm follows them, and the
# noise follows it, to 1e10 times where it began. Then it stays where it begins, at 0.3. (The network of MNIST bears more.)
RUNAWAY, FIXED_CLIPPING = 0.2, 'mechanism.kind="gaussian"'
FIXED, FEW = "fixed", "few"  # variants of a run: its clip norm is fixed; it has few canaries
ON_CHATS, BY_WRITER = "chats", "MNIST by writer"  # what experiments that train call their data
CHATS = (
    "Real runs: chats in clients of eight utterances, each client once; not Stack Overflow. Above a noise of 0.2 the clip norm "
    "is fixed, since adaptive clipping runs away there; runs in which it does so below are marked as diverged."
)
WRITERS = "Real runs: MNIST by writer, 539 writers split into 3,234 clients, five epochs; not federated EMNIST."
_QUICK_CHAT = (
    "data.users=700",
    "data.held_out=60",
    "data.vocabulary=300",
    "data.length=10",
    "data.options={per_client=4, clients_of_a_user=4}",
    "model.options={embedding=32, hidden=64}",
    "participation.rounds=30",
    "canaries.pool=300",
    "audit.unused_rows=500",
)
_QUICK_MNIST = (
    "data.users=160",
    'model.name="mlp"',
    "model.options={hidden=[64]}",
    "participation.epochs=2",
    "participation.cohort_size=10",
    "canaries.pool=300",
    "audit.unused_rows=500",
)
_QUICK_SHAKESPEARE = (
    "data.users=120",
    "data.cap=8",
    "data.length=40",
    "client.max_steps=2",
    "model.options={hidden=64}",
    "participation.epochs=2",
    "participation.cohort_size=12",
    "canaries.pool=200",
    "audit.unused_rows=500",
)
_QUICK_FASHION = (
    "data.users=4000",
    "model.options={hidden=[32]}",
    "participation.cohort_size=64",
    "canaries.pool=300",
    "audit.unused_rows=500",
)


def chat(ask: Ask, noise: float, times: int = 1, *, canaries: bool = True, variant: str = "") -> tuple[str, Config]:
    """Words of chats, every client once; canaries take part so many times."""
    changes = [*_clipping(ask, noise > RUNAWAY or variant == FIXED), *ask.pick(full=(), quick=_QUICK_CHAT)]
    return _varied(_config(ask, "chat-words", "chat", noise, times, canaries, changes + _changes(ask, variant)), variant)


def mnist(ask: Ask, noise: float, times: int = 1, *, canaries: bool = True, variant: str = "") -> tuple[str, Config]:
    """MNIST by writer in 3,234 clients, five epochs; one in twenty of each client's images judges."""
    delta = 3383**-1.1
    changes = ['data.held_out_kind="examples"', f"privacy.delta={delta!r}", "audit.paper_views=true", "run.evaluate_every=0"]
    changes += [*_clipping(ask, variant == FIXED), *ask.pick(full=(), quick=_QUICK_MNIST), *_files(ask, "{parts=6}")]
    return _varied(_config(ask, "mnist-writers", "mnist", noise, times, canaries, changes + _changes(ask, variant)), variant)


def shakespeare(ask: Ask, noise: float, times: int = 1, *, canaries: bool = True, variant: str = "") -> tuple[str, Config]:
    """Shakespeare's roles, next character."""
    changes = [*_clipping(ask, variant == FIXED), "audit.paper_views=true", "run.evaluate_every=0"]
    changes += [*ask.pick(full=(), quick=_QUICK_SHAKESPEARE), *_files(ask, "{}")]
    return _varied(
        _config(ask, "shakespeare", "shakespeare", noise, times, canaries, changes + _changes(ask, variant)), variant
    )


def fashion(ask: Ask, number: int) -> tuple[str, Config]:
    """Fashion-MNIST, central DP-SGD on all 60,000 images; runs differ in their secret seed and in the public one."""
    changes = ["data.held_out=0", *ask.pick(full=(), quick=_QUICK_FASHION), "run.workers=1", *_files(ask, "{}")]
    name, config = _config(ask, "fashion-mnist", "fashion", 0.2, 1, True, changes)
    seeded = config.run.model_copy(update={"seed": ask.seed * 1_000_003 + number})
    return f"{name}-{number:02d}", config.model_copy(update={"run": seeded})


def _config(
    ask: Ask, preset: str, family: str, noise: float, times: int, canaries: bool, changes: list[str]
) -> tuple[str, Config]:
    """(name of the run, its configuration)."""
    config = [
        f"mechanism.noise_multiplier={noise}",
        f"canaries.presentations={times}",
        f"run.seed={ask.seed}",
        f"run.workers={ask.pick(full=ask.workers, quick=1)}",
        *changes,
    ]
    config += [*ask.changes, *([] if canaries else ["canaries.pool=0"])]
    name = f"{family}-noise{noise:g}" + (f"-times{times}" if canaries else "-without")
    return name, read_config(preset, config)


def _changes(ask: Ask, variant: str) -> list[str]:
    """What is different in a variant; one with the same settings has another secret all the same, and so another noise."""
    return [f"canaries.pool={ask.pick(full=200, quick=40)}"] if variant == FEW else []


def _clipping(ask: Ask, fixed: bool) -> list[str]:
    """The clip norm follows the updates, as the presets have it, or stays where it begins."""
    return [FIXED_CLIPPING] if fixed else ask.pick(full=[], quick=[FREE_COUNT])


def _varied(named: tuple[str, Config], variant: str) -> tuple[str, Config]:
    name, config = named
    return (f"{name}-{variant}" if variant else name), config


def _files(ask: Ask, options: str) -> list[str]:
    """Options of a source that reads files."""
    if ask.data_dir is None:
        return [f"data.options={options}"]
    where = f"data_dir={str(Path(ask.data_dir).resolve())!r}"
    inner = options.strip("{}")
    return [f"data.options={{{inner + ', ' if inner else ''}{where}}}"]
