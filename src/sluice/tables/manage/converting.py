"""CONVERT: a folder of Parquet files becomes a table in place; its files stay where and what they are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Final
from urllib.parse import unquote

import pyarrow as pa

from ...coordinator.api import DEFAULT_TIMEOUT_S, Commit, Timeout
from ...storage.actions import AddFile
from ...storage.constants import LOG_FOLDER
from ...storage.data.footers import Footer, read_footer
from ...storage.errors import Corrupt, InvalidRequest, SchemaMismatch, TableNotFound
from ...storage.schema.partitions import HIVE_DEFAULT_PARTITION, decode_value, encode_value, path_to_uri
from ...storage.schema.schema import PrimitiveType, StructField, StructType, from_arrow, merge
from ...storage.stores.objects import ObjectInfo, ObjectStore
from ..client.address import TableAddress
from ..client.open_table import OpenTable
from ..client.property_rules import CONSTRAINT_PREFIX, PRIMARY_KEY, indexed_columns_of
from .creation import commit_first, first_change, new_table, require_no_log, table_for_creation

_READ_AT_ONCE: Final = 16


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
    _refuse_what_rows_must_satisfy(properties)
    partitions = _struct(partition_schema)
    store = address.store()
    require_no_log(address, store)
    listed = _data_files(store, partitions.names)
    if not listed:
        raise TableNotFound(f"there is no Parquet file at {address.location} to make a table of", location=address.location)
    values = [_values(each.key, partitions) for each in listed]
    with ThreadPoolExecutor(_READ_AT_ONCE, thread_name_prefix="sluice-convert") as pool:
        footers = list(pool.map(partial(read_footer, store), [each.key for each in listed]))
    schema = _merged(listed, footers, partitions)
    new = new_table(schema, partitions.names, properties)
    table = table_for_creation(address, allow_nonempty=True)
    indexed = indexed_columns_of(new.metadata.configuration)
    adds = [
        AddFile(
            path=path_to_uri(info.key),
            partition_values=texts,
            size=info.size,
            modification_time=info.modified_ms,
            data_change=True,
            stats=footer.statistics(schema, partitions.names, indexed),
        )
        for info, texts, footer in zip(listed, values, footers, strict=True)
    ]
    parameters = {
        "numFiles": str(len(adds)),
        "partitionedBy": str(list(partitions.names)),
        "collectStats": "true",
        "sourceFormat": "parquet",
    }
    metrics = {"numConvertedFiles": str(len(adds))}
    change = replace(first_change(table, new, adds, operation="CONVERT"), parameters=parameters, metrics=metrics)
    return table, commit_first(table, change, timeout_s=timeout_s)


def _refuse_what_rows_must_satisfy(properties: Mapping[str, str]) -> None:
    named = [key for key in properties if str(key).startswith(CONSTRAINT_PREFIX) or key == PRIMARY_KEY]
    if named:
        raise InvalidRequest(
            f"convert() reads no rows, so it cannot check that they satisfy {', '.join(named)}: convert first, then set_properties() "
            "checks a constraint (a primary key needs an empty table)",
            properties=named,
        )


def _struct(schema: pa.Schema | StructType | None) -> StructType:
    if schema is None:
        return StructType([])
    if not isinstance(schema, (pa.Schema, StructType)):
        raise InvalidRequest(f"partition_schema is of type {type(schema).__name__}; give a pyarrow.schema([...])")
    struct = schema if isinstance(schema, StructType) else from_arrow(schema)
    for each in struct.fields:
        if not isinstance(each.type, PrimitiveType):
            raise InvalidRequest(f"partition column {each.name!r} is {each.type}; folders hold values of primitive types", column=each.name)
    return StructType([StructField(each.name, each.type) for each in struct.fields])


def _data_files(store: ObjectStore, partition_columns: Sequence[str]) -> list[ObjectInfo]:
    """The files that are not hidden. Raises InvalidRequest for one that is no Parquet file by its name."""
    found: list[ObjectInfo] = []
    for each in store.list_from("", recursive=True):
        if "/" + LOG_FOLDER in each.key:
            raise InvalidRequest(f"{store.location} holds another table: {each.key.partition('/' + LOG_FOLDER)[0]}", key=each.key)
        if _is_hidden(each.key, partition_columns):
            continue
        if not each.key.lower().endswith((".parquet", ".parq")):
            raise InvalidRequest(
                f"{store.location} holds {each.key!r}, which is no Parquet file by its name: move it away, or rename it; files and folders "
                "whose names begin with _ or . are ignored",
                key=each.key,
            )
        found.append(each)
    return found


def _is_hidden(key: str, partition_columns: Sequence[str]) -> bool:
    own = tuple(f"{column}=" for column in partition_columns)
    return any(part[0] in "_." and not (own and part.startswith(own)) for part in key.split("/"))


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
    values: dict[str, str | None] = {}
    for each, (_, _, text) in zip(partitions.fields, folders, strict=True):
        value = None if text == HIVE_DEFAULT_PARTITION else unquote(text)
        assert isinstance(each.type, PrimitiveType)
        try:
            values[each.name] = encode_value(decode_value(value, each.type), each.type)
        except (Corrupt, SchemaMismatch, pa.ArrowException) as unfit:
            raise InvalidRequest(
                f"{key!r}: {value!r} is no value of the partition column {each.name!r}, which is {each.type}", key=key, column=each.name
            ) from unfit
    return values


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
