"""Recovers sluice's errors from Spark's, which pass on an exception of a Python process only as text; raises them as Spark users know them.

Each is then also an AnalysisException, or another of PySpark's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, cast

from pyspark.errors import AnalysisException, PySparkException, SparkRuntimeException, StreamingQueryException

from ..coordinator import errors as committing
from ..coordinator.errors import NamespaceExists, NamespaceNotFound
from ..storage import errors as storing
from ..storage.errors import ConstraintViolated, InvalidRequest, MissingObject, NullNotAllowed, SluiceError, TableExists, TableNotFound

# Parameters of the Python API and the corresponding Spark options.
_OPTIONS: Final = {
    "merge_schema=True": "the option mergeSchema",
    "merge_schema": "mergeSchema",
    "overwrite_schema=True": "the option overwriteSchema",
    "overwrite_schema": "overwriteSchema",
    "leave where and dynamic out": "leave replaceWhere and partitionOverwriteMode out",
    "partition_by=[...] ([] for none)": "partitionBy(...), without a column for none",
    "cluster_by=[...] ([] for none)": "clusterBy(...)",
}
# The last line of a traceback and the following lines of a long message, up to Spark's additions.
_RAISED: Final = re.compile(r"^sluice\.(?:storage|coordinator)\.errors\.(\w+): (.*(?:\n(?! SQLSTATE|\tat |Traceback|$).*)*)", re.MULTILINE)

# Spark's own scan.
_GONE: Final = re.compile(r"\[FAILED_READ_FILE\.FILE_NOT_EXIST\] Encountered error while reading file (\S+?)\.\s")


def original(error: BaseException) -> SluiceError | None:
    """The sluice error that failed a Spark job, by class and message; None if the job failed for another reason.

    `error` is what PySpark raised. Details (`error.version` and the like) are lost in Spark; `retryable` is not::

        try:
            df.write.format("sluice").mode("append").save(location)
        except PySparkException as failed:
            raise sluice.spark_integration.original(failed) or failed
    """
    if isinstance(error, SluiceError):
        return error
    found = _RAISED.findall(str(error))
    if not found:
        return missing_file(str(error))
    name, message = found[-1]
    cls = getattr(storing, name, None) or getattr(committing, name, None)
    return cls(message) if isinstance(cls, type) and issubclass(cls, SluiceError) else None


def missing_file(text: str) -> MissingObject | None:
    """The error that Spark's message means if a data file is gone."""
    gone = _GONE.search(text)
    if gone is None:
        return None
    return MissingObject(f"the data file {gone[1]} is gone; restore it, or read a version that does not need it", path=gone[1])


def in_options(error: SluiceError) -> SluiceError:
    """The error with options in its message instead of the Python API's parameters."""
    message = error.message
    for parameter, option in _OPTIONS.items():
        message = message.replace(parameter, option)
    return type(error)(message, **error.details)


# The first that fits; the others are PySparkExceptions.
_KINDS: Final[tuple[tuple[type[SluiceError], type[PySparkException]], ...]] = (
    (ConstraintViolated, SparkRuntimeException),
    (NullNotAllowed, SparkRuntimeException),
    (InvalidRequest, AnalysisException),
    (SluiceError, PySparkException),
)
# Spark's error conditions for what has a name, and for what has a location; an error may tell another in its detail `condition`.
_CONDITIONS: Final[tuple[tuple[type[SluiceError], str, str], ...]] = (
    (TableExists, "TABLE_OR_VIEW_ALREADY_EXISTS", "PATH_ALREADY_EXISTS"),
    (TableNotFound, "TABLE_OR_VIEW_NOT_FOUND", "PATH_NOT_FOUND"),
    (NullNotAllowed, "NOT_NULL_ASSERT_VIOLATION", "NOT_NULL_ASSERT_VIOLATION"),
    (NamespaceExists, "SCHEMA_ALREADY_EXISTS", "SCHEMA_ALREADY_EXISTS"),
    (NamespaceNotFound, "SCHEMA_NOT_FOUND", "SCHEMA_NOT_FOUND"),
)


@contextmanager
def as_spark_users_know(invalid: type[PySparkException] = AnalysisException) -> Iterator[None]:
    """Raise a sluice error of the block, also one that failed a Spark job, as a class that is PySpark's, too.

    `invalid` is what an InvalidRequest becomes, apart from those about a row: IllegalArgumentException for a value that Spark calls
    illegal. An error keeps its class, message, details and cause: `except sluice.errors.PredicateError` catches it as before.
    """
    try:
        yield
    except (SluiceError, PySparkException) as error:
        found = original(error)
        if found is None or isinstance(found, PySparkException):
            raise
        known = known_to_spark(found, invalid).with_traceback(error.__traceback__)
        raise known from (error.__cause__ if found is error else error)


def known_to_spark(error: SluiceError, invalid: type[PySparkException] = AnalysisException) -> SluiceError:
    """The same error, of a class that derives from its own and from one of PySpark's."""
    kind = next(kind for ours, kind in _KINDS if isinstance(error, ours))
    return _both(type(error), invalid if kind is AnalysisException else kind)(error.message, **error.details)


def failed_query(error: SluiceError) -> StreamingQueryException:
    """The error that ended a streaming query, of a class that derives from its own and from StreamingQueryException."""
    ours = next(
        (each for each in type(error).__mro__ if issubclass(each, SluiceError) and not issubclass(each, PySparkException)), SluiceError
    )
    return cast("StreamingQueryException", _both(ours, StreamingQueryException)(error.message, **error.details))


class _Known:
    """What both parents have, from sluice's; it is pickled by its parents, since its class is made here."""

    message: str
    details: dict[str, Any]

    def __str__(self) -> str:
        return self.message

    def getMessage(self) -> str:  # noqa: N802 - PySpark's name
        """The message."""
        return self.message

    def getCondition(self) -> str | None:  # noqa: N802 - PySpark's name
        """Spark's name for such an error, if it has one."""
        has_name = "name" in self.details
        usual = next((named if has_name else placed for ours, named, placed in _CONDITIONS if isinstance(self, ours)), None)
        return self.details.get("condition", usual)

    def __reduce__(self) -> tuple[Any, ...]:
        _, ours, kind = type(self).__bases__
        return _again, (ours, kind, self.message, self.details)


_made: Final[dict[tuple[type, type], type[SluiceError]]] = {}


def _both(ours: type[SluiceError], kind: type[PySparkException]) -> type[SluiceError]:
    if (ours, kind) not in _made:
        _made[ours, kind] = type(ours.__name__, (_Known, ours, kind), {"__doc__": ours.__doc__, "__module__": ours.__module__})
    return _made[ours, kind]


def _again(ours: type[SluiceError], kind: type[PySparkException], message: str, details: dict[str, Any]) -> SluiceError:
    return _both(ours, kind)(message, **details)
