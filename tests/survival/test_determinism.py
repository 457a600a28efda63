"""The same configuration and seeds give the same bits, whoever does the work, in whatever order, and however often."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from coalmine.clients import LocalTraining, Trainer
from coalmine.training.assembly import load_task
from coalmine.training.config import read_config


def output(ended):
    assert ended.code in (0, 1), ended
    return ended.out


@pytest.fixture(scope="module")
def alone(coalmine, whole, small):
    """(directory, what `--json` prints) of the run with one worker."""
    out, _ = whole()
    rounds = [json.loads(line) for line in (out / "events.jsonl").read_text().splitlines()]
    config = read_config("tiny", small)
    size = Trainer(load_task(config).model, LocalTraining(**config.client.model_dump())).group_size
    assert all(event["clients"] > 2 * size for event in rounds)  # there is work to be shared
    return out, output(coalmine("resume", out, "--json", "--quiet"))


@pytest.mark.slow
def test_with_three_workers(coalmine, alone, same, tmp_path):
    """With two, see the next tests."""
    out, printed = alone
    assert output(coalmine.run(tmp_path / "run", workers=3, more=["--json"])) == printed
    same(tmp_path / "run", out)


def test_with_workers_that_finish_in_another_order(coalmine, alone, same, tmp_path):
    out, printed = alone
    ended = coalmine.run(tmp_path / "run", workers=2, more=["--json"], job="restless")
    assert output(ended) == printed
    same(tmp_path / "run", out)


def test_with_a_worker_that_is_killed(coalmine, alone, same, tmp_path):
    out, printed = alone
    grave = tmp_path / "grave"
    ended = coalmine.run(tmp_path / "run", workers=2, more=["--json"], job="deadly", env={"SURVIVAL_GRAVE": str(grave)})
    assert grave.exists()
    assert output(ended) == printed
    same(tmp_path / "run", out)


def test_twice_in_one_process(coalmine, alone, same, small, secret, tmp_path):
    """The first run leaves nothing behind that the second could notice, nor does another one between them."""
    out, printed = alone
    sets = [word for change in small for word in ("--set", change)]

    def words(name, *more):
        return ("run", "tiny", *sets, "--workers", 1, "--out", tmp_path / name, "--quiet", "--json", *more)

    ended = coalmine.several(
        words("a", "--secret-seed", secret),
        words("other", "--set", "run.seed=1", "--secret-seed", 3),
        words("b", "--secret-seed", secret),
    )
    assert ended.out.startswith(printed) and ended.out.endswith(printed)
    assert (tmp_path / "other" / "result.json").read_text() == ended.out.removeprefix(printed).removesuffix(printed)
    same(tmp_path / "a", out)
    same(tmp_path / "b", out)


def test_with_more_threads(alone, whole, same, small, secret, tmp_path):
    """A process of its own, where libraries may use as many threads as they like."""
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    sets = [word for change in small for word in ("--set", change)]
    words = ["run", "tiny", *sets, "--workers", "1", "--out", tmp_path / "run", "--secret-seed", str(secret)]
    done = subprocess.run(
        [Path(sys.executable).with_name("coalmine"), *words, "--json"], capture_output=True, text=True, env=environment
    )
    assert (done.stdout, done.stderr.count("Traceback")) == (alone[1], 0)
    assert "training: 6 of 6" in done.stderr
    same(tmp_path / "run", whole(drawn=True)[0])


def test_another_seed_is_another_run(coalmine, alone, small, tmp_path):
    out, _ = alone
    assert coalmine.run(tmp_path / "run", sets=(*small, "run.seed=1")).code in (0, 1)
    first, second = (json.loads((path / "training.json").read_text()) for path in (out, tmp_path / "run"))
    assert first["model_sha256"] != second["model_sha256"]
    assert first["config_sha256"] != second["config_sha256"]


@pytest.mark.slow
def test_the_whole_preset(coalmine, whole, same, tmp_path):
    """`tiny` as it is: all views, all rounds, the default bound; killed in round 17, resumed with two workers."""
    out, _ = whole((), drawn=True)
    fault = {"at": "write", "file": "checkpoint/state.safetensors.part", "do": "half", "nth": 18}
    assert coalmine.run(tmp_path / "run", sets=(), fault=fault).killed
    assert output(coalmine.resume(tmp_path / "run", workers=2, drawn=True))
    same(tmp_path / "run", out)
