"""A correct application shows the epsilon of the analysis, to whoever knows the others; to the others, what the clients hide.

A mean of k standardised scores is normal with standard deviation 1/sqrt(k) around the effect, hence the limits.
"""

import json

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord
from flwr.clientapp.mod import adaptiveclipping_mod, fixedclipping_mod
from flwr.serverapp.strategy import (
    DifferentialPrivacyClientSideAdaptiveClipping,
    DifferentialPrivacyClientSideFixedClipping,
    DifferentialPrivacyServerSideAdaptiveClipping,
    FedAdam,
)
from scipy.stats import norm

from coalmine import gaussian_epsilon
from coalmine._random import stream
from coalmine.adapters.flower import Audit, LocalGrid, Statement, audited

FALSE_ALARM = 1e-6
ROUNDS, POOL, DELTA = 20, 400, 1e-5


def new_audit(seed, **options):
    return Audit(delta=DELTA, rounds=ROUNDS, pool=POOL, secret_seed=seed, statement=Statement(unused_rows=2000), **options)


def mean_only(estimates):
    return next(each for each in estimates if each.key == "gaussian-mean")


def agrees(estimate, effect):
    limit = -norm.ppf(FALSE_ALARM / 2) / np.sqrt(estimate.details["count"])
    return abs(estimate.details["mean"] - effect) <= limit


def at_least(estimate, effect):
    return estimate.details["mean"] >= effect + norm.ppf(FALSE_ALARM) / np.sqrt(estimate.details["count"])


def known_rounds(result):
    return next(view.estimate for view in result.views if view.view == "known-rounds")


def hidden(noise, path, dim):
    """What is left of the effect for whoever does not know the clients' sum X."""
    return np.mean([1 / np.sqrt(noise**2 + event["clients_norm"] ** 2 / dim) for event in events(path)])


def events(path):
    return [json.loads(line) for line in (path / "events.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("noise", [0.3, 0.6, 1.0, 2.0])
def test_a_correct_application_shows_the_epsilon_of_the_analysis(digits, noise, tmp_path):
    audit = new_audit(seed=11, out=tmp_path / "audit")
    result = digits.train(digits.fixed_clipping(audit, noise), audit)
    assert result.setting["view"] == "known-others"
    assert result.claim.epsilon == pytest.approx(float(gaussian_epsilon(0, 1, 1 / noise, 1, DELTA)))
    assert agrees(mean_only(result.estimates), 1 / noise)
    assert result.verdict.word != "VIOLATED"
    assert at_least(known_rounds(result), hidden(noise, tmp_path / "audit", digits.DIM))  # what sums have in common is no cover


@pytest.mark.parametrize("noise", [0.15, 0.3])
def test_known_rounds_show_what_the_clients_leave(digits, noise, tmp_path):
    """Clients of a round agree with each other and not with those of other rounds: 1/sqrt(noise² + |X|²/d)."""
    audit = new_audit(seed=17, out=tmp_path / "audit")
    common = iter(range(10**9))

    def step(arrays, own, rate):
        rng = stream(3, "direction of the round", next(common) // digits.CLIENTS)
        moved = {name: array.numpy() + rng.standard_normal(array.shape).astype(np.float32) for name, array in arrays.items()}
        return ArrayRecord({name: Array(value) for name, value in moved.items()})

    result = digits.train(digits.fixed_clipping(audit, noise), audit, digits.client_app(step=step))
    expected = hidden(noise, tmp_path / "audit", digits.DIM)
    assert agrees(mean_only(result.estimates), 1 / noise)
    assert agrees(known_rounds(result), expected)
    assert expected < 0.8 / noise  # and that is not the same


@pytest.mark.parametrize("presentations", [4])
def test_presentations_add_up(digits, presentations):
    audit = Audit(
        delta=DELTA, rounds=ROUNDS, pool=100, presentations=presentations, secret_seed=4, statement=Statement(unused_rows=2000)
    )
    assert audit.places == 20
    result = digits.train(digits.fixed_clipping(audit, 1.0), audit)
    assert result.game.participation == "4 times"
    assert agrees(mean_only(result.estimates), 2.0)
    assert result.verdict.word != "VIOLATED"


def test_clipping_on_the_clients_is_that_of_their_mods(digits):
    audit = new_audit(seed=12)
    strategy = DifferentialPrivacyClientSideFixedClipping(
        digits.fed_avg(), noise_multiplier=0.6, clipping_norm=0.3, num_sampled_clients=digits.CLIENTS + audit.places
    )
    result = digits.train(strategy, audit, mods=[fixedclipping_mod])
    assert agrees(mean_only(result.estimates), 1 / 0.6)
    assert result.verdict.word != "VIOLATED"


@pytest.mark.parametrize("side", ["server", "client"])
def test_adaptive_clipping_is_followed(digits, side, tmp_path):
    """Flower scales the noise of a round by the clip norm of the next one: what is measured is that, round by round."""
    audit = new_audit(seed=13, out=tmp_path / "audit")
    kinds = {"server": DifferentialPrivacyServerSideAdaptiveClipping, "client": DifferentialPrivacyClientSideAdaptiveClipping}
    together = digits.CLIENTS + audit.places
    strategy = kinds[side](
        digits.fed_avg(),
        noise_multiplier=0.6,
        num_sampled_clients=together,
        initial_clipping_norm=0.3,
        clipped_count_stddev=2.0,
    )
    result = digits.train(strategy, audit, mods=[adaptiveclipping_mod] if side == "client" else ())
    assert result.claim.description.noise.accounted == pytest.approx(0.6)
    clip = np.array([event["clip_norm"] for event in events(tmp_path / "audit")] + [strategy.clipping_norm])
    assert np.ptp(clip) > 0.01
    effect = np.mean(clip[:-1] / (strategy.noise_multiplier * clip[1:]))
    assert agrees(mean_only(result.estimates), effect)


def test_an_optimiser_on_the_server_leaves_known_rounds(digits):
    audit = new_audit(seed=14)
    inner = FedAdam(fraction_evaluate=0.0, min_train_nodes=20, min_available_nodes=20, eta=0.01)
    result = digits.train(digits.fixed_clipping(audit, 0.6, inner=inner), audit)
    assert result.setting["view"] == "known-rounds"
    assert "known-others" not in [view.view for view in result.views]


def test_canaries_do_not_change_the_metrics(digits):
    """Aggregated metrics are those of the clients alone."""
    audit = new_audit(seed=15)
    strategy = audited(digits.fixed_clipping(audit, 1e-6), audit)
    result = strategy.start(LocalGrid(digits.client_app(), digits.CLIENTS), digits.initial_arrays(), ROUNDS)
    assert result.train_metrics_clientapp[1]["loss"] == pytest.approx(0.5 + (digits.CLIENTS - 1) / 2)
    assert audit.result.claim.epsilon > 1e5


def test_the_number_of_replies_does_not_depend_on_coins(digits):
    counts = []
    for seed in range(3):
        audit = Audit(
            delta=DELTA, rounds=7, pool=50, secret_seed=seed, statement=Statement(unused_rows=500)
        )  # 50 do not fit into 7 rounds evenly
        assert audit.places == 8

        class Counting(digits.FedAvg):
            def aggregate_train(self, server_round, replies):
                counts.append(len(list(replies)))
                return super().aggregate_train(server_round, replies)

        inner = Counting(fraction_evaluate=0.0, min_train_nodes=20, min_available_nodes=20)
        digits.train(digits.fixed_clipping(audit, 1.0, inner=inner), audit)
    assert set(counts) == {28}


def test_half_of_the_noise_is_found(digits):
    """The strategy says 0.8 and adds noise of 0.2: the same as noise divided by too large a number."""
    audit = new_audit(seed=16)
    strategy = digits.fixed_clipping(audit, 0.8)
    honest = strategy._add_noise_to_aggregated_arrays

    def quiet(arrays):
        strategy.noise_multiplier = 0.2
        noisy = honest(arrays)
        strategy.noise_multiplier = 0.8
        return noisy

    strategy._add_noise_to_aggregated_arrays = quiet
    result = digits.train(strategy, audit)
    assert result.verdict.word == "VIOLATED"
    assert agrees(mean_only(result.estimates), 5.0)
