"""Contention as rows: who tells what, what becomes of it when things go wrong, and who is ranked first."""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import orjson
import pyarrow as pa
import pytest
from click.testing import CliRunner

import sluice
from sluice.cli import main
from sluice.coordinator import contention
from sluice.coordinator.admission import commit_events, submission
from sluice.coordinator.commit import transactions
from sluice.coordinator.commit.decider import Decider
from sluice.coordinator.contention import CONTENTION, Batch, Contention, file_batch, keep_contention_in, read_contention
from sluice.coordinator.service.clock import SystemClock
from sluice.coordinator.service.connect import connect, release, session_of
from sluice.coordinator.service.store import CoordinationStore, ReplyLost
from sluice.operating import contention as keeping
from sluice.operating.contention import take
from sluice.operating.daemon import APPLICATION, Daemon
from sluice.statements.duckdb.engine import run

ROWS = pa.table({"id": [1, 2, 3]})
ROW = Contention(0, "nightly", "host-7", 12, "refused", "s3://lake/t", winner="load", rule="removed-what-i-remove", seconds=2.0)
BEGUN = contention._begun
"""It starts the thread that files, and has rows filed when the process ends."""


@pytest.fixture
def coordinator() -> Iterator[str]:
    address = f"memory://{uuid.uuid4().hex}"
    yield address
    release(address)


@pytest.fixture
def table(coordinator: str, tmp_path: Path) -> sluice.Table:
    made = sluice.Table.create(tmp_path / "table", ROWS.schema, coordinator=coordinator, application="nightly")
    made.append(ROWS)
    return made


@pytest.fixture
def place(coordinator: str, tmp_path: Path) -> str:
    """Where daemons keep the rows."""
    location = str(tmp_path / "contention")
    keep_contention_in(connect(coordinator), location)
    return location


def filed(coordinator: str) -> list[Contention]:
    """What this process has told so far."""
    contention._recorder.flush(5)
    return [row for batch in read_contention(connect(coordinator)).batches for row in batch.batch.rows]


def only(coordinator: str) -> Contention:
    [row] = filed(coordinator)
    return row


def beside(table: sluice.Table, application: str = "load") -> sluice.Table:
    """The same table for another job."""
    return sluice.Table.open(table.location, coordinator=table.coordinated.context.coordinator, application=application)


def lose(table: sluice.Table) -> None:
    """Be refused: another job deletes what this one deletes."""
    begun = table.begin()
    begun.delete("id = 1")
    beside(table).delete("id > 0")
    try:
        with pytest.raises(sluice.errors.ConcurrentModification):
            begun.commit()
    finally:
        beside(table).append(ROWS)


def some(count: int, **fields: Any) -> Batch:
    """A batch of that many rows, of now."""
    now_ms = time.time_ns() // 1_000_000
    return Batch(tuple(replace(ROW, at_ms=now_ms, transaction_id=uuid.uuid4().hex, **fields) for _ in range(count)), 0, now_ms)


def come_first(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Let another client act right before the next transaction is decided, when its own client found nothing against it."""
    real, calls = transactions.commit_filings, list[int]()

    def commit(*arguments: Any, **keywords: Any) -> Any:
        calls.append(1)
        if len(calls) == 1:
            act()
        return real(*arguments, **keywords)

    monkeypatch.setattr(submission, "commit_filings", commit)


def joint_delete(table: sluice.Table) -> None:
    other = sluice.Table.open(f"{table.location}-2", coordinator=table.coordinated.context.coordinator)
    with sluice.transaction(tables=[table, other]) as begun:
        begun[table].delete("id = 1")
        begun[other].append(ROWS)


WAYS: dict[str, Callable[[sluice.Table], object]] = {
    "Arrow": lambda table: table.delete("id = 1"),
    "several tables": joint_delete,
    "SQL": lambda table: run(f"DELETE FROM sluice.`{table.location}` WHERE id = 1", coordinator=table.coordinated.context.coordinator),
    "a plan": lambda table: table.commit_write(
        plan := table.plan_write(ROWS.schema, mode="overwrite", where="id = 1"), plan.write(ROWS.slice(0, 1))
    ),
}


# -- who tells what ----------------------------------------------------------------------------------------------------------


def test_a_refusal_is_told_with_both_jobs_the_rule_the_time_and_the_remedy(coordinator: str, table: sluice.Table) -> None:
    begun = table.begin()
    begun.delete("id = 1")
    beside(table).delete("id > 0")
    time.sleep(2.1)
    with pytest.raises(sluice.errors.ConcurrentModification) as refused:
        begun.commit()
    row = only(coordinator)
    assert (row.kind, row.location, row.application, row.winner) == ("refused", table.location, "nightly", "load")
    assert (row.transaction_id, row.operation, row.winner_operation) == (begun.id, "DELETE", "DELETE")
    assert (row.rule, row.winner_version, row.attempts, row.pid) == (refused.value.rule, refused.value.winning_version, 1, os.getpid())
    assert row.what == refused.value.facts["what"]
    assert row.remedy.startswith(refused.value.facts["advice"])
    assert "delta.enableDeletionVectors" in row.remedy
    assert 1.0 < row.seconds < 30  # from its beginning, and not from its commit
    assert abs(row.at_ms / 1000 - time.time()) < 10


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("fast_path", [True, False])
def test_every_way_to_write_tells_once_also_what_another_process_decided(
    coordinator: str, table: sluice.Table, monkeypatch: pytest.MonkeyPatch, way: str, *, fast_path: bool
) -> None:
    monkeypatch.setenv("SLUICE_APPLICATION", "nightly")
    table.coordinated.alone = fast_path
    load = beside(table)
    sluice.Table.create(f"{table.location}-2", ROWS.schema, coordinator=coordinator)
    come_first(monkeypatch, lambda: load.delete("id > 0"))
    with pytest.raises(sluice.errors.ConcurrentModification):
        WAYS[way](table)
    row = only(coordinator)
    assert (row.kind, row.location, row.winner, row.winner_operation, row.application) == (
        *("refused", table.location, "load", "DELETE", "nightly"),
    )
    assert row.rule.startswith("removed-what-i-")


def test_with_deletion_vectors_the_remedy_is_another_one(coordinator: str, table: sluice.Table) -> None:
    table.set_properties({"delta.enableDeletionVectors": "true"})
    lose(table)
    assert "enableDeletionVectors" not in only(coordinator).remedy


def test_what_meets_nobody_tells_nothing(coordinator: str, table: sluice.Table) -> None:
    table.delete("id = 1")
    table.append(ROWS)
    with pytest.raises(sluice.errors.SluiceError):
        table.append(pa.table({"other": [1]}))
    assert filed(coordinator) == []
    assert not contention._recorder._rows


def test_a_wait_for_a_lease_is_told_by_a_commit_and_by_whoever_asked_for_one(coordinator: str, table: sluice.Table) -> None:
    with ThreadPoolExecutor(2) as pool, beside(table, "repair").lease() as held:
        writes = pool.submit(table.append, ROWS)
        asks = pool.submit(lambda: table.lease().release())
        time.sleep(0.7)
        held.release()
        writes.result()
        asks.result()
    by_commit, by_lease = sorted(filed(coordinator), key=lambda row: row.operation, reverse=True)
    for row, operation in ((by_commit, "WRITE"), (by_lease, "LEASE")):
        assert (row.kind, row.operation, row.winner, row.rule, row.location) == ("lease", operation, "repair", "lease-held", table.location)
        assert 0.3 < row.seconds < 10
        assert "where=" in row.remedy
    assert by_commit.attempts == 2


def test_a_lease_that_is_not_granted_in_time_is_told(coordinator: str, table: sluice.Table) -> None:
    with beside(table, "repair").lease(), ThreadPoolExecutor(1) as pool:
        for wait_s in (0, 0.3):  # the first one cost nothing
            with pytest.raises(sluice.errors.LeaseHeld):
                pool.submit(table.lease, wait_s=wait_s).result()
    row = only(coordinator)
    assert (row.kind, row.winner, row.application) == ("refused", "repair", "nightly")


def test_attempts_that_the_caller_never_sees_are_told(coordinator: str, table: sluice.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """What statistics cannot decide is refused in the queue, and then compared by its rows."""
    table.set_properties({"delta.enableDeletionVectors": "true"})
    begun = table.begin(isolation="Serializable")
    begun.delete("id = 2")
    come_first(monkeypatch, lambda: beside(table).append(pa.table({"id": [1, 3]})))  # statistics may have a 2
    assert begun.commit() is not None
    row = only(coordinator)
    assert (row.kind, row.winner, row.rule, row.attempts) == ("repeated", "load", "appended-what-i-read", 2)


def test_a_long_wait_in_the_queue_is_told(coordinator: str, table: sluice.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_events, "_QUEUE_S", 0.3)
    table.coordinated.alone = False
    with monkeypatch.context() as patched:
        patched.setattr(Decider, "decide", lambda *_: ())
        with pytest.raises(sluice.errors.OutcomeUnknown):
            table.append(ROWS, timeout_s=0.5)
    row = only(coordinator)
    assert (row.kind, row.rule, row.winner) == ("queue", "queue", "")
    assert "sluice status" in row.remedy


def test_who_withdraws_a_transaction_lost_nothing_to_others(coordinator: str, table: sluice.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    table.coordinated.alone = False
    begun = table.begin()
    begun.append(ROWS)
    with monkeypatch.context() as patched:
        patched.setattr(Decider, "decide", lambda *_: ())
        with pytest.raises(sluice.errors.OutcomeUnknown):
            begun.commit(timeout_s=0.2)
    begun.withdraw()
    with pytest.raises(sluice.errors.Withdrawn):
        begun.commit()
    assert filed(coordinator) == []


def test_it_can_be_turned_off(coordinator: str, table: sluice.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLUICE_CONTENTION", "off")
    lose(table)
    assert filed(coordinator) == []


# -- the batches -------------------------------------------------------------------------------------------------------------


def test_a_thread_files_what_was_told(coordinator: str, table: sluice.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contention, "EVERY_S", 0.1)
    BEGUN.cache_clear()
    monkeypatch.setattr(contention, "_begun", BEGUN)
    lose(table)
    until(lambda: read_contention(connect(coordinator)).batches)
    lose(table)
    until(lambda: len(read_contention(connect(coordinator)).batches) == 2)


class Away:
    """A session whose coordinator answers as `create` does, and has nothing."""

    connected = True

    def __init__(self, session: CoordinationStore, create: Callable[..., str]) -> None:
        self.session, self.create = session, create

    def __getattr__(self, name: str) -> Any:
        return getattr(self.session, name)


def test_what_cannot_be_filed_is_filed_later(coordinator: str, table: sluice.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    lose(table)
    session = connect(coordinator)

    def away(*_: object, **__: object) -> str:
        raise sluice.errors.CoordinatorUnavailable("away")

    with monkeypatch.context() as patched:
        patched.setattr(contention, "session_of", lambda _name: Away(session, away))
        contention._recorder.flush(1)
        lose(table)
        contention._recorder.flush(1)
    assert read_contention(session).batches == ()
    assert len(filed(coordinator)) == 2


@pytest.mark.notices("a-batch-without-reply-is-not-filed-twice")
@pytest.mark.parametrize("takes_effect", [True, False])
def test_a_batch_whose_reply_was_lost_is_not_filed_again(coordinator: str, *, takes_effect: bool) -> None:
    session = connect(coordinator)
    file_batch(session, some(1))

    calls: list[int] = []

    def lost(*arguments: Any, **keywords: Any) -> str:
        calls.append(1)
        if takes_effect or len(calls) > 1:
            session.create(*arguments, **keywords)
        if len(calls) > 1:
            return ""
        raise ReplyLost("the reply")

    is_there = file_batch(cast(CoordinationStore, Away(session, lost)), some(2))
    assert is_there is takes_effect
    assert [len(each.batch.rows) for each in read_contention(session).batches] == [1, 2][: 1 + takes_effect]


def test_memory_is_bounded_and_says_what_was_dropped(coordinator: str, table: sluice.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contention, "ROWS_MAX", 5)
    monkeypatch.setattr(contention, "BATCH_ROWS_MAX", 2)
    name = table.coordinated.leases.home.coordinator
    for number in range(8):
        contention._recorder.keep(name, replace(ROW, pid=number))
    for _ in range(6):
        contention._recorder.flush(1)
    batches = read_contention(connect(coordinator)).batches
    assert [row.pid for each in batches for row in each.batch.rows] == [3, 4, 5, 6, 7]
    assert len(batches) > 1
    assert sum(each.batch.dropped for each in batches) == 3


@pytest.mark.notices("batches-are-bounded")
def test_the_tree_is_bounded_and_keeps_the_newest(coordinator: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contention, "BATCHES_MAX", 3)
    session = connect(coordinator)
    for number in range(6):
        file_batch(session, some(2, pid=number))
    batches = read_contention(session).batches
    assert [each.batch.rows[0].pid for each in batches] == [3, 4, 5]
    assert [each.batch.dropped for each in batches] == [2, 2, 2]


def test_times_are_by_the_clock_of_the_coordinator(coordinator: str) -> None:
    session = connect(coordinator)
    late = some(1)
    ahead = Batch(tuple(replace(row, at_ms=row.at_ms + 400 * 86_400_000) for row in late.rows), 0, late.filed_ms + 400 * 86_400_000)
    file_batch(session, ahead)
    [row] = [row for each in read_contention(session).batches for row in each.batch.rows]
    assert abs(row.at_ms - time.time_ns() // 1_000_000) < 10_000


# -- the table ---------------------------------------------------------------------------------------------------------------


def kept(place: str, coordinator: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = sluice.Table.open(place, coordinator=coordinator).snapshot().to_arrow().to_pylist()
    return rows


def test_a_daemon_keeps_the_rows_and_nothing_is_shown_twice(
    coordinator: str, table: sluice.Table, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "TAKEN_AFTER_S", 0.0)
    lose(table)
    assert len(filed(coordinator)) == 1
    before = sluice.conflicts(coordinator)
    [done] = [each for each in Daemon(coordinator).round() if each.task == "contention"]
    assert (done.error, done.result) == ("", "1 rows of 1 batches, 0 had no room")
    assert read_contention(connect(coordinator)).batches == ()
    [row] = kept(place, coordinator)
    assert (row["application"], row["winner"], row["day"]) == ("nightly", "load", row["at"].date())
    assert sluice.conflicts(coordinator) == before
    lose(table)
    filed(coordinator)
    [pair] = sluice.conflicts(coordinator)  # one row of the table, one of a batch
    assert pair.count == 2
    history = sluice.Table.open(place, coordinator=coordinator).history()
    assert [(each.operation, each.application) for each in history] == [("WRITE", APPLICATION), ("CREATE TABLE", APPLICATION)]


def test_batches_wait_for_some_minutes_unless_they_are_many(coordinator: str, place: str) -> None:
    session = connect(coordinator)
    file_batch(session, some(1))
    assert take(coordinator, None, APPLICATION, 30) == ""
    for _ in range(63):
        file_batch(session, some(1))
    assert take(coordinator, None, APPLICATION, 30).startswith("64 rows of 64 batches")


@pytest.mark.notices("batches-are-taken-once")
def test_batches_that_were_not_deleted_are_not_kept_twice(coordinator: str, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeping, "TAKEN_AFTER_S", -10.0)
    session = connect(coordinator)

    real = type(session).delete

    def die(store: CoordinationStore, path: str) -> None:
        if path.startswith(CONTENTION):
            raise KeyboardInterrupt
        real(store, path)

    file_batch(session, some(3))
    with monkeypatch.context() as patched:
        patched.setattr(type(session), "delete", die)
        with pytest.raises(KeyboardInterrupt):
            take(coordinator, None, APPLICATION, 30)
    file_batch(session, some(2))
    assert sum(each.count for each in sluice.conflicts(coordinator)) == 5
    assert len(read_contention(session).batches) == 2
    assert take(coordinator, None, APPLICATION, 30).startswith("2 rows of 2 batches")
    assert len(kept(place, coordinator)) == 5
    assert read_contention(session).batches == ()


def test_two_that_take_the_same_batches_keep_them_once(coordinator: str, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither holds the lease that daemons hold, as after a pause beyond the session."""
    monkeypatch.setattr(keeping, "TAKEN_AFTER_S", -10.0)
    session = connect(coordinator)
    file_batch(session, some(1))
    take(coordinator, None, APPLICATION, 30)  # the table is there
    for _ in range(5):
        for _ in range(4):
            file_batch(session, some(2))

        def work(_: int) -> None:
            with suppress(sluice.errors.ConcurrentTransactionException):
                take(coordinator, None, APPLICATION, 30)

        with ThreadPoolExecutor(3) as pool:
            list(pool.map(work, range(3)))
    take(coordinator, None, APPLICATION, 30)
    ids = [row["transaction_id"] for row in kept(place, coordinator)]
    assert (len(ids), len(set(ids))) == (41, 41)


@pytest.mark.notices("batches-after-a-newer-one-wait")
def test_batches_of_a_newer_release_wait_for_a_daemon_that_reads_them(
    coordinator: str, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "TAKEN_AFTER_S", -10.0)
    session = connect(coordinator)
    file_batch(session, some(1))
    newer = orjson.dumps({**orjson.loads(some(1).encode()), "format": 2, "more": 1})
    session.create(f"{CONTENTION}/b-{uuid.uuid4().hex}-1-", newer, sequential=True)
    file_batch(session, some(3))
    seen = read_contention(session)
    assert ([len(each.batch.rows) for each in seen.batches], seen.newer) == ([1], True)
    assert take(coordinator, None, APPLICATION, 30).endswith("others wait for a daemon of a newer release")
    assert len(kept(place, coordinator)) == 1
    assert len(session.children(CONTENTION) or ()) == 2


def test_old_days_are_deleted(coordinator: str, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeping, "TAKEN_AFTER_S", -10.0)
    session = connect(coordinator)
    file_batch(session, some(2))
    take(coordinator, None, APPLICATION, 50)
    assert len(kept(place, coordinator)) == 2
    file_batch(session, some(1))
    fast_ms = time.time_ns() // 1_000_000 + 60 * 86_400_000
    with monkeypatch.context() as patched:
        patched.setattr(SystemClock, "now_ms", lambda _self: fast_ms)  # of this machine only: nothing is old
        take(coordinator, None, APPLICATION, 30)
    assert len(kept(place, coordinator)) == 3
    monkeypatch.setattr(keeping, "write_through", lambda _session: (0.0, fast_ms))
    file_batch(session, some(1))
    take(coordinator, None, APPLICATION, 30)
    assert kept(place, coordinator) == []


# -- who is ranked first -----------------------------------------------------------------------------------------------------


def test_pairs_are_ranked_by_the_seconds_they_cost(coordinator: str) -> None:
    session = connect(coordinator)
    file_batch(session, some(3, seconds=1.5))
    file_batch(session, some(1, application="hourly", seconds=60.0, remedy="run it later"))
    file_batch(session, some(1, location="s3://lake/other", seconds=5.0))
    first, second, third = sluice.conflicts(coordinator)
    assert (first.application, first.winner, first.seconds, first.count, first.remedy) == ("hourly", "load", 60.0, 1, "run it later")
    assert (second.location, third.seconds, third.count) == ("s3://lake/other", 4.5, 3)
    assert [each.count for each in sluice.conflicts(coordinator, location="s3://lake/other")] == [1]
    time.sleep(0.3)
    assert sluice.conflicts(coordinator, since_s=0.2) == ()


def test_the_command_shows_the_same(coordinator: str) -> None:
    file_batch(connect(coordinator), some(2))
    result = CliRunner().invoke(main, ["conflicts", "--coordinator", coordinator, "--json", "--since", "2h", "--table", "s3://lake/t"])
    assert result.exit_code == 0, result.output
    [row] = json.loads(result.output)
    assert (row["seconds"], row["count"], row["application"], row["winner"]) == (4.0, 2, "nightly", "load")
    shown = CliRunner().invoke(main, ["conflicts", "--coordinator", coordinator]).output
    assert "seconds lost" in shown
    assert CliRunner().invoke(main, ["conflicts", "--coordinator", coordinator, "--table", "s3://lake/none"]).output == "none\n"
    wrong = CliRunner().invoke(main, ["conflicts", "--coordinator", coordinator, "--since", "yesterday"])
    assert wrong.exit_code == 2
    assert "1d" in wrong.output


def test_the_status_names_who_loses_again_and_again(coordinator: str, table: sluice.Table) -> None:
    file_batch(connect(coordinator), some(5, location=table.location, remedy="give each its partitions"))
    [message] = sluice.status(coordinator).messages
    assert (message.name, message.where, message.remedy.split(";")[0]) == ("loses-often", table.location, "give each its partitions")
    assert "nightly lost 5 times to load" in message.what


def test_the_select_on_the_page_ranks_them_too(coordinator: str, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeping, "TAKEN_AFTER_S", -10.0)
    file_batch(connect(coordinator), some(3, seconds=1.5))
    file_batch(connect(coordinator), some(1, application="hourly", seconds=60.0))
    take(coordinator, None, APPLICATION, 30)
    page = (Path(__file__).parents[2] / "docs" / "operations" / "contention.md").read_text()
    [select] = re.findall(r"```sql\n(.*?)```", page, re.DOTALL)
    rows = run(select.replace("s3://lake/contention", place), coordinator=coordinator).to_pylist()
    assert [(row["application"], row["seconds"], row["times"]) for row in rows] == [("hourly", 60.0, 1), ("nightly", 4.5, 3)]
    shown = {name for row in re.findall(r"^\| (`.*?`) \|", page, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)}
    assert {each.name for each in keeping.SCHEMA} <= shown


# -- real processes ----------------------------------------------------------------------------------------------------------

LOSER = """
import sys, sluice
table = sluice.Table.open(sys.argv[1], coordinator=sys.argv[2], application="nightly")
begun = table.begin()
begun.delete("id = 1")
print("read", flush=True)
sys.stdin.readline()
try:
    begun.commit()
except sluice.errors.ConcurrentModification:
    print("refused")
"""


def until(condition: Callable[[], object], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.zookeeper
def test_two_processes_that_meet_are_named_after_the_one_that_lost_ended(tmp_path: Path, zookeeper_address: str) -> None:
    table = sluice.Table.create(tmp_path / "table", ROWS.schema, coordinator=zookeeper_address, application="load")
    table.append(ROWS)
    program = [sys.executable, "-c", LOSER, table.location, zookeeper_address]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as loser:
        assert loser.stdout is not None
        assert loser.stdout.readline() == "read\n"
        table.delete("id > 0")
        told, _ = loser.communicate("\n", timeout=60)
    assert told == "refused\n"
    [pair] = sluice.conflicts(zookeeper_address)
    assert (pair.application, pair.winner, pair.count, pair.location) == ("nightly", "load", 1, table.location)


@pytest.mark.zookeeper
@pytest.mark.slow
def test_a_daemon_killed_between_the_table_and_the_batches_keeps_nothing_twice(tmp_path: Path, zookeeper_address: str) -> None:
    session = connect(zookeeper_address)
    place = str(tmp_path / "contention")
    for _ in range(64):
        file_batch(session, some(2))
    program = [sys.executable, "-m", "sluice", "daemon", "--once", "--coordinator", zookeeper_address, "--contention", place]
    # the first commit makes the table
    killed = subprocess.run(program, env={**os.environ, "SLUICE_FAILPOINT": "before-ack:2"}, stdout=subprocess.DEVNULL, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert len(kept(place, zookeeper_address)) == 128
    assert len(read_contention(session).batches) == 64
    assert sum(each.count for each in sluice.conflicts(zookeeper_address)) == 128
    until(lambda: take(zookeeper_address, None, APPLICATION, 30))
    assert len(kept(place, zookeeper_address)) == 128
    assert read_contention(session).batches == ()


def _tell(coordinator: str, location: str) -> None:
    lose(sluice.Table.open(location, coordinator=coordinator, application="forked"))


@pytest.mark.zookeeper
def test_a_process_of_multiprocessing_tells_what_it_has_before_it_ends(
    tmp_path: Path, zookeeper_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = sluice.Table.create(tmp_path / "table", ROWS.schema, coordinator=zookeeper_address, application="load")
    table.append(ROWS)
    BEGUN.cache_clear()
    monkeypatch.setattr(contention, "_begun", BEGUN)
    lose(table)
    child = multiprocessing.get_context("fork").Process(target=_tell, args=(zookeeper_address, table.location))
    child.start()
    child.join(60)
    assert child.exitcode == 0
    assert "forked" in {each.application for each in sluice.conflicts(zookeeper_address)}
    contention._recorder.flush(5)
    # what the parent has is its own: a child that filed it, too, would make it two; the parent's thread may have filed it before
    assert {each.application: each.count for each in sluice.conflicts(zookeeper_address)} == {"forked": 1, "load": 1}
    contention._recorder.forget()
    assert session_of("another address") is None
