"""What published frozen draws cost: against closed forms, and against dp-accounting's own composition."""

import dp_accounting as dp
import pytest

from coalmine.accounting.published import published_epsilon
from coalmine.gaussian import gaussian_epsilon
from coalmine.mechanisms import Gaussian
from coalmine.participation import Epochs, Once, Poisson

SAID = Gaussian(1.0, 0.8).describe()


def test_without_sampling_a_client_may_be_in_every_draw():
    found = published_epsilon(SAID, Epochs(3), rounds=30, measured=2, draws=5, delta=1e-5)
    assert found == pytest.approx(float(gaussian_epsilon(0, 1, 13**0.5 / 0.8, 1, 1e-5)), rel=1e-9)
    assert published_epsilon(SAID, Once(), rounds=30, measured=0, draws=5, delta=1e-5) == pytest.approx(
        float(gaussian_epsilon(0, 1, 1 / 0.8, 1, 1e-5)), rel=1e-9
    )


@pytest.mark.parametrize(("fresh", "parts"), [(True, [(0.8, 20 + 12)]), (False, [(0.8, 20), (0.4, 3)])])
def test_sampled_draws_are_sampled_rounds(fresh, parts):
    accountant = dp.pld.PLDAccountant(value_discretization_interval=5e-4)
    for noise, times in parts:
        accountant.compose(dp.PoissonSampledDpEvent(0.1, dp.GaussianDpEvent(noise)), times)
    found = published_epsilon(SAID, Poisson(0.1, rounds=20), rounds=20, measured=3, draws=4, delta=1e-5, fresh_cohorts=fresh)
    exact = accountant.get_epsilon(1e-5)
    assert exact <= found <= exact * 1.02  # rounded upwards, on a coarser grid
