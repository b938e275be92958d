"""`explain` decides as the engine does: pairs of real operations, given to it as the actions that they committed."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterator
from typing import Any

import orjson
import pytest

from sluice.coordinator.rules.explain.cases import read_case
from sluice.coordinator.rules.explain.decision import explain
from sluice.storage.actions import encode_all
from sluice.storage.log.paths import commit_path
from sluice.storage.stores.memory import MemoryStore
from tests.tables.conftest import Place
from tests.tables.isolation.matrices import COMPACTIONS, FIRST, OPERATIONS, SECOND, create

PAIRS = [*itertools.product((*COMPACTIONS, "z-order"), repeat=2), ("append", "z-order"), ("z-order", "append")]


@pytest.fixture
def place() -> Iterator[Place]:
    name = uuid.uuid4().hex
    yield Place(f"memory://{name}", f"memory://{name}-coordinator")
    MemoryStore.open(name).forget()


ALWAYS = [
    ("true", "delta", False, False),
    ("false", "databricks", True, False),
    ("true", "databricks", False, True),
    ("false", "delta", True, True),
]
"""Deletion vectors, policy, partitions, and whether the case is written by hand: any two values of the first three come together."""
KINDS = [
    pytest.param(*kind, marks=[] if kind in ALWAYS else pytest.mark.long)
    for kind in itertools.product(("true", "false"), ("delta", "databricks"), (False, True), (False, True))
]


@pytest.mark.slow
@pytest.mark.parametrize(("vectors", "policy", "partitioned", "by_hand"), KINDS)
@pytest.mark.parametrize(("earlier", "later"), PAIRS)
def test_a_pair(place: Place, earlier: str, later: str, vectors: str, policy: str, partitioned: bool, by_hand: bool) -> None:
    properties = {"delta.enableDeletionVectors": vectors, "sluice.conflictPolicy": policy}
    create(place, properties, partitioned=partitioned)
    first, second = OPERATIONS[earlier].stage(place.open(), FIRST), OPERATIONS[later].stage(place.open(), SECOND)
    change = getattr(second, "change", None)
    before = place.open().snapshot().version
    first.commit()
    try:
        second.commit()
        verdict = "ok"
    except Exception as refused:  # noqa: BLE001 - its class is what is compared
        verdict = type(refused).__name__

    store = place.open()._access.store

    def told_of(action: dict[str, Any]) -> dict[str, Any]:
        """As it is written by hand: what a compaction says of where the rows went is left out."""
        return {name: {k: v for k, v in body.items() if not (by_hand and k == "tags")} for name, body in action.items()}

    def commit(version: int) -> list[dict[str, Any]]:
        return [told_of(orjson.loads(line)) for line in store.get(commit_path(version)).splitlines()]

    own = [told_of(orjson.loads(line)) for line in encode_all(change.actions).splitlines()] if change is not None else commit(before + 2)
    case = {
        "setup": [action for version in range(before + 1) for action in commit(version)],
        "winning_commits": [commit(before + 1)],
        "own_operation": "WRITE" if later == "append" else ("OPTIMIZE ZORDER BY" if later == "z-order" else "OPTIMIZE"),
        "own_actions": [action for action in own if "commitInfo" not in action],
        "txn_reads": [] if later == "append" or vectors == "true" else [{"op": "filterFiles"}],
    }
    told = explain(read_case(orjson.dumps(case), "pair"))
    assert told.verdict == verdict, told
