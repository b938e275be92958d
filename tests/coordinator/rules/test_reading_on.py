"""What a transaction read goes on to count: through compactions of others, and never on vectors that were made on others."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from sluice.coordinator.rules.conflicts import Conflict
from sluice.coordinator.rules.isolation import IsolationLevel
from sluice.coordinator.rules.rebase import Candidate, check_against_all
from sluice.coordinator.rules.row_changes import merge
from sluice.coordinator.rules.winner import Footprint, Winner
from sluice.storage.actions import AddFile, DeletionVector, RemoveFile
from sluice.storage.actions.lineage import Moved, with_moves
from sluice.storage.data.vectors import Rows, inline_rows, plan_vector, to_text
from tests.coordinator.world import no_vectors

_owners = (f"00000000-0000-4000-8000-{n:012d}" for n in itertools.count())


def file(path: str, vector: DeletionVector | None = None) -> AddFile:
    return AddFile(path, {}, 100, 1, True, stats='{"numRecords":10}', deletion_vector=vector)


def removed(add: AddFile, *, data_change: bool = True) -> RemoveFile:
    return RemoveFile(
        add.path, data_change, deletion_timestamp=1, partition_values={}, size=100, stats=add.stats, deletion_vector=add.deletion_vector
    )


def vector_of(*rows: int) -> DeletionVector:
    vector, _ = plan_vector(Rows(rows), owner=next(_owners))
    return vector


def compaction(version: int, source: AddFile, output: str) -> Winner:
    moved = with_moves(removed(source, data_change=False), [Moved(output, 0, 0, 10)])
    return Winner(version, "OPTIMIZE", adds=(replace(file(output), data_change=False),), removed={source.path: moved})


def reading(*paths: str) -> Candidate:
    """It read files for good, and adds rows elsewhere, in a table with deletion vectors."""
    footprint = Footprint(read_files=paths, row_level=True, predicates=("a > 7",))
    return Candidate("t", "WRITE", footprint, IsolationLevel.SNAPSHOT)


@pytest.mark.notices("what-was-read-follows-a-compaction")
def test_who_read_a_file_depends_on_what_a_compaction_made_of_it() -> None:
    first = compaction(1, file("a.parquet"), "b.parquet")
    second = compaction(2, file("b.parquet"), "c.parquet")
    gone = Winner(3, "DELETE", removed={"c.parquet": removed(file("c.parquet"))})
    assert isinstance(check_against_all(reading("a.parquet"), [first, second], no_vectors), Candidate)
    found = check_against_all(reading("a.parquet"), [first, second, gone], no_vectors)
    assert isinstance(found, Conflict)
    assert found.rule.name == "removed-what-i-read"
    assert isinstance(check_against_all(reading("other.parquet"), [first, second, gone], no_vectors), Candidate)


def reading_rows(path: str, *rows: int) -> Candidate:
    """It read rows of a file, and adds rows elsewhere, in a table with deletion vectors."""
    footprint = Footprint(read_rows={path: to_text(Rows(rows))}, row_level=True, predicates=("a > 7",))
    return Candidate("t", "WRITE", footprint, IsolationLevel.SNAPSHOT)


def deleting(version: int, source: AddFile, *rows: int) -> Winner:
    left = replace(source, deletion_vector=vector_of(*rows))
    return Winner(version, "DELETE", adds=(left,), removed={source.path: removed(source)})


@pytest.mark.notices("rows-that-were-read-count")
def test_who_read_rows_depends_on_these_rows_alone() -> None:
    other, mine = deleting(1, file("a.parquet"), 3), deleting(1, file("a.parquet"), 3, 4)
    assert isinstance(check_against_all(reading_rows("a.parquet", 4), [other], inline_rows), Candidate)
    found = check_against_all(reading_rows("a.parquet", 4), [mine], inline_rows)
    assert isinstance(found, Conflict)
    assert (found.rule.name, found.what) == ("removed-what-i-read", "1 row of a.parquet")


@pytest.mark.notices("rows-that-were-read-are-followed")
def test_rows_that_were_read_are_followed_through_compactions() -> None:
    moved = with_moves(removed(file("a.parquet"), data_change=False), [Moved("b.parquet", 0, 10, 5)])
    compacted = Winner(1, "OPTIMIZE", adds=(replace(file("b.parquet"), data_change=False),), removed={"a.parquet": moved})
    output = file("b.parquet")
    assert isinstance(check_against_all(reading_rows("a.parquet", 4), [compacted, deleting(2, output, 4)], inline_rows), Candidate)
    found = check_against_all(reading_rows("a.parquet", 4), [compacted, deleting(2, output, 9)], inline_rows)
    assert isinstance(found, Conflict)
    assert found.rule.name == "removed-what-i-read"


def test_rows_whose_new_place_is_unknown_are_all_rows_of_the_new_files() -> None:
    ordered = removed(file("a.parquet"), data_change=False)
    compacted = Winner(1, "OPTIMIZE", adds=(replace(file("b.parquet"), data_change=False),), removed={"a.parquet": ordered})
    assert isinstance(check_against_all(reading_rows("a.parquet", 4), [compacted], inline_rows), Candidate)
    assert isinstance(
        check_against_all(reading_rows("a.parquet", 4), [compacted, deleting(2, file("b.parquet"), 0)], inline_rows), Conflict
    )


def test_rows_that_nobody_can_read_are_all_rows_of_their_file() -> None:
    footprint = Footprint(read_rows={"a.parquet": "no rows"}, row_level=True, predicates=("a > 7",))
    attempt = Candidate("t", "WRITE", footprint, IsolationLevel.SNAPSHOT)
    assert isinstance(check_against_all(attempt, [deleting(1, file("a.parquet"), 3)], inline_rows), Conflict)


@pytest.mark.notices("vectors-have-one-base")
@pytest.mark.parametrize("base", [None, (1,)], ids=["none", "another"])
def test_vectors_that_were_made_on_different_ones_are_not_united(base: tuple[int, ...] | None) -> None:
    """A transaction that deletes rows of a file as it was at another time than the winner found it."""
    mine, theirs = vector_of(1, 2, 5), vector_of(1, 2, 7)
    known = {vector.unique_id: rows for vector, rows in ((mine, Rows([1, 2, 5])), (theirs, Rows([1, 2, 7])))}
    before_me = vector_of(1, 2)
    known[before_me.unique_id] = Rows([1, 2])
    before_them = None if base is None else vector_of(*base)
    if before_them is not None:
        known[before_them.unique_id] = Rows(base)
    winner = Winner(1, "DELETE", adds=(file("a.parquet", theirs),), removed={"a.parquet": removed(file("a.parquet", before_them))})
    actions = (removed(file("a.parquet", before_me)), file("a.parquet", mine))
    assert merge(actions, winner, next(_owners), lambda vector: known[vector.unique_id]).reconciled == set()
