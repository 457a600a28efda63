"""`coalmine.run`: train and audit in one call. It is light: the trainer is imported inside the call."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coalmine.contracts import Mechanism
    from coalmine.training.running import RunResult


def run(
    config_or_preset: Any,
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
    from coalmine.training.config import changed, read_config

    named = isinstance(config_or_preset, str | Path)
    config = read_config(config_or_preset, set) if named else changed(config_or_preset, set)
    return train(config, out, mechanism=mechanism, secret_seed=secret_seed, quiet=quiet)
