"""A client of another node protocol says so and does nothing, also when the tree changes under it."""

from __future__ import annotations

from collections.abc import Callable

import orjson
import pytest

from sluice.coordinator.commit.transactions import settle_queue
from sluice.coordinator.errors import ProtocolMismatch
from sluice.coordinator.formats import NODE_PROTOCOL
from sluice.coordinator.nodes.context import require_head
from sluice.coordinator.nodes.creation import check_tree
from sluice.coordinator.service.clock import Deadline
from sluice.coordinator.service.store import ANY_VERSION
from tests.coordinator.world import DIRECT, QUICK, Client, World, append_intent, claim_slot


def raise_protocol(world: World, number: object) -> None:
    """What an upgrade of the tree does."""
    session = world.coordination.connect()
    root = session.read(world.tree.root)
    assert root is not None
    session.write(world.tree.root, orjson.dumps({**orjson.loads(root.data), "protocol": number}), version=ANY_VERSION)


def settle_a_slot(client: Client) -> None:
    claim_slot(client.context, append_intent(client.head()), client.head(), Deadline.after(5, client.context.clock))
    settle_queue(client.coordinated, Deadline.after(30, client.context.clock))


VERBS: dict[str, Callable[[Client], object]] = {
    "a commit on the fast path": lambda client: client.append(),
    "a commit in the queue": lambda client: client.append(),
    "a claim": settle_a_slot,
}


@pytest.mark.notices("multis-are-of-one-protocol")
@pytest.mark.parametrize("number", [NODE_PROTOCOL - 1, NODE_PROTOCOL + 1, "x", None])
@pytest.mark.parametrize("verb", VERBS)
def test_a_tree_that_is_raised_under_an_open_table_is_left_alone(world: World, verb: str, number: object) -> None:
    client = world.client(DIRECT if "fast" in verb else QUICK)
    client.append("before.parquet")
    head = client.head()
    raise_protocol(world, number)
    before = [node for node in world.coordination.tree.walk() if node.path.startswith(world.tree.root)]
    with pytest.raises(ProtocolMismatch, match=rf"node protocol {number!r}, but this sluice uses {NODE_PROTOCOL}"):
        VERBS[verb](client)
    assert [node for node in world.coordination.tree.walk() if node.path.startswith(world.tree.root)] == before
    assert client.world.files() == {"before.parquet"}
    assert head.version == 0


@pytest.mark.parametrize("number", [NODE_PROTOCOL - 1, NODE_PROTOCOL + 1])
def test_a_client_that_comes_later_does_nothing_either(world: World, number: int) -> None:
    raise_protocol(world, number)
    for attempt in (
        lambda: require_head(world.client().context),
        lambda: check_tree(world.client().context),
        lambda: world.client().append(),
    ):
        with pytest.raises(ProtocolMismatch, match="use the version of sluice that the other writers use"):
            attempt()


def test_what_was_filed_before_is_decided_by_those_who_understand_it(world: World) -> None:
    client = world.client()
    client.append("before.parquet")
    intent = append_intent(client.head(), "filed.parquet")
    claim_slot(client.context, intent, client.head(), Deadline.after(5, client.context.clock))
    raise_protocol(world, NODE_PROTOCOL + 1)
    with pytest.raises(ProtocolMismatch):
        client.append()
    raise_protocol(world, NODE_PROTOCOL)
    assert world.client().append("after.parquet").ordinal == 1  # behind what was filed, in one version with it
    assert world.files() == {"before.parquet", "filed.parquet", "after.parquet"}
