"""What a user has, in the form that another library takes: arrays of numpy, tensors of torch, or an Arrow table."""

from importlib import import_module
from typing import Any

import numpy as np

from coalmine.data.users import arrow

FORMATS = ("numpy", "torch", "arrow")


def columns_of(loaded: Any) -> dict[str, Any]:
    """The columns of loaded examples, texts or rows."""
    if hasattr(loaded, "columns"):
        return dict(loaded.columns)
    if hasattr(loaded, "texts"):
        texts = {"text": np.array(loaded.texts, object)}
        return texts if loaded.labels is None else {**texts, "label": loaded.labels}
    return {"features": loaded.features, "targets": loaded.targets}


def formatted(columns: dict[str, Any], format: str) -> Any:
    """The columns as one of FORMATS; texts have no tensors and stay arrays."""
    if format == "numpy":
        return columns
    if format == "arrow":
        pa = arrow("iterating over Arrow tables")
        return pa.table({name: pa.array(list(values) if values.ndim > 1 else values) for name, values in columns.items()})
    torch = import_module("torch")
    return {name: values if values.dtype == object else torch.as_tensor(np.array(values)) for name, values in columns.items()}
