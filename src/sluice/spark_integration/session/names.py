"""The format and options that a reader or a writer was given; which formats and names mean tables of sluice, and where these are; the
`spark.catalog` that knows them.

A name may also be a path: sluice.`/a/path`, as Spark writes it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any, Final

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.catalog import Catalog as SparkCatalog
from pyspark.sql.catalog import Table as SparkTable
from pyspark.sql.utils import to_str

from ...storage.errors import InvalidRequest, TableExists, TableNotFound
from ...tables.catalog import Catalog
from ...tables.table import Table
from ..active_session import sparks_catalog
from ..data_source.write_plan import open_table
from ..errors import as_spark_users_know
from ..options import WriteOptions

_NAME: Final = "sluice"
# In a session with this extension "delta" means Delta Lake, in all others sluice.
_DELTA_LAKE: Final = "DeltaSparkSessionExtension"
_BY_PATH: Final = re.compile(r"(?P<format>delta|sluice)\.`(?P<path>(?:[^`]|``)+)`", re.IGNORECASE)


class Options:
    """Options by name, as spelled; as in Spark, case does not count and the last one wins."""

    def __init__(self) -> None:
        self._by_name: dict[str, tuple[str, str]] = {}

    def set(self, name: str, value: Any) -> None:
        """Set an option; None sets nothing."""
        if value is not None:
            self._by_name[name.lower()] = (name, str(to_str(value)))

    def get(self, name: str) -> str | None:
        """The value of an option; None if it was not given."""
        return self._by_name.get(name.lower(), (name, None))[1]

    def but(self, **options: str) -> Options:
        """These options, with others set instead or in addition."""
        changed = Options()
        changed._by_name.update(self._by_name)
        for name, value in options.items():
            changed.set(name, value)
        return changed

    def besides(self, *names: str) -> dict[str, str]:
        """The options of other names than these."""
        left_out = [each.lower() for each in names]
        return {name: value for key, (name, value) in self._by_name.items() if key not in left_out}


class RemembersOptions:
    """In front of one of PySpark's readers or writers: it also remembers the format and the options, which PySpark sends to the JVM."""

    _spark: SparkSession

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._format: str | None = None
        self._options = Options()

    def option(self, key: str, value: Any) -> Any:
        """Like PySpark's."""
        super().option(key, value)  # type: ignore[misc]
        self._options.set(key, value)
        return self

    def options(self, **options: Any) -> Any:
        """Like PySpark's."""
        super().options(**options)  # type: ignore[misc]
        for key, value in options.items():
            self._options.set(key, value)
        return self

    def _is_sluice(self) -> bool:
        """Whether the format, or the session's for those without one, is sluice's."""
        return is_sluice(self._format or default_format(self._spark), self._spark)


class RemembersFormat(RemembersOptions):
    """The same for those whose method `format` names the format."""

    def _take(self, source: str | None, options: Mapping[str, Any], **values: Any) -> None:
        """Take what a last method, such as `load`, was given besides: a format, options, and values by the methods that take them."""
        self.options(**options)
        for method, value in ({"format": source} | values).items():
            if value is not None:
                getattr(self, method)(value)

    def format(self, source: str) -> Any:
        """Like PySpark's."""
        super().format(source)  # type: ignore[misc]
        self._format = source
        return self


def is_sluice(source: str | None, spark: SparkSession) -> bool:
    """Whether a format is sluice's in this session; as in Spark, case does not count. "delta" is, too, unless the session has Delta Lake:
    so a job that names it keeps its text.
    """
    name = (source or "").lower()
    return name == _NAME or (name == "delta" and not has_delta_lake(spark))


def has_delta_lake(spark: SparkSession) -> bool:
    """Whether Delta Lake itself is in the session."""
    return _DELTA_LAKE in (spark.conf.get("spark.sql.extensions", "") or "")


def default_format(spark: SparkSession) -> str | None:
    """The format of reads and writes that name none."""
    return spark.conf.get("spark.sql.sources.default")


# -- names ------------------------------------------------------------------------------------------------------------


def path_in(name: str) -> str | None:
    """The path in sluice.`/a/path` or delta.`/a/path`; None for other names."""
    found = _BY_PATH.fullmatch(name.strip())
    return None if found is None else found["path"].replace("``", "`")


def catalog_for(options: Options) -> Catalog:
    """The catalog of the coordinator that the options name, the session's by default."""
    return Catalog(options.get("coordinator"))


def means_sluice(spark: SparkSession, source: str | None, name: str, options: Options) -> bool:
    """Whether a name belongs to a sluice table, for reading and for adding rows. A format decides, also in sluice.`/a/path`. Without one,
    Spark's own views and tables come first, then the names that the coordinator keeps.
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
    if path is None:
        try:
            return catalog_for(options).exists(name)
        except InvalidRequest:
            return False
    try:
        open_at(path, options)
    except TableNotFound:
        return False
    return True


def open_at(location: str, options: Options) -> Table:
    """The table at a location, opened as the options say. Raises TableNotFound and the like."""
    return open_table(WriteOptions.parse({**options.besides("path"), "path": location}, overwrite=True))


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
        # `*` is any text, `|` is between alternatives, and case does not count
        patterns = [each.strip().lower() for each in ("*" if pattern is None else pattern).split("|")]
        for each in ours:
            name, kind = each.name.lower(), "MANAGED" if each.managed else "EXTERNAL"
            if name not in of_spark and any(fnmatchcase(name, one) for one in patterns):
                theirs.append(SparkTable(each.name, None, [each.namespace], None, kind, isTemporary=False))
        return theirs
