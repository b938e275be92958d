"""Winners that are met together are decided like winners that are met one by one, and their files are looked at in one go."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.coordinator.rules import winner as winners_module
from sluice.coordinator.rules.conflicts import DELTA_LAKE, Conflict
from sluice.coordinator.rules.intent import ConflictPolicy, IsolationLevel
from sluice.coordinator.rules.read_scope import ReadScope
from sluice.coordinator.rules.rebase import Candidate, check_against, check_against_all
from sluice.coordinator.rules.winner import Footprint, Winner, windows
from sluice.storage.actions import AddFile, RemoveFile
from sluice.storage.data.vectors import Rows
from sluice.storage.pruning.files import AddedFiles
from tests.storage.strategies import examples

TYPES = {"p": "integer"}
COLUMNS = {"i": '"long"'}
LEVELS = st.sampled_from([IsolationLevel.SERIALIZABLE, IsolationLevel.WRITE_SERIALIZABLE])
CONDITIONS = st.lists(st.sampled_from(["p = 1", "i > 5", "p = 2 AND i < 3", "p = 1 OR i = 4"]), max_size=2, unique=True)


def no_vectors(vector: object) -> Rows:
    raise LookupError(vector)


@st.composite
def winner(draw: st.DrawFn) -> Winner:
    files = []
    for number in range(draw(st.integers(0, 3))):
        low = draw(st.integers(0, 8))
        body = {"numRecords": 2, "minValues": {"i": low}, "maxValues": {"i": low + draw(st.integers(0, 2))}, "nullCount": {"i": 0}}
        stats = draw(st.sampled_from([json.dumps(body), None, "not JSON"]))
        files.append(AddFile(f"f{number}", {"p": draw(st.sampled_from(["1", "2", None]))}, 1, 1, draw(st.booleans()), stats))
    removed = {"f0": RemoveFile("f0", data_change=True)} if draw(st.booleans()) else {}
    return Winner(0, blind_append=draw(st.booleans()), adds=AddedFiles(files), removed=removed)


def footprint(predicates: Sequence[str], locks: Sequence[str] = (), **more: object) -> Footprint:
    known = {
        "predicates": tuple(predicates),
        "locks": tuple(locks),
        "partition_types": TYPES,
        "column_types": COLUMNS,
        "removes": ("mine",),
    }
    return Footprint(**{**known, **more})  # type: ignore[arg-type]


def attempt(mine: Footprint, level: IsolationLevel = IsolationLevel.SERIALIZABLE) -> Candidate:
    return Candidate("t", "UPDATE", mine, level)


def one_by_one(mine: Candidate, winners: Sequence[Winner]) -> Candidate | Conflict:
    for each in winners:
        met = check_against(mine, each, no_vectors)
        if isinstance(met, Conflict):
            return met
        mine = met
    return mine


@examples(300)
@given(CONDITIONS, CONDITIONS, st.lists(winner(), max_size=6), LEVELS, st.sampled_from([*ConflictPolicy, DELTA_LAKE]), st.integers(1, 3))
def test_met_together_or_one_by_one_the_verdict_is_the_same(
    predicates: list[str], locks: list[str], drawn: list[Winner], level: IsolationLevel, policy: str, size: int
) -> None:
    winners = [replace(each, version=version) for version, each in enumerate(drawn)]
    mine = attempt(footprint(predicates, locks, policy=policy), level)
    with patch.object(winners_module, "_WINNERS_MAX", size):
        assert check_against_all(mine, winners, no_vectors) == one_by_one(mine, winners)


def rows_of(version: int, low: int, *, blind: bool = False) -> Winner:
    body = {"numRecords": 1, "minValues": {"i": low}, "maxValues": {"i": low}, "nullCount": {"i": 0}}
    return Winner(version, blind_append=blind, adds=AddedFiles([AddFile(f"f{version}", {"p": "1"}, 1, 1, True, json.dumps(body))]))


def looks(mine: Candidate, winners: Sequence[Winner]) -> list[list[str]]:
    """The files of each look that a transaction takes."""
    taken: list[list[str]] = []
    look = ReadScope.touched

    def counted(scope: ReadScope, adds: Sequence[AddFile], *, statistics: bool = True) -> list[AddFile]:
        taken.append([add.path for add in adds])
        return look(scope, adds, statistics=statistics)

    with patch.object(ReadScope, "touched", counted):
        check_against_all(mine, winners, no_vectors)
    return taken


def test_the_files_of_all_winners_are_looked_at_together() -> None:
    assert looks(attempt(footprint(["i > 50"])), [rows_of(version, version) for version in range(5)]) == [["f0", "f1", "f2", "f3", "f4"]]


@pytest.mark.parametrize("mine", [footprint([], blind_append=True), footprint(["i > 50"], data_change=False)], ids=["append", "moves rows"])
def test_who_reads_nothing_looks_at_no_file(mine: Footprint) -> None:
    assert looks(attempt(mine), [rows_of(1, 1), rows_of(2, 2)]) == []


def test_blind_appends_are_not_looked_at_where_they_do_not_count() -> None:
    winners = [rows_of(1, 1, blind=True), rows_of(2, 2), rows_of(3, 3, blind=True), rows_of(4, 4)]
    assert looks(attempt(footprint(["i > 50"]), IsolationLevel.WRITE_SERIALIZABLE), winners) == [["f2", "f4"]]
    locked = attempt(footprint(["i > 50"], ["i > 60"]), IsolationLevel.WRITE_SERIALIZABLE)
    assert looks(locked, winners) == [["f1", "f2", "f3", "f4"], ["f2", "f4"]]


def test_a_window_is_bounded() -> None:
    with patch.object(winners_module, "_WINNERS_MAX", 2):
        assert [[each.version for each in some.winners] for some in windows(rows_of(version, 0) for version in range(5))] == [
            [0, 1],
            [2, 3],
            [4],
        ]
