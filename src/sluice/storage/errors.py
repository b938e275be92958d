"""The root of sluice's errors, and the branches raised by the storage floor.

The tree says what the caller does next; every class can be pickled, and has its facts as attributes, not only as text::

    SluiceError
      InvalidRequest            fix the call: nothing was written
        InvalidArgument         also a TypeError and a ValueError
        UnknownScheme, NoSuchBucket, AccessDenied
        NotATable, TableExists, TableNotFound
          TableDropped
        SchemaMismatch
          NullNotAllowed
        ConstraintViolated, PredicateError
        UnsupportedFeature
        VersionNotFound
          HistoryGone
      Unavailable               retry later: nothing is lost
        StorageUnavailable
          StorageFull
      Corrupt                   stop, and look
        LogGap, CorruptLogFile, BadChecksum, MissingObject, ForeignCommit
      InvariantBroken           a bug of sluice: please report it

`coordinator.errors` adds the branches about committing.
"""

from __future__ import annotations

from functools import partial
from typing import Any

__all__ = [
    "AccessDenied",
    "BadChecksum",
    "ConstraintViolated",
    "Corrupt",
    "CorruptLogFile",
    "ForeignCommit",
    "HistoryGone",
    "InvalidArgument",
    "InvalidRequest",
    "InvariantBroken",
    "LogGap",
    "MissingObject",
    "NoSuchBucket",
    "NotATable",
    "NullNotAllowed",
    "PredicateError",
    "SchemaMismatch",
    "SluiceError",
    "StorageFull",
    "StorageUnavailable",
    "TableDropped",
    "TableExists",
    "TableNotFound",
    "Unavailable",
    "UnknownScheme",
    "UnsupportedFeature",
    "VersionNotFound",
]


class SluiceError(Exception):
    """The root of everything sluice raises on purpose.

    `details` has the facts by name; each can also be read as an attribute (`error.version`). `retryable` says whether the
    same call may succeed later, unchanged.
    """

    retryable: bool = False

    def __init__(self, message: str, /, **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.details = details

    def tell(self, more: str, **details: Any) -> None:
        """Add to the message and the facts of an error that is being raised; nothing is added twice."""
        self.message += "" if more in self.message else more
        self.args = (self.message,)
        self.details.update(details)

    def leaves(self, caller: object) -> None:
        """Called when it leaves a public method of an object."""

    def __getattr__(self, name: str) -> Any:
        details: dict[str, Any] = self.__dict__.get("details", {})
        if name in details:
            return details[name]
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), self.message, **self.details), ()


class InvalidRequest(SluiceError):
    """Raised when the call itself must be changed; nothing was written."""


class InvalidArgument(InvalidRequest, TypeError, ValueError):
    """Raised when an argument has the wrong type or is out of bounds, before anything is done; `argument` names it."""


class UnknownScheme(InvalidRequest):
    """Raised when a location or coordinator address has a scheme sluice does not know."""


class NoSuchBucket(InvalidRequest):
    """Raised when the bucket (or the local parent folder) of a location does not exist."""


class AccessDenied(InvalidRequest):
    """Raised when the object store or the coordinator refuses the credentials, or none were found."""


class TableNotFound(InvalidRequest):
    """Raised when nothing is stored at a location."""


class TableDropped(TableNotFound):
    """Raised when a table was dropped or forgotten since it was opened, or while it is being dropped."""


class NotATable(InvalidRequest):
    """Raised when a location has files, but no Delta table (or not one that sluice manages)."""


class TableExists(InvalidRequest):
    """Raised when a table is to be created where one exists."""


class SchemaMismatch(InvalidRequest):
    """Raised when data does not fit the table's schema; names the column."""


class NullNotAllowed(SchemaMismatch):
    """Raised when a row has null in a column that is NOT NULL; names the column."""


class ConstraintViolated(InvalidRequest):
    """Raised when a row breaks an invariant or a CHECK constraint, or one cannot be evaluated."""


class PredicateError(InvalidRequest):
    """Raised when a predicate does not parse, names an unknown column, or cannot be evaluated.

    `wrong` is True for what Spark refuses, too: a condition that is not BOOLEAN, a value that cannot be computed for a row.
    """


class UnsupportedFeature(InvalidRequest):
    """Raised when a table needs a table feature this sluice lacks; `features` names them, `access` is read or write."""


class VersionNotFound(InvalidRequest):
    """Raised when a version or timestamp is beyond the latest one, or was cleaned up."""


class HistoryGone(VersionNotFound):
    """Raised when who follows a table needs commits or files that were cleaned up; `after` is the last version before them."""


class Unavailable(SluiceError):
    """Raised when a service cannot be reached now; nothing is lost and the call may be repeated."""

    retryable = True


class StorageUnavailable(Unavailable):
    """Raised when the object store failed in spite of retries."""


class StorageFull(StorageUnavailable):
    """Raised when the disk or the quota of the object store is full."""


class Corrupt(SluiceError):
    """Raised when stored bytes contradict the protocol; never skipped, a person has to look."""


class LogGap(Corrupt):
    """Raised when a version between the first and the last of a log is missing."""


class CorruptLogFile(Corrupt):
    """Raised when a log file is truncated or does not parse; names the file and the line."""


class BadChecksum(Corrupt):
    """Raised when content does not match its recorded digest."""


class MissingObject(Corrupt):
    """Raised when a file that the log refers to is missing."""


class ForeignCommit(Corrupt):
    """Raised when a version in the log was not ratified by sluice's coordinator."""


class InvariantBroken(SluiceError):
    """Raised when an invariant of the protocol does not hold: a bug of sluice, please report it."""


class ObjectNotFound(SluiceError):
    """Raised by an object store when a key does not exist; callers convert it into another error."""


def one_line(error: Exception) -> str:
    """An error as the command line shows it."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def invariant(name: str, holds: bool, explain: str = "") -> None:
    """Raise InvariantBroken unless `holds`, also under `python -O`; `name` is the invariant's number in the protocol (I1 to I12)."""
    if not holds:
        raise InvariantBroken(f"invariant {name} does not hold: {explain}; this is a bug of sluice, please report it", invariant=name)
