"""Mechanisms: what turns the updates of a round into a release, and what may be claimed for it.

`Gaussian` is fixed clipping and Gaussian noise; `AdaptiveGaussian` lets the clip norm follow a quantile of the clients'
norms and pays for it. Sums are order-free (`FixedPointSum`). A mechanism of one's own keeps the contract
`coalmine.contracts.Mechanism`.
"""

from coalmine.mechanisms.gaussian import AdaptiveGaussian, Gaussian
from coalmine.mechanisms.sums import FixedPointSum

__all__ = ["AdaptiveGaussian", "FixedPointSum", "Gaussian"]
