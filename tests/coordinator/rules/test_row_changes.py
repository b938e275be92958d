"""Row changes that meet: random transactions on one table, each made on an old version, against a model that knows every row.

Every row has an identity. A deletion names the rows that it deletes, a compaction moves rows; what the table holds after
each commit must be what the model says, whatever was adapted on the way.

MaxCompute's overwrite: the later one replaces all that is there when its turn comes, at the level of metadata.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import orjson
import pyarrow as pa
import pytest

from sluice.coordinator.nodes.records import Head
from sluice.coordinator.rules import rebase
from sluice.coordinator.rules.conflicts import Conflict
from sluice.coordinator.rules.intent import DeclaredReads, IsolationLevel, Kind
from sluice.coordinator.rules.rebase import Candidate, check_against_all
from sluice.coordinator.rules.winner import Footprint, Member, Winner, winner_of
from sluice.storage.actions import Action, AddFile, DeletionVector, RemoveFile, encode_all
from sluice.storage.actions.file_removals import Moved, Moves, Shuffled, moved_rows, with_moves
from sluice.storage.actions.records import wide
from sluice.storage.data.row_moves import Sorting, all_moved, followed
from sluice.storage.data.vectors import Rows, VectorFile, plan_vector
from sluice.storage.errors import Corrupt, CorruptLogFile, MissingObject
from tests.coordinator.world import append_intent, no_vectors

WS = IsolationLevel.WRITE_SERIALIZABLE


@dataclass
class Table:
    """Versions of a table, its files with the identities of their rows, and the vectors that were stored."""

    versions: list[Sequence[Action]] = field(default_factory=list)
    contents: dict[str, tuple[int, ...]] = field(default_factory=dict)
    vectors: dict[str, Rows] = field(default_factory=dict)
    live: list[dict[str, AddFile]] = field(default_factory=list)
    rows: set[int] = field(default_factory=set)
    serial: int = 0

    def name(self, what: str) -> str:
        self.serial += 1
        return f"{what}-{self.serial}.parquet"

    def lookup(self, vector: DeletionVector) -> Rows:
        return self.vectors[vector.unique_id]

    def dead(self, file: AddFile) -> Rows:
        return Rows() if file.deletion_vector is None else self.lookup(file.deletion_vector)

    def add(self, ids: Sequence[int], *, data_change: bool = True, path: str = "") -> AddFile:
        path = path or self.name("f")
        self.contents[path] = tuple(ids)
        return AddFile(path, {}, 1, 1, data_change, stats=orjson.dumps({"numRecords": len(ids)}).decode())

    def with_vector(self, file: AddFile, rows: Rows) -> AddFile:
        vector, _ = plan_vector(rows, owner="t")
        self.vectors[vector.unique_id] = rows
        return replace(file, deletion_vector=vector, stats=wide(file.stats), data_change=True)

    def holds(self, version: int) -> set[int]:
        """The identities of the rows of a version; each must be there once."""
        found: list[int] = []
        for file in self.live[version].values():
            dead = self.dead(file)
            found += [row for n, row in enumerate(self.contents[file.path]) if n not in dead]
        assert len(found) == len(set(found)), "a row is there twice"
        return set(found)

    def commit(self, actions: Sequence[Action]) -> None:
        """Apply actions as a reader of the log would."""
        files = dict(self.live[-1]) if self.live else {}
        keys = [(type(a), a.path) for a in actions if isinstance(a, (AddFile, RemoveFile))]
        assert len(keys) == len(set(keys)), "two actions of one kind for one file"
        for action in actions:
            if isinstance(action, RemoveFile):
                gone = files.pop(action.path)
                assert _id(gone) == _id(action), "removes a file with another vector than it has"
        for action in actions:
            if isinstance(action, AddFile):
                assert action.path not in files
                files[action.path] = action
        self.versions.append(actions)
        self.live.append(files)


def _id(file: AddFile | RemoveFile) -> str:
    return "" if file.deletion_vector is None else file.deletion_vector.unique_id


def _remove(file: AddFile, *, data_change: bool = True) -> RemoveFile:
    return RemoveFile(file.path, data_change, deletion_timestamp=5, deletion_vector=file.deletion_vector, stats=file.stats)


@dataclass
class Change:
    actions: list[Action]
    deleted: set[int]
    kind: Kind
    operation: str


def deletion(table: Table, version: int, doomed: set[int]) -> Change:
    """Delete rows by vectors; files of which nothing is left are removed."""
    actions: list[Action] = []
    for file in table.live[version].values():
        dead, ids = table.dead(file), table.contents[file.path]
        hit = Rows([n for n, row in enumerate(ids) if row in doomed and n not in dead])
        if hit:
            actions.append(_remove(file))
            if len(dead | hit) < len(ids):
                actions.append(table.with_vector(file, dead | hit))
    return Change(actions, doomed, Kind.CHANGE, "DELETE")


def compaction(table: Table, version: int, paths: Sequence[str], parts: int, *, ordered: bool = True) -> Change:
    """Write the live rows of some files into `parts` new ones, in order, and say where they went (unless turned round)."""
    sources = [table.live[version][path] for path in paths]
    runs = [[row for n, row in enumerate(table.contents[f.path]) if n not in table.dead(f)] for f in sources]
    everything = [row for run in runs for row in run]
    if not everything:
        return Change([], set(), Kind.MINOR, "OPTIMIZE")
    size = -(-len(everything) // parts)
    outputs = [table.add(everything[at : at + size], data_change=False) for at in range(0, len(everything), size)]
    if not ordered:
        for output in outputs:
            table.contents[output.path] = table.contents[output.path][::-1]
    actions: list[Action] = []
    start = 0
    for source, run in zip(sources, runs, strict=True):
        moves: list[Moved] = []
        first = 0
        while first < len(run):
            part, offset = divmod(start + first, size)
            count = min(len(run) - first, size - offset)
            moves.append(Moved(outputs[part].path, first, count, offset))
            first += count
        remove = _remove(source, data_change=False)
        actions.append(with_moves(remove, moves) if ordered else remove)
        start += len(run)
    return Change([*actions, *outputs], set(), Kind.MINOR, "OPTIMIZE")


def shuffle(table: Table, version: int, paths: Sequence[str], dice: random.Random) -> Change:
    """Write the live rows of some files into new ones in a random order of pieces, and store where they went, as clustering does."""
    sources = [table.live[version][path] for path in paths]
    runs = [[row for n, row in enumerate(table.contents[f.path]) if n not in table.dead(f)] for f in sources]
    everything = [row for run in runs for row in run]
    piece_rows, pieces_each = dice.randint(1, 4), dice.randint(1, 3)
    places = dice.sample(range(len(everything)), len(everything))
    pieces = [place // piece_rows for place in places]
    in_order = [row for _, _, row in sorted(zip(pieces, range(len(pieces)), everything, strict=True))]
    size, prefix, sorting = piece_rows * pieces_each, table.name("s"), Sorting(piece_rows)
    outputs = [
        table.add(in_order[at : at + size], data_change=False, path=f"{prefix}{number:03d}.p")
        for number, at in enumerate(range(0, len(in_order), size))
    ]
    actions: list[Action] = []
    file, start = VectorFile(table.name("moves")), 0
    for source, run in zip(sources, runs, strict=True):
        moves: Moves = ()
        if run:
            sets = sorting.of(pa.array(pieces[start : start + len(run)], pa.uint64()))
            order, new = (file.framed(numbers)[0] for numbers in sets)
            table.vectors.update({order.unique_id: sets[0], new.unique_id: sets[1]})
            moves = Shuffled(order, new, prefix, ".p", size)
        actions.append(with_moves(_remove(source, data_change=False), moves))
        start += len(run)
    return Change([*actions, *outputs], set(), Kind.MINOR, "OPTIMIZE")


def candidate_of(change: Change, *, row_level: bool = True) -> Candidate:
    footprint = Footprint(
        predicates=() if change.kind is Kind.MINOR else ("",),
        removes=tuple(a.path for a in change.actions if isinstance(a, RemoveFile)),
        data_change=change.kind is not Kind.MINOR,
        kind=change.kind.value,
        row_level=row_level,
    )
    return Candidate("t", change.operation, footprint, WS, encode_all(change.actions), now_ms=9)


def winners_of(table: Table, after: int) -> list[Winner]:
    return [winner_of(v, table.versions[v]) for v in range(after + 1, len(table.versions))]


def settle(table: Table, change: Change, version: int) -> Conflict | None:
    """Commit a change that was made on `version`, adapted to all that came since; the finding when it is refused."""
    met = check_against_all(candidate_of(change), winners_of(table, version), table.lookup)
    if isinstance(met, Conflict):
        return met
    table.vectors.update(met.planned)
    table.commit(tuple(met.each()))
    return None


def a_table(files: int, rows: int) -> Table:
    table = Table()
    table.commit([table.add(range(n * rows, (n + 1) * rows)) for n in range(files)])
    table.rows = table.holds(0)
    return table


@pytest.mark.notices("adapted-effects-are-derived-again")
def test_the_footprint_of_an_adapted_transaction_is_that_of_its_actions() -> None:
    """Another client derives it from the actions alone, and both must write the same version."""
    table = a_table(files=2, rows=4)
    made = compaction(table, 0, sorted(table.live[0]), 1)
    table.commit(deletion(table, 0, set(range(8))).actions)  # everything, so that nothing of the compaction is left
    reads = DeclaredReads(nothing=True, kind=Kind.MINOR.value, row_level=True)
    intent = replace(append_intent(Head()), reads=reads, actions=encode_all(made.actions).decode())
    met = check_against_all(Candidate.of(Member(intent, intent.actions.encode())), winners_of(table, 0), table.lookup)
    assert not isinstance(met, Conflict)
    adapted = Member(intent, met.lines(), met.rebased, met.footprint)
    assert adapted.rebased
    assert adapted.footprint == Member(intent, adapted.actions).footprint


def test_a_change_of_very_many_files_is_looked_through_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its footprint lists no files. Adapted to the first winner it lists all of them, so that hundreds of winners cost little."""
    monkeypatch.setattr("sluice.coordinator.rules.winner.LISTED_MAX", 1)
    table, looked = a_table(files=4, rows=4), list[int]()
    mine = candidate_of(deletion(table, 0, {0, 4, 8, 12}))
    for version, row in enumerate((1, 5, 9)):
        table.commit(deletion(table, version, {row}).actions)
    exact = rebase._exact

    def counted(candidate: Candidate, winner: Winner) -> Candidate:
        looked.append(winner.version)
        return exact(candidate, winner)

    monkeypatch.setattr(rebase, "_exact", counted)
    met = check_against_all(replace(mine, footprint=replace(mine.footprint, removes=None)), winners_of(table, 0), table.lookup)
    assert not isinstance(met, Conflict)
    assert (looked, len(met.footprint.removes or ()), met.noted) == ([1], 4, 3)


@pytest.mark.notices(
    "the-same-row-is-a-conflict",
    "vectors-are-united",
    "deleted-rows-leave-a-compaction",
    "rows-are-followed-by-rank",
    "shuffled-rows-are-followed",
)
@pytest.mark.parametrize("seed", range(150))
@pytest.mark.many
def test_random_transactions_leave_exactly_the_rows_they_should(seed: int) -> None:
    dice = random.Random(seed)
    table = a_table(files=dice.randint(1, 5), rows=dice.randint(1, 12))
    for _ in range(25):
        version = dice.randint(max(0, len(table.versions) - 5), len(table.versions) - 1)
        held = table.holds(version)
        if dice.random() < 0.6 and held:
            doomed = set(dice.sample(sorted(held), dice.randint(1, min(4, len(held)))))
            change = deletion(table, version, doomed)
            finding = settle(table, change, version)
            gone_before = doomed - table.rows
            assert (finding is None) == (not gone_before), "refused if, and only if, somebody deleted one of the rows"
            if finding is None:
                table.rows -= doomed
            else:
                assert finding.rule.name == "removed-what-i-remove"
        elif table.live[version]:
            paths = dice.sample(sorted(table.live[version]), dice.randint(1, len(table.live[version])))
            ordered = dice.random() < 0.5
            change = compaction(table, version, paths, dice.randint(1, 3)) if ordered else shuffle(table, version, paths, dice)
            assert settle(table, change, version) is None, "who moves rows goes together with everything"
        assert table.holds(-1) == table.rows


def test_the_finding_counts_the_rows_that_both_changed() -> None:
    table = a_table(files=1, rows=10)
    assert settle(table, deletion(table, 0, {1, 2, 3}), 0) is None
    finding = settle(table, deletion(table, 0, {2, 3, 4}), 0)
    assert finding is not None
    assert "2 rows of f-1.parquet" in finding.what


def test_a_compaction_that_does_not_say_where_rows_went_stops_a_deletion_and_is_stopped_by_one() -> None:
    table = a_table(files=2, rows=6)
    assert settle(table, compaction(table, 0, sorted(table.live[0]), 1, ordered=False), 0) is None
    finding = settle(table, deletion(table, 0, {3}), 0)
    assert finding is not None
    assert finding.rule.error == "ConcurrentDeleteDeleteException"

    table = a_table(files=2, rows=6)
    assert settle(table, deletion(table, 0, {3}), 0) is None
    finding = settle(table, compaction(table, 0, sorted(table.live[0]), 1, ordered=False), 0)
    assert finding is not None
    assert finding.rule.error == "ConcurrentDeleteDeleteException"


@pytest.mark.parametrize("seed", range(40))
def test_every_row_of_a_shuffled_file_is_found_where_it_went(seed: int) -> None:
    """Each alone, some of them, and all of them; also of a file that had deleted rows before."""
    dice = random.Random(seed)
    table = a_table(files=3, rows=dice.randint(1, 9))
    doomed = set(dice.sample(sorted(table.rows), dice.randrange(len(table.rows))))
    assert settle(table, deletion(table, 0, doomed), 0) is None
    version = len(table.versions) - 1
    change = shuffle(table, version, sorted(table.live[version]), dice)
    for remove in (action for action in change.actions if isinstance(action, RemoveFile)):
        moves, ids, dead = moved_rows(remove), table.contents[remove.path], table.dead(table.live[version][remove.path])
        assert moves is not None
        live = [n for n in range(len(ids)) if n not in dead]
        for some in [[n] for n in live] + [live, dice.sample(live, len(live) // 2)]:
            places = followed(Rows(some), moves, dead, table.lookup)
            assert {table.contents[path][at] for path, rows in places.items() for at in rows} == {ids[n] for n in some}
        everything = all_moved(moves, table.lookup)
        assert sorted(table.contents[path][at] for path, rows in everything.items() for at in rows) == [ids[n] for n in live]
        if live:
            with pytest.raises(Corrupt, match="did not move"):
                followed(Rows([len(ids)]), moves, dead, table.lookup)


@pytest.mark.parametrize(
    "said", ["{}", "[]", '{"order":{},"places":{},"prefix":"","suffix":"","file_rows":1}', "x", '{"a":1}', "null", "7"]
)
def test_moves_that_make_no_sense_are_named(said: str) -> None:
    with pytest.raises(CorruptLogFile, match=r"the tag sluice\.shuffled of the removed file 'f'"):
        moved_rows(RemoveFile("f", False, tags={"sluice.shuffled": said}))
    vector = DeletionVector("i", "x", 1, 3)
    for other in (replace(vector, cardinality=2), replace(vector, cardinality=0)):
        with pytest.raises(CorruptLogFile, match="places no rows"):
            moved_rows(with_moves(RemoveFile("f", False), Shuffled(vector, other, "", "", 1)))
    with pytest.raises(CorruptLogFile, match="places no rows"):
        moved_rows(with_moves(RemoveFile("f", False), Shuffled(vector, vector, "", "", 0)))


def test_without_deletion_vectors_files_are_compared() -> None:
    table = a_table(files=1, rows=6)
    assert settle(table, deletion(table, 0, {1}), 0) is None
    attempt = candidate_of(deletion(table, 0, {2}), row_level=False)
    met = check_against_all(attempt, winners_of(table, 0), table.lookup)
    assert isinstance(met, Conflict)
    assert met.rule.name == "removed-what-i-remove"


def test_a_vector_that_cannot_be_read_is_a_conflict_and_stops_nobody_else() -> None:
    table = a_table(files=1, rows=6)
    change = deletion(table, 0, {1})
    assert settle(table, deletion(table, 0, {2}), 0) is None
    lost = next(a.deletion_vector for a in change.actions if isinstance(a, AddFile))
    assert lost is not None

    def lookup(vector: DeletionVector) -> Rows:
        if vector == lost:
            raise MissingObject("gone")
        return table.lookup(vector)

    met = check_against_all(candidate_of(change), winners_of(table, 0), lookup)
    assert isinstance(met, Conflict)
    assert met.rule.name == "removed-what-i-remove"


def test_large_vectors_are_stored_before_they_are_needed() -> None:
    table = a_table(files=1, rows=40_000)
    dice = random.Random(7)
    some = set(dice.sample(range(0, 40_000, 2), 5_000))
    others = set(dice.sample(range(1, 40_000, 2), 5_000))
    assert settle(table, deletion(table, 0, some), 0) is None
    met = check_against_all(candidate_of(deletion(table, 0, others)), winners_of(table, 0), table.lookup)
    assert isinstance(met, Candidate)
    (add,) = [a for a in met.each() if isinstance(a, AddFile)]
    assert add.deletion_vector is not None
    assert add.deletion_vector.storage_type == "u"
    assert add.deletion_vector.cardinality == 10_000
    assert len(met.objects) == 1


POLICIES = ("maxcompute-table", "maxcompute-transactional", "maxcompute-delta")


def added(path: str, p: str = "1") -> AddFile:
    return AddFile(path, {"p": p}, 10, 1, True, stats='{"numRecords":3}')


def removed(path: str, p: str = "1") -> RemoveFile:
    return RemoveFile(path, True, deletion_timestamp=1, partition_values={"p": p}, extended_file_metadata=True, size=10)


def overwrite(actions: Sequence[Action], scope: str, policy: str) -> Candidate:
    footprint = Footprint(
        predicates=(scope,),
        partition_types={"p": "integer"},
        removes=tuple(a.path for a in actions if isinstance(a, RemoveFile)),
        kind=Kind.OVERWRITE.value,
        policy=policy,
        partitions=None if not scope else ('{"p":"1"}',),
        scope=scope,
    )
    return Candidate("me", "WRITE", footprint, IsolationLevel.WRITE_SERIALIZABLE, encode_all(actions), now_ms=9)


def after(attempt: Candidate, *winners: Winner) -> tuple[set[str], set[str]]:
    """What the overwrite removes and adds after it is committed."""
    met = check_against_all(attempt, winners, no_vectors)
    assert isinstance(met, Candidate)
    removes = {a.path for a in met.each() if isinstance(a, RemoveFile)}
    return removes, {a.path for a in met.each() if isinstance(a, AddFile)}


@pytest.mark.notices("replacing-replaces")
@pytest.mark.parametrize("policy", POLICIES)
def test_what_was_appended_meanwhile_goes_too(policy: str) -> None:
    append = winner_of(8, [added("late")])
    assert after(overwrite([removed("old"), added("new")], "", policy), append) == ({"old", "late"}, {"new"})


@pytest.mark.parametrize("policy", POLICIES)
def test_what_another_overwrite_left_goes_and_what_it_removed_is_not_removed_again(policy: str) -> None:
    other = winner_of(8, [removed("old"), added("theirs")])
    assert after(overwrite([removed("old"), added("new")], "", policy), other) == ({"theirs"}, {"new"})


@pytest.mark.parametrize("policy", POLICIES)
def test_several_in_between(policy: str) -> None:
    winners = [winner_of(8, [added("a")]), winner_of(9, [removed("a"), added("b")]), winner_of(10, [added("c")])]
    assert after(overwrite([removed("old"), added("new")], "", policy), *winners) == ({"old", "b", "c"}, {"new"})


def test_only_inside_the_scope() -> None:
    winners = [winner_of(8, [added("here", "1"), added("there", "2")])]
    assert after(overwrite([removed("old"), added("new")], "p = 1", "maxcompute-table"), *winners) == ({"old", "here"}, {"new"})


def test_a_file_that_got_a_vector_is_removed_with_it() -> None:
    vector, _ = plan_vector(Rows([1]), owner="t")
    winner = winner_of(8, [removed("old"), replace(added("old"), deletion_vector=vector)])
    met = check_against_all(overwrite([removed("old"), added("new")], "", "maxcompute-delta"), [winner], no_vectors)
    assert isinstance(met, Candidate)
    (remove,) = [a for a in met.each() if isinstance(a, RemoveFile)]
    assert (remove.path, remove.deletion_vector) == ("old", vector)


def test_under_delta_rules_a_later_overwrite_is_compared_with_what_it_read() -> None:
    attempt = overwrite([removed("old"), added("new")], "", "delta")
    met = check_against_all(attempt, [winner_of(8, [removed("old"), added("theirs")])], no_vectors)
    assert isinstance(met, Conflict)


def test_what_was_replaced_is_told() -> None:
    met = check_against_all(overwrite([removed("old"), added("new")], "", "maxcompute-table"), [winner_of(8, [added("late")])], no_vectors)
    assert isinstance(met, Candidate)
    assert met.rebased == ("files of version 8 replaced (1 files)",)


@pytest.mark.notices("coarse-footprints-are-made-exact")
@pytest.mark.parametrize(("theirs", "stands"), [("600", True), ("7", False)])
def test_an_insert_into_more_partitions_than_a_footprint_lists_is_compared_with_those_it_writes(theirs: str, stands: bool) -> None:
    actions = [added(f"f{n}", str(n)) for n in range(600)]
    footprint = Footprint(
        partition_types={"p": "integer"}, blind_append=True, kind=Kind.APPEND.value, policy="maxcompute-delta", partitions=None
    )
    attempt = Candidate("me", "WRITE", footprint, IsolationLevel.WRITE_SERIALIZABLE, encode_all(actions), now_ms=9)
    winner = replace(winner_of(8, [added("late", theirs)]), kind=Kind.APPEND)
    assert isinstance(check_against_all(attempt, [winner], no_vectors), Candidate) == stands
