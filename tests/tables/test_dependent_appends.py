"""Appends whose rows were computed from the table: they depend on what was read, or on the version itself."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

import sluice

from .conftest import Place, flights

MORE = flights(("SUM", 1, 1))


@pytest.fixture(params=["true", "false"], ids=["vectors", "no vectors"])
def tables(request: pytest.FixtureRequest, place: Place) -> tuple[sluice.Table, sluice.Table]:
    """Two clients of a table with one file, in version 1."""
    place.create(partition_by=[], properties={"delta.enableDeletionVectors": request.param})
    place.open().append(flights(("JFK", 1, 1), ("LGA", 1, 1)))
    return place.open(), place.open()


def planned(table: sluice.Table, rows: pa.Table, where: str | None) -> sluice.Commit | None:
    """The same append as Spark does it."""
    plan = table.plan_write(rows.schema, read_version=1, read_where=where)
    return table.commit_write(plan, plan.write(rows))


WAYS: dict[str, Callable[[sluice.Table, pa.Table, str | None], sluice.Commit | None]] = {
    "append": lambda table, rows, where: table.append(rows, read_version=1, read_where=where),
    "plan": planned,
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("where", [None, "origin = 'JFK'"])
def test_what_was_read_may_not_change(tables: tuple[sluice.Table, sluice.Table], way: str, where: str | None) -> None:
    table, other = tables
    other.delete("origin = 'JFK'")
    with pytest.raises(sluice.ConcurrentModification) as lost:
        WAYS[way](table, MORE, where)
    assert lost.value.winning_version == 2


@pytest.mark.parametrize("way", WAYS)
def test_it_may_change_elsewhere(tables: tuple[sluice.Table, sluice.Table], way: str, request: pytest.FixtureRequest) -> None:
    """By rows with deletion vectors, by files without."""
    table, other = tables
    other.delete("origin = 'LGA'")
    if "no vectors" in request.node.name:
        with pytest.raises(sluice.ConcurrentModification):
            WAYS[way](table, MORE, "origin = 'JFK'")
        return
    commit = WAYS[way](table, MORE, "origin = 'JFK'")
    assert commit is not None
    assert commit.version == 3


@pytest.mark.parametrize("way", WAYS)
def test_what_comes_between_planning_and_commit_counts(tables: tuple[sluice.Table, sluice.Table], way: str) -> None:
    table, other = tables
    plan = table.plan_write(MORE.schema, read_version=1, read_where="origin = 'JFK'")
    files = plan.write(MORE)
    other.update({"delay": "7"}, "origin = 'JFK'")
    with pytest.raises(sluice.ConcurrentModification):
        table.commit_write(plan, files)


def test_appends_of_others_count_as_the_level_says(place: Place) -> None:
    for level, refused in (("WriteSerializable", False), ("Serializable", True)):
        there = Place(f"{place.location}-{level}", place.coordinator)
        table = there.create(properties={"delta.isolationLevel": level})
        table.append(flights(("JFK", 1, 1)))
        there.open().append(flights(("JFK", 1, 2)))
        there.open().append(flights(("LGA", 1, 2)))
        assert table.append(MORE, read_version=1, read_where="origin = 'EWR'") is not None
        if refused:
            with pytest.raises(sluice.ConcurrentAppendException):
                table.append(MORE, read_version=1, read_where="origin = 'JFK'")
        else:
            assert table.append(MORE, read_version=1, read_where="origin = 'JFK'") is not None


def test_without_a_version_an_append_depends_on_nothing(tables: tuple[sluice.Table, sluice.Table]) -> None:
    table, other = tables
    other.delete("origin = 'JFK'")
    assert table.append(MORE) is not None


@pytest.mark.parametrize(
    "between",
    [lambda t: t.append(MORE), lambda t: t.delete("origin = 'JFK'"), lambda t: t.set_properties({"team.name": "red"})],
    ids=["append", "delete", "properties"],
)
def test_only_the_next_version(place: Place, between: Callable[[sluice.Table], object]) -> None:
    table = place.create()
    table.append(flights(("JFK", 1, 1)))
    other = place.open(application="other")
    assert between(other) is not None
    with pytest.raises(sluice.ConcurrentModification, match=r"version 2 \(.* by other on .*came first") as lost:
        table.append(MORE, if_version=1)
    assert (lost.value.rule, lost.value.winning_version, lost.value.winning_application) == ("expected-version", 2, "other")
    commit = table.append(MORE, if_version=2)
    assert commit is not None
    assert commit.version == 3


@pytest.mark.parametrize("fast_path", [True, False])
def test_of_two_that_want_to_be_the_next_version_one_is(place: Place, fast_path: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The queue decides, too: the other commits after this one looked at the head."""
    from sluice.coordinator.limits import Limits
    from sluice.tables.write import commit_change as transactions

    place.create().append(flights(("JFK", 1, 1)))
    table, other = place.open(limits=Limits(fast_path=fast_path)), place.open(application="other")
    proper = transactions.intent_of

    def late(*args: object, **more: object) -> object:
        intent = proper(*args, **more)  # type: ignore[arg-type]
        monkeypatch.setattr(transactions, "intent_of", proper)
        other.append(MORE, if_version=1)
        return intent

    monkeypatch.setattr(transactions, "intent_of", late)
    with pytest.raises(sluice.ConcurrentModification, match=r"expected-version: version 2 \(WRITE by other on") as lost:
        table.append(MORE, if_version=1)
    assert lost.value.winning_version == 2
    assert table.refresh().version == 2


def test_a_repeated_one_is_answered_with_its_commit(place: Place) -> None:
    table = place.create()
    first = table.append(MORE, if_version=0, key="k")
    again = table.append(MORE, if_version=0, key="k")
    assert first is not None
    assert again is not None
    assert (again.version, again.repeated) == (first.version, True)


def test_what_makes_no_sense(place: Place) -> None:
    table = place.create()
    table.append(MORE)
    with pytest.raises(sluice.InvalidRequest, match="read_where"):
        table.append(MORE, read_where="origin = 'JFK'")
    with pytest.raises(sluice.InvalidRequest, match="read_version=0 and if_version=1"):
        table.append(MORE, read_version=0, if_version=1)
    with pytest.raises(sluice.VersionNotFound):
        table.append(MORE, if_version=7)
    with pytest.raises(sluice.PredicateError):
        table.append(MORE, read_version=1, read_where="nowhere = 1")
    with pytest.raises(sluice.InvalidRequest, match="read_where"):
        table.plan_write(MORE.schema, read_where="origin = 'JFK'")
    assert table.refresh().version == 1


def test_a_table_that_tracks_rows(place: Place) -> None:
    table = place.create(properties={"delta.enableRowTracking": "true"})
    table.append(MORE, if_version=0)
    assert table.append(MORE, if_version=1) is not None
