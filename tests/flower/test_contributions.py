"""Replies beside what was averaged of them, and who was asked: the sentences of clipping, of equal treatment and of cohorts."""

import random

import numpy as np
import pytest
from flwr.clientapp.mod import fixedclipping_mod
from flwr.serverapp.strategy import DifferentialPrivacyClientSideFixedClipping, FedAvg, dp_fixed_clipping

from coalmine.adapters.flower import Audit, Statement
from coalmine.adapters.flower.contributions import watched

ROUNDS, POOL = 8, 160
SEED = 918_273_645  # of Flower's noise: not one that is guessed


def new_audit():
    return Audit(delta=1e-5, rounds=ROUNDS, pool=POOL, secret_seed=31, statement=Statement(unused_rows=1000))


def run(digits, strategy, audit, **options):
    digits.seed(SEED)
    return digits.train(strategy, audit, **options)


def test_a_correct_application_is_tested_sentence_by_sentence(digits):
    audit = new_audit()
    result = run(digits, digits.fixed_clipping(audit, 1.0), audit)
    found = result.conformance
    assert [each.key for each in found.not_tested] == ["quantile-noise"] and not found.deviations
    assert found.finding("treated-alike").details["contributions"] == ROUNDS * (digits.CLIENTS + audit.places)
    assert found.finding("clipping").measured == pytest.approx(1, abs=1e-4)
    assert (result.verdict.word, result.verdict.code) == ("CONSISTENT", "conforms")


def test_clients_that_weigh_more_are_not_treated_alike(digits):
    audit = new_audit()
    app = digits.client_app(num_examples=lambda partition: 3 if partition == 7 else 2)
    found = run(digits, digits.fixed_clipping(audit, 1.0), audit, app=app).conformance
    assert found.finding("treated-alike").side == "less" and found.finding("clipping").side == "less"


def test_clipping_that_is_a_tenth_too_wide_is_found(digits, monkeypatch):
    right = dp_fixed_clipping.compute_clip_model_update

    def wide(param1, param2, clipping_norm):
        return right(param1, param2, 1.1 * clipping_norm)

    monkeypatch.setattr(dp_fixed_clipping, "compute_clip_model_update", wide)
    audit = new_audit()
    found = run(digits, digits.fixed_clipping(audit, 1.0), audit).conformance
    assert found.finding("clipping").side == "less" and found.finding("clipping").measured == pytest.approx(1.1, abs=1e-3)


def test_where_clients_clip_canaries_show_it(digits):
    """What a client had before its own clipping nobody else sees; of canaries both are known."""
    audit = new_audit()
    strategy = DifferentialPrivacyClientSideFixedClipping(
        digits.fed_avg(), noise_multiplier=1.0, clipping_norm=0.3, num_sampled_clients=digits.CLIENTS + audit.places
    )
    found = run(digits, strategy, audit, mods=[fixedclipping_mod]).conformance
    assert not found.deviations and found.finding("treated-alike").details["contributions"] > 0


@pytest.mark.parametrize("always", [False, True])
def test_cohorts_of_fed_avg_are_drawn_by_chance(digits, monkeypatch, always):
    if always:
        monkeypatch.setattr(random, "sample", lambda nodes, size: sorted(nodes)[:size])
    audit, clients = new_audit(), 40
    inner = FedAvg(fraction_train=0.5, fraction_evaluate=0.0, min_train_nodes=20, min_available_nodes=clients)
    found = run(digits, digits.fixed_clipping(audit, 1.0, clients=20, inner=inner), audit, clients=clients).conformance
    assert found.finding("cohorts").deviates == always
    assert (found.finding("cohorts").claimed, found.finding("cohorts").measured) == (20, 20)


def test_a_strategy_is_watched_for_one_round_and_left_as_it_was():
    class Plain:
        def aggregate_train(self, server_round, replies):
            return len(replies)

    class Reply:
        def has_content(self):
            return True

    strategy, replies = Plain(), [Reply(), Reply()]
    with watched(strategy) as seen:
        assert strategy.aggregate_train(1, iter(replies)) == 2
    assert seen == replies and not vars(strategy)
    assert np.array_equal([strategy.aggregate_train(2, replies)], [2])
