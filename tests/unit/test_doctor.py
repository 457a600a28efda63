"""`coalmine doctor` and shell completion."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from coalmine import doctor


def coalmine(*words, **environment):
    command = [str(Path(sys.executable).with_name("coalmine")), *words]  # completion goes by the name of the program
    return subprocess.run(command, capture_output=True, text=True, timeout=300, env={**os.environ, **environment}, check=False)


def test_every_extra_has_its_purpose():
    from importlib.metadata import metadata

    assert set(metadata("coalmine").get_all("Provides-Extra")) - {"dev", "docs"} == set(doctor.PURPOSES) - {""}


def test_what_is_missing_comes_with_its_command(monkeypatch):
    found = {"numpy": "2.1.0", "scipy": "1.17.1", "dp-accounting": "0.5", "typer": "0.15.4", "rich": "13.0", "pyarrow": "14.9"}
    monkeypatch.setattr(doctor, "_version", found.get)
    parts = {part.name: part for part in doctor.doctor().parts}
    assert parts["core"].ready and parts["core"].install == ""
    assert parts["parquet"].missing == ("pyarrow>=15",) and parts["parquet"].install == 'pip install "coalmine[parquet]"'
    assert "jinja2>=3.1" in parts["serve"].missing and "torch>=2.6" in parts["flower"].missing  # through other extras
    assert 'missing pyarrow>=15 for score files in parquet, coalmine group: pip install "coalmine[parquet]"' in str(
        doctor.doctor()
    )
    monkeypatch.setattr(doctor, "_version", {**found, "numpy": "1.26"}.get)
    assert doctor.doctor().wrong == ("nothing works without: numpy>=2.0",)


def test_on_the_command_line(tmp_path):
    said = coalmine("doctor", COALMINE_DATA=str(tmp_path / "absent"))
    assert said.returncode == 0 and "core" in said.stdout and "is not a folder" in said.stdout
    data = json.loads(coalmine("doctor", "--json").stdout)
    assert data["ready"]["core"] is True and data["parts"][0]["packages"]["numpy"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(shell):
    if shell == "bash":
        asked = {"COMP_WORDS": "coalmine ser", "COMP_CWORD": "1"}
    else:
        asked = {"_TYPER_COMPLETE_ARGS": "coalmine ser", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    said = coalmine(**asked, _COALMINE_COMPLETE=f"complete_{shell}")
    assert "serve" in said.stdout and "resume" not in said.stdout
