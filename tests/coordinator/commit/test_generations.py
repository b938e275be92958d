"""Generations of slots: the next one opens once every slot of the present one is decided and published, so none can come too late."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sluice.coordinator.commit import retention
from sluice.coordinator.commit.outcomes import Claim
from sluice.coordinator.nodes.context import undecided
from sluice.coordinator.nodes.presence import new_client, new_id, owner_of
from sluice.coordinator.service.memory import Call, Fault
from sluice.coordinator.service.store import Delete
from tests.coordinator.world import DIRECT, QUICK, Client, World, append_intent, claim_slot, commit_one, soon
from tests.mending import mend

ONE_SLOT = replace(QUICK, generation_slots_max=1)


def generations(world: World, client: Client) -> list[int]:
    return sorted(int(name) for name in client.session.children(world.tree.generations) or ())


def opens(call: Call) -> bool:
    """Whether a request opens the next generation."""
    return any(isinstance(op, Delete) and op.path.rpartition("/")[0].endswith("/slots") for op in call.ops)


@pytest.fixture
def world() -> World:
    return World()


def test_the_next_generation_takes_the_place_of_an_empty_one(world: World) -> None:
    client = world.client(replace(QUICK, generation_slots_max=2))
    for number in range(5):
        client.append()
        head = client.head()
        assert (head.generation, head.slot) == divmod(number, 2)
        assert generations(world, client) == [head.generation]
    assert [len(version) > 0 for version in world.log()] == [True] * 5


@pytest.mark.notices("slots-count-within-their-generation")
def test_a_slot_of_an_earlier_generation_is_decided(world: World) -> None:
    """Whatever its number is: a slot of a new generation has a low number again."""
    client = world.client(replace(QUICK, generation_slots_max=2))
    client.append()
    before = client.head()
    claim = claim_slot(client.context, append_intent(before), before, soon())
    assert not claim.is_decided(before)
    assert client.outcome(claim.transaction_id).commit is not None
    client.append()
    after = client.head()
    assert (after.generation, after.slot) == (1, 0)
    assert claim.slot > after.slot
    assert claim.is_decided(after)
    assert not Claim(claim.transaction_id, 2, 0).is_decided(after)


def test_a_slot_that_is_filed_meanwhile_keeps_its_generation(world: World) -> None:
    """It is filed by a client that read the head before the last slot was decided; the coordinator removes no node with children."""
    client, late = world.client(ONE_SLOT), world.client()
    stale = late.head()
    client.append("first.parquet")
    intent = append_intent(stale, "late.parquet")
    world.once(lambda: claim_slot(late.context, intent, stale, soon()), opens)
    client.append("last.parquet")
    assert sorted(world.files()) == ["first.parquet", "last.parquet", "late.parquet"]
    assert world.transactions().count(intent.transaction_id) == 1


@pytest.mark.notices("generations-open-on-the-head-that-was-read")
def test_what_is_ratified_meanwhile_without_a_slot_stays(world: World) -> None:
    """On the fast path of a client with another limit: no slot and no publication shows it, only the head."""
    client, other = world.client(ONE_SLOT), world.client(DIRECT)
    client.append("first.parquet")

    def ratify() -> None:
        world.objects.disk.throttle("put_if_absent", times=10_000)
        assert not other.commit(append_intent(other.head(), "other.parquet"), ack="ratified").published
        assert other.head().slot == 0, "it has no slot"
        assert not other.coordinated.background.drain(0.5)
        mend(world.objects.disk)

    world.once(ratify, opens)
    client.append("last.parquet")
    assert world.files() == {"first.parquet", "other.parquet", "last.parquet"}
    assert client.head().version == 2


def test_who_read_an_earlier_generation_files_in_the_present_one(world: World) -> None:
    client, late = world.client(ONE_SLOT), world.client()
    stale = late.head()
    for _ in range(3):
        client.append()
    assert client.head().generation > stale.generation
    commit = commit_one(late.coordinated, append_intent(stale, "late.parquet"), stale, soon())
    assert not commit.repeated
    assert "late.parquet" in world.files()


@pytest.mark.notices("generations-are-drained")
def test_nobody_waits_for_ever_for_the_slot_of_a_dead_owner(world: World) -> None:
    """Its generation stays until somebody with a later slot has decided it."""
    dead, client = world.client(), world.client(ONE_SLOT)
    client.append()
    orphan = append_intent(client.head(), "orphan.parquet")
    dead.claim(orphan)
    client.append("next.parquet")
    assert client.head().generation == 0
    assert {"orphan.parquet", "next.parquet"} <= world.files()
    client.append()
    assert client.head().generation == 1
    assert world.transactions().count(orphan.transaction_id) == 1


@pytest.mark.notices("generations-open-when-published")
def test_a_generation_stays_until_its_versions_are_published(world: World) -> None:
    """Otherwise nobody would see that they have to be."""
    client, other = world.client(ONE_SLOT), world.client(ONE_SLOT)
    world.objects.disk.throttle("put_if_absent", times=10_000)
    client.commit(append_intent(client.head(), "first.parquet"), ack="ratified")
    intent = append_intent(other.head(), "second.parquet")
    other.commit(intent, ack="ratified")
    assert other.head().generation == 0
    assert not client.coordinated.background.drain(5)
    mend(world.objects.disk)
    other.append("third.parquet")
    assert world.files() == {"first.parquet", "second.parquet", "third.parquet"}
    other.append()
    assert other.head().generation == 1


@pytest.mark.parametrize("fault", [Fault.REQUEST_LOST, Fault.REPLY_LOST])
def test_a_generation_opens_once_although_an_answer_is_lost(world: World, fault: Fault) -> None:
    client = world.client(ONE_SLOT)
    client.append()
    world.coordination.inject(fault, verb="apply", path=world.tree.slots(0), session=client.session)
    client.append()
    assert client.head().generation == 1
    assert generations(world, client) == [1]
    assert len(world.log()) == 2


def test_of_two_who_open_a_generation_one_does(world: World) -> None:
    client, other = world.client(replace(ONE_SLOT, patience_s=10.0, patience_s_max=10.0)), world.client(ONE_SLOT)
    client.append()

    def opens_first() -> None:
        other.append("other.parquet")
        assert other.coordinated.background.drain(10)  # its generation is full, and opens the next one once it is published

    world.once(opens_first, opens)
    client.append("mine.parquet")
    assert {"other.parquet", "mine.parquet"} <= world.files()
    assert client.head().generation == 2
    assert generations(world, client) == [2]


def test_what_a_publisher_left_behind_goes_with_its_generation(world: World) -> None:
    """It died before it removed a slot, which is decided and published."""
    client = world.client(ONE_SLOT)
    commit = client.append()
    client.session.create(f"{world.tree.slots(0)}/i-{commit.transaction_id}-0000000000", append_intent(client.head()).encode())
    client.append()
    assert client.head().generation == 1
    assert generations(world, client) == [1]
    assert world.transactions().count(commit.transaction_id) == 1


def test_files_of_a_slot_in_a_generation_that_opens_meanwhile_are_kept(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, collector, other = world.client(ONE_SLOT), world.client(), world.client(ONE_SLOT)
    other.append()
    intent = append_intent(owner.head(), transaction_id=new_id(new_client(), 0, 1, 0))
    client = owner_of(intent.transaction_id)
    assert client is not None
    owner.session.ensure_path(client.path)
    children, left = collector.session.children, [world.tree.generations]

    def then_another(path: str) -> object:
        names = children(path)
        if path in left:
            left.clear()
            owner.claim(intent)
            assert owner.head().generation == 1
        return names

    monkeypatch.setattr(collector.session, "children", then_another)
    assert client in retention._busy(collector.context, collector.session)


def test_the_outcome_of_a_transaction_is_known_though_its_generation_is_gone(world: World) -> None:
    client, asking = world.client(ONE_SLOT), world.client()
    commits = [client.append() for _ in range(3)]
    for commit in commits:
        assert asking.committed(commit.transaction_id).version == commit.version
    assert undecided(asking.session.children(world.tree.slots(0)) or (), asking.head()) == []
