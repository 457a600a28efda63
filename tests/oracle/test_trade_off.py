"""What an epsilon means for an attacker, by independent means: brute force over tests, and the integral of a Gaussian."""

import json
import math

import jsonschema
import mpmath
import numpy as np
import pytest
from scipy import optimize

from coalmine import Claim, Game, Once, Poisson, audit_scores, claim, simulate_gaussian_mechanism
from coalmine.contracts import LowerBound
from coalmine.result import AuditResult, schema
from coalmine.trade_off import FALSE_ALARMS, attacker, found, is_gaussian


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(0.0, 0.0), (0.1, 1e-5), (1.0, 0.0), (4.38, 1e-5), (6.0, 0.01), (30.0, 1e-5), (800.0, 0.0)]
)
def test_epsilon_and_delta_alone(epsilon, delta):
    """The largest share that both inequalities of the definition allow, in each direction, as a linear programme."""
    if epsilon < 100:  # share <= e^eps alarms + delta, and 1 - alarms <= e^eps (1 - share) + delta
        grow = math.exp(epsilon)
        rows, limits = [[1.0], [grow]], [grow * FALSE_ALARMS + delta, grow + delta - 1 + FALSE_ALARMS]
        best = -optimize.linprog([-1.0], A_ub=rows, b_ub=limits, bounds=[(0, 1)]).fun
        assert found(epsilon, delta) == pytest.approx(best, abs=1e-9)
    else:
        assert found(epsilon, delta) == 1.0


def test_the_worst_mechanism_reaches_it():
    """Randomised response with delta: the best of all tests with one in a hundred false alarms, by brute force."""
    epsilon, delta = 2.0, 0.003
    kept = (1 - delta) * math.exp(epsilon) / (1 + math.exp(epsilon))
    present = np.array([delta, kept, 1 - delta - kept, 0.0])  # outputs: a tell-tale one, "yes", "no", never
    absent = np.array([0.0, 1 - delta - kept, kept, delta])
    best = -optimize.linprog(-present, A_ub=[absent], b_ub=[FALSE_ALARMS], bounds=[(0, 1)] * 4).fun
    assert found(epsilon, delta) == pytest.approx(best, rel=1e-12)


@pytest.mark.parametrize("noise", [0.3, 0.63, 1.0, 5.0])
def test_a_gaussian_mechanism(noise):
    """The likelihood ratio test at one in a hundred false alarms, in high precision, from the noise and not from epsilon."""
    with mpmath.workdps(40):
        border = mpmath.findroot(lambda x: mpmath.erfc(x / mpmath.sqrt(2)) / 2 - mpmath.mpf(FALSE_ALARMS), 2.3)
        power = mpmath.erfc((border - 1 / mpmath.mpf(noise)) / mpmath.sqrt(2)) / 2
    stated = claim(Once(), noise_multiplier=noise, delta=1e-5)
    assert is_gaussian(stated)
    assert found(stated.epsilon, 1e-5, gaussian=True) == pytest.approx(float(power), rel=1e-8)
    assert found(stated.epsilon, 1e-5, gaussian=True) <= found(stated.epsilon, 1e-5)


def test_only_what_is_gaussian_is_taken_for_it():
    assert not is_gaussian(claim(Poisson(0.1, 20), noise_multiplier=1.0, delta=1e-5))
    assert not is_gaussian(Claim(4.0, 1e-5, game=Game(participation="once")))
    bound = LowerBound(1.0, 1e-5, 0.95, "band", True, (), math.inf)
    stated = attacker(Claim(4.0, 1e-5), bound, {})
    assert stated.shown is None and stated.by_claim == found(4.0, 1e-5) and stated.by_claim_of_clients is None
    assert attacker(None, bound, {}) is None


def test_what_was_shown_holds_with_its_confidence():
    """Of 40 audits with fixed seeds at most four are wrong; with 5 % errors, five or more would have p = 0.05.

    The truth is the power of the mechanism at one in a hundred false alarms.
    """
    truth = found(claim(Once(), noise_multiplier=1.0, delta=1e-5).epsilon, 1e-5, gaussian=True)
    stated = claim(Once(), noise_multiplier=1.0, delta=1e-5)
    wrong = 0
    for seed in range(40):
        scores = simulate_gaussian_mechanism(dim=10_000, canaries=200, sigma=1.0, seed=seed)
        wrong += audit_scores(scores, delta=1e-5, claim=stated).attacker.shown > truth
    assert wrong <= 4


def test_it_is_in_the_file_and_read_back():
    scores = simulate_gaussian_mechanism(dim=10_000, canaries=100, sigma=1.0, seed=1)
    result = audit_scores(scores, delta=1e-5, claim=claim(Once(), noise_multiplier=1.0, delta=1e-5))
    data = json.loads(result.to_json())
    jsonschema.validate(data, schema())
    assert data["attacker"]["by_claim"] == result.attacker.by_claim and data["attacker"]["gaussian"] is True
    assert AuditResult.from_json(result.to_json()).to_json() == result.to_json()
    del data["attacker"]  # files of before
    assert AuditResult.from_json(json.dumps(data)).to_json() == result.to_json()
