"""Files that are there already, and stay where they are: ADOPT and CONVERT; and lists of a table's files: GENERATE.

CONVERT makes a folder of Parquet files a table in place.

ADOPT makes files that other programs wrote rows of a table. In the table's folder they are the table's own from the commit on, and garbage
collection deletes them when they were removed for long enough. Elsewhere the log names them by absolute URIs, and they are never deleted.

Files of others carry no owner in their names, and garbage collection goes by their age. So an adoption opens a plan before it looks. A
collector that sees the plan keeps all such files. One that did not see it had raised the horizon before, which says what it may be
deleting, and such a file is refused. The commit fails if the plan is gone. A refused adoption leaves nothing, and deletes nothing. Of
two that adopt one file at once the rule `adopted-what-i-adopt` refuses the second.

GENERATE writes manifests, for engines that read files by lists (Presto, Athena, Redshift: "symlink format").
`_symlink_format_manifest/<partition folders>/manifest` has the absolute URI of each file of a version, one a line. Nothing of it is part of
the log.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeAlias
from urllib.parse import unquote

import pyarrow as pa

from ...coordinator.api import ADOPTION, DEFAULT_TIMEOUT_S, Change, Commit, Timeout, close_plan, given_up_before, id_in, open_plan, submit
from ...coordinator.errors import OutcomeUnknown
from ...coordinator.rules.intent import ADOPTING, Kind, Terms
from ...storage.actions import AddFile, Metadata
from ...storage.actions.features import in_data_files
from ...storage.actions.filetable import add_rows
from ...storage.actions.records import record_count
from ...storage.actions.uris import absolute, key_inside, object_at
from ...storage.arguments import check_key
from ...storage.caches import at_once
from ...storage.constants import LOG_FOLDER
from ...storage.data.scan import TableScan
from ...storage.data.statistics import Footer, read_footer
from ...storage.errors import (
    ConstraintViolated,
    Corrupt,
    InvalidRequest,
    MissingObject,
    NullNotAllowed,
    ObjectNotFound,
    SchemaMismatch,
    TableNotFound,
    UnsupportedFeature,
)
from ...storage.log.snapshot import Snapshot
from ...storage.schema.conform import conform, is_legal, is_limited
from ...storage.schema.datatypes import arrow_type, as_nullable, is_filled
from ...storage.schema.identity import identities
from ...storage.schema.mapping import MODE_KEY, mapping_mode, physical, physical_name
from ...storage.schema.partitions import HIVE_DEFAULT_PARTITION, decode_value, encode_value, folder, path_to_uri, uri_to_path
from ...storage.schema.schema import PrimitiveType, StructField, StructType, merge
from ...storage.stores.objects import ObjectInfo, ObjectStore
from ..client.address import TableAddress
from ..client.open_table import OpenTable
from ..client.property_rules import CONSTRAINT_PREFIX, PRIMARY_KEY, indexed_columns_of
from ..maintain.garbage import is_by_an_engine, is_hidden
from ..write.data_writing import WritePlan, check_rows, why_rows_are_needed
from ..write.redefinition import struct_of
from ..write.requirements import require_no_key, snapshot_for_change
from .creation import commit_first, first_change, new_table, require_no_log, table_for_creation

MODE: Final = "symlink_format_manifest"
_MANIFESTS: Final = "_symlink_format_manifest/"
_MANIFEST: Final = "manifest"
_READ_AT_ONCE: Final = 16
Paths: TypeAlias = Sequence[str | os.PathLike[str]] | Mapping[str | os.PathLike[str], Mapping[str, Any]]
"""Files by their paths, with partition values that their folders do not tell."""


def convert(
    address: TableAddress,
    partition_schema: pa.Schema | StructType | None,
    properties: Mapping[str, str],
    *,
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
) -> tuple[OpenTable, Commit]:
    """Make a table of the Parquet files at a location: its version 0 adds them all, with the statistics of their footers.

    Raises TableExists, TableNotFound if there is no file, InvalidRequest and SchemaMismatch, naming a file that does not fit.
    """
    if mapping_mode(properties) != "none":
        raise InvalidRequest(f"the files have the columns' names: convert first, and then set {MODE_KEY} to 'name'", property=MODE_KEY)
    unchecked = [key for key in properties if str(key).startswith(CONSTRAINT_PREFIX) or key == PRIMARY_KEY]
    if unchecked:
        raise InvalidRequest(
            f"convert() reads no rows, so it cannot check that they satisfy {', '.join(unchecked)}: convert first, then set_properties() "
            "checks a constraint (a primary key needs an empty table)",
            properties=unchecked,
        )
    partitions = StructType([]) if partition_schema is None else struct_of(partition_schema)
    for each in partitions.fields:
        if not isinstance(each.type, PrimitiveType):
            raise InvalidRequest(f"partition column {each.name!r} is {each.type}; folders hold values of primitive types", column=each.name)
    partitions = StructType([StructField(each.name, each.type) for each in partitions.fields])
    store = address.store()
    require_no_log(address, store)
    listed = _data_files(store, partitions.names)
    if not listed:
        raise TableNotFound(f"there is no Parquet file at {address.location} to make a table of", location=address.location)
    values = [_values(each.key, partitions) for each in listed]
    footers = at_once(partial(read_footer, store), [each.key for each in listed], _READ_AT_ONCE, "sluice-convert", "files read")
    schema = _merged(listed, footers, partitions)
    new = new_table(schema, partitions.names, properties)
    table = table_for_creation(address, allow_nonempty=True)
    indexed = indexed_columns_of(new.metadata.configuration)
    stats = [footer.statistics(schema, partitions.names, indexed) for footer in footers]
    adds = [
        AddFile(path_to_uri(info.key), texts, info.size, info.modified_ms, data_change=True, stats=of_file)
        for info, texts, of_file in zip(listed, values, stats, strict=True)
    ]
    count, columns = str(len(adds)), str(list(partitions.names))
    parameters = {"numFiles": count, "partitionedBy": columns, "collectStats": "true", "sourceFormat": "parquet"}
    change = replace(first_change(table, new, adds, operation="CONVERT"), parameters=parameters, metrics={"numConvertedFiles": count})
    return table, commit_first(table, change, timeout_s=timeout_s)


def _data_files(store: ObjectStore, partition_columns: Sequence[str]) -> list[ObjectInfo]:
    """The files that are not hidden. Raises InvalidRequest for one that is no Parquet file by its name."""
    files: list[ObjectInfo] = []
    for each in store.list_from("", recursive=True):
        if "/" + LOG_FOLDER in each.key:
            raise InvalidRequest(f"{store.location} holds another table: {each.key.partition('/' + LOG_FOLDER)[0]}", key=each.key)
        if is_hidden(each.key, partition_columns):
            continue
        if not each.key.lower().endswith((".parquet", ".parq")):
            raise InvalidRequest(
                f"{store.location} holds {each.key!r}, which is no Parquet file by its name: move it away, or rename it; files and folders "
                "whose names begin with _ or . are ignored",
                key=each.key,
            )
        files.append(each)
    return files


def _values(key: str, partitions: StructType) -> dict[str, str | None]:
    """The partition values in a file's folders, as the log writes them. Raises InvalidRequest."""
    folders = [part.partition("=") for part in key.split("/")[:-1]]
    named = [unquote(name) for name, _, _ in folders]
    if [name.lower() for name in named] != [name.lower() for name in partitions.names] or not all(sign for _, sign, _ in folders):
        shown = "/".join(f"{name}=..." for name in partitions.names) or "no folders"
        raise InvalidRequest(
            f"{key!r} is not in folders of the partition columns ({shown}): give partition_schema the columns of the "
            "folders, in their order and with their types",
            key=key,
            partition_columns=list(partitions.names),
        )
    texts = [None if text == HIVE_DEFAULT_PARTITION else unquote(text) for _, _, text in folders]
    return {each.name: _text_of(key, text, each) for each, text in zip(partitions.fields, texts, strict=True)}


def _merged(listed: Iterable[ObjectInfo], footers: Iterable[Footer], partitions: StructType) -> StructType:
    """The columns of all files, and the partition columns after them. Raises SchemaMismatch."""
    own = {name.lower() for name in partitions.names}
    schema: StructType | None = None
    for info, footer in zip(listed, footers, strict=True):
        columns = StructType([each for each in footer.schema.fields if each.name.lower() not in own])
        try:
            schema = columns if schema is None else merge(schema, columns)
        except SchemaMismatch as unfit:
            raise SchemaMismatch(f"{info.key!r} does not fit the files before it: {unfit.message}", key=info.key) from unfit
    return StructType([*(() if schema is None else schema.fields), *partitions.fields])


def adopt(table: OpenTable, files: Paths, terms: Terms) -> Commit:
    """Make Parquet files that other programs wrote rows of the table, in one commit.

    Raises InvalidRequest and its kinds, naming a file that does not fit, before anything is filed; MissingObject for one that is not there;
    ConcurrentAppendException for one that another client adopted first.
    """
    plan = open_plan(table.context, ADOPTION)
    try:
        latest = snapshot_for_change(table, terms.version)
        adds = _adopted(table, latest, files, plan)
        metrics = {
            "numAddedFiles": len(adds),
            "numOutputBytes": sum(add.size for add in adds),
            "numOutputRows": sum(record_count(add.stats) or 0 for add in adds),
        }
        change = Change(
            plan,
            ADOPTING,
            latest,
            adds,
            reads_elsewhere=True,  # a blind append would share a version with others that are not compared with it
            parameters={"numFiles": str(len(adds))},
            metrics={name: str(value) for name, value in metrics.items()},
            schema=latest.metadata.schema,
            kind=Kind.APPEND,
        )
        commit = submit(table, change.on(terms), timeout_s=terms.timeout_s)
    except OutcomeUnknown:
        raise  # the plan keeps the files, which may be the table's
    except BaseException:
        close_plan(table.context, plan)
        raise
    close_plan(table.context, plan)
    return commit


def _adopted(table: OpenTable, latest: Snapshot, files: Paths, plan: str) -> list[AddFile]:
    location, metadata, schema = table.location, latest.metadata, latest.metadata.schema
    require_no_key(location, metadata)
    # check: files-lack-what-the-table-puts-into-them (in_data_files(metadata.configuration) -> False)
    hindrances = {
        "only sluice gives the values of its identity column": bool(identities(schema)),
        f"{MODE_KEY} is 'id', and its files number their columns": mapping_mode(metadata.configuration) == "id",
        "its data files have the partition columns, or numbers of columns for Iceberg, too": in_data_files(metadata.configuration),
    }
    for why in (each for each, holds in hindrances.items() if holds):
        raise UnsupportedFeature(f"{location} adopts no files: {why}; write the rows with plan_write", features=("adopt",), access="write")
    values_of: dict[str, Mapping[str, Any] | None] = {}
    for each in files:
        path = _path_of(location, os.fspath(each))
        if path in values_of:
            raise InvalidRequest(f"the file {os.fspath(each)!r} is named twice: adopt each once", path=path)
        values_of[path] = files[each] if isinstance(files, Mapping) else None
    live, removed = ({_place(location, path) for path in listed["path"].to_pylist()} for listed in (latest.files, latest.tombstones))
    engine_ms, foreign_ms = given_up_before(table.context)
    partitions = StructType([schema.named(name) for name in latest.partition_columns])
    rows_needed = why_rows_are_needed(WritePlan(table.address, plan, metadata)) is not None
    check = check_rows(metadata)
    indexed = indexed_columns_of(metadata.configuration)
    scan = TableScan(table.store, schema, latest.partition_columns, latest.version)

    def look(path: str) -> AddFile:
        named = _place(location, path)
        # check: files-are-adopted-once (named in live -> False)
        if named in live:
            raise InvalidRequest(f"{named!r} is a file of the table already", path=path)
        store, key = object_at(table.store, path)
        try:
            info, footer = store.head(key), read_footer(store, key)
        except ObjectNotFound as gone:
            raise MissingObject(f"there is no file {named!r} to adopt", path=path) from gone
        if absolute(location, path) is None:
            _require_kept(info, latest.metadata, given_up=named in removed, engine_ms=engine_ms, foreign_ms=foreign_ms)
        own = values_of[path]
        folders = named.split("/")[-len(partitions.fields) - 1 :]
        texts = _values("/".join(folders), partitions) if own is None else _texts_of(named, own, partitions)
        for each in partitions.fields:
            if texts[each.name] is None and not each.nullable:
                raise NullNotAllowed(f"{named!r}: the partition column {each.name!r} is NOT NULL", path=path, column=each.name)
        unsure = _require_fit(named, footer, physical(schema.without(latest.partition_columns)), metadata.physical_partitions)
        values = {physical_name(each): texts[each.name] for each in partitions.fields}
        stats = footer.statistics(physical(schema), metadata.physical_partitions, indexed)
        add = AddFile(path, values, info.size, info.modified_ms, data_change=True, stats=stats)
        # check: rows-of-adopted-files-are-checked (rows_needed or unsure -> False)
        if rows_needed or unsure:
            try:
                for batch in scan.batches(add_rows([add])):
                    check(conform(batch, schema))
            except (ConstraintViolated, SchemaMismatch) as unfit:
                unfit.tell(f"; the row is in {named!r}, and no file was adopted")
                raise
        return add

    return at_once(look, list(values_of), _READ_AT_ONCE, "sluice-adopt", "files read")


def _path_of(location: str, named: str) -> str:
    """The `path` in the log of a file that a caller named: relative to the table's folder, or an absolute path or URI."""
    scheme, colon, rest = named.partition(":/")
    uri = f"{scheme}:{path_to_uri('/' + rest)}" if colon and scheme.isalnum() else path_to_uri(named)
    whole = absolute(location, uri)
    if whole is None:
        return path_to_uri(check_key(named))
    if whole.startswith(location + "/"):
        return path_to_uri(whole[len(location) + 1 :])
    if whole.partition(":")[0] != location.partition(":")[0]:
        raise InvalidRequest(f"{named!r} is in another kind of store than {location}: copy it there first", path=named)
    scheme, _, rest = whole.partition("://")
    return f"{scheme}://{path_to_uri(rest)}"


def _place(location: str, path: str) -> str:
    """What a `path` in the log names: a key of the table, or a URI elsewhere, each in one spelling."""
    return key_inside(location, path) or absolute(location, path) or uri_to_path(path)


def _require_kept(info: ObjectInfo, metadata: Metadata, *, given_up: bool, engine_ms: int, foreign_ms: int) -> None:
    """Raise InvalidRequest for a file in the table's folder that is another's, or that garbage collection may be deleting now."""
    owner, key = id_in(info.key), info.key
    if owner is not None or is_hidden(key, metadata.physical_partitions):
        why = f"belongs to the transaction {owner}" if owner else "is hidden: its name, or a folder's, begins with _ or ."
        raise InvalidRequest(f"{key!r} {why}; rename it", key=key)
    limit_ms = max(engine_ms if is_by_an_engine(key) else 0, foreign_ms)
    # check: files-given-up-are-not-adopted (given_up or info.modified_ms < limit_ms -> False)
    if given_up or info.modified_ms < limit_ms:
        why = "was removed from the table: restore() brings it back" if given_up else "may be garbage that a vacuum is deleting"
        raise InvalidRequest(f"{key!r} {why}; to adopt it, copy it to another name", key=key)


def _texts_of(named: str, own: Mapping[str, Any], partitions: StructType) -> dict[str, str | None]:
    """The partition values that the caller gave for a file, as the log writes them; a text stands for a value of any type."""
    values = {name.lower(): value for name, value in own.items()}
    if values.keys() != {name.lower() for name in partitions.names}:
        columns = ", ".join(partitions.names) or "none"
        raise InvalidRequest(
            f"{named!r} has values of {', '.join(own) or 'no column'}, and the partition columns are {columns}", path=named
        )
    return {each.name: _text_of(named, values[each.name.lower()], each) for each in partitions.fields}


def _text_of(named: str, value: Any, column: StructField) -> str | None:
    """A file's value of a partition column, or its text, as the log writes it. Raises InvalidRequest."""
    assert isinstance(column.type, PrimitiveType)
    try:
        return encode_value(decode_value(value, column.type) if isinstance(value, str) else value, column.type)
    except (Corrupt, SchemaMismatch, pa.ArrowException, TypeError, ValueError, AttributeError) as unfit:
        raise InvalidRequest(
            f"{named!r}: {value!r} is no value of the partition column {column.name!r}, which is {column.type}",
            key=named,
            column=column.name,
        ) from unfit


def _require_fit(named: str, footer: Footer, stored: StructType, partitions: Sequence[str]) -> bool:
    """Whether rows must be read to know that the file fits. Raises SchemaMismatch and NullNotAllowed for one that does not.

    `stored` are the columns of files, by their names in files.
    """

    def unfit(column: str, why: str) -> SchemaMismatch:
        return SchemaMismatch(f"{named!r} does not fit the table: its column {column!r} {why}", path=named, column=column)

    own = {each.name: each for each in stored.fields}
    for each in footer.schema.fields:
        if each.name in partitions:
            raise unfit(each.name, "is a partition column, whose values the log has: write files without it")
        if each.name not in own:
            raise unfit(each.name, f"is not among the table's in files ({', '.join(own)}); case counts")
        if arrow_type(each.type) != arrow_type(as_nullable(own[each.name]).type):
            raise unfit(each.name, f"is {each.type}, and the table's {own[each.name].type}")
        if each.name in footer.nanoseconds:
            raise unfit(each.name, "has times in nanoseconds, which not every engine reads: write microseconds")
    unsure = False
    for each in stored.fields:
        low, high, nulls = footer.columns.get(each.name, (None, None, None))
        if each.name not in footer.schema.names:
            if is_filled(each) or not each.nullable:
                raise unfit(each.name, "is missing, and it has a default, is generated, or is NOT NULL: write it into the file")
            continue
        if nulls and not each.nullable:
            raise NullNotAllowed(f"{named!r} has {nulls} nulls in column {each.name!r}, which is NOT NULL", path=named, column=each.name)
        unsure = unsure or (nulls is None and not each.nullable)
        if is_limited(each.type) and nulls != footer.rows:
            if not isinstance(each.type, PrimitiveType) or None in (low, high):
                unsure = True
                continue
            unsure = unsure or not all(is_legal(bound, each.type) for bound in (low, high))
    return unsure


def generate(store: ObjectStore, snapshot: Snapshot, mode: str) -> int:
    """Write the manifests of a version, and remove those of partitions without files; returns how many there are.

    Raises InvalidRequest for an unknown mode, UnsupportedFeature for a table with deletion vectors: a list of files cannot say
    which rows are deleted.
    """
    if mode != MODE:
        raise InvalidRequest(f"the mode is {mode!r}; use {MODE!r}", mode=mode)
    if snapshot.files["deletion_vector"].null_count < snapshot.num_files:
        raise UnsupportedFeature(
            f"files of {snapshot.location} have deletion vectors, and who reads files by a list would read deleted rows: compact('major') "
            "first, with delta.enableDeletionVectors off",
            features=("deletionVectors",),
            access="read",
        )
    listed: dict[str, list[str]] = defaultdict(list)
    for add in snapshot.add_files():
        below = folder(snapshot.metadata.physical_partitions, add.partition_values)
        listed[f"{_MANIFESTS}{below}/{_MANIFEST}" if below else f"{_MANIFESTS}{_MANIFEST}"].append(
            absolute(snapshot.location, add.path) or f"{snapshot.location}/{uri_to_path(add.path)}"
        )
    if not snapshot.partition_columns and not listed:
        listed[f"{_MANIFESTS}{_MANIFEST}"] = []
    for key, files in listed.items():
        store.put(key, "".join(f"{file}\n" for file in sorted(files)).encode())
    for each in list(store.list_from(_MANIFESTS, recursive=True)):
        if each.key not in listed:
            store.delete(each.key)
    return len(listed)
