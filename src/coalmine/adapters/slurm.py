"""Runs of a sweep as jobs of Slurm, by submitit: one job for each run, whose folder every machine must see."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import submitit

from coalmine.errors import CoalmineError


class SlurmWorkers:
    """Jobs of Slurm in the place of worker processes; `options` are submitit's, as {"slurm_partition": "cpu"}.

    `cluster` is Slurm; "local" are processes of this machine through the same door.
    """

    def __init__(self, folder: Path, options: Mapping[str, Any], count: int, job: Any):
        options = dict(options)
        self._job = job
        try:
            self._executor = submitit.AutoExecutor(folder=folder, cluster=options.pop("cluster", "slurm"))
            self._executor.update_parameters(
                **{"timeout_min": 24 * 60, "cpus_per_task": 1, "slurm_array_parallelism": count, **options}
            )
        except (RuntimeError, ValueError, TypeError, NameError) as error:
            raise ValueError(f"Slurm cannot be used from here: {error}") from None

    def __enter__(self) -> SlurmWorkers:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def map(self, tasks: Sequence[Any]) -> list[Any]:
        """The results of the tasks, in their order."""
        jobs = self._executor.map_array(self._job, tasks)
        try:
            return [job.result() for job in jobs]
        except (submitit.core.utils.FailedJobError, submitit.core.utils.UncompletedJobError) as error:
            said = str(error).strip().splitlines()[0]
            raise CoalmineError(f"a job of Slurm failed: {said}. The same command goes on with what is not finished.") from None
