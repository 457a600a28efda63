"""Real runs of the trainer in memory: the same rounds and sightings as `coalmine.training.run`, without files and reports."""

from dataclasses import dataclass, replace
from functools import cache, cached_property

import numpy as np
import pytest
import torch

from coalmine.assembly import federation, material
from coalmine.clients import quiet_threads
from coalmine.config import read_config
from coalmine.contracts import Claim
from coalmine.estimators.band import bound_band
from coalmine.federation import Federation, Round
from coalmine.watch import Watch
from coalmine.workers import Workers

SMALL = ("run.workers=1", "run.evaluate_every=0", "data.held_out=0", "privacy.clip_norm=0.1")  # 0.1: about half are cut


@dataclass(frozen=True, eq=False)
class Trained:
    """A finished run: all rounds, what the canaries saw of them, and what the views make of that."""

    job: Federation
    watch: Watch
    done: list[Round]
    seen: list[dict]
    delta: float

    def rows(self, name):
        """What `Watch` asks a run directory for."""
        return np.stack([row[name] for row in self.seen])

    def column(self, name):
        """What was recorded of every round."""
        return np.array([each.record[name] for each in self.done])

    @cached_property
    def planting(self):
        return self.job.plants.planting

    @cached_property
    def by_name(self):
        return {view.name: view for view in self.watch.views}

    def scores(self, name, null="law", layer=None):
        view = self.by_name[name]
        if view.sees in ("drift", "model"):
            start = self.job.model.initial(self.job.seed) if view.sees == "drift" else np.float32(0)
            final = self.done[-1].state["parameters"] - start
            sightings = self.watch.final(view.sees, final, self.job.rounds, layer)
        else:
            sightings = self.watch.sightings(self, view.sees, layer)
        return view.scores(sightings, self.planting, self.watch.canaries, null=null)

    def claim(self, name) -> Claim:
        noise = self.job.mechanism.noise_multiplier
        return self.by_name[name].claim(self.planting, noise_multiplier=noise, delta=self.delta)

    def bound(self, name, confidence=0.95, null="law"):
        return bound_band(self.scores(name, null), delta=self.delta, confidence=confidence).epsilon

    def violated(self, name, null="law"):
        return self.bound(name, null=null) > self.claim(name).epsilon


@cache
def _material(data, model, seed):
    return material(read_config("tiny", [*SMALL, *data, *model, f"run.seed={seed}"]))


def _train(*changes, secret_seed=1, mechanism=None, plants=None):
    told = read_config("tiny", [*SMALL, *changes])
    chosen = [tuple(each for each in changes if each.startswith(name)) for name in ("data.", "model.")]
    job = federation(told, _material(*chosen, told.run.seed), secret_seed)
    if mechanism is not None:
        job = replace(job, mechanism=mechanism)
    if plants is not None:
        job = replace(job, plants=replace(job.plants, **plants))
    watch = Watch.of(told, job, secret_seed)
    done, seen = [], []
    with Workers(1, job.work()) as workers:
        for finished in job.rounds_from(0, job.start(), workers):
            done.append(finished)
            seen.append(watch.rows(finished))
    return Trained(job, watch, done, seen, told.privacy.delta)


@pytest.fixture(scope="session")
def train():
    """`train("privacy.noise_multiplier=1", secret_seed=2)`: the preset `tiny` with changes, cut to be quick."""
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
