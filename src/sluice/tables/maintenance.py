"""Checkpoints, off the commit path: written by a thread of whoever committed the version that is due."""

from __future__ import annotations

import logging
import threading

from ..storage.checkpoint_writer import write_checkpoint
from ..storage.errors import SluiceError
from .access import Access

__all__ = ["CHECKPOINT_INTERVAL", "Checkpointer"]

_log = logging.getLogger(__name__)
CHECKPOINT_INTERVAL = "delta.checkpointInterval"
_INTERVAL_DEFAULT = 100


class Checkpointer:
    """Writes a checkpoint every `delta.checkpointInterval` versions (100 by default; small commits come fast here).

    One at a time per process. A checkpoint that fails is logged and left to the next one: the table does not need it.
    """

    def __init__(self, access: Access) -> None:
        self._access = access
        self._busy = threading.Lock()
        self._thread: threading.Thread | None = None

    def committed(self, version: int, ordinal: int) -> None:
        """Note a commit of this process; starts a checkpoint when its version is due and it is the version's first."""
        configured = self._access.current().configuration.get(CHECKPOINT_INTERVAL, "")
        interval = int(configured) if configured.isdigit() and int(configured) > 0 else _INTERVAL_DEFAULT
        if version == 0 or version % interval or ordinal or not self._busy.acquire(blocking=False):
            return
        self._thread = threading.Thread(target=self._write, args=(version,), name="sluice-checkpoint", daemon=True)
        self._thread.start()

    def wait(self, timeout_s: float | None = None) -> None:
        """Wait until the checkpoint under way, if any, is written."""
        if self._thread is not None:
            self._thread.join(timeout_s)

    def now(self) -> int:
        """Write a checkpoint of the latest published version; returns that version."""
        with self._busy:
            committer = self._access.committer
            # others go on: what is ratified by now may be ahead of the log again
            published = None if committer is None else committer.publisher.publish_pending().version
            snapshot = self._access.at(published)
            write_checkpoint(self._access.store, snapshot)
            return snapshot.version

    def _write(self, version: int) -> None:
        try:
            self._see_published(version)
            write_checkpoint(self._access.store, self._access.at(version))
        except SluiceError as error:
            _log.warning("no checkpoint of version %d of %s was written: %s", version, self._access.address.location, error)
        finally:
            self._busy.release()

    def _see_published(self, version: int) -> None:
        """A version that was acknowledged as ratified may be ahead of the log, which a checkpoint must not be."""
        committer = self._access.ours
        state = committer.context.read_published()
        if state is None or state[0].version < version:
            committer.publisher.publish_pending()
