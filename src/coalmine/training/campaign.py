"""Many runs of one configuration: each in a directory of its own with a secret of its own, and one audit of all of them.

    DIR/campaign.json         the configuration and the number of runs
    DIR/secret.json           a secret that was given, from which those of the runs follow; without one each run makes its own
    DIR/run-0000 …            ordinary run directories
    DIR/scores.npz            the scores of all runs, with the column `run`
    DIR/manifest.json         fingerprints of all these files
    DIR/result.json           the lifted audit of all runs; written last

A campaign that was stopped goes on with the first run that is not finished. Lifted bounds need independent runs with canaries
of their own: runs with equal secrets are refused.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from coalmine import manifest
from coalmine._random import stream
from coalmine.audit.statements import audit_scores
from coalmine.contracts import plain
from coalmine.errors import RunDirectoryError
from coalmine.result import AuditResult
from coalmine.runs import RunDirectory, read_secret, refuse_taken, write_secret
from coalmine.scores import Scores
from coalmine.training import running
from coalmine.training.config import Config, located, parse_config, write_config
from coalmine.training.running import RunResult

SCHEMA = "coalmine-campaign/1"
_FILE, _SECRET = "campaign.json", "secret.json"


def run(config: Config, out: str | Path, *, secret_seed: int | None = None, **how: Any) -> RunResult:
    """Train and audit as the configuration says: once, or `run.repeats` times with one audit of all runs."""
    if config.run.repeats == 1:
        return running.run(config, out, secret_seed=secret_seed, **how)
    path = Path(out)
    refuse_taken(path)
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    about = {"schema": SCHEMA, "repeats": config.run.repeats, "config": write_config(located(config), {})}
    if secret_seed is not None:
        write_secret(path / _SECRET, secret_seed)
    _write(path / _FILE, about)
    return _go_on(path, config, secret_seed, how)


def resume(path: str | Path, **how: Any) -> RunResult:
    """Go on where a run, or a campaign, stopped; a finished one is read."""
    folder = Path(path)
    if not (folder / _FILE).is_file():
        return running.resume(path, **how)
    try:
        about = json.loads((folder / _FILE).read_bytes())
        config = parse_config(about["config"], where=f"{path}/{_FILE}")
    except (ValueError, KeyError, TypeError):
        raise RunDirectoryError(f"{str(folder / _FILE)!r} is damaged. Start a new campaign.") from None
    if about.get("schema") != SCHEMA:
        raise RunDirectoryError(
            f"{str(path)!r} was written in the layout {about.get('schema')!r}; this version reads {SCHEMA!r}."
        )
    return _go_on(folder, config, read_secret(folder / _SECRET) if (folder / _SECRET).is_file() else None, how)


def join(runs: Sequence[Scores]) -> Scores:
    """The scores of several runs as one table with the column `run`; held-out scores are the only null."""
    first = runs[0]
    for other in runs[1:]:
        if first.game.differences(other.game) or first.view != other.view or first.assignment != other.assignment:
            raise RunDirectoryError("the runs were not made in the same game; scores of different games are not joined.")
    return Scores(
        np.concatenate([each.value for each in runs]),
        np.concatenate([each.inserted for each in runs]),
        labels={"run": np.repeat(np.arange(len(runs)), [each.value.size for each in runs])},
        assignment=first.assignment,
        statistic=first.statistic,
        view=first.view,
        game=first.game,
    )


def _go_on(path: Path, config: Config, secret_seed: int | None, how: dict[str, Any]) -> RunResult:
    how = {name: value for name, value in how.items() if name != "verdict"}  # there is one verdict, at the end
    audit = {"lifted": {}, **({"bound": "band"} if config.audit.bound == "lifted" else {})}
    single = config.model_copy(
        update={
            "run": config.run.model_copy(update={"repeats": 1}),
            "audit": config.audit.model_copy(update=audit),
        }
    )
    found = [_one(path / f"run-{number:04d}", single, number, secret_seed, how) for number in range(config.run.repeats)]
    _check_secrets([each.directory for each in found])
    if (path / "result.json").is_file():
        return RunResult(path, found[0].training, AuditResult.load(path))
    if any(each.result is None for each in found):
        return RunResult(path, found[0].training, None)
    scores = join([Scores.from_npz(each.directory / "scores.npz") for each in found])
    result = _audit(config, scores, found)
    scores.save(path / "scores.npz")
    manifest.write(path, {"result.json": result.to_json().encode()})
    result.save(path / "result.json")
    return RunResult(path, result.training, result)


def _audit(config: Config, scores: Scores, found: Sequence[RunResult]) -> AuditResult:
    """The lifted bound of all runs beside the claim that every run makes for its canaries."""
    first = found[0].result
    assert first is not None
    options = dict(config.audit.lifted)
    result = audit_scores(
        scores,
        delta=config.privacy.delta,
        claim=first.claim,
        method="lifted",
        confidence=config.audit.confidence,
        options=options,
    )
    caveats = tuple(each for each in (first.caveats or ()) if each.code == "secret-given")
    training = {**first.training, "repeats": len(found)}
    return replace(result, caveats=(*caveats, *result.caveats), training=training)


def _one(path: Path, config: Config, number: int, secret_seed: int | None, how: dict[str, Any]) -> RunResult:
    """One run: made, continued or read."""
    if (path / "config.toml").is_file():
        kept = {name: value for name, value in how.items() if name in ("task", "mechanism", "hooks", "quiet", "workers")}
        return running.resume(path, **kept)
    if path.is_dir():
        RunDirectory(path)._empty()  # killed before it began
    seed = None if secret_seed is None else int(stream(secret_seed, "secret of a campaign's run", number).integers(2**63))
    if seed is None and how.get("workers") is not None:
        config = config.model_copy(update={"run": config.run.model_copy(update={"workers": how["workers"]})})
    return running.run(config, path, secret_seed=seed, **{name: value for name, value in how.items() if name != "workers"})


def _check_secrets(directories: Sequence[Path]) -> None:
    known = [RunDirectory.open(path).secret_seed for path in directories]
    if len(set(known)) < len(known):
        raise RunDirectoryError(
            "two runs of this campaign have the same secret, so their canaries are the same: start it again."
        )


def _write(path: Path, about: dict[str, Any]) -> None:
    aside = path.with_name(path.name + ".part")
    aside.write_text(json.dumps(plain(about), indent=2) + "\n", encoding="utf-8")
    aside.replace(path)
