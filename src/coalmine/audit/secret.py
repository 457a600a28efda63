"""The secret of an audit: canaries, coins and rounds follow from it, so that both sides need the same, and nobody else any."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from coalmine import _validate
from coalmine.errors import RunDirectoryError
from coalmine.runs import read_secret, write_secret


def secret(seed: int | None, file: str | Path | None) -> tuple[int, bool]:
    """Given, or kept in a file that both sides of an audit read, or fresh; and whether it was made just now."""
    if seed is not None:
        return _validate.secret("secret_seed", seed), False
    if file is None:
        return secrets.randbits(128), True
    made = make_secret(file)
    if os.name == "posix" and Path(file).stat().st_mode & 0o077:
        raise RunDirectoryError(
            f"others may read the secret file {str(file)!r}, and it tells who is a canary: chmod 600 it, or make a new one."
        )
    return read_secret(Path(file)), made


def make_secret(file: str | Path) -> bool:
    """A fresh secret in a file that its owner alone can read, for every side of an audit; a file that is there stays."""
    if not Path(file).parent.is_dir():
        raise RunDirectoryError(f"there is no folder {str(Path(file).parent)!r} for the secret file. Make it first.")
    try:
        write_secret(Path(file), secrets.randbits(128))
    except FileExistsError:
        return False
    return True
