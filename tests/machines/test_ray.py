"""`--engine ray` on two raylets of this machine: the same bits; a node that dies; too few processors; other versions."""

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from coalmine.errors import MismatchError
from coalmine.training import run
from coalmine.training.config import read_config

pytest.importorskip("ray")
from coalmine.adapters.ray_engine import cluster

DRIVER = Path(__file__).with_name("driver.py")
SQUARES = sum(number * number for number in range(12))
SHORT = ["participation.epochs=1", "participation.rounds=6", "canaries.pool=60", "run.reference=false", "run.workers=1"]


@pytest.fixture(scope="module")
def tried(tmp_path_factory):
    out = tmp_path_factory.mktemp("ray")
    ended = subprocess.run([sys.executable, DRIVER, out], capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr[-3000:]
    return out, json.loads((out / "found.json").read_text())


def test_nodes_are_on_loopback(tried):
    assert tried[1]["nodes"] == ["127.0.0.1", "127.0.0.1"]


def test_the_result_is_that_of_one_machine_bit_for_bit(tried, tmp_path):
    run(read_config("tiny", SHORT), tmp_path / "one", secret_seed=7, quiet=True)
    for name in ("scores.npz", "model.safetensors", "result.json"):
        assert (tried[0] / "ray" / name).read_bytes() == (tmp_path / "one" / name).read_bytes(), name


def test_too_few_processors_are_one_message_before_there_is_a_directory(tried):
    assert tried[1]["few"].startswith("3 workers need 3 processors; this Ray cluster has 2. Use --workers 2")
    assert not (tried[0] / "few").exists()


def test_another_version_on_a_node_is_one_message(tried):
    assert "numpy" in tried[1]["versions"] and "(here: 1.0)" in tried[1]["versions"]


def test_a_worker_hands_over_one_sum_however_many_tasks_it_had(tried):
    assert tried[1]["squares"] == [number * number for number in range(4)]
    assert tried[1]["whole"] == [[-number for number in range(12)], SQUARES, 2]


def test_the_tasks_of_a_node_that_dies_are_done_again_and_count_once(tried):
    results, total, sums = tried[1]["killed"]
    assert (results, total) == ([-number for number in range(12)], SQUARES)
    assert sums == 1, "the sum of the dead node is gone, and its tasks are in that of the other"
    assert tried[1]["left"] == 1
    begun = tried[1]["begun"]
    assert len({node for _, node in begun}) == 2
    assert len(begun) > 12, "what the dead node had begun was begun again"


@pytest.mark.parametrize("address", ["127.0.0.1:{free}", "127.0.0.1:x"])
def test_an_address_where_nobody_listens_is_one_message_at_once(address):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        free = taken.getsockname()[1]
    with pytest.raises(MismatchError, match=r"no Ray cluster at 127.0.0.1:.* HOST:PORT"), cluster(address.format(free=free), 1):
        pass
