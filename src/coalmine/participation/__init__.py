"""Who takes part when: one class for each pattern, which answers for itself; read by accountants, drawn from by trainers."""

from coalmine.participation.examples import ExamplePoisson
from coalmine.participation.patterns import Epochs, MinSeparation, Once, Pattern, Periods, Repeated
from coalmine.participation.sampled import FixedSize, Poisson
from coalmine.participation.trace import Trace

PATTERNS: dict[str, type[Pattern]] = {  # by the name in a configuration
    "once": Once,
    "epochs": Epochs,
    "poisson": Poisson,
    "fixed-size": FixedSize,
    "min-separation": MinSeparation,
    "trace": Trace,
}

__all__ = [
    "PATTERNS",
    "Epochs",
    "ExamplePoisson",
    "FixedSize",
    "MinSeparation",
    "Once",
    "Pattern",
    "Periods",
    "Poisson",
    "Repeated",
    "Trace",
]
