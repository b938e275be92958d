"""Identity columns: Delta Lake goes on where sluice stopped, and the other way round, and no value is given twice."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

import sluice
from sluice.storage.schema.identity import identities

from .engine import Delta, DeltaError

pytestmark = [pytest.mark.delta_spark, pytest.mark.timeout(600)]

SCHEMA = pa.schema(
    [
        pa.field(
            "id",
            pa.int64(),
            metadata={"delta.identity.start": "1", "delta.identity.step": "2", "delta.identity.allowExplicitInsert": "false"},
        ),
        pa.field("name", pa.string()),
    ]
)


def rows(*names: str) -> pa.Table:
    return pa.table({"name": list(names)})


def values(table: sluice.Table) -> list[int]:
    found = sorted(table.refresh().snapshot().to_arrow(["id"])["id"].to_pylist())
    assert len(set(found)) == len(found)
    assert all(each % 2 == 1 for each in found)
    return found


def test_both_count_on_from_one_another(tmp_path: Path, zookeeper_address: str, delta: Delta) -> None:
    table = sluice.Table.create(tmp_path / "t", SCHEMA, coordinator=zookeeper_address)
    table.append(rows("a", "b", "c"))
    name = f"delta.`{table.location}`"
    assert [each["id"] for each in sorted(delta.read(table.location), key=lambda each: each["id"])] == [1, 3, 5]
    with pytest.raises(DeltaError):
        delta.sql(f"INSERT INTO {name} (name) VALUES ('x')")
    table.detach()
    delta.sql(f"INSERT INTO {name} (name) VALUES ('d'), ('e')")
    theirs = sorted(each["id"] for each in delta.read(table.location))
    assert len(set(theirs)) == 5
    with pytest.raises(DeltaError, match="IDENTITY"):
        delta.sql(f"INSERT INTO {name} (id, name) VALUES (7, 'x')")
    again = sluice.Table.attach(table.location, coordinator=zookeeper_address)
    again.append(rows("f"))
    assert values(again)[:5] == theirs
    again.detach()
    delta.sql(f"INSERT INTO {name} (name) VALUES ('g')")
    last = sluice.Table.attach(table.location, coordinator=zookeeper_address)
    last.append(rows("h"))
    assert len(values(last)) == 8


def test_a_table_that_delta_lake_made_is_continued(tmp_path: Path, zookeeper_address: str, delta: Delta) -> None:
    """Delta Lake's SQL takes GENERATED in tables of some catalogs only: a log as it writes it, which it then writes on."""
    location = tmp_path / "t"
    (location / "_delta_log").mkdir(parents=True)
    metadata = {"delta.identity.start": 10, "delta.identity.step": -3, "delta.identity.allowExplicitInsert": True}
    fields = [
        {"name": "id", "type": "long", "nullable": True, "metadata": metadata},
        {"name": "name", "type": "string", "nullable": True, "metadata": {}},
    ]
    actions = [
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 6}},
        {
            "metaData": {
                "id": "6b0a7e25-0000-4004-8000-36a556de3c00",
                "format": {"provider": "parquet", "options": {}},
                "schemaString": json.dumps({"type": "struct", "fields": fields}),
                "partitionColumns": [],
                "configuration": {},
                "createdTime": 1,
            }
        },
    ]
    (location / "_delta_log" / f"{0:020}.json").write_text("\n".join(map(json.dumps, actions)))
    name = f"delta.`{location}`"
    delta.sql(f"INSERT INTO {name} (name) VALUES ('a')")
    delta.sql(f"INSERT INTO {name} (id, name) VALUES (1000, 'given')")
    table = sluice.Table.attach(location, coordinator=zookeeper_address)
    [column] = identities(table.struct)
    assert (column.start, column.step, column.explicit, column.mark) == (10, -3, True, 10)
    table.append(rows("b", "c"))
    assert sorted(table.snapshot().to_arrow()["id"].to_pylist()) == [4, 7, 10, 1000]
    table.detach()
    delta.sql(f"INSERT INTO {name} (name) VALUES ('d')")
    found = sorted(each["id"] for each in delta.read(str(location)))
    assert len(set(found)) == 5
    assert found[0] < 4
