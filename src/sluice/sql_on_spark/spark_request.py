"""A request to carry out a statement in a Spark session; values of parameters are literals that Spark makes."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StringType

from ..spark_integration.active_session import is_classic, user_metadata_of
from ..spark_integration.jvm import analysed, items
from ..spark_integration.options import default_storage_options
from ..spark_integration.rows.definitions import check_by_spark
from ..sql_plain.request import Edit, Request
from ..statements.cursor import Span
from ..statements.reading import parameters_in
from ..storage.dataclass import dataclass
from ..storage.errors import InvalidRequest
from ..storage.schema.datatypes import StructType

_YEAR_1_MS, _YEAR_10000_MS = -62_135_596_800_000, 253_402_300_800_000
_RETENTION_CHECK = "spark.databricks.delta.retentionDurationCheck.enabled"


@dataclass(frozen=True, slots=True)
class Asked(Request):
    """A statement, and the session where it is asked."""

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
    def user_metadata(self) -> str | None:
        """That of the session's configuration."""
        return user_metadata_of(self.spark)

    @property
    def may_keep_short(self) -> bool:
        """Whether Delta Lake's setting says so."""
        return str(self.spark.conf.get(_RETENTION_CHECK, "true")).lower() == "false"

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

    def cast(self, span: Span, kind: str) -> Any:
        """What an expression without columns gives as a type of Spark's; None for null."""
        [[value]] = self.spark_sql(f"SELECT CAST(({self.expression(span)}) AS {kind})").collect()
        return value

    def selected(self, columns: Span, rows: pa.Table) -> pa.Table:
        """What SELECT with these columns gives of rows."""
        view = f"__sluice_{uuid.uuid4().hex}"
        self.spark.createDataFrame(rows).createTempView(view)
        try:
            return self.spark_sql(f"SELECT {self.expression(columns)} FROM `{view}`").toArrow()  # noqa: S608 - values are literals
        finally:
            self.spark.catalog.dropTempView(view)

    def milliseconds(self, span: Span) -> int:
        """Milliseconds since the epoch, from an expression that gives a time or a text that Spark casts to one, in the session's zone."""
        [[at]] = self.spark_sql(f"SELECT unix_millis(TRY_CAST(({self.expression(span)}) AS TIMESTAMP_LTZ))").collect()
        if at is None:
            raise self.refused(span, "this is no time; write it as '2026-01-31' or '2026-01-31 13:00:00'")
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
