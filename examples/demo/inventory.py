"""A lease: while one client takes stock of the seats nobody sells any, and all buyers get through afterwards."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from sluice import Table
from sluice.errors import ConcurrentModification

from .bookings import book_one
from .proof import Finding
from .workspace import Workspace

_PASSENGERS = 4
_ROUNDS = 5
_ROUND_S = 0.2
_ATTEMPTS = 50
_STATEMENT = "who holds a lease is not disturbed, and who waits for it gets through"


@dataclass(frozen=True, slots=True)
class _Held:
    """What the holder saw while it held the lease."""

    seconds: float
    versions: int
    disturbed: bool


def take_inventory(place: Workspace) -> Finding:
    """Hold the seats exclusively while passengers try to book; returns whether one got in between, or did not get through."""
    with Table.open(
        place.beside[0], coordinator=place.coordinator, storage_options=place.storage_options, application="inventory"
    ) as seats:
        before = _left(seats)
        with ThreadPoolExecutor(_PASSENGERS) as pool:
            with seats.lease(name="inventory"):
                passengers = [pool.submit(_book, place, flight) for flight in range(_PASSENGERS)]
                held = _count(seats)
                early = sum(each.done() for each in passengers)
            lost = sum(each.result() for each in passengers)
        sold = before - _left(seats)
    if held.disturbed or early or sold != _PASSENGERS:
        return Finding(
            _STATEMENT,
            False,
            f"{early} bookings got in between, {sold} of {_PASSENGERS} were made; the holder was disturbed: {held.disturbed}",
        )
    return Finding(
        _STATEMENT,
        True,
        f"{held.versions} versions were made under it in {held.seconds:.1f} s, {_PASSENGERS} bookings waited for its end and were made"
        + (f" ({lost} at another attempt)" if lost else ""),
    )


def _count(seats: Table) -> _Held:
    """Commit again and again, each time based on the previous result."""
    began, versions = time.monotonic(), 0
    expected = seats.refresh().version
    for _ in range(_ROUNDS):
        try:
            commit = seats.update({"seats": "seats"})
        except ConcurrentModification:  # nobody makes one while the lease is held
            return _Held(time.monotonic() - began, versions, disturbed=True)
        expected += 1
        versions += commit is not None
        if commit is None or commit.version != expected:
            return _Held(time.monotonic() - began, versions, disturbed=True)
        time.sleep(_ROUND_S)
    return _Held(time.monotonic() - began, versions, disturbed=False)


def _book(place: Workspace, flight: int) -> int:
    """Book a seat; returns how many attempts lost to others."""
    for lost in range(_ATTEMPTS):
        try:
            book_one(place, flight)
        except ConcurrentModification:
            continue
        return lost
    return _ATTEMPTS


def _left(seats: Table) -> int:
    return int(sum(seats.refresh().snapshot().to_arrow()["seats"].to_pylist()))
