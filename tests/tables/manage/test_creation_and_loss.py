"""A table is being created while all data of the coordinator are lost: nodes in which nothing was ratified stand beside a log.

A client leaves them that saw no log, made them, and died before it looked again. Nothing is published before it is ratified, so that
log is of the tree that was lost: it is recovered, and those nodes do not prevent that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson
import pytest

import sluice
from sluice.coordinator.limits import Limits
from sluice.coordinator.nodes.context import TableContext
from sluice.coordinator.nodes.creation import Also, check_tree, make_tree, remove_new_tree
from sluice.coordinator.nodes.records import Head
from sluice.coordinator.publication import rebuilding
from sluice.coordinator.rules.intent import DeclaredReads, Intent
from sluice.coordinator.service.clock import Deadline, SystemClock
from sluice.coordinator.service.memory import Call, Fault
from sluice.coordinator.service.store import Delete, Op
from sluice.storage.actions.texts import sha256
from sluice.storage.errors import SluiceError, StorageUnavailable
from sluice.storage.log.paths import commit_path
from sluice.storage.log.segment import latest_version
from sluice.storage.stores.objects import ObjectStore
from sluice.tables.manage import creation
from tests.coordinator.world import claim_slot, commit_one, see_through
from tests.tables.conftest import Place, flights, rows_of
from tests.tables.elsewhere import Writer, disk_of, former_of, lose_everything, service_of

QUEUED = Limits(patience_s=0.02, patience_s_max=0.1, publication_wait_s=0.1, fast_path=False)


@pytest.fixture
def place(in_memory: Place) -> Place:
    return in_memory


def recovered(place: Place) -> sluice.RecoveryReport:
    return sluice.recover(place.location, coordinator=place.coordinator, former=former_of(place), wait_s=0)


def filled(place: Place) -> None:
    place.create()
    place.open().append(flights(("JFK", 1, 1)))


def begun(place: Place) -> Writer:
    """A client that made the nodes of a new table."""
    writer = Writer(place, QUEUED)
    make_tree(writer.access.context, Head())
    return writer


def first_intent(writer: Writer) -> Intent:
    """The first version of a table, to be filed."""
    context = writer.access.context
    return Intent(
        transaction_id=context.new_transaction_id(),
        operation="CREATE TABLE",
        read_version=-1,
        validated_through=-1,
        claimed_ms=context.clock.now_ms(),
        reads=DeclaredReads(),
        actions_digest=sha256(b""),
        client=context.client,
    )


@pytest.mark.shows("lost-in-creation")
def test_who_creates_a_table_and_dies_before_it_looks_for_a_log_again(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others created the table, wrote to it, and lost the coordinator's data, all between its first look and its nodes."""
    looks: list[object] = []

    def look(store: ObjectStore) -> int | None:
        looks.append(None)
        if len(looks) > 1:
            raise StorageUnavailable("it dies here")
        monkeypatch.setattr(creation, "latest_version", latest_version)
        filled(place)
        lose_everything(place)
        monkeypatch.setattr(creation, "latest_version", look)
        return None

    monkeypatch.setattr(creation, "latest_version", look)
    with pytest.raises(StorageUnavailable):
        place.create()
    monkeypatch.undo()
    assert check_tree(Writer(place).access.context)
    with pytest.raises(sluice.errors.NotATable, match=r"sluice\.recover"):
        place.open()
    with pytest.raises(sluice.errors.NotATable, match=r"sluice\.recover"):
        sluice.Table.attach(place.location, coordinator=place.coordinator)
    with pytest.raises(sluice.errors.TableExists):
        place.create()
    assert recovered(place).version == 2
    table = place.open()
    table.append(flights(("LGA", 1, 2)))
    assert rows_of(table.snapshot().to_arrow()) == [("JFK", 1, 1), ("LGA", 1, 2)]


def test_who_knows_nodes_makes_none_in_their_place(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """While it tries whether the place takes writes, another one fills the table, and the data are lost."""
    begun(place)
    require_writable = creation._require_writable

    def slow(store: ObjectStore) -> None:
        monkeypatch.setattr(creation, "_require_writable", require_writable)
        filled(place)
        lose_everything(place)

    monkeypatch.setattr(creation, "_require_writable", slow)
    with pytest.raises(sluice.errors.TableExists):
        place.create()
    assert not check_tree(Writer(place).access.context)
    assert recovered(place).version == 2


def test_what_was_filed_beside_the_log_is_never_decided(place: Place) -> None:
    """A first version was filed, and the log appeared after that: a publisher of the lost tree was late."""
    filled(place)
    lose_everything(place)
    writer = begun(place)
    context, intent = writer.access.context, first_intent(writer)
    claim = claim_slot(context, intent, Head(), Deadline.after(5, SystemClock()))
    assert recovered(place).version == 2
    place.open().append(flights(("LGA", 1, 2)))
    with pytest.raises(sluice.errors.OutcomeUnknown):
        see_through(writer.access, claim, intent, Deadline.after(0.5, SystemClock()))
    assert place.open().outcome(intent.transaction_id).state == "unknown"
    log = [orjson.loads(line) for v in range(4) for line in disk_of(place).objects[commit_path(v)][0].splitlines()]
    assert not [each for each in log if intent.transaction_id in str(each)]


@pytest.mark.shows("lost-in-creation")
def test_nobody_ratifies_a_first_version_while_the_table_is_recovered(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who had seen no log made the nodes, and sleeps until the recovery waits for former clients."""
    filled(place)
    lose_everything(place)
    writer = begun(place)
    _ = writer.access.context.coordination
    refused: list[SluiceError] = []

    def sleep(*_: object) -> None:
        monkeypatch.undo()
        with pytest.raises(SluiceError) as caught:
            commit_one(writer.access, first_intent(writer), Head(), Deadline.after(0.5, SystemClock()))
        refused.append(caught.value)

    monkeypatch.setattr(SystemClock, "sleep", sleep)
    assert recovered(place).version == 2
    assert len(refused) == 1
    assert place.open().version == 2


def test_a_table_that_is_being_created_is_not_recovered(place: Place) -> None:
    begun(place)
    with pytest.raises(sluice.errors.TableNotFound):
        recovered(place)
    place.create()
    before = dict(disk_of(place).objects)
    with pytest.raises(sluice.errors.InvalidRequest, match="nothing to recover"):
        recovered(place)
    assert disk_of(place).objects == before


def test_who_begins_to_create_the_table_right_before_its_nodes_are_made(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(place)
    lose_everything(place)

    def overtaken(context: TableContext, head: Head, *, while_standing: Sequence[Op], also: Also) -> None:
        monkeypatch.setattr(rebuilding, "make_tree", make_tree)
        begun(place)
        make_tree(context, head, while_standing=while_standing, also=also)

    monkeypatch.setattr(rebuilding, "make_tree", overtaken)
    assert recovered(place).version == 2
    assert place.open().version == 2


def test_a_plain_delta_table_is_attached_where_one_was_begun(place: Place) -> None:
    filled(place)
    place.open().detach()
    lose_everything(place)
    begun(place)
    table = sluice.Table.attach(place.location, coordinator=place.coordinator)
    table.append(flights(("LGA", 1, 2)))
    assert rows_of(place.open().snapshot().to_arrow()) == [("JFK", 1, 1), ("LGA", 1, 2)]


@pytest.mark.parametrize("fault", [Fault.REQUEST_LOST, Fault.REPLY_LOST])
def test_such_nodes_are_removed_although_an_answer_is_lost(place: Place, fault: Fault) -> None:
    context = begun(place).access.context
    service_of(place).inject(fault, verb="apply")
    remove_new_tree(context)
    assert not check_tree(context)


def test_a_rebuilt_tree_is_not_taken_for_the_one_that_was_begun(place: Place) -> None:
    """It begins with equal data versions; it was made after the head of the other was seen."""
    filled(place)
    lose_everything(place)
    begun(place)
    late = Writer(place)
    context = late.access.context
    children = late.session.children

    def overtake(path: str, watch: Any = None) -> list[str] | None:
        late.session.children = children  # type: ignore[method-assign]
        assert recovered(place).version == 2
        return children(path, watch)

    late.session.children = overtake  # type: ignore[method-assign]
    remove_new_tree(context)
    assert late.session.children == children, "it has listed the nodes"
    assert place.open().version == 2


def test_a_first_version_that_is_ratified_at_the_same_moment_stays(place: Place) -> None:
    begun(place)
    late = Writer(place)
    context = late.access.context

    def overtake(call: Call) -> None:
        removes = any(isinstance(op, Delete) and op.path == context.tree.root for op in call.ops)
        if call.session_id == late.session.session_id and removes:
            service_of(place).before = None
            place.create()

    service_of(place).before = overtake
    remove_new_tree(context)
    assert service_of(place).before is None
    place.open().append(flights(("LGA", 1, 2)))
    assert place.open().version == 1
