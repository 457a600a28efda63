"""All bugs of the zoo, by their names: whoever needs more than a list of them loads this."""

from coalmine.zoo import clipping, correlated, local, noise, sampling, shape, water_filling
from coalmine.zoo.bug import BUGS, Bug
from coalmine.zoo.reading import FILES

__all__ = ["BUGS", "clipping", "correlated", "local", "noise", "sampling", "shape", "water_filling"]


def _place(each: Bug) -> int:
    file = each.kind.__module__.rpartition(".")[2]
    return FILES.index(file) if file in FILES else len(FILES)


# In the order of a list, whichever of the files another module had already loaded by itself.
for each in sorted(BUGS.values(), key=_place):
    BUGS[each.name] = BUGS.pop(each.name)
