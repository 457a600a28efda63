"""The theorems of Zhang & Psounis (2024, arXiv 2405.04551v2) as calculators: recomputed, by brute force, by others."""

import math

import numpy as np
import pytest

import coalmine
from coalmine import claim_gaussian_sampling, claim_waterfilling, compose_optimal, leverages, outside_span, record_epsilon
from coalmine._random import stream
from coalmine.accounting.composition import converted
from coalmine.accounting.gaussian_sampling import batch_delta, sampling_curve, table1_epsilon
from coalmine.accounting.water_filling import WaterFillingEvent, floor_for
from coalmine.accounting.worst_pairs import OPPOSITE, ORTHOGONAL, ZERO, example_pair_epsilon, worst_example_pair

PAPER = {"users": 50, "examples": 1200, "batch": 32, "clip_norm": 10.0, "delta": 1e-4}
# floor: (tight at order 2, epsilon of 1 round tight and Theorem 4, of 100 rounds, GD-DP, SGD-DP)
TABLE = {
    1e-3: (0.00871735722768605, 1.0509972, 2.0493751, 5.0211781, 28.1491945, 0.3226795052569832, 12.2782283753826),
    1e-2: (0.0005868054451583321, 0.1714377, 0.2287772, 1.1356371, 2.4742231, 0.10143958640345421, 1.0020083448905523),
    1e-1: (5.58677736846064e-05, 0.0388828, 0.0433223, 0.3303639, 0.4451566, 0.03201795052569832, 0.06331535596452426),
}


@pytest.mark.parametrize("floor", TABLE)
def test_theorem_4_and_the_tight_curve_in_the_papers_setting(floor):
    at_two, *epsilons = TABLE[floor]
    assert WaterFillingEvent(10.0, 1200, 32, 50, floor).curve(2.0) == pytest.approx(at_two, rel=1e-9)
    asked = [(1, "tight"), (1, "theorem4"), (100, "tight"), (100, "theorem4")]
    for (rounds, formula), known in zip(asked, epsilons, strict=False):
        claim = claim_waterfilling(**PAPER, floor=floor, rounds=rounds, formula=formula)
        assert claim.epsilon == pytest.approx(known, abs=6e-8)
    for row, known in zip(("gd", "sgd"), epsilons[4:], strict=True):
        assert table1_epsilon(row, **PAPER, floor=floor) == pytest.approx(known, rel=1e-9)


def test_the_tighter_conversion_is_that_of_dp_accounting():
    from dp_accounting.rdp import compute_epsilon

    event = WaterFillingEvent(10.0, 1200, 32, 50, 0.01)
    orders = np.concatenate([np.linspace(1.01, 64, 4000), np.linspace(64, min(event.most, 4000) - 1e-6, 4000)])
    known, _ = compute_epsilon(orders, [100 * event.curve(order) for order in orders], 1e-4)
    found = claim_waterfilling(**PAPER, floor=0.01, rounds=100, conversion="tight").epsilon
    assert found == pytest.approx(known, rel=1e-5) and found <= known
    assert found < claim_waterfilling(**PAPER, floor=0.01, rounds=100).epsilon


def test_theorem_2():
    curve, most = sampling_curve(5.0, 1200, 32, 10.0)
    assert curve(2.0) == pytest.approx(0.03632183908045977, rel=1e-12)
    assert sampling_curve(5.0, 1200, 32, 10.0, "before-last-step")[0](2.0) == pytest.approx(0.035747126436781615, rel=1e-12)
    epsilon, order = converted(curve, 1e-4, most)
    assert epsilon == pytest.approx(0.3859883082, rel=1e-9) and order == pytest.approx(36.2024, abs=1e-4)
    claim = claim_gaussian_sampling(least_eigenvalue=5.0, examples=1200, batch=32, clip_norm=10.0, delta=1e-4)
    assert claim.epsilon == epsilon and claim.valid_for == "these data"
    assert any("these data only" in words for words in claim.assumptions)


def test_theorem_2_refuses_batches_that_are_larger_than_the_data():
    with pytest.raises(ValueError, match="batch"):
        claim_gaussian_sampling(least_eigenvalue=5.0, examples=10, batch=32, clip_norm=10.0, delta=1e-4)


def test_theorem_2_is_infinite_and_not_negative_where_it_does_not_apply():
    """C²/D = 0.083: on real data the least eigenvalues are below it."""
    for least in (0.0, 4.3e-4, 100 / 1200):
        found = claim_gaussian_sampling(least_eigenvalue=least, examples=1200, batch=32, clip_norm=10.0, delta=1e-4)
        assert math.isinf(found.epsilon)


def test_the_papers_theorem_bounds_the_worst_pair():
    setting = {"clip_norm": 10.0, "examples": 1200, "batch": 32, "delta": 1e-4}
    # `least` is the covariance of the sum, 1/B of the paper's; both pairs of the theorem hold it fixed
    bound = claim_gaussian_sampling(least_eigenvalue=0.05 * 32, **setting).epsilon
    assert bound == pytest.approx(1.0523, abs=1e-4)
    assert bound > 0.33  # the worst pair of the next test


def test_worst_pairs():
    setting = {"clip_norm": 10.0, "examples": 1200, "batch": 32, "delta": 1e-4}
    known = {(OPPOSITE, "both"): 0.192505695, (ZERO, "p||q"): 0.307676153, (ZERO, "q||p"): 0.037583071}
    for (pair, order), epsilon in (known | {(ORTHOGONAL, "both"): 0.321509571}).items():
        assert example_pair_epsilon(pair, least=0.05, order=order, **setting) == pytest.approx(epsilon, abs=1e-9)
    epsilon, pair = worst_example_pair(least=0.05, **setting)
    assert epsilon >= 0.3288 and 0.5 * math.pi < pair.angle < 0.65 * math.pi  # no symmetric point
    assert example_pair_epsilon(OPPOSITE, least=0.5, **setting) == pytest.approx(0.053074270, abs=1e-9)


@pytest.mark.parametrize(
    ("leverage", "delta", "known"),
    [
        (0.01, 1e-4, 0.06613931687571466),
        (0.01, 1e-5, 0.09873993338397488),
        (0.1, 1e-4, 0.6656769794912918),
        (0.1, 1e-5, 0.9386627865904881),
        (0.5, 1e-4, 6.885200592080998),
        (0.5, 1e-5, 9.162139671333685),
        (0.9, 1e-4, 67.91138650467667),
        (0.9, 1e-5, 88.10265108492166),
        (0.99, 1e-4, 765.1220191508554),
    ],
)
def test_epsilon_of_a_record_by_its_leverage(leverage, delta, known):
    assert record_epsilon(leverage, batch=32, examples=1200, delta=delta) == pytest.approx(known, rel=1e-9)


def test_leverage_gives_the_epsilon_of_the_whole_covariances():
    """Brute force: both laws of the sum as matrices, with the record and without it."""
    rng = stream(0, "leverage")
    gradients, batch, examples = rng.normal(size=(12, 5)), 4.0, 6
    whole = gradients.T @ gradients / (batch * examples)
    for record, leverage in enumerate(leverages(gradients)):
        g = gradients[record]
        without = whole - np.outer(g, g) / (batch * examples)
        pair = coalmine.standard_pair(g / examples, whole, np.zeros(5), without)
        known = coalmine.pair_epsilon(*pair, 1e-4)
        assert record_epsilon(leverage, batch, examples, 1e-4) == pytest.approx(known, rel=1e-8)


def test_leverages_in_every_shape():
    rng = stream(1, "leverage")
    for rows, columns, rank in ((30, 8, 8), (8, 30, 8), (40, 20, 5), (300, 12, 12)):
        gradients = rng.normal(size=(rows, rank)) @ rng.normal(size=(rank, columns))
        known = np.diag(gradients @ np.linalg.pinv(gradients))
        assert leverages(gradients) == pytest.approx(known, abs=1e-10) and leverages(gradients).sum() == pytest.approx(rank)
    assert leverages(np.zeros((3, 4))).tolist() == [0.0, 0.0, 0.0]
    double = np.vstack([gradients[0], gradients[0], np.eye(12)[:0]])
    assert leverages(double) == pytest.approx([0.5, 0.5])
    assert leverages(gradients.astype(np.float32)) == pytest.approx(leverages(gradients), abs=1e-5)


def test_a_sketch_shows_leverages_from_below():
    gradients = stream(6, "sketch").normal(size=(60, 40))
    exact, some, all_of_them = (leverages(gradients, sketch=each) for each in (None, 20, 200))
    assert (some <= exact + 1e-12).all() and some.sum() == pytest.approx(20)
    assert all_of_them == pytest.approx(exact, abs=1e-9)
    with pytest.raises(ValueError, match="sketch"):
        leverages(gradients, sketch=0)


def test_leverage_one_is_outside_the_span():
    rng = stream(2, "span")
    others = rng.normal(size=(20, 4)) @ rng.normal(size=(4, 9))
    inside, outside = rng.normal(size=20) @ others, rng.normal(size=9)
    assert outside_span(others, [inside, outside, 1e-9 * outside, 1e9 * inside]).tolist() == [False, True, True, False]
    assert leverages(np.vstack([others, outside]))[-1] == pytest.approx(1.0, abs=1e-10)
    assert math.isinf(record_epsilon(1.0, 32, 1200, 1e-4)) and record_epsilon(0.0, 32, 1200, 1e-4) == 0.0


def test_batches_without_noise_have_the_same_delta_at_every_epsilon():
    assert batch_delta(32, 1200) == pytest.approx(0.0266667, abs=1e-7)
    assert batch_delta(32, 1200, rounds=100) == pytest.approx(0.933, abs=5e-4)


@pytest.mark.parametrize(
    ("epsilon", "delta", "times", "total", "known"),
    [(0.1, 1e-6, 100, 1e-4, 5.8), (0.05, 1e-6, 100, 2e-4, 1.7), (0.5, 0.0, 20, 1e-5, 10.0)],
)
def test_optimal_composition(epsilon, delta, times, total, known):
    assert compose_optimal(epsilon, delta, times, total * (1 + 1e-9)) == pytest.approx(known, rel=1e-12)


def test_optimal_composition_by_enumeration():
    """k randomised responses: the hockey stick of the binomial itself, at each epsilon of the theorem's grid."""
    k, epsilon = 7, 0.4
    p = math.exp(epsilon) / (1 + math.exp(epsilon))
    counts = np.arange(k + 1)
    ways = np.array([math.comb(k, int(count)) for count in counts])
    high, low = ways * p**counts * (1 - p) ** (k - counts), ways * p ** (k - counts) * (1 - p) ** counts
    for i in range(k // 2 + 1):
        at = (k - 2 * i) * epsilon
        delta = np.maximum(high - math.exp(at) * low, 0.0).sum()
        assert compose_optimal(epsilon, 0.0, k, min(delta + 1e-12, 0.999)) == pytest.approx(at)


def random_change(rng):
    """A user's second moment, the records that one example may be, and the water level, in a few dimensions."""
    dim, count = int(rng.integers(2, 5)), int(rng.integers(1, 6))
    clip, level = float(rng.uniform(0.5, 3.0)), float(10 ** rng.uniform(-2, 1))
    others = rng.normal(size=(count, dim))
    others *= clip / np.maximum(np.linalg.norm(others, axis=1, keepdims=True), clip)
    pair = rng.normal(size=(2, dim))
    pair *= clip / np.linalg.norm(pair, axis=1, keepdims=True)
    return others, pair, clip, level


def lifted(covariance, level):
    values, vectors = np.linalg.eigh(covariance)
    return (vectors * np.maximum(values, level)) @ vectors.T


def test_tight_is_above_the_exact_divergence_and_below_theorem_4():
    """10,000 random pairs of data sets that differ in one example, with water-filling noise; floors from too low to high."""
    rng, compared = stream(3, "tight"), 0
    while compared < 10_000:
        others, pair, clip, level = random_change(rng)
        examples, batch, users = len(others) + 1, float(rng.uniform(1, len(others) + 1)), int(rng.integers(1, 4))
        laws = []
        for g in pair:
            rows = np.vstack([others, g])
            laws.append(
                (g / examples, lifted(rows.T @ rows / (batch * examples), level) + (users - 1) * level * np.eye(len(g)))
            )
        event = WaterFillingEvent(clip, examples, batch, users, level)
        if not event.most > 1.01:
            continue
        order = 1 + (min(event.most, 50.0) - 1) * float(rng.uniform(0.02, 0.98))
        exact = coalmine.renyi_divergence(*coalmine.standard_pair(laws[0][0], laws[0][1], laws[1][0], laws[1][1]), order)
        assert exact <= event.curve(order) * (1 + 1e-9)
        theorem = WaterFillingEvent(clip, examples, batch, users, level, "theorem4")
        if order < theorem.most:
            assert event.curve(order) <= theorem.curve(order) * (1 + 1e-12)
        compared += 1


def test_equation_38_does_not_hold():
    """Removing g gᵀ may refill more than g gᵀ in some direction."""
    covariance, g = np.diag([0.0, 2.0]), np.ones(2)
    before, after = (lifted(each, 1.0) - each for each in (covariance + np.outer(g, g), covariance))
    found = np.linalg.eigvalsh(np.outer(g, g) - (after - before))
    assert found == pytest.approx([-0.2167727, 1.6309863], abs=1e-7)


def test_water_is_the_least_that_lifts_every_direction():
    rng = stream(4, "water")
    for _ in range(1000):
        root = rng.normal(size=(4, int(rng.integers(1, 6))))
        covariance, level = root @ root.T, float(rng.uniform(0.1, 5.0))
        least = coalmine.water_fill(np.maximum(np.linalg.eigvalsh(covariance), 0), level).sum()
        noise = rng.normal(size=(4, 4))
        noise = noise @ noise.T
        # scaled so that covariance + noise touches the level
        shift = np.linalg.eigvalsh(covariance + noise)[0] - level
        feasible = noise - min(shift, 0.0) * np.eye(4)
        assert np.linalg.eigvalsh(covariance + feasible)[0] >= level - 1e-9
        assert np.trace(feasible) >= least - 1e-9


def test_water_levels():
    assert coalmine.water_level([4.0, 1.0, 0.0], 1.5) == 1.25
    rng = stream(5, "water")
    for _ in range(200):
        ground, budget = rng.exponential(size=int(rng.integers(1, 9))), float(rng.exponential(3.0))
        level = coalmine.water_level(ground, budget)
        assert coalmine.water_fill(ground, level).sum() == pytest.approx(budget, rel=1e-12)
    assert coalmine.water_level([3.0, 2.0], 0.0) == 2.0
    assert coalmine.water_fill([3.0, 2.0], 1.0).tolist() == [0.0, 0.0]


def test_blocks_with_shared_weights_leave_a_direction_without_noise():
    g = np.array([1.0, -1.0])
    covariance = np.outer(g, g)
    added = np.diag(coalmine.water_fill(np.diag(covariance), 0.5))
    assert np.linalg.eigvalsh(covariance + added) == pytest.approx([0.0, 2.0])


def test_a_floor_for_an_epsilon_and_back():
    for formula in ("tight", "theorem4", "printed"):
        event = WaterFillingEvent(10.0, 1200, 32, 50, 1.0, formula)
        floor = floor_for(event, 2.0, 1e-4, rounds=100)
        found = claim_waterfilling(**PAPER, floor=floor, rounds=100, formula=formula)
        assert found.epsilon == pytest.approx(2.0, rel=1e-8)
        assert found.at_noise(0.5) > 2.0


def test_water_filling_is_never_better_than_the_same_floor_on_full_gradients():
    """GD-DP: the exact curve alpha M²/2 of the same floor is below at every order."""
    for floor in (1e-3, 1e-2, 1e-1):
        event = WaterFillingEvent(10.0, 1200, 32, 50, floor)
        square, _ = event.shape
        for order in np.linspace(1.01, min(event.most, 300) - 1e-6, 50):
            assert event.curve(order) >= order * square / 2


def test_too_low_a_floor_is_infinite_and_says_what_would_do():
    found = claim_waterfilling(**PAPER, floor=1e-9)
    assert math.isinf(found.epsilon) and any("floor too low" in words for words in found.assumptions)
    assert math.isinf(claim_waterfilling(**PAPER, floor=0.0).epsilon)


@pytest.mark.parametrize("formula", ["tight", "theorem4", "printed"])
def test_the_floor_that_is_said_to_be_needed_is_enough(formula):
    """Just above it there is a finite epsilon, just below it none (the tight curve: none at order 2)."""
    found = claim_waterfilling(**PAPER, floor=1e-9, formula=formula)
    least = float(next(words for words in found.assumptions if "floor too low" in words).split("floor of ")[1].split(",")[0])
    assert math.isfinite(claim_waterfilling(**PAPER, floor=1.01 * least, formula=formula).epsilon)
    assert math.isinf(claim_waterfilling(**PAPER, floor=0.99 * least, formula=formula).epsilon)


def test_theorem_2_says_which_eigenvalue_it_needs():
    setting = {"examples": 1200, "batch": 32, "clip_norm": 10.0, "delta": 1e-4}
    found = claim_gaussian_sampling(least_eigenvalue=0.05, **setting)
    assert any("must exceed 0.0833, and it is 0.05" in words for words in found.assumptions)
    assert not any("must exceed" in words for words in claim_gaussian_sampling(least_eigenvalue=5.0, **setting).assumptions)


@pytest.mark.parametrize("bad", [[["a"]], np.array([[1j]]), [1.0, 2.0], [[1.0, math.nan]], [[math.inf, 0.0]]])
def test_gradients_that_are_no_matrix_of_real_numbers_are_refused(bad):
    with pytest.raises(ValueError, match="gradients"):
        leverages(bad)


def test_fewer_survivors_are_claimed_for_and_flagged():
    whole = claim_waterfilling(**PAPER, floor=0.01, rounds=10)
    some = claim_waterfilling(**PAPER, floor=0.01, rounds=10, honest=40, survivors=30)
    assert some.epsilon == claim_waterfilling(**{**PAPER, "users": 30}, floor=0.01, rounds=10).epsilon > whole.epsilon
    assert any("fewer survivors" in words for words in some.assumptions)
    lost = claim_waterfilling(**PAPER, floor=0.01, rounds=10, survivors=30)
    assert lost.epsilon == some.epsilon and any("fewer survivors" in words for words in lost.assumptions)
    assert not any("fewer survivors" in words for words in claim_waterfilling(**PAPER, floor=0.01, survivors=50).assumptions)
    alone = claim_waterfilling(**{**PAPER, "users": 1}, floor=0.01)
    assert any("hides nothing" in words for words in alone.assumptions)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"batch": 2000}, "batch"),
        ({"examples": 1}, "examples"),
        ({"floor": math.nan}, "floor"),
        ({"floor": math.inf}, "floor"),
        ({"delta": 0.0}, "delta"),
        ({"delta": 1.0}, "delta"),
        ({"honest": 60}, "honest"),
        ({"formula": "best"}, "formula"),
    ],
)
def test_bad_settings_are_one_message(change, words):
    with pytest.raises(ValueError, match=words):
        claim_waterfilling(**{**PAPER, "floor": 0.01, **change})


def test_extreme_floors_do_no_harm():
    assert claim_waterfilling(**PAPER, floor=1e300).epsilon < 1e-6
    assert math.isinf(claim_waterfilling(**PAPER, floor=5e-324).epsilon)
