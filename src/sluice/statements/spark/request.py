"""A request to carry out a statement in a Spark session; values of parameters are literals that Spark makes."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StringType

from ...spark_integration.active_session import is_classic, sparks_catalog, user_metadata_of, when_stopped
from ...spark_integration.jvm import analysed, items
from ...spark_integration.options import default_storage_options
from ...spark_integration.rows.definitions import check_by_spark
from ...spark_integration.session.format_and_options import default_format, has_delta_lake, is_sluice
from ...storage.caches import ForkSafeLock
from ...storage.dataclass import dataclass
from ...storage.errors import InvalidRequest
from ...storage.schema.datatypes import StructType
from ...tables.write.terms import ChangeArgs
from ..parse.cursor import Name, Span
from ..parse.reading import parameters_in
from ..places import known_place
from ..request import Edit, Locks, Place, Request

_YEAR_1_MS, _YEAR_10000_MS = -62_135_596_800_000, 253_402_300_800_000
_RETENTION_CHECK = "spark.databricks.delta.retentionDurationCheck.enabled"


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

    @property
    def may_keep_short(self) -> bool:
        """Whether Delta Lake's setting says so."""
        return str(self.spark.conf.get(_RETENTION_CHECK, "true")).lower() == "false"

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

    def check_columns(self, schema: StructType) -> None:
        """Have Spark resolve defaults and generation expressions."""
        check_by_spark(self.spark, schema)

    def literal(self, value: Any) -> str:
        """The value of a parameter as Spark writes it."""
        return literal_of(self.spark, value)

    def by_spark(self, edits: Sequence[Edit] = ()) -> DataFrame:
        """Have Spark run the whole text with these edits, and with the parameters that are left in it."""
        return self.spark_sql(self.edited((Span(0, len(self.text)),), edits), self._left(edits))

    def require_readable(self) -> None:
        """Raise Spark's ParseException if it cannot read the text as it was typed."""
        classic: Any = self.spark
        if is_classic(classic):
            classic._jsparkSession.sessionState().sqlParser().parsePlan(self.text)

    def spark_sql(self, text: str, args: Any = None) -> DataFrame:
        """PySpark's own `spark.sql`."""
        if not is_classic(self.spark):  # over Spark Connect
            return self.spark.sql(text, args)
        return SparkSession.sql(self.spark, text, args)

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

    def milliseconds(self, span: Span, text: str | None = None) -> int:
        """Milliseconds since the epoch, of what Spark casts to a time in the session's time zone."""
        value = f"({self.expression(span)})" if text is None else text
        [[at]] = self.spark_sql(f"SELECT unix_millis(TRY_CAST({value} AS TIMESTAMP_LTZ))").collect()
        if at is None:
            raise self.no_time(span)
        if not _YEAR_1_MS <= at < _YEAR_10000_MS:
            raise self.beyond_years(span)
        return int(at)

    def _left(self, edits: Sequence[Edit]) -> Any:
        """The parameters that Spark still finds in the text; those by name may be more."""
        if self.args is None or isinstance(self.args, Mapping):
            return self.args
        gone = {
            each.number
            for each in parameters_in(self.text)
            if each.name is None and any(edit.start <= each.at.start and each.at.end <= edit.end for edit in edits)
        }
        return [value for number, value in enumerate(self.args) if number not in gone] or None


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


def literal_of(spark: SparkSession, value: Any) -> str:
    """A value, or a Column without columns in it, as Spark takes a parameter, as text in SQL."""
    if isinstance(value, str):
        return quoted_text(value)
    frame = SparkSession.sql(spark, "SELECT :value AS value", {"value": value})
    if isinstance(frame.schema["value"].dataType, StringType):
        [[text]] = frame.collect()
        return "CAST(NULL AS STRING)" if text is None else quoted_text(text)
    plan = analysed(frame)
    if plan.nodeName() != "Project":
        raise InvalidRequest(f"the parameter {value!r} is no literal; give a value, or a Column made of literals")
    [named] = items(plan.expressions())
    tree = named.child() if named.nodeName() == "Alias" else named
    return f"({tree.sql()})" if tree.nodeName() != "Literal" else str(tree.sql())


def quoted_text(text: str) -> str:
    """A text as a literal; in hexadecimal digits if it has a character that means something in one."""
    if text.isprintable() and not set(text) & set("'\"\\`"):
        return f"'{text}'"
    return f"CAST(X'{text.encode().hex()}' AS STRING)"
