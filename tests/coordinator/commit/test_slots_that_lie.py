"""An intent that contradicts its slot, its digest or its staged object is refused, and stops no other."""

from __future__ import annotations

import uuid
from dataclasses import replace

import pytest

from sluice.coordinator.commit.transactions import outcome_of
from sluice.coordinator.rules.intent import Intent
from sluice.coordinator.service.clock import Deadline, SystemClock
from sluice.storage.actions import encode_all
from sluice.storage.log.paths import staged_path
from tests.coordinator.world import World, add, append_intent


def refused(world: World, intent: Intent, name: str | None = None) -> str:
    """Make the slot by hand, under another name if need be; why it is refused by the one who asks, while others commit."""
    client, asking = world.client(), world.client()
    named = name or intent.transaction_id
    client.session.create(world.tree.slot_prefix(0, named), intent.encode(), sequential=True)
    outcome = outcome_of(asking.coordinated, named, Deadline.after(20, SystemClock()))
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
