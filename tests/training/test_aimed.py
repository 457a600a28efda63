"""Aimed canaries: directions, covariances and scores by brute force; whole runs, correct and with a bug."""

import json
import math

import numpy as np
import pytest
from scipy import stats

from coalmine._random import stream
from coalmine.accounting.water_filling import example_game
from coalmine.audit.statements import audit_scores
from coalmine.canaries.aimed import Aim, AimedCanaries, aimed_directions, directions_of
from coalmine.contracts import Claim, LowRank
from coalmine.gaussian_pairs import pair_epsilon
from coalmine.mechanisms import FullGradient, Gaussian, WaterFilling
from coalmine.mechanisms.covariance import ExampleNoise, Whitening, added
from coalmine.scores import Scores
from coalmine.training import resume, run
from coalmine.training.config import parse_config
from coalmine.zoo.water_filling import FloorAsTotal, InconsistentModels

FALSE_ALARM = 1e-6
SETTING = """
[data]
source = "digits"
held_out = 0.2
options = { group = 10 }
[model]
name = "logistic"
[client]
learning_rate = 1.0
batch_size = "all"
[privacy]
delta = 1e-4
unit = "example"
[mechanism]
kind = "water-filling"
clip_norm = 1.0
floor = 0.02
examples = 10
batch = 5
[participation]
pattern = "epochs"
epochs = 1
rounds = 8
[canaries]
family = "aimed"
pool = 600
[run]
evaluate_every = 0
workers = 1
"""


def config(*changes):
    return parse_config(SETTING, changes)


def lifted(covariance, floor):
    values, vectors = np.linalg.eigh(covariance)
    return (vectors * np.maximum(values, floor)) @ vectors.T


def dense(covariance):
    return covariance.floor * np.eye(len(covariance.factors)) + covariance.factors @ covariance.factors.T


@pytest.mark.parametrize("blocks", [1, 3])
def test_the_covariance_of_a_client_is_that_of_its_description(blocks):
    """Long rows are clipped; with blocks it is block-diagonal; a sum of clients that has too many factors is the same."""
    rows = 3 * stream(0, "rows").standard_normal((7, 6))
    mechanism = WaterFilling(2.0, 0.05, 7, 4, 3, blocks=blocks)
    kept = rows * np.minimum(1, 2.0 / np.linalg.norm(rows, axis=1))[:, None]
    known = np.zeros((6, 6))
    for part in np.array_split(np.arange(6), blocks):
        known[np.ix_(part, part)] = lifted(kept[:, part].T @ kept[:, part] / 21, 0.05)
    noise = ExampleNoise.of(mechanism.describe())
    found = noise.covariance(rows)
    assert dense(found) == pytest.approx(known, abs=1e-12)
    assert dense(added([found, found, found], 6)) == pytest.approx(3 * known, abs=1e-12)
    assert added([found, found, found], 6).factors.shape[1] <= 6
    assert noise.lift == pytest.approx(4 / 21 - 0.05) and noise.share == pytest.approx(2 / 7)
    isotropic = ExampleNoise.of(FullGradient(2.0, 0.05, 7, 4).describe()).covariance(rows)
    assert dense(isotropic) == pytest.approx(0.05 * np.eye(6))


def test_whitening_is_the_inverse():
    factors = stream(1, "factors").standard_normal((9, 4))
    white = Whitening(LowRank(0.3, factors))
    directions = np.linalg.qr(stream(1, "directions").standard_normal((9, 3)))[0]
    known = 0.3 * np.eye(9) + factors @ factors.T
    assert white.inverse(directions) == pytest.approx(np.linalg.solve(known, directions))
    assert white.inverse(directions[:, 0]) == pytest.approx(np.linalg.solve(known, directions[:, 0]))
    assert white.variances(directions) == pytest.approx(np.diag(directions.T @ known @ directions))
    assert np.isfinite(Whitening(LowRank(0.0, factors)).inverse(directions)).all()  # singular: large, and no error


def test_directions_without_the_whole_matrix_have_the_same_noise():
    """1,600 coordinates are beyond what is decomposed as a whole."""
    factors = np.zeros((1600, 3))
    factors[[5, 6, 7], [0, 1, 2]] = 3.0, 2.0, 1.0
    covariance, rng = LowRank(0.5, factors), stream(2, "aim")
    assert Whitening(covariance).variances(directions_of(covariance, 4, "least", rng)) == pytest.approx(0.5 * np.ones(4))
    assert np.abs(directions_of(covariance, 1, "top", rng)[5]) == pytest.approx(1.0)
    assert np.abs(factors.T @ directions_of(covariance, 4, "outside-span", rng)).max() < 1e-12
    assert np.abs(directions_of(LowRank(1.0, factors[:9]), 1, "top", rng)).ravel()[5] == pytest.approx(1.0)
    assert aimed_directions(np.diag([1.0, 3.0]), 1, "top").ravel() == pytest.approx([0, 1])


def test_the_pool_goes_round_its_directions():
    directions = np.linalg.qr(stream(3, "pool").standard_normal((50, 3)))[0]
    canaries = AimedCanaries(Aim("least", directions, np.zeros(50), 1.0, np.ones(3)), 7, secret_seed=1)
    assert canaries.update(4) == pytest.approx(directions[:, 1], abs=1e-6)
    assert canaries.project(canaries.combine([0, 3], [1.0, 2.0])) == pytest.approx([3, 0, 0, 3, 0, 0, 3], abs=1e-6)
    assert canaries.norms([slice(0, 10), slice(10, 50)]).shape == (2, 7)
    assert np.square(canaries.norms([slice(0, 10), slice(10, 50)])).sum(axis=0) == pytest.approx(np.ones(7))


class Killed:
    """A hook that interrupts after so many rounds."""

    def __call__(self, event):
        if event["event"] == "round" and event["round"] == 3:
            raise KeyboardInterrupt


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("aimed")
    return run(config(), folder / "whole", secret_seed=5, quiet=True), folder


def test_held_out_scores_are_standard_normal_and_inserted_ones_lie_above_by_the_pair(finished):
    """The law by which the auditor whitens is that of the code: both worlds, exactly. False alarm: three times FALSE_ALARM."""
    done, folder = finished
    scores = Scores.from_npz(folder / "whole" / "scores.npz")
    held_out, inserted = scores.held_out_values, scores.inserted_values
    assert stats.kstest(held_out, "norm").pvalue > FALSE_ALARM
    noise = ExampleNoise.of(WaterFilling(1.0, 0.02, 10, 17, 5).describe())
    heights = json.loads((folder / "whole" / "spectrum.json").read_text())["heights"]
    gap = noise.share / math.sqrt(np.median(heights) + noise.floor)  # a canary's own client has noise, too
    assert abs(inserted.mean() - gap) < stats.norm.isf(FALSE_ALARM / 2) * 1.05 / math.sqrt(inserted.size)
    low, high = stats.chi2(held_out.size).ppf([FALSE_ALARM / 2, 1 - FALSE_ALARM / 2])
    assert low < np.square(held_out).sum() < high
    assert done.result.verdict.word != "VIOLATED" and not done.result.conformance.deviations
    assert done.result.conformance.noise.measured is not None  # by the covariance of each round, not only at least


def test_the_files_and_the_page_of_a_run(finished):
    done, folder = finished
    found = json.loads((folder / "whole" / "spectrum.json").read_text())
    assert found["level"] > 0 and len(found["heights"]) == 64 and "for the auditor alone" in found["secret"]
    marks = {each["what"]: each["epsilon"] for each in found["marks"]}
    height = float(np.median(found["heights"]))
    assert marks["plain noise of the same floor"] == pytest.approx(pair_epsilon([1.0], [0.1 / math.sqrt(height)], 1e-4))
    assert marks["the canaries' own pair"] <= marks["claimed, tight"] < marks["Theorem 4 (an example replaced)"]
    page = (folder / "whole" / "report.html").read_text()
    assert (
        "Measured, and what could be" in page
        and "The water and the ground" in page
        and "do not publish it" in page
        and "epsilon of single records" in page
    )
    assert {view.view for view in done.result.views} == {"likelihood-ratio"}


def test_killed_and_resumed_the_scores_are_the_same(finished):
    done, folder = finished
    with pytest.raises(KeyboardInterrupt):
        run(config(), folder / "cut", secret_seed=5, quiet=True, hooks=[Killed()])
    again = resume(folder / "cut", quiet=True)
    assert again.result.setting["sha256"] == done.result.setting["sha256"]


@pytest.mark.parametrize(
    ("kind", "changes", "word"),
    [
        (FloorAsTotal, (), "noise-scale"),
        (InconsistentModels, ("canaries.aim=outside-span",), "VIOLATED"),
    ],
)
def test_a_bug_is_caught(kind, changes, word, tmp_path):
    mechanism = kind(1.0, 0.02, 10, 17, 5)
    result = run(config(*changes), tmp_path / "run", mechanism=mechanism, secret_seed=6, quiet=True).result
    assert result.verdict.failed
    assert word in (result.verdict.word, *(each.key for each in result.conformance.deviations))


def test_secure_aggregation_alone_is_violated_against_a_stated_claim(tmp_path):
    """Nothing is added: no epsilon is claimed for it, and one that somebody states is false."""
    mechanism = WaterFilling(1.0, 0.0, 10, 17, 5)
    done = run(config("canaries.aim=outside-span"), tmp_path / "run", mechanism=mechanism, secret_seed=7, quiet=True)
    assert math.isinf(done.result.claim.epsilon) and done.result.verdict.word == "INCONCLUSIVE"
    scores = Scores.from_npz(tmp_path / "run" / "scores.npz")
    stated = Claim(1.0, 1e-4, "stated", game=scores.game)
    assert audit_scores(scores, delta=1e-4, claim=stated).verdict.word == "VIOLATED"
    assert scores.game.unit == example_game("zero-out", 1).unit == "example"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (["audit.view=final-model"], "random directions"),
        (["audit.layers=true"], "random directions"),
        (["canaries.family=sphere", "audit.view=whitened"], "is for aimed canaries"),
        (["canaries.aim=sideways"], "aim"),
    ],
)
def test_what_does_not_go_together_is_one_message(changes, words):
    with pytest.raises(ValueError, match=words):
        config(*changes)


def test_a_mechanism_of_whole_clients_has_no_covariance_to_aim_at(tmp_path):
    with pytest.raises(ValueError, match="single examples"):
        run(config("privacy.unit=client"), tmp_path / "run", mechanism=Gaussian(1.0, 1.0), quiet=True)
    assert not (tmp_path / "run").exists()
