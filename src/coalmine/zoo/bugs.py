"""All bugs of the zoo, by their names: whoever needs more than a list of them loads this."""

from coalmine.zoo import clipping, correlated, local, noise, sampling, shape, water_filling
from coalmine.zoo.bug import BUGS, Bug
from coalmine.zoo.reading import FILES

__all__ = ["BUGS", "clipping", "correlated", "local", "noise", "sampling", "shape", "water_filling"]


def _place(each: Bug) -> int:
    file = each.kind.__module__.removeprefix(f"{__package__}.")
    return FILES.index(file) if file in FILES else len(FILES)


# Each file takes its bugs into `BUGS` when it is loaded, and some may have been before this one: the order is that of the list.
for _each in sorted(BUGS.values(), key=_place):
    BUGS[_each.name] = BUGS.pop(_each.name)
