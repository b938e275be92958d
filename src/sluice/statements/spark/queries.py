"""A request to carry out a statement in a Spark session, and its queries. Values of parameters are literals that Spark makes.

Every table of sluice in a query is a temporary view, and all are read as of one moment. A name may also be Spark's. The shell gets the
rows of a DataFrame as Arrow data.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import datetime, timezone
from typing import Any, Final

import pyarrow as pa
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructType, VariantType, YearMonthIntervalType

from ...spark_integration.active_session import (
    default_storage_options,
    is_classic,
    sparks_catalog,
    use_session,
    user_metadata_of,
    when_stopped,
)
from ...spark_integration.jvm import analysed, class_in_jvm, items
from ...spark_integration.rows.assignments import check_by_spark
from ...spark_integration.rows.conditions import predicate_text
from ...spark_integration.rows.merge import rows_so_far
from ...spark_integration.scan.file_index import files_read
from ...spark_integration.scan.read import read_snapshot
from ...spark_integration.session.names import default_format, has_delta_lake, is_sluice
from ...storage.caches import ForkSafeLock
from ...storage.dataclass import dataclass
from ...storage.errors import InvalidRequest
from ...storage.schema.datatypes import StructType as SluiceStruct
from ...tables.read.table_snapshot import TableSnapshot
from ...tables.transaction import Transaction
from ...tables.write.terms import ChangeArgs
from ..parse.cursor import Name, Span
from ..parse.reading import Other, parameters_in
from ..parse.relations import Relation
from ..places import Bound, ChangeRange, Source, edits_of, known_place, latest, not_found, relations_of_sluice, similar_names
from ..request import Edit, Locks, Place, Request


@dataclass(frozen=True, slots=True)
class SparkRequest(Request):
    """A statement, and the session that runs it."""

    spark: SparkSession
    text: str
    args: Mapping[str, Any] | Sequence[Any] | None
    coordinator: str | None = None
    storage_options: Mapping[str, str] | None = None
    if_version: int | None = None

    @property
    def options(self) -> dict[str, str]:
        """Of the object store."""
        return default_storage_options() if self.storage_options is None else dict(self.storage_options)

    @property
    def terms(self) -> ChangeArgs:
        """The terms of a statement's commit. The session's configuration gives the text for the history."""
        return {"if_version": self.if_version, "user_metadata": user_metadata_of(self.spark)}

    @property
    def has_delta_lake(self) -> bool:
        """Whether the session has Delta Lake's extension."""
        return has_delta_lake(self.spark)

    def setting(self, name: str, default: str) -> str:
        """A setting of the session, in lower case."""
        return str(self.spark.conf.get(name, default)).lower()

    @property
    def locks(self) -> Locks:
        """The leases of the session."""
        with _guard:
            return _of_sessions.setdefault(self.spark, Locks())

    def under_locks(self) -> AbstractContextManager[None]:
        """What this thread commits in the block depends on the leases of the session, also on those that another thread took."""
        with _guard:
            locks = _of_sessions.get(self.spark)
        return nullcontext() if locks is None else locks.bound()

    def place_of(self, name: Name) -> Place | None:
        """As for `spark.table`, Spark's own views and tables come first, unless sluice is the session's default format."""
        if name.path is not None:
            return known_place(self, name) if is_sluice(name.parts[0], self.spark) else None
        if len(name.parts) > 2 or (not is_sluice(default_format(self.spark), self.spark) and self.is_own(name)):
            return None
        return known_place(self, name)

    def is_own(self, name: Name) -> bool:
        """Whether Spark has a view or a table of this name."""
        return sparks_catalog(self.spark).tableExists(name.quoted)

    def condition(self, span: Span, schema: SluiceStruct, what: str) -> str:
        """The condition as Spark's analyser resolves it."""
        return predicate_text(self.spark, schema, self.expression(span), what)

    def check_columns(self, schema: SluiceStruct) -> None:
        """Have Spark resolve defaults and generation expressions."""
        check_by_spark(self.spark, schema)

    def literal(self, value: Any) -> str:
        """The value of a parameter, or a Column without columns in it, as Spark takes one."""
        if isinstance(value, str):
            return quoted_text(value)
        selected = SparkSession.sql(self.spark, "SELECT :value AS value", {"value": value})
        if isinstance(selected.schema["value"].dataType, StringType):
            [[text]] = selected.collect()
            return "CAST(NULL AS STRING)" if text is None else quoted_text(text)
        plan = analysed(selected)
        if plan.nodeName() != "Project":
            raise InvalidRequest(f"the parameter {value!r} is no literal; give a value, or a Column made of literals")
        [named] = items(plan.expressions())
        tree = named.child() if named.nodeName() == "Alias" else named
        return f"({tree.sql()})" if tree.nodeName() != "Literal" else str(tree.sql())

    def by_spark(self, edits: Sequence[Edit] = ()) -> DataFrame:
        """Have Spark run the whole text with these edits, and with the parameters that are left in it; those by name may be more."""
        args: Any = self.args
        if args is not None and not isinstance(args, Mapping):
            marks = [each for each in parameters_in(self.text) if each.name is None]
            gone = {mark.number for mark in marks if any(each.start <= mark.at.start and mark.at.end <= each.end for each in edits)}
            args = [value for number, value in enumerate(args) if number not in gone] or None
        return self.spark_sql(self.edited((Span(0, len(self.text)),), edits), args)

    def spark_sql(self, text: str, args: Any = None) -> DataFrame:
        """PySpark's own `spark.sql`."""
        return SparkSession.sql(self.spark, text, args) if is_classic(self.spark) else self.spark.sql(text, args)  # over Spark Connect

    def query(self, spans: Sequence[Span], edits: Sequence[Edit]) -> DataFrame:
        """The rows of the query in these parts of the text; the other parts are blank, so that Spark's messages have the right lines."""
        bound = [each for span in spans for each in self.bound(span)]
        return self.spark_sql(self.edited(spans, [*edits, *bound]))

    def evaluate(self, span: Span, kind: str | None = None) -> Any:
        """What an expression without columns gives, as a type of Spark's if one is given; None for null."""
        value = f"({self.expression(span)})"
        [[result]] = self.spark_sql(f"SELECT {value if kind is None else f'CAST({value} AS {kind})'}").collect()
        return result

    def selected(self, columns: Span, rows: pa.Table) -> pa.Table:
        """What SELECT with these columns gives of rows."""
        view = f"__sluice_{uuid.uuid4().hex}"
        self.spark.createDataFrame(rows).createTempView(view)
        try:
            return self.spark_sql(f"SELECT {self.expression(columns)} FROM `{view}`").toArrow()  # noqa: S608 - values are literals
        finally:
            self.spark.catalog.dropTempView(view)

    def instant(self, span: Span, text: str | None) -> float | None:
        """Milliseconds since the epoch, of what Spark casts to a time in the session's time zone; None for what is no time."""
        value = f"({self.expression(span)})" if text is None else text
        [[at]] = self.spark_sql(f"SELECT unix_millis(TRY_CAST({value} AS TIMESTAMP_LTZ))").collect()
        return None if at is None else int(at)


_of_sessions: Final[dict[SparkSession, Locks]] = {}
_guard: Final = ForkSafeLock()


@when_stopped
def _release_all() -> None:
    """Spark stops, and with it all sessions of the process."""
    with _guard:
        everything = list(_of_sessions.values())
        _of_sessions.clear()
    for each in everything:
        each.release()


def quoted_text(text: str) -> str:
    """A text as a literal; in hexadecimal digits if it has a character that means something in one."""
    return f"'{text}'" if text.isprintable() and not set(text) & set("'\"\\`") else f"CAST(X'{text.encode().hex()}' AS STRING)"


def query(request: SparkRequest, statement: Other) -> DataFrame:
    """The rows of a query, or whatever Spark's own statement gives, with the tables of sluice that it names."""
    words = statement.words
    is_view = words[:1] == ("CACHE",) or (words[:1] == ("CREATE",) and "VIEW" in request.text.upper())
    if is_view and (ours := relations_of_sluice(request, statement.relations)):
        raise request.unsupported(
            ours[0].relation.name,
            "a view keeps its text, and would look for this table when sluice is not asked; use "
            "spark.sql('SELECT ...').createOrReplaceTempView(name), which keeps the versions of this moment",
            "views",
        )
    return by_spark(request, statement.relations, [each.name for each in statement.relations], explains=words[:1] == ("EXPLAIN",))


def by_spark(request: SparkRequest, relations: Sequence[Relation], names: Sequence[Name], *, explains: bool = False) -> DataFrame:
    """What Spark says to the text, with the tables of sluice in it; an unknown table gets the most similar names."""
    sources = latest(request, relations)
    try:
        with views_of(request, sources) as edits:
            rows = request.by_spark(edits)
            return _with_files(request.spark, rows) if explains and sources else rows
    except ParseException:
        session: Any = request.spark
        if is_classic(session):  # the text that was edited is no text to show, so the error is about the one that was typed
            session._jsparkSession.sessionState().sqlParser().parsePlan(request.text)
        raise
    except AnalysisException as error:
        if error.getCondition() != "TABLE_OR_VIEW_NOT_FOUND":
            raise
        ours = [each.relation.name for each in sources]
        unknown = next((name for name in names if name not in ours and name.path is None and not request.is_own(name)), None)
        if unknown is None or not similar_names(request, unknown):
            raise
        raise not_found(request, unknown) from error


def _with_files(spark: SparkSession, plan: DataFrame) -> DataFrame:
    """What Spark explains, and how many files the query reads of tables."""
    session: Any = spark._jsparkSession
    mode = class_in_jvm(spark, "org.apache.spark.sql.execution.CommandExecutionMode").SKIP()
    execution = session.sessionState().executePlan(analysed(plan).logicalPlan(), mode)
    [[text]] = plan.collect()
    return spark.createDataFrame([("\n".join([text.rstrip(), "", *files_read(spark, execution)]),)], "plan string")


@contextmanager
def views_of(request: SparkRequest, sources: Sequence[Source]) -> Iterator[list[Edit]]:
    """Within the block the tables are temporary views; gives the edits that put the views' names into the text.

    Spark takes the rows' plans over when it analyses a query, so a query that is made in the block may be run after it.
    """
    use_session(request.spark)
    names: list[str] = []
    try:
        edits: list[Edit] = []
        for source in sources:
            names.append(f"__sluice_{uuid.uuid4().hex}")
            rows = source.rows
            if isinstance(rows, ChangeRange):
                read = _changed_rows(request, source.table.location, rows)
            elif isinstance(rows, Transaction):
                read = rows_so_far(rows, request.spark)
            else:
                assert isinstance(rows, TableSnapshot)
                options = {} if request.coordinator is None else {"coordinator": request.coordinator}
                read = read_snapshot(request.spark, rows, request.options, told=options, chosen=not source.relation.is_current)
            read.createTempView(names[-1])
            edits += edits_of(request.text, source.relation, names[-1], source.struct.names)
        yield edits
    finally:
        for name in names:
            request.spark.catalog.dropTempView(name)


def _changed_rows(request: SparkRequest, location: str, changes: ChangeRange) -> DataFrame:
    """The rows of the change data feed, whose options include both bounds."""
    after, up_to = changes.after, changes.up_to
    is_empty = up_to == after
    bounds = {"starting": after if is_empty else Bound(after.by, after.value + 1)}
    if up_to is not None:
        bounds["ending"] = up_to
    options = {"coordinator": request.coordinator, **{f"s3.{name}": value for name, value in request.options.items()}}
    for edge, bound in bounds.items():
        if bound.by == "version":
            options[f"{edge}Version"] = str(bound.value)
        else:
            options[f"{edge}Timestamp"] = f"{datetime.fromtimestamp(bound.value / 1000, timezone.utc):%Y-%m-%d %H:%M:%S.%f}"
    set_options = {name: value for name, value in options.items() if value is not None}
    rows = request.spark.read.format("sluice").options(readChangeFeed="true", **set_options).load(location)
    return rows.where("false") if is_empty else rows


def as_arrow(frame: DataFrame) -> pa.Table:
    """The rows. Columns of types that Arrow lacks are texts, as CAST(x AS STRING) gives them; months of a year are Arrow's intervals."""
    names, kinds = frame.columns, [field.dataType for field in frame.schema.fields]
    numbered = frame.toDF(*(f"c{number}" for number in range(len(names))))
    columns = []
    for number, kind in enumerate(kinds):
        column = F.col(f"c{number}")
        if isinstance(kind, YearMonthIntervalType):
            whole = column.cast("interval year to month")
            column = F.extract(F.lit("YEAR"), whole) * 12 + F.extract(F.lit("MONTH"), whole)
        elif not _in_arrow(kind):
            column = column.cast("string")
        columns.append(column.alias(f"c{number}"))
    rows = numbered.select(*columns).toArrow()
    for number, kind in enumerate(kinds):
        if isinstance(kind, YearMonthIntervalType):
            months = rows.column(number).to_pylist()
            intervals = pa.array([None if each is None else (each, 0, 0) for each in months], pa.month_day_nano_interval())
            rows = rows.set_column(number, f"c{number}", intervals)
    return rows.rename_columns(names)


def _in_arrow(kind: DataType) -> bool:
    match kind:
        case ArrayType():
            return _in_arrow(kind.elementType)
        case MapType():
            return _in_arrow(kind.keyType) and _in_arrow(kind.valueType)
        case StructType():
            return all(_in_arrow(field.dataType) for field in kind.fields)
        case VariantType():
            return False
    try:
        to_arrow_type(kind)
    except Exception:  # noqa: BLE001 - PySpark has a class for each reason
        return False
    return True
