"""Tasks that turn changed rows into files and sets of positions, and the result of all of them.

Each row that reaches a task is one thing to do: rows to delete or replace come with their file and position, new rows with
their values. The tasks write the new rows, and return the rest to the driver's own process.
"""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from types import TracebackType
from typing import Any, Final

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
from ...tables.client.property_rules import file_size_of
from ...tables.write.change_data_files import ChangeDataWriter
from ...tables.write.data_writing import WritePlan
from ..data_source.writer import forget_finders
from ..files.task_writer import attempt
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
        new_rows: dict[int, int] = {}
        changed, matched = 0, Rows()
        successors: list[AddFile] = []
        added: list[AddFile] = []
        recorded: list[AddCDCFile] = []
        for part in parts:
            changed += part.changed
            matched |= part.matched
            for key, rows in part.positions.items():
                positions[key] = positions[key] | rows if key in positions else rows
            for action, count in part.new_rows.items():
                new_rows[action] = new_rows.get(action, 0) + count
            successors += part.successors
            added += part.added
            recorded += part.recorded
        return TaskResult(positions, changed, matched, new_rows, tuple(successors), tuple(added), tuple(recorded))

    def encoded(self) -> bytes:
        """As one object."""
        header = {
            "positions": list(self.positions),
            "changed": self.changed,
            "new_rows": list(self.new_rows.items()),
            "files": [len(self.successors), len(self.added)],
        }
        bitmaps = map(encode_payload, (*self.positions.values(), self.matched))
        table = pa.table({"bytes": pa.array([*bitmaps, encode_all(self.written)], pa.binary())})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema.with_metadata({"header": json.dumps(header)})) as stream:
            stream.write_table(table)
        return bytes(sink.getvalue().to_pybytes())

    @staticmethod
    def decoded(content: bytes, name: str) -> TaskResult:
        """From these bytes."""
        table = pa.ipc.open_stream(content).read_all()
        header = json.loads(table.schema.metadata[b"header"])
        *payloads, matched, actions = table["bytes"].to_pylist()
        listed = decode_commit(actions, name=name) if actions else ()
        files = [each for each in listed if isinstance(each, AddFile)]
        recorded = [each for each in listed if isinstance(each, AddCDCFile)]
        split = header["files"][0]
        return TaskResult(
            {(action, file): decode_payload(each) for (action, file), each in zip(header["positions"], payloads, strict=True)},
            header["changed"],
            decode_payload(matched),
            {action: count for action, count in header["new_rows"]},  # noqa: C416 - lists of JSON
            tuple(files[:split]),
            tuple(files[split:]),
            tuple(recorded),
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

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> bytes:
        """In a task: what it did, as bytes."""
        return self.done(batches).encoded()

    def done(self, batches: Iterable[pa.RecordBatch]) -> TaskResult:
        """Do it in this process."""
        return _Attempt(self).run(batches)


def changed_by_tasks(frame: DataFrame, task: RowTask) -> TaskResult:
    """Have tasks do what the rows of `frame` say. Raises what PySpark does if a task fails."""
    return TaskResult.together([TaskResult.decoded(result, task.label) for result in results_of_tasks(frame, task)])


def changed_here(frame: DataFrame, task: RowTask) -> TaskResult:
    """The same in this process, which all rows pass through."""
    return task.done(frame.toArrow().to_batches())


class _Attempt:
    """One attempt at one task."""

    def __init__(self, task: RowTask) -> None:
        self._task = task
        self._label = attempt(task.label)
        self._changes = _change_data_writer(task.plan, self._label) if task.records else None
        self._positions: dict[tuple[int, str], Rows] = {}
        self._changed = 0
        self._matched = Rows()
        self._new: dict[int, int] = {}

    def run(self, batches: Iterable[pa.RecordBatch]) -> TaskResult:
        streams = Streams(lambda name, rows: self._task.plan.write(rows, label=f"{self._label}{name}", row_ids=self._task.ids))
        with streams:
            for batch in batches:
                self._take(batch, streams)
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

    def _take(self, batch: pa.RecordBatch, streams: Streams) -> None:
        helpers = self._task.helpers
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
                name = _ADDED if self._task.apart and action != REPLACE else _SUCCESSORS
                streams.put(name, rows.drop_columns([each for each in rows.schema.names if each in helpers.names]))
            if self._changes is not None:
                self._record(action, rows, self._changes)

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


def _change_data_writer(plan: WritePlan, label: str) -> ChangeDataWriter:
    return ChangeDataWriter(
        plan.address.store(),
        schema=plan.schema,
        partition_columns=plan.metadata.partition_columns,
        transaction_id=plan.transaction_id,
        target_file_bytes=file_size_of(dict(plan.metadata.configuration)),
        label=label,
    )


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


# -- functions over the batches of Spark's tasks -------------------------------------------------------------------------

# A Python data source costs four more Python processes for each job: Spark looks the source up, makes it, makes its writer and
# commits in their own processes. So the results of tasks come back as a frame's rows do.
_SCHEMA: Final = StructType().add("result", BinaryType())


def results_of_tasks(frame: DataFrame, work: Callable[[Iterator[pa.RecordBatch]], bytes]) -> list[bytes]:
    """What `work`, a function or object that can be pickled, returns for the batches of each task of `frame`.

    A task that Spark runs twice gives one result. Raises what PySpark does if a task fails.
    """
    # DataFrame.mapInArrow without its test for pandas, which such functions do not need
    columns = [frame[quoted(name)] for name in frame.columns]
    called: Any = UserDefinedFunction(_InTask(work), _SCHEMA, evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF)(*columns)
    jdf: Any = frame._jdf
    results: list[bytes] = DataFrame(jdf.mapInArrow(called._jc, False, None), frame.sparkSession).toArrow()["result"].to_pylist()
    return results


class _InTask:
    """Runs the work of one task in a Python worker."""

    def __init__(self, work: Callable[[Iterator[pa.RecordBatch]], bytes]) -> None:
        self._work = work

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        result = self._work(batches)
        forget_finders()
        yield pa.record_batch({"result": pa.array([result], pa.binary())})
