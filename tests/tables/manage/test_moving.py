"""Tables that move to another coordinator: what goes along, who finds them, and what is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import sluice
from sluice.coordinator.admission.submission import candidate_of, member_of
from sluice.coordinator.api import (
    Deadline,
    Head,
    begin_tokens,
    break_lease,
    hold_consumer,
    lease_on_table,
    leases,
    list_leases,
    pin_version,
    raise_horizon,
    read_tombstone,
    submit,
)
from sluice.coordinator.commit import moving
from sluice.coordinator.commit.queue import Filing, file_intents
from sluice.coordinator.nodes.creation import make_tree
from sluice.coordinator.nodes.presence import Grave, Presence
from sluice.coordinator.publication.publisher import Publisher
from sluice.coordinator.service.connect import connect
from sluice.coordinator.service.memory import Fault, MemoryCoordination
from sluice.statements.duckdb.engine import run
from sluice.storage.constants import ADDRESS_KEY
from sluice.tables.client.address import TableAddress
from sluice.tables.client.open_table import kept_open
from sluice.tables.maintain import vacuum
from tests.tables.conftest import FLIGHTS, Place, by_another, flights, present

NEW = "memory://a-second-coordinator-"


@pytest.fixture
def new(place: Place) -> str:
    """Another coordinator."""
    return f"{NEW}{Path(place.location).parent.name}"


def delays(table: sluice.Table) -> list[int]:
    return sorted(table.snapshot().to_arrow()["delay"].to_pylist())


@contextmanager
def dies_after(step: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A mover that goes away at a point."""

    def point(name: str) -> None:
        if name == step:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(moving, "point", point)
        try:
            yield
        except KeyboardInterrupt:
            return
    pytest.fail(f"{step} was not reached")


def begun_append(table: sluice.Table, delay: int) -> sluice.Transaction:
    begun = table.begin()
    begun.append(flights(("JFK", 1, delay)))
    return begun


@pytest.mark.notices("the-begun-is-owned-elsewhere")
@pytest.mark.notices("moved-tables-are-found-before-their-log")
def test_everybody_who_has_it_open_goes_on_at_the_new_place(place: Place, new: str) -> None:
    table = place.filled(("JFK", 1, 1))
    writer, reader, changer, begun = place.open(), place.open(), place.open(), begun_append(place.open(), 2)
    plan_of = place.open()
    plan = plan_of.plan_write(FLIGHTS)
    files = plan.write(flights(("JFK", 1, 3)))
    report = sluice.move(place.location, new, coordinator=place.coordinator)
    assert (report.coordinator, report.version) == (new, 2)
    assert delays(reader) == [1]
    assert present(begun.commit()).version == 3
    assert present(plan_of.commit_write(plan, files)).version == 4
    present(writer.append(flights(("LHR", 1, 4))))
    present(changer.delete("origin = 'LHR'"))
    assert delays(table) == [1, 2, 3]
    for each in (table, writer, reader, changer, plan_of):
        assert each.coordinated.address.coordinator == new
    assert place.open().coordinated.address.coordinator == new
    assert kept_open(place.open().coordinated.address).address.coordinator == new
    assert [each.operation for each in table.history()][-3:] == ["MOVE", "WRITE", "CREATE TABLE"]
    assert table.properties[ADDRESS_KEY] == new
    assert sluice.status(place.coordinator).tables == ()


def test_the_begun_goes_along_with_every_move(place: Place, new: str) -> None:
    begun = begun_append(place.filled(("JFK", 1, 1)), 2)
    sluice.move(place.location, new, coordinator=place.coordinator)
    sluice.move(place.location, f"{new}-third", coordinator=new)
    assert present(begun.commit()).version == 4


@pytest.mark.notices("guests-are-present-in-the-next-session")
def test_the_begun_outlives_a_session_at_the_new_place(place: Place, new: str) -> None:
    table = place.filled(("JFK", 1, 1))
    begun = begun_append(place.open(), 2)
    sluice.move(place.location, new, coordinator=place.coordinator)
    assert delays(table) == [1]  # it has followed
    before = sorted(present(connect(new).children("/clients")))
    for session in list(MemoryCoordination.named(new.removeprefix("memory://"))._sessions.values()):
        session.expire()
    table.append(flights(("JFK", 1, 3)))
    assert sorted(present(connect(new).children("/clients"))) == before
    present(begun.commit())
    assert delays(table) == [1, 2, 3]


@pytest.mark.notices("who-has-not-followed-is-not-buried")
def test_a_vacuum_at_the_new_place_spares_clients_that_have_not_followed(place: Place, new: str, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = begun_append(place.filled(("JFK", 1, 1)), 2)
    with monkeypatch.context() as patched:
        patched.setattr(Presence, "stand_in_for", lambda *_: None)  # another process moves it
        sluice.move(place.location, new, coordinator=place.coordinator)
    sluice.Table.open(place.location, coordinator=new).vacuum(0, force=True)
    assert present(begun.commit()).version == 3


def test_a_forked_process_has_no_guests(place: Place, new: str, monkeypatch: pytest.MonkeyPatch) -> None:
    place.filled(("JFK", 1, 1))
    sluice.move(place.location, new, coordinator=place.coordinator)
    presence = present(place.open().coordinated.context.presence)
    assert presence._guests
    monkeypatch.setattr("os.getpid", lambda: -1)
    presence.announce()
    assert not presence._guests


def test_a_statement_finds_it(place: Place, new: str) -> None:
    place.filled(("JFK", 1, 1))
    insert = f"INSERT INTO sluice.`{place.location}` VALUES ('JFK', 1, 2)"
    run(insert, coordinator=place.coordinator)
    sluice.move(place.location, new, coordinator=place.coordinator)
    run(insert, coordinator=place.coordinator)
    assert delays(sluice.Table.open(place.location, coordinator=new)) == [1, 2, 2]


@pytest.mark.notices("a-table-arrives-once")
@pytest.mark.parametrize("step", ["move-left", "move-sealed", "move-arrived"])
@pytest.mark.parametrize(
    "comes",
    [
        lambda _, table: table.append(flights(("JFK", 1, 2))),
        lambda _, table: table.snapshot(),
        lambda place, _: place.open(),
        lambda place, _: sluice.move(place.location, f"{NEW}{Path(place.location).parent.name}", coordinator=place.coordinator),
    ],
    ids=["writer", "reader", "opener", "mover"],
)
def test_whoever_comes_next_finishes_it(
    step: str, comes: Callable[[Place, sluice.Table], object], place: Place, new: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = place.filled(("JFK", 1, 1))
    with dies_after(step, monkeypatch):
        sluice.move(place.location, new, coordinator=place.coordinator)
    comes(place, table)
    there = sluice.Table.open(place.location, coordinator=new)
    assert delays(there)[:1] == [1]
    assert sluice.doctor(place.location, coordinator=new).ok
    assert sluice.status(place.coordinator).tables == ()
    assert not connect(new).children("/arriving")


def test_what_was_filed_before_is_committed_before_it_leaves(place: Place, new: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table = place.filled(("JFK", 1, 1))
    with monkeypatch.context() as patched:
        patched.setattr(Publisher, "publish", lambda *_: False)
        unpublished = place.open(ack="ratified")
        unpublished.append(flights(("JFK", 1, 2)))
    sluice.move(place.location, new, coordinator=place.coordinator)
    assert delays(table) == [1, 2]


def filed(table: sluice.Table, begun: sluice.Transaction) -> str:
    """File a transaction as it is, without comparing it, and leave its slot undecided; returns its id."""
    change, coordinated = present(begun.finish()), table.coordinated
    head = replace(coordinated.head(), version=change.read_version)
    member, _ = member_of(coordinated, change, candidate_of(coordinated, change), head)
    file_intents([Filing(coordinated, member)], Deadline.after(10.0))
    return change.transaction_id


def begun_overwrite(table: sluice.Table) -> sluice.Transaction:
    begun = table.begin()
    begun.overwrite(flights(("JFK", 1, 7)), where="origin = 'JFK'")
    return begun


@pytest.mark.notices("outcomes-are-asked-where-the-table-is")
def test_outcomes_are_known_at_both_places(place: Place, new: str) -> None:
    table = place.filled(("JFK", 1, 1), properties={"delta.isolationLevel": "Serializable"})
    other = place.open()
    loser = begun_overwrite(other)
    committed = present(table.append(flights(("JFK", 1, 2))))
    refused = filed(other, loser)
    sluice.move(place.location, new, coordinator=place.coordinator)
    for at in (other, sluice.Table.open(place.location, coordinator=new)):
        assert present(at.outcome(committed.transaction_id).commit).version == committed.version
        assert at.outcome(refused).state == "refused"
        assert at.outcome("11111111-2222-8333-8444-555555555555").state == "unknown"


@pytest.mark.notices("decided-before-it-left")
def test_what_was_refused_before_it_left_is_not_filed_again(place: Place, new: str) -> None:
    table = place.filled(("JFK", 1, 1), properties={"delta.isolationLevel": "Serializable"})
    other = place.open()
    loser = begun_overwrite(other)
    table.append(flights(("JFK", 1, 2)))
    transaction_id = filed(other, loser)
    assert table.outcome(transaction_id).state == "refused"
    coordinated, change = other.coordinated, replace(present(begun_append(other, 5).finish()), transaction_id=transaction_id)
    sluice.move(place.location, new, coordinator=place.coordinator)
    with pytest.raises(sluice.errors.ConcurrentAppendException):
        submit(coordinated, change)
    assert delays(sluice.Table.open(place.location, coordinator=new)) == [1, 2]


@pytest.mark.notices("a-table-leaves-when-all-is-decided")
def test_a_slot_that_is_filed_at_the_last_moment_keeps_it_here(place: Place, new: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table = place.filled(("JFK", 1, 1))
    transaction_id = filed(table, begun_append(table, 2))
    with monkeypatch.context() as patched:
        patched.setattr(moving, "settle_queue", lambda *_: None)
        with pytest.raises(sluice.errors.Unavailable, match="keep committing"):
            sluice.move(place.location, new, coordinator=place.coordinator)
    assert table.outcome(transaction_id).state == "committed"
    sluice.move(place.location, new, coordinator=place.coordinator)
    assert delays(table) == [1, 2]


@pytest.mark.notices("a-table-leaves-under-its-lease")
def test_it_stays_if_its_lease_is_broken(place: Place, new: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table = place.filled(("JFK", 1, 1))

    def point(name: str) -> None:
        session = connect(place.coordinator)
        for each in list_leases(session, table.coordinated.leases.place) if name == "move-settled" else ():
            break_lease(session, table.coordinated.leases.place, each.lease, by="ann", reason="now", at_ms=0)

    monkeypatch.setattr(moving, "point", point)
    with pytest.raises(sluice.errors.LeaseLost, match="ann"):
        sluice.move(place.location, new, coordinator=place.coordinator)
    assert place.open().coordinated.address.coordinator == place.coordinator
    assert delays(table) == [1]


@pytest.mark.notices("a-table-that-leaves-can-arrive")
def test_it_stays_if_it_has_more_pins_than_can_go_along(place: Place, new: str) -> None:
    table = place.filled(("JFK", 1, 1))
    session, pins = connect(place.coordinator), table.coordinated.context.tree.pins
    with table.snapshot().pin():
        [one] = present(session.children(pins))
        for n in range(2_500):
            session.create(f"{pins}/p-{n:032}", present(session.read(f"{pins}/{one}")).data)
    with pytest.raises(sluice.errors.InvalidRequest, match="2,500 pins"):
        sluice.move(place.location, new, coordinator=place.coordinator)
    table.append(flights(("JFK", 1, 2)))
    for n in range(2_000):
        session.delete(f"{pins}/p-{n:032}")
    sluice.move(place.location, new, coordinator=place.coordinator)
    assert delays(table) == [1, 2]


def test_a_plan_that_nobody_can_read_keeps_no_table_back(place: Place, new: str) -> None:
    table = place.filled(("JFK", 1, 1))
    for coordinator in (place.coordinator, new):
        connect(coordinator).ensure_path("/open")
        connect(coordinator).create("/open/000000000000001", b'{"location": "x", "newer": 1}')
    sluice.move(place.location, new, coordinator=place.coordinator)
    assert delays(table) == [1]


@pytest.mark.notices("what-other-engines-have-stays")
def test_it_stays_if_it_was_detached_meanwhile(place: Place, new: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table = place.filled(("JFK", 1, 1))

    def leases_after_that(*args: Any, **named: Any) -> Any:
        table.detach()
        return leases(*args, **named)

    monkeypatch.setattr("sluice.coordinator.api.leases", leases_after_that)
    with pytest.raises(sluice.errors.InvalidRequest, match="was detached"):
        sluice.move(place.location, new, coordinator=place.coordinator)
    assert sluice.Table.attach(place.location, coordinator=place.coordinator).version == 3


@pytest.mark.notices("a-table-that-left-is-closed")
def test_a_consumer_moves_its_position_where_the_table_is(place: Place, new: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table = place.filled(("JFK", 1, 1))
    held = hold_consumer(table.coordinated.context, "sums", 0)
    held.place(0, 0, ())
    with dies_after("move-left", monkeypatch):
        sluice.move(place.location, new, coordinator=place.coordinator)
    with pytest.raises(sluice.errors.TableMoved):
        held.move(1)
    assert [each.position for each in place.open().consumers()] == [0]


@pytest.mark.notices("a-lost-leave-is-looked-for")
def test_the_reply_is_lost_by_which_it_left(place: Place, new: str) -> None:
    table = place.filled(("JFK", 1, 1))
    MemoryCoordination.named(place.coordinator.removeprefix("memory://")).inject(Fault.REPLY_LOST, verb="apply", path="/closed-")
    report = sluice.move(place.location, new, coordinator=place.coordinator)
    assert (report.coordinator, report.paused_s > 0, delays(table)) == (new, True, [1])  # this call moved it


@pytest.mark.notices("a-table-arrives-where-it-went")
def test_another_coordinator_that_answers_there_gets_nothing(place: Place, new: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table = place.filled(("JFK", 1, 1))
    with dies_after("move-left", monkeypatch):
        sluice.move(place.location, new, coordinator=place.coordinator)
    session = connect(new)
    own, [ticket] = present(session.read("/identity")), present(session.children("/arriving"))
    session.write("/identity", b"another", version=-1)
    session.delete(f"/arriving/{ticket}")
    with pytest.raises(sluice.errors.WrongCoordinator, match="another answers there"):
        table.append(flights(("JFK", 1, 2)))
    assert connect(place.coordinator).read(table.coordinated.context.tree.root) is not None
    session.create(f"/arriving/{ticket}", b"")
    session.write("/identity", own.data, version=-1)
    table.append(flights(("JFK", 1, 2)))
    assert delays(table) == [1, 2]


@pytest.mark.notices("the-sealing-version-is-ratified")
def test_another_program_writes_the_version_by_which_it_goes(place: Place, new: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table = place.filled(("JFK", 1, 1))
    with dies_after("move-left", monkeypatch):
        sluice.move(place.location, new, coordinator=place.coordinator)
    taken = Path(place.location) / "_delta_log" / f"{2:020d}.json"
    taken.write_text("{}\n")
    with pytest.raises(sluice.errors.ForeignCommit, match="not written by sluice"):
        table.append(flights(("JFK", 1, 2)))
    taken.unlink()
    table.append(flights(("JFK", 1, 2)))
    assert delays(table) == [1, 2]


@pytest.mark.notices("the-buried-stay-away-elsewhere")
def test_graves_go_along_and_end_whom_they_are_for(place: Place, new: str) -> None:
    place.filled(("JFK", 1, 1))
    sluice.Table.create(f"{place.location}-other", FLIGHTS, coordinator=new)
    for coordinator, path in ((place.coordinator, "/graves/0123456789ab"), (new, "/clients/0123456789ab")):
        connect(coordinator).create(path, Grave("ann", 5).encode())
    sluice.move(place.location, new, coordinator=place.coordinator)
    assert connect(new).read("/graves/0123456789ab") is not None
    assert connect(new).read("/clients/0123456789ab") is None


@pytest.mark.notices("plans-that-were-given-up-stay-closed")
def test_a_plan_that_was_given_up_elsewhere_is_not_committed_when_the_table_is_back(place: Place, new: str) -> None:
    table = place.filled(("JFK", 1, 1))
    plan = table.plan_write(FLIGHTS)
    files = plan.write(flights(("JFK", 1, 2)))
    left = {path: present(connect(place.coordinator).read(path)).data for path in open_at(place.coordinator)}
    sluice.move(place.location, new, coordinator=place.coordinator)
    assert open_at(place.coordinator) == []
    assert open_at(new) == list(left)
    for path, data in left.items():
        connect(place.coordinator).create(path, data)  # as if the mover had died before it removed them
        connect(new).delete(path)
    sluice.move(place.location, place.coordinator, coordinator=new)
    with pytest.raises(sluice.errors.TransactionExpired):
        table.commit_write(plan, files)


def open_at(coordinator: str) -> list[str]:
    return [f"/open/{name}" for name in connect(coordinator).children("/open") or ()]


def test_another_client_brings_every_grave_a_moment_before(place: Place, new: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table = place.filled(("JFK", 1, 1))
    with dies_after("move-left", monkeypatch):
        sluice.move(place.location, new, coordinator=place.coordinator)
    for n in range(30):
        connect(place.coordinator).create(f"/graves/{n:012x}", Grave("ann", 5).encode())
    session, apply = type(connect(new)), type(connect(new)).apply

    def late(self: Any, ops: list[Any]) -> Any:
        if ops[-1].path.startswith("/graves/"):
            apply(self, ops)
        return apply(self, ops)

    monkeypatch.setattr(session, "apply", late)
    table.append(flights(("JFK", 1, 2)))
    assert (delays(table), len(present(connect(new).children("/graves")))) == ([1, 2], 30)


def test_a_table_that_was_recovered_at_the_new_place_has_arrived(place: Place, new: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table = place.filled(("JFK", 1, 1))
    with dies_after("move-sealed", monkeypatch):
        sluice.move(place.location, new, coordinator=place.coordinator)
    sluice.recover(place.location, coordinator=new, wait_s=0)
    table.append(flights(("JFK", 1, 2)))
    assert delays(sluice.Table.open(place.location, coordinator=new)) == [1, 2]
    assert not connect(new).children("/arriving")


@pytest.mark.notices("no-pin-on-a-table-that-moved")
def test_a_version_is_pinned_where_the_table_is(place: Place, new: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table = place.filled(("JFK", 1, 1))
    with dies_after("move-arrived", monkeypatch):  # its former nodes are still there
        sluice.move(place.location, new, coordinator=place.coordinator)
    with pytest.raises(sluice.errors.TableMoved):
        pin_version(table.coordinated.context, 1)
    with table.snapshot().pin():
        assert connect(new).children(place.open().coordinated.context.tree.pins)


@pytest.mark.notices("tokens-go-on-elsewhere")
def test_tokens_of_leases_grow_from_place_to_place(place: Place, new: str) -> None:
    table = place.filled(("JFK", 1, 1))
    tokens: list[int] = []
    for n in range(200):  # more than happens at the other place
        connect(place.coordinator).create(f"/n{n}", b"")
    for to in (new, place.coordinator, new, place.coordinator):
        with table.lease() as held:
            tokens.append(held.token)
        sluice.move(place.location, to, coordinator=place.coordinator)
        table.refresh()
    assert tokens == sorted(set(tokens))


def test_tokens_of_leases_on_several_tables_grow_with_one_that_moved_to_them(place: Place, new: str) -> None:
    table, beside = place.filled(("JFK", 1, 1)), sluice.Table.create(f"{place.location}-2", FLIGHTS, coordinator=new)
    for n in range(200):
        connect(place.coordinator).create(f"/n{n}", b"")
    sluice.move(place.location, new, coordinator=place.coordinator)
    table.refresh()
    both = [lease_on_table(each.coordinated.leases, each.coordinated.current(), "exclusive", None, "both") for each in (table, beside)]
    with leases(both, wait_s=1) as held:
        token = held.token
    with beside.lease() as held:
        assert held.token > token


def test_tokens_of_a_table_that_often_moves_stay_below_two_to_the_63(place: Place, new: str) -> None:
    place.filled(("JFK", 1, 1))
    tokens: list[int] = []
    for each in (place.coordinator, new):
        begin_tokens(connect(each), now_ms=1 << 41)
    for here, there in [(place.coordinator, new), (new, place.coordinator)] * 3:
        sluice.move(place.location, there, coordinator=here)
        with sluice.Table.open(place.location, coordinator=there).lease() as held:
            tokens.append(held.token)
    assert tokens == sorted(set(tokens))
    assert tokens[-1] < 1 << 62


@pytest.mark.notices("no-lease-on-a-table-that-moved")
def test_a_lease_is_taken_where_the_table_is(place: Place, new: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table = place.filled(("JFK", 1, 1))
    with dies_after("move-arrived", monkeypatch):  # its former nodes are still there
        sluice.move(place.location, new, coordinator=place.coordinator)
    there = sluice.Table.open(place.location, coordinator=new)
    with pytest.raises(sluice.errors.TableMoved):
        table.lease()
    with table.lease(), pytest.raises(sluice.errors.LeaseHeld):
        by_another(lambda: there.lease(wait_s=0))


def test_it_waits_for_leases_and_names_their_holders(place: Place, new: str) -> None:
    table = place.filled(("JFK", 1, 1))
    with table.lease(where="origin = 'JFK'", name="load"), pytest.raises(sluice.errors.LeaseHeld, match="'load'"):
        by_another(lambda: sluice.move(place.location, new, coordinator=place.coordinator, wait_s=0))
    assert delays(table) == [1]
    assert table.coordinated.address.coordinator == place.coordinator


@pytest.mark.notices("leases-do-not-move-along")
def test_a_commit_under_a_lease_of_a_name_does_not_go_on_without_it(place: Place, new: str) -> None:
    table = place.filled(("JFK", 1, 1))
    with sluice.lease("nightly", coordinator=place.coordinator):
        begun = begun_append(table, 2)
        by_another(lambda: sluice.move(place.location, new, coordinator=place.coordinator))
        with pytest.raises(sluice.errors.TableMoved):
            begun.commit()
    assert delays(table) == [1]


def test_consumers_counters_pins_and_the_horizon_go_along(place: Place, new: str) -> None:
    table = place.filled(("JFK", 1, 1))
    with table.consumer("sums", timeout_s=1) as consumer:
        next(iter(consumer))
    pinned = table.snapshot().pin()
    table.vacuum(0, force=True)
    before = [(each.name, each.position) for each in table.consumers()]
    nodes = connect(place.coordinator).read(table.coordinated.context.tree.horizon)
    sluice.move(place.location, new, coordinator=place.coordinator)
    table.refresh()
    assert [(each.name, each.position) for each in table.consumers()] == before
    assert present(connect(new).read(table.coordinated.context.tree.horizon)).data == present(nodes).data
    assert present(connect(new).children(table.coordinated.context.tree.pins))
    pinned.release()


@pytest.mark.notices("names-lead-to-tables-that-moved")
def test_its_name_goes_along_and_leads_there_from_the_old_place(tmp_path: Path, place: Place, new: str) -> None:
    catalog = sluice.Catalog(coordinator=place.coordinator, root=tmp_path / "managed")
    made = catalog.create("flights", FLIGHTS)
    made.append(flights(("JFK", 1, 1)))
    report = sluice.move(made.location, new, coordinator=place.coordinator)
    assert report.name == "default.flights"
    for coordinator in (place.coordinator, new):
        assert delays(sluice.Table.named("flights", coordinator=coordinator)) == [1]
    back = sluice.move(made.location, place.coordinator, coordinator=new)
    assert back.name == "default.flights"
    catalog.drop("flights")
    with pytest.raises(sluice.errors.TableNotFound):
        sluice.Table.named("flights", coordinator=place.coordinator)


@pytest.mark.notices("no-table-in-the-place-of-one-that-moved")
def test_nothing_else_is_made_in_its_place(place: Place, new: str) -> None:
    place.filled(("JFK", 1, 1))
    sluice.move(place.location, new, coordinator=place.coordinator)
    with pytest.raises(sluice.errors.TableMoved, match=new):
        place.create()
    with pytest.raises(sluice.errors.TableMoved, match=new):
        sluice.Table.attach(place.location, coordinator=place.coordinator).append(flights())


def test_it_is_refused_where_another_table_is(place: Place, new: str) -> None:
    table = place.filled(("JFK", 1, 1))
    make_tree(TableAddress.of(place.location, new).context(), Head(version=3))
    with pytest.raises(sluice.errors.InvalidRequest, match="has a table at"):
        sluice.move(place.location, new, coordinator=place.coordinator)
    table.append(flights(("JFK", 1, 2)))


def test_a_table_that_is_there_already_stays(place: Place, new: str) -> None:
    table = place.filled(("JFK", 1, 1))
    for _ in range(2):
        report = sluice.move(place.location, place.coordinator, coordinator=place.coordinator)
        assert (report.version, report.paused_s) == (1, 0.0)
    assert read_tombstone(table.coordinated.context) is None


@pytest.mark.notices("a-vacuum-ends-where-the-table-left")
def test_a_vacuum_that_began_before_deletes_nothing(place: Place, new: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table = place.filled(("JFK", 1, 1))
    table.overwrite(flights(("JFK", 1, 2)))
    plain, moved = raise_horizon, list[object]()

    def raised(*args: Any, **named: Any) -> None:
        plain(*args, **named)
        if not moved:
            moved.append(sluice.move(place.location, new, coordinator=place.coordinator))

    monkeypatch.setattr("sluice.coordinator.api.raise_horizon", raised)
    deleted: list[str] = []
    monkeypatch.setattr(vacuum._Run, "_remove", lambda run, _: deleted.append(run.table.address.coordinator))
    with pytest.raises(sluice.errors.TableMoved):
        table.vacuum(0, force=True)
    assert not deleted
    table.vacuum(0, force=True)
    assert set(deleted) == {new}


def test_a_transaction_over_several_tables_needs_all_of_them_at_one_place(place: Place, new: str) -> None:
    tables = [place.filled(("JFK", 1, 1)), sluice.Table.create(f"{place.location}-2", FLIGHTS, coordinator=place.coordinator)]

    def commit() -> None:
        with sluice.transaction() as joint:
            for each in tables:
                joint[each].append(flights(("JFK", 1, 2)))

    open_then = sluice.transaction()
    for each in tables:
        open_then[each].append(flights(("JFK", 1, 3)))
    sluice.move(place.location, new, coordinator=place.coordinator)
    with pytest.raises(sluice.errors.TableMoved):
        commit()
    with pytest.raises(sluice.errors.InvalidRequest, match="different coordinators"):
        commit()
    sluice.move(f"{place.location}-2", new, coordinator=place.coordinator)
    with pytest.raises(sluice.errors.TableMoved):
        commit()
    commit()
    with pytest.raises(sluice.errors.TableMoved):
        open_then.commit()
    assert open_then.withdraw() is None
    assert [delays(each) for each in tables] == [[1, 2], [2]]
