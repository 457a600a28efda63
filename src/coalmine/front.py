"""`coalmine.run` and `coalmine.frozen_scores`. Both are light: the trainer is imported inside the call."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coalmine.canaries.crafted.design import Crafted
    from coalmine.contracts import Mechanism, State
    from coalmine.scores import Scores
    from coalmine.training.config import Config
    from coalmine.training.federation import Federation
    from coalmine.training.running import RunResult


def run(
    config_or_preset: str | Path | Config,
    out: str | Path,
    *,
    set: Sequence[str] = (),
    mechanism: Mechanism | None = None,
    secret_seed: int | None = None,
    quiet: bool = False,
) -> RunResult:
    """Train with canaries and audit, in the new directory `out`; `.result` is the `AuditResult`.

    The first argument is a preset ("quickstart", "tiny", ...), a TOML file, or a `coalmine.training.config.Config`; `set` holds
    changes as on the command line, ["mechanism.noise_multiplier=0.5"]. `mechanism` is one of your own, as a subclass of
    `coalmine.mechanisms.Gaussian`; the claim is computed from what it describes itself to be. A `secret_seed` makes a run that
    can be repeated and is not private.

    Args:
        config_or_preset: A preset, a TOML file, or a `Config`.
        out: The new directory.
        set: Changes, as on the command line.
        mechanism: One of your own.
        secret_seed: For tests only.
        quiet: No progress on standard error.

    Returns:
        The finished run: `.result`, `.directory`, `.training`.
    """
    from coalmine.training.campaign import run as train
    from coalmine.training.config import Config, changed, read_config

    if isinstance(set, str):
        raise ValueError(f"set={set!r} is a single text; write a list of changes: set=[{set!r}].")
    if isinstance(config_or_preset, Config):
        config = changed(config_or_preset, set)
    elif isinstance(config_or_preset, str | Path):
        config = read_config(config_or_preset, set)
    else:
        raise ValueError(
            f"a {type(config_or_preset).__name__} is no configuration: give the name of a preset, the path of a TOML file, "
            "or a coalmine.training.config.Config."
        )
    return train(config, out, mechanism=mechanism, secret_seed=secret_seed, quiet=quiet)


def frozen_scores(
    federation: Federation,
    state: State,
    crafted: Crafted,
    *,
    round_number: int,
    draws: int,
    others: str = "known",
    excluded: Sequence[str] = (),
    unit: str | None = "client",
) -> Scores:
    """Scores of crafted canaries in `draws` repetitions of one round at the model of `state`, which is not changed.

    `federation` is a `coalmine.training.federation.Federation`, `excluded` the users that the canaries were designed with. Each
    draw throws a coin for every canary and has noise of its own, by the mechanism's own `release`. With `others="known"` the
    clients' part is subtracted and the scale of the noise is measured beside the canaries; with `"unknown"` a fresh cohort is
    part of every score. Costs one cohort of client trainings for known others, one training of every client for unknown ones,
    and a release for each draw.

    Args:
        federation: Data, model, mechanism and who takes part.
        state: Of the server, at the measured round.
        crafted: The canaries.
        round_number: Whose noise and clip norm are used.
        draws: Repetitions of the round.
        others: "known" or "unknown".
        excluded: Users that canaries were designed with.
        unit: Who is protected.

    Returns:
        One score for each canary and draw.
    """
    from coalmine.training.frozen import Frozen

    return Frozen(federation, state, crafted, round_number, frozenset(excluded)).scores(draws, others=others, unit=unit)
