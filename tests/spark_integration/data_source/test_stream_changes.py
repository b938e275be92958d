"""Streams of changes: each change once, whatever the limits are; versions that alone exceed them become several batches."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import cast

import pyarrow as pa
import pytest

import sluice
from sluice.spark_integration.data_source.source import SluiceDataSource
from sluice.spark_integration.data_source.stream_reader import SluiceStreamReader
from sluice.storage.actions import Action, actions_of
from sluice.storage.log.timetravel import read_commit
from sluice.storage.stores.memory import MemoryStore
from sluice.tables.read.changed_files import ChangedFiles

from .without_spark import Query

VECTORS = {"delta.enableDeletionVectors": "true"}


@pytest.fixture(params=[{}, VECTORS, {**VECTORS, "delta.enableChangeDataFeed": "true"}])
def table(request: pytest.FixtureRequest) -> Iterator[sluice.Table]:
    """A version of six files, one that changed rows in each of them, one that deleted files, and small ones."""
    name, schema = f"changes-{uuid.uuid4().hex}", pa.schema([("id", pa.int64()), ("p", pa.int64())])
    made = sluice.Table.create(f"memory://{name}", schema, coordinator=f"memory://{name}", partition_by=["p"], properties=request.param)
    made.append(pa.table({"id": list(range(24)), "p": [n % 6 for n in range(24)]}))
    made.update({"id": "id + 100"}, "id < 6")
    made.delete("p < 2")
    for number in range(3):
        made.append(pa.table({"id": [200 + number], "p": [2]}))
    yield made
    MemoryStore.open(name).forget()


@pytest.mark.parametrize("files", [1, 4, 1000])
def test_changes_come_once_whatever_a_batch_takes(table: sluice.Table, files: int) -> None:
    options = {"path": table.location, "coordinator": str(table.access.address.coordinator), "readChangeFeed": "true"}
    query = Query({**options, "startingVersion": "0", "maxFilesPerTrigger": str(files)})
    query.run()
    assert query.error is None
    assert query.rows == sorted(table.changes(-1).to_pylist(), key=repr)
    of = [ChangedFiles(version, read_actions(table, version)) for version in range(table.version + 1)]
    apart = {1: 6, 2: 1 if "UPDATE" in together(table) else 18, 3: of[3].total}
    assert query.batches == {1: sum(apart.values()) + 3, 1000: 1}.get(files, query.batches)


@pytest.mark.parametrize("changes", ["true", "false"])
def test_a_batch_that_was_planned_before_a_restart_is_read_though_nothing_came_after_it(table: sluice.Table, changes: str) -> None:
    options = {"path": table.location, "coordinator": str(table.access.address.coordinator), "readChangeFeed": changes}
    source = SluiceDataSource({**options, "startingVersion": "0" if changes == "true" else "4"})
    schema = source.schema()
    planned, again = (cast("SluiceStreamReader", source.streamReader(schema)) for _ in range(2))
    start = planned.initialOffset()
    end = planned.latestOffset(start, planned.getDefaultReadLimit())
    rows = [sum(batch.num_rows for part in each.partitions(start, end) for batch in each.read(part)) for each in (planned, again)]
    planned.stop()
    again.stop()
    assert rows[0] == rows[1] > 0


def together(table: sluice.Table) -> set[str]:
    """The operations whose changes cannot be divided: files were copied, or change data files have old and new values."""
    by_vectors = table.properties.get("delta.enableDeletionVectors") == "true"
    records = table.properties.get("delta.enableChangeDataFeed") == "true"
    return set() if by_vectors and not records else {"UPDATE"}


def read_actions(table: sluice.Table, version: int) -> list[Action]:
    return list(actions_of(read_commit(table.access.store, version), name=str(version)))
