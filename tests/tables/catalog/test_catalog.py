"""Tables by their names: what a catalog does for one client."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

import sluice
from sluice.storage.constants import NAME_KEY, NAMED_MS_KEY
from tests.tables.conftest import FLIGHTS, by_another, flights, present, rows_of


def coordinator_of(catalog: sluice.Catalog) -> str:
    address = catalog._coordinator
    assert address is not None
    return address


# -- namespaces ----------------------------------------------------------------------------------------------------------


def test_a_namespace_has_a_comment_properties_and_a_place(catalog: sluice.Catalog, tmp_path: Path) -> None:
    assert [each.name for each in catalog.namespaces()] == ["default", "sales"]
    assert catalog.create_namespace("Raw", comment="as delivered", properties={"owner": "team a"}, location=tmp_path / "raw")
    raw = catalog.namespace("RAW")
    assert (raw.name, raw.comment, raw.properties, raw.location) == ("Raw", "as delivered", {"owner": "team a"}, f"file://{tmp_path}/raw")
    assert catalog.namespace("sales").location == f"file://{tmp_path}/tables/sales"
    raw = catalog.alter_namespace("raw", comment="", properties={"days": "3"}, unset=["owner", "none"])
    assert (raw.comment, raw.properties) == ("", {"days": "3"})
    assert catalog.namespace("raw") == raw
    assert catalog.create("raw.a", FLIGHTS).location.startswith(f"file://{tmp_path}/raw/a-")


def test_a_namespace_is_made_once_and_dropped_empty(catalog: sluice.Catalog) -> None:
    with pytest.raises(sluice.errors.NamespaceExists, match=r"there is a namespace Sales already"):
        catalog.create_namespace("Sales")
    assert not catalog.create_namespace("SALES", if_not_exists=True)
    catalog.create("sales.orders", FLIGHTS)
    with pytest.raises(sluice.errors.NamespaceNotEmpty, match=r"has tables \(sales.orders\)"):
        catalog.drop_namespace("sales")
    catalog.rename("sales.orders", "orders")
    catalog.drop_namespace("SALES")
    assert [each.name for each in catalog.namespaces()] == ["default"]
    for act in (catalog.namespace, catalog.drop_namespace, catalog.tables, catalog.alter_namespace):
        with pytest.raises(sluice.errors.NamespaceNotFound, match=r"there is no namespace sales"):
            act("sales")
    with pytest.raises(sluice.errors.NamespaceNotFound):
        catalog.create("sales.orders", FLIGHTS)
    with pytest.raises(sluice.errors.NamespaceNotFound):
        catalog.locate("sales.orders")
    with pytest.raises(sluice.errors.NamespaceNotFound):
        catalog.rename("orders", "sales.orders")
    assert not catalog.exists("sales.orders")
    with pytest.raises(sluice.errors.InvalidRequest, match="default cannot be dropped"):
        catalog.drop_namespace("default")


def test_the_root_is_the_coordinators(catalog: sluice.Catalog, tmp_path: Path) -> None:
    address = coordinator_of(catalog)
    assert sluice.Catalog(address).root == f"file://{tmp_path}/tables"
    with pytest.raises(sluice.errors.InvalidRequest, match=r"the catalog's root is .*/tables, not .*/elsewhere"):
        sluice.Catalog(address, root=tmp_path / "elsewhere")
    catalog.set_root(tmp_path / "elsewhere")
    assert (
        sluice.Catalog(address, root=tmp_path / "elsewhere")
        .create("a", FLIGHTS)
        .location.startswith(f"file://{tmp_path}/elsewhere/default/a-")
    )
    rootless = sluice.Catalog(f"memory://{uuid.uuid4().hex}")
    assert rootless.root is None
    assert rootless.tables() == []
    with pytest.raises(sluice.errors.InvalidRequest, match="has no place: give it one"):
        rootless.create("a", FLIGHTS)
    assert rootless.create("a", FLIGHTS, location=tmp_path / "a").version == 0


# -- tables ----------------------------------------------------------------------------------------------------------------


def test_a_table_is_created_found_and_opened_by_its_name(catalog: sluice.Catalog) -> None:
    table = catalog.create("Sales.Orders", FLIGHTS, partition_by=["origin"], properties={"delta.appendOnly": "true"}, comment="all of them")
    table.append(flights(("JFK", 1, 2)))
    assert table.snapshot().raw.metadata.description == "all of them"
    [entry] = catalog.tables("sales")
    assert (entry.full_name, entry.location, entry.managed) == ("sales.Orders", table.location, True)
    assert catalog.describe("SALES.ORDERS") == entry
    assert catalog.locate("sales.orders") == table.location
    assert catalog.exists("sales.orders")
    for opened in (catalog.open("sales.orders"), sluice.Table.named("`sales`.orders", coordinator=coordinator_of(catalog))):
        assert rows_of(opened.snapshot().to_arrow()) == [("JFK", 1, 2)]
    assert table.properties[NAME_KEY] == "sales.Orders"
    with pytest.raises(sluice.errors.InvalidRequest, match=r"sluice.name is not for users to change"):
        table.set_properties({NAME_KEY: "sales.bills"})


def test_a_name_is_given_once(catalog: sluice.Catalog, tmp_path: Path) -> None:
    first = catalog.create("sales.orders", FLIGHTS)
    with pytest.raises(sluice.errors.TableExists, match=r"a table sales.orders already exists, at file://"):
        catalog.create("sales.ORDERS", FLIGHTS)
    with pytest.raises(sluice.errors.TableExists):
        catalog.create("sales.orders", FLIGHTS, location=tmp_path / "b")
    assert not (tmp_path / "b").exists()
    with pytest.raises(sluice.errors.TableExists, match=r"a table already exists at"):
        catalog.create("sales.bills", FLIGHTS, location=first.location)
    assert [each.name for each in catalog.tables("sales")] == ["orders"]


def test_who_names_nothing_is_told(catalog: sluice.Catalog) -> None:
    for act in (catalog.locate, catalog.describe, catalog.open, catalog.drop, lambda name: catalog.rename(name, "b"), catalog.undrop):
        with pytest.raises(sluice.errors.TableNotFound):
            act("sales.nothing")
    with pytest.raises(sluice.errors.TableNotFound, match=r"there is no table default.nothing"):
        sluice.Table.named("nothing", coordinator=coordinator_of(catalog))
    with pytest.raises(sluice.errors.InvalidName, match="3 parts"):
        catalog.exists("spark_catalog.sales.orders")


def test_what_cannot_be_created_leaves_no_name(catalog: sluice.Catalog, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").write_text("mine")
    with pytest.raises(sluice.errors.InvalidRequest, match="is not empty"):
        catalog.create("sales.orders", FLIGHTS, location=tmp_path / "full")
    with pytest.raises(sluice.errors.InvalidRequest, match="knows no property"):
        catalog.create("sales.orders", FLIGHTS, properties={"delta.unknown": "1"})
    assert catalog.tables("sales") == []
    assert catalog.create("sales.orders", FLIGHTS, location=tmp_path / "full", allow_nonempty=True).version == 0


def test_a_table_that_exists_gets_a_name(catalog: sluice.Catalog, tmp_path: Path) -> None:
    address = coordinator_of(catalog)
    table = sluice.Table.create(tmp_path / "old", FLIGHTS, coordinator=address)
    entry = catalog.register("sales.Old", tmp_path / "old")
    assert (entry.full_name, entry.location, entry.managed) == ("sales.Old", table.location, False)
    assert catalog.register("sales.old", tmp_path / "old").name == "Old", "the same again changes nothing"
    assert table.refresh().properties[NAME_KEY] == "sales.Old"
    with pytest.raises(sluice.errors.InvalidRequest, match=r"has the name sales.Old already"):
        catalog.register("sales.other", tmp_path / "old")
    sluice.Table.create(tmp_path / "second", FLIGHTS, coordinator=address)
    with pytest.raises(sluice.errors.TableExists):
        catalog.register("sales.OLD", tmp_path / "second")
    with pytest.raises(sluice.errors.TableNotFound):
        catalog.register("sales.none", tmp_path / "none")


def test_a_plain_delta_table_is_attached_when_it_gets_a_name(catalog: sluice.Catalog, tmp_path: Path) -> None:
    address = coordinator_of(catalog)
    sluice.Table.create(tmp_path / "plain", FLIGHTS, coordinator=address).drop(keep_data=True)
    assert catalog.register("sales.plain", tmp_path / "plain").name == "plain"
    assert present(catalog.open("sales.plain").append(flights(("JFK", 1, 2)))).version > 0


def test_a_table_is_renamed_under_its_readers_and_writers(catalog: sluice.Catalog) -> None:
    table = catalog.create("sales.orders", FLIGHTS)
    entry = catalog.rename("sales.orders", "default.Bills")
    assert (entry.full_name, entry.location) == ("default.Bills", table.location)
    table.append(flights(("JFK", 1, 2)))
    assert rows_of(catalog.open("bills").snapshot().to_arrow()) == [("JFK", 1, 2)]
    assert table.refresh().properties[NAME_KEY] == "default.Bills"
    with pytest.raises(sluice.errors.TableNotFound):
        catalog.locate("sales.orders")
    assert catalog.rename("BILLS", "bills").name == "bills", "another spelling"
    assert [each.name for each in catalog.tables()] == ["bills"]
    assert catalog.create("sales.orders", FLIGHTS).location != table.location
    with pytest.raises(sluice.errors.TableExists, match=r"a table default.bills already exists"):
        catalog.rename("sales.orders", "bills")
    assert int(table.refresh().properties[NAMED_MS_KEY]) == catalog.describe("bills").named_ms


def test_a_tables_comment_is_in_its_log(catalog: sluice.Catalog) -> None:
    table = catalog.create("sales.orders", FLIGHTS)
    assert catalog.comment("sales.orders") is None
    catalog.set_comment("sales.orders", "all of them")
    catalog.set_comment("sales.orders", "all of them")
    assert catalog.comment("SALES.orders") == table.refresh().snapshot().raw.metadata.description == "all of them"
    assert table.version == 1
    catalog.set_comment("sales.orders", None)
    assert catalog.comment("sales.orders") is None
    with pytest.raises(sluice.errors.InvalidRequest, match="comment is 3"):
        catalog.set_comment("sales.orders", 3)  # type: ignore[arg-type]


def test_a_table_that_is_replaced_or_restored_keeps_its_name(catalog: sluice.Catalog) -> None:
    table = catalog.create("sales.orders", FLIGHTS)
    table.append(flights(("JFK", 1, 2)))
    catalog.rename("sales.orders", "sales.bills")
    table.restore(1)
    assert table.refresh().properties[NAME_KEY] == "sales.bills"
    assert catalog.locate("sales.bills") == table.location


# -- dropping ------------------------------------------------------------------------------------------------------------------


@pytest.mark.notices("a-named-drop-closes-the-table", "closed-tables-are-not-read")
def test_a_dropped_table_is_closed_to_those_who_have_it_open(catalog: sluice.Catalog) -> None:
    table = catalog.create("sales.orders", FLIGHTS)
    table.append(flights(("JFK", 1, 2)))
    dropped = present(catalog.drop("sales.ORDERS"))
    assert (dropped.full_name, dropped.location, dropped.deleting) == ("sales.orders", table.location, False)
    assert catalog.dropped() == [dropped]
    for act in (
        table.refresh,
        lambda: table.append(flights(("JFK", 1, 3))),
        lambda: sluice.Table.open(table.location, coordinator=coordinator_of(catalog)),
        lambda: catalog.drop("sales.orders"),
    ):
        with pytest.raises(sluice.errors.TableDropped):
            act()
    with pytest.raises(sluice.errors.TableDropped, match=r"was dropped by .*Catalog.undrop"):
        catalog.open("sales.orders")
    assert not catalog.exists("sales.orders")


def test_a_dropped_table_comes_back_as_it_was(catalog: sluice.Catalog) -> None:
    table = catalog.create("sales.Orders", FLIGHTS)
    table.append(flights(("JFK", 1, 2)))
    catalog.drop("sales.orders")
    entry = catalog.undrop("sales.orders")
    assert (entry.full_name, entry.location, entry.managed) == ("sales.Orders", table.location, True)
    assert catalog.dropped() == []
    table.append(flights(("JFK", 1, 3)))
    assert rows_of(catalog.open("sales.orders").snapshot().to_arrow()) == [("JFK", 1, 2), ("JFK", 1, 3)]
    with pytest.raises(sluice.errors.TableNotFound, match="never dropped"):
        catalog.undrop("sales.orders")


def test_of_several_dropped_tables_of_one_name_each_comes_back(catalog: sluice.Catalog) -> None:
    places = []
    for _ in range(3):
        places.append(catalog.create("sales.orders", FLIGHTS).location)
        catalog.drop("sales.orders")
    assert [each.location for each in catalog.dropped()] == places[::-1]
    assert catalog.undrop("sales.orders").location == places[2]
    with pytest.raises(sluice.errors.TableExists, match=r"a table sales.orders already exists.*give another name"):
        catalog.undrop("sales.orders")
    first = catalog.dropped()[-1]
    assert catalog.undrop("sales.orders", new_name="sales.first", drop_id=first.id).location == places[0]
    assert [each.location for each in catalog.dropped()] == [places[1]]


def test_the_data_of_dropped_tables_go_after_a_time(catalog: sluice.Catalog) -> None:
    table = catalog.create("sales.orders", FLIGHTS)
    folder = Path(table.location.removeprefix("file://"))
    table.append(flights(("JFK", 1, 2)))
    catalog.drop("sales.orders")
    assert catalog.vacuum() == []
    assert catalog.vacuum(0, name="sales.other") == []
    assert (folder / "_delta_log").exists()
    [report] = catalog.vacuum(0)
    assert (report.location, report.kept) == (table.location, ())
    assert not list(folder.rglob("*.parquet"))
    assert not list(folder.rglob("*.json"))
    assert catalog.dropped() == []
    with pytest.raises(sluice.errors.TableNotFound):
        catalog.undrop("sales.orders")
    with pytest.raises(sluice.errors.InvalidRequest, match="retain_hours"):
        catalog.vacuum(-1)


def test_a_table_at_a_place_of_its_own_keeps_its_data(catalog: sluice.Catalog, tmp_path: Path) -> None:
    table = catalog.create("sales.orders", FLIGHTS, location=tmp_path / "mine")
    assert catalog.drop("sales.orders") is None
    assert table.refresh().properties[NAME_KEY] == ""
    assert catalog.tables("sales") == []
    assert catalog.register("sales.again", tmp_path / "mine").location == table.location
    assert catalog.drop("sales.again", keep_data=False) is not None
    assert len(catalog.vacuum(0)) == 1
    managed = catalog.create("sales.b", FLIGHTS)
    assert catalog.drop("sales.b", keep_data=True) is None
    managed.append(flights(("JFK", 1, 2)))


@pytest.mark.notices("names-go-with-their-tables")
@pytest.mark.parametrize("keep_data", [False, True])
def test_a_table_dropped_by_its_location_takes_its_name_along(catalog: sluice.Catalog, keep_data: bool) -> None:
    table = catalog.create("sales.orders", FLIGHTS)
    table.drop(keep_data=keep_data)
    assert catalog.tables("sales") == []
    session = catalog._names.connect()
    assert session.read("/catalog/namespaces/sales/orders") is None
    catalog.drop_namespace("sales")
    if keep_data:
        assert NAME_KEY not in sluice.Table.open(table.location, consistency="published").properties


def test_a_lease_keeps_a_table_from_being_dropped(catalog: sluice.Catalog) -> None:
    table = catalog.create("sales.orders", FLIGHTS)
    with table.lease(), pytest.raises(sluice.errors.LeaseHeld):
        by_another(lambda: catalog.drop("sales.orders", timeout_s=0.3))
    assert catalog.drop("sales.orders") is not None
