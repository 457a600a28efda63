"""Mechanisms: what turns the updates of a round into a release, and says what it is (`describe`).

`Gaussian` is fixed clipping and Gaussian noise; `AdaptiveGaussian` lets the clip norm follow a quantile of the clients' norms
and pays for it; `Correlated` adds noise that is correlated over rounds (DP-FTRL), by one of the strategies of
`coalmine.mechanisms.strategies`, and `AdaptiveCorrelated` does both. `Distributed` has clients add the noise; `FullGradient`,
`BatchGradient` and `WaterFilling` protect single examples of a client. Sums are order-free (`FixedPointSum`). A mechanism of
one's own keeps the contract `coalmine.contracts.Mechanism`; a configuration names it by `kind = "package.module:Name"`, or by
the name that its package registers as an entry point of the group `coalmine.mechanisms`.
"""

from coalmine.mechanisms.adaptive import AdaptiveGaussian
from coalmine.mechanisms.adaptive_correlated import AdaptiveCorrelated
from coalmine.mechanisms.correlated import Correlated
from coalmine.mechanisms.distributed import Distributed
from coalmine.mechanisms.examples import BatchGradient, FullGradient
from coalmine.mechanisms.gaussian import Gaussian
from coalmine.mechanisms.registry import MECHANISMS, STRATEGIES, fingerprint, make_mechanism, read_description
from coalmine.mechanisms.sums import FixedPointSum
from coalmine.mechanisms.water_filling import WaterFilling

__all__ = [
    "MECHANISMS",
    "STRATEGIES",
    "AdaptiveCorrelated",
    "AdaptiveGaussian",
    "BatchGradient",
    "Correlated",
    "Distributed",
    "FixedPointSum",
    "FullGradient",
    "Gaussian",
    "WaterFilling",
    "fingerprint",
    "make_mechanism",
    "read_description",
]
