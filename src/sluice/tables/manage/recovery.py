"""Rebuilding the coordinator's nodes of a table from its log, after ZooKeeper's data were lost.

The log holds every published version, so nothing that was acknowledged as published is lost. What is lost are transactions that
were filed and undecided, and versions that were ratified and not published: their data files and staged actions are still there,
and are told by name.

Two things must not happen. A version that a former client still publishes must not be one that is given out anew: so it is waited
until every former session, and every request that was sent before its session ended, must be over; a publisher makes sure of its
session before each put. Then the next version is written here, as a commit that changes nothing: where the store has conditional
put, a straggler that comes first is taken in as what it is, and one that comes later finds its place taken. And a former client
must not go on as if nothing had happened: the new tree has another incarnation, which every multi checks and which every client
looks at when it has a new session (`TreeReplaced`).
"""

from __future__ import annotations

import logging
import os
import socket
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import Final

import orjson

from ...coordinator.commit.rendering import render
from ...coordinator.errors import CoordinatorUnavailable, SessionLost
from ...coordinator.limits import LONGEST_PUT_S, LONGEST_SESSION_S
from ...coordinator.nodes.context import TableContext
from ...coordinator.nodes.coordinator_id import address_text, identity_of, reachable_from
from ...coordinator.nodes.creation import check_tree, make_tree, only_begun, remove_new_tree
from ...coordinator.nodes.identity import id_in
from ...coordinator.nodes.layout import RECOVERING
from ...coordinator.nodes.records import Head, Rendering, VersionPlan, digest
from ...coordinator.nodes.removal import remove_closed_tree
from ...coordinator.rules.footprint import Footprint
from ...coordinator.rules.intent import Intent
from ...coordinator.rules.winner import Member, winner_of
from ...coordinator.service.address import Address
from ...coordinator.service.clock import Clock
from ...coordinator.service.connect import visiting
from ...coordinator.service.store import ANY_VERSION, ApplyRefused, Check, CoordinationStore, Create, Delete, ReplyLost
from ...storage.actions import actions_of, encode_all
from ...storage.actions.features import is_managed
from ...storage.actions.metadata_change import describe
from ...storage.actions.row_tracking import row_id_high_water_mark
from ...storage.actions.texts import pieces, stored_text
from ...storage.constants import ADDRESS_KEY, COORDINATOR_KEY
from ...storage.dataclass import dataclass
from ...storage.errors import InvalidRequest, NotATable, ObjectNotFound, SluiceError, Unavailable
from ...storage.log.paths import commit_path
from ...storage.log.segment import latest_version, list_versions
from ...storage.log.snapshot import Snapshot
from ...storage.stores.objects import ObjectStore
from ..client.access import require_own_coordinator
from ..client.address import TableAddress
from ..maintain.garbage import Reason, Shown, candidates
from .creation import named_after_coordinator

__all__ = ["LONGEST_PUT_S", "LONGEST_SESSION_S", "HalfDone", "Incomplete", "RecoveryReport", "patience_of", "rebuild", "recover"]

_log = logging.getLogger(__name__)

_LOOKS: Final = 8
_LETTING_GO_MAX: Final = 60
_CLAIMS_MAX: Final = 5
_PAUSE_S: Final = 1.0
_PUTS_MAX: Final = 100
_VISIT_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Incomplete:
    """A transaction of which something is stored and nothing is in the log: it was never filed, undecided, or not published.

    `staged`: its actions are there too. `files` and `size_bytes` count its objects; the last was written at `modified_ms`.
    """

    transaction_id: str
    staged: bool
    files: int
    size_bytes: int
    modified_ms: int


@dataclass(frozen=True, slots=True)
class HalfDone:
    """A transaction over several tables that is in this log and missing in others, or may be: their logs cannot be looked at."""

    transaction_id: str
    version: int
    missing_in: tuple[str, ...]
    unknown_in: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """A table whose nodes were rebuilt: from which version on it goes on, and what is known to be lost."""

    location: str
    version: int
    incomplete: tuple[Incomplete, ...]
    half_done: tuple[HalfDone, ...]


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

    `former` is the id of the coordinator that the table names (WrongCoordinator tells it): by giving it the caller says that this
    coordinator's data were lost. `wait_s` is how long it is waited for former clients (LONGEST_SESSION_S + LONGEST_PUT_S by
    default): give less only when none can be alive. `told` hears what is going on. Raises WrongCoordinator without `former` for a
    table of another coordinator; InvalidRequest while that one answers, while the table's nodes exist or somebody else is at it;
    TableNotFound and NotATable for what is no table of sluice's, Unavailable when somebody goes on publishing.
    """
    address = TableAddress.of(location, coordinator, storage_options, "recover")
    return rebuild(address, former, patience_of(wait_s), told or _log.info)


def patience_of(wait_s: float | None) -> float:
    """How long it is waited for former clients, in seconds. Raises InvalidRequest for no time."""
    if wait_s is not None and not 0 <= wait_s < float("inf"):
        raise InvalidRequest(f"wait_s is {wait_s!r}; give seconds, 0 for not at all, or None for the longest anybody may need")
    return LONGEST_SESSION_S + LONGEST_PUT_S if wait_s is None else wait_s


def rebuild(
    address: TableAddress,
    former: str | None,
    patience_s: float,
    told: Callable[[str], object],
    resting: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> RecoveryReport:
    """See `recover`; while it waits for former clients it is inside of what `resting` makes."""
    context, store = address.context(), address.store()
    remove_closed_tree(context)
    _require_lost(context)
    snapshot = Snapshot.load(store)
    if not is_managed(snapshot.protocol):
        raise NotATable(f"{address.location} was not managed by sluice; bring it in with attach", location=address.location)
    _require_lost_coordinator(address, context, snapshot, former)
    with _alone(context) as claim:
        remove_new_tree(context)  # nobody ratifies a first version beside this log
        _require_lost(context)  # who was at it until a moment ago may have done it
        _await_quiet(context, store, claim, patience_s, told, resting)
        head, snapshot = _seal(address, context, claim, former)
        _make_nodes(context, head, claim)
    incomplete = tuple(_incomplete(store, snapshot))
    half_done = tuple(_half_done(context, store, snapshot.version))
    return RecoveryReport(address.location, head.version, incomplete, half_done)


def _require_lost_coordinator(address: TableAddress, context: TableContext, snapshot: Snapshot, former: str | None) -> None:
    """Raise unless the table is this coordinator's, or its own one is named and is not to be found where it was."""
    owner = _require_named(address, context, snapshot, former)
    text = snapshot.configuration.get(ADDRESS_KEY)
    if owner is None or text is None or text == address_text(address.coordinator):  # at this very address there is another one now
        return
    where = reachable_from(text)
    if where is None:
        return
    here = Address.parse(address.coordinator)
    if where.scheme == here.scheme == "zk":  # with the credentials of this one
        where = replace(here, place=where.place, chroot=where.chroot)
    where = replace(where, retry_s=_VISIT_S, connect_timeout_s=_VISIT_S)
    try:
        with visiting(where) as session:
            found = identity_of(session)
    except CoordinatorUnavailable:
        return
    if found == owner:
        raise InvalidRequest(
            f"the coordinator {owner} of {address.location} lives: it answers at {text}. Use it. To move the table to another coordinator, "
            "detach it there (sluice detach) and attach it here (sluice attach)",
            location=address.location,
            owner=owner,
        )


def _require_named(address: TableAddress, context: TableContext, snapshot: Snapshot, former: str | None) -> str | None:
    """The id of the other coordinator that the table names; None for this one, and for a table that names none."""
    owner = snapshot.configuration.get(COORDINATOR_KEY)
    if owner is not None and context.in_session(identity_of) == owner:
        return None  # also after a recovery that did not come to its end
    if former is not None and former != owner:
        named = "no coordinator: leave it out" if owner is None else f"the coordinator {owner}"
        raise InvalidRequest(
            f"former is {former!r}, but {address.location} names {named}",
            location=address.location,
            former=former,
        )
    if former is None:
        require_own_coordinator(address, context, snapshot)
    return owner


def _make_nodes(context: TableContext, head: Head, claim: str) -> None:
    """Make the nodes; those of somebody who looked for a log before there was one, and begins to create the table only now, go."""
    while True:
        try:
            make_tree(context, head, while_standing=[Check(claim, ANY_VERSION)])
        except ApplyRefused as refused:  # the session was over by then
            raise _claim_lost(context.tree.location) from refused
        if not only_begun(context):
            return
        remove_new_tree(context)


def _require_lost(context: TableContext) -> None:
    """Nodes in which nothing was ratified are no table's: somebody had begun to create one."""
    if check_tree(context) and not only_begun(context):
        location = context.tree.location
        raise InvalidRequest(
            f"the coordinator has the nodes of {location}: there is nothing to recover. If they are those of a former table, "
            "use another location",
            location=location,
        )


@contextmanager
def _alone(context: TableContext) -> Iterator[str]:
    """Be the only one who rebuilds this table's nodes: an ephemeral node, and a mark beside it, which nobody else can make again.

    The multi that makes the nodes checks the mark, for the claim may be somebody else's by then.
    """
    session = context.coordination
    path = f"{RECOVERING}/{context.tree.root.rpartition('/')[2]}"
    session.ensure_path(RECOVERING)
    told = {"host": socket.gethostname(), "pid": os.getpid(), "since_ms": context.clock.now_ms()}
    identity = uuid.uuid4().hex
    body, mark = orjson.dumps({**told, "id": identity}), f"{path}.{identity}"
    _claim(session, path, body, mark, context.tree.location)
    try:
        yield mark
    finally:
        _let_go(session, [path, mark], context.clock)


def _claim(session: CoordinationStore, path: str, body: bytes, mark: str, location: str) -> None:
    """Make both nodes. Raises InvalidRequest where somebody else has the claim, Unavailable where it was never to be had."""
    trouble: Exception | None = None
    for _ in range(_CLAIMS_MAX):
        try:
            session.apply([Create(path, body, ephemeral=True), Create(mark, ephemeral=True)])
            return
        except (ReplyLost, ApplyRefused) as refused:  # when nobody has it, somebody let it go just now
            trouble = refused
        session.barrier()
        node = session.read(path)
        if node is not None and node.data == body:  # it is the reply that was lost
            return
        if node is not None:
            raise InvalidRequest(
                f"somebody else is recovering {location}: {node.data.decode()}; wait for them", location=location
            ) from trouble
    raise Unavailable(f"{location} could not be claimed for recovery ({trouble}); repeat it", location=location) from trouble


def _require_claim(session: CoordinationStore, claim: str, location: str) -> None:
    session.barrier()
    if session.read(claim) is None:
        raise _claim_lost(location)


def _claim_lost(location: str) -> Unavailable:
    return Unavailable(f"the claim to recover {location} is gone; repeat the recovery", location=location)


def _let_go(session: CoordinationStore, claim: Sequence[str], clock: Clock) -> None:
    """Remove the claim, whatever gets lost on the way: while this process lives nobody else would be let in."""
    for _ in range(_LETTING_GO_MAX):
        try:
            session.apply([Delete(path) for path in claim])
            return
        except (ApplyRefused, SessionLost):  # it is gone
            return
        except (ReplyLost, CoordinatorUnavailable):
            clock.sleep(_PAUSE_S)


def _await_quiet(
    context: TableContext,
    store: ObjectStore,
    claim: str,
    patience_s: float,
    told: Callable[[str], object],
    resting: Callable[[], AbstractContextManager[object]],
) -> None:
    """Wait until no former client can publish any more, and see that none did.

    Who lost the claim waits no further: another one may have rebuilt the nodes, and it is clients of the new ones that publish.
    """
    for _ in range(_LOOKS):
        before = latest_version(store)
        told(f"waiting {patience_s:g} s for what clients of the lost coordinator may still do; the log is at version {before}")
        with resting():
            context.clock.sleep(patience_s)
        if latest_version(store) == before:
            return
        _require_claim(context.coordination, claim, store.location)
    raise Unavailable(
        f"somebody goes on publishing to {store.location}: find the writers that still reach the former coordinator and stop them",
        location=store.location,
    )


def _seal(address: TableAddress, context: TableContext, claim: str, former: str | None) -> tuple[Head, Snapshot]:
    """Write the version that former clients cannot publish any more; the head that follows, and the snapshot before it.

    It names the new coordinator. Before each put it is made sure that the claim still stands: when it went, another one may have
    rebuilt the nodes by now, and have waited for this one as for every former client.
    """
    session, store = context.coordination, context.objects
    for _ in range(_PUTS_MAX):
        snapshot = Snapshot.load(store)
        _require_named(address, context, snapshot, former)  # another coordinator may have taken the table on meanwhile
        metadata = named_after_coordinator(context, address.coordinator, snapshot.metadata)
        actions = b"" if metadata == snapshot.metadata else encode_all([metadata])
        version = snapshot.version + 1
        timestamp_ms = max(context.clock.now_ms(), snapshot.timestamp_ms + 1)
        intent = Intent(
            transaction_id=context.new_transaction_id(),
            operation="RECOVER",
            read_version=snapshot.version,
            validated_through=snapshot.version,
            claimed_ms=timestamp_ms,
            footprint=Footprint(data_change=False),
            actions_digest=digest(actions),
            metadata_change=describe(snapshot.metadata, metadata) if actions else None,
            client=context.client,
        )
        content = b"".join(pieces(render(VersionPlan(version, timestamp_ms, (0,)), [Member(intent, actions)], Rendering(timestamp_ms))))
        _require_claim(session, claim, store.location)
        if store.put_if_absent(commit_path(version), content):
            head = Head(
                version=version,
                timestamp_ms=timestamp_ms,
                metadata_version=version,  # not known any better: whoever validated against less does so again
                table_id=snapshot.metadata.id,
                row_ids=row_id_high_water_mark(snapshot.domains, snapshot.metadata, snapshot.protocol),
            )
            return head, snapshot
    raise Unavailable(f"somebody goes on publishing to {store.location}: find that writer and stop it", location=store.location)


def _incomplete(store: ObjectStore, snapshot: Snapshot) -> Iterator[Incomplete]:
    """Transactions of which only objects are there, the latest first."""
    shown = Shown(store.location)
    shown.add_files(snapshot)
    shown.add_tombstones(snapshot, 0)
    left: dict[str, list[tuple[bool, int, int]]] = {}
    for each in candidates(store.list_from("", recursive=True), shown, snapshot.partition_columns):
        transaction = id_in(each.info.key)
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
    """The versions whose commits were written since a time of the store's, and the transactions they list."""
    for version, file in sorted(list_versions(store).commits.items()):
        if file.modified_ms >= since_ms:
            yield version, winner_of(version, actions_of(stored_text(store, file.key), name=file.key)).transactions


def _half_done(context: TableContext, store: ObjectStore, last: int) -> Iterator[HalfDone]:
    """Transactions over several tables of the last day that are missing in the log of another table."""
    commits = list_versions(store).commits
    if not commits:
        return
    since_ms = max(file.modified_ms for file in commits.values()) - 24 * 3600 * 1000
    for version, transactions in _transactions(store, since_ms=since_ms):
        for each in transactions:
            joint = each.get("joint")
            if version > last or not isinstance(joint, Mapping):
                continue
            has = {str(place): _has(context, str(place), at, str(each.get("id"))) for place, at in sorted(joint.items())}
            missing, unknown = (tuple(place for place, answer in has.items() if answer is which) for which in (False, None))
            if missing or unknown:
                yield HalfDone(str(each.get("id")), version, missing, unknown)


def _has(context: TableContext, location: str, version: object, transaction_id: str) -> bool | None:
    """Whether another table's log has a transaction; None when that cannot be told from here."""
    if location == context.tree.location:
        return True
    if type(version) is not int:
        return False
    try:
        store = context.stores(location)
        try:
            content = stored_text(store, commit_path(version))
        except ObjectNotFound:
            cleaned_up = version < min(list_versions(store).commits, default=version)
            return None if cleaned_up else False
        return winner_of(version, actions_of(content, name=commit_path(version))).ordinal_of(transaction_id) is not None
    except SluiceError as trouble:
        _log.warning("%s could not be looked at: %s", location, trouble)
        return None
