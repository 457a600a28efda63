"""The bug zoo: DP training implementations with one realistic bug each, and the proof that one audited run tells them apart.

    noise.py      noise that is too small, missing, or not new
    shape.py      noise of the right strength and the wrong shape
    clipping.py   updates that are cut in the wrong place, or not at all
    correlated.py noise that is correlated over rounds: its matrix, its normals, its sensitivity
    sampling.py   who takes part, and how much each counts
    local.py      a client's own training, before anything is clipped
    water_filling.py  noise for single records under secure aggregation; records.py audits it
    bugs.py       all of them; reading.py lists them without loading them
    settings.py   what is trained, and the statement that decides
    study.py      all of them audited, and correct code

>>> from coalmine.zoo import BUGS
>>> print(BUGS["reused-noise"].fault)
The noise is drawn once and added in every round.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from coalmine.zoo.reading import FILES, listing

if TYPE_CHECKING:
    from coalmine.zoo import clipping, correlated, local, noise, sampling, shape, water_filling
    from coalmine.zoo.bug import Bug as Bug
    from coalmine.zoo.bugs import BUGS as BUGS
    from coalmine.zoo.settings import SETTINGS as SETTINGS
    from coalmine.zoo.settings import Setting as Setting
    from coalmine.zoo.study import Auditor as Auditor
    from coalmine.zoo.study import Study as Study
    from coalmine.zoo.study import audit_all as audit_all
    from coalmine.zoo.study import audit_once as audit_once

_LATER = {  # what trains, or needs mechanisms, is loaded when it is first used: a list needs neither
    "BUGS": "bugs",
    "Bug": "bug",
    **dict.fromkeys(("SETTINGS", "Setting"), "settings"),
    **dict.fromkeys(("Auditor", "Study", "audit_all", "audit_once"), "study"),
}

__all__ = [
    "BUGS",
    "SETTINGS",
    "Auditor",
    "Bug",
    "Setting",
    "Study",
    "audit_all",
    "audit_once",
    "clipping",
    "correlated",
    "listing",
    "local",
    "noise",
    "sampling",
    "shape",
    "water_filling",
]


def __getattr__(name: str) -> Any:
    if name in FILES:
        return import_module(f"coalmine.zoo.{name}")
    if name not in _LATER:
        raise AttributeError(f"module 'coalmine.zoo' has no attribute {name!r}")
    return getattr(import_module(f"coalmine.zoo.{_LATER[name]}"), name)
