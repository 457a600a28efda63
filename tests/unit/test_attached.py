"""`coalmine.Audit` beside a loop that nobody here wrote: a few lines of NumPy, no engine.

Releases are sums of canaries, clients and noise in clip norms. The mean score of k canaries is normal around the effect with
standard deviation 1/sqrt(k); seeds are fixed.
"""

import json
import stat

import numpy as np
import pytest

from coalmine._random import stream
from coalmine.audit.application import Application, Replies, Stated, as_it_was, described, observed, summary
from coalmine.audit.attached import AttachedAudit
from coalmine.audit.secret import make_secret, secret
from coalmine.audit.spec import AuditSpec, Statement
from coalmine.canaries.schedule import Schedule
from coalmine.contracts import Claim
from coalmine.errors import AuditError, MismatchError, NotEnoughCanariesError, RunDirectoryError
from coalmine.gaussian import gaussian_epsilon
from coalmine.participation import Periods
from coalmine.result import AuditResult

DIM, POOL, ROUNDS, CLIENTS, CLIP, DELTA, NOISE = 5000, 600, 10, 20, 0.5, 1e-5, 0.25
FALSE_ALARM = 4.9  # standard errors: one in a million, two-sided


def new_audit(**options):
    usual = {"delta": DELTA, "rounds": ROUNDS, "pool": POOL, "secret_seed": 7, "statement": Statement(unused_rows=1000)}
    return AttachedAudit(**{**usual, **options})


def application(noise=NOISE, dim=DIM, **options):
    usual = {
        "name": "a loop of NumPy",
        "engine": "NumPy",
        "initial": np.zeros(dim, np.float32),
        "groups": {"first": slice(0, dim // 2), "second": slice(dim // 2, dim)},
        "description": described(CLIP, noise),
        "knows_others": True,
    }
    return Application(**{**usual, **options})


def clipped(update):
    return update * min(1.0, CLIP / np.linalg.norm(update))


def train(audit, *, stated=NOISE, noise=None, rounds=ROUNDS, seed=3, everybody=False, dim=DIM, begin=True, **options):
    """Clients of random directions, canaries as the audit says, noise of `noise` clip norms, the mean of all places."""
    noise = stated if noise is None else noise
    if begin:
        audit.begin(application(stated, dim, **options))
    knows, pool, rng = options.get("knows_others", True), audit.schedule.pool, stream(seed, "a loop of NumPy")
    places = pool if everybody else audit.places
    together = float(CLIENTS + places)
    for number in range(rounds):
        who = np.flatnonzero(audit.schedule.inserted) if everybody else audit.taking_part(number)
        clients = sum(clipped(rng.standard_normal(dim)) for _ in range(CLIENTS))
        canaries = sum((clipped(audit.update(int(index), CLIP, dim).astype(float)) for index in who), np.zeros(dim))
        release = (clients + canaries + noise * CLIP * rng.standard_normal(dim)) / together
        audit.observe(
            observed(
                number,
                release.astype(np.float32),
                clip_norm=CLIP,
                denominator=together,
                clients=CLIENTS,
                inserted=who.size,
                places=places,
                assigned=np.arange(pool) if everybody else None,
                others=clients / together if knows else None,
                facts={"weather": "fine"},
            )
        )
    return audit


def mean_score(result):
    """(the mean of the inserted scores, its standard error)."""
    estimate = next(each for each in result.estimates if each.key == "gaussian-mean")
    return estimate.details["mean"], 1 / np.sqrt(estimate.details["count"])


def shows(result, effect):
    mean, error = mean_score(result)
    return abs(mean - effect) <= FALSE_ALARM * error


def codes(result):
    return [caveat.code for caveat in result.caveats]


# What is measured


def test_correct_noise_shows_the_claim():
    result = train(new_audit()).result
    assert result.setting["view"] == "known-others"
    assert result.claim.epsilon == pytest.approx(float(gaussian_epsilon(0, 1, 1 / NOISE, 1, DELTA)))
    assert shows(result, 1 / NOISE)
    assert result.verdict.word != "VIOLATED"
    assert result.verdict.power.half_noise_epsilon > result.claim.epsilon
    assert result.game.participation == "once"
    assert [view.view for view in result.views] == ["final-model", "every-release", "known-rounds"]


def test_intervals_of_the_estimate_cover_the_claim():
    """Each covers with 95 %; that fewer than 5 of 10 do has a chance of 3e-6. One wholly above the claim is not CONSISTENT."""
    found = [train(new_audit(secret_seed=seed), seed=seed).result for seed in range(100, 110)]
    assert all((each.verdict.word == "CONSISTENT") == (each.estimate.low <= each.claim.epsilon) for each in found)
    assert sum(each.estimate.low <= each.claim.epsilon <= each.estimate.high for each in found) >= 5


def test_half_of_the_noise_is_found():
    result = train(new_audit(), noise=NOISE / 2).result
    assert result.verdict.word == "VIOLATED"
    assert result.verdict.code == "bound-above-claim"
    assert shows(result, 2 / NOISE)


def test_presentations_add_up():
    result = train(new_audit(pool=200, presentations=4), stated=1.0).result
    assert result.game.participation == "4 times"
    assert shows(result, 2.0)
    assert result.verdict.word != "VIOLATED"


def test_canaries_that_are_sent_shorter_show_less():
    audit = new_audit(pool=200, replies=Replies(canary_norm=0.5))
    assert np.linalg.norm(audit.update(0, CLIP, DIM)) == pytest.approx(0.5 * CLIP, rel=1e-5)
    assert shows(train(audit).result, 0.5 / NOISE)


def test_an_engine_that_decides_who_takes_part():
    """All canaries in all rounds: the claim counts that, whatever rounds the audit would have given them."""
    audit = train(new_audit(pool=60), stated=2.0, everybody=True)
    result = audit.result
    assert result.game.participation == f"{ROUNDS} times"
    assert shows(result, np.sqrt(ROUNDS) / 2.0)
    assert result.verdict.word != "VIOLATED"
    assert (audit.schedule.times == ROUNDS).all()
    assert "no-trace" not in codes(result)


def test_canaries_that_were_never_sent_leave_a_warning(tmp_path):
    audit = new_audit(pool=60, out=tmp_path / "audit")
    audit.begin(application(2.0))
    rng = stream(4, "noise alone")
    how = {"clip_norm": CLIP, "denominator": 80.0, "clients": CLIENTS, "inserted": 30, "places": 60}
    for number in range(ROUNDS):
        release = 2.0 * CLIP * rng.standard_normal(DIM) / 80
        audit.observe(observed(number, release, others=np.zeros(DIM), assigned=np.arange(60), **how))
    assert "no-trace" in codes(audit.result)
    assert AuditResult.load(tmp_path / "audit").to_json() == audit.result.to_json()


def test_if_no_client_is_a_canary_there_is_one_message():
    audit = new_audit(pool=60)
    audit.begin(application())
    how = {"clip_norm": CLIP, "denominator": 80.0, "clients": CLIENTS, "inserted": 0, "places": 0}
    audit.observe(observed(0, np.ones(DIM), others=np.zeros(DIM), assigned=np.zeros(0, np.int64), **how))
    with pytest.raises(NotEnoughCanariesError, match="no client was a canary in any round"):
        audit.result  # noqa: B018


def test_clients_that_nobody_knows_leave_known_rounds():
    """What hides the canaries is then estimated from the length of the releases: X of 20 clients, each of one clip norm."""
    result = train(new_audit(), knows_others=False).result
    assert result.setting["view"] == "known-rounds"
    assert [view.view for view in result.views] == ["final-model", "every-release"]
    assert shows(result, 1 / np.sqrt(NOISE**2 + CLIENTS / DIM))
    assert result.verdict.word != "VIOLATED"
    assert result.training["mean_clients_norm"] == pytest.approx(np.sqrt(CLIENTS), rel=0.2)


def test_layers_are_looked_at_on_their_own():
    audit = new_audit(statement=Statement(unused_rows=1000, layers=True, views=("known-others",)))
    result = train(audit).result
    assert (result.setting["layer"], result.setting["view"]) == (None, "known-others")
    assert [view.layer for view in result.views] == ["first", "second"]
    assert "layers" in codes(result)


def test_a_claim_without_noise_is_the_applications_own():
    """It is in the game of the canaries, and nothing of it is recomputed."""
    audit = new_audit(pool=200, stated=Stated(claim=12.0))
    stated = Claim(12.0, DELTA, "stated by the application")
    audit.begin(application(None, stated=stated))
    train(audit, noise=1.0, begin=False)
    result = audit.result
    assert (result.claim.epsilon, result.claim.accountant) == (12.0, "stated by the application")
    assert result.claim.game == result.game
    assert result.claim.description.noise is None
    assert result.verdict.word != "VIOLATED"
    assert "claim-own" in codes(result)
    assert "claim-unstated" not in codes(result)


def test_neither_noise_nor_a_claim_is_one_message():
    audit = train(new_audit(pool=60), stated=None, noise=1.0)
    with pytest.raises(AuditError, match="states neither its noise nor an epsilon"):
        audit.result  # noqa: B018


def test_a_claim_that_is_known_while_training_goes_on():
    audit = train(new_audit(pool=200), stated=1.0)
    with pytest.raises(MismatchError, match=r"give Audit\(delta=1e-06\)"):
        audit.state(Claim(3.0, 1e-6))
    audit.state(Claim(0.5, DELTA, "an accountant's"))
    assert (audit.result.claim.epsilon, audit.result.claim.accountant) == (0.5, "an accountant's")
    assert audit.result.verdict.word == "VIOLATED"


# What a reader is told


def test_notes_and_a_training_that_ends_early():
    audit = train(new_audit(pool=200), rounds=4, stated=1.0)
    for number in (0, 2):
        audit.note("weather", "it rained", number)
    for number in range(7):
        audit.note("late", "nobody came", number)
    said = [str(caveat) for caveat in audit.result.caveats]
    assert "weather: it rained (rounds 1, 3)" in said
    assert "late: nobody came (rounds 1, 2, 3, 4, 5 and 2 more)" in said
    assert "rounds: 4 of 10 released something; nothing is said about the others" in said
    assert audit.result.training["notes"] == [each for each in said if each.startswith(("weather", "late"))]
    assert audit.result.training["released"] == 4
    assert audit.result.design.inserted < int(audit.schedule.inserted.sum())


def test_looking_before_the_end_changes_nothing():
    found = []
    for look in (False, True):
        audit = new_audit(pool=200)
        audit.begin(application(1.0))
        rng, together = stream(5, "looking"), float(CLIENTS + audit.places)
        for number in range(ROUNDS):
            who = audit.taking_part(number)
            canaries = sum((clipped(audit.update(int(index), CLIP, DIM).astype(float)) for index in who), np.zeros(DIM))
            release = (canaries + CLIP * rng.standard_normal(DIM)) / together
            how = {"clip_norm": CLIP, "denominator": together, "clients": CLIENTS, "inserted": who.size}
            audit.observe(observed(number, release, others=np.zeros(DIM), places=audit.places, **how))
            if look and number in (3, 6):
                assert "rounds-missing" in codes(audit.result)
        found.append(audit.result.to_json())
    assert found[0] == found[1]


def test_a_secret_that_was_given_is_told_and_has_no_fingerprint():
    given, fresh = train(new_audit(pool=60)).result, train(new_audit(pool=60, secret_seed=None)).result
    assert "secret-given" in codes(given)
    assert given.training["secret_sha256"] is None
    assert "secret-given" not in codes(fresh)
    assert len(fresh.training["secret_sha256"]) == 64


def test_an_audit_that_gave_up_says_why(capsys):
    audit = train(new_audit(pool=60))
    audit.give_up(MismatchError("the server is gone"))
    assert "there is no audit of this training: the server is gone" in capsys.readouterr().err
    with pytest.raises(MismatchError, match="the server is gone"):
        audit.result  # noqa: B018


# What is left behind


def test_a_directory_with_all_files(tmp_path):
    heard = []
    audit = train(new_audit(out=tmp_path / "audit", hooks=[heard.append], statement=Statement(layers=True)))
    result = audit.result
    names = {each.name for each in (tmp_path / "audit").iterdir()}
    files = ("config.toml", "secret.json", "events.jsonl", "scores.npz", "views", "result.json", "training.json", "report.html")
    assert set(files) <= names
    views = {each.name for each in (tmp_path / "audit" / "views").iterdir()}
    assert views == {
        "known-others-within-first.npz",
        "known-others-within-second.npz",
        "final-model.npz",
        "every-release.npz",
        "known-rounds.npz",
    }
    assert AuditResult.load(tmp_path / "audit").to_json() == result.to_json()
    assert [event["event"] for event in heard] == ["start", *["round"] * ROUNDS, "end"]
    assert heard[-1]["verdict"] == result.verdict.word
    events = [json.loads(line) for line in (tmp_path / "audit" / "events.jsonl").read_text().splitlines()]
    assert [event["round"] for event in events] == list(range(ROUNDS))
    assert events[0]["weather"] == "fine"
    assert {"epsilon_claimed", "epsilon_measured", "clients_norm", "seconds"} <= set(events[-1])
    assert "a loop of NumPy" in (tmp_path / "audit" / "config.toml").read_text()


def test_files_and_memory_give_the_same_result(tmp_path):
    kept = train(new_audit(pool=200, out=tmp_path / "audit")).result
    assert train(new_audit(pool=200)).result.to_json() == kept.to_json()


def test_memory_alone_writes_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert train(new_audit(pool=60)).result.verdict is not None
    assert list(tmp_path.iterdir()) == []


def test_rows_that_were_made_elsewhere_are_the_same_rows():
    """An engine whose process ends after every round keeps rows, not the audit."""
    together, kept = float(CLIENTS + 60), []
    here, rng = new_audit(pool=60), stream(6, "elsewhere")
    here.begin(application(2.0, knows_others=False))
    for number in range(ROUNDS):
        who = np.flatnonzero(here.schedule.inserted)
        canaries = sum(clipped(here.update(int(index), CLIP, DIM).astype(float)) for index in who)
        release = (canaries + 2.0 * CLIP * rng.standard_normal(DIM)) / together
        how = {"clip_norm": CLIP, "denominator": together, "clients": CLIENTS, "inserted": who.size, "places": 60}
        seen = observed(number, release, assigned=np.arange(60), **how)
        recorder = new_audit(pool=60).recorder(application(2.0, knows_others=False))
        rows = recorder.rows(seen)
        kept.append((number, rows, {**seen.record, "kept_share": float(recorder.kept(rows, who).mean())}, release))
        here.observe(seen)
    there = new_audit(pool=60)
    there.begin(application(2.0, knows_others=False))
    for number, rows, record, release in kept:
        there.keep(number, rows, record, moved=release, assigned=np.arange(60))
    one, other = here.result, there.result
    assert one.setting["sha256"] == other.setting["sha256"]
    assert one.bound == other.bound
    assert [view.bound for view in one.views] == [view.bound for view in other.views]
    assert one.verdict.power.half_noise_epsilon == pytest.approx(other.verdict.power.half_noise_epsilon)


@pytest.mark.parametrize("out", [True, False])
def test_a_view_of_the_final_model_alone_needs_no_rows(out, tmp_path):
    statement = Statement(view="final-model", views=("final-model",), unused_rows=1000)
    audit = new_audit(pool=60, statement=statement, out=tmp_path / "audit" if out else None)
    assert train(audit, stated=1.0).result.setting["view"] == "final-model"


# Wrong calls


def test_nothing_can_be_observed_or_concluded_before_the_beginning():
    audit = new_audit(pool=60)
    how = {"clip_norm": CLIP, "denominator": 80.0, "clients": CLIENTS, "inserted": 0, "places": 0}
    for call in (
        lambda: audit.observe(observed(0, np.ones(DIM), **how)),
        lambda: audit.keep(0, {}, {}),
        lambda: audit.state(Claim(1.0, DELTA)),
        audit.conclude,
    ):
        with pytest.raises(MismatchError, match="nothing was trained yet"):
            call()


def test_one_audit_is_for_one_training():
    audit = new_audit(pool=60)
    audit.begin(application())
    with pytest.raises(MismatchError, match="one audit is for one training"):
        audit.begin(application())


def test_no_round_at_all_is_one_message(tmp_path):
    for options in ({}, {"out": tmp_path / "audit"}):
        audit = new_audit(pool=60, **options)
        audit.begin(application())
        audit.note("no release", "the disk is full", 0)
        with pytest.raises(NotEnoughCanariesError, match=r"no round released.*no release: the disk is full \(round 1\)"):
            audit.result  # noqa: B018


@pytest.mark.parametrize("number", [-1, ROUNDS])
def test_a_round_beyond_the_audits(number):
    with pytest.raises(MismatchError, match=rf"round {number + 1} of an audit of {ROUNDS} rounds"):
        new_audit().taking_part(number)


def test_more_canaries_than_a_model_has_room_for():
    with pytest.raises(NotEnoughCanariesError, match=r"600 canaries do not fit .* of 1199 .*Audit\(pool=576\) or less"):
        new_audit().begin(application(dim=1199))


def test_a_directory_that_is_not_empty(tmp_path):
    (tmp_path / "notes").touch()
    audit = new_audit(pool=60, out=tmp_path)
    with pytest.raises(RunDirectoryError, match=r"Give Audit\(out=...\) another one"):
        audit.begin(application())


@pytest.mark.parametrize("view", ["known-others", "afterwards", "unknown-rounds"])
def test_a_view_that_must_know_the_clients(view):
    audit = new_audit(pool=60, statement=Statement(view=view))
    with pytest.raises(MismatchError, match=r"must know what the clients sent.*Statement\(view='known-rounds'\), or 'auto'"):
        audit.begin(application(knows_others=False))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"delta": 2.0}, "delta"),
        ({"rounds": 0}, "rounds=0"),
        ({"pool": 9}, "a pool of 9 shows nothing"),
        ({"pool": 0}, "pool=0"),
        ({"unit": "city"}, "unit"),
        ({"statement": {"view": "auto"}}, r"statement must be a Statement\(...\)"),
        ({"replies": 3}, r"replies must be a Replies\(...\)"),
        ({"stated": 3}, r"stated must be a Stated\(...\)"),
        ({"statement": Statement(view="everything")}, "everything"),
        ({"statement": Statement(bound="pointwise")}, "cannot decide"),
        ({"statement": Statement(null="law")}, "audit.null"),
        ({"statement": Statement(unused_rows=3)}, "unused_rows"),
    ],
)
def test_arguments_are_checked_at_once(wrong, message):
    with pytest.raises(ValueError, match=message):
        new_audit(**wrong)


@pytest.mark.parametrize("wrong", [{"canary_norm": 0.0}, {"examples": -1}])
def test_replies_are_checked(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Replies(**wrong)


@pytest.mark.parametrize("wrong", [{"clip_norm": 0.0}, {"noise_multiplier": -1}, {"claim": -1}])
def test_what_is_stated_is_checked(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Stated(**wrong)


# Statements


def test_a_statement_is_a_specification():
    assert Statement().spec(DELTA) == AuditSpec(DELTA)
    assert Statement(view="final-model", also=["gdp"], views=["known-rounds"]).spec(1e-6, "example") == AuditSpec(
        1e-6, view="final-model", also=("gdp",), views=("known-rounds",), unit="example"
    )


def test_views_that_know_the_others_fall_away_where_nobody_does():
    audit = new_audit(pool=60, statement=Statement(views=("known-others", "afterwards", "every-release")))
    assert audit.resolved(application()).views == ("known-others", "afterwards", "every-release")
    blind = audit.resolved(application(knows_others=False))
    assert (blind.view, blind.views) == ("known-rounds", ("every-release",))
    named = new_audit(pool=60, statement=Statement(view="final-model")).resolved(application(knows_others=False))
    assert (named.view, named.views) == ("final-model", ("final-model", "every-release", "known-rounds"))


# What an adapter tells


def test_a_round_as_an_engine_shows_it():
    seen = observed(
        3, np.full(4, 2.0), clip_norm=0.5, denominator=10.0, clients=6, inserted=1, places=2, others=np.ones(4), unclipped=3
    )
    assert seen.amplitude == 0.05
    assert seen.record == {
        "clients": 6,
        "canaries": 1,
        "places": 2,
        "canary_share": 1 / 8,
        "clip_norm": 0.5,
        "denominator": 10.0,
        "clients_norm": 40.0,
        "unclipped_clients": 0.5,
        "unclipped_with_canaries": 4 / 8,
        "release_norm": 4.0,
    }
    how = {"clip_norm": 0.5, "denominator": 10.0, "clients": 0, "inserted": 0, "places": 0}
    several = observed(3, np.full(4, 2.0), releases=3, **how)
    assert several.amplitude == pytest.approx(0.15)
    assert several.record["releases"] == 3
    assert "clients_norm" not in several.record
    assert several.record["canary_share"] == 0.0


def test_the_summary_of_a_training():
    records = [
        observed(0, np.ones(5), clip_norm=1.0, denominator=4.0, clients=3, inserted=places, places=places, others=np.zeros(5))
        for places in (1, 3)
    ]
    found = summary(application(facts={"kind": "digits"}), 5, [each.record for each in records])
    assert (found["rounds"], found["released"], found["mean_canaries"], found["kind"]) == (5, 2, 2.0, "digits")
    assert found["largest_canary_share"] == 0.5
    assert "mean_unclipped_clients" not in found


def test_the_rounds_as_they_were():
    drawn = Schedule.draw(Periods(1), pool=4, rounds=3, secret_seed=1)
    same = as_it_was(drawn, {0: np.arange(4), 2: np.arange(4)})
    assert str(same.pattern.attendance) == "2 times"
    assert same.times.tolist() == [2, 2, 2, 2]
    twice = as_it_was(drawn, {1: np.tile(np.arange(4), 2)})
    assert str(twice.pattern.attendance) == "2 times"
    unequal = as_it_was(drawn, {0: np.array([0, 1]), 1: np.array([1])})
    assert unequal.pattern.attendance.kind == "trace"
    assert unequal.times.tolist() == [1, 2, 0, 0]
    assert (unequal.inserted == drawn.inserted).all()


# Secrets


def test_both_sides_read_one_secret(tmp_path):
    first, second = (new_audit(pool=20, secret_seed=None, secret_file=tmp_path / "secret") for _ in range(2))
    assert stat.S_IMODE((tmp_path / "secret").stat().st_mode) == 0o600
    assert first.fingerprint == second.fingerprint
    assert (first.schedule.inserted == second.schedule.inserted).all()
    assert (first.update(3, 1.0, 500) == second.update(3, 1.0, 500)).all()
    assert (first.alone, second.alone) == (True, False)
    other = new_audit(pool=20, secret_seed=None, secret_file=tmp_path / "other")
    assert other.fingerprint != first.fingerprint
    first.begin(application(dim=500))
    assert not first.alone


def test_a_secret_that_is_there_stays(tmp_path):
    file = tmp_path / "secret"
    assert make_secret(file)
    before = file.read_bytes()
    assert not make_secret(file)
    assert file.read_bytes() == before
    assert secret(None, file) == (secret(None, file)[0], False)


def test_a_secret_that_others_may_read_is_refused(tmp_path):
    file = tmp_path / "secret"
    make_secret(file)
    file.chmod(0o644)
    with pytest.raises(RunDirectoryError, match="others may read the secret file"):
        secret(None, file)


def test_a_secret_needs_its_folder_and_a_file_its_secret(tmp_path):
    with pytest.raises(RunDirectoryError, match="there is no folder"):
        make_secret(tmp_path / "nowhere" / "secret")
    (tmp_path / "bad").write_text("{}")
    (tmp_path / "bad").chmod(0o600)
    with pytest.raises(RunDirectoryError, match="no file with a secret seed"):
        secret(None, tmp_path / "bad")


def test_secrets_given_and_fresh():
    assert secret(5, None) == (5, False)
    (one, made), (other, _) = secret(None, None), secret(None, None)
    assert made
    assert one != other
    with pytest.raises(ValueError, match="secret_seed"):
        secret(-1, None)
    assert "7" not in repr(new_audit(pool=20)).split("secret_seed")[1]
