"""Checks, beside the commits, that the last files of the log still are the ratified versions.

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
from ...storage.dataclass import dataclass
from ...storage.errors import CorruptLogFile, ObjectNotFound, SluiceError
from ...storage.log.paths import commit_path
from ...storage.log.segment import list_versions
from ..nodes.context import TableContext
from ..nodes.layout import VerdictName
from ..nodes.records import BatchRecord
from .log_presence import LogPresence

__all__ = ["Neighbourhood"]

_EVERY_S: Final = 3.0
_GOLDEN: Final = 0.6180339887
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Sealed:
    """A version and the digest of its ratified content."""

    version: int
    digest: str


class Neighbourhood:
    """The checks of one client of one table. Thread-safe."""

    def __init__(self, context: TableContext, presence: LogPresence) -> None:
        """Each file found in place also counts as a look of `presence`."""
        self._context = context
        self._presence = presence
        self._looked_s = float("-inf")
        self._looks = 0
        self._damaged: _Sealed | None = None

    def due(self) -> bool:
        """Whether a check is due; if so, the next one is due some time later."""
        now_s = self._context.clock.monotonic_s()
        if now_s - self._looked_s < _EVERY_S:
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
                for sealed in self._sealed(name):
                    if not self._is_sound(sealed):
                        self._damaged = sealed
                        _log.error("%s", self._description(sealed))
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

    def _sealed(self, name: VerdictName) -> list[_Sealed]:
        node = self._context.coordination.read(self._context.tree.verdict(name))
        if node is None:
            return []
        return [_Sealed(plan.version, plan.digest) for plan in BatchRecord.decode(node.data).versions[-1:]]

    def _is_sound(self, sealed: _Sealed) -> bool:
        begun_s = self._context.clock.monotonic_s()
        try:
            sound = sha256(stored_text(self._context.objects, commit_path(sealed.version))) == sealed.digest
        except ObjectNotFound:  # removed by a clean-up of the log after a checkpoint, where readers begin
            # check: damage-is-no-clean-up (return -> return False and)
            return bool(list_versions(self._context.objects, sealed.version).checkpoints)
        self._presence.found(begun_s)
        return sound

    def _description(self, sealed: _Sealed) -> str:
        return (
            f"{commit_path(sealed.version)} of {self._context.tree.location} differs from the commit of version {sealed.version}: the "
            "file was overwritten, damaged or removed. Nothing more is committed by this client until it is restored from a copy; sluice "
            "doctor shows what else is wrong"
        )
