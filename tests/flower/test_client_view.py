"""An audit from a client's side alone: the server is not told, and sees nothing but clients."""

import json
from contextlib import suppress

import numpy as np
import pytest
from scipy.stats import norm

from coalmine.adapters.flower import Audit, LocalGrid, Statement, canary_mod, client_view, last_partitions
from coalmine.errors import MismatchError

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


def train(digits, audit, noise, *, told=None):
    together, who = digits.CLIENTS + CANARIES, last_partitions(CANARIES)
    view = client_view(audit, clip_norm=CLIP, noise_multiplier=told or noise, cohort=together, who=who)
    app = digits.client_app(mods=[view, canary_mod(audit, clip_norm=CLIP, who=who, labelled=False)])
    strategy = digits.DifferentialPrivacyServerSideFixedClipping(digits.fed_avg(together), noise, CLIP, together)
    strategy.start(LocalGrid(app, together), digits.initial_arrays(), ROUNDS)


def test_a_client_sees_what_the_clients_leave_of_all_rounds_but_the_last(digits, tmp_path):
    audit, noise = new_audit(out=tmp_path / "audit"), 2.0
    train(digits, audit, noise)
    result = audit.result
    assert result.setting["view"] == "known rounds"
    assert result.game.participation == f"{ROUNDS - 1} times"
    assert [view.view for view in result.views] == ["final model", "every release"]
    estimate = next(each for each in result.estimates if each.method.startswith("Gaussian, mean only"))
    limit = -norm.ppf(FALSE_ALARM / 2) / np.sqrt(estimate.details["count"])
    most = np.sqrt(ROUNDS - 1) / noise
    least = np.sqrt(ROUNDS - 1) / np.sqrt(noise**2 + digits.CLIENTS**2 / digits.DIM)  # all clients in one direction
    assert least - limit <= estimate.details["mean"] <= most + limit
    assert result.verdict.word != "VIOLATED"
    lines = (tmp_path / "audit" / "events.jsonl").read_text().splitlines()
    assert [json.loads(line)["round"] for line in lines] == list(range(ROUNDS - 1))


def test_noise_that_is_smaller_than_the_server_says_is_found(digits):
    audit = new_audit()
    train(digits, audit, 0.5, told=3.0)
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


@pytest.mark.parametrize("wrong", [{"clip_norm": 0}, {"noise_multiplier": -1}, {"cohort": 0}])
def test_arguments_are_checked(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        client_view(new_audit(), **{"clip_norm": 1.0, "noise_multiplier": 1.0, "cohort": 5, **wrong})
