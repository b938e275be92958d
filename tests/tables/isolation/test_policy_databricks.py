"""The conflict policy `databricks`: Databricks' own tables of what can conflict, cell by cell, and what it says of schema changes.

Where the documentation says that a pair can conflict in one partition, it does here, whatever statistics could tell. The cells are read
from tests/coordinator/conflict_matrices.json.

`explain` decides as the engine does: pairs of real operations, given to it as the actions that they committed.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, Final

import orjson
import pytest

import sluice
from sluice.coordinator.limits import Limits
from sluice.coordinator.rules.explain.cases import read_case
from sluice.coordinator.rules.explain.decision import explain
from sluice.storage.actions import encode_all
from sluice.storage.log.paths import commit_path
from tests.tables.conftest import Place
from tests.tables.isolation.matrices import COMPACTIONS, FIRST, OPERATIONS, SECOND, create, meet, table_of
from tests.tables.isolation.test_matrix_databricks import Case, check, every_case, one_of_each


@pytest.fixture
def place(in_memory: Place) -> Place:
    return in_memory


CASES = list(one_of_each("databricks"))


@pytest.mark.slow
@pytest.mark.notices("databricks-compares-partitions")
@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.many
def test_a_cell(place: Place, case: Case) -> None:
    check(place, case)


@pytest.mark.long
@pytest.mark.parametrize("case", [case for case in every_case("databricks") if case not in CASES], ids=str)
def test_a_cell_by_another_operation(place: Place, case: Case) -> None:
    check(place, case)


@pytest.mark.notices("databricks-compares-files-in-partitioned-tables")
@pytest.mark.parametrize(
    ("policy", "partitioned", "refused"), [("delta", True, False), ("databricks", False, False), ("databricks", True, True)]
)
def test_rows_are_compared_in_tables_without_partitions_only(place: Place, policy: str, partitioned: bool, refused: bool) -> None:
    """Under snapshot isolation, where nobody asks what was added: only files that both changed tell."""
    properties = {"delta.isolationLevel": "SnapshotIsolation", "delta.enableDeletionVectors": "true", "sluice.conflictPolicy": policy}
    met = meet(place, "delete", "delete", properties=properties, partitioned=partitioned)
    assert (met.verdict == "ConcurrentDeleteDeleteException") == refused
    assert (met.verdict == "ok") != refused


# -- protocol and properties -----------------------------------------------------------------------------------------------

Alter = Callable[[sluice.Table], Any]
ALTERS: Final[dict[str, tuple[Alter, bool]]] = {
    "a free property": (lambda table: table.set_properties({"note": "x"}), True),
    "deletion vectors": (lambda table: table.set_properties({"delta.enableDeletionVectors": "true"}), False),
    "a feature": (lambda table: table.set_properties({"delta.enableChangeDataFeed": "true"}), True),
    "checkpoints": (lambda table: table.set_properties({"delta.checkpointPolicy": "classic"}), True),
}
"""What is altered, and whether Delta Lake's rules refuse a write beside it, too."""
WRITES: Final[dict[str, Callable[[sluice.Transaction], Any]]] = {
    "append": lambda each: each.append(table_of({500: (1, 1)})),
    "delete": lambda each: each.delete("id = 20"),
    "overwrite": lambda each: each.overwrite(table_of({500: (1, 1)})),
}


@pytest.mark.notices("databricks-refuses-all-beside-changes")
@pytest.mark.parametrize("fast_path", [True, False])
@pytest.mark.parametrize("policy", ["delta", "databricks"])
@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("altered", ALTERS)
@pytest.mark.many
def test_whoever_changes_the_table_stops_all_that_is_written_beside(
    place: Place, altered: str, write: str, policy: str, fast_path: bool
) -> None:
    create(place, {"sluice.conflictPolicy": policy}, partitioned=False)
    begun = place.open(limits=Limits(fast_path=fast_path)).begin()
    WRITES[write](begun)
    alter, refused_by_delta = ALTERS[altered]
    alter(place.open())
    if policy == "databricks" or refused_by_delta:
        with pytest.raises((sluice.errors.MetadataChangedException, sluice.errors.ProtocolChangedException)):
            begun.commit()
    else:
        assert begun.commit() is not None


@pytest.mark.parametrize("level", ["Serializable", "WriteSerializable", "SnapshotIsolation"])
def test_explain_decides_by_it(level: str) -> None:
    """Also what a case's setup does not say: without a metaData there the table is as its winners leave it out."""
    enables = {"metaData": {"configuration": {"delta.enableDeletionVectors": "true"}}}
    case = {"table_isolation": level, "schema": {"x": "int"}, "winning_commits": [[enables]], "own_actions": [{"add": {"path": "b"}}]}
    setups: list[list[Any]] = [[], [{"metaData": {"configuration": {}}}]]
    for setup in setups:
        told = [explain(read_case(orjson.dumps({**case, "setup": setup, "policy": policy}), "case")) for policy in ("delta", "databricks")]
        assert [each.verdict for each in told] == ["ok", "MetadataChangedException"]


PAIRS = [*itertools.product((*COMPACTIONS, "z-order"), repeat=2), ("append", "z-order"), ("z-order", "append")]


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
@pytest.mark.many
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

    store = place.open().access.store

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
