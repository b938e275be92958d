"""Streams over versions that change the schema: what a query shows that is made again, with and without schemaTrackingLocation.

Streams whose files were vacuumed before they read them: the error says what to do, and `failOnDataLoss=false` does it.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import sluice
from sluice.storage.errors import InvalidRequest, MissingObject, SchemaMismatch
from sluice.storage.stores.memory import MemoryStore
from tests.spark_integration.data_source.without_spark import Query


@pytest.fixture
def table() -> Iterator[sluice.Table]:
    name = f"tracking-{uuid.uuid4().hex}"
    yield sluice.Table.create(f"memory://{name}", pa.schema([("id", pa.int64())]), coordinator=f"memory://{name}")
    MemoryStore.open(name).forget()


def query_of(table: sluice.Table, **options: str) -> Query:
    return Query({"path": table.location, "coordinator": str(table.access.address.coordinator), **options})


def ids(*numbers: int) -> pa.Table:
    return pa.table({"id": pa.array(numbers, pa.int64())})


@pytest.mark.parametrize("tracked", [False, True])
def test_a_new_column_stops_the_stream_once(table: sluice.Table, tmp_path: Path, tracked: bool) -> None:
    query = query_of(table, **({"schemaTrackingLocation": str(tmp_path / "schemas")} if tracked else {}))
    table.append(ids(1))
    assert query.run() == ["id"]
    table.append(ids(2))
    table.append(ids(3).append_column("z", pa.array(["x"])), merge_schema=True)
    table.append(ids(4))
    assert query.run() == (["id"] if tracked else ["id", "z"]), "a query made now shows what is there, unless it tracks schemas"
    if tracked:
        assert (query.ids, type(query.error)) == ([2], SchemaMismatch)
        assert "make the query again with spark.readStream and start it with the same checkpoint" in str(query.error)
        assert query.run() == ["id", "z"]
        assert query.rows == [{"id": 3, "z": "x"}, {"id": 4, "z": None}]
    else:
        assert query.rows == [{"id": 2, "z": None}, {"id": 3, "z": "x"}, {"id": 4, "z": None}]
    assert query.error is None
    table.append(ids(5))
    assert (query.run(), query.ids, query.error) == (["id", "z"], [5], None)


@pytest.mark.notices("a-stream-ends-at-other-columns")
@pytest.mark.parametrize("tracked", [False, True])
def test_a_wider_type_stops_the_stream_once(tmp_path: Path, tracked: bool) -> None:
    name, properties = f"memory://widened-{uuid.uuid4().hex}", {"delta.enableTypeWidening": "true"}
    table = sluice.Table.create(name, pa.schema([("id", pa.int32())]), properties=properties, coordinator=name)
    query = query_of(table, startingVersion="0", **({"schemaTrackingLocation": str(tmp_path / "schemas")} if tracked else {}))
    table.append(pa.table({"id": pa.array([1], pa.int32())}))
    assert (query.run(), query.ids) == (["id"], [1])
    table.append(pa.table({"id": pa.array([2], pa.int32())}))
    table.alter_columns([sluice.ColumnChange(("id",), type=pa.int64())])
    table.append(ids(2**40))
    assert query.run() == ["id"]
    if tracked:
        assert (query.ids, type(query.error)) == ([2], SchemaMismatch)
        assert "version 3 of" in str(query.error)
        assert "changed the schema" in str(query.error)
        query.run()
    assert (max(query.ids), query.error) == (2**40, None)


def test_a_stream_that_was_away_shows_each_version_with_the_schema_that_it_had(table: sluice.Table, tmp_path: Path) -> None:
    table.append(ids(1))
    tracked = {"schemaTrackingLocation": str(tmp_path), "skipChangeCommits": "true", "startingVersion": "0"}
    query = query_of(table, **tracked)
    query.run()
    table.append(ids(2))
    text = pa.table({"id": ["three"], "n": [3]})
    table.overwrite(text, overwrite_schema=True)  # version 3
    table.append(pa.table({"id": ["four"], "n": [4]}))
    table.overwrite(pa.table({"n": [5]}), overwrite_schema=True)  # version 5
    table.append(pa.table({"n": [6]}))
    seen = []
    for _ in range(4):
        columns = query.run()
        seen.append((columns, query.rows, None if query.error is None else query.error.details["version"]))
    assert seen == [
        (["id"], [{"id": 2}], 3),
        (["id", "n"], [{"id": "four", "n": 4}], 5),
        (["n"], [{"n": 6}], None),
        (["n"], [], None),
    ]


def test_without_tracking_a_changed_type_is_refused_with_the_remedy(table: sluice.Table, tmp_path: Path) -> None:
    table.append(ids(1))
    query = query_of(table, skipChangeCommits="true", startingVersion="0")
    query.run()
    table.append(ids(2))
    table.overwrite(pa.table({"id": ["three"]}), overwrite_schema=True)
    query.run()
    assert isinstance(query.error, SchemaMismatch)
    assert "column 'id' is string in the table and int64 in the data" in str(query.error)
    assert "A stream with schemaTrackingLocation" in str(query.error)
    again = query_of(table, skipChangeCommits="true", startingVersion="0", schemaTrackingLocation=str(tmp_path))
    assert (again.run(), again.ids) == (["id"], [1, 2])
    assert (again.run(), again.ids, again.error) == (["id"], [], None), "an overwrite is skipped, so its row is not shown"


def test_an_object_of_another_table_or_format_is_refused(table: sluice.Table, tmp_path: Path) -> None:
    query = query_of(table, schemaTrackingLocation=str(tmp_path))
    query.run()
    kept = tmp_path / "sluice-schema.json"
    head, line = kept.read_text(encoding="utf-8").splitlines()
    for text, match in (
        ("nonsense", "did not write"),
        (f"{json.dumps({**json.loads(head), 'format': 2})}\n{line}\n", "this release reads format 1"),
        (f"{head}\n{line.replace(table.snapshot().raw.metadata.id, 'another')}\n", "took its place"),
    ):
        kept.write_text(text, encoding="utf-8")
        with pytest.raises(InvalidRequest, match=match):
            query.run()


@pytest.fixture
def late(table: sluice.Table) -> dict[str, str]:
    """The options of a stream that has yet to read two files which a compaction replaced, and a third one."""
    for number in (1, 2):
        table.append(ids(number))
    table.compact()
    table.append(ids(3))
    table.vacuum(0, force=True)
    return {"path": table.location, "coordinator": table.location, "startingVersion": "0"}


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
