"""Whose a name is, and where the table is; what is near to a name that nobody knows."""

from __future__ import annotations

import difflib
from typing import Final

from pyspark.sql import SparkSession

from ..delta.places import Place, place_of_path
from ..spark_integration.session.told import default_format, is_sluice
from ..statements.cursor import Name
from ..storage.errors import InvalidRequest, TableNotFound
from ..tables.catalog.catalog import Catalog
from ..tables.table import Table
from .asked import Asked

__all__ = ["catalog_of", "is_spark_table", "known_place", "near", "not_found", "opened", "place_of", "title"]

_DELTA: Final = "DeltaSparkSessionExtension"


def catalog_of(asked: Asked) -> Catalog:
    """The coordinator's names."""
    return Catalog(asked.coordinator, storage_options=asked.options)


def place_of(asked: Asked, name: Name) -> Place | None:
    """Where the table of a name is, if it is one of sluice's; None if the name is Spark's, or nobody's.

    As for `spark.table`, Spark's own views and tables come first, unless sluice is the session's default format.
    """
    if name.path is not None:
        is_delta = name.parts[0].lower() == "delta"
        if is_delta and _DELTA in (asked.spark.conf.get("spark.sql.extensions", "") or ""):
            return None
        return place_of_path(name.path, {}, asked.coordinator, asked.options)
    if len(name.parts) > 2 or (not is_sluice(default_format(asked.spark)) and is_spark_table(asked.spark, name)):
        return None
    return known_place(asked, name)


def is_spark_table(spark: SparkSession, name: Name) -> bool:
    """Whether Spark has a view or a table of this name."""
    return spark.catalog.tableExists(name.quoted)


def known_place(asked: Asked, name: Name) -> Place | None:
    """Where the table is to which the coordinator gives this name; None if it has none."""
    try:
        if not catalog_of(asked).exists(name.quoted):
            return None
        location = catalog_of(asked).locate(name.quoted)
    except InvalidRequest:
        return None
    return Place(location, asked.coordinator, asked.options, title(name))


def opened(place: Place) -> Table:
    """The table there. Raises what `Table.open` does."""
    return Table.open(place.location, coordinator=place.coordinator, storage_options=place.storage_options)


def title(name: Name) -> str:
    """A name as it is shown."""
    return ".".join(name.parts)


def near(asked: Asked, name: Name) -> list[str]:
    """Names of tables that are spelled like this one, the most similar first."""
    if name.path is not None or len(name.parts) > 2:
        return []
    catalog, (table, *_) = catalog_of(asked), (*reversed(name.parts), "")
    known: dict[str, str] = {}
    for each in catalog.namespaces():
        for one in catalog.tables(each.name):
            shown = one.full_name if len(name.parts) > 1 or each.name != "default" else one.name
            known[shown.lower()] = shown
    found = difflib.get_close_matches(title(name).lower(), known, 3, 0.6)
    found += [each for each in known if each.rpartition(".")[2] == table.lower() and each not in found]
    return [known[each] for each in found[:3]]


def not_found(asked: Asked, name: Name) -> TableNotFound:
    """The refusal of a name that nobody knows."""
    similar = near(asked, name)
    hint = f"; did you mean {' or '.join(similar)}?" if similar else "; SHOW TABLES IN a namespace lists what there is"
    return TableNotFound(asked.shown(name, f"there is no table {title(name)}{hint}"), name=title(name))
