"""The fixture `assert_conforms`, which pytest finds by itself wherever Coalmine is installed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


@pytest.fixture(name="assert_conforms")
def _assert_conforms() -> Callable[..., Any]:
    """`coalmine.testing.assert_conforms`: fails with the sentence about one's private step that is false."""
    from coalmine.testing.steps import assert_conforms  # only where a test asks for it

    return assert_conforms
