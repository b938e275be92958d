"""What each reading level shows, and what it asks the coordinator for."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

import sluice
from sluice.coordinator.commit.decider import Batch, Decider
from sluice.coordinator.limits import Limits
from sluice.coordinator.publication.background import Background
from sluice.coordinator.service import connect
from sluice.coordinator.service.memory import Call, Fault, MemorySession
from sluice.coordinator.service.store import Create
from sluice.storage.log.paths import commit_path
from tests.tables.conftest import Place, flights, present, rows_of
from tests.tables.elsewhere import Writer
from tests.tables.elsewhere import service_of as service

IMPATIENT = Limits(patience_s=0.05, patience_s_max=0.2, publication_wait_s=0.5)
QUEUED = Limits(patience_s=0.05, patience_s_max=0.2, fast_path=False)

LEVELS = ("latest", "published", "serial", "session")


class Died(BaseException):
    """What ends a writer in the middle of a call."""


def mine(place: Place) -> MemorySession:
    """The session that the tables of this process share."""
    session = connect.connect(place.coordinator)
    assert isinstance(session, MemorySession)
    return session


def another_client(place: Place, limits: Limits = IMPATIENT) -> sluice.Table:
    """The table as opened by a process elsewhere: over a session of its own."""
    return Writer(place, limits).table


def dies_after_filing(place: Place, rows: tuple[str, int, int]) -> None:
    """A writer elsewhere files an append and is gone before it is decided."""
    writer = another_client(place, QUEUED)
    hook = service(place)

    def die(call: Call) -> None:
        if any(isinstance(op, Create) and op.sequential and "/slots/" in op.path for op in call.ops):
            hook.after = None
            raise Died

    hook.after = die
    with pytest.raises(Died):
        writer.append(flights(rows))


@contextmanager
def calls_of(place: Place) -> Iterator[Counter[str]]:
    """What the block asks the coordinator for, by verb."""
    counted: Counter[str] = Counter()
    Background.drain_all()  # what an earlier call left to the background is not the block's
    before = Counter(service(place).calls)
    yield counted
    counted.update(service(place).calls - before)


def published_elsewhere(table: sluice.Table) -> int:
    return sluice.Table.open(table.location, consistency="published").version


# -- latest --------------------------------------------------------------------------------------------------------------


@pytest.mark.notices("latest-asks-for-what-is-known-to-anybody")
def test_latest_shows_what_anybody_was_told_of_though_the_server_is_behind(place: Place) -> None:
    table, other = place.create(), another_client(place)
    mine(place).lag = 1_000
    commit = present(other.append(flights(("JFK", 1, 1))))
    assert table.coordinated.head().version == 0  # what a read that asks nobody else finds
    assert table.snapshot(consistency="session").version == 0
    assert table.snapshot().version == commit.version
    assert rows_of(table.snapshot().to_arrow()) == [("JFK", 1, 1)]


@pytest.mark.parametrize("read", [sluice.Table.refresh, sluice.Table.snapshot, sluice.Table.history], ids=lambda way: way.__name__)
def test_every_read_of_the_latest_version_catches_up(place: Place, read: Callable[[sluice.Table], object]) -> None:
    table, other = place.create(), another_client(place)
    for _ in range(3):
        mine(place).lag = 1_000
        other.append(flights(("JFK", 1, 1)))
        with calls_of(place) as calls:
            read(table)
        assert calls["barrier"] == 1
    assert table.refresh().version == 3
    assert table.history(1)[0].version == 3


def test_a_version_that_was_told_of_is_found_by_its_number(place: Place) -> None:
    table, other = place.create(), another_client(place)
    mine(place).lag = 1_000
    commit = present(other.append(flights(("JFK", 1, 1))))
    assert table.snapshot(commit.version).version == commit.version


def test_a_reader_without_its_coordinator_is_told_how_to_read_on(place: Place) -> None:
    table = place.create()
    mine(place).disconnect()
    for level in ("latest", "serial"):
        with pytest.raises(sluice.errors.CoordinatorUnavailable, match="consistency='published' reads what is published") as caught:
            table.snapshot(consistency=level)
        assert caught.value.retryable
    mine(place).reconnect()


# -- published -----------------------------------------------------------------------------------------------------------


def test_published_reads_go_on_while_the_coordinator_is_away(place: Place) -> None:
    table = place.create()
    table.append(flights(("JFK", 1, 1)))
    another_client(place).append(flights(("EWR", 1, 2)))
    mine(place).disconnect()
    with calls_of(place) as calls:
        assert rows_of(table.snapshot(consistency="published").to_arrow()) == [("EWR", 1, 2), ("JFK", 1, 1)]
        assert table.snapshot(1, consistency="published").version == 1
    assert not calls
    with pytest.raises(sluice.errors.VersionNotFound, match="version 7"):
        table.snapshot(7, consistency="published")
    with pytest.raises(sluice.errors.InvalidRequest, match="a whole number"):
        table.snapshot("7", consistency="published")  # type: ignore[arg-type]
    mine(place).reconnect()


def test_published_shows_what_other_engines_see_and_no_more(place: Place) -> None:
    """A version that is ratified and not published yet is the latest one, and not in the log."""
    table = place.create()
    table.append(flights(("JFK", 1, 1)))
    table.append(flights(("JFK", 1, 2)))
    assert table.refresh().version == 2
    log = Path(place.location) / commit_path(2)
    log.rename(log.with_suffix(".kept"))
    for _ in range(2):
        assert table.snapshot(consistency="published").version == 1 == published_elsewhere(table)
    assert table.snapshot(consistency="session").version == 2
    log.with_suffix(".kept").rename(log)
    assert table.snapshot(consistency="published").version == 2


def test_a_foreign_version_that_published_shows_is_not_taken_for_a_ratified_one(place: Place) -> None:
    table = place.create()
    table.append(flights(("JFK", 1, 1)))
    log = Path(place.location) / commit_path(1)
    foreign = Path(place.location) / commit_path(2)
    later = re.sub(rb'"inCommitTimestamp":(\d+)', lambda found: b'"inCommitTimestamp":%d' % (int(found[1]) + 1), log.read_bytes())
    foreign.write_bytes(later)
    assert table.snapshot(consistency="published").version == 2
    assert table.snapshot().version == 1
    with pytest.raises(sluice.errors.VersionNotFound, match="the latest version is 1"):
        table.snapshot(2)


def test_a_table_opened_published_has_no_other_level(place: Place) -> None:
    place.create()
    table = sluice.Table.open(place.location, consistency="published")
    assert table.snapshot(consistency="published").version == table.snapshot().version == 0
    for level in set(LEVELS) - {"published"}:
        with pytest.raises(sluice.errors.InvalidRequest, match=f"consistency='{level}' cannot be given"):
            table.snapshot(consistency=level)


# -- serial --------------------------------------------------------------------------------------------------------------


@pytest.mark.notices("serial-settles-the-queue")
def test_serial_first_decides_what_a_dead_writer_left(place: Place) -> None:
    place.create()
    table = place.open(consistency="serial", limits=IMPATIENT)
    dies_after_filing(place, ("JFK", 1, 1))
    dies_after_filing(place, ("EWR", 1, 2))
    for level in ("latest", "published", "session"):
        assert table.snapshot(consistency=level).version == 0
    assert rows_of(table.snapshot().to_arrow()) == [("EWR", 1, 2), ("JFK", 1, 1)]
    assert published_elsewhere(table) == table.version


def test_serial_with_an_empty_queue_changes_nothing(place: Place) -> None:
    table = place.create()
    table.append(flights(("JFK", 1, 1)))
    zxid = service(place).tree.zxid
    with calls_of(place) as calls:
        assert table.snapshot(consistency="serial").version == 1
    assert calls.keys() <= {"barrier", "read", "read_many", "look", "children"}
    assert service(place).tree.zxid - zxid <= calls["barrier"]


def test_serial_that_takes_too_long_may_be_repeated(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.create()
    table = place.open(limits=IMPATIENT, timeout_s=0.2)
    dies_after_filing(place, ("JFK", 1, 1))
    monkeypatch.setattr(Decider, "decide", lambda *_: ())
    with pytest.raises(sluice.errors.Unavailable, match=r"could not be decided in the time given .* is first in it") as caught:
        table.snapshot(consistency="serial")
    assert caught.value.retryable
    monkeypatch.undo()
    assert table.snapshot(consistency="serial").version == 1


# -- session -------------------------------------------------------------------------------------------------------------


def test_session_shows_my_own_writes_without_asking_anybody(place: Place) -> None:
    place.create()
    table = place.open(consistency="session")
    for number in range(3):
        table.append(flights(("JFK", 1, number)))
        with calls_of(place) as calls:
            assert rows_of(table.snapshot().to_arrow()) == [("JFK", 1, each) for each in range(number + 1)]
            assert table.refresh().version == number + 1
        assert not calls


@pytest.mark.notices("sessions-show-their-own")
def test_session_shows_what_others_wrote_before_my_own(place: Place) -> None:
    place.create()
    table, other = place.open(consistency="session"), another_client(place)
    other.append(flights(("EWR", 1, 1)))
    assert table.snapshot().version == 0
    table.append(flights(("JFK", 1, 2)))
    other.append(flights(("LGA", 1, 3)))
    with calls_of(place) as calls:
        assert rows_of(table.snapshot().to_arrow()) == [("EWR", 1, 1), ("JFK", 1, 2)]
    assert not calls
    assert table.snapshot(consistency="latest").version == 3 == table.snapshot().version  # it never goes back


@pytest.mark.notices("sessions-show-their-own")
def test_session_shows_my_writes_that_are_not_published(place: Place) -> None:
    place.create()
    table = place.open(consistency="session", ack="ratified", limits=QUEUED)
    published = partial(Path.exists, Path(place.location) / commit_path(1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table.coordinated.background, "submit", lambda _job: None)
        assert table.append(flights(("JFK", 1, 1))) is not None
        assert not published()
        assert rows_of(table.snapshot().to_arrow()) == [("JFK", 1, 1)]
    table.close()
    assert published()


def test_session_reads_a_repetition_where_it_was_committed(place: Place) -> None:
    place.create()
    other, table = another_client(place), place.open(consistency="session")
    other.append(flights(("JFK", 1, 1)), transaction=("load", 7))
    told = present(table.append(flights(("JFK", 1, 1)), transaction=("load", 7)))
    assert told.repeated
    assert table.snapshot().version == told.version


# -- choosing ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", ["", "newest", "LATEST"])
def test_an_unknown_level_is_refused(place: Place, level: str) -> None:
    table = place.create()
    ways: list[Callable[[], object]] = [
        lambda: place.open(consistency=level),
        lambda: table.snapshot(consistency=level),
        lambda: table.refresh(consistency=level),
    ]
    for way in ways:
        with pytest.raises(sluice.errors.InvalidRequest, match="give one of latest, serial, session, published"):
            way()


def test_a_session_whose_server_is_behind_the_first_version(place: Place) -> None:
    """The head that it shows belongs to a table without commits."""
    place.create()
    client = Writer(place)
    shown = set[int]()
    for lag in range(8):
        client.session = service(place).connect()
        client.session.lag = lag
        shown.add(client.access.head().version)
        assert client.access.latest().version == 0
    assert shown == {-1, 0}


@pytest.mark.notices("barriers-count-for-their-session")
def test_a_session_that_ends_between_the_barrier_and_the_look(place: Place) -> None:
    """The barrier was the former session's; the server of the next one has not heard of what was acknowledged."""
    place.create()
    reader = Writer(place)
    assert reader.table.snapshot().version == 0  # it has seen the table in the session that ends
    writer = another_client(place)
    for number in range(4):
        writer.append(flights(("JFK", 1, number)))
    service(place).inject(Fault.EXPIRED_BEFORE, session=reader.session, verb="read_many")
    connect_again = service(place).connect

    def behind() -> MemorySession:
        session = connect_again()
        session.lag = 6
        return session

    reader.service.connect = behind  # type: ignore[method-assign]
    try:
        assert reader.table.snapshot().version == 4
    finally:
        del reader.service.connect
    assert reader.session.lag == 6


# -- what a dead writer ratified ------------------------------------------------------------------------------------------


def ratified_only(place: Place) -> Path:
    """A writer elsewhere ratifies an append and is gone before it publishes it; the log file that is missing."""
    writer = another_client(place, QUEUED)

    def die(*_: object) -> bool:
        raise Died

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Batch, "publish", die)
        with pytest.raises(Died):
            writer.append(flights(("JFK", 1, 1)))
    missing = Path(place.location) / commit_path(1)
    assert not missing.exists()
    return missing


def soon(holds: Callable[[], bool]) -> bool:
    end = time.monotonic() + 10
    while not holds() and time.monotonic() < end:
        time.sleep(0.01)
    return holds()


@pytest.mark.notices("who-reads-helps-to-publish")
@pytest.mark.parametrize("level", ["latest", "serial"])
def test_who_reads_what_a_dead_writer_ratified_sees_it_published(place: Place, level: str) -> None:
    """Off the reader's path: other engines find it, though nobody writes any more."""
    place.create()
    missing = ratified_only(place)
    reader = another_client(place)
    assert rows_of(reader.snapshot(consistency=level).to_arrow()) == [("JFK", 1, 1)]
    assert soon(missing.exists)


def test_a_reader_that_cannot_publish_reads_all_the_same(
    place: Place, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is tried again before the next read, and one at a time."""
    place.create()
    missing = ratified_only(place)
    reader = another_client(place)
    tried: list[int] = []

    def denied(*_: object, **__: object) -> bool:
        tried.append(1)
        raise sluice.errors.AccessDenied("this client may only read")

    monkeypatch.setattr(type(reader.access.store), "put_if_absent", denied)
    for number in range(2):
        for _ in range(20):
            assert reader.snapshot().version == 1
        assert soon(lambda number=number: len(tried) > number)  # type: ignore[misc]
        assert soon(lambda: not reader.coordinated._helping._running)
    assert len(tried) < 20
    assert not missing.exists()
    assert "not published yet" in caplog.text


def test_a_version_that_others_publish_is_left_to_them(place: Place) -> None:
    """While its writer is at it, nobody else does the same."""
    table = place.create()
    table.append(flights(("JFK", 1, 1)))
    reader = another_client(place)
    with calls_of(place) as calls:
        reader.snapshot()
        assert reader.coordinated._helping.drain(30.0)
    assert calls.keys() <= {"barrier", "read", "read_many", "look", "children"}
