"""Streams whose files were vacuumed before they read them: the error says what to do, and `failOnDataLoss=false` does it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pyarrow as pa
import pytest

import sluice
from sluice.storage.errors import MissingObject
from sluice.storage.stores.memory import MemoryStore

from .without_spark import Query


@pytest.fixture
def late() -> Iterator[dict[str, str]]:
    """The options of a stream that has yet to read two files which a compaction replaced, and a third one."""
    name = f"late-{uuid.uuid4().hex}"
    table = sluice.Table.create(f"memory://{name}", pa.schema([("id", pa.int64())]), coordinator=f"memory://{name}")
    for number in (1, 2):
        table.append(pa.table({"id": [number]}))
    table.compact()
    table.append(pa.table({"id": [3]}))
    table.vacuum(0, force=True)
    yield {"path": table.location, "coordinator": table.location, "startingVersion": "0"}
    MemoryStore.open(name).forget()


@pytest.mark.shows("stream-too-late")
@pytest.mark.parametrize("changes", ["false", "true"])
def test_the_error_says_what_to_do(late: dict[str, str], changes: str) -> None:
    query = Query({**late, "readChangeFeed": changes})
    query.run()
    assert isinstance(query.error, MissingObject)
    assert "start the query with a new checkpoint" in query.error.message
    assert ("failOnDataLoss=false" in query.error.message) == (changes == "false")
    fresh = Query({**late, "startingVersion": "latest"} if changes == "true" else {each: late[each] for each in ("path", "coordinator")})
    fresh.run()
    assert (fresh.error, fresh.ids) == (None, [] if changes == "true" else [1, 2, 3])


@pytest.mark.parametrize("limit", ["1", "1000"])
def test_a_stream_passes_over_files_that_are_gone_if_it_is_told_so(late: dict[str, str], limit: str) -> None:
    query = Query({**late, "failOnDataLoss": "false", "maxFilesPerTrigger": limit})
    query.run()
    assert (query.error, query.ids) == (None, [3])
