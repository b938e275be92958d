"""DELETE, UPDATE and MERGE with Delta's arguments, of a table's part in a transaction, too; and what `DeltaTable` hands out: builders of a
merge, an OPTIMIZE and a table.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Generic, NoReturn, TypeAlias, TypeVar

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import DataType, StructField, StructType

from ..spark_integration.active_session import evolves_schemas, user_metadata_of
from ..spark_integration.errors import as_spark_users_know
from ..spark_integration.rows.analysis import Clause, MergeRequest
from ..spark_integration.rows.assignments import as_the_table_stores, defined_in
from ..spark_integration.rows.merge import merge_rows
from ..spark_integration.schemas import to_spark
from ..statements.definitions import Definition
from ..statements.maintenance import optimized
from ..statements.request import Answer, counted
from ..storage.arguments import checked
from ..storage.dataclass import dataclass
from ..storage.errors import InvalidRequest
from ..storage.schema.datatypes import GENERATED_KEY, IDENTITY_KEYS
from ..storage.schema.datatypes import StructType as TableSchema
from ..tables.joint_transaction import JointTransaction, Named
from ..tables.table import Table
from ..tables.write.merging import RowCounts, check_clauses
from ..tables.write.terms import ChangeArgs, WriteArgs

if TYPE_CHECKING:
    from typing_extensions import Unpack

Expression: TypeAlias = "str | Column"
Assignments: TypeAlias = "Mapping[str, str | Column]"


@checked
class DeltaMergeBuilder:
    """What a MERGE does with rows that match, and with those that do not; `DeltaTable.merge` makes one.

    There may be any number of clauses of each kind; only the last of a kind may have no condition. The first clause that applies
    to a row decides what becomes of it; a row to which none applies stays as it is, or is not inserted. Every method returns a
    new builder, so that one may be the beginning of several.
    """

    def __init__(self, request: MergeRequest, execute: Callable[[MergeRequest, int, WriteArgs], DataFrame]) -> None:
        self._request = request
        self._execute = execute

    def whenMatchedUpdate(self, condition: Expression | None = None, set: Assignments | None = None) -> DeltaMergeBuilder:
        """Give the columns in `set` new values, in rows that match and satisfy `condition`. Raises ValueError, TypeError."""
        return self._with(Clause("matched", "update", condition, assignments(set, "set in whenMatchedUpdate")))

    def whenMatchedUpdateAll(self, condition: Expression | None = None) -> DeltaMergeBuilder:
        """Give every column the value of the source's column of that name, in rows that match and satisfy `condition`."""
        return self._with(Clause("matched", "update_all", condition))

    def whenMatchedDelete(self, condition: Expression | None = None) -> DeltaMergeBuilder:
        """Delete rows that match and satisfy `condition`."""
        return self._with(Clause("matched", "delete", condition))

    def whenNotMatchedInsert(self, condition: Expression | None = None, values: Assignments | None = None) -> DeltaMergeBuilder:
        """Insert a row of these values for each row of the source that matches none and satisfies `condition`."""
        return self._with(Clause("not_matched", "insert", condition, assignments(values, "values in whenNotMatchedInsert")))

    def whenNotMatchedInsertAll(self, condition: Expression | None = None) -> DeltaMergeBuilder:
        """Insert each row of the source that matches none and satisfies `condition`, column by column."""
        return self._with(Clause("not_matched", "insert_all", condition))

    def whenNotMatchedBySourceUpdate(self, condition: Expression | None = None, set: Assignments | None = None) -> DeltaMergeBuilder:
        """Give columns new values in rows of the table that no row of the source matches; all may name the table's columns only."""
        return self._with(Clause("not_matched_by_source", "update", condition, assignments(set, "set in whenNotMatchedBySourceUpdate")))

    def whenNotMatchedBySourceDelete(self, condition: Expression | None = None) -> DeltaMergeBuilder:
        """Delete rows of the table that no row of the source matches."""
        return self._with(Clause("not_matched_by_source", "delete", condition))

    def withSchemaEvolution(self) -> DeltaMergeBuilder:
        """Add columns that the source has and the table lacks, in `updateAll` and `insertAll` and where an assignment names them."""
        return DeltaMergeBuilder(replace(self._request, schema_evolution=True), self._execute)

    @as_spark_users_know()
    def execute(self, *, attempts: int = 1, **terms: Unpack[WriteArgs]) -> DataFrame:
        """Merge, as one commit. Returns one row: num_affected_rows, num_updated_rows, num_deleted_rows, num_inserted_rows.

        `attempts` and the terms are those of `DeltaTable.delete`. Raises AnalysisException for
        clauses in the wrong order and for columns that do not resolve, ConcurrentModification if other commits stand against every attempt.
        """
        check_clauses(self._request.clauses)
        return self._execute(self._request, attempts, terms)

    def _with(self, *clauses: Clause) -> DeltaMergeBuilder:
        return DeltaMergeBuilder(replace(self._request, clauses=(*self._request.clauses, *clauses)), self._execute)


@checked
class RowChanges(ABC):
    """What changes rows by Spark's tasks. An `alias` is the table's name in expressions."""

    def __init__(self, spark: SparkSession, alias: str | None = None) -> None:
        self._spark = spark
        self._alias = alias
        self._frames: list[DataFrame] = []
        """Frames of the table, whose columns mean the table's in expressions."""

    @abstractmethod
    def _counts(self, request: MergeRequest, attempts: int, terms: WriteArgs) -> RowCounts | None:
        """Carry a change out. Returns how many rows it changed; None if it was done before."""

    @as_spark_users_know()
    def _changed(self, request: MergeRequest, attempts: int, terms: WriteArgs) -> DataFrame:
        """Carry a change out. Returns the counts, as Delta Lake does."""
        return frame(self._spark, counted(self._counts(request, attempts, terms), merges=request.operation == "MERGE"))

    def delete(self, condition: Expression | None = None, *, attempts: int = 1, **terms: Unpack[WriteArgs]) -> DataFrame:
        """Delete the rows that satisfy a condition, all without one. Returns one row: num_affected_rows.

        Raises TypeError; AnalysisException; ConcurrentModification if other commits stand against every attempt.
        """
        return self._changed(MergeRequest.delete(condition, alias=self._alias, frames=self._frames), attempts, terms)

    def update(
        self, condition: Expression | None = None, set: Assignments | None = None, *, attempts: int = 1, **terms: Unpack[WriteArgs]
    ) -> DataFrame:
        """Give the columns in `set` new values, in the rows that satisfy a condition. Returns one row: num_affected_rows.

        Values are Columns or SQL over the old row. Raises TypeError; ValueError without `set`; AnalysisException;
        ConcurrentModification if other commits stand against every attempt.
        """
        request = MergeRequest.update(assignments(set, "set"), condition, alias=self._alias, frames=self._frames)
        return self._changed(request, attempts, terms)

    def merge(self, source: DataFrame, condition: Expression) -> DeltaMergeBuilder:
        """Merge the rows of `source`, matched by `condition`: the builder takes the clauses, its `execute` runs them."""
        return DeltaMergeBuilder(MergeRequest(source, condition, target_alias=self._alias, frames=self._frames), self._changed)


class TablePart(RowChanges):
    """`t[table]` of `with sluice.transaction(spark, ...) as t`: operations that become one commit with the others of `t`.

    Each sees what the ones before it did. Metrics are those of `DeltaTable`'s methods. `t.part(table)` has those that need no Spark.
    """

    def __init__(self, spark: SparkSession, transaction: JointTransaction, table: Named, alias: str | None = None) -> None:
        super().__init__(spark, alias)
        self._transaction = transaction
        self._table = table

    def alias(self, aliasName: str) -> TablePart:
        """The same part, whose columns may be named after `aliasName`."""
        return TablePart(self._spark, self._transaction, self._table, aliasName)

    @as_spark_users_know()
    def append(self, rows: Any, *, merge_schema: bool = False) -> None:
        """Add rows: a DataFrame, whose values are cast as Spark casts them for its own tables, or Arrow data."""
        evolves = merge_schema or evolves_schemas(self._spark)
        with self._stored(rows, evolves=evolves) as fitting:
            self._transaction.part(self._table).append(fitting, merge_schema=evolves)

    @as_spark_users_know()
    def overwrite(self, rows: Any, where: str | None = None, *, dynamic: bool = False, merge_schema: bool = False) -> None:
        """Replace the whole table; with `where` the rows that satisfy it; with `dynamic` the partitions of the new rows."""
        evolves = merge_schema or evolves_schemas(self._spark)
        with self._stored(rows, evolves=evolves) as fitting:
            self._transaction.part(self._table).overwrite(fitting, where, dynamic=dynamic, merge_schema=evolves)

    def _stored(self, rows: Any, *, evolves: bool) -> AbstractContextManager[Any]:
        if not isinstance(rows, DataFrame):
            return nullcontext(rows)
        part = self._transaction.part(self._table)
        return as_the_table_stores(rows, part.struct, evolves=part.basis[0] if evolves else None)

    def _counts(self, request: MergeRequest, attempts: int, terms: WriteArgs) -> RowCounts | None:
        if attempts != 1 or any(value is not None for value in terms.values()):
            raise InvalidRequest(
                "attempts, isolation, key and the like belong to the whole transaction: give them to sluice.transaction, not to one of "
                "its operations"
            )
        return merge_rows(self._transaction.part(self._table), self._spark, request)


@checked
class DeltaOptimizeBuilder:
    """Which partitions to optimize, and how; `DeltaTable.optimize` makes one."""

    def __init__(self, spark: SparkSession, table: Table, terms: ChangeArgs) -> None:
        self._spark = spark
        self._table = table
        self._terms = terms
        self._where: list[str] = []

    def where(self, partitionFilter: str) -> DeltaOptimizeBuilder:
        """Only the partitions that satisfy this condition in SQL, which names partition columns only; of several, all must hold."""
        self._where.append(partitionFilter)
        return self

    def executeCompaction(self, *, mode: str = "minor", target_file_size: int | str | None = None) -> DataFrame:
        """Merge small files; with `mode="major"` also rewrite those with deleted rows. Returns one row: path and metrics."""
        return self._executed(mode, target_file_size, None)

    def executeZOrderBy(self, *cols: str | list[str] | tuple[str, ...], target_file_size: int | str | None = None) -> DataFrame:
        """Order the rows by up to 8 columns at once, given one by one or as a list. Returns one row: path and metrics."""
        return self._executed("major", target_file_size, names(cols, "a z-order"))

    @as_spark_users_know()
    def _executed(self, mode: str, target_file_size: int | str | None, z_order_by: tuple[str, ...] | None) -> DataFrame:
        terms = with_user_metadata(self._spark, self._terms)
        return frame(self._spark, optimized(self._table, self._where, mode, target_file_size, z_order_by, **terms))


_KEPT: Final = "comment"
_Made = TypeVar("_Made")


@dataclass(frozen=False)
class IdentityGenerator:
    """The numbers of an identity column: `start`, `start + step`, ..."""

    start: int = 1
    step: int = 1


@checked
class DeltaTableBuilder(Generic[_Made]):
    """Describes a table to create or replace; `DeltaTable.create` and its siblings make one. It needs a name or a location."""

    def __init__(self, spark: SparkSession, how: str, make: Callable[[Definition], _Made]) -> None:
        self._spark = spark
        self._make = make
        self._columns: list[StructField] = []
        self._definition = Definition(how, None, None, TableSchema(()), (), {}, None)
        """What is said so far; the columns become its schema at the end."""

    def tableName(self, identifier: str) -> DeltaTableBuilder[_Made]:
        """The table's name, `table` or `namespace.table`; or its path as delta.`/path`. Raises TypeError."""
        self._definition = replace(self._definition, name=identifier)
        return self

    def location(self, location: str) -> DeltaTableBuilder[_Made]:
        """The folder of the table, as for `DeltaTable.forPath`. Raises TypeError."""
        self._definition = replace(self._definition, location=location)
        return self

    def comment(self, comment: str) -> DeltaTableBuilder[_Made]:
        """A comment that describes the table. Raises TypeError."""
        self._definition = replace(self._definition, comment=comment)
        return self

    @as_spark_users_know()
    def addColumn(
        self,
        colName: str,
        dataType: str | DataType,
        nullable: bool = True,
        generatedAlwaysAs: str | IdentityGenerator | None = None,
        generatedByDefaultAs: IdentityGenerator | None = None,
        comment: str | None = None,
    ) -> DeltaTableBuilder[_Made]:
        """A column; `dataType` is Spark's, or its name in SQL. Raises TypeError, ValueError, and ParseException for such a name.

        `generatedAlwaysAs` is SQL over other columns, from which the writer computes this one, or the numbers that it gives to rows. With
        `generatedByDefaultAs` it numbers rows that do not give the column.
        """
        if generatedAlwaysAs is not None and generatedByDefaultAs is not None:
            both = f"generatedAlwaysAs={generatedAlwaysAs!r} and generatedByDefaultAs={generatedByDefaultAs!r}"
            raise ValueError(f"column {colName!r} has both {both}; give one of them")
        if not isinstance(generatedAlwaysAs, (str, IdentityGenerator, type(None))):
            required_type("generatedAlwaysAs must be str or IdentityGenerator", [generatedAlwaysAs])
        if not isinstance(generatedByDefaultAs, (IdentityGenerator, type(None))):
            required_type("generatedByDefaultAs must be IdentityGenerator", [generatedByDefaultAs])
        numbers = generatedAlwaysAs if generatedByDefaultAs is None else generatedByDefaultAs
        if isinstance(numbers, IdentityGenerator) and numbers.step == 0:
            raise ValueError(f"the step of the identity column {colName!r} is 0; give another number")
        kind = dataType if isinstance(dataType, DataType) else DataType.fromDDL(dataType)
        metadata: dict[str, Any] = {} if comment is None else {_KEPT: comment}
        if isinstance(numbers, IdentityGenerator):
            metadata |= zip(IDENTITY_KEYS, (numbers.start, numbers.step, generatedAlwaysAs is None), strict=True)
        if isinstance(generatedAlwaysAs, str):
            metadata[GENERATED_KEY] = generatedAlwaysAs
        self._columns.append(StructField(colName, kind, nullable, metadata))
        return self

    @as_spark_users_know()
    def addColumns(self, cols: StructType | list[StructField]) -> DeltaTableBuilder[_Made]:
        """The columns of a schema, such as `df.schema`. Raises TypeError."""
        fields: Sequence[object] = cols if isinstance(cols, list) else cols.fields if type(cols) is StructType else [None]
        for each in fields:
            if not isinstance(each, StructField):
                required_type("the schema must be a StructType or a list of StructField", [cols])
            self._columns.append(each)
        return self

    def partitionedBy(self, *cols: str | list[str] | tuple[str, ...]) -> DeltaTableBuilder[_Made]:
        """The columns by which the table is partitioned, one by one or as a list. Raises TypeError."""
        self._definition = replace(self._definition, partition_by=names(cols, "a partitioning"))
        return self

    def clusterBy(self, *cols: str | list[str] | tuple[str, ...]) -> DeltaTableBuilder[_Made]:
        """The columns by which the table is clustered, one by one or as a list. Raises TypeError."""
        self._definition = replace(self._definition, cluster_by=names(cols, "a clustering"))
        return self

    def property(self, key: str, value: str) -> DeltaTableBuilder[_Made]:
        """A property of the table (docs/configuration.md). Raises TypeError."""
        self._definition = replace(self._definition, properties={**self._definition.properties, key: value})
        return self

    @as_spark_users_know()
    def execute(self) -> _Made:
        """Create or replace the table. Raises AnalysisException if one exists, or does not exist, and for columns that do not fit."""
        if self._definition.name is None and self._definition.location is None:
            raise AnalysisException("the table has neither a name nor a location: call tableName(...), location(...), or both")
        return self._make(replace(self._definition, schema=defined_in(self._spark, StructType(self._columns))))


# -- answers, and terms of a commit ------------------------------------------------------------------------------------------


def frame(spark: SparkSession, answer: Answer) -> DataFrame:
    """The answer's rows."""
    return spark.createDataFrame(list(answer.rows), to_spark(answer.struct))


def with_user_metadata(spark: SparkSession, terms: Mapping[str, Any]) -> Any:
    """The terms, with the text for the history in the session's settings unless they have one."""
    return terms if terms.get("user_metadata") is not None else {**terms, "user_metadata": user_metadata_of(spark)}


# -- arguments: the same exception classes and key words as Delta's for the same mistakes -----------------------------------


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
    [row] = spark.range(1).select(F.unix_millis(F.lit(timestamp).try_cast("timestamp_ltz")).alias("ms")).collect()
    if row["ms"] is None:
        raise InvalidRequest(f"the timestamp is {timestamp!r}; write it as 2026-01-31 or 2026-01-31 13:00:00", timestamp=timestamp)
    return int(row["ms"])
