"""A lower triangular matrix from a file: a factorization that somebody else computed, .npy, .npz or .csv."""

from __future__ import annotations

import hashlib
import warnings
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from coalmine.contracts import Array
from coalmine.errors import InputFileError
from coalmine.mechanisms.strategies import sensitivity
from coalmine.mechanisms.strategies.strategy import MOST_ROUNDS, CorrelatedStrategy, Plan, triangular_inverse

ENDINGS = (".npy", ".npz", ".csv")
MOST_BYTES = 512 * 2**20  # of a file, or of what it says that it unpacks to: 4,096 rounds need 128 MB
_EXACT = 1e-6  # largest entry of C⁻¹ C - I


@dataclass(frozen=True)
class Given(CorrelatedStrategy):
    """A matrix C, normalised to its largest column norm.

    A description holds its SHA-256, not its entries: a strategy that was read from a description can be named and compared, and
    computes nothing until it is made again from the file.
    """

    sha256: str = ""
    kind: ClassVar[str] = "matrix"
    options: ClassVar[tuple[str, ...]] = ("file",)

    @classmethod
    def from_options(cls, options: Mapping[str, Any], plan: Plan) -> CorrelatedStrategy:
        """`file`."""
        if "file" not in options:
            raise ValueError("strategy 'matrix' needs file: a square, lower triangular matrix in .npy, .npz or .csv.")
        made = cls.read(options["file"])
        made.check_rounds(plan.rounds)
        return made

    @staticmethod
    def of(matrix: Array, where: str = "the matrix") -> Given:
        """From the matrix itself.

        >>> round(Given.of(np.array([[2.0, 0.0], [1.0, 2.0]])).first ** 2, 9)
        0.8
        """
        found = np.asarray(matrix)
        if found.dtype.kind not in "iuf":
            raise InputFileError(f"{where} must hold real numbers; its entries are {found.dtype}.")
        if found.ndim != 2 or found.shape[0] != found.shape[1] or not found.size:
            raise InputFileError(f"{where} must be a square table of numbers; its shape is {found.shape}.")
        if found.shape[0] > MOST_ROUNDS:
            raise InputFileError(f"{where} has {found.shape[0]} rounds; at most {MOST_ROUNDS} are allowed.")
        found = found.astype(np.float64)
        if not np.isfinite(found).all():
            raise InputFileError(f"{where} has NaN or infinite entries.")
        if np.triu(found, 1).any():
            raise InputFileError(f"{where} must be lower triangular: noise cannot depend on what is still to come.")
        if not (np.diag(found) > 0).all():
            raise InputFileError(f"{where} must have a positive diagonal: without it C has no inverse.")
        found /= np.abs(found).max()  # so that no square overflows
        found /= np.linalg.norm(found, axis=0).max()
        with np.errstate(all="ignore"):
            off = np.abs(triangular_inverse(found) @ found - np.eye(len(found))).max() if np.diag(found).all() else np.inf
        if not off <= _EXACT:
            raise InputFileError(
                f"{where} cannot be inverted in double precision: its diagonal is too small beside the rest, and noise "
                "would not cancel as it says. Scale the workload, or use another factorization."
            )
        found.flags.writeable = False
        made = Given(found.shape[0], hashlib.sha256(found.tobytes()).hexdigest())
        object.__setattr__(made, "_matrix", found)
        return made

    @staticmethod
    def read(path: str | Path) -> Given:
        """From a file."""
        path = Path(path)
        if not path.is_file():
            raise InputFileError(f"there is no file {str(path)!r}; a strategy is a square matrix in {', '.join(ENDINGS)}.")
        if path.suffix.lower() not in ENDINGS:
            raise InputFileError(f"{path.name!r}: the ending of a matrix must be one of {', '.join(ENDINGS)}.")
        if path.stat().st_size > MOST_BYTES:
            raise InputFileError(f"{path.name} has {path.stat().st_size:,} bytes; a matrix of {MOST_ROUNDS} rounds needs less.")
        try:
            return Given.of(_loaded(path), path.name)
        except (ValueError, OSError, EOFError, KeyError, MemoryError, zipfile.BadZipFile, NotImplementedError) as error:
            raise InputFileError(f"{path.name} is not a readable matrix: {error}") from None

    def matrix(self) -> Array:
        """C."""
        found: Array | None = getattr(self, "_matrix", None)
        if found is None:
            raise ValueError(
                f"the matrix {self.sha256[:12]}… is known by its SHA-256 only: read the strategy from its file (Given.read)."
            )
        return found

    def inverse(self) -> Array:
        """C⁻¹."""
        return triangular_inverse(self.matrix())

    @property
    def bands(self) -> int | None:
        """From its entries."""
        found = self.matrix()
        width = sensitivity.bandwidth(np.abs(found.T @ found))
        return width if width < self.rounds else None


def _loaded(path: Path) -> Array:
    """The table in a file, which may say anything of its own size."""
    if path.suffix.lower() == ".csv":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of an empty file: its shape says so
            return np.loadtxt(path, delimiter=",", ndmin=2)
    if not zipfile.is_zipfile(path):
        return np.array(np.load(path, allow_pickle=False, mmap_mode="r"))  # refused where the file is shorter than it says
    with zipfile.ZipFile(path) as packed:
        members = packed.infolist()
        if len(members) != 1:
            raise InputFileError(f"{path.name} holds {len(members)} arrays; a strategy is one matrix.")
        if members[0].file_size > MOST_BYTES:
            raise InputFileError(f"{path.name} unpacks to {members[0].file_size:,} bytes; at most {MOST_BYTES:,} are allowed.")
        with packed.open(members[0]) as member:
            major, _ = np.lib.format.read_magic(member)
            read = np.lib.format.read_array_header_1_0 if major == 1 else np.lib.format.read_array_header_2_0
            shape = read(member)[0]
        if any(size > MOST_ROUNDS for size in shape):
            raise InputFileError(f"{path.name} has the shape {shape}; at most {MOST_ROUNDS} rounds are allowed.")
    with np.load(path, allow_pickle=False) as loaded:
        return np.asarray(loaded[loaded.files[0]])
