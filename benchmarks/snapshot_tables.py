"""Tables of very many files that nobody wrote: a checkpoint in the protocol's columns, and a few commits after it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sluice.storage.log.checkpoint_writer import CHECKPOINT_SCHEMA

__all__ = ["APP_VERSION", "COMMITS", "Shape", "make"]

VERSION: Final = 10
COMMITS: Final = 3
"""Commits after the checkpoint; each adds one file of one byte."""
APP_VERSION: Final = 7
_STEP: Final = 50_000
_ADD: Final = CHECKPOINT_SCHEMA.field("add").type


@dataclass(frozen=True, slots=True)
class Shape:
    """A table's shape: its files, its partition columns (the values of which are texts), and the rows of a row group."""

    files: int
    partition_columns: int = 1
    row_group: int = 131_072

    @property
    def name(self) -> str:
        """How the table is called."""
        return f"{self.files:,} files x {self.partition_columns} partition column{'s' if self.partition_columns > 1 else ''}"

    @property
    def live_files(self) -> int:
        """How many files the latest version has."""
        return self.files + COMMITS

    @property
    def live_bytes(self) -> int:
        """The sizes of these files together."""
        return sum(range(1000, 1000 + self.files)) + COMMITS

    @property
    def partitions(self) -> list[str]:
        """The names of the partition columns."""
        return [f"p{number:03d}" for number in range(self.partition_columns)]


def make(shape: Shape, folder: Path) -> int:
    """Write the table's log; returns the size of its checkpoint in bytes. There are no data files."""
    log = folder / "_delta_log"
    log.mkdir(parents=True)
    checkpoint = log / f"{VERSION:020d}.checkpoint.parquet"
    with pq.ParquetWriter(checkpoint, CHECKPOINT_SCHEMA, compression="snappy") as writer:
        waiting: list[pa.Table] = [pa.Table.from_pylist(_state(shape), CHECKPOINT_SCHEMA)]
        for table in _files(shape):
            waiting.append(table)
            if sum(each.num_rows for each in waiting) >= shape.row_group:
                writer.write_table(pa.concat_tables(waiting), row_group_size=shape.row_group)
                waiting = []
        if waiting:
            writer.write_table(pa.concat_tables(waiting), row_group_size=shape.row_group)
    values = dict.fromkeys(shape.partitions, "x")
    for version in range(VERSION, VERSION + COMMITS + 1):
        actions: list[dict[str, Any]] = [{"commitInfo": {"timestamp": version, "operation": "WRITE"}}]
        if version > VERSION:
            add = {"path": f"new-{version}.parquet", "partitionValues": values, "size": 1, "modificationTime": 1, "dataChange": True}
            actions.append({"add": add | {"stats": '{"numRecords":1}'}})
        (log / f"{version:020d}.json").write_text("".join(json.dumps(each) + "\n" for each in actions))
    (log / "_last_checkpoint").write_text(json.dumps({"version": VERSION, "size": shape.files + 3}))
    return checkpoint.stat().st_size


def _state(shape: Shape) -> list[dict[str, Any]]:
    columns = [
        *((name, "string") for name in shape.partitions),
        ("id", "long"),
        ("at", "timestamp"),
        ("name", "string"),
        ("amount", "double"),
    ]
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in columns]
    metadata = {
        "id": "5fba94ed-9794-4965-ba6e-6ee3c0d22af9",
        "format": {"provider": "parquet", "options": []},
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "partitionColumns": shape.partitions,
        "createdTime": 1,
        "configuration": [],
    }
    return [
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {"metaData": metadata},
        {"txn": {"appId": "bench", "version": APP_VERSION}},
    ]


def _files(shape: Shape) -> Iterator[pa.Table]:
    for start in range(0, shape.files, _STEP):
        adds = _adds(shape, start, min(_STEP, shape.files - start))
        yield pa.table(
            {each.name: adds if each.name == "add" else pa.nulls(len(adds), each.type) for each in CHECKPOINT_SCHEMA}, CHECKPOINT_SCHEMA
        )


def _adds(shape: Shape, start: int, count: int) -> pa.StructArray:
    number = pa.array(range(start, start + count), pa.int64())
    digits = os.urandom(16 * count).hex()
    random = pa.array([digits[at : at + 32] for at in range(0, len(digits), 32)])
    day = pc.strftime(pc.add(pc.divide(number, 1000), 19_000).cast(pa.int32()).cast(pa.date32()).cast(pa.timestamp("s")), format="%Y-%m-%d")
    low = pc.multiply(number, 1000)
    bounds = '","name":"%s","amount":%s}'
    begin = _joined('{"numRecords":1000,"minValues":{"id":', low, ',"at":"', day, "T00:00:00.000Z", bounds % ("aaaaaaaaaaaa", 0.01))
    end = _joined(',"maxValues":{"id":', pc.add(low, 999), ',"at":"', day, "T23:59:59.999Z", bounds % ("zzzzzzzzzzzz", 999.99))
    stats = _joined(begin, end, ',"nullCount":{"id":0,"at":0,"name":0,"amount":0}}')
    known = {
        "path": _joined("part-", pc.utf8_lpad(number.cast(pa.string()), 7, padding="0"), "-", random, "-c000.snappy.parquet"),
        "partitionValues": _partition_values(shape, start, count, day),
        "size": pc.add(number, 1000),
        "modificationTime": pc.add(number, 1_700_000_000_000),
        "dataChange": pa.repeat(False, count),
        "stats": stats,
    }
    columns = [known[each.name] if each.name in known else pa.nulls(count, each.type) for each in _ADD]
    return pa.StructArray.from_arrays(columns, fields=list(_ADD))


def _joined(*parts: Any) -> pa.Array:
    return pc.binary_join_element_wise(*(part.cast(pa.string()) if isinstance(part, pa.Array) else part for part in parts), "")


def _partition_values(shape: Shape, start: int, count: int, day: pa.Array) -> pa.MapArray:
    """The day alone, or texts of which there are a thousand."""
    width = shape.partition_columns
    numbers = pa.array(range(start * width, (start + count) * width), pa.int64())
    values = day if width == 1 else _joined("v", pc.bit_wise_and(numbers, 1023))
    offsets = pa.array(range(0, count * width + 1, width), pa.int32())
    return pa.MapArray.from_arrays(offsets, pa.array(shape.partitions * count), values)
