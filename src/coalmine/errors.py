"""What can go wrong, as types.

    CoalmineError                     everything this package raises on purpose
    ├── AuditError  (ValueError)      the question cannot be answered as asked
    │   ├── MismatchError             a claim and a measurement do not speak of the same game
    │   ├── NotEnoughCanariesError    too few scores for this statement
    │   ├── NonFiniteError            NaN or infinity among the scores; nothing was computed
    │   └── AssignmentError           the method needs coins (or runs) that these scores do not have
    ├── InputFileError                a file is missing, truncated or has another layout
    └── RunDirectoryError             a run directory cannot be written, or is not what it should be

An argument outside its range is a plain `ValueError`, phrased in `coalmine._validate`.
Every message says what came, what is allowed and what to do.
"""


class CoalmineError(Exception):
    """Base of all errors raised on purpose by Coalmine."""


class AuditError(CoalmineError, ValueError):
    """The question cannot be answered as asked."""


class MismatchError(AuditError):
    """A claim and a measurement do not speak of the same game."""


class NotEnoughCanariesError(AuditError):
    """Too few scores for this statement."""


class NonFiniteError(AuditError):
    """NaN or infinity among the scores; nothing was computed."""


class AssignmentError(AuditError):
    """The method needs coins (or runs) that these scores do not have."""


class InputFileError(CoalmineError):
    """A file is missing, truncated or has another layout."""


class RunDirectoryError(CoalmineError):
    """A run directory cannot be written, or is not what it should be."""
