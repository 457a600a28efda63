"""Processes that share work: order, errors, deaths and interruptions."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from coalmine.errors import CoalmineError, NonFiniteError
from coalmine.pace import LONG_FIRST, PART, SAMPLES, SHARED_FIRST, SHORT, SURE, TRIED, Pace
from coalmine.workers import Workers

JOBS = """
    import os, signal, time
    import numpy as np
    from dataclasses import dataclass
    from coalmine.errors import NonFiniteError

    @dataclass
    class Job:
        folder: str = ""
        prepared: bool = False

        def prepare(self):
            self.prepared = True

        def __call__(self, task):
            assert self.prepared
            return getattr(self, task[0])(*task[1:])

        def double(self, number, delay=0.0):
            time.sleep(delay)
            return 2 * number

        def fail(self, number, delay=0.0):
            time.sleep(delay)
            raise NonFiniteError(f"task {number}")

        def stumble(self):
            return None.shape

        def die(self, number, times):
            for place in range(times):
                try:
                    os.close(os.open(f"{self.folder}/grave-{number}-{place}", os.O_CREAT | os.O_EXCL))
                except FileExistsError:
                    continue
                os.kill(os.getpid(), signal.SIGKILL)
            return 2 * number

        def die_in_the_middle_of_the_answer(self, number):
            try:
                os.close(os.open(f"{self.folder}/grave-{number}", os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                return 2 * number
            from multiprocessing.connection import Connection

            def write_half(connection, data):
                os.write(connection.fileno(), bytes(data[: max(1, len(data) // 2)]))
                os.kill(os.getpid(), signal.SIGKILL)

            Connection._send = write_half
            return 2 * number

        def deaf(self):
            return signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, [])

        def sleep(self):
            open(f"{self.folder}/asleep-{os.getpid()}", "w").close()
            time.sleep(600)

    class Total:
        def __init__(self):
            self.value = np.zeros(20_000)

        def merge(self, other):
            self.value += other.value

        def __reduce__(self):
            if getattr(self, "folder", None):
                Job.die(self, 0, 1)
            return restored, (self.value,)

    def restored(value):
        made = Total()
        made.value = value
        return made

    @dataclass
    class Sums(Job):
        factor: int = 1

        def nothing(self, task):
            return Total()

        def fold(self, total, task):
            self.total = total
            return self(task)

        def add(self, number, array):
            array += number
            self.total.value += array
            array -= number
            return 2 * number * self.factor

        def add_and_die(self, number, array):
            found = self.add(number, array)
            self.die(number, 1)
            return found

        def die_when_asked(self, number, array):
            self.total.folder = self.folder
            return self.add(number, array)

    class Unprepared(Job):
        def prepare(self):
            os._exit(3)
"""


@pytest.fixture
def jobs(tmp_path, monkeypatch):
    """A module that workers can import."""
    name = f"jobs_of_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(textwrap.dedent(JOBS))
    monkeypatch.syspath_prepend(tmp_path)
    yield __import__(name)
    sys.modules.pop(name)


def work(count, job, tasks):
    with Workers(count, job) as workers:
        return workers.map(tasks)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_results_come_in_the_order_of_the_tasks(jobs, count):
    """Whichever is done first: early tasks take longest."""
    tasks = [("double", number, 0.02 * (6 - number)) for number in range(7)]
    with Workers(count, jobs.Job()) as workers:
        assert workers.map(tasks) == [0, 2, 4, 6, 8, 10, 12]
        assert workers.map(tasks[:1]) == [0]  # the same processes go on
        assert workers.map([]) == []


def test_one_worker_is_this_process(jobs):
    job = jobs.Job()
    assert work(1, job, [("double", 4)]) == [8]
    assert job.prepared


@pytest.mark.parametrize("count", [0, -1, 1.5])
def test_how_many(jobs, count):
    with pytest.raises(ValueError, match="workers="):
        Workers(count, jobs.Job())


@pytest.mark.parametrize("count", [1, 2])
def test_errors_travel_and_the_first_in_order_is_told(jobs, count):
    tasks = [("double", 0), ("fail", 1, 0.2), ("fail", 2), ("double", 3)]
    with pytest.raises(NonFiniteError, match="task 1"):
        work(count, jobs.Job(), tasks)


def test_a_fault_of_the_job_is_told_as_it_is(jobs):
    """An AttributeError of a model is not a matter of travelling."""
    with pytest.raises(AttributeError, match="shape"):
        work(2, jobs.Job(), [("stumble",)])


def test_work_goes_on_after_an_error(jobs):
    with Workers(2, jobs.Job()) as workers:
        with pytest.raises(NonFiniteError):
            workers.map([("fail", 1), *[("double", number) for number in range(20)]])
        assert workers.map([("double", 5)]) == [10]


def test_the_tasks_of_a_dead_worker_are_done_again(jobs, tmp_path):
    tasks = [("double", 0), ("die", 1, 1), ("double", 2, 0.1), ("die", 3, 1), ("double", 4)]
    assert work(2, jobs.Job(str(tmp_path)), tasks) == [0, 2, 4, 6, 8]
    assert len(list(tmp_path.glob("grave-*"))) == 2


@pytest.mark.parametrize("count", [1, 2, 3])
def test_sums_are_added_up_by_the_workers(jobs, count):
    """One array for all tasks, large enough for shared memory; and again, with another job for the same processes."""
    tasks = [("add", number, np.arange(20_000.0)) for number in range(7)]
    shared = [("add", number, tasks[0][2]) for number in range(7)]
    with Workers(count, jobs.Sums()) as workers:
        for given in (tasks, shared, tasks[:1], []):
            total = jobs.Total()
            assert workers.fold(given, total) == [2 * task[1] for task in given]
            assert total.value.tolist() == (sum(task[1] for task in given) + len(given) * np.arange(20_000.0)).tolist()
        workers.give(jobs.Sums(factor=10))
        total = jobs.Total()
        assert workers.fold(shared[:2], total) == [0, 20]
        assert (tasks[0][2] == np.arange(20_000.0)).all()  # a job that writes into its task writes into a copy


def test_the_sum_of_a_dead_worker_is_made_again(jobs, tmp_path):
    """Its earlier tasks are lost with it, in the middle of its work and when it is asked for its sum."""
    for name, dies in (("in-a-task", ("add_and_die", 3)), ("when-asked", ("die_when_asked", 4))):
        folder = tmp_path / name
        folder.mkdir()
        tasks = [("add", number, np.ones(20_000)) for number in range(3)] + [
            (*dies, np.ones(20_000)),
            ("add", 5, np.ones(20_000)),
        ]
        total = jobs.Total()
        with Workers(2, jobs.Sums(str(folder))) as workers:
            assert workers.fold(tasks, total) == [2 * task[1] for task in tasks]
        assert total.value.tolist() == [sum(task[1] for task in tasks) + len(tasks)] * 20_000
        assert len(list(folder.glob("grave-*"))) == 1


@pytest.mark.parametrize(
    ("shared", "own", "here"),
    [(0.004, 0.003, True), (0.004, 0.005, False)],
    ids=["quicker here", "quicker shared"],
)
def test_short_sums_are_made_where_they_are_quicker(shared, own, here):
    pace, tried = Pace(), 0
    for number in range(SHARED_FIRST + 1 + TRIED + 20):
        tried += pace.here
        first = number == 0 or (pace.here and tried == 1)  # of either kind: it starts workers, or makes the job ready
        pace.took(0.4 if first else own if pace.here else shared)
    assert pace.here is here
    assert tried == (20 + 1 + TRIED if here else 1 + SURE)


def test_one_call_that_other_work_was_in_the_way_of_decides_nothing():
    pace, own = Pace(), iter([0.4, 0.1, 0.003, 0.003, 0.003])
    for _ in range(SHARED_FIRST + 1 + TRIED):
        pace.took(next(own) if pace.here else 0.004)
    assert pace.here
    pace, own = Pace(), iter([0.4, 0.003, 0.003, 0.003, 0.003])
    for number in range(SHARED_FIRST + 1 + TRIED):  # sharing was quickest once, long ago
        pace.took(next(own) if pace.here else 0.002 if number == 1 else 0.004)
    assert pace.here


@pytest.mark.parametrize(
    ("part", "whole", "here", "tried"),
    [(0.9, 0.9, True, 1 + 20), (1.1, 0.0, False, 0), (0.9, 1.1, False, 1)],
    ids=["quicker here", "a part was slower", "the whole was slower"],
)
def test_of_a_long_sum_a_part_is_tried_first(part, whole, here, tried):
    pace, shared, parts, wholes = Pace(), 2 * SHORT, 0, 0
    for _ in range(LONG_FIRST + SAMPLES + 21):
        count = pace.part(3 * PART)
        if count == 3:
            parts += 1
            pace.sampled(part * shared if parts == SAMPLES else 9 * shared)
        else:
            assert count == (3 * PART if pace.here else 0)
            wholes += pace.here
            pace.took(whole * shared if pace.here else shared)
    assert (pace.here, parts, wholes) == (here, SAMPLES, tried)


def test_a_sum_of_which_a_part_is_made_here_is_the_same(jobs, monkeypatch):
    tasks, job = [("add", number, np.ones(20_000)) for number in range(5)], jobs.Sums()
    monkeypatch.setattr(Pace, "sampled", lambda self, seconds: None)
    with Workers(2, job) as workers:
        for here in (0, 2):
            monkeypatch.setattr(Pace, "part", lambda self, tasks, here=here: here)
            total = jobs.Total()
            assert workers.fold(tasks, total) == [0, 2, 4, 6, 8]
            assert job.prepared is bool(here) and total.value.tolist() == [15.0] * 20_000


def test_a_sum_that_is_made_here_is_the_same(jobs, monkeypatch):
    monkeypatch.setattr(Pace, "took", lambda self, _: setattr(self, "here", self.here or bool(sums)))
    tasks = [("add", number, np.ones(20_000)) for number in range(5)]
    job, sums, here = jobs.Sums(), [], []
    with Workers(2, job) as workers:
        for _ in range(2 + TRIED):
            total = jobs.Total()
            here.append(job.prepared)
            assert workers.fold(tasks, total) == [0, 2, 4, 6, 8]
            sums.append(total.value.tolist())
    assert here == [False] * 3 + [True] * (TRIED - 1)  # a job is made ready in this process when it is first done here
    assert sums == [[15.0] * 20_000] * len(sums)


def test_an_error_in_a_sum_leaves_nothing_for_the_next(jobs):
    tasks = [("add", 1, np.ones(20_000)), ("fail", 2), ("add", 3, np.ones(20_000))]
    with Workers(2, jobs.Sums()) as workers:
        with pytest.raises(NonFiniteError, match="task 2"):
            workers.fold(tasks, jobs.Total())
        total = jobs.Total()
        workers.fold(tasks[:1], total)
        assert total.value[0] == 2


def test_a_worker_that_dies_in_the_middle_of_its_answer(jobs, tmp_path):
    """The pools of the standard library would wait for the other half for ever."""
    tasks = [("double", 0), ("die_in_the_middle_of_the_answer", 1), ("double", 2)]
    assert work(2, jobs.Job(str(tmp_path)), tasks) == [0, 2, 4]
    assert len(list(tmp_path.glob("grave-*"))) == 1


def test_workers_that_die_again_and_again(jobs, tmp_path):
    with Workers(2, jobs.Job(str(tmp_path))) as workers:
        workers.map([("double", 1)])
        with pytest.raises(CoalmineError, match=r"died 5 times .*--workers 1"):
            workers.map([("double", 0), ("die", 1, 99)])
    assert len(list(tmp_path.glob("grave-*"))) == 5


def test_workers_that_cannot_begin(jobs):
    with pytest.raises(CoalmineError, match="died before they did anything"):
        work(2, jobs.Unprepared(), [("double", 1)])


UNGUARDED = """
    import sys
    sys.path.insert(0, {folder!r})
    from {module} import Job
    from coalmine.workers import Workers

    if __name__ != "__main__":
        sys.exit("started again")  # what a script does in a worker, if its call stands under no guard
    with Workers(2, Job({cargo})) as workers:
        workers.map([("double", 1)])
"""


@pytest.mark.parametrize("cargo", ["'small'", "'x' * (1 << 22)"], ids=["small", "more than a pipe holds"])
def test_a_script_that_a_worker_cannot_import_ends_with_the_reason(jobs, tmp_path, cargo):
    """However large the job is: nobody waits for a process that died before it read all of it."""
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(UNGUARDED).format(folder=str(tmp_path), module=jobs.__name__, cargo=cargo))
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=300)  # only ends a test that hangs
    assert done.returncode == 1 and "died before they did anything" in done.stderr and "started again" in done.stderr


PLAIN = """
    import sys
    sys.path.insert(0, {folder!r})
    from {module} import Job
    from coalmine.workers import Workers

    print("begun")
    class Mine(Job):
        pass

    with Workers(2, Mine()) as workers:
        print(workers.count, workers.map([("double", 1), ("double", 2)]))
"""


def test_a_script_without_a_guard_does_its_work_itself(jobs, tmp_path):
    """Other processes would begin it anew, and never come to what it defines."""
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(PLAIN).format(folder=str(tmp_path), module=jobs.__name__))
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout, done.stderr) == (0, "begun\n1 [2, 4]\n", "")
    guarded = (
        script.read_text()
        .replace("with Workers", 'if __name__ == "__main__":\n  with Workers')
        .replace("    print(w", "      print(w")
    )
    script.write_text(guarded)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and "2 [2, 4]" in done.stdout, done.stderr
    assert 2 <= done.stdout.count("begun") <= 3  # in the first process, and in each that imports it


@pytest.mark.parametrize("cargo", [lambda: None, threading.Lock()], ids=["function", "lock"])
def test_what_cannot_travel(jobs, cargo):
    with pytest.raises(CoalmineError, match=r"cannot travel to other processes.*use one worker"):
        work(2, jobs.Job(cargo), [("double", 1)])
    assert work(1, jobs.Job(cargo), [("double", 1)]) == [2]


SCRIPT = """
    import signal
    import sys
    sys.path.insert(0, {folder!r})
    from {module} import Job
    from coalmine.workers import Workers

    if __name__ == "__main__":
        signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored, if the tests run in the background of a shell
        try:
            with Workers(2, Job({folder!r})) as workers:
                workers.map([("sleep",)] * 4)
        except KeyboardInterrupt:
            print("interrupted")
"""


@pytest.mark.parametrize("asleep", [True, False], ids=["at work", "while they begin"])
def test_an_interruption_ends_all_at_once(jobs, tmp_path, asleep):
    """Ctrl-C goes to the whole group: the parent alone answers, and nobody finishes ten minutes of work first."""
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(SCRIPT).format(folder=str(tmp_path), module=jobs.__name__))
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, script], start_new_session=True, **streams) as process:
        group = process.pid
        if asleep:
            wait_for(lambda: len(list(tmp_path.glob("asleep-*"))) == 2)
        else:
            wait_for(lambda: len(members(group)) >= 3)
        os.killpg(group, signal.SIGINT)
        out, err = process.communicate(timeout=300)
    assert (out, err, process.returncode) == ("interrupted\n", "", 0)
    wait_for(lambda: not members(group))


def test_no_worker_hears_an_interruption_from_its_first_moment_on(jobs, tmp_path):
    """In a fresh process, where the first worker starts the helper of `multiprocessing` as well."""
    script = tmp_path / "script.py"
    text = textwrap.dedent(SCRIPT).replace('workers.map([("sleep",)] * 4)', 'print(workers.map([("deaf",)] * 2))')
    script.write_text(text.format(folder=str(tmp_path), module=jobs.__name__))
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=300)
    assert (done.stdout, done.stderr) == ("[True, True]\n", "")


def test_nobody_outlives_a_parent_that_is_killed(jobs, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(SCRIPT).format(folder=str(tmp_path), module=jobs.__name__))
    with subprocess.Popen([sys.executable, script], start_new_session=True) as process:
        wait_for(lambda: len(list(tmp_path.glob("asleep-*"))) == 2)
        process.kill()
    wait_for(lambda: not members(process.pid))


def wait_for(condition, patience=300.0):
    until = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.01)


def members(group):
    """Living processes of a group, from Linux's list."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, number = path.read_text().rpartition(")")[2].split()[:3]
        except OSError:
            continue
        if int(number) == group and state != "Z":
            found.append(path.parent.name)
    return found
