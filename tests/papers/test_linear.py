"""What canaries leave in a model: the formula against the server itself."""

import numpy as np
import pytest

from coalmine.papers.one_shot.linear import left_of
from coalmine.training.server import ServerSGD


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9])
def test_what_a_canary_leaves_is_what_the_server_makes_of_it(momentum):
    clips, divisors = np.linspace(0.3, 1.1, 12), np.full(12, 40.0)
    rounds = [{"round": place, "clip_norm": clip, "denominator": 40.0} for place, clip in enumerate(clips)]
    found = left_of(rounds, momentum=momentum, learning_rate=0.56)
    server = ServerSGD(learning_rate=0.56, momentum=momentum)
    for taking_part in range(12):
        state, model = server.init(1), np.zeros(1)
        for number in range(12):
            mean = np.array([clips[taking_part] / divisors[taking_part] if number == taking_part else 0.0], np.float32)
            step, state = server.step(state, mean)
            model += step
        assert found[taking_part] == pytest.approx(model[0], rel=1e-5)
