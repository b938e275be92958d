"""Names come back from the tables' logs after the coordinator's data were lost."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import sluice
from sluice.coordinator.catalog import naming
from sluice.coordinator.catalog.names import TableName
from sluice.storage.constants import NAME_KEY
from tests.tables.conftest import FLIGHTS, Place, flights
from tests.tables.elsewhere import former_of, lose_everything


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(str(tmp_path / "tables"), f"memory://names-{os.urandom(8).hex()}")


@pytest.fixture
def catalog(place: Place) -> sluice.Catalog:
    catalog = sluice.Catalog(place.coordinator, root=place.location)
    catalog.create_namespace("Sales", comment="lost")
    return catalog


def recovered(place: Place, *locations: str) -> list[sluice.RecoveryReport]:
    former = former_of(Place(locations[0], place.coordinator))
    lose_everything(place)
    return [sluice.recover(each, coordinator=place.coordinator, former=former, wait_s=0) for each in locations]


def names_of(catalog: sluice.Catalog) -> dict[str, str]:
    return {each.full_name: each.location for space in catalog.namespaces() for each in catalog.tables(space.name)}


def test_names_come_back_with_their_tables(catalog: sluice.Catalog, place: Place, tmp_path: Path) -> None:
    orders = catalog.create("Sales.Orders", FLIGHTS)
    orders.append(flights(("JFK", 1, 2)))
    external = catalog.create("bills", FLIGHTS, location=tmp_path / "bills")
    catalog.rename("bills", "Sales.Bills")
    plain = sluice.Table.create(tmp_path / "plain", FLIGHTS, coordinator=place.coordinator)
    before = [catalog.describe("sales.orders"), catalog.describe("sales.bills")]
    reports = recovered(place, orders.location, external.location, plain.location)
    assert [(each.name, each.lost_name) for each in reports] == [("Sales.Orders", None), ("Sales.Bills", None), (None, None)]
    assert [catalog.describe("sales.orders"), catalog.describe("sales.bills")] == before
    assert catalog.open("sales.orders").append(flights(("JFK", 1, 3))) is not None


def test_all_tables_below_the_root_get_their_names(catalog: sluice.Catalog, place: Place) -> None:
    made = {f"Sales.t{n}": catalog.create(f"Sales.t{n}", FLIGHTS).location for n in range(5)}
    former = former_of(Place(next(iter(made.values())), place.coordinator))
    lose_everything(place)
    done = list(sluice.recover_all(place.location, coordinator=place.coordinator, former=former, wait_s=0))
    assert sorted(each.report.name or "" for each in done if each.report) == sorted(made)
    assert names_of(catalog) == made
    catalog.drop("sales.t0")
    again = {each.location: each.left for each in sluice.recover_all(place.location, coordinator=place.coordinator, wait_s=0)}
    assert again == {location: "was dropped" if name == "Sales.t0" else "has its nodes" for name, location in made.items()}


@pytest.mark.notices("the-last-name-counts")
@pytest.mark.parametrize("first", [0, 1])
def test_of_two_logs_that_name_the_same_the_later_counts(catalog: sluice.Catalog, place: Place, first: int) -> None:
    """The client that renamed the former one died before the log repeated it."""
    former = catalog.create("sales.orders", FLIGHTS)
    naming.rename_table(catalog._names, TableName("sales", "orders"), TableName("sales", "old"))
    later = catalog.create("sales.orders", FLIGHTS)
    assert former.refresh().properties[NAME_KEY] == later.properties[NAME_KEY]
    both = [former.location, later.location]
    reports = recovered(place, *(both if first == 0 else both[::-1]))
    assert names_of(catalog) == {"Sales.orders": later.location}
    lagging = reports[first]
    assert (lagging.name, lagging.lost_name) == ((None, "Sales.orders") if first == 1 else ("Sales.orders", None))
    assert catalog.register("sales.old", former.location).name == "old", "nothing is left of the name that it lost"


def test_a_dropped_table_comes_back_without_its_name(catalog: sluice.Catalog, place: Place) -> None:
    table = catalog.create("sales.orders", FLIGHTS)
    catalog.drop("sales.orders")
    [report] = recovered(place, table.location)
    assert (report.name, report.lost_name) == (None, None)
    assert catalog.namespaces()[-1].name == "default"
    assert catalog.register("orders", table.location).location == table.location


def test_a_table_that_was_brought_back_keeps_its_name(catalog: sluice.Catalog, place: Place) -> None:
    table = catalog.create("sales.orders", FLIGHTS)
    catalog.drop("sales.orders")
    catalog.undrop("sales.orders")
    [report] = recovered(place, table.location)
    assert report.name == "Sales.orders"


def test_a_name_that_this_release_does_not_know_keeps_no_table_from_coming_back(catalog: sluice.Catalog, place: Place) -> None:
    from sluice.coordinator.api import Deadline
    from sluice.tables.client.address import TableAddress
    from sluice.tables.manage.naming import note_name

    table = catalog.create("sales.orders", FLIGHTS)
    address = TableAddress.of(table.location, place.coordinator)
    note_name(address, "a.b.c", 2**60, managed=False, timeout_s=Deadline.after(10))
    [report] = recovered(place, table.location)
    assert (report.name, report.lost_name) == (None, "a.b.c")
    assert sluice.Table.open(table.location, coordinator=place.coordinator).version > 0
