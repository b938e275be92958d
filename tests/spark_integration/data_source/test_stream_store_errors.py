"""A stream whose object store answers with errors, slowly, or breaks off: it goes on, or stops with an error that may be retried.

Goal: whatever requests fail while batches are planned and read, each row comes once. Method: a service that fails at random
(`chaos.object_store`), and the data source asked as Spark asks it; a query that stopped is made again with its checkpoint.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator

import pyarrow as pa
import pytest

import sluice
from tests.chaos.world import Store

from .without_spark import Query

pytestmark = pytest.mark.s3

SCHEMA = pa.schema([("id", pa.int64())])
ROWS = 60
TROUBLE = {"slowdown": 0.02, "error": 0.02, "cut": 0.02, "torn": 0.04, "slow": 0.002, "delay": 0.005}
RUNS = 500


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    service = Store(tmp_path_factory.mktemp("service"), 1, "ignored", dict(os.environ))
    yield service
    service.close()


@pytest.mark.costly
@pytest.mark.shows("stream-store-fails")
@pytest.mark.parametrize("changes", [False, True], ids=["rows", "changes"])
def test_each_row_comes_once_whatever_requests_fail(store: Store, changes: bool) -> None:
    location, coordinator = f"s3://honest/{uuid.uuid4().hex}", f"memory://{uuid.uuid4().hex}"
    properties = {"delta.enableDeletionVectors": "true", "delta.checkpointInterval": "5"}
    table = sluice.Table.create(location, SCHEMA, coordinator=coordinator, storage_options=store.options, properties=properties)
    for first in range(0, ROWS, 6):
        table.append(pa.table({"id": list(range(first, first + 6))}))
        if changes:
            table.delete(f"id = {first}")
    expected = sorted(table.changes(-1).to_pylist() if changes else table.snapshot().to_arrow().to_pylist(), key=repr)
    options = {"path": location, "coordinator": coordinator, "startingVersion": "0", "maxFilesPerTrigger": "2", "max_attempts": "1"}
    query = Query(options | {f"s3.{name}": value for name, value in store.options.items()} | {"readChangeFeed": str(changes).lower()})
    rows: list[dict[str, object]] = []
    store.break_(TROUBLE)
    stopped = 0
    while True:
        try:
            query.run()  # the query is made first, which may fail, too
        except sluice.errors.SluiceError as failed:
            query.error = failed
        else:
            rows += query.rows
        if query.error is None:
            break
        assert query.error.retryable, query.error
        stopped += 1
        assert stopped < RUNS, query.error
    store.break_({})
    assert sorted(rows, key=repr) == expected
    assert stopped, "the requests that failed were repeated at once: nothing was tried"
