"""One change of rows by Spark: the table's rows as a DataFrame with their places, the tasks' results, and the draft that gets them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from ...storage.actions.filetable import add_rows
from ...storage.data.vectors import Rows, decode_payload
from ...storage.dataclass import dataclass
from ...storage.errors import InvariantBroken
from ...storage.schema.partitions import uri_to_path
from ...storage.schema.schema import StructType
from ...tables.write.operation_records import RowOperation
from ...tables.write.row_operations import RowChanges, Target, apply_changes
from ..files.filling import renewed
from ..files.optimised import SETTING, gathering, is_wanted
from ..files.writing import codec_of_session, written_by_executors
from ..jvm import analysed, items, quoted, without_rows
from ..scan.native import Layout, rows_of_files, why_not_native
from ..scan.python_scan import rows_by_python, rows_of
from ..schemas import to_spark
from .conditions import numbered_as
from .session import planned_once
from .writer import DELETE, NOTHING, RENEW, REPLACE, Change, Done, Hidden, changed_by_tasks, changed_here

_log = logging.getLogger(__name__)

_PREFIX: Final = "__sluice_"


@dataclass(frozen=True, slots=True)
class Located:
    """Rows of the table with their places: `columns` by name, `file` as the scan names it, `row` its position in it.

    `paths` has the files' paths in the log by these names. Columns that are not `read` are null. `ids` are the rows' ids, by the name
    of the files' column for them, if the rows keep theirs.
    """

    frame: DataFrame
    columns: Mapping[str, Column]
    file: Column
    row: Column
    paths: Mapping[str, str]
    read: frozenset[str]
    ids: Mapping[str, Column]


class Work:
    """The change of rows that one operation makes in its draft; `operation.plan` has the table's metadata after it.

    Its expressions are resolved over `empty`, against the columns that the table has before it, and hold in every frame of `located`. They
    may use `attributes`: columns of another frame of the table, see `attributes_in`.
    """

    def __init__(self, session: SparkSession, operation: RowOperation, attributes: Mapping[str, Any] | None = None) -> None:
        self.session = session
        draft, plan = operation.draft, operation.plan
        self.draft = draft
        self.before = StructType(each for each in plan.schema.fields if draft.schema.get(each.name) is not None)
        """The columns that the table has before the operation, with the fields that it has after it."""
        self._columns = numbered_as(without_rows(session, to_spark(self.before)), attributes or {})
        self._attributes = dict(zip(self.before.names, items(analysed(self._columns).output()), strict=True))
        self.plan = replace(plan, compression=codec_of_session(session), computed=True)
        self.label = operation.label
        self.pristine = draft.is_pristine
        self.records = draft.captures_changes and self.pristine
        """Whether the tasks write change data: later operations of a transaction leave that to its end."""

    @property
    def schema(self) -> StructType:
        """The table's schema after the operation."""
        return self.plan.schema

    @property
    def layout(self) -> Layout:
        """What Spark's scan needs to know."""
        address, draft = self.plan.address, self.draft
        options = dict(address.storage_options)
        return Layout(address.location, options, self.schema, draft.partition_columns, draft.base.version, draft.row_ids)

    def name(self, word: str, *frames: DataFrame) -> str:
        """A name for a column beside the columns of the table and of these frames."""
        taken = {each.lower() for each in (*self.schema.names, *(name for frame in frames for name in frame.columns))}
        name = _PREFIX + word
        while name in taken:
            name += "_"
        return name

    def empty(self, alias: str | None) -> DataFrame:
        """A frame without rows that has the columns which the table has before the operation, to resolve names against."""
        return self._columns if alias is None else self._columns.alias(alias)

    def located(
        self,
        target: Target,
        names: tuple[str, str],
        needed: Callable[[], frozenset[str]],
        *,
        writes: bool,
    ) -> Located:
        """The rows of a target; `needed` returns the columns that the operation uses: others may be null.

        Unless it `writes` new values of rows, they come without their ids.
        """
        layout, files = self.layout if writes else replace(self.layout, row_ids=None), target.files
        native = self._native(layout, target, names)
        if isinstance(native, str):
            _log.info("%s is read by Python tasks: %s", layout.location, native)
            read = frozenset(self.schema.names) if self.records else needed()
            frame = rows_by_python(self.session, layout, files, target.lost, names, columns=read, predicate=target.predicate)
        else:
            read, frame = frozenset(self.schema.names), native
        frame = numbered_as(frame, self._attributes)
        columns = {name: frame[quoted(name)] for name in self.schema.names}
        ids = {} if layout.row_ids is None else {layout.row_ids.row_id: frame[quoted(layout.row_ids.row_id)]}
        paths = {str(number): uri for number, uri in enumerate(files["path"].to_pylist())}
        return Located(frame, columns, frame[names[0]], frame[names[1]], paths, read, ids)

    def _native(self, layout: Layout, target: Target, names: tuple[str, str]) -> DataFrame | str:
        """The rows by Spark's own scan, or the reason why it cannot read them."""
        reason = why_not_native(self.session, layout.location, layout.storage_options, self.schema)
        lost = (lambda _: target.lost) if target.lost else None
        return rows_of_files(self.session, layout, target.files, lost, names) if reason is None else reason

    def replacing(self, file: Column, paths: Mapping[str, str]) -> Column:
        """What a task does with a row that changes: rows that the transaction added itself stay new to the table."""
        own = [key for key, uri in paths.items() if self.draft.is_new(uri)] if self.draft.captures_changes else []
        return F.when(file.isin(own), F.lit(RENEW)).otherwise(F.lit(REPLACE)) if own else F.lit(REPLACE)

    def with_generated(self, frame: DataFrame, given: Mapping[str, str | bool], what: Column) -> DataFrame:
        """The things to do, see `rows.writer`, with generated columns computed; `given` as for `files.filling.renewed`."""
        return renewed(frame, self.schema, given, ~what.isin(NOTHING, DELETE)) if given else frame

    def done_by_tasks(self, frame: DataFrame, hidden: Hidden, step: str = "", *, shuffles: bool = False) -> Done:
        """Have tasks do what the rows say, see `rows.writer`; `step` distinguishes the jobs of one operation."""
        change = self._change(frame, hidden, step)
        if self._is_gathered(frame):
            with gathering(frame, self.plan) as shuffled:
                return changed_by_tasks(shuffled, change)
        with nullcontext() if shuffles else planned_once(self.session):
            return changed_by_tasks(frame, change)

    def _is_gathered(self, frame: DataFrame) -> bool:
        """Whether the frame has new rows, and writes are optimised: then the new rows of a partition of the table meet in one task."""
        has_values = {*self.schema.names} <= {*frame.columns}
        return has_values and is_wanted(None, self.session.conf.get(SETTING, "") or "", self.plan.metadata.configuration)

    def done_here(self, frame: DataFrame, hidden: Hidden, step: str = "") -> Done:
        """The same in this process, for few rows."""
        return changed_here(frame, self._change(frame, hidden, step))

    def _change(self, frame: DataFrame, hidden: Hidden, step: str) -> Change:
        names = self.draft.row_ids if self.draft.row_ids is not None and self.draft.row_ids.row_id in frame.columns else None
        return Change(self.plan, self.label + step, hidden, apart=self.draft.captures_changes, records=self.records, ids=names)

    def apply(self, done: Done, paths: Mapping[str, str]) -> None:
        """Make what the tasks did part of the draft; without deletion vectors, tasks also copy the rows that remain."""
        changes = RowChanges(
            deleted=by_path(done, DELETE, paths),
            replaced=by_path(done, REPLACE, paths),
            successors=done.successors,
            added=done.added,
            recorded=done.recorded if self.records else None,
        )
        apply_changes(self.draft, changes)
        self._copy()

    def give_up(self, done: Done) -> None:
        """Remove the files that the tasks wrote."""
        for each in done.written:
            self.draft.store.delete(uri_to_path(each.path))

    def _copy(self) -> None:
        remaining = self.draft.uncopied
        if not remaining:
            return
        files = add_rows(remaining)
        frame = rows_of(self.session, self.layout, files, self.draft.deleted_in(files))
        written = written_by_executors(frame, self.draft.row_ids)
        assert written is not None
        _, write = written
        self.draft.copy_of(remaining, write(self.plan, f"{self.label}c"))


def by_path(done: Done, what: int, paths: Mapping[str, str]) -> dict[str, Rows]:
    """The positions at which tasks did a thing, by file of the table."""
    found: dict[str, Rows] = {}
    for (kind, file), payload in done.positions.items():
        if kind == what:
            if file not in paths:
                raise InvariantBroken(f"Spark returned rows of {file}, a file that it was not given")
            found[paths[file]] = decode_payload(payload)
    return found
