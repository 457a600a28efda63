"""Visits of anonymous users to the areas of a web site (UCI, "Anonymous Microsoft Web Data"): many clients, tiny models.

A numpy archive of four arrays: `user` and `item`, one entry for each visit, `n_users` and `n_items`. 32,710 users have
98,653 visits to 285 areas, three each on average.

The task: which area does a user visit, given the others? Each visit is an example. Its features are ones at the
user's other areas (n_items numbers), its target is the area.
"""

import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from coalmine.contracts import IndexArray
from coalmine.data._files import Origin, broken, find
from coalmine.data.dataset import Examples, FederatedDataset, Rows

_ORIGIN = Origin(
    "The visits of Anonymous Microsoft Web Data",
    "The UCI Machine Learning Repository publishes them; the archive holds the arrays user, item, n_users and n_items.",
    ("msweb",),
)
_WHAT = "an archive of visits (user, item, n_users, n_items)"
# what numpy and zipfile raise for bytes that are no archive; the last two where the file holds a single array
_UNREADABLE = (
    *(zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, KeyError, RuntimeError, MemoryError),
    *(TypeError, AttributeError),
)


def read_msweb(data_dir: str | Path | None = None) -> FederatedDataset:
    """Every user's visits, each to be guessed from the others."""
    path = find("msweb.npz", _ORIGIN, data_dir)
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            user, item, n_users, n_items = (np.asarray(archive[name]) for name in ("user", "item", "n_users", "n_items"))
    except _UNREADABLE as error:
        raise broken(path, error, what=_WHAT) from None
    for name, array, axes in (("user", user, 1), ("item", item, 1), ("n_users", n_users, 0), ("n_items", n_items, 0)):
        if array.dtype.kind not in "iu" or array.ndim != axes:
            raise broken(path, f"{name} is {array.dtype} of shape {array.shape}", what=_WHAT)
    people, areas = int(n_users), int(n_items)
    user, item = user.astype(np.int64), item.astype(np.int64)
    if user.size != item.size or not (user.min(initial=0) >= 0 and user.max(initial=-1) < people):
        raise broken(path, "a visit has no user of its own, or a user out of range", what=_WHAT)
    if not (item.min(initial=0) >= 0 and item.max(initial=-1) < areas):
        raise broken(path, "a visit is to an area out of range", what=_WHAT)
    order = np.argsort(user, kind="stable")
    starts = np.concatenate([[0], np.cumsum(np.bincount(user, minlength=people))])
    return FederatedDataset("msweb", (source := _Visits(item[order], starts, areas)).users, source)


@dataclass(frozen=True, eq=False)
class _Visits:
    """The visits of user i are `items[starts[i]:starts[i+1]]`."""

    items: IndexArray
    starts: IndexArray
    areas: int

    @property
    def users(self) -> tuple[str, ...]:
        return tuple(f"{number:05d}" for number in range(self.starts.size - 1))

    def sizes(self, users: Sequence[str]) -> IndexArray:
        return np.diff(self.starts)[[int(user) for user in users]] if users else np.zeros(0, np.int64)

    def load(self, user: str, rows: Rows) -> Examples:
        place = int(user)
        targets = self.items[self.starts[place] : self.starts[place + 1]]
        features = np.zeros((targets.size, self.areas), np.float32)
        features[:, targets] = 1
        features[np.arange(targets.size), targets] = 0
        return Examples(features[rows], targets[rows])
