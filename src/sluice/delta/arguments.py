"""Delta's checks of arguments: the same exception classes and key words for the same mistakes, with the value, the rule and the remedy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, TypeAlias

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from ..storage.errors import InvalidRequest

Expression: TypeAlias = "str | Column"
Assignments: TypeAlias = "Mapping[str, str | Column]"


def expression(value: Expression | None, argument: str = "condition") -> Expression | None:
    """A condition: a Column or SQL text. Raises TypeError."""
    if value is None or isinstance(value, (Column, str)):
        return value
    raise TypeError(f"{argument} must be a Spark SQL Column or a string, an expression in SQL; it is {value!r} of {type(value)}")


def assignments(value: Assignments | None, argument: str) -> dict[str, Expression]:
    """Columns and their new values: a dict of texts to Columns or SQL texts. Raises ValueError for None, TypeError for others."""
    if value is None:
        raise ValueError(f"{argument} cannot be None; give a dict of column names and expressions")
    if type(value) is not dict:
        raise TypeError(f"{argument} must be a dict of column names and expressions; it is of {type(value)}")
    for name, each in value.items():
        if type(name) is not str:
            raise TypeError(f"Keys of dict in {argument} must contain only names of columns, as texts; there is {name!r} of {type(name)}")
        if not isinstance(each, (Column, str)):
            raise TypeError(
                f"Values of dict in {argument} must contain only Columns, or texts in SQL; for {name!r} there is {each!r} of {type(each)}"
            )
    return dict(value)


def required_type(what: str, values: Sequence[Any]) -> NoReturn:
    """Raise TypeError for arguments of a builder."""
    found = ", ".join(f"{value!r} of {type(value)}" for value in values)
    raise TypeError(f"{what}; found {found}")


def names(given: Sequence[Any], what: str) -> tuple[str, ...]:
    """Names of columns, given one by one or as one list or tuple. Raises TypeError."""
    listed: Sequence[Any] = given[0] if len(given) == 1 and isinstance(given[0], (list, tuple)) else given
    for each in listed:
        if type(each) is not str:
            required_type(f"{what} column must be str", [each])
    return tuple(listed)


def milliseconds(spark: SparkSession, timestamp: str) -> int:
    """Milliseconds since the epoch, from a text that Spark casts to a timestamp, in the session's time zone. Raises InvalidRequest."""
    cast = F.lit(timestamp).try_cast("timestamp_ltz")
    [row] = spark.range(1).select(F.unix_millis(cast).alias("ms")).collect()
    if row["ms"] is None:
        raise InvalidRequest(f"the timestamp is {timestamp!r}; write it as 2026-01-31 or 2026-01-31 13:00:00", timestamp=timestamp)
    return int(row["ms"])
