"""How well scores tell who took part: a ranking, which is not an epsilon and is never turned into one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from coalmine.rounding import percent


@dataclass(frozen=True)
class Ranking:
    """The area under the ROC curve: how likely somebody who took part has a higher score than somebody who did not.

    0.5 is guessing; a value below 0.5 is reported as it is. The interval is asymptotic. Where it does not exist, `low` and
    `high` are None and `unavailable` says why. `tpr_at` has the share of those who took part above thresholds with few false
    alarms, without confidence.
    """

    auroc: float
    low: float | None
    high: float | None
    confidence: float
    inserted: int
    held_out: int
    standard_error: float
    method: str
    unit: str = "user"  # what one score stands for
    assumptions: tuple[str, ...] = ()
    unavailable: str = ""
    tpr_at: Mapping[str, float | None] = field(default_factory=dict)  # false-alarm rate to share; None: too few held out
    label: str = ""  # which scores, where there are several rankings
    valid: bool = False  # no theorem for any number of scores

    def __str__(self) -> str:
        if self.low is None or self.high is None:
            return f"AUROC {self.auroc:.3f}, no interval: {self.unavailable}"
        return f"AUROC {self.auroc:.3f}, {percent(self.confidence)} interval [{self.low:.3f}, {self.high:.3f}]"
