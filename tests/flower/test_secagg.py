"""Secure aggregation (SecAgg+): canaries are clients, the server sees the mean alone, and the audit sees the same."""

import random

import numpy as np
import pytest
from flwr.app import Context, RecordDict
from flwr.client import NumPyClient
from flwr.client.mod import fixedclipping_mod, secaggplus_mod
from flwr.clientapp import ClientApp
from flwr.common import ndarrays_to_parameters
from flwr.server import LegacyContext, ServerConfig
from flwr.server.strategy import (
    DifferentialPrivacyClientSideFixedClipping,
    DifferentialPrivacyServerSideFixedClipping,
    FedAvg,
)
from flwr.server.workflow import DefaultWorkflow, SecAggPlusWorkflow

from coalmine import Scores
from coalmine.adapters.flower import Audit, LocalGrid, Statement, audited_legacy, canary_mod, last_partitions
from coalmine.errors import MismatchError

CLIENTS, CANARIES, ROUNDS, CLIP = 6, 24, 3, 0.3
TOGETHER = CLIENTS + CANARIES


class Client(NumPyClient):
    def __init__(self, digits, partition):
        self.digits, self.own = digits, digits.EXAMPLES[partition % len(digits.EXAMPLES)]

    def fit(self, parameters, config):
        names = list(self.digits.initial_arrays())
        before = self.digits.ArrayRecord(
            {name: self.digits.Array(value) for name, value in zip(names, parameters, strict=True)}
        )
        return self.digits.local_step(before, self.own, 0.2).to_numpy_ndarrays(), 1, {}


def run(digits, kind, noise, *, secure, clips_on_clients, seed=3, asked=TOGETHER, **options):
    digits.seed(seed)
    audit = Audit(delta=1e-5, rounds=ROUNDS, pool=CANARIES, statement=Statement(unused_rows=4000), secret_seed=41, **options)

    def client_fn(context):
        return Client(digits, int(context.node_config["partition-id"])).to_client()

    clipping = [fixedclipping_mod] if clips_on_clients else []
    canaries = canary_mod(audit, who=last_partitions(CANARIES), clip_norm=CLIP, labelled=False)
    app = ClientApp(client_fn, mods=[*([secaggplus_mod] if secure else []), *clipping, canaries])
    initial = ndarrays_to_parameters(digits.initial_arrays().to_numpy_ndarrays())
    inner = FedAvg(
        fraction_fit=asked / TOGETHER,
        fraction_evaluate=0.0,
        min_fit_clients=asked,
        min_available_clients=TOGETHER,
        initial_parameters=initial,
    )
    strategy = audited_legacy(kind(inner, noise, CLIP, TOGETHER), audit)
    nobody = Context(run_id=1, node_id=0, node_config={}, state=RecordDict(), run_config={})
    context = LegacyContext(nobody, config=ServerConfig(num_rounds=ROUNDS), strategy=strategy)
    workflow = SecAggPlusWorkflow(num_shares=5, reconstruction_threshold=3, max_weight=2.0) if secure else None
    random.seed(seed)
    DefaultWorkflow(fit_workflow=workflow)(LocalGrid(app, TOGETHER), context)
    return audit


def mean_score(result):
    estimate = next(each for each in result.estimates if each.key == "gaussian-mean")
    return estimate.details["mean"], 1 / np.sqrt(estimate.details["count"])


def test_the_same_is_seen_with_and_without_secure_aggregation(digits):
    found = []
    for secure in (False, True):
        kind = DifferentialPrivacyClientSideFixedClipping
        result = run(digits, kind, 0.5, secure=secure, clips_on_clients=True, seed=5 + secure).result
        assert result.setting["view"] == "known-rounds"
        assert result.game.participation == f"{ROUNDS} times"
        assert result.verdict.word != "VIOLATED"
        found.append(mean_score(result))
    (clear, error), (masked, _) = found
    assert abs(masked - clear) <= 3 * np.sqrt(2) * error  # false alarm 0.3 %; seeds are fixed
    assert masked > 3 * error  # and it is not nothing


def test_masks_take_nothing_from_any_canary(digits, tmp_path):
    """Without noise the score of every canary is the same with masks and without, up to the masks' whole numbers."""
    for secure in (False, True):
        out = tmp_path / f"secure {secure}"
        kind = DifferentialPrivacyClientSideFixedClipping
        run(digits, kind, 0.0, secure=secure, clips_on_clients=True, out=out).result  # noqa: B018
    clear, masked = (Scores.from_npz(tmp_path / f"secure {secure}" / "scores.npz") for secure in (False, True))
    assert (clear.inserted == masked.inserted).all()
    assert masked.value == pytest.approx(clear.value, abs=1e-3 * clear.inserted_values.mean())
    assert clear.inserted_values.mean() > 0


def test_clipping_on_a_server_that_sees_only_the_mean_is_found(digits):
    audit = run(digits, DifferentialPrivacyServerSideFixedClipping, 1.0, secure=True, clips_on_clients=False)
    assert audit.result.verdict.word == "VIOLATED"


def test_without_secure_aggregation_the_same_strategy_clips_every_client(digits):
    audit = run(digits, DifferentialPrivacyServerSideFixedClipping, 1.0, secure=False, clips_on_clients=False)
    assert audit.result.verdict.word != "VIOLATED"


def test_a_cohort_that_does_not_count_the_canaries_is_refused(digits):
    def kind(inner, noise, clip, together):
        return DifferentialPrivacyClientSideFixedClipping(inner, noise, clip, together - CANARIES)

    with pytest.raises(MismatchError, match=f"canaries among them.*num_sampled_clients={TOGETHER}"):
        run(digits, kind, 0.5, secure=False, clips_on_clients=True)


def test_clients_that_are_not_asked_are_a_note(digits):
    def kind(inner, noise, clip, together):
        return DifferentialPrivacyClientSideFixedClipping(inner, noise, clip, TOGETHER - 2)

    result = run(digits, kind, 0.5, secure=False, clips_on_clients=True, asked=TOGETHER - 2).result
    assert any(caveat.startswith("canaries: not all clients were asked") for caveat in result.caveats)
