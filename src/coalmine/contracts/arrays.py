"""Names for arrays, and for what travels with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
IndexArray = NDArray[np.int64]
Vector = NDArray[np.floating[Any]]  # parameters, updates, releases: whatever precision the trainer has
State = Mapping[str, NDArray[Any]]  # what goes from round to round, as named arrays that can be saved
Streams = Callable[..., np.random.Generator]  # names -> a generator of their own
