"""`coalmine doctor`: what is installed, which optional parts work, and the command that installs what is missing.

What each part needs is read from the package's own metadata, so that there is no second list.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import sys
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

PURPOSES = {  # extras in the order in which they are shown; "" is what every command needs
    "": "audits of scores, accounting, planning",
    "report": "pages: report.html, compare.html",
    "train": "coalmine run, resume, zoo",
    "data": "data sets from packages and HDF5",
    "parquet": "score files in parquet, coalmine group",
    "attach": "coalmine.Audit of your own loop",
    "opacus": "coalmine.Audit of Opacus",
    "flower": "coalmine.adapters.flower, run --engine flower",
    "flower-simulation": "Flower applications in its simulation",
    "ray": "coalmine run --engine ray, sweep",
    "slurm": "coalmine sweep --engine slurm",
    "serve": "coalmine serve",
    "tensorboard": "--hook tensorboard",
    "mlflow": "--hook mlflow",
    "wandb": "--hook wandb",
}
_REQUIREMENT = re.compile(r"^([A-Za-z0-9._-]+)(?:\[([^\]]*)\])?\s*([^;]*)(?:;(.*))?$")


@dataclass(frozen=True)
class CheckedPart:
    """One part, and what it needs: versions by package, None where it is not installed."""

    name: str
    purpose: str
    packages: dict[str, str | None]
    missing: tuple[str, ...]  # requirements that are not met, as pip takes them
    install: str  # the command that mends it; empty where nothing is missing

    @property
    def ready(self) -> bool:
        """Whether it works."""
        return not self.missing


@dataclass(frozen=True)
class Checkup:
    """The whole installation."""

    coalmine: str
    python: str
    system: str
    processors: int
    parts: tuple[CheckedPart, ...]
    data: str  # COALMINE_DATA in words
    browser: str | None  # a Chromium, which only tests of pages need
    wrong: tuple[str, ...] = field(default=())

    def __str__(self) -> str:
        head = f"coalmine {self.coalmine}, Python {self.python}, {self.system}, {self.processors} processors"
        lines = [head, *(_line(part) for part in self.parts), f"  {'data files':<18} {self.data}"]
        lines.append(f"  {'browser':<18} {self.browser or 'no Chromium, which only tests need: apt-get install chromium'}")
        return "\n".join([*lines, *(f"  {'wrong':<18} {each}" for each in self.wrong)])


def doctor() -> Checkup:
    """Look at this installation; imports none of the optional parts."""
    stated = requires("coalmine") or []
    parts = tuple(_part(name, purpose, stated) for name, purpose in PURPOSES.items())
    wrong = () if parts[0].ready else (f"nothing works without: {', '.join(parts[0].missing)}",)
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    return Checkup(
        version("coalmine"), platform.python_version(), f"{platform.system()} {platform.machine()}", os.cpu_count() or 1, parts,
        _data(), browser, wrong,
    )  # fmt: skip


def _part(name: str, purpose: str, stated: list[str]) -> CheckedPart:
    needed = _needs(name, stated)
    packages = {package: _version(package) for package in needed}
    missing = tuple(
        f"{package}{wanted}" for package, wanted in needed.items() if not meets(packages[package], wanted)
    )  # fmt: skip
    install = "" if not missing else f'pip install "coalmine[{name}]"' if name else "pip install --force-reinstall coalmine"
    return CheckedPart(name or "core", purpose, packages, missing, install)


def _needs(extra: str, stated: list[str], seen: frozenset[str] = frozenset()) -> dict[str, str]:
    """Package to version of what an extra needs, with what the extras need that it names."""
    found: dict[str, str] = {}
    for line in stated:
        match = _REQUIREMENT.match(line)
        if match is None or not _applies(match[4] or "", extra):
            continue
        package, extras, wanted = match[1], match[2] or "", match[3].strip()
        if package != "coalmine":
            found[package] = wanted
        for each in extras.split(","):
            if package == "coalmine" and each.strip() not in seen:
                found |= _needs(each.strip(), stated, seen | {extra})
    return found


def _applies(marker: str, extra: str) -> bool:
    """Whether a line of the metadata is about this extra and this Python."""
    named = re.search(r"extra == ['\"]([^'\"]+)['\"]", marker)
    if (named[1] if named else "") != extra:
        return False
    for sign, text in re.findall(r"python_version (<|>=) ['\"]([\d.]+)['\"]", marker):
        limit = tuple(int(part) for part in text.split("."))
        if (sys.version_info[:2] < limit) != (sign == "<"):
            return False
    return True


def meets(found: str | None, wanted: str) -> bool:
    """Whether a version is at least the lower bound.

    >>> meets("2.13.0", ">=2.6"), meets("1.9", ">=1.13"), meets(None, ">=1"), meets("1.0", "")
    (True, False, False, True)
    """
    least = re.search(r">=\s*([\d.]+)", wanted)
    return found is not None and (least is None or _digits(found) >= _digits(least[1]))


def _digits(text: str) -> tuple[int, ...]:
    leading = re.match(r"[\d.]+", text)
    return tuple(int(part) for part in leading[0].strip(".").split(".")) if leading else ()


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _data() -> str:
    folder = os.environ.get("COALMINE_DATA")
    if not folder:
        return "COALMINE_DATA is not set; data sets that come as files need it, or --data-dir"
    return folder if Path(folder).is_dir() else f"COALMINE_DATA={folder} is not a folder"


def _line(part: CheckedPart) -> str:
    shown = ", ".join(f"{name} {found}" for name, found in part.packages.items() if found)
    if part.ready:
        return f"  {part.name:<18} ready: {part.purpose} ({shown})"
    return f"  {part.name:<18} missing {', '.join(part.missing)} for {part.purpose}: {part.install}"
