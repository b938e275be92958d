"""Compaction as the last operation of a transaction: one commit with what came before it, and no row changes by it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import sluice
from sluice.storage.actions import Action, AddFile, RemoveFile, decode_commit
from sluice.storage.log.paths import commit_path
from tests.tables.conftest import Place, flights, rows_of

VECTORS = {"delta.enableDeletionVectors": "true"}
BOTH = pytest.mark.parametrize("properties", [{}, VECTORS], ids=["copies", "vectors"])


def small_files(place: Place, **options: Any) -> sluice.Table:
    """A table with three files of JFK and two of EWR, in versions 1 to 5."""
    table = place.create(**options)
    for row in (("JFK", 1, 1), ("JFK", 1, 2), ("JFK", 1, 3), ("EWR", 2, 4), ("EWR", 2, 5)):
        table.append(flights(row))
    return table


def actions_of(place: Place, version: int) -> list[Action]:
    key = commit_path(version)
    return list(decode_commit(Path(place.location, key).read_bytes(), name=key))


@BOTH
def test_it_is_one_commit_with_the_operations_before_it(place: Place, properties: dict[str, str]) -> None:
    table = small_files(place, properties={**properties, "delta.enableChangeDataFeed": "true"})
    with table.begin() as begun:
        begun.delete("delay = 3")
        begun.append(flights(("LGA", 3, 9)))
        begun.compact()
        assert rows_of(begun.scan()) == [("EWR", 2, 4), ("EWR", 2, 5), ("JFK", 1, 1), ("JFK", 1, 2), ("LGA", 3, 9)]
    assert table.refresh().version == 6
    assert rows_of(table.snapshot().to_arrow()) == [("EWR", 2, 4), ("EWR", 2, 5), ("JFK", 1, 1), ("JFK", 1, 2), ("LGA", 3, 9)]
    actions = actions_of(place, 6)
    moved = [each for each in actions if isinstance(each, (AddFile, RemoveFile)) and not each.data_change]
    assert sorted(type(each).__name__ for each in moved) == ["AddFile"] * 2 + ["RemoveFile"] * 4
    changes = table.changes(5, 6).select(["origin", "delay", "_change_type"]).to_pylist()
    assert sorted((row["delay"], row["_change_type"]) for row in changes) == [(3, "delete"), (9, "insert")]
    assert len({each.path for each in actions if isinstance(each, AddFile)}) == sum(isinstance(each, AddFile) for each in actions)


@BOTH
def test_alone_it_is_what_the_table_does(place: Place, properties: dict[str, str]) -> None:
    table = small_files(place, properties=properties)
    with table.begin() as begun:
        begun.compact(where="origin = 'JFK'")
    entry = table.history(1)[0]
    assert (entry.operation, entry.kind, entry.metrics["numRemovedFiles"], entry.metrics["numAddedFiles"]) == (
        "OPTIMIZE",
        "minor-compaction",
        "3",
        "1",
    )
    assert rows_of(table.refresh().snapshot().to_arrow()) == [
        (o, m, d) for o, m, d in sorted([("JFK", 1, n) for n in (1, 2, 3)] + [("EWR", 2, 4), ("EWR", 2, 5)])
    ]


def test_a_delete_that_comes_first_is_carried_over_to_the_new_file(place: Place) -> None:
    table = small_files(place, properties=VECTORS)
    begun = table.begin()
    begun.append(flights(("LGA", 3, 9)))
    begun.compact()
    table.delete("delay = 2")
    begun.commit()
    assert rows_of(table.refresh().snapshot().to_arrow()) == [
        ("EWR", 2, 4),
        ("EWR", 2, 5),
        ("JFK", 1, 1),
        ("JFK", 1, 3),
        ("LGA", 3, 9),
    ]


def test_without_vectors_a_delete_that_comes_first_refuses_it(place: Place) -> None:
    table = small_files(place)
    begun = table.begin()
    begun.compact()
    table.delete("delay = 2")
    with pytest.raises(sluice.errors.ConcurrentModification):
        begun.commit()
    assert len(rows_of(table.refresh().snapshot().to_arrow())) == 4


def test_nothing_to_compact_is_no_operation(place: Place) -> None:
    table = place.create()
    table.append(flights(("JFK", 1, 1)))
    begun = table.begin()
    begun.compact()
    begun.append(flights(("JFK", 1, 2)))  # it was not the last operation, for there was nothing to do
    assert begun.commit() is not None
    assert table.begin().commit() is None


def test_it_comes_last(place: Place) -> None:
    table = small_files(place)
    begun = table.begin()
    begun.compact()
    with pytest.raises(sluice.errors.InvalidRequest, match=r"compact\(\) is the last operation of a transaction"):
        begun.delete("delay = 1")
    assert begun.commit() is not None
    assert len(rows_of(table.refresh().snapshot().to_arrow())) == 5


def test_beside_other_operations_a_matrix_of_operations_refuses_it(place: Place) -> None:
    table = small_files(place, properties={"sluice.conflictPolicy": "maxcompute-table"})
    begun = table.begin()
    begun.append(flights(("LGA", 3, 9)))
    with pytest.raises(sluice.errors.InvalidRequest, match=r"compact\(\) beside other operations.*commit it by itself"):
        begun.compact()
    begun.abort()
    with table.begin() as alone:
        alone.compact()
    assert table.refresh().version == 6


def test_a_transaction_over_several_tables_compacts_one_of_them(place: Place, tmp_path: Path) -> None:
    first = small_files(place)
    other = sluice.Table.create(tmp_path / "other", first.schema, coordinator=place.coordinator)
    with sluice.transaction(place.coordinator, tables=[first, other]) as both:
        both[other].append(flights(("LGA", 3, 9)))
        both[first].compact()
    assert (first.refresh().version, other.refresh().version) == (6, 1)
    assert first.snapshot().num_files == 2
