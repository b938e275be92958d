"""Every number of the commit protocol, with its unit in its name, and the relations that must hold between them."""

from __future__ import annotations

from typing import Final

from ..storage.dataclass import dataclass
from ..storage.errors import InvalidRequest

DEFAULT_TIMEOUT_S: Final = 120.0
"""The default time of a commit, in seconds."""
LONGEST_SESSION_S: Final = 60.0
"""ZooKeeper limits a session's timeout to twenty ticks, 40 s by default: after this time every former session is over."""
LONGEST_PUT_S: Final = 480.0
"""How long a put that began before its session ended may still take effect: six attempts of 65 s, and the pauses between."""


STAGED_BYTES_MAX = 4 * 1024 * 1024 * 1024
"""The maximum size of one transaction's staged actions: a version is one object, and S3 takes up to 5 GB in one request."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a client of one table; the defaults suit a store with tens of milliseconds per request."""

    inline_bytes_max: int = 64 * 1024
    """Actions up to this size are part of the intent's node, larger ones are staged in the object store."""
    staged_bytes_max: int = STAGED_BYTES_MAX
    """The maximum size of one transaction's actions: about 300 bytes for a removed file, 1 KB for an added one."""
    fast_path: bool = True
    """Whether a transaction that finds the queue empty is ratified without a slot, in one round trip."""
    batch_slots_max: int = 512
    """Slots decided by one multi."""
    batch_bytes_max: int = 512 * 1024
    """Size of one ratifying multi; also bounds the actions that are grouped into one version."""
    backlog_versions_max: int = 8
    """Ratified versions that may be unpublished."""
    footprint_files_max: int = 500
    """Read files listed one by one in an intent; more become coarser, never smaller."""
    patience_s: float = 0.4
    """How long a client waits for another before it does that client's work."""
    patience_s_max: float = 10.0
    """Patience doubles each time it runs out during one wait, up to this."""
    generation_slots_max: int = 1_000_000_000
    """Slots of one generation: the counter of sequential nodes is a signed 32-bit number that must not run out."""
    verdicts_kept: int = 128
    """Ratified batches whose verdict record is kept for clients that look late; after that, the log answers."""
    refusals_kept_s: float = 7 * 24 * 3600.0
    """How long a refusal is kept with its reason; each takes about 1 KB of ZooKeeper's memory."""
    publication_wait_s: float = 60.0
    """How long a committed writer waits for publication before it answers "committed, publication pending"."""

    def __post_init__(self) -> None:
        holds = (
            0 < self.inline_bytes_max * 2 <= self.batch_bytes_max < 1_000_000
            and self.inline_bytes_max <= self.staged_bytes_max <= STAGED_BYTES_MAX
            and self.batch_slots_max > 0
            and self.backlog_versions_max >= 1
            and 0 < self.patience_s <= self.patience_s_max
            and 0 < self.generation_slots_max < 2**31 - 1_000_000
            # check: records-outlast-the-backlog
            and self.verdicts_kept > self.backlog_versions_max
        )
        if not holds:
            raise InvalidRequest(f"these limits contradict one another: {self}; see sluice.coordinator.limits.Limits")
