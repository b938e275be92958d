"""What a client does beside its commits, in threads: it writes checkpoints and version checksums, and merges many small files.

Neither delays nor fails a writer. A process that ends waits for a compaction that it began, and up to 30 seconds for checkpoints.
"""

from __future__ import annotations

import atexit
import hashlib
import logging
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable
from functools import cache, partial
from typing import Any, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc

from ...coordinator.api import Deadline, claim_checkpoint, lease
from ...coordinator.errors import LeaseHeld
from ...coordinator.rules.intent import Terms
from ...storage.actions.features import clustering_columns, is_on
from ...storage.caches import ForkSafeLock
from ...storage.errors import SluiceError
from ...storage.log.checkpoint_writer import write_checkpoint
from ...storage.log.checksum import write_checksum
from ...storage.log.segment import last_checkpoint_version
from ...storage.log.snapshot import Snapshot
from ...storage.schema.partitions import PartitionKey
from ..client.address import TableAddress
from ..client.open_table import OpenTable, ReadTable, open_coordinated
from ..client.property_rules import AUTO_COMPACT, CHECKPOINT_INTERVAL, file_size_of
from ..client.published_table import PublishedTable
from .bins import plan_bins
from .compaction import CompactionRequest, compact

_log = logging.getLogger(__name__)
_INTERVAL_DEFAULT: Final = 100
_EXIT_WAIT_S: Final = 30.0
_TROUBLE: Final = (SluiceError, pa.ArrowException, OSError, RuntimeError)
"""What ends the writing beside commits. A process that ends starts no thread any more (RuntimeError)."""
_CHECKSUM_EVERY: Final = 10
"""So many versions share one checksum, the last one's: a request for each would cost as much as publishing it."""
_CHECKSUM_PAUSE_S: Final = 5.0
"""A client writes none so soon after its last one: many small commits would feel it."""

FILES_MIN: Final = 50
"""So many small files of one partition are merged, as in Delta Lake."""
_WAIT_S: Final = 10.0
"""For the coordinator's answers, not for another process, which merges the same files."""
_LOOK_EVERY: Final = 20
"""A table without the property is looked at after every so many commits."""


class Checkpointer:
    """Writes a checkpoint when the last one is `delta.checkpointInterval` versions old (100 by default: small commits are frequent).

    Every tenth version, and each with a checkpoint, gets a version checksum: from the client that made the version's file, where it has the
    list of files in memory. One that has not leaves it out, as it does when it fails: nobody needs them.

    A client that commits then reads `_last_checkpoint`, and one client at a time writes (`claim_checkpoint`). Closing the table waits for
    the writer. A failed checkpoint is logged and left to a later commit: the table does not need it.
    """

    _all: ClassVar[weakref.WeakSet[Checkpointer]] = weakref.WeakSet()

    def __init__(self, table: ReadTable) -> None:
        self._table = table
        self._busy = ForkSafeLock()
        self._thread: threading.Thread | None = None
        self._last = 0
        """The version of the newest known checkpoint; 0 if none."""
        self._look_from = 0
        """The version from which on it is worth looking again."""
        self._checksum_from_s = float("-inf")
        """When the next checksum may be written, by the monotonic clock."""

    def committed(self, version: int) -> None:
        """Note a commit of this process. If a checkpoint may be due, or a checksum, a thread looks and writes it."""
        table = self._table
        configured = table.current().configuration.get(CHECKPOINT_INTERVAL, "")
        interval = int(configured) if configured.isdigit() and int(configured) > 0 else _INTERVAL_DEFAULT
        is_due = version >= max(self._last + interval, self._look_from)
        with_checksum = version % _CHECKSUM_EVERY == 0 and isinstance(table, OpenTable) and self._may_write_checksum(table, version)
        if not (is_due or with_checksum) or not self._busy.acquire(blocking=False):
            return
        self._all.add(self)
        _wait_at_exit()
        work = partial(self._work, version, interval if is_due else 0, with_checksum=with_checksum)
        thread = threading.Thread(target=work, name="sluice-checkpoint", daemon=True)
        try:
            thread.start()
            self._thread = thread
        except RuntimeError as ending:  # this process
            self._busy.release()
            _log.debug("nothing is written beside version %d of %s: %s", version, table.location, ending)

    def wait(self, timeout_s: float | None = None) -> None:
        """Wait for the checkpoint in progress, if any."""
        if self._thread is not None:
            self._thread.join(timeout_s)

    def now(self) -> int:
        """Write a checkpoint of the latest published version; returns that version."""
        with self._busy:
            # others go on: versions ratified meanwhile may be ahead of the log again
            snapshot = self._table.at(None if isinstance(self._table, PublishedTable) else self._table.publish())
            snapshot.require_order()
            write_checkpoint(self._table.store, snapshot)
            self._write_checksum(snapshot.version, snapshot)
            return snapshot.version

    @classmethod
    def wait_all(cls) -> None:
        """Wait for the checkpoints in progress in this process, for 30 seconds in all."""
        end = time.monotonic() + _EXIT_WAIT_S
        for each in list(cls._all):
            each.wait(max(0.0, end - time.monotonic()))

    def _may_write_checksum(self, table: OpenTable, version: int) -> bool:
        """Whether this client made the version's file, and wrote no checksum just now."""
        return table.clock.monotonic_s() >= self._checksum_from_s and table.log.known(version) is not None

    def _write_checksum(self, version: int, snapshot: Snapshot | None = None) -> None:
        """Write the checksum of a version that is published, if its list of files is in memory."""
        table = self._table
        try:
            # check: checksums-are-of-published-versions (always)
            if snapshot is None and isinstance(table, OpenTable) and table.published_version() >= version:
                snapshot = table.at_hand(version)
            if snapshot is not None and snapshot.lists_at_hand:
                write_checksum(table.store, version, snapshot.summary())
            if isinstance(table, OpenTable):
                self._checksum_from_s = table.clock.monotonic_s() + _CHECKSUM_PAUSE_S
        except _TROUBLE as error:
            _log.info("no checksum of version %d of %s was written: %s", version, table.location, error)

    def _work(self, version: int, interval: int, *, with_checksum: bool) -> None:
        """Write the version's checksum, and the checkpoint if it is due after so many versions (0: it is not)."""
        table = self._table
        try:
            assert isinstance(table, OpenTable)  # others commit nothing
            if with_checksum:
                self._write_checksum(version)
            if not interval:
                return
            self._last = last_checkpoint_version(table.store) or 0
            if version - self._last < interval:
                return
            if claim_checkpoint(table.context, version, last=self._last, interval=interval, now_ms=table.clock.now_ms()):
                published = table.published_version()  # one that was acknowledged as ratified may be ahead of the log
                snapshot = table.at(table.publish() if published < version else published)
                write_checkpoint(table.store, snapshot)
                self._last = snapshot.version
                self._write_checksum(snapshot.version, snapshot)
            else:  # another client is writing: look a few times until the next one is due, however many commits come
                self._look_from = version + max(1, interval // 8)
        except _TROUBLE as error:
            self._look_from = version + interval  # this client's next try; another may try earlier
            _log.warning("no checkpoint of version %d of %s was written: %s", version, table.location, error)
        finally:
            self._busy.release()


@cache
def _wait_at_exit() -> None:
    """Make the process wait at its end, while threads may still be started.

    `atexit` is too late: the interpreter ends the pools of `concurrent.futures` before, which reading the log and uploading need. The same
    list of functions ends those pools; its last entry runs first.
    """
    register: Callable[[Callable[[], Any]], object] = getattr(threading, "_register_atexit", atexit.register)
    try:
        register(Checkpointer.wait_all)
    except RuntimeError:  # the process is already ending
        _log.debug("a checkpoint was begun while the process ends; the process does not wait for it")


class AutoCompaction:
    """Merges many small files of one table beside the commits of this process, if `delta.autoOptimize.autoCompact` is true.

    Of all processes that write a table one compacts at a time.
    """

    def __init__(self, address: TableAddress) -> None:
        self._address = address
        self._thread: threading.Thread | None = None
        self._is_on = True
        self._commits = 0

    def committed(self) -> None:
        """Note a commit: if nothing runs, a thread looks whether a compaction is due, and makes it. Never raises."""
        self._commits += 1
        if (self._thread is not None and self._thread.is_alive()) or (not self._is_on and self._commits % _LOOK_EVERY):
            return
        self._thread = threading.Thread(target=self._work, name="sluice-auto-compaction")
        try:
            self._thread.start()
        except RuntimeError as ending:
            _log.info("%s is not compacted: %s", self._address.location, ending)
            self._thread = None

    def wait(self, timeout_s: float | None = None) -> None:
        """Wait for what runs."""
        if self._thread is not None:
            self._thread.join(timeout_s)

    def _work(self) -> None:
        location = self._address.location
        try:
            table = open_coordinated(self._address)
            snapshot = table.latest()
            self._is_on = is_on(snapshot.configuration, AUTO_COMPACT)
            if not self._is_on or not is_due(snapshot):
                return
            coordinator, application = self._address.coordinator, self._address.application
            with lease(lease_name(self._address), wait_s=Deadline.after(_WAIT_S), coordinator=coordinator, application=application):
                done = compact(table, CompactionRequest(), Terms())
                _log.info("small files of %s were merged: %s", location, done)
        except LeaseHeld:
            _log.debug("another client compacts %s", location)
        except (SluiceError, pa.ArrowException, OSError) as trouble:
            _log.warning("the small files of %s were not merged, a later commit looks again: %s", location, trouble)


def lease_name(address: TableAddress) -> str:
    """The name of the lease that the process holds that compacts a table."""
    return f"auto-compaction {hashlib.blake2b(address.location.encode(), digest_size=8).hexdigest()}"


def is_due(snapshot: Snapshot) -> bool:
    """Whether a partition has so many small files; in a clustered table those count that are not clustered yet."""
    target = file_size_of(snapshot.configuration)
    metadata = snapshot.metadata
    is_clustered = bool(clustering_columns(snapshot.domains, metadata.schema))
    scope = pc.is_null(snapshot.files["clustering_provider"]).combine_chunks() if is_clustered else None
    small: Counter[PartitionKey] = Counter()
    for each in plan_bins(snapshot.files, scope, metadata.physical_partitions, target_bytes=target, base=False, reorder=False):
        small[each.partition] += len(each.indices)
    return any(count >= FILES_MIN for count in small.values())
