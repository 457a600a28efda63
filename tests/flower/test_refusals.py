"""Where an audit would be wrong it refuses, before or in the first round, and names the remedy."""

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord
from flwr.serverapp.strategy import DifferentialPrivacyClientSideFixedClipping, DifferentialPrivacyServerSideFixedClipping

from coalmine.adapters.flower import Audit, LocalGrid, Stated, Statement, audited
from coalmine.errors import MismatchError, NotEnoughCanariesError, RunDirectoryError


def small_audit(**options):
    return Audit(
        **{"delta": 1e-5, "rounds": 3, "pool": 30, "secret_seed": 1, "statement": Statement(unused_rows=500), **options}
    )


def test_canary_replies_in_accounted_mode(digits):
    audit = small_audit()
    strategy = DifferentialPrivacyServerSideFixedClipping(digits.fed_avg(), 1.0, 0.3, 30, accountant=digits.accountant())
    with pytest.raises(MismatchError, match=r"exactly as many.*canary_mod.*accountant=None"):
        audited(strategy, audit)


def test_a_cohort_size_that_does_not_count_the_canaries(digits):
    audit = small_audit()
    strategy = DifferentialPrivacyServerSideFixedClipping(digits.fed_avg(), 1.0, 0.3, digits.CLIENTS)
    with pytest.raises(
        MismatchError, match=r"num_sampled_clients=20 does not count.*20 clients.*adds 10.*num_sampled_clients=30"
    ):
        digits.train(strategy, audit)


def test_clipping_on_clients_without_their_mods(digits):
    strategy = DifferentialPrivacyClientSideFixedClipping(digits.fed_avg(), 1.0, 0.3, 30)
    with pytest.raises(MismatchError, match=r"leaves clipping to the clients.*mods=\[fixedclipping_mod\]"):
        audited(strategy, small_audit())


def test_a_strategy_that_hides_the_aggregate(digits):
    class Hiding(digits.FedAvg):
        def aggregate_train(self, server_round, replies):
            arrays, metrics = super().aggregate_train(server_round, replies)
            return ArrayRecord({"norm": Array(np.zeros(3, np.float32))}) if arrays else arrays, metrics

    inner = Hiding(fraction_evaluate=0.0, min_train_nodes=20, min_available_nodes=20)
    with pytest.raises(MismatchError, match=r"hides the aggregate.*Wrap the strategy that returns"):
        digits.train(inner, small_audit(stated=Stated(clip_norm=1.0, noise_multiplier=1.0)))


def test_a_strategy_that_says_nothing(digits):
    with pytest.raises(MismatchError, match=r"does not say its clip norm.*Stated\(clip_norm="):
        digits.train(digits.fed_avg(), small_audit())


def test_another_number_of_rounds(digits):
    audit = small_audit()
    wrapped = audited(digits.fixed_clipping(audit, 1.0), audit)
    with pytest.raises(MismatchError, match=r"num_rounds=5.*3 rounds.*Audit\(rounds=5\)"):
        wrapped.start(LocalGrid(digits.client_app(), 20), digits.initial_arrays(), 5)


def test_one_audit_for_one_training(digits):
    audit = small_audit()
    digits.train(digits.fixed_clipping(audit, 1.0), audit)
    with pytest.raises(MismatchError, match=r"one audit is for one training"):
        digits.train(digits.fixed_clipping(audit, 1.0), audit)


def test_more_canaries_than_the_model_has_room_for(digits):
    audit = small_audit(pool=4000)
    with pytest.raises(NotEnoughCanariesError, match=r"4000 canaries.*7210"):
        digits.train(digits.fixed_clipping(audit, 1.0), audit)


def test_a_view_that_must_know_the_clients(digits):
    class Own(digits.FedAvg):
        def aggregate_train(self, server_round, replies):
            return super().aggregate_train(server_round, replies)

    audit = small_audit(statement=Statement(view="known-others"))
    inner = Own(fraction_evaluate=0.0, min_train_nodes=20, min_available_nodes=20)
    with pytest.raises(MismatchError, match=r"must know what the clients sent.*view='known-rounds'"):
        digits.train(digits.fixed_clipping(audit, 1.0, inner=inner), audit)


@pytest.mark.parametrize(
    "wrong",
    [
        {"delta": 2.0},
        {"pool": 3},
        {"pool": 0},
        {"statement": {"view": "auto"}},
        {"statement": Statement(view="all")},
        {"statement": Statement(bound="pointwise")},
        {"rounds": 0},
    ],
)
def test_arguments_are_checked_at_once(wrong):
    with pytest.raises(ValueError):
        small_audit(**wrong)


def test_noise_that_nobody_states(digits):
    with pytest.raises(MismatchError, match=r"does not say its noise.*Stated\(claim="):
        digits.train(digits.fed_avg(), small_audit(stated=Stated(clip_norm=1.0)))


def test_an_audit_is_for_one_training(digits):
    audit = small_audit()
    strategy, grid = digits.audited(digits.fixed_clipping(audit, 1.0), audit), LocalGrid(digits.client_app(), digits.CLIENTS)
    strategy.start(grid=grid, initial_arrays=digits.initial_arrays(), num_rounds=3)
    with pytest.raises(MismatchError, match="has trained already"):
        strategy.start(grid=grid, initial_arrays=digits.initial_arrays(), num_rounds=3)


def test_a_directory_that_is_not_empty(digits, tmp_path):
    (tmp_path / "notes").touch()
    with pytest.raises(RunDirectoryError, match=r"Give Audit\(out=...\) another one"):
        digits.train(digits.fixed_clipping(small_audit(), 1.0), small_audit(out=tmp_path))


def test_looking_before_the_end_changes_nothing(digits):
    results = []
    for look in (False, True):
        audit = small_audit()
        digits.seed(5)
        strategy = digits.audited(digits.fixed_clipping(audit, 1.0), audit)
        grid, arrays = LocalGrid(digits.client_app(), digits.CLIENTS), digits.initial_arrays()
        for number in (1, 2, 3):
            replies = grid.send_and_receive(strategy.configure_train(number, arrays, digits.ConfigRecord(), grid))
            arrays, _ = strategy.aggregate_train(number, replies)
            if look and number < 3:
                assert any(caveat.startswith(f"rounds: {number} of 3") for caveat in audit.result.caveats)
        results.append(audit.result)
    assert results[0].to_json() == results[1].to_json()


def test_nothing_to_conclude_before_training():
    with pytest.raises(MismatchError, match=r"audited\(strategy, audit\)"):
        small_audit().result  # noqa: B018


def test_mods_are_callables(digits):
    with pytest.raises(ValueError, match="callables"):
        audited(digits.fed_avg(), small_audit(), mods=["fixedclipping"])
