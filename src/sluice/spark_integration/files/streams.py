"""Several streams of rows written at the same time, each by its own thread."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Final

import pyarrow as pa

from ...storage.actions import AddFile

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
