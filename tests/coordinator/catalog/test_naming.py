"""Names change in one multi: races of two clients, lost replies, clients that die on the way."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

import sluice
from sluice.coordinator.catalog import naming
from sluice.coordinator.catalog.names import CatalogClient, TableName, look_at
from sluice.coordinator.commit.queue import list_queue, list_refused
from sluice.coordinator.limits import Limits
from sluice.coordinator.nodes.context import TableContext
from sluice.coordinator.nodes.creation import known_locations
from sluice.coordinator.nodes.layout import CATALOG_CHANGES, TableTree
from sluice.coordinator.nodes.records import NamespaceRecord
from sluice.coordinator.service.memory import Call, Fault, MemoryCoordination
from sluice.coordinator.service.store import Create
from sluice.storage.constants import NAME_KEY
from sluice.storage.stores.memory import MemoryStore
from sluice.tables.client.address import TableAddress
from sluice.tables.manage import creation
from sluice.tables.manage.creation import NewName
from tests.tables.conftest import FLIGHTS, flights

ORDERS = TableName("sales", "orders")


@pytest.fixture
def catalog(tmp_path: Path) -> sluice.Catalog:
    catalog = sluice.Catalog(f"memory://{uuid.uuid4().hex}", root=tmp_path / "tables")
    catalog.create_namespace("sales")
    return catalog


def service_of(catalog: sluice.Catalog) -> MemoryCoordination:
    assert catalog._coordinator is not None
    return MemoryCoordination.named(catalog._coordinator.removeprefix("memory://"))


def elsewhere(catalog: sluice.Catalog) -> CatalogClient:
    """Another client's way to the same names."""
    return CatalogClient(service_of(catalog).connect)


def context_at(catalog: sluice.Catalog, location: str) -> TableContext:
    service = service_of(catalog)
    session = service.connect()
    return TableContext(MemoryStore.open("unused"), TableTree(location), lambda: session)


def at_first(catalog: sluice.Catalog, verb: str, path: str, act: Callable[[], object]) -> list[object]:
    """Act as another client, right before the first call that concerns a path; returns what came of it."""
    service, came = service_of(catalog), list[object]()

    def before(call: Call) -> None:
        paths = (call.path, *(op.path for op in call.ops))
        if call.verb == verb and any(each.startswith(path) for each in paths):
            service.before = None
            try:
                came.append(act())
            except sluice.errors.SluiceError as error:
                came.append(error)

    service.before = before
    return came


# -- two at once -----------------------------------------------------------------------------------------------------------


def test_of_two_who_create_a_table_at_one_place_one_has_it(catalog: sluice.Catalog, tmp_path: Path) -> None:
    place = tmp_path / "one"
    path = TableTree(f"file://{place}").root
    came = at_first(catalog, "apply", path, lambda: sluice.Table.create(place, FLIGHTS, coordinator=catalog._coordinator).location)
    with pytest.raises(sluice.errors.TableExists):
        catalog.create("sales.orders", FLIGHTS, location=place)
    assert came == [f"file://{place}"]
    assert catalog.tables("sales") == []
    assert catalog.register("sales.orders", place).name == "orders"


@pytest.mark.parametrize(("mine", "rival"), [("rename", "rename"), ("rename", "drop"), ("drop", "rename")])
def test_of_two_who_rename_or_drop_a_table_one_does(catalog: sluice.Catalog, mine: str, rival: str) -> None:
    catalog.create("sales.orders", FLIGHTS)

    def act(how: str, name: str) -> object:
        return catalog.drop("sales.orders") if how == "drop" else catalog.rename("sales.orders", f"sales.{name}")

    path = ORDERS.path if mine == "drop" else "/catalog/namespaces/sales/mine"
    came = at_first(catalog, "apply", path, lambda: act(rival, "theirs"))
    with pytest.raises(sluice.errors.TableNotFound, match=r"there is no table sales.orders"):
        act(mine, "mine")
    assert not isinstance(came[0], Exception)
    assert [each.name for each in catalog.tables("sales")] == (["theirs"] if rival == "rename" else [])
    assert len(catalog.dropped()) == (rival == "drop")


def test_of_two_who_rename_to_one_name_one_does(catalog: sluice.Catalog) -> None:
    places = {name: catalog.create(f"sales.{name}", FLIGHTS).location for name in ("a", "b")}
    at_first(catalog, "apply", ORDERS.path, lambda: catalog.rename("sales.b", "sales.orders"))
    with pytest.raises(sluice.errors.TableExists, match=r"a table sales.orders already exists"):
        catalog.rename("sales.a", "sales.orders")
    assert {each.name: each.location for each in catalog.tables("sales")} == {"a": places["a"], "orders": places["b"]}


@pytest.mark.parametrize("asked", ["orders", "theirs", "new"])
def test_a_table_with_a_name_does_not_get_a_second_one_from_its_log(catalog: sluice.Catalog, asked: str) -> None:
    mine, theirs = (catalog.create(f"sales.{name}", FLIGHTS).location for name in ("orders", "theirs"))
    before = {"orders": mine, "theirs": theirs}

    def claim(named_ms: int) -> bool:
        return naming.claim_name(elsewhere(catalog), TableName("sales", asked), mine, named_ms=named_ms, managed=True)

    if asked == "orders":
        assert claim(0)
    else:
        with pytest.raises(sluice.errors.InvalidRequest, match=r"has the name sales\.orders already: rename it"):
            claim(2**60)
    if asked == "theirs":
        assert not claim(0), "that table got the name later"
    assert {each.name: each.location for each in catalog.tables("sales")} == before


def test_a_name_is_given_in_no_namespace_that_is_dropped(catalog: sluice.Catalog) -> None:
    at_first(catalog, "apply", ORDERS.path, lambda: catalog.drop_namespace("sales"))
    with pytest.raises(sluice.errors.NamespaceNotFound):
        catalog.create("sales.orders", FLIGHTS)
    at_first(catalog, "apply", "/catalog/namespaces/raw", lambda: catalog.create_namespace("Raw"))
    with pytest.raises(sluice.errors.NamespaceExists):
        catalog.create_namespace("raw")


def test_no_namespace_is_dropped_in_which_a_name_is_given(catalog: sluice.Catalog) -> None:
    at_first(catalog, "apply", "/catalog/namespaces/sales", lambda: catalog.create("sales.orders", FLIGHTS))
    with pytest.raises(sluice.errors.NamespaceNotEmpty):
        catalog.drop_namespace("sales")
    assert catalog.exists("sales.orders")


@pytest.mark.notices("namespaces-are-compared")
def test_of_two_changes_of_a_namespace_both_count(catalog: sluice.Catalog) -> None:
    at_first(catalog, "apply", "/catalog/namespaces/sales", lambda: catalog.alter_namespace("sales", comment="theirs"))
    catalog.alter_namespace("sales", properties={"mine": "1"})
    sales = catalog.namespace("sales")
    assert (sales.comment, sales.properties) == ("theirs", {"mine": "1"})


@pytest.mark.notices("a-drop-takes-in-every-commit")
def test_a_drop_that_meets_a_commit_is_not_done(catalog: sluice.Catalog) -> None:
    table = catalog.create("sales.orders", FLIGHTS)
    context = context_at(catalog, table.location)
    at_first(catalog, "apply", ORDERS.path, lambda: table.append(flights(("JFK", 1, 2))))
    assert naming.close_named(context, ORDERS) is None
    assert table.refresh().version == 1
    assert naming.close_named(context, ORDERS) is not None


@pytest.mark.notices("a-drop-takes-in-every-commit")
def test_a_drop_that_meets_an_intent_is_not_done_before_it_is_decided(catalog: sluice.Catalog) -> None:
    table = catalog.create("sales.orders", FLIGHTS)
    context, service = context_at(catalog, table.location), service_of(catalog)
    by_a_slot = sluice.Table.open(table.location, coordinator=catalog._coordinator, limits=Limits(fast_path=False))

    def killed(call: Call) -> None:
        if any(isinstance(op, Create) and op.sequential for op in call.ops):
            service.after = None
            raise KeyboardInterrupt

    def file_and_die() -> None:
        service.after = killed
        with pytest.raises(KeyboardInterrupt):
            by_a_slot.append(flights(("JFK", 1, 2)))

    at_first(catalog, "apply", ORDERS.path, file_and_die)
    assert naming.close_named(context, ORDERS) is None
    assert naming.close_named(context, ORDERS) is None, "the slot is undecided"
    assert catalog.drop("sales.orders") is not None
    catalog.undrop("sales.orders")
    [decided] = list_refused(context)
    assert (decided.refusal.error, list_queue(context)) == ("LeaseHeld", []), "the lease of the drop kept it out"
    for each in (table, by_a_slot):
        each.append(flights(("JFK", 1, 3)))
    assert catalog.open("sales.orders").snapshot().to_arrow().num_rows == 2


@pytest.mark.notices("what-is-brought-back-is-not-deleted")
def test_of_bringing_back_and_deleting_one_is_done(catalog: sluice.Catalog) -> None:
    catalog.create("sales.orders", FLIGHTS)
    gone = catalog.drop("sales.orders")
    assert gone is not None
    at_first(catalog, "apply", ORDERS.path, lambda: naming.schedule_removal(elsewhere(catalog), gone.id))
    with pytest.raises(sluice.errors.TableNotFound, match="data are being deleted"):
        catalog.undrop("sales.orders")
    assert [each.deleting for each in catalog.dropped()] == [True]
    assert [each.location for each in catalog.vacuum(1000)] == [gone.location], "a deletion that began is finished"

    catalog.create("sales.orders", FLIGHTS)
    again = catalog.drop("sales.orders")
    assert again is not None
    at_first(catalog, "apply", f"/catalog/dropped/{again.id}", lambda: catalog.undrop("sales.orders"))
    with pytest.raises(sluice.errors.TableNotFound, match="another client brought it back"):
        catalog.vacuum(0)
    catalog.open("sales.orders").append(flights(("JFK", 1, 2)))


# -- a new table and its name ------------------------------------------------------------------------------------------------


def created_without_its_name(catalog: sluice.Catalog, location: str) -> TableAddress:
    """A table whose creator died after the first version, and before it gave the name."""
    address = TableAddress.of(location, catalog._coordinator)
    creation.create(address, creation.new_table(FLIGHTS), name=NewName(ORDERS, managed=False, named_ms=1))
    return address


def test_of_two_who_create_a_name_one_has_it_and_the_other_leaves_nothing(catalog: sluice.Catalog) -> None:
    came = at_first(catalog, "apply", ORDERS.path, lambda: catalog.create("sales.orders", FLIGHTS).location)
    with pytest.raises(sluice.errors.TableExists, match=r"a table sales.orders already exists"):
        catalog.create("sales.orders", FLIGHTS)
    assert [each.location for each in catalog.tables("sales")] == known_locations(service_of(catalog).connect()) == came
    assert [f"file://{each}" for each in Path(str(catalog.root).removeprefix("file://"), "sales").iterdir() if any(each.iterdir())] == came


def test_who_loses_the_race_for_a_name_at_a_place_of_its_own_has_a_table_without_one(catalog: sluice.Catalog, tmp_path: Path) -> None:
    at_first(catalog, "apply", ORDERS.path, lambda: catalog.create("sales.orders", FLIGHTS))
    with pytest.raises(sluice.errors.TableExists, match=r"a table sales.orders already exists"):
        catalog.create("sales.orders", FLIGHTS, location=tmp_path / "mine")
    mine = sluice.Table.open(tmp_path / "mine", coordinator=catalog._coordinator)
    assert mine.properties[NAME_KEY] == "", "or it would have the name after a recovery"
    assert catalog.register("sales.mine", tmp_path / "mine").name == "mine"


def test_a_creator_that_dies_before_it_gives_the_name_is_in_nobodys_way(catalog: sluice.Catalog, tmp_path: Path) -> None:
    created_without_its_name(catalog, str(tmp_path / "dead"))
    assert catalog.tables("sales") == []
    assert not catalog.exists("sales.orders")
    table = catalog.create("sales.orders", FLIGHTS)
    assert catalog.locate("sales.orders") == table.location
    catalog.drop("sales.orders")
    catalog.drop_namespace("sales")


def test_who_creates_the_table_again_in_its_place_gives_it_the_name(catalog: sluice.Catalog, tmp_path: Path) -> None:
    address = created_without_its_name(catalog, str(tmp_path / "dead"))
    with pytest.raises(sluice.errors.TableExists, match="a table already exists at"):
        catalog.create("sales.other", FLIGHTS, location=tmp_path / "dead")
    assert catalog.tables("sales") == [], "it was not created under that name"
    with pytest.raises(sluice.errors.TableExists, match="a table already exists at"):
        catalog.create("Sales.Orders", FLIGHTS, location=tmp_path / "dead")
    assert catalog.locate("sales.orders") == address.location


@pytest.mark.notices("names-mean-their-own-table")
def test_a_table_made_in_the_place_of_a_former_one_does_not_inherit_its_name(catalog: sluice.Catalog, tmp_path: Path) -> None:
    """As it is when a client of a release that knows no names drops the former one."""
    first = catalog.create("sales.orders", FLIGHTS, location=tmp_path / "one")
    session = service_of(catalog).connect()
    node = session.read(ORDERS.path)
    assert node is not None
    first.drop()
    session.create(ORDERS.path, node.data)
    assert catalog.tables("sales") == []
    second = sluice.Table.create(tmp_path / "one", FLIGHTS, coordinator=catalog._coordinator)
    with pytest.raises(sluice.errors.TableNotFound):
        catalog.locate("sales.orders")
    assert catalog.register("sales.orders", tmp_path / "one").location == second.location


# -- replies that are lost -----------------------------------------------------------------------------------------------------

CHANGES: dict[str, tuple[str, Callable[[sluice.Catalog], object]]] = {
    "create": ("/catalog/namespaces/sales/new", lambda c: c.create("sales.new", FLIGHTS)),
    "rename": ("/catalog/namespaces/sales/new", lambda c: c.rename("sales.orders", "sales.new")),
    "drop": (ORDERS.path, lambda c: c.drop("sales.orders")),
    "unname": (ORDERS.path, lambda c: c.drop("sales.orders", keep_data=True)),
    "undrop": ("/catalog/namespaces/sales/gone", lambda c: c.undrop("sales.gone")),
    "create namespace": ("/catalog/namespaces/raw", lambda c: c.create_namespace("raw")),
    "drop namespace": ("/catalog/namespaces/empty", lambda c: c.drop_namespace("empty")),
    "alter namespace": ("/catalog/namespaces/sales", lambda c: c.alter_namespace("sales", comment="x")),
    "set root": ("/catalog/changes", lambda c: c.set_root("/elsewhere")),
    "vacuum": ("/catalog/dropped", lambda c: c.vacuum(0)),
}


def all_names(catalog: sluice.Catalog) -> object:
    tables = [(each.full_name, each.managed) for space in catalog.namespaces() for each in catalog.tables(space.name)]
    spaces = [(each.name, each.comment) for each in catalog.namespaces()]
    return tables, spaces, [(each.full_name, each.deleting) for each in catalog.dropped()], catalog.root


def prepared(folder: Path) -> sluice.Catalog:
    catalog = sluice.Catalog(f"memory://{uuid.uuid4().hex}", root=folder)
    for name in ("sales", "empty"):
        catalog.create_namespace(name)
    for name in ("sales.orders", "sales.gone"):
        catalog.create(name, FLIGHTS)
    catalog.drop("sales.gone")
    return catalog


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """What each change comes to where nothing is lost."""
    found = {}
    for name, (_, change) in CHANGES.items():
        catalog = prepared(tmp_path_factory.getbasetemp() / "tables")
        change(catalog)
        found[name] = all_names(catalog)
    return found


@pytest.mark.notices("lost-changes-of-names-are-looked-for")
@pytest.mark.parametrize("fault", Fault)
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_happens_once_whatever_is_lost(
    change: str, fault: Fault, results: dict[str, object], tmp_path_factory: pytest.TempPathFactory
) -> None:
    catalog = prepared(tmp_path_factory.getbasetemp() / "tables")
    path, act = CHANGES[change]
    service_of(catalog).inject(fault, verb="apply", path=path)
    act(catalog)
    assert all_names(catalog) == results[change]
    assert service_of(catalog).connect().children(CATALOG_CHANGES) == []


def test_what_others_did_after_a_lost_reply_is_no_doubt_about_it(catalog: sluice.Catalog) -> None:
    """The name has moved on by the time its client looks: still it knows that its own change was made."""
    catalog.create("sales.orders", FLIGHTS)
    service, b = service_of(catalog), TableName("sales", "b")
    session = service.connect()
    service.inject(Fault.REPLY_LOST, verb="apply", path=b.path)

    def before(call: Call) -> None:
        if call.verb == "barrier" and call.session_id == session.session_id and service.connect().read(b.path) is not None:
            service.before = None
            naming.rename_table(elsewhere(catalog), b, TableName("sales", "c"))

    service.before = before
    naming.rename_table(CatalogClient(lambda: session), ORDERS, b)
    assert [each.name for each in catalog.tables("sales")] == ["c"]


@pytest.mark.notices("names-are-looked-up-now")
def test_a_name_that_was_given_is_found_although_the_server_is_behind(catalog: sluice.Catalog) -> None:
    session = service_of(catalog).connect()
    session.lag = 50
    catalog.create("sales.orders", FLIGHTS)
    home = CatalogClient(lambda: session)
    [found] = home.fresh(lambda session: look_at(session, ORDERS))
    assert found.means_table
    assert [str(each.spelled) for each in naming.list_names(home, "sales")] == ["sales.orders"]


def test_marks_of_dead_clients_go(catalog: sluice.Catalog) -> None:
    session = service_of(catalog).connect()
    session.create(f"{CATALOG_CHANGES}/old", b"1")
    naming.create_namespace(CatalogClient(lambda: session), NamespaceRecord("raw"))
    assert session.children(CATALOG_CHANGES) == []
