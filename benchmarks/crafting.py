"""What the design of crafted canaries costs and gives beside the paper's recipe; calibration, power, intervals; running rounds.

    python benchmarks/crafting.py [PART ...]     # writes benchmarks/results/crafting.json; all parts: about twenty minutes

    design       time and overlap of the default design and of the recipe, in one run, on Fashion-MNIST at a trained model
    efficiency   of the presets, at the models that they measure, and of texts at an earlier one
    sizes        time of a step of the design by the size of the model: dense networks, and convolutional ones
    unroll       clients of several local steps: designs by their first gradient, and by all steps
    statements   bundled digits: null rate, half the noise
    intervals    the same digits: intervals of known others
    null         scores that are wider than the measured noise, or not normal: how often nothing passes for something
    null_rounds  the same of several measured rounds in one table, all alike or one of them wider
    running      what measured rounds cost in a training, MNIST by writer
    running_large  the same with a convolutional network
    zoo          momentum that is kept between clients, and correct code: 20 audits each

All but `statements`, `intervals`, `null`, `null_rounds` and `zoo` need the data files (COALMINE_DATA).
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
from coalmine.clients import Trainer, quiet_threads
from coalmine.data.dataset import Examples
from coalmine.mechanisms import Gaussian
from coalmine.nulls import GaussianNull
from coalmine.scores import Scores
from coalmine.training.assembly import federation, load_task
from coalmine.training.config import read_config
from coalmine.training.crafted_round import by_law_or_held_out
from coalmine.training.crafted_run import CraftedRun, pooled
from coalmine.training.crafting import design_for, how_of
from coalmine.training.frozen import Frozen
from coalmine.training.mock_clients import mock_clients
from coalmine.workers import Workers

AUDITS, DELTA = 100, 1e-5
RESULTS = Path(__file__).parent / "results" / "crafting.json"
SHARED = ("contributions", "own", "inverse", "clients", "members", "finding", "apart", "public")  # do not depend on the secret


FIRST_SEED = 100
WIDTHS = (1.1, 1.25, 1.5, 2, 4)
LAWS = {
    "normal": lambda rng, count: rng.standard_normal(count),
    **{
        f"normal, {width} times": lambda rng, count, w=width: w * rng.standard_normal(count) for width in (1.1, 1.25, 1.5, 2, 4)
    },
    "Student, 5 degrees": lambda rng, count: rng.standard_t(5, count),
    "Student, 3 degrees": lambda rng, count: rng.standard_t(3, count),
    "Laplace": lambda rng, count: rng.laplace(0, 1, count),
    "one in twenty 5 times": lambda rng, count: rng.standard_normal(count) * np.where(rng.random(count) < 0.05, 5, 1),
}


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
    for preset, rounds in (
        ("canife-fashion", 100),
        ("canife-writers", 20),
        ("canife-shakespeare", 4),
        ("canife-shakespeare", 10),
    ):
        config, job, state = trained(preset, rounds)
        how = how_of(config, job)
        crafted, seconds = timed(lambda j=job, s=state, h=how, r=rounds: design_for(j, s, r, h, mock_clients(j, h.pool)))
        row = {"seconds": seconds, "canaries": how.canaries, **medians(crafted), "largest_share": _largest_share(crafted)}
        if preset == "canife-shakespeare":
            row["cosine_of_random_texts"] = _cosine_of_random_texts(job, state)
        found[f"{preset}, round {rounds}"] = row
        print(preset, rounds, row, flush=True)
    return found


def _largest_share(crafted):
    """Of one layer, of the squared length of an update."""
    return float(max(crafted.summary()["shares"].values()))


def _cosine_of_random_texts(job, state, count=300):
    """The mean over pairs of texts that nobody designed: near 1 where a model answers nearly the same to all of them."""
    features = np.asarray(job.data.examples_of(job.data.users[0]).features)
    known = np.unique(np.concatenate([job.data.examples_of(user).features.ravel() for user in job.data.users[:20]]))
    rows = known[stream(0, "random texts").integers(known.size, size=(count, features.shape[1] + 1))]
    updates = Trainer(job.model, job.training).single_updates(state["parameters"], Examples(rows[:, :-1], rows[:, 1:]))
    unit = updates / np.linalg.norm(updates, axis=1, keepdims=True)
    return float((unit @ unit.T)[np.triu_indices(count, 1)].mean())


def sizes():
    """Processor time of one step of one canary: the difference of two designs, so that mock clients do not count."""
    found = {}
    dense = [("mlp", f"model.options={{hidden=[{width}]}}") for width in (32, 128, 512, 2048)]
    for name, *changes in (*dense, ("leaf-cnn", "model.options={classes=10}"), ("emnist-cnn", "model.options={classes=10}")):
        config = read_config("canife-fashion", ["run.workers=1", f"model.name={name}", *changes])
        job = federation(config, load_task(config), 1)
        state, mock = job.start(), mock_clients(job, 16)
        few, many = (2, 12) if name != "mlp" else (10, 60)
        for canaries in (1, 16):
            told = replace(how_of(config, job), canaries=canaries)

            def one(steps, told=told, job=job, state=state, mock=mock):
                options = coalmine.Crafting(iterations=steps, stop_overlap=0.0)
                return design_for(job, state, 0, replace(told, options=options), mock)

            one(2)  # torch warms up
            short, long = (timed(partial(one, steps))[1] for steps in (few, many))
            step = (long - short) / (many - few) / canaries
            row = {"parameters": job.model.dim, "canaries": canaries, "milliseconds_per_step_and_canary": 1e3 * step}
            found[f"{name}, {job.model.dim:,} parameters, {canaries} canaries"] = row
            print(row, flush=True)
    return found


def unroll():
    """MNIST by writer: 16 canaries for clients of several epochs, the momentum of which is 0 or 0.9."""
    found = {}
    for epochs, momentum in ((1, 0.0), (2, 0.0), (4, 0.0), (8, 0.0), (4, 0.9), (8, 0.9)):
        changes = [f"client.epochs={epochs}", f"client.momentum={momentum}", "crafting.canaries=16"]
        config, job, state = trained("canife-writers", 10, *changes)
        how, mock = how_of(config, job), mock_clients(job, 64)
        for name, options in (("first step", {"use_as_is": True}), ("all steps", {"unroll": True})):
            told = replace(how, options=coalmine.Crafting(stop_overlap=0.0, **options))
            crafted, seconds = timed(partial(design_for, job, state, 10, told, mock))
            row = {"seconds": seconds, **medians(crafted), "least_cosine": float(crafted.metrics["cosine"].min())}
            found[f"{epochs} steps, momentum {momentum}, {name}"] = row
            print(epochs, momentum, name, row, flush=True)
    return found


def _audits_of_digits():
    """A function that makes tables of scores of one round of the preset tiny, 128 canaries, each under another secret."""
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

    return audits


def statements():
    audits = _audits_of_digits()

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
    return found


def intervals():
    """Of known others, eight draws."""
    audits, found = _audits_of_digits(), {"audits": AUDITS, "canaries": 128, "draws": 8}
    for noise in (0.2, 0.5):
        true = float(coalmine.gaussian_epsilon(0, 1, 1 / noise, 1, DELTA))
        fits = [coalmine.estimate_gaussian(scores, delta=DELTA) for scores in audits(noise=noise, draws=8)]
        holds, width = ([fit.low <= true <= fit.high for fit in fits], [(fit.high - fit.low) / true for fit in fits])
        row = {"truth": true, "hold": float(np.mean(holds)), "width": float(np.mean(width))}
        found[f"noise {noise}"] = row
        print(noise, row, flush=True)
    return found


def null():
    """Canaries that nobody inserted, whose scores are wider than the measured noise, or not normal.

    `above zero` is the rate at which the bound is above 0, `above the claim` the rate of a canary that stands out by as much as
    the claim of noise multiplier 0.5 allows: a correct mechanism whose noise is larger where the canaries are. By
    held-out scores alone (V1) no law is needed.
    """
    claimed, found = float(coalmine.gaussian_epsilon(0, 1, 2, 1, DELTA)), {}
    for canaries, audits in ((16, 1000), (128, 1000), (1024, 200)):
        for law, draw in LAWS.items():
            above, violated, free, kinds = 0, 0, 0, dict.fromkeys(("law", "wider", "held-out"), 0)
            for seed in range(audits):
                rng = stream(seed, "wider scores", canaries, law)
                coins = np.arange(canaries) < canaries // 2
                silent = Scores(draw(rng, canaries), coins, assignment="coins", null=GaussianNull(1.0, directions=10**6))
                used = by_law_or_held_out(silent)
                kinds["law" if used.null is silent.null else "wider" if used.null is not None else "held-out"] += 1
                above += coalmine.bound_band(used, delta=DELTA).epsilon > 0
                free += coalmine.bound_band(replace(silent, null=None), delta=DELTA).epsilon > 0
                told = replace(used, value=used.value + 2 * coins)
                violated += coalmine.bound_band(told, delta=DELTA).epsilon > claimed
            rates = {
                "above zero": above / audits,
                "above the claim": violated / audits,
                "above zero by held-out scores alone": free / audits,
            }
            found[f"{canaries} scores, {law}"] = {"audits": audits, **rates, "null": kinds}
            print(canaries, law, rates, kinds, flush=True)
    return found


def null_rounds():
    """Measured rounds of canaries that nobody inserted, in one table; in the last rows one of the rounds is wider."""
    claimed, found, audits = float(coalmine.gaussian_epsilon(0, 1, 2, 1, DELTA)), {}, 1000
    alike = [(canaries, rounds, 1.0) for canaries, rounds in ((16, 1), (16, 6), (128, 1), (128, 3))]
    for canaries, rounds, wide in (*alike, *((128, 3, each) for each in (1.25, 1.5, 2.0, 3.0, 5.0))):
        above, violated = 0, 0
        for seed in range(audits):
            for shift in (0.0, 2.0):
                tables = [_silent(seed, each, canaries, shift, wide if each == 1 else 1.0) for each in range(rounds)]
                shown = coalmine.bound_band(pooled(tables), delta=DELTA).epsilon
                above += shift == 0 and shown > 0
                violated += shift > 0 and shown > claimed
        name = f"{rounds} rounds of {canaries} scores" + (f", one {wide:g} times as wide" if wide != 1 else "")
        found[name] = {"audits": audits, "above zero": above / audits, "above the claim": violated / audits}
        print(name, found[name], flush=True)
    return found


def _silent(seed, number, canaries, shift, wide):
    rng = stream(seed, "null of rounds", number, canaries)
    coins = rng.random(canaries) < 0.5
    labels = {"canary": np.arange(canaries), "round": np.full(canaries, number), "replicate": np.zeros(canaries, np.int64)}
    values, law = wide * rng.standard_normal(canaries) + shift * coins, GaussianNull(1.0, directions=20_000)
    return by_law_or_held_out(Scores(values, coins, labels=labels, assignment="coins", null=law))


def running():
    """Processor time of ten rounds with one measured and of ten without, after one round to warm up.

    By canaries, mock clients and steps of the design: canife-writers with its dense network, whose rounds are short. Short
    designs are the median of three times.
    """
    cases, found = [(16, 16, 10), (16, 16, 20), (16, 64, 50), (32, 64, 250), (128, 64, 250)], {}
    _ten_rounds(*cases[0], ())  # torch warms up
    for each in cases:
        times = sorted((_ten_rounds(*each, ()) for _ in range(3 if each[2] < 250 else 1)), key=lambda row: row["more"])
        found[f"{each[0]} canaries, {each[1]} mock clients, {each[2]} steps"] = times[len(times) // 2]
    return found


def running_large():
    """The same with the convolutional network of 1.2 million parameters, whose rounds are long."""
    cnn = ("model.name=emnist-cnn", "model.options={classes=10}")
    return {"16 canaries, 16 mock clients, 20 steps": _ten_rounds(16, 16, 20, cnn)}


def _ten_rounds(canaries, pool, iterations, changes):
    about = [f"canaries={canaries}", f"pool={pool}", f"options={{iterations={iterations}}}", "mode=running", "every=10"]
    config = read_config("canife-writers", ["run.workers=1", *(f"crafting.{each}" for each in about), *changes])
    job = federation(config, load_task(config), 1)
    run, seconds, worth = CraftedRun(config, job, None), {}, 0.0
    for name, trainer in (("plain", job), ("measured", run.federation)):
        with Workers(1, job.work()) as workers:
            for finished in trainer.rounds_from(0, job.start(), workers):
                if finished.number == 0:
                    began = time.process_time()
                if finished.number == 9 and name == "measured":
                    worth = run._of_the_round(*run._now, finished, 1).statements()["design"]["efficiency"]
                if finished.number == 10:
                    break
            seconds[name] = time.process_time() - began
    row = {**seconds, "more": seconds["measured"] / seconds["plain"] - 1, "efficiency": worth}
    print(canaries, pool, iterations, row, flush=True)
    return row


def zoo():
    """Seeds from 100 on: the setting was chosen on the first ones."""
    from coalmine.zoo import BUGS, SETTINGS
    from coalmine.zoo.study import row_of, run_all, seed_verdict

    bug = BUGS["momentum-kept"]
    tasks = [(SETTINGS[bug.setting], each, FIRST_SEED + seed) for each in (bug, None) for seed in range(20)]
    papers = {}
    for (setting, each, seed), result in run_all(tasks, workers=1):
        papers.setdefault((setting, each), []).append(seed_verdict(seed, result))
        print(seed, each and each.name, result.verdict, flush=True)
    rows = [row_of(*key, verdicts) for key, verdicts in papers.items()]
    return {
        row.name: {"runs": len(row.papers), "violated": row.violated, "caught": row.caught, "median bound": row.bound}
        for row in rows
    }


ALL = (design, efficiency, sizes, unroll, statements, intervals, null, null_rounds, running, running_large, zoo)
PARTS = {each.__name__: each for each in ALL}


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
