"""Which names mean tables of sluice, and where these are; the `spark.catalog` that knows them.

A name may also be a path: sluice.`/a/path`, as Spark writes it.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any, Final

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.catalog import Catalog as SparkCatalog
from pyspark.sql.catalog import Table as SparkTable

from ...storage.errors import InvalidRequest, TableExists, TableNotFound
from ...tables.catalog import Catalog
from ..active_session import sparks_catalog
from ..errors import as_spark_users_know
from .format_and_options import Options, RemembersFormat, default_format, is_sluice
from .saving import open_at

_BY_PATH: Final = re.compile(r"(?P<format>delta|sluice)\.`(?P<path>(?:[^`]|``)+)`", re.IGNORECASE)


def path_in(name: str) -> str | None:
    """The path in sluice.`/a/path` or delta.`/a/path`; None for other names."""
    found = _BY_PATH.fullmatch(name.strip())
    return None if found is None else found["path"].replace("``", "`")


def catalog_for(options: Options) -> Catalog:
    """The catalog of the coordinator that the options name, the session's by default."""
    return Catalog(options.get("coordinator"))


def means_sluice(spark: SparkSession, source: str | None, name: str, options: Options) -> bool:
    """Whether a name belongs to a sluice table, for reading and for adding rows.

    A format decides, also in sluice.`/a/path`. Without one, Spark's own views and tables come first, then the names that the
    coordinator keeps.
    """
    if source is not None:
        return is_sluice(source, spark)
    found = _BY_PATH.fullmatch(name.strip())
    if found is not None:
        return is_sluice(found["format"], spark)
    if is_sluice(default_format(spark), spark):
        return True
    return not sparks_catalog(spark).tableExists(name) and is_known(options, name)


def is_known(options: Options, name: str) -> bool:
    """Whether the coordinator keeps a table of this name, or there is one at its path; a name that sluice cannot have means none."""
    path = path_in(name)
    if path is not None:
        return _is_there(path, options)
    try:
        return catalog_for(options).exists(name)
    except InvalidRequest:
        return False


def _is_there(path: str, options: Options) -> bool:
    try:
        open_at(path, options)
    except TableNotFound:
        return False
    return True


def location_of(options: Options, name: str) -> str:
    """Where the table of this name is. Raises TableNotFound, NamespaceNotFound, InvalidName."""
    return path_in(name) or catalog_for(options).locate(name)


def place_of_new(options: Options, name: str) -> tuple[str, str | None, bool]:
    """Where a new table goes, the name that it gets (None at a path), and whether the catalog chose its place. Raises InvalidRequest."""
    path, place = path_in(name), options.get("path")
    if path is not None and place not in (None, path):
        raise InvalidRequest(f"the name {name} and the option path, {place!r}, are different paths; give one of them", option="path")
    if path is not None:
        return path, None, False
    return (catalog_for(options).new_location(name), name, True) if place is None else (place, name, False)


def already_there(name: str) -> TableExists:
    """The refusal to create a table under a name that is taken."""
    return TableExists(
        f"a table {name} already exists: use mode('append'), mode('overwrite') or mode('ignore'), and with writeTo append() or "
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


class SessionCatalog(SparkCatalog):
    """PySpark's catalog; its `tableExists` and `listTables` know the names of sluice's tables, too."""

    def tableExists(self, tableName: str, dbName: str | None = None) -> bool:  # noqa: N802, N803 - PySpark's names
        """Like PySpark's, also for the names that sluice's coordinator keeps, and for sluice.`/a/path`."""
        with as_spark_users_know():
            return super().tableExists(tableName, dbName) or is_known(Options(), tableName if dbName is None else f"{dbName}.{tableName}")

    def listTables(self, dbName: str | None = None, pattern: str | None = None) -> list[SparkTable]:  # noqa: N802, N803 - PySpark's names
        """Like PySpark's, with the tables that sluice's coordinator keeps in the namespace of this name."""
        namespace = self.currentDatabase() if dbName is None else dbName
        with as_spark_users_know():
            try:
                ours = catalog_for(Options()).tables(namespace)
            except InvalidRequest:  # the coordinator has no such namespace
                return super().listTables(dbName, pattern)
        try:
            theirs = super().listTables(dbName, pattern)
        except AnalysisException as error:
            if error.getCondition() != "SCHEMA_NOT_FOUND":
                raise
            theirs = []
        of_spark = {each.name.lower() for each in theirs}
        named = [each for each in ours if each.name.lower() not in of_spark and _matches(each.name, pattern)]
        return theirs + [
            SparkTable(each.name, None, [each.namespace], None, "MANAGED" if each.managed else "EXTERNAL", isTemporary=False)
            for each in named
        ]


def _matches(name: str, pattern: str | None) -> bool:
    """Whether a name has a pattern of Spark's: `*` is any text, `|` is between alternatives, and case does not count."""
    return pattern is None or any(fnmatchcase(name.lower(), each.strip().lower()) for each in pattern.split("|"))
