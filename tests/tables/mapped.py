"""Tables with column mapping, for tests."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

import sluice
from tests.tables.conftest import Place

INNER = pa.struct([("x", pa.int64()), ("y z", pa.string())])
WHOLE = pa.schema(
    [
        ("id", pa.int64()),
        ("a, b.c", pa.string()),
        ("s", INNER),
        ("l", pa.list_(INNER)),
        ("m", pa.map_(pa.string(), INNER)),
        ("p", pa.string()),
    ]
)
MODE = "delta.columnMapping.mode"


def made(place: Place, schema: pa.Schema = WHOLE, partition_by: Sequence[str] = ("p",), **properties: str) -> sluice.Table:
    properties.setdefault("mode", "name")
    settings = {MODE: properties.pop("mode"), **properties}
    return sluice.Table.create(place.location, schema, partition_by=partition_by, properties=settings, coordinator=place.coordinator)


def plain(place: Place, **properties: str) -> sluice.Table:
    """A table (id, v, p) with one row in each of two partitions."""
    schema = pa.schema([("id", pa.int64()), ("v", pa.string()), ("p", pa.string())])
    table = made(place, schema, **properties)
    table.append(pa.table({"id": [1, 2], "v": ["one", "two"], "p": ["a", "b"]}))
    return table


def rename(table: sluice.Table, **names: str) -> None:
    table.alter_columns([sluice.ColumnChange((old,), name=new) for old, new in names.items()])
