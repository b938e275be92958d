"""V2 checkpoints and version checksums between sluice and Delta Lake on Spark: each reads what the other wrote, and goes on from it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sluice
from sluice.storage.log.checksum import disagreements
from sluice.storage.log.snapshot import Snapshot
from sluice.storage.stores.local import LocalStore
from tests.storage.logs import crc_path

from .engine import Delta

pytestmark = [pytest.mark.delta_spark, pytest.mark.timeout(600)]

SCHEMA = pa.schema([("id", pa.int64()), ("p", pa.string())])
PROPERTIES = {"delta.checkpointPolicy": "v2", "delta.checkpointInterval": "1000"}
LAYOUTS: dict[str, dict[str, str]] = {
    "plain": {},
    "vectors": {"delta.enableDeletionVectors": "true"},
    "tracked": {"delta.enableRowTracking": "true"},
}


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": ids, "p": [f"{each % 2}" for each in ids]}, SCHEMA)


def ids_of(found: Any) -> list[int]:
    return sorted(row["id"] for row in found)


@pytest.fixture
def table(tmp_path: Path, request: pytest.FixtureRequest) -> sluice.Table:
    properties = {**PROPERTIES, **getattr(request, "param", {})}
    return sluice.Table.create(tmp_path / "t", SCHEMA, coordinator=f"memory://{tmp_path.name}", partition_by=["p"], properties=properties)


def log_of(table: sluice.Table) -> Path:
    return Path(table.location.removeprefix("file://")) / "_delta_log"


def only_from(table: sluice.Table, version: int) -> None:
    """Remove the commits and checksums below a version: only its checkpoint says what they did."""
    for each in log_of(table).iterdir():
        if each.name[0].isdigit() and int(each.name[:20]) < version:
            each.unlink()


@pytest.mark.parametrize("table", LAYOUTS.values(), ids=LAYOUTS, indirect=True)
def test_delta_lake_reads_checkpoints_that_share_their_files(table: sluice.Table, delta: Delta, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("sidecars", "checkpoint_writer"):
        monkeypatch.setattr(f"sluice.storage.log.{module}.ROWS_MAX", 2)
    for number in range(4):
        table.append(rows(number * 10, number * 10 + 1, number * 10 + 2))
        table.checkpoint()
    table.delete("id = 11")
    table.checkpoint()
    table.append(rows(100))
    version = table.checkpoint()
    table.append(rows(200))
    names = [each.name for each in log_of(table).iterdir()]
    assert f"{version:020d}.json" in names
    assert not (log_of(table) / f"{version:020d}.checkpoint.parquet").exists(), "its name has a UUID"
    only_from(table, version)
    expected = ids_of(table.snapshot().to_arrow().to_pylist())
    assert len(expected) == 13
    assert ids_of(delta.read(table.location)) == expected
    assert ids_of(delta.read(table.location, versionAsOf=version)) == [each for each in expected if each != 200]


def test_delta_lake_reads_a_checkpoint_with_the_classic_name(table: sluice.Table, delta: Delta) -> None:
    table.append(rows(1, 2, 3))
    version = table.checkpoint()
    assert (log_of(table) / f"{version:020d}.checkpoint.parquet").exists()
    only_from(table, version)
    assert ids_of(delta.read(table.location)) == [1, 2, 3]


def test_delta_lake_goes_on_from_a_table_that_was_given_back_and_sluice_from_what_it_wrote(table: sluice.Table, delta: Delta) -> None:
    """Delta Lake takes over checksums and sidecars, and writes its own; then sluice takes the table on again."""
    location, coordinator = table.location, table.access.address.coordinator
    for number in range(11):
        table.append(rows(number))
        table._checkpointer.wait()
    assert (log_of(table) / f"{10:020d}.crc").exists()
    table.delete("id = 3")
    table.checkpoint()
    table.detach()
    path = f"delta.`{location.removeprefix('file://')}`"
    delta.sql(f"ALTER TABLE {path} SET TBLPROPERTIES ('delta.checkpointInterval' = '2')")
    for number in range(20, 26):
        delta.sql(f"INSERT INTO {path} VALUES ({number}, '{number % 2}')")
    delta.sql(f"DELETE FROM {path} WHERE id = 5")
    expected = sorted({*range(11), *range(20, 26)} - {3, 5})
    assert ids_of(delta.read(location)) == expected
    store = LocalStore(location)
    snapshot = Snapshot.load(store)
    assert any("checkpoint" in each.name and int(each.name[:20]) > 13 for each in log_of(table).iterdir() if each.name[0].isdigit())
    says = json.loads(store.get(crc_path(snapshot.version)))
    assert disagreements(says, snapshot.summary()) == [], "both count alike"
    with sluice.Table.attach(location, coordinator=coordinator) as again:
        again.append(rows(300))
        version = again.checkpoint()
        only_from(again, version)
        assert ids_of(again.snapshot().to_arrow().to_pylist()) == [*expected, 300]
        assert ids_of(delta.read(location)) == [*expected, 300]


def test_delta_lake_accepts_every_checksum(table: sluice.Table, delta: Delta, monkeypatch: pytest.MonkeyPatch) -> None:
    """It refuses a version whose checksum is wrong."""
    monkeypatch.setattr("sluice.tables.maintain.background._CHECKSUM_EVERY", 1)
    monkeypatch.setattr("sluice.tables.maintain.background._CHECKSUM_PAUSE_S", 0.0)
    for number in range(4):
        table.append(rows(number, number + 10))
        table._checkpointer.wait()
    table.delete("id = 12")
    table._checkpointer.wait()
    table.compact()
    table._checkpointer.wait()
    assert len(list(log_of(table).glob("*.crc"))) >= 5
    for version in range(1, table.snapshot().version + 1):
        assert ids_of(delta.read(table.location, versionAsOf=version)) == ids_of(table.snapshot(version=version).to_arrow().to_pylist())
