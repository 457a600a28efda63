"""Training with canaries among the clients, from a configuration to a run directory with its audit.

config        what a run is told
assembly      a configuration to objects
federation    the round loop, canaries among the clients
work          what processes share of a round
running       `run` and `resume`
facts         what a run recorded, for its result
"""

from coalmine.training.assembly import Task
from coalmine.training.running import RunResult, resume, run, run_in_memory

__all__ = ["RunResult", "Task", "resume", "run", "run_in_memory"]
