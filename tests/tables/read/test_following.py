"""Following a table: what arrives, in which pieces, what waiting costs, how it ends, and the error for history that is gone."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from queue import Queue
from typing import Any

import pyarrow as pa
import pytest

import sluice
from sluice.coordinator.limits import Limits
from sluice.coordinator.publication.waiting import VersionWatch
from sluice.coordinator.service.connect import connect
from sluice.coordinator.service.memory import MemorySession
from sluice.tables.read import versions
from sluice.tables.read.following import ChangeBatch, Follower
from sluice.tables.read.versions import ChangePlace
from tests.fixtures.zookeeper import Proxy
from tests.tables.conftest import FLIGHTS, Place, flights, present, rows_of
from tests.tables.elsewhere import DAY_MS, Writer, disk_of, later
from tests.tables.read.test_consistency import ratified_only

VECTORS = {"delta.enableDeletionVectors": "true"}
LONG_S = 60.0
"""More than any of this takes."""


def numbers(follower: Follower) -> list[tuple[int, list[tuple[Any, ...]]]]:
    """The version and the rows of each batch."""
    return [(batch.version, rows_of(batch.to_arrow())) for batch in follower]


class Asked(list[Any]):
    """The requests to a store, with the thread that made each."""

    def append(self, call: Any) -> None:
        super().append((threading.get_ident(), call))

    def by(self, thread: threading.Thread) -> int:
        return sum(1 for ident, _ in self if ident == thread.ident)


def versions_of(follower: Follower) -> tuple[Queue[int], threading.Thread]:
    """What a thread of its own gets from it."""
    found: Queue[int] = Queue()

    def run() -> None:
        for batch in follower:
            found.put(batch.version)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return found, thread


class Idle:
    """Follows a table in a thread of its own; tells when it begins to wait, and for how long at most."""

    def __init__(self, table: sluice.Table, monkeypatch: pytest.MonkeyPatch, **options: Any) -> None:
        self.waits: Queue[float | None] = Queue()
        waits = self.waits
        self.batches: Queue[ChangeBatch | None] = Queue()
        self.error: BaseException | None = None
        arrivals = VersionWatch(table.coordinated.context, partial(table.coordinated.publish, up_to_date=True))
        wake = arrivals._wake

        class Telling:
            set, clear = wake.set, wake.clear

            def wait(self, timeout: float | None = None) -> bool:
                waits.put(timeout)
                return wake.wait(timeout)

        arrivals._wake = Telling()
        monkeypatch.setattr(versions, "VersionWatch", lambda *_: arrivals)
        self.follower = table.follow(**options)
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            for batch in self.follower:
                batch.to_arrow()
                self.batches.put(batch)
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            self.error = error
        self.batches.put(None)

    def until_it_waits_for_good(self) -> None:
        while self.waits.get(timeout=LONG_S) is not None:
            pass


@contextmanager
def idle(table: sluice.Table, monkeypatch: pytest.MonkeyPatch, **options: Any) -> Iterator[Idle]:
    found = Idle(table, monkeypatch, **options)
    try:
        yield found
    finally:
        found.follower.close()
        found.thread.join(LONG_S)
        assert not found.thread.is_alive()


# -- what arrives --------------------------------------------------------------------------------------------------------


def test_each_version_arrives_with_its_changes(place: Place) -> None:
    table = place.create(partition_by=[], properties=VECTORS)
    table.append(flights(("JFK", 1, 1), ("JFK", 1, 2)))
    table.delete("delay = 1")
    batches = list(table.follow(-1, timeout_s=0, columns=["delay"]))
    assert [(batch.after, batch.version) for batch in batches] == [(0, 1), (1, 2)]
    times = {entry.version: entry.timestamp for entry in table.history()}
    assert [batch.timestamp for batch in batches] == [times[1], times[2]]
    expected = table.changes(-1, columns=["delay"])
    assert pa.concat_tables([batch.to_arrow() for batch in batches]).equals(expected)


def test_reorganisations_and_settings_do_not_show(place: Place) -> None:
    table = place.create(partition_by=[])
    for number in range(3):
        table.append(flights(("JFK", 1, number)))
    table.compact()
    table.set_properties({"a": "b"})
    follower = table.follow(-1, timeout_s=0)
    assert [version for version, _ in numbers(follower)] == [1, 2, 3]
    assert follower.position == 5


def test_inserted_rows_have_the_tables_columns_only(place: Place) -> None:
    table = place.create(partition_by=[], properties={**VECTORS, "delta.enableChangeDataFeed": "true"})
    table.append(flights(("JFK", 1, 1), ("LGA", 1, 2)))
    table.update({"delay": "delay + 10"}, "origin = 'JFK'")
    table.delete("origin = 'LGA'")
    follower = table.follow(-1, rows="inserted", where="delay > 1", timeout_s=0)
    assert numbers(follower) == [(1, [("LGA", 1, 2)]), (2, [("JFK", 1, 11)])]
    assert [batch.schema.names for batch in table.follow(1, rows="inserted", timeout_s=0)] == [FLIGHTS.names]


def test_several_versions_in_one_batch(place: Place) -> None:
    table = place.create(partition_by=[])
    for number in range(5):
        table.append(flights(("JFK", 1, number)))
    follower = table.follow(0, rows="inserted", max_versions=3, timeout_s=0)
    assert numbers(follower) == [(3, [("JFK", 1, n) for n in range(3)]), (5, [("JFK", 1, 3), ("JFK", 1, 4)])]


def test_rows_come_in_pieces_and_can_be_read_again(place: Place) -> None:
    table = place.create(partition_by=[])
    table.append(flights(*(("JFK", 1, number) for number in range(25))))
    [batch] = table.follow(0, max_rows=10, timeout_s=0)
    assert [piece.num_rows for piece in batch] == [10, 10, 5]
    assert [piece.num_rows for piece in batch] == [10, 10, 5]
    assert batch.reader().read_all().equals(batch.to_arrow())


@pytest.mark.parametrize("properties", [{}, VECTORS, {"delta.enableChangeDataFeed": "true"}])
def test_a_large_version_comes_file_by_file(place: Place, properties: dict[str, str]) -> None:
    table = place.create(partition_by=["origin"], properties=properties)
    table.append(flights(*((origin, 1, number) for origin in ("EWR", "JFK", "LGA") for number in range(3))))
    table.update({"delay": "delay + 10"}, "delay = 1")
    table.delete("delay = 2 OR origin = 'JFK'")
    table.compact()
    table.overwrite(flights(("SFO", 1, 7)))
    batches = list(table.follow(-1, max_bytes=1, timeout_s=0))
    whole = {batch.version: batch.to_arrow() for batch in table.follow(-1, timeout_s=0)}
    for version, expected in whole.items():
        pieces = [batch for batch in batches if batch.version == version]
        assert not any(batch.complete for batch in pieces[:-1])
        assert rows_of(pa.concat_tables([batch.to_arrow() for batch in pieces])) == rows_of(expected)
    assert [batch.version for batch in batches].count(1) == 3
    assert [batch.version for batch in batches] == sorted(batch.version for batch in batches)


def test_another_follower_goes_on_within_a_version(place: Place) -> None:
    table = place.create(partition_by=["origin"])
    table.append(flights(("JFK", 1, 1), ("LGA", 1, 2), ("SFO", 1, 3)))
    table.append(flights(("JFK", 1, 4)))
    follower = table.follow(0, max_bytes=1, timeout_s=0)
    first = next(follower)
    assert (first.end, follower.place, follower.position) == (ChangePlace(0, 1), ChangePlace(0, 1), 0)
    rest = list(table.follow(first.end, rows="inserted", timeout_s=0))
    assert [(batch.after, batch.version, batch.to_arrow().num_rows) for batch in rest] == [(0, 1, 2), (1, 2, 1)]
    seen = pa.concat_tables([first.to_arrow().select(table.schema.names), *(batch.to_arrow() for batch in rest)])
    assert sorted(seen["origin"].to_pylist()) == ["JFK", "JFK", "LGA", "SFO"]
    with pytest.raises(
        sluice.errors.InvalidRequest, match=r"the place after 4 files of version 1 does not exist in .*, whose version has 3"
    ):
        next(table.follow(ChangePlace(0, 4), timeout_s=0))
    with pytest.raises(sluice.errors.InvalidRequest, match="files is -1: give a whole number"):
        table.follow(ChangePlace(0, -1), timeout_s=0)


def test_bytes_limit_batches_of_several_versions(place: Place) -> None:
    table = place.create(partition_by=["origin"])
    for number in range(4):
        table.append(flights(("JFK", 1, number), ("LGA", 1, number)))
    sizes = table.snapshot().files()["size"].to_pylist()
    follower = table.follow(0, rows="inserted", max_versions=10, max_bytes=max(sizes) * 2 + 1, timeout_s=0)
    assert [(batch.after, batch.version, batch.complete) for batch in follower] == [(0, 2, False), (1, 3, True), (3, 4, True)]


def test_a_change_of_the_schema_is_told_and_begins_a_batch(place: Place) -> None:
    table = place.create(partition_by=[])
    table.append(flights(("JFK", 1, 1)))
    table.append(pa.table({"origin": ["JFK"], "month": pa.array([1], pa.int32()), "gate": ["B1"]}), merge_schema=True)
    table.append(flights(("JFK", 1, 2)))
    batches = list(table.follow(0, rows="inserted", max_versions=10, timeout_s=0))
    assert [(batch.version, batch.schema_changed, batch.schema.names) for batch in batches] == [
        (1, False, FLIGHTS.names),
        (3, True, [*FLIGHTS.names, "gate"]),
    ]


def test_a_column_that_is_gone_is_named(place: Place) -> None:
    table = place.create(partition_by=[])
    table.replace(pa.schema([("n", pa.int64())]), pa.table({"n": [1]}))
    with pytest.raises(sluice.errors.InvalidRequest, match="delay"):
        list(table.follow(0, columns=["delay"], timeout_s=0))
    with pytest.raises(sluice.errors.InvalidRequest, match="delay"):
        table.follow(1, columns=["delay"])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"rows": "all"}, "give one of changes, inserted"),
        ({"max_versions": 0}, "1 or more"),
        ({"max_rows": True}, "1 or more"),
        ({"max_bytes": 0}, "1 or more"),
        ({"after": -2}, "-1 for none"),
        ({"after": 7}, "the latest version is 0"),
        ({"poll_s": 0}, "more than 0"),
        ({"where": "no_such = 1", "after": 0}, "no_such"),
    ],
)
def test_what_has_no_meaning_is_refused(place: Place, options: dict[str, Any], words: str) -> None:
    with pytest.raises(sluice.errors.InvalidRequest, match=words):
        place.create().follow(**options)


# -- waiting -------------------------------------------------------------------------------------------------------------


def test_what_comes_later_arrives_and_waiting_asks_the_store_nothing(stored: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    table = stored.create(partition_by=[])
    writer = stored.open()
    disk_of(stored).calls = asked = Asked()
    with idle(table, monkeypatch) as following:
        following.until_it_waits_for_good()
        assert asked.by(following.thread) == 0
        for number in range(3):
            writer.append(flights(("JFK", 1, number)))
            batch = present(following.batches.get(timeout=LONG_S))
            assert rows_of(batch.to_arrow())[0][:3] == ("JFK", 1, number)
            needed = asked.by(following.thread)
            following.until_it_waits_for_good()  # nothing but a watch ends that
            assert asked.by(following.thread) == needed <= 4 * (number + 1)


@pytest.mark.notices("closing-ends-the-waiting")
def test_closing_ends_an_iteration_that_waits_in_another_thread(stored: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    following = Idle(stored.create(), monkeypatch)
    following.until_it_waits_for_good()
    following.follower.close()
    assert following.batches.get(timeout=LONG_S / 6) is None
    assert following.error is None
    assert list(following.follower) == []


def test_leaving_the_block_closes(place: Place) -> None:
    with place.create().follow() as follower:
        pass
    assert list(follower) == []


@pytest.mark.notices("what-was-acknowledged-arrives-in-time")
def test_what_a_lagging_server_does_not_show_yet_arrives_before_the_time_is_over(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    table = place.create(partition_by=[])
    place.open().append(flights(("JFK", 1, 1)))
    behind, honest = table.coordinated.context, VersionWatch._look

    def lagging(self: VersionWatch, timeout_s: float) -> Any:
        published, head = honest(self, timeout_s)
        return (type(published)(), type(head)()) if self._context is behind else (published, head)

    monkeypatch.setattr(VersionWatch, "_look", lagging)
    assert [version for version, _ in numbers(table.follow(0, timeout_s=0))] == [1]


@pytest.mark.notices("who-waits-publishes-for-the-dead")
def test_what_a_dead_writer_ratified_arrives(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.create(partition_by=[])
    table = place.open(limits=Limits(patience_s=0.05, patience_s_max=0.2))
    with idle(table, monkeypatch) as following:
        following.until_it_waits_for_good()
        ratified_only(place)
        batch = present(following.batches.get(timeout=LONG_S / 2))
        assert batch.version == 1


def test_a_session_that_is_lost_is_replaced(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    table = place.create(partition_by=[])
    writer = Writer(Place(place.location, place.coordinator))
    with idle(table, monkeypatch) as following:
        following.until_it_waits_for_good()
        session = connect(place.coordinator)
        assert isinstance(session, MemorySession)
        session.expire()
        writer.table.append(flights(("JFK", 1, 1)))
        assert following.batches.get(timeout=LONG_S) is not None


@pytest.mark.zookeeper
def test_it_goes_on_when_the_coordinator_is_back(tmp_path: Any, zookeeper_proxy: Proxy, zookeeper_hosts: str) -> None:
    chroot = f"/follow-{uuid.uuid4().hex}"
    writer = Place(str(tmp_path / "t"), f"zk://{zookeeper_hosts}{chroot}").create(partition_by=[])
    table = sluice.Table.open(writer.location, coordinator=f"zk://{zookeeper_proxy.hosts}{chroot}?retry_s=1")
    with table.follow(0) as follower:
        found, thread = versions_of(follower)
        zookeeper_proxy.cut()
        writer.append(flights(("JFK", 1, 1)))
        zookeeper_proxy.restore()
        assert found.get(timeout=LONG_S) == 1
    thread.join(LONG_S)
    assert not thread.is_alive()


def test_a_table_that_is_dropped_ends_it_with_its_error(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    with idle(place.create(), monkeypatch) as following:
        following.until_it_waits_for_good()
        place.open().drop()
        assert following.batches.get(timeout=LONG_S) is None
        assert isinstance(following.error, sluice.errors.TableDropped)


def test_without_a_coordinator_the_log_is_asked(place: Place) -> None:
    writer = place.create(partition_by=[])
    table = sluice.Table.open(writer.location, consistency="published")
    with table.follow(poll_s=0.01) as follower:
        found, thread = versions_of(follower)
        for number in range(2):
            writer.append(flights(("JFK", 1, number)))
            assert found.get(timeout=LONG_S) == number + 1
    thread.join(LONG_S)
    assert not thread.is_alive()
    assert [version for version, _ in numbers(table.follow(-1, timeout_s=0))] == [1, 2]


# -- history that is gone ------------------------------------------------------------------------------------------------


def test_files_that_were_cleaned_up(in_memory: Place) -> None:
    table = in_memory.create(partition_by=[])
    table.append(flights(("JFK", 1, 1)))
    table.overwrite(flights(("JFK", 1, 2)))
    later(in_memory, 30 * DAY_MS)
    table.vacuum(0, force=True)
    with pytest.raises(sluice.errors.HistoryGone, match=r"after version 0 .* follow it from that snapshot's version on") as gone:
        list(table.follow(0, timeout_s=0))
    assert gone.value.after == 0
    latest = table.snapshot()
    assert list(table.follow(latest.version, timeout_s=0)) == []


def test_a_dropped_table_has_no_history_that_is_gone(in_memory: Place) -> None:
    table = in_memory.create(partition_by=[])
    table.append(flights(("JFK", 1, 1)))
    batch = next(table.follow(0, timeout_s=0))
    assert batch.to_arrow().num_rows == 1
    in_memory.open().drop()
    with pytest.raises(sluice.errors.TableDropped):
        batch.to_arrow()


def test_commits_that_were_cleaned_up(in_memory: Place) -> None:
    short = {"delta.checkpointInterval": "2", "delta.logRetentionDuration": "interval 1 day"}
    table = in_memory.create(partition_by=[], properties=short)
    for number in range(6):
        table.append(flights(("JFK", 1, number)))
    table.checkpoint()
    later(in_memory, 30 * DAY_MS)
    removed = table.vacuum().log_files
    assert removed
    with pytest.raises(sluice.errors.HistoryGone):
        list(Writer(in_memory).table.follow(0, timeout_s=0))
