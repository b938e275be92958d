"""The files of one version's changes: their order, and how a large version is cut into pieces."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.storage.actions import Action, AddCDCFile, AddFile, CommitInfo, RemoveFile
from sluice.tables.read.changed_files import ALL, ChangedFiles

WRITTEN = CommitInfo({"operation": "WRITE", "operationParameters": {"mode": "Overwrite"}})


def added(path: str, size: int = 10, *, change: bool = True) -> AddFile:
    return AddFile(path, {}, size, 0, data_change=change)


def removed(path: str, size: int | None = 10, *, change: bool = True) -> RemoveFile:
    return RemoveFile(path, data_change=change, size=size, partition_values={})


def names(files: ChangedFiles) -> list[str]:
    return [each.path for each in files]


@pytest.mark.parametrize(
    ("actions", "expected"),
    [
        ([added("a"), removed("b"), added("c", change=False), removed("d")], ["b", "d", "a"]),
        ([added("a"), AddCDCFile("c", {}, 1), removed("b"), AddCDCFile("d", {}, 1)], ["c", "d"]),
        ([added("a", change=False), removed("b", change=False)], []),
    ],
)
def test_the_order_of_files(actions: Sequence[Action], expected: list[str]) -> None:
    files = ChangedFiles(1, actions)
    assert names(files) == expected
    assert files.reaches_end
    assert names(ChangedFiles(1, actions, range(1, ALL.stop))) == expected[1:]


@pytest.mark.parametrize(("size", "count", "taken"), [(1, 1, 10), (10, 1, 10), (11, 2, 20), (30, 3, 30), (1000, 4, 30)])
def test_a_piece_takes_no_further_file_after_so_many_bytes(size: int, count: int, taken: int) -> None:
    piece, found = ChangedFiles(1, [WRITTEN, *(added(name) for name in "abc"), removed("z", None)], range(1, ALL.stop)).within(size)
    assert (names(piece), found) == (["a", "b", "c"][:count], taken)
    assert piece.reaches_end == (count >= 3)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 50)), max_size=8), st.integers(1, 80))
def test_pieces_make_up_the_version(of: list[tuple[bool, int]], size: int) -> None:
    actions = [WRITTEN, *(added(f"a{n}", bytes_) if is_new else removed(f"r{n}", bytes_) for n, (is_new, bytes_) in enumerate(of))]
    files, pieces = ChangedFiles(1, actions), list[str]()
    part = ALL
    while True:
        piece, taken = ChangedFiles(1, actions, part).within(size)
        pieces += names(piece)
        assert taken < size + 50
        if piece.reaches_end:
            break
        assert names(piece), "each piece goes on"
        part = range(piece.part.stop, ALL.stop)
    assert pieces == names(files)


@pytest.mark.parametrize(("operation", "cut"), [("UPDATE", False), ("MERGE", False), ("DELETE", True)])
def test_change_data_files_are_cut_if_they_have_no_new_values(operation: str, cut: bool) -> None:
    info = CommitInfo({"operation": operation})
    piece, taken = ChangedFiles(1, [info, AddCDCFile("a", {}, 7), AddCDCFile("b", {}, 8)]).within(1)
    assert (names(piece), taken, piece.reaches_end) == ((["a"], 7, False) if cut else (["a", "b"], 15, True))
    assert not ChangedFiles(1, [AddCDCFile("a", {}, 7), AddCDCFile("b", {}, 8)]).divides, "nothing tells the operation"


@pytest.mark.parametrize(("operation", "together"), [("UPDATE", True), ("WRITE", False)])
def test_a_version_that_may_have_copied_rows_is_not_cut(operation: str, together: bool) -> None:
    actions: list[Action] = [
        CommitInfo({"operation": operation, "operationParameters": {"mode": "Overwrite"}}),
        removed("a"),
        added("b"),
        added("c"),
    ]
    piece, taken = ChangedFiles(1, actions).within(1)
    assert piece.copies == together
    assert (len(names(piece)), taken) == ((3, 30) if together else (1, 10))
