"""Queries: every table of sluice in them is a temporary view, and all are read as of one moment. A name may also be Spark's."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone
from typing import Any, TypeAlias

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, SparkSession

from ..spark_integration.active_session import use_session
from ..spark_integration.jvm import analysed, class_in_jvm
from ..spark_integration.scan.explaining import files_read
from ..spark_integration.scan.read import read_snapshot
from ..spark_integration.session.format_and_options import default_format, is_sluice
from ..spark_integration.session.known_tables import sparks_catalog
from ..sql_plain.place import (
    Place,
    at_one_moment,
    edits_of,
    known_place,
    near,
    not_found,
    opened,
    parts_of,
    require_one_moment,
    with_version,
)
from ..sql_plain.request import Edit
from ..statements.cursor import Name
from ..statements.reading import Other
from ..statements.relations import AsOf, Between, Changes, Relation
from ..storage.dataclass import dataclass
from ..tables.client.address import time_of_digits
from ..tables.read.table_snapshot import TableSnapshot
from ..tables.table import Table
from .spark_request import Asked

Moment: TypeAlias = "Callable[[Sequence[Table]], Mapping[str, TableSnapshot] | Mapping[str, DataFrame]]"
"""Gives what a statement reads of tables, by location: their snapshots, or their rows."""


@dataclass(frozen=True, slots=True)
class Found:
    """A table of sluice in a query."""

    relation: Relation
    place: Place


def run(asked: Asked, statement: Other) -> DataFrame:
    """The rows of a query, or whatever Spark's own statement gives, with the tables of sluice that it names."""
    words = statement.words
    is_view = words[:1] == ("CACHE",) or (words[:1] == ("CREATE",) and "VIEW" in asked.text.upper())
    found = found_in(asked, statement.relations)
    if is_view and found:
        raise asked.unsupported(
            found[0].relation.name,
            "a view keeps its text, and would look for this table when sluice is not asked; use "
            "spark.sql('SELECT ...').createOrReplaceTempView(name), which keeps the versions of this moment",
            "views",
        )
    return by_spark(asked, found, [each.name for each in statement.relations], explains=words[:1] == ("EXPLAIN",))


def by_spark(asked: Asked, found: Sequence[Found], names: Sequence[Name], *, explains: bool = False) -> DataFrame:
    """What Spark says to the text, with the tables of sluice in it; an unknown table gets the most similar names."""
    try:
        with views_of(asked, found, at_one_moment) as edits:
            rows = asked.by_spark(edits)
            return _with_files(asked.spark, rows) if explains and found else rows
    except ParseException:
        asked.require_readable()  # the text that was edited is no text to show
        raise
    except AnalysisException as error:
        if error.getCondition() != "TABLE_OR_VIEW_NOT_FOUND":
            raise
        ours = [each.relation.name for each in found]
        unknown = next((name for name in names if name not in ours and _is_unknown(asked, name)), None)
        if unknown is None or not near(asked, unknown):
            raise
        raise not_found(asked, unknown) from error


def _with_files(spark: SparkSession, plan: DataFrame) -> DataFrame:
    """What Spark explains, and how many files the query reads of tables."""
    session: Any = spark._jsparkSession
    mode = class_in_jvm(spark, "org.apache.spark.sql.execution.CommandExecutionMode").SKIP()
    execution = session.sessionState().executePlan(analysed(plan).logicalPlan(), mode)
    [[text]] = plan.collect()
    return spark.createDataFrame([("\n".join([text.rstrip(), "", *files_read(spark, execution)]),)], "plan string")


def _is_unknown(asked: Asked, name: Name) -> bool:
    return name.path is None and not is_spark_table(asked.spark, name)


def found_in(asked: Asked, relations: Sequence[Relation]) -> list[Found]:
    """Those of the tables in a query that are sluice's."""
    found = [(each, _place(asked, each)) for each in (with_version(asked, one) for one in relations)]
    ours = [Found(relation, place) for relation, place in found if place is not None]
    for each in ours:
        require_one_moment(asked, each.relation)
    return ours


def _place(asked: Asked, relation: Relation) -> Place | None:
    return place_of(asked, relation.name) if relation.changes is None else _place_of_changes(asked, relation.changes)


def _place_of_changes(asked: Asked, changes: Changes) -> Place | None:
    """Where the table is whose name is the first argument of `table_changes`."""
    text = str(asked.value(changes.arguments[0], "STRING"))
    return place_of(asked, Name(parts_of(text), changes.arguments[0].start, changes.arguments[0].end))


@contextmanager
def views_of(asked: Asked, found: Sequence[Found], moment: Moment) -> Iterator[list[Edit]]:
    """Within the block the tables are temporary views; gives the edits that put the views' names into the text.

    Spark takes the rows' plans over when it analyses a query, so a query that is made in the block may be run after it.
    """
    use_session(asked.spark)
    names: list[str] = []
    try:
        edits: list[Edit] = []
        frames = _frames(asked, found, moment)
        for each, frame in zip(found, frames, strict=True):
            names.append(f"__sluice_{uuid.uuid4().hex}")
            frame.createTempView(names[-1])
            edits += edits_of(each.relation, names[-1])
        yield edits
    finally:
        for name in names:
            asked.spark.catalog.dropTempView(name)


def _frames(asked: Asked, found: Sequence[Found], moment: Moment) -> list[DataFrame]:
    tables = [opened(each.place) for each in found]
    current = [each.relation.is_current for each in found]
    read = moment([table for table, is_current in zip(tables, current, strict=True) if is_current])
    frames: list[DataFrame] = []
    for each, table in zip(found, tables, strict=True):
        relation = each.relation
        if relation.changes is not None:
            frames.append(_changes(asked, table, relation))
        elif relation.between is not None:
            frames.append(_between(asked, table, relation.between))
        elif relation.as_of is not None:
            frames.append(_rows(asked, table, _asked_for(asked, table, relation.as_of), chosen=True))
        else:
            found_there = read[table.location]
            frames.append(found_there if isinstance(found_there, DataFrame) else _rows(asked, table, found_there))
    return frames


def _rows(asked: Asked, table: Table, snapshot: TableSnapshot, *, chosen: bool = False) -> DataFrame:
    told = {} if asked.coordinator is None else {"coordinator": asked.coordinator}
    return read_snapshot(asked.spark, table.location, snapshot, asked.options, told=told, chosen=chosen)


def _asked_for(asked: Asked, table: Table, as_of: AsOf) -> TableSnapshot:
    """The snapshot of a version or a time."""
    if as_of.is_version and as_of.literal is not None:
        return table.snapshot(int(as_of.literal))
    if as_of.literal is None:
        return table.snapshot(*asked.moment(as_of.is_version, as_of.value))
    if len(as_of.literal) != 17:
        raise asked.refused(as_of.value, "write the time as yyyyMMddHHmmssSSS")
    time = time_of_digits(as_of.literal)
    [[at]] = asked.spark_sql(f"SELECT unix_millis(try_cast('{time}' AS TIMESTAMP_LTZ))").collect()
    if at is None:
        raise asked.refused(as_of.value, "this is no time: write it as yyyyMMddHHmmssSSS")
    return table.snapshot(timestamp=at)


def _changes(asked: Asked, table: Table, relation: Relation) -> DataFrame:
    """The rows that versions changed, both bounds included, as `table_changes` gives them."""
    assert relation.changes is not None
    _, *bounds = relation.changes.arguments
    if not 1 <= len(bounds) <= 2:
        raise asked.refused(relation.name, "table_changes takes a table's name, a first version or time, and a last one if there is one")
    options: dict[str, str] = {}
    for span, edge in zip(bounds, ("starting", "ending"), strict=False):
        kind = asked.spark_sql(f"SELECT {asked.expression(span)} AS value").schema["value"].dataType.typeName()
        if kind in ("integer", "long", "short", "byte"):
            options[f"{edge}Version"] = str(asked.value(span, "BIGINT"))
        else:
            options[f"{edge}Timestamp"] = _utc(asked.milliseconds(span))
    return _changed_rows(asked, table, options)


def _between(asked: Asked, table: Table, between: Between) -> DataFrame:
    """The rows that versions after the first bound changed, up to and including the second."""
    if between.is_version:
        after, up_to = (int(asked.value(span, "BIGINT")) for span in (between.after, between.up_to))
        first, last = str(after + 1), str(up_to)
        kind = "Version"
    else:
        after, up_to = (asked.milliseconds(span) for span in (between.after, between.up_to))
        first, last = _utc(after + 1), _utc(up_to)
        kind = "Timestamp"
    if after > up_to:
        raise asked.refused(between.up_to, f"this is before the first bound, {after}: give the earlier one first")
    if after == up_to:
        return _changed_rows(asked, table, {f"starting{kind}": last, f"ending{kind}": last}).where("false")
    return _changed_rows(asked, table, {f"starting{kind}": first, f"ending{kind}": last})


def _utc(milliseconds_: int) -> str:
    return datetime.fromtimestamp(milliseconds_ / 1000, timezone.utc).strftime("%Y-%m-%d %H:%M:%S.%f")


def _changed_rows(asked: Asked, table: Table, options: Mapping[str, str]) -> DataFrame:
    reader = asked.spark.read.format("sluice").options(readChangeFeed="true", **options)
    told = {f"s3.{name}": value for name, value in asked.options.items()}
    told |= {} if asked.coordinator is None else {"coordinator": asked.coordinator}
    return reader.options(**told).load(table.location)


def require_known(asked: Asked, name: Name) -> Place:
    """The place of a table that has to be sluice's. Raises TableNotFound with the nearest names."""
    place = place_of(asked, name) or known_place(asked, name)
    if place is None:
        raise not_found(asked, name)
    return place


def table_of(asked: Asked, name: Name, takes_no: str) -> Table:
    """The table of sluice with that name. Raises TableNotFound, and InvalidRequest for one of Spark's, which `takes_no` such thing."""
    place = place_of(asked, name)
    if place is not None:
        return opened(place)
    if name.path is None and is_spark_table(asked.spark, name):
        raise asked.refused(name, f"{'.'.join(name.parts)} is Spark's own, which takes no {takes_no}; name a table of sluice")
    raise not_found(asked, name)


def place_of(asked: Asked, name: Name) -> Place | None:
    """Where the table of a name is, if it is one of sluice's; None if the name is Spark's, or unknown.

    As for `spark.table`, Spark's own views and tables come first, unless sluice is the session's default format.
    """
    if name.path is not None:
        return known_place(asked, name) if is_sluice(name.parts[0], asked.spark) else None
    if len(name.parts) > 2 or (not is_sluice(default_format(asked.spark), asked.spark) and is_spark_table(asked.spark, name)):
        return None
    return known_place(asked, name)


def is_spark_table(spark: SparkSession, name: Name) -> bool:
    """Whether Spark has a view or a table of this name."""
    return sparks_catalog(spark).tableExists(name.quoted)
