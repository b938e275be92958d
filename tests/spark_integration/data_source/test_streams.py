"""Streams of tables: each row once, whatever the limits, restarts and writers do; and what stops a stream."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame

from sluice.storage.errors import InvalidRequest, SchemaMismatch, VersionNotFound

from ..conftest import Place, refused
from ..streams.conftest import forget_last_commit
from .streaming import Stream

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.int32()), ("at", pa.timestamp("us", "UTC")), ("k", pa.string())])
VECTORS = {"delta.enableDeletionVectors": "true"}


def rows(*ids: int) -> pa.Table:
    return pa.Table.from_pylist([{"id": i, "day": i % 2, "at": i * 1_000_000, "k": f"k{i}"} for i in ids], schema=SCHEMA)


def ids(stream: Stream) -> list[list[int]]:
    """Batch by batch, without the empty ones."""
    return [[row[0] for row in some] for _, some in sorted(stream.batches.items()) if some]


def in_order(stream: Stream) -> list[int]:
    """Batch after batch; Spark reads the larger files of a batch first, so the order of rows within one says nothing."""
    return [number for some in ids(stream) for number in sorted(some)]


@pytest.fixture
def stream(place: Place, tmp_path: Path) -> Iterator[Stream]:
    place.create(SCHEMA, partition_by=["day"], properties=VECTORS)
    yield Stream(place, tmp_path / "checkpoint")
    for query in place.spark.streams.active:
        query.stop()


@pytest.mark.costly
@pytest.mark.parametrize("place", ["disk", pytest.param("s3", marks=[pytest.mark.s3, pytest.mark.long])], indirect=True)
def test_a_first_snapshot_then_what_is_new_from_one_checkpoint(stream: Stream) -> None:
    """Deletion vectors, partition values and columns that older files lack are as in any read."""
    table = stream.place.table()
    table.append(rows(1, 2, 3, 4))
    table.delete("id = 3")
    table.append(rows(5).append_column("z", pa.array([7])), merge_schema=True)
    stream.run()
    expected = stream.place.table().snapshot().to_arrow().to_pylist()
    assert {row[0]: (row[1], row[3], row[4]) for row in stream.rows} == {row["id"]: (row["day"], row["k"], row["z"]) for row in expected}
    assert len(stream.rows) == 4
    table.append(rows(6, 7))
    table.compact("major")
    table.append(rows(8))
    stream.batches.clear()
    query = stream.run()
    assert in_order(stream) == [6, 7, 8]
    [source] = query.recentProgress[0]["sources"]
    assert source["numInputRows"] == 3
    assert latest_of(source) == {"version": table.snapshot().version, "versionsBehind": 0, "bytesBehind": 0}


@pytest.mark.long
def test_limits_cut_what_is_there_and_a_restart_goes_on(stream: Stream) -> None:
    table = stream.place.table()
    for first in range(0, 10, 2):
        table.append(rows(first, first + 1))  # two partitions, so two files
    stream.options = {"maxFilesPerTrigger": 3, "startingVersion": 1}
    died: list[int] = []

    def note(batch: DataFrame, number: int) -> None:
        stream._note(batch, number)
        if number == 2 and not died:
            died.append(number)
            raise RuntimeError("the sink broke in the middle of a batch")

    stream.instead = note
    with pytest.raises(StreamingQueryException, match="the sink broke"):
        stream.run()
    table.append(rows(10))
    again = dict(stream.batches)
    stream.run()
    assert stream.batches[2] == again[2], "the batch that failed is repeated as it was"
    assert [len(some) for some in ids(stream)] == [3, 3, 3, 2]
    assert sorted(row[0] for row in stream.rows) == list(range(11))
    for number in range(11, 15):
        table.append(rows(number))
    reports = [progress["sources"][0] for progress in stream.run().recentProgress]
    assert [(each["numInputRows"], latest_of(each)) for each in reports if each["numInputRows"]] == [
        (3, {"version": 10, "versionsBehind": 1, "bytesBehind": sum(added(stream.place, 10))}),
        (1, {"version": 10, "versionsBehind": 0, "bytesBehind": 0}),
    ]


def added(place: Place, version: int) -> list[int]:
    """The sizes of the files that a version added, in the order of its commit."""
    lines = (Path(place.location) / "_delta_log" / f"{version:020d}.json").read_text(encoding="utf-8").splitlines()
    return [action["add"]["size"] for action in map(json.loads, lines) if "add" in action]


def latest_of(source: Any) -> dict[str, int]:
    """What a progress report says of the latest version."""
    told = source["latestOffset"]
    found: dict[str, int] = json.loads(told) if isinstance(told, str) else dict(told)
    return found


@pytest.mark.long
def test_changes_with_a_first_snapshot(stream: Stream) -> None:
    table = stream.place.table()
    table.append(rows(1, 2))
    stream.options = {"readChangeFeed": "true", "maxFilesPerTrigger": 1}
    stream.run()
    assert sorted((row[0], *row[4:6]) for row in stream.rows) == [(1, "insert", 1), (2, "insert", 1)]
    table.delete("id = 1")
    table.update({"k": "'new'"}, where="id = 2")
    stream.batches.clear()
    stream.run()
    assert sorted((row[5], *row[3:5]) for row in stream.rows) == [(2, "k1", "delete"), (3, "k2", "delete"), (3, "new", "insert")]
    expected = {row["_commit_version"]: row["_commit_timestamp"].timestamp() for row in table.changes(1).to_pylist()}
    assert {row[5]: row[6].timestamp() for row in stream.rows} == expected


@pytest.mark.costly
def test_a_version_that_changes_rows_stops_the_stream_until_it_is_told_to_pass(stream: Stream) -> None:
    table = stream.place.table()
    stream.options = {"startingVersion": 0}
    table.append(rows(1, 2))
    table.delete("id = 1")
    table.append(rows(3))
    error = refused(stream.run)
    assert isinstance(error, InvalidRequest)
    assert "version 2 " in error.message
    assert "(DELETE) deleted rows" in error.message
    assert ids(stream) == [[1, 2]]
    stream.options = {"startingVersion": 0, "skipChangeCommits": "true"}
    stream.run()
    assert ids(stream) == [[1, 2], [3]]


@pytest.mark.costly
def test_a_new_column_stops_the_stream_and_the_query_made_again_shows_it(stream: Stream) -> None:
    table = stream.place.table()
    table.append(rows(1))
    frame = stream.frame()
    stream.run(frame)
    forget_last_commit(stream.checkpoint)  # as if the driver had died in the first batch, which is repeated
    table.append(rows(2))
    table.append(rows(3).append_column("z", pa.array([7])), merge_schema=True)
    for _ in range(2):  # the DataFrame has the former columns, however often it is started
        assert isinstance(refused(lambda: stream.run(frame)), SchemaMismatch)
    assert ids(stream) == [[1], [2]]
    stream.run()
    assert stream.rows[-1] == (3, 1, stream.rows[-1][2], "k3", 7)


@pytest.mark.long
def test_everything_arrives_while_others_append_compact_and_vacuum(stream: Stream) -> None:
    table = stream.place.table()
    table.append(rows(0))
    query = stream.start()
    for number in range(1, 9):
        table.append(rows(number))
        if number % 4 == 0:
            table.compact("minor")
            wait_for(stream, number)
            table.vacuum(0, force=True)
    wait_for(stream, 8)
    query.stop()
    assert in_order(stream) == list(range(9)), "in order, each once"


def wait_for(stream: Stream, last: int) -> None:
    """Until this row is there: a vacuum that retains nothing removes what a compaction replaced, read or not."""
    for query in stream.place.spark.streams.active:
        query.processAllAvailable()
    assert in_order(stream)[-1] == last


def test_what_is_refused_when_the_query_is_made(stream: Stream) -> None:
    for says, kind, options in (
        ("do you mean maxFilesPerTrigger or", InvalidRequest, {"maxFilePerTrigger": 1}),
        ("ignoreChanges and skipChangeCommits", InvalidRequest, {"ignoreChanges": "true", "skipChangeCommits": "true"}),
        ("startingVersion is", VersionNotFound, {"startingVersion": 7}),  # before a sink is made for it
        ("startingTimestamp is", VersionNotFound, {"startingTimestamp": "2999-01-01"}),
    ):
        stream.options = options
        error = refused(stream.frame)
        assert isinstance(error, kind)
        assert says in error.message
    with pytest.raises(Exception, match="maxFilesPerTrigger is for streams"):
        stream.place.load(maxFilesPerTrigger=1).count()
