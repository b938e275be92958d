"""A footprint that becomes too long becomes coarser, never smaller: what is left out counts as everything."""

from __future__ import annotations

import uuid

import pytest

from sluice.coordinator.admission.change import Change, Reads
from sluice.coordinator.admission.change_footprint import bounded, declared_reads
from sluice.coordinator.rules import winner as footprints
from sluice.coordinator.rules.operation_kinds import Kind
from sluice.coordinator.rules.winner import Footprint, footprint_of
from sluice.storage.actions import Action, AddFile, RemoveFile
from sluice.storage.data.vectors import Rows
from sluice.storage.schema.schema import parse_schema
from tests.tables.conftest import Place, flights

MOST = 3


def added(n: int) -> AddFile:
    return AddFile(f"month={n}/{n}.parquet", {"origin": "JFK", "month": str(n)}, 1, 1, True)


def removed(n: int) -> RemoveFile:
    return RemoveFile(f"{n}.parquet", True, deletion_timestamp=1, partition_values={"origin": "JFK", "month": str(n)})


def footprint(place: Place, actions: list[Action], reads: Reads | None) -> Footprint:
    table = place.create()
    table.append(flights(("JFK", 1, 1)))
    snapshot = table._access.latest()
    schema = parse_schema(snapshot.metadata.schema_string)
    change = Change(str(uuid.uuid4()), "WRITE", snapshot, actions, reads=reads, schema=schema, kind=Kind.CHANGE)
    return footprint_of(declared_reads(change, files_max=MOST), change.actions)


def test_lists_that_fit_are_told(place: Place) -> None:
    mine = footprint(place, [*map(removed, range(3)), *map(added, range(3))], Reads(("delay > 1",), ("a", "b", "c")))
    assert mine.read_files == ("a", "b", "c")
    assert mine.removes == ("0.parquet", "1.parquet", "2.parquet")
    assert mine.partitions is not None
    assert len(mine.partitions) == 3
    assert mine.predicates == ("delay > 1",)


@pytest.mark.notices("many-read-files-are-all-files", "many-removed-files-are-all-files", "many-partitions-are-all")
def test_of_too_many_files_and_partitions_none_is_told(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(footprints, "LISTED_MAX", MOST)
    mine = footprint(place, [*map(removed, range(4)), *map(added, range(4))], Reads(("delay > 1",), ("a", "b", "c", "d")))
    assert (mine.read_files, mine.removes, mine.partitions) == (None, None, None)
    assert not mine.blind_append


@pytest.mark.notices("long-conditions-are-everything")
def test_a_condition_that_is_too_long_reads_everything(place: Place) -> None:
    long = " OR ".join(f"delay = {n}" for n in range(2_000))
    mine = footprint(place, [added(1)], Reads((long, "delay > 1")))
    assert mine.predicates == ("", "delay > 1")
    assert not mine.blind_append


@pytest.mark.parametrize(
    ("rows", "told", "files"),
    [
        ({name: Rows(range(0, 40, 2)) for name in "abc"}, {"a", "b", "c"}, ()),
        ({"a": Rows([1]), "b": Rows(range(0, 4000, 3))}, {"a"}, ("b",)),
        (dict.fromkeys("abcdefgh", Rows([1])), {"a", "b", "c"}, None),
    ],
    ids=["they fit", "too many rows", "too many files"],
)
def test_rows_that_do_not_fit_count_as_whole_files(place: Place, rows: dict[str, Rows], told: set[str], files: tuple[str, ...]) -> None:
    mine = footprint(place, [added(1)], Reads(("delay > 1",), rows=rows))
    assert set(mine.read_rows) == told
    assert mine.read_files == files
    assert not mine.blind_append
    assert bounded(mine, files_max=MOST) == mine


def test_lists_that_grew_while_they_were_compared_are_left_out_again() -> None:
    mine = Footprint(read_files=tuple("abcd"))
    assert bounded(mine, files_max=MOST).read_files is None
    assert bounded(mine, files_max=4) == mine
