"""Which files of a log make up a version, by listings and by names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.storage.constants import LAST_CHECKPOINT
from sluice.storage.errors import LogGap, NotATable, TableNotFound, VersionNotFound
from sluice.storage.log.paths import LogFile, LogKind, checkpoint_path, commit_path, staged_path, version_prefix
from sluice.storage.log.segment import LogSegment, latest_version, list_segment, list_versions
from sluice.storage.stores.memory import MemoryStore
from tests.storage.logs import checkpoint_part_path, compacted_path, counted, crc_path, new_store

UUID = "80a083e8-7026-4e79-81be-64bd76c43a11"


@pytest.fixture(autouse=True)
def short_compactions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Log compaction files count from two commits on."""
    monkeypatch.setattr("sluice.storage.log.segment._COMPACTED_MIN", 2)


def shape(segment: LogSegment) -> tuple[int | None, list[tuple[int, int]]]:
    """The checkpoint's version, and the ranges of the files read after it."""
    return (
        None if segment.checkpoint is None else segment.checkpoint.version,
        [(each.version, each.end_version) for each in segment.deltas],
    )


def single(first: int, last: int) -> list[tuple[int, int]]:
    return [(version, version) for version in range(first, last + 1)]


def with_files(versions: int, *keys: str) -> MemoryStore:
    store = counted(versions)
    for key in keys:
        store.put(key, b"content of no importance")
    return store


@pytest.mark.parametrize("version", [None, 0, 3, 4])
def test_without_a_checkpoint_all_commits_count(version: int | None) -> None:
    segment = list_segment(counted(5), version)
    wanted = 4 if version is None else version
    assert (segment.version, shape(segment)) == (wanted, (None, single(0, wanted)))
    assert segment.last_commit is not None
    assert segment.last_commit.key == commit_path(wanted)


@pytest.mark.parametrize(("version", "checkpoint", "first"), [(None, 6, 7), (9, 6, 7), (6, 6, 7), (5, 3, 4), (3, 3, 4), (2, None, 0)])
@pytest.mark.parametrize(
    "hint", [None, b"", b'{"vers', b"[]", *(b'{"version":%b}' % version for version in (b"6", b"3", b"9", b"99", b"-1", b"1e99"))]
)
def test_the_newest_checkpoint_that_fits_is_chosen_whatever_the_hint_says(
    version: int | None, checkpoint: int | None, first: int, hint: bytes | None
) -> None:
    store = with_files(10, checkpoint_path(3), checkpoint_path(6))
    if hint is not None:
        store.put(LAST_CHECKPOINT, hint)
    assert shape(list_segment(store, version)) == (checkpoint, single(first, 9 if version is None else version))
    assert latest_version(store) == 9


def test_a_good_hint_saves_listing_the_old_log() -> None:
    store = with_files(10, checkpoint_path(6))
    store.put(LAST_CHECKPOINT, b'{"version":6}')
    store.disk.objects.pop(commit_path(2))
    store.disk.calls.clear()
    assert shape(list_segment(store)) == (6, single(7, 9))
    assert [verb for verb, _ in store.disk.calls] == ["get", "list"]


def test_multi_part_checkpoints_count_only_when_complete() -> None:
    incomplete = [checkpoint_part_path(6, part, 3) for part in (1, 3)]
    complete = [checkpoint_part_path(4, part, 2) for part in (2, 1)]
    store = with_files(8, *incomplete, *complete)
    segment = list_segment(store)
    assert shape(segment) == (4, single(5, 7))
    assert segment.checkpoint is not None
    assert [each.part for each in segment.checkpoint.parts] == [1, 2]
    # Parts of sets of different sizes do not make a set.
    store.put(checkpoint_part_path(6, 2, 2), b"")
    assert shape(list_segment(store)) == (4, single(5, 7))
    store.put(checkpoint_part_path(6, 2, 3), b"")
    assert shape(list_segment(store)) == (6, [(7, 7)])


def test_v2_checkpoints_count_and_one_file_is_preferred_to_several() -> None:
    store = with_files(6, f"{version_prefix(4)}.checkpoint.{UUID}.json", *(checkpoint_part_path(4, part, 2) for part in (1, 2)))
    chosen = list_segment(store).checkpoint
    assert chosen is not None
    assert (chosen.version, chosen.kind) == (4, LogKind.V2_CHECKPOINT)
    store.put(checkpoint_path(4), b"")
    chosen = list_segment(store).checkpoint
    assert chosen is not None
    assert chosen.kind is LogKind.CLASSIC_CHECKPOINT


@pytest.mark.parametrize(
    ("compacted", "version", "deltas"),
    [
        ([(0, 3)], None, [(0, 3), *single(4, 7)]),
        ([(2, 4), (5, 7)], None, [(0, 0), (1, 1), (2, 4), (5, 7)]),
        ([(2, 4), (2, 6), (3, 7)], None, [(0, 0), (1, 1), (2, 6), (7, 7)]),
        ([(2, 6)], 5, single(0, 5)),
        ([(5, 9)], None, single(0, 7)),
    ],
)
def test_compacted_files_stand_for_the_commits_they_cover(
    compacted: list[tuple[int, int]], version: int | None, deltas: list[tuple[int, int]]
) -> None:
    store = with_files(8, *(compacted_path(*each) for each in compacted))
    assert shape(list_segment(store, version)) == (None, deltas)


def test_a_compacted_file_that_begins_inside_the_checkpoint_is_left_alone() -> None:
    store = with_files(8, checkpoint_path(3), compacted_path(2, 5), compacted_path(5, 6))
    assert shape(list_segment(store)) == (3, [(4, 4), (5, 6), (7, 7)])


@pytest.mark.parametrize("missing", [0, 1, 3])
def test_a_missing_commit_is_named(missing: int) -> None:
    store = counted(5)
    store.delete(commit_path(missing))
    with pytest.raises(LogGap, match=f"version {missing} of memory://log") as caught:
        list_segment(store)
    assert caught.value.version == missing
    if missing:
        assert list_segment(store, missing - 1).version == missing - 1


def test_the_commit_right_after_a_checkpoint_must_be_there() -> None:
    store = with_files(8, checkpoint_path(4))
    store.delete(commit_path(5))
    with pytest.raises(LogGap, match="version 5 "):
        list_segment(store)
    store.delete(commit_path(3))
    assert shape(list_segment(store, 4)) == (4, [])


@pytest.mark.parametrize("version", [8, 1000, -1])
def test_a_version_beyond_the_log_is_refused_with_what_is_there(version: int) -> None:
    store = with_files(8, checkpoint_path(4))
    store.put(LAST_CHECKPOINT, b'{"version":4}')
    with pytest.raises(VersionNotFound, match=f"version {version} of .* is not available: versions 0 to 7 are") as caught:
        list_segment(store, version)
    assert (caught.value.version, caught.value.earliest, caught.value.latest) == (version, 0, 7)


def test_a_version_that_was_cleaned_up_is_refused_with_what_is_there() -> None:
    store = with_files(8, checkpoint_path(4), checkpoint_path(6))
    for version in range(4):
        store.delete(commit_path(version))
    with pytest.raises(VersionNotFound, match="versions 4 to 7 are"):
        list_segment(store, 3)
    assert list_versions(store, 0).earliest == 4
    assert shape(list_segment(store, 5)) == (4, [(5, 5)])


def test_a_log_that_begins_with_a_checkpoint_alone_is_readable() -> None:
    store = new_store()
    store.put(checkpoint_path(4), b"")
    segment = list_segment(store)
    assert (segment.version, shape(segment), segment.last_commit) == (4, (4, []), None)
    with pytest.raises(VersionNotFound, match="only version 4 is"):
        list_segment(store, 5)


def test_nothing_there_is_no_table() -> None:
    store = new_store()
    assert latest_version(store) is None
    assert list_versions(store, 0).earliest is None
    with pytest.raises(TableNotFound, match=f"no table at {store.location}"):
        list_segment(store)


@pytest.mark.parametrize("key", ["part-0.parquet", "a/b/c.csv", "_delta_log/_last_checkpoint", "_delta_log/readme.txt", crc_path(0)])
def test_other_files_are_no_table(key: str) -> None:
    store = new_store()
    store.put(key, b"{}")
    with pytest.raises(NotATable, match="is not a Delta table") as caught:
        list_segment(store)
    assert caught.value.found == key


def test_files_of_no_meaning_are_passed_over() -> None:
    store = with_files(3, "_delta_log/.00000000000000000001.json.crc", "_delta_log/00000000000000000002.json.tmp", crc_path(9), "x.parquet")
    assert shape(list_segment(store)) == (None, single(0, 2))


VERSIONS = st.integers(0, 2**63 - 1)


@given(VERSIONS)
def test_names_parse_to_what_they_were_made_of(version: int) -> None:
    for path, kind in (
        (commit_path(version), LogKind.COMMIT),
        (checkpoint_path(version), LogKind.CLASSIC_CHECKPOINT),
        (crc_path(version), LogKind.CRC),
    ):
        assert LogFile.parse(path) == LogFile(path, kind, version, version)
        assert path.startswith(version_prefix(version))


@given(VERSIONS, VERSIONS)
def test_the_order_of_names_is_the_order_of_versions(one: int, other: int) -> None:
    assert (commit_path(one) < commit_path(other)) == (one < other)


def test_names_are_those_of_the_protocol() -> None:
    assert commit_path(7) == "_delta_log/00000000000000000007.json"
    assert checkpoint_path(7) == "_delta_log/00000000000000000007.checkpoint.parquet"
    assert checkpoint_part_path(7, 1, 2) == "_delta_log/00000000000000000007.checkpoint.0000000001.0000000002.parquet"
    assert compacted_path(7, 9) == "_delta_log/00000000000000000007.00000000000000000009.compacted.json"
    assert staged_path("g") == "_delta_log/_staged_commits/g.json"


def test_parts_v2_checkpoints_and_ranges_are_read() -> None:
    part = LogFile.parse(checkpoint_part_path(7, 2, 3))
    assert part is not None
    assert (part.kind, part.version, part.part, part.parts) == (LogKind.MULTIPART_CHECKPOINT, 7, 2, 3)
    for suffix in ("json", "parquet"):
        v2 = LogFile.parse(f"{version_prefix(7)}.checkpoint.{UUID}.{suffix}")
        assert v2 is not None
        assert (v2.kind, v2.version, v2.is_checkpoint) == (LogKind.V2_CHECKPOINT, 7, True)
    compacted = LogFile.parse(compacted_path(7, 9))
    assert compacted is not None
    assert (compacted.kind, compacted.version, compacted.end_version, compacted.is_checkpoint) == (LogKind.COMPACTED, 7, 9, False)


@pytest.mark.parametrize(
    "key",
    [
        "00000000000000000007.json",
        "_delta_log/7.json",
        "_delta_log/00000000000000000007.json.tmp",
        "_delta_log/x00000000000000000007.json",
        "_delta_log/00000000000000000007.checkpoint.json",
        "_delta_log/00000000000000000007.checkpoint.0000000003.0000000002.parquet",
        "_delta_log/00000000000000000007.checkpoint.0000000000.0000000002.parquet",
        "_delta_log/00000000000000000009.00000000000000000007.compacted.json",
        "_delta_log/99999999999999999999.json",
        "_delta_log/_last_checkpoint",
        "_delta_log/_staged_commits/00000000000000000007.json",
        "_delta_log/",
        "part-00000.parquet",
    ],
)
def test_other_names_are_none_of_the_log(key: str) -> None:
    assert LogFile.parse(key) is None


@pytest.mark.parametrize("version", [-1, 2**63])
def test_versions_have_limits(version: int) -> None:
    with pytest.raises(ValueError, match="a version is between 0"):
        commit_path(version)
