"""What would have been noticed where nobody knows the clients: never more than is true, and more than nothing.

The promise of a run rests on what hides its canaries. Clients that are not known may point the same way in every round, and a
release does not tell them from noise.
"""

from dataclasses import replace

import numpy as np
import pytest
from flwr.serverapp.strategy import FedAdam
from scipy.stats import norm

from coalmine import gaussian_epsilon
from coalmine.audit import application as app
from coalmine.audit.application import Application, as_it_was, described
from coalmine.audit.attached import AttachedAudit
from coalmine.audit.spec import Statement
from coalmine.views import Hiding, KnownRounds, norms_of_unknown_clients

FALSE_ALARM = 1e-6
DIM, POOL, ROUNDS, CLIP, NOISE, DELTA = 4000, 200, 6, 0.5, 1.0, 1e-5


def new_audit(**options):
    task = {"delta": DELTA, "rounds": ROUNDS, "pool": POOL, "secret_seed": 71, "statement": Statement(unused_rows=2000)}
    return AttachedAudit(**{**task, **options})


def application(noise=NOISE):
    return Application(
        name="test",
        engine="none",
        initial=np.zeros(DIM, np.float32),
        groups={"all": slice(0, DIM)},
        description=described(CLIP, noise),
        knows_others=False,
    )


def observed(audit, number, vector, clients, releases=1):
    """A sum of `releases`, in clip norms, as an adapter would hand it over: all canaries are in all of them."""
    together = float(clients + POOL)
    return app.observed(
        number,
        np.asarray(vector) * CLIP / together,
        clip_norm=CLIP,
        denominator=together,
        clients=clients,
        inserted=int(audit.schedule.inserted.sum()),
        places=POOL,
        assigned=np.tile(np.arange(POOL), releases),
        releases=releases,
    )


def records_of(audit, sums, clients, *, noise=NOISE, releases=1):
    """Records of rounds whose clients' sums have these lengths, and whose noise is exactly as long as it should be."""
    inserted, found = int(audit.schedule.inserted.sum()), []
    for number, size in enumerate(sums):
        square = size**2 + releases * noise**2 * DIM + releases**2 * inserted
        found.append(
            {"round": number, "kept_share": 1.0, **observed(audit, number, [np.sqrt(square)], clients, releases).record}
        )
    return found


def promised(audit, records, factor, noise=NOISE):
    realised = {each["round"]: np.tile(np.arange(POOL), each["releases"]) for each in records}
    setup = replace(audit.setup(DIM), schedule=as_it_was(audit.schedule, realised))
    return KnownRounds().visible(Hiding(records, setup, noise, DELTA, independent=False))(factor)


def epsilon_of(effect):
    return pytest.approx(float(gaussian_epsilon(0, 1, effect, 1, DELTA)), rel=1e-4)


@pytest.mark.parametrize("size", [0.0, 20.0, 60.0])
@pytest.mark.parametrize("factor", [1.0, 2.0])
def test_clients_may_point_the_same_way_in_all_rounds(size, factor):
    audit = new_audit()
    records = records_of(audit, [size] * ROUNDS, clients=int(size))
    assert norms_of_unknown_clients(records, NOISE, DIM) == pytest.approx([size] * ROUNDS, abs=1e-5)
    assert "clients_norm" not in records[0]
    effect = np.sqrt(ROUNDS / ((NOISE / factor) ** 2 + ROUNDS * size**2 / DIM))
    assert promised(audit, records, factor) == epsilon_of(effect)


def test_a_sum_of_releases_promises_as_much_as_they_do_one_by_one():
    audit, size = new_audit(), 20.0
    one_by_one = records_of(audit, [size] * ROUNDS, clients=20)
    together = records_of(audit, [ROUNDS * size], clients=20, releases=ROUNDS)
    for factor in (1.0, 2.0, 10.0):
        assert promised(audit, together, factor) == pytest.approx(promised(audit, one_by_one, factor), rel=1e-4)


@pytest.mark.parametrize("factor", [1.5, 2.0, 4.0])
def test_clients_that_fill_up_what_the_noise_lacks_are_allowed_for(factor):
    """The release is as long as with all its noise, and half of it would be hidden: nothing may be promised beyond that."""
    audit, lacking = new_audit(), DIM * NOISE**2 * (1 - 1 / factor**2)
    records = records_of(audit, [np.sqrt(lacking)] * ROUNDS, clients=1000, noise=NOISE / factor)
    assert norms_of_unknown_clients(records, NOISE, DIM) == pytest.approx([0.0] * ROUNDS, abs=0.01)
    shown = np.sqrt(ROUNDS / ((NOISE / factor) ** 2 + ROUNDS * lacking / DIM))
    assert promised(audit, records, factor) <= float(gaussian_epsilon(0, 1, shown, 1, DELTA)) * (1 + 1e-6)


def test_releases_that_are_shorter_than_their_noise_promise_nothing():
    audit = new_audit()
    assert promised(audit, records_of(audit, [0.0] * ROUNDS, clients=20, noise=0.5), 2.0) == 0.0


@pytest.mark.parametrize("same", [True, False], ids=["one direction", "a new one in every round"])
def test_what_hides_the_canaries_is_as_long_as_estimated(same):
    """Releases with known contents through the whole audit; the mean score is off in 1e-6 of runs."""
    audit, rng, size, clients = new_audit(), np.random.default_rng(5), 60.0, 60
    audit.begin(application())
    canaries = sum(audit.update(int(i), 1e-4, DIM) for i in np.flatnonzero(audit.schedule.inserted))  # 1e4 times over-long
    direction = rng.standard_normal(DIM)
    for number in range(ROUNDS):
        direction = direction if same else rng.standard_normal(DIM)
        others = size * direction / np.linalg.norm(direction)
        audit.observe(observed(audit, number, canaries + others + NOISE * rng.standard_normal(DIM), clients))
    result = audit.result
    estimate = next(each for each in result.estimates if each.key == "gaussian-mean")
    limit = -norm.ppf(FALSE_ALARM / 2) / np.sqrt(estimate.details["count"])
    covered = ROUNDS if same else 1
    assert abs(estimate.details["mean"] - np.sqrt(ROUNDS / (NOISE**2 + covered * size**2 / DIM))) <= limit
    assert result.training["mean_clients_norm"] == pytest.approx(size, rel=0.05)
    assert result.verdict.word == "INCONCLUSIVE"


def test_what_a_strategy_keeps_of_a_canary_is_measured(digits):
    """An optimiser on the server shrinks canaries before the noise: whoever sees a tenth of them promises little."""
    audit = new_audit(rounds=10, pool=300, presentations=4)
    inner = FedAdam(fraction_evaluate=0.0, min_train_nodes=5, min_available_nodes=5, eta=0.001)
    result = digits.train(digits.fixed_clipping(audit, 1.0, clients=5, inner=inner), audit, clients=5)
    assert result.verdict.word == "INCONCLUSIVE"
    assert result.verdict.power.half_noise_epsilon < result.claim.epsilon


def test_an_application_whose_clients_nobody_knows_may_be_consistent(digits):
    """Few clients in many parameters hide little: with enough canaries half the noise would have been noticed."""

    class Own(digits.FedAvg):
        def aggregate_train(self, server_round, replies):
            return super().aggregate_train(server_round, replies)

    audit, clients = new_audit(rounds=10, pool=700, presentations=4), 5
    inner = Own(fraction_evaluate=0.0, min_train_nodes=clients, min_available_nodes=clients)
    result = digits.train(digits.fixed_clipping(audit, 1.0, clients=clients, inner=inner), audit, clients=clients)
    assert result.setting["view"] == "known-rounds"
    assert result.verdict.word == "CONSISTENT"
    assert "of its claimed strength" in result.verdict.reason
    assert result.training["mean_clients_norm"] < 4 * clients  # the release itself has a length of z·sqrt(d) = 85
