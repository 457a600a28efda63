"""Skeleton of a data source: a numpy archive with the arrays `user`, `features` and `target`. Copy, rename, change.

Register it by a line in `SOURCES` (src/coalmine/data/__init__.py).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from coalmine.data._files import Origin, broken, find
from coalmine.data.dataset import FederatedDataset
from coalmine.data.tables import group_examples

_ORIGIN = Origin(what="the visits", where="They are published by their authors.", folders=("visits",))


def read_visits(data_dir: str | Path | None = None) -> FederatedDataset:
    """One client for every user. The arguments are the keys of `data.options`; `data_dir` is also --data-dir."""
    path = find("visits.npz", _ORIGIN, data_dir)  # a missing file is an error that says what it is
    try:
        with np.load(path, allow_pickle=False) as archive:
            user, features, target = (archive[name] for name in ("user", "features", "target"))
    except (OSError, ValueError, KeyError) as error:
        raise broken(path, error, what="an archive of visits") from None
    return group_examples(user, features, target, name="visits")  # read lazily instead: a class with users, sizes and load
