"""CREATE, DROP, UNDROP and ALTER TABLE."""

from __future__ import annotations

import json

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType as SparkStruct

from ..delta.creating import Definition, made, named
from ..delta.metrics import empty
from ..delta.places import Place, exists, place_of_path
from ..spark_integration.session.known_tables import already_there
from ..spark_integration.session.saving import Write, save
from ..spark_integration.session.told import Options, default_format, is_sluice
from ..statements.cursor import Name, Span
from ..statements.tables import Alter, Create, Drop, Undrop
from ..storage.errors import InvalidRequest, TableNotFound
from .asked import Asked
from .care import struct_of
from .places import catalog_of, opened, title
from .queries import at_one_moment, found_in, views_of

__all__ = ["alter", "create", "drop", "is_created_here", "undrop"]

_CONSTRAINT = "delta.constraints."
_KEY = "sluice.primaryKey"


def is_created_here(asked: Asked, statement: Create) -> bool:
    """Whether a CREATE TABLE makes a table of sluice: by its provider, its name, or the session's default format."""
    if statement.target.path is not None:
        return statement.target.parts[0].lower() == "sluice"
    return is_sluice(statement.provider or default_format(asked.spark))


def create(asked: Asked, statement: Create) -> DataFrame:
    """Create or replace a table, with rows if there is a query. Returns an empty DataFrame."""
    name = statement.target
    if statement.refused is not None:
        words, at = statement.refused
        raise asked.unsupported(at, f"sluice's tables have no {words}; leave it out", words)
    properties = _properties(asked, statement)
    schema = struct_of(asked, statement.columns)
    known = {each.name.lower() for each in schema.fields}
    added = [each for each in statement.partitioned_by if each.type is not None and each.name.lower() not in known]
    schema = SparkStruct([*schema.fields, *struct_of(asked, tuple(added)).fields])
    partition_by = tuple(each.name for each in statement.partitioned_by)
    location = name.path or statement.location
    if statement.query is not None:
        if schema.fields:
            raise asked.refused(name, "a table that is made by a query has the query's columns: leave the columns out, or cast them there")
        if statement.comment is not None:
            raise asked.unsupported(
                name, "a table that is made by a query gets no COMMENT; set it with sluice.Catalog.set_comment", "COMMENT"
            )
        return _created_with_rows(asked, statement, properties, partition_by if statement.is_partitioned else None)
    if not schema.fields:
        raise asked.refused(name, "the table has no columns: list them in brackets, or add AS SELECT ...")
    wanted = Definition(statement.how, None if name.path else name.quoted, location, schema, partition_by, properties, statement.comment)
    if name.path is not None:
        made(place_of_path(name.path, {}, asked.coordinator, asked.options), wanted)
    else:
        named(catalog_of(asked), wanted)
    return empty(asked.spark)


def _properties(asked: Asked, statement: Create) -> dict[str, str]:
    """The table's properties, with its constraints and its key, which are properties, too."""
    properties = dict(statement.properties or {})
    for check in statement.checks:
        properties[_CONSTRAINT + check.name] = asked.expression(check.condition)
    for column in statement.columns:
        for number, condition in enumerate(column.checks):
            properties[f"{_CONSTRAINT}{column.name}_{number + 1}"] = asked.expression(condition)
    key = statement.key or tuple(each.name for each in statement.columns if each.is_key)
    if key:
        properties[_KEY] = ",".join(key)
    return properties


def _created_with_rows(asked: Asked, statement: Create, properties: dict[str, str], partition_by: tuple[str, ...] | None) -> DataFrame:
    """CREATE TABLE ... AS SELECT: the table and its rows in one commit."""
    name, how = statement.target, statement.how
    assert statement.query is not None
    told = Options()
    told.tell("coordinator", asked.coordinator)
    for option, value in asked.options.items():
        told.tell(f"s3.{option}", value)
    if properties:
        told.tell("properties", json.dumps(properties))
    catalog = catalog_of(asked)
    there = exists(place_of_path(name.path, {}, asked.coordinator, asked.options)) if name.path else catalog.exists(name.quoted)
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
            save(frame, location, Write("overwrite", told.but(overwriteSchema="true"), partition_by or (), replaces=True))
        elif name.path is not None:
            save(frame, name.path, Write("error", told, partition_by))
        else:
            location = statement.location or catalog.new_location(name.quoted)
            save(frame, location, Write("error", told, partition_by), name=name.quoted, managed=statement.location is None)
    return empty(asked.spark)


def drop(asked: Asked, statement: Drop, _: Place) -> DataFrame:
    """Take a table and its name away; UNDROP brings it back. Returns an empty DataFrame."""
    name = statement.target
    if name.path is not None:
        raise asked.unsupported(name, "a table without a name is dropped by sluice.Table.drop, which deletes its files", "DROP by path")
    if statement.purge:
        raise asked.unsupported(name, "PURGE is not there: drop the table, and then call sluice.Catalog.vacuum", "PURGE")
    catalog_of(asked).drop(name.quoted)
    return empty(asked.spark)


def undrop(asked: Asked, statement: Undrop) -> DataFrame:
    """Bring a dropped table back. Returns an empty DataFrame."""
    new = None if statement.new_name is None else statement.new_name.quoted
    catalog_of(asked).undrop(statement.target.quoted, new_name=new)
    return empty(asked.spark)


def alter(asked: Asked, statement: Alter, place: Place) -> DataFrame:
    """Change properties, constraints or the name of a table. Returns an empty DataFrame."""
    table, name = opened(place), statement.target
    if statement.action == "set properties":
        table.set_properties(statement.properties or {})
    elif statement.action == "unset properties":
        _unset(asked, statement, place, statement.names)
    elif statement.action == "add check":
        assert statement.check is not None
        key = _CONSTRAINT + statement.check.name
        if key.lower() in {each.lower() for each in table.properties}:
            raise asked.refused(name, f"there is a constraint {statement.check.name} already: drop it first")
        table.set_properties({key: asked.expression(statement.check.condition)})
    elif statement.action == "drop constraint":
        _unset(asked, statement, place, tuple(_CONSTRAINT + each for each in statement.names))
    elif statement.action == "rename":
        assert statement.new_name is not None
        if name.path is not None or statement.new_name.path is not None:
            raise asked.refused(name, "a table without a name cannot be renamed: sluice.Catalog.register gives it one")
        catalog_of(asked).rename(name.quoted, _in_same_namespace(name, statement.new_name).quoted)
    else:
        raise asked.unsupported(name, _other(statement), statement.other or statement.action)
    return empty(asked.spark)


def _in_same_namespace(name: Name, new: Name) -> Name:
    """As in Spark, a new name without a namespace stays in the old one."""
    return new if len(new.parts) > 1 or len(name.parts) == 1 else Name((name.parts[0], *new.parts), new.start, new.end)


def _unset(asked: Asked, statement: Alter, place: Place, names: tuple[str, ...]) -> None:
    table = opened(place)
    known = {each.lower(): each for each in table.properties}
    lacking = [each for each in names if each.lower() not in known]
    if lacking and not statement.if_exists:
        what = lacking[0].removeprefix(_CONSTRAINT)
        raise InvalidRequest(asked.shown(Span(statement.target.start, statement.target.end), f"the table has no {what}; add IF EXISTS"))
    table.unset_properties([known[each.lower()] for each in names if each.lower() in known])


def _other(statement: Alter) -> str:
    """Why something cannot be altered."""
    if statement.other in ("RENAME COLUMN", "DROP COLUMN", "DROP COLUMNS", "REPLACE COLUMNS"):
        return (
            f"{statement.other} needs column mapping, which sluice does not have; write the table anew with CREATE OR REPLACE ... AS SELECT"
        )
    if statement.action == "add columns":
        return "ALTER TABLE adds no columns yet: INSERT WITH SCHEMA EVOLUTION ... BY NAME, or MERGE, adds those of the rows"
    return f"sluice.sql has no ALTER TABLE ... {statement.other}"
