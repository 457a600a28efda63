"""Examples sampled one by one: the mixture accountant against values of dp-accounting, the closed form and group privacy."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from coalmine import ExamplePoisson, Poisson, calibrate_noise, claim, claimed_delta, gaussian_epsilon
from coalmine.accounting.mixtures import mixture_losses
from coalmine.cli import app

# Made with dp-accounting 0.6.0, privacy_loss_distribution.from_mixture_gaussian_mechanism, grid 1e-3: noise, rate, G, T, delta
VALUES = [
    (4.0, 0.01, 4, 100, 1e-5, 0.3634548),
    (4.0, 0.01, 8, 100, 1e-5, 0.7756359),
    (4.0, 0.01, 16, 100, 1e-5, 1.667325),
    (4.0, 0.01, 32, 1000, 1e-6, 15.28947),
]


@pytest.mark.parametrize(("noise", "rate", "size", "rounds", "delta", "epsilon"), VALUES)
def test_the_mixture(noise, rate, size, rounds, delta, epsilon):
    found = claim(ExamplePoisson(rate, rounds, size), noise_multiplier=noise, delta=delta)
    assert found.epsilon == pytest.approx(epsilon, rel=2e-3)


def test_without_chance_it_is_one_gaussian():
    """Rate 1: every round moves the sum by G clip norms."""
    found = claim(ExamplePoisson(1.0, 4, 3), noise_multiplier=12.0, delta=1e-5).epsilon
    truth = float(gaussian_epsilon(0, 1, 3 * 2 / 12.0, 1, 1e-5))
    assert truth <= found * (1 + 1e-9) and found == pytest.approx(truth, rel=2e-3)


def test_one_example_is_a_user():
    for noise in (1.0, 4.0):
        one = claim(ExamplePoisson(0.01, 100, 1), noise_multiplier=noise, delta=1e-5)
        user = claim(Poisson(0.01, 100), noise_multiplier=noise, delta=1e-5)
        assert one.epsilon == user.epsilon and one.game == user.game


def test_more_examples_cost_more_and_about_what_group_privacy_says():
    found = [claim(ExamplePoisson(0.01, 50, size), noise_multiplier=3.0, delta=1e-5).epsilon for size in (1, 2, 4)]
    assert np.all(np.diff(found) > 0)
    each = 1.03 * found[2] / 4  # plain group privacy: delta_G = delta (e^(G eps) - 1)/(e^eps - 1) at G eps
    plain = claimed_delta(Poisson(0.01, 50), noise_multiplier=3.0, epsilon=each) * np.expm1(4 * each) / np.expm1(each)
    assert plain > 0.2e-5  # so it cannot be much smaller than what the mixture gives


def test_calibration_is_the_inverse():
    pattern = ExamplePoisson(0.5, 2, 3)
    noise = calibrate_noise(pattern, epsilon=1.0, delta=1e-5)
    assert claim(pattern, noise_multiplier=noise, delta=1e-5).epsilon == pytest.approx(1.0, rel=1e-3)
    assert claim(pattern, noise_multiplier=noise, delta=1e-5).epsilon <= 1.0


def test_what_has_no_accountant_is_refused():
    pattern = ExamplePoisson(0.01, 10, 4)
    with pytest.raises(ValueError, match="accounted by accountant='pld'"):
        claim(pattern, noise_multiplier=1.0, delta=1e-5, accountant="rdp")
    with pytest.raises(ValueError, match="accounted by accountant='pld'"):
        claim(pattern, noise_multiplier=1.0, delta=1e-5, rounds_known=True)
    with pytest.raises(ValueError, match="not a probability"):
        ExamplePoisson(1.5, 10, 4)


def run(*words):
    return CliRunner().invoke(app, list(words))


def test_the_command_line():
    words = ["account", "--noise-multiplier", "4", "--delta", "1e-5", "--sampling-rate", "0.01", "--rounds", "100"]
    found = run(*words, "--group-size", "4", "--json")
    assert json.loads(found.stdout)["epsilon"] == pytest.approx(0.3634548, rel=2e-3)
    assert json.loads(run(*words, "--group-size", "1", "--json").stdout) == json.loads(run(*words, "--json").stdout)
    wrong = run("account", "--noise-multiplier", "4", "--delta", "1e-5", "--group-size", "4")
    assert wrong.exit_code != 0 and "--group-size needs --sampling-rate" in str(wrong.exception)
    sizes = ["--population", "1000", "--batch-size", "1500", "--group-size", "3", "--rounds", "1"]
    planned = run("plan", "--els-uls", "--claim", "2", "--delta", "1e-5", *sizes, "--json")
    (row,) = json.loads(planned.stdout)
    assert 1 < row["ratio"] < 3.1 and row["diverse"] == ("ULS" if row["ratio"] > 3**0.5 else "ELS")


@pytest.mark.parametrize(("noise", "rate", "size", "rounds"), [(4.0, 0.01, 4, 100), (1.0, 0.1, 4, 50), (0.5, 0.02, 2, 10)])
def test_the_law_on_the_grid_is_that_of_dp_accounting(noise, rate, size, rounds):
    """Whose points are searched one after the other, to a millionth; ours all together."""
    from dp_accounting.pld.privacy_loss_distribution import from_mixture_gaussian_mechanism
    from scipy.stats import binom

    members = np.arange(size + 1.0)
    chances = binom.pmf(members, size, rate)
    ours = mixture_losses(noise, members, chances, 1e-2).self_compose(rounds)
    theirs = from_mixture_gaussian_mechanism(noise, members, chances, value_discretization_interval=1e-2).self_compose(rounds)
    for delta in (1e-3, 1e-6):
        assert ours.get_epsilon_for_delta(delta) == pytest.approx(theirs.get_epsilon_for_delta(delta), rel=1e-7)
    for epsilon in (0.1, 0.4):
        assert ours.get_delta_for_epsilon(epsilon) == pytest.approx(theirs.get_delta_for_epsilon(epsilon), rel=1e-5)
