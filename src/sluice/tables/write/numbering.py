"""The numbers of identity columns: a write takes as many as it has rows, and none is given out twice.

They come from the coordinator's counter (`nodes/counters.py`), and none is given out that the high-water marks in the log do not cover.
So a mark is true for every other engine at every version, whoever dies, and counting goes on from it if the counter was lost. Marks are
raised ahead by small commits of their own, the further the more numbers there are: then these are rare, other writers ignore them, and
appends have no metadata. A transaction that changes the metadata itself, or lets nothing come before it, raises them in its own commit:
whoever else raises them makes it lose. Decision 0051 says why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final

import pyarrow.compute as pc

from ...coordinator.api import Change, Timeout, count_on, submit
from ...coordinator.errors import ConcurrentModification, CoordinatorUnavailable, MetadataChangedException, OutcomeUnknown, TableMoved
from ...coordinator.rules.intent import Terms
from ...storage.actions import AddFile, Metadata
from ...storage.data.numbers import ROWS_OF_TASK, TASKS_MAX, TaskNumbers, after_files
from ...storage.data.scan import TableScan
from ...storage.errors import InvalidRequest
from ...storage.schema.datatypes import StructType
from ...storage.schema.identity import counter_of, covered, identities, next_number, with_marks
from ...storage.schema.schema import schema_to_json
from ..client.open_table import OpenTable, where_it_is
from .data_writing import WritePlan

_AHEAD_MIN: Final = 10_000
_AHEAD_PART: Final = 8
"""Marks are raised beyond what is needed by this part of it: the more numbers there are, the rarer."""
_BLOCK_MAX: Final = 1 << 20


class Numbering:
    """Takes numbers for the rows of one operation; called with a number of rows, it returns the first one's.

    Numbers ascend. The first call takes exactly as many as it needs, later ones more and more at once; `ended` gives back what is left.
    """

    def __init__(self, table: OpenTable, base: Metadata, metadata: Metadata, terms: Terms, leases: Sequence[str] = ()) -> None:
        """For a transaction on `base` that depends on these leases, beside the thread's own; its metadata so far are `metadata`."""
        self._table, self._base, self.metadata, self._terms, self._leases = table, base, metadata, terms, leases
        self._block = self._begin = self._next = self._end = 0

    def __call__(self, count: int) -> int:
        """Take so many numbers, which ascend from the one that is returned."""
        if self._end - self._next < count:
            size = max(count, self._block)
            begin = max(self._end, next_number(self._schema)) if self._defines else self._taken(size)
            if begin != self._end:
                self._next = begin
            self._begin, self._end = begin, begin + size
            self._require(self._end)
            self._block = min(2 * size, _BLOCK_MAX)
        self._next += count
        return self._next - count

    @property
    def _schema(self) -> StructType:
        return self.metadata.schema

    @property
    def _defines(self) -> bool:
        """Whether the transaction makes these columns, so that nobody else has numbers of them."""
        return not identities(self._base.schema) or counter_of(self._schema) != counter_of(self._base.schema)

    @property
    def _raises(self) -> bool:
        """Whether the transaction itself raises the marks."""
        return self._terms.if_version is not None or self.metadata != self._base

    def for_tasks(self, rows: int | None = None) -> TaskNumbers:
        """Numbers for tasks of at most so many rows each."""
        most = ROWS_OF_TASK if rows is None else min(max(rows, 1), ROWS_OF_TASK)
        return TaskNumbers(self(TASKS_MAX * most), most)

    def resume(self, taken: TaskNumbers) -> None:
        """Go on with numbers that were taken for tasks when the write was planned."""
        self._block, self._begin, self._next, self._end = 1, taken.first, taken.end, taken.end

    def ended(self, plan: WritePlan, files: Iterable[AddFile] | None = None) -> WritePlan:
        """The plan, maybe with other marks. Gives back what was taken last and is not used, as statistics of the `files` of tasks tell."""
        if not self._block:  # nothing was taken
            return plan
        after = None if files is None else after_files(files, self._schema)
        if after is not None:
            self._next = min(self._next, max(self._begin, after))
        end, self._end = self._end, self._next
        if end != self._next and not self._defines:
            # check: only-unused-numbers-go-back (next_ == end -> True)
            given_back = lambda next_: self._next if next_ == end else next_  # noqa: E731
            _counted(self._table, self._schema, given_back)
        metadata = with_numbers(plan.metadata, self._next) if self._raises else plan.metadata
        return plan if metadata is plan.metadata else replace(plan, metadata=metadata, changes_metadata=True)

    def _taken(self, count: int) -> int:
        under_marks = covered(self._schema)

        def then(begin: int) -> int:
            nonlocal under_marks
            self._require(begin + count)
            # check: marks-come-before-numbers
            if begin + count > under_marks and not self._raises:
                under_marks = raised(self._table, counter_of(self._schema), begin + count, self._leases, self._terms.timeout_s)
            return begin + count

        return _counted(self._table, self._schema, then)

    def _require(self, numbers: int) -> None:
        for each in identities(self._schema):
            each.value(numbers - 1)


def with_numbers(metadata: Metadata, numbers: int, *, exactly: bool = False) -> Metadata:
    """The metadata whose marks cover so many numbers; the same object if they do already. They are lowered only to be `exactly` these."""
    schema = with_marks(metadata.schema, numbers, exactly=exactly)
    return metadata if schema == metadata.schema else replace(metadata, schema_string=schema_to_json(schema))


def raised(table: OpenTable, counter: str, numbers: int, leases: Sequence[str], timeout_s: Timeout) -> int:
    """Raise the marks in the log until they cover so many numbers; returns how many they cover.

    Raises MetadataChangedException if the columns were defined anew, QuotaExceeded, and CoordinatorUnavailable if no answer came in time.
    """
    while True:
        snapshot = table.latest()
        schema = snapshot.metadata.schema
        if not identities(schema) or counter_of(schema) != counter:
            raise MetadataChangedException(f"another client defined the identity columns of {table.location} anew: repeat the operation")
        under_marks = covered(schema)
        if under_marks >= numbers:
            return under_marks
        ahead = min([numbers + max(_AHEAD_MIN, numbers // _AHEAD_PART), *[each.last_number + 1 for each in identities(schema)]])
        metadata = with_numbers(snapshot.metadata, ahead)
        try:
            change = Change(table.new_transaction_id(), "RAISE IDENTITY", snapshot, (metadata,), leases=tuple(leases))
            # check: marks-are-raised-in-the-calls-time (=timeout_s -> =None)
            submit(table, change, timeout_s=timeout_s)
        except ConcurrentModification:  # others raised them, or changed columns
            continue
        except TableMoved as moved:  # the leases stay where they were taken, and what is behind them there is not here
            table, leases = table.follow(moved), ()
        except OutcomeUnknown as unknown:
            # Of the marks. The rows are in no intent: who asks for this outcome would not learn of them.
            raise CoordinatorUnavailable(
                f"the marks of {table.location} were not raised in time, so no row was written: repeat it"
            ) from unknown


def counted_exactly(table: OpenTable, metadata: Metadata) -> Metadata:
    """The metadata with marks that cover what was given out, and no more. Nothing more is given out then unless somebody raises them."""
    if not identities(metadata.schema):
        return metadata
    under_marks = covered(metadata.schema)
    given_out = _counted(table, metadata.schema, lambda next_: max(next_, under_marks))
    return with_numbers(metadata, given_out, exactly=True) if given_out < under_marks else metadata


def sync_identity(table: OpenTable, name: str) -> Change | None:
    """Let the numbers of an identity column go on after its values in the table, which rows gave; None if the marks cover them already.

    Raises InvalidRequest for another column.
    """
    snapshot = table.latest()
    schema = snapshot.metadata.schema
    column = next((each for each in identities(schema) if each.name.lower() == name.lower()), None)
    if column is None:
        raise InvalidRequest(f"{name!r} is not an identity column of {table.location}", column=name)
    numbers = 0
    for batch in TableScan(table.store, schema, snapshot.partition_columns, snapshot.version).batches(snapshot.files, [column.name]):
        bound = pc.min_max(batch.column(column.name)).as_py()["max" if column.step > 0 else "min"]
        numbers = numbers if bound is None else max(numbers, column.number_from(bound) + 1)
    column.value(max(numbers - 1, 0))
    _counted(table, schema, lambda next_: max(next_, numbers))
    metadata = with_numbers(snapshot.metadata, numbers)
    if metadata is snapshot.metadata:
        return None
    return Change(table.new_transaction_id(), "SYNC IDENTITY", snapshot, (metadata,), parameters={"column": column.name})


def _counted(table: OpenTable, schema: StructType, then: Callable[[int], int]) -> int:
    """Count on, at the coordinator where the table is now."""
    after_marks = lambda: next_number(table.latest().metadata.schema)  # noqa: E731
    return where_it_is(table, lambda here: count_on(here.context, counter_of(schema), then, after_marks))
