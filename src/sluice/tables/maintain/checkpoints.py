"""Checkpoints, off the commit path: a thread of a client that found one due after a commit writes it."""

from __future__ import annotations

import atexit
import logging
import threading
import time
import weakref
from collections.abc import Callable
from functools import cache
from typing import Any, ClassVar, Final

import pyarrow as pa

from ...coordinator.api import claim_checkpoint
from ...storage.caches import ForkSafeLock
from ...storage.errors import SluiceError
from ...storage.log.checkpoint_writer import write_checkpoint
from ...storage.log.segment import last_checkpoint_version
from ..client.open_table import OpenTable, ReadTable
from ..client.property_rules import CHECKPOINT_INTERVAL
from ..client.published_table import PublishedTable

_log = logging.getLogger(__name__)
_INTERVAL_DEFAULT: Final = 100
_EXIT_WAIT_S: Final = 30.0


class Checkpointer:
    """Writes a checkpoint when the last one is `delta.checkpointInterval` versions old (100 by default: small commits are frequent).

    A client that commits then reads `_last_checkpoint`, and one client at a time writes (`claim_checkpoint`). Closing the
    table waits for the writer, and so does the end of the process, for up to 30 seconds. A failed checkpoint is logged and
    left to a later commit: the table does not need it.
    """

    _all: ClassVar[weakref.WeakSet[Checkpointer]] = weakref.WeakSet()

    def __init__(self, table: ReadTable) -> None:
        self._table = table
        self._busy = ForkSafeLock()
        self._thread: threading.Thread | None = None
        self._last = 0
        """The version of the newest checkpoint known to this client; 0 if none."""
        self._look_from = 0
        """The version from which on it is worth looking again."""

    def committed(self, version: int) -> None:
        """Note a commit of this process. If a checkpoint may be due, a thread looks and writes it."""
        configured = self._table.current().configuration.get(CHECKPOINT_INTERVAL, "")
        interval = int(configured) if configured.isdigit() and int(configured) > 0 else _INTERVAL_DEFAULT
        if version < max(self._last + interval, self._look_from) or not self._busy.acquire(blocking=False):
            return
        self._all.add(self)
        _wait_at_exit()
        self._thread = threading.Thread(target=self._work, args=(version, interval), name="sluice-checkpoint", daemon=True)
        self._thread.start()

    def wait(self, timeout_s: float | None = None) -> None:
        """Wait for the checkpoint in progress, if any."""
        if self._thread is not None:
            self._thread.join(timeout_s)

    def now(self) -> int:
        """Write a checkpoint of the latest published version; returns that version."""
        with self._busy:
            # others go on: versions ratified meanwhile may be ahead of the log again
            published = None if isinstance(self._table, PublishedTable) else self._table.publish()
            snapshot = self._table.at(published)
            snapshot.require_order()
            write_checkpoint(self._table.store, snapshot)
            return snapshot.version

    @classmethod
    def wait_all(cls) -> None:
        """Wait for the checkpoints in progress in this process, for 30 seconds in all."""
        end = time.monotonic() + _EXIT_WAIT_S
        for each in list(cls._all):
            each.wait(max(0.0, end - time.monotonic()))

    def _work(self, version: int, interval: int) -> None:
        try:
            self._write_if_due(version, interval)
        except (SluiceError, pa.ArrowException, OSError) as error:
            self._look_from = version + interval  # this client's next try; another may try earlier
            _log.warning("no checkpoint of version %d of %s was written: %s", version, self._table.location, error)
        finally:
            self._busy.release()

    def _write_if_due(self, version: int, interval: int) -> None:
        table = self._table
        assert isinstance(table, OpenTable)  # others commit nothing
        self._last = last_checkpoint_version(table.store) or 0
        if version - self._last < interval:
            return
        if claim_checkpoint(table.context, version, last=self._last, interval=interval, now_ms=table.clock.now_ms()):
            published = table.published_version()  # one that was acknowledged as ratified may be ahead of the log
            snapshot = table.at(table.publish() if published < version else published)
            write_checkpoint(table.store, snapshot)
            self._last = snapshot.version
        else:  # another client is writing: look a few times until the next one is due, however many commits come
            self._look_from = version + max(1, interval // 8)


@cache
def _wait_at_exit() -> None:
    """Make the process wait at its end, while threads may still be started.

    `atexit` is too late: the interpreter ends the pools of `concurrent.futures` before, and reading the log and uploading
    need pools. The same list of functions ends those pools; its last entry runs first.
    """
    register: Callable[[Callable[[], Any]], object] = getattr(threading, "_register_atexit", atexit.register)
    try:
        register(Checkpointer.wait_all)
    except RuntimeError:  # the process is already ending
        _log.debug("a checkpoint was begun while the process ends; the process does not wait for it")
