"""Many runs of one configuration: audited together, resumed to the same bytes, a secret for each."""

import json

import numpy as np
import pytest

from coalmine.errors import RunDirectoryError
from coalmine.runs import RunDirectory
from coalmine.scores import Scores
from coalmine.training import campaign, resume, run
from coalmine.training.config import read_config

pytestmark = pytest.mark.usefixtures("undrawn")

SHORT = ["participation.rounds=4", "participation.epochs=1", "canaries.pool=20", "run.workers=1", "run.evaluate_every=0"]


def config(*changes):
    return read_config("tiny", [*SHORT, "run.repeats=4", *changes])


def test_a_campaign_joins_its_runs_and_goes_on_to_the_same_bytes(tmp_path, one_thread):
    whole = run(config(), tmp_path / "whole", secret_seed=5, quiet=True)
    assert whole.result.method == "lifted" and whole.result.game.relation == "add-or-remove-one"
    scores = Scores.from_npz(tmp_path / "whole" / "scores.npz")
    assert np.bincount(scores.labels["run"]).tolist() == [20] * 4 and scores.assignment == "coins"
    seeds = {RunDirectory.open(tmp_path / "whole" / f"run-{number:04d}").secret_seed for number in range(4)}
    assert len(seeds) == 4

    begun = {"schema": campaign.SCHEMA, "repeats": 4}
    stopped = tmp_path / "stopped"
    calls = []

    def stop(job):
        calls.append(job)
        if len(calls) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(config(), stopped, secret_seed=5, quiet=True, check=stop)
    assert json.loads((stopped / "campaign.json").read_bytes()).items() >= begun.items()
    again = resume(stopped, quiet=True)
    assert json.loads((stopped / "result.json").read_bytes()) == json.loads((tmp_path / "whole" / "result.json").read_bytes())
    for name in ("result.json", "scores.npz"):
        assert (stopped / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert str(again.result) == str(whole.result)
    assert str(resume(stopped, quiet=True).result) == str(whole.result)  # finished: read


def test_runs_with_one_secret_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(campaign, "stream", lambda *names: np.random.default_rng(0))
    with pytest.raises(RunDirectoryError, match="the same secret"):
        run(config("run.repeats=2"), tmp_path / "out", secret_seed=1, quiet=True)


def test_the_configuration_names_lifted_only_for_several_runs():
    with pytest.raises(ValueError, match=r"set run\.repeats"):
        read_config("tiny", ["audit.bound=lifted"])
    with pytest.raises(ValueError, match=r"audit\.lifted has no key 'ordre', did you mean 'order'"):
        config("audit.lifted.ordre=2")
    named = config("audit.bound=lifted", "audit.lifted.order=1")
    assert named.spec.bound == "band" and named.audit.lifted == {"order": 1}
