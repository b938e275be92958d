"""Cases that documentations tell in words: which of the transactions commit, and what the tables hold then.

A transaction over several tables that names the version each must still have.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

import sluice
from sluice.coordinator.errors import ConcurrentAppendException, ConcurrentModification
from tests.tables.conftest import FLIGHTS, Place, flights, present, rows_of
from tests.tables.isolation.matrices import Rows, create, read, table_of
from tests.tables.pictures import files_below

LEVELS: Final = ("Serializable", "WriteSerializable", "SnapshotIsolation")
VECTORS: Final = {"delta.enableDeletionVectors": "true"}


# -- "txn1, a long running delete, and txn2, which inserts data deleted by txn1" -----------------------------------------


@pytest.mark.parametrize("deletes", ["part = 1", "part = 1 AND id <= 100"])
@pytest.mark.parametrize("level", LEVELS[:2])
def test_a_long_running_delete_and_an_insert_of_what_it_deletes(place: Place, level: str, deletes: str) -> None:
    """In the order txn2, txn1 the inserted row should not be there: so txn1 does not commit if serializable, and deletes it when repeated.

    Under WriteSerializable both commit, as if txn1 had come first: readers may see what txn2 inserted.
    """
    rows = create(place, {"delta.isolationLevel": level}, partitioned=True)
    kept = {key: row for key, row in rows.items() if row[0] != 1}
    txn1 = place.open().begin()
    txn1.delete(deletes)
    second = present(place.open().append(table_of({100: (1, 0)})))
    if level == "WriteSerializable":
        assert present(txn1.commit()).version == second.version + 1, "the history has them the other way round"
        assert read(place) == {**kept, 100: (1, 0)}
        return
    with pytest.raises(ConcurrentAppendException) as refused:
        txn1.commit()
    assert refused.value.rule == "appended-what-i-read"
    assert read(place) == {**rows, 100: (1, 0)}
    place.open().delete(deletes)
    assert read(place) == kept


# -- a blind append between two changes that refer to its rows -----------------------------------------------------------

Change = Callable[[sluice.Transaction], Any]
CHANGES: Final[dict[str, Change]] = {
    "append": lambda transaction: transaction.append(table_of({100: (1, 0)})),
    "update": lambda transaction: transaction.update({"v": "v + 1000"}, "id IN (10, 100)"),
    "delete": lambda transaction: transaction.delete("id IN (14, 100)"),
}
"""The update and the delete change rows of different files, and would both change the row that is appended."""
ON_MODEL: Final[dict[str, Callable[[Rows], Rows]]] = {
    "append": lambda rows: {**rows, 100: (1, 0)},
    "update": lambda rows: {key: (part, v + 1000) if key in (10, 100) else (part, v) for key, (part, v) in rows.items()},
    "delete": lambda rows: {key: row for key, row in rows.items() if key not in (14, 100)},
}


def refused(policy: str, level: str, name: str, before: Sequence[str]) -> bool:
    """Whether a transaction is refused after those that committed before it, in the words of each documentation."""
    if name == "append":
        return False  # a blind append reads nothing
    if policy == "maxcompute-transactional":
        return bool(before)  # an UPDATE or DELETE fails after any other operation that committed
    return level == "Serializable" and "append" in before  # the appended row is one that it would have changed


@pytest.mark.parametrize("policy", ["delta", "databricks", "maxcompute-transactional"])
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("order", list(itertools.permutations(CHANGES)), ids=", ".join)
@pytest.mark.many
def test_a_blind_append_between_two_changes_that_refer_to_its_rows(place: Place, policy: str, level: str, order: Sequence[str]) -> None:
    first = create(place, {**VECTORS, "delta.isolationLevel": level, "sluice.conflictPolicy": policy}, partitioned=False)
    begun = {name: place.open().begin() for name in CHANGES}
    for name, transaction in begun.items():
        CHANGES[name](transaction)
    committed: list[str] = []
    for name in order:
        if refused(policy, level, name, committed):
            with pytest.raises(ConcurrentModification):
                begun[name].commit()
        else:
            begun[name].commit()
            committed.append(name)
    serial = committed if level == "Serializable" else sorted(committed, key=lambda name: name == "append")  # the append as the last one
    wanted = first
    for name in serial:
        wanted = ON_MODEL[name](wanted)
    assert read(place) == wanted


@pytest.mark.parametrize("policy", ["delta", "databricks", "maxcompute-transactional"])
@pytest.mark.parametrize("level", LEVELS)
def test_a_change_that_saw_the_append_pins_its_place(place: Place, policy: str, level: str) -> None:
    """The update did not see the appended row, so it comes before it; but another change did, and committed before the update."""
    first = create(place, {**VECTORS, "delta.isolationLevel": level, "sluice.conflictPolicy": policy}, partitioned=False)
    update = place.open().begin()
    CHANGES["update"](update)
    place.open().append(table_of({100: (1, 0)}))
    place.open().update({"v": "v + 1"}, "id = 100")
    if level == "SnapshotIsolation" and policy != "maxcompute-transactional":
        update.commit()
        assert read(place) == {**first, 10: (1, 1000), 100: (1, 1)}
        return
    with pytest.raises(ConcurrentModification):
        update.commit()
    assert read(place) == {**first, 100: (1, 1)}


# -- smart resolution inside a transaction over several tables -----------------------------------------------------------


def test_a_joint_transaction_meets_a_compaction_in_one_table_and_a_disjoint_delete_in_the_other(tmp_path: Path) -> None:
    """The rows that it deletes are found in the compacted file, and its vector is put together with the other's: it commits in both."""
    address = f"memory://{uuid.uuid4().hex}"
    schema = pa.schema([pa.field("id", pa.int64()), pa.field("v", pa.int64())])

    def opened(name: str) -> sluice.Table:
        return sluice.Table.open(tmp_path / name, coordinator=address)

    for name in ("orders", "stock"):
        table = sluice.Table.create(tmp_path / name, schema, properties=VECTORS, coordinator=address)
        for start in (0, 10):
            table.append(pa.table({"id": range(start, start + 10), "v": [0] * 10}, schema=schema))
    orders, stock = opened("orders"), opened("stock")
    joint = sluice.transaction(tables=[orders, stock])
    joint[orders].delete("id IN (3, 13)")
    joint[stock].update({"v": "v - 1"}, "id = 3")
    assert opened("orders").compact() is not None
    opened("stock").delete("id = 4")
    joint.commit()
    assert (joint.commit_info[orders].version, joint.commit_info[stock].version) == (4, 4)
    ids = [*range(20)]
    assert held(orders) == {key: 0 for key in ids if key not in (3, 13)}
    assert held(stock) == {key: -1 if key == 3 else 0 for key in ids if key != 4}
    assert orders.refresh().snapshot().num_files == 1, "the compacted file, with a vector"


def held(table: sluice.Table) -> dict[int, int]:
    rows = table.refresh().snapshot().to_arrow()
    assert rows.num_rows == len(set(rows["id"].to_pylist()))
    return dict(zip(rows["id"].to_pylist(), rows["v"].to_pylist(), strict=True))


@pytest.fixture
def pair(place: Place, tmp_path: Path) -> tuple[sluice.Table, sluice.Table]:
    """Two tables of one coordinator."""
    return place.create(), sluice.Table.create(tmp_path / "other", FLIGHTS, coordinator=place.coordinator)


def test_it_commits_as_the_next_version_of_each(place: Place, pair: tuple[sluice.Table, sluice.Table]) -> None:
    one, other = pair
    with sluice.transaction(coordinator=place.coordinator, if_version={one: 0, other.location: 0}) as t:
        t[one].append(flights(("JFK", 1, 1)))
        t[other].append(flights(("LGA", 2, 2)))
    assert {location: commit.version for location, commit in t.commit_info.items()} == {one.location: 1, other.location: 1}


@pytest.mark.parametrize("moved", [0, 1])
@pytest.mark.parametrize("when", ["before the first operation", "before the commit"])
def test_one_table_that_moved_on_refuses_the_commit_in_all(pair: tuple[sluice.Table, sluice.Table], moved: int, when: str) -> None:
    others = flights(("EWR", 9, 9))
    transaction = sluice.transaction(if_version=dict.fromkeys(pair, 0))
    if when == "before the first operation":
        pair[moved].append(others)  # at its own level even a blind append changes nothing that was read here
    with pytest.raises(sluice.errors.ConcurrentModification, match=r"expected-version: version 1 .* came") as refused:  # noqa: PT012
        for each in pair:
            transaction[each].append(flights(("JFK", 1, 1)))
        if when == "before the commit":
            pair[moved].append(others)
        transaction.commit()
    assert refused.value.rule == "expected-version"
    assert rows_of(pair[moved].refresh().snapshot().to_arrow()) == [("EWR", 9, 9)]
    assert pair[1 - moved].refresh().version == 0


def test_a_table_that_is_only_named_counts(pair: tuple[sluice.Table, sluice.Table]) -> None:
    one, other = pair
    for version in (0, 1):
        transaction = sluice.transaction(if_version={other: 0})
        transaction[one].append(flights(("JFK", 1, 1)))
        if version == 0:
            assert list(transaction.commit()) == [one.location]
            other.append(flights(("EWR", 9, 9)))
        else:
            with pytest.raises(sluice.errors.ConcurrentModification, match=r"expected-version: version 1 .* came"):
                transaction.commit()
    assert one.refresh().version == 1


@pytest.mark.parametrize("version", [1, 5])
def test_a_version_that_does_not_exist_yet_refuses_it_before_anything_is_written(
    pair: tuple[sluice.Table, sluice.Table], tmp_path: Path, version: int
) -> None:
    before = files_below(tmp_path)
    with pytest.raises(sluice.errors.VersionNotFound), sluice.transaction(if_version={pair[0]: version}) as t:
        t[pair[0]].append(flights(("JFK", 1, 1)))
    assert files_below(tmp_path) == before
    assert [each.refresh().version for each in pair] == [0, 0]
