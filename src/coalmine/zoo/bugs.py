"""All bugs of the zoo, by their names: whoever needs more than a list of them loads this."""

from coalmine.zoo import clipping, correlated, local, noise, sampling, shape, water_filling
from coalmine.zoo.bug import BUGS

__all__ = ["BUGS", "clipping", "correlated", "local", "noise", "sampling", "shape", "water_filling"]
