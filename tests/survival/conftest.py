"""Runs that are hurt on purpose, in children of one process that has everything imported (`driver.py`)."""

import hashlib
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

SECRET = 0x5EC2E7_0F_A11_7E575
SMALL = (  # users of two images each, so that a cohort of 160 is more than two groups of 64
    *("data.options.group=2", "data.users=600", "participation.rounds=6", "participation.epochs=2"),
    *("canaries.pool=40", "audit.unused_rows=100"),
    *("run.evaluate_every=2", 'audit.views=["known-others","final-model"]', "audit.bound=anytime"),  # the cheapest to compute
)


@dataclass(frozen=True)
class Ended:
    """How a child ended."""

    code: int
    out: str
    err: str
    pid: int
    seconds: float
    calls: str

    @property
    def killed(self):
        return self.code == -9

    def said(self, code, *words):
        """One message of the program on standard error, nothing on standard output, never a traceback."""
        message = " ".join(
            line for line in self.err.splitlines() if not line.startswith(("run directory:", "exit ", "training:"))
        )
        assert (self.code, self.out) == (code, ""), self
        assert "Traceback" not in self.err and "internal error" not in self.err, self.err
        assert message.startswith("coalmine: ") and message.count("coalmine: ") == 1, message
        assert "Warning" not in message, message
        assert all(word in message for word in words), message
        return message


class Coalmine:
    """The command line, in children that may be hurt."""

    def __init__(self, driver):
        self._driver, self._count = driver, 0

    def __call__(self, *words, **how):
        return self.several(words, **how)

    def several(self, *argvs, env=None, **how):
        """Several calls in one child."""
        self._count += 1
        mark = {"SURVIVAL_TRIAL": f"{os.getpid()}-{self._count}"}
        how = {"argvs": [[str(word) for word in words] for words in argvs], "env": {**(env or {}), **mark}, **how}
        self._driver.stdin.write(json.dumps(how) + "\n")
        self._driver.stdin.flush()
        ended = Ended(**json.loads(self._driver.stdout.readline()))
        assert not orphans(mark), "processes outlived the run"
        return ended

    def run(self, out, *, sets=SMALL, secret=SECRET, workers=1, more=(), **how):
        """A quiet run of `tiny`, changed."""
        changes = [word for change in sets for word in ("--set", change)]
        hidden = () if secret is None else ("--secret-seed", secret)
        return self("run", "tiny", *changes, "--workers", workers, "--out", out, "--quiet", *hidden, *more, **how)

    def resume(self, out, *, workers=1, **how):
        """Go on. `drawn=True`, here and above: with the figures of the page."""
        return self("resume", out, "--workers", workers, "--quiet", **how)


def orphans(mark, patience=300.0):
    """Processes that carry the mark in their environment, once they had time to leave."""
    ((name, value),) = mark.items()
    wanted = f"{name}={value}".encode()
    until = time.monotonic() + patience
    while True:
        found = []
        for path in Path("/proc").glob("[0-9]*/environ"):
            try:
                if wanted in path.read_bytes().split(b"\0"):
                    found.append(path.parent.name)
            except OSError:
                continue
        if not found or time.monotonic() > until:
            return found
        time.sleep(0.05)


def digests(out):
    """The SHA-256 of everything that must be equal in equal runs."""
    paths = [out / name for name in ("model.safetensors", "scores.npz", "result.json", "report.html", "training.json")]
    paths += sorted((out / "views").glob("*.npz"))
    assert len(paths) > 5 and not list(out.rglob("*.part"))
    own = hashlib.sha256((out / "manifest.json").read_bytes()).hexdigest().encode()  # the page prints it, and events have times
    return {path.relative_to(out).as_posix(): hashlib.sha256(path.read_bytes().replace(own, b"")).hexdigest() for path in paths}


def records(out):
    """The lines of events, without times."""
    lines = [json.loads(line) for line in (out / "events.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if name not in ("time", "seconds")} for line in lines]


@pytest.fixture(scope="session")
def coalmine():
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    environment.pop("WANDB_SERVICE", None)  # children are killed with a tracker of their own, not with that of other tests here
    command = [sys.executable, Path(__file__).with_name("driver.py")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as driver:
        yield Coalmine(driver)
        driver.stdin.close()


class Whole:
    """Uninterrupted runs, each made once."""

    def __init__(self, coalmine, folder):
        self._coalmine, self._folder, self._found = coalmine, folder, {}

    def __call__(self, sets=SMALL, *, drawn=False, counted=False):
        """(directory, how it ended); `counted`: with the number of its calls, which takes longer."""
        key = sets, drawn, counted
        if key not in self._found:
            out = self._folder / f"whole-{len(self._found)}"
            how = {"fault": {"at": "calls", "number": 0}} if counted else {}
            ended = self._coalmine.run(out, sets=sets, drawn=drawn, **how)
            assert ended.code in (0, 1), ended
            self._found[key] = (out, ended)
        return self._found[key]


@pytest.fixture(scope="session")
def whole(coalmine, tmp_path_factory):
    return Whole(coalmine, tmp_path_factory.mktemp("whole"))


@pytest.fixture
def same():
    """Asserts that two directories hold the same run."""

    def same(out, other):
        assert digests(out) == digests(other)
        assert records(out) == records(other)

    return same


@pytest.fixture(scope="session")
def small():
    return SMALL


@pytest.fixture(scope="session")
def secret():
    return SECRET
