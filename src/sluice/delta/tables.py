"""`DeltaTable`: a sluice table with the methods of Delta Lake's Python API, and the builders it hands out."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from pyspark.errors import IllegalArgumentException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from ..spark_integration.active_session import default_storage_options, use_session
from ..spark_integration.errors import as_spark_users_know
from ..spark_integration.rows.analysis import MergeRequest
from ..spark_integration.rows.merge import merge_rows
from ..spark_integration.scan.read import read
from ..spark_integration.schemas import from_spark
from ..spark_integration.session.names import path_in
from ..statements.definitions import Definition, defined
from ..statements.maintenance import RETENTION_CHECK, restored
from ..statements.places import exists, opened
from ..statements.request import NOTHING, Place
from ..statements.showing import detail, history
from ..storage.arguments import checked
from ..storage.errors import InvalidRequest
from ..tables.catalog import Catalog
from ..tables.read.history import commit_infos
from ..tables.table import Table
from ..tables.transaction import Transaction
from ..tables.write.merging import RowCounts
from ..tables.write.terms import ChangeArgs, WriteArgs
from .builders import (
    DeltaMergeBuilder,
    DeltaOptimizeBuilder,
    DeltaTableBuilder,
    IdentityGenerator,
    RowChanges,
    frame,
    milliseconds,
    with_user_metadata,
)

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["DeltaMergeBuilder", "DeltaOptimizeBuilder", "DeltaTable", "DeltaTableBuilder", "IdentityGenerator"]

# So many of the frames that `toDF` gave are remembered: their columns may be used in expressions.
_FRAMES_MAX: Final = 16
_PARQUET: Final = re.compile(r"parquet\.`(?P<path>(?:[^`]|``)+)`", re.IGNORECASE)
_HADOOP: Final = {
    "fs.s3a.access.key": "access_key_id",
    "fs.s3a.secret.key": "secret_access_key",
    "fs.s3a.session.token": "session_token",
    "fs.s3a.endpoint": "endpoint_url",
    "fs.s3a.endpoint.region": "region",
    "fs.s3a.path.style.access": "path_style",
}
_TLS: Final = "fs.s3a.connection.ssl.enabled"


@checked
class DeltaTable(RowChanges):
    """A table that Spark changes and sluice commits; `forPath`, `forName` and the builders make one.

    Methods that commit take, beyond Delta's arguments and by name only: `isolation`, a level stricter than the table's;
    `attempts`, how often the operation is tried, on the new state each time it lost; `key`, any text that identifies this
    operation, or `transaction` = (application id, number), by which it happens once, however often the job runs;
    `if_version`, the version after which it commits, or not at all. Leases that the thread holds apply. Errors are sluice's and, at
    the same time, those that Spark users catch: AnalysisException for what cannot be resolved or is not there, PySparkException for
    conflicts.
    """

    def __init__(self, spark: SparkSession, place: Place, table: Table, alias: str | None = None) -> None:
        super().__init__(spark, alias)
        self._place = place
        self._table = table

    @property
    def table(self) -> Table:
        """The same table without Spark: for transactions over several, leases, changes."""
        return self._table

    # -- making and opening ------------------------------------------------------------------------------------------

    @classmethod
    @as_spark_users_know()
    def forPath(
        cls,
        sparkSession: SparkSession,
        path: str,
        hadoopConf: Mapping[str, str] = {},
        *,
        coordinator: str | None = None,
        storage_options: Mapping[str, str] | None = None,
    ) -> DeltaTable:
        """The table at a path. `hadoopConf` may have the keys of hadoop-aws for an S3 store.

        `coordinator` and `storage_options` default to those given to `sluice.configure`. Raises AnalysisException where there is
        no table, or none of sluice's (`sluice.Table.attach` brings a Delta table in).
        """
        spark = _session(sparkSession)
        place = place_of_path(path, hadoopConf, coordinator, storage_options)
        use_session(spark)
        return cls(spark, place, opened(place))

    @classmethod
    @as_spark_users_know()
    def forName(
        cls,
        sparkSession: SparkSession,
        tableOrViewName: str,
        *,
        coordinator: str | None = None,
        storage_options: Mapping[str, str] | None = None,
    ) -> DeltaTable:
        """The table of that name in the coordinator's catalog; a path as delta.`/a/path`. Raises AnalysisException."""
        spark = _session(sparkSession)
        if (path := path_in(tableOrViewName)) is not None:
            place = place_of_path(path, {}, coordinator, storage_options)
        else:
            options = default_storage_options() if storage_options is None else dict(storage_options)
            place = Place(Catalog(coordinator, storage_options=options).locate(tableOrViewName), coordinator, options, tableOrViewName)
        use_session(spark)
        return cls(spark, place, opened(place))

    @classmethod
    @as_spark_users_know()
    def isDeltaTable(cls, sparkSession: SparkSession, identifier: str, *, storage_options: Mapping[str, str] | None = None) -> bool:
        """Whether there is a Delta table at this path, be it sluice's or not."""
        _session(sparkSession)
        return exists(place_of_path(identifier, {}, None, storage_options))

    @classmethod
    def create(
        cls, sparkSession: SparkSession | None = None, *, coordinator: str | None = None, storage_options: Mapping[str, str] | None = None
    ) -> DeltaTableBuilder[DeltaTable]:
        """Describe a new table; executing it raises AnalysisException if there is one. Without a session it takes the active one."""
        return cls._builder("create", sparkSession, coordinator, storage_options)

    @classmethod
    def createIfNotExists(
        cls, sparkSession: SparkSession | None = None, *, coordinator: str | None = None, storage_options: Mapping[str, str] | None = None
    ) -> DeltaTableBuilder[DeltaTable]:
        """Describe a new table; executing it returns the existing one, unchanged, if there is one."""
        return cls._builder("createIfNotExists", sparkSession, coordinator, storage_options)

    @classmethod
    def replace(
        cls, sparkSession: SparkSession | None = None, *, coordinator: str | None = None, storage_options: Mapping[str, str] | None = None
    ) -> DeltaTableBuilder[DeltaTable]:
        """Describe what an existing table becomes, without rows; executing it raises AnalysisException if there is none."""
        return cls._builder("replace", sparkSession, coordinator, storage_options)

    @classmethod
    def createOrReplace(
        cls, sparkSession: SparkSession | None = None, *, coordinator: str | None = None, storage_options: Mapping[str, str] | None = None
    ) -> DeltaTableBuilder[DeltaTable]:
        """Describe a table that is made, or that an existing one becomes, without rows."""
        return cls._builder("createOrReplace", sparkSession, coordinator, storage_options)

    @classmethod
    @as_spark_users_know()
    def convertToDelta(
        cls,
        sparkSession: SparkSession,
        identifier: str,
        partitionSchema: str | StructType | None = None,
        *,
        coordinator: str | None = None,
        storage_options: Mapping[str, str] | None = None,
    ) -> DeltaTable:
        """Make a folder of Parquet files, given as parquet.`/a/path`, a table in place; no row is read or written.

        `partitionSchema` has the columns of the folders, as a StructType or like "day date, region string". Raises AnalysisException.
        """
        spark = _session(sparkSession)
        folder = _PARQUET.fullmatch(identifier.strip())
        if folder is None:
            raise InvalidRequest(f"{identifier!r} names no folder of Parquet files; write it as parquet.`/a/path`", identifier=identifier)
        place = place_of_path(folder["path"].replace("``", "`"), {}, coordinator, storage_options)
        use_session(spark)
        partitions = StructType.fromDDL(partitionSchema) if isinstance(partitionSchema, str) else partitionSchema
        if partitions is not None and not isinstance(partitions, StructType):
            raise InvalidRequest(f"the partition schema is {partitionSchema!r}; write it like 'day date, region string'")
        table = Table.convert(
            place.location,
            None if partitions is None else from_spark(partitions),
            coordinator=place.coordinator,
            storage_options=place.storage_options,
        )
        return cls(spark, place, table)

    @classmethod
    def _builder(
        cls, how: str, session: SparkSession | None, coordinator: str | None, storage_options: Mapping[str, str] | None
    ) -> DeltaTableBuilder[DeltaTable]:
        spark = _session(SparkSession.getActiveSession() if session is None else session)

        def make(definition: Definition) -> DeltaTable:
            name, location = definition.name, definition.location
            path = None if name is None else path_in(name)
            if path is not None and location is not None and path != location:
                raise InvalidRequest(
                    f"the name {name} and the location {location!r} are different paths; give one of them", location=location
                )
            if path is not None or name is None:
                place = place_of_path(path or location or "", {}, coordinator, storage_options)
                use_session(spark)
                return cls(spark, place, defined(definition, place))
            catalog = Catalog(coordinator, storage_options=default_storage_options() if storage_options is None else storage_options)
            use_session(spark)
            table = defined(definition, catalog)
            return cls(spark, Place(table.location, coordinator, table.access.address.storage_options, name), table)

        return DeltaTableBuilder(spark, how, make)

    # -- reading -----------------------------------------------------------------------------------------------------

    @as_spark_users_know()
    def toDF(self) -> DataFrame:
        """The latest version as a DataFrame, which keeps that version whatever is committed later.

        Its columns may be used in the conditions and assignments of this DeltaTable, as in `table.toDF()["id"] == updates["id"]`.
        """
        place = self._place
        rows = read(self._spark, place.location, coordinator=place.coordinator, storage_options=place.storage_options)
        rows = rows if self._alias is None else rows.alias(self._alias)
        self._frames.append(rows)
        del self._frames[:-_FRAMES_MAX]
        return rows

    def alias(self, aliasName: str) -> DeltaTable:
        """The same table under a name that conditions and assignments may use."""
        same = DeltaTable(self._spark, self._place, self._table, aliasName)
        same._frames = self._frames
        return same

    @as_spark_users_know()
    def history(self, limit: int | None = None) -> DataFrame:
        """The latest `limit` versions, newest first, with Delta's columns.

        Transactions that share a version are in `sluice.Table.history`, one by one. The history ends where the log was cleaned up.
        """
        return frame(self._spark, history(commit_infos(self._table.access, limit)))

    @as_spark_users_know()
    def detail(self) -> DataFrame:
        """One row that describes the latest version: format, location, size, properties, protocol and others."""
        return frame(self._spark, detail(self._table, self._place.name))

    # -- reorganising ------------------------------------------------------------------------------------------------

    def optimize(self, **terms: Unpack[ChangeArgs]) -> DeltaOptimizeBuilder:
        """Rewrite files as fewer, larger or ordered ones; the builder says which and how. With `if_version` nothing may come between that
        version and the commits.
        """
        return DeltaOptimizeBuilder(self._spark, self._table, terms)

    @as_spark_users_know(IllegalArgumentException)
    def vacuum(self, retentionHours: float | None = None, *, force: bool = False) -> DataFrame:
        """Delete files that no version within retention needs, as `sluice.Table.vacuum` does. Returns an empty DataFrame.

        A time shorter than the table's own (7 days by default) is refused (IllegalArgumentException) without `force`, or Delta's
        setting spark.databricks.delta.retentionDurationCheck.enabled = false.
        """
        force = force or str(self._spark.conf.get(RETENTION_CHECK, "true")).lower() == "false"
        self._table.vacuum(None if retentionHours is None else float(retentionHours), force=force)
        return frame(self._spark, NOTHING)

    # -- going back, copying, features -------------------------------------------------------------------------------

    @as_spark_users_know()
    def restoreToVersion(self, version: int, **terms: Unpack[ChangeArgs]) -> DataFrame:
        """Make the table what it was at a version, with `if_version` only as the version after that one. Returns one row: sizes and
        numbers of files.

        Raises AnalysisException for a version that is not there, MissingObject if files of it are gone.
        """
        return frame(self._spark, restored(self._table, self._table.restore(version, **with_user_metadata(self._spark, terms))))

    @as_spark_users_know()
    def restoreToTimestamp(self, timestamp: str, **terms: Unpack[ChangeArgs]) -> DataFrame:
        """Make the table what it was at a time, yyyy-MM-dd or yyyy-MM-dd HH:mm:ss in the session's time zone; as `restoreToVersion`."""
        at = milliseconds(self._spark, timestamp)
        return frame(self._spark, restored(self._table, self._table.restore(timestamp=at, **with_user_metadata(self._spark, terms))))

    def clone(self, target: str, isShallow: bool = False, replace: bool = False, properties: dict[str, str] | None = None) -> DeltaTable:
        """Make a table with the rows of the latest version, which shares its files if `isShallow`, and else has copies (`Table.clone`).

        `target` is a path, or the name of a table. Raises AnalysisException for a table there, unless `replace`.
        """
        return self._cloned(target, isShallow, replace, properties)

    def cloneAtVersion(
        self, version: int, target: str, isShallow: bool = False, replace: bool = False, properties: dict[str, str] | None = None
    ) -> DeltaTable:
        """Like `clone`, with the rows of a version."""
        return self._cloned(target, isShallow, replace, properties, version=version)

    def cloneAtTimestamp(
        self, timestamp: str, target: str, isShallow: bool = False, replace: bool = False, properties: dict[str, str] | None = None
    ) -> DeltaTable:
        """Like `clone`, with the rows of the version of a time, in the session's time zone."""
        return self._cloned(target, isShallow, replace, properties, timestamp=timestamp)

    @as_spark_users_know()
    def generate(self, mode: str) -> None:
        """Write manifests for engines that read files by lists: `mode` is "symlink_format_manifest", in any case of letters."""
        self._table.generate(mode.lower())

    @as_spark_users_know()
    def upgradeTableProtocol(self, readerVersion: int, writerVersion: int, **terms: Unpack[ChangeArgs]) -> None:
        """Raise the table's protocol to at least these versions, 3 and 7 at most; nothing is ever lowered."""
        self._table.upgrade_protocol(readerVersion, writerVersion, **with_user_metadata(self._spark, terms))

    @as_spark_users_know()
    def addFeatureSupport(self, featureName: str, **terms: Unpack[ChangeArgs]) -> None:
        """Add a feature to the table's protocol. Raises AnalysisException for one that sluice does not implement."""
        self._table.add_feature(featureName, **with_user_metadata(self._spark, terms))

    @as_spark_users_know()
    def dropFeatureSupport(self, featureName: str, truncateHistory: bool | None = None, **terms: Unpack[ChangeArgs]) -> None:
        """Take a feature out of the table's protocol; see `sluice.Table.drop_feature`. Raises AnalysisException."""
        cut = {"truncate_history": bool(truncateHistory), **with_user_metadata(self._spark, terms)}
        if self._table.drop_feature(featureName, **cut) is None:
            had = ", ".join(self._table.detail().features)
            raise InvalidRequest(f"the table has no feature {featureName!r}; it has {had}", feature=featureName)

    @as_spark_users_know()
    def _cloned(
        self,
        target: str,
        shallow: bool,
        over: bool,
        properties: dict[str, str] | None,
        *,
        version: int | None = None,
        timestamp: str | None = None,
    ) -> DeltaTable:
        at = None if timestamp is None else milliseconds(self._spark, timestamp)
        place = self._place
        if "/" in target:
            to = place_of_path(target, {}, place.coordinator, place.storage_options)
            made = self._table.clone(target, version, at, deep=not shallow, replace=over, properties=properties)
            return DeltaTable(self._spark, to, made)
        catalog = Catalog(place.coordinator, storage_options=place.storage_options)
        made = catalog.clone(self._table, target, version, at, deep=not shallow, replace=over, properties=properties)
        return DeltaTable(self._spark, Place(made.location, place.coordinator, place.storage_options, target), made)

    def _counts(self, request: MergeRequest, attempts: int, terms: WriteArgs) -> RowCounts | None:
        def work(part: Transaction) -> RowCounts | None:
            return None if part.repeated() is not None else merge_rows(part, self._spark, request)

        return self._table.transact(work, attempts=attempts, **with_user_metadata(self._spark, terms))


def _session(spark: SparkSession | None) -> SparkSession:
    """The session. Raises AssertionError, as Delta does, if there is none."""
    if spark is None:
        raise AssertionError("there is no SparkSession: give one, or make one active")
    return spark


# -- where a table is: by path, with Hadoop's options for the store, or by name ------------------------------------------------


def place_of_path(
    path: str, hadoop_conf: Mapping[str, str], coordinator: str | None = None, storage_options: Mapping[str, str] | None = None
) -> Place:
    """The place of a path. Raises InvalidRequest for an option of Hadoop's that has no counterpart."""
    if not isinstance(path, str):
        raise InvalidRequest(f"the path is {path!r} of {type(path)}; give a text", path=path)
    hadoop_options: dict[str, str] = {}
    for key, value in hadoop_conf.items():
        if key == _TLS:
            continue
        if key not in _HADOOP:
            raise InvalidRequest(
                f"the option {key!r} of hadoopConf means nothing here: sluice reaches the store itself; it takes {', '.join(_HADOOP)} and "
                f"{_TLS}, or storage_options=",
                option=key,
            )
        hadoop_options[_HADOOP[key]] = value
    endpoint = hadoop_options.get("endpoint_url")
    if endpoint is not None and "://" not in endpoint:
        hadoop_options["endpoint_url"] = ("http://" if hadoop_conf.get(_TLS) == "false" else "https://") + endpoint
    options = default_storage_options() if storage_options is None else dict(storage_options)
    return Place(path, coordinator, {**options, **hadoop_options})
