"""The round loop against independent twins: what is released, recorded and claimed is what a few lines by hand say.

FALSE_ALARM is the chance that a statistical test of this file fails although the code is right.
"""

import json
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from scipy import special, stats

from coalmine import accounting, training
from coalmine._random import stream
from coalmine.audit.statements import Measured, audit_views
from coalmine.canaries.schedule import Schedule
from coalmine.contracts import Contribution
from coalmine.estimators.anytime import anytime_epsilons
from coalmine.gaussian import gaussian_epsilon
from coalmine.mechanisms import AdaptiveGaussian, Gaussian
from coalmine.participation import Epochs, FixedSize, MinSeparation, Periods, Poisson, Repeated
from coalmine.training.config import read_config

FALSE_ALARM = 1e-6
FLOAT32 = 2.0**-23
SMALL = ("canaries.pool=60", "participation.rounds=3", "participation.epochs=1", "data.users=30", "audit.unused_rows=500")


# ------------------------------------------------------------------------------------------------------------- canaries join


@pytest.mark.parametrize("clipping", ["fixed", "adaptive"])
@pytest.mark.parametrize("family", ["transform", "sphere"])
def test_canaries_as_vectors_give_the_release_of_the_fast_path(train, family, clipping):
    """The same round from the same state, with noise: equal up to the rounding of float32 canaries, k_t of them."""
    changes = (*SMALL, f"canaries.family={family}", f"mechanism.kind={'adaptive' if clipping == 'adaptive' else 'gaussian'}")
    fast, slow = (train(*changes, f"canaries.full_vectors={word}", secret_seed=7) for word in ("false", "true"))
    for quick, full in zip(fast.done, slow.done, strict=True):
        count, scale = quick.record["canaries"], quick.release.clip_norm / quick.release.denominator
        assert quick.record["canaries"] == full.record["canaries"] > 0
        gap = np.abs(quick.release.vector - full.release.vector).max()
        # the second round trains on a model that differs by the first one's rounding: local training may enlarge that
        assert gap < scale * count * FLOAT32 * (8 if quick.number == 0 else 1000)
        assert quick.release.clip_norm == pytest.approx(full.release.clip_norm, rel=1e-9)
        assert quick.record["unclipped_with_canaries"] == full.record["unclipped_with_canaries"]


def test_clipping_that_is_no_function_of_the_length_gets_whole_vectors(train):
    """Then the mechanism's own door is the only one: here each half of the coordinates is cut on its own."""
    trained = train(*SMALL, mechanism=ByHalves(0.1, 0.5))
    first = trained.done[0]
    taking_part, dim = trained.schedule.taking_part(0), trained.job.model.dim
    expected = np.zeros(dim)
    for index in taking_part:
        expected += ByHalves(0.1, 0.5).client(1e3 * trained.recorder.canaries.update(int(index)), _public(trained, 0)).vector
    noise = 0.05 * stream(1, "noise", 0, 0).standard_normal(dim)
    found = (
        first.observed.release.vector * first.observed.release.denominator
        - first.observed.others * first.observed.release.denominator
        - noise
    )
    assert np.abs(found - expected).max() < 0.1 * taking_part.size * 8 * FLOAT32


@dataclass(frozen=True)
class ByHalves(Gaussian):
    """Each half of the update has its own clip norm."""

    def client(self, update, public, examples=1):
        whole, half = Gaussian(self.clip_norm, self.noise_multiplier), replace(public, clip_norm=public.clip_norm / 2**0.5)
        parts = [whole.client(part, half).vector for part in np.array_split(update, 2)]
        return Contribution(np.concatenate(parts))

    def cut(self, norm, public):
        return None


def _public(trained, number):
    state = {"clip_norm": np.array(trained.done[number].observed.record["clip_norm"])}
    return trained.job.mechanism.announce(state, number, trained.job.denominator)


@pytest.mark.parametrize(
    "pattern", [Periods(1), Periods(4), Poisson(0.2, 8), FixedSize(9, 50, 8), MinSeparation(2, 9, 8)], ids=str
)
def test_rounds_are_assigned_before_coins(pattern):
    """What a canary's rounds are does not depend on coins: throwing them anew changes who takes part, not who would have."""
    drawn = Schedule.draw(pattern, pool=50, rounds=8, secret_seed=11)
    again = list(pattern.cohorts(50, 8, lambda *names: stream(11, "canaries' rounds", *names)))
    assert all(np.array_equal(one, other) for one, other in zip(drawn.assigned, again, strict=True))
    flipped = replace(drawn, inserted=~drawn.inserted)
    assert np.array_equal(flipped.presence, drawn.presence)
    for number in range(8):
        both = np.concatenate([drawn.taking_part(number), flipped.taking_part(number)])
        assert np.array_equal(np.sort(both), drawn.assigned[number])


def test_coins_change_nothing_but_who_takes_part(train):
    """With the other coins the same clients come in the same rounds, with the same noise and the same denominator."""
    one = train(*SMALL)
    other = train(*SMALL, canary_setup={"schedule": replace(one.schedule, inserted=~one.schedule.inserted)})
    for mine, theirs in zip(one.done, other.done, strict=True):
        assert mine.record["clients"] == theirs.record["clients"]
        assert mine.release.denominator == theirs.release.denominator
        assert mine.record["canaries"] + theirs.record["canaries"] == one.schedule.assigned[mine.number].size
    first, twin = one.done[0], other.done[0]
    assert np.array_equal(first.observed.others, twin.others)
    signs = np.where(one.schedule.inserted, 1.0, -1.0)[one.schedule.assigned[0]]
    expected = one.recorder.canaries.combine(one.schedule.assigned[0], 0.1 * signs) / first.observed.release.denominator
    assert np.abs(first.observed.release.vector - twin.release.vector - expected).max() < 1e-7


def test_shares_clipping_and_denominators_are_recorded_as_counted_by_hand(train):
    trained = train(*SMALL)
    cohorts = list(trained.job.participation.cohorts(30, 3, lambda *names: stream(0, "cohorts", *names)))
    assert trained.job.denominator == 30 / 3 + 60 / 3 / 2
    for number, (done, cohort) in enumerate(zip(trained.done, cohorts, strict=True)):
        taking_part = int(trained.schedule.inserted[trained.schedule.assigned[number]].sum())
        record = done.record
        assert (record["clients"], record["canaries"]) == (cohort.size, taking_part)
        assert record["canary_share"] == taking_part / (cohort.size + taking_part)
        assert record["denominator"] == 20.0  # known before coins and cohorts
        unclipped = record["unclipped_clients"] * cohort.size
        assert unclipped == pytest.approx(round(unclipped))
        assert record["unclipped_with_canaries"] == pytest.approx(unclipped / (cohort.size + taking_part))
        assert record["clients_norm"] == pytest.approx(np.linalg.norm(done.others) * 20 / 0.1)


def test_replacing_canaries_take_places_and_keep_the_cohort(train):
    plain, replacing = (train(*SMALL, f"canaries.replace_clients={word}") for word in ("false", "true"))
    assert replacing.job.denominator == 10.0
    for mine, theirs in zip(replacing.done, plain.done, strict=True):
        assert mine.record["canaries"] == theirs.record["canaries"]
        assert mine.record["clients"] == max(theirs.record["clients"] - theirs.record["canaries"], 0)
    assert replacing.claim("known-others").game.relation == "replace-one"
    expected = accounting.claim(Periods(1), noise_multiplier=0.5, delta=1e-5, relation="replace-one")
    assert replace(replacing.claim("known-others"), description=expected.description) == expected


def test_over_long_canaries_move_an_adaptive_clip_norm_and_it_shows(train):
    """By hand: log C falls by rate (share - quantile), the share with noise of its own, canaries among the clipped."""
    changes = (*SMALL, "mechanism.kind=adaptive", "mechanism.count_noise=2.0", "canaries.pool=120")
    trained, without = train(*changes), train(*changes, canary_setup={"canary_norm": 0.01})
    for run in (trained, without):
        clip = run.column("clip_norm")
        for number in range(2):
            record = run.done[number].observed.record
            total = record["clients"] + record["canaries"]
            below = round(record["unclipped_with_canaries"] * total)
            noisy = below - total / 2 + 2.0 * float(stream(1, "count noise", number).standard_normal())
            share = np.clip(noisy / run.job.denominator + 0.5, 0.0, 1.0)
            assert clip[number + 1] == pytest.approx(clip[number] * np.exp(-0.2 * (share - 0.5)), rel=1e-12)
    assert (trained.column("clip_norm")[1:] > without.column("clip_norm")[1:]).all()
    assert (trained.column("unclipped_with_canaries") < without.column("unclipped_with_canaries")).all()
    budget = 0.5**-2 - (2 * 2.0) ** -2
    assert trained.job.mechanism.update_noise_multiplier == pytest.approx(budget**-0.5)
    assert isinstance(trained.job.mechanism, AdaptiveGaussian)


# --------------------------------------------------------------------------------------------------------- what is released

CLIP = 0.4  # about the median length of the updates below


def test_a_release_is_a_plain_loop_with_clipping_and_a_sum(train):
    """torch.optim.SGD, one client after the other, in a loop that shares no code with the trainer but the order of examples."""
    local = ("client.epochs=2", "client.momentum=0.5", "client.batch_size=4", "client.max_steps=5", "canaries.pool=20")
    trained = train(*SMALL, *local, f"mechanism.clip_norm={CLIP}")
    job, parameters = trained.job, torch.tensor(trained.job.model.initial(0))
    velocity = np.zeros(job.model.dim)
    cohorts = list(job.participation.cohorts(30, 3, lambda *names: stream(0, "cohorts", *names)))
    for number, (cohort, done) in enumerate(zip(cohorts, trained.done, strict=True)):
        total, norms = np.zeros(job.model.dim), []
        for place in cohort:
            user = job.data.users[place]
            examples = job.data.examples_of(user)
            rows, counts = job.training.batches(len(examples), stream(0, "order of examples", number, user))
            update = _plain_loop(job.model, parameters, examples, rows, counts)
            norms.append(np.linalg.norm(update))
            total += update * min(1.0, CLIP / norms[-1])
        assert done.record["unclipped_clients"] == np.mean(np.array(norms) <= CLIP)
        assert np.abs(done.others * job.denominator - total).max() < 2e-5 * CLIP
        for index in trained.schedule.taking_part(number):
            total += CLIP * trained.recorder.canaries.update(int(index))
        total += 0.5 * CLIP * stream(1, "noise", number, 0).standard_normal(total.size)
        assert np.abs(done.release.vector - total / job.denominator).max() < 2e-5 * CLIP
        velocity = 0.9 * velocity + done.release.vector
        parameters = torch.tensor(done.state["parameters"])
        before = trained.done[number - 1].state["parameters"] if number else job.model.initial(0)
        assert np.abs(done.state["parameters"] - before - velocity).max() < 1e-6
    assert 0 < trained.column("unclipped_clients").mean() < 1


def _plain_loop(model, parameters, examples, rows, counts):
    module = model.build()
    torch.nn.utils.vector_to_parameters(parameters.clone(), module.parameters())
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.5)
    for row, count in zip(rows, counts, strict=True):
        optimizer.zero_grad()
        outputs = module(torch.tensor(examples.features[row[:count]]))
        torch.nn.functional.cross_entropy(outputs, torch.tensor(examples.targets[row[:count]])).backward()
        optimizer.step()
    return (torch.nn.utils.parameters_to_vector(module.parameters()).detach() - parameters).double().numpy()


def test_a_round_without_clients_is_noise_and_canaries(train, nobody):
    """Cohorts may be empty, as Poisson sampling of few clients makes them."""
    trained = train(*SMALL, *nobody(3))
    for done in trained.done:
        taking_part = trained.schedule.taking_part(done.number)
        expected = trained.recorder.canaries.combine(taking_part, np.full(taking_part.size, 0.1)).astype(np.float64)
        expected += 0.05 * stream(1, "noise", done.number, 0).standard_normal(expected.size)
        assert np.abs(done.release.vector - expected / trained.job.denominator).max() < 1e-8
        assert not done.others.any() and done.record["training_loss"] is None
    with pytest.raises(ValueError, match="nobody takes part"):
        train(*SMALL, *nobody(3), "canaries.replace_clients=true")


# -------------------------------------------------------------------------------------------------------------- what is claimed

PATTERNS = {
    "once": ((), Periods(1)),
    "4 presentations": (("canaries.presentations=4",), Repeated(4)),
    "as clients, epochs": (("canaries.pattern=as-clients", "participation.epochs=3"), Epochs(3)),
    "Poisson": (
        ("canaries.pattern=as-clients", "participation.pattern=poisson", "participation.cohort_size=9"),
        Poisson(0.3, 6),
    ),
    "fixed size": (
        ("canaries.pattern=as-clients", "participation.pattern=fixed-size", "participation.cohort_size=9"),
        FixedSize(18, 60, 6),
    ),
    "minimum separation": (
        (
            "canaries.pattern=as-clients",
            "participation.pattern=min-separation",
            "participation.cohort_size=9",
            "participation.separation=2",
        ),
        MinSeparation(2, 18, 6),
    ),
}


@pytest.mark.parametrize("kind", PATTERNS)
def test_claims_are_those_of_the_canaries_and_of_the_adversary(train, kind):
    changes, pattern = PATTERNS[kind]
    trained = train(*SMALL, "participation.rounds=6", "mechanism.noise_multiplier=2", *changes)
    how = {"noise_multiplier": 2.0, "delta": 1e-5}
    for name, known in (("final-model", False), ("every-release", False), ("known-rounds", True), ("known-others", True)):
        expected = accounting.claim(pattern, rounds_known=known, **how)
        assert replace(trained.claim(name), description=expected.description) == expected
        assert trained.scores(name).game == trained.claim(name).game
    if isinstance(pattern, Repeated):
        analytic = float(gaussian_epsilon(0.0, 1.0, pattern.times**0.5 / 2.0, 1.0, 1e-5))
        assert trained.claim("known-others").epsilon == pytest.approx(analytic)


# ------------------------------------------------------------------------------------------------- what is said while it runs


@pytest.mark.parametrize("presentations", [1, 4])
def test_what_is_measured_on_the_way_stays_below_what_is_analysed(train, presentations):
    """After no round of a run, in all but 5 % of runs: 20 runs, and what a binomial exceeds once in a million."""
    changes = ("participation.rounds=8", "data.users=40", f"canaries.presentations={presentations}", "canaries.pool=200")
    once, above = float(gaussian_epsilon(0.0, 1.0, 1 / 0.5, 1.0, 1e-5)), 0
    for seed in range(20):
        trained = train(*changes, "audit.unused_rows=200", secret_seed=seed)
        scores = [trained.recorder.running_scores_of(number, rows).values for number, rows in enumerate(trained.seen)]
        measured = anytime_epsilons(np.concatenate(scores), delta=1e-5)[np.cumsum([each.size for each in scores]) - 1]
        assert measured[-1] > 0.3 * once  # it does measure
        above += bool((measured > once).any())
    assert above <= stats.binom.ppf(1 - FALSE_ALARM, 20, 0.05)


def test_events_say_what_is_claimed_and_measured_so_far(tmp_path):
    """The claim grows with the presentations; what is measured is that of all scores so far."""
    changes = ["run.workers=1", "run.evaluate_every=0", "data.held_out=0", "participation.rounds=8", "data.users=40"]
    config = read_config(
        "tiny", [*changes, "audit.views=['known-others']", "canaries.presentations=4", "audit.unused_rows=200"]
    )
    events = _events(config, tmp_path / "run", 1)
    for event in events:
        times = event["round"] // 2 + 1
        assert event["epsilon_claimed"] == pytest.approx(float(gaussian_epsilon(0.0, 1.0, times**0.5 / 0.5, 1.0, 1e-5)))
        assert event["epsilon_measured"] < event["epsilon_claimed"]
    assert events[-1]["epsilon_measured"] > events[0]["epsilon_measured"]


def test_under_sampling_the_claim_on_the_way_is_for_known_rounds(tmp_path):
    """What is measured on the way knows the rounds; beside it the amplified claim would look violated by a correct run."""
    changes = ["run.workers=1", "run.evaluate_every=0", "data.held_out=0", "participation.rounds=4", "data.users=40"]
    changes += ["audit.views=['known-others']", "participation.pattern=poisson", "participation.cohort_size=8"]
    changes += ["mechanism.noise_multiplier=2", "canaries.pattern=as-clients", "audit.unused_rows=200"]
    config = read_config("tiny", changes)
    for event in _events(config, tmp_path / "run", 1):
        pattern = Poisson(0.2, event["round"] + 1)
        expected = accounting.claim(pattern, noise_multiplier=2.0, delta=1e-5, rounds_known=True).epsilon
        assert event["epsilon_claimed"] == pytest.approx(expected)
        assert event.get("epsilon_measured", 0.0) < expected


def _events(config, path, seed):
    training.run(config, path, secret_seed=seed, quiet=True)
    events = [json.loads(line) for line in (path / "events.jsonl").read_text().splitlines()]
    return [event for event in events if "round" in event]


# ---------------------------------------------------------------------------------------------------------- where it leaks


@dataclass(frozen=True)
class BareLayer(Gaussian):
    """Leaves the last layer of at least 500 parameters without noise."""

    bare: slice | None = None

    def noise(self, dim, public, secret):
        noise = super().noise(dim, public, secret)
        noise[self.bare] *= 0.05
        return noise


def test_a_layer_without_noise_is_located(train):
    """All statements share the confidence, and the one that convicts names its layer."""
    wide = ("model.options={hidden=[48, 24]}", "canaries.pool=400", "participation.rounds=6", "audit.layers=true")
    noise = "mechanism.noise_multiplier=1"
    right = train(*wide, noise)
    layers = {layer.name: layer for layer in right.recorder.layers}
    assert all(layer.place.stop - layer.place.start >= 500 for layer in layers.values()) and len(layers) == 2
    target = list(layers)[1]
    wrong = train(*wide, noise, mechanism=BareLayer(0.1, 1.0, bare=layers[target].place))
    results = [_by_layers(trained) for trained in (right, wrong)]
    assert [result.verdict.word == "VIOLATED" for result in results] == [False, True]
    assert (results[1].setting["view"], results[1].setting["layer"]) == ("known-others", target)
    for result in results:
        assert {result.bound.confidence, *(view.bound.confidence for view in result.views)} == {1 - 0.05 / 3}
        assert {result.setting["layer"], *(view.layer for view in result.views)} == {
            None,
            *layers,
        }
        assert any(caveat.startswith("layers: this is one of 3") for caveat in result.caveats)


def _by_layers(trained):
    found = [trained.scores("known-others", layer=layer) for layer in (None, *trained.recorder.layers)]
    return audit_views([Measured(scores, trained.claim("known-others")) for scores in found], delta=trained.delta)


def test_within_a_layer_scores_are_those_of_its_own_coordinates(train):
    """A canary's part in a layer of share p has the length sqrt(p): mu = sqrt(p)/sigma. Over both layers, as the whole."""
    trained = train(
        "canaries.pool=600", "audit.layers=true", "model.options={hidden=[40, 30]}", "mechanism.noise_multiplier=0.3"
    )
    limit = -float(special.ndtri(FALSE_ALARM / 2))
    for layer in trained.recorder.layers:
        share = (layer.place.stop - layer.place.start) / trained.job.model.dim
        scores = trained.scores("known-others", layer=layer)
        found = scores.inserted_values / scores.null.spread
        # within a layer the canaries of a transform are not orthogonal: they are in each other's way, by k_t (1-p)/d
        counts, rounds = trained.column("canaries"), trained.schedule.presence[:, trained.schedule.inserted].argmax(axis=0)
        room = counts * (1 - share) / trained.job.model.dim
        expected = np.sqrt(share) / np.sqrt(0.3**2 + room[rounds])
        assert abs(found.mean() - expected.mean()) < limit * np.sqrt(1 / found.size + 2 * expected.mean() ** 2 / 2000)
