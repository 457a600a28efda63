"""Hooks that write for other programs: TensorBoard, MLflow, Weights & Biases."""

from __future__ import annotations

import json
import logging
import math
import os
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from coalmine.hooks import wandb_log
from coalmine.hooks.runner import FOLDER, Event, Hook

_NO_METRICS = ("round", "rounds", "time")


class _Writer(ABC):
    """A hook that writes for another program, which is imported when the run starts and asked for before."""

    name = ""
    packages: tuple[str, ...] = ()

    def __init__(self) -> None:
        missing = [package for package in self.packages if not _installed(package)]
        if missing:
            raise ValueError(f'hook {self.name!r} needs {", ".join(missing)}: pip install "coalmine[{self.name}]"')

    def __call__(self, event: Event) -> None:
        {"start": self._start, "round": self._round, "end": self._end}[event["event"]](event)

    @abstractmethod
    def _start(self, event: Event) -> None: ...

    @abstractmethod
    def _round(self, event: Event) -> None: ...

    @abstractmethod
    def _end(self, event: Event) -> None: ...


class TensorBoard(_Writer):
    """Event files for TensorBoard, in `hooks/tensorboard` of the run directory unless a folder is given."""

    name = "tensorboard"
    packages = ("tensorboard",)

    def __init__(self, log_dir: str | Path | None = None) -> None:
        super().__init__()
        self._log_dir, self._writer = log_dir, None

    def _start(self, event: Event) -> None:
        from tensorboard.compat.proto.event_pb2 import SessionLog
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self._writer = EventFileWriter(str(self._log_dir or _folder(event, self.name)))
        if event["round"]:  # nothing of an earlier process counts from this round on
            self._write(event["round"], session_log=SessionLog(status=SessionLog.START))

    def _round(self, event: Event) -> None:
        self._scalars(event["round"], _metrics(event))

    def _end(self, event: Event) -> None:
        from tensorboard.plugins.text.summary_v2 import text_pb

        self._scalars(event["rounds"], {f"final/{name}": value for name, value in _metrics(event).items()})
        self._write(event["rounds"], summary=text_pb("verdict", f"{event['verdict']}: {event['reason']}"))

    def _scalars(self, step: int, values: Mapping[str, float]) -> None:
        from tensorboard.compat.proto.summary_pb2 import Summary

        self._write(step, summary=Summary(value=[Summary.Value(tag=tag, simple_value=value) for tag, value in values.items()]))

    def _write(self, step: int, **what: Any) -> None:
        from tensorboard.compat.proto.event_pb2 import Event as Record

        if self._writer is not None:
            self._writer.add_event(Record(wall_time=time.time(), step=step, **what))
            self._writer.flush()  # a kill loses no round that was told

    def close(self) -> None:
        """Close the file."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()


class MLflow(_Writer):
    """A run at MLflow, in a database in `hooks/` of the run directory unless a store or server is named."""

    name = "mlflow"
    packages = ("mlflow", "sqlalchemy", "alembic")

    def __init__(self, tracking_uri: str | None = None, *, experiment: str = "coalmine", run_name: str | None = None) -> None:
        super().__init__()
        self._uri, self._experiment, self._run_name = tracking_uri, experiment, run_name
        self._client: Any = None
        self._run = ""

    def _start(self, event: Event) -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        from mlflow.tracking import MlflowClient

        for talkative in ("mlflow", "alembic"):
            logging.getLogger(talkative).setLevel(logging.WARNING)
        database = _folder(event, "").resolve() / "mlflow.db"
        self._client = MlflowClient(tracking_uri=self._uri or f"sqlite:///{database}")
        self._run = self._found_or_made(event)

    def _found_or_made(self, event: Event) -> str:
        """The run with the mark of this run directory, made if there is none."""
        client, mark = self._client, _remembered(event, self.name)
        experiment = client.get_experiment_by_name(self._experiment)
        place = experiment.experiment_id if experiment else client.create_experiment(self._experiment)
        known = client.search_runs([place], filter_string=f"tags.coalmine_run = '{mark}'")
        if known:
            client.update_run(known[0].info.run_id, status="RUNNING")
            return str(known[0].info.run_id)
        made = client.create_run(place, run_name=self._run_name or Path(event["directory"]).name, tags={"coalmine_run": mark})
        for name, value in _flat(event["config"]).items():
            client.log_param(made.info.run_id, name, value)
        return str(made.info.run_id)

    def _round(self, event: Event) -> None:
        self._log(_metrics(event), event["round"])

    def _end(self, event: Event) -> None:
        self._log({f"final_{name}": value for name, value in _metrics(event).items()}, event["rounds"])
        for name in ("verdict", "reason"):
            self._client.set_tag(self._run, name, event[name])
        self._client.set_terminated(self._run, "FINISHED")
        self._client = None

    def _log(self, values: Mapping[str, float], step: int) -> None:
        from mlflow.entities import Metric

        now = int(1000 * time.time())
        self._client.log_batch(self._run, metrics=[Metric(name, value, now, step) for name, value in values.items()])

    def close(self) -> None:
        """A run that did not come to its end is marked as killed."""
        client, self._client = self._client, None
        if client is not None:
            client.set_terminated(self._run, "KILLED")


class WeightsAndBiases(_Writer):
    """A run at Weights & Biases: offline, in `hooks/wandb` of the run directory, unless `mode` says otherwise.

    `further` are arguments of `wandb.init`, as `entity` or `tags`. The tracker writes in a process of its own, which keeps rows
    in memory for some seconds and loses them if this process is killed. A run that goes on therefore first tells again what the
    tracker does not have.
    """

    name = "wandb"
    packages = ("wandb",)

    def __init__(
        self, project: str = "coalmine", *, mode: str = "offline", directory: str | Path | None = None, **further: Any
    ) -> None:
        super().__init__()
        self._project, self._mode, self._directory, self._further = project, mode, directory, further
        self._run: Any = None

    def _start(self, event: Event) -> None:
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        import wandb

        quiet = wandb.Settings(console="off", silent=True, x_disable_stats=True, x_disable_meta=True, disable_git=True)
        arguments: dict[str, Any] = {
            "mode": self._mode,
            "name": Path(event["directory"]).name,
            "config": event["config"],
            "settings": quiet,
            **self._further,
        }
        where = Path(self._directory) if self._directory else _folder(event, "")
        where.mkdir(parents=True, exist_ok=True)
        goes_on = event["round"] > 0 and _id_file(event, self.name).is_file()
        self._run = wandb.init(
            project=self._project,
            id=_remembered(event, self.name),
            resume="allow",
            dir=str(where),
            reinit="create_new",  # a run that the user has open stays open
            **arguments,
        )
        if goes_on:
            first = self._first_missing(event["round"])
            for line in _recorded(event):
                if first <= line["round"] < event["round"]:
                    self._round(line)

    def _round(self, event: Event) -> None:
        self._run.log(_metrics(event), step=event["round"], commit=True)

    def _end(self, event: Event) -> None:
        self._run.summary.update({f"final/{name}": value for name, value in event.items() if name != "event"})
        self._finish()

    def close(self) -> None:
        """A run that did not come to its end is marked as failed."""
        if self._run is not None:
            self._finish(exit_code=1)

    def _finish(self, **how: Any) -> None:
        run, self._run = self._run, None
        run.finish(**how)
        if run.offline:
            wandb_log.wait_for_its_end(Path(run.settings.sync_file))  # `finish` returns before it is written

    def _first_missing(self, upcoming: int) -> int:
        """The first round that the tracker does not have, `upcoming` if it has all: it can only lose the last that it heard."""
        if not self._run.offline:
            return int(self._run.step) if self._mode == "online" else upcoming
        own = Path(self._run.settings.sync_file).resolve()
        logs = {path.resolve() for path in own.parent.parent.glob(f"*/{own.name}")} - {own}  # one for every earlier process
        if not logs:
            return upcoming  # they were removed, as is usual after an upload
        lasts = [last for log in logs if (last := wandb_log.freeze(log)) is not None]
        return max(lasts) + 1 if len(lasts) == len(logs) else upcoming


HOOKS: dict[str, Callable[[], Hook]] = {"tensorboard": TensorBoard, "mlflow": MLflow, "wandb": WeightsAndBiases}


def _installed(package: str) -> bool:
    """A folder of that name in the working directory is no package."""
    found = find_spec(package)
    return found is not None and found.origin is not None


def _metrics(event: Event) -> dict[str, float]:
    """What can be drawn: finite numbers."""
    numbers = {name: value for name, value in event.items() if isinstance(value, (int, float)) and not isinstance(value, bool)}
    return {name: float(value) for name, value in numbers.items() if name not in _NO_METRICS and math.isfinite(value)}


def _flat(config: Mapping[str, Any], above: str = "") -> dict[str, str]:
    """{section.key: value} of nested mappings."""
    found: dict[str, str] = {}
    for name, value in config.items():
        found |= _flat(value, f"{above}{name}.") if isinstance(value, Mapping) else {above + name: str(value)[:500]}
    return found


def _folder(event: Event, name: str) -> Path:
    path = Path(event["directory"]) / FOLDER / name
    path.mkdir(parents=True, exist_ok=True)
    return path


def _recorded(event: Event) -> list[dict[str, Any]]:
    """What the rounds before this start told: the run directory keeps every event of a round."""
    text = Path(event["directory"], "events.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def _id_file(event: Event, name: str) -> Path:
    return _folder(event, "") / f"{name}.id"


def _remembered(event: Event, name: str) -> str:
    """A name of this run at a tracker: made once, so that going on does not begin another run there."""
    path = _id_file(event, name)
    if not path.is_file() or not path.read_text(encoding="utf-8"):
        path.write_text(secrets.token_hex(8), encoding="utf-8")
    return path.read_text(encoding="utf-8")
