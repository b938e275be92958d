"""Compactions that meet other transactions: in either order no row is lost, none comes back, and a refusal has a reason.

Transactions are planned first, on the versions of their choice, and committed afterwards, so that every order of arrival is
met on purpose. What a table holds is read here from Parquet and vectors alone, row by row, and compared with a model.
"""

from __future__ import annotations

import random
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import sluice
from sluice.coordinator.admission import submission
from sluice.coordinator.api import Change, CoordinatedTable, Reads, submit
from sluice.coordinator.errors import ConcurrentModification
from sluice.coordinator.rules.intent import Kind
from sluice.storage.actions import Action, AddFile, RemoveFile
from sluice.storage.actions.file_removals import removal
from sluice.storage.data.vectors import Rows, plan_vector, read_vector
from sluice.tables.maintain import compaction, rewriting
from sluice.tables.maintain.rewriting import Rewriter
from tests.tables.conftest import Place, flights, rows_of

VECTORS = {"delta.enableDeletionVectors": "true"}
ORDER = pytest.mark.parametrize("order", [{}, {"z_order_by": ["month", "delay"]}], ids=["kept", "z-order"])
BOTH = pytest.mark.parametrize("vectors", [True, False], ids=["vectors", "no vectors"])


@dataclass
class Planned:
    """A transaction that is ready to be committed by a client of its own."""

    table: sluice.Table
    change: Change

    def commit(self) -> sluice.Commit:
        return submit(self.table.coordinated, self.change)


def physical_ids(place: Place, path: str) -> list[int]:
    ids: list[int] = pq.ParquetFile(Path(place.location, path)).read(["delay"])["delay"].to_pylist()
    return ids


def vector_of(table: sluice.Table, add: AddFile | RemoveFile) -> Rows:
    return Rows() if add.deletion_vector is None else read_vector(table.access.store, add.deletion_vector)


def ids_in(place: Place, table: sluice.Table) -> Counter[int]:
    """The ids of all live rows, read without the scan."""
    found: Counter[int] = Counter()
    for add in table.access.latest().add_files():
        dead = vector_of(table, add)
        found.update(number for row, number in enumerate(physical_ids(place, add.path)) if row not in dead)
    return found


def plan_deletion(place: Place, ids: set[int]) -> Planned:
    """Delete rows by id, on the latest version: by vectors, or by writing the rest of their files again."""
    table = place.open()
    access = table.coordinated
    snapshot = access.latest()
    transaction, now_ms = access.new_transaction_id(), access.clock.now_ms()
    row_level = snapshot.configuration.get("delta.enableDeletionVectors") == "true"
    actions: list[Action] = []
    candidates = []
    for add in snapshot.add_files():
        dead = vector_of(table, add)
        rows = physical_ids(place, add.path)
        hit = Rows(row for row, number in enumerate(rows) if number in ids and row not in dead)
        if not hit:
            continue
        candidates.append(add.path)
        actions.append(removal(add, now_ms))
        if len(dead | hit) == len(rows):
            continue
        assert row_level, "without vectors the tests delete whole files"
        vector, stored = plan_vector(dead | hit, owner=transaction)
        if stored is not None:
            access.store.put(*stored)
        actions.append(replace(add, deletion_vector=vector, data_change=True))
    reads = Reads(predicates=("delay >= 0",), files=() if row_level else tuple(candidates))
    return Planned(table, Change(transaction, "DELETE", snapshot, actions, reads=reads, schema=table.struct, kind=Kind.CHANGE))


def plan_append(place: Place, ids: Sequence[int]) -> Planned:
    table = place.open()
    plan = table.plan_write(None)
    files = plan.write(flights(*((f"P{number % 2}", 1, number) for number in ids)))
    snapshot = table.access.latest()
    return Planned(table, Change(plan.transaction_id, "WRITE", snapshot, files, schema=table.struct, kind=Kind.APPEND))


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that are ordered anew go into pieces of three rows, so that there are many."""
    monkeypatch.setattr(rewriting, "_PIECE_ROWS", 3)


@pytest.fixture
def plan_compaction(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Planned | None]:
    """Stage a compaction, and commit it later."""
    staged = threading.local()

    def keep(table: CoordinatedTable, change: Change, **options: Any) -> sluice.Commit | None:
        if not hasattr(staged, "changes"):
            return submit(table, change, **options)
        staged.changes.append(change)
        return None

    def plan(place: Place, *arguments: Any, **options: Any) -> Planned | None:
        staged.changes = []
        table = place.open()
        table.compact(*arguments, **options)
        changes = staged.changes
        del staged.changes
        return Planned(table, changes[-1]) if changes else None

    monkeypatch.setattr(compaction, "submit", keep)
    return plan


def create(place: Place, files: int, rows: int, *, vectors: bool = True, partition_by: Sequence[str] = ()) -> tuple[sluice.Table, set[int]]:
    """A table of files with so many rows each, ids from 0."""
    table = place.create(partition_by=list(partition_by), properties=VECTORS if vectors else {})
    for file in range(files):
        table.append(flights(*((f"P{number % 2}", 1, number) for number in range(file * rows, (file + 1) * rows))))
    return table, set(range(files * rows))


def expect(place: Place, table: sluice.Table, ids: set[int]) -> None:
    assert ids_in(place, table) == Counter(ids)
    assert sorted(table.snapshot().to_arrow(columns=["delay"])["delay"].to_pylist()) == sorted(ids)


Compaction = Callable[..., Planned | None]


def planned(found: Planned | None) -> Planned:
    assert found is not None
    return found


# -- pairs, in both orders -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", ["delete", "compaction"])
@pytest.mark.parametrize("mode", ["minor", "major"])
@ORDER
def test_whichever_comes_second_takes_the_first_over(
    place: Place, plan_compaction: Compaction, order: dict[str, Any], mode: str, first: str
) -> None:
    """A delete is carried over to the files of a compaction; a compaction leaves deleted rows out."""
    table, ids = create(place, 3, 5)
    plan_deletion(place, {1, 6}).commit()
    delete, compact = plan_deletion(place, {0, 4, 7, 14}), planned(plan_compaction(place, mode, **order))
    for each in [delete, compact] if first == "delete" else [compact, delete]:
        each.commit()
    expect(place, table, ids - {0, 1, 4, 6, 7, 14})
    [left] = table.access.latest().add_files()
    assert left.deletion_vector is not None
    assert left.deletion_vector.cardinality == 4


@pytest.mark.parametrize("first", ["delete", "compaction"])
@pytest.mark.parametrize("gone", [{5, 6, 7, 8, 9, 11}, set(range(15))], ids=["one source", "all sources"])
@ORDER
def test_whole_sources_may_be_deleted_meanwhile(
    place: Place, plan_compaction: Compaction, order: dict[str, Any], gone: set[int], first: str
) -> None:
    table, ids = create(place, 3, 5)
    delete, compact = plan_deletion(place, gone), planned(plan_compaction(place, **order))
    for each in [delete, compact] if first == "delete" else [compact, delete]:
        each.commit()
    expect(place, table, ids - gone)
    assert (list(table.access.latest().add_files()) == []) is (gone == ids)


@ORDER
def test_a_delete_follows_its_rows_through_several_compactions(place: Place, plan_compaction: Compaction, order: dict[str, Any]) -> None:
    table, ids = create(place, 4, 5)
    late = plan_deletion(place, {0, 9, 19})
    planned(plan_compaction(place, **order)).commit()
    plan_deletion(place, {1, 2, 18}).commit()
    planned(plan_compaction(place, "major", **order)).commit()
    plan_append(place, [100, 101]).commit()
    planned(plan_compaction(place, "major")).commit()
    late.commit()
    expect(place, table, (ids | {100, 101}) - {0, 1, 2, 9, 18, 19})


@ORDER
def test_the_same_row_deleted_before_the_compaction_is_a_conflict(place: Place, plan_compaction: Compaction, order: dict[str, Any]) -> None:
    table, ids = create(place, 2, 5)
    late, early = plan_deletion(place, {3, 4}), plan_deletion(place, {4, 5})
    early.commit()
    planned(plan_compaction(place, "major", **order)).commit()
    with pytest.raises(ConcurrentModification):
        late.commit()
    expect(place, table, ids - {4, 5})


@ORDER
def test_a_source_split_over_files_is_followed_into_each(place: Place, plan_compaction: Compaction, order: dict[str, Any]) -> None:
    table, ids = create(place, 1, 3000)
    plan_deletion(place, {number for number in ids if number % 7 == 0}).commit()
    late = plan_deletion(place, {number for number in ids if number % 11 == 1})
    compact = planned(plan_compaction(place, "major", target_file_size=1000, **order))
    assert sum(isinstance(action, AddFile) for action in compact.change.actions) > 3
    compact.commit()
    late.commit()
    expect(place, table, {number for number in ids if number % 7 and number % 11 != 1})


@BOTH
def test_an_append_never_meets_a_compaction(place: Place, plan_compaction: Compaction, vectors: bool) -> None:
    table, ids = create(place, 2, 5, vectors=vectors)
    early, late, compact = plan_append(place, [100]), plan_append(place, [101]), planned(plan_compaction(place))
    for each in (early, compact, late):
        each.commit()
    expect(place, table, ids | {100, 101})


@BOTH
@ORDER
def test_two_compactions_of_the_same_files_both_stand_with_vectors(
    place: Place, plan_compaction: Compaction, order: dict[str, Any], vectors: bool
) -> None:
    table, ids = create(place, 4, 5, vectors=vectors)
    one, other = planned(plan_compaction(place, **order)), planned(plan_compaction(place, "major", **order))
    one.commit()
    if vectors:
        other.commit()
    else:
        with pytest.raises((sluice.errors.ConcurrentDeleteReadException, sluice.errors.ConcurrentDeleteDeleteException)):
            other.commit()
    expect(place, table, ids)


@pytest.mark.parametrize("first", ["delete", "compaction"])
def test_without_vectors_nobody_can_say_where_rows_went(place: Place, plan_compaction: Compaction, first: str) -> None:
    table, ids = create(place, 3, 5, vectors=False)
    gone = {5, 6, 7, 8, 9}
    delete, compact = plan_deletion(place, gone), planned(plan_compaction(place))
    earlier, later = (delete, compact) if first == "delete" else (compact, delete)
    earlier.commit()
    with pytest.raises((sluice.errors.ConcurrentDeleteReadException, sluice.errors.ConcurrentDeleteDeleteException)):
        later.commit()
    expect(place, table, ids - gone if first == "delete" else ids)


@BOTH
def test_different_partitions_do_not_meet(place: Place, plan_compaction: Compaction, vectors: bool) -> None:
    table, ids = create(place, 3, 6, vectors=vectors, partition_by=["origin"])
    odd = {number for number in ids if number % 2}
    delete, order = plan_deletion(place, odd), planned(plan_compaction(place, where="origin = 'P0'", z_order_by="delay"))
    delete.commit()
    order.commit()
    expect(place, table, ids - odd)


@pytest.mark.parametrize(
    ("arguments", "options", "kind"),
    [(("minor",), {}, Kind.MINOR), (("major",), {}, Kind.MAJOR), ((), {}, Kind.MINOR), ((), {"z_order_by": "delay"}, Kind.MINOR)],
)
@BOTH
def test_what_a_compaction_says_it_read(
    place: Place, plan_compaction: Compaction, arguments: tuple[str, ...], options: dict[str, str], kind: Kind, vectors: bool
) -> None:
    """Where deletes leave files in place it depends on no file: vectors say what happened to the rows."""
    table, _ = create(place, 3, 5, vectors=vectors)
    change = planned(plan_compaction(place, *arguments, **options)).change
    sources = sorted(add.path for add in table.access.latest().add_files())
    assert change.kind is kind
    assert change.reads is not None
    assert change.reads.predicates == ()
    assert sorted(change.reads.files or ()) == ([] if vectors else sources)


# -- what a refused or hopeless compaction leaves ------------------------------------------------------------------------


def data_files(place: Place) -> set[str]:
    return {str(path) for path in Path(place.location).rglob("*.parquet") if "_delta_log" not in path.parts}


@contextmanager
def meanwhile(monkeypatch: pytest.MonkeyPatch, do: Callable[[], object]) -> Iterator[None]:
    """Something happens when the compaction has staged its files and is about to commit."""

    submit_together = submission.submit_together

    def later(changes: Any, **options: Any) -> Any:
        patched.undo()
        do()
        return submit_together(changes, **options)

    with monkeypatch.context() as patched:
        patched.setattr(submission, "submit_together", later)
        yield


def test_a_refused_compaction_takes_its_files_away(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    table, _ = create(place, 3, 5, vectors=False)
    delete, before = plan_deletion(place, {5, 6, 7, 8, 9}), data_files(place)
    with meanwhile(monkeypatch, delete.commit), pytest.raises(ConcurrentModification):
        table.compact()
    assert data_files(place) == before
    assert table.compact() is not None


def test_a_compaction_that_cannot_be_committed_any_more_stops_early(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    table, ids = create(place, 3, 6, vectors=False, partition_by=["origin"])
    monkeypatch.setattr(compaction, "_LOOK_EVERY_S", 0.0)
    # A first look may take long: without this it would put off the next one until after the second bin.
    monkeypatch.setattr(compaction, "_PART_OF_TIME", 0)
    monkeypatch.setattr(compaction, "_WRITERS", 1)
    odd = {number for number in ids if number % 2}
    delete, before = plan_deletion(place, odd), data_files(place)
    real, written = Rewriter.rewrite, []

    def rewrite(self: Rewriter, number: int, one: Any, sources: Any) -> Any:
        written.append(number)
        done = real(self, number, one, sources)
        delete.commit()
        return done

    monkeypatch.setattr(Rewriter, "rewrite", rewrite)
    with pytest.raises(ConcurrentModification):
        table.compact()
    assert written == [0]
    assert data_files(place) == before


# -- at random -----------------------------------------------------------------------------------------------------------


@dataclass
class Model:
    """What the table must hold: its ids; and when each was deleted, by version."""

    live: set[int]
    born: dict[int, int] = field(default_factory=dict)
    died: dict[int, int] = field(default_factory=dict)
    refused: int = 0
    committed: Counter[str] = field(default_factory=Counter)


def run_random(place: Place, plan_compaction: Compaction, chance: random.Random, rounds: int) -> Model:
    """Transactions planned on whatever was there, kept for a while, and committed in any order."""
    table, ids = create(place, 4, 8)
    model = Model(set(ids), born=dict.fromkeys(ids, table.access.latest().version))
    waiting: list[tuple[str, set[int], Planned]] = []
    following = max(ids) + 1
    for _ in range(rounds):
        for _ in range(chance.randrange(1, 4)):
            what = chance.choices(["delete", "append", "minor", "major", "z"], [6, 3, 2, 2, 2])[0]
            picked: set[int] = set()
            if what == "delete":
                picked = set(chance.sample(sorted(model.live), min(len(model.live), chance.choice([1, 2, 5]))))
                found = plan_deletion(place, picked) if picked else None
            elif what == "append":
                picked = set(range(following, following + chance.randrange(1, 9)))
                following += len(picked)
                found = plan_append(place, sorted(picked))
            elif what == "z":
                found = plan_compaction(place, z_order_by=["month", "delay"], target_file_size=chance.choice([1500, "1mb"]))
            else:
                found = plan_compaction(place, what, target_file_size=chance.choice([1500, "1mb"]))
            if found is not None:
                waiting.append((what, picked, found))
        chance.shuffle(waiting)
        while len(waiting) > chance.randrange(4):
            settle(model, *waiting.pop())
            assert ids_in(place, table) == Counter(model.live)
    for each in waiting:
        settle(model, *each)
    expect(place, table, model.live)
    return model


def settle(model: Model, what: str, picked: set[int], transaction: Planned) -> None:
    """Commit one, and hold the outcome against the model."""
    assert transaction.change.snapshot is not None
    made_on = transaction.change.snapshot.version
    overlaps = what == "delete" and any(model.died.get(number, -1) > made_on for number in picked)
    try:
        commit = transaction.commit()
    except ConcurrentModification:
        assert overlaps, f"{what} made on version {made_on} was refused without a reason"
        model.refused += 1
        return
    assert not overlaps, "one row was deleted twice"
    model.committed[what] += 1
    if what == "delete":
        model.live -= picked
        model.died |= dict.fromkeys(picked, commit.version)
    elif what == "append":
        model.live |= picked


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.many
def test_random_histories_keep_every_row_once(place: Place, plan_compaction: Compaction, seed: int) -> None:
    model = run_random(place, plan_compaction, random.Random(seed), 12)
    assert {"delete", "append"} < model.committed.keys()
    assert model.committed["minor"] + model.committed["major"] + model.committed["z"] > 0


@pytest.mark.costly
@pytest.mark.slow
def test_random_histories_meet_all_there_is_to_meet(tmp_path: Path, plan_compaction: Compaction) -> None:
    """That the test above tests something: over a few seeds there are commits of all sorts, and refusals."""
    total: Counter[str] = Counter()
    refused = 0
    for seed in (100, 101, 103):
        place = Place(str(tmp_path / str(seed)), f"memory://{uuid.uuid4().hex}")
        model = run_random(place, plan_compaction, random.Random(seed), 10)
        total += model.committed
        refused += model.refused
    assert set(total) == {"delete", "append", "minor", "major", "z"}
    assert refused > 0


def begun(place: Place, what: str, picked: set[int], rows: dict[int, tuple[str, int]]) -> sluice.Transaction:
    """An open transaction that changes the rows of these ids."""
    transaction = place.open().begin()
    condition = f"delay IN ({', '.join(map(str, sorted(picked)))})"
    match what:
        case "delete":
            transaction.delete(condition)
        case "update":
            transaction.update({"month": "month + 1"}, condition)
        case "upsert":
            transaction.upsert(flights(*((rows[number][0], rows[number][1] + 100, number) for number in picked)), on="delay")
        case "overwrite":
            transaction.overwrite(flights(*(("P9", 7, number) for number in picked)), where=condition)
    return transaction


def changed(what: str, row: tuple[str, int]) -> tuple[str, int] | None:
    """What such a transaction makes of a row."""
    origin, month = row
    outcomes = {"update": (origin, month + 1), "upsert": (origin, month + 100), "overwrite": ("P9", 7)}
    return outcomes.get(what)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.many
def test_changes_of_all_sorts_follow_rows_through_compactions(place: Place, plan_compaction: Compaction, seed: int) -> None:
    """Two of them conflict when they change the same row, and never else; a compaction is never in anybody's way."""
    chance = random.Random(seed)
    table, ids = create(place, 4, 8, partition_by=["origin"] if seed % 2 else [])
    rows = {number: (f"P{number % 2}", 1) for number in ids}
    touched: dict[int, int] = {}
    sorts = ["delete", "update", "upsert", "overwrite", "minor", "major", "z"]
    waiting: list[tuple[str, set[int], Planned | sluice.Transaction, dict[int, tuple[str, int]]]] = []
    for _ in range(14):
        for what in chance.choices(sorts, [3, 3, 3, 1, 1, 1, 2], k=chance.randrange(1, 4)):
            picked = set(chance.sample(sorted(rows), min(len(rows), chance.choice([1, 2, 4]))))
            if what in ("minor", "major", "z"):
                order = {"z_order_by": ["month", "delay"]} if what == "z" else {}
                mode = "minor" if what == "z" else what
                compact = plan_compaction(place, mode, target_file_size=chance.choice([1500, "1mb"]), **order)
                waiting += [(what, set(), compact, {})] if compact is not None else []
            elif picked:
                waiting.append((what, picked, begun(place, what, picked, rows), dict(rows)))
        chance.shuffle(waiting)
        while len(waiting) > chance.randrange(4):
            what, picked, transaction, seen = waiting.pop()
            made_on = transaction.read_version if isinstance(transaction, sluice.Transaction) else -1
            try:
                commit = transaction.commit()
            except ConcurrentModification:
                assert any(touched.get(number, -1) > made_on for number in picked), f"{what} was refused without a reason"
                continue
            assert commit is not None
            assert all(touched.get(number, -1) <= made_on for number in picked), "one row was changed twice"
            for number in picked:
                touched[number] = commit.version
                after = changed(what, seen[number])
                if after is None:
                    del rows[number]
                else:
                    rows[number] = after
            assert rows_of(table.snapshot().to_arrow()) == sorted((*row, number) for number, row in rows.items())


@pytest.mark.costly
@pytest.mark.slow
@pytest.mark.parametrize("stored", [False, True], ids=["inline vectors", "stored vectors"])
@pytest.mark.many
def test_writers_of_all_sorts_at_once(place: Place, monkeypatch: pytest.MonkeyPatch, stored: bool) -> None:
    """Real concurrency: deleters of rows of their own, appenders, and two compactors, each with its own client."""
    if stored:
        monkeypatch.setattr("sluice.storage.data.vectors.INLINE_BYTES_MAX", 0)
    table, ids = create(place, 6, 40)
    doomed = [{number for number in ids if number % 5 == share} for share in range(3)]
    errors: list[BaseException] = []
    done = threading.Event()

    def deleting(mine: set[int]) -> None:
        left = sorted(mine)
        while left:
            now, left = set(left[:6]), left[6:]
            plan_deletion(place, now).commit()

    def appending(base: int) -> None:
        for number in range(base, base + 20, 2):
            plan_append(place, [number, number + 1]).commit()

    def compacting(mode: str) -> None:
        mine, order = place.open(), ["month", "delay"] if mode == "z-order" else None
        while not done.is_set():
            mine.compact("minor" if order else mode, target_file_size=4000, z_order_by=order)

    def guarded(work: Callable[[Any], None], argument: Any) -> threading.Thread:
        def run() -> None:
            try:
                work(argument)
            except BaseException as error:  # noqa: BLE001 - it is told by the test
                errors.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        return thread

    writers = [guarded(deleting, mine) for mine in doomed] + [guarded(appending, base) for base in (1000, 2000)]
    compactors = [guarded(compacting, mode) for mode in ("minor", "major", "z-order")]
    for thread in writers:
        thread.join(120)
    done.set()
    for thread in compactors:
        thread.join(120)
    assert errors == []
    expect(place, table, (ids - set().union(*doomed)) | set(range(1000, 1020)) | set(range(2000, 2020)))
    assert any(entry.operation == "OPTIMIZE" for entry in table.history(None))
