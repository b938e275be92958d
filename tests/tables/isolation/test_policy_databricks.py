"""The conflict policy `databricks`: Databricks' own tables of what can conflict, cell by cell, and what it says of schema changes.

Where the documentation says that a pair can conflict in one partition, it does here, whatever statistics could tell. The cells are read
from tests/coordinator/conflict_matrices.json.

`explain` decides as the engine does: pairs of real operations, given to it as the actions that they committed.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
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
from tests.tables.isolation.matrices import (
    CHANGES,
    COMPACTIONS,
    FIRST,
    OPERATIONS,
    OTHER_PARTITION,
    SAME_ROWS,
    SECOND,
    Side,
    create,
    meet,
    table_of,
)
from tests.tables.isolation.test_matrix_databricks import (
    DELTAS,
    INSERT_THEN_CHANGE,
    INSERTS_AROUND,
    LAYOUTS,
    MEETS_INSERTED,
    OTHER_FILE,
    SORTS,
    Layout,
    levels_of,
    stands_for_others,
)

POLICY: Final = {"sluice.conflictPolicy": "databricks"}


@pytest.fixture
def place(in_memory: Place) -> Place:
    return in_memory


def arrangements(layout: Layout, sorts: tuple[str, str], earlier: str, later: str) -> Iterator[tuple[str, tuple[Side, Side], bool]]:
    """How the rows of a pair lie to one another, and whether the documentation's cell says that the later one is refused then."""
    cell = layout.cell(*sorts)
    if layout.partitioned:
        yield "different partitions", (FIRST, OTHER_PARTITION), False
    if "INSERT" in sorts:
        change_later = sorts == INSERT_THEN_CHANGE  # an append reads nothing, so that one after a change stands
        yield "other rows", (FIRST, SECOND), change_later and cell == "same_partition"
        if change_later:
            yield "rows around", (INSERTS_AROUND, SECOND), cell == "same_partition"
            if cell != "never" or later != "upsert":
                yield "the rows inserted", (FIRST, MEETS_INSERTED), cell != "never"
        return
    match cell:
        case "same_row":
            yield "same rows", (FIRST, SAME_ROWS), True
            yield "same file", (FIRST, SECOND), False
        case "same_partition":
            yield "same rows", (FIRST, SAME_ROWS), True
            yield "same file", (FIRST, SECOND), True
            yield "other file", (FIRST, OTHER_FILE), True
        case "same_file":
            yield "same file", (FIRST, SECOND), True
        case "only_if_zorder":
            yield "same file", (FIRST, SECOND), "z-order" in (earlier, later)
        case _:
            raise AssertionError(f"{sorts} says {cell!r}")


CASES = [
    (layout, earlier, later, name, sides, refused)
    for layout in LAYOUTS
    for sorts in itertools.product(SORTS, SORTS)
    for earlier, later in itertools.product(SORTS[sorts[0]], SORTS[sorts[1]])
    for name, sides, refused in arrangements(layout, sorts, earlier, later)
]
SORT_OF = {operation: sort for sort, operations in SORTS.items() for operation in operations}
TRIED = levels_of((layout, (SORT_OF[earlier], SORT_OF[later], name), refused) for layout, earlier, later, name, _, refused in CASES)
SOME = [
    (layout, earlier, later, name, *more)
    for layout, earlier, later, name, *more in CASES
    if layout.level in TRIED[layout.kind, (SORT_OF[earlier], SORT_OF[later], name)]
    and stands_for_others(layout, earlier, later, name, refused=bool(more[-1]))
]
OTHERS = [case for case in CASES if case[:4] not in {some[:4] for some in SOME}]


def of_cases(cases: list[Any]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(("layout", "earlier", "later", "name", "sides", "refused"), cases, ids=lambda each: str(each)[:40])


def check(place: Place, layout: Layout, earlier: str, later: str, name: str, sides: tuple[Side, Side], refused: bool) -> None:
    met = meet(place, earlier, later, properties={**layout.properties, **POLICY}, partitioned=layout.partitioned, sides=sides)
    assert (met.refusal is not None) == refused, (name, met)
    assert met.refusal is None or isinstance(met.refusal, DELTAS)


@pytest.mark.slow
@pytest.mark.notices("databricks-compares-partitions", "databricks-minds-z-orders")
@of_cases(SOME)
@pytest.mark.many
def test_a_cell(place: Place, layout: Layout, earlier: str, later: str, name: str, sides: tuple[Side, Side], refused: bool) -> None:
    check(place, layout, earlier, later, name, sides, refused)


@pytest.mark.long
@of_cases(OTHERS)
def test_a_cell_by_another_operation(
    place: Place, layout: Layout, earlier: str, later: str, name: str, sides: tuple[Side, Side], refused: bool
) -> None:
    check(place, layout, earlier, later, name, sides, refused)


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


def test_appends_beside_one_another_still_share_versions(place: Place) -> None:
    create(place, POLICY, partitioned=False)
    commits = [place.open().append(table_of({500 + number: (1, 1)})) for number in range(3)]
    assert all(commit is not None for commit in commits)


@pytest.mark.parametrize("level", ["Serializable", "WriteSerializable", "SnapshotIsolation"])
def test_explain_decides_by_it(level: str) -> None:
    """Also what a case's setup does not say: without a metaData there the table is as its winners leave it out."""
    enables = {"metaData": {"configuration": {"delta.enableDeletionVectors": "true"}}}
    case = {"table_isolation": level, "schema": {"x": "int"}, "winning_commits": [[enables]], "own_actions": [{"add": {"path": "b"}}]}
    setups: list[list[Any]] = [[], [{"metaData": {"configuration": {}}}]]
    for setup in setups:
        told = [explain(read_case(orjson.dumps({**case, "setup": setup, "policy": policy}), "case")) for policy in ("delta", "databricks")]
        assert [each.verdict for each in told] == ["ok", "MetadataChangedException"]


def test_every_change_and_every_arrangement_is_tried() -> None:
    tried = {(earlier, later) for _, earlier, later, *_ in SOME}
    assert tried >= set(itertools.product(CHANGES, CHANGES))

    def arranged(cases: list[Any]) -> set[tuple[Any, ...]]:
        return {(layout.kind, SORT_OF[earlier], SORT_OF[later], name, refused) for layout, earlier, later, name, _, refused in cases}

    assert arranged(SOME) == arranged(CASES)
    assert len(SOME) + len(OTHERS) == len(CASES)


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
