"""A transaction depends on what it read, an append on what it was computed from; and it is compared with all that came before it.

A footprint that becomes too long becomes coarser, never smaller: what is left out counts as everything.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import sluice
from sluice.coordinator.admission import submission
from sluice.coordinator.admission.change import Change, Reads, bounded, declared_reads
from sluice.coordinator.rules import winner as footprints
from sluice.coordinator.rules.intent import Kind
from sluice.coordinator.rules.winner import Footprint, footprint_of
from sluice.storage.actions import Action, AddFile, RemoveFile
from sluice.storage.data.vectors import Rows
from sluice.storage.schema.schema import parse_schema
from tests.tables.conftest import Place, flights, present, rows_of


@pytest.mark.notices("scans-are-remembered")
@pytest.mark.parametrize("vectors", [True, False], ids=["vectors", "no vectors"])
def test_rows_that_were_scanned_are_deleted_with_their_whole_file(place: Place, vectors: bool) -> None:
    place.create(properties={"delta.enableDeletionVectors": str(vectors).lower()})
    table, other = place.open(), place.open()
    table.append(flights(("JFK", 1, 1), ("EWR", 2, 2)))
    begun = table.begin()
    assert begun.scan(where="origin = 'JFK'").num_rows == 1
    begun.append(flights(("LGA", 1, 1)))
    assert other.refresh().delete("origin = 'JFK'") is not None
    with pytest.raises(sluice.errors.ConcurrentDeleteReadException):
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
    """Two clients of a table whose three rows are in one file."""
    properties = {"delta.isolationLevel": level, "delta.enableDeletionVectors": str(vectors).lower()}
    place.create(partition_by=[], properties=properties).append(flights(("EWR", 1, 1), ("JFK", 2, 2), ("LGA", 3, 3)))
    return place.open(), place.open()


OTHERS: dict[str, Callable[[sluice.Table, str], object]] = {
    "delete": lambda table, where: table.delete(where),
    "update": lambda table, where: table.update({"delay": "7"}, where),
}
LEVELS = ("Serializable", "WriteSerializable", "SnapshotIsolation")


@pytest.mark.parametrize(
    ("change", "origin", "level"),
    [*(("delete", origin, level) for origin in ("LGA", "JFK") for level in LEVELS), ("update", "JFK", "SnapshotIsolation")],
)
def test_a_row_that_was_read_may_not_go_or_change_but_another_one_of_its_file(place: Place, change: str, origin: str, level: str) -> None:
    table, other = one_file(place, level)
    begun = table.begin()
    assert begun.scan(where="origin = 'JFK'").num_rows == 1
    begun.update({"delay": "7"}, "origin = 'EWR'")
    OTHERS[change](other, f"origin = '{origin}'")
    if origin == "LGA":
        assert begun.commit() is not None
        return
    with pytest.raises(sluice.errors.ConcurrentDeleteReadException, match="1 row of "):
        begun.commit()


def test_rows_are_followed_through_a_compaction(place: Place) -> None:
    table, other = one_file(place)
    other.append(flights(("BOS", 4, 4)))
    for lost, expected in (("LGA", None), ("JFK", sluice.errors.ConcurrentDeleteReadException)):
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
    with pytest.raises(sluice.errors.ConcurrentAppendException) as lost:
        begun.commit()
    assert (lost.value.rule, lost.value.winning_version) == ("appended-what-i-lock", 3)


def test_a_policy_that_compares_no_rows_locks_none(place: Place) -> None:
    table = place.create(properties={"sluice.conflictPolicy": "maxcompute-table"})
    with pytest.raises(sluice.errors.InvalidRequest, match=r"for_update.*lease"):
        table.begin().scan(where="delay > 1", for_update=True)


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
    with pytest.raises(sluice.errors.ConcurrentModification) as lost:
        WAYS[way](table, MORE, where)
    assert lost.value.winning_version == 2


@pytest.mark.parametrize("way", WAYS)
def test_it_may_change_elsewhere(tables: tuple[sluice.Table, sluice.Table], way: str, request: pytest.FixtureRequest) -> None:
    """By rows with deletion vectors, by files without."""
    table, other = tables
    other.delete("origin = 'LGA'")
    if "no vectors" in request.node.name:
        with pytest.raises(sluice.errors.ConcurrentModification):
            WAYS[way](table, MORE, "origin = 'JFK'")
        return
    assert present(WAYS[way](table, MORE, "origin = 'JFK'")).version == 3


@pytest.mark.parametrize("way", WAYS)
def test_what_comes_between_planning_and_commit_counts(tables: tuple[sluice.Table, sluice.Table], way: str) -> None:
    table, other = tables
    plan = table.plan_write(MORE.schema, read_version=1, read_where="origin = 'JFK'")
    files = plan.write(MORE)
    other.update({"delay": "7"}, "origin = 'JFK'")
    with pytest.raises(sluice.errors.ConcurrentModification):
        table.commit_write(plan, files)


def test_appends_of_others_count_as_the_level_says(place: Place) -> None:
    for level, refused in (("WriteSerializable", False), ("Serializable", True)):
        there = Place(f"{place.location}-{level}", place.coordinator)
        table = there.filled(("JFK", 1, 1), properties={"delta.isolationLevel": level})
        there.open().append(flights(("JFK", 1, 2)))
        there.open().append(flights(("LGA", 1, 2)))
        assert table.append(MORE, read_version=1, read_where="origin = 'EWR'") is not None
        if refused:
            with pytest.raises(sluice.errors.ConcurrentAppendException):
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
    table = place.filled(("JFK", 1, 1))
    other = place.open(application="other")
    assert between(other) is not None
    with pytest.raises(sluice.errors.ConcurrentModification, match=r"version 2 \(.* by other on .*came first") as lost:
        table.append(MORE, if_version=1)
    assert (lost.value.rule, lost.value.winning_version, lost.value.winning_application) == ("expected-version", 2, "other")
    assert present(table.append(MORE, if_version=2)).version == 3


def test_several_commits_of_one_compaction_follow_one_another(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    from sluice.tables.maintain import compaction

    monkeypatch.setattr(compaction, "_FILES_PER_COMMIT", 2)
    table = place.create(partition_by=["origin"])
    for origin in ("JFK", "EWR"):
        table.append(flights((origin, 1, 1)))
        table.append(flights((origin, 2, 2)))
    with pytest.raises(sluice.errors.ConcurrentModification, match=r"expected-version: version 4 "):
        table.compact(if_version=3)
    with pytest.raises(sluice.errors.VersionNotFound):
        table.compact(if_version=5)
    commit = present(table.compact(if_version=4))
    assert (commit.version, commit.commits) == (6, 2)
    table.append(flights(("JFK", 3, 3), ("EWR", 3, 3)))
    other, staged = place.open(application="other"), compaction.StagedCompaction.commit

    def beside(*args: Any, **more: Any) -> Any:
        done = staged(*args, **more)
        monkeypatch.undo()
        other.append(MORE)
        return done

    monkeypatch.setattr(compaction.StagedCompaction, "commit", beside)
    with pytest.raises(sluice.errors.ConcurrentModification, match=r"expected-version: version 9 .* by other") as lost:
        table.compact(if_version=7)
    assert lost.value.details["commits"] == 1
    assert table.refresh().version == 9


@pytest.mark.parametrize("fast_path", [True, False])
def test_of_two_that_want_to_be_the_next_version_one_is(place: Place, fast_path: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The queue decides, too: the other commits after this one looked at the head."""
    from sluice.coordinator.admission import submission
    from sluice.coordinator.limits import Limits

    place.create().append(flights(("JFK", 1, 1)))
    table, other = place.open(limits=Limits(fast_path=fast_path)), place.open(application="other")
    proper = submission.member_of

    def late(*args: object, **more: object) -> object:
        intent = proper(*args, **more)  # type: ignore[arg-type]
        monkeypatch.setattr(submission, "member_of", proper)
        other.append(MORE, if_version=1)
        return intent

    monkeypatch.setattr(submission, "member_of", late)
    with pytest.raises(sluice.errors.ConcurrentModification, match=r"expected-version: version 2 \(WRITE by other on") as lost:
        table.append(MORE, if_version=1)
    assert lost.value.winning_version == 2
    assert table.refresh().version == 2


def test_a_repeated_one_is_answered_with_its_commit(place: Place) -> None:
    table = place.create()
    first = present(table.append(MORE, if_version=0, key="k"))
    again = present(table.append(MORE, if_version=0, key="k"))
    assert (again.version, again.repeated) == (first.version, True)


def test_what_makes_no_sense(place: Place) -> None:
    table = place.create()
    table.append(MORE)
    terms: list[tuple[dict[str, Any], type[sluice.errors.SluiceError], str]] = [
        ({"read_where": "origin = 'JFK'"}, sluice.errors.InvalidRequest, "read_where"),
        ({"read_version": 0, "if_version": 1}, sluice.errors.InvalidRequest, "read_version=0 and if_version=1"),
        ({"if_version": 7}, sluice.errors.VersionNotFound, "7"),
        ({"read_version": 1, "read_where": "nowhere = 1"}, sluice.errors.PredicateError, "nowhere"),
    ]
    for each, error, words in terms:
        with pytest.raises(error, match=words):
            table.append(MORE, **each)
        with pytest.raises(error, match=words):
            table.plan_write(MORE.schema, **each)
    assert table.refresh().version == 1


def test_a_table_that_tracks_rows(place: Place) -> None:
    table = place.create(properties={"delta.enableRowTracking": "true"})
    table.append(MORE, if_version=0)
    assert table.append(MORE, if_version=1) is not None


@pytest.fixture
def table(place: Place) -> sluice.Table:
    place.create()
    table = place.open()
    table.append(flights(("JFK", 1, 1), ("EWR", 2, 2)))
    return table


def doomed(table: sluice.Table) -> sluice.Transaction:
    begun = table.begin()
    begun.update({"delay": "delay + 1"}, "origin = 'JFK'")
    return begun


@pytest.mark.notices("validated-up-to-the-head")
def test_the_last_version_before_it_counts(place: Place, table: sluice.Table) -> None:
    begun = doomed(table)
    place.open().delete("origin = 'JFK'")
    with pytest.raises(sluice.errors.ConcurrentModification):
        begun.commit()


@pytest.mark.notices("validated-is-what-was-looked-at")
@pytest.mark.parametrize("step", ["prepared", "member_of"])
def test_what_comes_after_it_was_compared_counts(place: Place, table: sluice.Table, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """Somebody is faster right before it is compared with the others, or right before it is written down what it knows."""
    begun, other = doomed(table), place.open()
    honest: Callable[..., Any] = getattr(submission, step)

    def overtaken(*arguments: Any, **options: Any) -> Any:
        monkeypatch.undo()
        other.delete("origin = 'JFK'")
        return honest(*arguments, **options)

    monkeypatch.setattr(submission, step, overtaken)
    with pytest.raises(sluice.errors.ConcurrentModification):
        begun.commit()
    assert rows_of(table.refresh().snapshot().to_arrow()) == [("EWR", 2, 2)]


MOST = 3


def added(n: int) -> AddFile:
    return AddFile(f"month={n}/{n}.parquet", {"origin": "JFK", "month": str(n)}, 1, 1, True)


def removed(n: int) -> RemoveFile:
    return RemoveFile(f"{n}.parquet", True, deletion_timestamp=1, partition_values={"origin": "JFK", "month": str(n)})


def footprint(place: Place, actions: list[Action], reads: Reads | None) -> Footprint:
    table = place.filled(("JFK", 1, 1))
    snapshot = table.access.latest()
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
