"""Which names mean tables of sluice, and where these are."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from ...storage.errors import InvalidRequest, TableExists
from ...tables.catalog.catalog import Catalog
from ..spark_errors import as_spark_users_know
from .format_and_options import Options, RemembersFormat, default_format, is_sluice

__all__ = ["ReadsTables", "already_there", "catalog_for", "is_known", "location_of", "means_sluice"]


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
    """Where the table of this name is. Raises TableNotFound, NamespaceNotFound, InvalidName."""
    return catalog_for(options).locate(name)


def already_there(name: str) -> TableExists:
    """The refusal to create a table under a name that is taken."""
    return TableExists(
        f"there is a table {name} already: use mode('append'), mode('overwrite') or mode('ignore'), and with writeTo append() or "
        "createOrReplace()",
        name=name,
    )


class ReadsTables(RemembersFormat):
    """In front of one of PySpark's readers, which also finds the tables whose names sluice's coordinator keeps."""

    def table(self, tableName: str) -> DataFrame:  # noqa: N803 - PySpark's name
        """Like PySpark's, also for the names that sluice's coordinator keeps.

        `format("sluice")` means such a name; without a format, Spark's own views and tables come first.
        """
        with as_spark_users_know():
            if means_sluice(self._spark, self._format, tableName, self._options):
                return self._read(location_of(self._options, tableName))
        return super().table(tableName)  # type: ignore[misc,no-any-return]

    def _asks_for_sluice(self, source: str | None, schema: Any, options: Mapping[str, Any]) -> bool:
        """Take what `load` was given; returns whether the format is sluice's."""
        if source is not None:
            self.format(source)
        if schema is not None:
            self.schema(schema)  # type: ignore[attr-defined]
        self.options(**options)
        return self._is_sluice()

    @abstractmethod
    def _read(self, location: str) -> DataFrame:
        """The DataFrame of the table at a location."""
