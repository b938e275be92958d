"""The options of `format("sluice")`: what each means, and how its text is read.

docs/configuration.md and docs/streaming.md show the classes below as tables. Names ignore case, since Spark loses it. Conditions are
SQL as in `storage.pruning.predicate`, with UTC as the time zone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa

from ..coordinator.nodes.layout import Place
from ..storage.arguments import RULES
from ..storage.dataclass import dataclass
from ..storage.errors import InvalidRequest, PredicateError
from ..storage.expressions.casts import parse_text
from .schemas import codec_named

_CAPITAL: Final = re.compile("([A-Z])")


@dataclass(frozen=True, slots=True)
class Option:
    """An option of the format."""

    scope: str
    """What it is for."""
    read: Callable[[str, str], Any]
    """The value of a text that was given for an option of this name. Raises InvalidRequest."""
    field: str = ""
    """The field of `ReadOptions`, `WriteOptions` or `StreamRules` that has this value; "" if it goes elsewhere."""


# -- how texts are read --------------------------------------------------------------------------------------------------


def _text(_: str, text: str) -> str:
    return text


def _by_rule(name: str, text: str) -> Any:
    """By the rule for arguments of that name in snake case."""
    return RULES[_CAPITAL.sub(r"_\1", name).lower()].of_text(f"the option {name}", text, option=name)


def _at_least_one(name: str, text: str) -> Any:
    return _by_rule(name, text) or None


def _choice(*allowed: str) -> Callable[[str, str], str]:
    def read(name: str, text: str) -> str:
        if text.strip().lower() not in allowed:
            raise InvalidRequest(f"the option {name} is {text!r}; it may be {' or '.join(allowed)}", option=name)
        return text.strip().lower()

    return read


def _flag(name: str, text: str) -> bool:
    return _choice("false", "true")(name, text) == "true"


def _names(name: str, text: str) -> tuple[str, ...]:
    """Names of columns: `a,b`, or a JSON list for names with commas."""
    if text.lstrip().startswith("["):
        parsed = _json(name, text, "a JSON list of column names")
        if all(isinstance(each, str) for each in parsed):
            return tuple(parsed)
        raise InvalidRequest(f"the option {name} is {text!r}; its JSON list must consist of texts", option=name)
    return tuple(each.strip() for each in text.split(",") if each.strip())


def texts_of(name: str, text: str) -> dict[str, str]:
    """A JSON object of texts. Raises InvalidRequest, which does not show it: storage options may contain secrets."""
    parsed = _json(name, text, 'a JSON object of texts, such as {"delta.appendOnly": "true"}')
    if not isinstance(parsed, dict) or not all(isinstance(value, str) for value in parsed.values()):
        raise InvalidRequest(f"{name} must be a JSON object of texts", option=name)
    return parsed


def _json(name: str, text: str, what: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as cause:
        raise InvalidRequest(f"{name} must be {what}: {cause}", option=name) from None


def _codec(name: str, text: str) -> str:
    return codec_named(text, f"the option {name}")


def _leases(name: str, text: str) -> tuple[str, ...]:
    """The nodes of a lease, from its `reference`."""
    nodes = tuple(text.split(","))
    if any(Place.of_node(node) is None for node in nodes):
        raise InvalidRequest(f"the option {name} is {text!r}; give the `reference` of a lease that sluice granted", option=name)
    return nodes


def parse_timestamp(name: str, text: str) -> int:
    """Milliseconds since the epoch, from such a number or from a date or time in UTC. Raises InvalidRequest."""
    bare = text.strip()
    if bare.removeprefix("-").isdecimal() and len(bare) > 4:  # four digits are a year
        return int(bare)
    try:
        moment: Any = parse_text(bare, pa.timestamp("us", "UTC"))
    except PredicateError as cause:
        message = f"{name} is {text!r}; write milliseconds since the epoch, or UTC as in 2026-01-31 or 2026-01-31 13:00:00"
        raise InvalidRequest(message, option=name) from cause
    return int(moment.timestamp() * 1000)


def _version_or_latest(name: str, text: str) -> Any:
    return "latest" if text.strip().lower() == "latest" else _by_rule(name, text)


def _pattern(name: str, text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as cause:
        raise InvalidRequest(f"the option {name} is {text!r}, which is no regular expression: {cause}", option=name) from None


# -- the tables ----------------------------------------------------------------------------------------------------------


class BothWays:
    """Options of every read and write."""

    path = Option("both", _text)
    """the location; the argument of `load` and `save`. Reading, `path@v3` is its version 3, and `path@20260131120000000`
    (yyyyMMddHHmmssSSS, in the session's time zone; UTC by the data source) the version of that time, unless something exists at that
    path
    """
    coordinator = Option("both", _text)
    """the coordinator: `zk://...` or `embedded://`, by default the session's"""
    application = Option("both", _text)
    """the job's name in the history; by default `SLUICE_APPLICATION`, then `pyspark`"""


class Reading:
    """Options of a read."""

    versionAsOf = Option("reading", _by_rule, "version")
    """the version of that number"""
    loadedVersion = Option("reading", _by_rule)
    """set by sluice's own sessions: the version that was the latest one when the DataFrame was made"""
    timestampAsOf = Option("reading", parse_timestamp, "timestamp_ms")
    """the version that was current then: milliseconds since the epoch, or `2026-01-31`, `2026-01-31 13:00:00`; UTC unless a zone is
    written
    """
    consistency = Option("reading", _choice("latest", "published", "serial", "session"), "consistency")
    """`latest`; `serial`: after everything that is queued now; `session`: without the round trip of `latest`; `published`: any Delta
    table, without a coordinator. See [reading levels](incremental-reads.md#reading-levels)
    """
    readChangeFeed = Option("reading", _flag)
    """`true` reads what versions inserted and deleted, with `_change_type`, `_commit_version` and `_commit_timestamp`"""
    startingVersion = Option("reading changes", _by_rule)
    """the first version whose changes are read; all later ones without a last one"""
    endingVersion = Option("reading changes", _by_rule)
    """the last version whose changes are read"""
    startingTimestamp = Option("reading changes", parse_timestamp)
    """the same by time, written as for `timestampAsOf`"""
    endingTimestamp = Option("reading changes", parse_timestamp)
    """the same by time"""
    where = Option("reading", _text, "where")
    """a condition in SQL; files that cannot satisfy it are not read"""


class Writing:
    """Options of a write."""

    partitionBy = Option("writing", _names, "partition_by")
    """partition columns of a new table: `a,b` or a JSON list"""
    clusterBy = Option("writing", _names, "cluster_by")
    """columns by which a new table is [clustered](operations.md#clustered-tables): `a,b.c` or a JSON list"""
    properties = Option("writing", texts_of, "properties")
    """properties of a new table, a JSON object"""
    allowNonEmpty = Option("writing", _flag, "allow_nonempty")
    """`true` creates a table in a folder that holds other files"""
    mergeSchema = Option("writing", _flag, "merge_schema")
    """`true` adds columns that the table lacks, and makes [types wider](managing-tables.md#wider-types) where it allows that. Nullable
    columns that the data lacks are null in any case; partition columns must be there
    """
    maxRecordsPerFile = Option("writing", _at_least_one, "max_records_per_file")
    """the maximum rows of one file"""
    compression = Option("writing", _codec, "compression")
    """the files' codec: `zstd` (default), `snappy`, `gzip`, `lz4`, `none`. Sessions of `configure` take Spark's setting
    `spark.sql.parquet.compression.codec` where it is set and the option is not
    """
    optimizeWrite = Option("writing, in sessions of `configure`", _flag, "optimize_write")
    """`true` shuffles the rows by partition first, into [few files](streaming.md#small-files)"""
    overwriteSchema = Option("overwriting", _flag, "overwrite_schema")
    """`true`: the table takes the schema of the rows and, if given, the columns of `partitionBy` and `clusterBy`"""
    userMetadata = Option("writing", _text, "user_metadata")
    """a text that the history shows with the commit"""
    replaceWhere = Option("overwriting", _text, "where")
    """the rows to replace"""
    partitionOverwriteMode = Option("overwriting", _choice("static", "dynamic"))
    """`dynamic` replaces the partitions that the rows lie in"""
    readVersion = Option("overwriting, appending", _by_rule, "read_version")
    """the version from which the rows were computed, see [isolation](isolation.md#appends-that-were-computed-from-the-table)"""
    ifVersion = Option("writing", _by_rule, "if_version")
    """the write is committed only as the very next version after this one; otherwise it is refused (`expected-version`)"""
    readWhere = Option("appending", _text, "read_where")
    """the condition on the rows that were read of `readVersion`; without it the whole table"""
    isolation = Option("writing", _text, "isolation")
    """a stricter level than the table's for this write, such as `Serializable`"""
    lease = Option("writing", _leases, "leases")
    """the `reference` of a [lease](locks.md) that the driver holds, on which the write depends"""
    idempotencyKey = Option("writing", _text)
    """write once under this key, [however often it is repeated](errors.md#jobs-that-are-restarted)"""
    txnAppId = Option("writing", _text)
    """write once: skipped if this application id has already written the number `txnVersion` or a higher one"""
    txnVersion = Option("writing", _by_rule)
    """the number of the write, with `txnAppId`"""
    ack = Option("writing", _choice("published", "ratified"), "ack")
    """`published` or `ratified`"""
    commitTimeout = Option("writing", _by_rule, "timeout_s")
    """seconds that the commit may take (120)"""


class Streaming:
    """Options of `readStream`."""

    startingVersion = Option("streams", _version_or_latest)
    """the first version whose rows are read, or `latest`: only rows to come. One that is more than a version ahead is refused by
    `load()`
    """
    startingTimestamp = Option("streams", parse_timestamp)
    """the same by time: the first version of that time or later"""
    maxFilesPerTrigger = Option("streams", _by_rule)
    """the maximum files of a batch; 1000, unless there is a maximum of bytes"""
    maxBytesPerTrigger = Option("streams", _by_rule)
    """a batch takes no further file after this many bytes (`10m`, `1g`), but at least one"""
    ignoreDeletes = Option("streams", _flag, "ignore_deletes")
    """`true` passes over versions that only deleted rows: whole files, or by deletion vectors"""
    ignoreChanges = Option("streams", _flag, "ignore_changes")
    """`true` reads all files that a version wrote to change rows, so rows that it only copied come again"""
    skipChangeCommits = Option("streams", _flag, "skip_change_commits")
    """`true` passes over every version that deleted or changed rows, also over rows that it added"""
    readChangeFeed = Option("streams", _flag, "changes")
    """`true` reads what versions [inserted and deleted](incremental-reads.md#what-changed-between-two-versions), with the three columns
    of changes; the rows of the first version are inserts. A checkpoint of new rows cannot go on with changes, nor the other way
    round. Their names are reserved, so rename or drop the three columns before you write the changes to a table of sluice
    """
    excludeRegex = Option("streams", _pattern, "exclude")
    """leaves out files whose path has a match"""
    where = Option("streams", _text)
    """a condition in SQL; files that cannot satisfy it are not read"""
    schemaTrackingLocation = Option("streams", _text)
    """a folder for this stream alone; the stream [shows each version with the schema that it had](#columns)"""
    withEventTimeOrder = Option("streams", _flag)
    """`true` reads the first version in the order of `eventTimeColumn`, so that a watermark drops no row of it. A query that is started
    again keeps the two options until that version is read
    """
    eventTimeColumn = Option("streams", _text, "event_time")
    """that column, of timestamps or dates"""
    failOnDataLoss = Option("streams", _flag, "fail_on_data_loss")
    """`false` goes on from the first version there is if the next one was cleaned up, and passes over data files that are gone (not
    those of changes)
    """
    consistency = Option("streams", _choice("latest", "published"))
    """`published` reads any Delta table without the coordinator"""
    pollInterval = Option("streams", _by_rule)
    """with `published`: the maximum seconds between two looks at the store, 5 by default"""


def _table(options: type) -> dict[str, Option]:
    return {name: each for name, each in vars(options).items() if isinstance(each, Option)}


TABLE: Final = _table(BothWays)
READING: Final = _table(Reading)
WRITING: Final = _table(Writing)
STREAMING: Final = _table(Streaming)
ONLY_STREAMING: Final = frozenset(STREAMING.keys() - READING.keys())
"""Options that make a read a stream."""
_NUMBERED: Final = "whose batches have their own numbers"
_WHOLE: Final = "which replaces the whole table with outputMode('complete'), and otherwise nothing"
NOT_IN_STREAMS: Final = {
    **dict.fromkeys(("idempotencyKey", "txnAppId", "txnVersion", "readVersion", "readWhere", "ifVersion"), _NUMBERED),
    **dict.fromkeys(("replaceWhere", "partitionOverwriteMode", "overwriteSchema"), _WHOLE),
}
"""Options of a write that a stream may not have, and why."""
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
