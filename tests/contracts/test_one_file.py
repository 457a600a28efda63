"""A new view, mechanism, pattern, bound or source is one file and one line of a registry: a toy of each, in one real run.

What stands here between the lines of `#` would be that one file; `registered` is the line.
"""

import json
import sys
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
import toys

from coalmine import accounting, cli, data, estimators, mechanisms, participation, views
from coalmine.contracts import Attendance, Separation
from coalmine.data import read_digits
from coalmine.estimators import Bound
from coalmine.estimators.band import bound_band
from coalmine.participation import Pattern
from coalmine.report.compare import compare
from coalmine.report.page import report
from coalmine.training import run
from coalmine.training.config import read_config
from coalmine.views.view import Threat, check, table

# a view ##############################################################################################################


@dataclass(frozen=True)
class FirstRound(Threat):
    """Knows everything, and looks at the first round of its target alone."""

    key: ClassVar[str] = "first-round"
    adversary: ClassVar[str] = "looks at the first round of its target"
    needs: ClassVar[str] = "residual"
    knows_rounds: ClassVar[bool] = True
    knows_others: ClassVar[bool] = True

    def scores(self, projections, schedule, canaries, *, null="theory"):
        check(projections, schedule, canaries, self.needs, null)
        presence = schedule.presence[projections.rounds]
        members = np.flatnonzero(presence.any(axis=0))
        first = presence[:, members].argmax(axis=0)
        cosines = projections.inner / projections.norm[:, None]
        columns = np.arange(projections.pool, cosines.shape[1])
        borrowed = first[np.arange(columns.size) % members.size]
        return table(
            self,
            "cosine in the first round",
            projections,
            schedule,
            members=members,
            values=cosines[first, members],
            law=None,
            columns=columns,
            unused=cosines[borrowed, columns],
        )


# a pattern ###########################################################################################################


@dataclass(frozen=True)
class Stride(Pattern):
    """Client i takes part in the rounds t with t = i modulo `stride`."""

    stride: int
    rounds: int

    keys = ("stride",)
    required = (("rounds",), ("stride",))

    @property
    def most(self):
        return -(-self.rounds // self.stride)

    @property
    def attendance(self):
        return Attendance("stride", most=self.most, separation=self.stride, text=f"every {self.stride} rounds")

    def constraint(self, rounds):
        return Separation(self.most, self.stride, rounds)

    @classmethod
    def from_config(cls, options, population):
        return cls(int(options["stride"]), options["rounds"]), options["rounds"]

    def expected_size(self, population, rounds):
        return population / self.stride

    def _draw(self, population, rounds, streams, start):
        for number in range(start, rounds):
            yield np.arange(number % self.stride, population, self.stride)


# a bound #############################################################################################################


def bound_cautious(scores, *, delta, confidence=0.95):
    """The band's, less a tenth."""
    found = bound_band(scores, delta=delta, confidence=confidence)
    return replace(found, epsilon=0.9 * found.epsilon, method="the band less a tenth")


# a source ############################################################################################################


def read_twice(*, group: int = 5):
    """Digits, under another name."""
    return replace(read_digits(group=group), name="twice")


# a mechanism is `toys.Correlated` #####################################################################################


@pytest.fixture
def registered(monkeypatch):
    monkeypatch.setitem(views.VIEWS, FirstRound.key, FirstRound)
    monkeypatch.setitem(participation.PATTERNS, "stride", Stride)
    monkeypatch.setitem(estimators.BOUNDS, "cautious", Bound("cautious", bound_cautious))
    monkeypatch.setitem(data.SOURCES, "twice", read_twice)
    monkeypatch.setitem(mechanisms.MECHANISMS, "two-tap", toys.Correlated)


CONFIG = """
[data]
source = "twice"
held_out = 0.2
users = 150
options = { group = 10 }
[model]
name = "mlp"
options = { hidden = [32] }
[client]
batch_size = 5
[mechanism]
kind = "two-tap"
clip_norm = 1.0
noise_multiplier = %s
coupling = 0.6
[participation]
pattern = "stride"
stride = 3
rounds = 6
[canaries]
pool = 60
presentations = 2
[audit]
view = "first-round"
bound = "cautious"
also = ["band"]
views = ["known-others", "final-model"]
unused_rows = 500
[run]
workers = 1
evaluate_every = 0
"""


def verb(monkeypatch, capsys, *words):
    monkeypatch.setattr(sys, "argv", ["coalmine", *map(str, words)])
    capsys.readouterr()
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    return stopped.value.code, capsys.readouterr().out


def test_one_run_uses_a_toy_of_each(registered, tmp_path, monkeypatch, capsys):
    done = {}
    for noise in (0.5, 1.0):
        (tmp_path / f"{noise}.toml").write_text(CONFIG % noise)
        config = read_config(tmp_path / f"{noise}.toml")
        done[noise] = run(config, tmp_path / f"run-{noise}", secret_seed=5, quiet=True)
    result = done[0.5].result
    assert (result.setting["view"], result.bound.key, result.bounds[1].key) == ("first-round", "cautious", "band")
    assert result.bound.epsilon == 0.9 * result.bounds[1].epsilon > 0
    assert [each.view for each in result.views] == ["known-others", "final-model"]
    assert result.training["participation"]["kind"] == "stride" and result.training["participation"]["text"] == "every 3 rounds"
    described = toys.Correlated(1.0, 0.5, coupling=0.6).describe()
    clients = accounting.claim_of(described, Stride(3, 6), delta=1e-5, rounds=6)
    assert result.training["epsilon_of_clients"] == clients.epsilon
    assert result.claim.description == described
    assert result.training["users"] == 120

    page = report(tmp_path / "run-0.5")
    assert page == (tmp_path / "run-0.5" / "report.html").read_text()
    for words in (FirstRound.adversary, "first round", "every 3 rounds", "the band less a tenth", "twice", "two-tap"):
        assert words in page, words
    together = compare([tmp_path / "run-0.5", tmp_path / "run-1.0"])
    assert "noise multiplier" in str(together) and len(json.loads(together.to_json())["runs"]) == 2
    for limit, expected in ((0.01, 1), (1e6, 0)):  # the second by the tests of the mechanism
        assert verb(monkeypatch, capsys, "check", tmp_path / "run-0.5", "--max-epsilon", limit)[0] == expected
    code, out = verb(monkeypatch, capsys, "compare", tmp_path / "run-0.5", tmp_path / "run-1.0", "--json")
    assert code == 0 and json.loads(out)


def test_they_are_found_by_the_command_line(registered, tmp_path, monkeypatch, capsys):
    (tmp_path / "toys.toml").write_text(CONFIG % 0.5)
    out = tmp_path / "run"
    code, shown = verb(
        monkeypatch, capsys, "run", tmp_path / "toys.toml", "--out", out, "--json", "--set", "run.evaluate_every=3"
    )
    assert code in (0, 1, 3) and json.loads(shown)["setting"]["view"] == "first-round"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("participation.strid=2", r"unknown key 'participation.strid', did you mean 'stride'\?"),
        ("mechanism.couplin=2", r"kind 'two-tap' has no key 'couplin', did you mean 'coupling'\?"),
        ("audit.view=first-rounds", "first-round"),
        ("audit.bound=cautios", "cautious"),
        ("data.options.groups=2", "group"),
    ],
)
def test_keys_and_names_of_toys_are_suggested(registered, tmp_path, change, message):
    (tmp_path / "toys.toml").write_text(CONFIG % 0.5)
    with pytest.raises(ValueError, match=message):
        run(read_config(tmp_path / "toys.toml", [change]), tmp_path / "run", quiet=True)


def test_without_the_line_each_is_unknown(tmp_path):
    (tmp_path / "toys.toml").write_text(CONFIG % 0.5)
    with pytest.raises(ValueError, match=r"mechanism\.kind='two-tap' is not known"):
        read_config(tmp_path / "toys.toml")
