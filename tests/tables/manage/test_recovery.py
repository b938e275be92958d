"""ZooKeeper's data are lost: what is rebuilt from the log, what is reported, and what former clients can no longer do.

The loss is played on the coordinator in memory: its tree is emptied and every session is over, as with servers that come back
with empty disks.
"""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from typing import Any

import orjson
import pyarrow as pa
import pytest

import sluice
from sluice.coordinator.limits import LONGEST_PUT_S, LONGEST_SESSION_S, Limits
from sluice.coordinator.nodes.layout import RECOVERING, TableTree
from sluice.coordinator.service.clock import SystemClock
from sluice.coordinator.service.connect import connect, release
from sluice.coordinator.service.memory import Call, MemoryCoordination, MemorySession
from sluice.storage.actions.texts import pieces
from sluice.storage.log.paths import commit_path
from sluice.storage.log.segment import latest_version
from sluice.storage.stores.location import normalise, open_store
from sluice.storage.stores.memory import MemoryStore
from sluice.tables.manage import creation
from sluice.tables.manage.recovery import HalfDone
from tests.judge.incomplete_joints import incomplete_joints
from tests.mending import mend
from tests.tables.conftest import FLIGHTS, Place, flights, present, rows_of
from tests.tables.elsewhere import Writer, disk_of, former_of, lose_everything, service_of

IMPATIENT = Limits(patience_s=0.02, patience_s_max=0.1, publication_wait_s=0.1)


@pytest.fixture
def place(in_memory: Place) -> Place:
    return in_memory


def recovered(place: Place, wait_s: float = 0.0) -> sluice.RecoveryReport:
    return sluice.recover(place.location, coordinator=place.coordinator, former=former_of(place), wait_s=wait_s)


def filled(place: Place, **properties: str) -> sluice.Table:
    place.create(properties=properties)
    table = place.open()
    table.append(flights(("JFK", 1, 1), ("EWR", 2, 2)))
    return table


@pytest.mark.shows("all-data-lost")
def test_a_table_goes_on_where_its_log_ends(place: Place) -> None:
    table = filled(place, **{"delta.enableRowTracking": "true", "delta.enableDeletionVectors": "true"})
    table.set_domain("note", "kept")
    before = table.refresh().snapshot()
    time, table_id = before.timestamp, before.raw.metadata.id
    lose_everything(place)
    with pytest.raises(sluice.errors.NotATable, match=r"sluice\.recover"):
        place.open()
    report = recovered(place)
    assert (report.version, report.incomplete, report.half_done) == (3, (), ())
    again = place.open()
    assert again.version == 3
    assert again.history(1)[0].operation == "RECOVER"
    assert again.snapshot().timestamp > time
    assert again.snapshot().raw.metadata.id == table_id
    assert again.snapshot().raw.domains["note"].configuration == "kept"
    assert rows_of(again.snapshot().to_arrow()) == [("EWR", 2, 2), ("JFK", 1, 1)]
    assert again.changes(after=2).num_rows == 0
    assert present(again.append(flights(("LGA", 1, 3)))).version == 4
    bases = [file.base_row_id for file in again.snapshot().raw.add_files()]
    assert len(set(bases)) == len(bases) == 3
    again.delete("origin = 'JFK'")
    assert rows_of(place.open(consistency="published").snapshot().to_arrow()) == [("EWR", 2, 2), ("LGA", 1, 3)]


def test_what_is_no_table_of_ours_is_not_recovered(place: Place) -> None:
    with pytest.raises(sluice.errors.TableNotFound):
        recovered(place)
    filled(place).detach()
    lose_everything(place)
    with pytest.raises(sluice.errors.NotATable, match="attach"):
        recovered(place)
    sluice.Table.attach(place.location, coordinator=place.coordinator)


@pytest.mark.parametrize("wait_s", [-1, float("nan"), float("inf")])
def test_a_wait_that_is_none_is_refused(place: Place, wait_s: float) -> None:
    with pytest.raises(sluice.errors.InvalidRequest, match="wait_s"):
        recovered(place, wait_s)


@pytest.mark.notices("former-clients-are-waited-for")
def test_it_is_waited_for_every_former_session_and_put(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(place)
    lose_everything(place)
    slept: list[float] = []
    monkeypatch.setattr(SystemClock, "sleep", lambda _, seconds: slept.append(seconds))
    told: list[str] = []
    sluice.recover(place.location, coordinator=place.coordinator, former=former_of(place), told=told.append)
    assert slept == [LONGEST_SESSION_S + LONGEST_PUT_S]
    assert "the log is at version 1" in told[0]


def test_stragglers_of_the_former_coordinator_are_taken_in(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A version that was ratified before the loss is published while it is waited: it counts, and it is waited again."""
    table = filled(place)
    straggler = commit_content(place, table)
    lose_everything(place)
    waits: list[float] = []

    def sleep(_: object, seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 1:
            disk_of(place).store(commit_path(2), straggler)

    monkeypatch.setattr(SystemClock, "sleep", sleep)
    report = recovered(place, 5.0)
    assert waits == [5.0, 5.0]
    assert report.version == 3
    assert place.open().snapshot().to_arrow().num_rows == 3


@pytest.mark.notices("stragglers-are-taken-in")
def test_a_straggler_in_the_very_moment_is_taken_in_too(place: Place) -> None:
    table = filled(place)
    straggler = commit_content(place, table)
    lose_everything(place)
    disk_of(place).foreign_put("put_if_absent", commit_path(2), straggler)
    assert recovered(place).version == 3
    assert place.open().snapshot().to_arrow().num_rows == 3


@pytest.mark.notices("who-goes-on-publishing-is-told")
def test_a_writer_that_goes_on_publishing_is_told(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    table = filled(place)
    straggler = commit_content(place, table)
    lose_everything(place)
    count = iter(range(2, 100))
    monkeypatch.setattr(SystemClock, "sleep", lambda *_: disk_of(place).store(commit_path(next(count)), straggler))
    with pytest.raises(sluice.errors.Unavailable, match="a client keeps publishing"):
        recovered(place, 5.0)


def commit_content(place: Place, table: sluice.Table) -> bytes:
    """What version 2 would have been: ratified, and not published before the loss."""
    disk = disk_of(place)
    disk.fail_before("put_if_absent", commit_path(2), times=1_000)
    commit = present(place.open(limits=IMPATIENT).append(flights(("LGA", 1, 9))))
    assert (commit.version, commit.published) == (2, False)
    mend(disk)
    return b"".join(pieces(table.coordinated.log.content(2)))


def test_what_is_not_in_the_log_is_told_by_name(place: Place) -> None:
    filled(place)
    disk = disk_of(place)
    disk.fail_before("put_if_absent", commit_path(2), times=1_000)
    staging = Writer(place, replace(IMPATIENT, inline_bytes_max=64))
    unpublished = present(staging.table.append(flights(("LGA", 1, 9))))
    open_one = staging.table.begin()
    open_one.append(flights(("LGA", 2, 9), ("LGA", 3, 9)))
    lose_everything(place)
    mend(disk)
    report = recovered(place)
    told = {each.transaction_id: each for each in report.incomplete}
    assert told.keys() == {unpublished.transaction_id, open_one.id}
    assert (told[unpublished.transaction_id].staged, told[unpublished.transaction_id].files) == (True, 2)
    assert (told[open_one.id].staged, told[open_one.id].files) == (False, 2)
    assert all(each.size_bytes > 0 and each.modified_ms > 0 for each in report.incomplete)
    assert place.open().outcome(unpublished.transaction_id).state == "unknown"


# -- clients of the former tree ------------------------------------------------------------------------------------------


@pytest.mark.shows("all-data-lost")
@pytest.mark.notices("former-trees-are-noticed")
def test_a_client_of_the_former_tree_is_told_to_open_the_table_again(place: Place) -> None:
    table = filled(place)
    begun = table.begin()
    begun.append(flights(("LGA", 1, 9)))
    plan = table.plan_write(FLIGHTS)
    files = plan.write(flights(("LGA", 1, 9)))
    lose_everything(place)
    recovered(place)
    for way in (
        table.refresh,
        begun.commit,
        table.vacuum,
        lambda: table.append(flights(("LGA", 1, 9))),
        lambda: table.delete("month = 1"),
        lambda: table.commit_write(plan, files),
    ):
        with pytest.raises(sluice.errors.TreeReplaced, match="open the table again"):
            way()
    again = place.open()
    with pytest.raises(sluice.errors.TransactionExpired):
        again.commit_write(plan, files)
    assert again.snapshot().to_arrow().num_rows == 2
    assert again.append(flights(("LGA", 1, 9))) is not None


def with_a_version_that_is_lost(place: Place, monkeypatch: pytest.MonkeyPatch) -> sluice.Table:
    """A table as its writer has it, whose version 2 was ratified, and not published when all was lost."""
    filled(place)
    table = place.open(ack="ratified", limits=IMPATIENT)
    monkeypatch.setattr(table.coordinated.background, "submit", lambda _job: None)
    table.append(flights(("LGA", 1, 9)))
    assert table.snapshot(consistency="session").to_arrow().num_rows == 3
    lose_everything(place)
    return table


@pytest.mark.shows("all-data-lost")
@pytest.mark.notices("what-is-in-hand-is-of-this-tree")
@pytest.mark.parametrize("asked", [{"consistency": "session"}, {"version": 2}, {"version": 1}], ids=str)
@pytest.mark.parametrize("lag", [0, 1_000])
def test_what_is_in_hand_of_a_lost_tree_is_not_shown(
    place: Place, monkeypatch: pytest.MonkeyPatch, asked: dict[str, Any], lag: int
) -> None:
    """While its session lives such a read asks nobody; when that is over the tree may be another one, which a server behind hides."""
    table = with_a_version_that_is_lost(place, monkeypatch)
    with pytest.raises(sluice.errors.NotATable, match=r"sluice\.recover"):
        table.snapshot(**asked)
    recovered(place)
    release(place.coordinator)
    session = connect(place.coordinator)
    assert isinstance(session, MemorySession)
    session.lag = lag
    for _ in range(2):
        with pytest.raises(sluice.errors.TreeReplaced, match="open the table again"):
            table.snapshot(**asked)
    assert place.open().snapshot(2).to_arrow().num_rows == 2


def test_published_shows_the_version_that_got_the_number_of_a_lost_one(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    table = with_a_version_that_is_lost(place, monkeypatch)
    assert recovered(place).version == 2
    for _ in range(2):
        shown = table.snapshot(consistency="published")
        assert shown.version == 2
        assert rows_of(shown.to_arrow()) == [("EWR", 2, 2), ("JFK", 1, 1)]


@pytest.mark.shows("publisher-paused")
@pytest.mark.parametrize("conditional_put", [True, False])
def test_a_publisher_that_slept_through_it_all_publishes_nothing(place: Place, conditional_put: bool) -> None:
    """It ratified version 2 in the former tree, and wakes up when version 2 is something else: not even a blind put does harm."""
    filled(place)
    disk = disk_of(place)
    disk.conditional_put = conditional_put
    zombie = Writer(place, IMPATIENT)
    asleep, awake = threading.Event(), threading.Event()

    def sleep(call: Call) -> None:
        ratified = call.session_id == zombie.session.session_id and any(op.path.endswith("/head") for op in call.ops)
        if ratified and not asleep.is_set():
            asleep.set()
            assert awake.wait(30)

    zombie.service.after = sleep
    errors: list[BaseException] = []

    def write() -> None:
        try:
            zombie.table.append(flights(("LGA", 1, 9)))
        except sluice.errors.SluiceError as error:
            errors.append(error)

    thread = threading.Thread(target=write)
    thread.start()
    assert asleep.wait(30)
    lose_everything(place)
    recovered(place)
    place.open().append(flights(("JFK", 5, 5)))
    log = {key: data for key, (data, _) in disk.objects.items() if key.startswith("_delta_log/0")}
    awake.set()
    thread.join(30)
    zombie.service.after = None
    assert not thread.is_alive()
    assert [type(error) for error in errors] == [sluice.errors.TreeReplaced]
    assert log == {key: data for key, (data, _) in disk.objects.items() if key.startswith("_delta_log/0")}
    assert place.open().snapshot().to_arrow().num_rows == 3


def test_a_stale_head_of_the_former_tree_matches_no_head_of_the_new_one(place: Place) -> None:
    """Data versions begin again from 0, so that one of the former tree may fit by accident: the incarnation does not."""
    filled(place)
    zombie = Writer(place, IMPATIENT)
    zombie.table.refresh()

    def overtake(call: Call) -> None:
        if call.session_id == zombie.session.session_id and any(op.path.endswith("/head") for op in call.ops):
            zombie.service.before = None
            lose_everything(place)
            recovered(place)
            fresh = place.open()
            while head_version(place) < 2:
                fresh.append(flights(("JFK", 5, 5)))

    zombie.service.before = overtake
    with pytest.raises(sluice.errors.TreeReplaced):
        zombie.table.append(flights(("LGA", 1, 9)))
    assert "LGA" not in place.open().snapshot().to_arrow()["origin"].to_pylist()


@pytest.mark.shows("nodes-deleted")
@pytest.mark.parametrize("fast_path", [True, False], ids=["direct", "queued"])
def test_nodes_that_were_deleted_by_hand_under_living_clients(place: Place, fast_path: bool) -> None:
    """Their sessions live on: they learn of it when they look again."""
    filled(place)
    client = Writer(place, replace(IMPATIENT, fast_path=fast_path))
    client.table.append(flights(("LGA", 1, 1)))
    delete_by_hand(place)
    assert recovered(place).version == 3
    with pytest.raises(sluice.errors.TreeReplaced):
        client.table.append(flights(("LGA", 1, 9)))
    assert place.open().snapshot().to_arrow().num_rows == 3
    assert place.open().outcome(place.open().history(1)[0].transaction_id).state == "committed"


@pytest.mark.notices("multis-are-of-one-tree")
def test_nodes_that_are_replaced_between_a_look_and_a_decision(place: Place) -> None:
    """The head of the rebuilt tree has the version that the client saw, so only the check in its multi tells the trees apart."""
    filled(place)
    client = Writer(place, IMPATIENT)
    client.table.append(flights(("LGA", 1, 1)))

    def replace(call: Call) -> None:
        if call.verb == "apply" and call.session_id == client.session.session_id:
            client.service.before = None
            version = head_version(place)
            delete_by_hand(place)
            recovered(place)
            while head_version(place) < version:
                place.open().append(flights(("BOS", 1, 1)))
            assert head_version(place) == version

    client.service.before = replace
    with pytest.raises(sluice.errors.TreeReplaced):
        client.table.append(flights(("LGA", 1, 9)))
    assert client.service.before is None
    assert ("LGA", 9) not in {(row["origin"], row["delay"]) for row in place.open().snapshot().to_arrow().to_pylist()}


def delete_by_hand(place: Place) -> None:
    session = MemoryCoordination.named(place.coordinator.removeprefix("memory://")).connect()

    def delete(path: str) -> None:
        for name in session.children(path) or ():
            delete(f"{path}/{name}")
        session.delete(path)

    delete(TableTree(normalise(place.location)).root)


def head_version(place: Place) -> int:
    session = MemoryCoordination.named(place.coordinator.removeprefix("memory://")).connect()
    node = present(session.read(TableTree(normalise(place.location)).head))
    return node.version


def test_of_two_who_recover_at_once_one_is_refused(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(place)
    lose_everything(place)
    refused: list[str] = []

    def sleep(*_: object) -> None:
        monkeypatch.setattr(SystemClock, "sleep", lambda *_: None)
        with pytest.raises(sluice.errors.InvalidRequest, match="another client is recovering") as caught:
            recovered(place)
        refused.append(str(caught.value))

    monkeypatch.setattr(SystemClock, "sleep", sleep)
    assert recovered(place).version == 2
    assert f'"pid":{os.getpid()}' in refused[0]
    assert place.open().version == 2


def test_a_claim_that_is_let_go_just_now_is_taken(place: Place) -> None:
    """Another one has it when it is asked for, and not any more when one looks whose it is."""
    filled(place)
    lose_everything(place)
    service = service_of(place)
    other = service.connect()
    path = f"{RECOVERING}/{TableTree(normalise(place.location)).root.rpartition('/')[2]}"
    other.ensure_path(RECOVERING)
    other.create(path, b"{}", ephemeral=True)

    def let_go(call: Call) -> None:
        if call.verb == "barrier" and not other.lost:
            other.close()

    service.before = let_go
    assert recovered(place).version == 2
    assert other.lost


def test_who_lost_the_claim_does_not_wait_for_the_writers_of_a_recovered_table(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its session ended while it waited, and another one recovered the table: what is published since is no former client's."""
    filled(place)
    lose_everything(place)
    service = MemoryCoordination.named(place.coordinator.removeprefix("memory://"))
    waits: list[float] = []

    def sleep(_: object, seconds: float) -> None:
        waits.append(seconds)
        with service.lock:
            for session in list(service._sessions.values()):
                session.expire()
        with monkeypatch.context() as awake:
            awake.setattr(SystemClock, "sleep", lambda *_: None)
            if len(waits) == 1:
                recovered(place)
            place.open().append(flights(("LGA", 1, len(waits))))

    monkeypatch.setattr(SystemClock, "sleep", sleep)
    with pytest.raises(sluice.errors.Unavailable, match=r"claim to recover .* is gone; repeat the recovery"):
        recovered(place, 5.0)
    assert waits == [5.0]
    with pytest.raises(sluice.errors.InvalidRequest, match="nothing to recover"):
        recovered(place, 5.0)


def test_a_recovery_that_dies_is_repeated(place: Place) -> None:
    filled(place)
    lose_everything(place)
    service = MemoryCoordination.named(place.coordinator.removeprefix("memory://"))

    class Died(BaseException):
        pass

    def die(call: Call) -> None:
        if any(op.path.endswith("/published") for op in call.ops):
            service.before = None
            raise Died

    service.before = die
    with pytest.raises(Died):
        recovered(place)
    assert recovered(place).version == 3
    table = place.open()
    assert [entry.operation for entry in table.history(2)] == ["RECOVER", "RECOVER"]
    assert table.append(flights(("LGA", 1, 9))) is not None


def test_a_transaction_over_two_tables_of_which_one_log_lacks_its_part_is_told(place: Place) -> None:
    table = filled(place)
    table.append(flights(("LGA", 1, 9)))
    disk = disk_of(place)
    data, modified_ms = disk.objects[commit_path(2)]
    info, *rest = data.splitlines()
    told = orjson.loads(info)
    [transaction] = told["commitInfo"]["sluice"]["transactions"]
    transaction["joint"] = {normalise(place.location): 2, "memory://nowhere": 7}
    disk.objects[commit_path(2)] = (b"\n".join([orjson.dumps(told), *rest]) + b"\n", modified_ms)
    lose_everything(place)
    [half] = recovered(place).half_done
    assert (half.transaction_id, half.version) == (transaction["id"], 2)
    assert (half.missing_in, half.unknown_in) == (("memory://nowhere",), ())


@pytest.mark.shows("half-lost")
def test_a_loss_between_the_publications_of_two_tables_is_told_by_the_one_that_has_it(place: Place) -> None:
    """All that is real: a transaction over two tables, ratified, and published in one of them when all data are lost."""
    other = Place(place.location + "-other", place.coordinator)
    tables = [filled(place), filled(other)]
    disk_of(other).fail_before("put_if_absent", commit_path(2), times=1_000)
    here = [sluice.Table.open(t.location, coordinator=place.coordinator, limits=Limits(publication_wait_s=0.2)) for t in tables]
    with sluice.transaction(tables=here) as tx:
        for table in here:
            tx[table].append(flights(("LGA", 1, 9)))
    assert [tx.commit_info[table].published for table in here] == [True, False]
    lose_everything(place)
    mend(disk_of(other))
    [half] = recovered(place).half_done
    assert half == HalfDone(tx.id, 2, (tables[1].location,))
    assert [each.transaction_id for each in recovered(other).incomplete] == [tx.id]
    stores = {table.location: open_store(table.location) for table in tables}
    [found] = incomplete_joints(stores)
    assert (found.transaction_id, found.missing) == (tx.id, {tables[1].location: 2})


@pytest.mark.shows("half-lost")
@pytest.mark.parametrize("trouble", ["denied", "cleaned up", "no such place"])
def test_another_table_that_cannot_be_looked_at_is_said_so(place: Place, trouble: str) -> None:
    other = Place(place.location + "-other", place.coordinator)
    tables = [filled(place), filled(other)]
    with sluice.transaction(tables=tables) as tx:
        for table in tables:
            tx[table].append(flights(("LGA", 1, 9)))
    lose_everything(place)
    elsewhere = tables[1].location
    if trouble == "denied":
        disk_of(other).fail_before("get", commit_path(2), times=1_000)
    elif trouble == "cleaned up":
        for version in range(3):
            disk_of(other).objects.pop(commit_path(version))
        disk_of(other).objects[commit_path(9)] = disk_of(place).objects[commit_path(0)]
    else:
        info, *rest = disk_of(place).objects[commit_path(2)][0].splitlines()
        disk_of(place).objects[commit_path(2)] = (
            b"\n".join([info.replace(elsewhere.encode(), b"nonsense://x"), *rest]) + b"\n",
            disk_of(place).objects[commit_path(2)][1],
        )
        elsewhere = "nonsense://x"
    [half] = recovered(place).half_done
    assert half == HalfDone(tx.id, 2, (), (elsewhere,))


def test_every_engine_reads_a_recovered_table(tmp_path: object) -> None:
    deltalake = pytest.importorskip("deltalake")
    here = Place(f"{tmp_path}/t", f"memory://{os.urandom(8).hex()}")
    here.create().append(flights(("JFK", 1, 1)))
    lose_everything(here)
    recovered(here)
    here.open().append(flights(("EWR", 1, 1)))
    read: pa.Table = deltalake.DeltaTable(here.location).to_pyarrow_table()
    assert read.num_rows == 2
    assert deltalake.DeltaTable(here.location).version() == 3


def test_who_creates_a_table_that_was_created_and_whose_nodes_were_lost_meanwhile(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """It saw no log; by the time it makes the nodes there is one, and the coordinator knows nothing of it."""
    looks: list[object] = []

    def look(store: MemoryStore) -> int | None:
        looks.append(None)
        if len(looks) > 1:
            return latest_version(store)
        filled(place)
        lose_everything(place)
        return None

    monkeypatch.setattr(creation, "latest_version", look)
    with pytest.raises(sluice.errors.TableExists):
        place.create()
    monkeypatch.undo()
    assert len(looks) == 4, "each of the two looked before and after"
    assert recovered(place).version == 2, "no nodes are in its way"
    assert place.open().snapshot().to_arrow().num_rows == 2
