"""Strategies of correlated noise: published and independently computed numbers, brute force, and the noise that they make.

Numbers of `JAX` were computed by jax_privacy 2.0.0; `strategies_jax.py` beside this file makes them again.
"""

import json
import warnings
import zipfile
from functools import partial
from itertools import combinations, pairwise, product
from pathlib import Path

import numpy as np
import pytest
from pytest import approx

from coalmine._random import stream
from coalmine.contracts import Explicit, PerPeriod, Separation
from coalmine.errors import InputFileError
from coalmine.mechanisms.gaussian import normals
from coalmine.mechanisms.strategies import (
    KINDS,
    Banded,
    Blt,
    Given,
    Independent,
    Plan,
    Restarted,
    Toeplitz,
    Tree,
    make_strategy,
    off_by,
    sensitivity,
)

JAX = json.loads((Path(__file__).parent / "strategies_jax.json").read_text())


def lower(rounds=7, seed=0, signed=False):
    """Some lower triangular matrix."""
    rng = np.random.default_rng(seed)
    made = np.tril(rng.uniform(-1.0 if signed else 0.0, 1.0, (rounds, rounds)))
    made[np.diag_indices(rounds)] = 1.0
    return Given.of(made)


SMALL = {
    "independent": Independent(12),
    "sqrt": Toeplitz(12),
    "damped": Toeplitz(12, 0.1),
    "banded": Banded.optimal(12, 3),
    "banded, momentum": Banded.optimal(12, 4, "max", momentum=0.9),
    "blt": Blt.optimal(12, 2),
    "tree, plain": Tree(12, "none"),
    "tree, below": Tree(12, "below"),
    "tree, full": Tree(12, "full"),
    "matrix": lower(12),
    "restarted": Restarted(12, Banded.optimal(5, 3)),
    "restarted tree": Restarted(12, Tree(4)),
}
every = pytest.mark.parametrize("strategy", SMALL.values(), ids=SMALL)


# numbers that others computed; matrices with c_0 = 1, trees with noise of variance 1 in every node


@pytest.mark.parametrize(
    ("strategy", "once", "times", "separation", "repeated", "rms", "largest"),
    [
        (Independent(16), 1, 4, 4, 2, 2.915476, 4),
        (Toeplitz(16), 1.394231, 4, 4, 3.715221, 1.288750, 1.394231),
        (Toeplitz(16, 0.1), 1.203712, 4, 4, 2.907599, 1.475320, 1.742983),
        (Tree(16, "none"), 2.236068, 4, 4, 6, 1.436141, 2),
        (Tree(16, "below"), 2.236068, 4, 4, 6, 1.190786, 1.664761),
        (Tree(16, "full"), 2.236068, 4, 4, 6, 0.866779, 1.059374),
        (Independent(128), 1, 8, 16, 2.828427, 8.031189, 11.313708),
        (Toeplitz(128), 1.615582, 8, 16, 7.212351, 1.515755, 1.615582),
        (Toeplitz(128, 0.01), 1.459311, 8, 16, 5.849599, 1.655742, 1.881159),
        (Tree(128, "none"), 2.828427, 8, 16, 12.328828, 1.872916, 2.645751),
        (Tree(128, "below"), 2.828427, 8, 16, 12.328828, 1.467528, 2.073507),
        (Tree(128, "full"), 2.828427, 8, 16, 12.328828, 0.993464, 1.207253),
        (Toeplitz(1024), 1.809020, 8, 128, 7.576088, 1.719047, 1.809020),
        (Toeplitz(1024, 0.01), 1.461807, 8, 128, 4.315500, 2.718807, 3.540313),
        (Tree(1024, "none"), 3.316625, 8, 128, 13.266499, 2.236286, 3.162278),
        (Tree(1024, "below"), 3.316625, 8, 128, 13.266499, 1.703502, 2.408912),
        (Tree(1024, "full"), 3.316625, 8, 128, 13.266499, 1.111419, 1.338201),
        (Toeplitz(2048), 1.869018, 8, 256, 7.692083, 1.781961, 1.869018),
        (Toeplitz(2048, 0.01), 1.461807, 8, 256, 4.166965, 3.539119, 4.772192),
    ],
    ids=lambda value: f"{value.kind}-{value.rounds}" if hasattr(value, "kind") else "",
)
def test_strategies_without_a_search_have_the_known_numbers(strategy, once, times, separation, repeated, rms, largest):
    scale = strategy.scale if isinstance(strategy, Tree) else 1 / strategy.first
    assert scale == approx(once, abs=1e-6)
    assert strategy.sensitivity(Separation(1, 1, strategy.rounds)) == approx(1.0, rel=1e-12)
    assert strategy.sensitivity(Separation(times, separation, strategy.rounds)) * scale == approx(repeated, abs=1e-6)
    assert strategy.rms_error() / scale == approx(rms, abs=1e-6)
    assert strategy.max_error() / scale == approx(largest, abs=1e-6)


@pytest.mark.parametrize(
    ("rounds", "bands", "objective", "rms", "largest"),
    [
        (16, 4, "mean", 1.937530, 2.451207),
        (128, 16, "mean", 2.872554, 3.664514),
        (128, 16, "max", 2.898403, 3.634565),
        (1024, 16, "mean", 6.342793, 8.659091),
        (1024, 64, "mean", 4.065913, 5.218598),
        (2048, 4, "mean", 16.220134, 22.829784),
        (2048, 4, "max", 16.230250, 22.819154),
        (2048, 16, "mean", 8.626950, 11.914879),
        (2048, 16, "max", 8.656836, 11.883075),
        (2048, 64, "mean", 5.170044, 6.811006),
        (2048, 64, "max", 5.216754, 6.759580),
    ],
)
def test_banded_coefficients_are_the_best(rounds, bands, objective, rms, largest):
    found = Banded.optimal(rounds, bands, objective)
    assert found.decreasing and found.bands == bands
    assert found.rms_error() == approx(rms, rel=1e-4 if objective == "max" else 1e-6)
    assert found.max_error() == approx(largest, rel=1e-4 if objective == "mean" else 1e-6)
    times = rounds // bands
    assert found.sensitivity(Separation(times, bands, rounds)) == approx(np.sqrt(times), rel=1e-12)


@pytest.mark.parametrize(
    ("rounds", "buffers", "objective", "times", "separation", "loss"),
    [
        *((128, number + 1, "max", 1, 1, loss) for number, loss in enumerate((2.772590, 2.617460, 2.610328, 2.610111))),
        *((1024, number + 1, "max", 1, 1, loss) for number, loss in enumerate((3.864890, 3.329793, 3.277600, 3.272944))),
        *((2048, number + 1, "max", 1, 1, loss) for number, loss in enumerate((4.321044, 3.584575, 3.503422, 3.494208))),
        *((1024, number + 1, "mean", 1, 1, loss) for number, loss in enumerate((3.456792, 3.083988, 3.058671, 3.057367))),
        *((2048, number + 1, "mean", 1, 1, loss) for number, loss in enumerate((3.863300, 3.326752, 3.281311, 3.277928))),
        (2048, 2, "max", 8, 256, 13.284581),
        (2048, 3, "max", 8, 256, 13.222168),
        (2048, 2, "mean", 8, 256, 11.092578),
        (2048, 3, "mean", 8, 256, 11.085754),
        (1024, 3, "mean", 8, 128, 10.463156),
        (1024, 4, "mean", 8, 128, 10.462597),
    ],
)
def test_buffers_are_as_good_as_the_best_known(rounds, buffers, objective, times, separation, loss):
    found = Blt.optimal(rounds, buffers, objective, separation, times)
    error = found.rms_error() if objective == "mean" else found.max_error()
    assert found.decreasing
    assert found.sensitivity(Separation(times, separation, rounds)) * error <= loss * (1 + 1e-6)


def test_the_order_of_strategies_is_the_expected_one():
    """Eight participations, 256 rounds apart, of 2,048 rounds: loss = sensitivity · rms error."""
    constraint = Separation(8, 256, 2048)
    losses = [
        strategy.sensitivity(constraint) * strategy.rms_error()
        for strategy in (
            Blt.optimal(2048, 3, "mean", 256, 8),
            Toeplitz(2048, 0.00197),
            Toeplitz(2048),
            Independent(2048),
        )
    ]
    assert losses == approx([11.0858, 11.49757, 13.7070, 90.53], rel=1e-4)


def test_the_largest_loss_of_the_square_root_grows_like_a_logarithm():
    found = Toeplitz(2048)
    assert found.max_error() == approx(3.493229, abs=1e-6)
    assert found.max_error() == approx((np.log(2048) + np.euler_gamma + 4 * np.log(2)) / np.pi, abs=1e-4)
    assert np.allclose(Toeplitz(1024).column(), found.column()[:1024], rtol=0), "a corner of the longer one"


def test_damping_makes_the_normalisation_independent_of_the_rounds():
    from scipy.special import ellipk

    assert 1 / Toeplitz(4096, 0.05).first ** 2 == approx(2 / np.pi * ellipk(0.95**2), rel=1e-9)


@pytest.mark.parametrize("case", JAX["banded"], ids=lambda case: f"{case['rounds']}-{case['bands']}-{case['objective']}")
def test_banded_agrees_with_jax_privacy(case):
    """Theirs is minimised without the restriction to decreasing coefficients; both stop at the same place."""
    found = Banded.optimal(case["rounds"], case["bands"], case["objective"])
    error = found.rms_error() if case["objective"] == "mean" else found.max_error()
    assert error == approx(case["error"], rel=1e-6) and error <= case["error"] * (1 + 1e-9)
    theirs = Banded(case["rounds"], tuple(case["coefficients"]))
    assert theirs.rms_error() == approx(case["rms_of_theirs"], rel=1e-9)
    for times, separation, value in case["sensitivities"]:
        assert theirs.sensitivity(Separation(times, separation, case["rounds"])) == approx(value, rel=1e-6)


@pytest.mark.parametrize("case", JAX["blt"], ids=lambda case: f"{case['rounds']}-{case['buffers']}-{case['times']}")
def test_buffers_agree_with_jax_privacy(case):
    constraint = Separation(case["times"], case["separation"], case["rounds"])
    theirs = Blt(case["rounds"], tuple(case["decays"]), tuple(case["weights"]))
    assert theirs.sensitivity(constraint) * theirs.max_error() == approx(case["loss"], rel=1e-6)
    found = Blt.optimal(case["rounds"], case["buffers"], "max", case["separation"], case["times"])
    assert found.sensitivity(constraint) * found.max_error() <= case["loss"] * (1 + 1e-6)


# sensitivity, against all sets of rounds


def apart(rounds, times, separation):
    for size in range(1, times + 1):
        for each in combinations(range(rounds), size):
            if all(b - a >= separation for a, b in pairwise(each)):
                yield each


def per_period(rounds, times):
    borders = [rounds * number // times for number in range(times + 1)]
    return product(*(range(first, end) for first, end in pairwise(borders)))


def worst(strategy, sets, rounds):
    """The largest |C s|, over all signs of a client's updates where some of X are negative."""
    matrix, found = strategy.matrix(), 0.0
    matrix = matrix[[not row[rounds:].any() for row in matrix], :rounds]  # the others were never released
    signed = bool((matrix.T @ matrix < -1e-12).any())
    for each in sets:
        for signs in product((1, -1), repeat=len(each) - 1) if signed else [(1,) * (len(each) - 1)]:
            found = max(found, float(np.linalg.norm(matrix[:, list(each)] @ np.array((1, *signs)))))
    return found


@every
@pytest.mark.parametrize("rounds", [12, 9, 1])
def test_sensitivity_of_separated_rounds(strategy, rounds):
    for times, separation in product((1, 2, 3, 12), (1, 2, 3, 4, 7, 12)):
        found = strategy.bound(Separation(times, separation, rounds))
        expected = worst(strategy, apart(rounds, min(times, -(-rounds // separation)), separation), rounds)
        assert found.value >= expected * (1 - 1e-12)
        if found.exact:
            assert found.value == approx(expected, rel=1e-9)
        toeplitz = isinstance(strategy, Toeplitz | Banded | Blt)
        assert found.exact or not (toeplitz or times == 1 or (strategy.bands or 99) <= separation)


@every
@pytest.mark.parametrize("rounds", [12, 10])
def test_sensitivity_of_one_round_in_each_period(strategy, rounds):
    for times in (1, 2, 3, 5):
        found = strategy.bound(PerPeriod(times, rounds))
        expected = worst(strategy, per_period(rounds, times), rounds)
        assert found.value >= expected * (1 - 1e-12)
        if found.exact:
            assert found.value == approx(expected, rel=1e-9)
        assert found.exact or not (times == 1 or (strategy.bands or 99) <= rounds // times)


@every
def test_sensitivity_of_listed_sets(strategy):
    presence = np.random.default_rng(1).random((12, 9)) < 0.3
    found = strategy.bound(Explicit(presence))
    expected = worst(strategy, [np.flatnonzero(column) for column in presence.T if column.any()], 12)
    assert found.value == approx(expected, rel=1e-9)
    assert strategy.gaps(presence).max() <= found.value * (1 + 1e-12)


def test_signs_count_where_columns_point_against_each_other():
    strategy = lower(7, signed=True)
    assert (strategy.matrix().T @ strategy.matrix() < 0).any()
    for times, separation in product((2, 3), (1, 2)):
        found = strategy.bound(Separation(times, separation, 7))
        assert not found.exact and found.value >= worst(strategy, apart(7, times, separation), 7) * (1 - 1e-12)


def test_coefficients_that_do_not_decrease_get_the_general_bound():
    strategy = Banded(12, (0.5, 0.8, 0.2))
    assert not strategy.decreasing
    found, expected = strategy.bound(Separation(3, 2, 12)), worst(strategy, apart(12, 3, 2), 12)
    assert not found.exact and found.value >= expected * (1 - 1e-12)


def test_periods_are_no_separation():
    """Two rounds of consecutive periods may be neighbours: the root of eight is wrong even for bands within a period."""
    strategy = Banded.optimal(64, 8)
    found = strategy.bound(PerPeriod(8, 64))
    assert found.exact and found.value == approx(3.697950, abs=1e-6)
    assert strategy.sensitivity(Separation(8, 8, 64)) == approx(np.sqrt(8))


def test_the_largest_sum_of_separated_places():
    rng = np.random.default_rng(2)
    for times, separation in product((1, 2, 4, 9), (1, 2, 5)):
        weights = rng.random((3, 9))
        expected = [max(sum(row[list(each)]) for each in apart(9, min(times, 9), separation)) for row in weights]
        assert sensitivity._most(weights, times, separation) == approx(expected)


@pytest.mark.parametrize(
    ("rounds", "times", "separation", "nu", "loss"),
    [
        (2048, 1, 1, 3.5e-4, 3.28704),
        (2048, 8, 256, 0.00197, 11.49757),
        (1024, 8, 128, 0.00394, 10.86569),
        (128, 8, 16, 0.0375, 8.95704),
    ],
)
def test_the_best_damping(rounds, times, separation, nu, loss):
    limits = Separation(times, separation, rounds)
    found = [made.sensitivity(limits) * made.rms_error() for made in (Toeplitz(rounds, nu * by) for by in (0.9, 1.0, 1.1))]
    assert found[1] == approx(loss, rel=1e-5) and found[1] < min(found[0], found[2])


# the matrix, its inverse, and what whitens


@every
def test_the_noise_matrix_undoes_the_strategy(strategy):
    """B C = A, so that W C = I; and what whitens makes W Wᵀ the identity."""
    made = strategy.inverse() @ strategy.matrix()
    assert np.allclose(made, np.eye(12), atol=1e-9)
    white = strategy.whitening() @ strategy.inverse()
    assert np.allclose(white @ white.T, np.eye(12), atol=1e-9)
    assert np.allclose(np.triu(strategy.whitening(), 1), 0)
    assert np.linalg.norm(strategy.matrix(), axis=0).max() == approx(1.0)


@every
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_errors_are_those_of_the_models(strategy, momentum):
    steps = sum(momentum**lag * np.eye(12, k=-lag) for lag in range(12))
    made = np.tril(np.ones((12, 12))) @ steps @ strategy.inverse()
    assert strategy.errors(momentum) == approx(np.square(made).sum(axis=1))
    rates = np.minimum(1.0, np.arange(12, 0, -1) / 5)
    cooled = np.tril(np.ones((12, 12))) @ np.diag(rates) @ steps @ strategy.inverse()
    assert strategy.scheduled_errors(rates, momentum) == approx(np.square(cooled).sum(axis=1))
    assert strategy.scheduled_errors(np.ones(12), momentum) == approx(strategy.errors(momentum))
    assert strategy.noise_of_sum(rates) == approx(np.linalg.norm(rates @ strategy.inverse()))
    with pytest.raises(ValueError, match="12 finite numbers"):
        strategy.scheduled_errors(np.ones(3))
    assert strategy.final_gap == approx(1 / np.linalg.norm(strategy.inverse().sum(axis=0)))
    assert strategy.autocorrelation()[0] == approx(1.0)
    covariance = strategy.inverse() @ strategy.inverse().T
    expected = covariance[-1] / np.sqrt(np.diag(covariance) * covariance[-1, -1])
    assert strategy.autocorrelation() == approx(expected[::-1], abs=1e-9)


@every
def test_whitening_is_the_matrix_whatever_the_pieces(strategy):
    rows, state, pieces = np.random.default_rng(3).standard_normal((12, 4)), {}, []
    for piece in (rows[:1], rows[1:6], rows[6:7], rows[7:]):
        found, state = strategy.whiten(piece, state)
        pieces.append(found)
    assert np.allclose(np.concatenate(pieces), strategy.whitening() @ rows, atol=1e-12)
    assert np.allclose(strategy.whiten(rows[:5], {})[0], strategy.whitening()[:5, :5] @ rows[:5], atol=1e-12)


def streamed(strategy, dim, rounds=12, seed=5):
    draw, state, rows = partial(normals, dim, partial(stream, seed)), strategy.init(dim), []
    for number in range(rounds):
        made, state = strategy.noise(number, dim, draw, state)
        rows.append(made.copy())
    return np.array(rows), state


@every
def test_streamed_noise_is_the_matrix_times_normals(strategy):
    """By the covariance of the streams: the same normals are found by whitening, and they are new ones."""
    made, state = streamed(strategy, 4000)
    covariance = made @ made.T / 4000
    expected = strategy.inverse() @ strategy.inverse().T
    spread = np.sqrt((np.outer(np.diag(expected), np.diag(expected)) + expected**2) / 4000)
    assert np.abs((covariance - expected) / spread).max() < 6.0  # 78 of them: by chance once in 10⁷
    assert sum(value.shape[0] for value in state.values() if value.ndim) == strategy.stored
    if strategy.inverse().shape[0] == strategy.inverse().shape[1] and not isinstance(strategy, Restarted):
        fresh = [normals(4000, partial(stream, 5), "noise", number) for number in range(12)]
        assert np.allclose(strategy.matrix() @ made, fresh, atol=1e-9)


@pytest.mark.parametrize(
    "strategy",
    [Toeplitz(64, 0.01), Banded.optimal(64, 8), Banded.optimal(64, 40), Blt.optimal(64, 3), Tree(64), Tree(64, "none")],
    ids=lambda each: f"{each.kind}-{each.stored}",
)
def test_the_covariance_of_64_rounds_is_that_of_the_matrix(strategy):
    """Of 4,000 coordinates, every entry within 5 standard errors; by chance one of 2,080 is not in 0.12 % of runs."""
    made, _ = streamed(strategy, 4000, rounds=64, seed=17)
    expected = strategy.inverse() @ strategy.inverse().T
    spread = np.sqrt((np.outer(np.diag(expected), np.diag(expected)) + expected**2) / 4000)
    assert np.abs((made @ made.T / 4000 - expected) / spread).max() < 5.0


def test_one_band_has_the_bits_of_independent_noise():
    made, _ = streamed(Banded(12, (1.0,)), 50)
    assert all(np.array_equal(row, normals(50, partial(stream, 5), "noise", number)) for number, row in enumerate(made))


@pytest.mark.parametrize("make", [lambda: Banded.optimal(12, 3), lambda: Blt.optimal(12, 2)], ids=["banded", "blt"])
def test_a_state_may_be_read_only_and_a_round_may_be_made_again(make):
    strategy = make()
    whole, _ = streamed(strategy, 20)
    _, state = streamed(strategy, 20, rounds=7)
    draw = partial(normals, 20, partial(stream, 5))
    frozen = {name: np.frombuffer(value.tobytes()).reshape(value.shape) for name, value in state.items()}
    first, kept = strategy.noise(7, 20, draw, frozen)
    again = [first, *(strategy.noise(7, 20, draw, each)[0].copy() for each in (state, state, kept))]
    assert all(np.array_equal(each, whole[7]) for each in again)
    assert np.array_equal(strategy.noise(8, 20, draw, kept)[0], whole[8])


@pytest.mark.parametrize(("bands", "together"), [(12, 8), (40, 16)])
def test_noise_of_many_bands_is_made_for_several_rounds_at_once(bands, together):
    """The same noise as by the matrix, also where a state was read from a file, and where a round is made again."""
    strategy, size = Banded.optimal(70, bands), 9000  # more than one piece, and a last group that is cut off
    made, state = streamed(strategy, size, rounds=70)
    fresh = [normals(size, partial(stream, 5), "noise", number) for number in range(70)]
    assert np.allclose(strategy.matrix() @ made, fresh, atol=1e-9)
    assert sum(value.shape[0] for value in state.values()) == strategy.stored == bands - 1 + together
    assert np.array_equal(streamed(strategy, 8500, rounds=70)[0], made[:, :8500]), "bits do not depend on the rest of a piece"
    draw = partial(normals, size, partial(stream, 5))
    for number in (47, 48, 49, 55, 64):
        _, state = streamed(strategy, size, rounds=number)
        frozen = {name: np.frombuffer(value.tobytes()).reshape(value.shape) for name, value in state.items()}
        again = [strategy.noise(number, size, draw, kept)[0].copy() for kept in (frozen, state, state)]
        assert all(np.array_equal(each, made[number]) for each in again)


@pytest.mark.parametrize(
    ("rounds", "nu", "buffers", "off", "cost"),
    [(2048, 0.0, 6, 0.01, 1e-3), (2048, 0.00197, 5, 0.03, 1e-3), (128, 0.0375, 4, 0.01, 1e-3), (20, 0.3, 3, 0.01, 1e-3)],
)
def test_few_buffers_are_nearly_damped_toeplitz_noise(rounds, nu, buffers, off, cost):
    """Coefficients differ by so much at most, the loss by a thousandth; privacy is accounted for what is used."""
    meant, plan = Toeplitz(rounds, nu), Plan(rounds, 4, rounds // 4)
    made = make_strategy("toeplitz", {"damping": nu, "buffers": buffers}, plan)
    assert made.kind == "blt" and made.vectors == buffers and made.decreasing and off_by(made, meant) < off
    limits = Separation(4, rounds // 4, rounds)
    losses = [each.sensitivity(limits) * each.rms_error() for each in (made, meant)]
    assert losses[0] == approx(losses[1], rel=cost)
    assert np.allclose(meant.matrix() @ made.inverse(), np.eye(rounds), atol=10 * off)


def test_a_restart_draws_new_normals():
    strategy = Restarted(12, Toeplitz(4))
    made, _ = streamed(strategy, 3000)
    assert abs(np.corrcoef(made[0], made[4])[0, 1]) < 0.1


# files, descriptions, options


@every
def test_strategies_go_through_json(strategy):
    from coalmine.contracts import Clip, Description, Noise
    from coalmine.mechanisms import read_description

    said = Description(Clip(1.0), Noise(1.0, 1.0, rounds=strategy))
    read = read_description(json.loads(json.dumps(said.to_dict())))
    assert read == said and type(read.noise.rounds) is KINDS[strategy.kind]
    if strategy.kind == "matrix":
        with pytest.raises(ValueError, match="known by its SHA-256 only"):
            read.noise.rounds.sensitivity(Separation(1, 1, 12))
    else:
        assert np.array_equal(read.noise.rounds.matrix(), strategy.matrix())


def test_matrices_are_read_from_files(tmp_path):
    matrix = np.tril(np.arange(1.0, 10.0).reshape(3, 3))
    np.save(tmp_path / "a.npy", matrix)
    np.savez(tmp_path / "a.npz", C=matrix)
    np.savetxt(tmp_path / "a.csv", matrix, delimiter=",")
    read = [Given.read(tmp_path / f"a.{ending}") for ending in ("npy", "npz", "csv")]
    assert read[0] == read[1] == read[2]
    assert read[0].matrix() == approx(matrix / np.linalg.norm(matrix, axis=0).max())


@pytest.mark.parametrize(
    ("matrix", "words"),
    [
        (np.ones((2, 2)), "lower triangular"),
        (np.tril(np.ones((2, 2)), -1), "positive diagonal"),
        (np.array([[1.0, 0.0], [np.nan, 1.0]]), "NaN"),
        (np.ones((2, 3)), "square table"),
        (np.array([["a"]]), "must hold real numbers"),
        (np.eye(3) * 1j, "must hold real numbers; its entries are complex128"),
        (np.eye(4097), "at most 4096"),
        (np.array([[1.0, 0.0], [1.0, 1e-200]]), "cannot be inverted"),
        (np.tril(np.full((60, 60), 9.0)) + np.diag(np.full(60, -8.9)), "cannot be inverted"),
    ],
)
def test_matrices_that_cannot_be_a_strategy_are_refused(matrix, words):
    with pytest.raises(InputFileError, match=words):
        Given.of(matrix)


def test_large_and_small_units_are_the_same_matrix():
    """A column whose squares overflow must not become one of length zero: nothing would be claimed for it."""
    usual = Given.of(np.array([[2.0, 0.0], [1.0, 2.0]]))
    for unit in (1e300, 1e-300):
        found = Given.of(unit * np.array([[2.0, 0.0], [1.0, 2.0]]))
        assert found.matrix() == approx(usual.matrix()) and found.sensitivity(Separation(1, 1, 2)) == approx(1.0)


def test_files_that_lie_about_their_size_are_refused(tmp_path):
    header = np.lib.format.header_data_from_array_1_0(np.eye(2)) | {"shape": (10**7, 10**7)}
    with (tmp_path / "huge.npy").open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        file.write(b"0" * 100)
    with zipfile.ZipFile(tmp_path / "huge.npz", "w") as packed:
        packed.write(tmp_path / "huge.npy", "C.npy")
    (tmp_path / "broken.npz").write_bytes(b"PK\x03\x04" + bytes(40))
    (tmp_path / "empty.csv").write_text("")
    for name, words in (
        ("huge.npy", "not a readable"),
        ("huge.npz", "at most 4096"),
        ("broken.npz", "not a readable"),
        ("empty.csv", "square table|not a readable"),
    ):
        with warnings.catch_warnings(), pytest.raises(InputFileError, match=words):
            warnings.simplefilter("ignore")
            warnings.filterwarnings("error", category=UserWarning)  # numpy's, on a file without numbers, says nothing more
            Given.read(tmp_path / name)


def test_files_that_hold_no_matrix_are_refused(tmp_path):
    (tmp_path / "a.npy").write_text("no")
    np.savez(tmp_path / "two.npz", a=np.eye(2), b=np.eye(2))
    np.save(tmp_path / "object.npy", np.array([object()]), allow_pickle=True)
    for name, words in (
        ("a.npy", "not a readable"),
        ("two.npz", "2 arrays"),
        ("object.npy", "not a readable"),
        ("x", "no file"),
    ):
        with pytest.raises(InputFileError, match=words):
            Given.read(tmp_path / name)


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("bands", {}, "strategy='bands'"),
        ("banded", {"buffers": 3}, "has no option 'buffers': it has bands, objective"),
        ("independent", {"bands": 3}, "it has none"),
        ("banded", {"bands": 17}, "bands=17 is not allowed: there are 16 rounds"),
        ("banded", {"bands": 0}, "bands"),
        ("banded", {"objective": "median"}, "objective"),
        ("blt", {"buffers": 9}, "at most 8"),
        ("toeplitz", {"damping": 1.0}, "damping"),
        ("toeplitz", {"damping": 1.0, "buffers": 3}, "damping"),
        ("toeplitz", {"buffers": 9}, "at most 8"),
        ("toeplitz", {"damping": float("nan")}, "damping"),
        ("tree", {"honaker": "above"}, "honaker"),
        ("matrix", {}, "needs file"),
    ],
)
def test_options_that_do_not_fit_are_refused(name, options, words):
    with pytest.raises(ValueError, match=words):
        make_strategy(name, options, Plan(16))


def test_defaults_follow_the_participation():
    plan = Plan.of(Separation(4, 5, 20))
    assert make_strategy("banded", {}, plan).bands == 5
    assert make_strategy("banded", {"restart_every": 10, "bands": 3}, plan) == Restarted(20, Banded.optimal(10, 3))
    assert Plan.of(PerPeriod(4, 20)).separation == 5
    assert Plan.of(Explicit(np.array([[1, 0], [0, 1], [1, 0], [0, 0], [0, 1]], dtype=bool))).separation == 2


def test_a_run_must_not_be_longer_than_its_strategy():
    for strategy in (Toeplitz(8), Banded.optimal(8, 2), Tree(8), lower(8)):
        with pytest.raises(ValueError, match="9 rounds are more than the 8"):
            strategy.sensitivity(Separation(1, 1, 9))
    with pytest.raises(ValueError, match="blt"):
        Toeplitz(2048).check_size(10**6)
