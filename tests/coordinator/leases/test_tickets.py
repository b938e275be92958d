"""Tickets: what lost in one process is known to the next one that does the same work, once."""

from __future__ import annotations

import pyarrow as pa
import pytest

import sluice
from sluice.coordinator.leases import tickets
from sluice.coordinator.leases.tickets import Ticket, leave_ticket, take_ticket
from sluice.coordinator.nodes.context import TableContext
from sluice.coordinator.service.memory import Fault, MemoryCoordination

MINE = Ticket("nightly", "overwrite|k = 1|", "k = 1", 3.0)


@pytest.fixture
def context(tmp_path: object) -> TableContext:
    schema = pa.schema([pa.field("id", pa.int64())])
    return sluice.Table.create(f"{tmp_path}/t", schema, coordinator="memory://tickets").coordinated.context


def test_a_ticket_is_taken_once(context: TableContext) -> None:
    assert take_ticket(context, "nightly", MINE.work) is None
    leave_ticket(context, MINE)
    taken = take_ticket(context, "nightly", MINE.work)
    assert taken is not None
    assert (taken.where, taken.took_s, taken.losses) == ("k = 1", 3.0, 1)
    assert take_ticket(context, "nightly", MINE.work) is None


def test_it_is_for_the_same_work_of_the_same_application(context: TableContext) -> None:
    leave_ticket(context, MINE)
    assert take_ticket(context, "hourly", MINE.work) is None
    assert take_ticket(context, "nightly", "overwrite||") is None
    assert take_ticket(context, "nightly", MINE.work) is not None


def test_a_later_loss_takes_the_place_of_the_earlier(context: TableContext) -> None:
    leave_ticket(context, MINE)
    leave_ticket(context, Ticket("nightly", MINE.work, None, 9.0, losses=2))
    taken = take_ticket(context, "nightly", MINE.work)
    assert taken is not None
    assert (taken.where, taken.losses) == (None, 2)
    assert take_ticket(context, "nightly", MINE.work) is None


def test_they_are_bounded(context: TableContext) -> None:
    for number in range(tickets._KEPT + 5):
        leave_ticket(context, Ticket("nightly", str(number), None, 1.0))
    assert take_ticket(context, "nightly", "0") is None
    assert take_ticket(context, "nightly", str(tickets._KEPT + 4)) is not None


def test_trouble_costs_the_ticket_only(context: TableContext) -> None:
    leave_ticket(context, MINE)
    service = MemoryCoordination.named("tickets")
    service.before = lambda _: Fault.REPLY_LOST
    try:
        assert take_ticket(context, "nightly", MINE.work) is None
        leave_ticket(context, MINE)
    finally:
        service.before = None


def test_long_conditions_leave_room(context: TableContext) -> None:
    """A node holds 1 MB: conditions that name thousands of values do not fill it."""
    works = [f"overwrite|id IN ({number}, {'1234567, ' * 5000} 0)|" for number in range(tickets._KEPT)]
    for work in works:
        leave_ticket(context, Ticket("nightly", work, None, 1.0))
    assert all(take_ticket(context, "nightly", work) is not None for work in works)


def test_whatever_the_trouble_is_it_costs_the_ticket_only(context: TableContext) -> None:
    sluice.Table.open(context.tree.location, coordinator="memory://tickets").drop()
    leave_ticket(context, MINE)
    assert take_ticket(context, "nightly", MINE.work) is None
    leave_ticket(context, Ticket("nightly", MINE.work, "x" * 2_000_000, 1.0))
