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
from ..files.task_writer import attempt
from ..jvm import quoted
from ..workers import forget_finders

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
class Hidden:
    """The names of the columns beside the new values: what to do (int), file, position, number of the row of the source, and the
    row before the change (a struct). None: there is no such column.
    """

    what: str
    file: str | None = None
    row: str | None = None
    source: str | None = None
    before: str | None = None

    @property
    def names(self) -> frozenset[str]:
        """The names that there are."""
        return frozenset(name for each in fields(self) if (name := getattr(self, each.name)) is not None)


@dataclass(frozen=True)
class Done:
    """What a task did, or all of them: positions by file and thing to do as bitmaps' bytes, their number with repetitions, the rows
    of the source that matched, numbers of new rows, and files.
    """

    positions: Mapping[tuple[int, str], bytes]
    changed: int
    matched: bytes
    new_rows: Mapping[int, int]
    successors: tuple[AddFile, ...] = ()
    added: tuple[AddFile, ...] = ()
    recorded: tuple[AddCDCFile, ...] = ()

    @property
    def written(self) -> tuple[AddFile | AddCDCFile, ...]:
        """All files."""
        return (*self.successors, *self.added, *self.recorded)

    @staticmethod
    def together(parts: Sequence[Done]) -> Done:
        """What several tasks did."""
        positions: dict[tuple[int, str], Rows] = {}
        new_rows: dict[int, int] = {}
        matched = Rows()
        for part in parts:
            matched |= decode_payload(part.matched)
            for key, payload in part.positions.items():
                rows = decode_payload(payload)
                positions[key] = positions[key] | rows if key in positions else rows
            for what, count in part.new_rows.items():
                new_rows[what] = new_rows.get(what, 0) + count
        return Done(
            {key: encode_payload(rows) for key, rows in positions.items()},
            sum(part.changed for part in parts),
            encode_payload(matched),
            new_rows,
            tuple(file for part in parts for file in part.successors),
            tuple(file for part in parts for file in part.added),
            tuple(file for part in parts for file in part.recorded),
        )

    def encoded(self) -> bytes:
        """As one object."""
        listed = [[what, file] for what, file in self.positions]
        told = {
            "positions": listed,
            "changed": self.changed,
            "new_rows": [[what, count] for what, count in self.new_rows.items()],
            "files": [len(self.successors), len(self.added)],
        }
        table = pa.table({"bytes": pa.array([*self.positions.values(), self.matched, encode_all(self.written)], pa.binary())})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema.with_metadata({"told": json.dumps(told)})) as stream:
            stream.write_table(table)
        return bytes(sink.getvalue().to_pybytes())

    @staticmethod
    def decoded(content: bytes, name: str) -> Done:
        """From these bytes."""
        table = pa.ipc.open_stream(content).read_all()
        told = json.loads(table.schema.metadata[b"told"])
        *payloads, matched, actions = table["bytes"].to_pylist()
        listed = decode_commit(actions, name=name) if actions else ()
        files = [each for each in listed if isinstance(each, AddFile)]
        recorded = [each for each in listed if isinstance(each, AddCDCFile)]
        split = told["files"][0]
        return Done(
            {(what, file): payload for (what, file), payload in zip(told["positions"], payloads, strict=True)},
            told["changed"],
            matched,
            {what: count for what, count in told["new_rows"]},  # noqa: C416 - lists of JSON
            tuple(files[:split]),
            tuple(files[split:]),
            tuple(recorded),
        )


@dataclass(frozen=True)
class Change:
    """What is done with rows of a frame that say it: the `hidden` columns, then the new values.

    `apart`: rows that replace others and added ones go to different files. `records`: change data files are written. `ids`: the new
    values have the id of a row that is replaced, in this column.
    """

    plan: WritePlan
    label: str
    hidden: Hidden
    apart: bool
    records: bool
    ids: RowIdColumns | None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> bytes:
        """In a task: what it did, as bytes."""
        return self.done(batches).encoded()

    def done(self, batches: Iterable[pa.RecordBatch]) -> Done:
        """Do it in this process."""
        return _Task(self).run(batches)


def changed_by_tasks(frame: DataFrame, change: Change) -> Done:
    """Have tasks do what the rows of `frame` say. Raises what PySpark does if a task fails."""
    return Done.together([Done.decoded(result, change.label) for result in results_of_tasks(frame, change)])


def changed_here(frame: DataFrame, change: Change) -> Done:
    """The same in this process, which all rows pass through."""
    return change.done(frame.toArrow().to_batches())


class _Task:
    """One attempt at one task."""

    def __init__(self, change: Change) -> None:
        self._change = change
        self._label = attempt(change.label)
        self._changes = _change_data_writer(change.plan, self._label) if change.records else None
        self._positions: dict[tuple[int, str], Rows] = {}
        self._changed = 0
        self._matched = Rows()
        self._new: dict[int, int] = {}

    def run(self, batches: Iterable[pa.RecordBatch]) -> Done:
        streams = Streams(lambda name, rows: self._change.plan.write(rows, label=f"{self._label}{name}", row_ids=self._change.ids))
        with streams:
            for batch in batches:
                self._take(batch, streams)
        files = streams.files
        return Done(
            {key: encode_payload(rows) for key, rows in self._positions.items()},
            self._changed,
            encode_payload(self._matched),
            self._new,
            tuple(files.get(_SUCCESSORS, ())),
            tuple(files.get(_ADDED, ())),
            () if self._changes is None else self._changes.finish(),
        )

    def _take(self, batch: pa.RecordBatch, streams: Streams) -> None:
        hidden = self._change.hidden
        if hidden.source is not None:
            self._matched |= rows_at(pc.drop_null(batch.column(hidden.source)))
        what = batch.column(hidden.what)
        for kind in pc.unique(what).to_pylist():
            rows = batch.filter(pc.equal(what, kind))
            if kind != ADD:
                self._locate(kind, rows)
            if kind == NOTHING:
                continue
            if kind != DELETE:
                self._new[kind] = self._new.get(kind, 0) + rows.num_rows
                name = _ADDED if self._change.apart and kind != REPLACE else _SUCCESSORS
                streams.put(name, rows.drop_columns([each for each in rows.schema.names if each in hidden.names]))
            if self._changes is not None:
                self._record(kind, rows, self._changes)

    def _locate(self, kind: int, rows: pa.RecordBatch) -> None:
        hidden = self._change.hidden
        assert hidden.file is not None
        assert hidden.row is not None
        files, positions = rows.column(hidden.file).dictionary_encode(), rows.column(hidden.row)
        self._changed += rows.num_rows if kind != NOTHING else 0
        for number, file in enumerate(files.dictionary.to_pylist()):
            key = (kind if kind in (DELETE, NOTHING) else REPLACE, file)
            found = rows_at(positions.filter(pc.equal(files.indices, number)) if len(files.dictionary) > 1 else positions)
            self._positions[key] = self._positions[key] | found if key in self._positions else found

    def _record(self, kind: int, rows: pa.RecordBatch, changes: ChangeDataWriter) -> None:
        after = None if kind == DELETE else pa.Table.from_batches([rows.select(self._change.plan.schema.names)])
        before = None if kind == ADD else pa.Table.from_struct_array(rows.column(self._change.hidden.before))
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
