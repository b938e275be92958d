"""Checks, beside the commits, that a table's log is in its place, and that its last files are the ratified versions.

An object store makes a folder when something is written into it. So a writer that continued after the folder was moved would
make another one, whose log begins in the middle.

A log file that is overwritten or damaged stops every new reader, while writers that know the table continue. So a publisher
checks, at most every three seconds and in its background thread, the version before its own and one of those whose records
are kept, a different one each time. If one does not match its record, this client commits nothing more until the file is
restored. A missing file that a checkpoint replaces is not damage: clean-ups of the log remove such files.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from ...storage.actions.texts import sha256, stored_text
from ...storage.errors import CorruptLogFile, ForeignCommit, LogGap, ObjectNotFound, SluiceError
from ...storage.log.paths import commit_path
from ...storage.log.segment import latest_version, list_versions
from ...storage.log.timetravel import leading_commit_info
from ...storage.stores.objects import ObjectStore
from ..errors import table_dropped
from ..nodes.context import TableContext
from ..nodes.layout import VerdictName
from ..nodes.records import BatchRecord, VersionPlan, is_closed

_FILES_EVERY_S: Final = 3.0
_PLACE_EVERY_S: Final = 4.0
"""Longer than the pause between two checks of files, so that a busy publisher makes no look of its own."""
_NEARBY: Final = "file:"
_GOLDEN: Final = 0.6180339887
_log = logging.getLogger(__name__)


class LogPresence:
    """Looks for the newest version known to be in the log.

    On a disk it looks each time; elsewhere, where a look is a request, only if no file of the log was seen in the last
    seconds.
    """

    def __init__(self, context: TableContext) -> None:
        self._context = context
        self._seen = -1
        self._looked_s = float("-inf")

    def saw(self, version: int) -> None:
        """Note that a version is in the log."""
        self._seen = max(self._seen, version)

    def found(self, since_s: float) -> None:
        """Note that a request that began at `since_s`, by the monotonic clock, read a file of the log."""
        self._looked_s = max(self._looked_s, since_s)

    def require(self, version: int) -> None:
        """Raise LogGap if the log with this version is gone, or TableDropped if the table was dropped."""
        version = max(version, self._seen)
        now_s, store = self._context.clock.monotonic_s(), self._context.objects
        if version < 0 or (now_s - self._looked_s < _PLACE_EVERY_S and not store.location.startswith(_NEARBY)):
            return
        self._looked_s = now_s
        try:
            store.head(commit_path(version))
        except ObjectNotFound:
            if latest_version(store) is not None:
                return  # the version is not published yet, or was cleaned up
            tree = self._context.tree
            root, tombstone = self._context.in_connection(lambda session: session.read_many([tree.root, tree.tombstone]))
            if tombstone is not None and (root is None or is_closed(root)):
                raise table_dropped(tree.location) from None
            raise LogGap(
                f"the log of {tree.location} is gone, which had version {version}: its folder was moved or deleted. Nothing is "
                f"written there any more; restore it, or let go of the table: sluice forget {tree.location}",
                location=tree.location,
                version=version,
            ) from None
        self.saw(version)


class RecentFiles:
    """One client's checks of the last files of one table's log. Thread-safe."""

    def __init__(self, context: TableContext, presence: LogPresence) -> None:
        """Each file found in place also counts as a look of `presence`."""
        self._context = context
        self._presence = presence
        self._looked_s = float("-inf")
        self._looks = 0
        self._damaged: VersionPlan | None = None

    def due(self) -> bool:
        """Whether a check is due; if so, the next one is due some time later."""
        now_s = self._context.clock.monotonic_s()
        if now_s - self._looked_s < _FILES_EVERY_S:
            return False
        self._looked_s = now_s
        return True

    def look(self, version: int, records: Sequence[str]) -> None:
        """Check after `version` was published; `records` are the names of the verdict records that existed before."""
        names = sorted(name for name in filter(None, map(VerdictName.parse, records)) if name.version < version)
        if not names:
            return
        self._looks += 1
        among = int(len(names) * (self._looks * _GOLDEN % 1))  # spread evenly, however fast the records grow
        for name in sorted({names[-1], names[among]}):
            try:
                node = self._context.coordination.read(self._context.tree.verdict(name))
                for plan in () if node is None else BatchRecord.decode(node.data).versions[-1:]:
                    if not self._is_sound(plan):
                        self._damaged = plan
                        _log.error("%s", self._description(plan))
            except SluiceError as trouble:
                _log.info("the log of %s was not checked: %s", self._context.tree.location, trouble)

    def require_sound(self) -> None:
        """Raise CorruptLogFile while a file of the log differs from the ratified version."""
        damaged = self._damaged
        if damaged is None:
            return
        if self._is_sound(damaged):
            self._damaged = None  # restored
            return
        raise CorruptLogFile(self._description(damaged), file=commit_path(damaged.version), location=self._context.tree.location)

    def _is_sound(self, plan: VersionPlan) -> bool:
        begun_s = self._context.clock.monotonic_s()
        try:
            sound = sha256(stored_text(self._context.objects, commit_path(plan.version))) == plan.digest
        except ObjectNotFound:  # removed by a clean-up of the log after a checkpoint, where readers begin
            # check: damage-is-no-clean-up (return -> return False and)
            return bool(list_versions(self._context.objects, plan.version).checkpoints)
        self._presence.found(begun_s)
        return sound

    def _description(self, plan: VersionPlan) -> str:
        return (
            f"{commit_path(plan.version)} of {self._context.tree.location} differs from the commit of version {plan.version}: the "
            "file was overwritten, damaged or removed. Nothing more is committed by this client until it is restored from a copy; sluice "
            "doctor shows what else is wrong"
        )


def refuse_old_data(store: ObjectStore, version: int) -> None:
    """Raise ForeignCommit if the log's version, unknown to the coordinator, was committed through sluice.

    A version put late by a client of a former table at this location does not count: it is older than the version before it.
    """
    before, info = (leading_commit_info(store, each) if each >= 0 else None for each in (version - 1, version))
    if before is None or info is None or "sluice" not in info.fields:
        return
    if (info.in_commit_timestamp or 0) <= (before.in_commit_timestamp or 0):
        return
    raise ForeignCommit(
        f"the coordinator's data of {store.location} are older than its log: they end before version {version}, which is there and was "
        "committed through sluice. Leave the log as it is, and stop the writers. Either the address names a server that was taken out of "
        "its ensemble with its old data: take it out of the address, and end it. Or the data were restored from an old copy: remove them, "
        "and rebuild them from the log (sluice recover)",
        version=version,
        location=store.location,
    )
