"""Is what a run says right? Real runs of the trainer against closed forms, and against what their mechanism really is.

Where a test says "3 standard errors" its false alarms are 1 in 370; seeds are fixed. Other limits come from FALSE_ALARM, the
chance that a comparison fails although the code is right, whatever the seeds.
"""

import json
from dataclasses import dataclass, replace

import numpy as np
import pytest
from scipy import optimize, special, stats

from coalmine import accounting, training
from coalmine.contracts import Contribution
from coalmine.estimators.gaussian_fit import estimate_gaussian, standardise
from coalmine.gaussian import gaussian_epsilon
from coalmine.mechanisms import Gaussian
from coalmine.participation import FixedSize, Poisson, Repeated, Trace
from coalmine.result import AuditResult
from coalmine.scores import Scores
from coalmine.training.config import read_config
from coalmine.views import anytime_scores

pytestmark = pytest.mark.usefixtures("undrawn")

FALSE_ALARM = 1e-6
LIMIT = -float(special.ndtri(FALSE_ALARM / 2))  # standard errors, two-sided
SIGMAS = (0.1, 0.3, 1.0, 3.0)
FAMILIES = ("transform", "sphere")
QUICK = {"transform": ("canaries.pool=600",), "sphere": ("canaries.pool=300", "participation.rounds=8")}


def means(trained, name):
    """Standardised scores of the inserted canaries."""
    return standardise(trained.scores(name))[0]


def own_rounds(trained):
    """The round of every inserted canary, of canaries that have one."""
    return trained.schedule.presence[:, trained.schedule.inserted].argmax(axis=0)


def squares(trained, family, clients):
    """By round, sigma² + |X_t|²/d, and k_t/d for sphere canaries: 1/sqrt of it is the closed form of SPEC L, J1 and J3."""
    dim = trained.job.model.dim
    found = np.full(trained.job.rounds, trained.job.mechanism.update_noise_multiplier**2)
    if clients:
        found += trained.column("clients_norm") ** 2 / dim
    return found + (trained.column("canaries") / dim if family == "sphere" else 0.0)


def standard_error(trained, mean):
    """Of a mean of standardised scores: one for every canary, and the length of every released vector (J3, to first order)."""
    dim, rounds = trained.job.model.dim, np.unique(own_rounds(trained)).size
    return np.sqrt(1 / trained.schedule.inserted.sum() + 2 * mean**2 / (dim * rounds))


# ---------------------------------------------------------------------------------------------------- (a) without real clients


@pytest.mark.parametrize("sigma", [0.2, 1.0])
@pytest.mark.parametrize("family", FAMILIES)
def test_without_clients_scores_have_the_mean_of_the_closed_form(train, nobody, family, sigma):
    """J1: mu = 1/sigma in units of the unused rows. J3: mu = 1/sqrt(sigma² + k_t/d). Within 3 standard errors.

    Whoever knows the others subtracts the other canaries too: 1/sigma for both families.
    """
    changes = (*nobody(4), f"canaries.family={family}", "canaries.pool=500", f"mechanism.noise_multiplier={sigma}")
    trained = train(*changes, secret_seed=3)
    assert (trained.column("clients") == 0).all() and (trained.column("clients_norm") == 0).all()
    closed = 1 / np.sqrt(squares(trained, family, clients=False)[own_rounds(trained)])
    for name, expected in (("known-rounds", closed.mean()), ("known-others", 1 / sigma)):
        assert abs(means(trained, name).mean() - expected) < 3 * standard_error(trained, expected)


@pytest.mark.parametrize("family", FAMILIES)
def test_without_clients_and_in_one_round_all_views_agree(train, nobody, family):
    """Algorithm 1 of the papers: one release, its cosine. The variance of J1 and J3 is (S - k/d)/S and (S - 1/d)/S."""
    trained = train(*nobody(1), f"canaries.family={family}", "canaries.pool=800", "server.momentum=0", secret_seed=4)
    dim, count, sigma = trained.job.model.dim, int(trained.schedule.inserted.sum()), 0.5
    whole = sigma**2 + count / dim
    cosines = np.sqrt(dim) * trained.scores("final-model").inserted_values
    assert abs(cosines.mean() - whole**-0.5) < 3 * standard_error(trained, whole**-0.5)
    variance = (whole - (count if family == "transform" else 1) / dim) / whole
    assert abs(cosines.var() / variance - 1) < LIMIT * np.sqrt(2 / count)
    assert np.allclose(
        trained.scores("every-release").inserted_values, trained.scores("final-model").inserted_values, atol=1e-6
    )


# ---------------------------------------------------------------------------------------- (b) with real clients and with noise


@pytest.fixture(scope="module")
def at(train):
    """One run for each noise and family, shared by the tests below."""
    made = {}

    def run(sigma, family="transform", secret_seed=1):
        key = sigma, family, secret_seed
        if key not in made:
            changes = (f"mechanism.noise_multiplier={sigma}", f"canaries.family={family}", *QUICK[family])
            made[key] = train(*changes, secret_seed=secret_seed)
        return made[key]

    return run


@pytest.mark.parametrize("sigma", SIGMAS)
def test_known_others_gives_the_analytic_epsilon(at, sigma):
    """In its 95 % interval as often as it should, and on average over runs."""
    gaps, inside, seeds = [], [], range(1, 6)
    for seed in seeds:
        trained = at(sigma, secret_seed=seed)
        claim = trained.claim("known-others")
        assert claim.epsilon == pytest.approx(float(gaussian_epsilon(0, 1, 1 / sigma, 1, trained.delta)))
        found = estimate_gaussian(trained.scores("known-others"), delta=trained.delta)
        inside.append(found.low <= claim.epsilon <= found.high)
        gaps.append((found.details["mean"] - 1 / sigma) / standard_error(trained, 1 / sigma))
    assert len(inside) - sum(inside) <= stats.binom.ppf(1 - FALSE_ALARM, len(inside), 0.05)
    runs = [at(sigma, secret_seed=seed).scores("known-others") for seed in seeds]
    inserted = np.concatenate([scores.inserted_values for scores in runs])
    together = Scores(inserted, np.ones(inserted.size, bool), null=runs[0].null)
    found = estimate_gaussian(together, delta=1e-5)
    assert found.low < claim.epsilon < found.high  # the seeds are fixed; another five would miss it once in twenty times
    assert abs(np.mean(gaps)) * np.sqrt(len(gaps)) < LIMIT


@pytest.mark.parametrize("sigma", SIGMAS)
def test_known_others_of_sphere_canaries_do_not_have_each_other_in_the_way(at, sigma):
    trained = at(sigma, "sphere")
    found = means(trained, "known-others")
    assert abs(found.mean() - 1 / sigma) < LIMIT * standard_error(trained, 1 / sigma)


@pytest.mark.parametrize("sigma", SIGMAS)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_round_shows_what_noise_and_clients_leave(at, family, sigma):
    """The plain score of a canary in its round has the mean 1/sqrt(sigma² + |X_t|²/d), |X_t| as recorded in the events."""
    trained = at(sigma, family)
    assert trained.column("clients_norm").max() > 5  # clients are aligned: more than the root of their number
    expected = 1 / np.sqrt(squares(trained, family, clients=True)[own_rounds(trained)])
    found = anytime_scores(trained.recorder.projections(trained, "mean"), trained.schedule, trained.recorder.canaries)
    assert found.size == trained.schedule.inserted.sum()
    assert abs(found.mean() - expected.mean()) < LIMIT * standard_error(trained, expected.mean())


@pytest.mark.parametrize("sigma", SIGMAS)
@pytest.mark.parametrize("family", FAMILIES)
def test_known_rounds_agrees_with_the_closed_form(at, family, sigma):
    """1/sqrt(sigma² + |X_t|²/d) if the clients' sums of different rounds have nothing in common.

    They do have: the filter learns it from the other rounds and subtracts it, as it should. The closed form of that is
    sqrt(s'R⁻¹s) with R = sigma² + <X_t, X_s>/d. The score lies between the two, and where the filter stays plain, on the first.
    """
    trained = at(sigma, family)
    rounds, dim = own_rounds(trained), trained.job.model.dim
    plain = 1 / np.sqrt(squares(trained, family, clients=True)[rounds])
    sums = np.stack(
        [each.observed.others * each.observed.release.denominator / each.observed.release.clip_norm for each in trained.done]
    )
    assert np.allclose(np.linalg.norm(sums, axis=1), trained.column("clients_norm"))
    covariance = sums @ sums.T / dim + np.diag(squares(trained, family, clients=False))
    best = np.sqrt(np.diag(np.linalg.inv(covariance)))[rounds]
    scores = trained.scores("known-rounds")
    found, margin = standardise(scores)[0].mean(), LIMIT * standard_error(trained, best.mean())
    assert plain.mean() - margin < found < best.mean() + margin
    if scores.statistic == "cosine" or scores.null.directions is None:
        assert abs(found - plain.mean()) < margin
    else:
        assert sigma <= 1  # where clients are a visible part of what is released
    if sigma <= 0.1:
        assert found > plain.mean() + margin


@pytest.mark.parametrize("sigma", SIGMAS)
@pytest.mark.parametrize("family", FAMILIES)
def test_known_rounds_of_a_single_round_is_the_closed_form(train, family, sigma):
    """There is no other round to learn from."""
    changes = ("participation.pattern=once", "participation.rounds=1", "data.users=40", "canaries.pool=400")
    trained = train(*changes, f"canaries.family={family}", f"mechanism.noise_multiplier={sigma}", secret_seed=2)
    expected = squares(trained, family, clients=True)[0] ** -0.5
    assert abs(means(trained, "known-rounds").mean() - expected) < LIMIT * standard_error(trained, expected)


@pytest.mark.parametrize("sigma", SIGMAS)
def test_the_final_model_is_the_sum_of_its_rounds(at, sigma):
    """With momentum b round t counts w_t = 1 + b + ... + b^(T-1-t) times: mu = w_t/sqrt(sigma² w'w + |sum w_t X_t|²/d)."""
    runs = [at(sigma, secret_seed=seed) for seed in range(1, 6)]
    gaps = []
    for trained in runs:
        weight = np.cumsum(0.9 ** np.arange(trained.job.rounds))[::-1]
        sums = np.stack(
            [
                each.observed.others * each.observed.release.denominator / each.observed.release.clip_norm
                for each in trained.done
            ]
        )
        clients = np.sum((weight @ sums) ** 2) / trained.job.model.dim
        expected = weight[own_rounds(trained)] / np.sqrt(sigma**2 * weight @ weight + clients)
        gaps.append(means(trained, "final-model") - expected)
    together = np.concatenate(gaps)
    assert abs(together.mean()) < LIMIT / np.sqrt(together.size)


@pytest.mark.parametrize("sigma", [0.1, 0.2, 0.3, 0.4])
def test_known_rounds_then_every_release_then_the_final_model(at, sigma):
    """Where the analytic epsilon is at least 12."""
    trained = at(sigma)
    assert trained.claim("known-rounds").epsilon >= 12
    known, every, final = (trained.bound(name) for name in ("known-rounds", "every-release", "final-model"))
    assert known >= every > final


def isotonic(levels):
    """Does a mean rise over levels? The lack of fit of the best rising line is below a chi-square if it does. And the rise."""
    weight = np.array([each.size for each in levels], dtype=float)  # scores of unit variance
    mean = np.array([each.mean() for each in levels])
    fitted = optimize.isotonic_regression(mean, weights=weight).x
    lack = float(weight @ (mean - fitted) ** 2)
    return lack <= stats.chi2.isf(FALSE_ALARM, mean.size - 1), (mean[-1] - mean[0]) / np.sqrt(1 / weight[0] + 1 / weight[-1])


@pytest.mark.parametrize("name", ["known-others", "known-rounds", "final-model"])
def test_leakage_falls_with_noise(at, name):
    """Five runs at each noise."""
    levels = [[means(at(sigma, secret_seed=seed), name) for seed in range(1, 6)] for sigma in SIGMAS[::-1]]
    rising, rise = isotonic([np.concatenate(each) for each in levels])
    assert rising and rise > (LIMIT if name != "final-model" else 0)  # the final model hides behind aligned clients


@pytest.mark.parametrize("name", ["known-others", "known-rounds", "final-model"])
def test_leakage_rises_with_presentations(train, name):
    """And for whoever knows the others as the analysis says, mu = sqrt(presentations)/sigma."""
    presented = (1, 2, 4, 8)
    runs = [train(*QUICK["transform"], "mechanism.noise_multiplier=1", f"canaries.presentations={n}") for n in presented]
    rising, rise = isotonic([means(trained, name) for trained in runs])
    assert rising and rise > (LIMIT if name != "final-model" else 0)
    for count, trained in zip(presented, runs, strict=True):
        assert (trained.schedule.times == count).all()
        assert trained.claim(name).game.participation == str(Repeated(count))
        if name == "known-others":
            mean = means(trained, name).mean()
            error = np.hypot(standard_error(trained, count**0.5), count**0.5 / np.sqrt(2 * trained.recorder.spare))
            assert abs(mean - count**0.5) < LIMIT * error


# ------------------------------------------------------------------------------- (c) correct runs are not convicted

COINS = "canaries.pool=300"
SHORT = (COINS, "data.users=60", "participation.rounds=8", "audit.unused_rows=300")
CORRECT = {
    "Poisson, canaries as clients": (
        "participation.pattern=poisson",
        "participation.cohort_size=20",
        "canaries.pattern=as-clients",
        "mechanism.noise_multiplier=1",
    ),
    "Poisson, canaries in periods": (
        "participation.pattern=poisson",
        "participation.cohort_size=20",
        "canaries.presentations=2",
        "mechanism.noise_multiplier=1",
    ),
    "8 presentations": ("canaries.presentations=8", "mechanism.noise_multiplier=1"),
}


@pytest.mark.parametrize("case", CORRECT)
def test_correct_runs_are_not_convicted_beyond_the_stated_rate(train, case):
    """40 runs, each view's bound at 95 %: alarms are at most what a binomial exceeds once in a million."""
    runs = [train(*SHORT, *CORRECT[case], secret_seed=seed) for seed in range(100, 140)]
    most = stats.binom.ppf(1 - FALSE_ALARM, len(runs), 0.05)
    for name, null in (*((name, "theory") for name in runs[0].by_key), ("known-others", "empirical")):
        claim = runs[0].claim(name)
        assert sum(trained.bound(name, null=null) > claim.epsilon for trained in runs) <= most


def test_sampling_hides_the_rounds_only_from_those_who_do_not_know_them(train):
    """The claim that stands beside a view is that of its adversary."""
    trained = train(*SHORT, *CORRECT["Poisson, canaries as clients"])
    pattern, how = Poisson(20 / 60, 8), {"noise_multiplier": 1.0, "delta": 1e-5}
    for name in ("final-model", "every-release"):
        expected = accounting.claim(pattern, **how)
        assert replace(trained.claim(name), description=expected.description) == expected
    for name in ("known-rounds", "known-others"):
        expected = accounting.claim(pattern, rounds_known=True, **how)
        assert replace(trained.claim(name), description=expected.description) == expected
    assert trained.claim("known-others").epsilon > trained.claim("final-model").epsilon


QUIET = ("run.workers=1", "run.evaluate_every=0", "data.held_out=0.1", "mechanism.clip_norm=0.1", "audit.unused_rows=600")


def audited(tmp_path, *changes, secret_seed=5, preset="tiny"):
    """A whole run with its directory: (its result, its events)."""
    config = read_config(preset, [*QUIET, *changes])
    finished = training.run(config, tmp_path / "run", secret_seed=secret_seed, quiet=True)
    assert AuditResult.load(tmp_path / "run") == finished.result
    events = [json.loads(line) for line in (tmp_path / "run" / "events.jsonl").read_text().splitlines()]
    return finished.result, [event for event in events if "round" in event]


KINDS = {
    "fixed size": (
        ("participation.pattern=fixed-size", "participation.cohort_size=20", "canaries.pattern=as-clients"),
        (str(FixedSize(25, 200, 8)), "replace-one", "client"),
    ),
    "minimum separation": (
        (
            "participation.pattern=min-separation",
            "participation.cohort_size=20",
            "participation.separation=3",
            "canaries.pattern=as-clients",
        ),
        ("at most 3 times, at least 3 rounds apart", "add-or-remove-one", "client"),
    ),
    "replacing clients": (("canaries.replace_clients=true",), ("once", "replace-one", "client")),
    "adaptive clipping": (("mechanism.kind=adaptive",), ("once", "add-or-remove-one", "client")),
    "FedAdam": (("server.optimiser=adam", "server.learning_rate=0.01"), ("once", "add-or-remove-one", "client")),
    "central DP-SGD": (
        ("data.options={group=1}", "data.users=400", "client.batch_size=all", "client.learning_rate=1", "privacy.unit=example"),
        ("once", "add-or-remove-one", "example"),
    ),
    "sphere": (("canaries.family=sphere",), ("once", "add-or-remove-one", "client")),
    "as vectors": (("canaries.full_vectors=true",), ("once", "add-or-remove-one", "client")),
    "realised denominator": (("mechanism.divide_by_actual_cohort=true",), ("once", "add-or-remove-one", "client")),
    "local momentum and steps": (
        ("client.momentum=0.5", "client.epochs=2", "client.max_steps=3", "client.max_examples=8"),
        ("once", "add-or-remove-one", "client"),
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_run_ends_in_its_own_game_and_is_not_convicted(tmp_path, kind):
    """One run each: with probability 0.95 at least each; the seeds are fixed."""
    changes, (participation, relation, unit) = KINDS[kind]
    result, events = audited(tmp_path, "participation.rounds=8", *changes)
    assert result.verdict.word != "VIOLATED"
    for claim in (result.claim, *(view.claim for view in result.views)):
        assert (claim.game.participation, claim.game.relation, claim.game.unit) == (participation, relation, unit)
    assert result.claim.game.knowledge == "rounds known"
    assert {view.view for view in result.views} == {"final-model", "every-release", "known-rounds"}
    assert len(events) == 8
    denominators = {event["denominator"] for event in events}
    assert (len(denominators) > 1) == (kind == "realised denominator")
    assert any(caveat.startswith("denominator:") for caveat in result.caveats) == (kind == "realised denominator")
    clips = {event["clip_norm"] for event in events}
    assert (len(clips) > 1) == (kind == "adaptive clipping")


def test_a_trace_is_replayed(tmp_path):
    lines = [f"{number},{10 * number + place:03d}" for number in range(6) for place in range(9)]
    (tmp_path / "trace.csv").write_text("\n".join(["round,client", *lines, "5,000"]) + "\n")
    trace = Trace.read(tmp_path / "trace.csv")
    result, events = audited(
        tmp_path, "data.held_out=0", "participation.pattern=trace", f"participation.trace='{tmp_path}/trace.csv'"
    )
    assert [event["clients"] for event in events] == [9] * 5 + [10]
    assert f"({trace})" in result.in_words["training"]
    assert result.verdict.word != "VIOLATED" and result.claim.game.participation == "once"


def test_a_run_of_real_texts_is_right_too(tmp_path):
    """Chats of real users, a small language model."""
    changes = ("data.source=chat", "data.options={}", "data.at_least=20", "data.users=60", "data.vocabulary=100")
    model = ("model.name=chat-lstm", "model.options={embedding=8, hidden=12}", "data.length=10", "client.max_steps=2")
    result, events = audited(
        tmp_path, *changes, *model, "participation.rounds=4", "participation.epochs=1", "canaries.pool=400"
    )
    assert result.verdict.word != "VIOLATED"
    assert result.estimate.low < result.claim.epsilon < result.estimate.high
    assert events[-1]["accuracy"] >= 0


def test_a_maximum_without_power_says_so(tmp_path):
    """And one with power does not; the papers' fit of it is there by name, and flagged."""
    loud, _ = audited(tmp_path / "loud", "mechanism.noise_multiplier=0.1", "audit.paper_views=true")
    quiet, _ = audited(tmp_path / "quiet", "mechanism.noise_multiplier=3", "audit.view=every-release")
    views = {view.view: view for view in loud.views}
    assert set(views) == {"final-model", "every-release", "known-rounds", "whole-model"} | {"every-step"}
    for name in ("every-release", "every-step"):
        assert views[name].estimate.method == "Gaussian, mean and width"
        assert any(caveat.startswith("maximum:") for caveat in views[name].caveats)
    assert not any(caveat.startswith("no power:") for caveat in views["every-release"].caveats)
    assert views["every-release"].bound.epsilon > 0
    assert quiet.setting["view"] == "every-release" and quiet.verdict.code == "conforms"  # by the tests of the mechanism alone
    assert any(caveat.startswith("no power:") for caveat in quiet.caveats)
    assert quiet.estimate is None and any(caveat.startswith("no estimate:") for caveat in quiet.caveats)


def test_nothing_is_promised_for_a_maximum_over_rounds(tmp_path):
    """Also where it has power: how likely it notices too little noise has no closed form."""
    loud, _ = audited(tmp_path, "mechanism.noise_multiplier=0.5", "audit.view=every-release", "participation.rounds=1",
                      "participation.epochs=1")  # fmt: skip
    assert loud.verdict.code == "conforms" and loud.verdict.noticeable_noise_factor == float("inf")


# ---------------------------------------------------------------------------------------- (d) broken ones are convicted


@dataclass(frozen=True)
class HalfNoise(Gaussian):
    """Says one noise, adds half of it."""

    @property
    def update_noise_multiplier(self):
        return self.noise_multiplier / 2


@dataclass(frozen=True)
class NoClipping(Gaussian):
    """Forgets to cut."""

    def client(self, update, public, examples=1):
        return Contribution(update)


@dataclass(frozen=True)
class ReusedNoise(Gaussian):
    """Draws its noise once."""

    def noise(self, dim, public, secret):
        return secret("noise", 0).standard_normal(dim)


@pytest.mark.parametrize("broken", [HalfNoise, NoClipping, ReusedNoise])
def test_a_broken_twin_is_convicted(train, broken):
    """A mechanism of one's own goes in like ours; the same run with the right one is not convicted."""
    changes = ("canaries.pool=400", "participation.rounds=12", "mechanism.noise_multiplier=0.5")
    right, wrong = (train(*changes, mechanism=kind(0.1, 0.5), secret_seed=9) for kind in (Gaussian, broken))
    assert wrong.claim("known-others") == right.claim("known-others")
    assert wrong.violated("known-others") and not right.violated("known-others")
