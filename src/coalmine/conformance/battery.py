"""All checks of a description together: they see every round, and say at the end which sentences are false.

The p-values of the checks are adjusted for their number by Holm's method: under the description, the probability that any
sentence is found false is at most `level`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from coalmine.conformance import totals
from coalmine.conformance.check import Check, Memory, Round, Subject
from coalmine.conformance.residual import Residuals
from coalmine.contracts import Conformance, Finding, Glance, NotTested, Observed, State
from coalmine.errors import RunDirectoryError

_PLACES = ("noise-by-round", "noise-by-layer", "noise-by-coordinate")
_POINTS = 512  # of the chart of noise by round
_WHITENING, _TOTALS, _ROUNDS = "whitening", "totals", "rounds"


class Battery:
    """The checks of one training, and what they remember."""

    def __init__(self, subject: Subject, checks: tuple[Check, ...], state: State | None = None):
        self.subject, self._checks = subject, checks
        self._residuals = Residuals(subject)
        self._skipped = {check.key: code for check in checks if (code := check.applies(subject)) is not None}
        self._running = [check for check in checks if check.key not in self._skipped]
        taken = self._residuals.coordinates
        self._looked_at = subject.dim if taken is None else taken.size
        self._memories: dict[str, Memory] = {check.key: check.init(subject) for check in self._running}
        self._memories[_WHITENING] = {}
        self._memories[_TOTALS] = totals.init(self._looked_at if subject.description.has_noise else 0)
        self._memories[_ROUNDS] = {"seen": np.zeros(3)}  # rounds; with known contributions; hidden by rounding
        self._restore(state or {})

    @property
    def state(self) -> dict[str, np.ndarray[Any, Any]]:
        """All that must be saved to go on from here."""
        return {f"{key}.{name}": value for key, memory in self._memories.items() for name, value in memory.items()}

    def observe(self, seen: Observed) -> dict[str, float]:
        """One round; returns what is measured so far, for the record."""
        self._check_goes_on()
        prepared = self._residuals.round(self._memories[_WHITENING], seen)
        hidden = self.subject.description.has_noise and prepared.noise is None
        self._memories[_ROUNDS]["seen"] += [1, prepared.total is not None, hidden]
        if self.subject.description.has_noise:
            totals.observe(self._memories[_TOTALS], prepared)
        for check in self._running:
            check.observe(self._memories[check.key], prepared, self.subject)
        return self._so_far(prepared)

    def glance(self, seen: Glance) -> None:
        """A step that is not audited: those checks see it that need no more than this."""
        for check in self._running:
            look = getattr(check, "glance", None)
            if look is not None:
                look(self._memories[check.key], seen)

    def conclude(self) -> Conformance:
        """Which sentences are false, at the level of the whole family."""
        made = [check.conclude(self._memories[check.key], self._memories[_TOTALS], self.subject) for check in self._running]
        findings = _sides(_holm([each for each in made if isinstance(each, Finding)], self.subject.level))
        not_tested = [NotTested(key, code) for key, code in self._skipped.items()]
        not_tested += [self._reason(each) for each in made if isinstance(each, NotTested)]
        points, per_point = self._by_round()
        scale = next((each for each in findings if each.key == "noise-scale"), None)
        return Conformance(
            findings=findings,
            level=self.subject.level,
            not_tested=tuple(not_tested),
            rounds=int(self._memories[_ROUNDS]["seen"][0]),
            coordinates=self._memories[_TOTALS]["sum"].size if self.subject.description.has_noise else self.subject.dim,
            noise_by_round=points,
            rounds_per_point=per_point,
            noticed_noise_factor=None if scale is None else scale.details.get("factor"),
        )

    def _restore(self, state: State) -> None:
        for name, value in state.items():
            key, _, inner = name.partition(".")
            if key in self._memories and self._fits(key, state):
                self._memories[key][inner] = np.array(value)

    def _check_goes_on(self) -> None:
        """Whether a checkpoint was written by a version that looks at the same coordinates."""
        before, now = self._memories[_TOTALS]["sum"].size, self._looked_at
        if self.subject.description.has_noise and before != now:
            raise RunDirectoryError(
                f"the tests of this run have looked at the noise of {before:,} coordinates so far, and this version of "
                f"coalmine looks at {now:,}: correlated noise cannot be followed across. Finish the run with the version "
                "that its config.toml names, or start a new run."
            )

    def _fits(self, key: str, state: State) -> bool:
        """Whether a checkpoint holds what this check remembers, of the same model; what another version wrote begins anew."""
        if key == _WHITENING:
            return True
        own, saved = self._memories[key], {name.partition(".")[2] for name in state if name.partition(".")[0] == key}
        by_layer = [name for name in ("sums", "layers") if name in own]
        return saved == set(own) and all(own[name].shape == np.shape(state[f"{key}.{name}"]) for name in by_layer)

    def _reason(self, made: NotTested) -> NotTested:
        """Contributions that are not known are the reason where the noise could not be looked at, if no rounding hid it."""
        _, known, hidden = self._memories[_ROUNDS]["seen"]
        return replace(made, code="no-residual") if made.code == "noise-too-small" and not known and not hidden else made

    def _so_far(self, prepared: Round) -> dict[str, float]:
        told = self.subject.description.noise
        if told is None or prepared.noise is None or prepared.noise.at_least or "noise-scale" not in self._memories:
            return {}
        total, count, _ = self._memories["noise-scale"]["sums"]
        return {"noise_measured": float(told.multiplier * np.sqrt(total / count))}

    def _by_round(self) -> tuple[tuple[float, ...], int]:
        """The noise multiplier by round, or by blocks of rounds where there are many."""
        told = self.subject.description.noise
        rows = self._memories.get("noise-by-round", {}).get("by_round", np.zeros((0, 4)))
        if told is None or not rows.shape[0] or rows[:, 2].any():
            return (), 1
        size = -(-rows.shape[0] // _POINTS)
        blocks = [rows[start : start + size].sum(axis=0) for start in range(0, rows.shape[0], size)]
        return tuple(float(told.multiplier * np.sqrt(block[0] / block[1])) for block in blocks), size * int(rows[0, -1])


def _sides(findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """More noise in places is more noise only where there is more in all; else it is another mechanism."""
    if any(each.key == "noise-scale" and each.side == "more" for each in findings):
        return findings
    return tuple(replace(each, side="unknown") if each.side == "more" and each.key in _PLACES else each for each in findings)


def _holm(findings: list[Finding], level: float) -> tuple[Finding, ...]:
    """Adjusted p-values; a side is said where they are at most the level."""
    order = sorted(range(len(findings)), key=lambda place: findings[place].p_value)
    adjusted, largest = [1.0] * len(findings), 0.0
    for rank, place in enumerate(order):
        largest = max(largest, min(1.0, findings[place].p_value * (len(findings) - rank)))
        adjusted[place] = largest
    return tuple(
        replace(each, adjusted=value, side=each.side if value <= level else "none", where=each.where)
        for each, value in zip(findings, adjusted, strict=True)
    )
