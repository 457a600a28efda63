"""`coalmine.run`: train and audit in one call. It is light: the trainer is imported inside the call."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coalmine.contracts import Mechanism
    from coalmine.training.config import Config
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
