"""Recovers sluice's errors from Spark's, which pass on an exception of a Python process only as text."""

from __future__ import annotations

import re
from typing import Final

from ..coordinator import errors as committing
from ..storage import errors as storing
from ..storage.errors import SluiceError

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
        return None
    name, message = found[-1]
    cls = getattr(storing, name, None) or getattr(committing, name, None)
    return cls(message) if isinstance(cls, type) and issubclass(cls, SluiceError) else None


def in_options(error: SluiceError) -> SluiceError:
    """The error with options in its message instead of the Python API's parameters."""
    message = error.message
    for parameter, option in _OPTIONS.items():
        message = message.replace(parameter, option)
    return type(error)(message, **error.details)
