"""The quick tests (`make check`'s) on every Python from 3.11 to 3.13 that is found, each in an environment of its own.

    python benchmarks/pythons.py [--only VERSION] [--seconds N] [PYTEST ARGUMENTS]

Looks for python3.11 … on the PATH and in the folder of pyenv. Environments are .venv-python-VERSION, made once with the
pinned versions of constraints.txt. Writes benchmarks/results/pythons.json: versions, counts, what was not found or not
installed, and fingerprints of model and scores of `tiny` with one secret seed, to be the same on all of them. With --only,
the rows of the others stay as they were; with --seconds, tests are stopped after so long, and the row says so.
"""

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
RESULT = ROOT / "benchmarks/results/pythons.json"
VERSIONS = ("3.11", "3.12", "3.13")
_VERSIONS = "import platform, torch; print(platform.python_version(), torch.__version__)"
_TINY = """
import tempfile, coalmine
with tempfile.TemporaryDirectory() as folder:
    done = coalmine.run("tiny", folder + "/run", set=["run.workers=1"], secret_seed=1, quiet=True)
print(done.training["model_sha256"], done.result.setting["sha256"])
"""
QUICK = ("tests/unit", "tests/contracts", "tests/test_architecture.py")


def interpreter(version):
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = sorted(pyenv.glob(f"{version}.*/bin/python"))
    return str(found[-1]) if found else shutil.which(f"python{version}")


def tried(version, arguments, seconds):
    python = interpreter(version)
    if python is None:
        return {"version": version, "found": False}
    place = ROOT / f".venv-python-{version}"
    if not (place / "installed").exists():
        subprocess.run([python, "-m", "venv", place], check=True)
        install = [
            place / "bin/python",
            "-m",
            "pip",
            "install",
            "--quiet",
            "--constraint",
            "constraints.txt",
            "--editable",
            ".[dev]",
        ]
        if subprocess.run(install, cwd=ROOT).returncode:
            return {"version": version, "found": True, "installed": False}
        (place / "installed").touch()
    own = place / "bin/python"
    said = subprocess.run([own, "-c", _VERSIONS], capture_output=True, text=True).stdout.split()
    command = [own, "-m", "pytest", "-q", "-n", os.environ.get("WORKERS", "2"), *arguments]
    alone = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # as in `make check`
    heard = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)  # noqa: E731 -- a shell's background ignores it
    running = subprocess.Popen(command, cwd=ROOT, env=alone, stdout=subprocess.PIPE, text=True, preexec_fn=heard)
    try:
        shown, late = running.communicate(timeout=seconds)[0], False
    except subprocess.TimeoutExpired:
        running.send_signal(signal.SIGINT)  # pytest counts what it did
        shown, late = running.communicate()[0], True
    tiny = subprocess.run([own, "-c", _TINY], cwd=ROOT, env=alone, capture_output=True, text=True).stdout.split()
    last = shown.strip().splitlines()[-1] if shown.strip() else ""
    counts = {word: int(number) for number, word in re.findall(r"(\d+) (passed|failed|skipped|error)", last)}
    failed = re.findall(r"^(?:FAILED|ERROR) (\S+)", shown, re.M)
    return {
        **dict(zip(("version", "torch"), said, strict=False)),
        "found": True,
        "installed": True,
        "code": 0 if late and counts.get("passed") and not failed else running.returncode,
        **({"stopped_after_seconds": seconds} if late else {}),
        **counts,
        "which": failed,
        "tiny": dict(zip(("model_sha256", "scores_sha256"), tiny, strict=False)),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=VERSIONS)
    parser.add_argument("--seconds", type=float)
    only, tests = parser.parse_known_args()
    tests = tests or list(QUICK)
    made = {}
    for version in [only.only] if only.only else VERSIONS:
        made[version] = tried(version, tests, only.seconds)
        print(json.dumps(made[version]), flush=True)
    rows = {}
    if only.only and RESULT.exists():  # read now: another version may have been tried meanwhile
        rows = {row["version"][:4]: row for row in json.loads(RESULT.read_text())["rows"]}
    rows |= made
    found = [rows[version] for version in sorted(rows)]
    bits = [row["tiny"] for row in found if "tiny" in row]
    same = all(each == bits[0] and len(each) == 2 for each in bits)
    RESULT.write_text(json.dumps({"tests": tests, "tiny_has_the_same_bits": same, "rows": found}, indent=1) + "\n")
    sys.exit(any(row.get("code") for row in found) or not same)


if __name__ == "__main__":
    main()
