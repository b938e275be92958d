"""Rows of contention when things go wrong: nothing masks a commit's own error, and what is lost is counted."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import sluice
from sluice.coordinator import contention
from sluice.coordinator.admission import commit_events, submission
from sluice.coordinator.contention import CONTENTION, file_batch, keep_contention_in, read_contention
from sluice.coordinator.service.connect import connect, release
from sluice.operating import contention as keeping
from sluice.operating.contention import take
from sluice.operating.daemon import APPLICATION

from .test_contention import ROW, ROWS, lose, some


@pytest.fixture
def coordinator() -> Iterator[str]:
    address = f"memory://{uuid.uuid4().hex}"
    yield address
    release(address)


@pytest.fixture
def table(coordinator: str, tmp_path: Path) -> sluice.Table:
    made = sluice.Table.create(tmp_path / "table", ROWS.schema, coordinator=coordinator)
    made.append(ROWS)
    return made


@pytest.fixture
def place(coordinator: str, tmp_path: Path) -> str:
    """Where daemons keep the rows."""
    location = str(tmp_path / "contention")
    keep_contention_in(connect(coordinator), location)
    return location


class Foreign(Exception):
    """An exception of a library."""

    def details(self) -> str:
        """A method, as grpc has one."""
        return "unavailable"


def test_the_error_of_a_library_is_raised_as_it_is(table: sluice.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise Foreign

    monkeypatch.setattr(submission, "commit_filings", fail)
    table.coordinated.alone = False
    with pytest.raises(Foreign):
        table.append(ROWS)


@pytest.mark.parametrize("what", ["_event", "_tell", "_record"])
def test_a_commit_that_cannot_be_told_ends_as_it_ended(
    table: sluice.Table, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise AttributeError("a defect")

    end = commit_events.listen(lambda _event: None)
    try:
        monkeypatch.setattr(commit_events, what, fail)
        if what != "_record":  # only what met others is kept
            assert table.append(ROWS) is not None
        lose(table)  # raises ConcurrentModification
    finally:
        end()
    assert "could not be told" in caplog.text


def test_what_is_left_at_the_end_is_filed_or_counted(coordinator: str, table: sluice.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    name = table.coordinated.leases.home.coordinator

    def finish() -> list[tuple[int, int]]:
        for number in range(250):
            contention._recorder.keep(name, replace(ROW, pid=number))
        before = len(read_contention(connect(coordinator)).batches)
        contention._recorder.finish()
        assert not contention._recorder._rows[name]
        return [(len(each.batch.rows), each.batch.dropped) for each in read_contention(connect(coordinator)).batches[before:]]

    assert finish() == [(100, 0), (100, 0), (50, 0)]
    real = contention._Recorder.flush
    monkeypatch.setattr(contention._Recorder, "flush", lambda recorder, limit_s, **_: real(recorder, limit_s, last=True))
    assert finish() == [(100, 150)]


def test_rows_that_cannot_be_filed_are_counted(
    coordinator: str, table: sluice.Table, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    name = table.coordinated.leases.home.coordinator
    contention._recorder.keep(name, replace(ROW, remedy="\ud800"))  # no UTF-8
    contention._recorder.flush(5)
    assert "could not be filed" in caplog.text
    contention._recorder.keep(name, ROW)
    contention._recorder.flush(5)
    [batch] = read_contention(connect(coordinator)).batches
    assert (len(batch.batch.rows), batch.batch.dropped) == (1, 1)


@pytest.mark.parametrize("at_ms", [10**18, -(10**18)])
def test_a_time_beyond_all_years_stops_nobody(coordinator: str, at_ms: int) -> None:
    batch = some(1)
    file_batch(connect(coordinator), replace(batch, rows=(replace(batch.rows[0], at_ms=at_ms),)))
    [pair] = sluice.conflicts(coordinator, since_s=100_000)
    assert pair.count == 1
    assert sluice.status(coordinator).coordinator.trouble is None


def test_a_daemon_leaves_what_the_status_judges_by(
    coordinator: str, table: sluice.Table, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = connect(coordinator)
    file_batch(session, some(3))
    time.sleep(2.5)
    file_batch(session, some(5, location=table.location))
    with monkeypatch.context() as patched:
        patched.setattr(keeping, "TAKEN_AFTER_S", 1.0)
        assert take(coordinator, None, APPLICATION, 30).startswith("3 rows of 1 batches")
    assert [each.name for each in sluice.status(coordinator).messages] == ["loses-often"]


def test_a_batch_that_cannot_be_read_stops_nobody(coordinator: str, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeping, "TAKEN_AFTER_S", -10.0)
    session = connect(coordinator)
    file_batch(session, some(1))
    session.create(f"{CONTENTION}/b-{uuid.uuid4().hex}-1-", b"\xff", sequential=True)
    file_batch(session, some(1))
    assert take(coordinator, None, APPLICATION, 30).startswith("2 rows of 3 batches")
    assert read_contention(session).batches == ()
