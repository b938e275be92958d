"""V2 checkpoints: what they hold, which files of the one before they share, and which files nobody names any more."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest.mock import patch
from zlib import crc32

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.storage.actions import Action, AddFile, CheckpointMetadata, Metadata, Protocol, RemoveFile, Sidecar, Txn, decode_text
from sluice.storage.constants import LAST_CHECKPOINT, SIDECAR_FOLDER
from sluice.storage.errors import MissingObject, StorageUnavailable
from sluice.storage.log.checkpoint_writer import write_checkpoint
from sluice.storage.log.paths import checkpoint_path, commit_path
from sluice.storage.log.replay import main_actions
from sluice.storage.log.segment import list_segment
from sluice.storage.log.sidecars import unnamed_sidecars
from sluice.storage.log.snapshot import Snapshot
from sluice.storage.stores.memory import MemoryStore
from tests.storage.logs import METADATA, add, commit_sequences, model, parquet, paths, put_commit, remove, removed_files, store_of

V2 = Protocol(3, 7, ("v2Checkpoint",), ("v2Checkpoint",))
POLICY = {"delta.checkpointPolicy": "v2"}
SHARING = replace(METADATA, configuration=POLICY)
DAY_MS = 24 * 3600 * 1000


@pytest.fixture
def small_sidecars(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four files in each."""
    for module in ("sidecars", "checkpoint_writer"):
        monkeypatch.setattr(f"sluice.storage.log.{module}.ROWS_MAX", 4)


def written(store: MemoryStore, **more: Any) -> list[str]:
    """The names of the sidecars of the latest version's checkpoint, which is written now."""
    write_checkpoint(store, Snapshot.load(store), **more)
    return [each.path for each in sidecars_of(store)]


def sidecars_of(store: MemoryStore, version: int | None = None) -> list[Sidecar]:
    return [each for each in actions_of(store, version) if isinstance(each, Sidecar)]


def actions_of(store: MemoryStore, version: int | None = None) -> list[Action]:
    """The actions in the main file of the newest checkpoint."""
    checkpoint = list_segment(store, version).checkpoint
    assert checkpoint is not None
    return main_actions(store, checkpoint, whole=True)[0]


def files_in(store: MemoryStore, sidecar: str) -> list[str]:
    table = pq.read_table(io.BytesIO(store.get(SIDECAR_FOLDER + sidecar)))
    return [row["add"]["path"] if row["add"] else f"-{row['remove']['path']}" for row in table.to_pylist()]


def index_of(store: MemoryStore) -> str:
    """The key of the index that the newest checkpoint names."""
    (mark,) = [each for each in actions_of(store) if isinstance(each, CheckpointMetadata)]
    return f"{SIDECAR_FOLDER}{(mark.tags or {})['sluice.index']}"


def state(snapshot: Snapshot) -> dict[str, Any]:
    return {
        "files": {each.key: each for each in snapshot.add_files()},
        "tombstones": {each.key: each for each in removed_files(snapshot)},
        "txns": dict(snapshot.app_transactions),
        "domains": dict(snapshot.domains),
        "last": {Protocol: snapshot.protocol, Metadata: snapshot.metadata},
    }


def sharing(action: Action) -> Action:
    """The action in a table whose checkpoints are V2."""
    if isinstance(action, Metadata):
        return replace(action, configuration={**action.configuration, **POLICY})
    return V2 if isinstance(action, Protocol) else action


def kept(action: Action) -> Action:
    """The action as checkpoints keep it: without the statistics and tags of removed files."""
    return replace(action, stats=None, tags=None) if isinstance(action, RemoveFile) else action


def ten(count: int = 10) -> MemoryStore:
    return store_of([[V2, SHARING, *(add(f"f{number}") for number in range(count))]])


@pytest.mark.costly
@pytest.mark.notices("changed-files-leave-their-sidecar")
@given(commit_sequences(), st.sets(st.integers(0, 9)), st.sampled_from([1, 3, 100]), st.sampled_from([1, 8]))
def test_any_number_of_checkpoints_leads_to_the_same_state(
    history: list[list[Action]], at: set[int], rows_max: int, small_max: int
) -> None:
    history = [[kept(sharing(each)) for each in commit] for commit in history]
    store = store_of(history)
    with (
        patch("sluice.storage.log.sidecars.ROWS_MAX", rows_max),
        patch("sluice.storage.log.checkpoint_writer.ROWS_MAX", rows_max),
        patch("sluice.storage.log.sidecars._SMALL_MAX", small_max),
    ):
        for version in sorted(each for each in {0, *at} if each < len(history)):
            write_checkpoint(store, Snapshot.load(store, version=version), now_ms=0)
            if version:
                store.delete(commit_path(version - 1))
            fresh = Snapshot.load(store, version=version)
            assert state(fresh) == model(history[: version + 1])
            assert fresh.files.num_rows == len(model(history[: version + 1])["files"]), "each file is in one sidecar"
            assert all(len(files_in(store, each.path)) <= rows_max for each in sidecars_of(store, version))


@pytest.mark.usefixtures("small_sidecars")
def test_an_append_writes_one_sidecar_and_names_the_others_again() -> None:
    store = ten()
    first = written(store)
    assert [len(files_in(store, each)) for each in first] == [4, 4, 2]
    put_commit(store, 1, add("new"))
    store.disk.calls.clear()
    second = written(store)
    assert second[:3] == first
    assert [files_in(store, each) for each in second[3:]] == [["new"]]
    assert [key for verb, key in store.disk.calls if verb == "upload"] == [SIDECAR_FOLDER + second[3]]


@pytest.mark.usefixtures("small_sidecars")
@pytest.mark.parametrize(("change", "places"), [(remove("f5"), [1]), (add("new"), []), (add("f0", stats="{}"), [0])])
def test_only_the_index_and_sidecars_that_change_are_read(change: Action, places: list[int]) -> None:
    """However many sidecars there are."""
    store = ten(40)
    first = written(store)
    index = index_of(store)
    put_commit(store, 1, change)
    snapshot = Snapshot.load(store)
    store.disk.calls.clear()
    write_checkpoint(store, snapshot)
    read = {key for verb, key in store.disk.calls if key.startswith(SIDECAR_FOLDER) and verb in ("get", "open_input")}
    assert read == {index, *(SIDECAR_FOLDER + first[place] for place in places)}


@pytest.mark.usefixtures("small_sidecars")
@pytest.mark.parametrize(
    "change",
    [
        [remove("f5")],
        [remove("f5"), add("f5", deletion_vector=None, size=7)],
        [add("f5", stats="{}", data_change=False)],
    ],
)
def test_a_file_that_changed_leaves_its_sidecar(change: list[Action]) -> None:
    """Removed, replaced, or with other statistics: only the sidecar that had it is written anew."""
    store = ten()
    first = written(store)
    put_commit(store, 1, *change)
    second = written(store)
    assert set(first) - set(second) == {first[1]}
    left = sorted(path for each in second for path in files_in(store, each) if not path.startswith("-"))
    assert left == paths(Snapshot.load(store))
    assert len(left) == (9 if isinstance(change[-1], RemoveFile) else 10)


@pytest.mark.usefixtures("small_sidecars")
def test_a_change_of_a_path_in_another_spelling_is_noticed() -> None:
    store = store_of([[V2, SHARING, add("s3://b/x.parquet"), *(add(f"f{number}") for number in range(9))]])
    written(store)
    put_commit(store, 1, remove("s3a://b/x.parquet"))
    assert Snapshot.load(store).num_files == 9
    written(store)
    assert Snapshot.load(store).num_files == 9


@pytest.mark.usefixtures("small_sidecars")
def test_after_commits_that_are_too_large_to_be_kept_in_memory_all_is_written_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    store = ten()
    first = written(store)
    put_commit(store, 1, add("new"), remove("f5"))
    monkeypatch.setattr("sluice.storage.log.sidecars._COMMITS_BYTES_MAX", 0)
    expected = paths(Snapshot.load(store))
    assert set(first).isdisjoint(written(store))
    assert paths(Snapshot.load(store)) == expected


@pytest.mark.usefixtures("small_sidecars")
def test_many_small_sidecars_are_joined() -> None:
    store = ten(8)
    names = written(store)
    for version in range(1, 12):
        put_commit(store, version, add(f"new{version}"))
        names = written(store)
        assert len(names) <= 2 + 9
    sizes = [len(files_in(store, each)) for each in names]
    assert sizes.count(4) >= 4
    assert Snapshot.load(store).num_files == 19


def test_a_sidecar_whose_removes_have_expired_is_left_out() -> None:
    history: list[list[Action]] = [[V2, SHARING, add("a"), add("b"), add("c")], [remove("a", deletion_timestamp=100 * DAY_MS)]]
    store = store_of(history)
    written(store, now_ms=101 * DAY_MS)
    put_commit(store, 2, remove("b", deletion_timestamp=105 * DAY_MS))
    assert {path for each in written(store, now_ms=106 * DAY_MS) for path in files_in(store, each)} == {"c", "-a", "-b"}
    put_commit(store, 3, Txn("x", 1))
    assert {path for each in written(store, now_ms=109 * DAY_MS) for path in files_in(store, each)} == {"c", "-b"}
    put_commit(store, 4, Txn("x", 2))
    assert {path for each in written(store, now_ms=120 * DAY_MS) for path in files_in(store, each)} == {"c"}


def test_every_tenth_checkpoint_has_the_classic_name() -> None:
    """By it readers that do not know V2 checkpoints find the protocol, which says so."""
    store = ten()
    for version in range(1, 12):
        write_checkpoint(store, Snapshot.load(store))
        put_commit(store, version, add(f"n{version}"))
    classic = [version for version in range(11) if checkpoint_path(version) in store.disk.objects]
    assert classic == [0, 10]
    rows = pq.read_table(io.BytesIO(store.get(checkpoint_path(10)))).to_pylist()
    names = sorted(name for row in rows for name, body in row.items() if body is not None)
    assert names == ["checkpointMetadata", "metaData", "protocol", *["sidecar"] * len(sidecars_of(store))]
    assert next(row["protocol"] for row in rows if row["protocol"])["readerFeatures"] == ["v2Checkpoint"]
    assert Snapshot.load(store).num_files == 21


def test_the_main_file_says_what_the_sidecars_hold() -> None:
    store = ten()
    written(store)
    put_commit(store, 1, remove("f1"), Txn("x", 3))
    written(store)
    (mark,) = [each for each in actions_of(store) if isinstance(each, CheckpointMetadata)]
    sidecars = sidecars_of(store)
    assert mark.version == 1
    assert mark.tags is not None
    assert (mark.tags["numOfAddFiles"], mark.tags["sidecarNumActions"]) == ("9", "10")
    assert mark.tags["sidecarSizeInBytes"] == str(sum(len(store.get(SIDECAR_FOLDER + each.path)) for each in sidecars))
    assert all(each.size_in_bytes == len(store.get(SIDECAR_FOLDER + each.path)) for each in sidecars)
    hint = json.loads(store.get(LAST_CHECKPOINT))
    assert (hint["version"], hint["numOfAddFiles"]) == (1, 9)
    (key,) = [each for each in store.disk.objects if each.endswith(".json") and ".checkpoint." in each]
    assert next(iter(decode_text(store.get(key), name=key))) == mark
    store.delete(commit_path(0))
    assert Snapshot.load(store).app_transactions == {"x": Txn("x", 3)}


@pytest.mark.notices("shared-checkpoints-need-the-feature")
@pytest.mark.parametrize(
    ("protocol", "policy"),
    [(V2, {}), (V2, {"delta.checkpointPolicy": "classic"}), (Protocol(1, 2), POLICY), (Protocol(1, 7, None, ("v2Checkpoint",)), POLICY)],
)
def test_without_the_feature_and_the_policy_checkpoints_are_classic(protocol: Protocol, policy: dict[str, str]) -> None:
    store = store_of([[protocol, replace(METADATA, configuration=policy), add("a")]])
    write_checkpoint(store, Snapshot.load(store))
    assert checkpoint_path(0) in store.disk.objects
    assert not [key for key in store.disk.objects if key.startswith(SIDECAR_FOLDER)]


def test_whoever_goes_back_to_classic_checkpoints_has_all_files_in_one() -> None:
    store = ten()
    written(store)
    put_commit(store, 1, METADATA, add("new"))
    assert written(store) == []
    assert Snapshot.load(store).num_files == 11


# ---------------------------------------------------------------------------------------- checkpoints that cannot be shared


def rewritten(store: MemoryStore, change: Callable[[str, dict[str, Any]], None]) -> None:
    """The checkpoint of version 0 as another engine writes it: with a `change` of its actions."""
    table = pq.read_table(io.BytesIO(store.get(checkpoint_path(0))))
    rows = table.to_pylist(maps_as_pydicts="strict")
    for row in rows:
        for name, body in row.items():
            if body is not None:
                change(name, body)
    store.put(checkpoint_path(0), parquet(rows, table.schema))


def test_sidecars_of_another_engine_are_not_shared() -> None:
    store = ten()
    first = written(store)
    rewritten(store, lambda name, body: body.update(tags=None) if name == "checkpointMetadata" else None)
    put_commit(store, 1, add("new"))
    assert not set(first) & set(written(store))
    assert json.loads(store.get(LAST_CHECKPOINT))["numOfAddFiles"] == 11


@pytest.mark.notices("only-own-sidecars-are-shared")
def test_sidecars_that_the_index_does_not_know_are_not_shared() -> None:
    """Another engine took over the tags of a checkpoint, but its sidecar has other files."""
    store = ten()
    (first,) = written(store)
    other = ten(12)
    (theirs,) = written(other)
    content = other.get(SIDECAR_FOLDER + theirs)
    store.put(SIDECAR_FOLDER + theirs, content)
    rewritten(store, lambda name, body: body.update(path=theirs, sizeInBytes=len(content)) if name == "sidecar" else None)
    put_commit(store, 1, remove("f11"))
    assert first not in written(store)
    assert paths(Snapshot.load(store)) == sorted(f"f{number}" for number in range(11))


@pytest.mark.notices("indexes-are-whole")
def test_after_a_damaged_index_all_is_written_anew(caplog: pytest.LogCaptureFixture) -> None:
    """Its last byte belongs to the largest digest."""
    caplog.set_level(logging.INFO, "sluice.storage.log.sidecars")
    store = ten()
    (first,) = written(store)
    content = bytearray(store.get(index_of(store)))
    content[-1] ^= 1
    store.put(index_of(store), bytes(content))
    last = max((f"f{number}" for number in range(10)), key=lambda path: crc32(path.encode()) & 0xFFFFFF)
    put_commit(store, 1, remove(last))
    assert first not in written(store)
    assert "is truncated or damaged" in caplog.text
    assert last not in paths(Snapshot.load(store))


def test_after_an_index_that_is_gone_all_is_written_anew() -> None:
    """Another engine may take it for garbage."""
    store = ten()
    (first,) = written(store)
    store.delete(index_of(store))
    put_commit(store, 1, remove("f1"))
    assert first not in written(store)
    assert Snapshot.load(store).num_files == 9


def test_a_table_that_took_another_s_place_shares_nothing_with_it() -> None:
    store = ten()
    first = written(store)
    put_commit(store, 1, replace(SHARING, id="another"), add("new"))
    assert not set(first) & set(written(store))


def test_a_damaged_sidecar_is_not_shared(caplog: pytest.LogCaptureFixture) -> None:
    """A client that read the list before it was damaged writes all of it anew."""
    caplog.set_level(logging.INFO, "sluice.storage.log.sidecars")
    store = ten()
    (first,) = written(store)
    loaded = Snapshot.load(store)
    assert (loaded.num_files, loaded.tombstones.num_rows) == (10, 0)
    store.put(SIDECAR_FOLDER + first, b"PAR1")
    put_commit(store, 1, add("new"))
    write_checkpoint(store, loaded.advance([(1, [add("new")])]))
    assert "shares no file with the one before" in caplog.text
    assert Snapshot.load(store).num_files == 11


@pytest.mark.notices("shared-sidecars-are-there")
@pytest.mark.usefixtures("small_sidecars")
def test_a_sidecar_that_is_gone_is_not_named_again() -> None:
    """A client that read the list before writes all of it anew."""
    store = ten()
    first = written(store)
    loaded = Snapshot.load(store)
    assert (loaded.num_files, loaded.tombstones.num_rows) == (10, 0)
    store.delete(SIDECAR_FOLDER + first[1])
    put_commit(store, 1, add("new"))
    write_checkpoint(store, loaded.advance([(1, [add("new")])]))
    assert Snapshot.load(store).num_files == 11


def test_a_missing_sidecar_ends_in_an_error_that_names_it_and_no_checkpoint() -> None:
    store = ten()
    (first,) = written(store)
    store.delete(SIDECAR_FOLDER + first)
    put_commit(store, 1, add("new"))
    with pytest.raises(MissingObject, match=first):
        written(store)
    assert json.loads(store.get(LAST_CHECKPOINT))["version"] == 0


@pytest.mark.parametrize(("verb", "key"), [("upload", "*"), ("put", "*.json"), ("put", "*_last_checkpoint"), ("head", "*_sidecars*")])
def test_a_checkpoint_that_fails_half_way_leaves_the_table_as_it_was(verb: Any, key: str) -> None:
    store = ten()
    first = written(store)
    put_commit(store, 1, remove("f1"), add("new"))
    store.disk.fail_before(verb, key)
    with pytest.raises(StorageUnavailable):
        written(store)
    assert Snapshot.load(store).num_files == 10
    assert Snapshot.load(store, version=0).num_files == 10
    assert len(written(store)) == 2
    assert not set(first) & {each.path for each in sidecars_of(store)}


def test_two_checkpoints_of_one_version_are_both_whole() -> None:
    store = ten()
    written(store)
    put_commit(store, 1, remove("f1"), add("new"))
    snapshot = Snapshot.load(store)
    for _ in range(2):
        write_checkpoint(store, snapshot)
        assert Snapshot.load(store).num_files == 10


# ------------------------------------------------------------------------------------------------------------- clean-up

LATER_MS = 2**60


@pytest.mark.notices("named-sidecars-are-kept")
@pytest.mark.usefixtures("small_sidecars")
def test_sidecars_that_no_checkpoint_names_are_told_apart() -> None:
    store = ten()
    first, index = written(store), index_of(store)
    assert unnamed_sidecars(store, LATER_MS) == []
    put_commit(store, 1, remove("f1"), add("new"))
    second = written(store)
    assert unnamed_sidecars(store, LATER_MS) == [], "the older checkpoint names it"
    store.delete(checkpoint_path(0))
    assert unnamed_sidecars(store, 0) == [], "it may belong to a checkpoint that is being written"
    gone = {SIDECAR_FOLDER + each for each in set(first) - set(second)}
    assert gone
    assert set(unnamed_sidecars(store, LATER_MS)) == {*gone, index}


def test_as_long_as_a_checkpoint_cannot_be_read_no_sidecar_goes(caplog: pytest.LogCaptureFixture) -> None:
    store = ten()
    written(store)
    store.put(checkpoint_path(0), b"PAR1")
    assert unnamed_sidecars(store, LATER_MS) == []
    assert "are not cleaned up" in caplog.text


def test_without_sidecars_no_checkpoint_is_read() -> None:
    store = store_of([[Protocol(1, 2), METADATA, add("a")]])
    write_checkpoint(store, Snapshot.load(store))
    store.disk.calls.clear()
    assert unnamed_sidecars(store, LATER_MS) == []
    assert [verb for verb, _ in store.disk.calls] == ["list"]


def test_names_of_sidecars_that_are_whole_addresses_are_understood() -> None:
    """Other engines may write them so."""
    store = ten()
    written(store)
    (sidecar,) = sidecars_of(store)
    table = pq.read_table(io.BytesIO(store.get(checkpoint_path(0))))
    rows = table.to_pylist(maps_as_pydicts="strict")
    for row in rows:
        if row["sidecar"]:
            row["sidecar"]["path"] = f"memory://x/_delta_log/_sidecars/{sidecar.path}"
    store.put(checkpoint_path(0), parquet(rows, table.schema))
    assert unnamed_sidecars(store, LATER_MS) == []


def test_a_checkpoint_of_an_empty_table_has_no_sidecar() -> None:
    store = store_of([[V2, SHARING]])
    assert written(store) == []
    assert Snapshot.load(store).num_files == 0
    put_commit(store, 1, *(AddFile(f"f{number}", {}, 1, 1, True) for number in range(3)))
    assert len(written(store)) == 1
    assert Snapshot.load(store).num_files == 3
