"""Whatever the limits are and wherever a query is restarted, its batches have each file once, in the order of the versions."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import chain

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice.storage.actions import Action, AddCDCFile, AddFile, CommitInfo, DeletionVector, Metadata, Protocol, RemoveFile
from sluice.storage.actions.filetable import add_rows
from sluice.storage.errors import InvalidRequest, SchemaMismatch, SluiceError, UnsupportedFeature
from sluice.storage.schema.schema import from_arrow, schema_to_json
from sluice.tables.read.streams.offsets import Limits, StreamOffset, StreamRules
from sluice.tables.read.streams.planning import Lookup, StreamedTable, StreamFiles, end_of_batch, portions
from sluice.tables.read.versions import ChangedFiles

SCHEMA = schema_to_json(from_arrow(pa.schema([("n", pa.int64())])))
METADATA = Metadata("an-id", SCHEMA, (), {})
START = StreamOffset("an-id", 0)


def add(path: str, size: int = 10, deleted: int = 0, data_change: bool = True) -> AddFile:
    vector = DeletionVector("i", "x", 1, deleted) if deleted else None
    return AddFile(path, {}, size, 0, data_change=data_change, deletion_vector=vector)


def gone(path: str, deleted: int = 0, data_change: bool = True) -> RemoveFile:
    vector = DeletionVector("i", "x", 1, deleted) if deleted else None
    return RemoveFile(path, data_change=data_change, deletion_vector=vector)


def operation(name: str) -> CommitInfo:
    return CommitInfo({"operation": name})


def shown(rules: StreamRules | None = None, version: int = 0) -> StreamedTable:
    return StreamedTable("/t", version, METADATA, rules or StreamRules())


# -- versions made at random ---------------------------------------------------------------------------------------------


@dataclass
class Version:
    """A version and, as the model has it, the files that a stream reads of it."""

    actions: list[Action]
    read: list[str] = field(default_factory=list)


@st.composite
def histories(draw: st.DrawFn) -> list[Version]:
    """Appends of some files, reorganisations, commits of metadata, overwrites that the rules ignore."""
    made: list[Version] = []
    for number in range(draw(st.integers(0, 8))):
        sizes = draw(st.lists(st.integers(0, 100), max_size=6))
        paths = [f"{number}-{each}" for each in range(len(sizes))]
        adds = [add(path, size) for path, size in zip(paths, sizes, strict=True)]
        match draw(st.sampled_from(["append", "append", "optimize", "properties", "delete"])):
            case "append":
                made.append(Version([operation("WRITE"), *adds], paths))
            case "optimize":
                moved: list[Action] = [add(path, data_change=False) for path in paths]
                made.append(Version([operation("OPTIMIZE"), gone("x", data_change=False), *moved]))
            case "properties":
                made.append(Version([operation("SET TBLPROPERTIES"), Metadata("an-id", SCHEMA, (), {"a": "b"})]))
            case _:
                made.append(Version([operation("DELETE"), *(gone(path) for path in [*paths, "y"])]))
    return made


limits = st.builds(Limits, st.none() | st.integers(1, 7), st.none() | st.integers(1, 250))


def reader(history: list[Version], first: list[AddFile] | None = None, rules: StreamRules | None = None) -> Lookup:
    table = shown(rules or StreamRules(ignore_deletes=True))

    def lookup(place: StreamOffset) -> StreamFiles:
        if place.first:
            return StreamFiles(add_rows(first or []))
        return table.files(place.version, history[place.version].actions)

    return lookup


def batch(lookup: Lookup, start: StreamOffset, end: StreamOffset) -> list[str]:
    """The paths that a batch reads."""
    found: list[str] = []
    for _, files, part in portions(start, end, lookup):
        found += files.files["path"].slice(part.start, len(part)).to_pylist()
    return found


@settings(deadline=None)
@given(histories(), st.lists(limits, min_size=1, max_size=5), st.lists(st.integers(0, 100), max_size=5), st.booleans(), st.data())
def test_batches_have_each_file_once_and_in_order(
    history: list[Version], told: list[Limits], sizes: list[int], first: bool, data: st.DataObject
) -> None:
    snapshot = [add(f"first-{number}", size) for number, size in enumerate(sizes)]
    expected = [path for version in history for path in version.read]
    if first:
        expected = [each.path for each in snapshot] + [path for version in history[1:] for path in version.read]
    place = StreamOffset("an-id", 0, first=first)
    read: list[str] = []
    latest = data.draw(st.integers(-1, len(history) - 1)) if not first else max(0, len(history) - 1)
    history = history or [Version([])]
    number = 0
    while True:
        lookup = reader(history, snapshot)  # a new one each time: nothing but the offset is kept, as after a restart
        chosen = told[number % len(told)]
        end = end_of_batch(place, latest, chosen, lookup)
        number += 1
        if end == place:
            if latest >= len(history) - 1:
                break
            latest += 1
            continue
        some = batch(lookup, place, StreamOffset.of_json(end.to_json()))
        assert some, "a batch without files would be an empty one for the sink"
        assert batch(reader(history, snapshot), place, end) == some, "a batch that is repeated is the same"
        assert chosen.files is None or len(some) <= chosen.files
        if chosen.size is not None:
            of = {each.path: each.size for each in snapshot} | {
                each.path: each.size for version in history for each in version.actions if isinstance(each, AddFile)
            }
            assert sum(of[path] for path in some[:-1]) < chosen.size, "only the last file may exceed the bytes"
        read += some
        place = end
    assert read == expected


COPIED: list[Action] = [operation("UPDATE"), gone("a"), gone("b"), add("c", 40), add("d", 40)]
"""An update without vectors: rows that were only copied are known when all of its files are read together."""


@settings(max_examples=60, deadline=None)
@given(histories(), limits, st.lists(st.integers(0, 8), max_size=3))
def test_changes_are_divided_only_where_a_version_alone_exceeds_the_limits(history: list[Version], told: Limits, at: list[int]) -> None:
    for place_of in at:
        history.insert(place_of, Version(COPIED))
    lookup = reader(history, rules=StreamRules(changes=True))
    place, read, batches = START, [], []
    while (end := end_of_batch(place, len(history) - 1, told, lookup)) != place:
        batches.append(list(portions(place, end, lookup)))
        read += [(each.version, index) for each, _, part in batches[-1] for index in part]
        place = end
    changed = {number: list(ChangedFiles(number, version.actions)) for number, version in enumerate(history)}
    assert read == [(number, index) for number, files in changed.items() for index in range(len(files))]
    for each, _, part in chain.from_iterable(batches):
        files = changed[each.version]
        if len(part) < len(files):
            sizes = [file.size or 0 for file in files]
            assert history[each.version].actions is not COPIED, "its changes cannot be divided"
            assert len(files) > (told.files or 1000) or sum(sizes[:-1]) >= (told.size or 1000), "it fits"
    for (_, chosen, part), *_, (_, _, last_part) in (some for some in batches if len(some) > 1):
        assert part.stop == chosen.count, "the end of a large version, then others"
        assert last_part.start == 0


def test_one_large_version_is_many_batches_and_many_small_ones_are_one() -> None:
    lookup = reader([Version([add(str(n)) for n in range(10)]), *(Version([add(f"small-{n}")]) for n in range(6))])
    ends, place = [], START
    while (end := end_of_batch(place, 6, Limits(files=4), lookup)) != place:
        ends.append((end.version, end.index))
        place = end
    assert ends == [(0, 4), (0, 8), (3, 0), (7, 0)]
    assert batch(lookup, START, StreamOffset("an-id", 0, 4)) == ["0", "1", "2", "3"]
    assert end_of_batch(START, 6, Limits(size=25), lookup).index == 3
    assert end_of_batch(START, 6, Limits(size=1), lookup).index == 1
    assert end_of_batch(START, 6, Limits(), lookup).version == 7


def test_a_batch_ends_only_where_the_files_allow_it() -> None:
    files = add_rows([add(str(n)) for n in range(6)])

    def lookup(place: StreamOffset) -> StreamFiles:
        return StreamFiles(files, ends=(0, 3, 6)) if place.first else StreamFiles()

    start = StreamOffset("an-id", 0, first=True)
    middle = end_of_batch(start, 0, Limits(files=1), lookup)
    assert (middle.version, middle.index, middle.first) == (0, 3, True)
    assert end_of_batch(middle, 0, Limits(files=1), lookup) == StreamOffset("an-id", 1)


# -- versions that are no appends ----------------------------------------------------------------------------------------

DELETE_OF_FILES: list[Action] = [operation("DELETE"), gone("a"), gone("b")]
DELETE_BY_VECTORS: list[Action] = [operation("DELETE"), gone("a"), add("a", deleted=2), gone("b", deleted=1), add("b", deleted=2)]
DELETE_BY_COPIES: list[Action] = [operation("DELETE"), gone("a"), add("c")]
UPDATE: list[Action] = [operation("UPDATE"), gone("a"), add("a", deleted=1), add("c")]
RESTORE: list[Action] = [operation("RESTORE"), gone("a", deleted=2), add("a")]
OVERWRITE: list[Action] = [operation("WRITE"), gone("a"), add("c")]
ROWS_COME_BACK: list[Action] = [operation("DELETE"), gone("a", deleted=2), add("a", deleted=1)]


@pytest.mark.parametrize(
    ("actions", "ignore_deletes", "ignore_changes"),
    [
        (DELETE_OF_FILES, [], []),
        (DELETE_BY_VECTORS, [], []),
        (DELETE_BY_COPIES, None, ["c"]),
        (UPDATE, None, ["a", "c"]),
        (RESTORE, None, ["a"]),
        (OVERWRITE, None, ["c"]),
        (ROWS_COME_BACK, None, ["a"]),
    ],
)
def test_versions_that_delete_or_change_rows(actions: list[Action], ignore_deletes: list[str] | None, ignore_changes: list[str]) -> None:
    """None: the stream stops."""

    def read(rules: StreamRules) -> list[str] | SluiceError:
        files = shown(rules).files(0, actions)
        return files.files["path"].to_pylist() if files.stop is None else files.stop

    stopped = read(StreamRules())
    assert isinstance(stopped, InvalidRequest)
    assert stopped.version == 0
    info = actions[0]
    assert isinstance(info, CommitInfo)
    assert stopped.operation == info.operation
    assert f"version 0 of /t ({info.operation})" in stopped.message
    for option in ("skipChangeCommits", "readChangeFeed", "ignoreChanges" if ignore_deletes is None else "ignoreDeletes"):
        assert f"{option}=true" in stopped.message
    assert read(StreamRules(skip_change_commits=True)) == []
    assert read(StreamRules(ignore_changes=True)) == ignore_changes
    found = read(StreamRules(ignore_deletes=True))
    assert found == ignore_deletes if ignore_deletes is not None else isinstance(found, InvalidRequest)


def test_what_came_before_a_version_that_stops_the_stream_is_read_first() -> None:
    lookup = reader([Version([add("a")]), Version(UPDATE), Version([add("b")])])
    end = end_of_batch(START, 2, Limits(), lookup)
    assert end == StreamOffset("an-id", 1)
    assert batch(lookup, START, end) == ["a"]
    with pytest.raises(InvalidRequest, match=r"version 1 of /t \(UPDATE\) changed rows"):
        end_of_batch(end, 2, Limits(), lookup)
    with pytest.raises(InvalidRequest, match="version 1"):
        list(portions(START, StreamOffset("an-id", 3), lookup))


def wider() -> Metadata:
    return Metadata("an-id", schema_to_json(from_arrow(pa.schema([("n", pa.int64()), ("m", pa.int64())]))), (), {})


@pytest.mark.parametrize(
    ("action", "kind", "told"),
    [
        (wider(), SchemaMismatch, "version 5 of /t changed the schema, and the query shows that of version 4.*readStream"),
        (Metadata("an-id", SCHEMA, ("n",), {}), SchemaMismatch, "changed the partitioning"),
        (Metadata("other", SCHEMA, (), {}), InvalidRequest, "another table took its place"),
        (Protocol(3, 7, ("quantum",), ("quantum",)), UnsupportedFeature, "quantum"),
    ],
)
def test_changes_of_the_table_itself_stop_the_stream(action: Action, kind: type[SluiceError], told: str) -> None:
    table = shown(StreamRules(skip_change_commits=True), version=4)
    stop = table.files(5, [action, add("a")]).stop
    assert stop is not None
    assert type(stop) is kind
    assert re.search(told, stop.message)
    assert table.files(4, [action, add("a")]).stop is None, "the query was made after it"
    assert table.files(5, [Metadata("an-id", SCHEMA, (), {"x": "y"}), add("a")]).stop is None, "properties change no rows"


def test_change_data_files_count_instead_of_the_files_they_describe() -> None:
    files = shown(StreamRules(changes=True)).files(0, [*UPDATE, AddCDCFile("_change_data/x", {}, 7)])
    assert (files.count, files.size_from(0), files.whole) == (1, 7, True)


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ({"format": 2, "table": "t", "version": 1, "index": 0, "first": False}, "newer release"),
        ({**START.to_json(), "version": "1"}, "another source wrote"),
        ({"format": 1, "table": "t", "version": 1, "index": 0, "first": False}, "another source wrote"),
        ({"sourceVersion": 1, "reservoirVersion": 3}, "another source wrote"),
    ],
)
def test_offsets_of_others_are_refused(value: dict[str, object], told: str) -> None:
    with pytest.raises(InvalidRequest, match=told):
        StreamOffset.of_json(value)


def test_lookups_are_only_asked_for_what_a_batch_needs() -> None:
    asked: list[int] = []

    def counting(lookup: Lookup) -> Callable[[StreamOffset], StreamFiles]:
        def look(place: StreamOffset) -> StreamFiles:
            asked.append(place.version)
            return lookup(place)

        return look

    lookup = counting(reader([Version([add(str(n))]) for n in range(100)]))
    end_of_batch(START, 99, Limits(files=3), lookup)
    assert asked == [0, 1, 2]


def test_a_first_batch_that_is_repeated_begins_where_the_stream_began() -> None:
    """Spark asks for the beginning again, and the table has gone on."""
    began = StreamOffset.beginning("an-id", 3, first=True)
    end = StreamOffset.of_json(replace(began, version=4, first=False).to_json())
    assert end.place == (4, 0)
    again = StreamOffset.beginning("an-id", 9, first=True)
    assert again.since(end) == began
    assert end.since(replace(end, version=5)) == end
