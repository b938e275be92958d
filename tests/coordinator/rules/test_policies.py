"""MaxCompute's policies: every cell of the matrices, when two transactions meet in a partition at all, and the rule that asks them.

`conflict_matrices.json` restates the matrices of MaxCompute's documentation (concurrency of jobs on ordinary, transactional
and Delta tables), and beside them Databricks' tables of what can conflict.

What a transaction read goes on to count: through compactions of others, and never on vectors that were made on others.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from sluice.coordinator.rules.conflicts import Conflict
from sluice.coordinator.rules.intent import ConflictPolicy, IsolationLevel, Kind, class_of
from sluice.coordinator.rules.policies import MATRICES, OK, REFUSED, REPLACES, common_partition, conflicting_class, outcome, word_of
from sluice.coordinator.rules.rebase import Candidate, check_against_all
from sluice.coordinator.rules.row_changes import merge
from sluice.coordinator.rules.winner import Footprint, Winner, partition_key, winner_of
from sluice.storage.actions import AddFile, CommitInfo, DeletionVector, RemoveFile
from sluice.storage.actions.file_removals import Moved, with_moves
from sluice.storage.data.vectors import Rows, inline_rows, plan_vector, to_text
from tests.coordinator.world import no_vectors

DOCUMENTED = {
    (ConflictPolicy(policy), earlier, later): verdict
    for policy, rows in json.loads((Path(__file__).parents[1] / "conflict_matrices.json").read_text()).items()
    if policy.startswith("maxcompute")
    for earlier, row in rows.items()
    for later, verdict in row.items()
}


POLICIES = tuple(MATRICES)


DELTA = ConflictPolicy.MAXCOMPUTE_DELTA


def test_the_matrices_have_every_documented_cell_and_no_other() -> None:
    mine = {(policy, *pair): "refuse_later" if cell == REFUSED else "ok" for policy in POLICIES for pair, cell in MATRICES[policy].items()}
    assert mine == DOCUMENTED
    assert len(mine) == 4 * 4 + 4 * 4 + 5 * 5


def test_an_overwrite_replaces_whatever_came_first() -> None:
    for matrix in MATRICES.values():
        assert {cell for (_, later), cell in matrix.items() if later == "OVERWRITE"} == {REPLACES}
        assert {cell for (_, later), cell in matrix.items() if later != "OVERWRITE"} == {OK, REFUSED}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("earlier", Kind)
@pytest.mark.parametrize("later", Kind)
def test_every_pair_of_kinds_is_the_cell_of_its_words(policy: ConflictPolicy, earlier: Kind, later: Kind) -> None:
    words = word_of(policy, earlier), word_of(policy, later)
    if Kind.OTHER in (earlier, later):
        assert None in words
        assert outcome(policy, earlier, later) == OK
    else:
        assert (outcome(policy, earlier, later) == REFUSED) == (DOCUMENTED[policy, str(words[0]), str(words[1])] == "refuse_later")


def test_both_compactions_are_a_small_file_merge_where_the_matrix_has_one_word() -> None:
    for policy in (ConflictPolicy.MAXCOMPUTE_TABLE, ConflictPolicy.MAXCOMPUTE_TRANSACTIONAL):
        assert word_of(policy, Kind.MINOR) == word_of(policy, Kind.MAJOR) == "SMALL_FILE_MERGE"
    assert (word_of(DELTA, Kind.MINOR), word_of(DELTA, Kind.MAJOR)) == ("MINOR_COMPACT", "MAJOR_COMPACT")


def test_delta_has_no_matrix() -> None:
    assert not any(outcome(ConflictPolicy.DELTA, earlier, later) == REFUSED for earlier in Kind for later in Kind)


def add(path: str = "f", values: Mapping[str, str | None] | None = None, *, data_change: bool = True, vector: bool = False) -> AddFile:
    deleted = DeletionVector("u", "abc", 10, 1, 1) if vector else None
    return AddFile(path, values or {}, 1, 1, data_change, deletion_vector=deleted)


def remove(path: str = "f", values: Mapping[str, str | None] | None = None, *, data_change: bool = True) -> RemoveFile:
    return RemoveFile(path, data_change, partition_values=values)


@pytest.mark.parametrize(
    ("operation", "mode", "adds", "removes", "kind"),
    [
        ("WRITE", "Append", [add()], [], Kind.APPEND),
        ("WRITE", "", [add()], [], Kind.APPEND),
        ("STREAMING UPDATE", "", [add()], [], Kind.APPEND),
        ("a name nobody knows", "", [add()], [], Kind.APPEND),
        ("WRITE", "Overwrite", [add()], [remove("g")], Kind.OVERWRITE),
        ("WRITE", "Overwrite", [add()], [], Kind.OVERWRITE),
        ("WRITE", "", [add()], [remove("g")], Kind.OVERWRITE),
        ("WRITE", "", [], [remove("g")], Kind.OVERWRITE),
        ("", "", [], [remove("g")], Kind.OVERWRITE),
        ("TRUNCATE", "", [], [remove("g")], Kind.OVERWRITE),
        ("TRUNCATE", "", [], [], Kind.OVERWRITE),
        ("RESTORE", "", [add()], [], Kind.OVERWRITE),
        ("REPLACE TABLE AS SELECT", "", [add()], [], Kind.OVERWRITE),
        ("DELETE", "", [], [remove("g")], Kind.CHANGE),
        ("DELETE", "", [add()], [remove("g")], Kind.CHANGE),
        ("UPDATE", "", [add()], [remove("g")], Kind.CHANGE),
        ("MERGE", "", [add()], [], Kind.CHANGE),
        ("", "", [add()], [remove("g")], Kind.CHANGE),
        ("WRITE", "", [add("f", vector=True)], [remove("f")], Kind.CHANGE),
        ("OPTIMIZE", "", [add(data_change=False)], [remove("g", data_change=False)], Kind.MINOR),
        ("", "", [add(data_change=False)], [], Kind.MINOR),
        ("REORG", "", [add(data_change=False)], [remove("g", data_change=False)], Kind.MAJOR),
        ("SET TBLPROPERTIES", "", [], [], Kind.OTHER),
        ("DELETE", "", [], [], Kind.OTHER),
    ],
)
def test_the_kind_of_a_commit_that_does_not_say_it(
    operation: str, mode: str, adds: list[AddFile], removes: list[RemoveFile], kind: Kind
) -> None:
    assert class_of(operation, adds, removes, mode=mode) is kind


def test_a_partition_has_one_name_whatever_the_order_of_its_columns() -> None:
    assert partition_key({"q": "x", "p": "1"}) == partition_key({"p": "1", "q": "x"}) == '{"p":"1","q":"x"}'
    assert partition_key({"p": None}) == partition_key({"p": ""}) == '{"p":null}'
    assert partition_key({}) == "{}"


P1, P2 = partition_key({"p": "1"}), partition_key({"p": "2"})


@pytest.mark.parametrize(
    ("mine", "adds", "removed", "common"),
    [
        ((P1,), [add("f", {"p": "1"})], [], P1),
        ((P1,), [add("f", {"p": "2"})], [], None),
        ((P1,), [add("f", {"p": "2"})], [remove("g", {"p": "1"})], P1),
        ((P1, P2), [add("f", {"p": "2"})], [], P2),
        (None, [add("f", {"p": "2"})], [], P2),
        (None, [], [], None),
        ((), [add("f", {"p": "2"})], [remove("g", {"p": "1"})], None),
        ((P2, P1), [], [remove("g", None)], P1),
        (None, [], [remove("g", None)], "{}"),
        (("{}",), [add("f")], [], "{}"),
    ],
)
def test_two_transactions_meet_where_both_touch_a_partition(
    mine: tuple[str, ...] | None, adds: list[AddFile], removed: list[RemoveFile], common: str | None
) -> None:
    winner = Winner(1, adds=tuple(adds), removed={each.path: each for each in removed})
    assert common_partition(Footprint(partitions=mine), winner) == common


def told(policy: ConflictPolicy, later: Kind, partitions: tuple[str, ...] | None, winner: Winner) -> str | None:
    return conflicting_class(Footprint(kind=later.value, policy=policy.value, partitions=partitions), winner)


def test_a_refusal_names_what_came_first_and_where() -> None:
    insert = Winner(7, kind=Kind.APPEND, adds=(add("f", {"p": "1"}),))
    assert told(DELTA, Kind.APPEND, (P1,), insert) == "INSERT, which came first in partition p=1"
    assert told(DELTA, Kind.APPEND, (P2,), insert) is None
    assert told(DELTA, Kind.OVERWRITE, (P1,), insert) is None
    assert told(ConflictPolicy.MAXCOMPUTE_TABLE, Kind.APPEND, (P1,), insert) is None
    emptied = Winner(7, kind=Kind.OVERWRITE, removed={"g": remove("g", {})})
    assert told(DELTA, Kind.CHANGE, ("{}",), emptied) == "OVERWRITE, which came first in the table"
    assert told(ConflictPolicy.MAXCOMPUTE_TABLE, Kind.MAJOR, None, emptied) == "OVERWRITE, which came first in the table"


def test_a_winner_that_does_not_say_its_kind_is_judged_by_what_it_did() -> None:
    foreign = winner_of(7, [CommitInfo({"operation": "OPTIMIZE"}), add("f", {"p": "1"}, data_change=False)])
    assert told(DELTA, Kind.APPEND, (P1,), foreign) is None
    assert told(DELTA, Kind.MINOR, (P1,), foreign) == "MINOR_COMPACT, which came first in partition p=1"


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
