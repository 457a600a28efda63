"""Does this installation compute what it should? Oracles and null calibration, in about half a minute.

Statistical checks use fixed seeds and thresholds that a correct installation would miss once in a million times.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy import special

from coalmine._random import stream
from coalmine.accounting import claim
from coalmine.calibration import Case, false_statements
from coalmine.estimators._band import local_level
from coalmine.estimators.gaussian_fit import estimate_gaussian
from coalmine.gaussian import gaussian_epsilon
from coalmine.nulls import CosineNull
from coalmine.participation import Once, Poisson
from coalmine.simulation import simulate_gaussian_mechanism

FALSE_ALARM = 1e-6
_AUDITS, _CANARIES, _CONFIDENCE = 400, 200, 0.95
# anytime is valid with a known null law only; lifted bounds compare runs and take longer than a self-test should
_CALIBRATED = [
    (name, exact)
    for name in ("band", "threshold, all", "threshold, split", "gdp, band", "one-run", "one-run f-DP", "anytime")
    for exact in ((True,) if name == "anytime" else (True, False))
]


@dataclass(frozen=True)
class InstallationCheck:
    """One check, its outcome, and what was seen."""

    name: str
    passed: bool
    seen: str

    def __str__(self) -> str:
        return f"{'ok  ' if self.passed else 'FAIL'}  {self.name}: {self.seen}"


def selftest(track: Callable[[Iterable[Any]], Iterable[Any]] = iter) -> tuple[InstallationCheck, ...]:
    """Run all checks; `track` wraps their sequence, for a progress bar."""
    return tuple(check() for check in track(_checks()))


def _checks() -> list[Callable[[], InstallationCheck]]:
    calibrations = [partial(_null_rate, name, exact) for name, exact in _CALIBRATED]
    return [_gaussians, _cosines, _band_level, _accountants, _mechanism, *calibrations]


def _gaussians() -> InstallationCheck:
    """Values computed with 60 digits."""
    truth = {
        (1.0, 1.0): 4.88655411746,
        (0.0, 1.05): 0.940202411602,
        (20.0, 0.9): 365.909352926,
        (300.0, 0.5): 185736.310541,
        (0.0, 1000.0): 11964043.6166,
    }
    worst = max(abs(gaussian_epsilon(0, 1, gap, width, 1e-6) / value - 1) for (gap, width), value in truth.items())
    return InstallationCheck("two Gaussians against 60-digit values", worst < 1e-10, f"largest relative error {worst:.1e}")


def _cosines() -> InstallationCheck:
    truth = {(200, 5.0): -15.84573938, (10_000, 20.0): -208.0065929, (1_000_000, 40.0): -805.2483236}
    worst = max(abs(CosineNull(dim).logsf(z * dim**-0.5) / value - 1) for (dim, z), value in truth.items())
    return InstallationCheck("tails of the cosine null", worst < 1e-8, f"largest relative error {worst:.1e}")


def _band_level() -> InstallationCheck:
    """The local level of the band against brute force."""
    count, level = 50, local_level(50, _CONFIDENCE)
    uniforms = np.sort(stream(0, "selftest band").random((20_000, count)), axis=1)
    orders = np.arange(1, count + 1)
    crossed = (uniforms > special.betainccinv(orders, count - orders + 1.0, level)).any(axis=1).mean()
    margin = -special.ndtri(FALSE_ALARM / 2) * np.sqrt(0.05 * 0.95 / 20_000)
    return InstallationCheck(
        "simultaneous band by brute force", abs(crossed - 0.05) < margin, f"misses {crossed:.2%}, should be 5%"
    )


def _accountants() -> InstallationCheck:
    """dp-accounting as a referee of the analytic formula, and of itself."""
    import dp_accounting

    ours, theirs = claim(Once(), noise_multiplier=0.7, delta=1e-6).epsilon, dp_accounting.get_epsilon_gaussian(0.7, 1e-6)
    sampled = claim(Poisson(rate=0.05, rounds=20), noise_multiplier=2.0, delta=1e-5)
    renyi = claim(Poisson(rate=0.05, rounds=20), noise_multiplier=2.0, delta=1e-5, accountant="rdp")
    passed = abs(ours / theirs - 1) < 1e-9 and sampled.epsilon < renyi.epsilon
    return InstallationCheck(
        "claims against dp-accounting",
        passed,
        f"analytic {ours:.6f} = {theirs:.6f}, PLD {sampled.epsilon:.4f} < RDP {renyi.epsilon:.4f}",
    )


def _mechanism() -> InstallationCheck:
    """One simulated release in ten million dimensions recovers the analytic epsilon."""
    sigma, delta = 1.0, 1e-5
    found = estimate_gaussian(
        simulate_gaussian_mechanism(10_000_000, 1000, sigma, seed=0), delta=delta, confidence=1 - FALSE_ALARM
    )
    truth = claim(Once(), noise_multiplier=sigma, delta=delta).epsilon
    return InstallationCheck(
        "estimate of a Gaussian release", found.low < truth < found.high, f"{found.epsilon:.3f}, analytic {truth:.3f}"
    )


def _null_rate(name: str, exact: bool) -> InstallationCheck:
    """With no leakage at all, a 95 % bound may exceed zero in 5 % of audits."""
    case = Case(name, epsilon=0.0, canaries=_CANARIES, exact_null=exact, confidence=_CONFIDENCE)
    alarms = false_statements(case, _AUDITS)
    limit = next(count for count in range(_AUDITS) if special.bdtrc(count, _AUDITS, 1 - _CONFIDENCE) < FALSE_ALARM)
    seen = f"{alarms} alarms in {_AUDITS} audits without leakage, {limit} allowed"
    return InstallationCheck(f"no false alarms: {name}, {'exact' if exact else 'held-out'} null", alarms <= limit, seen)
