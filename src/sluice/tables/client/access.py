"""Opening a table: its object store, its place in the coordinator's tree, and the snapshots a client keeps."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Final

from ...coordinator.commit.committer import Committer
from ...coordinator.commit.outdated_data import refuse_old_data
from ...coordinator.errors import CoordinatorUnavailable, OutcomeUnknown
from ...coordinator.limits import Limits
from ...coordinator.nodes.context import TableContext
from ...coordinator.nodes.coordinator_id import require_own
from ...coordinator.nodes.creation import check_tree, require_head, require_history
from ...coordinator.nodes.records import Head
from ...coordinator.service.clock import Timeout, bounding
from ...storage.actions import Action, actions_of
from ...storage.actions.features import is_managed
from ...storage.actions.texts import stored_text
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
from .unpublished_versions import all_published, first_published

__all__ = ["CONSISTENCIES", "Access", "check_consistency", "require_own_coordinator"]

CONSISTENCIES: Final = ("latest", "published", "serial", "session")
_SETTLE_TIMEOUT_S: Final = 120.0
_RELOAD_BEYOND_VERSIONS = 200
_SNAPSHOTS_KEPT = 8
_SNAPSHOTS_BYTES_MAX = 256 * 1024 * 1024
"""What is kept beside the newest; the lists of files of a table with a million files alone take more."""


def check_consistency(consistency: str) -> str:
    """The level itself. Raises InvalidRequest for one there is not.

    =============  ==================================================================================================
    ``latest``     never older than the last commit acknowledged to anybody before the call
    ``published``  what the object store shows, without asking the coordinator: works while that is away
    ``serial``     like ``latest``, after everything that is queued now was decided, whoever filed it and may be dead
    ``session``    at least what was committed through this table object; no round trip when that is in hand
    =============  ==================================================================================================
    """
    if consistency not in CONSISTENCIES:
        raise InvalidRequest(f"consistency is {consistency!r}; use one of {', '.join(CONSISTENCIES)}", consistency=consistency)
    return consistency


def require_own_coordinator(address: TableAddress, context: TableContext, snapshot: Snapshot) -> None:
    """Raise WrongCoordinator when the table names another coordinator than the one of the address."""
    configuration = snapshot.configuration if is_managed(snapshot.protocol) else {}
    context.in_session(lambda session: require_own(session, address.coordinator, configuration, address.location))


class Access:
    """A table as this process sees it: a committer (None when read-only) and the newest snapshots it has.

    The last few are kept, for an operation may be made on one that others have moved on from; they share what is alike.

    Safe for several threads.
    """

    def __init__(self, address: TableAddress, store: ObjectStore, committer: Committer | None, consistency: str = "latest") -> None:
        self.address = address
        self.store = store
        self.committer = committer
        self.consistency = check_consistency(consistency)
        self._snapshots: dict[int, Snapshot] = {}
        self._shown: Snapshot | None = None
        self._head: Head | None = None
        self._lock = threading.Lock()

    @staticmethod
    def opened(address: TableAddress, limits: Limits | None = None, consistency: str = "latest") -> Access:
        """The table as `published` or `coordinated` has it, whichever the level asks for. Raises InvalidRequest for an unknown level."""
        check_consistency(consistency)
        return Access.published(address) if consistency == "published" else Access.coordinated(address, limits, consistency)

    @staticmethod
    def published(address: TableAddress) -> Access:
        """Read-only, without a coordinator: any Delta table."""
        access = Access(address, address.store(), None, "published")
        access.latest()
        return access

    @staticmethod
    def coordinated(address: TableAddress, limits: Limits | None = None, consistency: str = "latest") -> Access:
        """A table that sluice manages; `consistency` is what its reads go by where they do not say.

        Raises TableNotFound, NotATable (also for a Delta table that is not attached), ForeignCommit, UnsupportedFeature.
        """
        store = address.store()
        context: TableContext | None = None
        try:
            snapshot = Snapshot.load(store)
        except (TableNotFound, NotATable):
            context = address.context(limits)
            if not check_tree(context) or require_head(context).version < 0:
                raise
            snapshot = first_published(context)
        except CorruptLogFile:
            context = address.context(limits)
            latest = latest_version(store)
            if latest is not None and check_tree(context):
                Access(address, store, Committer(context))._refuse_beyond(latest, require_head(context))
            raise
        context = context or address.context(limits)
        require_own_coordinator(address, context, snapshot)
        head = require_history(context) if is_managed(snapshot.protocol) else None
        if head is None or head.detached:
            snapshot = all_published(context, snapshot)
            if not is_managed(snapshot.protocol):
                raise NotATable(
                    f"{address.location} is a Delta table that sluice does not manage; bring it in with "
                    f"sluice.Table.attach({address.location!r}), or read it with consistency='published'",
                    location=address.location,
                )
            require_own_coordinator(address, context, snapshot)
            head = require_history(context)
        access = Access(address, store, Committer(context), consistency)
        access._keep(snapshot)
        access._refuse_foreign(snapshot, head)
        if snapshot.version < head.version:
            access.latest()  # raises LogGap when what was published is not there any more
        return access

    @property
    def ours(self) -> Committer:
        """The committer. Raises InvalidRequest when the table was opened read-only."""
        if self.committer is None:
            raise InvalidRequest(
                f"{self.address.location} was opened with consistency='published', which only reads; open it without that to write"
            )
        return self.committer

    def head(self, *, ahead: bool = False) -> Head:
        """The decided state of the table, as of now. Raises ProtocolMismatch when writers of another node protocol took over.

        With `ahead` the same look serves a commit that follows soon, where that will not queue anyhow.
        """
        self._head = require_head(self.ours.context, ahead=ahead and self.ours.tries_directly, published=not ahead)
        return self._head

    def require_log(self) -> None:
        """Raise LogGap or TableDropped when the log is gone that this object has read."""
        known = self._newest()
        if known is not None:
            self.ours.publisher.log_presence.require(known.version)

    def known_head(self) -> Head:
        """The head as this client saw it last, which is enough for what only asks whether anything changed since."""
        return self._head or self.head()

    def fresh_head(self) -> Head:
        """The decided state, not older than what anybody was told before this call.

        One round trip more than `head`, which a server that is behind may answer: only reads need it, for a write that was
        made on an old state is compared with what came since.
        """
        return self.ours.context.up_to_date(self.head)

    def read(self, version: int | None = None, consistency: str | None = None, *, timeout_s: Timeout = _SETTLE_TIMEOUT_S) -> Snapshot:
        """The snapshot a reader gets, by a level of `check_consistency` (None: the table's); `version` asks for that one.

        `timeout_s` bounds the wait for the coordinator, and for undecided transactions ("serial"). Raises InvalidRequest for an
        unknown level and, in a table without a coordinator, for every level but "published"; VersionNotFound; Unavailable;
        TreeReplaced.
        """
        level = check_consistency(self.consistency if consistency is None else consistency)
        if level == "published" or self.committer is None:
            if level != "published":
                raise InvalidRequest(
                    f"{self.address.location} was opened with consistency='published', so consistency={level!r} cannot be given: "
                    "open it without that",
                    consistency=level,
                )
            return self._read_published(version)
        try:
            with bounding(timeout_s, self.committer.context.clock) as deadline:
                if not self.committer.context.same_session:
                    self.head()  # what is in hand may have been lost with the tree it was ratified in
                if version is not None:
                    return self.at(version)
                if level == "session":
                    return self._read_session()
                if level == "serial":
                    self.committer.settle_queue(deadline)
                head = self.fresh_head()
                found = self._decided(head)
                self.committer.help_to_publish(head)
                return found
        except OutcomeUnknown as undecided:
            raise Unavailable(
                f"what is queued for {self.address.location} could not be decided in the time given (transaction "
                f"{undecided.transaction_id} is the last of it): repeat the read, or read with consistency='latest'",
                location=self.address.location,
            ) from undecided
        except CoordinatorUnavailable as away:
            advice = "consistency='published' reads what is published without the coordinator"
            raise type(away)(f"{away.message}; {advice}", **away.details) from away

    def current(self) -> Snapshot:
        """The newest snapshot this process has, read from the log when there is none yet."""
        return self._newest() or self.latest()

    def latest(self) -> Snapshot:
        """The newest ratified version; without a coordinator, the newest published one."""
        return self.at(None)

    def at(self, version: int | None) -> Snapshot:
        """The snapshot of a version. Raises VersionNotFound when there is no such version (any more), InvalidRequest for no number."""
        self._require_number(version)
        if self.committer is None:
            if version is not None:
                return Snapshot.load(self.store, version=version)
            known = self._newest()
            fresh = Snapshot.load(self.store) if known is None else known.refresh(self.store)
            return self._keep(fresh)
        known = None if version is None else self._snapshots.get(version)
        if known is not None:
            return known
        head = self.head()
        if head.version < 0:  # the server of a new session is behind the table's first version
            head = self._head = require_history(self.committer.context)
        if version is not None and version < head.version:
            return self._advanced(version)
        if version is not None and version > head.version:
            head = self.fresh_head()  # whoever was told of the version finds it
            if version > head.version:
                raise VersionNotFound(
                    f"version {version} of {self.address.location} is not available: the latest version is {head.version}",
                    location=self.address.location,
                    version=version,
                    latest=head.version,
                )
        return self._decided(head)

    def _decided(self, head: Head) -> Snapshot:
        known = self._snapshots.get(head.version)
        return known if known is not None else self._keep(self._advanced(head.version))

    def _read_session(self) -> Snapshot:
        """The newest snapshot in hand where it holds all that was committed here, else one that does."""
        known, mine = self._newest(), self.ours.last_committed
        if known is None:
            return self.latest()
        if mine <= known.version:
            return known
        if mine - known.version > _RELOAD_BEYOND_VERSIONS:
            return self._keep(self._advanced(mine))
        versions = range(known.version + 1, mine + 1)
        return self._keep(known.advance([(version, self._commit(version)) for version in versions]))

    def _commit(self, version: int) -> Iterable[Action]:
        """A ratified version: as this client made it, else from its file, else (it is not published yet) from the coordinator."""
        content = self.ours.log.known(version)
        try:
            return actions_of(content or stored_text(self.store, commit_path(version)), name=commit_path(version))
        except ObjectNotFound:
            return self.ours.log.actions(version)

    def _read_published(self, version: int | None) -> Snapshot:
        if self.committer is None:
            return self.at(version)
        if version is not None:
            self._require_number(version)
            return Snapshot.load(self.store, version=version)
        # Kept apart from the others: nobody vouches for what the log shows but the head, which is not asked here, and what was
        # ratified and is in hand may be ahead of the log, or be lost, and its number another version's.
        self._shown = Snapshot.load(self.store) if self._shown is None else self._shown.refresh(self.store)
        return self._shown

    @staticmethod
    def _require_number(version: object) -> None:
        if version is not None and type(version) is not int:
            raise InvalidRequest(f"version {version!r} is no version: give a whole number, 0 or more", version=version)

    def _published_version(self) -> int:
        """How far the log goes; the first version is published here when nobody has done so yet."""
        state = self.ours.context.read_published()
        return state[0].version if state is not None and state[0].version >= 0 else self.ours.publisher.publish_pending().version

    def _advanced(self, version: int) -> Snapshot:
        known = self._newest()
        if known is None or version < known.version or version - known.version > _RELOAD_BEYOND_VERSIONS:
            # never what lies beyond: a version that was not ratified is none
            known = Snapshot.load(self.store, version=min(version, self._published_version()))
        versions = range(known.version + 1, version + 1)
        try:
            return known.advance(self.ours.log.commits(versions)) if versions else known
        except LogGap as gap:
            if known.version not in self._snapshots:
                raise
            with self._lock:  # perhaps it lay here for so long that the log after it was cleaned up
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
        """The bytes that the snapshots take beside this one."""
        held: dict[int, int] = {}
        for snapshot in self._snapshots.values():
            held.update(snapshot.held)
        return sum(size for table, size in held.items() if table not in fresh.held)

    def _newest(self) -> Snapshot | None:
        with self._lock:
            return self._snapshots[max(self._snapshots)] if self._snapshots else None

    def _refuse_foreign(self, snapshot: Snapshot, head: Head) -> None:
        """A version in the log beyond the head was not ratified: somebody writes past the coordinator."""
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
        now = self.fresh_head()  # a server that is behind would make an accusation of its own commits
        if latest > now.version >= 0:
            refuse_old_data(self.store, now.version + 1)
            raise ForeignCommit(
                f"version {now.version + 1} in the log of {location} was not committed through sluice (the log holds version "
                f"{latest}, the coordinator ratified {now.version}); stop that writer, move the log's files from "
                "that version on to another place, and write their rows again through sluice",
                version=now.version + 1,
                location=location,
            )
