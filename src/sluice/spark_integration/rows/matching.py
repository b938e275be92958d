"""The join of a MERGE, the clause of each row, and the instruction for the tasks that follows from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from ...coordinator.facade.values import Reads
from ...storage.data.vectors import Rows, decode_payload
from ...storage.dataclass import dataclass
from ...storage.errors import InvalidRequest
from ...storage.pruning.predicate import Predicate
from ...storage.schema.computed import generated_of
from ...tables.write.merging import MATCHED, NOT_MATCHED, NOT_MATCHED_BY_SOURCE, RowCounts, ambiguous, may_repeat
from ...tables.write.row_operations import Target
from ..jvm import called, column_named, named
from ..schemas import to_spark
from .assignments import Assigned, new_values
from .change_job import Located, Work, by_path
from .conditions import as_column
from .request import Clause
from .source import Held, Kept, Keys, beyond, held_by, near_keys
from .writer import ADD, DELETE, NOTHING, RENEW, REPLACE, Done, Hidden

_SHOWN: Final = 3
"""The most rows with several matches that a refusal shows."""


@dataclass(frozen=True, slots=True)
class Analysed:
    """A MERGE as Spark's analyser resolved it: its condition `on`, and the conditions and values of its clauses, each against the rows that
    it is for. They hold in every frame of the two sides, whatever their columns are called there.

    `keys` are the columns of the table that equal expressions of the source. Rows to match
    satisfy `matching`, rows without a match that are changed `unmatched` (None: any). `used` are the table's columns that are needed.
    """

    on: Column
    clauses: Sequence[Clause]
    assigned: Sequence[Assigned]
    keys: Keys
    matching: Predicate | None
    unmatched: Predicate | None
    used: frozenset[str]


def carry_out(work: Work, kept: Kept, target: Target, merge: Analysed) -> tuple[RowCounts, Reads]:
    """Have tasks change the rows, and make that part of the draft; the source was `kept` for the merge's keys.

    Returns the counts, and what was read of the table.
    """
    done = _Merge(work, kept, merge)
    return (done.without_target(), target.reads) if not target.files.num_rows else done.over(target)


class _Merge:
    def __init__(self, work: Work, kept: Kept, merge: Analysed) -> None:
        self._work = work
        self._kept = kept
        self._on, self._clauses, self._assigned, self._keys, self._used = merge.on, merge.clauses, merge.assigned, merge.keys, merge.used
        self._keeps_target = any(clause.matched == NOT_MATCHED_BY_SOURCE for clause in merge.clauses)
        self._inserts = any(clause.inserts for clause in merge.clauses)
        frame = kept.frame
        self._clause = work.name("clause", frame)
        what, file, row, source, before = (work.name(word, frame) for word in ("what", "file", "row", "source", "before"))
        self._hidden = Hidden(what, file, row, source, before if work.records else None)

    def without_target(self) -> RowCounts:
        """Every row of the source matches nothing."""
        if not self._inserts:
            return RowCounts()
        done = self._inserted(self._kept.frame, "")
        self._work.apply(done, {})
        return _counts([done])

    def over(self, target: Target) -> tuple[RowCounts, Reads]:
        """The table's rows are read once."""
        work, names = self._work, (self._hidden.file or "", self._hidden.row or "")
        writes = any(each.writes and not each.inserts for each in self._clauses)
        located = work.located(target, names, lambda: self._used, writes=writes)
        apart = self._kept.small and self._inserts
        # a source in this process is inserted without a job
        held = held_by(target.files, self._kept, work.schema)
        new = beyond(self._kept, self._keys, held) if apart and not self._kept.local else None
        joined, matched = self._joined(located, new, held)
        frame = self._actions(joined, located, matched, reports=apart)
        if new is not None:
            frame = self._with_new(frame, new)
        done = work.done_by_tasks(frame, self._hidden if apart else self._without_source(), shuffles=not self._kept.small)
        try:
            _require_unambiguous(done, self._clauses, lambda: self._pairs(joined, located, matched))
        except InvalidRequest:
            work.give_up(done)
            raise
        parts = [done]
        found = decode_payload(done.matched)
        if apart and len(found) != self._kept.rows:
            parts.append(self._inserted(self._kept.without(found), "i"))
        together = Done.together(parts)
        if together.changed or sum(together.new_rows.values()):
            work.apply(together, located.paths)
        return _counts(parts), replace(target.reads, rows=self._kept_rows(together, located))

    def _kept_rows(self, done: Done, located: Located) -> dict[str, Rows]:
        """Rows that kept a row of the source from being inserted and stay as they are: if others delete one, the merge is another.

        Without deletion vectors the files are remembered instead.
        """
        draft = self._work.draft
        if not self._inserts or not draft.uses_vectors:
            return {}
        return {path: rows for path, rows in by_path(done, NOTHING, located.paths).items() if not draft.is_own(path)}

    def _joined(self, located: Located, new: Column | None, held: Held) -> tuple[DataFrame, Column]:
        """The pairs, and the rows of either side without one as far as clauses need them; and whether a row is a pair.

        Rows of the source for which `new` holds match nothing.
        """
        source, keeps_target = self._kept.frame, self._keeps_target
        source = source if new is None else source.where(~new)
        near = None if keeps_target else near_keys(self._kept, held, self._work.schema)
        rows = located.frame if near is None else located.frame.where(near)
        if self._kept.small:
            joined = rows.join(F.broadcast(self._kept.in_few_tasks(source)), self._on, "left" if keeps_target else "inner")
            return joined, called(self._kept.number, "isNotNull")
        how = {(False, False): "inner", (False, True): "right", (True, False): "left", (True, True): "full"}[keeps_target, self._inserts]
        is_pair = called(called(self._kept.number, "isNotNull"), "and", called(located.file, "isNotNull"))
        return rows.join(source, self._on, how), is_pair

    def _which(self, located: Located | None, matched: Column, kinds: Sequence[str]) -> Column:
        """The number of the clause that applies to a row; null if none does."""
        which: Column | None = None
        for number, clause in enumerate(self._clauses):
            if clause.matched not in kinds:
                continue
            applies = _applies(clause, located, matched, self._kept.number)
            test = applies if clause.condition is None else called(applies, "and", as_column(clause.condition))
            which = F.when(test, number) if which is None else called(which, "when", test, number)
        return F.lit(None).cast("int") if which is None else which

    def _actions(self, joined: DataFrame, located: Located, matched: Column, *, reports: bool) -> DataFrame:
        """What the tasks have to do, and which rows matched if there are rows to insert; `reports`: rows show which rows of the source
        matched, instead of being inserted.
        """
        work, hidden = self._work, self._hidden
        kinds = (MATCHED, NOT_MATCHED_BY_SOURCE) if reports else (MATCHED, NOT_MATCHED, NOT_MATCHED_BY_SOURCE)
        are_pairs = not self._keeps_target and (self._kept.small or not self._inserts)
        which = column_named(work.session, self._clause) if not are_pairs or self._sole(kinds) is None else None
        rows = joined
        if which is not None:
            applies = called(which, "isNotNull")
            rows = joined.select("*", named(self._which(located, matched, kinds), self._clause))
            rows = rows.where(called(applies, "or", matched)) if self._inserts else rows.where(applies)
        replaces = work.replacing(located.file, located.paths)
        codes = {"update": replaces, "update_all": replaces, "delete": F.lit(DELETE), "insert": F.lit(ADD), "insert_all": F.lit(ADD)}
        what = F.lit(NOTHING)
        for number, clause in enumerate(self._clauses):
            if clause.matched in kinds:
                code = codes[clause.action]
                what = code if which is None else called(F.when(called(which, "equalTo", number), code), "otherwise", what)
        columns = [named(what, hidden.what), located.file, located.row]
        if reports:
            columns.append(named(self._kept.number, hidden.source or ""))
        if hidden.before is not None:
            before = F.struct(*located.columns.values())
            changes = None if which is None else called(called(which, "isNotNull"), "and", called(located.file, "isNotNull"))
            columns.append(named(before if changes is None else F.when(changes, before), hidden.before))
        values = self._values(located.columns, which, kinds)
        # rows of the source that match nothing have no id yet
        ids = [named(row_id, name) for name, row_id in located.ids.items()] if values else []
        given, flags = self._given(which, kinds) if values else ({}, [])
        return work.with_generated(rows.select(*columns, *values, *ids, *flags), given, column_named(work.session, hidden.what))

    def _sole(self, kinds: Sequence[str]) -> int | None:
        """The number of the only clause for these kinds of rows, if it applies to all of them."""
        found = [number for number, clause in enumerate(self._clauses) if clause.matched in kinds]
        return found[0] if len(found) == 1 and self._clauses[found[0]].condition is None else None

    def _values(self, old: Mapping[str, Column], which: Column | None, kinds: Sequence[str]) -> list[Column]:
        """The new values of all columns, null where a clause makes no new row; `old` are the values in the table, `which` is the number of
        a row's clause (None: there is one clause, which applies to all).
        """
        work = self._work
        given = {
            number: new_values(work.session, self._assigned[number], work.schema, {} if clause.inserts else old)
            for number, clause in enumerate(self._clauses)
            if clause.matched in kinds and clause.writes
        }
        if not given:
            return []
        # asked once for all columns; rows to insert are of the only clause if there is one
        tests: dict[int, Column] = {}
        if which is not None and not (kinds == (NOT_MATCHED,) and len(given) == 1):
            tests = {number: called(which, "equalTo", number) for number in given}
        values: list[Column] = []
        for field in to_spark(work.schema).fields:
            name = field.name
            cases = [
                (tests.get(number), value)
                for number, new in given.items()
                if (value := new.get(name, None if self._clauses[number].inserts else old[name])) is not None
            ]
            values.append(named(_by_case(cases) if cases else F.lit(None).cast(field.dataType), name))
        return values

    def _given(self, which: Column | None, kinds: Sequence[str]) -> tuple[dict[str, str | bool], list[Column]]:
        """Whether clauses give the values of generated columns, and the columns that tell it where some do and others do not."""
        given: dict[str, str | bool] = {}
        flags: list[Column] = []
        for field in self._work.schema.fields:
            if generated_of(field) is None:
                continue
            writing = [number for number, clause in enumerate(self._clauses) if clause.matched in kinds and clause.writes]
            giving = [number for number in writing if self._assigned[number].gives(field.name)]
            given[field.name] = bool(giving)
            if which is not None and 0 < len(giving) < len(writing):
                flag = self._work.name(f"given_{len(flags)}", self._kept.frame)
                given[field.name] = flag
                flags.append(named(which.isin(giving), flag))
        return given, flags

    def _inserted(self, unmatched: DataFrame, step: str) -> Done:
        """Insert rows of the source: those of a local one in this process, others by tasks."""
        work, kept, hidden = self._work, self._kept, Hidden(self._hidden.what)
        rows = self._insertions(unmatched, hidden)
        return work.done_here(rows, hidden, step) if kept.local else work.done_by_tasks(rows, hidden, step, shuffles=not kept.small)

    def _insertions(self, unmatched: DataFrame, hidden: Hidden) -> DataFrame:
        """What tasks have to do to insert rows of the source; they show their numbers if there is a `hidden` column for it."""
        work, kept = self._work, self._kept
        which = column_named(work.session, self._clause) if self._sole((NOT_MATCHED,)) is None else None
        rows = kept.in_few_tasks(unmatched)
        if which is not None:
            rows = rows.select("*", named(self._which(None, F.lit(False), (NOT_MATCHED,)), self._clause)).where(called(which, "isNotNull"))
        told = [named(F.lit(ADD), hidden.what), *([] if hidden.source is None else [named(kept.number, hidden.source)])]
        values = self._values({}, which, (NOT_MATCHED,))
        given, flags = self._given(which, (NOT_MATCHED,))
        return work.with_generated(rows.select(*told, *values, *flags), given, column_named(work.session, hidden.what))

    def _with_new(self, frame: DataFrame, new: Column) -> DataFrame:
        """What the tasks have to do, and the insertion of the rows of the source which certainly match nothing: it need not wait until
        the target has been read. They show their numbers, too: these rows are done.
        """
        inserted = self._insertions(self._kept.frame.where(new), Hidden(self._hidden.what, source=self._hidden.source))
        return frame.unionByName(inserted, allowMissingColumns=True)

    def _pairs(self, joined: DataFrame, located: Located, matched: Column) -> DataFrame:
        """The table's rows that clauses change for several rows of the source, once each."""
        changes = self._which(located, matched, (MATCHED,)).isNotNull()
        places = [located.file.alias("file"), located.row.alias("row")]
        columns = [value.alias(name) for name, value in located.columns.items() if name in located.read]
        pairs = joined.where(changes).select(F.struct(*places).alias("place"), F.struct(*columns).alias("values"))
        return pairs.groupBy("place").agg(F.count(F.lit(1)).alias("times"), F.first("values").alias("values")).where("times > 1")

    def _without_source(self) -> Hidden:
        hidden = self._hidden
        return Hidden(hidden.what, hidden.file, hidden.row, None, hidden.before)


def _applies(clause: Clause, located: Located | None, matched: Column, number: Column) -> Column:
    """Whether a row is of the kind that a clause is for; `number` is null where there is no row of the source."""
    if clause.matched == MATCHED:
        return matched
    if clause.matched == NOT_MATCHED:
        return F.lit(True) if located is None else located.file.isNull()
    return number.isNull()


def _by_case(cases: Sequence[tuple[Column | None, Column]]) -> Column:
    """The value of the first test that holds; None always holds."""
    value: Column | None = None
    for test, case in cases:
        if test is None:
            return case
        value = F.when(test, case) if value is None else called(value, "when", test, case)
    assert value is not None
    return value


def _counts(parts: Sequence[Done]) -> RowCounts:
    new: dict[int, int] = {}
    deleted = 0
    for part in parts:
        deleted += sum(len(decode_payload(payload)) for (kind, _), payload in part.positions.items() if kind == DELETE)
        for kind, count in part.new_rows.items():
            new[kind] = new.get(kind, 0) + count
    return RowCounts(updated=new.get(REPLACE, 0) + new.get(RENEW, 0), deleted=deleted, inserted=new.get(ADD, 0))


def _require_unambiguous(done: Done, clauses: Sequence[Clause], pairs: Callable[[], DataFrame]) -> None:
    """Raise InvalidRequest, showing some of them, if rows were changed more than once: the tasks counted more changes than rows.

    Which of several rows of the source should win is not defined. A row that the only clause for matches, without a condition, deletes
    may be deleted several times. `pairs` makes a frame of the rows that are changed several times (`times`, `values`), which is read
    only for the message.
    """
    if may_repeat(clauses):
        return
    rows: dict[str, Rows] = {}
    for (what, file), payload in done.positions.items():
        if what == NOTHING:
            continue
        found = decode_payload(payload)
        rows[file] = rows[file] | found if file in rows else found
    changed = sum(map(len, rows.values()))
    if changed == done.changed:
        return
    raise ambiguous(done.changed, changed, [(row["values"].asDict(), row["times"]) for row in pairs().limit(_SHOWN).collect()])
