"""Transactions that are in the queue at the same moment: nobody has seen the others committed, and one client decides for all.

The commits are held after they were filed, so that what is tried is the shared decision, not a client's own look at what came
first. Each client has a coordinated of its own and goes through the queue (`fast_path` is off), on a real ZooKeeper.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import pytest

import sluice
from sluice.coordinator.errors import ConcurrentDeleteDeleteException, ConcurrentModification, PolicyConflictException
from sluice.coordinator.limits import Limits
from sluice.coordinator.nodes.records import BatchRecord, Rebased
from sluice.storage.data.vectors import vector_key
from sluice.storage.stores.local import LocalStore
from sluice.tables.maintain import rewriting
from sluice.tables.maintain.compaction import CompactionRequest, stage_compaction
from tests.tables.conftest import Place, present
from tests.tables.isolation.matrices import FIRST, OPERATIONS, SCHEMA, SECOND, Rows, Staged, batches, queue, read, table_of

pytestmark = pytest.mark.zookeeper

VECTORS: Final = {"delta.enableDeletionVectors": "true"}
QUEUED: Final = Limits(fast_path=False)
Outcome = Any


@pytest.fixture
def place(tmp_path: Path, zookeeper_hosts: str) -> Place:
    """A table of its own in a tree that the module's tests share."""
    return Place(str(tmp_path / "table"), f"zk://{zookeeper_hosts}/queues")


def one_file(place: Place, rows: int, properties: Mapping[str, str] = VECTORS) -> Rows:
    """A table of one file: id -> (1, id)."""
    table = sluice.Table.create(place.location, SCHEMA, properties=properties, coordinator=place.coordinator)
    held = {key: (1, key) for key in range(rows)}
    table.append(table_of(held))
    return held


def two_files(place: Place, rows: int, properties: Mapping[str, str] = VECTORS) -> Rows:
    """The same with as many rows more, from 100 on, in another file."""
    held, more = one_file(place, rows, properties), {key: (1, key) for key in range(100, 100 + rows)}
    place.open().append(table_of(more))
    return held | more


def begun(place: Place, *doing: Callable[[sluice.Transaction], object], limits: Limits = QUEUED) -> list[sluice.Transaction]:
    """Transactions on the latest version, each of a client of its own."""
    found = []
    for do in doing:
        transaction = place.open(limits=limits).begin()
        do(transaction)
        found.append(transaction)
    return found


def deletion(ids: Iterable[int]) -> Callable[[sluice.Transaction], object]:
    listed = ", ".join(map(str, sorted(ids)))
    return lambda transaction: transaction.delete(f"id IN ({listed})")


def in_one_queue(monkeypatch: pytest.MonkeyPatch, staged: Sequence[Staged]) -> list[Outcome]:
    """Their commits, or why they were refused, in the order in which they were filed."""
    with queue(monkeypatch) as together:
        return [_told(each) for each in together.settle(*(one.commit for one in staged))]


def _told(done: Future[sluice.Commit | None]) -> Outcome:
    error = done.exception(0)
    if error is None:
        return done.result()
    if isinstance(error, ConcurrentModification):
        return error
    raise error


def names(outcomes: Iterable[Outcome]) -> list[str]:
    return [type(outcome).__name__ for outcome in outcomes]


def adapted(place: Place) -> list[tuple[BatchRecord, Rebased]]:
    """What the deciding client rebased, by the coordinator's records."""
    return [(record, rebased) for record in batches(place) for plan in record.versions for rebased in plan.rebased]


# -- rows of one file ------------------------------------------------------------------------------------------------------


@pytest.mark.notices("what-was-adapted-is-committed")
@pytest.mark.parametrize("writers", [2, 8])
def test_deletions_of_different_rows_of_one_file_all_stand(place: Place, writers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    held = one_file(place, 64)
    doomed = [range(number, 64, writers * 2) for number in range(writers)]
    outcomes = in_one_queue(monkeypatch, begun(place, *map(deletion, doomed)))
    assert [outcome.version for outcome in outcomes] == list(range(2, 2 + writers)), "they are decided in the order of the queue"
    gone = set().union(*doomed)
    assert read(place) == {key: row for key, row in held.items() if key not in gone}
    # One client decided for all, and united what the log now holds.
    rebased = adapted(place)
    assert len(rebased) == writers - 1
    [record] = {record.batch_id: record for record, _ in rebased}.values()
    assert len(record.verdicts) == writers
    entries = place.open().history(writers)
    assert [entry.rebased_over for entry in entries] == list(reversed(range(writers)))
    assert all("united" in entry.rebased[0] for entry in entries[:-1])
    assert entries[-1].rebased == ()
    [left] = place.open().access.latest().add_files()
    assert present(left.deletion_vector).cardinality == len(gone)


def test_vectors_too_large_for_the_log_are_united_in_the_store(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    held = one_file(place, 20_000)
    residues = (0, 3, 5, 6)
    doing = [lambda t, r=r: t.delete(f"id % 7 = {r}") for r in residues]
    outcomes = in_one_queue(monkeypatch, begun(place, *doing))
    assert names(outcomes) == ["Commit"] * 4
    assert read(place) == {key: row for key, row in held.items() if key % 7 not in residues}
    assert len(adapted(place)) == 3
    [left] = place.open().access.latest().add_files()
    assert left.deletion_vector is not None
    key = vector_key(left.deletion_vector)
    assert key is not None, "the vector is in the log, where the test wants it in an object"
    assert Path(place.location, key).is_file()


def many_files(place: Place, files: int, rows: int) -> Rows:
    """A table of one file for each partition: v counts the rows of a file."""
    table = sluice.Table.create(place.location, SCHEMA, partition_by=["part"], properties=VECTORS, coordinator=place.coordinator)
    held = {part * 100 + n: (part, n) for part in range(files) for n in range(rows)}
    table.append(table_of(held))
    return held


@pytest.mark.parametrize(("files", "writers"), [(150, 3), (60, 10)], ids=["large actions", "many"])
@pytest.mark.long
def test_what_is_rebased_may_be_too_large_for_a_record(place: Place, files: int, writers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Actions beyond 64 KiB are staged once more as they became, and so are those for which the batch's record has no room."""
    held = many_files(place, files, writers + 1)
    outcomes = in_one_queue(monkeypatch, begun(place, *(lambda t, n=n: t.delete(f"v = {n}") for n in range(writers))))
    assert names(outcomes) == ["Commit"] * writers
    assert read(place) == {key: row for key, row in held.items() if row[1] == writers}
    found = adapted(place)
    assert len(found) == writers - 1
    staged = [rebased for _, rebased in found if rebased.staged]
    assert (0 < len(staged) < len(found)) if files == 60 else len(staged) == len(found)
    assert all(not rebased.actions for rebased in staged)
    for record, _ in found:
        assert len(record.encode()) < QUEUED.batch_bytes_max
    # The history lists the first adaptations, and gives the number of the others.
    entries = place.open().history(writers - 1)
    lines = [len(entry.rebased) for entry in reversed(entries)]
    assert lines == [min(51, files * number) for number in range(1, writers)]
    assert entries[0].rebased[-1] == f"and {files * (writers - 1) - 50} more"


@pytest.mark.parametrize("seed", [*range(3), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(100, 160))])
def test_every_row_that_several_delete_has_one_who_does(place: Place, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The order of the queue alone says which of two transactions is refused."""
    chance = random.Random(seed)
    held = one_file(place, 64)
    doomed = [set(chance.sample(range(64), 6)) for _ in range(8)]
    outcomes = in_one_queue(monkeypatch, begun(place, *map(deletion, doomed)))
    gone: set[int] = set()
    for ids, outcome in zip(doomed, outcomes, strict=True):
        if ids & gone:
            assert isinstance(outcome, ConcurrentDeleteDeleteException)
            assert 0 < int(outcome.message.partition("concerns ")[2].split()[0]) <= len(ids & gone)
        else:
            assert not isinstance(outcome, Exception)
            gone |= ids
    assert {"Commit", "ConcurrentDeleteDeleteException"} == set(names(outcomes))
    assert read(place) == {key: row for key, row in held.items() if key not in gone}
    assert adapted(place)


def test_a_change_that_only_rows_tell_apart_is_filed_again(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Updates write rows again, on both sides of what the other one changes: its owner looks into the file, and goes on."""
    held = one_file(place, 64)
    tables = [place.open(limits=QUEUED) for _ in range(2)]
    with queue(monkeypatch) as together:
        done = together.settle(
            lambda: tables[0].update({"v": "-1"}, "id IN (1, 60)"), lambda: tables[1].update({"v": "-2"}, "id IN (2, 50)")
        )
    assert names(map(_told, done)) == ["Commit", "Commit"]
    assert read(place) == held | {1: (1, -1), 60: (1, -1), 2: (1, -2), 50: (1, -2)}


# -- compactions in the queue ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["minor", "major"])
@pytest.mark.parametrize("at", [0, 2, 4])
def test_deletions_before_and_after_a_compaction_in_the_queue(place: Place, mode: str, at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    held = two_files(place, 16)
    doomed = [{number, number + 8, 100 + number} for number in range(4)]
    staged: list[Staged] = list(begun(place, *map(deletion, doomed)))
    compaction = present(stage_compaction(place.open(limits=QUEUED).coordinated, CompactionRequest(mode)))
    staged.insert(at, compaction)
    outcomes = in_one_queue(monkeypatch, staged)
    assert names(outcomes) == ["Commit"] * 5
    assert read(place) == {key: row for key, row in held.items() if key not in set().union(*doomed)}
    [left] = place.open().access.latest().add_files()
    assert left.path.endswith(".parquet")
    said = " ".join(word for _, rebased in adapted(place) for word in rebased.what)
    assert ("left out" in said) == (at > 0), "a compaction leaves out what was deleted before it"
    assert ("carried over" in said) == (at < 4), "a deletion is carried over to what a compaction made"
    assert len(adapted(place)) == 4


@pytest.mark.parametrize("at", [0, 2, 4])
def test_deletions_before_and_after_a_z_order_in_the_queue(place: Place, at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever decides follows the rows through what the z-order stored, also those that were deleted before it in the same queue."""
    monkeypatch.setattr(rewriting, "_PIECE_ROWS", 3)
    held = two_files(place, 16)
    doomed = [{number, number + 8, 100 + number} for number in range(4)]
    staged: list[Staged] = list(begun(place, *map(deletion, doomed)))
    staged.insert(at, present(stage_compaction(place.open(limits=QUEUED).coordinated, CompactionRequest(z_order_by=["v", "id"]))))
    outcomes = in_one_queue(monkeypatch, staged)
    assert names(outcomes) == ["Commit"] * 5
    assert read(place) == {key: row for key, row in held.items() if key not in set().union(*doomed)}
    assert len(adapted(place)) == 4


# -- policies in the queue -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["maxcompute-table", "maxcompute-transactional", "maxcompute-delta"])
def test_of_several_jobs_that_conflict_exactly_one_succeeds(place: Place, policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    held = one_file(place, 8, {"sluice.conflictPolicy": policy})
    doing = [lambda t, n=n: t.update({"v": "-1"}, f"id = {n}") for n in range(8)]
    outcomes = in_one_queue(monkeypatch, begun(place, *doing))
    assert names(outcomes) == ["Commit", *["PolicyConflictException"] * 7]
    assert read(place) == held | {0: (1, -1)}


@pytest.mark.parametrize("policy", ["maxcompute-table", "maxcompute-transactional"])
def test_an_overwrite_replaces_what_stands_before_it_in_the_queue(place: Place, policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """And not the transactions behind it."""
    one_file(place, 8, {"sluice.conflictPolicy": policy})
    appends = [lambda t, n=n: t.append(table_of({n: (1, n)})) for n in (100, 200, 300)]
    staged = begun(place, *appends[:2], lambda t: t.overwrite(table_of({7: (1, 0)})), appends[2])
    outcomes = in_one_queue(monkeypatch, staged)
    assert names(outcomes) == ["Commit"] * 4
    assert read(place) == {7: (1, 0), 300: (1, 300)}
    [(_, rebased)] = adapted(place)
    assert "replaced" in rebased.what[0]


def test_a_minor_compaction_stands_behind_changes_in_the_queue(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    held = two_files(place, 14, {"sluice.conflictPolicy": "maxcompute-delta"})
    staged = [
        OPERATIONS[n].stage(place.open(limits=QUEUED), s) for n, s in (("update", FIRST), ("minor compaction", SECOND), ("delete", SECOND))
    ]
    outcomes = in_one_queue(monkeypatch, staged)
    assert names(outcomes) == ["Commit", "Commit", "PolicyConflictException"]
    assert isinstance(outcomes[2], PolicyConflictException)
    assert read(place) == held | {10: (1, 1010), 12: (1, 1012)}
    assert len(adapted(place)) == 1


# -- without a barrier -----------------------------------------------------------------------------------------------------


def slow_store(monkeypatch: pytest.MonkeyPatch, chance: random.Random) -> None:
    """Puts of the log take a few milliseconds, as on an object store: meanwhile the queue fills."""
    put = LocalStore.put

    def slowly(self: LocalStore, key: str, data: bytes) -> Any:
        if "_delta_log" in key:
            threading.Event().wait(chance.uniform(0.005, 0.03))
        return put(self, key, data)

    monkeypatch.setattr(LocalStore, "put", slowly)


def race(place: Place, writers: int, rounds: int, chance: random.Random) -> None:
    """Writers that delete rows of their own, all of one file, and one that compacts meanwhile; then no row is missing."""
    held = one_file(place, writers * rounds * 4)
    shares = [[key for key in held if key % writers == number] for number in range(writers)]
    for share in shares:
        chance.shuffle(share)
    done = threading.Event()

    def deleting(share: list[int]) -> int:
        table = place.open(limits=QUEUED)
        for at in range(0, rounds * 3, 3):  # one in four stays
            table.delete(f"id IN ({', '.join(map(str, share[at : at + 3]))})")
        return rounds

    def compacting() -> int:
        table = place.open(limits=QUEUED)
        made = 0
        while not done.is_set():
            made += table.compact("major") is not None
            done.wait(0.05)
        return made

    with ThreadPoolExecutor(writers + 1) as pool:
        compactor = pool.submit(compacting)
        try:
            futures = [pool.submit(deleting, share) for share in shares]
            assert sum(each.result(200) for each in futures) == writers * rounds
        finally:
            done.set()
        made = compactor.result(60)
    gone = {key for share in shares for key in share[: rounds * 3]}
    assert read(place) == {key: row for key, row in held.items() if key not in gone}
    entries = place.open().history(None)
    assert sum(entry.operation == "DELETE" for entry in entries) == writers * rounds
    assert sum(entry.operation == "OPTIMIZE" for entry in entries) == made > 0
    assert adapted(place), "nothing was rebased by the shared decision: this race tested nothing"
    assert any(entry.rebased for entry in entries if entry.operation == "DELETE")


@pytest.mark.parametrize(("seed", "rounds"), [(8, 5), *(pytest.param(seed, 40, marks=pytest.mark.long) for seed in range(5))])
def test_a_race_of_eight(place: Place, seed: int, rounds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(seed)
    slow_store(monkeypatch, chance)
    race(place, 8, rounds, chance)
