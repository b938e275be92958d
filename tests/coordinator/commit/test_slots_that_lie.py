"""An intent that contradicts its slot, its digest or its staged object is refused, and stops no other."""

from __future__ import annotations

import uuid
from dataclasses import replace

import pytest

from sluice.coordinator.errors import NotCommitted
from sluice.coordinator.rules.intent import DeclaredReads, Intent
from sluice.storage.actions import encode_all
from sluice.storage.actions.texts import sha256
from sluice.storage.log.paths import staged_path
from sluice.storage.schema.partitions import folder, path_to_uri
from tests.coordinator.world import World, add, append_intent, intent_of


def refused(world: World, intent: Intent, name: str | None = None) -> str:
    """Make the slot by hand, under another name if need be; why it is refused by the one who asks, while others commit."""
    client, asking = world.client(), world.client()
    named = name or intent.transaction_id
    client.session.create(world.tree.slot_prefix(0, named), intent.encode(), sequential=True)
    outcome = asking.outcome(named)
    assert outcome.error is not None
    asking.append("goes-on.parquet")
    assert world.files() == {"goes-on.parquet"}
    return outcome.error.message


@pytest.mark.notices("slot-and-intent-are-of-one-id")
def test_an_intent_of_another_transaction_than_its_slot(world: World) -> None:
    intent = append_intent(world.client().head())
    assert intent.transaction_id in refused(world, intent, str(uuid.uuid4()))
    assert intent.transaction_id not in world.transactions()


@pytest.mark.notices("actions-have-their-digest")
def test_actions_that_are_not_those_of_the_digest(world: World) -> None:
    intent = append_intent(world.client().head())
    other = encode_all([add("another.parquet")]).decode()
    assert "not those it filed" in refused(world, replace(intent, actions=other))


def staged(world: World, content: bytes | None) -> Intent:
    intent = append_intent(world.client().head())
    key = staged_path(intent.transaction_id)
    if content is not None:
        world.objects.put(key, content)
    return replace(intent, actions="", staged=key)


@pytest.mark.notices("staged-actions-are-there")
def test_staged_actions_that_are_missing(world: World) -> None:
    assert "are missing from" in refused(world, staged(world, None))


@pytest.mark.notices("actions-have-their-digest")
def test_staged_actions_that_were_changed(world: World) -> None:
    assert "not those it filed" in refused(world, staged(world, encode_all([add("another.parquet")])))


def test_folders_of_partitions_with_any_characters_are_acceptable(world: World) -> None:
    texts = ["".join(map(chr, range(first, first + 32))) for first in (1, 0x60, 0x80, 0xA0, 0x2000, 0x2020, 0xE000, 0xFFE0, 0x1F600)]
    files = [add(path_to_uri(f"{folder(('p',), {'p': text})}/y.parquet"), partition_values={"p": text}) for text in texts]
    client = world.client()
    intent = intent_of(client.head(), files, DeclaredReads(nothing=True))
    client.claim(intent)
    assert world.client().committed(intent.transaction_id).version == 0


by_owner_and_others = pytest.mark.parametrize("by_owner", [True, False], ids=["decided by its owner", "decided by another client"])
"""An owner decides as everybody does, although it does not check again what it filed itself."""


@pytest.mark.notices("own-slots-are-compared")
@by_owner_and_others
def test_a_slot_that_says_something_else_than_its_owner_filed(world: World, by_owner: bool) -> None:
    owner, other = world.client(), world.client()
    intent, actions = append_intent(owner.head(), "filed.parquet"), encode_all([add("../elsewhere.parquet")])
    lie = replace(intent, actions=actions.decode(), actions_digest=sha256(actions))
    other.session.create(world.tree.slot_prefix(0, intent.transaction_id), lie.encode(), sequential=True)
    if not by_owner:
        assert other.outcome(intent.transaction_id).state == "refused"
    assert not owner.commit(intent).repeated
    records = sorted(owner.session.children(world.tree.verdicts) or ())
    verdicts = [verdict for name in records for verdict in owner.record(name).verdicts]
    assert [None if each.refusal is None else each.refusal.rule for each in verdicts] == ["malformed", None]
    assert world.files() == {"filed.parquet"}


@pytest.mark.notices("only-plain-appends-are-of-own-files")
@by_owner_and_others
def test_a_change_that_may_have_files_of_others_in_it(world: World, by_owner: bool) -> None:
    owner = world.client()
    intent = intent_of(owner.head(), [add("back.parquet", stats="[1]")], DeclaredReads(kind="overwrite", whole_table=True))
    if by_owner:
        with pytest.raises(NotCommitted) as refused:
            owner.commit(intent)
        told = refused.value.message
    else:
        owner.claim(intent)
        told = str(world.client().outcome(intent.transaction_id).error)
    assert "the statistics of 'back.parquet' are invalid" in told
