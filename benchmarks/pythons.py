"""The quick tests (`make check`'s) on every Python from 3.11 to 3.13 that is found, each in an environment of its own.

    python benchmarks/pythons.py [PYTEST ARGUMENTS]

Looks for python3.11 … on the PATH and in the folder of pyenv. Environments are .venv-python-VERSION, made once with the pinned
versions of constraints.txt. Writes benchmarks/results/pythons.json: versions, counts, what was not found or not installed.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
VERSIONS = ("3.11", "3.12", "3.13")
QUICK = ("tests/unit", "tests/contracts", "tests/test_architecture.py")


def interpreter(version):
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = sorted(pyenv.glob(f"{version}.*/bin/python"))
    return str(found[-1]) if found else shutil.which(f"python{version}")


def tried(version, arguments):
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
    exact = subprocess.run([own, "-c", "import platform; print(platform.python_version())"], capture_output=True, text=True)
    ended = subprocess.run([own, "-m", "pytest", "-q", "-n", "2", *arguments], cwd=ROOT, capture_output=True, text=True)
    last = ended.stdout.strip().splitlines()[-1] if ended.stdout.strip() else ""
    counts = {word: int(number) for number, word in re.findall(r"(\d+) (passed|failed|skipped|error)", last)}
    failed = re.findall(r"^(?:FAILED|ERROR) (\S+)", ended.stdout, re.M)
    return {
        "version": exact.stdout.strip(),
        "found": True,
        "installed": True,
        "code": ended.returncode,
        **counts,
        "which": failed,
    }


def main():
    arguments = sys.argv[1:] or QUICK
    rows = []
    for version in VERSIONS:
        rows.append(tried(version, arguments))
        print(json.dumps(rows[-1]), flush=True)
    about = {"tests": list(arguments), "rows": rows}
    (ROOT / "benchmarks/results/pythons.json").write_text(json.dumps(about, indent=1) + "\n")
    sys.exit(any(row.get("code") for row in rows))


if __name__ == "__main__":
    main()
