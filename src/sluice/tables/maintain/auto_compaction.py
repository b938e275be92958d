"""Compaction beside a writer of many small commits: when a partition has many small files, a thread merges them.

It neither delays nor fails the writer. Of all processes that write a table one compacts at a time. A process that ends waits for the
compaction that it began.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections import Counter
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from ...coordinator.api import Deadline, lease
from ...coordinator.errors import LeaseHeld
from ...coordinator.rules.intent import Terms
from ...storage.actions.clustering import clustering_columns
from ...storage.errors import SluiceError
from ...storage.log.snapshot import Snapshot
from ...storage.schema.partitions import PartitionKey
from ..client.address import TableAddress
from ..client.open_table import open_coordinated
from ..client.property_rules import AUTO_COMPACT, file_size_of, is_on
from .bins import plan_bins
from .compaction import CompactionRequest, compact

_log = logging.getLogger(__name__)

FILES_MIN: Final = 50
"""So many small files of one partition are merged, as in Delta Lake."""
# For the coordinator's answers, not for another process, which merges the same files.
_WAIT_S: Final = 10.0
_LOOK_EVERY: Final = 20
"""A table without the property is looked at after every so many commits."""


class AutoCompaction:
    """Compacts one table beside the commits of this process, if its property `delta.autoOptimize.autoCompact` is true."""

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
            self._is_on = is_on(dict(snapshot.configuration), AUTO_COMPACT)
            if not self._is_on or not is_due(snapshot):
                return
            with lease(
                lease_name(self._address),
                wait_s=Deadline.after(_WAIT_S),
                coordinator=self._address.coordinator,
                application=self._address.application,
            ):
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
    target = file_size_of(dict(snapshot.configuration))
    scope = pc.is_null(snapshot.files["clustering_provider"]).combine_chunks() if clustering_columns(snapshot.domains) else None
    found: Counter[PartitionKey] = Counter()
    for each in plan_bins(snapshot.files, scope, snapshot.partition_columns, target_bytes=target, base=False, reorder=False):
        found[each.partition] += len(each.indices)
    return any(count >= FILES_MIN for count in found.values())
