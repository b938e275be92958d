"""CREATE TABLE, whose rows Spark may compute; SHOW TABLES, namespaces and comments, which are the coordinator's or Spark's."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from typing import Final

from pyspark.sql import DataFrame

from ..coordinator.errors import InvalidName
from ..delta.metrics import empty, frame
from ..spark_integration.session.format_and_options import Options, default_format, is_sluice
from ..spark_integration.session.known_tables import sparks_catalog
from ..spark_integration.session.saving import Write, save
from ..sql_plain.definitions import namespaces as spaces
from ..sql_plain.definitions import tables as plain
from ..sql_plain.definitions.creating import Definition
from ..sql_plain.definitions.showing import tables_of
from ..sql_plain.place import at_one_moment, catalog_of, title
from ..statements.cursor import Name
from ..statements.namespaces import Comment, CreateNamespace, DropNamespace, ShowNamespaces
from ..statements.tables import Create, Like, ShowTables
from ..storage.errors import UnknownScheme
from ..storage.stores.location import normalise
from ..tables.catalog.entries import DroppedTable, NamedTable
from .queries import found_in, place_of, views_of
from .spark_request import Asked

_log: Final = logging.getLogger(__name__)


def is_created_here(asked: Asked, statement: Create) -> bool:
    """Whether a CREATE TABLE makes a table of sluice: by its provider, its name, or the session's default format."""
    first = statement.target.parts[0] if statement.target.path is not None else None
    return is_sluice(first or statement.provider or default_format(asked.spark), asked.spark)


def create(asked: Asked, statement: Create) -> DataFrame:
    """Create or replace a table, with rows if there is a query. Returns an empty DataFrame."""
    wanted = plain.definition_of(asked, statement)
    if statement.query is None:
        return frame(asked.spark, plain.create(asked, wanted))
    return _created_with_rows(asked, statement, wanted)


def create_like(asked: Asked, statement: Like) -> DataFrame:
    """Make a table like another one, if that is sluice's; otherwise it is Spark's statement. Returns an empty DataFrame."""
    source = place_of(asked, statement.source)
    if source is None or not is_sluice(statement.provider or "sluice", asked.spark):
        return asked.by_spark()
    return frame(asked.spark, plain.create_like(asked, statement, source))


def _created_with_rows(asked: Asked, statement: Create, wanted: Definition) -> DataFrame:
    """CREATE TABLE ... AS SELECT: the table and its rows in one commit."""
    name = statement.target
    assert statement.query is not None
    properties, partition_by = wanted.properties, wanted.partition_by if statement.is_partitioned else None
    cluster_by = wanted.cluster_by or None
    told = Options()
    told.set("coordinator", asked.coordinator)
    for option, value in asked.options.items():
        told.set(f"s3.{option}", value)
    if properties:
        told.set("properties", json.dumps(properties))
    catalog, query = catalog_of(asked), statement.query

    def write(replaces: bool) -> None:
        with views_of(asked, found_in(asked, statement.relations), at_one_moment) as edits:
            frame = asked.query([query], edits)
            if replaces:
                location = name.path or catalog.locate(name.quoted)
                options = told.but(overwriteSchema="true")
                save(frame, location, Write("overwrite", options, partition_by or (), replaces=True, cluster_by=wanted.cluster_by))
            elif name.path is not None:
                save(frame, name.path, Write("error", told, partition_by, cluster_by=cluster_by, defines=True))
            else:
                location = statement.location or catalog.new_location(name.quoted)
                rows = Write("error", told, partition_by, cluster_by=cluster_by, defines=True)
                save(frame, location, rows, name=name.quoted, managed=statement.location is None)

    plain.with_rows(asked, statement, write)
    return empty(asked.spark)


def show_tables(asked: Asked, statement: ShowTables) -> DataFrame:
    """The tables of a namespace that the coordinator keeps, and Spark's own of that name."""
    ours = tables_of(asked, statement)
    if ours is None:
        return asked.by_spark()
    name = "default" if statement.namespace is None else ".".join(statement.namespace.parts)
    if asked.spark.catalog.databaseExists(name):
        known = {(namespace.lower(), table.lower()) for namespace, table, _ in ours.rows}
        theirs = [tuple(each) for each in asked.by_spark().collect() if (each[0].lower(), each[1].lower()) not in known]
        ours = replace(ours, rows=(*ours.rows, *theirs))
    return frame(asked.spark, ours)


def about_namespace(asked: Asked, statement: CreateNamespace | DropNamespace | ShowNamespaces | Comment) -> DataFrame:
    """What is Spark's goes there. A new namespace is the coordinator's by USING sluice, or by the session's default format.

    Without either it is made by both, and dropped by both: it may have tables of each. COMMENT means Spark's, of a name that both have.
    """
    match statement:
        case CreateNamespace():
            if is_sluice(statement.provider or default_format(asked.spark), asked.spark):
                return frame(asked.spark, spaces.create(asked, statement))
            return asked.by_spark() if statement.provider is not None else _created_by_both(asked, statement)
        case DropNamespace():
            return _dropped(asked, statement)
        case ShowNamespaces():
            ours = spaces.show(asked, statement)
            theirs = [(each[0],) for each in asked.by_spark().collect()]
            known = {name.lower() for (name,) in theirs}
            return frame(asked.spark, replace(ours, rows=(*theirs, *(row for row in ours.rows if row[0].lower() not in known))))
    return _comment(asked, statement)


def _created_by_both(asked: Asked, statement: CreateNamespace) -> DataFrame:
    """Make Spark's database, and the coordinator's namespace of that name unless it is there or sluice cannot have the name.

    Without a location and without a root of the catalog its tables go where Spark puts its own.
    """
    done, location = asked.by_spark(), statement.location
    if location is None and catalog_of(asked).root is None:  # beside Spark's folder, which goes with the database: <name>.db
        location = f"{asked.spark.conf.get('spark.sql.warehouse.dir')}/{title(statement.name)}"
    try:
        spaces.create(asked, replace(statement, if_not_exists=True, location=location))
    except (InvalidName, UnknownScheme) as refusal:
        _log.info("%s is a database of Spark's alone: %s", title(statement.name), refusal)
    return done


def _dropped(asked: Asked, statement: DropNamespace) -> DataFrame:
    """Drop a namespace where it is: with the coordinator, in Spark, or both. What can be refused is refused before anything is dropped."""
    name = title(statement.name)
    ours, theirs = spaces.is_known(asked, statement.name), asked.spark.catalog.databaseExists(name)
    if ours and theirs:
        if not statement.cascade and any(not each.isTemporary for each in sparks_catalog(asked.spark).listTables(name)):
            return asked.by_spark()  # refuses it
        _require_none_below(asked, statement.name, asked.spark.catalog.getDatabase(name).locationUri)
    done = frame(asked.spark, spaces.drop(asked, statement)) if ours else None
    return asked.by_spark() if theirs or done is None else done


def _require_none_below(asked: Asked, name: Name, folder: str) -> None:
    """Raise InvalidRequest if Spark, which deletes a database's folder, would delete tables of sluice in it, dropped ones or others."""
    catalog, below = catalog_of(asked), f"{normalise(folder)}/"
    known: list[NamedTable | DroppedTable] = [*catalog.tables(title(name)), *catalog.dropped()]
    there = [each for each in known if each.location.startswith(below)]
    if there:
        raise asked.refused(
            name,
            f"Spark would delete its folder {folder}, and in it {there[0].full_name}, a table of sluice, which nothing could bring back: "
            "drop the tables, and let sluice.Catalog.vacuum delete their data first",
        )


def _comment(asked: Asked, statement: Comment) -> DataFrame:
    if statement.what == "namespace":
        if not _is_ours(asked, statement.target):
            return asked.by_spark()
        return frame(asked.spark, spaces.comment_on_namespace(asked, statement))
    if statement.what == "table":
        place = place_of(asked, statement.target)
        return asked.by_spark() if place is None else frame(asked.spark, spaces.comment_on_table(asked, statement, place))
    found = spaces.split_column(statement.target, lambda name: place_of(asked, name))
    return asked.by_spark() if found is None else frame(asked.spark, spaces.comment_on_column(statement, *found))


def _is_ours(asked: Asked, name: Name) -> bool:
    return not asked.spark.catalog.databaseExists(title(name)) and spaces.is_known(asked, name)
