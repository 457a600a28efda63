"""Flower lives in an environment of its own (`make flower`): where it is not installed, its files are left alone."""

import os
import warnings
from importlib.util import find_spec

collect_ignore = ["src/coalmine/adapters/flower", "tests/flower"]

if find_spec("flwr"):
    collect_ignore = []
    os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
    with warnings.catch_warnings():  # while it is loaded, its older typer meets a newer click
        warnings.simplefilter("ignore", DeprecationWarning)
        import flwr.clientapp.mod
        import flwr.serverapp.strategy  # noqa: F401
