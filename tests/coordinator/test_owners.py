"""Nothing is filed for a client that does not stand there: its files may be garbage already."""

from __future__ import annotations

import pytest

from sluice.coordinator.errors import TransactionExpired
from sluice.coordinator.limits import Limits
from sluice.coordinator.nodes.identity import new_id, new_plan_id, owner_of

from .joint_world import JointWorld
from .world import DIRECT, QUICK, World, append_intent

NOBODY = "00000000abcd"


@pytest.mark.parametrize("limits", [QUICK, DIRECT], ids=["queue", "fast path"])
@pytest.mark.parametrize("transaction_id", [new_id(NOBODY, 0, 1, 0), new_plan_id(0)], ids=["client", "plan"])
def test_a_transaction_of_nobody_is_not_filed(limits: Limits, transaction_id: str) -> None:
    world = World()
    client = world.client(limits)
    client.append("first.parquet")
    with pytest.raises(TransactionExpired):
        client.commit(append_intent(client.head(), transaction_id=transaction_id))
    assert world.files() == {"first.parquet"}


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
