"""The source of a MERGE: kept, so that it is evaluated once, and what its join columns hold.

A source that is kept has numbered rows: the tasks that read the target report which of them matched, and the others are inserted
by a job that reads the source alone. So the target's rows are never shuffled if the source is small.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from ...storage.dataclass import dataclass
from ...storage.errors import PredicateError
from ...storage.pruning.predicate import Filter, Predicate
from ...storage.schema.schema import StructType
from .jvm import analysed, jvm_of, optimised

__all__ = ["Kept", "KeyValues", "keep", "key_values", "of_session"]

_log = logging.getLogger(__name__)

# A source that is certainly larger, and can be evaluated again, is not kept.
_KEPT_BYTES_MAX: Final = 1024 * 1024 * 1024
# Kept rows of this size at most are sent to every task.
_SENT_BYTES_MAX: Final = 64 * 1024 * 1024
_SENT_ROWS_MAX: Final = 2_000_000
# Up to this number, files are skipped by the values of a key; up to the second one, the footprint lists them.
_VALUES_MAX: Final = 4096
_REMEMBERED_MAX: Final = 64


@dataclass(frozen=True, slots=True)
class Kept:
    """A source whose rows have a number; `rows` is None if it is not kept. `small`: it can be sent to every task."""

    frame: DataFrame
    number: Column
    rows: int | None
    small: bool


@dataclass(frozen=True, slots=True)
class KeyValues:
    """What join columns of a source hold, as conditions on the target: for skipping files, and for the footprint (shorter).

    `nothing`: no row of the target can match.
    """

    skipping: Predicate | None = None
    remembered: Predicate | None = None
    nothing: bool = False


def of_session(session: SparkSession, frame: DataFrame) -> DataFrame:
    """The same frame in another session of the same JVM; its columns stay what they are."""
    return DataFrame(jvm_of(session).org.apache.spark.sql.classic.Dataset.ofRows(session._jsparkSession, analysed(frame)), session)


def keep(source: DataFrame, name: str) -> Kept:
    """Evaluate the source once and keep its rows, with their number in the column `name`, unless it is large and repeatable."""
    numbered = source.select("*", F.monotonically_increasing_id().alias(name))
    size = int(optimised(source).stats().sizeInBytes())
    repeatable = analysed(source).deterministic() and _reads_files_only(optimised(source))
    if repeatable and size > _KEPT_BYTES_MAX:
        return Kept(numbered, numbered[name], None, small=False)
    if not repeatable:
        _log.info("the source of the merge may not give the same rows twice: it is evaluated once, and its rows are kept")
    kept = numbered.localCheckpoint(eager=True)
    rows = kept.count()
    return Kept(kept, kept[name], rows, small=rows <= _SENT_ROWS_MAX and _size(kept) <= _SENT_BYTES_MAX)


def _reads_files_only(plan: Any) -> bool:
    """Whether a plan reads nothing but files and values that it contains."""
    leaves = plan.collectLeaves()
    return all(
        leaves.apply(number).nodeName().startswith(("LocalRelation", "Range", "OneRow", "Relation")) for number in range(leaves.size())
    )


def _size(kept: DataFrame) -> int:
    """The bytes of kept rows, in memory and on disk."""
    number = analysed(kept).rdd().id()
    context: Any = kept.sparkSession.sparkContext._jsc
    return sum(each.memSize() + each.diskSize() for each in context.sc().getRDDStorageInfo() if each.id() == number)


def key_values(kept: Kept, keys: Sequence[tuple[str, Column]], schema: StructType) -> KeyValues:
    """What the source holds in the expressions that have to equal columns of the target; not asked of a source that is not kept."""
    if kept.rows is None or not keys:
        return KeyValues()
    if kept.rows == 0:
        return KeyValues(nothing=True)
    named = [value.alias(f"k{number}") for number, (_, value) in enumerate(keys)]
    if kept.rows <= _VALUES_MAX:
        columns = kept.frame.select(*named).toArrow()
        found = [(name, pc.unique(pc.drop_null(columns[f"k{number}"]))) for number, (name, _) in enumerate(keys)]
    else:
        bounds = [edge(value).alias(f"{word}{n}") for n, (_, value) in enumerate(keys) for word, edge in (("l", F.min), ("h", F.max))]
        row = kept.frame.agg(*bounds).toArrow()
        found = [(name, pc.drop_null(pa.concat_arrays([*row[f"l{n}"].chunks, *row[f"h{n}"].chunks]))) for n, (name, _) in enumerate(keys)]
    if any(not len(values) for _, values in found):
        return KeyValues(nothing=True)
    listed = kept.rows <= _VALUES_MAX
    skipping = [_among(name, values, schema, _VALUES_MAX if listed else 0) for name, values in found]
    remembered = [_among(name, values, schema, _REMEMBERED_MAX if listed else 0) for name, values in found]
    return KeyValues(_all(skipping), _all(remembered))


def _all(parts: Sequence[Predicate | None]) -> Predicate | None:
    both: Predicate | None = None
    for part in parts:
        if part is not None:
            both = part if both is None else both.and_(part)
    return both


def _among(name: str, values: Any, schema: StructType, listed_max: int) -> Predicate | None:
    """A condition that holds for each of these values of a column; None if there is none."""
    if pa.types.is_floating(values.type) or pa.types.is_binary(values.type) or pa.types.is_nested(values.type):
        return None  # bounds of floats omit NaN
    if len(values) <= listed_max:
        filters: list[Filter] = [("In", (name,), values.to_pylist())]
    else:
        bounds = pc.min_max(values).as_py()
        filters = [("GreaterThanOrEqual", (name,), bounds["min"]), ("LessThanOrEqual", (name,), bounds["max"])]
    try:
        return Predicate.from_filters(filters, schema)
    except PredicateError as unusable:
        _log.debug("the values of %s do not help to skip files: %s", name, unusable)
        return None
