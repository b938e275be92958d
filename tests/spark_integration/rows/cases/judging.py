"""Compares what a way of carrying a case out did with what the case says."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

import pytest
from pyspark.errors import PySparkException

import sluice

from . import Case, columns_of
from .tables import left_by

__all__ = ["judge"]

_UNKNOWN: Final = r"cannot be resolved|not in the table|is unknown|there is no column|not found|no column|no field"
_TWICE: Final = r"twice|contradicts"
_AGGREGATE: Final = r"aggregate|GROUP.BY|INVALID_WHERE_CONDITION"
MESSAGES: Final[Mapping[str, str]] = {
    "AMBIGUOUS_REFERENCE": r"(?i)ambiguous",
    "ARITHMETIC_OVERFLOW": r"overflow",
    "CAST_INVALID_INPUT": r"CAST_INVALID_INPUT. The value '|a value of .* does not fit",
    "CAST_OVERFLOW": r"CAST_OVERFLOW|does not fit|out of range",
    "DATATYPE_MISMATCH": r"cannot be cast|CAST from|CAST them|explicit cast|not a boolean|must be BOOLEAN",
    "DELTA_AGGREGATION": _AGGREGATE,
    "DELTA_CAST_OVERFLOW": r"CAST_OVERFLOW|does not fit|out of range",
    "DELTA_CONFLICT_SET_COLUMN": _TWICE,
    "DELTA_DUPLICATE_COLUMNS": _TWICE,
    "DELTA_FAILED_TO_MERGE_FIELDS": r"cannot be cast",
    "DELTA_MERGE_UNRESOLVED": _UNKNOWN,
    "DELTA_MULTIPLE_SOURCE_ROW": r"several rows of the source change the same row",
    "DELTA_MISSING_SET_COLUMN": r"no column",
    "DELTA_NON_DETERMINISTIC": r"not deterministic",
    "DELTA_NOT_NULL": r"NOT NULL",
    "DELTA_UNSUPPORTED_NESTED_FIELD_IN_UPDATE": r"not in the table",
    "DELTA_UPDATE_SCHEMA_MISMATCH": r"has no field|which the table (lacks|has)|structs are replaced as a whole",
    "DIVIDE_BY_ZERO": r"zero|CAST_OVERFLOW",  # Spark's check for numbers that do not fit hides what its own division says
    "FIELD_NOT_FOUND": _UNKNOWN,
    "INVALID_NON_DETERMINISTIC": r"not deterministic",
    "MERGE_WITHOUT_WHEN": r"no clause",
    "NON_LAST": r"has no condition",
    "PARSE_SYNTAX_ERROR": r"expected|may be",
    "The number of inserted values": r"values for",
    "SPARK": r"^UnsupportedFeature: .*Spark",
    "UNRESOLVED": _UNKNOWN,
    "UNSUPPORTED_EXPR": _AGGREGATE,
}
"""What sluice, Spark or DuckDB say, by the beginning of a condition of Delta Lake."""


def judge(case: Case, way: str, table: sluice.Table, carry_out: Callable[[], object]) -> None:
    """Fail unless `carry_out` leaves the rows that the case says, or is refused as it says and leaves the table as it was."""
    told = {"gives": case.gives, "fails": case.fails, **case.ours}
    if way == "duckdb" and case.needs_spark:
        told = {"gives": None, "fails": "SPARK"}
    if told["fails"] is None:
        carry_out()
        columns, rows = left_by(table)
        assert (columns, rows) == (list(columns_of(case.made).names), sorted(told["gives"], key=repr))
        return
    before = table.version, left_by(table)
    with pytest.raises((sluice.errors.SluiceError, PySparkException)) as caught:
        carry_out()
    assert (table.refresh().version, left_by(table)) == before
    message = f"{type(caught.value).__name__}: {caught.value}"
    assert re.search(_expected(told["fails"]), message, re.DOTALL), message


def _expected(condition: str) -> str:
    return next(pattern for word, pattern in MESSAGES.items() if condition.startswith(word))
