"""Connected clients, the burial of a client that is gone, and that nothing is filed for it afterwards."""

from __future__ import annotations

import gc
import os
import pickle
import socket

import pytest

from sluice.coordinator.errors import TransactionExpired
from sluice.coordinator.limits import Limits
from sluice.coordinator.nodes.presence import (
    GRAVES_KEPT_MS,
    TERM_MAX,
    Client,
    ClientNode,
    Owner,
    Presence,
    another_id,
    bury,
    clear_graves,
    id_in,
    list_clients,
    new_client,
    new_id,
    new_plan_id,
    owner_of,
    term_of,
)
from sluice.coordinator.service.clock import SystemClock
from sluice.coordinator.service.memory import Fault, MemoryCoordination, MemorySession
from sluice.installation import __version__
from tests.coordinator.joint_world import JointWorld
from tests.coordinator.world import DIRECT, QUICK, World, append_intent


class Clock(SystemClock):
    """Stops until the test lets it go on."""

    def __init__(self, now_ms: int = 1000) -> None:
        self.ms = now_ms

    def now_ms(self) -> int:
        return self.ms

    def monotonic_s(self) -> float:
        return self.ms / 1000


class Process:
    """A process with a presence, whose sessions are replaced as `connect` does it."""

    def __init__(self, coordination: MemoryCoordination, application: str = "", since_ms: int = 1000) -> None:
        self.coordination = coordination
        self.session: MemorySession = coordination.connect()
        self.clock = Clock(since_ms)
        self.presence = Presence(self.connect, application=application, clock=self.clock)

    def connect(self) -> MemorySession:
        if self.session.lost:
            self.session = self.coordination.connect()
        return self.session


@pytest.fixture
def process() -> Process:
    return Process(MemoryCoordination())


def owner_for(transaction_id: str) -> Owner:
    owner = owner_of(transaction_id)
    assert owner is not None
    return owner


def is_there(session: MemorySession, owner: Owner) -> bool:
    return session.read(owner.path) is not None


def oldest_term(session: MemorySession, owner: Owner) -> int:
    node = session.read(owner.path)
    assert node is not None
    return ClientNode.decode(node.data).oldest_term


def buried(coordination: MemoryCoordination, owner: Owner) -> bool:
    return bury(coordination.connect(), owner, by="test", now_ms=0)


# -- ids -----------------------------------------------------------------------------------------------------------------


def test_an_id_tells_its_client() -> None:
    client = new_client()
    ids = {new_id(client, 7, number, 0) for number in range(100)}
    assert len(ids) == 100
    assert {owner_for(each).path for each in ids} == {f"/clients/{client}"}
    one = ids.pop()
    assert owner_for(another_id(one)) == owner_for(one)
    assert another_id(one) != one
    assert {term_of(one), term_of(another_id(one))} == {7}
    assert id_in(f"p=1/part-00000-{one}-o2-0.zstd.parquet") == one
    assert id_in(f"{one}/deletion_vector_7c9e6679-7425-40de-944b-e07fc1f90ae7.bin") == one


def test_a_plans_attempts_have_one_owner_and_are_the_same_for_whoever_counts_them() -> None:
    plan = new_plan_id(0)
    second = another_id(plan)
    assert second == another_id(plan) != plan
    assert len({plan, second, another_id(second)}) == 3
    assert owner_for(second) == owner_for(plan)
    assert not owner_for(plan).is_client
    assert owner_for(new_plan_id(0)) != owner_for(plan)


@pytest.mark.parametrize(
    "text",
    [
        "part-00000-7c9e6679-7425-40de-944b-e07fc1f90ae7-c000.snappy.parquet",  # another engine's: version 4
        "deletion_vector_7c9e6679-7425-40de-944b-e07fc1f90ae7.bin",
        "x7c9e6679-7425-80de-944b-e07fc1f90ae7a",  # longer than an id
        "7c9e6679742580de944be07fc1f90ae7",
        "",
    ],
)
def test_what_is_no_id_of_ours_has_no_owner(text: str) -> None:
    assert id_in(text) is None
    assert owner_of(text) is None


# -- being there ---------------------------------------------------------------------------------------------------------


def test_nobody_is_connected_to_an_empty_tree() -> None:
    assert list_clients(MemoryCoordination().connect()) == []


def test_clients_are_listed_oldest_first_with_what_they_said() -> None:
    coordination = MemoryCoordination()
    late, early = Process(coordination, "late", 2000), Process(coordination, "early", 1000)
    late.presence.announce()
    early.presence.announce()
    listed = list_clients(late.session)
    assert [client.application for client in listed] == ["early", "late"]
    name = owner_for(early.presence.begin()).name
    assert listed[0] == Client(name, socket.gethostname(), os.getpid(), "early", 1000, __version__)


def test_a_strange_node_is_listed_and_hides_nobody(process: Process) -> None:
    process.presence.announce()
    process.session.create("/clients/strange", b"{}")
    listed = {client.id: client for client in list_clients(process.session)}
    assert len(listed) == 2
    assert listed["strange"].application.startswith("(unreadable: ")


def test_announcing_again_costs_nothing(process: Process) -> None:
    process.presence.announce()
    before = process.coordination.calls.total()
    process.presence.announce()
    process.presence.begin()
    assert process.coordination.calls.total() == before


def test_a_client_is_gone_with_its_session() -> None:
    coordination = MemoryCoordination()
    one, other = Process(coordination, "a"), Process(coordination, "b")
    one.presence.announce()
    other.presence.announce()
    one.session.expire()
    assert [client.application for client in list_clients(other.session)] == ["b"]


@pytest.mark.parametrize("fault", list(Fault))
@pytest.mark.parametrize("verb", ["apply", "ensure_path", "read"])
def test_a_lost_reply_does_not_lose_or_double_a_client(process: Process, fault: Fault, verb: str) -> None:
    process.coordination.inject(fault, verb=verb)
    begun = process.presence.begin()
    assert len(list_clients(process.connect())) == 1
    assert is_there(process.connect(), owner_for(begun))


def test_a_client_that_leaves_while_it_is_listed_is_left_out() -> None:
    coordination = MemoryCoordination()
    one, other = Process(coordination, "a"), Process(coordination, "b")
    one.presence.announce()
    other.presence.announce()
    coordination.before = lambda call: other.session.close() if call.verb == "read_many" else None
    assert [client.application for client in list_clients(one.session)] == ["a"]


# -- coming back, and being buried ---------------------------------------------------------------------------------------


def test_a_client_comes_back_under_its_id_when_its_session_expired(process: Process) -> None:
    begun = process.presence.begin()
    process.session.expire()
    assert process.presence.restore(owner_for(begun))
    assert is_there(process.session, owner_for(begun))
    assert owner_for(process.presence.begin()) == owner_for(begun)


def test_the_node_of_a_session_that_is_over_and_has_not_expired_is_taken_over(process: Process) -> None:
    begun = process.presence.begin()
    former, process.session = process.session, process.coordination.connect()
    process.presence.announce()
    former.expire()
    assert is_there(process.session, owner_for(begun))


@pytest.mark.notices("the-living-are-not-buried")
def test_whoever_is_there_cannot_be_buried(process: Process) -> None:
    begun = process.presence.begin()
    assert not buried(process.coordination, owner_for(begun))
    assert is_there(process.session, owner_for(begun))


@pytest.mark.notices("the-buried-stay-away")
def test_whoever_was_buried_does_not_come_back(process: Process) -> None:
    begun = process.presence.begin()
    process.session.expire()
    assert buried(process.coordination, owner_for(begun))
    assert buried(process.coordination, owner_for(begun)), "a second time changes nothing"
    assert not process.presence.restore(owner_for(begun))
    assert not is_there(process.connect(), owner_for(begun))
    assert list_clients(process.session) == []
    after = process.presence.begin()  # goes on as another one
    assert owner_for(after) != owner_for(begun)
    assert is_there(process.session, owner_for(after))
    assert len(list_clients(process.session)) == 1


def test_nobody_is_buried_where_all_data_were_lost_and_the_next_attempt_does_it() -> None:
    coordination = MemoryCoordination()
    owner = owner_for(new_id(new_client(), 0, 1, 0))
    assert not buried(coordination, owner)
    assert buried(coordination, owner)


def test_an_id_of_somebody_else_is_not_restored(process: Process) -> None:
    process.presence.announce()
    assert not process.presence.restore(owner_for(new_id(new_client(), 0, 1, 0)))
    assert not process.presence.restore(owner_for(new_plan_id(0)))


@pytest.mark.notices("away-for-too-long-is-away")
def test_a_client_that_was_away_for_very_long_does_not_come_back(process: Process) -> None:
    """Its grave may have been cleared meanwhile."""
    begun = process.presence.begin()
    process.session.expire()
    assert buried(process.coordination, owner_for(begun))
    assert clear_graves(process.connect(), now_ms=GRAVES_KEPT_MS) == 0
    assert clear_graves(process.connect(), now_ms=GRAVES_KEPT_MS + 1) == 1
    process.clock.ms += 31 * 24 * 3600 * 1000 + process.presence._now_ms()  # the machine's own clock counts too
    assert not process.presence.restore(owner_for(begun))
    assert owner_for(process.presence.begin()) != owner_for(begun)


# -- terms ---------------------------------------------------------------------------------------------------------------


@pytest.mark.notices("terms-are-held")
def test_a_term_is_given_up_when_the_last_transaction_begun_in_it_is_forgotten(process: Process) -> None:
    kept, owner = process.presence.begin(), owner_for(process.presence.begin())
    assert oldest_term(process.session, owner) == 0
    process.clock.ms += 3_600_000
    later = process.presence.begin()
    assert owner_for(later) == owner
    assert (term_of(kept), term_of(later)) == (0, 1)
    assert oldest_term(process.session, owner) == 0
    again = process.presence.again(kept)
    del kept
    gc.collect()
    process.presence.begin()
    assert oldest_term(process.session, owner) == 0, "it is held under another id"
    assert term_of(again) == 0
    del again
    gc.collect()
    process.presence.begin()
    assert oldest_term(process.session, owner) == 1
    assert term_of(later) == 1


def test_a_client_without_transactions_gives_up_its_terms_when_it_begins_the_next(process: Process) -> None:
    owner = owner_for(process.presence.begin())
    for hour in range(1, 4):
        process.clock.ms += 3_600_000
        assert term_of(process.presence.begin()) == hour
        assert oldest_term(process.session, owner) == hour


def test_what_is_held_is_told_in_another_session_too(process: Process) -> None:
    process.presence.begin()
    process.clock.ms += 3_600_000
    kept = process.presence.begin()
    process.clock.ms += 3_600_000
    process.session.expire()
    process.presence.announce()
    assert oldest_term(process.session, owner_for(kept)) == 1


def test_the_last_term_is_never_left(process: Process) -> None:
    process.presence._life.term = TERM_MAX
    process.clock.ms += 3_600_000
    assert term_of(process.presence.begin()) == TERM_MAX


def test_an_id_travels_as_text(process: Process) -> None:
    begun = process.presence.begin()
    assert pickle.loads(pickle.dumps(begun)) == begun


NOBODY = "00000000abcd"


@pytest.mark.notices("filed-while-the-owner-stands", "filed-while-the-owner-stands-on-the-fast-path")
@pytest.mark.parametrize("limits", [QUICK, DIRECT], ids=["queue", "fast path"])
@pytest.mark.parametrize("transaction_id", [new_id(NOBODY, 0, 1, 0), new_plan_id(0)], ids=["client", "plan"])
def test_a_transaction_of_nobody_is_not_filed(limits: Limits, transaction_id: str) -> None:
    world = World()
    client = world.client(limits)
    client.append("first.parquet")
    with pytest.raises(TransactionExpired):
        client.commit(append_intent(client.head(), transaction_id=transaction_id))
    assert world.files() == {"first.parquet"}


@pytest.mark.notices("filed-while-the-owner-stands")
@pytest.mark.parametrize("transaction_id", [new_id(NOBODY, 0, 1, 0), new_plan_id(0)], ids=["client", "plan"])
def test_a_transaction_of_nobody_is_filed_in_none_of_several_tables(transaction_id: str) -> None:
    world = JointWorld("ab")
    client = world.client()
    client.append("ab")
    assert owner_of(transaction_id) is not None
    with pytest.raises(TransactionExpired):
        client.commit({name: append_intent(client.head(name), transaction_id=transaction_id) for name in "ab"})
    assert [len(table.log()) for table in world.tables.values()] == [1, 1]
    world.check()
