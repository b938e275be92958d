"""Quotas: who is over one waits in the order of arrival, and goes on when there is room; whatever ends, the room empties."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sluice
from sluice.coordinator import contention
from sluice.coordinator.admission import submission, waiting_room
from sluice.coordinator.admission.waiting_room import QuotaUse, admit, clear_rooms, quotas_in_use
from sluice.coordinator.commit import transactions
from sluice.coordinator.errors import CoordinatorUnavailable, NotCommitted, OutcomeUnknown, QuotaExceeded, UnknownFormat
from sluice.coordinator.leases.blocking import list_leases, place_of_table
from sluice.coordinator.nodes.layout import QUOTAS
from sluice.coordinator.nodes.quotas import KnownQuotas, Quota, Quotas, read_quotas, set_quota
from sluice.coordinator.service.connect import connect, release
from sluice.coordinator.service.store import CoordinationStore, ReplyLost

ROWS = pa.table({"id": [1, 2, 3]})


@pytest.fixture(params=["memory", pytest.param("zookeeper", marks=[pytest.mark.zookeeper])])
def coordinator(request: pytest.FixtureRequest) -> Iterator[str]:
    address = request.getfixturevalue("zookeeper_address") if request.param == "zookeeper" else f"memory://{uuid.uuid4().hex}"
    yield address
    release(address)


@pytest.fixture
def table(coordinator: str, tmp_path: Path) -> sluice.Table:
    return sluice.Table.create(tmp_path / "table", ROWS.schema, coordinator=coordinator, application="load")


def known(table: sluice.Table) -> KnownQuotas:
    presence = table.coordinated.context.presence
    assert presence is not None
    return presence.quotas


def quota(of: sluice.Table, **fields: Any) -> None:
    """Set a quota, and wait until this process has heard of it: watches ring after the reply."""
    before = known(of).changes
    set_quota(of.coordinated.context.connect(), Quota(**fields))
    until(lambda: known(of).changes > before or not known(of).read[0])


def use(coordinator: str) -> QuotaUse:
    [only] = quotas_in_use(connect(coordinator))
    return only


def are_there(coordinator: str, many: int) -> bool:
    seen = use(coordinator)
    return seen.in_flight + seen.waiting == many


def until(holds: Callable[[], Any], limit_s: float = 30.0) -> None:
    end = time.monotonic() + limit_s
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


class Gate:
    """Once it is shut, holds commits up just before they are filed, and lets them through one at a time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.inside: list[str] = []
        self.most = 0
        self._filed = transactions.commit_filings
        self._lock = threading.Lock()
        self.through = threading.Semaphore(0)
        self._monkeypatch = monkeypatch

    def shut(self) -> None:
        self._monkeypatch.setattr(submission, "commit_filings", self._wait)

    def _wait(self, filings: Any, *arguments: Any, **named: Any) -> Any:
        id_ = filings[0].member.intent.transaction_id
        with self._lock:
            self.inside.append(id_)
            self.most = max(self.most, len(self.inside))
        try:
            assert self.through.acquire(timeout=60)
            return self._filed(filings, *arguments, **named)
        finally:
            with self._lock:
                self.inside.remove(id_)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    return Gate(monkeypatch)


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(20) as pool:
        yield pool


@pytest.mark.notices("quotas-are-kept")
def test_only_so_many_are_filed_and_the_others_follow_in_order(
    coordinator: str, table: sluice.Table, gate: Gate, threads: ThreadPoolExecutor
) -> None:
    gate.shut()
    quota(table, application="load", slots=2)
    order: list[int] = []

    def append(number: int) -> None:
        table.append(pa.table({"id": [number]}))
        order.append(number)

    calls: list[Future[None]] = []
    for number in range(6):
        calls.append(threads.submit(append, number))
        until(partial(are_there, coordinator, number + 1))
    seen = use(coordinator)
    assert (seen.in_flight, seen.waiting) == (2, 4)
    assert seen.since is not None
    until(lambda: len(gate.inside) == 2)
    for number in range(6):
        gate.through.release()
        until(partial(lambda most: len(order) == most, number + 1))
    for call in calls:
        call.result()
    assert gate.most == 2
    # the two that are let in together may overtake each other, later ones do not
    assert all(abs(place - number) <= 1 for place, number in enumerate(order)), order
    until(lambda: (use(coordinator).in_flight, use(coordinator).waiting) == (0, 0))
    assert table.refresh().snapshot().to_arrow().num_rows == 6


def test_other_applications_and_tables_do_not_wait(
    coordinator: str, table: sluice.Table, gate: Gate, threads: ThreadPoolExecutor, tmp_path: Path
) -> None:
    other = sluice.Table.create(tmp_path / "other", ROWS.schema, coordinator=coordinator, application="load")
    gate.shut()
    quota(table, slots=1)  # of each application on each table
    nightly = sluice.Table.open(table.location, coordinator=coordinator, application="nightly")
    calls = [threads.submit(table.append, ROWS) for _ in range(2)]
    until(lambda: use(coordinator).waiting == 1)
    calls += [threads.submit(each.append, ROWS) for each in (nightly, other)]
    until(lambda: len(gate.inside) == 3)
    gate.through.release(4)
    for call in calls:
        call.result(60)
    other.close()


def test_the_quota_that_names_more_counts(coordinator: str) -> None:
    session = connect(coordinator)
    for application, table, slots in (("*", "*", 1), ("*", "t", 2), ("a", "*", 12), ("a", "t", 13)):
        set_quota(session, Quota(application, table, slots))
    quotas = read_quotas(session)
    numbers = {(a, t): (each := quotas.of(a, t)) and each.slots for a in "ab" for t in "tu"}
    assert numbers == {("a", "t"): 13, ("a", "u"): 12, ("b", "t"): 2, ("b", "u"): 1}
    assert Quotas().of("a", "t") is None


def test_who_waits_too_long_is_refused_and_hears_by_whom(
    coordinator: str, table: sluice.Table, gate: Gate, threads: ThreadPoolExecutor
) -> None:
    gate.shut()
    quota(table, application="load", table=table.location, slots=1)
    held = threads.submit(table.append, ROWS)
    until(lambda: gate.inside)
    with pytest.raises(QuotaExceeded) as refused:
        table.append(ROWS, timeout_s=0.5)
    said = refused.value.message
    assert f"process {os.getpid()} on " in said
    assert "slots: 1" in said
    assert "nothing was committed" in said
    assert f"sluice quotas set --slots N --application load --table {table.location}" in said
    assert refused.value.retryable
    assert isinstance(refused.value, NotCommitted)
    assert refused.value.details["rule"] == "quota"
    gate.through.release()
    held.result(60)
    until(lambda: (use(coordinator).in_flight, use(coordinator).waiting) == (0, 0))
    assert table.refresh().version == 1


@pytest.mark.parametrize("change", ["removed", "raised"])
def test_a_quota_that_is_changed_lets_those_in_who_wait(
    coordinator: str, table: sluice.Table, gate: Gate, threads: ThreadPoolExecutor, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting_room, "_LOOK_AGAIN_S", 0.2)
    gate.shut()
    quota(table, slots=1)
    calls = [threads.submit(table.append, ROWS) for _ in range(3)]
    until(lambda: use(coordinator).waiting == 2)
    until(lambda: "quota-waits" in {each.name for each in sluice.status(coordinator, bound_s=0.1).messages})
    assert "quota-waits" not in {each.name for each in sluice.status(coordinator).messages}
    quota(table, **({} if change == "removed" else {"slots": 3}))
    until(lambda: len(gate.inside) == 3)
    gate.through.release(3)
    for call in calls:
        call.result(60)


def test_a_client_hears_of_a_quota_that_was_set_after_it_committed(coordinator: str, table: sluice.Table) -> None:
    table.append(ROWS)
    assert known(table).changes == known(table).read[0]
    quota(table, slots=1)
    table.append(ROWS)
    assert known(table).read[1] == Quotas((Quota(slots=1),))


@pytest.mark.notices("quotas-count-as-read-when-they-are")
def test_a_thread_knows_the_quotas_while_another_one_reads_them(coordinator: str) -> None:
    session, quotas = connect(coordinator), KnownQuotas()
    set_quota(session, Quota(slots=1))
    meanwhile: list[Quotas] = []

    class Slow:
        def read(self, *arguments: Any) -> Any:
            meanwhile.append(quotas.current(session))
            return session.read(*arguments)

    slow: Any = Slow()
    assert quotas.current(slow) == Quotas((Quota(slots=1),))
    assert meanwhile == [Quotas((Quota(slots=1),))]


def test_a_commit_without_quotas_asks_nothing_about_them(table: sluice.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    table.append(ROWS)
    monkeypatch.setattr(submission, "admit", lambda *_: pytest.fail("there is no quota"))
    table.append(ROWS)


@pytest.mark.notices("rates-are-counted-once")
@pytest.mark.parametrize("slots", [None, 8])
def test_commits_of_a_rate_are_spread_over_time(
    coordinator: str, table: sluice.Table, threads: ThreadPoolExecutor, slots: int | None
) -> None:
    quota(table, slots=slots, commits_per_s=5.0)
    began = time.monotonic()
    for call in [threads.submit(table.append, ROWS) for _ in range(16)]:
        call.result(60)
    # one second's at once, and one more; ten are left
    assert time.monotonic() - began >= 1.9
    assert table.refresh().snapshot().to_arrow().num_rows == 48


def test_a_rate_of_bytes_makes_the_next_commit_wait(coordinator: str, table: sluice.Table) -> None:
    table.append(ROWS)
    quota(table, bytes_per_s=sum(each.stat().st_size for each in Path(table.location.removeprefix("file://")).glob("*.parquet")))
    began = time.monotonic()
    for _ in range(5):
        table.append(ROWS)
    assert time.monotonic() - began >= 2.9


@pytest.mark.notices("over-the-rate-is-refused-before-it-costs")
def test_who_is_due_after_its_time_is_refused_at_once_and_costs_nothing(coordinator: str, table: sluice.Table) -> None:
    quota(table, commits_per_s=0.01)
    table.append(ROWS)
    for _ in range(3):
        began = time.monotonic()
        with pytest.raises(QuotaExceeded, match=r"its next commit is due in (9\d\.\d|100\.0) s"):
            table.append(ROWS, timeout_s=20)
        assert time.monotonic() - began < 5


@pytest.mark.notices("marks-are-raised-in-the-calls-time")
@pytest.mark.parametrize("planned", [False, True], ids=["append", "plan"])
def test_a_write_of_identity_columns_waits_for_its_quota_in_its_own_time(coordinator: str, tmp_path: Path, planned: bool) -> None:
    said = {"delta.identity.start": "1", "delta.identity.step": "1", "delta.identity.allowExplicitInsert": "false"}
    columns = pa.schema([pa.field("number", pa.int64(), metadata=said), *ROWS.schema])
    table = sluice.Table.create(tmp_path / "numbered", columns, coordinator=coordinator)
    quota(table, commits_per_s=0.01)
    table.set_properties({"simulated": "1"})
    began = time.monotonic()
    with pytest.raises(QuotaExceeded, match="its next commit is due"):  # the one that raises the column's mark in the log
        table.plan_write(ROWS.schema, timeout_s=2) if planned else table.append(ROWS, timeout_s=2)
    assert time.monotonic() - began < 10
    assert table.refresh().snapshot().to_arrow().num_rows == 0


@pytest.mark.notices("nobody-waits-for-a-lease-with-a-slot")
def test_a_commit_that_waits_for_a_lease_has_no_slot(coordinator: str, table: sluice.Table, threads: ThreadPoolExecutor) -> None:
    """Otherwise the holder of the lease, of the same application, would wait for ever."""
    quota(table, slots=1)
    with table.lease(name="repair"):
        waiting = threads.submit(table.append, ROWS)
        place = place_of_table(connect(coordinator), table.location)
        until(lambda: any(not each.held for each in list_leases(connect(coordinator), place)))
        until(lambda: use(coordinator).in_flight == 0)
        table.append(ROWS, timeout_s=20)
    waiting.result(60)


@pytest.mark.parametrize("first_to_leave", [0, 1, 2])
def test_whichever_slot_is_given_back_somebody_who_waits_goes_on_at_once(
    coordinator: str, table: sluice.Table, first_to_leave: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting_room, "_LOOK_AGAIN_S", 60.0)
    quota(table, slots=3)
    change: Any = type("Change", (), {"transaction_id": "t", "actions": ()})

    def enter() -> ExitStack:
        return admit([(table.coordinated, change)], KnownQuotas(), sluice.Deadline.after(30))

    held = [enter() for _ in range(3)]
    with ThreadPoolExecutor(3) as pool:
        waiting = [pool.submit(enter) for _ in range(3)]
        until(lambda: use(coordinator).waiting == 3)
        for place in sorted(range(3), key=lambda number: (number != first_to_leave, number)):
            held[place].close()
        for call in waiting:
            call.result(20).close()
    assert (use(coordinator).in_flight, use(coordinator).waiting) == (0, 0)


def test_who_holds_a_lease_does_not_wait_for_a_quota(
    coordinator: str, table: sluice.Table, gate: Gate, threads: ThreadPoolExecutor
) -> None:
    """Others would wait with it, whatever their quotas are."""
    quota(table, slots=1)
    gate.shut()
    held = threads.submit(table.append, ROWS)
    until(lambda: gate.inside)
    with table.lease(name="repair"):
        gate.through.release(3)  # the first one goes twice: the lease refuses it once
        table.append(ROWS, timeout_s=20)
    held.result(60)


def test_what_another_process_committed_meanwhile_is_no_refusal(coordinator: str, table: sluice.Table) -> None:
    quota(table, slots=1)
    change: Any = type("Change", (), {"transaction_id": "t", "actions": ()})
    slots = admit([(table.coordinated, change)], KnownQuotas(), sluice.Deadline.after(10))
    numbered = sluice.Table.open(table.location, coordinator=coordinator, application="other")
    begun = table.begin(timeout_s=1.0)
    begun.append(ROWS)
    with pytest.raises(QuotaExceeded):
        begun.commit()
    begun = table.begin(transaction=("job", 1), timeout_s=2.0)
    begun.append(ROWS)
    made = numbered.append(ROWS, transaction=("job", 1))
    again = begun.commit()
    assert made is not None
    assert again is not None
    assert (again.version, again.repeated) == (made.version, True)
    plan = table.plan_write(ROWS.schema)
    staged = plan.write(ROWS)
    with pytest.raises(OutcomeUnknown, match="another process may yet commit the same plan") as unknown:
        table.commit_write(plan, staged, timeout_s=1.0)
    assert (unknown.value.stage, unknown.value.retryable) == ("staged", True)
    slots.close()
    assert table.commit_write(plan, staged) is not None


def test_who_waits_for_a_rate_hears_that_it_was_removed(
    coordinator: str, table: sluice.Table, threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting_room, "_LOOK_AGAIN_S", 0.2)
    quota(table, commits_per_s=0.01)
    table.append(ROWS)
    calls = [threads.submit(table.append, ROWS, timeout_s=300) for _ in range(2)]
    until(lambda: use(coordinator).waiting == 2)
    assert use(coordinator).since is not None
    quota(table)
    for call in calls:
        call.result(20)


def test_a_rate_of_bytes_counts_what_a_transaction_wrote(coordinator: str, tmp_path: Path) -> None:
    properties = {"delta.enableDeletionVectors": "true"}
    table = sluice.Table.create(tmp_path / "vectors", ROWS.schema, coordinator=coordinator, application="load", properties=properties)
    table.append(pa.table({"id": range(100_000)}))
    quota(table, bytes_per_s=1000)
    table.delete("id = 5")  # a vector, for a file of hundreds of KB
    table.restore(1)
    table.append(ROWS, timeout_s=5)
    table.append(pa.table({"id": range(100_000)}), timeout_s=5)
    with pytest.raises(QuotaExceeded):
        table.append(ROWS, timeout_s=5)


def test_quotas_of_a_newer_release_stop_no_commit_and_are_not_written_over(coordinator: str, table: sluice.Table) -> None:
    session = connect(coordinator)
    session.create(QUOTAS, b'{"format": 99, "quotas": "a tree of them"}')
    table.append(ROWS)
    with pytest.raises(UnknownFormat):
        set_quota(session, Quota(slots=1))
    node = session.read(QUOTAS)
    assert node is not None
    assert b"a tree of them" in node.data


def test_rooms_go_when_they_are_empty_and_owe_nothing(coordinator: str, table: sluice.Table) -> None:
    quota(table, commits_per_s=0.01)
    table.append(ROWS)
    session = connect(coordinator)
    clear_rooms(session, 0)
    assert len(session.children(QUOTAS) or ()) == 1
    set_quota(session, other := Quota("other", slots=1))
    clear_rooms(session, 0, other)
    with pytest.raises(QuotaExceeded):  # another application's quota forgives nothing
        table.append(ROWS, timeout_s=1)
    clear_rooms(session, 0, Quota(commits_per_s=0.01))
    table.append(ROWS, timeout_s=5)
    clear_rooms(session, 10**15)
    assert session.children(QUOTAS) == []


def test_a_transaction_over_several_tables_is_within_the_quota_of_each(
    coordinator: str, table: sluice.Table, gate: Gate, threads: ThreadPoolExecutor, tmp_path: Path
) -> None:
    other = sluice.Table.create(tmp_path / "other", ROWS.schema, coordinator=coordinator, application="load")
    gate.shut()
    quota(table, slots=1)

    def both(first: sluice.Table, second: sluice.Table) -> None:
        with sluice.transaction(coordinator, tables=[first, second], timeout_s=60) as joint:
            joint[first].append(ROWS)
            joint[second].append(ROWS)

    calls = [threads.submit(both, *pair) for pair in [(table, other), (other, table)] * 4]
    gate.through.release(8)
    for call in calls:
        call.result(60)
    assert gate.most == 1
    assert [each.refresh().snapshot().to_arrow().num_rows for each in (table, other)] == [24, 24]
    other.close()


def test_a_wait_is_told_as_a_row(coordinator: str, table: sluice.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[contention.Contention] = []
    monkeypatch.setattr(contention._Recorder, "keep", lambda _, __, row: rows.append(row))
    quota(table, commits_per_s=1.0)
    for _ in range(4):
        table.append(ROWS)
    assert {each.kind for each in rows} == {"quota"}
    assert all("sluice quotas set" in each.remedy and each.rule == "quota" for each in rows)
    assert 0.5 < rows[-1].seconds < 5


def test_a_room_that_was_removed_is_made_again(coordinator: str, table: sluice.Table) -> None:
    quota(table, slots=1, commits_per_s=100.0)
    for _ in range(3):
        table.append(ROWS)
        clear_rooms(connect(coordinator), 10**15)
        assert connect(coordinator).children(QUOTAS) == []


class Losing:
    """A session whose replies to some creates are lost, with or without effect."""

    def __init__(self, session: CoordinationStore, effects: list[bool]) -> None:
        self._session, self._effects = session, effects

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def create(self, path: str, *arguments: Any, **named: Any) -> str:
        if "/t-" not in path or not self._effects:
            return self._session.create(path, *arguments, **named)
        if self._effects.pop(0):
            self._session.create(path, *arguments, **named)
        raise ReplyLost("the reply")


@pytest.mark.parametrize("effects", [[True], [False], [False, True]])
def test_a_ticket_whose_reply_was_lost_is_taken_once(coordinator: str, table: sluice.Table, effects: list[bool]) -> None:
    quota(table, slots=1)
    table.append(ROWS)
    context = table.coordinated.context
    object.__setattr__(context, "connect", lambda: Losing(connect(coordinator), effects))
    change: Any = type("Change", (), {"transaction_id": "t", "actions": ()})
    slots = admit([(table.coordinated, change)], KnownQuotas(), sluice.Deadline.after(10))
    assert (use(coordinator).in_flight, use(coordinator).waiting) == (1, 0)
    slots.close()
    assert use(coordinator).in_flight == 0


@pytest.mark.notices("tickets-of-lost-replies-are-returned")
@pytest.mark.parametrize("trouble", [CoordinatorUnavailable("no answer in time"), KeyboardInterrupt()])
def test_a_ticket_of_which_nothing_is_known_is_returned(coordinator: str, table: sluice.Table, trouble: BaseException) -> None:
    quota(table, slots=1)
    table.append(ROWS)
    session = Losing(connect(coordinator), [True])
    raised: list[bool] = []

    def barrier() -> None:
        if not raised:
            raised.append(True)
            raise trouble

    session.barrier = barrier  # type: ignore[attr-defined]
    object.__setattr__(table.coordinated.context, "connect", lambda: session)
    change: Any = type("Change", (), {"transaction_id": "t", "actions": ()})
    with pytest.raises(type(trouble)):
        admit([(table.coordinated, change)], KnownQuotas(), sluice.Deadline.after(10))
    until(lambda: (use(coordinator).in_flight, use(coordinator).waiting) == (0, 0))


def test_a_change_of_quotas_loses_to_no_other(coordinator: str) -> None:
    session = connect(coordinator)
    with ThreadPoolExecutor(8) as pool:
        for _ in pool.map(lambda number: set_quota(session, Quota(application=f"a{number}", slots=1)), range(40)):
            pass
    assert {each.application for each in read_quotas(session).quotas} == {f"a{number}" for number in range(40)}
    assert set_quota(session, Quota(application="a3")) == Quota(application="a3", slots=1)
    assert len(read_quotas(session).quotas) == 39
    with pytest.raises(sluice.errors.InvalidRequest, match="no quota"):
        set_quota(session, Quota(application="a3"))


@pytest.mark.parametrize(
    "wrong", [{"slots": 0}, {"slots": -1}, {"commits_per_s": 0.0}, {"commits_per_s": float("nan")}, {"bytes_per_s": -5}]
)
def test_numbers_that_are_no_quota_are_refused(coordinator: str, wrong: dict[str, Any]) -> None:
    with pytest.raises(sluice.errors.InvalidRequest, match="above 0"):
        set_quota(connect(coordinator), Quota(**wrong))
    assert read_quotas(connect(coordinator)) == Quotas()


HOLDER = textwrap.dedent(
    """
    import sys, time
    import pyarrow as pa
    import sluice
    from sluice.coordinator.admission import submission

    location, coordinator = sys.argv[1:]
    table = sluice.Table.open(location, coordinator=coordinator, application="load")

    def wait(*_, **__):
        print("inside", flush=True)
        time.sleep(600)

    submission.commit_filings = wait
    table.append(pa.table({"id": [9]}))
    """
)


@pytest.mark.zookeeper
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_the_slot_of_a_process_that_is_killed_or_paused_is_free_after_its_session(
    tmp_path: Path, zookeeper_address: str, how: signal.Signals
) -> None:
    coordinator = f"{zookeeper_address}?session_timeout_s=4"
    table = sluice.Table.create(tmp_path / "table", ROWS.schema, coordinator=coordinator, application="load")
    quota(table, slots=1)
    with ExitStack() as running:
        program = [sys.executable, "-c", HOLDER, table.location, coordinator]
        holder = running.enter_context(subprocess.Popen(program, stdout=subprocess.PIPE, text=True))
        running.callback(holder.kill)
        assert holder.stdout is not None
        assert holder.stdout.readline() == "inside\n"
        assert use(coordinator).in_flight == 1
        holder.send_signal(how)
        table.append(ROWS, timeout_s=60)
        assert use(coordinator).in_flight == 0
    release(coordinator)
