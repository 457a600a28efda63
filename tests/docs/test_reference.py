"""The API reference is made from docstrings: every argument of every public name is described there, and what comes back."""

import importlib
import inspect
import re

import pytest

import coalmine

PUBLIC = [name for name in coalmine.__all__ if not name.startswith("_")]
READ = {"AuditResult"}  # nobody makes one: its fields have comments


def described(name, text):
    return re.search(rf"(?m)`{name}`|^ *{name}: \S", text) is not None


@pytest.mark.parametrize("name", PUBLIC)
def test_arguments_and_returns_are_described(name):
    made = getattr(importlib.import_module(f"coalmine.{coalmine._HOME_OF[name]}"), name)
    text = inspect.getdoc(made) or ""
    assert text, name
    missing = [each for each in inspect.signature(made).parameters if not described(each, text)]
    assert name in READ or missing == []
    if not inspect.isclass(made):
        assert re.search(r"(?m)^Returns:\n    \S", text), name


@pytest.mark.parametrize("method", ["opacus", "loop", "plan"])
def test_the_doors_of_an_audit_are_described(method):
    assert len(inspect.getdoc(getattr(coalmine.Audit, method))) > 60
