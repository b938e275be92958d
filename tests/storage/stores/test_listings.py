"""Listings that are not one moment: what came or went while they ran may be hidden, and nothing is called missing for it."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from sluice.storage.errors import LogGap, VersionNotFound
from sluice.storage.log.paths import checkpoint_path, commit_path
from sluice.storage.log.segment import latest_version, list_segment, list_versions
from sluice.storage.log.snapshot import Snapshot
from sluice.storage.log.timetravel import file_times, read_commit
from sluice.storage.stores.location import open_store
from sluice.storage.stores.memory import MemoryStore
from tests.storage.logs import add, counted, paths, put_commit

WRITER = """
import sys
from sluice.storage.stores import local
from sluice.storage.log.paths import commit_path
local._flush = lambda path: None  # many versions in a short time
store, version = local.LocalStore(sys.argv[1]), int(sys.argv[2])
print("ready", flush=True)
for version in range(version, version + 4000):
    store.put_if_absent(commit_path(version), b"{}")
"""


def grown(hides: Callable[[str], bool], *, versions: int = 3, more: int = 6, times: int = 1) -> MemoryStore:
    """A log of `versions` to which `more` are added while it is being listed, for the first `times` listings."""
    store = counted(versions)
    latest = versions - 1

    def grow() -> None:
        nonlocal latest
        for version in range(latest + 1, latest + 1 + more):
            put_commit(store, version, add(f"f{version}"))
        latest += more

    store.disk.hides = hides
    store.disk.slow("list", grow, times=times)
    return store


def hide(*versions: int) -> Callable[[str], bool]:
    names = {commit_path(version) for version in versions}
    return lambda key: key in names


@pytest.mark.notices("hidden-commits-are-looked-for")
@pytest.mark.parametrize("hidden", [(3,), (7,), (3, 4, 5, 6, 7), (4, 6), (3, 5, 7)])
def test_a_commit_that_a_listing_hides_is_found_by_its_name(hidden: tuple[int, ...]) -> None:
    assert list_segment(grown(hide(*hidden))).version == 8
    assert latest_version(grown(hide(*hidden))) == 8
    assert sorted(list_versions(grown(hide(*hidden))).commits) == list(range(9))
    assert sorted(file_times(list_versions(grown(hide(*hidden))))) == list(range(9))
    assert paths(Snapshot.load(grown(hide(*hidden)))) == [f"f{version}" for version in range(9)]


@pytest.mark.parametrize("hidden", [(3,), (4, 6), (8,), (3, 4, 5, 6, 7, 8)])
def test_a_snapshot_moves_on_over_what_a_listing_hides(hidden: tuple[int, ...]) -> None:
    store = counted(3)
    snapshot = Snapshot.load(store)
    seen = grown(hide(*hidden))
    seen.disk.objects.update(store.disk.objects)
    refreshed = snapshot.refresh(seen)
    last = max({*range(9)} - set(hidden))
    assert refreshed.version == last
    assert paths(refreshed) == [f"f{version}" for version in range(last + 1)]
    assert ("head", commit_path(1)) not in seen.disk.calls  # only what is hidden is asked for


def test_the_first_commits_of_a_log_may_be_hidden() -> None:
    store = grown(hide(0, 1), versions=0)
    store.disk.faults.clear()
    full = counted(3)
    store.disk.slow("list", lambda: store.disk.objects.update(full.disk.objects))
    assert list_segment(store).version == 2


def test_a_commit_right_after_a_checkpoint_may_be_hidden() -> None:
    store = counted(6)
    store.put(checkpoint_path(5), b"only its name is looked at")
    for version in range(6):  # another engine's clean-up leaves the checkpoint alone
        store.delete(commit_path(version))

    def grow() -> None:
        put_commit(store, 6, add("f6"))
        put_commit(store, 7, add("f7"))

    store.disk.hides = hide(6)
    store.disk.slow("list", grow)
    segment = list_segment(store)
    assert (segment.version, [each.version for each in segment.commits]) == (7, [6, 7])


def test_what_is_missing_is_missing_and_costs_one_look_a_listing() -> None:
    store = counted(9)
    store.delete(commit_path(4))
    with pytest.raises(LogGap, match="version 4"):
        list_segment(store)
    assert [call for call in store.disk.calls if call[0] == "head"] == [("head", commit_path(4))] * 2
    with pytest.raises(LogGap, match="version 4"):
        read_commit(store, 4)


def test_a_version_that_came_during_the_listing_is_no_unknown_one() -> None:
    store = grown(hide(8), times=1)
    assert list_segment(store, 8).version == 8
    with pytest.raises(VersionNotFound):
        list_segment(store, 9)


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.many
def test_beside_a_writer_and_a_clean_up_the_log_is_whole_at_every_moment(seed: int) -> None:
    """Versions, checkpoints and clean-ups happen during every listing, and of what they change anything may be hidden."""
    dice = random.Random(seed)
    store = counted(3)
    store.disk.clock_ms = partial(next, count(1))
    latest = 2

    def live() -> None:
        nonlocal latest
        for _ in range(dice.randrange(8)):
            if dice.random() < 0.2:
                write_checkpoint_and_clean_up(store, latest)
            else:
                latest += 1
                put_commit(store, latest, add(f"f{latest}"))

    store.disk.hides = lambda _: dice.random() < 0.5
    store.disk.slow("list", live, times=10_000)
    for _ in range(20):
        before = latest
        segment = list_segment(store)
        assert before <= segment.version <= latest
        found = latest_version(store)
        assert found is not None
        assert before <= found <= latest


@pytest.mark.notices("two-listings-agree")
def test_a_clean_up_during_a_listing_makes_no_gap() -> None:
    store = counted(12)

    def clean_up() -> None:
        store.put(checkpoint_path(11), b"only its name is looked at")
        for gone in range(11):
            store.delete(commit_path(gone))

    hidden = {checkpoint_path(11), commit_path(5)}
    store.disk.hides = lambda key: key in hidden
    store.disk.slow("list", clean_up)
    segment = list_segment(store)
    assert segment.checkpoint is not None
    assert (segment.version, segment.checkpoint.version) == (11, 11)


def write_checkpoint_and_clean_up(store: MemoryStore, version: int) -> None:
    """Write a checkpoint, and remove what lies below a former one and came before any listing that still runs."""
    former = [each for each in range(version - 8) if checkpoint_path(each) in store.disk.objects]
    store.put(checkpoint_path(version), b"only its name is looked at")
    for gone in range(max(former, default=0)):
        store.delete(checkpoint_path(gone))
        store.delete(commit_path(gone))


@pytest.mark.slow
def test_a_folder_on_the_disk_beside_a_writer_in_another_process(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    for version in range(1500):
        (tmp_path / "_delta_log").mkdir(exist_ok=True)
        (tmp_path / commit_path(version)).write_bytes(b"{}")
    versions: list[int] = []
    with subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path), "1500"], stdout=subprocess.PIPE, text=True) as writer:
        try:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "ready\n"
            while writer.poll() is None and len(versions) < 100:
                versions.append(list_segment(store).version)
        finally:
            writer.kill()
    assert versions == sorted(versions)
    assert versions[-1] > versions[0]
