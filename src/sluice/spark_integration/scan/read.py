"""`sluice.read`: a version of a table as a DataFrame, through Spark's own Parquet scan if possible.

Spark's scan is faster than any Python data source, prunes columns, and pushes every filter into the files; the files that a query's
conditions leave, it gets when it plans the query. If the JVM cannot reach the object store, the data source reads instead; the rows are
the same.
"""

from __future__ import annotations

import logging
import os
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, TypedDict

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.readwriter import DataFrameReader
from pyspark.sql.types import StructType as SparkStruct

from ...coordinator.api import DEFAULT_TIMEOUT_S, bounding
from ...storage.actions.features import RowIdColumns
from ...storage.arguments import checked
from ...storage.caches import ForkSafeLock
from ...storage.errors import SluiceError, UnsupportedFeature
from ...storage.expressions.nodes import Call, Cast, children, walk
from ...storage.log.snapshot import Snapshot
from ...storage.pruning.predicate import Predicate
from ...storage.schema.schema import StructType
from ...storage.stores.location import open_store
from ...storage.stores.objects import ObjectStore
from ...tables.client.address import TableAddress
from ...tables.client.open_table import ReadTable, kept_open, open_table
from ...tables.client.published_table import PublishedTable
from ...tables.read.table_snapshot import TableSnapshot, asked_version, snapshot_of
from ..active_session import default_storage_options, use_session, when_stopped
from ..jvm import column_named, named
from ..option_tables import parse_timestamp
from ..schemas import requested, to_spark
from .file_index import Layout, deleted_rows
from .file_rows import rows_of_files, why_not_native

if TYPE_CHECKING:
    from typing_extensions import Unpack

_log = logging.getLogger(__name__)

_IN_MEMORY: Final = "memory://"
_UTC: Final = frozenset({"UTC", "ETC/UTC", "GMT", "Z", "UCT", "ZULU", "UNIVERSAL"})


class ReadArgs(TypedDict, total=False):
    """How a table is reached, and how fresh its latest version is."""

    coordinator: str | None
    storage_options: Mapping[str, str] | None
    """Of the object store; None: those given to `configure`."""
    consistency: str
    """"latest" (the default), "published", "serial" or "session", as for `Table.open`."""


@checked
def read(
    spark: SparkSession,
    location: str | os.PathLike[str],
    version: int | None = None,
    timestamp: int | str | None = None,
    columns: Sequence[str] | SparkStruct | None = None,
    where: str | None = None,
    *,
    row_ids: bool = False,
    **reaching: Unpack[ReadArgs],
) -> DataFrame:
    """Read one version of a table: the latest, or the one with a number or at a time (ms since the epoch, or UTC text).

    The DataFrame keeps that version, whatever is committed later. `columns` are names, or a schema that chooses some. `where` is a
    condition in SQL with UTC as its time zone; as for conditions of the DataFrame, files that cannot satisfy it are not read.
    `storage_options` default to those given to `configure`. `row_ids` adds the columns `_row_id` and `_row_commit_version`, as
    `TableSnapshot.to_arrow` does. Raises the errors of `Table.open` and `Table.snapshot`, PredicateError, SchemaMismatch;
    UnsupportedFeature, where Spark itself cannot read the files, for `row_ids` and for a coordinator in memory. MissingObject is raised
    when the DataFrame is used.
    """
    use_session(spark)
    coordinator, given, consistency = reaching.get("coordinator"), reaching.get("storage_options"), reaching.get("consistency", "latest")
    options = default_storage_options() if given is None else dict(given)
    address = TableAddress.of(location, coordinator, options)
    with bounding(DEFAULT_TIMEOUT_S):
        table: ReadTable
        table = kept_open(address) if consistency == "latest" else open_table(address, None, consistency, partial(_latest_in_log, address))
    number = asked_version(table.store, version, parse_timestamp("timestampAsOf", timestamp) if isinstance(timestamp, str) else timestamp)
    if number is None and isinstance(table, PublishedTable):
        snapshot = TableSnapshot(table.store, table.current())  # its log was read just now
    else:
        snapshot = snapshot_of(table, number, timeout_s=DEFAULT_TIMEOUT_S)
    terms = {"consistency": consistency} | ({} if coordinator is None else {"coordinator": coordinator})
    chosen = version is not None or timestamp is not None
    return read_snapshot(spark, snapshot, options, columns, where, terms, row_ids=row_ids, chosen=chosen)


_LOGS_KEPT: Final = 8
_LOGS_BYTES_MAX: Final = 256 << 20
"""The memory for the versions kept besides the newest one."""
_SAME_TIME_MS: Final = 5_000
_logs: Final[OrderedDict[tuple[object, ...], Snapshot]] = OrderedDict()
_logs_lock: Final = ForkSafeLock()


def _latest_in_log(address: TableAddress, store: ObjectStore) -> Snapshot:
    """The latest version in the log. What a load before read of it is not read again, if the log still has that version's file.

    A store may tell times in whole seconds, so that another table's file at this place, with the same size, could have the same time:
    then a version is kept only once its time is over.
    """
    place = (os.getpid(), address.location, *sorted(address.storage_options.items()))
    snapshot: Snapshot | None = None
    with suppress(SluiceError):  # reading anew says what is wrong
        at_hand = _logs.get(place)
        snapshot = None if at_hand is None else at_hand.refresh(store)
    snapshot = snapshot or Snapshot.load(store)
    file = snapshot.commit_file
    with _logs_lock:
        _logs.pop(place, None)
        if file is not None and (file.modified_ms % 1_000 or time.time() * 1_000 - file.modified_ms > _SAME_TIME_MS):
            _logs[place] = snapshot
        while len(_logs) > _LOGS_KEPT or sum(sum(each.held.values()) for each in list(_logs.values())[:-1]) > _LOGS_BYTES_MAX:
            _logs.popitem(last=False)
    return snapshot


@when_stopped
def _forget_logs() -> None:
    with _logs_lock:
        _logs.clear()


def read_snapshot(
    spark: SparkSession,
    snapshot: TableSnapshot,
    options: Mapping[str, str],
    columns: Sequence[str] | SparkStruct | None = None,
    where: str | None = None,
    told: Mapping[str, str] | None = None,
    *,
    row_ids: bool = False,
    chosen: bool = False,
) -> DataFrame:
    """The rows of a snapshot; the arguments are those of `read`.

    `options` are those of the store, `told` the coordinator and the reading level for the data source, if it has to read.
    `chosen`: the reader named this version; otherwise it is the latest one, and what is written to the table from these rows depends
    on them.
    """
    location, columns_to_read = snapshot.raw.location, _wanted(snapshot.struct, columns)
    ids = RowIdColumns.to_show(snapshot.raw.metadata, snapshot.raw.protocol, snapshot.struct) if row_ids else None
    shown = {(snapshot.struct.get(each.name) or each).name: each.name for each in columns_to_read.fields}
    if ids is not None:
        shown |= dict(zip(ids.names, ids.shown(ids.names), strict=True))
    predicate = snapshot.predicate(where)
    frame = _by_spark(spark, snapshot, options, predicate, ids, chosen=chosen)
    if isinstance(frame, str):
        if ids is not None:
            raise UnsupportedFeature(
                f"row_ids=True needs Spark's own scan, and {location} cannot be read by it: {frame}; read the ids with "
                "sluice.Table.snapshot().to_arrow(row_ids=True)",
                features=["rowTracking"],
                access="read",
            )
        coordinator = (told or {}).get("coordinator")
        if coordinator is not None and coordinator.startswith(_IN_MEMORY):
            raise UnsupportedFeature(
                f"{location} cannot be read by Spark's own scan: {frame}. The data source would read it in other processes, and "
                f"the coordinator {coordinator} is in this one's memory; use embedded:// or zk://, or read with sluice.Table.snapshot()",
                features=["memory coordinator"],
                access="read",
            )
        _log.info("%s is read through the data source: %s", location, frame)
        reader_options = {**(told or {}), "versionAsOf" if chosen else "loadedVersion": str(snapshot.version)}
        reader_options |= {f"s3.{name}": text for name, text in options.items()} | ({} if where is None else {"where": where})
        reader = DataFrameReader(spark) if hasattr(spark, "_jsparkSession") else spark.read  # a session of sluice reads with this function
        return reader.format("sluice").options(**reader_options).schema(to_spark(columns_to_read)).load(location)
    if predicate is not None:
        frame = frame.where(predicate.to_sql())
    if ids is None and list(shown.items()) == [(name, name) for name in snapshot.struct.names]:
        return frame
    return frame.select(*[named(column_named(spark, name), as_shown) for name, as_shown in shown.items()])


def _wanted(schema: StructType, columns: Sequence[str] | SparkStruct | None) -> StructType:
    if columns is None:
        return schema
    if isinstance(columns, SparkStruct):
        return requested(columns, schema)
    return StructType([schema.named(name) for name in columns])


def _by_spark(
    spark: SparkSession,
    snapshot: TableSnapshot,
    options: Mapping[str, str],
    predicate: Predicate | None,
    ids: RowIdColumns | None,
    *,
    chosen: bool,
) -> DataFrame | str:
    """The rows of a snapshot through Spark's own scan, or the reason why it cannot read them."""
    raw = snapshot.raw
    reason = why_not_native(spark, raw.location, options, snapshot.struct)
    if reason is None and predicate is not None:
        # literals of times name their zone, and other parts of the condition have another value in another one
        moved = (part for part in walk(predicate.root) if isinstance(part, (Call, Cast)))
        zone = str(spark.conf.get("spark.sql.session.timeZone"))
        if zone.upper() not in _UTC and any(pa.types.is_timestamp(each.type) for part in moved for each in (part, *children(part))):
            reason = f"the condition's times are in UTC, the session's in {zone}"
    if reason is not None:
        return reason  # the list of files may be long: if the data source will read it, it is not read here
    partitions = tuple(snapshot.partition_columns)
    layout = Layout(raw.location, options, snapshot.struct, partitions, snapshot.version, ids, raw.metadata.id, chosen)
    files = raw.files
    has_vectors = files["deletion_vector"].null_count < files.num_rows
    lost = partial(deleted_rows, open_store(layout.location, layout.storage_options)) if has_vectors else None
    return rows_of_files(spark, layout, files, lost)
