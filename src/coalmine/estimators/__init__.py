"""From scores to statements: one method per file, each returning a `PointEstimate` or a `LowerBound`.

`BOUNDS` names every lower bound for the command line and for results on disk.
"""

from collections.abc import Callable

from coalmine.contracts import LowerBound
from coalmine.estimators.anytime import bound_anytime
from coalmine.estimators.band import bound_band
from coalmine.estimators.bayesian import bound_bayesian
from coalmine.estimators.gdp import bound_gdp
from coalmine.estimators.lifted import bound_lifted
from coalmine.estimators.one_run import bound_one_run, bound_one_run_fdp
from coalmine.estimators.threshold import bound_pointwise, bound_threshold

BOUNDS: dict[str, Callable[..., LowerBound]] = {
    "band": bound_band,
    "threshold": bound_threshold,
    "gdp": bound_gdp,
    "one-run": bound_one_run,
    "one-run-fdp": bound_one_run_fdp,
    "lifted": bound_lifted,
    "anytime": bound_anytime,
    "bayesian": bound_bayesian,
    "pointwise": bound_pointwise,
}
