"""Clients that die in the middle of a change of names: what they leave is the state before the change or after it."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

import sluice
from sluice.coordinator.nodes import presence
from sluice.coordinator.service.connect import release
from sluice.coordinator.service.memory import Call, MemoryCoordination
from sluice.tables.client.address import TableAddress
from sluice.tables.manage import dropping
from tests.tables.conftest import FLIGHTS, flights


def create_if_not_exists(catalog: sluice.Catalog, location: str) -> None:
    with suppress(sluice.errors.TableExists):
        catalog.create("sales.new", FLIGHTS, location=location)


CHANGES: dict[str, Callable[[sluice.Catalog], object]] = {
    "create": lambda c: c.create("sales.new", FLIGHTS),
    "create at a place": lambda c: create_if_not_exists(c, c.root + "/own"),  # type: ignore[operator]
    "register": lambda c: c.register("sales.new", c.root + "/plain"),  # type: ignore[operator]
    "rename": lambda c: c.rename("sales.orders", "sales.new"),
    "drop": lambda c: c.drop("sales.orders"),
    "undrop": lambda c: c.undrop("sales.gone"),
    "vacuum": lambda c: c.vacuum(0),
    "drop by location": lambda c: dropping.drop(TableAddress.of(c.locate("sales.orders"), c._coordinator)),
}


class Killed(BaseException):
    """The client is dead."""


def prepared(folder: Path) -> tuple[sluice.Catalog, MemoryCoordination]:
    name = uuid.uuid4().hex
    catalog = sluice.Catalog(f"memory://{name}", root=folder / name)
    catalog.create_namespace("sales")
    for each in ("sales.orders", "sales.gone"):
        catalog.create(each, FLIGHTS).append(flights(("JFK", 1, 2)))
    sluice.Table.create(f"{catalog.root}/plain", FLIGHTS, coordinator=f"memory://{name}").close()
    catalog.drop("sales.gone")
    return catalog, MemoryCoordination.named(name)


def state(catalog: sluice.Catalog) -> tuple[list[str], list[str]]:
    return sorted(each.full_name for each in catalog.tables("sales")), [each.full_name for each in catalog.dropped() if not each.deleting]


def killed_at(service: MemoryCoordination, number: int, act: Callable[[], object], *, after: bool) -> bool:
    """Whether the client died in its change number so-and-so at the coordinator; its session ends then."""
    changes = [0]

    def die(call: Call) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        changes[0] += call.verb in ("apply", "create", "write", "delete")
        if changes[0] > number or (changes[0] == number and call.ops):
            changes[0] = number + 1
            raise Killed

    def dead(call: Call) -> None:
        if changes[0] > number and threading.current_thread() is threading.main_thread():
            raise Killed

    service.before, service.after = (dead if after else die), (die if after else None)
    try:
        act()
    except Killed:
        return True
    finally:
        service.before = service.after = None
        for session in list(service._sessions.values()):
            session.expire()
        presence._presences.clear()  # the next call is another client's
    return False


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("change", CHANGES)
def test_a_client_dies_at_any_change(change: str, after: bool, tmp_path: Path) -> None:
    act = CHANGES[change]
    whole, _ = prepared(tmp_path)
    before = state(whole)
    act(whole)
    done = state(whole)
    number, seen = 1, set[str]()
    while True:
        catalog, service = prepared(tmp_path)
        if not killed_at(service, number, lambda catalog=catalog: act(catalog), after=after):  # type: ignore[misc]
            break
        found = state(catalog)
        gone = change == "vacuum" and found == (before[0], [])
        assert found in (before, done) or gone, f"{change}, killed at {number}: {found}"
        seen.add(str(found))
        if found == before:  # nothing is in the way of the same change by another client
            act(catalog)
            assert state(catalog) == done
        for name in state(catalog)[0]:
            commit = catalog.open(name).append(flights(("JFK", 1, 3)))
            assert commit is not None
        release(catalog._coordinator)
        number += 1
    assert number > 2
    assert str(done) in seen or not after
