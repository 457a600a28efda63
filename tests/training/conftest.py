"""Real runs of the trainer in memory: the same rounds and projections as `coalmine.training.run`, without files and reports."""

from dataclasses import dataclass, replace
from functools import cache, cached_property

import numpy as np
import pytest
import torch

from coalmine.audit.observe import MemoryRecord, Recorder
from coalmine.clients import quiet_threads
from coalmine.contracts import Claim
from coalmine.estimators.band import bound_band
from coalmine.training.assembly import federation, load_task
from coalmine.training.config import read_config
from coalmine.training.federation import Federation, RoundResult
from coalmine.workers import Workers

SMALL = ("run.workers=1", "run.evaluate_every=0", "data.held_out=0", "mechanism.clip_norm=0.1")  # 0.1: about half are cut


class Done:
    """A round with all that was observed of it within reach."""

    def __init__(self, finished: RoundResult):
        self._finished = finished

    def __getattr__(self, name):
        owner = self._finished if hasattr(self._finished, name) else self._finished.observed
        return getattr(owner, name)


@dataclass(frozen=True, eq=False)
class Trained:
    """A finished run: all rounds, what the canaries saw of them, and what the views make of that."""

    job: Federation
    recorder: Recorder
    done: list[Done]
    record: MemoryRecord
    delta: float

    @property
    def seen(self):
        """The rows of every round."""
        return self.record.seen

    def rows(self, name):
        """All rows of a log."""
        return self.record.rows(name)

    def column(self, name):
        """What was recorded of every round."""
        return np.array([each.observed.record[name] for each in self.done])

    @cached_property
    def schedule(self):
        return self.job.canary_setup.schedule

    @cached_property
    def by_key(self):
        return {view.key: view for view in self.recorder.views}

    def scores(self, key, null="theory", layer=None):
        view = self.by_key[key]
        if view.needs in ("total_change", "model"):
            start = self.job.model.initial(self.job.seed) if view.needs == "total_change" else np.float32(0)
            final = self.done[-1].state["parameters"] - start
            projections = self.recorder.final(view.needs, final, self.job.rounds, layer)
        else:
            projections = self.recorder.projections(self.record, view.needs, layer)
        return view.scores(projections, self.schedule, self.recorder.canaries, null=null)

    def claim(self, key) -> Claim:
        return self.by_key[key].claim(self.schedule, self.job.mechanism.describe(), delta=self.delta)

    def bound(self, key, confidence=0.95, null="theory"):
        return bound_band(self.scores(key, null), delta=self.delta, confidence=confidence).epsilon

    def violated(self, key, null="theory"):
        return self.bound(key, null=null) > self.claim(key).epsilon


@cache
def _load_task(data, model, seed):
    return load_task(read_config("tiny", [*SMALL, *data, *model, f"run.seed={seed}"]))


def _train(*changes, secret_seed=1, mechanism=None, canary_setup=None):
    config = read_config("tiny", [*SMALL, *changes])
    chosen = [tuple(each for each in changes if each.startswith(name)) for name in ("data.", "model.")]
    job = federation(config, _load_task(*chosen, config.run.seed), secret_seed)
    if mechanism is not None:
        job = replace(job, mechanism=mechanism)
    if canary_setup is not None:
        job = replace(job, canary_setup=replace(job.canary_setup, **canary_setup))
    recorder = Recorder.of(config.spec, job.canary_setup, job.model.groups, secret_seed)
    done, record = [], MemoryRecord()
    with Workers(1, job.work()) as workers:
        for finished in job.rounds_from(0, job.start(), workers):
            done.append(Done(finished))
            record.save(finished.number + 1, {}, recorder.rows(finished.observed), finished.observed.record)
    return Trained(job, recorder, done, record, config.privacy.delta)


@pytest.fixture(scope="session")
def train():
    """`train("mechanism.noise_multiplier=1", secret_seed=2)`: the preset `tiny` with changes, cut to be quick."""
    before = torch.get_num_threads()
    quiet_threads()
    yield _train
    torch.set_num_threads(before)


@pytest.fixture
def nobody(tmp_path):
    """A trace file of rounds that no client takes part in."""

    def write(rounds):
        path = tmp_path / f"nobody-{rounds}.json"
        path.write_text("{" + ", ".join(f'"{number}": []' for number in range(rounds)) + "}")
        return ["participation.pattern=trace", f"participation.trace={str(path)!r}"]

    return write
