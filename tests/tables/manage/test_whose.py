"""A table belongs to one coordinator: clients of another one are refused before they write; taking it over takes more than an option.

Two clients that delete the data of one dropped table: one at a time, and no table is made in the place before the last one is done.
"""

from __future__ import annotations

import copy
from dataclasses import replace as with_other
from pathlib import Path
from typing import Any

import pytest

import sluice
from sluice.coordinator.api import RebuildingClaim
from sluice.coordinator.errors import CoordinatorUnavailable
from sluice.coordinator.nodes.context import TableContext
from sluice.coordinator.nodes.creation import address_text, identity_of, named_after_coordinator, reachable_from
from sluice.coordinator.nodes.layout import TableTree
from sluice.coordinator.nodes.records import Head
from sluice.coordinator.publication import rebuilding
from sluice.coordinator.rules.intent import Terms
from sluice.coordinator.service.memory import Fault, MemoryCoordination
from sluice.storage.actions import Metadata
from sluice.storage.constants import ADDRESS_KEY, COORDINATOR_KEY
from sluice.storage.log.paths import commit_path
from sluice.storage.stores.location import normalise
from sluice.storage.stores.memory import MemoryStore
from sluice.tables.client.address import TableAddress
from sluice.tables.manage import dropping
from sluice.tables.manage.creation import new_table
from sluice.tables.planned_writes import commit_creation, plan_creation
from tests.tables.conftest import FLIGHTS, Place, flights, present, rows_of
from tests.tables.elsewhere import Writer, disk_of, expire_all, lose_everything, rested, service_of


@pytest.fixture
def place(in_memory: Place) -> Place:
    return in_memory


def elsewhere(place: Place) -> Place:
    """The same table, through another coordinator."""
    return with_other(place, coordinator=f"{place.coordinator}-other")


def owner_of(place: Place) -> str:
    return place.open(consistency="published").properties[COORDINATOR_KEY]


def filled(place: Place) -> sluice.Table:
    place.create()
    table = place.open()
    table.append(flights(("JFK", 1, 1)))
    return table


def recovered(place: Place, former: str | None = None) -> sluice.RecoveryReport:
    return sluice.recover(place.location, coordinator=place.coordinator, wait_s=0, former=former)


def without_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables are made as earlier releases made them."""
    monkeypatch.setattr("sluice.coordinator.api.named_after_coordinator", lambda _, metadata: metadata)


def test_a_table_names_its_coordinator_however_it_is_made(place: Place) -> None:
    filled(place)
    properties = place.open().properties
    identity = identity_of(service_of(place).connect())
    assert properties[COORDINATOR_KEY] == identity
    assert properties[ADDRESS_KEY] == place.coordinator
    other = with_other(place, location=f"{place.location}-planned")
    plan = plan_creation(TableAddress.of(other.location, other.coordinator), new_table(FLIGHTS), Terms())
    commit_creation(plan, plan.write(flights(("JFK", 1, 1)).to_batches(), label="0"))
    assert other.open().properties[COORDINATOR_KEY] == identity, "the id is made once"


@pytest.mark.notices("a-table-has-one-coordinator")
def test_clients_of_another_coordinator_are_refused_with_both_names(place: Place) -> None:
    filled(place)
    other = elsewhere(place)
    before = dict(disk_of(place).objects)
    for attempt in (other.open, lambda: sluice.Table.attach(other.location, coordinator=other.coordinator), lambda: recovered(other)):
        with pytest.raises(sluice.errors.WrongCoordinator, match=r"has coordinated no table yet.*former=") as caught:
            attempt()
        assert (caught.value.owner, caught.value.found) == (owner_of(place), None)
        assert isinstance(caught.value, sluice.errors.NotATable)
    sluice.Table.create(f"{place.location}-theirs", FLIGHTS, coordinator=other.coordinator)
    with pytest.raises(sluice.errors.WrongCoordinator) as caught:
        other.open()
    theirs = present(identity_of(service_of(other).connect()))
    assert theirs != owner_of(place)
    assert theirs in str(caught.value)
    assert owner_of(place) in str(caught.value)
    assert disk_of(place).objects == before, "nothing was written"
    assert rows_of(other.open(consistency="published").snapshot().to_arrow()) == [("JFK", 1, 1)], "who only reads needs no coordinator"


@pytest.mark.notices("a-living-coordinator-keeps-its-tables")
def test_a_living_coordinator_is_not_robbed_of_a_table_by_naming_it(place: Place) -> None:
    filled(place)
    other, before = elsewhere(place), dict(disk_of(place).objects)
    with pytest.raises(sluice.errors.InvalidRequest, match=r"is alive: it answers at memory://.*sluice move"):
        recovered(other, owner_of(place))
    with pytest.raises(sluice.errors.InvalidRequest, match="former is 'another'"):
        recovered(other, "another")
    assert disk_of(place).objects == before


def test_a_coordinator_that_cannot_be_reached_is_given_up_when_it_is_named(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Should it live all the same, its clients hear who has the table now, and do not move that one's files away."""
    table, former = filled(place), owner_of(place)
    writer = Writer(place)
    writer.table.append(flights(("LGA", 1, 2)))
    other = elsewhere(place)

    def unreachable(_address: Any) -> Any:
        raise CoordinatorUnavailable("it does not answer")

    monkeypatch.setattr(rebuilding, "visiting", unreachable)
    assert recovered(other, former).version == 3
    assert owner_of(place) == identity_of(service_of(other).connect()) != former
    other.open().append(flights(("EWR", 1, 3)))
    with pytest.raises(sluice.errors.ForeignCommit, match=f"coordinator {owner_of(place)}, which has taken the table on.*leave that file"):
        writer.table.append(flights(("LGA", 9, 9)))
    with pytest.raises(sluice.errors.WrongCoordinator, match=owner_of(place)):
        place.open()
    assert rows_of(other.open().snapshot().to_arrow()) == [("EWR", 1, 3), ("JFK", 1, 1), ("LGA", 1, 2)]
    assert table.version >= 0


def test_after_a_loss_the_coordinator_is_another_one_and_the_table_says_so(place: Place) -> None:
    filled(place)
    former = owner_of(place)
    lose_everything(place)
    with pytest.raises(sluice.errors.WrongCoordinator, match=rf"sluice\.recover.*{former}"):
        place.open()
    with pytest.raises(sluice.errors.WrongCoordinator):
        recovered(place)
    assert recovered(place, former).version == 2
    assert owner_of(place) == identity_of(service_of(place).connect()) != former
    assert place.open().history(1)[0].operation == "RECOVER"
    place.open().append(flights(("JFK", 1, 2)))
    with pytest.raises(sluice.errors.InvalidRequest, match="nothing to recover"):
        recovered(place, former)


def test_a_write_that_was_planned_before_may_be_done_again_after_it(place: Place) -> None:
    """Another coordinator is no other schema: who wrote on the version before is not in its way."""
    table = filled(place)
    version = table.refresh().version
    before, former = Writer(place), owner_of(place)
    on_it = before.access.latest()
    lose_everything(place)
    recovered(place, former)
    writer = Writer(place)
    writer.access.keep(on_it)
    assert writer.table.version == version
    assert present(writer.table.append(flights(("LGA", 1, 2)))).version == version + 2
    kept = place.open().plan_write(FLIGHTS, mode="overwrite", where="origin = 'LGA'", read_version=version)
    assert kept.read_version == version


def test_a_recovery_that_was_killed_before_it_made_the_nodes_is_repeated_as_it_was(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(place)
    former = owner_of(place)
    lose_everything(place)

    class Killed(BaseException):
        pass

    def killed(_claim: RebuildingClaim, _head: Head) -> None:
        raise Killed

    monkeypatch.setattr(RebuildingClaim, "make_nodes", killed)
    with pytest.raises(Killed):
        recovered(place, former)
    monkeypatch.undo()
    assert owner_of(place) == identity_of(service_of(place).connect())
    assert recovered(place, former).version == 3
    assert place.open().version == 3


def test_a_table_that_was_given_back_belongs_to_whoever_attaches_it(place: Place) -> None:
    other = elsewhere(place)
    stale = filled(place)
    stale.detach()
    assert not {COORDINATOR_KEY, ADDRESS_KEY} & place.open(consistency="published").properties.keys()
    sluice.Table.attach(other.location, coordinator=other.coordinator).append(flights(("EWR", 1, 3)))
    assert owner_of(place) == identity_of(service_of(other).connect())
    with pytest.raises(sluice.errors.WrongCoordinator):
        place.open()
    with pytest.raises(sluice.errors.WrongCoordinator):
        sluice.Table.attach(place.location, coordinator=place.coordinator)


def test_tables_without_a_name_go_on_and_are_given_one_by_attach_or_recover(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    without_names(monkeypatch)
    filled(place)
    monkeypatch.undo()
    place.open().append(flights(("LGA", 1, 2)))
    assert COORDINATOR_KEY not in place.open().properties
    with pytest.raises(sluice.errors.InvalidRequest, match="names no coordinator: leave it out"):
        recovered(with_other(place, coordinator=f"{place.coordinator}-empty"), "something")
    assert sluice.Table.attach(place.location, coordinator=place.coordinator).refresh().version == 3
    assert owner_of(place) == identity_of(service_of(place).connect())
    assert sluice.Table.attach(place.location, coordinator=place.coordinator).refresh().version == 3, "once"


def test_a_table_without_a_name_is_recovered_without_one(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    without_names(monkeypatch)
    filled(place)
    monkeypatch.undo()
    lose_everything(place)
    assert recovered(place).version == 2
    assert owner_of(place) == identity_of(service_of(place).connect())


def test_nobody_sets_or_unsets_the_name(place: Place) -> None:
    table = filled(place)
    for attempt in (
        lambda: table.set_properties({COORDINATOR_KEY: "mine"}),
        lambda: table.unset_properties([COORDINATOR_KEY]),
        lambda: table.set_properties({ADDRESS_KEY: "mine"}),
        lambda: elsewhere(place).create(properties={COORDINATOR_KEY: "mine"}),
    ):
        with pytest.raises(sluice.errors.InvalidRequest, match=r"not for users to change|there is a table"):
            attempt()
    table.set_properties({"delta.appendOnly": "true"})
    assert owner_of(place) == identity_of(service_of(place).connect())


@pytest.mark.parametrize("fault", [Fault.REPLY_LOST, Fault.REQUEST_LOST])
def test_an_id_is_made_once_whatever_gets_lost_and_whoever_is_at_it(fault: Fault) -> None:
    service = MemoryCoordination()
    service.inject(fault, verb="create", path="/identity")
    at_x, at_y = (
        TableContext(MemoryStore.open("unused"), TableTree("memory://unused"), service.connect, coordinator=address)
        for address in ("memory://x", "memory://y")
    )
    first = named_after_coordinator(at_x, Metadata(id="t", schema_string="{}", partition_columns=(), configuration={"a": "b"}))
    assert first.configuration == {"a": "b", COORDINATOR_KEY: identity_of(service.connect()), ADDRESS_KEY: "memory://x"}
    assert named_after_coordinator(at_y, first) == first


def test_an_address_is_told_without_its_options_and_looked_for_where_it_means_something(tmp_path: Any) -> None:
    assert address_text("zk://a,b:9/c?credentials=/secret") == "zk://a:2181,b:9/c"
    embedded = address_text(f"embedded://{tmp_path}")
    assert embedded.startswith(f"embedded://{tmp_path} on ")
    here = present(reachable_from(embedded))
    assert (here.scheme, here.place) == ("embedded", str(tmp_path))
    assert reachable_from(embedded + "-not") is None
    assert reachable_from(address_text(f"embedded://{tmp_path}/gone")) is None


def test_two_real_coordinators_and_one_table(tmp_path: Path, zookeeper_hosts: str, zookeeper_chroot: str) -> None:
    """Two trees of real servers: the second one is refused, is not given the table, and takes it on after detach."""
    place = Place(str(tmp_path / "flights"), f"zk://{zookeeper_hosts}{zookeeper_chroot}")
    other = with_other(place, coordinator=f"{place.coordinator}-other?connect_timeout_s=20")
    filled(place)
    with pytest.raises(sluice.errors.WrongCoordinator, match=f"{place.coordinator}.*{other.coordinator.partition('?')[0]}"):
        other.open()
    with pytest.raises(sluice.errors.WrongCoordinator):
        recovered(other)
    with pytest.raises(sluice.errors.InvalidRequest, match=f"is alive: it answers at {place.coordinator}"):
        recovered(other, owner_of(place))
    place.open().append(flights(("LGA", 1, 2)))
    place.open().detach()
    sluice.Table.attach(other.location, coordinator=other.coordinator).append(flights(("EWR", 1, 3)))
    with pytest.raises(sluice.errors.WrongCoordinator):
        place.open()
    assert rows_of(other.open().snapshot().to_arrow()) == [("EWR", 1, 3), ("JFK", 1, 1), ("LGA", 1, 2)]


@pytest.mark.shows("old-data")
@pytest.mark.notices("old-data-are-no-foreign-commit")
@pytest.mark.parametrize("own", [True, False], ids=["its own log", "another engine's version"])
def test_a_coordinator_with_old_data_is_told_from_another_engine(place: Place, own: bool) -> None:
    """A server that left its ensemble, or a copy that was restored: the remedy for another engine's version would lose commits."""
    table = place.filled(("JFK", 1, 1))
    service = service_of(place)
    old = copy.deepcopy(service.tree)
    table.append(flights(("JFK", 1, 2)))
    table.append(flights(("JFK", 1, 3)))
    for session in list(service._sessions.values()):
        session.expire()
    service.tree = old
    if not own:
        for version in (2, 3):
            disk_of(place).store(commit_path(version), b'{"commitInfo":{"engineInfo":"x","operation":"WRITE"}}')
    before = set(disk_of(place).objects)
    words = "older than its log: they end before version 2, .*take it out of the address.*sluice recover"
    for act in (place.open, lambda: table.append(flights(("JFK", 1, 4)))):
        with pytest.raises(sluice.errors.ForeignCommit, match=words if own else "stop that writer") as caught:
            act()
        assert caught.value.version == 2
    assert {key for key in set(disk_of(place).objects) - before if key.startswith("_delta_log/0")} == set()


def with_two_rows(place: Place) -> None:
    place.create()
    for number in range(2):
        place.open().append(flights(("JFK", 1, number)))


def dropped(place: Place) -> sluice.DropReport:
    return dropping.drop(TableAddress.of(place.location, place.coordinator))


def deleters(place: Place) -> list[str]:
    return service_of(place).connect().children(TableTree(normalise(place.location)).tombstone) or []


@pytest.mark.slow
def test_while_one_deletes_nobody_else_does_and_no_table_is_made(place: Place) -> None:
    with_two_rows(place)
    met: list[BaseException] = []

    def paused() -> None:
        for act in (lambda: dropped(place), place.create):
            with pytest.raises(sluice.errors.SluiceError, match="being d") as refused:
                act()
            met.append(refused.value)

    disk_of(place).slow("delete", paused, "_delta_log/*")
    assert dropped(place).version == 3
    assert [(type(each), each.retryable) for each in met] == [(sluice.errors.Unavailable, True), (sluice.errors.InvalidRequest, False)]  # type: ignore[attr-defined]
    assert deleters(place) == []
    assert place.create().version == 0


@pytest.mark.shows("drop-killed")
@pytest.mark.notices("the-place-rests-after-a-deleter-that-vanished")
@pytest.mark.parametrize("fails", [False, True])
def test_where_one_who_deleted_went_without_a_word_the_place_rests(place: Place, monkeypatch: pytest.MonkeyPatch, fails: bool) -> None:
    """A DELETE of a log file that is on its way meets no file of another table."""
    with_two_rows(place)

    def paused() -> None:
        expire_all(place)
        if fails:  # the one who takes over fails: what it did not do is repeated
            disk_of(place).fail_before("delete")
            with pytest.raises(sluice.errors.StorageUnavailable):
                dropped(place)
        assert dropped(place).version == 3
        with pytest.raises(sluice.errors.Unavailable, match=r"disappeared before it was done.*Try again in 4[78][0-9] s") as refused:
            place.create()
        assert refused.value.retryable

    disk_of(place).slow("delete", paused, "_delta_log/*")
    with pytest.raises((sluice.errors.TableDropped, sluice.errors.Unavailable), match=r"was dropped|claim to delete .* is gone"):
        dropped(place)
    with pytest.raises(sluice.errors.Unavailable, match="disappeared before it was done"):
        place.create()
    rested(place)
    assert place.create().version == 0
    assert deleters(place) == []
    assert place.open().drop().version == 1
    assert place.create().version == 0, "the next one needs no rest"


@pytest.mark.notices("a-stray-version-is-removed-under-a-claim")
@pytest.mark.parametrize("expires", [False, True])
def test_who_removes_a_version_of_the_former_table_removes_none_of_the_next_one(place: Place, expires: bool) -> None:
    with_two_rows(place)
    dropped(place)
    stray = commit_path(2)
    disk_of(place).store(stray, b"{}")

    def paused() -> None:
        if expires:
            expire_all(place)
        with pytest.raises(
            sluice.errors.Unavailable, match=r"was dropped, and (its data are being|a client that deleted its data disappeared)"
        ):
            with_two_rows(place)

    disk_of(place).slow("delete", paused, stray)
    assert place.create().version == 0
    filled_up = place.open()
    for number in range(3):
        filled_up.append(flights(("JFK", 1, number)))
    assert stray in disk_of(place).objects
    assert deleters(place) == (["left"] if expires else [])


@pytest.mark.parametrize("fault", [Fault.REQUEST_LOST, Fault.REPLY_LOST])
@pytest.mark.parametrize("message", range(2))
def test_whatever_message_about_the_deletion_is_lost(place: Place, fault: Fault, message: int) -> None:
    with_two_rows(place)
    service_of(place).inject(fault, verb="apply", path="/deleter", skip=message)
    assert dropped(place).version == 3
    assert deleters(place) == []
    assert place.create().version == 0


@pytest.mark.parametrize("fault", [Fault.REQUEST_LOST, Fault.REPLY_LOST])
def test_who_fails_gives_the_deletion_back_whatever_message_is_lost(place: Place, fault: Fault) -> None:
    with_two_rows(place)
    disk_of(place).fail_before("delete")
    service_of(place).inject(fault, verb="apply", path="/deleter", skip=1)
    with pytest.raises(sluice.errors.StorageUnavailable):
        dropped(place)
    assert deleters(place) == []
    assert dropped(place).version == 3
