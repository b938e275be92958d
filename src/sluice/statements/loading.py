"""COPY INTO: files become rows of a table once, however often and by however many clients they are loaded.

Each file that is loaded leaves an application's number (Delta's `txn` action) in the commit that adds its rows, under an id made of
its location. So rows and record are one commit, and checkpoints keep the record. Of two COPYs that load one file at once the later is
refused; it is repeated on the new state, and passes over the file.
"""

from __future__ import annotations

import fnmatch
import hashlib
import io
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from functools import partial
from typing import Any, Final

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.json as pa_json
import pyarrow.parquet as pq

from ..storage.data.assignments import Filling
from ..storage.dataclass import dataclass
from ..storage.errors import InvalidRequest, ObjectNotFound, SchemaMismatch
from ..storage.progress import followed
from ..storage.schema.datatypes import is_filled, is_identity, to_give
from ..storage.schema.schema import StructType, conform, to_arrow
from ..storage.stores.location import normalise, open_store
from ..storage.stores.objects import ObjectStore
from ..tables.table import Table
from ..tables.transaction import Transaction
from .parse.maintenance import CopyInto
from .places import opened
from .request import Answer, Place, Request

_PREFIX: Final = "sluice.copy:"
_CSV_OPTIONS: Final = frozenset({"header", "sep", "delimiter", "quote", "escape", "nullvalue"})
_FORMATS: Final = ("PARQUET", "CSV", "JSON")
_COPY_OPTIONS: Final = frozenset({"force", "mergeschema"})
_HIDDEN: Final = ("_", ".")
# The coordinator takes a request of a megabyte, and each file's record has some 70 bytes.
_FILES_PER_COMMIT: Final = 5000


@dataclass(frozen=True, slots=True)
class _Files:
    """The files to load, by their keys in a store; `options` are the format's, by names in lower case.

    `select` makes the rows to load of those of a file (None: they are the same).
    """

    store: ObjectStore
    keys: tuple[str, ...]
    format: str
    options: Mapping[str, str]
    select: Callable[[pa.Table], pa.Table] | None = None

    def id(self, key: str) -> str:
        """The application id that records a file."""
        return _PREFIX + hashlib.blake2b(f"{self.store.location}/{key}".encode(), digest_size=16).hexdigest()


def copy_into(request: Request, statement: CopyInto, place: Place) -> Answer:
    """Load the files that were not loaded before. Answers one row: rows, files loaded, and files passed over."""
    options = _options(request, statement, statement.copy_options, _COPY_OPTIONS)
    force, merges = (options.get(name, "false").lower() == "true" for name in ("force", "mergeschema"))
    files = _files(request, statement)
    table = opened(place)
    loaded = [0, 0]
    for first in range(0, len(files.keys), _FILES_PER_COMMIT):
        rows, count = _loaded(table, files, files.keys[first : first + _FILES_PER_COMMIT], force=force, merges=merges)
        loaded = [loaded[0] + rows, loaded[1] + count]
    row = (loaded[0], loaded[0], loaded[1], len(files.keys) - loaded[1])
    return Answer("num_affected_rows bigint, num_inserted_rows bigint, num_loaded_files bigint, num_skipped_files bigint", (row,))


def _loaded(table: Table, files: _Files, keys: Sequence[str], *, force: bool, merges: bool) -> tuple[int, int]:
    """Load some files by one commit; returns how many rows and files."""
    counts = {"rows": 0, "files": 0}

    def work(part: Transaction) -> None:
        loaded_before = part.applications
        fresh = [key for key in keys if force or files.id(key) not in loaded_before]
        counts.update(rows=0, files=len(fresh))
        if not fresh:
            return
        part.append(_rows(files, fresh, part.struct, counts, merges=merges), merge_schema=merges)
        # No other load has this number: two of one file are then two transactions of one application, and one of them is refused.
        number = (time.time_ns() // 1000 << 10) | secrets.randbits(10)
        part.note({files.id(key): number for key in fresh})

    table.transact(work)
    return counts["rows"], counts["files"]


def _options(request: Request, statement: CopyInto, options: Mapping[str, str] | None, allowed: frozenset[str]) -> dict[str, str]:
    by_name = {name.lower(): value for name, value in (options or {}).items()}
    if unknown := sorted(set(by_name) - allowed):
        raise request.refused(
            statement.target, f"COPY INTO has no option {unknown[0]!r} here; it has {', '.join(sorted(allowed)) or 'none'}"
        )
    return by_name


def _files(request: Request, statement: CopyInto) -> _Files:
    """The files that the statement names. Raises InvalidRequest if there are none, or one of FILES is not there."""
    if statement.format not in _FORMATS:
        raise request.refused(statement.path_at, f"FILEFORMAT is {statement.format}; COPY INTO reads {', '.join(_FORMATS)}")
    options = _options(request, statement, statement.format_options, _CSV_OPTIONS if statement.format == "CSV" else frozenset())
    if statement.files is None:
        store, keys = _listed(statement.path, request.options)
    else:  # nothing else is looked at
        store, keys = open_store(normalise(statement.path), request.options), sorted(statement.files)
        for each in keys:
            try:
                store.head(each)
            except ObjectNotFound as error:
                raise request.refused(statement.path_at, f"{each} is not there; FILES names files below {statement.path}") from error
    if statement.pattern is not None:
        keys = [each for each in keys if fnmatch.fnmatchcase(each, statement.pattern)]
    if not keys:
        raise request.refused(statement.path_at, f"there is no such file at {statement.path}; names that begin with _ or . do not count")
    select = None if statement.columns is None else partial(request.selected, statement.columns)
    return _Files(store, tuple(keys), statement.format, options, select)


def _listed(path: str, options: Mapping[str, str]) -> tuple[ObjectStore, list[str]]:
    """The store at the path and the files in it; for the path of a file, its folder's store and that file."""
    location = normalise(path)
    store = open_store(location, options)
    keys = [each.key for each in store.list_from("", recursive=True) if not any(part.startswith(_HIDDEN) for part in each.key.split("/"))]
    if keys:
        return store, keys
    folder, _, name = location.rpartition("/")
    above = open_store(folder, options)
    try:
        above.head(name)
    except ObjectNotFound:
        return store, []
    return above, [name]


def _rows(files: _Files, keys: Sequence[str], schema: StructType, counts: dict[str, int], *, merges: bool) -> Any:
    """The rows of the files, with the table's columns, which are filled in where a file lacks them; with `merges` also other columns."""
    if merges:
        tables = [_read(files, key, schema, merges=True) for key in followed(keys, len(keys), "files read")]
        counts["rows"] = sum(each.num_rows for each in tables)
        return pa.concat_tables(tables, promote_options="default")

    now = datetime.now(timezone.utc)

    def batches() -> Iterator[pa.RecordBatch]:
        for key in followed(keys, len(keys), "files read"):
            content = _read(files, key, schema, merges=False)
            try:
                filled = Filling.of(schema, content.column_names, now).apply(content)
                rows = conform(filled, to_give(schema, filled.column_names))
            except SchemaMismatch as error:
                raise SchemaMismatch(f"{files.store.location}/{key}: {error.message}", **error.details) from error
            counts["rows"] += rows.num_rows
            yield from rows.to_batches()

    # files that lack an identity column, which is numbered later, have another schema than those that give it
    return batches() if any(map(is_identity, schema.fields)) else pa.RecordBatchReader.from_batches(to_arrow(schema), batches())


def _read(files: _Files, key: str, schema: StructType, *, merges: bool) -> pa.Table:
    """The rows of one file. Raises InvalidRequest if it is not of its format."""
    content = io.BytesIO(files.store.get(key))
    columns = schema if files.select is None else None
    try:
        if files.format == "PARQUET":
            rows = pq.read_table(content)
        elif files.format == "JSON":
            rows = _json(content, columns, "infer" if merges else "error")
        else:
            rows = _csv(content, files.options, columns)
    except pa.ArrowInvalid as error:
        raise InvalidRequest(f"{files.store.location}/{key} cannot be read as {files.format}: {error}", location=key) from error
    return rows if files.select is None else files.select(rows)


def _json(content: io.BytesIO, schema: StructType | None, unexpected: str) -> pa.Table:
    """With the columns of a schema, or as it is. `unexpected` says what other fields are: "infer" reads them, "error" refuses them."""
    if schema is None:
        return pa_json.read_json(content)
    if any(map(is_filled, schema.fields)):  # a column that no line has is absent, not null
        names = {name.lower() for name in pa_json.read_json(content).column_names}
        schema = StructType(each for each in schema.fields if each.name.lower() in names)
        content.seek(0)
    # The rule that columns may not be null is checked later, with a better message.
    loose = pa.schema([pa.field(each.name, each.type) for each in to_arrow(schema)])
    return pa_json.read_json(content, parse_options=pa_json.ParseOptions(explicit_schema=loose, unexpected_field_behavior=unexpected))


def _csv(content: io.BytesIO, options: Mapping[str, str], schema: StructType | None) -> pa.Table:
    """With a schema its columns; otherwise all columns are texts, called _c0, _c1, ... without a header."""
    header = options.get("header", "false").lower() == "true"
    parsing = pa_csv.ParseOptions(
        delimiter=options.get("sep", options.get("delimiter", ",")),
        quote_char=options.get("quote", '"'),
        escape_char=options.get("escape") or False,
        newlines_in_values=True,
    )
    if schema is not None:
        kinds = {each.name: each.type for each in to_arrow(schema)}
        reading = pa_csv.ReadOptions(column_names=None if header else list(kinds))
    else:
        reading = pa_csv.ReadOptions(autogenerate_column_names=not header)
        kinds = dict.fromkeys(pa_csv.open_csv(content, reading, parsing).schema.names, pa.string())
        content.seek(0)
    converting = pa_csv.ConvertOptions(
        column_types=kinds, null_values=[options.get("nullvalue", "")], strings_can_be_null=True, quoted_strings_can_be_null=False
    )
    rows = pa_csv.read_csv(content, reading, parsing, converting)
    return rows if schema is not None or header else rows.rename_columns([f"_c{number}" for number in range(rows.num_columns)])
