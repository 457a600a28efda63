"""From scores to statements: one method per file, each returning a `PointEstimate` or a `LowerBound`.

`BOUNDS` names every lower bound for the command line and for results on disk, and says what it needs. A new bound is one file
and one line here.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from coalmine.contracts import LowerBound
from coalmine.estimators.anytime import bound_anytime
from coalmine.estimators.band import bound_band
from coalmine.estimators.bayesian import bound_bayesian
from coalmine.estimators.gdp import bound_gdp
from coalmine.estimators.lifted import bound_lifted
from coalmine.estimators.one_run import bound_one_run, bound_one_run_fdp
from coalmine.estimators.threshold import bound_pointwise, bound_threshold


@dataclass(frozen=True)
class Bound:
    """A lower bound by its key: what computes it, and what a caller must know before the scores are there."""

    key: str
    compute: Callable[..., LowerBound]
    decides: bool = True  # it is valid, and may be compared with a claim
    needs_coins: bool = False  # every canary had a coin of its own
    needs_runs: bool = False  # scores of several runs
    of_sums: bool = False  # for scores that add up over rounds, not for a maximum or a likelihood ratio
    takes_threshold: bool = False
    takes_guesses: bool = False

    def __call__(self, scores: Any, **options: Any) -> LowerBound:
        """The bound of these scores, with its key."""
        return replace(self.compute(scores, **options), key=self.key)


BOUNDS: dict[str, Bound] = {
    bound.key: bound
    for bound in (
        Bound("band", bound_band),
        Bound("threshold", bound_threshold, takes_threshold=True),
        Bound("gdp", bound_gdp, takes_threshold=True),
        Bound("one-run", bound_one_run, needs_coins=True, takes_guesses=True),
        Bound("one-run-fdp", bound_one_run_fdp, needs_coins=True, takes_guesses=True),
        Bound("lifted", bound_lifted, needs_runs=True, takes_threshold=True),
        Bound("anytime", bound_anytime, of_sums=True),
        Bound("bayesian", bound_bayesian, decides=False, takes_threshold=True),
        Bound("pointwise", bound_pointwise, decides=False),
    )
}
