"""Tasks that turn changed rows into files and sets of positions, and the result of all of them.

Each row that reaches a task is one thing to do: rows to delete or replace come with their file and position, new rows with
their values. The tasks write the new rows, and return the rest to the driver's own process.
"""

from __future__ import annotations

import queue
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from types import TracebackType
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql.types import BinaryType, StructType
from pyspark.sql.udf import UserDefinedFunction
from pyspark.util import PythonEvalType

from ...storage.actions import AddCDCFile, AddFile, decode_commit, encode_all
from ...storage.data.row_ids import RowIdColumns
from ...storage.data.vectors import Rows, decode_payload, encode_payload, rows_at
from ...storage.dataclass import dataclass
from ...tables.write.change_data_files import ChangeDataWriter
from ...tables.write.data_writing import WritePlan
from ..data_source.writer import attempt, forget_finders
from ..jvm import quoted

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

    @property
    def names(self) -> frozenset[str]:
        """The names that there are."""
        return frozenset(name for each in fields(self) if (name := getattr(self, each.name)) is not None)


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
    """Files of change data."""

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

    def encoded(self) -> bytes:
        """As one object."""
        positions = [(*key, encode_payload(rows)) for key, rows in self.positions.items()]
        files = [encode_all(each) for each in (self.successors, self.added, self.recorded)]
        return msgspec.msgpack.encode((positions, self.changed, encode_payload(self.matched), dict(self.new_rows), files))

    @staticmethod
    def decoded(content: bytes, name: str) -> TaskResult:
        """From these bytes."""
        positions, changed, matched, new_rows, files = msgspec.msgpack.decode(content)
        successors, added, recorded = (decode_commit(each, name=name) if each else () for each in files)
        return TaskResult(
            {(action, file): decode_payload(rows) for action, file, rows in positions},
            changed,
            decode_payload(matched),
            new_rows,
            tuple(each for each in successors if isinstance(each, AddFile)),
            tuple(each for each in added if isinstance(each, AddFile)),
            tuple(each for each in recorded if isinstance(each, AddCDCFile)),
        )


@dataclass(frozen=True)
class RowTask:
    """What a task does: it follows the instructions that are its rows."""

    plan: WritePlan
    """How new rows are written."""
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

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """In a task: what it did, as one row."""
        result = _Attempt(self).run(batches).encoded()
        forget_finders()
        yield pa.record_batch({"result": pa.array([result], pa.binary())})


# A Python data source costs four more Python processes for each job: Spark looks the source up, makes it, makes its writer and
# commits in their own processes. So the results of tasks come back as a frame's rows do.
_SCHEMA: Final = StructType().add("result", BinaryType())


def changed_by_tasks(frame: DataFrame, task: RowTask) -> TaskResult:
    """Have tasks do what the rows of `frame` say. A task that Spark runs twice counts once. Raises what PySpark does if a task fails."""
    # DataFrame.mapInArrow without its test for pandas, which such functions do not need
    columns = [frame[quoted(name)] for name in frame.columns]
    applied: Any = UserDefinedFunction(task, _SCHEMA, evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF)(*columns)
    jdf: Any = frame._jdf
    results = DataFrame(jdf.mapInArrow(applied._jc, False, None), frame.sparkSession).toArrow()["result"].to_pylist()
    return TaskResult.together([TaskResult.decoded(each, task.label) for each in results])


def changed_here(frame: DataFrame, task: RowTask) -> TaskResult:
    """The same in this process, which all rows pass through."""
    return _Attempt(task).run(frame.toArrow().to_batches())


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
        beside = helpers.names
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
                        self._record(action, rows, self._changes)
        files = streams.files
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

    def _record(self, action: int, rows: pa.RecordBatch, changes: ChangeDataWriter) -> None:
        after = None if action == DELETE else pa.Table.from_batches([rows.select(self._task.plan.schema.names)])
        before = None if action == ADD else pa.Table.from_struct_array(rows.column(self._task.helpers.before))
        if before is not None and after is not None:
            changes.update(before, after)
        elif before is not None:
            changes.delete(before)
        elif after is not None:
            changes.insert(after)


# -- streams of rows, each written by its own thread ---------------------------------------------------------------------


# Batches that wait for a writer; Spark limits the bytes of a batch.
_WAITING: Final = 4


class Streams:
    """Writes rows under names; `write(name, rows)` is called in a thread for each name, once.

    `with streams:` ends all of them; then `files` has what each wrote, or the first error is raised.
    """

    def __init__(self, write: Callable[[str, Iterator[pa.RecordBatch]], Sequence[AddFile]]) -> None:
        self._write = write
        self._queues: dict[str, queue.Queue[pa.RecordBatch | None]] = {}
        self._threads: list[threading.Thread] = []
        self._failed: list[BaseException] = []
        self._given_up = False
        self.files: dict[str, Sequence[AddFile]] = {}

    def put(self, name: str, rows: pa.RecordBatch) -> None:
        """Write these rows; waits if too many wait already. Raises the error of a stream that failed."""
        if self._failed:
            raise self._failed[0]
        waiting = self._queues.get(name)
        if waiting is None:
            waiting = self._queues[name] = queue.Queue(_WAITING)
            thread = threading.Thread(target=self._run, args=(name, waiting), name=f"sluice-{name}", daemon=True)
            self._threads.append(thread)
            thread.start()
        waiting.put(rows)

    def __enter__(self) -> Streams:
        return self

    def __exit__(self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None) -> None:
        self._given_up = kind is not None
        for waiting in self._queues.values():
            waiting.put(None)
        for thread in self._threads:
            thread.join()
        if failure is None and self._failed:
            raise self._failed[0]

    def _run(self, name: str, waiting: queue.Queue[pa.RecordBatch | None]) -> None:
        rows = iter(waiting.get, None)
        try:
            self.files[name] = self._write(name, self._until_given_up(rows))
        except BaseException as failure:  # noqa: BLE001 - raised again by `__exit__`
            self._failed.append(failure)
            for _ in rows:  # whoever waits for a place in the queue gets it
                continue

    def _until_given_up(self, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from rows
        if self._given_up:
            raise _GivenUp("the task failed elsewhere")


class _GivenUp(Exception):
    """Ends a stream whose task has failed, so that it removes its files; never leaves the thread."""
