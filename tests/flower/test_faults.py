"""Three ways a correct-looking application loses its privacy: each is convicted by one audited run, and its repair is not."""

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord
from flwr.clientapp.mod import LocalDpMod

from coalmine.adapters.flower import Audit, Replies, Statement

CLIENTS, ROUNDS, POOL = 60, 20, 400


def new_audit(seed, **options):
    return Audit(
        **{
            "delta": 1e-5,
            "rounds": ROUNDS,
            "pool": POOL,
            "secret_seed": seed,
            "statement": Statement(unused_rows=2000),
            **options,
        }
    )


@pytest.mark.parametrize(("largest", "word"), [(80, "VIOLATED"), (2, "not")])
def test_weighting_by_the_number_of_examples(digits, largest, word):
    """Noise is scaled for a share of 1/n, and a client with many examples has a larger one."""
    audit = new_audit(21)
    app = digits.client_app(num_examples=lambda partition: largest if partition == 7 else 2)
    result = digits.train(digits.fixed_clipping(audit, 1.0, clients=CLIENTS), audit, app, clients=CLIENTS)
    assert (result.verdict.word == "VIOLATED") == (word == "VIOLATED")
    assert result.claim.epsilon == pytest.approx(4.377, abs=1e-3)


def test_the_largest_number_of_examples_may_be_given(digits, tmp_path):
    audit = new_audit(22, replies=Replies(examples=500), out=tmp_path / "audit")
    result = digits.train(digits.fixed_clipping(audit, 1.0, clients=CLIENTS), audit, clients=CLIENTS)
    assert result.verdict.word == "VIOLATED"
    assert '"canary_weight": 500' in (tmp_path / "audit" / "events.jsonl").read_text()


@pytest.mark.parametrize(("sensitivity", "word"), [(1e-4, "VIOLATED"), (0.3, "not")])
def test_local_noise_for_a_sensitivity_below_the_clip_norm(digits, sensitivity, word):
    audit = new_audit(23)
    mod = LocalDpMod(clipping_norm=0.3, sensitivity=sensitivity, epsilon=10.0, delta=1e-5)
    result = digits.train(digits.fed_avg(), audit, mods=[mod])
    assert result.claim.epsilon == 10.0
    assert "LocalDpMod" in result.claim.accountant
    assert result.verdict.word != "CONSISTENT"  # the noise of all replies adds up: half of it would not be noticed
    assert (result.verdict.word == "VIOLATED") == (word == "VIOLATED")


class ClippedMean:
    """What a server can do that sees only the mean of the clients, as under secure aggregation."""

    def clipped(self, before, arrays):
        moved = {name: arrays[name].numpy() - before[name].numpy() for name in before}
        size = np.sqrt(sum(float(np.square(part, dtype=np.float64).sum()) for part in moved.values()))
        scale = min(1.0, self.clipping_norm / size)
        spread = self.noise_multiplier * self.clipping_norm / self.num_sampled_clients
        return ArrayRecord(
            {
                name: Array((before[name].numpy() + scale * part + np.random.normal(0, spread, part.shape)).astype(np.float32))
                for name, part in moved.items()
            }
        )


def test_clipping_the_mean(digits):
    audit = new_audit(24)

    class Strategy(ClippedMean, digits.FedAvg):
        noise_multiplier, clipping_norm, num_sampled_clients = 1.0, 0.3, CLIENTS + audit.places

        def configure_train(self, server_round, arrays, config, grid):
            self.before = arrays
            return super().configure_train(server_round, arrays, config, grid)

        def aggregate_train(self, server_round, replies):
            arrays, metrics = super().aggregate_train(server_round, replies)
            return self.clipped(self.before, arrays), metrics

    strategy = Strategy(fraction_evaluate=0.0, min_train_nodes=CLIENTS, min_available_nodes=CLIENTS)
    result = digits.train(strategy, audit, clients=CLIENTS)
    assert result.setting["view"] == "known-rounds"
    assert result.verdict.word == "VIOLATED"
