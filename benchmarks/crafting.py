"""What the design of crafted canaries costs and gives, beside the paper's recipe in the same run; power and calibration.

    python benchmarks/crafting.py            # writes benchmarks/results/crafting.json

Bundled digits, the network of the preset `tiny` at its first model; nothing here needs files.
"""

import json
import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

import coalmine
from coalmine._random import stream
from coalmine.mechanisms import Gaussian
from coalmine.training.assembly import federation, load_task
from coalmine.training.config import read_config
from coalmine.training.frozen import Frozen

AUDITS, DELTA, POOL = 30, 1e-5, 40


@dataclass(frozen=True)
class HalfNoise(Gaussian):
    """Half of the noise that it describes."""

    @property
    def update_noise_multiplier(self) -> float:
        return self.noise_multiplier / 2


def main() -> None:
    config = read_config("tiny")
    job = federation(config, load_task(config), 1)
    state, users = job.start(), list(job.data.users)
    pool, judges = ([job.data.examples_of(user) for user in some] for some in (users[:POOL], users[POOL:]))

    def design(count, noise=0.5, **options):
        began = time.process_time()
        crafted = coalmine.design_canaries(
            job.model, state["parameters"], job.training, pool, count=count, clip_norm=1.0, noise_multiplier=noise,
            cohort_size=24, options=coalmine.Crafting(**options), streams=partial(stream, 5, "design"), held_out=judges,
        )  # fmt: skip
        return crafted, time.process_time() - began

    design(1, iterations=2)  # torch warms up
    rows = {"default": design(1), "published": design(1, as_published=True), "default, 64 at once": design(64)}
    found = {
        "design": {
            name: {"seconds": seconds, **{key: float(np.median(value)) for key, value in crafted.metrics.items()}}
            for name, (crafted, seconds) in rows.items()
        }
    }
    found["time_ratio"] = rows["default"][1] / rows["published"][1]
    crafted = rows["default, 64 at once"][0]

    def audits(noise, *, half=False, draws=1, insert=True):
        mechanism = (HalfNoise if half else Gaussian)(1.0, noise)
        for seed in range(AUDITS):
            again = replace(job, mechanism=mechanism, secret=partial(stream, seed))
            yield Frozen(again, state, crafted, 0, frozenset(users[:POOL])).scores(draws, insert=insert)

    def bounds(**about):
        return np.array([coalmine.bound_band(scores, delta=DELTA).epsilon for scores in audits(**about)])

    found["null_above_zero"] = float((bounds(noise=0.5, insert=False) > 0).mean())
    found["violated"] = {}
    for noise, draws in ((0.2, 1), (0.5, 1), (0.5, 2), (1.0, 1), (1.0, 8)):
        claimed = float(coalmine.gaussian_epsilon(0, 1, 1 / noise, 1, DELTA))
        rates = {
            name: float((bounds(noise=noise, half=half, draws=draws) > claimed).mean())
            for name, half in (("correct noise", False), ("half the noise", True))
        }
        found["violated"][f"noise {noise}, {draws} draws"] = {"claim": claimed, **rates}
    true = float(coalmine.gaussian_epsilon(0, 1, 2, 1, DELTA))
    fits = [coalmine.estimate_gaussian(scores, delta=DELTA) for scores in audits(noise=0.5, draws=8)]
    found["interval_holds_truth"] = float(np.mean([fit.low <= true <= fit.high for fit in fits]))
    found["interval_width"] = float(np.mean([(fit.high - fit.low) / true for fit in fits]))
    text = json.dumps(found, indent=2) + "\n"
    (Path(__file__).parent / "results" / "crafting.json").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
