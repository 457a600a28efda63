"""The Flower adapter on several versions of flwr, each in an environment of its own in front of the main one.

    python benchmarks/flower_versions.py [--versions 1.22.0 1.32.1 1.41.0] [--folder .venv-flower-versions]

Installs each version with the dependencies that it asks for, runs the tests of the adapter in this process (no deployment), and
writes what came of it to benchmarks/results/flower_versions.json.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
VERSIONS = ("1.22.0", "1.26.1", "1.32.1", "1.38.0", "1.41.0", "1.42.0")
LIKE = {
    "1.42.0": "1.41.0"
}  # with the dependencies of another version: it asks for a certifi that is younger than some registries
TESTS = (
    "test_grid.py",
    "test_refusals.py",
    "test_right.py",
    "test_mod.py",
    "test_faults.py",
    "test_trouble.py",
    "test_secagg.py",
)


def prepared(folder: Path, version: str) -> Path:
    """The Python of an environment with this version of flwr."""
    place = folder / version
    python = place / "bin" / "python"
    if not (place / "installed").is_file():
        venv.create(place, with_pip=True, clear=True)
        site = subprocess.run(
            [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], capture_output=True, text=True, check=True
        ).stdout.strip()
        main = sysconfig.get_path("purelib")
        Path(site, "main-environment.pth").write_text(f"import site; site.addsitedir({main!r})\n")
        install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*install, f"flwr=={LIKE.get(version, version)}"], check=True)
        if version in LIKE:
            subprocess.run([*install, "--no-deps", f"flwr=={version}"], check=True)
        (place / "installed").touch()
    return python


def outcome(python: Path) -> dict[str, object]:
    """What the tests say."""
    command = [python, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", *(f"tests/flower/{name}" for name in TESTS)]
    environment = {**os.environ, "FLWR_TELEMETRY_ENABLED": "0"}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1800, env=environment)
    counts = {
        word: int(number) for number, word in re.findall(r"(\d+) (passed|failed|skipped|error)", done.stdout.splitlines()[-1])
    }
    failed = re.findall(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    return {**counts, "failures": failed}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--versions", nargs="+", default=VERSIONS)
    parser.add_argument("--folder", type=Path, default=ROOT / ".venv-flower-versions")
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks" / "results" / "flower_versions.json")
    config = parser.parse_args()
    found = {}
    for version in config.versions:
        found[version] = outcome(prepared(config.folder.resolve(), version))
        print(version, found[version], flush=True)
    config.output.write_text(json.dumps(found, indent=2) + "\n")
    if any(each.get("failed") or each.get("error") or not each.get("passed") for each in found.values()):
        sys.exit(1)


if __name__ == "__main__":
    main()
