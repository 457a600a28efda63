"""A loop of NumPy beside the audit: what is measured, which arrays it takes, and what is said when something is wrong.

The mean score of k canaries is normal around 1/noise with standard deviation 1/sqrt(k); seeds are fixed.
"""

import re

import numpy as np
import pytest

import coalmine
from coalmine._random import stream
from coalmine.adapters import Statement
from coalmine.errors import MismatchError, NonFiniteError, NotEnoughCanariesError

DIM, STEPS, BATCH, CLIP, NOISE = 2000, 20, 16, 0.5, 0.5
FALSE_ALARM = 4.9  # standard errors: one in a million, two-sided


def clip(rows, norm=CLIP):
    return rows * np.minimum(1.0, norm / np.linalg.norm(rows, axis=1))[:, None]


def train(audit, *, noise=NOISE, clipping=clip, scale=1 / BATCH, steps=STEPS, seed=3, show=False):
    rng = stream(seed, "a loop")
    for t in range(steps):
        rows = rng.standard_normal((BATCH, DIM)).astype(np.float32) / 40
        clipped = clipping(audit.plant(t, rows))
        release = scale * (clipped.sum(axis=0) + noise * CLIP * rng.standard_normal(DIM))
        audit.release(t, release, **({"contributions": clipped} if show else {}))
    return audit.result


def mean_score(result):
    estimate = next(each for each in result.estimates if each.key == "gaussian-mean")
    return estimate.details["mean"], 1 / np.sqrt(estimate.details["count"])


def test_correct_code_shows_its_claim_and_conforms(new_loop, capsys):
    audit = new_loop({"sampling": "poisson", "rate": 0.02})
    said = capsys.readouterr().err
    assert said.startswith("coalmine: 200 canaries tell half the noise")
    assert str(audit.plan()) in said
    result = train(audit, show=True)
    mean, error = mean_score(result)
    assert abs(mean - 1 / NOISE) < FALSE_ALARM * error
    assert result.conformance.deviations == ()
    assert {"clipping", "treated-alike", "noise-scale", "canaries-whole"} <= {each.key for each in result.conformance.findings}
    assert result.verdict.word == "CONSISTENT"


def test_everything_speaks_of_examples(new_loop, tmp_path):
    result = train(new_loop({"sampling": "poisson", "rate": 0.02}, out=tmp_path / "audit"))
    assert result.game.unit == result.claim.game.unit == "example"
    shown = str(result) + (tmp_path / "audit" / "report.html").read_text()
    assert "an example: epsilon" in shown
    assert not re.search(r"\d+ clients|[Cc]lients? of this run|client level|a client's own|other clients", shown)
    own = coalmine.claim(coalmine.Poisson(0.02, STEPS), noise_multiplier=NOISE, delta=1e-5).epsilon
    assert (result.training["epsilon_of_clients"], result.training["unit"]) == (pytest.approx(own), "example")


@pytest.mark.parametrize(
    ("fault", "options"),
    [
        ("half the noise", {"noise": NOISE / 2}),
        ("no clipping", {"clipping": lambda rows: rows}),
        ("the norm of half of the parameters", {"clipping": lambda rows: rows * _half_norm(rows)}),
        ("layers with the total bound", {"clipping": lambda rows: np.hstack([clip(rows[:, :1000]), clip(rows[:, 1000:])])}),
    ],
)
def test_faults_are_never_consistent(new_loop, fault, options):
    result = train(new_loop(), **options)
    assert result.verdict.word in ("VIOLATED", "DEVIATES")
    assert result.conformance.side in ("less", "unknown")


def _half_norm(rows):
    return np.minimum(1.0, CLIP / np.linalg.norm(rows[:, :1000], axis=1))[:, None]


def test_a_client_can_be_the_unit(new_audit):
    told = {"dim": DIM, "steps": STEPS, "clip_norm": CLIP, "noise_multiplier": NOISE, "batch": BATCH}
    assert train(new_audit(unit="client").loop(**told)).game.unit == "client"


def test_lists_and_dictionaries_of_arrays_are_one_vector(new_loop):
    audit, rng = new_loop(), stream(5, "trees")
    tree = {
        "b": [rng.standard_normal((BATCH, 10, 20)).astype(np.float32)],
        "a": rng.standard_normal((BATCH, 1800)).astype(np.float32),
    }
    planted = audit.plant(0, tree)
    assert (list(planted), planted["b"][0].shape[1:], planted["a"].shape[1]) == (["b", "a"], (10, 20), 1800)
    assert len(planted["a"]) == len(planted["b"][0]) == BATCH + audit.audit.places
    assert (planted["a"][:BATCH] == tree["a"]).all()
    norms = np.linalg.norm(np.hstack([planted["a"], planted["b"][0].reshape(-1, 200)]), axis=1)[BATCH:]
    inserted = audit.audit.taking_part(0).size
    assert norms[:inserted] == pytest.approx(1e4 * CLIP, rel=1e-4)
    assert (norms[inserted:] < 1e-3 * CLIP).all()


def test_torch_stays_torch(new_loop):
    torch = pytest.importorskip("torch")
    audit = new_loop()
    planted = audit.plant(0, torch.zeros(BATCH, DIM, dtype=torch.float64))
    assert planted.dtype == torch.float64
    assert planted.shape[0] == BATCH + audit.audit.places


def test_jax_stays_jax(new_loop):
    jax = pytest.importorskip("jax")
    audit = new_loop()
    planted = audit.plant(0, [jax.numpy.zeros((BATCH, DIM))])
    assert isinstance(planted[0], jax.Array)
    assert planted[0].shape[0] == BATCH + audit.audit.places


class Foreign:
    """An array of a library that nobody here knows: the array API and DLPack, no __array__."""

    def __init__(self, values):
        self.values, self.shape, self.dtype, self.device = values, values.shape, values.dtype, "cpu"

    def __dlpack__(self, **options):
        return self.values.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.values.__dlpack_device__()

    def __array_namespace__(self):
        return Foreign

    @staticmethod
    def asarray(values, dtype, device):
        return Foreign(np.asarray(values, dtype))

    @staticmethod
    def concat(arrays):
        return Foreign(np.concatenate([each.values for each in arrays]))


def test_any_library_of_the_array_api_stays_itself(new_loop):
    audit = new_loop()
    planted = audit.plant(0, [Foreign(np.full((BATCH, DIM), 0.01, np.float32))])[0]
    assert isinstance(planted, Foreign)
    assert planted.shape[0] == BATCH + audit.audit.places
    audit.release(0, [Foreign(clip(planted.values).sum(axis=0) / BATCH)])


def test_microbatches_are_one_step(new_loop):
    audit, rng = new_loop(), stream(3, "microbatches")
    for t in range(STEPS):
        parts = [rng.standard_normal((BATCH // 2, DIM)).astype(np.float32) / 40 for _ in range(2)]
        first, last = audit.plant(t, parts[0], last=False), audit.plant(t, parts[1])
        assert len(first) == BATCH // 2
        total = clip(first).sum(axis=0) + clip(last).sum(axis=0)
        audit.release(t, (total + NOISE * CLIP * rng.standard_normal(DIM)) / BATCH)
    assert audit.result.conformance.deviations == ()
    assert audit.result.training["mean_clients"] == BATCH


def test_sums_and_layers(new_loop):
    told = {"scale": 1.0, "clip_norm": (0.3, 0.4), "groups": {"first": 1000, "second": 1000}}

    def by_layer(rows):
        return np.hstack([clip(rows[:, :1000], 0.3), clip(rows[:, 1000:], 0.4)])

    result = train(new_loop(told), clipping=by_layer, scale=1.0)
    assert result.conformance.deviations == ()
    assert result.claim.description.clip.over == "layer"


POPULATION, RATE = 640, 0.1  # 64 examples in a step, of which as many as BATCH are stated where it says so


def train_sampled(audit, *, rate=RATE, fixed=False, named=True, seed=3):
    """Examples are drawn from a population in every step."""
    rng = stream(seed, "a loop that samples")
    for t in range(STEPS):
        drawn = rng.choice(POPULATION, 64, replace=False) if fixed else np.flatnonzero(rng.random(POPULATION) < rate)
        rows = rng.standard_normal((len(drawn), DIM)).astype(np.float32) / 40
        clipped = clip(audit.plant(t, rows, **({"examples": drawn} if named else {})))
        audit.release(t, (clipped.sum(axis=0) + NOISE * CLIP * rng.standard_normal(DIM)) / 64, contributions=clipped)
    return audit.result


@pytest.fixture
def sampled_loop(new_loop):
    def made(**told):
        usual = {"batch": 64, "sampling": "poisson", "rate": RATE, "population": POPULATION}
        return new_loop({**usual, **{name: value for name, value in told.items() if name != "statement"}}, **_statement(told))

    return made


def _statement(told):
    return {"statement": told["statement"]} if "statement" in told else {}


def test_examples_that_are_shown_are_tested_for_their_sampling(sampled_loop):
    result = train_sampled(sampled_loop())
    assert result.conformance.deviations == ()
    assert result.conformance.finding("cohorts").measured == pytest.approx(64, rel=0.1)
    assert result.verdict.code == "conforms"  # all that the claim rests on was tested


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize(("wrong", "side"), [({"rate": 4 * RATE}, "less"), ({"fixed": True}, "unknown")])
def test_sampling_otherwise_than_stated_is_found(sampled_loop, wrong, side, named):
    result = train_sampled(sampled_loop(), named=named, **wrong)
    found = result.conformance.finding("cohorts")
    assert (found.side, result.verdict.word) == (side, "DEVIATES")
    assert bool(found.details.get("sizes_only")) is not named
    assert "client" not in str(found)


def test_sizes_alone_do_not_count_as_a_test_of_the_sampling(sampled_loop):
    result = train_sampled(sampled_loop(), named=False)
    assert result.conformance.deviations == ()
    assert "as large as their sampling" in result.conformance.finding("cohorts").sentence
    assert result.verdict.code != "conforms"


def test_batches_of_a_fixed_size_are_no_poisson_sampling(new_loop):
    told = {"sampling": "poisson", "rate": 0.02}
    assert any(each.startswith("sampling: batches have 16 to 16 examples") for each in train(new_loop(told)).caveats)


def test_examples_need_a_population(new_loop):
    rows = np.ones((BATCH, DIM), np.float32)
    with pytest.raises(MismatchError, match=r"needs loop\(population=...\)"):
        new_loop().plant(0, rows, examples=range(BATCH))
    audit = new_loop({"sampling": "poisson", "rate": 0.02, "population": 800})
    with pytest.raises(MismatchError, match="with 3 numbers for 16 rows"):
        audit.plant(0, rows, examples=[1, 2, 3])


def test_a_step_without_examples_is_a_step(new_loop):
    """Poisson sampling at a small rate makes some."""
    audit, rng = new_loop(), stream(3, "empty")
    for t in range(STEPS):
        rows = rng.standard_normal((BATCH * (t % 3 > 0), DIM)).astype(np.float32) / 40
        clipped = clip(audit.plant(t, rows))
        audit.release(t, (clipped.sum(axis=0) + NOISE * CLIP * rng.standard_normal(DIM)) / BATCH, contributions=clipped)
    assert audit.result.conformance.deviations == ()


@pytest.mark.parametrize("pieces", [["all"], ["b", "a"]])
@pytest.mark.parametrize(("seed", "public"), [(42, True), (2**60 + 1, False)])
def test_noise_of_a_seeded_script_is_found(new_loop, seed, public, pieces):
    """However many numbers were drawn since the seed; what comes of a seed that nobody tries is not accused."""
    torch = pytest.importorskip("torch")
    state, audit = torch.get_rng_state(), new_loop()
    torch.manual_seed(seed)
    for t in range(3):
        rows = audit.plant(t, {"b": torch.randn(BATCH, 500) / 40, "a": torch.randn(BATCH, 1500) / 40})
        factors = (CLIP / torch.cat(list(rows.values()), dim=1).norm(dim=1)).clamp(max=1)
        drawn = torch.randn(DIM)
        noise = {"a": drawn[:1500], "b": drawn[1500:]} if pieces == ["all"] else {"b": drawn[:500], "a": drawn[500:]}
        audit.release(t, {name: (factors @ rows[name] + NOISE * CLIP * noise[name]) / BATCH for name in rows})
    torch.set_rng_state(state)
    found = audit.result.conformance.finding("noise-unpredictable")
    assert found.deviates is public
    assert ("torch's generator with seed 42" in found.where) is public


def test_canaries_sampled_as_examples_are(sampled_loop):
    result = train_sampled(sampled_loop(statement=Statement(view="unknown-rounds", unused_rows=1000)))
    assert result.setting["view"] == "unknown-rounds"
    assert result.game.knowledge == "rounds unknown"
    assert result.game.participation.rate == RATE
    assert result.verdict.word != "VIOLATED"
    assert result.conformance.deviations == ()


def test_unknown_rounds_need_a_rate(new_loop):
    with pytest.raises(MismatchError, match="does not sample by Poisson's rule"):
        new_loop(statement=Statement(view="unknown-rounds"))


@pytest.mark.parametrize(("dim", "pool"), [(40, 20), (100, 50), (5000, 1040)])
def test_the_pool_follows_from_claim_and_dimension(new_loop, dim, pool):
    audit = new_loop({"dim": dim, "noise_multiplier": 1.0}, pool=None)
    assert audit.audit.schedule.pool == pytest.approx(pool, rel=0.1)
    assert audit.audit.schedule.pool <= dim / 2


def test_a_pool_that_does_not_fit(new_loop):
    with pytest.raises(NotEnoughCanariesError, match=r"take Audit\(pool=50\) or less"):
        new_loop({"dim": 100}, pool=60)


# Errors, each in one sentence


def test_the_opposite_sign_is_refused_in_the_first_step(new_loop):
    with pytest.raises(MismatchError, match="opposite sign"):
        train(new_loop(), scale=-1 / BATCH)


@pytest.mark.parametrize("scale", [1.0, 0.1 / BATCH, 3 / BATCH])
def test_another_scale_is_refused_in_the_first_step(new_loop, scale):
    with pytest.raises(MismatchError, match=f"{scale * BATCH:.2g}.* times what was stated: give scale="):
        train(new_loop(), scale=scale)


def test_another_clip_norm_is_no_other_scale(new_loop):
    """The sum is longer and the noise is not: that is for the audit to say, and no mistake in its use."""
    result = train(new_loop(), clipping=lambda rows: clip(rows, 3 * CLIP))
    assert result.verdict.word == "VIOLATED"
    assert result.conformance.finding("canaries-whole").measured == pytest.approx(3, rel=0.1)


@pytest.mark.parametrize(
    ("rows", "error", "message"),
    [
        (np.zeros((BATCH, 7), np.float32), MismatchError, r"gradients of 7 numbers for each example, and loop\(dim=2000\)"),
        (np.full((BATCH, DIM), np.nan, np.float32), NonFiniteError, "a gradient is NaN or infinite"),
        ([np.zeros((3, 1000)), np.zeros((4, 1000))], MismatchError, "along its first axis"),
        ("gradients", MismatchError, "must be arrays, or lists and dictionaries of arrays; found str"),
    ],
)
def test_gradients_that_do_not_fit(new_loop, rows, error, message):
    with pytest.raises(error, match=message):
        new_loop().plant(0, rows)


def test_the_order_of_calls(new_loop):
    rows = np.ones((BATCH, DIM), np.float32)
    with pytest.raises(MismatchError, match=r"release\(0, ...\) without plant\(0, gradients\)"):
        new_loop().release(0, rows[0])
    with pytest.raises(MismatchError, match=r"plant\(1, ...\) where step 0 was expected"):
        new_loop().plant(1, rows)
    audit = new_loop()
    audit.plant(0, rows)
    with pytest.raises(MismatchError, match="every step once"):
        audit.plant(0, rows)
    with pytest.raises(MismatchError, match="a release of 3 numbers"):
        audit.release(0, np.ones(3))


def test_an_audit_that_fails_does_not_lose_the_training(new_loop, capsys):
    audit = new_loop()
    train(audit, steps=3)
    rows = np.ones((BATCH, DIM), np.float32)
    assert len(audit.plant(3, rows)) > BATCH
    audit.release(3, np.full(DIM, np.nan))
    assert "there is no audit of this training: the release of step 4 has NaN" in capsys.readouterr().err
    assert audit.plant(4, rows) is rows
    audit.release(4, rows[0])
    with pytest.raises(NonFiniteError, match="step 4"):
        audit.result  # noqa: B018


def test_more_steps_than_were_said_are_tested_without_canaries(new_loop):
    result = train(new_loop(), steps=STEPS + 5)
    assert result.training["later_rounds"] == 5
    assert result.conformance.rounds == STEPS + 5


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ({"sampling": "poisson"}, "needs rate="),
        ({"sampling": "often", "rate": 0.1}, "sampling"),
        ({"clip_norm": (1.0, 2.0)}, "give groups="),
        ({"groups": {"first": 3}}, "groups have 3 parameters together, and dim=2000"),
        ({"noise_multiplier": -1.0}, "noise_multiplier"),
    ],
)
def test_arguments(new_loop, told, message):
    with pytest.raises(ValueError, match=message):
        new_loop(told)
