"""Many clients change the same names at once: one of them wins, the others learn why."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

import sluice
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
