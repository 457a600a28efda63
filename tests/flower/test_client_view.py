"""An audit from a client's side alone: the server is not told, and sees nothing but clients."""

import json
from contextlib import suppress

import numpy as np
import pytest
from scipy.stats import norm

from coalmine import gaussian_epsilon
from coalmine.adapters.flower import Audit, LocalGrid, Statement, canary_mod, client_view, last_partitions
from coalmine.errors import MismatchError, NotEnoughCanariesError

FALSE_ALARM = 1e-6
CANARIES, ROUNDS, CLIP = 60, 10, 0.3


def new_audit(**options):
    return Audit(
        **{
            "delta": 1e-5,
            "rounds": ROUNDS,
            "pool": CANARIES,
            "statement": Statement(unused_rows=3000),
            "secret_seed": 51,
            **options,
        }
    )


def numbered(message, context, call_next):
    """The application of these tests wants to know the round, also where the observer does not."""
    message.content["config"].setdefault("server-round", 1)
    return call_next(message, context)


def train(digits, audit, noise, *, config=None, missed=(), mods=(), **options):
    """The mod, after a training in which the observer is silent in the `missed` rounds."""
    together, who = digits.CLIENTS + CANARIES, last_partitions(CANARIES)
    view = client_view(audit, clip_norm=CLIP, noise_multiplier=config or noise, cohort=together, who=who)
    canaries = canary_mod(audit, clip_norm=CLIP, who=who, labelled=False)
    app = digits.client_app(mods=[*mods, view, numbered, canaries], **options)

    class Missing(digits.FedAvg):
        def configure_train(self, server_round, arrays, config, grid):
            grid.silent = {digits.CLIENTS} if server_round in missed else set()  # the first canary is the observer
            return super().configure_train(server_round, arrays, config, grid)

    inner = Missing(fraction_evaluate=0.0, min_train_nodes=together, min_available_nodes=together)
    private = digits.DifferentialPrivacyServerSideFixedClipping(inner, noise, CLIP, together)
    private.start(LocalGrid(app, together), digits.initial_arrays(), ROUNDS)
    return view


def seen_as(digits, result, releases, noise):
    """Whether the mean score is what so many releases show: at most all, at least what clients leave that all point one way."""
    estimate = next(each for each in result.estimates if each.key == "gaussian-mean")
    limit = -norm.ppf(FALSE_ALARM / 2) / np.sqrt(estimate.details["count"])
    most = np.sqrt(releases) / noise
    least = np.sqrt(releases / (noise**2 + releases * digits.CLIENTS**2 / digits.DIM))
    return least - limit <= estimate.details["mean"] <= most + limit


def epsilon_of(releases, noise):
    return float(gaussian_epsilon(0, 1, np.sqrt(releases) / noise, 1, 1e-5))


def test_a_client_sees_what_the_clients_leave_of_all_rounds_but_the_last(digits, tmp_path):
    audit, noise = new_audit(out=tmp_path / "audit"), 2.0
    train(digits, audit, noise)
    result = audit.result
    assert result.setting["view"] == "known-rounds"
    assert result.game.participation == f"{ROUNDS - 1} times"
    assert [view.view for view in result.views] == ["final-model", "every-release"]
    assert seen_as(digits, result, ROUNDS - 1, noise)
    assert result.verdict.word != "VIOLATED"
    lines = (tmp_path / "audit" / "events.jsonl").read_text().splitlines()
    assert [json.loads(line)["round"] for line in lines] == list(range(ROUNDS - 1))


def test_noise_that_is_smaller_than_the_server_says_is_found(digits):
    audit = new_audit()
    train(digits, audit, 0.5, config=3.0)
    assert audit.result.verdict.word == "VIOLATED"


def test_everything_survives_in_the_state_of_the_node(digits):
    """A process for every task: a new audit, a new mod, and only the node's context is the same."""
    made = []

    def fresh(context):
        made.append(new_audit())
        return made[-1]

    one = new_audit()
    for audit in (one, fresh):
        digits.seed(8)
        train(digits, audit, 2.0)
    assert len(made) > ROUNDS * CANARIES
    concluded = []
    for audit in made:
        with suppress(MismatchError):  # of all others nothing came
            concluded.append(audit.result.to_json())
    assert concluded == [one.result.to_json()]


@pytest.mark.parametrize(
    "missed", [range(2, ROUNDS), range(2, ROUNDS, 2), (1, 2, 3)], ids=["all between", "every other", "first"]
)
def test_the_claim_counts_all_releases_that_the_observer_saw_in_a_sum(digits, missed):
    """A correct application; it would be VIOLATED in at most 5 % of runs, and the mean is off in 1e-6 of them."""
    audit, noise = new_audit(), 2.0
    train(digits, audit, noise, missed=missed)
    result, releases = audit.result, ROUNDS - min(set(range(1, ROUNDS + 1)) - set(missed))
    assert result.game.participation == f"{releases} times"
    assert result.claim.epsilon == pytest.approx(epsilon_of(releases, noise))
    assert seen_as(digits, result, releases, noise)
    assert result.verdict.word != "VIOLATED"
    assert ("only as a sum with the next one" in " ".join(result.caveats)) == (1 not in missed)


def test_too_little_noise_is_found_in_a_sum_of_releases(digits):
    audit = new_audit()
    train(digits, audit, 0.5, config=3.0, missed=range(2, ROUNDS))
    assert audit.result.verdict.word == "VIOLATED"


def test_a_round_that_released_nothing_is_not_counted(digits):
    audit = new_audit()
    train(digits, audit, 2.0, fails=lambda partition, round_number: (partition, round_number) == (3, 4))
    assert audit.result.game.participation == f"{ROUNDS - 2} times"
    assert seen_as(digits, audit.result, ROUNDS - 2, 2.0)


def test_an_observer_that_is_not_asked_in_the_last_round_concludes_when_told(digits):
    audit, last = new_audit(), 6
    view = train(digits, audit, 2.0, missed=range(last + 1, ROUNDS + 1))
    with pytest.raises(MismatchError):
        audit.result  # noqa: B018
    result = view.conclude()
    assert result.game.participation == f"{last - 1} times"
    assert seen_as(digits, result, last - 1, 2.0)
    assert result.verdict.word != "VIOLATED"
    assert view.conclude() is audit.result is result


def test_the_context_of_the_observers_node_is_enough_to_conclude(digits):
    kept = []

    def audit_of(context):
        kept.append(context)
        return new_audit()

    first = train(digits, audit_of, 2.0, missed=[ROUNDS])
    observers = next(context for context in kept if int(context.node_config["partition-id"]) == digits.CLIENTS)
    later = client_view(new_audit(), clip_norm=CLIP, noise_multiplier=2.0, cohort=digits.CLIENTS + CANARIES)
    assert later.conclude(observers).to_json() == first.conclude().to_json()


@pytest.mark.parametrize(
    ("missed", "message"),
    [
        (range(1, ROUNDS + 1), r"canary 0, was not asked.*conclude\(context\)"),
        (range(2, ROUNDS + 1), "round 1 and no other one"),
    ],
    ids=["never", "once"],
)
def test_an_observer_that_saw_no_difference_says_so(digits, missed, message):
    view = train(digits, new_audit(), 2.0, missed=missed)
    with pytest.raises(NotEnoughCanariesError, match=message):
        view.conclude()


def without_number(message, context, call_next):
    """A mod that hides the number of the round from those after it."""
    message.content["config"].pop("server-round")
    return call_next(message, context)


@pytest.mark.parametrize("missed", [(), (4,)], ids=["always asked", "missing"])
def test_rounds_that_messages_do_not_say_are_counted_if_none_is_missed(digits, missed):
    view = train(digits, new_audit(), 2.0, missed=missed, mods=[without_number])
    if missed:
        with pytest.raises(MismatchError, match=rf"asked {ROUNDS - 1} times in {ROUNDS}.*'server-round'"):
            view.conclude()
    else:
        assert view.conclude().game.participation == f"{ROUNDS - 1} times"


@pytest.mark.parametrize("wrong", [{"clip_norm": 0}, {"noise_multiplier": -1}, {"cohort": 0}])
def test_arguments_are_checked(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        client_view(new_audit(), **{"clip_norm": 1.0, "noise_multiplier": 1.0, "cohort": 5, **wrong})
