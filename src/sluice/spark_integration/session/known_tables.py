"""Which names mean tables of sluice, and where these are."""

from __future__ import annotations

from pyspark.sql import SparkSession

from ...coordinator.errors import NamespaceNotFound
from ...storage.errors import InvalidRequest, TableExists, TableNotFound
from ...tables.catalog.catalog import Catalog
from .told import Options, default_format, is_sluice

__all__ = ["already_there", "catalog_for", "is_known", "location_of", "means_sluice"]


def catalog_for(options: Options) -> Catalog:
    """The catalog of the coordinator that the options name, the session's by default."""
    return Catalog(options.get("coordinator"))


def means_sluice(spark: SparkSession, source: str | None, name: str, options: Options) -> bool:
    """Whether a name belongs to a sluice table, for reading and for adding rows.

    With a format, it says so. Without one, Spark's own views and tables come first, then the names that the coordinator keeps.
    """
    if source is not None:
        return is_sluice(source)
    if is_sluice(default_format(spark)):
        return True
    return not spark.catalog.tableExists(name) and is_known(options, name)


def is_known(options: Options, name: str) -> bool:
    """Whether the coordinator keeps a table of this name; a name that sluice cannot have means none."""
    try:
        return catalog_for(options).exists(name)
    except InvalidRequest:
        return False


def location_of(options: Options, name: str) -> str:
    """Where the table of this name is. Raises TableNotFound with Spark's condition, or InvalidName."""
    try:
        return catalog_for(options).locate(name)
    except (TableNotFound, NamespaceNotFound) as missing:
        kind = "SCHEMA_NOT_FOUND" if isinstance(missing, NamespaceNotFound) else "TABLE_OR_VIEW_NOT_FOUND"
        raise type(missing)(missing.message, **{**missing.details, "condition": kind}) from missing


def already_there(name: str) -> TableExists:
    """The refusal to create a table under a name that is taken."""
    return TableExists(
        f"there is a table {name} already: use mode('append'), mode('overwrite') or mode('ignore'), and with writeTo append() or "
        "createOrReplace()",
        name=name,
        condition="TABLE_OR_VIEW_ALREADY_EXISTS",
    )
