"""The actions of the Delta protocol as records ("Actions" in PROTOCOL.md).

Names are the protocol's in snake case. Times are milliseconds since the epoch, sizes bytes. `extra` keeps unknown fields, so
that reading and writing a record loses nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from typing import Any, TypeAlias, TypeVar

import orjson

from ..dataclass import dataclass
from ..schema.datatypes import StructType, schema_to_json
from ..schema.mapping import MODE_KEY, mapped, physical, physical_names, schema_of

_T = TypeVar("_T")

Extra: TypeAlias = Mapping[str, Any]
FileKey: TypeAlias = tuple[str, str]  # path, unique id of the deletion vector ("" without): the key of reconciliation

_none: Callable[[], dict[str, Any]] = dict


@dataclass(frozen=True, slots=True)
class DeletionVector:
    """The location of a list of deleted rows; `storage_type` is "u" (relative), "p" (absolute path) or "i" (inline)."""

    storage_type: str
    path_or_inline_dv: str
    size_in_bytes: int
    cardinality: int
    offset: int | None = None

    @property
    def unique_id(self) -> str:
        """Identifies this vector among those of the same file."""
        suffix = "" if self.offset is None else f"@{self.offset}"
        return f"{self.storage_type}{self.path_or_inline_dv}{suffix}"


@dataclass(frozen=True, slots=True)
class AddFile:
    """A file that belongs to the table from this version on; `path` is a URI, relative to the table's root or absolute."""

    path: str
    partition_values: Mapping[str, str | None]
    size: int
    modification_time: int
    data_change: bool
    stats: str | None = None
    tags: Mapping[str, str | None] | None = None
    deletion_vector: DeletionVector | None = None
    base_row_id: int | None = None
    default_row_commit_version: int | None = None
    clustering_provider: str | None = None
    extra: Extra = field(default_factory=_none)

    @property
    def key(self) -> FileKey:
        """The key that it shares with later adds and removes of the same logical file."""
        return self.path, "" if self.deletion_vector is None else self.deletion_vector.unique_id


@dataclass(frozen=True, slots=True)
class RemoveFile:
    """A file that no longer belongs to the table; kept as a tombstone until its retention is over."""

    path: str
    data_change: bool
    deletion_timestamp: int | None = None
    extended_file_metadata: bool | None = None
    partition_values: Mapping[str, str | None] | None = None
    size: int | None = None
    stats: str | None = None
    tags: Mapping[str, str | None] | None = None
    deletion_vector: DeletionVector | None = None
    base_row_id: int | None = None
    default_row_commit_version: int | None = None
    extra: Extra = field(default_factory=_none)

    @property
    def key(self) -> FileKey:
        """The key that it shares with the add of the same logical file."""
        return self.path, "" if self.deletion_vector is None else self.deletion_vector.unique_id


@dataclass(frozen=True, slots=True)
class AddCDCFile:
    """A file of row changes, which the change data feed reads instead of the version's data files."""

    path: str
    partition_values: Mapping[str, str | None]
    size: int
    data_change: bool = False
    tags: Mapping[str, str | None] | None = None
    extra: Extra = field(default_factory=_none)


@dataclass(frozen=True, slots=True)
class Metadata:
    """The table's schema (as JSON; "" if it has none yet), partitioning and properties."""

    id: str
    schema_string: str
    partition_columns: tuple[str, ...]
    configuration: Mapping[str, str]
    name: str | None = None
    description: str | None = None
    format_provider: str = "parquet"
    format_options: Mapping[str, str] = field(default_factory=_none)
    created_time: int | None = None
    extra: Extra = field(default_factory=_none)

    @property
    def schema(self) -> StructType:
        """The schema. Raises Corrupt and NotATable, see `parse_schema`."""
        return schema_of(self.schema_string, self.configuration.get(MODE_KEY, "none"))

    @property
    def physical_partitions(self) -> tuple[str, ...]:
        """The partition columns as `partition_values` name them."""
        return physical_names(self.schema, self.partition_columns) if self.partition_columns else ()

    @property
    def physical(self) -> Metadata:
        """The metadata of the table if its columns were called as they are in its files."""
        return replace(self, schema_string=schema_to_json(physical(self.schema)), partition_columns=self.physical_partitions)

    def with_schema(self, schema: StructType, *, keep_names: bool = False) -> Metadata:
        """These metadata with another schema, in which column mapping, if it is on, numbers the new columns; see `mapping.mapped`."""
        numbered, configuration = mapped(schema, self.configuration, keep_names=keep_names)
        return replace(self, schema_string=schema_to_json(numbered), configuration=configuration)


@dataclass(frozen=True, slots=True)
class Protocol:
    """The versions that a client must implement and, from reader 3 / writer 7, names of features."""

    min_reader_version: int
    min_writer_version: int
    reader_features: tuple[str, ...] | None = None
    writer_features: tuple[str, ...] | None = None
    extra: Extra = field(default_factory=_none)


@dataclass(frozen=True, slots=True)
class Txn:
    """An application's progress, as a number that only the application understands."""

    app_id: str
    version: int
    last_updated: int | None = None
    extra: Extra = field(default_factory=_none)


@dataclass(frozen=True, slots=True)
class DomainMetadata:
    """The configuration of a named domain; `removed` makes it a tombstone."""

    domain: str
    configuration: str
    removed: bool
    extra: Extra = field(default_factory=_none)


@dataclass(frozen=True, slots=True)
class CommitInfo:
    """The origin of a commit (client, operation, time): free-form, kept unchanged."""

    fields: Mapping[str, Any]

    @property
    def operation(self) -> str | None:
        """The operation's name (WRITE, DELETE, ...), if given."""
        return self._typed("operation", str)

    @property
    def in_commit_timestamp(self) -> int | None:
        """The commit's own time in ms since the epoch, if in-commit timestamps are on."""
        return self._typed("inCommitTimestamp", int)

    @property
    def timestamp(self) -> int | None:
        """The writer's clock in ms since the epoch when it made the commit."""
        return self._typed("timestamp", int)

    def _typed(self, name: str, kind: type[_T]) -> _T | None:
        value = self.fields.get(name)
        return value if type(value) is kind else None


@dataclass(frozen=True, slots=True)
class CheckpointMetadata:
    """The version of a V2 checkpoint; found only there."""

    version: int
    tags: Mapping[str, str | None] | None = None
    extra: Extra = field(default_factory=_none)


@dataclass(frozen=True, slots=True)
class Sidecar:
    """A file below `_delta_log/_sidecars/` that holds adds and removes of a V2 checkpoint; found only there."""

    path: str
    size_in_bytes: int
    modification_time: int
    tags: Mapping[str, str | None] | None = None
    extra: Extra = field(default_factory=_none)


@dataclass(frozen=True, slots=True)
class UnknownAction:
    """An action unknown to this version of sluice: readers ignore it, and sluice keeps it."""

    name: str
    body: Any


Action: TypeAlias = (
    AddFile
    | RemoveFile
    | AddCDCFile
    | Metadata
    | Protocol
    | Txn
    | DomainMetadata
    | CommitInfo
    | CheckpointMetadata
    | Sidecar
    | UnknownAction
)


def record_count(stats: str | None) -> int | None:
    """The physical number of rows in a file, including deleted ones; None if its statistics do not say."""
    try:
        fields = orjson.loads(stats or "null")
    except orjson.JSONDecodeError:
        return None
    counted = fields.get("numRecords") if isinstance(fields, dict) else None
    return counted if type(counted) is int and counted >= 0 else None


def readable_stats(stats: str | None) -> str | None:
    """The statistics of a file; None for a text that is no JSON object, or has an impossible number of rows, as other engines left some."""
    try:
        fields = orjson.loads(stats or "null")
    except orjson.JSONDecodeError:
        return None
    return stats if isinstance(fields, dict) and ("numRecords" not in fields or record_count(stats) is not None) else None


def wide(stats: str | None) -> str | None:
    """Statistics of a file that got a deletion vector: not tight, all numbers unchanged. Text that is no statistics stays as it is."""
    text = (stats or "").strip()
    try:
        fields = orjson.loads(text or "null")
        if not isinstance(fields, dict) or fields.get("tightBounds") is False:
            return stats
        if fields and "tightBounds" not in fields:
            return text[:-1] + ',"tightBounds":false}'
        # Numbers stay text: a float would lose digits of a decimal bound.
        fields = json.loads(text, parse_float=_verbatim, parse_int=_verbatim)
    except ValueError:
        return stats
    return orjson.dumps({**fields, "tightBounds": False}).decode()


def merged(stats: str | None, more: str | None) -> str | None:
    """Statistics with what others of the same file say besides, and instead of the same; text that is not statistics is left out."""
    fields, added = _fields(stats), _fields(more)
    return stats if added is None else more if fields is None else orjson.dumps(_united(fields, added)).decode()


def _fields(stats: str | None) -> dict[str, Any] | None:
    try:
        fields = json.loads((stats or "null").strip() or "null", parse_float=_verbatim, parse_int=_verbatim)
    except ValueError:
        return None
    return fields if isinstance(fields, dict) else None


def _united(known: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    both = {name: _united(known[name], each) for name, each in more.items() if isinstance(each, dict) and isinstance(known.get(name), dict)}
    return {**known, **more, **both}


def _verbatim(number: str) -> Any:
    return orjson.Fragment(number)
