"""Two tables that change together: threads turn seats into bookings while a reader counts both."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa

from sluice import JointTransaction, Table, read_together
from sluice.errors import ConcurrentModification

from .proof import Finding
from .workspace import Workspace

_SCHEMA = pa.schema([pa.field("flight", pa.int64(), nullable=False), pa.field("seats", pa.int64(), nullable=False)])
_FLIGHTS = 4
_SEATS = 20
_PASSENGERS = 4
_BOOKINGS = 5
_ATTEMPTS = 50


@dataclass(slots=True)
class _Counted:
    """What the passengers and the reader saw."""

    booked: int = 0
    lost: int = 0
    reads: int = 0
    half: int = 0


def book(place: Workspace) -> Finding:
    """Let passengers book seats, each in one transaction over both tables; returns whether a reader ever saw half of one."""
    seats, bookings = (_create(place, name) for name in place.beside)
    with seats, bookings:
        seats.append(_rows(*((flight, _SEATS) for flight in range(_FLIGHTS))))
        counted = _Counted()
        with ThreadPoolExecutor(_PASSENGERS) as pool:
            passengers = [pool.submit(_passenger, place, number) for number in range(_PASSENGERS)]
            while not all(each.done() for each in passengers):
                _count(seats, bookings, counted)
            for each in passengers:
                booked, lost = each.result()
                counted.booked += booked
                counted.lost += lost
        _count(seats, bookings, counted)
        taken = sum(bookings.refresh().snapshot().to_arrow()["seats"].to_pylist())
    statement = "transactions over two tables are in both or in neither"
    if counted.half or taken != counted.booked or counted.booked != _PASSENGERS * _BOOKINGS:
        return Finding(
            statement, False, f"{counted.booked} bookings were acknowledged, {taken} exist; {counted.half} reads saw half of one"
        )
    return Finding(
        statement,
        True,
        f"{counted.booked} seats became bookings, {counted.lost} attempts lost and were repeated, {counted.reads} reads of both agreed",
    )


def _create(place: Workspace, location: str) -> Table:
    return Table.create(location, _SCHEMA, coordinator=place.coordinator, storage_options=place.storage_options, application="bookings")


def _rows(*pairs: tuple[int, int]) -> pa.Table:
    return pa.table([list(column) for column in zip(*pairs, strict=True)], schema=_SCHEMA)


def _passenger(place: Workspace, number: int) -> tuple[int, int]:
    """Book some seats, one after the other; returns how many, and how many attempts lost to others."""
    booked = lost = 0
    for turn in range(_BOOKINGS):
        flight = (number + turn) % _FLIGHTS
        for _ in range(_ATTEMPTS):
            try:
                book_one(place, flight)
            except ConcurrentModification:
                lost += 1
            else:
                booked += 1
                break
    return booked, lost


def book_one(place: Workspace, flight: int) -> None:
    """Turn one seat of a flight into a booking. Raises ConcurrentModification if another passenger was faster."""
    seats, bookings = place.beside
    with JointTransaction(place.coordinator, storage_options=place.storage_options, tables=place.beside) as transaction:
        transaction[seats].update({"seats": "seats - 1"}, f"flight = {flight} AND seats > 0")
        transaction[bookings].append(_rows((flight, 1)))


def _count(seats: Table, bookings: Table, counted: _Counted) -> None:
    both = [sum(each.to_arrow()["seats"].to_pylist()) for each in read_together([seats, bookings])]
    counted.reads += 1
    counted.half += sum(both) != _FLIGHTS * _SEATS
