"""A stream of a real table: where it begins, what it costs, and what it does when history is gone."""

from __future__ import annotations

import uuid
from dataclasses import replace
from datetime import datetime, timezone
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sluice
from sluice.coordinator.commit.decider import Batch
from sluice.coordinator.publication.waiting import Patience
from sluice.storage.data.scan import TableScan
from sluice.storage.errors import InvalidRequest, SchemaMismatch, VersionNotFound
from sluice.storage.stores.memory import MemoryStore
from sluice.tables.client.address import TableAddress
from sluice.tables.client.open_table import open_table
from sluice.tables.client.published_table import PublishedTable
from sluice.tables.read.streams.offsets import Limits, Start, StreamOffset, StreamRules
from sluice.tables.read.streams.table_stream import TableStream
from sluice.tables.read.versions import published_versions
from tests.tables.conftest import Place, flights
from tests.tables.elsewhere import Writer
from tests.tables.test_round_trips import waits

ONE = Limits(files=1)
ALL = Limits()


@pytest.fixture
def place(in_memory: Place) -> Place:
    return in_memory


def opened(place: Place, consistency: str = "latest", pause_s: float = 0.0, **rules: Any) -> TableStream:
    """A stream as a new process makes it."""
    access = open_table(TableAddress.of(place.location, place.coordinator), consistency=consistency)
    where = rules.pop("where", None)
    return TableStream(access, published_versions(access, pause_s), StreamRules(**rules), where=where)


def delays(place: Place, stream: TableStream, start: StreamOffset, end: StreamOffset) -> list[Any]:
    """The column `delay` of the rows between two offsets."""
    store = TableAddress.of(place.location, place.coordinator).store()
    scan = TableScan(store, stream.shown.struct, stream.shown.metadata.partition_columns)
    return [delay for each in stream.reads(start, end) for delay in scan.read(each.files, ["delay"], each.rows)["delay"].to_pylist()]


def everything(place: Place, stream: TableStream, start: StreamOffset, limits: Limits = ALL) -> list[list[Any]]:
    """The batches from `start` on until nothing is new."""
    batches = []
    while (end := stream.latest_offset(start, limits)) != start:
        batches.append(delays(place, stream, start, end))
        stream.committed(end)
        start = end
    return batches


def test_a_first_snapshot_and_then_what_is_new(place: Place) -> None:
    table = place.create(partition_by=[])
    for delay in range(3):
        table.append(flights(("JFK", 1, delay)))
    table.compact("minor")
    table.append(flights(("JFK", 1, 3)))
    stream = opened(place)
    start = stream.initial_offset(Start())
    assert start == StreamOffset.beginning(stream.shown.metadata.id, 5, first=True, changes=False, order="")
    table.append(flights(("JFK", 1, 4)))
    assert [sorted(each) for each in everything(place, stream, start, ONE)] == [[0, 1, 2], [3], [4]]
    again = opened(place)
    assert [sorted(each) for each in everything(place, again, start)] == [[0, 1, 2, 3, 4]]
    end = again.latest_offset(start, ONE)
    assert sorted(delays(place, again, again.initial_offset(Start()), end)) == [0, 1, 2], "the first batch, repeated by another process"


def test_beginnings(place: Place) -> None:
    table = place.create(partition_by=[])
    for delay in range(3):
        table.append(flights(("JFK", 1, delay)))
    times = [entry.timestamp for entry in reversed(table.history())]
    stream = opened(place)

    def begin(**start: Any) -> int:
        return stream.initial_offset(Start(**start)).version

    assert [begin(version=2), begin(version=4), begin(latest=True)] == [2, 4, 4]
    assert [begin(timestamp_ms=times[2]), begin(timestamp_ms=min(times[3], times[2] + 1))] == [2, 3]
    assert begin(timestamp_ms=0) == 0
    with pytest.raises(VersionNotFound, match=r"startingVersion is 5, and the latest version of .* is 3"):
        begin(version=5)
    with pytest.raises(VersionNotFound, match="give an earlier time"):
        begin(timestamp_ms=times[3] + 3_600_000)
    assert everything(place, stream, stream.initial_offset(Start(version=2))) == [[1, 2]]


def test_deletion_vectors_and_changes(place: Place) -> None:
    table = place.create(partition_by=[], properties={"delta.enableDeletionVectors": "true"})
    table.append(flights(("JFK", 1, 0), ("JFK", 1, 1)))
    table.delete("delay = 0")
    table.append(flights(("JFK", 1, 2)))
    stream = opened(place)
    assert sorted(everything(place, stream, stream.initial_offset(Start()))[0]) == [1, 2]
    begin = stream.initial_offset(Start(version=1))
    with pytest.raises(InvalidRequest, match=r"version 2 .*DELETE.*ignoreDeletes=true"):
        everything(place, stream, begin)
    assert everything(place, opened(place, ignore_deletes=True), begin) == [[0, 1, 2]]
    assert everything(place, opened(place, skip_change_commits=True, where="delay > 0"), begin) == [[1, 2]]


def test_a_target_holds_the_stream_back(place: Place) -> None:
    table = place.create(partition_by=[])
    table.append(flights(("JFK", 1, 0)))
    stream = opened(place)
    start = stream.initial_offset(Start(version=0))
    stream.stay_until_here()
    table.append(flights(("JFK", 1, 1)))
    assert everything(place, stream, start) == [[0]]
    assert everything(place, opened(place), start) == [[0, 1]]


def test_a_wider_schema_stops_the_stream_and_a_new_query_goes_on(place: Place) -> None:
    table = place.create(partition_by=[])
    table.append(flights(("JFK", 1, 0)))
    stream = opened(place)
    start = stream.initial_offset(Start(version=1))
    table.append(flights(("JFK", 1, 1)).append_column("gate", pa.array(["A"])), merge_schema=True)
    end = stream.latest_offset(start, ALL)
    assert end.version == 2
    with pytest.raises(SchemaMismatch, match=r"version 2 .* changed the schema"):
        stream.latest_offset(end, ALL)
    again = opened(place)
    assert again.shown.struct.names[-1] == "gate"
    assert everything(place, again, end) == [[1]]


@pytest.mark.shows("stream-source-replaced")
def test_another_table_at_the_same_place_is_refused(place: Place) -> None:
    place.create(partition_by=[])
    stream = opened(place)
    start = StreamOffset("another-id", 0)
    for read in (lambda: stream.latest_offset(start, ALL), lambda: list(stream.reads(start, replace(start, version=1)))):
        with pytest.raises(InvalidRequest, match=r"id another-id .*another table took its place"):
            read()
    with pytest.raises(VersionNotFound, match="put back to an earlier state"):
        stream.latest_offset(StreamOffset(stream.shown.metadata.id, 7), ALL)


def test_a_checkpoint_is_of_new_rows_or_of_changes(place: Place) -> None:
    place.create(partition_by=[]).append(flights(("JFK", 1, 0)))
    for changes in (False, True):
        start = StreamOffset.of_json(opened(place, changes=changes).initial_offset(Start(version=0)).to_json())
        assert opened(place, changes=changes).latest_offset(start, ALL).changes == changes
        other, end = opened(place, changes=not changes), opened(place, changes=changes).latest_offset(start, ALL)
        again = other.initial_offset(Start(version=0))  # as Spark asks when the first batch has to be repeated
        for read in (lambda: other.latest_offset(start, ALL), lambda: list(other.reads(again, end))):  # noqa: B023
            with pytest.raises(InvalidRequest, match=r"that read (changes|new rows) of .* readChangeFeed=(true|false).*new checkpoint"):
                read()
        opened(place, changes=not changes).latest_offset(replace(start, changes=None), ALL)  # of a former release


@pytest.mark.shows("stream-too-late")
@pytest.mark.parametrize("first", [False, True])
def test_history_that_was_cleaned_up(tmp_path: Path, first: bool) -> None:
    place = Place(str(tmp_path / "t"), f"memory://{uuid.uuid4().hex}")
    table = place.create(partition_by=[])
    for delay in range(4):
        table.append(flights(("JFK", 1, delay)))
    start = StreamOffset(opened(place).shown.metadata.id, 1, first=first)
    table.checkpoint()
    table.append(flights(("JFK", 1, 4)))
    for version in range(3):
        (tmp_path / "t" / "_delta_log" / f"{version:020}.json").unlink()
    with pytest.raises(VersionNotFound, match=r"version 1 of .*cleaned up; the first one there is 3\. .*failOnDataLoss=false"):
        everything(place, opened(place), start)
    assert everything(place, opened(place, fail_on_data_loss=False), start) == [[2, 3, 4]]


def test_what_is_behind(place: Place) -> None:
    table = place.create(partition_by=[])
    for delay in range(3):
        table.append(flights(("JFK", 1, delay)))
    stream = opened(place)
    sizes = stream._table.current().files["size"].to_pylist()
    begin = stream.initial_offset(Start(version=1))
    assert stream.behind(begin) == {"version": 3, "versionsBehind": 3, "bytesBehind": sum(sizes)}
    assert stream.behind(stream.latest_offset(begin, ALL)) == {"version": 3, "versionsBehind": 0, "bytesBehind": 0}
    first = stream.initial_offset(Start())
    assert stream.behind(first) == {"version": 3, "versionsBehind": 0, "bytesBehind": sum(sizes)}


# -- the order of event times --------------------------------------------------------------------------------------------

AT = pa.schema([("at", pa.timestamp("us", "UTC")), ("delay", pa.int64())])


def at(*rows: tuple[int | None, int]) -> pa.Table:
    times = [None if second is None else datetime.fromtimestamp(second, tz=timezone.utc) for second, _ in rows]
    return pa.table([pa.array(times, AT.types[0]), pa.array([delay for _, delay in rows], pa.int64())], schema=AT)


def test_the_first_snapshot_in_the_order_of_event_times(place: Place) -> None:
    table = sluice.Table.create(place.location, AT, coordinator=place.coordinator)
    for rows in ([(50, 50), (90, 90)], [(10, 10), (60, 60)], [(None, -1), (20, 20), (20, 21)], [(20, 22), (95, 95)], [(None, -2)]):
        table.append(at(*rows))
    start = StreamOffset(opened(place).shown.metadata.id, 5, first=True)
    table.append(at((1, 1)))
    place_now, batches = start, []
    while (end := (stream := opened(place, event_time="AT")).latest_offset(place_now, ONE)) != place_now:
        batches.append(sorted(delays(place, stream, place_now, end)))
        place_now = end
    assert batches == [[-2, -1], [10], [20, 21, 22], [50, 60, 90, 95], [1]]
    with pytest.raises(InvalidRequest, match="the table has at"):
        opened(place, event_time="delay").latest_offset(start, ONE)


def test_the_first_snapshot_is_read_in_one_order(place: Place) -> None:
    """Half of it read in the one order and half in the other would leave rows out and repeat others."""
    table = sluice.Table.create(place.location, AT, coordinator=place.coordinator)
    for second in (20, 10):
        table.append(at((second, second)))
    for had, asked, told in (("AT", None, "give withEventTimeOrder=true and eventTimeColumn='at'"), (None, "AT", "leave .* out")):
        began = opened(place, event_time=had).initial_offset(Start())
        half = StreamOffset.of_json(opened(place, event_time=had).latest_offset(began, ONE).to_json())
        other = opened(place, event_time=asked)
        again = other.initial_offset(Start())  # as Spark asks when the first batch has to be repeated
        for read in (lambda: other.latest_offset(half, ONE), lambda: list(other.reads(again, half))):  # noqa: B023
            with pytest.raises(InvalidRequest, match=f"in which other rows are left: {told}"):
                read()
        whole = other.latest_offset(replace(half, order=None), ALL)  # of a former release
        assert everything(place, opened(place, event_time=had), replace(whole, order=half.order)) == []


# -- what it costs -------------------------------------------------------------------------------------------------------


def test_an_idle_stream_asks_neither_the_store_nor_the_coordinator(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    table = place.create(partition_by=[])
    table.append(flights(("JFK", 1, 0)))
    table.compact("minor")
    stream = opened(place)
    disk = MemoryStore.open(place.location.removeprefix("memory://")).disk
    end = stream.latest_offset(stream.initial_offset(Start()), ALL)
    stream.committed(end)
    stream.latest_offset(end, ALL)
    for number in range(1, 4):
        before = len(disk.calls)
        with waits(place, monkeypatch) as asked:
            for _ in range(200):
                assert stream.latest_offset(end, ALL) == end
                stream.behind(end)
        assert (disk.calls[before:], asked) == ([], {})
        table.append(flights(("JFK", 1, number)))
        before = len(disk.calls)
        with waits(place, monkeypatch) as asked:
            new = stream.latest_offset(end, ALL)
        assert [verb for verb, _ in disk.calls[before:]] == ["get"], "the commit"
        assert asked == {"read": 2}, "the watched nodes"
        assert delays(place, stream, end, new) == [number]
        stream.committed(new)
        end = new


def test_a_stream_publishes_what_a_dead_writer_left(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody else would, and the rows were acknowledged."""
    place.create(partition_by=[]).append(flights(("JFK", 1, 0)))
    left_s = [1.0]
    monkeypatch.setattr(Patience, "left_s", property(lambda _: left_s[0]))
    access = open_table(TableAddress.of(place.location, place.coordinator))
    published = published_versions(access, 0.0)
    assert published.latest() == 1
    writer = Writer(place)

    def die(*_: object) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(Batch, "publish", die)
    with pytest.raises(KeyboardInterrupt):
        writer.table.append(flights(("JFK", 1, 1)))
    writer.dies()
    for _ in range(3):
        assert published.latest() == 1, "its writer may be about to publish it"
    left_s[0] = 0.0
    assert published.latest() == 2


class Clock:
    """A clock that the test sets."""

    now_s = 0.0

    def monotonic_s(self) -> float:
        return self.now_s


def test_without_a_coordinator_the_store_is_asked_less_and_less_often(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    table = place.create(partition_by=[])
    address = TableAddress.of(place.location)
    access = PublishedTable(address, address.store())
    disk = MemoryStore.open(place.location.removeprefix("memory://")).disk
    clock: Any = Clock()
    published = published_versions(access, 5.0, clock)
    assert published.latest() == 0
    looks = []
    for _ in range(3000):
        before = len(disk.calls)
        assert published.latest() == 0
        if len(disk.calls) > before:
            looks.append(round(clock.now_s, 2))
        clock.now_s += 0.01
    pauses = [round(b - a, 2) for a, b in pairwise(looks)]
    assert pauses[0] < 0.2
    assert 5.0 <= pauses[-1] < 5.1
    assert all(later > earlier - 0.05 for earlier, later in pairwise(pauses))
    table.append(flights(("JFK", 1, 0)))
    clock.now_s += 6
    assert published.latest() == 1
    table.append(flights(("JFK", 1, 0)))
    clock.now_s += 0.1
    assert published.latest() == 2, "after news the next look comes soon"
