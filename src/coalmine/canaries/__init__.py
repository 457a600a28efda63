"""Canaries: secret directions that the auditor plants among the clients and looks for in what is released.

Both families keep the contract `coalmine.contracts.Canaries` and are never stored as a matrix: a pool of k canaries in R^d
costs memory for a handful of d-vectors, whatever k is.

* `TransformCanaries` (the default choice): rows of an exactly orthonormal fast map. All inner products at once, O(d log d).
* `SphereCanaries`: independent and uniform on the sphere, as in the papers. Exact null law, O(k d).
"""

from collections.abc import Callable

from coalmine.canaries.sphere import SphereCanaries
from coalmine.canaries.transform import TransformCanaries
from coalmine.contracts import Canaries

__all__ = ["FAMILIES", "SphereCanaries", "TransformCanaries"]

FAMILIES: dict[str, Callable[..., Canaries]] = {"transform": TransformCanaries, "sphere": SphereCanaries}
