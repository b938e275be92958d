"""Rebuilds the coordinator's nodes of a table from its log, after ZooKeeper's data were lost.

The log has every published version. Transactions that were filed but undecided, and versions that were ratified but not published, are
lost: their data files and staged actions still exist, and are reported by name.

Two things must not happen. First, a version that a former client still publishes must not be given out anew. So recovery waits until every
former session, and every request sent in one, must be over; a publisher checks its session before each put. Then it writes the next
version, as a commit that changes nothing: with conditional put, a straggler's earlier version is taken into the history, and a later one
finds its place taken. Second, a former client must not go on as if nothing had happened: the new tree has another incarnation, which every
multi checks and which every client reads in a new session (`TreeReplaced`).

`recover_all` recovers all tables below a location at once: they share the long wait for former clients.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import as_completed
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from ...coordinator import api
from ...coordinator.limits import LONGEST_PUT_S, LONGEST_SESSION_S
from ...coordinator.rules.intent import Intent
from ...coordinator.rules.winner import winner_of
from ...storage.actions import actions_of
from ...storage.actions.features import is_managed, row_id_high_water_mark
from ...storage.actions.texts import sha256, stored_text
from ...storage.arguments import checked
from ...storage.caches import threads
from ...storage.constants import COORDINATOR_KEY, LOG_FOLDER, MANAGED_KEY, NAME_KEY, NAMED_MS_KEY
from ...storage.dataclass import dataclass
from ...storage.errors import InvalidRequest, NotATable, ObjectNotFound, SluiceError, TableDropped, TableNotFound, Unavailable
from ...storage.log.paths import commit_path
from ...storage.log.segment import latest_version, list_versions
from ...storage.log.snapshot import Snapshot
from ...storage.progress import followed
from ...storage.stores.objects import ObjectStore
from ..client.address import TableAddress
from ..client.open_table import OpenTable
from ..maintain.garbage import Reason, Shown, candidates

_log = logging.getLogger(__name__)

_PATIENCE_S: Final = LONGEST_SESSION_S + LONGEST_PUT_S
_LOOKS: Final = 8
_PUTS_MAX: Final = 100

_AT_WORK_MAX: Final = 8
_WAITING_MAX: Final = 1000
_HAS_NODES: Final = "has its nodes"


@dataclass(frozen=True, slots=True)
class Incomplete:
    """A transaction with stored objects but no version in the log: it was never filed, not decided, or not published.

    `staged`: its actions exist, too. `files` and `size_bytes` count its objects; the last was written at `modified_ms`.
    """

    transaction_id: str
    staged: bool
    files: int
    size_bytes: int
    modified_ms: int


@dataclass(frozen=True, slots=True)
class HalfDone:
    """A transaction over several tables that is in this log and missing in others, or may be where the log cannot be read."""

    transaction_id: str
    version: int
    missing_in: tuple[str, ...]
    unknown_in: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """A table whose nodes were rebuilt: the version from which it goes on, and what is known to be lost.

    `name` is the one that its log gave back to it; `lost_name` one that its log names and another table got later.
    """

    location: str
    version: int
    incomplete: tuple[Incomplete, ...]
    half_done: tuple[HalfDone, ...]
    name: str | None = None
    lost_name: str | None = None


@checked
def recover(
    location: str | os.PathLike[str],
    *,
    coordinator: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    former: str | None = None,
    wait_s: float | None = None,
    told: Callable[[str], object] | None = None,
) -> RecoveryReport:
    """Rebuild the coordinator's nodes of a table from its log.

    `former` is the id of the coordinator that the table names (WrongCoordinator shows it): passing it confirms that this coordinator's data
    were lost. `wait_s` is the wait for former clients (LONGEST_SESSION_S + LONGEST_PUT_S by default): give less only if none can be alive.
    `told` receives progress messages. Raises WrongCoordinator without `former` for a table of another coordinator; InvalidRequest while
    that one answers, the table's nodes exist or another client recovers it; TableNotFound and NotATable if it is not a table of sluice's,
    Unavailable if somebody goes on publishing.
    """
    address = TableAddress.of(location, coordinator, storage_options, "recover")
    return _Recovery(former, _PATIENCE_S if wait_s is None else wait_s, told or _log.info).of(address)


@dataclass(frozen=True, slots=True)
class _Recovery:
    """How tables are recovered, as `recover` says; the wait for former clients is inside the context from `resting`."""

    former: str | None
    patience_s: float
    told: Callable[[str], object]
    resting: Callable[[], AbstractContextManager[object]] = nullcontext

    def of(self, address: TableAddress, kept: api.KeptTable | None = None) -> RecoveryReport:
        """Rebuild the nodes of one table, with what a backup kept of it; see `recover`."""
        table = OpenTable.of(address)
        store = table.store
        api.remove_closed_tree(table.context)
        api.require_nodes_lost(table.context)
        snapshot = Snapshot.load(store)
        if not is_managed(snapshot.protocol):
            raise NotATable(f"{address.location} was not managed by sluice; bring it in with attach", location=address.location)
        snapshot.require_order()
        api.require_coordinator_lost(table.context, snapshot, self.former)
        if self.former is not None:
            api.begin_tokens(table.context.coordination, table.clock.now_ms())
        with api.rebuilding_claim(table.context) as claim:
            api.remove_new_tree(table.context)  # nobody ratifies a first version beside this log
            api.require_nodes_lost(table.context)  # another client may have recovered it a moment ago
            self._await_quiet(table, claim)
            head, snapshot = self._seal(table, claim)
            # check: a-backup-is-of-its-own-table (kept.table_id != head.table_id -> False)
            if kept is not None and kept.table_id != head.table_id:
                kept = None  # its table was dropped since, and this one made in its place
            # check: what-was-brought-back-stays-open (snapshot.configuration.get(NAME_KEY) -> "")
            if kept is not None and kept.dropped and (snapshot.configuration.get(NAME_KEY) or _went_on(store, kept.version)):
                kept = replace(kept, dropped=None)  # who drops a table takes its name out of the log
            with suppress(TableDropped):  # it may be closed as soon as it is made
                claim.make_nodes(head, *(() if kept is None else (kept.ops,)))
        incomplete = tuple(_incomplete(store, snapshot))
        half_done = tuple(_half_done(table, snapshot.version))
        name, lost_name = named_again(address, snapshot)
        return RecoveryReport(address.location, head.version, incomplete, half_done, name, lost_name)

    def _await_quiet(self, table: api.CoordinatedTable, claim: api.RebuildingClaim) -> None:
        """Wait until no former client can publish any more, and check that none did.

        Raises if the claim is lost: another client may have rebuilt the nodes, and then clients of the new ones publish.
        """
        store = table.store
        for _ in range(_LOOKS):
            before = latest_version(store)
            self.told(
                f"waiting {self.patience_s:g} s for clients of the lost coordinator that may still publish; the log is at version {before}"
            )
            with self.resting():
                # check: former-clients-are-waited-for
                table.clock.sleep(self.patience_s)
            # check: who-goes-on-publishing-is-told (always)
            if latest_version(store) == before:
                return
            claim.require()
        raise Unavailable(
            f"a client keeps publishing to {store.location}: find the writers that still reach the former coordinator and stop them",
            location=store.location,
        )

    def _seal(self, table: api.CoordinatedTable, claim: api.RebuildingClaim) -> tuple[api.Head, Snapshot]:
        """Write the version that former clients cannot publish any more; returns the resulting head, and the snapshot before it.

        It names the new coordinator. The claim is checked before each put: if it was lost, another client may have rebuilt the nodes.
        """
        store = table.store
        for _ in range(_PUTS_MAX):
            snapshot = Snapshot.load(store)
            api.require_owner_named(table.context, snapshot, self.former)  # another coordinator may have taken the table on meanwhile
            metadata = api.named_after_coordinator(table.context, snapshot.metadata)
            version = snapshot.version + 1
            timestamp_ms = max(table.clock.now_ms(), snapshot.timestamp_ms + 1)
            chain = table.log.chain_after(snapshot.version)
            context = table.context
            by = Intent(context.new_transaction_id(), "RECOVER", -1, -1, claimed_ms=timestamp_ms, client=context.client)
            content = api.sealing_version(snapshot, metadata, chain, by)
            claim.require()
            # check: stragglers-are-taken-in (store.put_if_absent -> not store.put)
            if store.put_if_absent(commit_path(version), content):
                head = api.Head(
                    version=version,
                    timestamp_ms=timestamp_ms,
                    metadata_version=version,  # unknown, so everything validated before is validated again
                    table_id=snapshot.metadata.id,
                    row_ids=row_id_high_water_mark(snapshot.domains, snapshot.metadata, snapshot.protocol),
                    digest=sha256(content),
                    files=chain[1],
                )
                return head, snapshot
        raise Unavailable(f"a client keeps publishing to {store.location}: find that writer and stop it", location=store.location)


def _went_on(store: ObjectStore, after: int) -> bool:
    """Whether the log has commits after a version, besides those of recoveries. A dropped table has none."""
    files = [(version, file) for version, file in list_versions(store).commits.items() if version > after]
    return any(winner_of(n, actions_of(stored_text(store, file.key), name=file.key)).operation != "RECOVER" for n, file in files)


def named_again(address: TableAddress, snapshot: Snapshot, *, claims: bool = True) -> tuple[str | None, str | None]:
    """Give the table the name that its log repeats; returns the name, and the one that could not be given.

    With `claims` it takes the name from a table that got it earlier, and makes its namespace.
    """
    configuration = snapshot.configuration
    named, since = configuration.get(NAME_KEY, ""), configuration.get(NAMED_MS_KEY, "")
    if not named:
        return None, None
    named_ms = int(since) if since.isdecimal() else 0
    managed = configuration.get(MANAGED_KEY) == "true"
    try:
        catalog = api.CatalogClient.at(address.coordinator)
        # check: a-table-that-comes-takes-no-name (claims -> True)
        give = api.claim_name if claims else api.register_name
        held = give(catalog, api.TableName.parse(named), address.location, named_ms=named_ms, managed=managed)
    except SluiceError as trouble:
        _log.warning("%s is without its name %r: %s", address.location, named, trouble)
        return None, named
    return (named, None) if held else (None, named)


def _incomplete(store: ObjectStore, snapshot: Snapshot) -> Iterator[Incomplete]:
    """Transactions of which only objects exist, latest first."""
    shown = Shown(store.location)
    shown.add_files(snapshot, 0)
    left: dict[str, list[tuple[bool, int, int]]] = {}
    for each in candidates(store.list_from("", recursive=True), shown, snapshot.metadata.physical_partitions):
        transaction = api.id_in(each.info.key)
        if transaction is not None and each.info.key not in shown.replaced:
            left.setdefault(transaction, []).append((each.reason is Reason.STAGED, each.info.size, each.info.modified_ms))
    if not left:
        return
    oldest_ms = min(modified_ms for objects in left.values() for _, _, modified_ms in objects)
    for _, transactions in _transactions(store, since_ms=oldest_ms):
        for each_id in (str(each.get("id")) for each in transactions):
            left.pop(each_id, None)
    found = [
        Incomplete(transaction, any(o[0] for o in objects), len(objects), sum(o[1] for o in objects), max(o[2] for o in objects))
        for transaction, objects in left.items()
    ]
    yield from sorted(found, key=lambda each: (-each.modified_ms, each.transaction_id))


def _transactions(store: ObjectStore, *, since_ms: int) -> Iterator[tuple[int, Sequence[Mapping[str, object]]]]:
    """The versions whose commits were written since a time (by the store's clock), and the transactions they list."""
    for version, file in sorted(list_versions(store).commits.items()):
        if file.modified_ms >= since_ms:
            yield version, winner_of(version, actions_of(stored_text(store, file.key), name=file.key)).transactions


def _half_done(table: api.CoordinatedTable, last: int) -> Iterator[HalfDone]:
    """Transactions over several tables of the last day that are missing in another table's log."""
    store = table.store
    commits = list_versions(store).commits
    if not commits:
        return
    since_ms = max(file.modified_ms for file in commits.values()) - 24 * 3600 * 1000
    for version, transactions in _transactions(store, since_ms=since_ms):
        for each in transactions:
            joint = each.get("joint")
            if version > last or not isinstance(joint, Mapping):
                continue
            has = {str(place): _has(table, str(place), at, str(each.get("id"))) for place, at in sorted(joint.items())}
            missing, unknown = (tuple(place for place, answer in has.items() if answer is which) for which in (False, None))
            if missing or unknown:
                yield HalfDone(str(each.get("id")), version, missing, unknown)


def _has(table: api.CoordinatedTable, location: str, version: object, transaction_id: str) -> bool | None:
    """Whether another table's log has a transaction; None if it cannot be read."""
    if location == table.location:
        return True
    if type(version) is not int:
        return False
    try:
        store = table.beside(location).store
        try:
            content = stored_text(store, commit_path(version))
        except ObjectNotFound:
            return None if version < min(list_versions(store).commits, default=version) else False
        return winner_of(version, actions_of(content, name=commit_path(version))).ordinal_of(transaction_id) is not None
    except SluiceError as trouble:
        _log.warning("%s could not be read: %s", location, trouble)
        return None


@dataclass(frozen=True, slots=True)
class Recovered:
    """The result for one table: its `report` if it was recovered, the `error` if that failed, else why there was no need (`left`)."""

    location: str
    report: RecoveryReport | None = None
    error: SluiceError | None = None
    left: str | None = None

    @property
    def is_there(self) -> bool:
        """Whether the coordinator keeps the table now."""
        return self.report is not None or self.left == _HAS_NODES


@checked
def recover_all(
    root: str | os.PathLike[str],
    *,
    coordinator: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    former: str | None = None,
    wait_s: float | None = None,
    told: Callable[[str], object] | None = None,
) -> Iterator[Recovered]:
    """Rebuild the nodes of all tables below a location that lost them. Yields each table when it is done, in no order.

    The arguments are those of `sluice.recover`. All tables wait for former clients at the same time, up to 1000 of them. A failure holds up
    no other table. If it was killed, repeating it continues with the remaining tables, which wait again. Skips tables that are not sluice's
    or have their nodes; does not find a table inside another table's folder. Raises InvalidRequest if there is no table.
    """
    top = TableAddress.of(root, coordinator, storage_options, "recover")
    addresses = [
        TableAddress.of(f"{top.location}/{folder}" if folder else top.location, coordinator, storage_options, "recover")
        for folder in tables_below(top.store())
    ]
    if not addresses:
        raise InvalidRequest(f"there is no table at or below {top.location}; check the location", location=top.location)
    if told is not None:
        wait = f"{_PATIENCE_S if wait_s is None else wait_s:g} s for clients of the lost coordinator that may still publish"
        told(f"{len(addresses)} tables; those to recover wait {wait}")
    return recover_each(addresses, former, wait_s)


def recover_each(
    addresses: Sequence[TableAddress], former: str | None, wait_s: float | None, kept: Mapping[str, api.KeptTable] = MappingProxyType({})
) -> Iterator[Recovered]:
    """Rebuild the nodes of these tables, with what a backup kept of them. Yields each table when it is done, in no order."""
    at_work = threading.Semaphore(_AT_WORK_MAX)

    @contextmanager
    def resting() -> Iterator[None]:
        at_work.release()
        try:
            yield
        finally:
            at_work.acquire()

    # no messages: the wait was announced once for all tables
    recovery = _Recovery(former, _PATIENCE_S if wait_s is None else wait_s, lambda _: None, resting)

    def one(address: TableAddress) -> Recovered:
        with at_work:
            try:
                return _one(address, recovery, kept.get(address.location))
            except SluiceError as error:
                return Recovered(address.location, error=error)

    with threads(min(len(addresses), _WAITING_MAX), "sluice-recover") as pool:
        tasks = as_completed([pool.submit(one, address) for address in addresses])
        for done in followed(tasks, len(addresses), "tables recovered"):
            yield done.result()


def _one(address: TableAddress, recovery: _Recovery, kept: api.KeptTable | None) -> Recovered:
    try:
        snapshot = Snapshot.load(address.store())
    except (TableNotFound, NotATable) as missing:
        if kept is None:
            raise
        if kept.dropped is not None or api.read_tombstone(address.context()) is not None:
            return Recovered(address.location, left="was dropped, and has no log")
        why = "its log is missing: the table was dropped after the backup, the storage is not mounted, or it is another storage"
        raise TableNotFound(f"{why}; restore again when the log is there", location=address.location) from missing
    if not is_managed(snapshot.protocol):
        return Recovered(address.location, left="not managed by sluice")
    table = OpenTable.of(address)
    try:
        if api.check_tree(table.context) and not api.only_begun(table.context):
            # check: who-was-killed-before-names-gives-them
            if not api.has_name(table.context):
                named_again(address, snapshot)
            return Recovered(address.location, left=_HAS_NODES)
    except TableDropped:
        return Recovered(address.location, left="was dropped")
    named = recovery.former if snapshot.configuration.get(COORDINATOR_KEY) == recovery.former else None
    return Recovered(address.location, report=replace(recovery, former=named).of(address, kept))


def tables_below(store: ObjectStore) -> Iterator[str]:
    """The folders below the store's root ("") that have a log, in order; little of what is in them is listed."""
    start = ""
    while True:
        for each in store.list_from("", start, recursive=True):
            folder, found, _ = f"/{each.key}".partition("/" + LOG_FOLDER)
            if found:
                break
        else:
            return
        yield folder.removeprefix("/")
        if not folder:
            return
        start = folder.removeprefix("/") + "0"  # the character after "/": beyond everything in that folder
