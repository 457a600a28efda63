"""Claims: reference values, dp-accounting as a referee, inverses, and messages that name the remedy.

The values of Poisson sampling are those of dp-accounting 0.6.0 with its default orders and a grid of 1e-4; exact noise
multipliers come from arithmetic with 60 digits.
"""

import logging
import math
from importlib.metadata import version

import dp_accounting
import pytest
from pytest import approx

from coalmine import FixedSize, Once, Poisson, Repeated, calibrate_noise, claim, claimed_delta
from coalmine.contracts import Game

STACKOVERFLOW = 341_000**-1.1


@pytest.mark.parametrize(
    ("rate", "noise", "rounds", "delta", "renyi", "pld"),
    [
        (0.01, 1.0, 1_000, 1e-5, 2.10137, 1.82824),
        (0.01, 0.8, 5_000, 1e-6, 8.39814, 7.70768),
        (0.001, 0.6, 10_000, 1e-6, 3.99919, 3.15223),
        (1.0, 5.0, 100, 1e-5, 10.72551, 9.99726),
        (0.05, 2.0, 200, 1e-5, 1.72131, 1.56061),
    ],
)
def test_poisson_sampling_reference_values(rate, noise, rounds, delta, renyi, pld):
    pattern = Poisson(rate=rate, rounds=rounds)
    assert claim(pattern, noise_multiplier=noise, delta=delta, accountant="rdp").epsilon == approx(renyi, abs=1e-5)
    # the other way round, since a claim also accounts for half the noise, which takes the longer time
    assert claimed_delta(pattern, noise_multiplier=noise, epsilon=pld) == approx(delta, rel=1e-4)


def test_poisson_sampling_is_accounted_by_loss_distributions_by_default():
    found = claim(Poisson(rate=0.05, rounds=200), noise_multiplier=2.0, delta=1e-5)
    assert found.epsilon == approx(1.56061, abs=1e-5)


@pytest.mark.parametrize("noise", [0.05, 0.3, 1.0, 3.7, 50.0])
@pytest.mark.parametrize("delta", [1e-10, 1e-5, 0.1])
def test_the_analytic_claim_is_that_of_dp_accounting(noise, delta):
    found = claim(Once(), noise_multiplier=noise, delta=delta)
    assert found.epsilon == approx(dp_accounting.get_epsilon_gaussian(noise, delta), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize(
    ("noise", "delta", "epsilon"),
    [
        (0.541, 1e-6, 10.00192391),
        (1.54, 1e-6, 3.00835517),
        (4.22, 1e-6, 1.00119513),
        (0.0644, STACKOVERFLOW, 194.1179),
        (0.2344, STACKOVERFLOW, 28.8814),
        (0.0496, STACKOVERFLOW, 298.9813),
        (0.2, 1e-5, 33.1037),
    ],
)
def test_the_analytic_claim_reference_values(noise, delta, epsilon):
    assert claim(Once(), noise_multiplier=noise, delta=delta).epsilon == approx(epsilon, rel=2e-6)


@pytest.mark.parametrize(
    ("epsilon", "delta", "noise"),
    [
        (10.0, 1e-6, 0.54108683182),
        (3.0, 1e-6, 1.54386141778),
        (1.0, 1e-6, 4.22467888933),
        (300.0, STACKOVERFLOW, 0.0494998350),
        (30.0, STACKOVERFLOW, 0.2278180291),
    ],
)
def test_the_analytic_calibration_reference_values(epsilon, delta, noise):
    assert calibrate_noise(Once(), epsilon=epsilon, delta=delta) == approx(noise, rel=1e-9)


@pytest.mark.parametrize(
    ("epsilon", "noise"), [(0.15, 7.3496), (0.5, 3.1469), (1.0, 1.8779), (2.0, 1.1163), (3.0, 0.8260), (3.88, 0.6840)]
)
def test_the_analytic_calibration_at_a_large_delta(epsilon, noise):
    assert calibrate_noise(Once(), epsilon=epsilon, delta=0.01) == approx(noise, abs=5e-5)


@pytest.mark.parametrize("times", [1, 2, 5, 8, 100])
def test_repeated_presentations_shrink_the_noise_by_the_square_root(times):
    once = claim(Once(), noise_multiplier=1.3 / math.sqrt(times), delta=1e-5)
    repeated = claim(Repeated(times), noise_multiplier=1.3, delta=1e-5)
    assert repeated.epsilon == approx(once.epsilon, rel=1e-12)


def test_sampling_everybody_in_every_round_is_no_sampling():
    always, repeated = (claim(pattern, noise_multiplier=9.0, delta=1e-5).epsilon for pattern in (Poisson(1.0, 8), Repeated(8)))
    assert always == approx(repeated, rel=1e-3)


@pytest.mark.parametrize("accountant", ["analytic", "pld", "rdp"])
@pytest.mark.parametrize("pattern", [Once(), Repeated(3)], ids=str)
def test_replacing_a_client_halves_the_noise(pattern, accountant):
    add = claim(pattern, noise_multiplier=4.0, delta=1e-5, accountant=accountant)
    replace = claim(pattern, noise_multiplier=8.0, delta=1e-5, accountant=accountant, relation="replace-one")
    assert replace.epsilon == approx(add.epsilon, rel=1e-6)


def test_all_clients_in_every_round_is_no_sampling_at_all():
    """A cohort of everybody must cost what repeated presentations cost under the same relation: two clip norms of movement."""
    everybody = claim(FixedSize(50, 50, rounds=3), noise_multiplier=4.0, delta=1e-5)
    repeated = claim(Repeated(3), noise_multiplier=4.0, delta=1e-5, accountant="rdp", relation="replace-one")
    assert everybody.epsilon == approx(repeated.epsilon, rel=1e-9)


def test_smaller_cohorts_cost_less():
    found = [claim(FixedSize(size, 1000, rounds=20), noise_multiplier=2.0, delta=1e-5).epsilon for size in (10, 100, 1000)]
    assert found == sorted(found)


def test_the_accountants_are_upper_bounds_of_the_exact_value_and_pld_is_the_tighter_one():
    exact, pld, rdp = (
        claim(Repeated(10), noise_multiplier=3.0, delta=1e-6, accountant=name).epsilon for name in ("analytic", "pld", "rdp")
    )
    assert exact <= pld <= rdp
    assert pld == approx(exact, rel=1e-3)


PATTERNS = {
    "once": (Once(), {}),
    "repeated": (Repeated(8), {}),
    "replaced": (Repeated(3), {"relation": "replace-one"}),
    "repeated, pld": (Repeated(4), {"accountant": "pld"}),
    "repeated, rdp": (Repeated(4), {"accountant": "rdp", "relation": "replace-one"}),
    "poisson, pld": (Poisson(0.02, 50), {}),
    "poisson, rdp": (Poisson(0.02, 50), {"accountant": "rdp"}),
    "fixed size": (FixedSize(20, 1000, 10), {}),
}
every_pattern = pytest.mark.parametrize(("pattern", "how"), PATTERNS.values(), ids=PATTERNS)


@every_pattern
@pytest.mark.parametrize("epsilon", [0.2])
def test_calibration_is_the_inverse_of_the_claim(pattern, how, epsilon):
    noise = calibrate_noise(pattern, epsilon=epsilon, delta=1e-5, **how)
    found = claim(pattern, noise_multiplier=noise, delta=1e-5, **how).epsilon
    assert epsilon * (1 - 1e-4) < found <= epsilon * (1 + 1e-9)


def test_a_tiny_epsilon_is_calibrated_by_loss_distributions_too():
    """Where Rényi accounting is looser by a factor of 30."""
    noise = calibrate_noise(Repeated(100), epsilon=1e-3, delta=1e-5, accountant="pld")
    assert noise == approx(calibrate_noise(Repeated(100), epsilon=1e-3, delta=1e-5), rel=1e-3)


@pytest.mark.parametrize("noise", [1e4, 1e7, 1e9])
@pytest.mark.parametrize("pattern", [Poisson(0.001, 10), FixedSize(1, 1000, 10)], ids=str)
def test_rounding_does_not_make_a_claim_of_nothing(pattern, noise):
    """Rényi divergences below zero, by rounding, would be answered with epsilon = 0 at any delta; the truth is positive."""
    assert 0 < claim(pattern, noise_multiplier=noise, delta=1e-30, accountant="rdp").epsilon < 1


@pytest.mark.parametrize("epsilon", [0.003, 5.0, 300.0, 1e7])
def test_small_and_large_epsilons_are_calibrated_too(epsilon):
    pattern, how = Poisson(0.01, 1000), {"accountant": "rdp"}
    noise = calibrate_noise(pattern, epsilon=epsilon, delta=1e-3, **how)
    assert claim(pattern, noise_multiplier=noise, delta=1e-3, **how).epsilon == approx(epsilon, rel=1e-4)


@every_pattern
def test_the_claimed_delta_is_the_inverse_of_the_claim(pattern, how):
    delta = claimed_delta(pattern, noise_multiplier=3.0, epsilon=0.2, **how)
    assert 0 < delta < 1
    assert claim(pattern, noise_multiplier=3.0, delta=delta, **how).epsilon == approx(0.2, rel=1e-3)


@every_pattern
def test_no_noise_is_no_privacy(pattern, how):
    for noise in (0.0, 1e-9, 1e-200):
        assert claim(pattern, noise_multiplier=noise, delta=1e-5, **how).epsilon > 1e5
    assert claim(pattern, noise_multiplier=0.0, delta=1e-5, **how).epsilon == math.inf
    assert claimed_delta(pattern, noise_multiplier=1e-9, epsilon=1.0, **how) == 1.0


@every_pattern
def test_half_the_noise_is_a_question_to_the_claim(pattern, how):
    whole = claim(pattern, noise_multiplier=8.0, delta=1e-5, **how)
    half = claim(pattern, noise_multiplier=4.0, delta=1e-5, **how)
    assert whole.at_noise(0.5) == half.epsilon > whole.epsilon
    assert whole.description.noise.accounted == 8.0


@pytest.mark.parametrize(
    ("pattern", "how", "delta"),
    [(Poisson(0.1, 10), {"accountant": "pld"}, 1e-300), (Poisson(0.1, 10), {"accountant": "rdp"}, 1e-300)],
    ids=["pld", "rdp"],
)
def test_what_an_accountant_cannot_reach_is_said(pattern, how, delta):
    with pytest.raises(ValueError, match="ask for a larger epsilon or delta"):
        calibrate_noise(pattern, epsilon=0.01, delta=delta, **how)


def test_a_claim_says_who_proved_it_for_whom():
    known, sampled = claim(Once(), noise_multiplier=9, delta=1e-5), claim(Poisson(0.1, 5), noise_multiplier=9, delta=1e-5)
    assert known.accountant == "analytic Gaussian"
    assert sampled.accountant == f"dp-accounting {version('dp-accounting')} PLD"
    assert known.game == Game("client", "add-or-remove-one", "once", "rounds known")
    assert sampled.game == Game("client", "add-or-remove-one", "Poisson sampling at rate 0.1 for 5 rounds", "rounds unknown")
    fixed = claim(FixedSize(5, 50, 2), noise_multiplier=1, delta=1e-5, unit="example")
    assert (fixed.game.unit, fixed.game.relation, fixed.game.knowledge) == ("example", "replace-one", "rounds unknown")
    assert fixed.accountant.endswith("RDP")
    assert known.assumptions


def test_orders_that_do_not_converge_are_no_noise_on_standard_error(capfd, caplog):
    """dp-accounting logs a warning for each Rényi order it leaves out; the claim is true without them."""
    filters = list(logging.getLogger("absl").filters)
    with caplog.at_level(logging.WARNING):
        claim(Poisson(0.1, 10), noise_multiplier=1.0, delta=1e-5, accountant="rdp")
    assert (capfd.readouterr(), caplog.messages) == (("", ""), [])
    assert logging.getLogger("absl").filters == filters


@pytest.mark.parametrize(
    ("pattern", "how", "remedy"),
    [
        (Poisson(0.1, 5), {"accountant": "analytic"}, "use accountant='pld' or 'rdp'"),
        (FixedSize(5, 50, 2), {"accountant": "analytic"}, "use accountant='pld' or 'rdp'"),
        (FixedSize(5, 50, 2), {"accountant": "pld"}, "accountant='rdp' under relation='replace-one' only"),
        (FixedSize(5, 50, 2), {"relation": "add-or-remove-one"}, "accountant='rdp' under relation='replace-one' only"),
        (Poisson(0.1, 5), {"relation": "replace-one"}, "relation='add-or-remove-one' only"),
        (Once(), {"accountant": "prv"}, "one of 'auto', 'analytic', 'pld', 'rdp'"),
        (Once(), {"relation": "remove"}, "one of 'add-or-remove-one', 'replace-one'"),
        ("once", {}, "is no pattern of coalmine.participation"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_does_not_go_together_names_the_remedy(pattern, how, remedy):
    for ask in (
        lambda: claim(pattern, noise_multiplier=1.0, delta=1e-5, **how),
        lambda: claimed_delta(pattern, noise_multiplier=1.0, epsilon=1.0, **how),
        lambda: calibrate_noise(pattern, epsilon=1.0, delta=1e-5, **how),
    ):
        with pytest.raises(ValueError, match=r"is|knows") as caught:
            ask()
        assert remedy in str(caught.value)


@pytest.mark.parametrize("wrong", [-1.0, math.nan, math.inf, "much", None])
def test_arguments_out_of_range(wrong):
    with pytest.raises(ValueError, match="noise_multiplier"):
        claim(Once(), noise_multiplier=wrong, delta=1e-5)
    with pytest.raises(ValueError, match="epsilon"):
        calibrate_noise(Once(), epsilon=wrong, delta=1e-5)
    with pytest.raises(ValueError, match="epsilon"):
        claimed_delta(Once(), noise_multiplier=1.0, epsilon=wrong)


@pytest.mark.parametrize("delta", [0.0, 1.0, -0.1, math.nan])
def test_delta_out_of_range(delta):
    with pytest.raises(ValueError, match="delta"):
        claim(Once(), noise_multiplier=1.0, delta=delta)
    with pytest.raises(ValueError, match="delta"):
        calibrate_noise(Once(), epsilon=1.0, delta=delta)


def test_the_unit_is_a_client_or_an_example():
    with pytest.raises(ValueError, match="'client', 'example'"):
        claim(Once(), noise_multiplier=1.0, delta=1e-5, unit="user")
