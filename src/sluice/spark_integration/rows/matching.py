"""The join of a MERGE, the clause of each row, and what the tasks have to do with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from ...coordinator.facade.values import Reads
from ...storage.data.vectors import Rows, decode_payload, positions_of
from ...storage.dataclass import dataclass
from ...storage.errors import InvalidRequest, SchemaMismatch
from ...storage.schema.schema import StructType
from ...tables.write.row_changes import Target
from ...tables.write.row_operations import require_no_keys
from ..jvm import quoted
from ..schemas import to_spark
from .ambiguity import require_unambiguous
from .assignments import Path, new_values, path_of
from .clauses import MATCHED, NOT_MATCHED, NOT_MATCHED_BY_SOURCE, Clause, RowCounts
from .conditions import as_column
from .source import Kept
from .work import Located, Work, by_path
from .writer import ADD, DELETE, NOTHING, RENEW, REPLACE, Done, Hidden

__all__ = ["Resolved", "carry_out", "told"]


@dataclass(frozen=True, slots=True)
class Resolved:
    """The columns of both sides by name, those of the source in lower case."""

    target: Mapping[str, Column]
    source: Mapping[str, Column]

    @staticmethod
    def of(target: DataFrame, source: DataFrame, schema: StructType, hidden: Sequence[str] = ()) -> Resolved:
        """From the frames of both sides; `hidden` columns of the source are left out."""
        mine = {name: target[quoted(name)] for name in schema.names}
        names = [name for name in source.columns if name not in hidden]
        once = [name for name in names if [each.lower() for each in names].count(name.lower()) == 1]
        return Resolved(mine, {name.lower(): source[quoted(name)] for name in once})


def told(clause: Clause, frame: DataFrame, work: Work, sides: Resolved, alias: str | None, *, evolves: bool) -> dict[str, Column]:
    """The values that a clause gives to columns, over the rows of `frame`; {} for a deletion.

    Raises AnalysisException, InvalidRequest and SchemaMismatch for what cannot be assigned.
    """
    if not clause.writes:
        return {}
    schema = work.schema
    if clause.action.endswith("_all"):
        lacking = [name for name in schema.names if name.lower() not in sides.source]
        if lacking and not evolves:
            raise SchemaMismatch(
                f"{clause.name}: the source has no column {', '.join(map(repr, lacking))} (or several); it has "
                f"{', '.join(sides.source)}. Add it, name the columns to write, or evolve the schema",
                columns=lacking,
            )
        assigned: dict[Path, Column | str] = {(name,): sides.source[name.lower()] for name in schema.names if name.lower() in sides.source}
    else:
        assigned = {path_of(work.session, name, schema, alias): value for name, value in clause.assignments.items()}
        if len(assigned) < len(clause.assignments):
            raise InvalidRequest(f"{clause.name} assigns a column twice: {', '.join(clause.assignments)}")
    require_no_keys(work.draft, [path[0] for path in assigned])
    return new_values(frame, assigned, schema, {} if clause.inserts else sides.target, clause.name)


def carry_out(
    work: Work,
    kept: Kept,
    target: Target,
    on: Column | str,
    clauses: Sequence[Clause],
    alias: str | None,
    needed: Callable[[], frozenset[str]],
    *,
    only_keys: bool,
    evolves: bool,
) -> tuple[RowCounts, Reads]:
    """Have tasks change the rows, and make that part of the draft; `needed` tells the columns of the table that are used.

    Returns the counts, and what was read of the table.
    """
    merge = _Merge(work, kept, on, clauses, alias, only_keys, evolves)
    return (merge.without_target(), target.reads) if not target.files.num_rows else merge.over(target, needed)


class _Merge:
    def __init__(
        self, work: Work, kept: Kept, on: Column | str, clauses: Sequence[Clause], alias: str | None, only_keys: bool, evolves: bool
    ) -> None:
        self._work = work
        self._kept = kept
        self._on = as_column(on)
        self._clauses = clauses
        self._alias = alias
        self._evolves = evolves
        self._keeps_target = any(clause.matched == NOT_MATCHED_BY_SOURCE for clause in clauses)
        # other conditions may fail for a row that is gone, and outer joins let every row through
        self._late = only_keys and kept.small and not self._keeps_target
        self._inserts = any(clause.inserts for clause in clauses)
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

    def over(self, target: Target, needed: Callable[[], frozenset[str]]) -> tuple[RowCounts, Reads]:
        """The table's rows are read once."""
        work, names = self._work, (self._hidden.file or "", self._hidden.row or "")
        writes = any(each.writes and not each.inserts for each in self._clauses)
        located = work.located(target, names, self._alias, needed, writes=writes, late=self._late)
        joined, matched = self._joined(located)
        apart = self._kept.small and self._inserts
        frame = self._actions(joined, located, matched, reports=apart)
        done = work.done_by_tasks(frame, self._hidden if apart else self._without_source())
        try:
            require_unambiguous(done, self._clauses, lambda: self._pairs(joined, located, matched))
        except InvalidRequest:
            work.give_up(done)
            raise
        parts = [done]
        if apart:
            parts.append(self._inserted(self._unmatched(done), "i"))
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

    def _joined(self, located: Located) -> tuple[DataFrame, Column]:
        """The pairs, and the rows of either side without one as far as clauses need them; and whether a row is a pair."""
        source, keeps_target = self._kept.frame, self._keeps_target
        if self._kept.small:
            joined = located.frame.join(F.broadcast(source), self._on, "left" if keeps_target else "inner")
            return located.live(joined), self._kept.number.isNotNull()
        how = {(False, False): "inner", (False, True): "right", (True, False): "left", (True, True): "full"}[keeps_target, self._inserts]
        return located.frame.join(source, self._on, how), self._kept.number.isNotNull() & located.file.isNotNull()

    def _which(self, located: Located | None, matched: Column, kinds: Sequence[str]) -> Column:
        """The number of the clause that applies to a row; null if none does."""
        which: Column | None = None
        for number, clause in enumerate(self._clauses):
            if clause.matched not in kinds:
                continue
            applies = _applies(clause, located, matched, self._kept.number)
            test = applies if clause.condition is None else applies & as_column(clause.condition)
            which = F.when(test, number) if which is None else which.when(test, number)
        return F.lit(None).cast("int") if which is None else which

    def _actions(self, joined: DataFrame, located: Located, matched: Column, *, reports: bool) -> DataFrame:
        """What the tasks have to do, and which rows matched if there are rows to insert; `reports`: rows show which rows of the source
        matched, instead of being inserted.
        """
        work, hidden = self._work, self._hidden
        kinds = (MATCHED, NOT_MATCHED_BY_SOURCE) if reports else (MATCHED, NOT_MATCHED, NOT_MATCHED_BY_SOURCE)
        which = F.col(self._clause)
        rows = joined.select("*", self._which(located, matched, kinds).alias(self._clause))
        rows = rows.where(which.isNotNull() | matched) if self._inserts else rows.where(which.isNotNull())
        replaces = work.replacing(located.file, located.paths)
        codes = {"update": replaces, "update_all": replaces, "delete": F.lit(DELETE), "insert": F.lit(ADD), "insert_all": F.lit(ADD)}
        what = _by_clause(which, {n: codes[clause.action] for n, clause in enumerate(self._clauses) if clause.matched in kinds})
        columns = [F.coalesce(what.cast("int"), F.lit(NOTHING)).alias(hidden.what), located.file, located.row]
        if reports:
            columns.append(self._kept.number.alias(hidden.source or ""))
        if hidden.before is not None:
            changes = which.isNotNull() & located.file.isNotNull()
            columns.append(F.when(changes, F.struct(*located.columns.values())).alias(hidden.before))
        values = self._values(rows, Resolved(located.columns, self._source_columns()), which, kinds)
        # rows of the source that match nothing have no id yet
        ids = [row_id.alias(name) for name, row_id in located.ids.items()] if values else []
        return rows.select(*columns, *values, *ids)

    def _values(self, rows: DataFrame, sides: Resolved, which: Column, kinds: Sequence[str]) -> list[Column]:
        """The new values of all columns, null where a clause makes no new row."""
        work = self._work
        given = {
            number: told(clause, rows, work, sides, self._alias, evolves=self._evolves)
            for number, clause in enumerate(self._clauses)
            if clause.matched in kinds and clause.writes
        }
        values: list[Column] = []
        for field in to_spark(work.schema).fields:
            nothing = F.lit(None).cast(field.dataType)
            cases = {
                number: new.get(field.name, nothing if self._clauses[number].inserts else sides.target[field.name])
                for number, new in given.items()
            }
            values.append((_by_clause(which, cases) if cases else nothing).alias(field.name))
        return values if given else []

    def _inserted(self, unmatched: DataFrame, step: str) -> Done:
        """Have tasks insert rows of the source."""
        work, hidden = self._work, Hidden(self._hidden.what)
        which = F.col(self._clause)
        unmatched = unmatched.coalesce(self._kept.tasks) if self._kept.small else unmatched
        rows = unmatched.select("*", self._which(None, F.lit(False), (NOT_MATCHED,)).alias(self._clause)).where(which.isNotNull())
        values = self._values(rows, Resolved({}, self._source_columns()), which, (NOT_MATCHED,))
        return work.done_by_tasks(rows.select(F.lit(ADD).alias(hidden.what), *values), hidden, step)

    def _unmatched(self, done: Done) -> DataFrame:
        """The rows of the source that matched nothing."""
        matched = decode_payload(done.matched)
        frame = self._kept.frame
        if not matched:
            return frame
        number = self._hidden.source or ""
        numbers = self._work.session.createDataFrame(pa.table({number: positions_of(matched)}))
        return frame.join(F.broadcast(numbers), self._kept.number == numbers[number], "left_anti")

    def _pairs(self, joined: DataFrame, located: Located, matched: Column) -> DataFrame:
        """The table's rows that clauses change for several rows of the source, once each."""
        changes = self._which(located, matched, (MATCHED,)).isNotNull()
        places = [located.file.alias("file"), located.row.alias("row")]
        columns = [value.alias(name) for name, value in located.columns.items() if name in located.read]
        pairs = joined.where(changes).select(F.struct(*places).alias("place"), F.struct(*columns).alias("values"))
        return pairs.groupBy("place").agg(F.count(F.lit(1)).alias("times"), F.first("values").alias("values")).where("times > 1")

    def _source_columns(self) -> dict[str, Column]:
        frame = self._kept.frame
        names = frame.columns[:-1]  # the last one is the number
        lowered = [name.lower() for name in names]
        return {name.lower(): frame[quoted(name)] for name in names if lowered.count(name.lower()) == 1}

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


def _by_clause(which: Column, cases: Mapping[int, Column]) -> Column:
    """The value of the clause that applies; null for other clauses."""
    value: Column | None = None
    for number, case in cases.items():
        value = F.when(which == number, case) if value is None else value.when(which == number, case)
    return F.lit(None) if value is None else value


def _counts(parts: Sequence[Done]) -> RowCounts:
    new: dict[int, int] = {}
    deleted = 0
    for part in parts:
        deleted += sum(len(decode_payload(payload)) for (kind, _), payload in part.positions.items() if kind == DELETE)
        for kind, count in part.new_rows.items():
            new[kind] = new.get(kind, 0) + count
    return RowCounts(updated=new.get(REPLACE, 0) + new.get(RENEW, 0), deleted=deleted, inserted=new.get(ADD, 0))
