"""What limits a table and what a person should know, judged from what was seen; and that the page names every message."""

from __future__ import annotations

import ast
import inspect
from typing import Any

import pytest
from msgspec.structs import replace

from sluice.coordinator.api import Quota, QuotaUse
from sluice.operating import judging
from sluice.operating.document import (
    Consumer,
    Coordinator,
    HeldLease,
    Leases,
    LeaseWaiter,
    Message,
    Publication,
    Queue,
    Refusals,
    Server,
    Table,
    Transaction,
    Upkeep,
)
from sluice.operating.judging import Seen, limit_of, messages_of, strongest
from sluice.operating.servers import margins
from tests.test_docs_tables import rows, section

WELL = Coordinator(
    address="zk://a,b,c/sluice",
    write_s=0.01,
    trouble=None,
    servers=(),
    may_stop_before_commits_do=None,
    may_be_lost_before_data_are=None,
    clients={"1.0": 2},
)
TABLE = Table(location="s3://lake/t", version=9)
WAITING = Transaction(id="x", operation="WRITE", application="load", host="h", pid=7, waits_s=60.0, clock_ahead_s=0.1)
HELD = HeldLease(lease="l-1", mode="exclusive", where="", application="repair", host="h2", pid=8, held_s=4000.0)
WAITER = LeaseWaiter("load", "h1", 7)
FILES = Upkeep(
    version=9, files=200, bytes=2000, small_files=0, small_bytes=0, files_with_vectors=0, deleted_rows=0, versions_since_checkpoint=3
)
LOST = Refusals(rule="delete-delete", application="a", winner="b", operation="MERGE", count=5, first="t1", last="t2")


def said(coordinator: Coordinator = WELL, **facts: Any) -> dict[str, Message]:
    return {each.name: each for each in messages_of(Seen(coordinator, [replace(TABLE, **facts)], 10_000_000))}


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({}, "workload"),
        ({"queue": Queue(3, replace(WAITING, waits_s=9.0))}, "workload"),
        ({"queue": Queue(3, WAITING)}, "client"),
        ({"queue": Queue(3, WAITING), "leases": Leases(1, 1, 60.0, HELD)}, "lease"),
        ({"leases": Leases(1, 1, 60.0, HELD)}, "lease"),
        ({"leases": Leases(1, 1, 1.0, HELD)}, "workload"),
        ({"leases": Leases(1, 0, 0.0, HELD)}, "workload"),
        ({"publication": Publication(1, 60.0, True)}, "store"),
        ({"publication": Publication(1, 60.0, None)}, "store"),
        ({"publication": Publication(1, 60.0, False)}, "publication"),
        ({"publication": Publication(8, 0.5, True)}, "store"),
        ({"publication": Publication(7, 0.5, True)}, "workload"),
    ],
)
def test_one_word_says_what_limits_a_table(facts: dict[str, Any], expected: str) -> None:
    table = replace(TABLE, **facts)
    assert limit_of(table, WELL, 10.0) == expected
    assert limit_of(table, replace(WELL, write_s=0.6), 10.0) == "coordinator"
    assert limit_of(table, replace(WELL, write_s=None, trouble="away"), 10.0) == "coordinator"


def test_the_strongest_limit_is_that_of_the_whole() -> None:
    assert strongest([]) == "workload"
    assert strongest(["workload", "lease", "store", "client"]) == "store"


@pytest.mark.parametrize(
    ("facts", "name", "severity", "words"),
    [
        ({"trouble": "why"}, "table-not-read", "warning", "why"),
        ({"trouble": "why", "log_trouble": "why", "log_damaged": True}, "table-not-read", "error", "why"),
        ({"publication": Publication(2, 60.0, False)}, "publication-stuck", "error", "from 8 on"),
        ({"queue": Queue(4, WAITING)}, "commit-waits", "error", "60 s, 3 behind it"),
        (
            {"leases": Leases(1, 2, 9.0, HELD, WAITER)},
            "lease-held-long",
            "warning",
            "1:06:40; 2 wait, first load on h1",
        ),
        ({"leases": Leases(1, 2, 60.0, replace(HELD, held_s=90.0), WAITER)}, "lease-waits", "warning", "load on h1 (process 7) for 60 s"),
        ({"leases": Leases(1, 0, 0.0, HELD)}, "lease-held-long", "note", "repair on h2 (process 8)"),
        ({"refusals": (LOST,)}, "loses-often", "warning", "a lost 5 times to b (MERGE)"),
        ({"ahead_s": 400 * 86400.0}, "clock-ahead", "warning", "400 days"),
        ({"queue": Queue(1, replace(WAITING, waits_s=1.0, clock_ahead_s=-30.0))}, "clock-apart", "warning", "30 s behind"),
        ({"consumers": (Consumer("c", 5, 7200.0),)}, "consumer-behind", "warning", "5 versions behind"),
        ({"consumers": (Consumer("c", 5, 1800.0),), "upkeep": replace(FILES, log_kept_s=3500.0)}, "consumer-behind", "error", "for 1.0 h"),
        ({"since_vacuum_s": 31 * 86400.0}, "vacuum-due", "note", "31 days"),
        ({"since_made_s": 32 * 86400.0}, "vacuum-due", "note", "32 days"),
        ({"upkeep": replace(FILES, small_files=100, small_bytes=1000)}, "small-files", "warning", "10 bytes"),
        ({"upkeep": replace(FILES, versions_since_checkpoint=100)}, "checkpoint-behind", "warning", "100 versions"),
        ({"upkeep": replace(FILES, version=100, versions_since_checkpoint=None)}, "checkpoint-behind", "warning", "no checkpoint"),
        ({"upkeep": replace(FILES, foreign=(9,))}, "foreign-commit", "error", "version 9"),
    ],
)
def test_what_is_wrong_with_a_table_is_said(facts: dict[str, Any], name: str, severity: str, words: str) -> None:
    [message] = said(**facts).values()
    assert (message.name, message.severity) == (name, severity)
    assert words in message.what
    assert message.remedy


@pytest.mark.parametrize(
    "facts",
    [
        {"publication": Publication(2, 9.0, False), "queue": Queue(4, replace(WAITING, waits_s=9.0))},
        {"leases": Leases(1, 2, 9.0, replace(HELD, held_s=3599.0), WAITER), "refusals": (replace(LOST, count=4), replace(LOST, winner=""))},
        {"ahead_s": 9.0, "consumers": (Consumer("c", 0, 7200.0), Consumer("d", 5, 60.0)), "since_vacuum_s": 29 * 86400.0},
        {"since_vacuum_s": 86400.0, "since_made_s": 400 * 86400.0},
        {"upkeep": replace(FILES, small_files=99, versions_since_checkpoint=None)},
        {"consumers": (Consumer("c", 5, 1800.0), Consumer("d", 0, 9e9)), "upkeep": replace(FILES, log_kept_s=3600.0)},
    ],
)
def test_what_is_not_wrong_is_not_said(facts: dict[str, Any]) -> None:
    assert said(**facts) == {}


LEADER, FOLLOWER = Server("a", "leader", 9, in_sync=True), Server("b", "follower", 9, in_sync=True)
AWAY = Server("c", "away", in_sync=False)


@pytest.mark.parametrize(
    ("servers", "expected", "names"),
    [
        ((LEADER, FOLLOWER, replace(FOLLOWER, host="c")), (1, 1), set()),
        ((LEADER, FOLLOWER, AWAY), (0, 1), {"server-away", "no-server-to-spare"}),
        ((AWAY, replace(AWAY, host="b"), Server("a", "not serving", in_sync=False)), (0, None), {"server-away", "no-server-to-spare"}),
        ((LEADER, FOLLOWER, replace(FOLLOWER, host="c"), Server("d", "observer", 9, in_sync=True)), (1, 1), set()),
        ((*(replace(FOLLOWER, host=host) for host in "bcde"), LEADER), (2, 2), set()),
        ((LEADER, FOLLOWER, Server("c", "closed")), (None, None), {"server-closed"}),
        ((LEADER, FOLLOWER, Server("c", "follower", 5, in_sync=False)), (1, 1), {"server-behind"}),
        ((Server("a", "standalone", 9, in_sync=True),), (0, 0), {"no-server-to-spare"}),
    ],
)
def test_how_many_servers_may_fail_is_said(servers: tuple[Server, ...], expected: tuple[int | None, int | None], names: set[str]) -> None:
    assert margins(servers) == expected
    may_stop, may_be_lost = expected
    found = replace(WELL, servers=servers, may_stop_before_commits_do=may_stop, may_be_lost_before_data_are=may_be_lost)
    assert set(said(found)) == names


def test_the_coordinator_and_its_clients_are_judged() -> None:
    away = replace(WELL, write_s=None, trouble="away", may_stop_before_commits_do=0, servers=(LEADER, AWAY, AWAY))
    assert set(said(away)) == {"coordinator-away", "server-away"}
    assert "take no other server out" not in said(away)["server-away"].what
    assert set(said(replace(WELL, write_s=0.6))) == {"coordinator-slow"}
    assert set(said(replace(WELL, clients={"1.0": 2, "1.1": 1}))) == {"several-releases"}


def test_who_waits_because_of_a_quota_is_said_after_the_bound() -> None:
    quota = Quota("load", "s3://lake/t", slots=2)
    uses = [QuotaUse(quota, 2, 0, None), QuotaUse(quota, 2, 5, 9_995_000), QuotaUse(quota, 2, 5, 9_985_000)]
    [message] = messages_of(Seen(WELL, [TABLE], 10_000_000, 10.0, quotas=uses))
    assert (message.name, message.severity, message.where) == ("quota-waits", "note", "s3://lake/t")
    assert "5 transactions wait, and 2 are in flight, because of the quota of application load" in message.what
    assert message.since == "1970-01-01T02:46:25.000Z"


def test_errors_come_first() -> None:
    seen = Seen(WELL, [replace(TABLE, since_vacuum_s=31 * 86400.0), replace(TABLE, publication=Publication(2, 60.0, False))], 10_000_000)
    assert [each.severity for each in messages_of(seen)] == ["error", "note"]


def test_the_page_names_every_message() -> None:
    calls = [node for node in ast.walk(ast.parse(inspect.getsource(judging))) if isinstance(node, ast.Call)]
    made = {
        str(call.args[0].value)
        for call in calls
        if isinstance(call.func, ast.Name) and call.func.id == "_message" and isinstance(call.args[0], ast.Constant)
    }
    listed = {name.strip("` ") for row in rows(section("operations.md", "What is going on?")) for name in row[0].split(",") if "-" in name}
    assert made == {each for each in listed if not each.startswith("--")}
