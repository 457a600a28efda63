"""Crafted canaries of a run: which rounds are measured, the files they leave, and what all of them say at the end.

frozen    the model before every `every`-th round is measured in frozen draws; the training is the same, bit for bit
running   every `every`-th round of the training itself has canaries crafted for its model among its clients, each by a coin;
          the next measured round has new ones. No further release: the scores are made from what that round left

Of a measured round there is a file of statements, crafted-NNNNNN.json, and one of scores, crafted-NNNNNN.npz. Both are
functions of the state before the round and of the seeds: after a kill the round is made again, with the same bits.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from io import BytesIO
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coalmine.audit.statements import Measured as Statement
from coalmine.contracts import Finding, State, from_plain, plain
from coalmine.data.vocabulary import Vocabulary
from coalmine.nulls import GaussianNull
from coalmine.runs import RunDirectory
from coalmine.scores import Scores
from coalmine.training.config import Config
from coalmine.training.crafted_round import CraftedRound, by_law_or_held_out, check_mechanism, trained_alone
from coalmine.training.crafted_statements import MeasuredRound, one_round_claim, release_cost, whole_training
from coalmine.training.crafting import Measuring, design_for, how_of, measured_round
from coalmine.training.federation import Federation, RoundResult
from coalmine.training.guests import Guests
from coalmine.training.mock_clients import MockData, mock_clients


@dataclass(eq=False)
class CraftedRun:
    """The measured rounds of one run."""

    config: Config
    job: Federation
    directory: RunDirectory
    _now: tuple[CraftedRound, NDArray[np.bool_]] | None = field(default=None, init=False)
    _how: tuple[Measuring, MockData | None] | None = field(default=None, init=False)

    @property
    def mode(self) -> str:
        """off, frozen or running."""
        return self.config.crafting.mode

    @property
    def federation(self) -> Federation:
        """The training, with canaries in its measured rounds if they join them."""
        return replace(self.job, guests_at=self.guests) if self.mode == "running" else self.job

    @property
    def rounds(self) -> list[int]:
        """Rounds that are measured: frozen, the model before them; running, the rounds themselves."""
        last, every = self.job.rounds, self.config.crafting.every
        first = 0 if self.mode == "running" else 1
        return [] if self.mode == "off" else list(range(every - 1 + first, last + first, every))

    def guests(self, number: int, state: State) -> Guests | None:
        """The canaries that join round `number`, designed for the model before it."""
        if number not in self.rounds:
            return None
        how, mock = self._told
        assert mock is not None
        crafted = design_for(self.job, state, number, how, mock)
        here = CraftedRound(self.job, state, crafted, number)
        coins = np.asarray(self.job.secret("crafting", number, "coins").random(here.count) < 0.5)
        self._now = here, coins
        return here.guests(coins)

    def after(self, finished: RoundResult) -> None:
        """Measure what a round left, or the model before the next one, if it is its turn."""
        number = finished.number if self.mode == "running" else finished.number + 1
        if number not in self.rounds:
            return
        tests = len(self.rounds)
        if self.mode == "frozen":
            found = measured_round(self.config, self.job, finished.state, number, self._told[0], tests=tests)
        else:
            assert self._now is not None
            found = self._of_the_round(*self._now, finished, tests)
            self._now = None
        statements = found.statements()
        if self.config.crafting.pool_public:
            statements["canary"] = _shown(found, self.config)
        packed = BytesIO()
        found.scores.save(packed)
        self.directory.write(_name(number, "npz"), packed.getvalue())
        self.directory.write(_name(number, "json"), (json.dumps(plain(statements), indent=2, sort_keys=True) + "\n").encode())

    def _of_the_round(self, here: CraftedRound, coins: NDArray[np.bool_], done: RoundResult, tests: int) -> MeasuredRound:
        """The scores of one round of the training: one release, one coin for every canary."""
        privacy, confidence = self.config.privacy, 1 - (1 - self.config.audit.confidence) / tests
        assert done.guests is not None and done.noise is not None and done.observed.public is not None
        norm = done.observed.public.clip_norm
        beyond = (done.guests - here.known(coins)) / norm  # what canaries change besides what each adds by itself
        row = here.row(coins, beyond + done.noise / norm)
        claim = one_round_claim(self.job, delta=privacy.delta, unit=privacy.unit)
        scores = here.table([row], [row.values], privacy.unit, known=True)
        alone = trained_alone(float(np.linalg.norm(beyond)), done.observed.count or 1, here.number)
        return MeasuredRound(
            here.number, here.crafted, scores, privacy.delta, confidence, claim, here.noise_scale([row]), mode="running",
            alone=alone,
        )  # fmt: skip

    def findings(self) -> list[Finding]:
        """Whether what clients contribute depended on the canaries trained beside them: the round in which it did most."""
        found = [self._stored(number)["trained_alone"] for number in self.rounds]
        worst = max(found, key=lambda each: (each["side"] != "none", each["measured"]), default=None)
        return [] if worst is None else [from_plain(Finding, worst, "trained_alone")]

    def _stored(self, number: int) -> dict[str, Any]:
        return dict(json.loads((self.directory.path / _name(number, "json")).read_bytes()))

    def statements(self) -> list[Statement]:
        """All scores of the run in one table beside the claim of one round, to be judged with the run's other statements.

        Every row tests the same one-round claim with a coin of its own, so that one table of all rounds needs no correction.
        """
        tables = [Scores.from_npz(self.directory.path / _name(number, "npz")) for number in self.rounds]
        if not tables:
            return []
        privacy = self.config.privacy
        return [Statement(pooled(tables), one_round_claim(self.job, delta=privacy.delta, unit=privacy.unit))]

    def summary(self) -> dict[str, Any]:
        """What the measured rounds state, for the result: {} without any."""
        if not self.rounds:
            return {}
        privacy, asked = self.config.privacy, self.config.crafting
        found = [self._stored(number) for number in self.rounds]
        canaries = [each.pop("canary") for each in found if "canary" in each]
        about: dict[str, Any] = {"mode": self.mode, "rounds": found}
        about["composed"] = whole_training(self.job, found, delta=privacy.delta, confidence=self.config.audit.confidence)
        if self.mode == "frozen":
            how = self._told[0]
            about["frozen_draws"] = release_cost(
                self.job, delta=privacy.delta, relation=privacy.relation, measured=len(found), draws=how.draws,
                others=how.others, release=asked.release,
            )  # fmt: skip
        if canaries:
            about["canary"] = canaries[-1]
        return {"crafted": plain(about)}

    @property
    def _told(self) -> tuple[Measuring, MockData | None]:
        """How rounds are measured, and on which clients canaries are designed: the same in every round."""
        if self._how is None:
            how = how_of(self.config, self.job)
            self._how = how, mock_clients(self.job, how.pool, how.foreign) if self.mode == "running" else None
        return self._how


def check(config: Config, job: Federation) -> None:
    """Refuse before the training what could not be measured."""
    if config.crafting.mode == "off":
        return
    how, noise = how_of(config, job), job.described.noise
    check_mechanism(job)
    if noise is None or not noise.multiplier > 0:
        raise ValueError("crafting: canaries are measured against noise, and none is claimed. Set mechanism.noise_multiplier.")
    mock_clients(job, how.pool, how.foreign)
    run = CraftedRun(config, job, None)  # type: ignore[arg-type]  # nothing is written
    if not run.rounds:
        raise ValueError(
            f"crafting.every={config.crafting.every} measures none of {job.rounds} rounds. Set it to {job.rounds} at most."
        )
    if config.crafting.mode == "running" and how.options.undo_learning_rate:
        raise ValueError("crafting.options: a forged update (undo_learning_rate) cannot join a running round; use mode frozen.")


def _name(number: int, kind: str) -> str:
    return f"crafted-{number:06d}.{kind}"


def pooled(tables: list[Scores]) -> Scores:
    """One table of all measured rounds, each in standard deviations of its own law.

    A round whose held-out scores are wider than the noise beside its canaries has a law of its own. One law for all, even the
    widest, would be wrong for the others: their inserted scores would seem to lie too near to the middle.
    """
    together = replace(
        tables[0],
        value=np.concatenate([each.value for each in tables]),
        inserted=np.concatenate([each.inserted for each in tables]),
        labels={name: np.concatenate([each.labels[name] for each in tables]) for name in tables[0].labels},
        null=None,
    )
    laws: list[Any] = [each.null for each in tables]
    if any(law is None for law in laws):
        return together
    values = np.concatenate([each.value / law.spread for each, law in zip(tables, laws, strict=True)])
    alike = replace(together, value=values, null=GaussianNull(1.0, directions=min(law.directions for law in laws)))
    found = by_law_or_held_out(alike)
    return together if found.null is None else found  # the scale of a table must not depend on its held-out scores then


def _shown(found: MeasuredRound, config: Config) -> Mapping[str, Any]:
    """The first canary, for the page: the pool is public, so that it betrays nobody."""
    sample = found.crafted.samples[0]
    features, target = np.asarray(sample.features[0]), np.asarray(sample.targets[0])
    if features.dtype.kind in "iu" and features.ndim == 1:
        tokens = [*features.tolist(), *np.atleast_1d(target)[-1:].tolist()]
        known = config.data.vocabulary == "ascii"
        text = Vocabulary.ascii().decode(tokens) if known else "tokens " + " ".join(map(str, tokens))
        return {"kind": "text", "text": text, "round": found.round}
    label = int(target) if target.ndim == 0 else int(target.argmax())
    return {"kind": "image", "pixels": np.round(features.astype(float), 3).tolist(), "label": label, "round": found.round}
