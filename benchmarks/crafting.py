"""What the design of crafted canaries costs and gives beside the paper's recipe; calibration, power, intervals; running rounds.

    python benchmarks/crafting.py [PART ...]     # writes benchmarks/results/crafting.json; all parts: about ten minutes

    design       time and overlap of the default design and of the recipe, in one run, on Fashion-MNIST at a trained model
    efficiency   of the presets canife-writers and canife-shakespeare, at a trained model
    statements   bundled digits: null rate, half the noise, intervals of known others
    running      what measured rounds cost in a training, MNIST by writer
    zoo          momentum that is kept between clients, and correct code: 20 audits each

Parts `design`, `efficiency` and `running` need the data files (COALMINE_DATA).
"""

import json
import sys
import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

import coalmine
from coalmine._random import stream
from coalmine.clients import quiet_threads
from coalmine.mechanisms import Gaussian
from coalmine.training.assembly import federation, load_task
from coalmine.training.config import read_config
from coalmine.training.crafted_run import CraftedRun
from coalmine.training.crafting import design_for, how_of
from coalmine.training.frozen import Frozen
from coalmine.training.mock_clients import mock_clients
from coalmine.workers import Workers

AUDITS, DELTA = 100, 1e-5
RESULTS = Path(__file__).parent / "results" / "crafting.json"
SHARED = ("contributions", "own", "inverse", "clients", "members", "finding", "apart", "public")  # do not depend on the secret


@dataclass(frozen=True)
class HalfNoise(Gaussian):
    """Half of the noise that it describes."""

    @property
    def update_noise_multiplier(self) -> float:
        return self.noise_multiplier / 2


def trained(preset, rounds, *changes):
    """(configuration, federation, state after so many rounds)."""
    config = read_config(preset, ["run.workers=1", *changes])
    job = federation(config, load_task(config), 1)
    state = job.start()
    with Workers(1, job.work()) as workers:
        for _, finished in zip(range(rounds), job.rounds_from(0, state, workers), strict=False):
            state = finished.state
    return config, job, state


def timed(make):
    began = time.process_time()
    found = make()
    return found, time.process_time() - began


def medians(crafted):
    return {name: float(np.median(values)) for name, values in crafted.metrics.items()}


def design():
    config, job, state = trained("canife-fashion", 40)
    how, number = how_of(config, job), 40
    mock, rows = mock_clients(job, 512), {}

    def one(count, **options):
        told = replace(how, canaries=count, options=coalmine.Crafting(**options))
        return design_for(job, state, number, told, mock)

    one(1, iterations=2)  # torch warms up
    for name, count, options in (
        ("default", 1, {}),
        ("default, never stopping early", 1, {"stop_overlap": 0.0}),
        ("published", 1, {"as_published": True}),
        ("default, 128 at once", 128, {}),
    ):
        crafted, seconds = timed(partial(one, count, **options))
        rows[name] = {"seconds": seconds, "canaries": count, **medians(crafted)}
        print(name, rows[name], flush=True)
    ratio = rows["default"]["seconds"] / rows["published"]["seconds"]
    return {"model": job.model.name, "parameters": job.model.dim, "rows": rows, "time_ratio": ratio}


def efficiency():
    found = {}
    for preset, rounds, changes in (
        ("canife-fashion", 40, ()),
        ("canife-writers", 20, ()),
        ("canife-shakespeare", 4, ("crafting.canaries=4",)),
    ):
        config, job, state = trained(preset, rounds, *changes)
        how = how_of(config, job)
        crafted, seconds = timed(lambda j=job, s=state, h=how, r=rounds: design_for(j, s, r, h, mock_clients(j, h.pool)))
        found[preset] = {"seconds": seconds, "canaries": how.canaries, "round": rounds, **medians(crafted)}
        print(preset, found[preset], flush=True)
    return found


def statements():
    config = read_config("tiny", ["run.workers=1"])
    job = federation(config, load_task(config), 1)
    state, mock = job.start(), mock_clients(job, 40)
    how = replace(how_of(config, job), canaries=128, pool=40)
    crafted = design_for(job, state, 0, how, mock)
    base = Frozen(job, state, crafted, 0, mock.users)
    _ = base.own, base.inverse, base.finding  # once for all audits

    def audits(noise, *, half=False, draws=1, insert=True):
        mechanism = (HalfNoise if half else Gaussian)(1.0, noise)
        for seed in range(AUDITS):
            again = replace(base, federation=replace(job, mechanism=mechanism, secret=partial(stream, seed)))
            again.__dict__.update({name: base.__dict__[name] for name in SHARED})
            yield again.scores(draws, insert=insert)

    def bounds(**about):
        return np.array([coalmine.bound_band(scores, delta=DELTA).epsilon for scores in audits(**about)])

    found = {"audits": AUDITS, "canaries": 128, "null_above_zero": float((bounds(noise=0.5, insert=False) > 0).mean())}
    found["violated"] = {}
    for noise, draws in ((0.2, 1), (0.5, 1), (1.0, 1), (1.0, 8)):
        claimed = float(coalmine.gaussian_epsilon(0, 1, 1 / noise, 1, DELTA))
        rates = {
            name: float((bounds(noise=noise, half=half, draws=draws) > claimed).mean())
            for name, half in (("correct noise", False), ("half the noise", True))
        }
        found["violated"][f"noise {noise}, {draws} draws"] = {"claim": claimed, **rates}
        print(noise, draws, rates, flush=True)
    true = float(coalmine.gaussian_epsilon(0, 1, 2, 1, DELTA))
    fits = [coalmine.estimate_gaussian(scores, delta=DELTA) for scores in audits(noise=0.5, draws=8)]
    found["interval_holds_truth"] = float(np.mean([fit.low <= true <= fit.high for fit in fits]))
    found["interval_width"] = float(np.mean([(fit.high - fit.low) / true for fit in fits]))
    return found


def running():
    """Processor time of ten rounds with one measured and of ten without, after one round to warm up."""
    found = {}
    for canaries in (32, 128):
        changes = ["crafting.mode=running", "crafting.every=10", f"crafting.canaries={canaries}", "run.workers=1"]
        config = read_config("canife-writers", changes)
        job = federation(config, load_task(config), 1)
        run = CraftedRun(config, job, None)
        seconds = {}
        for name, trainer in (("plain", job), ("measured", run.federation)):
            with Workers(1, job.work()) as workers:
                rounds = trainer.rounds_from(0, job.start(), workers)
                began, measuring = None, 0.0
                for finished in rounds:
                    if finished.number == 0:
                        began = time.process_time()
                    if finished.number == 9 and name == "measured":
                        run._of_the_round(*run._now, finished, 1).statements()
                    if finished.number == 10:
                        break
                seconds[name] = time.process_time() - began + measuring
        found[f"{canaries} canaries"] = {**seconds, "more": seconds["measured"] / seconds["plain"] - 1}
        print(canaries, found[f"{canaries} canaries"], flush=True)
    return found


def zoo():
    from coalmine.zoo import audit_all

    study = audit_all(["momentum-kept"], seeds=20, correct=20, workers=1)
    return {
        row.name: {"runs": len(row.papers), "violated": row.violated, "caught": row.caught, "median bound": row.bound}
        for row in study.rows
    }


PARTS = {"design": design, "efficiency": efficiency, "statements": statements, "running": running, "zoo": zoo}


def main() -> None:
    quiet_threads()
    for name in sys.argv[1:] or PARTS:
        part, seconds = timed(PARTS[name])
        found = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.is_file() else {}
        found[name] = {"processor_seconds": round(seconds, 1), **part}
        RESULTS.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
        print(json.dumps(found[name], indent=2))


if __name__ == "__main__":
    main()
