import numpy as np
import pytest

import coalmine
from coalmine.adapters import Statement

DIM, STEPS, BATCH, CLIP = 2000, 20, 16, 0.5


@pytest.fixture
def new_audit():
    def made(**options):
        usual = {"delta": 1e-5, "pool": 200, "secret_seed": 7, "statement": Statement(unused_rows=1000)}
        return coalmine.Audit(**{**usual, **options})

    return made


@pytest.fixture
def new_loop(new_audit):
    def made(loop=None, **options):
        usual = {"dim": DIM, "steps": STEPS, "clip_norm": CLIP, "noise_multiplier": 0.5, "batch": BATCH}
        return new_audit(**options).loop(**{**usual, **(loop or {})})

    return made


def clip(rows, norm=CLIP):
    return rows * np.minimum(1.0, norm / np.linalg.norm(rows, axis=1))[:, None]
