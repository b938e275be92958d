"""What one process does in the background for all its tables."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator

import pytest

import sluice
from sluice.coordinator.publication.background import _THREADS_MAX, Background
from tests.tables.conftest import FLIGHTS, flights


@pytest.fixture
def background() -> Iterator[Background]:
    background = Background(lambda _: None)
    yield background
    assert background.drain(10)


def test_open_tables_have_no_threads_of_their_own() -> None:
    coordinator = f"memory://{uuid.uuid4().hex}"
    before = threading.active_count()
    tables = [sluice.Table.create(f"memory://{uuid.uuid4().hex}", FLIGHTS, coordinator=coordinator, ack="ratified") for _ in range(100)]
    for table in tables:
        table.append(flights(("JFK", 1, 1)))
    assert threading.active_count() - before <= _THREADS_MAX
    for table in tables:
        table.close()
        assert table.snapshot(consistency="published").to_arrow().num_rows == 1


def test_one_tables_publications_run_one_after_the_other(background: Background) -> None:
    order: list[int] = []
    for number in range(50):
        background.submit(lambda number=number: order.append(number))  # type: ignore[misc]
    assert background.drain(10)
    assert order == list(range(50))


def test_one_that_fails_does_not_keep_the_next_from_running(background: Background, caplog: pytest.LogCaptureFixture) -> None:
    ran = threading.Event()
    background.submit(lambda: 1 / 0)
    background.submit(ran.set)
    assert background.drain(10)
    assert ran.is_set()
    assert "ZeroDivisionError" in caplog.text


def test_a_table_whose_publication_waits_holds_up_no_other(background: Background) -> None:
    go = threading.Event()
    background.submit(go.wait)
    other = Background(lambda _: None)
    ran = threading.Event()
    other.submit(ran.set)
    assert ran.wait(10)
    go.set()


def test_a_busy_one_is_left_alone(background: Background) -> None:
    go, ran = threading.Event(), threading.Event()
    background.submit(go.wait)
    background.submit(ran.set, unless_busy=True)
    go.set()
    assert background.drain(10)
    assert not ran.is_set()
