"""Many clients change the same names at once: one of them wins, the others learn why.

Clients that die in the middle of a change of names: what they leave is the state before the change or after it.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Barrier

import pytest

import sluice
from sluice.coordinator.nodes import presence
from sluice.coordinator.service.connect import release
from sluice.coordinator.service.memory import Call, MemoryCoordination
from sluice.tables.client.address import TableAddress
from sluice.tables.manage import dropping
from tests.tables.conftest import FLIGHTS, flights

CLIENTS = 6


@pytest.fixture(params=["memory", pytest.param("zookeeper", marks=pytest.mark.zookeeper)])
def address(request: pytest.FixtureRequest) -> str:
    if request.param == "memory":
        return f"memory://{uuid.uuid4().hex}"
    return str(request.getfixturevalue("zookeeper_address"))


@pytest.fixture
def catalog(address: str, tmp_path: Path) -> sluice.Catalog:
    catalog = sluice.Catalog(address, root=tmp_path / "tables")
    catalog.create_namespace("sales")
    return catalog


def at_once(act: Callable[[int], object]) -> list[object]:
    """What comes of one act by several threads at the same moment."""
    together = Barrier(CLIENTS)

    def one(number: int) -> object:
        together.wait()
        try:
            return act(number)
        except sluice.errors.SluiceError as error:
            return error

    with ThreadPoolExecutor(CLIENTS) as pool:
        return list(pool.map(one, range(CLIENTS)))


def one_of(came: list[object], *losses: type[sluice.errors.SluiceError]) -> object:
    """The one that succeeded; all others have these errors."""
    [won] = [each for each in came if not isinstance(each, BaseException)]
    assert all(type(each) in losses for each in came if each is not won), came
    return won


def test_one_creates_one_renames_one_drops_one_brings_back(catalog: sluice.Catalog) -> None:
    table = one_of(at_once(lambda _: catalog.create("sales.orders", FLIGHTS)), sluice.errors.TableExists)
    assert isinstance(table, sluice.Table)
    table.append(flights(("JFK", 1, 2)))
    renamed = one_of(at_once(lambda n: catalog.rename("sales.orders", f"sales.t{n}")), sluice.errors.TableNotFound)
    assert isinstance(renamed, sluice.NamedTable)
    assert [each.full_name for each in catalog.tables("sales")] == [renamed.full_name]
    name = renamed.full_name
    losses = (sluice.errors.TableNotFound, sluice.errors.TableDropped, sluice.errors.LeaseHeld, sluice.errors.LeaseLost)
    dropped = one_of(at_once(lambda _: catalog.drop(name)), *losses)
    assert catalog.dropped() == [dropped]
    back = one_of(at_once(lambda n: catalog.undrop(name, new_name=f"sales.b{n}")), sluice.errors.TableNotFound)
    assert isinstance(back, sluice.NamedTable)
    assert catalog.open(back.full_name).snapshot().to_arrow().num_rows == 1
    one_of(at_once(lambda _: catalog.create_namespace("raw")), sluice.errors.NamespaceExists)

    def drop_namespace(_: int) -> bool:
        catalog.drop_namespace("raw")
        return True

    one_of(at_once(drop_namespace), sluice.errors.NamespaceNotFound)


def test_writers_go_on_until_the_drop_and_lose_nothing_they_were_told_of(catalog: sluice.Catalog) -> None:
    table = catalog.create("sales.orders", FLIGHTS)
    acknowledged: list[int] = []

    def write(number: int) -> object:
        if number == 0:
            return catalog.drop("sales.orders")
        mine = sluice.Table.named("sales.orders", coordinator=catalog._coordinator)
        for turn in range(1000):
            delay = number * 1000 + turn
            mine.append(flights(("JFK", 1, delay)))
            acknowledged.append(delay)
        return None

    came = at_once(write)
    assert isinstance(came[0], sluice.DroppedTable)
    assert {type(each) for each in came[1:]} <= {sluice.errors.TableDropped, sluice.errors.TableNotFound}, came
    catalog.undrop("sales.orders")
    found = catalog.open("sales.orders").snapshot().to_arrow()["delay"].to_pylist()
    assert set(acknowledged) <= set(found)
    assert len(found) == len(set(found))
    assert table.refresh().version > 0


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
@pytest.mark.many
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
            assert catalog.open(name).append(flights(("JFK", 1, 3))) is not None
        release(catalog._coordinator)
        number += 1
    assert number > 2
    assert str(done) in seen or not after
