"""What clients do to each other in rare orders, and one plan that two processes commit at once: found by the simulator and the model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from typing import Any

import pyarrow as pa
import pytest

import sluice
from sluice.coordinator.admission import submission
from sluice.coordinator.api import RebuildingClaim
from sluice.coordinator.commit.outcomes import Outcome
from sluice.coordinator.commit.transactions import commit_filings, outcome_of
from sluice.coordinator.errors import CoordinatorUnavailable, LeaseHeld
from sluice.coordinator.limits import Limits
from sluice.coordinator.nodes.context import TableContext
from sluice.coordinator.nodes.layout import RECOVERING, TableTree
from sluice.coordinator.publication import rebuilding
from sluice.coordinator.rules.intent import Terms
from sluice.coordinator.service.clock import SystemClock
from sluice.coordinator.service.memory import Call, Fault
from sluice.coordinator.service.store import Delete
from sluice.storage.log.paths import commit_path
from sluice.storage.stores.memory import MemoryStore
from sluice.tables import planned_writes
from sluice.tables.client.address import TableAddress
from sluice.tables.manage.creation import new_table
from sluice.tables.planned_writes import commit_creation, plan_creation
from tests.judge.incomplete_joints import incomplete_joints
from tests.tables.conftest import FLIGHTS, Place, flights, present
from tests.tables.elsewhere import Writer, disk_of, expire_all, former_of, lose_everything, service_of

IMPATIENT = Limits(patience_s=0.02, patience_s_max=0.1, publication_wait_s=0.1, fast_path=False)


@pytest.fixture
def place(in_memory: Place) -> Place:
    return in_memory


@pytest.fixture
def beside(place: Place) -> Iterator[sluice.Table]:
    """Another table of the same coordinator."""
    table = sluice.Table.create(f"{place.location}-beside", FLIGHTS, coordinator=place.coordinator)
    yield table
    MemoryStore(table.location).forget()


@pytest.mark.parametrize("vectors", ["true", "false"])
def test_a_table_that_was_only_read_is_compared_with_what_was_added(place: Place, beside: sluice.Table, vectors: str) -> None:
    """A share that changes nothing is there for what was read: it is no reorganisation, which may overlook added rows."""
    read = place.create(properties={"delta.isolationLevel": "Serializable", "delta.enableDeletionVectors": vectors})
    tx = sluice.transaction(tables=[read, beside])
    count = tx[read].scan(where="month = 1").num_rows
    tx[beside].append(flights(("JFK", 1, count)))
    place.open().append(flights(("JFK", 1, 7)))
    with pytest.raises(sluice.errors.ConcurrentModification, match=read.location):
        tx.commit()
    assert beside.snapshot().to_arrow().num_rows == 0


def test_a_plan_that_another_process_committed_meanwhile_is_committed(place: Place) -> None:
    """It is closed by then, and cannot be filed any more: that is no reason to tell its other owner to begin it again."""
    place.create()
    table, other = Writer(place, IMPATIENT).table, place.open()
    plan = table.plan_write(FLIGHTS)
    files = plan.write(flights(("JFK", 1, 1)))
    made: list[sluice.Commit | None] = []

    def overtake(call: Call) -> None:
        if call.verb == "apply" and not made and any("/slots/" in op.path for op in call.ops):
            made.append(None)
            made[0] = other.commit_write(plan, files)

    service = service_of(place)
    service.before = overtake
    told = present(table.commit_write(plan, files))
    service.before = None
    [first] = made
    assert first is not None
    assert (told.version, told.transaction_id, told.repeated) == (first.version, first.transaction_id, True)
    assert table.snapshot().to_arrow().num_rows == 1


# -- the coordinator's data are lost -------------------------------------------------------------------------------------


def test_who_waits_for_a_verdict_when_all_is_lost_is_not_told_of_a_bug(place: Place) -> None:
    place.create()
    table = sluice.Table(Writer(place, IMPATIENT).access, timeout_s=1.0)
    service = service_of(place)

    def lose(call: Call) -> None:
        if call.verb == "apply" and any("/slots/" in op.path for op in call.ops):
            service.after = None
            lose_everything(place)

    service.after = lose
    with pytest.raises(sluice.errors.OutcomeUnknown):
        table.append(flights(("LGA", 1, 9)))


def recovered(place: Place, wait_s: float = 0.0) -> int:
    return sluice.recover(place.location, coordinator=place.coordinator, former=former_of(place), wait_s=wait_s).version


def test_of_two_who_recover_at_once_the_later_finds_nothing_to_do(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """It looked before the other was done, and came to its turn after that: another version would be one that nobody ratified."""
    place.create()
    place.open().append(flights(("JFK", 1, 1)))
    lose_everything(place)

    def overtaken(context: TableContext) -> AbstractContextManager[RebuildingClaim]:
        monkeypatch.setattr("sluice.coordinator.api.rebuilding_claim", rebuilding.rebuilding_claim)
        assert recovered(place) == 2
        return rebuilding.rebuilding_claim(context)

    monkeypatch.setattr("sluice.coordinator.api.rebuilding_claim", overtaken)
    with pytest.raises(sluice.errors.InvalidRequest, match="nothing to recover"):
        recovered(place)
    assert place.open().version == 2
    assert commit_path(3) not in disk_of(place).objects


@pytest.mark.parametrize("taken", [False, True])
def test_who_lost_the_claim_to_recover_writes_nothing(place: Place, monkeypatch: pytest.MonkeyPatch, taken: bool) -> None:
    """The session expired during the wait; if somebody else waits in its place, the node is there, and is theirs."""
    place.create()
    place.open()
    lose_everything(place)
    path = f"{RECOVERING}/{TableTree(place.location).root.rpartition('/')[2]}"

    def sleep(_: object, seconds: float) -> None:
        if seconds == 5.0:
            expire_all(place)
            if taken:
                service_of(place).connect().create(path, b"{}", ephemeral=True)

    monkeypatch.setattr(SystemClock, "sleep", sleep)
    with pytest.raises(sluice.errors.Unavailable):
        recovered(place, wait_s=5.0)
    assert commit_path(1) not in disk_of(place).objects
    if not taken:
        monkeypatch.undo()
        assert recovered(place) == 1


def test_a_log_that_was_cleaned_up_makes_no_transaction_incomplete(place: Place, beside: sluice.Table) -> None:
    tables = [place.create(), beside]
    with sluice.transaction() as tx:
        for table in tables:
            tx[table].append(flights(("JFK", 1, 1)))
    tables[0].append(pa.table(flights(("JFK", 1, 2))))
    tables[0].checkpoint()
    for version in (0, 1):
        del disk_of(place).objects[commit_path(version)]
    assert incomplete_joints({table.location: MemoryStore(table.location) for table in tables}) == []


@pytest.mark.parametrize("fault", [Fault.REPLY_LOST, Fault.REQUEST_LOST])
@pytest.mark.parametrize("message", range(3))
def test_a_claim_to_recover_does_not_stay_because_a_message_was_lost(place: Place, fault: Fault, message: int) -> None:
    """The process goes on, and with it the claim would: nobody could ever recover the table."""
    place.create()
    lose_everything(place)
    service_of(place).inject(fault, verb="apply", path="/recovering/", skip=message)
    with suppress(sluice.errors.Unavailable):
        recovered(place)
    lose_tree_only(place)
    assert recovered(place) > 0


def lose_tree_only(place: Place) -> None:
    """The table's nodes are gone, and all sessions live."""
    tree = service_of(place).tree
    for path in sorted((path for path in tree._entries if path.startswith("/tables/")), reverse=True):
        tree.execute([Delete(path)], session=0)


# -- a number makes a transaction over several tables happen once ---------------------------------------------------------


def test_a_numbered_transaction_is_known_by_one_of_its_tables(place: Place, beside: sluice.Table) -> None:
    """What it would write the second time, on what it made itself the first time, may be more: here, in another table too."""
    tables = [place.create(), beside]

    def run() -> sluice.CommitInfo:
        with sluice.transaction(transaction=("job", 7)) as tx:
            if tx[tables[0]].scan().num_rows:
                tx[tables[1]].append(flights(("JFK", 2, 2)))
            tx[tables[0]].append(flights(("JFK", 1, 1)))
        return tx.commit_info

    first, again = run(), run()
    assert {at: (commit.version, commit.repeated) for at, commit in first.items()} == {tables[0].location: (1, False)}
    assert {at: (commit.version, commit.repeated) for at, commit in again.items()} == {tables[0].location: (1, True)}
    assert [table.refresh().snapshot().to_arrow().num_rows for table in tables] == [1, 0]


def test_a_numbered_transaction_that_is_filed_again_looks_for_what_came_meanwhile(place: Place, beside: sluice.Table) -> None:
    """The same number was committed by another process after it was filed, and before it is filed again: another client held a lease."""
    tables = [place.create(), beside]

    def run() -> sluice.JointTransaction:
        tx = sluice.transaction(tables=tables, transaction=("job", 7))
        for table in tables:
            tx[table].append(flights(("JFK", 1, 1)))
        return tx

    mine, other = run(), run()
    lease = f"{TableTree(tables[0].location).root}/leases/l-{'0' * 32}-0000000000"
    done: list[sluice.CommitInfo] = []

    def held_meanwhile(*args: Any, **kwargs: Any) -> Any:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(submission, "commit_filings", commit_filings)
            if not done:
                done.append(other.commit())
                raise LeaseHeld(
                    "held", transaction_id=mine.id, rule="lease-held", facts={"table": tables[0].location, "lease": lease}, filed=True
                )
            return commit_filings(*args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(submission, "commit_filings", held_meanwhile)
        told = mine.commit()
    assert {at: commit.version for at, commit in told.items()} == {at: commit.version for at, commit in done[0].items()}
    assert [table.refresh().snapshot().to_arrow().num_rows for table in tables] == [1, 1]


SCHEMA = pa.schema([pa.field("a", pa.int64())])


WIDER = pa.schema([pa.field("a", pa.int64()), pa.field("b", pa.int64())])


SEEN: dict[str, Callable[[sluice.Table], object]] = {
    "nothing": lambda _: None,
    "head": lambda table: table.coordinated.head(),
    "snapshot": lambda table: table.refresh(),
}


@pytest.mark.shows("two-committers")
@pytest.mark.parametrize("seen", SEEN)
@pytest.mark.parametrize(("mode", "schema"), [("append", SCHEMA), ("append", WIDER), ("overwrite", SCHEMA)])
def test_a_plan_that_another_process_commits_after_one_asked_for_it_is_committed_once(
    place: Place, mode: Any, schema: pa.Schema, seen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where this process saw that commit already, without knowing whose it is, when it files its own."""
    table = sluice.Table.create(place.location, SCHEMA, coordinator=place.coordinator)
    table.append(pa.table({"a": [1]}, schema=SCHEMA))
    other = place.open()
    plan = table.plan_write(schema, mode=mode, merge_schema=schema is WIDER)
    files = plan.write(pa.table([[2]] * len(schema), schema=schema))
    versions: list[int] = []

    def and_then_the_other_commits(*words: Any, **named: Any) -> Outcome:
        told = outcome_of(*words, **named)
        if not versions:
            versions.append(present(planned_writes._commit(other.coordinated, plan, files, 5, other.version)).version)
            SEEN[seen](table)
        return told

    monkeypatch.setattr(planned_writes, "outcome_of", and_then_the_other_commits)
    commit = present(table.commit_write(plan, files))
    assert [commit.version] == versions
    assert commit.repeated
    assert table.refresh().version == versions[0]


def test_a_plan_of_a_table_that_others_created_first_is_committed_once_although_its_verdict_was_pruned(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is filed under another name then, on the newest version there is, which may be its own. Who did so died before closing it."""
    monkeypatch.setattr(planned_writes, "close_plan", lambda *_: None)
    plan = plan_creation(TableAddress.of(place.location, place.coordinator), new_table(SCHEMA), Terms())
    files = plan.write(pa.table({"a": [1]}, schema=SCHEMA))
    table = sluice.Table.create(place.location, SCHEMA, coordinator=place.coordinator)
    _, first = commit_creation(plan, files)
    assert (present(first).version, present(first).repeated) == (1, False)
    context = table.coordinated.context
    for name in context.coordination.children(context.tree.verdicts) or ():
        context.coordination.delete(f"{context.tree.verdicts}/{name}")
    _, again = commit_creation(plan, files)
    assert (present(again).version, present(again).repeated) == (1, True)
    assert table.refresh().version == 1


@pytest.mark.parametrize("lost", [False, True], ids=["won", "lost"])
def test_trouble_after_the_verdict_changes_nothing_of_it(place: Place, monkeypatch: pytest.MonkeyPatch, lost: bool) -> None:
    """The coordinator goes away right then, with the session."""
    decided = planned_writes._commit

    def away(_: object) -> object:
        raise CoordinatorUnavailable("nobody answers")

    def then_away(*arguments: Any, **named: Any) -> Any:
        commit = decided(*arguments, **named)
        monkeypatch.setattr(TableContext, "coordination", property(away))
        if lost:
            raise sluice.errors.ConcurrentModification("somebody else was faster")
        return commit

    monkeypatch.setattr(planned_writes, "_commit", then_away)
    table = sluice.Table.create(place.location, SCHEMA, coordinator=place.coordinator)
    plan = table.plan_write(SCHEMA, mode="overwrite")
    files = plan.write(pa.table({"a": [1]}, schema=SCHEMA))
    if lost:
        with pytest.raises(sluice.errors.ConcurrentModification):
            table.commit_write(plan, files)
    else:
        assert present(table.commit_write(plan, files)).version == 1
