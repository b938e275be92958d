"""What a transaction scanned is what it depends on: also where others only take files away, and add none."""

from __future__ import annotations

import pytest

import sluice

from .conftest import Place, flights


@pytest.mark.parametrize("vectors", [True, False], ids=["vectors", "no vectors"])
def test_rows_that_were_scanned_are_deleted_with_their_whole_file(place: Place, vectors: bool) -> None:
    place.create(properties={"delta.enableDeletionVectors": str(vectors).lower()})
    table, other = place.open(), place.open()
    table.append(flights(("JFK", 1, 1), ("EWR", 2, 2)))
    begun = table.begin()
    assert begun.scan(where="origin = 'JFK'").num_rows == 1
    begun.append(flights(("LGA", 1, 1)))
    assert other.refresh().delete("origin = 'JFK'") is not None
    with pytest.raises(sluice.ConcurrentDeleteReadException):
        begun.commit()


def test_rows_elsewhere_may_go(place: Place) -> None:
    place.create()
    table, other = place.open(), place.open()
    table.append(flights(("JFK", 1, 1), ("EWR", 2, 2)))
    begun = table.begin()
    begun.scan(where="origin = 'JFK'")
    begun.append(flights(("LGA", 1, 1)))
    other.refresh().delete("origin = 'EWR'")
    assert begun.commit() is not None


def one_file(place: Place, level: str = "WriteSerializable", *, vectors: bool = True) -> tuple[sluice.Table, sluice.Table]:
    """Two clients of a table whose three rows lie in one file."""
    properties = {"delta.isolationLevel": level, "delta.enableDeletionVectors": str(vectors).lower()}
    place.create(partition_by=[], properties=properties).append(flights(("EWR", 1, 1), ("JFK", 2, 2), ("LGA", 3, 3)))
    return place.open(), place.open()


@pytest.mark.parametrize("level", ["Serializable", "WriteSerializable", "SnapshotIsolation"])
def test_another_row_of_the_same_file_may_go(place: Place, level: str) -> None:
    table, other = one_file(place, level)
    begun = table.begin()
    assert begun.scan(where="origin = 'JFK'").num_rows == 1
    begun.update({"delay": "7"}, "origin = 'EWR'")
    other.delete("origin = 'LGA'")
    assert begun.commit() is not None


@pytest.mark.parametrize("level", ["Serializable", "WriteSerializable", "SnapshotIsolation"])
def test_a_row_that_was_read_may_not_go(place: Place, level: str) -> None:
    table, other = one_file(place, level)
    begun = table.begin()
    begun.scan(where="origin = 'JFK'")
    begun.append(flights(("BOS", 1, 1)))
    other.delete("origin = 'JFK'")
    with pytest.raises(sluice.ConcurrentDeleteReadException, match="1 row of "):
        begun.commit()


def test_a_row_that_was_read_may_not_change(place: Place) -> None:
    table, other = one_file(place, "SnapshotIsolation")
    begun = table.begin()
    begun.scan(where="origin = 'JFK'")
    begun.append(flights(("BOS", 1, 1)))
    other.update({"delay": "7"}, "origin = 'JFK'")
    with pytest.raises(sluice.ConcurrentDeleteReadException):
        begun.commit()


def test_rows_are_followed_through_a_compaction(place: Place) -> None:
    table, other = one_file(place)
    other.append(flights(("BOS", 4, 4)))
    for lost, expected in (("LGA", None), ("JFK", sluice.ConcurrentDeleteReadException)):
        begun = table.refresh().begin()
        begun.scan(where="origin = 'JFK'")
        begun.append(flights(("PHL", 1, 1)))
        assert other.refresh().compact("major") is not None
        other.delete(f"origin = '{lost}'")
        if expected is None:
            begun.commit()
        else:
            with pytest.raises(expected):
                begun.commit()


@pytest.mark.parametrize("vectors", [True, False], ids=["vectors", "no vectors"])
@pytest.mark.parametrize("level", ["WriteSerializable", "SnapshotIsolation"])
@pytest.mark.parametrize("for_update", [False, True])
def test_rows_that_others_add_count_where_they_were_read_for_update(place: Place, level: str, vectors: bool, for_update: bool) -> None:
    table, other = one_file(place, level, vectors=vectors)
    begun = table.begin()
    begun.scan(where="origin = 'JFK'", for_update=for_update)
    begun.append(flights(("BOS", 1, 1)))
    other.append(flights(("PHL", 1, 1)))
    other.append(flights(("JFK", 4, 4)))
    if not for_update:
        assert begun.commit() is not None
        return
    with pytest.raises(sluice.ConcurrentAppendException) as lost:
        begun.commit()
    assert (lost.value.rule, lost.value.winning_version) == ("appended-what-i-lock", 3)


def test_a_policy_that_compares_no_rows_locks_none(place: Place) -> None:
    table = place.create(properties={"sluice.conflictPolicy": "maxcompute-table"})
    with pytest.raises(sluice.InvalidRequest, match=r"for_update.*lease"):
        table.begin().scan(where="delay > 1", for_update=True)
