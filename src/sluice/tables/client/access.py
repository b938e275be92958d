"""Opening a table: its object store, its coordinator, and the snapshots that a client keeps.

Ratified versions may be unpublished, because their publisher died or is about to publish. Other clients learn from the log alone
whether a table exists and is sluice's; here ratified versions count, too.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ...coordinator.errors import CoordinatorUnavailable, OutcomeUnknown
from ...coordinator.facade import registry
from ...coordinator.facade.maintenance import id_in
from ...coordinator.facade.table import CoordinatedTable
from ...coordinator.facade.values import Head, Timeout
from ...coordinator.limits import Limits
from ...storage.actions import Action, actions_of
from ...storage.actions.features import is_managed
from ...storage.actions.texts import stored_text
from ...storage.caches import ForkSafeLock
from ...storage.constants import PROBE_PREFIX
from ...storage.errors import (
    CorruptLogFile,
    ForeignCommit,
    InvalidRequest,
    LogGap,
    NotATable,
    ObjectNotFound,
    TableNotFound,
    Unavailable,
    VersionNotFound,
)
from ...storage.log.paths import commit_path
from ...storage.log.segment import latest_version
from ...storage.log.snapshot import Snapshot
from ...storage.stores.objects import ObjectStore
from .address import TableAddress

_SETTLE_TIMEOUT_S: Final = 120.0
_RELOAD_BEYOND_VERSIONS = 200
_SNAPSHOTS_KEPT = 8
_SNAPSHOTS_BYTES_MAX = 256 * 1024 * 1024
"""The memory for snapshots besides the newest; the file lists of a table with a million files alone take more."""


def _begun_only(store: ObjectStore) -> bool:
    """Whether each object has the id of a transaction in its name: a log, and files of others, have none."""
    return all(each.key.startswith(PROBE_PREFIX) or id_in(each.key) is not None for each in store.list_from("", recursive=True))


def _begun(store: ObjectStore) -> TableNotFound:
    return TableNotFound(
        f"there is no table at {store.location}: transactions that would have created it left files, and have not committed; create the "
        "table, and a vacuum removes those files",
        location=store.location,
    )


class Access:
    """A table in this process: its coordinator's side (None if read-only) and its newest snapshots.

    The last few are kept, since an operation may be based on one that others have moved on from; they share their common
    parts.

    Thread-safe.
    """

    def __init__(self, address: TableAddress, store: ObjectStore, ours: CoordinatedTable | None, consistency: str = "latest") -> None:
        self.address = address
        self.store = store
        self._ours = ours
        self.consistency = consistency
        self._snapshots: dict[int, Snapshot] = {}
        self._shown: Snapshot | None = None
        self._lock = ForkSafeLock()

    @staticmethod
    def opened(address: TableAddress, limits: Limits | None = None, consistency: str = "latest") -> Access:
        """The table, `published` or `coordinated` depending on the level. Raises InvalidRequest for an unknown level."""
        return Access.published(address) if consistency == "published" else Access.coordinated(address, limits, consistency)

    @staticmethod
    def published(address: TableAddress) -> Access:
        """Read-only, without a coordinator: any Delta table."""
        access = Access(address, address.store(), None, "published")
        access.latest()
        return access

    @staticmethod
    def coordinated(address: TableAddress, limits: Limits | None = None, consistency: str = "latest") -> Access:
        """A table that sluice manages; `consistency` is the default level of its reads.

        Raises TableNotFound, NotATable (also for a Delta table that is not attached), ForeignCommit, UnsupportedFeature.
        Files that writers left which did not come to create the table are no table.
        """
        store = address.store()
        table: CoordinatedTable | None = None
        try:
            snapshot = Snapshot.load(store)
        except (TableNotFound, NotATable) as missing:
            table = address.coordinated(limits)
            if not table.exists() or table.head().version < 0:
                if isinstance(missing, NotATable) and _begun_only(store):
                    raise _begun(store) from missing
                raise
            snapshot = first_published(table)
        except CorruptLogFile:
            table = address.coordinated(limits)
            latest = latest_version(store)
            if latest is not None and table.exists():
                Access(address, store, table)._refuse_beyond(latest, table.head())
            raise
        table = table or address.coordinated(limits)
        registry.require_own_coordinator(table, snapshot)
        head = table.head_beside_log() if is_managed(snapshot.protocol) else None
        if head is None or head.detached:
            snapshot = all_published(table, snapshot)
            if not is_managed(snapshot.protocol):
                raise NotATable(
                    f"{address.location} is a Delta table that sluice does not manage; bring it in with "
                    f"sluice.Table.attach({address.location!r}), or read it with consistency='published'",
                    location=address.location,
                )
            registry.require_own_coordinator(table, snapshot)
            head = table.head_beside_log()
        access = Access(address, store, table, consistency)
        access._keep(snapshot)
        access._refuse_foreign(snapshot, head)
        if snapshot.version < head.version:
            access.latest()  # raises LogGap if published versions are missing
        return access

    @property
    def ours(self) -> CoordinatedTable:
        """The table at its coordinator. Raises InvalidRequest if it was opened read-only."""
        if self._ours is None:
            raise InvalidRequest(
                f"{self.address.location} was opened with consistency='published', which only reads; open it without that to write"
            )
        return self._ours

    @property
    def reads_only(self) -> bool:
        """Whether the table was opened without its coordinator."""
        return self._ours is None

    def new_transaction_id(self) -> str:
        """A GUID that names a transaction for ever and is part of its files' names, so that their owner is known.

        Raises LogGap or TableDropped if the log that this object has read is gone, CorruptLogFile if its times are out of order: then
        nothing is written.
        """
        known = self._newest()
        if known is not None:
            known.require_order()
        return self.ours.new_transaction_id(-1 if known is None else known.version)

    def read(self, version: int | None = None, consistency: str | None = None, *, timeout_s: Timeout = _SETTLE_TIMEOUT_S) -> Snapshot:
        """The snapshot for a reader, by a level (None: the table's); `version` selects one.

        =============  ==================================================================================================
        ``latest``     includes the last commit acknowledged to anybody before the call
        ``published``  what the object store shows, without the coordinator: works while that is away
        ``serial``     like ``latest``, after everything queued now was decided, even if its writer is dead
        ``session``    includes everything committed through this table object; no round trip if a snapshot in hand does
        =============  ==================================================================================================

        `timeout_s` limits the wait for the coordinator, and for undecided transactions ("serial"). Raises InvalidRequest for
        an unknown level and, in a table without a coordinator, for every level but "published"; VersionNotFound;
        Unavailable; TreeReplaced.
        """
        level = self.consistency if consistency is None else consistency
        if level == "published" or self._ours is None:
            if level != "published":
                raise InvalidRequest(
                    f"{self.address.location} was opened with consistency='published', so consistency={level!r} cannot be given: "
                    "open it without that",
                    consistency=level,
                )
            return self._read_published(version)
        try:
            with self._ours.bounding(timeout_s) as deadline:
                # check: what-is-in-hand-is-of-this-tree
                if not self._ours.is_same_session:
                    self._ours.head()  # the snapshot in hand may have been lost with the tree it was ratified in
                if version is not None:
                    return self.at(version)
                if level == "session":
                    return self._read_session()
                if level == "serial":
                    # check: serial-settles-the-queue
                    self._ours.settle(deadline)
                head = self._ours.fresh_head()
                found = self._decided(head)
                # check: who-reads-helps-to-publish
                self._ours.help_to_publish(head)
                return found
        except OutcomeUnknown as undecided:
            raise Unavailable(
                f"the queue of {self.address.location} could not be decided in the time given (transaction "
                f"{undecided.transaction_id} is the last in it): repeat the read, or read with consistency='latest'",
                location=self.address.location,
            ) from undecided
        except CoordinatorUnavailable as away:
            advice = "consistency='published' reads what is published without the coordinator"
            raise type(away)(f"{away.message}; {advice}", **away.details) from away

    def current(self) -> Snapshot:
        """The newest snapshot in this process, read from the log if there is none yet."""
        return self._newest() or self.latest()

    def latest(self) -> Snapshot:
        """The newest ratified version; without a coordinator, the newest published one."""
        return self.at(None)

    def at(self, version: int | None) -> Snapshot:
        """The snapshot of a version. Raises VersionNotFound if it does not exist (any more), InvalidRequest if it is not a number."""
        if self._ours is None:
            if version is not None:
                return Snapshot.load(self.store, version=version)
            known = self._newest()
            fresh = Snapshot.load(self.store) if known is None else known.refresh(self.store)
            return self._keep(fresh)
        known = None if version is None else self._snapshots.get(version)
        if known is not None:
            return known
        head = self._ours.head()
        if head.version < 0:  # the server of a new session lags behind the table's first version
            head = self._ours.head_beside_log()
        if version is not None and version < head.version:
            return self._advanced(version)
        if version is not None and version > head.version:
            head = self._ours.fresh_head()  # includes every acknowledged version
            if version > head.version:
                raise self.beyond(version, head.version)
        return self._decided(head)

    def beyond(self, version: int, latest: int) -> VersionNotFound:
        """The error for a version after the latest one."""
        location = self.address.location
        return VersionNotFound(
            f"version {version} of {location} is not available: the latest version is {latest}",
            location=location,
            version=version,
            latest=latest,
        )

    def _decided(self, head: Head) -> Snapshot:
        known = self._snapshots.get(head.version)
        return known if known is not None else self._keep(self._advanced(head.version))

    def _read_session(self) -> Snapshot:
        """The newest snapshot in hand if it includes everything committed here, else a new one."""
        known, mine = self._newest(), self.ours.last_committed
        if known is None:
            return self.latest()
        # check: sessions-show-their-own (always)
        if mine <= known.version:
            return known
        if mine - known.version > _RELOAD_BEYOND_VERSIONS:
            return self._keep(self._advanced(mine))
        versions = range(known.version + 1, mine + 1)
        return self._keep(known.advance([(version, self._commit(version)) for version in versions]))

    def _commit(self, version: int) -> Iterable[Action]:
        """A ratified version: as this client made it, else from its file, else (if unpublished) from the coordinator."""
        content = self.ours.log.known(version)
        try:
            return actions_of(content or stored_text(self.store, commit_path(version)), name=commit_path(version))
        except ObjectNotFound:
            return self.ours.log.actions(version)

    def _read_published(self, version: int | None) -> Snapshot:
        if self._ours is None:
            return self.at(version)
        if version is not None:
            return Snapshot.load(self.store, version=version)
        # Kept apart from the others: nothing but the head, which is not asked here, confirms what the log shows; and
        # ratified versions in hand may be ahead of the log, or lost, and their numbers reused.
        self._shown = Snapshot.load(self.store) if self._shown is None else self._shown.refresh(self.store)
        return self._shown

    def _published_version(self) -> int:
        """The last version in the log; publishes the first version here if nobody has yet."""
        published = self.ours.published_version()
        return published if published >= 0 else self.ours.publish()

    def _advanced(self, version: int) -> Snapshot:
        known = self._newest()
        if known is None or version < known.version or version - known.version > _RELOAD_BEYOND_VERSIONS:
            # never beyond: a version that was not ratified does not count
            known = Snapshot.load(self.store, version=min(version, self._published_version()))
        versions = range(known.version + 1, version + 1)
        try:
            return known.advance(self.ours.log.commits(versions)) if versions else known
        except LogGap as gap:
            if known.version not in self._snapshots:
                raise
            with self._lock:  # perhaps it was kept so long that the log after it was cleaned up
                self._snapshots.clear()
            try:
                return self._advanced(version)
            except VersionNotFound:
                raise gap from None

    def _keep(self, fresh: Snapshot) -> Snapshot:
        with self._lock:
            self._snapshots[fresh.version] = fresh
            while len(self._snapshots) > _SNAPSHOTS_KEPT or self._held_beside(fresh) > _SNAPSHOTS_BYTES_MAX:
                del self._snapshots[min(self._snapshots)]
        return fresh

    def _held_beside(self, fresh: Snapshot) -> int:
        """The bytes of the snapshots besides this one."""
        held: dict[int, int] = {}
        for snapshot in self._snapshots.values():
            held.update(snapshot.held)
        return sum(size for table, size in held.items() if table not in fresh.held)

    def _newest(self) -> Snapshot | None:
        with self._lock:
            return self._snapshots[max(self._snapshots)] if self._snapshots else None

    def _refuse_foreign(self, snapshot: Snapshot, head: Head) -> None:
        """Raise for a version in the log beyond the head: it was not ratified, so somebody bypasses the coordinator."""
        location = self.address.location
        if head.table_id and snapshot.metadata.id != head.table_id:
            raise ForeignCommit(
                f"the log of {location} belongs to another table (id {snapshot.metadata.id}) than the one the coordinator keeps "
                f"(id {head.table_id}): its folder was replaced; restore it, or use another location",
                location=location,
                version=snapshot.version,
            )
        self._refuse_beyond(snapshot.version, head)

    def _refuse_beyond(self, latest: int, head: Head) -> None:
        location = self.address.location
        if latest <= head.version:
            return
        now = self.ours.fresh_head()  # a lagging server would make its own commits look foreign
        if latest > now.version >= 0:
            # check: old-data-are-no-foreign-commit
            registry.refuse_old_data(self.store, now.version + 1)
            raise ForeignCommit(
                f"version {now.version + 1} in the log of {location} was not committed through sluice (the log has version "
                f"{latest}, the coordinator ratified {now.version}); stop that writer, move the log's files from "
                "that version on to another place, and write their rows again through sluice",
                version=now.version + 1,
                location=location,
            )


def first_published(table: CoordinatedTable) -> Snapshot:
    """The snapshot of a table that the coordinator knows but the log did not show: its first version may not be published yet."""
    if table.published_version() < 0:
        table.publish()
    try:
        return Snapshot.load(table.store)
    except (TableNotFound, NotATable) as missing:
        version = table.head().version
        raise LogGap(
            f"the coordinator keeps a table at {table.location}, at version {version}, but its log is gone ({missing.message}): "
            f"restore the log from a copy, or let go of the table: sluice forget {table.location}",
            location=table.location,
            version=version,
        ) from missing


def all_published(table: CoordinatedTable, snapshot: Snapshot) -> Snapshot:
    """The table after everything that is ratified, publishing it here if nobody has yet.

    Needed before deciding whether a table is sluice's: the version that attached or detached it may be one of those. Raises
    ForeignCommit if another engine wrote in its place, and Unavailable.
    """
    if not table.exists():
        return snapshot
    table.publish(up_to_date=True)
    return snapshot.refresh(table.store)
