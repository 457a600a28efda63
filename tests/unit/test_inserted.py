"""Canaries that pass through the clients' code as full vectors: enough of a run, spread over it; all if something is wrong."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from coalmine._random import stream
from coalmine.canaries import TransformCanaries
from coalmine.canaries.schedule import Schedule
from coalmine.canaries.setup import CanarySetup
from coalmine.conformance.check import Summed
from coalmine.contracts import Compared, Contribution, Public
from coalmine.mechanisms.distributed import Distributed
from coalmine.mechanisms.gaussian import Gaussian, normals
from coalmine.mechanisms.sums import FixedPointSum
from coalmine.participation import Once, Poisson
from coalmine.training.inserted import ENOUGH, InsertedCanaries

DIM = 600
CLIPPED, SHORT = Compared(3.0, 1.0, 0.0), Compared(0.4, 0.4, 0.0)


class Counting(Gaussian):
    """Writes down how many updates came."""

    def client(self, update, public, examples=1):
        came.append(public.round)
        return super().client(update, public, examples)


class Doubled(Counting):
    """Every third contribution counts twice."""

    def client(self, update, public, examples=1):
        found = super().client(update, public, examples)
        return Contribution(2 * found.vector) if len(came) % 3 == 0 else found


came = []


@pytest.fixture(autouse=True)
def _empty():
    came.clear()


def planting(pattern, rounds, pool=500, mechanism=Counting, **how):
    schedule = Schedule.draw(pattern, pool=pool, rounds=rounds, secret_seed=1)
    setup = CanarySetup(TransformCanaries(DIM, pool, secret_seed=1), schedule, **how)
    used = mechanism(1.0, 1.0)
    return InsertedCanaries(setup, used, used.describe(), {}, partial(stream, 5))


def plant_all(plants, clients=(CLIPPED,)):
    """(total, own inner products, comparisons) of every round."""
    made = []
    for number in range(plants.setup.schedule.rounds):
        total = FixedPointSum(DIM, 1.0)
        made.append(
            (total, *plants.plant(total, plants.setup.schedule.taking_part(number), Public(number, 1.0, 10.0), clients))
        )
    return made


@pytest.mark.parametrize("rounds", [1, 7, 64, 2000])
def test_a_run_sends_ninety_canaries_as_full_vectors_spread_over_its_rounds(rounds):
    made = plant_all(planting(Once(), rounds))
    assert len(came) == ENOUGH and sum(len(compared) for *_, compared in made) == ENOUGH
    thirds = np.histogram(came, 3, (0, rounds))[0] if rounds > 7 else [ENOUGH // 3]
    assert min(thirds) >= ENOUGH // 3 - 5


def test_few_canaries_are_all_sent():
    plants = planting(Once(), 20, pool=60)
    plant_all(plants)
    assert len(came) == int(plants.setup.schedule.inserted.sum()) < ENOUGH


def test_which_ones_depends_on_the_secret_alone():
    first = planting(Poisson(0.2, 50), 50)
    other = InsertedCanaries(first.setup, first.mechanism, first.described, {}, partial(stream, 6))
    assert first._chosen[1].tolist() == planting(Poisson(0.2, 50), 50)._chosen[1].tolist() != other._chosen[1].tolist()


def test_a_sum_of_canaries_is_the_same_either_way():
    fast, slow = (plant_all(planting(Once(), 3, full_vectors=full)) for full in (False, True))
    assert len(came) > 2 * ENOUGH
    for (one, own, _), (two, others, _) in zip(fast, slow, strict=True):
        np.testing.assert_allclose(one.vector(), two.vector(), atol=1e-5)
        np.testing.assert_allclose(own, others, rtol=1e-5)
        assert one.count == two.count


def test_a_client_that_was_clipped_otherwise_sends_all_canaries_of_its_round_through_that_code():
    plants = planting(Once(), 200)
    taking_part = plants.setup.schedule.taking_part(0)
    plants.plant(FixedPointSum(DIM, 1.0), taking_part, Public(0, 1.0, 10.0), [CLIPPED, Compared(3.0, 2.0, 1.0)])
    assert len(came) == taking_part.size > 0


def test_a_canary_that_comes_out_otherwise_sends_the_others_too():
    plants = planting(Once(), 1, mechanism=Doubled)
    ((total, own, compared),) = plant_all(plants)
    assert len(compared) == len(came) == total.count and own.max() == pytest.approx(2.0)
    assert np.sum(own > 1.5) == len(came) // 3


def test_a_round_in_which_nobody_was_clipped_sends_one_canary():
    plants = planting(Poisson(0.5, 2000), 2000)
    ends, chosen = plants._chosen
    number = next(each for each in range(2000) if not ((chosen >= ends[each]) & (chosen < ends[each + 1])).any())
    taking_part = plants.setup.schedule.taking_part(number)
    for clients, sent in (([CLIPPED, SHORT], 0), ([SHORT], 1), ([], 1)):
        came.clear()
        total = FixedPointSum(DIM, 1.0)
        plants.plant(total, taking_part, Public(number, 1.0, 10.0), clients)
        assert len(came) == sent and total.count == taking_part.size


def test_noise_in_blocks_is_the_noise(monkeypatch):
    monkeypatch.setattr("coalmine.mechanisms.gaussian._BLOCK", 64)
    total = FixedPointSum(200, 1.0)
    total.add_vector(np.ones(200), count=1, unclipped=0)
    released, _ = Gaussian(1.0, 0.5).release({}, total, Public(3, 1.0, 4.0), partial(stream, 9))
    np.testing.assert_array_equal(released.vector, (np.ones(200) + 0.5 * normals(200, partial(stream, 9), "noise", 3)) / 4)


def test_a_sum_that_is_made_in_blocks_is_the_sum(monkeypatch):
    monkeypatch.setattr("coalmine.conformance.check.BLOCK", 7)
    rng = np.random.default_rng(0)
    one, two = rng.standard_normal(30), rng.standard_normal(30).astype(np.float32)
    summed = Summed(((2.0, one), (-3.0, two)))
    assert summed.size == 30
    np.testing.assert_allclose(np.concatenate([part for _, part in summed.blocks()]), 2 * one - 3 * two.astype(float))
    np.testing.assert_array_equal(summed[np.array([4, 29])], summed[:][[4, 29]])


def test_where_clients_add_noise_every_canary_adds_its_own():
    """Also in rounds of which none was chosen to be looked at, while clients show that clipping is as said."""
    plants = replace(planting(Poisson(0.02, 100), 100), mechanism=Distributed(1.0, 1.0), noise_of_clients=True)
    found = plant_all(plants)
    canaries = sum(total.count for total, _, _ in found)
    square = sum(np.square(total.noise()).sum() for total, _, _ in found)
    assert canaries > 2 * ENOUGH and any(total.count and len(compared) == total.count for total, _, compared in found)
    assert abs(square / (DIM * canaries) - 1) < 6 * np.sqrt(2 / (DIM * canaries))
