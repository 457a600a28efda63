"""A hundredth of `make fuzz`: hostile configurations, score files, results, checkpoints and run directories."""

import importlib.util
import signal
from pathlib import Path

import pytest

PLACE = Path(__file__).parents[2] / "benchmarks" / "fuzz.py"


@pytest.mark.skipif(not hasattr(signal, "SIGPROF"), reason="the limit of time needs a signal of POSIX")
def test_hostile_input_is_refused_with_a_message(tmp_path):
    described = importlib.util.spec_from_file_location("fuzz", PLACE)
    fuzz = importlib.util.module_from_spec(described)
    described.loader.exec_module(fuzz)
    before = signal.getsignal(signal.SIGPROF)
    try:
        found, failures = fuzz.fuzzed(104, 1_000_000, tmp_path, shout=lambda text: None)
    finally:
        signal.signal(signal.SIGPROF, before)
    assert not failures, failures[0]
    assert all(sum(counts.values()) for counts in found["counts"].values())
