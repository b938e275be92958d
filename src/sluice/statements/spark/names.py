"""Statements about namespaces, tables of one, and comments, which are the coordinator's or Spark's; CREATE TABLE LIKE."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Final

from pyspark.sql import DataFrame

from ...coordinator.errors import InvalidName
from ...spark_integration.active_session import sparks_catalog
from ...spark_integration.session.format_and_options import default_format, is_sluice
from ...storage.errors import UnknownScheme
from ...storage.stores.location import normalise
from ...tables.catalog import DroppedTable, NamedTable
from ..definitions import namespaces
from ..definitions.showing import tables_of
from ..definitions.tables import create_like
from ..engine import AboutNames
from ..parse.cursor import Name
from ..parse.namespaces import Comment, CreateNamespace, DropNamespace, ShowNamespaces
from ..parse.tables import Like, ShowTables
from ..places import catalog_of, title
from .queries import frame
from .request import SparkRequest

_log: Final = logging.getLogger(__name__)


def about_names(request: SparkRequest, statement: AboutNames) -> DataFrame:
    """What is Spark's goes there. A new namespace is the coordinator's by USING sluice, or by the session's default format.

    Without either it is made by both, and dropped by both: it may have tables of each. COMMENT means Spark's, of a name that both have.
    """
    match statement:
        case CreateNamespace():
            if is_sluice(statement.provider or default_format(request.spark), request.spark):
                return frame(request.spark, namespaces.create(request, statement))
            return request.by_spark() if statement.provider is not None else _created_by_both(request, statement)
        case DropNamespace():
            return _dropped(request, statement)
        case ShowNamespaces():
            ours = namespaces.show(request, statement)
            theirs = [(each[0],) for each in request.by_spark().collect()]
            listed = {name.lower() for (name,) in theirs}
            return frame(request.spark, replace(ours, rows=(*theirs, *(row for row in ours.rows if row[0].lower() not in listed))))
        case ShowTables():
            return _show_tables(request, statement)
        case Like():
            source = request.place_of(statement.source)
            if source is None or not is_sluice(statement.provider or "sluice", request.spark):
                return request.by_spark()
            return frame(request.spark, create_like(request, statement, source))
        case Comment():
            is_sparks = statement.what == "namespace" and not _is_ours(request, statement.target)
            answer = None if is_sparks else namespaces.comment(request, statement)
            return request.by_spark() if answer is None else frame(request.spark, answer)


def _show_tables(request: SparkRequest, statement: ShowTables) -> DataFrame:
    """The tables of a namespace that the coordinator keeps, and Spark's own of that name."""
    ours = tables_of(request, statement)
    if ours is None:
        return request.by_spark()
    name = "default" if statement.namespace is None else ".".join(statement.namespace.parts)
    if request.spark.catalog.databaseExists(name):
        listed = {(namespace.lower(), table.lower()) for namespace, table, _ in ours.rows}
        theirs = [tuple(each) for each in request.by_spark().collect() if (each[0].lower(), each[1].lower()) not in listed]
        ours = replace(ours, rows=(*ours.rows, *theirs))
    return frame(request.spark, ours)


def _created_by_both(request: SparkRequest, statement: CreateNamespace) -> DataFrame:
    """Make Spark's database, and the coordinator's namespace of that name unless it is there or sluice cannot have the name.

    Without a location and without a root of the catalog its tables go where Spark puts its own.
    """
    frame_of_spark, location = request.by_spark(), statement.location
    if location is None and catalog_of(request).root is None:  # beside Spark's folder, which goes with the database: <name>.db
        location = f"{request.spark.conf.get('spark.sql.warehouse.dir')}/{title(statement.name)}"
    try:
        namespaces.create(request, replace(statement, if_not_exists=True, location=location))
    except (InvalidName, UnknownScheme) as refusal:
        _log.info("%s is a database of Spark's alone: %s", title(statement.name), refusal)
    return frame_of_spark


def _dropped(request: SparkRequest, statement: DropNamespace) -> DataFrame:
    """Drop a namespace where it is: with the coordinator, in Spark, or both. What can be refused is refused before anything is dropped."""
    name = title(statement.name)
    ours, theirs = namespaces.is_known(request, statement.name), request.spark.catalog.databaseExists(name)
    if ours and theirs:
        if not statement.cascade and any(not each.isTemporary for each in sparks_catalog(request.spark).listTables(name)):
            return request.by_spark()  # refuses it
        _require_none_below(request, statement.name, request.spark.catalog.getDatabase(name).locationUri)
    answer = frame(request.spark, namespaces.drop(request, statement)) if ours else None
    return request.by_spark() if theirs or answer is None else answer


def _require_none_below(request: SparkRequest, name: Name, folder: str) -> None:
    """Raise InvalidRequest if Spark, which deletes a database's folder, would delete tables of sluice in it, dropped ones or others."""
    catalog, below = catalog_of(request), f"{normalise(folder)}/"
    entries: list[NamedTable | DroppedTable] = [*catalog.tables(title(name)), *catalog.dropped()]
    there = [each for each in entries if each.location.startswith(below)]
    if there:
        raise request.refused(
            name,
            f"Spark would delete its folder {folder}, and in it {there[0].full_name}, a table of sluice, which nothing could bring back: "
            "drop the tables, and let sluice.Catalog.vacuum delete their data first",
        )


def _is_ours(request: SparkRequest, name: Name) -> bool:
    return not request.spark.catalog.databaseExists(title(name)) and namespaces.is_known(request, name)
