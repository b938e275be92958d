"""The matrices of MaxCompute are asked: as one rule among the others, in tables that have such a policy."""

from __future__ import annotations

import pytest

from sluice.coordinator.rules.conflicts import Encounter, check
from sluice.coordinator.rules.footprint import Footprint
from sluice.coordinator.rules.isolation import ConflictPolicy, IsolationLevel
from sluice.coordinator.rules.operation_kinds import Kind
from sluice.coordinator.rules.winner import Winner

from .world import add

P1, P2 = '{"p":"1"}', '{"p":"2"}'


@pytest.mark.parametrize(
    ("policy", "partition", "rule"),
    [
        (ConflictPolicy.MAXCOMPUTE_DELTA, P1, "class-refused"),
        (ConflictPolicy.MAXCOMPUTE_DELTA, P2, None),
        (ConflictPolicy.MAXCOMPUTE_TABLE, P1, None),
        (ConflictPolicy.DELTA, P1, None),
    ],
    ids=["the matrix says no", "another partition", "the matrix says yes", "no matrix"],
)
def test_a_matrix_refuses_a_kind_of_operation_after_another(policy: ConflictPolicy, partition: str, rule: str | None) -> None:
    mine = Footprint(kind=Kind.APPEND.value, policy=policy.value, partitions=(partition,), blind_append=True)
    winner = Winner(7, kind=Kind.APPEND, adds=(add("f", partition_values={"p": "1"}),), blind_append=True)
    found = check(Encounter(mine, winner, IsolationLevel.SERIALIZABLE))
    assert (None if found is None else found.rule.name) == rule
