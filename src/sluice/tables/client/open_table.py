"""A table that is open in this process, with the snapshots at hand; and how it is opened.

Ratified versions may be unpublished, because their publisher died or is about to publish. Here they count; other clients read the log
alone.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, TypeAlias, TypedDict, TypeVar

from cachetools import LRUCache

from ...coordinator import api
from ...coordinator.api import Timeout
from ...coordinator.errors import CoordinatorUnavailable, TableMoved, WrongCoordinator
from ...coordinator.limits import DEFAULT_TIMEOUT_S, Limits
from ...storage.actions import Action, actions_of
from ...storage.actions.features import is_managed
from ...storage.actions.texts import stored_text
from ...storage.caches import ForkSafeLock
from ...storage.constants import PROBE_PREFIX
from ...storage.dataclass import dataclass
from ...storage.errors import (
    Corrupt,
    CorruptLogFile,
    ForeignCommit,
    InvalidRequest,
    LogGap,
    NotATable,
    ObjectNotFound,
    TableNotFound,
    VersionNotFound,
)
from ...storage.log.paths import commit_path
from ...storage.log.segment import latest_version
from ...storage.log.snapshot import Snapshot
from ...storage.stores.objects import ObjectStore
from .address import TableAddress
from .published_table import PublishedTable, beyond

_T = TypeVar("_T")
_SETTLE_TIMEOUT_S: Final = 120.0
_RELOAD_BEYOND_VERSIONS = 200
_SNAPSHOTS_KEPT = 8
_SNAPSHOTS_BYTES_MAX = 256 * 1024 * 1024
"""The memory for snapshots besides the newest; the file lists of a table with a million files alone take more."""


class OpenArgs(TypedDict, total=False):
    """How a table is reached, and how it commits."""

    coordinator: str | None
    """`zk://host:port,.../chroot` or `embedded://`; None: SLUICE_COORDINATOR, else `embedded://`."""
    storage_options: Mapping[str, str] | None
    """Of the object store, such as {"region": "eu-west-1"}."""
    application: str | None
    """The name by which others see this client."""
    ack: str
    """When a write returns: "published" (any engine reads it) or "ratified" (decided for good, one object-store write earlier)."""
    timeout_s: float
    """How long opening and each commit may take, in seconds."""


@dataclass(frozen=True, slots=True)
class Opening:
    """What the keywords of `OpenArgs` say."""

    coordinator: str | None = None
    storage_options: Mapping[str, str] | None = None
    application: str | None = None
    ack: str = "published"
    timeout_s: float = DEFAULT_TIMEOUT_S

    def at(self, location: str | os.PathLike[str]) -> TableAddress:
        """The address of the table at a location."""
        return TableAddress.of(location, self.coordinator, self.storage_options, self.application)


class OpenTable(api.CoordinatedTable):
    """A coordinated table with its last few snapshots, which operations may be based on; they share common parts. Thread-safe."""

    def __init__(self, address: TableAddress, context: api.TableContext, consistency: str = "latest") -> None:
        """`consistency` is the level of reads that name none."""
        super().__init__(context)
        self.address = address
        self.consistency = consistency
        self._published = PublishedTable(address, self.store)
        """What the log shows, kept apart from the snapshots: nothing but the head confirms it; and ratified versions at hand may be ahead
        of the log, or lost, and their numbers reused.
        """
        self.successor: OpenTable | None = None
        """The same table at the coordinator to which it moved, once this client has met that."""
        self.faces: weakref.WeakSet[Any] = weakref.WeakSet()
        """The objects that programs use for it, which `_go_on_with` that one then."""
        self._following = ForkSafeLock()
        self._snapshots: dict[int, Snapshot] = {}
        self._snapshots_lock = ForkSafeLock()

    @staticmethod
    def of(address: TableAddress, limits: Limits | None = None, consistency: str = "latest") -> OpenTable:
        """Connects to the coordinator and announces this client, without asking whether a table exists. Raises CoordinatorUnavailable."""
        return OpenTable(address, address.context(limits), consistency)

    def new_transaction_id(self) -> str:
        """A GUID that names a transaction for ever and is part of its files' names, so that their owner is known.

        Raises, before anything is written, LogGap or TableDropped if the log that was read is gone, CorruptLogFile if its times are out of
        order.
        """
        if (at_hand := self._newest()) is not None:
            at_hand.require_order()
            self.publisher.log_checks.require_place(at_hand.version)
        return self.context.new_transaction_id()

    def read(self, version: int | None = None, consistency: str | None = None, *, timeout_s: Timeout = _SETTLE_TIMEOUT_S) -> Snapshot:
        """The snapshot for a reader, by a level (None: the table's); `version` selects one.

        =============  ==================================================================================================
        ``latest``     includes the last commit acknowledged to anybody before the call
        ``published``  what the object store shows, without the coordinator: works while that is away
        ``serial``     like ``latest``, after everything queued now was decided, even if its writer is dead
        ``session``    includes everything committed through this table object; no round trip if a snapshot in hand does
        =============  ==================================================================================================

        `timeout_s` limits the wait for the coordinator, and for undecided transactions ("serial"). Raises InvalidRequest for an unknown
        level, VersionNotFound, Unavailable, TreeReplaced.
        """
        level = self.consistency if consistency is None else consistency
        if level == "published":
            return self._published.at(version)
        try:
            with api.bounding(timeout_s, self.clock) as deadline:
                try:
                    return self._read_here(version, level, deadline)
                except TableMoved as moved:
                    return self.follow(moved).read(version, consistency, timeout_s=deadline)
        except CoordinatorUnavailable as away:
            advice = "consistency='published' reads what is published without the coordinator"
            raise type(away)(f"{away.message}; {advice}", **away.details) from away

    def _read_here(self, version: int | None, level: str, deadline: api.Deadline) -> Snapshot:
        # check: what-is-in-hand-is-of-this-tree
        self.require_same_tree()  # the snapshot in hand may have been lost with the tree it was ratified in
        if version is not None:
            return self.at(version)
        if level == "session":
            return self._read_session()
        if level == "serial":
            # check: serial-settles-the-queue
            api.settle_queue(self, deadline)
        head = self.fresh_head()
        snapshot = self._decided(head)
        # check: who-reads-helps-to-publish
        self.help_to_publish(head)
        return snapshot

    def current(self) -> Snapshot:
        """The newest snapshot in this process, read from the log if there is none yet."""
        return self._newest() or self.latest()

    def latest(self) -> Snapshot:
        """The newest ratified version."""
        return self.at(None)

    def at(self, version: int | None) -> Snapshot:
        """The snapshot of a version. Raises VersionNotFound if it does not exist (any more), InvalidRequest if it is not a number."""
        at_hand = None if version is None else self._snapshots.get(version)
        if at_hand is not None:
            return at_hand
        try:
            head = self.head()
            if head.version < 0:  # the server of a new session lags behind the table's first version
                head = self.head_beside_log()
            if version is not None and version < head.version:
                return self._advanced(version)
            if version is not None and version > head.version:
                head = self.fresh_head()  # includes every acknowledged version
                if version > head.version:
                    raise beyond(self.location, version, head.version)
            return self._decided(head)
        except TableMoved as moved:
            return self.follow(moved).at(version)

    def follow(self, moved: TableMoved) -> OpenTable:
        """The table at the coordinator to which it moved; a move whose client died is finished. The faces of this object use that one.

        Raises TableMoved if that place means nothing on this host, CoordinatorUnavailable, which names it, if it cannot be reached.
        """
        if moved.details.get("location") != self.location:
            raise moved
        with self._following:
            if self.successor is None:
                self.successor = self._elsewhere()
            for face in tuple(self.faces):
                if face.access is self:  # others have gone on already, or came here since
                    face._go_on_with(self.successor)
        return self.successor

    def _elsewhere(self) -> OpenTable:
        way, address, limits = api.way_of(self.context), self.address, self.context.limits
        try:
            if way is not None:
                address = replace(address, coordinator=api.address_after(self.context, way))
                api.arrive(self, OpenTable.of(address, limits), way)
            there = open_coordinated(address, limits, self.consistency)
        except CoordinatorUnavailable as away:
            at = "" if way is None else f"; {self.location} moved to {way.to}: open it with that coordinator, and the options it needs"
            raise type(away)(f"{away.message}{at}", **away.details) from away
        if (newest := self._newest()) is not None:
            there.keep(newest)
        return there

    def _decided(self, head: api.Head) -> Snapshot:
        at_hand = self._snapshots.get(head.version)
        return at_hand if at_hand is not None else self.keep(self._advanced(head.version))

    def _read_session(self) -> Snapshot:
        """The newest snapshot in hand if it includes everything committed here, else a new one."""
        at_hand, mine = self._newest(), self.last_committed
        if at_hand is None:
            return self.latest()
        # check: sessions-show-their-own (always)
        if mine <= at_hand.version:
            return at_hand
        if mine - at_hand.version > _RELOAD_BEYOND_VERSIONS:
            return self.keep(self._advanced(mine))
        commits: list[tuple[int, Iterable[Action]]] = []
        for version in range(at_hand.version + 1, mine + 1):
            name, made_here = commit_path(version), self.log.known(version)
            try:
                commits.append((version, actions_of(made_here or stored_text(self.store, name), name=name)))
            except ObjectNotFound:  # it is not published yet
                commits.append((version, self.log.actions(version)))
        return self.keep(at_hand.advance(commits))

    def _advanced(self, version: int) -> Snapshot:
        at_hand = self._newest()
        if at_hand is None or version < at_hand.version or version - at_hand.version > _RELOAD_BEYOND_VERSIONS:
            published = self.published_version()
            published = published if published >= 0 else self.publish()  # the first version, which nobody has published yet
            # never beyond: a version that was not ratified does not count
            at_hand = Snapshot.load(self.store, version=min(version, published))
        versions = range(at_hand.version + 1, version + 1)
        try:
            return at_hand.advance(self.log.commits(versions)) if versions else at_hand
        except LogGap as gap:
            if at_hand.version not in self._snapshots:
                raise
            with self._snapshots_lock:  # perhaps it was kept so long that the log after it was cleaned up
                self._snapshots.clear()
            try:
                return self._advanced(version)
            except VersionNotFound:
                raise gap from None

    def at_hand(self, version: int) -> Snapshot | None:
        """The snapshot of a published version that one in memory is or leads to; None if there is none, or it is far behind.

        Raises TreeReplaced if what is in memory may be lost.
        """
        self.require_same_tree()
        newest = self._newest()
        if version in self._snapshots or newest is None or not 0 <= version - newest.version <= _RELOAD_BEYOND_VERSIONS:
            return self._snapshots.get(version)
        return newest.advance(self.log.commits(range(newest.version + 1, version + 1)))

    def keep(self, fresh: Snapshot) -> Snapshot:
        """Keep a snapshot, which was read elsewhere; returns it."""
        with self._snapshots_lock:
            self._snapshots[fresh.version] = fresh
            while True:
                beside = {part: size for each in self._snapshots.values() for part, size in each.held.items() if part not in fresh.held}
                if len(self._snapshots) <= _SNAPSHOTS_KEPT and sum(beside.values()) <= _SNAPSHOTS_BYTES_MAX:
                    return fresh
                del self._snapshots[min(self._snapshots)]

    def _newest(self) -> Snapshot | None:
        with self._snapshots_lock:
            return self._snapshots[max(self._snapshots)] if self._snapshots else None

    def refuse_foreign(self, snapshot: Snapshot, head: api.Head) -> None:
        """Raise for a version in the log beyond the head: it was not ratified, so somebody bypasses the coordinator."""
        location = self.location
        if head.table_id and snapshot.metadata.id != head.table_id:
            raise ForeignCommit(
                f"the log of {location} belongs to another table (id {snapshot.metadata.id}) than the one the coordinator keeps "
                f"(id {head.table_id}): its folder was replaced; restore it, or use another location",
                location=location,
                version=snapshot.version,
            )
        self.refuse_beyond(snapshot.version, head)

    def refuse_beyond(self, latest: int, head: api.Head) -> None:
        """Raise ForeignCommit for a log whose `latest` version is beyond the head."""
        location = self.location
        if latest <= head.version:
            return
        now = self.fresh_head()  # a lagging server would make its own commits look foreign
        if latest > now.version >= 0:
            # check: old-data-are-no-foreign-commit
            api.refuse_old_data(self.store, now.version + 1)
            raise ForeignCommit(
                f"version {now.version + 1} in the log of {location} was not committed through sluice (the log has version "
                f"{latest}, the coordinator ratified {now.version}); stop that writer, move the log's files from "
                "that version on to another place, and write their rows again through sluice",
                version=now.version + 1,
                location=location,
            )


ReadTable: TypeAlias = OpenTable | PublishedTable


def where_it_is(table: OpenTable, act: Callable[[OpenTable], _T]) -> _T:
    """What `act` gives at the coordinator where the table is: it is called again when the table moved."""
    while True:
        try:
            return act(table)
        except TableMoved as moved:
            table = table.follow(moved)


# -- opening ---------------------------------------------------------------------------------------------------------------


def open_table(
    address: TableAddress,
    limits: Limits | None = None,
    consistency: str = "latest",
    load: Callable[[ObjectStore], Snapshot] = Snapshot.load,
) -> ReadTable:
    """The table, without its coordinator if the level is "published"; `load` reads the latest version in the log.

    Raises InvalidRequest for an unknown level.
    """
    if consistency != "published":
        return open_coordinated(address, limits, consistency, load)
    store = address.store()
    return PublishedTable(address, store, load(store))


def open_coordinated(
    address: TableAddress,
    limits: Limits | None = None,
    consistency: str = "latest",
    load: Callable[[ObjectStore], Snapshot] = Snapshot.load,
) -> OpenTable:
    """A table that sluice manages; `consistency` is the default level of its reads, and `load` reads the latest version in the log.

    One that moved is opened where it is now. Raises TableNotFound, also where writers that did not come to create it left files, NotATable
    (also for a Delta table that is not attached), ForeignCommit, UnsupportedFeature.
    """
    try:
        return _opened(address, limits, consistency, load)
    except TableMoved as moved:
        return OpenTable.of(address, limits, consistency).follow(moved)


def _opened(address: TableAddress, limits: Limits | None, consistency: str, load: Callable[[ObjectStore], Snapshot]) -> OpenTable:
    store = address.store()
    table: OpenTable | None = None
    try:
        snapshot = load(store)
    except (TableNotFound, NotATable) as missing:
        table = OpenTable.of(address, limits, consistency)
        if not api.check_tree(table.context) or table.head().version < 0:
            # each object has the id of a transaction in its name: a log, and files of others, have none
            if isinstance(missing, NotATable) and all(
                each.key.startswith(PROBE_PREFIX) or api.id_in(each.key) is not None for each in store.list_from("", recursive=True)
            ):
                raise TableNotFound(
                    f"there is no table at {store.location}: transactions that would have created it left files, and have not committed; "
                    "create the table, and a vacuum removes those files",
                    location=store.location,
                ) from missing
            raise
        snapshot = first_published(table)
    except CorruptLogFile:
        table = OpenTable.of(address, limits, consistency)
        latest = latest_version(store)
        if latest is not None and api.check_tree(table.context):
            table.refuse_beyond(latest, table.head())
        raise
    table = table or OpenTable.of(address, limits, consistency)
    while True:
        try:
            api.require_own_coordinator(table.context, snapshot)
            break
        except WrongCoordinator:
            earlier, snapshot = snapshot.version, snapshot.refresh(store)
            if snapshot.version == earlier:  # otherwise it may have come here since it was read
                raise
    head = table.head_beside_log() if is_managed(snapshot.protocol) else None
    if head is None or head.detached:
        snapshot = all_published(table, snapshot)
        if not is_managed(snapshot.protocol):
            raise NotATable(
                f"{address.location} is a Delta table that sluice does not manage; bring it in with "
                f"sluice.Table.attach({address.location!r}), or read it with consistency='published'",
                location=address.location,
            )
        api.require_own_coordinator(table.context, snapshot)
        head = table.head_beside_log()
    table.keep(snapshot)
    table.refuse_foreign(snapshot, head)
    if snapshot.version < head.version:
        table.latest()  # raises LogGap if published versions are missing
    return table


_KEPT_MAX: Final = 16
_kept: Final[LRUCache[tuple[object, ...], OpenTable]] = LRUCache(_KEPT_MAX)
_kept_lock: Final = ForkSafeLock()


def kept_open(address: TableAddress) -> OpenTable:
    """The table as an earlier statement of this process left it open, brought up to date; otherwise it is opened, and kept open.

    Opening a table reads its log from the last checkpoint on; an open one costs a look at the coordinator, and the commits since. Raises
    what `open_coordinated` does.
    """
    coordinator = address.coordinator or os.environ.get("SLUICE_COORDINATOR")
    key = (address.location, coordinator, address.application, *sorted(address.storage_options.items()))
    with _kept_lock:
        table = _kept.get(key)
    if table is not None:
        with suppress(InvalidRequest, Corrupt):  # whoever opens it anew learns what happened to it
            table.latest()
            if table.successor is not None:
                with _kept_lock:
                    _kept[key] = table = table.successor
            if not table.known_head().detached:
                return table
    table = open_coordinated(address)
    with _kept_lock:
        _kept[key] = table
    return table


def first_published(table: api.CoordinatedTable) -> Snapshot:
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


def all_published(table: api.CoordinatedTable, snapshot: Snapshot) -> Snapshot:
    """The table after everything that is ratified, which may have attached or detached it, publishing it here if nobody has yet.

    Raises ForeignCommit if another engine wrote in its place, and Unavailable.
    """
    if not api.check_tree(table.context):
        return snapshot
    table.publish(up_to_date=True)
    return snapshot.refresh(table.store)
