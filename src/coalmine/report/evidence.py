"""What a page is made from: a result, and what the directory of its run still has beside it.

A lone `result.json` makes a page with fewer figures. Files are data: what does not fit is an error that names the file, numbers
that are none are left out. Nothing of what depends on the machine (times, folders, workers) goes further than this module.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from coalmine import manifest, renamed
from coalmine.contracts import Array
from coalmine.errors import InputFileError, RunDirectoryError
from coalmine.result import AuditResult
from coalmine.scores import Scores
from coalmine.views import VIEWS, KnownOthers, KnownRounds

Round = Mapping[str, Any]
_LARGEST = 1e100  # larger ones cannot be drawn
_OF_THE_MACHINE = ("time", "seconds")


@dataclass(frozen=True, eq=False)
class Evidence:
    """An audit and all that can be shown of it."""

    result: AuditResult
    scores: Mapping[tuple[str, str | None], Scores] = field(default_factory=dict)  # by view and layer
    rounds: tuple[Round, ...] = ()  # what was recorded of every round
    reference: tuple[Round, ...] = ()  # the same of the run without noise and canaries
    config: Mapping[str, Any] = field(default_factory=dict)  # as it was resolved
    versions: Mapping[str, str] = field(default_factory=dict)
    digest: str | None = None  # of the manifest of the run's files
    handed: Mapping[str, str] = field(default_factory=dict)  # arguments of `coalmine.training.run` that no configuration holds
    spectrum: Mapping[str, Any] = field(default_factory=dict)  # what the auditor knew of the noise, where canaries were aimed
    lone: bool = False  # a result file without the directory of its run: there is nothing to compare it with

    @classmethod
    def of(cls, source: AuditResult | str | Path) -> Evidence:
        """From a result, its file, or the directory of a run."""
        if isinstance(source, AuditResult):
            return cls(source, versions=source.versions)
        path = Path(source)
        if path.is_file() and path.name == "result.json" and (path.parent / "config.toml").is_file():
            path = path.parent
        if not path.is_dir():
            return replace(cls.of(AuditResult.load(path)), lone=True)
        manifest.check(path)
        _check_audited(path)
        result = AuditResult.load(path)
        return cls.of_run(path, result, scores_of(path, result))

    @classmethod
    def of_run(cls, path: Path, result: AuditResult, scores: Sequence[Scores]) -> Evidence:
        """A result with its tables of scores, and what else the directory of its run has."""
        config, about = run_config(path)
        versions, handed = (found if isinstance(found := about.get(name), dict) else {} for name in ("versions", "handed"))
        return cls(
            result,
            {(each.view, each.layer): each for each in reversed(scores)},
            read_rounds(path / "events.jsonl"),
            read_rounds(path / "reference" / "events.jsonl"),
            config,
            {**result.versions, **versions},
            manifest.digest(path),
            handed,
            read_spectrum(path / "spectrum.json"),
        )

    @property
    def primary(self) -> Scores | None:
        """The scores that decide."""
        return self.scores.get((self.result.setting["view"], self.result.setting.get("layer")))

    @property
    def watching(self) -> str | None:
        """The view whose scores the epsilon so far was measured by, where that is near enough to the primary one."""
        primary = self.result.setting["view"]
        names = [primary, *(each.view for each in self.result.views), *(view for view, _ in self.scores)]
        if primary not in (KnownRounds.key, KnownOthers.key):
            return None
        others = any(name in VIEWS and VIEWS[name].knows_others for name in names)
        return KnownOthers.key if others else KnownRounds.key

    @property
    def confidence(self) -> float:
        """That of the whole audit; the deciding bound has more where layers share it."""
        stated = self.config.get("audit", {}).get("confidence")
        return float(stated) if drawable(stated) else self.result.bound.confidence

    @property
    def secret(self) -> str | None:
        """The fingerprint of the secret seed, if one is known; one that was given has none, since guesses could be checked."""
        found = self.result.training.get("secret_sha256")
        return found if isinstance(found, str) and not self.given_secret else None

    @property
    def given_secret(self) -> bool:
        """Whether the secret seed was given, which makes a run reproducible and not private."""
        return any(caveat.code == "secret-given" for caveat in self.result.caveats)


def series(rounds: Sequence[Round], name: str) -> tuple[Array, Array]:
    """(rounds counted from one, values) of one entry, where there is a number."""
    lines = [(line.get("round"), line.get(name)) for line in rounds]
    found = [(number, value) for number, value in lines if drawable(number) and drawable(value)]
    table = np.array(found, dtype=np.float64).reshape(-1, 2)
    return table[:, 0] + 1, table[:, 1]


def run_config(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """(the configuration of a run without what depends on the machine, what the run wrote about itself)."""
    file = path / "config.toml"
    try:
        stated = tomllib.loads(manifest.content(file).decode())
        _check_numbers(stated)
    except FileNotFoundError:
        return {}, {}
    except (OSError, ValueError, RecursionError) as error:
        raise InputFileError(f"cannot read {str(file)!r}: {error}. Put back the file that the run wrote.") from None
    about = stated.pop("about", {})
    sections = {name: section for name, section in renamed.section(stated, quiet=True).items() if isinstance(section, dict)}
    for name in ("workers", "hooks"):  # they change no result
        sections.get("run", {}).pop(name, None)
    options = sections.get("data", {}).get("options")
    if isinstance(options, dict):
        options.pop("data_dir", None)
    who = sections.get("participation", {})
    if "trace" in who:
        who["trace"] = Path(str(who["trace"])).name
    return sections, about if isinstance(about, dict) else {}


def _check_numbers(stated: Any) -> None:
    """TOML has whole numbers of 64 bits; Python reads longer ones, and cannot turn them into a float."""
    if isinstance(stated, dict | list):
        for value in stated.values() if isinstance(stated, dict) else stated:
            _check_numbers(value)
    elif isinstance(stated, int) and not -(2**63) <= stated < 2**63:
        raise ValueError("a whole number is longer than 64 bits")


def _check_audited(path: Path) -> None:
    """A directory without a result: say what it is, and what to do."""
    if (path / "result.json").is_file():
        return
    if not (path / "config.toml").is_file():
        raise RunDirectoryError(f"{str(path)!r} is not a run directory: it has no config.toml. `coalmine run --out` makes one.")
    if (path / "training.json").is_file():
        raise RunDirectoryError(
            f"{str(path)!r} was trained without canaries: there is no audit to report. "
            "`coalmine compare` shows what it learned."
        )
    raise RunDirectoryError(f"{str(path)!r} is not finished; `coalmine resume {path}` goes on, and writes the report.")


def scores_of(path: Path, result: AuditResult) -> list[Scores]:
    """The tables of all views; that of the primary one must be the one that the result speaks of."""
    files = (path / "scores.npz", *sorted((path / "views").glob("*.npz")))
    found = [Scores.from_npz(file) for file in files if file.is_file()]
    deciding = (result.setting["view"], result.setting.get("layer"))
    primary = next((each for each in found if (each.view, each.layer) == deciding), None)
    if primary is not None and primary.sha256 != result.setting.get("sha256"):
        raise InputFileError(
            f"the scores in {str(path)!r} are not those that its result.json speaks of (another fingerprint). "
            "Put back the files that the run wrote, or report result.json alone."
        )
    return found


def read_rounds(file: Path) -> tuple[Round, ...]:
    """The lines of events.jsonl, without times; what is no line of it is left out."""
    try:
        lines = manifest.content(file).decode(errors="replace").splitlines()
    except (OSError, InputFileError):
        return ()
    found = []
    for line in lines:
        with suppress(ValueError, RecursionError):
            event = json.loads(line)
            if isinstance(event, dict):
                found.append({name: value for name, value in event.items() if name not in _OF_THE_MACHINE})
    return tuple(found)


def read_spectrum(file: Path) -> dict[str, Any]:
    """What a run with aimed canaries wrote of its spectrum, lists of numbers; empty where there is none."""
    try:
        found = json.loads(manifest.content(file))
        lists = {name: [float(value) for value in found.get(name) or ()] for name in ("ground", "heights", "epsilons")}
        marks = [(str(each["what"]), float(each["epsilon"])) for each in found["marks"]]
        return {**lists, "level": float(found["level"]), "marks": marks}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise InputFileError(f"cannot read {str(file)!r}: {error}. Put back the file that the run wrote.") from None


def drawable(value: Any) -> bool:
    """Whether it can be drawn; whole numbers of a file may be larger than any float."""
    return isinstance(value, int | float) and not isinstance(value, bool) and -_LARGEST < value < _LARGEST
