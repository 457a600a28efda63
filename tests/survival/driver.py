"""A process that imports torch once and then runs the command line in forked children: `python driver.py`.

A line of JSON on standard input is a request, a line of JSON on standard output its answer. A request may name a fault, which
strikes at an exact place in the child, and a time after which the child is killed from outside.

    argv      words of the command line
    fault     {"at": "calls", "number": n}                         SIGKILL at the n-th call of a function (0: only count)
              {"at": "write", "file": f, "nth": n, "do": what}     the n-th time that a file whose path ends in f is written
              {"at": "rename", "file": f, "nth": n, "do": what}    the n-th time that something is renamed to such a file
              {"at": "client", "round": n, "do": "nan"}            an update of round n turns NaN
              what: "half" (write half of the bytes, then SIGKILL), "before", "after" (SIGKILL), or an errno
    kill      {"once": file, "after": seconds}: SIGKILL so long after the file is there; with "signal": that, to its whole group
    job       "deadly" or "restless": see the classes below
    limits    {"FSIZE": bytes}
    drawn     true: the page with its figures; else with a line for each, as drawing them is most of the work of a small run
    drop      true: without root's right to ignore permissions
    tmpfs     [directory, size]: a small file system of its own there, which ends with the child
"""

from __future__ import annotations

import ctypes
import dataclasses
import json
import os
import pathlib
import resource
import signal
import subprocess
import sys
import tempfile
import time

from markupsafe import Markup

from coalmine._random import stream
from coalmine.conformance import guesses
from coalmine.report import page
from coalmine.training import federation, work


@dataclasses.dataclass(frozen=True, eq=False)
class Deadly(work.Work):
    """Whoever is the first to train a group of round 2 is killed in the middle of it."""

    grave: str = dataclasses.field(default_factory=lambda: os.environ["SURVIVAL_GRAVE"])

    def fold(self, total, task):
        done = super().fold(total, task)
        if task.public.round == 2:
            try:
                os.close(os.open(self.grave, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                return done
            os.kill(os.getpid(), signal.SIGKILL)
        return done


@dataclasses.dataclass(frozen=True, eq=False)
class Restless(work.Work):
    """Groups take odd times, so that they are done in another order than they were given out."""

    def fold(self, total, task):
        done = super().fold(total, task)
        time.sleep(float(stream(7, "delay", *task.users[:1]).uniform(0, 0.03)))
        return done


JOBS = {"deadly": Deadly, "restless": Restless}


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Counter:
    """Counts calls of functions, and where files were renamed among them."""

    def __init__(self, number: int):
        self.number, self.count, self.marks = number, 0, {}
        rename = os.replace

        def replace(source, target):
            self.marks[str(target)] = self.count
            rename(source, target)

        os.replace = replace
        sys.setprofile(self)

    def __call__(self, frame, event, argument):
        self.count += 1
        if self.count == self.number:
            die()


class Fault:
    """Strikes the n-th time that a file is written or renamed."""

    def __init__(self, at: str, file: str, do: str | int, nth: int = 1):
        self.file, self.do, self.left = file, do, nth
        if at == "rename":
            rename = os.replace
            os.replace = lambda source, target: self.around(target, lambda: rename(source, target))
        else:
            opened = pathlib.Path.open
            fault = self

            def opening(path, mode="r", *arguments, **named):
                file = opened(path, mode, *arguments, **named)
                return Faulty(file, fault) if mode in ("wb", "ab") and fault.struck(path) else file

            pathlib.Path.open = opening

    def struck(self, path) -> bool:
        self.left -= str(path).endswith(self.file)
        return self.left == 0 and str(path).endswith(self.file)

    def around(self, path, act) -> None:
        if not self.struck(path):
            act()
        elif isinstance(self.do, int):
            raise OSError(self.do, os.strerror(self.do))
        else:
            if self.do == "after":
                act()
            die()


class Faulty:
    """A file whose next write is its last."""

    def __init__(self, file, fault: Fault):
        self.file, self.fault = file, fault

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.file.close()

    def write(self, data):
        if self.fault.do != "before":
            self.file.write(data if self.fault.do == "after" else data[: len(data) // 2])
            self.file.flush()
        if isinstance(self.fault.do, int):
            raise OSError(self.fault.do, os.strerror(self.fault.do))
        die()


def turn_nan(number: int) -> None:
    """From here on an update of round `number` has a NaN in it."""
    import numpy as np

    train = work.Work.fold

    def poisoned(work, total, task):
        updates = work.trainer.updates

        def changed(*arguments):
            for place, update in enumerate(updates(*arguments)):
                if task.public.round == number and place == 0:
                    update = dataclasses.replace(
                        update, vector=np.where(np.arange(update.vector.size) == 5, np.nan, update.vector)
                    )
                yield update

        object.__setattr__(work.trainer, "updates", changed)
        try:
            return train(work, total, task)
        finally:
            object.__delattr__(work.trainer, "updates")

    work.Work.fold = poisoned


def drop_rights() -> None:
    """Root may write everywhere by two capabilities; without them permissions hold for it as for everybody."""
    libc = ctypes.CDLL(None, use_errno=True)
    header, data = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    if libc.capget(header, data):
        raise OSError(ctypes.get_errno(), "capget")
    data[0] &= ~0b110
    if libc.capset(header, data):
        raise OSError(ctypes.get_errno(), "capset")


def small_disk(directory: str, size: str) -> None:
    """A file system of `size` at `directory`, seen by this process alone; exit code 77 where that is not allowed."""
    libc = ctypes.CDLL(None, use_errno=True)
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    if (
        libc.unshare(0x00020000)
        or subprocess.call(["mount", "--make-rprivate", "/"], **quiet)
        or subprocess.call(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", directory], **quiet)
    ):
        os._exit(77)


def child(request: dict, answer: str) -> None:
    """Run the command line as a process of its own would."""
    from coalmine import cli

    os.setsid()
    for number, name in enumerate(("/dev/null", f"{answer}.out", f"{answer}.err")):
        os.dup2(os.open(name, os.O_RDWR | os.O_CREAT | (os.O_TRUNC if number else 0)), number)
    os.environ.update(request.get("env", {}))
    os.environ.pop("COALMINE_TRACEBACK", None)
    counter = None
    if job := request.get("job"):
        make = federation.Federation.work

        def other(self):
            made = make(self)
            return JOBS[job](**{field.name: getattr(made, field.name) for field in dataclasses.fields(made)})

        federation.Federation.work = other
    for name, value in request.get("limits", {}).items():
        resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (value, value))
    if not request.get("drawn"):
        page.element = lambda figure, name, description: Markup("<p>{}: {}</p>").format(name, description)
    if request.get("drop"):
        drop_rights()
    if "tmpfs" in request:
        small_disk(*request["tmpfs"])
    if fault := request.get("fault"):
        if fault["at"] == "calls":
            counter = Counter(fault["number"])
        elif fault["at"] == "client":
            turn_nan(fault["round"])
        else:
            Fault(**fault)
    code = 0
    for argv in request["argvs"]:
        if argv[0] == "enlarge":  # the small disk of this process
            subprocess.check_call(["mount", "-o", f"remount,size={argv[1]}", request["tmpfs"][0]])
            continue
        if argv[0] == "copy":
            subprocess.check_call(["cp", "-r", *argv[1:]])
            continue
        sys.argv = ["coalmine", *argv]
        try:
            cli.main()
        except SystemExit as stopped:
            code = int(stopped.code or 0)
            print(f"exit {code}", file=sys.stderr)
    sys.setprofile(None)
    if counter is not None:
        pathlib.Path(f"{answer}.calls").write_text(json.dumps({"calls": counter.count, "marks": counter.marks}))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def serve(request: dict, answer: str) -> dict:
    """Fork a child for a request, wait for it, say how it ended."""
    began = time.monotonic()
    pid = os.fork()
    if pid == 0:
        try:
            child(request, answer)
        finally:
            import traceback

            traceback.print_exc()
            os._exit(99)
    ended, status = 0, 0
    if kill := request.get("kill"):
        while not pathlib.Path(kill["once"]).exists() and not ended:
            time.sleep(0.002)
            ended, status = os.waitpid(pid, os.WNOHANG)
        if not ended:
            time.sleep(kill["after"])
            send = os.killpg if "signal" in kill else os.kill
            send(pid, kill.get("signal", signal.SIGKILL))
    if not ended:
        _, status = os.waitpid(pid, 0)
    found = {"code": os.waitstatus_to_exitcode(status), "pid": pid, "seconds": time.monotonic() - began}
    for name in ("out", "err", "calls"):
        path = pathlib.Path(f"{answer}.{name}")
        found[name] = path.read_text() if path.exists() else ""
        path.unlink(missing_ok=True)
    return found


def main() -> None:
    import torch

    from coalmine import cli, training  # noqa: F401 - what children need, so that they need not read it
    from coalmine.training import assembly
    from coalmine.training.config import read_config

    torch.set_num_threads(1)
    config = read_config("tiny")
    assembly.federation(config, assembly.load_task(config), 0)
    guesses._table(True)  # a second of work, the same in every process
    with tempfile.TemporaryDirectory() as folder:
        for line in sys.stdin:
            print(json.dumps(serve(json.loads(line), f"{folder}/answer")), flush=True)


if __name__ == "__main__":
    main()
