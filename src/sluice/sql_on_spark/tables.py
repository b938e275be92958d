"""CREATE TABLE, whose rows Spark may compute."""

from __future__ import annotations

import json

from pyspark.sql import DataFrame

from ..delta.metrics import empty, frame
from ..spark_integration.session.format_and_options import Options, default_format, is_sluice
from ..spark_integration.session.known_tables import already_there
from ..spark_integration.session.saving import Write, save
from ..sql_plain.definitions import tables as plain
from ..sql_plain.definitions.creating import Definition
from ..sql_plain.naming import at_one_moment
from ..sql_plain.place import Place, catalog_of, exists, title
from ..statements.tables import Create, Like
from ..storage.errors import TableNotFound
from .places import place_of
from .queries import found_in, views_of
from .spark_request import Asked


def is_created_here(asked: Asked, statement: Create) -> bool:
    """Whether a CREATE TABLE makes a table of sluice: by its provider, its name, or the session's default format."""
    if statement.target.path is not None:
        return statement.target.parts[0].lower() == "sluice"
    return is_sluice(statement.provider or default_format(asked.spark))


def create(asked: Asked, statement: Create) -> DataFrame:
    """Create or replace a table, with rows if there is a query. Returns an empty DataFrame."""
    wanted = plain.definition_of(asked, statement)
    if statement.query is None:
        return frame(asked.spark, plain.create(asked, wanted))
    return _created_with_rows(asked, statement, wanted)


def create_like(asked: Asked, statement: Like) -> DataFrame:
    """Make a table like another one, if that is sluice's; otherwise it is Spark's statement. Returns an empty DataFrame."""
    source = place_of(asked, statement.source)
    if source is None or not is_sluice(statement.provider or "sluice"):
        return asked.by_spark()
    return frame(asked.spark, plain.create_like(asked, statement, source))


def _created_with_rows(asked: Asked, statement: Create, wanted: Definition) -> DataFrame:
    """CREATE TABLE ... AS SELECT: the table and its rows in one commit."""
    name, how = statement.target, statement.how
    assert statement.query is not None
    properties, partition_by = wanted.properties, wanted.partition_by if statement.is_partitioned else None
    cluster_by = wanted.cluster_by or None
    told = Options()
    told.set("coordinator", asked.coordinator)
    for option, value in asked.options.items():
        told.set(f"s3.{option}", value)
    if properties:
        told.set("properties", json.dumps(properties))
    catalog = catalog_of(asked)
    there = exists(Place(name.path, asked.coordinator, asked.options)) if name.path else catalog.exists(name.quoted)
    if there and how == "createIfNotExists":
        return empty(asked.spark)
    if there and how == "create":
        raise already_there(title(name))
    if not there and how == "replace":
        raise TableNotFound(asked.shown(name, f"there is no table {title(name)} to replace"), name=title(name))
    with views_of(asked, found_in(asked, statement.relations), at_one_moment) as edits:
        frame = asked.query([statement.query], edits)
        if there:
            location = name.path or catalog.locate(name.quoted)
            save(
                frame,
                location,
                Write("overwrite", told.but(overwriteSchema="true"), partition_by or (), replaces=True, cluster_by=wanted.cluster_by),
            )
        elif name.path is not None:
            save(frame, name.path, Write("error", told, partition_by, cluster_by=cluster_by))
        else:
            location = statement.location or catalog.new_location(name.quoted)
            save(
                frame,
                location,
                Write("error", told, partition_by, cluster_by=cluster_by),
                name=name.quoted,
                managed=statement.location is None,
            )
    return empty(asked.spark)
