"""Commits and leases: what a lease stops, what a commit under a lost one becomes, and what the ratifying multi checks.

Two leases meet where some partition could satisfy both conditions: compared with trying values.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from decimal import Decimal
from itertools import combinations_with_replacement

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.coordinator.errors import LeaseHeld, LeaseLost, NotCommitted
from sluice.coordinator.leases.granting import LeaseClient, Wanted
from sluice.coordinator.leases.lease import Lease, acquire
from sluice.coordinator.leases.scopes import overlap, scopes_meet
from sluice.coordinator.limits import Limits
from sluice.coordinator.nodes.layout import LeaseName, Place
from sluice.coordinator.nodes.records import EXCLUSIVE, SHARED, Grants, Head
from sluice.coordinator.rules.intent import DeclaredReads, Intent
from sluice.coordinator.service.memory import Call, MemoryCoordination, MemorySession
from sluice.coordinator.service.store import Delete, Write
from sluice.storage.actions import Metadata
from sluice.storage.pruning.predicate import Predicate
from sluice.storage.schema.schema import PrimitiveType, StructField, StructType
from tests.coordinator.joint_world import JointWorld
from tests.coordinator.leases.test_leases import TYPES, take, world
from tests.coordinator.world import DIRECT, QUICK, World, add, append_intent, intent_of
from tests.storage import conditions
from tests.storage.conditions import SCHEMA, Condition, Row
from tests.storage.strategies import examples

__all__ = ["world"]


def in_partition(head: Head, partition: str, **changes: object) -> Intent:
    """An append into one partition."""
    reads = DeclaredReads(nothing=True, partition_types=dict(TYPES))
    file = add(f"p={partition}/{time.time_ns()}.parquet", partition_values={"d": None, "p": partition})
    return intent_of(head, [file], reads, dict(changes))


def reading(head: Head, predicate: str, writes: str) -> Intent:
    reads = DeclaredReads(predicates=(predicate,), partition_types=dict(TYPES))
    return intent_of(head, [add(f"p={writes}/{time.time_ns()}.parquet", partition_values={"d": None, "p": writes})], reads)


def nodes(lease: Lease) -> tuple[str, ...]:
    return tuple(lease.nodes)


BOTH_PATHS = pytest.mark.parametrize("limits", [QUICK, DIRECT], ids=["queue", "fast path"])


@BOTH_PATHS
def test_an_exclusive_lease_stops_what_it_covers_and_nothing_else(world: World, limits: Limits) -> None:
    holder, other = world.client(limits), world.client(limits)
    other.append("first.parquet")
    lease = take(holder, where="p = 'a'")
    other.commit(in_partition(other.head(), "b"))
    with pytest.raises(LeaseHeld) as caught:
        other.commit(in_partition(other.head(), "a"))
    assert caught.value.facts["lease"] in lease.nodes
    with pytest.raises(LeaseHeld):
        other.commit(reading(other.head(), "p = 'a' AND x = 7", "b"))
    other.commit(reading(other.head(), "p = 'b' AND x = 7", "b"))
    with pytest.raises(LeaseHeld):
        other.commit(intent_of(other.head(), [Metadata("id", '{"type":"struct","fields":[]}', (), {})], DeclaredReads()))
    holder.commit(in_partition(holder.head(), "a", leases=nodes(lease)))
    lease.release()
    other.commit(in_partition(other.head(), "a"))
    assert len(world.transactions()) == 5


def test_shared_leases_keep_changes_of_others_out(world: World) -> None:
    one, two, other = (world.client() for _ in range(3))
    mine, theirs = take(one, SHARED, "p = 'a'"), take(two, SHARED, "p <= 'b'")
    with pytest.raises(LeaseHeld, match="a shared lease on"):
        other.commit(in_partition(other.head(), "a"))
    other.commit(reading(other.head(), "p = 'a'", "c"))
    one.commit(in_partition(one.head(), "a", leases=nodes(mine)))
    two.commit(in_partition(two.head(), "b", leases=nodes(theirs)))
    mine.release()
    theirs.release()


@BOTH_PATHS
def test_i9_a_commit_under_a_lost_lease_is_refused(world: World, limits: Limits) -> None:
    client = world.client(limits)
    lease = take(client)
    client.session.expire()
    lease.lost.wait(5)
    with pytest.raises(LeaseLost):
        client.append(leases=nodes(lease))
    assert world.files() == set()


def before_a_head_moves(coordination: MemoryCoordination, step: Callable[[], object]) -> None:
    """Take a step of somebody else after a client decided, right before it ratifies."""

    def before(call: Call) -> None:
        if call.verb == "apply" and any(isinstance(op, Write) and op.path.endswith("/head") for op in call.ops):
            coordination.before = None
            step()

    coordination.before = before


@pytest.mark.notices("leases-relied-on-are-checked", "leases-are-checked")
@BOTH_PATHS
def test_i9_a_lease_that_is_lost_between_decision_and_ratification(world: World, limits: Limits) -> None:
    client, admin = world.client(limits), world.client(limits)
    client.append("first.parquet")
    lease = take(client)
    before_a_head_moves(world.coordination, lambda: admin.session.apply([Delete(path) for path in nodes(lease)]))
    with pytest.raises(LeaseLost):
        client.append("second.parquet", leases=nodes(lease))
    assert world.files() == {"first.parquet"}
    assert lease.lost.wait(5)
    lease.release()


@pytest.mark.notices("grants-are-compared", "others-leases-object", "outdated-views-are-forgotten")
@BOTH_PATHS
def test_a_grant_between_decision_and_ratification_stops_the_commit(world: World, limits: Limits) -> None:
    holder, client = world.client(limits), world.client(limits)
    client.append("first.parquet")
    taken: list[Lease] = []
    before_a_head_moves(world.coordination, lambda: taken.append(take(holder)))
    with pytest.raises(LeaseHeld):
        client.append("second.parquet")
    assert world.files() == {"first.parquet"}
    taken[0].release()
    client.append("third.parquet")


@pytest.mark.notices("lost-leases-are-found")
def test_of_a_batch_only_the_one_without_its_lease_is_refused(world: World) -> None:
    dead, alive = world.client(), world.client()
    lease = take(dead)
    path = nodes(lease)
    alive.session.delete(path[0])
    lease.lost.wait(5)
    lease.release()
    world.objects.disk.slow("put_if_absent", lambda: time.sleep(0.01), times=100)
    clients = [world.client() for _ in range(6)]

    def work(n: int) -> str:
        intent = append_intent(clients[n].head(), f"{n}.parquet", leases=path if n == 3 else (), filed_again=True)
        try:
            clients[n].commit(intent)
        except NotCommitted as refused:
            return type(refused).__name__
        return "committed"

    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(work, range(6))) == ["committed"] * 3 + ["LeaseLost"] + ["committed"] * 2


@pytest.mark.parametrize(
    "path",
    ["", "/", "/tables/../../zookeeper", "/names/../leases/l-x-0000000001", "/clients/x", "/names/a/leases/l-x-1", "/tables/a/head/b/c"],
)
def test_a_path_that_is_no_lease_is_a_lost_one(world: World, path: str) -> None:
    with pytest.raises(LeaseLost):
        world.client().append(leases=(path,))
    with pytest.raises(LeaseLost):
        world.client().append(leases=(path,), filed_again=True)


def test_a_request_that_cannot_be_read_asks_for_everything(world: World) -> None:
    strange, client = world.client(), world.client()
    place = Place.of_table(world.tree)
    path = strange.session.create(place.node(LeaseName.prefix("newer")), b'{"mode": "upside-down"}', ephemeral=True, sequential=True)
    node = strange.session.read(place.leases)
    assert node is not None
    strange.session.write(place.leases, b"{}{", version=node.version)
    with pytest.raises(LeaseHeld, match="unreadable"):
        client.append()
    strange.session.delete(path)
    client.append()


@BOTH_PATHS
def test_the_usual_commit_costs_no_read_for_leases(world: World, limits: Limits) -> None:
    client = world.client(limits)
    client.append()
    seen: list[str] = []
    world.coordination.after = lambda call: seen.append(call.path) if call.verb in ("read", "read_many", "children") else None
    client.append()
    assert [path for path in seen if "leases" in path] == []


def test_a_tree_made_before_there_were_leases(world: World) -> None:
    client = world.client()
    client.session.delete(Place.of_table(world.tree).leases)
    client.append()
    client.session.delete(Place.of_table(world.tree).leases)
    with take(world.client()) as lease, pytest.raises(LeaseHeld):
        world.client().append()
    assert not lease.held


def test_a_released_lease_costs_nobody_anything_for_long(world: World) -> None:
    client, holder = world.client(), world.client()
    with take(holder), pytest.raises(LeaseHeld):
        client.append()
    client.append()
    assert client.coordinated.guard._free is not None


def test_grants_forget_what_is_gone() -> None:
    grants = Grants(("l-a-0000000001", "l-b-0000000002"))
    there = ("l-b-0000000002", "l-c-0000000003")
    assert grants.with_granted(["l-c-0000000003"], existing=there).granted == there


def lease_of(connect: Callable[[], MemorySession], place: Place) -> Lease:
    return acquire(LeaseClient(connect), [Wanted(place, EXCLUSIVE)], 5.0)


@pytest.mark.notices("leases-in-the-way-are-checked")
def test_nobody_is_refused_for_a_lease_that_went_before_the_verdict(world: World) -> None:
    """The refusal is recorded in a multi that checks that what was in the way is there: it is decided again, and committed."""
    holder, client = world.client(), world.client()
    holder.append("first.parquet")
    before_a_head_moves(world.coordination, take(holder).release)
    client.append("second.parquet", filed_again=True)
    assert world.files() == {"first.parquet", "second.parquet"}


def test_what_was_committed_is_so_whoever_holds_a_lease_since(world: World) -> None:
    """A reply was lost for so long that the transaction was committed and cleaned up, and somebody else took a lease: no failure (I12)."""
    holder, client = world.client(), world.client()
    mine = take(client)
    intent = append_intent(client.head(), "mine.parquet", leases=nodes(mine))
    committed = client.commit(intent)
    mine.release()
    lease = take(holder)
    again = client.commit(replace(intent, filed_again=True))
    assert (again.version, again.repeated) == (committed.version, True)
    lease.release()
    assert world.files() == {"mine.parquet"}


@pytest.mark.notices("leases-are-checked")
def test_i9_a_lease_that_is_lost_before_several_heads_move() -> None:
    world = JointWorld("ab")
    client = world.client()
    client.append("ab")
    place = Place.of_table(world.tables["b"].tree)
    lease = lease_of(client.connect, place)
    intents = {name: append_intent(client.head(name), transaction_id="t-1", leases=tuple(lease.nodes)) for name in "ab"}
    admin = world.coordination.connect()
    before_a_head_moves(world.coordination, lambda: admin.apply([Delete(path) for path in lease.nodes]))
    with pytest.raises(LeaseLost):
        client.commit(intents)
    assert [len(table.log()) for table in world.tables.values()] == [1, 1]
    lease.release()
    world.check()


def test_a_grant_before_several_heads_move_stops_the_commit() -> None:
    world = JointWorld("ab")
    client, holder = world.client(), world.client()
    client.append("ab")
    taken: list[Lease] = []
    before_a_head_moves(world.coordination, lambda: taken.append(lease_of(holder.connect, Place.of_table(world.tables["b"].tree))))
    with pytest.raises(LeaseHeld):
        client.append("ab")
    assert [len(table.log()) for table in world.tables.values()] == [1, 1]
    taken[0].release()
    client.append("ab")
    world.check()


X = StructType([StructField("x", PrimitiveType("decimal(3,1)"))])
HALVES: Sequence[Decimal | None] = (None, *(Decimal(n) / 2 for n in range(-2, 20)))


@pytest.mark.slow
@examples(200)
@given(conditions.condition(), conditions.condition(), st.lists(conditions.row(), min_size=1, max_size=6))
def test_conditions_that_hold_for_the_same_row_overlap(one: Condition, other: Condition, rows: list[Row]) -> None:
    meets = overlap(Predicate.parse(one.sql, SCHEMA).root, Predicate.parse(other.sql, SCHEMA).root, SCHEMA)
    assert meets or not any(one.holds(row) and other.holds(row) for row in rows)


def _holds(sql: str) -> frozenset[Decimal | None]:
    mask = Predicate.parse(sql, X).mask(pa.table({"x": pa.array(HALVES, pa.decimal128(3, 1))})).to_pylist()
    return frozenset(value for value, found in zip(HALVES, mask, strict=True) if found)


SIMPLE = [
    *(f"x {op} {bound}" for op in ("=", "<>", "<", "<=", ">", ">=") for bound in (1, 3)),
    *("x BETWEEN 1 AND 3", "x > 1 AND x < 3", "x >= 3 AND x < 5", "x NOT IN (1, 3)", "x IN (1, 3)", "x IN (2, 5, NULL)", "x IS NULL"),
    *("x IS NOT NULL", "x <=> 1", "x <=> NULL", "NOT (x <=> 1)", "x = 1 OR x = 5", "x < 1 OR x > 5", "x = 2 OR x IS NULL", "TRUE", "FALSE"),
    *("x = 1 AND x = 3", "(x = 1 OR x = 2) AND x >= 2", "NOT (x < 1 OR x > 3)", "x = NULL", "3 > x", "x + 0 = 3"),
]
UNDECIDED = {"x + 0 = 3"}


@pytest.mark.parametrize(("one", "other"), [*combinations_with_replacement(SIMPLE, 2)])
@pytest.mark.many
def test_simple_conditions_overlap_where_a_value_satisfies_both(one: str, other: str) -> None:
    expected = bool(_holds(one) & _holds(other))
    found = overlap(Predicate.parse(one, X).root, Predicate.parse(other, X).root, X)
    if {one, other} & UNDECIDED:
        assert found or not expected
    else:
        assert found == expected


@pytest.mark.parametrize(
    ("kind", "one", "other", "expected"),
    [
        ("boolean", "p", "NOT p", False),
        ("boolean", "p = TRUE", "p IS NOT NULL", True),
        ("timestamp", "p >= TIMESTAMP '2020-01-01 00:00:00.000001Z'", "p < TIMESTAMP '2020-01-01 00:00:00.000001Z'", False),
        ("date", "p = '2020-01-01'", "p = '2020-01-02'", False),
        ("date", "p < TIMESTAMP '2020-01-02 00:00:00Z'", "p >= DATE '2020-01-02'", False),
        ("date", "year(p) = 2020", "p >= DATE '2021-01-01'", False),
        ("integer", "p > 3000000000", "p = 1", False),
        ("long", "p = 9007199254740993", "p = 9007199254740992.0D", True),
        ("decimal(38,2)", "p = 12345678901234567890.12", "p = 12345678901234567890.13", False),
        ("string", "p LIKE 'ab%'", "p = 'ac'", False),
        ("string", "p = 'abcdefghijklmnopqrstuvwxyzabcdefghijkl'", "p = 'abcdefghijklmnopqrstuvwxyzabcdefghijkm'", False),
        ("double", "p = 0.5D", "p = 1.5D", False),
        ("double", "p > 5", "isnan(p)", True),
        ("double", "p > 5", "p = CAST('NaN' AS DOUBLE)", True),
        ("string", "d >= DATE '2013-01-01' AND d < DATE '2013-02-01'", "d BETWEEN DATE '2013-02-01' AND DATE '2013-02-28'", False),
        ("string", "d >= DATE '2013-01-01' AND d <= DATE '2013-02-01'", "d BETWEEN DATE '2013-02-01' AND DATE '2013-02-28'", True),
        (
            "string",
            "(p = 'a' AND d = DATE '2013-01-01') OR (p = 'b' AND d = DATE '2013-01-02')",
            "p = 'b' AND d = DATE '2013-01-01'",
            False,
        ),
        ("string", "p = 'a' OR rows_of_it = 7", "p = 'b'", True),
        ("string", "p = 'a' AND rows_of_it = 7", "p = 'b'", False),
        ("string", "length(p) = 1", "p = 'bb'", True),
        ("string", "this is no condition", "p = 'b'", True),
    ],
)
def test_conditions_meet_unless_no_partition_can_satisfy_both(kind: str, one: str, other: str, expected: bool) -> None:
    types = {"p": kind, "d": "date"}
    assert scopes_meet(one, types, other, types) is expected
    assert scopes_meet(other, types, one, types) is expected


@pytest.mark.costly
def test_conditions_that_name_very_many_partitions_are_told_apart() -> None:
    types = {"p": "long", "q": "string"}
    even = " OR ".join(f"(p = {n} AND q = 'a')" for n in range(0, 2000, 2))
    odd = " OR ".join(f"(p = {n} AND q = 'a')" for n in range(1, 2000, 2))
    assert not scopes_meet(even, types, odd, types)
    assert scopes_meet(even, types, "p = 4", types)
    assert not scopes_meet(f"p IN ({', '.join(map(str, range(5000)))})", types, "p = 5000", types)
