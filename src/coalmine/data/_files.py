"""Where the files lie, and how a missing or a broken one is said.

Files come from an explicit `data_dir` or from the folder that the environment variable COALMINE_DATA names. Nothing is
downloaded: a missing file's message says what the file is and which project publishes it.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from coalmine.errors import InputFileError

VARIABLE = "COALMINE_DATA"
_STEPS = np.zeros(256, np.int8)  # by byte: one level deeper or less deep
_STEPS[[*b"{["]], _STEPS[[*b"}]"]] = 1, -1


@dataclass(frozen=True)
class Origin:
    """What a file is, who publishes it, and the folders it may lie in below the data folder.

    Files may also lie in the data folder itself; with `alone` only if that folder's name has this word in it.
    """

    what: str
    where: str
    folders: tuple[str, ...]
    alone: str = ""


def find(file: str, origin: Origin, data_dir: str | Path | None) -> Path:
    """The path of a file in the data folder, compressed or not."""
    given = data_dir if data_dir is not None else os.environ.get(VARIABLE)
    wanted = f"{origin.what} ({file}) are needed. {origin.where}"
    if not given:
        raise InputFileError(f"{wanted} Give data_dir (--data-dir) or set {VARIABLE} to the folder that holds them.")
    base = Path(given)
    if not base.is_dir():
        raise InputFileError(f"{wanted} The data folder {str(base)!r} does not exist.")
    folders = [base / folder for folder in origin.folders]
    if origin.alone in base.resolve().name.lower():
        folders.append(base)
    for folder in folders:
        for name in dict.fromkeys((file, file.removesuffix(".gz"))):
            if (folder / name).is_file():
                return folder / name
    raise InputFileError(f"{wanted} There is no such file in {str(base)!r}, nor in its {' or '.join(origin.folders)}.")


def existing(path: str | Path, *, what: str) -> Path:
    """The path of a file that was named by its path."""
    if not Path(path).is_file():
        raise InputFileError(f"there is no file {str(path)!r}; {what} is expected there.")
    return Path(path)


def broken(path: Path, reason: object, *, what: str) -> InputFileError:
    """The error of a file that is there and cannot be read as what it should be."""
    said = str(reason).partition("\n")[0].strip().rstrip(".") or type(reason).__name__
    return InputFileError(f"{path.name} is not {what}: {said}. If it is incomplete, get or write it again.")


def needs(package: str, *, what: str, extra: str = "data") -> InputFileError:
    """The error of an optional package that is not installed."""
    return InputFileError(f'{what} needs {package}: pip install "coalmine[{extra}]"')


def deepest(file: Any, block: int = 1 << 20) -> int:
    """How deep the brackets of JSON lines are nested at most; those in texts count too, which makes it larger."""
    most = depth = 0
    while data := file.read(block):
        found = np.frombuffer(data, np.uint8)
        ends = np.flatnonzero(found == 10)
        levels = depth + np.cumsum(_STEPS[found], dtype=np.int64)
        before = np.concatenate([[0], levels[ends]])  # where a line begins, its brackets begin anew
        lengths = np.diff(np.concatenate([[0], ends + 1, [found.size]]))
        levels -= np.repeat(before, lengths)
        most = max(most, int(levels.max()))
        depth = 0 if found[-1] == 10 else int(levels[-1])
    return most
