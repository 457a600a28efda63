"""Grouping that is killed, at twenty moments, and called again: the bytes of one that was not."""

import signal
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coalmine._random import stream
from coalmine.data import group_by_user, open_grouped
from coalmine.errors import InputFileError

# A process that kills itself at its n-th look at the file system in the folder of the groups, or at its end if there are fewer.
KILLED = """
import os, signal, sys
from coalmine.data import group_by_user
table, out, moment = sys.argv[1], sys.argv[2], int(sys.argv[3])
seen = 0
def look(event, args):
    global seen
    if event in ("open", "os.rename", "os.remove", "os.mkdir") and out in str(args[0]):
        seen += 1
        if seen == moment:
            os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(look)
group_by_user(table, out, user="user", buckets=6, memory="1MB")
print(seen)
"""


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    path = tmp_path_factory.mktemp("in") / "rows.parquet"
    rng = stream(0, "rows to be killed")
    users = [f"u{number % 300}" for number in rng.zipf(1.5, 8000).tolist()]
    holes = [None if number % 11 == 0 else number for number in range(8000)]
    pq.write_table(pa.table({"user": users, "text": [f"t{number}" * 9 for number in range(8000)], "maybe": holes}), path)
    return path


def run(table, out, moment):
    return subprocess.run([sys.executable, "-c", KILLED, str(table), str(out), str(moment)], capture_output=True, text=True)


def contents(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


@pytest.mark.slow
def test_a_killed_grouping_goes_on_to_the_same_bytes(table, tmp_path):
    whole = run(table, tmp_path / "whole", 10**9)
    assert whole.returncode == 0, whole.stderr
    right, looks = contents(tmp_path / "whole"), int(whole.stdout)
    assert looks > 30
    for moment in stream(0, "moments of death").choice(looks, 20, replace=False) + 1:
        out = tmp_path / f"killed {moment}"
        died = run(table, out, int(moment))
        assert died.returncode == -signal.SIGKILL
        if not (out / "manifest.json").is_file():
            with pytest.raises(InputFileError, match=r"was not finished|is no grouped data"):
                open_grouped(out)
        group_by_user(table, out, user="user", buckets=6, memory="1MB")
        assert contents(out) == right, moment


def test_two_processes_do_not_share_a_folder(table, tmp_path):
    import fcntl

    (tmp_path / "out").mkdir()
    with (tmp_path / "out" / "lock").open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(InputFileError, match="another process is grouping"):
            group_by_user(table, tmp_path / "out", user="user")
