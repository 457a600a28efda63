"""Canaries that are real clients: by node configuration or partition, with Flower's own accountant, sampled, silent."""

import numpy as np
import pytest
from flwr.clientapp.mod import LocalDpMod, fixedclipping_mod
from flwr.serverapp.strategy import DifferentialPrivacyClientSideFixedClipping, DifferentialPrivacyServerSideFixedClipping
from scipy.stats import norm

from coalmine.adapters.flower import Audit, LocalGrid, Statement, audited, canary_mod, last_partitions, make_secret
from coalmine.adapters.flower.reading import Reading
from coalmine.errors import MismatchError, NotEnoughCanariesError, RunDirectoryError

FALSE_ALARM = 1e-6
CANARIES, ROUNDS, NOISE, CLIP = 60, 10, 2.0, 0.3


def new_audit(seed=31, **options):
    return Audit(
        **{
            "delta": 1e-5,
            "rounds": ROUNDS,
            "pool": CANARIES,
            "statement": Statement(unused_rows=2000),
            "secret_seed": seed,
            **options,
        }
    )


def agrees(result, effect):
    estimate = next(each for each in result.estimates if each.key == "gaussian-mean")
    return abs(estimate.details["mean"] - effect) <= -norm.ppf(FALSE_ALARM / 2) / np.sqrt(estimate.details["count"])


def run(digits, audit, strategy, *, mods=(), who=None, nodes=None, silent=(), **options):
    together = digits.CLIENTS + CANARIES
    mod = canary_mod(audit, who=who or last_partitions(CANARIES), **options)
    grid = LocalGrid(digits.client_app(mods=[*mods, mod]), nodes or together)
    grid.silent = set(silent)
    audited(strategy, audit, canaries="clients").start(grid, digits.initial_arrays(), ROUNDS)
    return audit.result


def server_side(digits, **options):
    together = digits.CLIENTS + CANARIES
    return DifferentialPrivacyServerSideFixedClipping(digits.fed_avg(together), NOISE, CLIP, together, **options)


def test_canary_clients_in_every_round_show_the_composed_epsilon(digits):
    result = run(digits, new_audit(), server_side(digits), clip_norm=CLIP)
    assert result.game.participation == f"{ROUNDS} times"
    assert result.setting["view"] == "known-others"
    assert agrees(result, np.sqrt(ROUNDS) / NOISE)
    assert result.verdict.word != "VIOLATED"
    assert result.training["mean_clients"] == digits.CLIENTS
    assert result.training["mean_places"] == CANARIES


def test_with_flowers_accountant_the_claim_is_its_own(digits):
    strategy = server_side(digits, accountant=digits.accountant())
    result = run(digits, new_audit(), strategy, clip_norm=CLIP)
    assert result.claim.epsilon == pytest.approx(strategy.privacy_spent().epsilon)
    assert "Flower's RdpAccountant" in result.claim.accountant
    assert "was not recomputed" in " ".join(result.caveats)
    assert agrees(result, np.sqrt(ROUNDS) / NOISE)
    assert result.verdict.word != "VIOLATED"


def test_an_accountant_for_another_delta(digits):
    with pytest.raises(MismatchError, match=r"Give Audit\(delta=1e-05\)"):
        run(digits, new_audit(delta=1e-6), server_side(digits, accountant=digits.accountant()), clip_norm=CLIP)


def test_clipping_on_the_clients_cuts_canary_clients(digits):
    together = digits.CLIENTS + CANARIES
    strategy = DifferentialPrivacyClientSideFixedClipping(digits.fed_avg(together), NOISE, CLIP, together)
    result = run(digits, new_audit(), strategy, mods=[fixedclipping_mod])  # the clip norm comes with the messages
    assert agrees(result, np.sqrt(ROUNDS) / NOISE)
    assert result.verdict.word != "VIOLATED"


def test_a_mod_outside_of_the_clipping_is_a_fault_that_is_found(digits):
    """Clipping inside of what lengthens an update does not clip it."""
    together = digits.CLIENTS + CANARIES
    strategy = DifferentialPrivacyClientSideFixedClipping(digits.fed_avg(together), NOISE, CLIP, together)
    audit = new_audit()
    app = digits.client_app(mods=[canary_mod(audit, who=last_partitions(CANARIES)), fixedclipping_mod])
    audited(strategy, audit, canaries="clients").start(LocalGrid(app, together), digits.initial_arrays(), ROUNDS)
    assert audit.result.verdict.word == "VIOLATED"


def test_who_is_a_canary_may_be_in_the_node_configuration(digits):
    nodes = [{"partition-id": place} for place in range(digits.CLIENTS)]
    nodes += [{"canary-id": index} for index in range(CANARIES)]  # nodes without data
    metrics = {"num-examples": 1, "loss": 0.0}
    audit = new_audit()
    grid = LocalGrid(digits.client_app(mods=[canary_mod(audit, clip_norm=CLIP, metrics=metrics)]), nodes)
    audited(server_side(digits), audit, canaries="clients").start(grid, digits.initial_arrays(), ROUNDS)
    assert agrees(audit.result, np.sqrt(ROUNDS) / NOISE)


def test_sampled_canaries_are_looked_for_in_their_own_rounds(digits):
    half = (digits.CLIENTS + CANARIES) // 2
    inner = digits.FedAvg(fraction_train=0.5, fraction_evaluate=0.0, min_available_nodes=2 * half)
    audit = new_audit()
    result = run(digits, audit, DifferentialPrivacyServerSideFixedClipping(inner, NOISE, CLIP, half), clip_norm=CLIP)
    assert result.game.participation.kind == "trace"
    most = result.game.participation.most
    assert result.claim.epsilon == pytest.approx(_epsilon(np.sqrt(most) / NOISE))
    assert result.verdict.word != "VIOLATED"
    times = audit.schedule.times[audit.schedule.inserted]
    assert np.ptp(times) > 0
    assert agrees(result, np.sqrt(times[times > 0]).mean() / NOISE)


def _epsilon(gap):
    from coalmine import gaussian_epsilon

    return float(gaussian_epsilon(0, 1, gap, 1, 1e-5))


def test_canary_nodes_that_never_answer_are_survived(digits):
    together = digits.CLIENTS + CANARIES
    result = run(digits, new_audit(), server_side(digits), clip_norm=CLIP, silent={together - 1, together - 2})
    said = " ".join(result.caveats)
    assert "missing replies: some clients did not answer" in said
    assert result.design.inserted <= int(new_audit().schedule.inserted[: CANARIES - 2].sum())


def test_without_any_canary_there_is_a_note_and_a_message(digits):
    audit = new_audit()
    grid = LocalGrid(digits.client_app(), digits.CLIENTS)
    strategy = DifferentialPrivacyServerSideFixedClipping(digits.fed_avg(), NOISE, CLIP, digits.CLIENTS)
    trained = audited(strategy, audit, canaries="clients").start(grid, digits.initial_arrays(), ROUNDS)
    assert trained.arrays  # the model is not lost
    with pytest.raises(NotEnoughCanariesError, match=r"no client was a canary.*canary_mod.*canary-id"):
        audit.result  # noqa: B018


def test_strategies_do_not_see_who_is_a_canary(digits):
    together, seen = digits.CLIENTS + CANARIES, []

    class Looking(digits.FedAvg):
        def aggregate_train(self, server_round, replies):
            replies = list(replies)
            seen.extend(tuple(reply.content) for reply in replies)
            return super().aggregate_train(server_round, replies)

    inner = Looking(fraction_evaluate=0.0, min_train_nodes=together, min_available_nodes=together)
    run(digits, new_audit(), DifferentialPrivacyServerSideFixedClipping(inner, NOISE, CLIP, together), clip_norm=CLIP)
    assert set(seen) == {("arrays", "metrics")}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [({}, "clip_norm="), ({"clip_norm": CLIP, "who": lambda context: 99}, "pool=100")],
    ids=["no clip norm", "beyond the pool"],
)
def test_a_canary_that_cannot_know_what_to_send_says_so(digits, wrong, message):
    audit = new_audit()
    grid = LocalGrid(digits.client_app(mods=[canary_mod(audit, **{"who": last_partitions(2), **wrong})]), 3)
    asked = digits.fed_avg(3).configure_train(1, digits.initial_arrays(), digits.ConfigRecord(), grid)
    errors = [reply.error.reason for reply in grid.send_and_receive(asked) if reply.has_error()]
    assert errors
    assert message in errors[0]


def test_both_sides_read_one_secret(tmp_path):
    first, second = (Audit(delta=1e-5, rounds=4, pool=20, secret_file=tmp_path / "secret") for _ in range(2))
    assert (tmp_path / "secret").stat().st_mode & 0o777 == 0o600
    assert (first.schedule.inserted == second.schedule.inserted).all()
    assert (first.update(3, 1.0, 500) == second.update(3, 1.0, 500)).all()
    other = Audit(delta=1e-5, rounds=4, pool=20, secret_file=tmp_path / "other")
    assert (first.update(3, 1.0, 500) != other.update(3, 1.0, 500)).any()
    (tmp_path / "bad").write_text("{}")
    (tmp_path / "bad").chmod(0o600)
    with pytest.raises(RunDirectoryError, match="no file with a secret seed"):
        Audit(delta=1e-5, rounds=4, pool=20, secret_file=tmp_path / "bad")


def test_secrets_are_kept(tmp_path):
    assert make_secret(tmp_path / "secret")
    assert not make_secret(tmp_path / "secret")  # it stays
    assert not Audit(delta=1e-5, rounds=4, pool=20, secret_file=tmp_path / "secret").alone
    (tmp_path / "secret").chmod(0o644)
    with pytest.raises(RunDirectoryError, match="chmod 600"):
        Audit(delta=1e-5, rounds=4, pool=20, secret_file=tmp_path / "secret")
    with pytest.raises(RunDirectoryError, match="no folder"):
        make_secret(tmp_path / "nowhere" / "secret")


def asked_once(digits, strategy, server, client, **options):
    """What the first round says, with an audit on either side."""
    mod = canary_mod(client, who=last_partitions(CANARIES), clip_norm=CLIP, **options)
    grid = LocalGrid(digits.client_app(mods=[mod]), digits.CLIENTS + CANARIES)
    wrapped = audited(strategy, server, canaries="clients")
    replies = grid.send_and_receive(wrapped.configure_train(1, digits.initial_arrays(), digits.ConfigRecord(), grid))
    errors = [reply.error.reason for reply in replies if reply.has_error()]
    return errors or wrapped.aggregate_train(1, replies)


@pytest.mark.parametrize("other", [{"seed": 32}, {"pool": CANARIES + 1}], ids=["secret", "pool"])
def test_another_audit_on_the_other_side_is_refused(digits, other):
    with pytest.raises(MismatchError, match=r"another audit than the server.*secret_file"):
        asked_once(digits, server_side(digits), new_audit(), new_audit(**other))


def test_a_client_whose_secret_nobody_shares_is_refused(digits, tmp_path):
    for client in (new_audit(None), new_audit(None, secret_file=tmp_path / "made here")):
        errors = asked_once(digits, server_side(digits), new_audit(), client)
        assert len(errors) == CANARIES
        assert "secret of its own" in errors[0]
        assert "make_secret" in errors[0]


def test_two_clients_that_are_the_same_canary_are_refused(digits):
    audit = new_audit()
    mod = canary_mod(audit, who=lambda context: last_partitions(CANARIES)(context) and 7, clip_norm=CLIP)
    grid = LocalGrid(digits.client_app(mods=[mod]), digits.CLIENTS + CANARIES)
    with pytest.raises(MismatchError, match="two clients are canary 7"):
        audited(server_side(digits), audit, canaries="clients").start(grid, digits.initial_arrays(), ROUNDS)


def test_a_cohort_that_does_not_count_canary_clients_is_refused(digits):
    strategy = DifferentialPrivacyServerSideFixedClipping(
        digits.fed_avg(digits.CLIENTS + CANARIES), NOISE, CLIP, digits.CLIENTS
    )
    with pytest.raises(MismatchError, match=r"canaries among them.*num_sampled_clients=80\."):
        run(digits, new_audit(), strategy, clip_norm=CLIP)


def test_canary_clients_and_canary_replies_at_once_are_refused(digits):
    audit = new_audit()
    mod = canary_mod(audit, who=last_partitions(CANARIES), clip_norm=CLIP)
    together = digits.CLIENTS + CANARIES
    strategy = DifferentialPrivacyServerSideFixedClipping(digits.fed_avg(together), NOISE, CLIP, together + audit.places)
    grid = LocalGrid(digits.client_app(mods=[mod]), together)
    with pytest.raises(MismatchError, match="canaries twice"):
        audited(strategy, audit).start(grid, digits.initial_arrays(), ROUNDS)


def test_the_claim_of_local_noise_is_for_every_round_of_a_canary_client(digits):
    """LocalDpMod promises for one reply; who answers in ten rounds is promised ten times as much."""
    mod = LocalDpMod(clipping_norm=CLIP, sensitivity=CLIP, epsilon=5.0, delta=1e-6)
    audit = new_audit(delta=1e-5)
    reading = Reading(digits.fed_avg(), audit, (mod,), canary_clients=True)
    assert reading.stated.epsilon == pytest.approx(5.0 * ROUNDS)
    assert f"{ROUNDS} replies" in reading.stated.accountant


def test_an_accountant_that_stops_the_training_still_states_the_claim(digits):
    together = digits.CLIENTS + CANARIES
    account, audit = digits.accountant(), new_audit()
    strategy = audited(server_side(digits, accountant=account), audit, canaries="clients")
    grid = LocalGrid(digits.client_app(mods=[canary_mod(audit, who=last_partitions(CANARIES), clip_norm=CLIP)]), together)
    arrays = digits.initial_arrays()
    for number in (1, 2, 3):  # of ten
        replies = grid.send_and_receive(strategy.configure_train(number, arrays, digits.ConfigRecord(), grid))
        arrays, _ = strategy.aggregate_train(number, replies)
    result = audit.result
    assert "3 releases" in result.claim.accountant
    assert result.claim.epsilon == pytest.approx(strategy.privacy_spent().epsilon)  # whatever the wrapped strategy has
