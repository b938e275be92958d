"""The chain of a log comes from what was ratified: whoever renders a version writes the same links. `World.check` compares them all."""

from __future__ import annotations

import orjson
import pytest

from sluice.coordinator.nodes.records import BatchRecord
from tests.coordinator.world import QUICK, World, append_intent, decide, rewrite_intent


def chains(world: World) -> list[dict[str, object]]:
    return [commit[0]["commitInfo"]["sluice"]["chain"] for commit in world.log()]  # type: ignore[index]


@pytest.mark.notices("the-chain-has-the-version-before", "the-head-knows-the-chain")
def test_versions_of_one_batch_are_linked_and_published_by_another(world: World) -> None:
    client = world.client()
    for name in ("a", "b", "c"):
        client.append(f"{name}.parquet")
    for name in ("a", "b", "c"):
        client.claim(rewrite_intent(client.head(), f"{name}.parquet", f"{name}2.parquet"))
    [batch] = decide(client.coordinated)
    assert len(batch.record.versions) == 3
    assert len(world.log()) == 3
    world.client().append("d.parquet")
    assert [each["version"] for each in chains(world)] == list(range(7))
    assert world.misfits() == []
    head = client.head()
    assert (head.version, head.files) == (6, chains(world)[-1]["files"])


def test_appends_that_share_a_version_are_counted_together(world: World) -> None:
    client = world.client()
    for name in ("a", "b", "c"):
        client.claim(append_intent(client.head(), f"{name}.parquet"))
    client.append("d.parquet")
    assert [len(commit) for commit in world.log()] == [5]
    assert world.misfits() == []


def test_a_refusal_leaves_the_chain_as_it_is(world: World) -> None:
    client = world.client()
    client.append("a.parquet")
    before = client.head()
    first, second = (rewrite_intent(before, "a.parquet", f"{name}.parquet") for name in ("b", "c"))
    claims = [client.claim(each) for each in (first, second)]
    assert client.outcome(second.transaction_id).state == "refused"
    assert client.outcome(first.transaction_id).state == "committed"
    refused = client.head()
    client.claim(rewrite_intent(before, "a.parquet", "d.parquet"))
    decide(client.coordinated)
    assert (client.head().digest, client.head().files) == (refused.digest, refused.files)
    assert client.head().slot > refused.slot >= claims[1].slot


def test_a_head_and_a_record_grow_by_two_digests_only(world: World) -> None:
    client = world.client(QUICK)
    client.append("a.parquet")
    head = orjson.dumps({"digest": client.head().digest, "files": client.head().files})
    assert len(head) < 200
    [record] = [node.data for node in world.coordination.tree.walk() if "/verdicts/" in node.path]
    [plan] = BatchRecord.decode(record).versions
    assert (len(plan.previous), len(plan.files)) == (0, 64)
