"""Sluice's errors behind Spark's: Spark passes on what a Python process raised as text only."""

from __future__ import annotations

import re
from typing import Final

from ..coordinator import errors as committing
from ..storage import errors as storing
from ..storage.errors import SluiceError

__all__ = ["in_options", "original"]

# What Python calls by a parameter and Spark by an option.
_OPTIONS: Final = {"merge_schema=True": "the option mergeSchema", "merge_schema": "mergeSchema"}
# The last line of a traceback, and the lines that a long message goes on with, up to what Spark adds.
_RAISED: Final = re.compile(r"^sluice\.(?:storage|coordinator)\.errors\.(\w+): (.*(?:\n(?! SQLSTATE|\tat |Traceback|$).*)*)", re.MULTILINE)


def original(error: BaseException) -> SluiceError | None:
    """The error of sluice that a Spark job failed with, by class and message; None when the job failed of something else.

    `error` is what PySpark raised. Details (`error.version` and the like) do not travel through Spark; `retryable` does::

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
    """The error with the names of options in its message where the Python API has parameters."""
    message = error.message
    for parameter, option in _OPTIONS.items():
        message = message.replace(parameter, option)
    return type(error)(message, **error.details)
