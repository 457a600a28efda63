"""Water-filling noise under Flower's SecAgg+, end to end: the client app adds it, the server's mean is the clear one."""

import math
import random
from functools import partial

import numpy as np
import pytest
from flwr.app import Context, RecordDict
from flwr.client import NumPyClient
from flwr.client.mod import secaggplus_mod
from flwr.clientapp import ClientApp
from flwr.common import ndarrays_to_parameters, parameters_to_ndarrays
from flwr.server import LegacyContext, ServerConfig
from flwr.server.strategy import FedAvg
from flwr.server.workflow import DefaultWorkflow, SecAggPlusWorkflow

from coalmine import Scores, audit_scores, claim_waterfilling
from coalmine._random import stream
from coalmine.accounting.water_filling import example_game
from coalmine.adapters.flower import LocalGrid
from coalmine.adapters.flower.quantisation import check_quantisation, rounding_step
from coalmine.canaries.aimed import aimed_directions
from coalmine.mechanisms import FullGradient, WaterFilling
from coalmine.nulls import GaussianNull
from coalmine.views.whitened import filters_of

USERS, EXAMPLES, BATCH, CLIP, ROUNDS, CLASSES, DELTA = 10, 80, 20, 1.0, 5, 9, 1e-4
FLOOR, SHARES = 0.002, {"num_shares": 5, "reconstruction_threshold": 3, "max_weight": 2.0}
DIM = CLASSES * 65


@pytest.fixture(scope="module")
def records(request):
    """Clipped softmax gradients at the zero model, of each user, one of which a canary of its own direction will replace."""
    from coalmine import data

    found, rows = data.read("digits", group=EXAMPLES), []
    for user in found.users[:USERS]:
        own = found.examples_of(user)
        features = np.hstack([own.features.reshape(EXAMPLES, -1), np.ones((EXAMPLES, 1))])
        back = 0.1 - (own.targets[:, None] == np.arange(CLASSES))
        gradients = (back[:, :, None] * features[:, None, :]).reshape(EXAMPLES, -1)
        rows.append(gradients / np.maximum(np.linalg.norm(gradients, axis=1, keepdims=True), CLIP))
    return rows


def lifted(rows):
    values, vectors = np.linalg.eigh(rows.T @ rows / (BATCH * EXAMPLES))
    return (vectors * np.maximum(values, FLOOR)) @ vectors.T


class Keeping(FedAvg):
    """FedAvg that keeps what secure aggregation delivers; what clients return are updates, so it starts anew every round."""

    def __init__(self, **options):
        super().__init__(**options)
        self.delivered = []

    def aggregate_fit(self, server_round, results, failures):
        found = super().aggregate_fit(server_round, results, failures)
        self.delivered.append(parameters_to_ndarrays(found[0])[0])
        return ndarrays_to_parameters([np.array([float(server_round)])]), {}


def delivered(mechanism, rows_of, seed):
    """(what the server gets, what it would get in the clear) of every round."""
    clear = np.zeros((ROUNDS, DIM))

    class Client(NumPyClient):
        def __init__(self, user):
            self.user = user

        def fit(self, parameters, config):
            number = int(parameters[0][0])
            public = mechanism.announce({}, number, float(USERS))
            own = rows_of(number, self.user)
            secret = partial(stream, seed, "node", number, self.user)
            sent = mechanism.client(own[0], public, EXAMPLES, own=own, secret=secret).vector
            clear[number] += sent / USERS
            return [sent], 1, {}

    app = ClientApp(lambda context: Client(int(context.node_config["partition-id"])).to_client(), mods=[secaggplus_mod])
    strategy = Keeping(
        fraction_evaluate=0.0,
        min_fit_clients=USERS,
        min_available_clients=USERS,
        initial_parameters=ndarrays_to_parameters([np.array([0.0])]),
    )
    nobody = Context(run_id=1, node_id=0, node_config={}, state=RecordDict(), run_config={})
    context = LegacyContext(nobody, config=ServerConfig(num_rounds=ROUNDS), strategy=strategy)
    random.seed(seed)
    np.random.seed(seed)
    DefaultWorkflow(fit_workflow=SecAggPlusWorkflow(**SHARES))(LocalGrid(app, USERS), context)
    return np.array(strategy.delivered), clear


def audited(mechanism, records, seed):
    """Canaries in one record of each user and round, in the least-noise directions, by coins; what the server got is scored."""
    total = sum(lifted(rows) for rows in records)
    directions = aimed_directions(total, USERS, "least")
    coins = stream(seed, "coins").random((ROUNDS, USERS)) < 0.5

    def rows_of(number, user):
        rows = records[user].copy()
        rows[0] = (CLIP if coins[number, user] else -CLIP) * directions[:, user]
        return rows

    found, clear = delivered(mechanism, rows_of, seed)
    planted = sum(lifted(np.vstack([rows[1:], CLIP * directions[:, user]])) for user, rows in enumerate(records))
    filters = filters_of(planted, directions)
    known = sum(rows[1:].sum(axis=0) for rows in records) / EXAMPLES
    signs = np.where(coins, 1.0, -1.0)
    values = []
    for number, mean in enumerate(found):
        for user in range(USERS):
            others = directions @ (signs[number] * (np.arange(USERS) != user)) * CLIP / EXAMPLES
            minus = -CLIP / EXAMPLES * directions[:, user]
            values.append(filters[:, user] @ (mean * USERS - known - others - minus))
    law = GaussianNull(1.0) if mechanism.weights == "gaussian" else None
    scores = Scores(
        np.array(values), coins.ravel(), assignment="coins", null=law, view="the sum", game=example_game("replace-one", 1)
    )
    return scores, found, clear


def claim():
    return claim_waterfilling(users=USERS, examples=EXAMPLES, batch=BATCH, clip_norm=CLIP, floor=FLOOR, delta=DELTA)


def test_the_server_gets_the_clear_sum_within_rounding_and_the_audit_agrees(records):
    mechanism = WaterFilling(CLIP, FLOOR, EXAMPLES, USERS, BATCH)
    words = check_quantisation(math.sqrt(FLOOR), [1] * USERS, largest=CLIP, max_weight=2.0)
    assert "not a Gaussian sum exactly" in words
    scores, found, clear = audited(mechanism, records, 3)
    step = rounding_step(1, max_weight=2.0)
    assert found.shape == (ROUNDS, DIM) and np.abs(found - clear).max() <= step
    result = audit_scores(scores, delta=DELTA, claim=claim())
    assert result.verdict.word != "VIOLATED"


def test_forgotten_noise_is_seen_through_secure_aggregation(records):
    scores, _, _ = audited(FullGradient(CLIP, 0.0, EXAMPLES, USERS), records, 4)
    inserted, held_out = scores.inserted_values, scores.held_out_values
    assert inserted.min() > held_out.max()  # nothing hides a canary
    assert audit_scores(scores, delta=DELTA, claim=claim()).bound.epsilon > 1


@pytest.mark.parametrize(
    ("noise", "examples", "options", "words"),
    [
        (0.003, [100, 101], {}, "same num_examples"),
        (0.003, [2000, 2000], {}, "above max_weight"),
        (50.0, [1000, 1000], {}, "lose its tails"),
        (0.0003, [100, 100], {}, "at least 100 steps"),
    ],
)
def test_traps_of_the_rounding_are_refused(noise, examples, options, words):
    with pytest.raises(ValueError, match=words):
        check_quantisation(noise, examples, **options)
