"""The source of a MERGE: cached, so that it is evaluated once, and the values of its join columns.

A cached source has numbered rows: the tasks that read the target report which of them matched, and the others are inserted
by a job that reads the source alone. So the target's rows are never shuffled if the source is small.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any, Final, TypeAlias, cast

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import DateType, IntegralType, TimestampNTZType, TimestampType

from ...storage.data.vectors import Rows, positions_of
from ...storage.dataclass import dataclass
from ...storage.errors import PredicateError
from ...storage.expressions.nodes import Column as Stored
from ...storage.pruning.files import RECORDS, Files, ranges_of
from ...storage.pruning.predicate import Filter, Predicate
from ...storage.schema.schema import StructType, to_arrow
from ..active_session import planned_once
from ..jvm import analysed, called, class_in_jvm, items, named, of_plan
from ..scan.file_rows import is_of_files

_log = logging.getLogger(__name__)

# A source that is certainly larger, and can be evaluated again, is not cached.
_KEPT_BYTES_MAX: Final = 1024 * 1024 * 1024
# Cached rows of this size at most are sent to every task.
_SENT_BYTES_MAX: Final = 64 * 1024 * 1024
_SENT_ROWS_MAX: Final = 2_000_000
# Smaller sources become part of the plans that use them.
_LOCAL_BYTES_MAX: Final = 16 * 1024 * 1024
_LOCAL_ROWS_MAX: Final = 100_000
# What one task reads of a source that can be sent to every task: a task costs more than the rows in it.
_TASK_BYTES: Final = 16 * 1024 * 1024
# Numbers of rows have the number of their task in the bits above (see `monotonically_increasing_id`).
_TASK_SHIFT: Final = 33
# Up to this number, files are skipped by the values of a key; up to the second one, the footprint lists them.
_VALUES_MAX: Final = 4096
_REMEMBERED_MAX: Final = 64
# Below this number, reading the keys is cheaper than compiling a filter that skips them.
_EXCLUDED_MIN: Final = 10_000_000
_SEQUENCE: Final = "scala.collection.immutable.ArraySeq"


Keys: TypeAlias = "Sequence[tuple[str, Column]]"
"""Columns of the target, and the expressions over the source that have to equal them."""
KeyBounds: TypeAlias = "Sequence[tuple[str, pa.Array, pa.Array]]"
"""Columns of the target, and the lowest and highest values of parts of the source, one of which holds what they have to equal.

Of a source whose values are listed each is a part, and both arrays are the same.
"""


@dataclass(frozen=True, slots=True)
class FileStatistics:
    """What the statistics of files say of some columns."""

    rows: int | None
    """The number of rows; None if a file does not tell it."""
    extents: Mapping[str, tuple[Any, Any]]
    """The lowest and the highest value that a column may have, if all files tell it."""

    def outside(self, name: str, low: Any, high: Any) -> tuple[float, float]:
        """About how many rows are less than `low`, and how many are greater than `high`, as if values were spread evenly."""
        rows, extent = math.inf if self.rows is None else self.rows, self.extents.get(name)
        if extent is None:
            return rows, rows
        least, most = extent
        if low <= least and high >= most:
            return 0, 0
        if isinstance(low, str) or least == most:
            return rows * (low > least), rows * (high < most)
        return rows * max(0.0, (low - least) / (most - least)), rows * max(0.0, (most - high) / (most - least))


@dataclass(frozen=True, slots=True)
class CachedSource:
    """A MERGE source whose rows have a number."""

    frame: DataFrame
    """The rows, with their number in the last column."""
    number: Column
    rows: int | None = None
    """How many rows there are; None if they are not cached."""
    bounds: KeyBounds = ()
    """The values of its keys, or their bounds."""
    listed: bool = False
    """Whether all values are in `bounds`."""
    small: bool = False
    """Whether it can be sent to every task."""
    tasks: int = 1
    local: bool = False
    """Whether its rows are part of the plan, and in this process."""

    def without(self, numbers: Rows) -> DataFrame:
        """The rows with other numbers."""
        if not numbers:
            return self.frame
        session = self.frame.sparkSession
        if not self.local:
            name = self.frame.columns[-1]
            gone = session.createDataFrame(pa.table({name: positions_of(numbers)}))
            return self.frame.join(F.broadcast(gone), self.number == gone[name], "left_anti")
        # Spark's optimiser picks the rows of a local source, without a job
        jvm: Any = session._jvm
        context: Any = session.sparkContext
        plan = analysed(self.frame)
        values = context._gateway.new_array(jvm.long, len(numbers))
        packed = positions_of(numbers).cast(pa.int64()).buffers()[1].to_pybytes()
        jvm.java.nio.ByteBuffer.wrap(packed).order(jvm.java.nio.ByteOrder.LITTLE_ENDIAN).asLongBuffer().get(values)
        among = class_in_jvm(session, "org.apache.spark.sql.catalyst.expressions.InSet")(
            plan.output().last(), class_in_jvm(session, _SEQUENCE).unsafeWrapArray(values).toSet()
        )
        others = class_in_jvm(session, "org.apache.spark.sql.catalyst.expressions.Not")(among)
        return of_plan(session, class_in_jvm(session, "org.apache.spark.sql.catalyst.plans.logical.Filter")(others, plan))

    def in_few_tasks(self, rows: DataFrame) -> DataFrame:
        """Rows of this source in `tasks`: those that evaluated it may be many, with few rows each."""
        return rows.coalesce(self.tasks) if self.small and not self.local else rows

    def forget(self) -> None:
        """Free the rows in Spark's tasks: they would stay there until Java collects its garbage."""
        if self.rows is not None and not self.local:
            analysed(self.frame).rdd().unpersist(False)


def cached(source: DataFrame, name: str, keys: Keys) -> CachedSource:
    """The source evaluated once, its rows cached with their number in the column `name`, unless it is large and repeatable. The rows of a
    small source become part of the plans that use it; others stay where Spark's tasks made them.
    """
    numbered = source.select("*", named(F.monotonically_increasing_id(), name))
    jdf: Any = numbered._jdf
    plan = jdf.queryExecution().optimizedPlan()
    size = int(plan.stats().sizeInBytes())
    most = plan.maxRows()
    if most.isDefined() and int(most.get()) <= _LOCAL_ROWS_MAX and size <= _LOCAL_BYTES_MAX:
        return _local(numbered, name, keys)
    repeatable = analysed(source).deterministic() and all(
        is_of_files(leaf) or leaf.nodeName().startswith(("LocalRelation", "Range", "OneRow")) for leaf in items(plan.collectLeaves())
    )
    if repeatable and size > _KEPT_BYTES_MAX:
        return CachedSource(numbered, numbered[name])
    if not repeatable:
        _log.info("the source of the merge may not give the same rows twice: it is evaluated once, and its rows are cached")
    kept = numbered.localCheckpoint(eager=False)
    rows, bounds = _bounds(kept, kept[name], keys)  # evaluates the source, which keeps its rows
    rdd = analysed(kept).rdd()
    context: Any = kept.sparkSession.sparkContext._jsc
    size = sum(each.memSize() + each.diskSize() for each in context.sc().getRDDStorageInfo() if each.id() == rdd.id())
    if rows <= _LOCAL_ROWS_MAX and size <= _LOCAL_BYTES_MAX:
        local = _local(kept, name, keys)
        rdd.unpersist(False)
        return local
    listed = rows <= _VALUES_MAX
    small = rows <= _SENT_ROWS_MAX and size <= _SENT_BYTES_MAX
    return CachedSource(kept, kept[name], rows, _values(kept, keys) if listed else bounds, listed, small, 1 + size // _TASK_BYTES)


def _local(frame: DataFrame, name: str, keys: Keys) -> CachedSource:
    """The frame with its rows in its plan; its columns stay what they are. So jobs over it have few tasks, or are none at all."""
    session, jdf = frame.sparkSession, cast("Any", frame._jdf)
    rows = class_in_jvm(session, _SEQUENCE).unsafeWrapArray(jdf.queryExecution().executedPlan().executeCollect())
    relation = class_in_jvm(session, "org.apache.spark.sql.catalyst.plans.logical.LocalRelation")(
        analysed(frame).output(), rows, False, class_in_jvm(session, "scala.Option").empty()
    )
    local = of_plan(session, relation)
    return CachedSource(local, local[name], int(rows.size()), _values(local, keys), listed=True, small=True, local=True)


def _values(kept: DataFrame, keys: Keys) -> KeyBounds:
    """The distinct values of the keys, without null."""
    if not keys:
        return ()
    columns = kept.select(*[named(value, f"k{number}") for number, (_, value) in enumerate(keys)]).toArrow()
    values = [(name, pc.unique(pc.drop_null(columns[f"k{number}"]))) for number, (name, _) in enumerate(keys)]
    return [(name, each, each) for name, each in values]


def _bounds(kept: DataFrame, number: Column, keys: Keys) -> tuple[int, KeyBounds]:
    """The number of rows, and the keys' lowest and highest values, without null: in each task, where it helps to tell ranges apart."""
    bounds = [named(edge(value), f"{word}{n}") for n, (_, value) in enumerate(keys) for word, edge in (("l", F.min), ("h", F.max))]
    fields = kept.select(*[value for _, value in keys]).schema.fields
    # where it cannot change a group's values in place, as those of texts, Spark would sort all rows
    apart = all(isinstance(field.dataType, (IntegralType, DateType, TimestampType, TimestampNTZType)) for field in fields)
    tasks = [F.shiftright(number, _TASK_SHIFT)] if apart else []
    with planned_once(kept.sparkSession, tasks=1):
        parts = kept.groupBy(*tasks).agg(named(F.count(F.lit(1)), "rows"), *bounds).toArrow()
    keyed = [(name, *(pc.drop_null(parts[f"{word}{n}"].combine_chunks()) for word in "lh")) for n, (name, _) in enumerate(keys)]
    return pc.sum(parts["rows"]).as_py() or 0, keyed


def key_values(source: CachedSource, schema: StructType) -> tuple[Predicate | None, Predicate | None] | None:
    """What a source holds in the expressions that have to equal columns of the target, as conditions on these: one for skipping files, and
    a shorter one for the footprint. None if no row of the target can match; a source that is not cached gives no conditions.
    """
    if source.rows == 0 or any(not len(lows) for _, lows, _ in source.bounds):
        return None
    return _holding(source, schema, _VALUES_MAX), _holding(source, schema, _REMEMBERED_MAX)


def statistics_of(files: pa.Table, source: CachedSource, schema: StructType) -> FileStatistics:
    """What the statistics of files say of the columns that the keys of a source have to equal."""
    kinds, read = to_arrow(schema), Files.of_table(files)
    extents: dict[str, tuple[Any, Any]] = {}
    for name, lows, _ in source.bounds:
        kind = kinds.field(name).type
        if _plain_kind(kind) and _plain_kind(kind) == _plain_kind(lows.type):
            extent = read.extent(Stored((name,), kind))
            extents |= {} if extent is None else {name: extent}
    rows = read.columns([RECORDS], {})(RECORDS)
    return FileStatistics(None if rows.null_count else pc.sum(rows).as_py(), extents)


def key_range_filter(source: CachedSource, statistics: FileStatistics, schema: StructType) -> str | None:
    """A condition in SQL that every row which can match satisfies, for Spark's scan: bounds of keys of which Parquet has statistics. Bounds
    that exclude few rows are left out: Spark compiles the scan and the join anew for other numbers.
    """
    bounds: list[Filter] = []
    for name, lows, highs in source.bounds:
        if len(lows) and _plain_kind(lows.type):
            low, high = pc.min(lows).as_py(), pc.max(highs).as_py()
            below, above = statistics.outside(name, low, high)
            bounds += [("GreaterThanOrEqual", (name,), low)] if below >= _EXCLUDED_MIN else []
            bounds += [("LessThanOrEqual", (name,), high)] if above >= _EXCLUDED_MIN else []
    within = _any_of([bounds], schema) if bounds else None
    return None if within is None else within.to_sql()


def outside_all_files(source: CachedSource, keys: Keys, statistics: FileStatistics) -> Column | None:
    """A condition that only rows of a cached source satisfy which no row of the files can match: a key of theirs is less, or greater, than
    all that the files have in its column. None if there is no such row, as far as statistics tell.
    """
    for (name, value), (_, lows, highs) in zip(keys, source.bounds, strict=True):
        extent = statistics.extents.get(name)
        if _plain_kind(lows.type) not in ("integer", "date"):
            continue
        if extent is not None and len(lows) and (pc.min(lows).as_py() < extent[0] or pc.max(highs).as_py() > extent[1]):
            low, high = map(F.lit, extent)
            return called(called(value, "lt", low), "or", called(value, "gt", high))
    return None


def _plain_kind(kind: pa.DataType) -> str:
    """The kind of types whose literals mean the same in every session, and of which Parquet has statistics; "" for others."""
    if pa.types.is_integer(kind):
        return "integer"
    return "string" if pa.types.is_string(kind) else "date" if pa.types.is_date(kind) else ""


def _holding(source: CachedSource, schema: StructType, listed_max: int) -> Predicate | None:
    """A condition that holds for what columns have to equal; None if there is none."""
    conditions: list[Predicate | None] = []
    for name, lows, highs in source.bounds:
        if pa.types.is_floating(lows.type) or pa.types.is_binary(lows.type) or pa.types.is_nested(lows.type):
            continue  # bounds of floats omit NaN
        cases: list[list[Filter]]
        if source.listed and len(lows) <= listed_max:
            cases = [[("In", (name,), lows.to_pylist())]]
        else:
            cases = [[("GreaterThanOrEqual", (name,), low), ("LessThanOrEqual", (name,), high)] for low, high in ranges_of(lows, highs)]
        conditions.append(_any_of(cases, schema))
    return Predicate.all_of(conditions)


def _any_of(cases: Sequence[list[Filter]], schema: StructType) -> Predicate | None:
    try:
        return reduce(Predicate.or_, (Predicate.from_filters(case, schema) for case in cases))
    except PredicateError as unusable:
        _log.debug("the values of the keys do not help to read less: %s", unusable)
        return None
