"""Log compaction files: they save requests, and a wrong or half one changes nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.storage.actions import Action, AddFile, CommitInfo, DomainMetadata, Metadata, Protocol, RemoveFile, Txn, encode_all
from sluice.storage.log.examination import Finding, examine_log, reporter
from sluice.storage.log.paths import commit_path
from sluice.storage.log.snapshot import Snapshot
from sluice.storage.stores.memory import MemoryStore
from tests.storage.log.test_v2_checkpoints import state
from tests.storage.logs import START, add, commit_sequences, compacted_path, paths, put_commit, remove, store_of

COMMITS = 40


def reconciled(history: list[list[Action]]) -> list[Action]:
    """The newest action of each key, as a log compaction file has it."""
    newest: dict[object, Action] = {}
    for action in (each for commit in history for each in commit):
        match action:
            case AddFile() | RemoveFile():
                newest[action.key] = action
            case Txn():
                newest["txn", action.app_id] = action
            case DomainMetadata():
                newest["domain", action.domain] = action
            case Protocol() | Metadata():
                newest[type(action)] = action
            case _:
                continue
    return list(newest.values())


def long_history() -> list[list[Action]]:
    """Each version adds a file, removes an earlier one, and counts an application on."""
    history: list[list[Action]] = [[*START, add("f0"), DomainMetadata("d", "0", False)]]
    for version in range(1, COMMITS + 1):
        info = CommitInfo({"timestamp": version, "operation": "WRITE"})
        commit: list[Action] = [info, add(f"f{version}"), Txn(f"app-{version % 3}", version)]
        history.append(commit if version % 2 else [*commit, remove(f"f{version - 1}")])
    history[20].append(DomainMetadata("d", "", True))
    return history


def with_compaction(history: list[list[Action]], first: int, last: int) -> MemoryStore:
    store = store_of(history)
    store.put(compacted_path(first, last), encode_all(reconciled(history[first : last + 1])))
    return store


def findings(store: MemoryStore) -> list[Finding]:
    found: list[Finding] = []
    examine_log(store, reporter(found))
    return [each for each in found if each.about.endswith(".compacted.json")]


@pytest.mark.parametrize("last", [COMMITS - 1, COMMITS])
def test_a_compaction_of_many_commits_saves_their_requests(last: int, caplog: pytest.LogCaptureFixture) -> None:
    history = long_history()
    expected = Snapshot.load(store_of(history))
    store = with_compaction(history, 1, last)
    store.disk.calls.clear()
    snapshot = Snapshot.load(store)
    assert state(snapshot) == state(expected)
    assert (snapshot.commit_info, snapshot.version) == (expected.commit_info, COMMITS)
    assert len([key for verb, key in store.disk.calls if verb == "get" and key.endswith(".json")]) < 12
    assert not caplog.records
    assert findings(store) == []


def test_a_compaction_of_few_commits_is_left_alone() -> None:
    """They are fetched as fast as the compaction and the commits that it is compared with."""
    store = with_compaction(long_history(), 1, 20)
    store.disk.calls.clear()
    assert Snapshot.load(store).version == COMMITS
    assert ("get", compacted_path(1, 20)) not in store.disk.calls


@pytest.mark.notices("compactions-are-reconciled")
@pytest.mark.parametrize(
    "content", [b"", b"{", b'{"add":', b"\xff\xfe", b'{"add":{"path":"x"}}\n', b'{"txn":{"appId":"other","version":1}}\n']
)
def test_a_damaged_compaction_is_named_and_its_commits_are_read(content: bytes, caplog: pytest.LogCaptureFixture) -> None:
    history = long_history()
    store = with_compaction(history, 1, COMMITS)
    store.put(compacted_path(1, COMMITS), content)
    assert state(Snapshot.load(store)) == state(Snapshot.load(store_of(history)))
    assert f"{compacted_path(1, COMMITS)} of {store.location} is not used" in caplog.text
    (finding,) = findings(store)
    assert (finding.severity, "remove it" in finding.remedy) == ("warning", True)


@pytest.mark.parametrize("part", [1, 2, 3])
def test_a_part_of_a_compaction_counts_for_nothing(part: int) -> None:
    """It was cut where a line ends, so each line is right."""
    history = long_history()
    store = with_compaction(history, 1, COMMITS)
    lines = store.get(compacted_path(1, COMMITS)).splitlines(keepends=True)
    store.put(compacted_path(1, COMMITS), b"".join(lines[: len(lines) * part // 4]))
    assert state(Snapshot.load(store)) == state(Snapshot.load(store_of(history)))


def test_a_compaction_of_other_versions_counts_for_nothing() -> None:
    history = long_history()
    store = with_compaction(history, 1, COMMITS)
    store.put(compacted_path(1, COMMITS), encode_all(reconciled(history[1:COMMITS])))
    assert state(Snapshot.load(store)) == state(Snapshot.load(store_of(history)))


@given(commit_sequences(), st.integers(0, 100))
def test_what_lacks_anything_of_the_commits_that_are_compared_counts_for_nothing(history: list[list[Action]], lines: int) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("sluice.storage.log.segment._COMPACTED_MIN", 2)
        patched.setattr("sluice.storage.log.replay._COMPARED", 50)  # all of them
        expected = state(Snapshot.load(store_of(history)))
        last = len(history) - 1
        if last:
            store = with_compaction(history, 0, last)
            assert state(Snapshot.load(store)) == expected
            some = store.get(compacted_path(0, last)).splitlines(keepends=True)[:lines]
            store.put(compacted_path(0, last), b"".join(some))
            assert state(Snapshot.load(store)) == expected


def test_a_commit_that_went_since_the_listing_is_looked_for_again() -> None:
    history = long_history()
    store = with_compaction(history, 1, COMMITS)
    store.delete(commit_path(COMMITS))
    assert Snapshot.load(store).version == COMMITS - 1


WRONG: dict[str, list[Action]] = {
    "has ('txn', 'app-1'), and none": [Txn("app-1", 7)],
    "it lacks ('file', ('f1', ''))": [add("f2")],
    "another action of": [remove("f1"), add("f2")],
}


@pytest.mark.parametrize("what", WRONG)
def test_the_doctor_compares_every_action(what: str) -> None:
    store = store_of([list(START), [add("f1")], [add("f2")]])
    actions = WRONG[what] if "lacks" in what or "another" in what else [add("f1"), add("f2"), *WRONG[what]]
    store.put(compacted_path(1, 2), encode_all(actions))
    (finding,) = findings(store)
    assert what in finding.what
    assert paths(Snapshot.load(store)) == ["f1", "f2"]
    put_commit(store, 3, add("f3"))
    store.delete(commit_path(0))
    store.delete(commit_path(1))
    assert findings(store) == [], "of commits that a clean-up removed nothing is known"
