"""Do two commits compute the same? Trains the same runs with both, on this machine, and compares what came out.

    python benchmarks/same_bits.py OLD NEW [--only NAME ...] [--flower PYTHON] [--keep FILE]

OLD and NEW are commits; "." is the working tree. Compared are, for every preset (cut to a few rounds), for variants of `tiny`
that take other paths, and for the settings of the bug zoo: the fingerprints of all tables of scores, that of the model, and the
claims, bounds and estimates. `--flower` names the interpreter of an environment with Flower, which trains `tiny` by messages.

`--keep` writes what OLD computed to a file, and reads it there the next time.
Configurations are written in the words of the older commit: the newer one translates them.
Presets that need data files are left out, and named, if COALMINE_DATA does not say where the files are.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[1]
SECRET = "987654321"
COMMAND = "from coalmine.cli import main; main()"
SETTINGS = (
    "import json; from coalmine.zoo.settings import SETTINGS; print(json.dumps({n: s.changes for n, s in SETTINGS.items()}))"
)
FEW = ("participation.pattern=once", "participation.rounds=4")
RENAMED = {  # files of scores that once had other names
    "views/final-model-with-its-start.npz": "views/whole-model.npz",
    "views/every-release-after-momentum.npz": "views/every-step.npz",
}
NEEDS_FILES = ("fashion-mnist", "mnist-writers", "shakespeare")
PRESETS = {
    "tiny": ("tiny",),
    "zoo": ("zoo",),
    "quickstart": ("quickstart", "data.users=60", "participation.epochs=2", "participation.rounds=4", "run.evaluate_every=2"),
    "chat-words": ("chat-words", "data.users=120", "data.held_out=20", *FEW),
    "stackoverflow-shape": ("stackoverflow-shape", "data.users=80", "data.held_out=20", "participation.cohort_size=20"),
    "fashion-mnist": ("fashion-mnist", "data.users=1512"),
    "mnist-writers": ("mnist-writers", "data.users=60", "participation.epochs=1", "participation.cohort_size=15"),
    "shakespeare": (
        "shakespeare",
        "data.users=40",
        "participation.epochs=1",
        "client.max_steps=2",
        "participation.cohort_size=9",
    ),
}
PATHS = {
    "adaptive": ("privacy.adaptive_clipping=true", "privacy.clip_norm=0.1"),
    "realised": ("privacy.realised_denominator=true",),
    "sphere": ("canaries.family=sphere",),
    "layers": ("audit.layers=true", "canaries.presentations=3"),
    "papers": ("audit.paper_views=true", "audit.null=law"),
    "unused": ("audit.null=unused", "canaries.presentations=2"),
    "vectors": ("canaries.as_vectors=true",),
    "replace": ("canaries.replace_clients=true",),
    "poisson": (
        "participation.pattern=poisson",
        "participation.cohort_size=20",
        "canaries.pattern=as-clients",
        'audit.views=["afterwards","unknown-rounds"]',
    ),
    "fixed-size": ("participation.pattern=fixed-size", "participation.cohort_size=20", "canaries.pattern=as-clients"),
    "separation": ("participation.pattern=min-separation", "participation.cohort_size=9", "participation.separation=8"),
    "anytime": ("audit.bound=anytime", 'audit.also=["gdp","threshold","one-run"]', "audit.null=law", "server.optimiser=adam"),
}


def cases(python: Path, source: Path) -> dict[str, tuple[str, ...]]:
    """By name, the preset and the changes of every run."""
    shown = subprocess.run([python, "-c", SETTINGS], env=environment(source), capture_output=True, text=True, check=True)
    zoo = {f"zoo: {name}": ("zoo", *changes) for name, changes in json.loads(shown.stdout).items()}
    return {**PRESETS, **{f"tiny: {name}": ("tiny", *changes) for name, changes in PATHS.items()}, **zoo}


def environment(source: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(source / "src"), "PYTHONDONTWRITEBYTECODE": "1"}


def trained(python: Path, source: Path, case: tuple[str, ...], out: Path, *options: str) -> dict[str, object]:
    """What one commit makes of one run."""
    preset, *changes = case
    told = [word for change in changes for word in ("--set", change)]
    command = [python, "-c", COMMAND, "run", preset, *told, "--secret-seed", SECRET, "--out", out, "--quiet", *options]
    ended = subprocess.run(command, env=environment(source), cwd=out.parent, capture_output=True, text=True, check=False)
    if ended.returncode not in (0, 1):  # 1: violated
        raise SystemExit(f"{source.name}: {preset} ended with {ended.returncode}: {ended.stderr[-2000:]}")
    return outcome(out)


def outcome(out: Path) -> dict[str, object]:
    """Fingerprints and numbers of a finished run, whatever the layout of its result file."""
    found: dict[str, object] = {"model.safetensors": hashlib.sha256((out / "model.safetensors").read_bytes()).hexdigest()}
    if not (out / "result.json").is_file():
        return found
    for file in (out / "scores.npz", *sorted((out / "views").glob("*.npz"))):
        name = file.relative_to(out).as_posix()
        found[RENAMED.get(name, name)] = scores_sha(file)
    result = json.loads((out / "result.json").read_text())
    for name in ("bounds", "estimates"):
        found[name] = [each["epsilon"] for each in result[name]]
    found["claims"] = [result["claim"]["epsilon"], *(each["claim"]["epsilon"] for each in result["views"])]
    found["verdict"] = result["verdict"]["word"]
    return found


def scores_sha(file: Path) -> str:
    """As `coalmine.Scores.sha256`, computed here, so that a change of that function is no change of the scores."""
    with np.load(file, allow_pickle=False) as archive:
        labels = sorted(set(archive.files) - {"value", "inserted", "about"})
        columns = [archive["value"] + 0.0, archive["inserted"], *(archive[name] for name in labels)]
    order = np.lexsort(columns[::-1])
    digest = hashlib.sha256("|".join(["value", "inserted", *labels]).encode())
    for column in columns:
        digest.update(np.ascontiguousarray(column[order]).tobytes())
    return digest.hexdigest()


def checkout(commit: str, folder: Path) -> Path:
    if commit == ".":
        return ROOT
    place = folder / commit
    subprocess.run(["git", "-C", ROOT, "worktree", "add", "--quiet", "--detach", place, commit], check=True)
    return place


def compare(arguments: argparse.Namespace, folder: Path) -> int:
    python = Path(sys.executable)
    old, new = (checkout(commit, folder) for commit in (arguments.old, arguments.new))
    asked = {name: (python, case, ()) for name, case in cases(python, old).items()}
    if arguments.flower:
        asked["tiny, on Flower"] = (arguments.flower, PRESETS["tiny"], ("--engine", "flower"))
    kept = json.loads(arguments.keep.read_text()) if arguments.keep and arguments.keep.is_file() else {}
    different = 0
    for name, (by, case, options) in asked.items():
        if arguments.only and name not in arguments.only:
            continue
        if name in NEEDS_FILES and "COALMINE_DATA" not in os.environ:
            print(f"{name:<22} left out: COALMINE_DATA is not set")
            continue
        with tempfile.TemporaryDirectory(dir=folder) as place:
            if name not in kept:
                kept[name] = trained(by, old, case, Path(place, "old"), *options)
            first, second = kept[name], trained(by, new, case, Path(place, "new"), *options)
        changed = [key for key in first | second if first.get(key) != second.get(key)]
        different += bool(changed)
        print(f"{name:<22} {'same' if not changed else 'DIFFERENT: ' + ', '.join(changed)}", flush=True)
        for key in changed:
            print(f"    {key}: {first.get(key)} | {second.get(key)}")
    if arguments.keep:
        arguments.keep.write_text(json.dumps(kept, indent=2))
    print("all the same" if not different else f"{different} of them differ")
    return 1 if different else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--only", nargs="+", metavar="NAME")
    parser.add_argument("--flower", type=Path, metavar="PYTHON")
    parser.add_argument("--keep", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        try:
            return compare(arguments, Path(folder))
        finally:
            for commit in {arguments.old, arguments.new} - {"."}:
                subprocess.run(["git", "-C", ROOT, "worktree", "remove", "--force", Path(folder, commit)], check=False)


if __name__ == "__main__":
    sys.exit(main())
