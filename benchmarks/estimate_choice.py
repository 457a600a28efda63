"""The estimate of an audit as a whole: mean only, or mean and width where the widths clearly differ.

    python benchmarks/estimate_choice.py [AUDITS]

Which estimate leads is decided by a test of the scores, so its interval is that of a procedure with two branches. Scores of
simulated audits: normal, `gap` apart, `width` times as wide as the null, in units of a known law or of held-out scores. The
table has how often the width was fitted, how often the interval of what led misses the true epsilon (nominal: 5 %), and the
same for a stricter rule, which would fit the width below p = .001 only: it jumps less often where the widths are equal, and
misses more where they are not. Writes benchmarks/results/estimate_choice.json.
"""

import json
import sys
from pathlib import Path

import numpy as np

from coalmine._random import stream
from coalmine.estimators import gaussian_fit
from coalmine.estimators.diagnostics import SUSPICIOUS, diagnose
from coalmine.gaussian import gaussian_epsilon
from coalmine.nulls import GaussianNull
from coalmine.scores import Scores

DELTA, CANARIES = 1e-5, 300
SETTINGS = [(0, 1, False), (1, 1, False), (2, 1, False), (1, 1.1, False)]  # gap, width, held-out scores
STRICTER = 0.001


def audits(gap, width, held_out, count):
    rng = stream(0, "estimate choice", f"{gap} {width} {held_out}")
    gaussian_fit._support = lambda *_: ({}, ())  # a check that moves neither estimate nor interval, and takes most of the time
    for _ in range(count):
        inserted, others = gap + width * rng.standard_normal(CANARIES), rng.standard_normal(CANARIES)
        scores = Scores.of(inserted, others if held_out else None, null=None if held_out else GaussianNull(1.0))
        standardised, null_count = gaussian_fit.standardise(scores)
        p_value = diagnose(standardised, null_count).variance_p_value
        yield p_value, [gaussian_fit.estimate_gaussian(scores, delta=DELTA, variance=which) for which in ("null", "fitted")]


def row(gap, width, held_out, count):
    true = float(gaussian_epsilon(0.0, 1.0, float(gap), float(width), DELTA))
    found = list(audits(gap, width, held_out, count))
    made = {"gap": gap, "width": width, "held_out": held_out, "audits": count, "true_epsilon": true}
    for name, limit in (("rule", SUSPICIOUS), ("stricter", STRICTER)):
        led = [each[p_value < limit] for p_value, each in found]
        values = np.array([each.epsilon for each in led])
        made[name] = {
            "fitted": float(np.mean([p_value < limit for p_value, _ in found])),
            "missed": float(np.mean([not each.low <= true <= each.high for each in led])),
            "mean": float(values.mean()),
            "largest": float(values.max()),
        }
    return made


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    rows = []
    for setting in SETTINGS:
        rows.append(row(*setting, count))
        print(json.dumps(rows[-1]), flush=True)
    path = Path(__file__).parent / "results" / "estimate_choice.json"
    path.write_text(json.dumps({"delta": DELTA, "canaries": CANARIES, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
