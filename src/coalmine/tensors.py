"""Arrays as a file of safetensors, in pieces that are not copied."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray


def raw(value: NDArray[Any]) -> Any:
    """The bytes of an array, not copied where they lie in order."""
    return np.ascontiguousarray(value).reshape(-1).view(np.uint8)


def digest(about: str, state: Mapping[str, NDArray[Any]]) -> str:
    """A fingerprint of arrays, by name, and of what is said about them."""
    found = hashlib.sha256(about.encode())
    for name in sorted(state):
        value = state[name]
        found.update(f"{name}|{value.dtype.str}|{value.shape}|".encode())
        found.update(raw(value))
    return found.hexdigest()


def packed(state: Mapping[str, NDArray[Any]], metadata: Mapping[str, str]) -> list[Any]:
    """A file of safetensors in pieces, so that a large state is not copied: length of the header, header, arrays."""
    header, end, data = dict[str, Any](__metadata__=dict(metadata)), 0, []
    for name, value in sorted(state.items(), key=lambda item: (-item[1].dtype.itemsize, item[0])):  # every array is aligned
        kind = "BOOL" if value.dtype == np.bool_ else f"{value.dtype.kind.upper()}{8 * value.dtype.itemsize}"
        begin, end = end, end + value.nbytes
        header[name] = {"dtype": kind, "shape": list(value.shape), "data_offsets": [begin, end]}
        data.append(raw(value))
    written = json.dumps(header).encode()
    written += b" " * (-len(written) % 8)
    return [len(written).to_bytes(8, "little"), written, *data]
