"""What a ratifying multi checks of leases, between the decision and the record of it: also where one has gone, and over several tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from sluice.coordinator.errors import LeaseHeld, LeaseLost
from sluice.coordinator.leases.lease import Lease, acquire
from sluice.coordinator.leases.queue import LeaseHome, Wanted
from sluice.coordinator.nodes.lease_records import EXCLUSIVE, Place
from sluice.coordinator.service.memory import Call, MemoryCoordination, MemorySession
from sluice.coordinator.service.store import Delete, Write

from .joint_world import JointWorld
from .world import World, append_intent


def before_a_head_moves(coordination: MemoryCoordination, step: Callable[[], object]) -> None:
    """Take a step after somebody decided, right before he ratifies."""

    def before(call: Call) -> None:
        if call.verb == "apply" and any(isinstance(op, Write) and op.path.endswith("/head") for op in call.ops):
            coordination.before = None
            step()

    coordination.before = before


def lease_of(connect: Callable[[], MemorySession], place: Place) -> Lease:
    return acquire(LeaseHome(connect), [Wanted(place, EXCLUSIVE)], 5.0)


def test_nobody_is_refused_for_a_lease_that_went_before_the_verdict() -> None:
    """The refusal is recorded in a multi that checks that what was in the way is there: it is decided again, and committed."""
    world = World()
    holder, client = world.client(), world.client()
    holder.append("first.parquet")
    lease = lease_of(lambda: holder.session, Place.of_table(world.tree))
    before_a_head_moves(world.coordination, lease.release)
    client.append("second.parquet", filed_again=True)
    assert world.files() == {"first.parquet", "second.parquet"}
    world.check()


def test_what_was_committed_is_so_whoever_holds_a_lease_since() -> None:
    """A reply was lost for so long that the transaction was committed and cleaned up, and somebody else took a lease: no failure (I12)."""
    world = World()
    holder, client = world.client(), world.client()
    mine = lease_of(lambda: client.session, Place.of_table(world.tree))
    intent = append_intent(client.head(), "mine.parquet", leases=tuple(mine.nodes))
    committed = client.commit(intent)
    mine.release()
    lease = lease_of(lambda: holder.session, Place.of_table(world.tree))
    again = client.commit(replace(intent, filed_again=True))
    assert (again.version, again.repeated) == (committed.version, True)
    lease.release()
    assert world.files() == {"mine.parquet"}
    world.check()


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
