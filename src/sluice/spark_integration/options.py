"""The options of `format("sluice")`, parsed from texts.

==============================  ============================================================================================
both ways
``path``                        the table's location; the argument of `load` and `save`. Reading, `path@v3` is its version 3, and
                                `path@20260131120000000` (yyyyMMddHHmmssSSS) the version of that time, unless that path exists
``coordinator``                 `zk://...` or `embedded://`; defaults to SLUICE_COORDINATOR, then `embedded://`
``application``                 the job's name in the table's history; defaults to SLUICE_APPLICATION, then `pyspark`
``s3.<name>`` or ``<name>``     an option of the object store, such as `s3.endpoint_url` (see `storage.stores.s3_options`);
                                defaults come from SLUICE_STORAGE_OPTIONS, a JSON object that `sluice.configure` sets
reading
``versionAsOf``                 read the version with this number
``loadedVersion``               set by sluice's own sessions: the version that was the latest one when the DataFrame was made
``timestampAsOf``               read the version that was current then: milliseconds since the epoch, or `2026-01-31`,
                                `2026-01-31 13:00:00`, `2026-01-31T13:00:00.5Z`; UTC unless a zone is given
``consistency``                 "latest" (default): includes every commit acknowledged to anybody; "serial": also everything
                                queued; "session": without the round trip of "latest"; "published": any Delta table,
                                without the coordinator
``readChangeFeed``              "true" reads what versions inserted and deleted, with `_change_type`, `_commit_version` and
                                `_commit_timestamp`; needs one of the next two options
``startingVersion``,            the first version whose changes are read, by number or time; includes all later ones
``startingTimestamp``
``endingVersion``,              the last one, likewise; the latest version by default
``endingTimestamp``
``where``                       a condition in SQL; unlike filters of the DataFrame it may contain OR and still skip files
writing
``partitionBy``                 the partition columns of a new table: `a,b`, or a JSON list; an existing table must have the same
``clusterBy``                   likewise the columns by which the table is clustered: `a,b.c`, or a JSON list
``maxRecordsPerFile``           the maximum rows of one file; no limit by default
``compression``                 the codec of the files: zstd, snappy, gzip, lz4, none; by default the session's
                                `spark.sql.parquet.compression.codec` if it was set, else zstd
``optimizeWrite``               "true" shuffles the rows by partition before they are written, into few files; by default the
                                session's `spark.databricks.delta.optimizeWrite.enabled`, else the table's property, decides
``properties``                  properties of a new table, a JSON object; an existing table must have the same
``delta.<name>``,               likewise one property, as in `option("delta.appendOnly", "true")`
``sluice.<name>``
``allowNonEmpty``               "true" creates a table in a folder with other files
``mergeSchema``                 "true" adds columns that the table lacks
``overwriteSchema``             with mode overwrite: "true" replaces the table's schema, and its partitioning if `partitionBy` says so
``userMetadata``                a text that the history shows with the commit
``replaceWhere``                with mode overwrite: the rows to replace, a condition in SQL
``partitionOverwriteMode``      with mode overwrite: "dynamic" replaces the partitions of the new rows; "static" is usual
``readVersion``                 the version the rows were computed from. With mode overwrite, rows added by others later stay;
                                an append is refused if others changed the rows of that version
``readWhere``                   with mode append and readVersion: only rows that satisfy this condition were read
``ifVersion``                   the write is committed only as the very next version after this one
``isolation``                   "Serializable", or another level stricter than the table's, for this write
``lease``                       the `reference` of a lease that the driver holds: the write is committed only while it is held
``idempotencyKey``              write once: a text that identifies this write; a restarted job passes the same one
``txnAppId``, ``txnVersion``    write once: skipped if this application id has already written this number or a higher one
``ack``                         "published" (default) or "ratified": when the write returns
``commitTimeout``               maximum seconds for the commit
==============================  ============================================================================================

Names ignore case, since Spark loses it. Conditions are SQL as in `storage.pruning.predicate`, with UTC as the time zone.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import field, fields, replace
from datetime import datetime, timezone
from difflib import get_close_matches
from typing import Any, Final

import pyarrow as pa

from ..coordinator.limits import DEFAULT_TIMEOUT_S
from ..coordinator.nodes.lease_places import Place
from ..storage.arguments import RULES
from ..storage.dataclass import dataclass
from ..storage.errors import InvalidRequest, PredicateError
from ..storage.expressions.values import parse_text
from ..storage.stores.s3_options import S3Options
from ..tables.client.address import TableAddress, version_of_path
from ..tables.write.write_once import application_transaction

STORAGE_OPTIONS_VARIABLE: Final = "SLUICE_STORAGE_OPTIONS"

_COMMON: Final = ("path", "coordinator", "application")
_CHANGES: Final = ("startingVersion", "startingTimestamp", "endingVersion", "endingTimestamp")
READING: Final = ("versionAsOf", "loadedVersion", "timestampAsOf", "consistency", "where", "readChangeFeed", *_CHANGES)
STREAMING: Final = (
    "maxFilesPerTrigger",
    "maxBytesPerTrigger",
    "ignoreDeletes",
    "ignoreChanges",
    "skipChangeCommits",
    "excludeRegex",
    "failOnDataLoss",
    "withEventTimeOrder",
    "eventTimeColumn",
    "pollInterval",
    "schemaTrackingLocation",
)
"""Options of `readStream` alone; `stream_options` has the others."""
WRITING: Final = (
    "clusterBy",
    "partitionBy",
    "properties",
    "allowNonEmpty",
    "mergeSchema",
    "maxRecordsPerFile",
    "compression",
    "optimizeWrite",
    "overwriteSchema",
    "userMetadata",
    "replaceWhere",
    "partitionOverwriteMode",
    "readVersion",
    "readWhere",
    "ifVersion",
    "isolation",
    "lease",
    "idempotencyKey",
    "txnAppId",
    "txnVersion",
    "ack",
    "commitTimeout",
)
_CODECS: Final = {
    "zstd": "zstd",
    "snappy": "snappy",
    "gzip": "gzip",
    "lz4": "lz4",
    "lz4_raw": "lz4",
    "none": "none",
    "uncompressed": "none",
}
"""Spark's names of codecs, and Arrow's. Parquet's older lz4, which not every reader knows, is never written. Spark cannot write its lzo
and brotli without other jars."""
_NUMBERED: Final = "whose batches have their own numbers"
_WHOLE: Final = "which replaces the whole table with outputMode('complete'), and otherwise nothing"
_NOT_IN_STREAMS: Final = {
    **dict.fromkeys(("idempotencyKey", "txnAppId", "txnVersion", "readVersion", "readWhere", "ifVersion"), _NUMBERED),
    **dict.fromkeys(("replaceWhere", "partitionOverwriteMode", "overwriteSchema"), _WHOLE),
}
_MERGE: Final = "DeltaTable.merge replaces rows by their keys, and replaceWhere those that satisfy a condition"
_ONCE: Final = "a stream with schemaTrackingLocation stops once where the schema changes, and goes on when it is started again"
NOT_OURS: Final = {
    "dataChange": "DeltaTable.optimize and Table.compact rewrite files and tell streams that no row changed",
    **dict.fromkeys(("replaceOn", "replaceUsing", "targetAlias"), _MERGE),
    "readChangeData": "its name is readChangeFeed",
    "schemaLocation": "its name is schemaTrackingLocation",
    "ignoreFileDeletion": "ignoreDeletes passes over deletes, and ignoreChanges reads changed files again",
    **dict.fromkeys(("allowSourceColumnDrop", "allowSourceColumnRename", "allowSourceColumnTypeChange"), _ONCE),
    "streamingSourceTrackingId": "give each stream a schemaTrackingLocation of its own",
    "parquet.writer.version": "sluice writes Parquet files that every reader knows",
    "writePartitionColumns": "partition values are in the log and in the folders",
}
"""Options of Delta Lake that sluice refuses, and what does instead."""
_CAPITAL: Final = re.compile("([A-Z])")
_PROPERTIES: Final = ("delta.", "sluice.")
_STORAGE: Final = tuple(each.name for each in fields(S3Options))
_STORAGE_PREFIX: Final = "s3."


def _nothing() -> dict[str, str]:
    return {}


def _utc(digits: str) -> int:
    """Milliseconds since the epoch of a time in UTC, yyyyMMddHHmmssSSS. Raises InvalidRequest."""
    try:
        moment = datetime.strptime(digits, "%Y%m%d%H%M%S%f").replace(tzinfo=timezone.utc)
    except ValueError as cause:
        raise InvalidRequest(f"the path names the time @{digits}, which is none: write it as yyyyMMddHHmmssSSS", option="path") from cause
    return round(moment.timestamp() * 1000)


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The options of a read."""

    address: TableAddress
    version: int | None = None
    timestamp_ms: int | None = None
    consistency: str = "latest"
    where: str | None = None
    changes: ChangesOptions | None = None

    @staticmethod
    def parse(options: Mapping[str, str], *, time_of: Callable[[str], int] = _utc) -> ReadOptions:
        """From Spark's texts. Raises InvalidRequest, naming the option and its allowed values.

        `time_of` gives the time, in ms since the epoch, that a path names as yyyyMMddHHmmssSSS.
        """
        only = {name.lower(): name for name in STREAMING}
        for name in options:
            if name.lower() in only:
                told = only[name.lower()]
                raise InvalidRequest(f"the option {told} is for streams: read with spark.readStream, or leave it out", option=told)
        texts = Texts(options, READING, "reading", WRITING)
        if "versionAsOf" in texts and "timestampAsOf" in texts:
            raise InvalidRequest("versionAsOf and timestampAsOf were given; give one of them")
        version = texts.number("versionAsOf")
        timestamp_ms = parse_timestamp(texts["timestampAsOf"]) if "timestampAsOf" in texts else None
        named = version_of_path(texts.get("path") or "", texts.storage)
        if named is not None:
            given = next((name for name in ("versionAsOf", "timestampAsOf", "readChangeFeed") if name in texts), None)
            if given is not None:
                raise InvalidRequest(f"the path {texts['path']} names a version, and {given} was given: give one of them", option=given)
            texts.set_path(named.path)
            version, timestamp_ms = named.version, None if named.time is None else time_of(named.time)
        if version is None and timestamp_ms is None:
            version = texts.number("loadedVersion")
        return ReadOptions(
            texts.address(),
            version,
            timestamp_ms,
            texts.choice("consistency", "latest", "published", "serial", "session"),
            texts.get("where"),
            ChangesOptions.parse(texts),
        )


@dataclass(frozen=True, slots=True)
class ChangesOptions:
    """The changes to read: those of (after, up_to], versions or, `by` "timestamp", ms since the epoch; None: up to the latest."""

    after: int
    up_to: int | None
    by: str

    @staticmethod
    def parse(texts: Texts) -> ChangesOptions | None:
        """From the options, whose bounds are inclusive; None if no changes are requested."""
        given = [name for name in _CHANGES if name in texts]
        if texts.choice("readChangeFeed", "false", "true") == "false":
            if given:
                raise InvalidRequest(f"{given[0]} was given without readChangeFeed=true; give both, or neither", option=given[0])
            return None
        for name in ("versionAsOf", "timestampAsOf"):
            if name in texts:
                raise InvalidRequest(f"readChangeFeed and {name} were given; give startingVersion and endingVersion", option=name)
        unit = "Timestamp" if "startingTimestamp" in texts else "Version"
        other = "Version" if unit == "Timestamp" else "Timestamp"
        for name in (f"starting{other}", f"ending{other}"):
            if name in texts:
                raise InvalidRequest(
                    f"{name} and starting{unit} were given; give both bounds as versions, or both as timestamps", option=name
                )
        start, end = (texts.moment(f"{edge}{unit}") for edge in ("starting", "ending"))
        if start is None:
            raise InvalidRequest(
                "readChangeFeed=true was given without a start; give startingVersion (0 for everything) or startingTimestamp",
                option="startingVersion",
            )
        return ChangesOptions(start - 1, end, unit.lower())


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """The options of a write. `partition_by` and `cluster_by` are None if they were not given.

    These are no options: `only_new`, the table must not exist yet; `name`, it gets this name when it is created, and `managed`, at a
    location that the catalog chose; `replaces`, it is replaced with its properties; `defines`, the history says CREATE TABLE AS SELECT if
    the table is new, not WRITE; unless `source_known`, nobody saw what the rows were computed from.
    """

    address: TableAddress
    partition_by: tuple[str, ...] | None = None
    cluster_by: tuple[str, ...] | None = None
    properties: Mapping[str, str] = field(default_factory=_nothing)
    mode: str = "append"
    where: str | None = None
    merge_schema: bool = False
    allow_nonempty: bool = False
    read_version: int | None = None
    read_where: str | None = None
    if_version: int | None = None
    isolation: str | None = None
    leases: tuple[str, ...] = ()
    transaction: tuple[str, int] | None = None
    ack: str = "published"
    timeout_s: float = DEFAULT_TIMEOUT_S
    max_records_per_file: int | None = None
    compression: str | None = None
    optimize_write: bool | None = None
    overwrite_schema: bool = False
    user_metadata: str | None = None
    only_new: bool = False
    name: str | None = None
    managed: bool = False
    replaces: bool = False
    source_known: bool = True
    defines: bool = False

    @staticmethod
    def parse(options: Mapping[str, str], *, overwrite: bool) -> WriteOptions:
        """From Spark's texts. Raises InvalidRequest, naming the option and its allowed values."""
        one_by_one = {key: value for key, value in options.items() if key.lower().startswith(_PROPERTIES)}
        others = {key: value for key, value in options.items() if key not in one_by_one}
        texts = Texts(others, WRITING, "writing", (*READING, *STREAMING))
        dynamic = texts.choice("partitionOverwriteMode", "static", "dynamic") == "dynamic"
        where = texts.get("replaceWhere")
        if not overwrite and where is not None:
            raise InvalidRequest(
                "replaceWhere was given for an append; write with mode('overwrite'), or leave it out", option="replaceWhere"
            )
        if "readWhere" in texts and (overwrite or "readVersion" not in texts):
            raise InvalidRequest(
                "readWhere says what an append read of readVersion; give both with mode('append'), or leave it out", option="readWhere"
            )
        if dynamic and where is not None:
            raise InvalidRequest("replaceWhere and partitionOverwriteMode=dynamic were given; give one of them")
        return WriteOptions(
            address=texts.address(),
            partition_by=texts.names("partitionBy"),
            cluster_by=texts.names("clusterBy"),
            properties=_together(texts.texts("properties"), one_by_one),
            mode=("dynamic" if dynamic else "overwrite") if overwrite else "append",
            where=where,
            merge_schema=texts.choice("mergeSchema", "false", "true") == "true",
            allow_nonempty=texts.choice("allowNonEmpty", "false", "true") == "true",
            read_version=texts.number("readVersion"),
            read_where=texts.get("readWhere"),
            if_version=texts.number("ifVersion"),
            isolation=texts.get("isolation"),
            leases=_leases(texts.get("lease")),
            transaction=texts.transaction(),
            ack=texts.choice("ack", "published", "ratified"),
            timeout_s=texts.seconds("commitTimeout", DEFAULT_TIMEOUT_S),
            max_records_per_file=texts.number("maxRecordsPerFile") or None,
            compression=codec_named(texts["compression"], "the option compression") if "compression" in texts else None,
            optimize_write=texts.choice("optimizeWrite", "false", "true") == "true" if "optimizeWrite" in texts else None,
            overwrite_schema=overwrite and texts.choice("overwriteSchema", "false", "true") == "true",
            user_metadata=texts.get("userMetadata"),
        )

    @staticmethod
    def for_tasks(options: Mapping[str, str], *, overwrite: bool) -> WriteOptions:
        """For a data source, whose tasks get the rows as they come. Raises InvalidRequest for a write that cannot be so."""
        parsed = WriteOptions.parse(options, overwrite=overwrite)
        if parsed.optimize_write:
            raise InvalidRequest(
                "optimizeWrite=true shuffles rows before they are written, and a Python data source gets them afterwards: write in a "
                "session of sluice.configure, or leave the option out and write df.repartition(...)",
                option="optimizeWrite",
            )
        return replace(parsed, source_known=False)

    @staticmethod
    def refuse_for_streams(options: Mapping[str, str]) -> None:
        """Raise InvalidRequest for an option that a batch write may have, and a stream may not."""
        given = {name.lower() for name in options}
        for name, why in _NOT_IN_STREAMS.items():
            if name.lower() in given:
                raise InvalidRequest(f"the option {name} was given for a stream, {why}: leave it out", option=name)


def _together(properties: Mapping[str, str], one_by_one: Mapping[str, str]) -> dict[str, str]:
    """The properties of the option of that name, and those that are options themselves. Raises InvalidRequest if they contradict."""
    for key in properties.keys() & one_by_one.keys():
        if properties[key] != one_by_one[key]:
            raise InvalidRequest(
                f"{key} is {properties[key]!r} in the option properties and {one_by_one[key]!r} as an option: give it once", option=key
            )
    return {**properties, **one_by_one}


def codec_named(text: str, told_by: str) -> str:
    """The codec of this name, by Arrow's name for it; `told_by` says who names it. Raises InvalidRequest."""
    codec = _CODECS.get(text.strip().lower())
    if codec is None:
        raise InvalidRequest(f"{told_by} is {text!r}; it may be {', '.join(_CODECS)}", option=told_by)
    return codec


def _leases(text: str | None) -> tuple[str, ...]:
    """The nodes of a lease, from its `reference`. Raises InvalidRequest."""
    nodes = tuple(text.split(",")) if text is not None else ()
    if any(Place.of_node(node) is None for node in nodes):
        raise InvalidRequest(f"the option lease is {text!r}; give the `reference` of a lease that sluice granted", option="lease")
    return nodes


def parse_timestamp(text: str, name: str = "timestampAsOf") -> int:
    """Milliseconds since the epoch, from such a number or from a date or time in UTC. Raises InvalidRequest."""
    bare = text.strip()
    if bare.removeprefix("-").isdecimal() and len(bare) > 4:  # four digits are a year
        return int(bare)
    try:
        moment: Any = parse_text(bare, pa.timestamp("us", "UTC"))
    except PredicateError as cause:
        raise InvalidRequest(
            f"{name} is {text!r}; write milliseconds since the epoch, or UTC as in 2026-01-31 or 2026-01-31 13:00:00",
            option=name,
        ) from cause
    return int(moment.timestamp() * 1000)


class Texts:
    """Options by their proper names; refuses unknown ones and those of the other direction."""

    def __init__(self, options: Mapping[str, str], own: tuple[str, ...], doing: str, others: tuple[str, ...]) -> None:
        spelled = {name.lower(): name for name in (*_COMMON, *own)}
        elsewhere = {name.lower(): name for name in others}
        self._values: dict[str, str] = {}
        self.storage: dict[str, str] = default_storage_options()
        for key, value in options.items():
            lowered = key.lower()
            if lowered in spelled:
                self._values[spelled[lowered]] = value
            elif (name := lowered.removeprefix(_STORAGE_PREFIX)) in _STORAGE:
                self.storage[name] = value
            elif lowered in elsewhere:
                raise InvalidRequest(f"the option {elsewhere[lowered]} is not for {doing}; leave it out", option=elsewhere[lowered])
            else:
                self._refuse(key, (*_COMMON, *own))

    @staticmethod
    def _refuse(key: str, known: tuple[str, ...]) -> None:
        if key.lower() == "paths":
            raise InvalidRequest("several paths were given; a sluice table is one location, read each and union them", option=key)
        of_delta = {name.lower(): name for name in NOT_OURS}.get(key.lower())
        if of_delta is not None:
            raise InvalidRequest(f"sluice has no option {of_delta}, leave it out: {NOT_OURS[of_delta]}", option=of_delta)
        names = {name.lower(): name for name in (*known, *(STREAMING if "readChangeFeed" in known else ()))}
        near = [names[each] for each in get_close_matches(key.lower(), names, n=2)]
        meant = f", do you mean {' or '.join(near)}?" if near else ";"
        raise InvalidRequest(
            f"unknown option {key!r} of format('sluice'){meant} known are {', '.join(known)} and, for the store, "
            f"{', '.join(_STORAGE_PREFIX + name for name in _STORAGE)}",
            option=key,
        )

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def __getitem__(self, name: str) -> str:
        return self._values[name]

    def get(self, name: str) -> str | None:
        """The value of an option; None if it was not given."""
        return self._values.get(name)

    def set_path(self, path: str) -> None:
        """Take another path instead of the given one."""
        self._values["path"] = path

    def address(self) -> TableAddress:
        """The table. Raises InvalidRequest without a path, UnknownScheme."""
        path = self.get("path")
        if not path:
            raise InvalidRequest(
                "no path was given: name the table's location in load(...), save(...) or OPTIONS (path '...'); "
                "Spark does not pass the path of a table in its own catalog to a Python data source",
                option="path",
            )
        # otherwise this would be the name of Spark's worker processes
        application = self.get("application") or os.environ.get("SLUICE_APPLICATION") or "pyspark"
        return TableAddress.of(path, self.get("coordinator"), self.storage, application)

    def moment(self, name: str) -> int | None:
        """A version's number, or a timestamp in ms since the epoch for an option named after it."""
        if not name.endswith("Timestamp"):
            return self.number(name)
        text = self.get(name)
        return None if text is None else parse_timestamp(text, name)

    def choice(self, name: str, *allowed: str) -> str:
        """One of `allowed`, the first by default."""
        text = self._values.get(name, allowed[0]).strip().lower()
        if text not in allowed:
            raise InvalidRequest(f"the option {name} is {self[name]!r}; it may be {' or '.join(allowed)}", option=name)
        return text

    def number(self, name: str) -> int | None:
        """A whole number; None if it was not given."""
        value: int | None = self._by_rule(name)
        return value

    def seconds(self, name: str, default: float) -> float:
        """A number of seconds above 0."""
        value: float | None = self._by_rule(name)
        return default if value is None else value

    def _by_rule(self, name: str) -> Any:
        """The value of an option by the rule of that name in snake case; None if it was not given."""
        text = self._values.get(name)
        if text is None:
            return None
        return RULES[_CAPITAL.sub(r"_\1", name).lower()].of_text(f"the option {name}", text, option=name)

    def names(self, name: str) -> tuple[str, ...] | None:
        """Column names: `a,b`, or a JSON list for names with commas."""
        text = self._values.get(name)
        if text is None:
            return None
        if text.lstrip().startswith("["):
            parsed = _json(name, text, "a JSON list of column names")
            if all(isinstance(each, str) for each in parsed):
                return tuple(parsed)
            raise InvalidRequest(f"the option {name} is {text!r}; its JSON list must consist of texts", option=name)
        return tuple(each.strip() for each in text.split(",") if each.strip())

    def texts(self, name: str) -> dict[str, str]:
        """A JSON object of texts."""
        text = self._values.get(name)
        return {} if text is None else _texts(name, text)

    def transaction(self) -> tuple[str, int] | None:
        """The application transaction of a write, if any."""
        app, version = self.get("txnAppId"), self.number("txnVersion")
        if (app is None) != (version is None):
            raise InvalidRequest("txnAppId and txnVersion belong together; give both, or neither")
        given = None if app is None or version is None else (app, version)
        key = self.get("idempotencyKey")
        if given is not None and key is not None:
            raise InvalidRequest("txnAppId and idempotencyKey were given; give one of them", option="idempotencyKey")
        return application_transaction(given, key)


def default_storage_options() -> dict[str, str]:
    """The default options of the object store: those given to `configure`."""
    text = os.environ.get(STORAGE_OPTIONS_VARIABLE)
    return _texts(STORAGE_OPTIONS_VARIABLE, text) if text else {}


def _texts(name: str, text: str) -> dict[str, str]:
    parsed = _json(name, text, 'a JSON object of texts, such as {"delta.appendOnly": "true"}')
    if not isinstance(parsed, dict) or not all(isinstance(value, str) for value in parsed.values()):
        raise InvalidRequest(f"{name} must be a JSON object of texts", option=name)
    return parsed


def _json(name: str, text: str, what: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as cause:
        # not shown: storage options may contain secrets
        raise InvalidRequest(f"{name} must be {what}: {cause}", option=name) from None
