"""One Parquet file of a checkpoint, or one of its sidecars. The table's state and the rows of files are read separately.

Row groups and columns without the requested rows are not read, as far as the statistics in the file's footer tell. Adds and removes go from
Parquet columns to Arrow tables without a Python object for each. Unknown columns are ignored, as the protocol demands of readers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..actions.codec import action_of, camel
from ..actions.filetable import FILES_SCHEMA, TOMBSTONES_SCHEMA, VECTOR, nulls
from ..actions.records import Action
from ..errors import CorruptLogFile, ObjectNotFound
from ..jsontext import dumps
from ..stores.objects import ObjectStore
from ..stores.streams import arrow_input, version_of

FileColumn = Literal["add", "remove"]

# The protocol's name of each column of our tables; `extra_json` has none, and is not in checkpoints.
VECTOR_WIRE: Final = {each.name: camel(each.name) for each in VECTOR}
WIRE: Final = {name: camel(name) for name in (*FILES_SCHEMA.names, *TOMBSTONES_SCHEMA.names) if name != "extra_json"}
WITHOUT_FILES: Final = ("txn", "metaData", "protocol", "domainMetadata", "checkpointMetadata", "sidecar")
_SCHEMAS: Final[Mapping[str, pa.Schema]] = {"add": FILES_SCHEMA, "remove": TOMBSTONES_SCHEMA}
_STATS_STRUCT: Final = "stats_parsed"
_ASK: Final = "ask the engine that wrote it"
_BATCH_ROWS: Final = 65_536
_BUFFER_BYTES: Final = 1024 * 1024

# A text without these characters is its own JSON string between quotes.
_SPECIAL = r'["\\\x00-\x1f]'


class _Unfit(ValueError):
    """Raised for a column whose type is not the protocol's."""


class CheckpointPart:
    """A Parquet file of a checkpoint, or a sidecar. `whole` fetches it in one request and keeps its bytes for later reads.

    Another engine may replace a checkpoint between two reads, and a new table at the same location may have one of the same
    name. So each read reads the footer, and a file whose `size` is not the listed one, or that is not the file of the first
    read, counts as gone: a new listing decides. (A sidecar is never replaced: its name is random.)

    Every method raises CorruptLogFile, naming the file, if it cannot be read, and ObjectNotFound if it is gone.
    """

    def __init__(self, store: ObjectStore, key: str, *, whole: bool, size: int | None = None) -> None:
        self._store = store
        self.key = key
        self.content = store.get(key) if whole else None
        self._size = None if whole else size
        self._version: object = None

    def actions(self) -> list[Action]:
        """Its actions other than those of files."""
        actions: list[Action] = []
        with self._reading() as file:
            for name, rows in _rows_of(file, WITHOUT_FILES):
                bodies = rows.to_pylist()
                try:
                    actions += [action_of({name: _plain(body, rows.type)}) for body in bodies]
                except ValueError as cause:
                    raise self._damaged(f"holds a {name} action that breaks the Delta protocol: {cause}; {_ASK}", cause) from cause
        return actions

    def files(self, column: FileColumn) -> list[pa.RecordBatch]:
        """Its adds in `filetable.FILES_SCHEMA`, or its removes in `filetable.TOMBSTONES_SCHEMA`."""
        with self._reading() as file:
            return [_to_schema(rows, _SCHEMAS[column]) for _, rows in _rows_of(file, [column])]

    def has_any(self, column: FileColumn, paths: pa.StringArray) -> bool:
        """Whether it has an add, or a remove, of one of these paths."""
        with self._reading() as file:
            batches = file.iter_batches(_BATCH_ROWS, columns=[f"{column}.path"], use_threads=False)
            return any(pc.any(pc.is_in(pc.struct_field(batch.column(0), "path"), value_set=paths)).as_py() for batch in batches)

    @contextmanager
    def _reading(self) -> Iterator[pq.ParquetFile]:
        whole = self.content
        if whole is None:
            stream = self._store.open_input(self.key)
            version = version_of(stream)
            # check: lists-are-of-the-checkpoint-of-the-state
            if self._version not in (None, version):
                stream.close()
                raise self._replaced()
            self._version = version
            source = arrow_input(stream)
        else:
            source = pa.BufferReader(whole)
        # From a local file, pages are read one by one; over a network, the columns of a row group are fetched together.
        how: dict[str, Any] = {"pre_buffer": isinstance(source, pa.PythonFile), "buffer_size": 0 if whole is not None else _BUFFER_BYTES}
        try:
            with source:
                if self._size not in (None, source.size()):
                    raise self._replaced()
                with pq.ParquetFile(source, page_checksum_verification=True, **how) as file:
                    yield file
        except _Unfit as cause:
            raise self._damaged(f"breaks the Delta protocol: {cause}; {_ASK}", cause) from cause
        except (pa.ArrowException, OSError) as cause:
            raise self._damaged(f"cannot be read: {cause}; the file is truncated or damaged: restore it from a copy", cause) from cause

    def _damaged(self, problem: str, cause: Exception) -> CorruptLogFile:
        return CorruptLogFile(f"checkpoint {self.key} {problem}", file=self.key, line=None, reason=str(cause))

    def _replaced(self) -> ObjectNotFound:
        return ObjectNotFound(f"{self.key} in {self._store.location} was replaced since it was listed", path=self.key)


def _rows_of(file: pq.ParquetFile, columns: Collection[str]) -> Iterator[tuple[str, pa.StructArray]]:
    """Each of these columns with its non-null rows, batch by batch; in each row of a checkpoint one column is set."""
    for group in range(file.num_row_groups):
        wanted = _leaves(file.metadata.row_group(group), columns)
        # Some writers put a million rows into one group: batches limit what is decoded at once. One column has nearly all
        # bytes, so that threads for columns would gain nothing and take more memory.
        for batch in file.iter_batches(_BATCH_ROWS, row_groups=[group], columns=wanted, use_threads=False) if wanted else ():
            for name, rows in zip(batch.schema.names, batch.columns, strict=True):
                if rows.null_count < len(rows):
                    yield name, rows.drop_null() if rows.null_count else rows
            if batch.num_rows == _BATCH_ROWS:
                pa.default_memory_pool().release_unused()


def _leaves(group: pq.RowGroupMetaData, columns: Collection[str]) -> list[str]:
    """The leaves to read from a row group: those that sluice knows, in columns that are not empty according to the statistics."""
    present: set[str] = set()
    nulls_of: dict[str, int | None] = {}
    for leaf in map(group.column, range(group.num_columns)):
        name = leaf.path_in_schema.partition(".")[0]
        if name in columns:
            statistics = leaf.statistics
            count = statistics.null_count if statistics is not None and statistics.has_null_count else None
            nulls_of[leaf.path_in_schema] = count
            if count is None or count < leaf.num_values:
                present.add(name)
    columns_read = {name: {WIRE[column] for column in schema.names if column in WIRE} for name, schema in _SCHEMAS.items()}
    # Every add has a path; where every one has its statistics as JSON, too, those as columns are not needed.
    paths = nulls_of.get("add.path")
    if paths is None or nulls_of.get("add.stats") != paths:
        columns_read["add"].add(_STATS_STRUCT)
    named = [(path, path.split(".", 2)) for path in nulls_of]
    return [path for path, (name, *inside) in named if name in present and (name not in columns_read or inside[0] in columns_read[name])]


def _to_schema(rows: pa.StructArray, schema: pa.Schema) -> pa.RecordBatch:
    """The rows of `add` or `remove`; statistics that the writer kept only as columns (writeStatsAsJson=false) become JSON."""
    columns = {each.name: _column(rows, WIRE.get(each.name), each.type) for each in schema}
    if "stats" in columns and columns["stats"].null_count and rows.type.get_field_index(_STATS_STRUCT) >= 0:
        columns["stats"] = pc.coalesce(columns["stats"], _literal(pc.struct_field(rows, _STATS_STRUCT)))
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=schema)


def _column(rows: pa.StructArray, wire: str | None, kind: pa.DataType) -> pa.Array:
    if wire is None or rows.type.get_field_index(wire) < 0:
        return nulls(len(rows), kind)
    values = pc.struct_field(rows, wire)
    if values.null_count == len(values):
        return nulls(len(rows), kind)
    if pa.types.is_struct(kind):
        parts = [_column(values, VECTOR_WIRE[each.name], each.type) for each in kind]
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=pc.is_null(values))
    try:
        return values if values.type == kind else values.cast(kind)
    except pa.ArrowException as cause:
        raise _Unfit(f"{wire} is {values.type} and not {kind} ({cause})") from cause


def _plain(value: Any, kind: pa.DataType) -> Any:
    """An Arrow value in its JSON form: maps are objects, and nulls are omitted."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {each.name: _plain(value[each.name], each.type) for each in kind if value[each.name] is not None}
    if pa.types.is_map(kind):
        return {name: _plain(inner, kind.item_type) for name, inner in value}
    return [_plain(inner, kind.value_type) for inner in value] if pa.types.is_list(kind) or pa.types.is_large_list(kind) else value


def struct_to_json(values: pa.StructArray) -> pa.StringArray:
    """The JSON object of each struct; null if the struct is null.

    Dates and timestamps become ISO 8601 text (with milliseconds, UTC with a Z), decimals and numbers JSON numbers; a
    floating-point number that is not finite has no JSON form and is omitted, and so are null fields, as in the log. It works column by
    column: each leaf becomes an array of JSON literals, and each struct joins those of its fields.
    """
    joined = pa.array([""] * len(values), pa.string())
    for each in values.type:
        literal = _literal(pc.struct_field(values, each.name))
        # Each member begins with its comma, and a null one is empty; the first comma is removed at the end.
        member = pc.binary_join_element_wise(f",{dumps(each.name).decode()}:", literal, "")
        joined = pc.binary_join_element_wise(joined, pc.fill_null(member, ""), "")
    objects = pc.binary_join_element_wise("{", pc.ascii_ltrim(joined, characters=","), "}", "")
    return pc.if_else(pc.is_valid(values), objects, pa.scalar(None, pa.string()))


def _literal(values: pa.Array) -> pa.StringArray:
    """Each value as JSON; null if it is null or has no JSON form."""
    kind = values.type
    if pa.types.is_struct(kind):
        return struct_to_json(values)
    if pa.types.is_dictionary(kind):
        return _literal(values.dictionary_decode())
    if pa.types.is_floating(kind):
        return pc.if_else(pc.is_finite(values), values.cast(pa.string()), pa.scalar(None, pa.string()))
    if pa.types.is_date(kind):
        return _quoted(values.cast(pa.string()))
    if pa.types.is_timestamp(kind):
        milliseconds = values.cast(pa.timestamp("ms", kind.tz), safe=False)
        return _quoted(pc.strftime(milliseconds, format="%Y-%m-%dT%H:%M:%S" + ("Z" if kind.tz else "")))
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _quoted(values.cast(pa.string()))
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_decimal(kind):
        return values.cast(pa.string())
    # Binary and variant columns have no minimum or maximum in the log's JSON.
    return pa.nulls(len(values), pa.string())


def _quoted(texts: pa.StringArray) -> pa.StringArray:
    quoted = pc.binary_join_element_wise('"', texts, '"', "")
    special = pc.fill_null(pc.match_substring_regex(texts, _SPECIAL), False)
    if pc.any(special).as_py():
        escaped = [dumps(text).decode() for text in texts.filter(special).to_pylist()]
        quoted = pc.replace_with_mask(quoted, special, pa.array(escaped, pa.string()))
    return quoted
