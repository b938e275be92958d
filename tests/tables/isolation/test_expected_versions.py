"""A transaction over several tables that names the version each must still have."""

from __future__ import annotations

from pathlib import Path

import pytest

import sluice

from ..conftest import FLIGHTS, Place, flights, rows_of
from ..pictures import files_below


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
