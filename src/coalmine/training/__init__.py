"""Training with canaries among the clients, from a configuration to a run directory with its audit.

config        what a run is told
assembly      a configuration to objects
federation    the round loop, canaries among the clients
work          what processes share of a round
running       one run: `run` and `resume`
campaign      many runs of one configuration, with one audit; `run` and `resume` of either
facts         what a run recorded, for its result
"""

from coalmine.training.assembly import Task
from coalmine.training.campaign import resume, run
from coalmine.training.running import RunResult, run_in_memory

__all__ = ["RunResult", "Task", "resume", "run", "run_in_memory"]
