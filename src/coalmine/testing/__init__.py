"""Tests for one's own suite: does one private step clip, add noise and divide as it says?

    from coalmine.testing import assert_conforms

    def test_step():
        assert_conforms(step, dim=1000, clip_norm=1.0, noise_multiplier=1.1)

`step(gradients) -> release` is the code under test: it gets per-example gradients, an array (batch, dim) of NumPy, and returns
the noisy mean. With pytest the same function is a fixture of the name `assert_conforms`.

    def test_sampler():
        assert_samples(draw, population=50_000, rate=0.01)

`draw()` returns the numbers of the examples of one batch. What no step shows, by whom it is fed, is tested there.
"""

from coalmine.testing.samples import assert_samples
from coalmine.testing.steps import assert_conforms

__all__ = ["assert_conforms", "assert_samples"]
