"""Per-example gradients of any array library, by what they can do: `__array__` or DLPack to read them, `concat` to append rows.

A tree is an array, or lists, tuples and dictionaries of trees, as PyTorch, JAX and hand-written loops have them. Every array
of gradients has the examples along its first axis; together the others are flattened in the order of the tree.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from coalmine.contracts import Array
from coalmine.errors import MismatchError, NonFiniteError


def leaves(tree: Any) -> list[Any]:
    """The arrays of a tree, in its order; dictionaries in the order of their keys, as JAX has it."""
    if isinstance(tree, Mapping):
        return [leaf for key in sorted(tree) for leaf in leaves(tree[key])]
    if isinstance(tree, list | tuple):
        return [leaf for each in tree for leaf in leaves(each)]
    if hasattr(tree, "shape"):
        return [tree]
    jax = sys.modules.get("jax")  # a user's own node, which JAX knows
    if jax is not None and not jax.tree_util.all_leaves([tree]):
        return list(jax.tree_util.tree_leaves(tree))
    raise MismatchError(f"gradients must be arrays, or lists and dictionaries of arrays; found {type(tree).__name__}.")


def own_order(tree: Any) -> list[Any]:
    """The arrays of a tree with dictionaries in their own order, as a loop over them goes."""
    if isinstance(tree, Mapping):
        return [leaf for each in tree.values() for leaf in own_order(each)]
    return [leaf for each in tree for leaf in own_order(each)] if isinstance(tree, list | tuple) else leaves(tree)


def rebuilt(tree: Any, made: Callable[[Any], Any]) -> Any:
    """The same tree with every array replaced, in the same order as `leaves`."""
    if isinstance(tree, Mapping):
        found = {key: rebuilt(tree[key], made) for key in sorted(tree)}
        return type(tree)((key, found[key]) for key in tree)  # type: ignore[call-arg]
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(rebuilt(each, made) for each in tree))
    if isinstance(tree, list | tuple):
        return type(tree)(rebuilt(each, made) for each in tree)
    if hasattr(tree, "shape"):
        return made(tree)
    jax = sys.modules["jax"]
    return jax.tree_util.tree_map(made, tree)


def as_numpy(array: Any) -> Array:
    """A float array of NumPy; without a copy where the library's memory can be read."""
    if hasattr(array, "detach"):
        array = array.detach().to("cpu")
        array = array.float() if str(array.dtype) in ("torch.bfloat16", "torch.float16") else array
    by_dlpack = hasattr(array, "__dlpack__") and not hasattr(array, "__array__")
    found: Any = np.from_dlpack(array) if by_dlpack else np.asarray(array)
    if not np.issubdtype(found.dtype, np.floating):
        found = found.astype(np.float32)
    numbers: Array = found
    return numbers


def flat_vector(tree: Any) -> Array:
    """All arrays of a tree as one vector."""
    parts = [as_numpy(leaf).reshape(-1) for leaf in leaves(tree)]
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def flat_rows(tree: Any, dim: int) -> tuple[Array, list[tuple[int, ...]]]:
    """(one row for every example, the shape of every array without the examples); what does not fit is one sentence."""
    found = leaves(tree)
    sizes = {int(leaf.shape[0]) if len(leaf.shape) else -1 for leaf in found}
    if len(sizes) != 1 or -1 in sizes:
        raise MismatchError("every array of gradients needs the examples of the step along its first axis, as many in each.")
    count = sizes.pop()
    parts = [as_numpy(leaf).reshape(count, int(np.prod(leaf.shape[1:]))) for leaf in found]
    together = sum(part.shape[1] for part in parts)
    if together != dim:
        raise MismatchError(f"gradients of {together} numbers for each example, and loop(dim={dim}): state the model's own.")
    rows = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)
    if not np.isfinite(rows.sum(dtype=np.float64)) and not np.isfinite(rows).all():
        raise NonFiniteError("a gradient is NaN or infinite: clipping does not mend that, and nothing can be audited.")
    return rows, [tuple(leaf.shape[1:]) for leaf in found]


def with_rows(tree: Any, rows: Array) -> Any:
    """The same tree with further examples behind those that it has, in its own library and on its own device."""
    edges = iter(np.cumsum([0, *(int(np.prod(leaf.shape[1:])) for leaf in leaves(tree))]).tolist())
    start = next(edges)

    def longer(leaf: Any) -> Any:
        nonlocal start
        stop = next(edges)
        more = rows[:, start:stop].reshape(len(rows), *leaf.shape[1:])
        start = stop
        return _appended(leaf, more)

    return rebuilt(tree, longer)


def _appended(leaf: Any, more: Array) -> Any:
    library = type(leaf).__module__.split(".")[0]
    if library == "torch":
        import torch

        return torch.cat([leaf, torch.from_numpy(np.ascontiguousarray(more)).to(device=leaf.device, dtype=leaf.dtype)])
    if library in ("jax", "jaxlib"):
        numpy = sys.modules["jax"].numpy
        return numpy.concatenate([leaf, numpy.asarray(more, dtype=leaf.dtype)])
    if not isinstance(leaf, np.ndarray) and hasattr(leaf, "__array_namespace__"):  # any other of the array API
        space = leaf.__array_namespace__()
        return space.concat([leaf, space.asarray(more, dtype=leaf.dtype, device=leaf.device)])
    return np.concatenate([np.asarray(leaf), more.astype(leaf.dtype, copy=False)])
