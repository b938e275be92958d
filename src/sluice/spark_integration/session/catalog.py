"""`spark.catalog` of a routed session: it also knows the tables whose names sluice's coordinator keeps."""

from __future__ import annotations

from fnmatch import fnmatchcase

from pyspark.errors import AnalysisException
from pyspark.sql.catalog import Catalog, Table

from ...storage.errors import InvalidRequest
from ...tables.catalog.entries import NamedTable
from ..errors import as_spark_users_know
from .format_and_options import Options
from .known_tables import catalog_for, is_known


class SessionCatalog(Catalog):
    """PySpark's catalog; its `tableExists` and `listTables` know the names of sluice's tables, too."""

    def tableExists(self, tableName: str, dbName: str | None = None) -> bool:  # noqa: N802, N803 - PySpark's names
        """Like PySpark's, also for the names that sluice's coordinator keeps, and for sluice.`/a/path`."""
        with as_spark_users_know():
            return super().tableExists(tableName, dbName) or is_known(Options(), tableName if dbName is None else f"{dbName}.{tableName}")

    def listTables(self, dbName: str | None = None, pattern: str | None = None) -> list[Table]:  # noqa: N802, N803 - PySpark's names
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
        return [*theirs, *(_table(each) for each in ours if each.name.lower() not in of_spark and _matches(each.name, pattern))]


def _table(named: NamedTable) -> Table:
    return Table(named.name, None, [named.namespace], None, "MANAGED" if named.managed else "EXTERNAL", isTemporary=False)


def _matches(name: str, pattern: str | None) -> bool:
    """Whether a name has a pattern of Spark's: `*` is any text, `|` is between alternatives, and case does not count."""
    return pattern is None or any(fnmatchcase(name.lower(), each.strip().lower()) for each in pattern.split("|"))
