"""A lower triangular matrix from a file: a factorization that somebody else computed, .npy, .npz or .csv."""

from __future__ import annotations

import hashlib
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
        if found.dtype.kind not in "iuf" or found.ndim != 2 or found.shape[0] != found.shape[1] or not found.size:
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
        found /= np.linalg.norm(found, axis=0).max()
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
        try:
            if path.suffix.lower() == ".csv":
                return Given.of(np.loadtxt(path, delimiter=",", ndmin=2), path.name)
            loaded = np.load(path, allow_pickle=False)
            if isinstance(loaded, np.lib.npyio.NpzFile):
                with loaded:
                    if len(loaded.files) != 1:
                        raise InputFileError(f"{path.name} holds {len(loaded.files)} arrays; a strategy is one matrix.")
                    return Given.of(loaded[loaded.files[0]], path.name)
            return Given.of(loaded, path.name)
        except (ValueError, OSError, EOFError, KeyError) as error:
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
