"""The driver keeps nothing of a transaction when it has answered."""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace

import pytest

from sluice.coordinator.errors import ConcurrentModification
from sluice.coordinator.nodes.presence import TransactionId
from tests.coordinator.world import World, rewrite_intent


def test_a_refused_transaction_is_not_held_by_its_refusal() -> None:
    """Its client's files are kept while it is held, so that must not wait for Python's next collection."""
    world = World()
    client = world.client()
    client.append("old.parquet")
    stale = client.head()
    client.commit(rewrite_intent(stale, "old.parquet", "theirs.parquet"))
    intent = rewrite_intent(stale, "old.parquet", "mine.parquet")
    intent = replace(intent, transaction_id=TransactionId(intent.transaction_id))
    held = weakref.ref(intent.transaction_id)
    gc.collect()
    gc.disable()
    try:
        with pytest.raises(ConcurrentModification) as refused:
            client.commit(intent)
        del intent, refused
        assert held() is None
    finally:
        gc.enable()
