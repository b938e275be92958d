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
