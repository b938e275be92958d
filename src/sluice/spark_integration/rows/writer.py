"""Tasks that turn changed rows into files and sets of positions, and the result of all of them.

Each row that reaches a task is one thing to do: rows to delete or replace come with their file and position, new rows with
their values. The tasks write the new rows, and return the rest to the driver's own process.
"""

from __future__ import annotations

import queue
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from types import TracebackType
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from ...storage.actions import AddCDCFile, AddFile
from ...storage.actions.features import RowIdColumns
from ...storage.data.vectors import Rows, rows_at
from ...storage.dataclass import dataclass
from ...tables.write.change_data_files import ChangeDataWriter
from ...tables.write.data_writing import WritePlan
from ..data_source.writer import attempt

NOTHING: Final = 0
"""The row at a position matched a row of the source, and stays as it is."""
REPLACE: Final = 1
"""The row at a position becomes the row with these values."""
DELETE: Final = 2
"""The row at a position is deleted."""
ADD: Final = 3
"""A row with these values is added."""
RENEW: Final = 4
"""Like REPLACE, for a row that the transaction added itself."""

_SUCCESSORS: Final = "s"
_ADDED: Final = "a"


@dataclass(frozen=True, slots=True)
class HelperColumns:
    """The names of an instruction's columns beside the new values; None: there is no such column."""

    action: str
    """What to do (int)."""
    file: str | None = None
    """The name of the file that the row is in."""
    position: str | None = None
    """The row's position in it."""
    source: str | None = None
    """The number of the row of the source."""
    before: str | None = None
    """The row before the change (a struct)."""
    clause: str = ""
    """The number of the row's clause, which the driver alone uses."""


@dataclass(frozen=True)
class TaskResult:
    """What a task did, or all of them."""

    positions: Mapping[tuple[int, str], Rows]
    """Positions of rows, by (action, file)."""
    changed: int
    """How often a row was changed: more than rows if several instructions changed one."""
    matched: Rows
    """The numbers of the source's rows that matched."""
    new_rows: Mapping[int, int]
    """The number of new rows, by action."""
    successors: tuple[AddFile, ...] = ()
    """Files of rows that replace others."""
    added: tuple[AddFile, ...] = ()
    """Files of rows that are new to the table, if these are apart."""
    recorded: tuple[AddCDCFile, ...] = ()

    @property
    def written(self) -> tuple[AddFile | AddCDCFile, ...]:
        """All files."""
        return (*self.successors, *self.added, *self.recorded)

    @staticmethod
    def together(parts: Sequence[TaskResult]) -> TaskResult:
        """What several tasks did."""
        positions: dict[tuple[int, str], Rows] = {}
        new_rows, matched = Counter[int](), Rows()
        for part in parts:
            matched |= part.matched
            new_rows.update(part.new_rows)
            for key, rows in part.positions.items():
                positions[key] = positions[key] | rows if key in positions else rows
        return TaskResult(
            positions,
            sum(part.changed for part in parts),
            matched,
            new_rows,
            tuple(each for part in parts for each in part.successors),
            tuple(each for part in parts for each in part.added),
            tuple(each for part in parts for each in part.recorded),
        )


@dataclass(frozen=True)
class RowTask:
    """What a task does: it follows the instructions that are its rows."""

    plan: WritePlan
    label: str
    """Distinguishes the job's files from those of others of the transaction."""
    helpers: HelperColumns
    """The columns of the instructions beside the new values."""
    apart: bool
    """Whether rows that replace others and added ones go to different files."""
    records: bool
    """Whether change data files are written."""
    ids: RowIdColumns | None
    """The column in which new values have the id of the row that is replaced."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> TaskResult:
        """In a task: what it did."""
        return _Attempt(self).run(batches)


class _Attempt:
    """One attempt at one task."""

    def __init__(self, task: RowTask) -> None:
        self._task = task
        self._label = attempt(task.label)
        plan = task.plan
        self._changes: ChangeDataWriter | None = None
        if task.records:
            self._changes = ChangeDataWriter(plan.address.store(), plan.metadata, plan.transaction_id, self._label)
        self._positions: dict[tuple[int, str], Rows] = {}
        self._changed = 0
        self._matched = Rows()
        self._new: dict[int, int] = {}

    def run(self, batches: Iterable[pa.RecordBatch]) -> TaskResult:
        task, helpers = self._task, self._task.helpers
        beside = {getattr(helpers, each.name) for each in fields(helpers)}
        streams = Streams(lambda name, rows: task.plan.write(rows, label=f"{self._label}{name}", row_ids=task.ids))
        with streams:
            for batch in batches:
                if helpers.source is not None:
                    self._matched |= rows_at(pc.drop_null(batch.column(helpers.source)))
                actions = batch.column(helpers.action)
                for action in pc.unique(actions).to_pylist():
                    rows = batch.filter(pc.equal(actions, action))
                    if action != ADD:
                        self._locate(action, rows)
                    if action == NOTHING:
                        continue
                    if action != DELETE:
                        self._new[action] = self._new.get(action, 0) + rows.num_rows
                        name = _ADDED if task.apart and action != REPLACE else _SUCCESSORS
                        streams.put(name, rows.drop_columns([each for each in rows.schema.names if each in beside]))
                    if self._changes is not None:
                        after = None if action == DELETE else pa.Table.from_batches([rows.select(task.plan.schema.names)])
                        before = None if action == ADD else pa.Table.from_struct_array(rows.column(helpers.before))
                        self._changes.record(before, after)
        files = streams.files
        for positions in (self._matched, *self._positions.values()):
            positions.run_optimize()  # of shuffled rows, all of a file's would take a bit each on the way to the driver
        return TaskResult(
            self._positions,
            self._changed,
            self._matched,
            self._new,
            tuple(files.get(_SUCCESSORS, ())),
            tuple(files.get(_ADDED, ())),
            () if self._changes is None else self._changes.finish(),
        )

    def _locate(self, action: int, rows: pa.RecordBatch) -> None:
        helpers = self._task.helpers
        assert helpers.file is not None
        assert helpers.position is not None
        files, positions = rows.column(helpers.file).dictionary_encode(), rows.column(helpers.position)
        self._changed += rows.num_rows if action != NOTHING else 0
        for number, file in enumerate(files.dictionary.to_pylist()):
            key = (action if action in (DELETE, NOTHING) else REPLACE, file)
            found = rows_at(positions.filter(pc.equal(files.indices, number)) if len(files.dictionary) > 1 else positions)
            self._positions[key] = self._positions[key] | found if key in self._positions else found


# -- streams of rows, each written by its own thread ---------------------------------------------------------------------


# Batches that wait for a writer; Spark limits the bytes of a batch.
_WAITING: Final = 4


class Streams:
    """Writes rows under names; `write(name, rows)` is called in a thread for each name, once. `with streams:` ends all of them; then
    `files` has what each wrote, or the first error is raised.
    """

    def __init__(self, write: Callable[[str, Iterator[pa.RecordBatch]], Sequence[AddFile]]) -> None:
        self._write = write
        self._queues: dict[str, queue.Queue[pa.RecordBatch | None]] = {}
        self._threads = ThreadPoolExecutor(thread_name_prefix="sluice-rows")
        self._failed: list[BaseException] = []
        self._given_up = False
        self.files: dict[str, Sequence[AddFile]] = {}

    def put(self, name: str, rows: pa.RecordBatch) -> None:
        """Write these rows; waits if too many wait already. Raises the error of a stream that failed."""
        if self._failed:
            raise self._failed[0]
        if name not in self._queues:
            self._queues[name] = queue.Queue(_WAITING)
            self._threads.submit(self._run, name)
        self._queues[name].put(rows)

    def __enter__(self) -> Streams:
        return self

    def __exit__(self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None) -> None:
        self._given_up = kind is not None
        for waiting in self._queues.values():
            waiting.put(None)
        self._threads.shutdown()
        if failure is None and self._failed:
            raise self._failed[0]

    def _run(self, name: str) -> None:
        rows = iter(self._queues[name].get, None)
        try:
            self.files[name] = self._write(name, self._until_given_up(rows))
        except BaseException as failure:  # noqa: BLE001 - raised again by `put` or `__exit__`
            self._failed.append(failure)
            for _ in rows:  # whoever waits for a place in the queue gets it
                continue

    def _until_given_up(self, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from rows
        if self._given_up:
            raise _GivenUp("the task failed elsewhere")


class _GivenUp(Exception):
    """Ends a stream whose task has failed, so that it removes its files; never leaves the thread."""
