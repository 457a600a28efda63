"""Who takes part when: one class for each pattern, read by accountants and drawn from by trainers."""

from coalmine.participation.patterns import Epochs, FixedSize, MinSeparation, Once, Periods, Poisson, Repeated
from coalmine.participation.trace import Trace

Participation = Once | Repeated | Poisson | FixedSize | MinSeparation | Trace  # Epochs and Periods are Repeated

__all__ = [
    "Epochs",
    "FixedSize",
    "MinSeparation",
    "Once",
    "Participation",
    "Periods",
    "Poisson",
    "Repeated",
    "Trace",
]
