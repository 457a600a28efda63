"""What is said before training, and the pool that follows from it."""

import numpy as np
import pytest

from coalmine.audit.planning import AuditPlan, usual_pool

TOLD = {"delta": 1e-5, "confidence": 0.95}


@pytest.mark.parametrize("claim", np.linspace(4.2, 8.0, 6))
def test_the_usual_pool_tells_half_the_noise_from_the_claim(claim):
    """One canary more may show a hair less, so that a pool near the smallest is looked at once more."""
    pool = usual_pool(claim, 20_000, **TOLD)
    assert AuditPlan(pool, claim, numbers=0, **TOLD).decides


def test_a_plan_says_what_the_model_has_room_for():
    said = str(AuditPlan(400, 4.38, numbers=0, room=400, **TOLD))
    assert said == "400 canaries cannot tell half the noise from the claim 4.38; 1,120 would, and this model has room for 400"
    assert "room" not in str(AuditPlan(400, 4.38, numbers=0, room=5000, **TOLD))
