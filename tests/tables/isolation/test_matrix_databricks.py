"""Both of Databricks' tables of what can conflict, cell by cell, through transactions that run at the same time; in the long tests
on a real ZooKeeper.

Which cell says what is read from the documentation's own tables (tests/coordinator/conflict_matrices.json). Their cells are
about pairs in either order; here each pair meets in both. What is better here than documented: deletion vectors let writers
of different rows go on in partitioned tables too, and statistics tell files, and rows that were inserted, of one partition apart.
Under the policy `databricks` (test_policy_databricks.py) nothing is better.
"""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

import pytest

from sluice.coordinator import errors
from sluice.storage.actions import RemoveFile
from sluice.tables.maintain.compaction import CompactionRequest, stage_compaction
from tests.tables.conftest import Place, present
from tests.tables.isolation.matrices import (
    CHANGES,
    FIRST,
    MATRICES,
    OPERATIONS,
    OTHER_PARTITION,
    SAME_ROWS,
    SECOND,
    Side,
    create,
    meet,
    queue,
    read,
    table_of,
)

pytestmark = pytest.mark.zookeeper

LEVELS = ("WriteSerializable", "Serializable")
WITH, WITHOUT = "with_row_level_concurrency", "without_row_level_concurrency"
SORTS = {"INSERT": ("append",), "UPDATE_DELETE_MERGE": CHANGES, "OPTIMIZE": ("minor compaction", "z-order")}
INSERT_THEN_CHANGE = ("INSERT", "UPDATE_DELETE_MERGE")
DELTAS = (errors.ConcurrentAppendException, errors.ConcurrentDeleteReadException, errors.ConcurrentDeleteDeleteException)
OTHER_FILE: Final = Side(1, (14, 16), (200, 201))
MEETS_INSERTED: Final = Side(1, (11, 100), (200, 201))
"""Changes a row that is there and one that FIRST inserts."""
INSERTS_AROUND: Final = Side(1, (10, 12), (5, 300))
"""Inserts rows on both sides of those that SECOND changes, so that only a look into the file tells them apart."""


class Arrangement(NamedTuple):
    """How the rows of a pair lie to one another, and whether the later one is refused then; `tells_rows`: naming how many."""

    name: str
    sides: tuple[Side, Side]
    refused: bool
    tells_rows: bool = False


@dataclass(frozen=True)
class Layout:
    """A table, and which of the documentation's two it is."""

    table: str
    level: str
    vectors: bool
    partitioned: bool

    @property
    def properties(self) -> dict[str, str]:
        return {"delta.isolationLevel": self.level, "delta.enableDeletionVectors": str(self.vectors).lower()}

    def cell(self, one: str, other: str) -> str:
        """What the documentation says of two sorts of operations."""
        documented = MATRICES["databricks"][self.table]
        said = documented.get(f"{one}/{other}") or documented[f"{other}/{one}"]
        found: str = said[self.level] if self.level in said else said["deletion_vectors" if self.vectors else "no_deletion_vectors"]
        return found

    @property
    def kind(self) -> tuple[str, bool, bool]:
        """All of it but the level."""
        return self.table, self.vectors, self.partitioned

    def __str__(self) -> str:
        return f"{self.level}-{'vectors' if self.vectors else 'copies'}{'-partitioned' if self.partitioned else ''}"


LAYOUTS = [
    Layout(table, level, vectors, partitioned)
    for level in LEVELS
    for table, vectors, partitioned in ((WITH, True, False), (WITHOUT, False, False), (WITHOUT, False, True), (WITHOUT, True, True))
]


def arrangements(layout: Layout, sorts: tuple[str, str], earlier: str, later: str, *, strict: bool) -> Iterator[Arrangement]:
    """What a cell means for a pair; `strict`: where one partition conflicts, whatever statistics tell."""
    cell = layout.cell(*sorts)
    if layout.partitioned:
        yield Arrangement("different partitions", (FIRST, OTHER_PARTITION), refused=False)
    if "INSERT" in sorts:
        in_partition = strict and cell == "same_partition"
        yield Arrangement("other rows", (FIRST, SECOND), refused=in_partition and sorts == INSERT_THEN_CHANGE)
        if sorts == INSERT_THEN_CHANGE:  # an append reads nothing, so that one after a change stands at every level
            can = cell in ("same_row", "same_partition")
            assert can or cell == "never"
            yield Arrangement("rows around", (INSERTS_AROUND, SECOND), refused=in_partition if strict else can and not layout.vectors)
            if can or later != "upsert":  # which makes two rows of one key (see below)
                yield Arrangement("the rows inserted", (FIRST, MEETS_INSERTED), refused=can)
        return
    match cell:
        case "same_row":
            yield Arrangement("same rows", (FIRST, SAME_ROWS), refused=True, tells_rows=True)
            yield Arrangement("same file", (FIRST, SECOND), refused=False)
        case "same_partition":
            yield Arrangement("same rows", (FIRST, SAME_ROWS), refused=True, tells_rows=layout.vectors)
            yield Arrangement("same file", (FIRST, SECOND), refused=strict or not layout.vectors)
            if strict or (layout.partitioned and earlier != "upsert"):  # statistics tell that its new file holds none of these rows
                yield Arrangement("other file", (FIRST, OTHER_FILE), refused=strict)
        case "same_file":
            yield Arrangement("same file", (FIRST, SECOND), refused=True)
        case "only_if_zorder":
            # Databricks says that they can; here rows are followed through a z-order, too.
            yield Arrangement("same file", (FIRST, SECOND), refused=False)
        case _:
            raise AssertionError(f"{sorts} says {cell!r}")


@dataclass(frozen=True)
class Case:
    """A pair in one arrangement of its rows in one layout."""

    layout: Layout
    sorts: tuple[str, str]
    earlier: str
    later: str
    at: Arrangement
    policy: str

    def __str__(self) -> str:
        return f"{self.layout}-{self.earlier}-{self.later}-{self.at.name}"


def every_case(policy: str = "delta") -> Iterator[Case]:
    for layout in LAYOUTS:
        for sorts in itertools.product(SORTS, SORTS):
            for earlier, later in itertools.product(SORTS[sorts[0]], SORTS[sorts[1]]):
                for at in arrangements(layout, sorts, earlier, later, strict=policy == "databricks"):
                    yield Case(layout, sorts, earlier, later, at, policy)


def stands_for_others(layout: Layout, earlier: str, later: str, arrangement: str, *, refused: bool) -> bool:
    """Whether a pair is tried where each cell is tried in all its arrangements, but by one of the operations that are of one sort.

    Of those each is tried in both places, and so are all pairs of changes.
    """
    changes = [CHANGES.index(name) for name in (earlier, later) if name in CHANGES]
    number = LAYOUTS.index(layout)
    if len(changes) == 1:
        choices = 2 if arrangement == "the rows inserted" and not refused else 3  # it is not for every change
        return (number + (arrangement == "different partitions")) % choices == changes[0]
    return len(changes) != 2 or layout.table == WITH or (changes[1] - changes[0] - number) % len(CHANGES) == 0


def levels_of(cases: Iterable[Case]) -> Mapping[Hashable, tuple[str, ...]]:
    """For a kind of table and an arrangement in a cell: the levels at which it is tried. Where both say the same, one, in turns."""
    said: defaultdict[Hashable, defaultdict[str, set[bool]]] = defaultdict(lambda: defaultdict(set))
    for case in cases:
        said[case.layout.kind, case.sorts, case.at.name][case.layout.level].add(case.at.refused)
    alike = sorted((each for each, levels in said.items() if len({frozenset(found) for found in levels.values()}) == 1), key=str)
    return dict.fromkeys(said, LEVELS) | {each: (LEVELS[turn % len(LEVELS)],) for turn, each in enumerate(alike)}


def one_of_each(policy: str = "delta") -> Iterator[Case]:
    levels = levels_of(every_case(policy))
    for case in every_case(policy):
        if case.layout.level in levels[case.layout.kind, case.sorts, case.at.name] and stands_for_others(
            case.layout, case.earlier, case.later, case.at.name, refused=case.at.refused
        ):
            yield case


@pytest.fixture
def place(real_if_long: Place) -> Place:
    return real_if_long


def check(place: Place, case: Case, *, begun_later: bool = True, monkeypatch: pytest.MonkeyPatch | None = None) -> None:
    """Both stand, or the later one is refused by one of Delta's errors, which says where."""
    layout = case.layout
    properties = {**layout.properties, "sluice.conflictPolicy": case.policy}
    options = {"properties": properties, "partitioned": layout.partitioned, "sides": case.at.sides}
    if monkeypatch is None:
        met = meet(place, case.earlier, case.later, begun_later=begun_later, **options)  # type: ignore[arg-type]
    else:
        with queue(monkeypatch) as together:
            met = meet(place, case.earlier, case.later, together=together, **options)  # type: ignore[arg-type]
    assert (met.verdict != "ok") == case.at.refused, met.refusal
    if met.refusal is None:
        return
    assert isinstance(met.refusal, DELTAS)
    if case.policy == "databricks":
        return
    named = r"\b2 rows of \S*part-\S+\.parquet" if case.at.tells_rows else r"files \S*part-\S+\.parquet|rows? of \S*part-|partitions part=1"
    assert re.search(named, met.refusal.message), met.refusal.message
    if case.sorts == INSERT_THEN_CHANGE:
        assert type(met.refusal) is errors.ConcurrentAppendException


@pytest.mark.slow
@pytest.mark.parametrize("case", list(one_of_each()), ids=str)
@pytest.mark.many
def test_a_cell(place: Place, case: Case) -> None:
    check(place, case)


@pytest.mark.long
@pytest.mark.zookeeper
@pytest.mark.parametrize("in_one_queue", [False, True], ids=["begun the other way round", "in one queue"])
@pytest.mark.parametrize("case", list(every_case()), ids=str)
def test_every_operation_of_a_cell(place: Place, case: Case, in_one_queue: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    check(place, case, begun_later=False, monkeypatch=monkeypatch if in_one_queue else None)


@pytest.mark.parametrize("policy", ["delta", "databricks"])
def test_no_cell_and_no_operation_is_left_out(policy: str) -> None:
    """That the cases are all there are: every cell in both orders, in every arrangement that it has; each change in both places."""
    cases, everything = list(one_of_each(policy)), list(every_case(policy))
    for kind in {layout.kind for layout in LAYOUTS}:
        here = [case for case in cases if case.layout.kind == kind]
        assert {case.sorts for case in here} == set(itertools.product(SORTS, SORTS))
        assert {(case.sorts, case.at.name, case.at.refused) for case in here} == {
            (case.sorts, case.at.name, case.at.refused)
            for case in everything
            if case.layout.kind == kind and "upsert" not in (case.earlier, case.later)
        }
        pairs = {frozenset(name.split("/")) for name in MATRICES["databricks"][kind[0]]}
        assert {frozenset(case.sorts) for case in here} == pairs
    for table in (WITH, WITHOUT):
        tried = {(case.earlier, case.later) for case in cases if case.layout.table == table}
        assert tried >= set(itertools.product(CHANGES, CHANGES))


# -- beside the tables -----------------------------------------------------------------------------------------------------


def test_a_merge_and_an_insert_of_one_key_both_stand_under_write_serializable(place: Place) -> None:
    """Blind appends count as later there, so that a key may be there twice afterwards; Serializable is for those who mind."""
    create(place, {"delta.isolationLevel": "WriteSerializable"}, partitioned=False)
    merge = place.open().begin()
    merge.upsert(table_of({100: (1, 7)}), on=["id"])
    place.open().append(table_of({100: (1, 8)}))
    merge.commit()
    found = place.open().snapshot().to_arrow(where="id = 100")
    assert sorted(found["v"].to_pylist()) == [7, 8]


@pytest.mark.parametrize("vectors", ["true", "false"])
@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("first", ["change", "compaction"])
def test_a_compaction_of_other_files_stands_beside_every_change(place: Place, name: str, first: str, vectors: str) -> None:
    """Without deletion vectors a compaction and a change can conflict in the same file only, also within a partition."""
    seen = create(place, {"delta.enableDeletionVectors": vectors}, partitioned=False)
    large = {key: (1, key) for key in range(1000, 5000)}
    place.open().append(table_of(large))
    seen |= large
    side = Side(1, (1500, 1501), (7000, 7001))
    change = OPERATIONS[name].stage(place.open(), side)
    compaction = present(stage_compaction(place.open().coordinated, CompactionRequest("minor", target_file_size=4096)))
    removed = [action.path for action in compaction.change.actions if isinstance(action, RemoveFile)]
    assert len(removed) == 2, "the large file takes part too"
    for each in (change, compaction) if first == "change" else (compaction, change):
        assert each.commit() is not None
    assert read(place) == OPERATIONS[name].after(seen, seen, side, replacing=False)


# -- snapshot isolation ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("vectors", ["true", "false"])
@pytest.mark.parametrize("name", CHANGES)
def test_snapshot_isolation_lets_a_change_pass_over_what_others_inserted(place: Place, name: str, vectors: str) -> None:
    """Also over inserts that are not blind, which WriteSerializable minds."""
    properties = {"delta.isolationLevel": "SnapshotIsolation", "delta.enableDeletionVectors": vectors}
    met = meet(
        place, "append", name, properties=properties, partitioned=False, sides=(FIRST, MEETS_INSERTED if name != "upsert" else SECOND)
    )
    assert met.verdict == "ok"
    before = read(place)
    change = place.open().begin()
    change.update({"v": "0"}, "v < 1000 AND part = 2")
    copy = place.open().begin()
    copied = copy.scan(where="id = 20")
    copy.append(table_of({900: (2, copied["v"][0].as_py())}))
    copy.commit()
    assert change.commit() is not None
    assert read(place) == {key: (2, 0) if row[0] == 2 else row for key, row in before.items()} | {900: (2, 0)}


@pytest.mark.parametrize("vectors", ["true", "false"])
@pytest.mark.parametrize(("earlier", "later"), list(itertools.product(CHANGES, CHANGES)))
def test_snapshot_isolation_refuses_two_changes_of_one_row(place: Place, earlier: str, later: str, vectors: str) -> None:
    properties = {"delta.isolationLevel": "SnapshotIsolation", "delta.enableDeletionVectors": vectors}
    met = meet(place, earlier, later, properties=properties, partitioned=False, sides=(FIRST, SAME_ROWS))
    assert isinstance(met.refusal, DELTAS[1:]), met.refusal
    assert ("2 rows of part-" if vectors == "true" else "files part-") in met.refusal.message


@pytest.mark.parametrize("level", ["SnapshotIsolation", *LEVELS])
def test_snapshot_isolation_allows_write_skew(place: Place, level: str) -> None:
    """Two that each add what the other looked for and did not find both stand; the other levels refuse the later one."""
    seen = create(place, {"delta.isolationLevel": level, "delta.enableDeletionVectors": "true"}, partitioned=False)
    pair = [place.open().begin() for _ in range(2)]
    for number, begun in enumerate(pair):
        assert begun.scan(where="id >= 500").num_rows == 0
        begun.append(table_of({500 + number: (1, 0)}))
    pair[0].commit()
    if level == "SnapshotIsolation":
        pair[1].commit()
        assert read(place) == seen | {500: (1, 0), 501: (1, 0)}
    else:
        with pytest.raises(errors.ConcurrentAppendException):
            pair[1].commit()
        assert read(place) == seen | {500: (1, 0)}
