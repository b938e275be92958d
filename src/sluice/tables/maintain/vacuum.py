"""Garbage collection: objects that no version needs and that no transaction can ever come to need are deleted (I7).

In what order is looked decides whether it is safe. An object that is deleted as an orphan was

1. listed before anything else was asked, so that it was written by a transaction that had begun then;
2. of an owner that was then found gone: a client that was buried in a multi which fails while it is there, or had given up the
   term; or a plan whose node was not there. From that moment nothing more of it is filed, for a transaction is filed in a multi
   that checks its owner's node;
3. of an owner without a slot, and without a verdict whose version was not published: read after (2) in the same session;
4. not shown by the latest version, ratified ones included, as read after (3).

What was filed before (2) was seen undecided in (3), and then all objects of its owner stay, or it was decided before (3), and
then its files are shown in (4) or were refused. So no version shows the object, and none ever will; a collector that is paused
between (4) and the deletion does no harm either. Files that were replaced never come back: a commit adds new ones only.

Clocks decide nothing of this. How long ago a file was replaced is told by the clock of who replaced it, and the present by the
object store's: `retain_hours` has to be much longer than they differ.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

from ...coordinator.errors import OutcomeUnknown, SessionLost
from ...coordinator.leases.pins import EVERYTHING, pinned_versions
from ...coordinator.nodes.context import TableContext
from ...coordinator.nodes.identity import Owner, owner_of
from ...coordinator.nodes.layout import GRAVES, SlotName, VerdictName
from ...coordinator.nodes.plans import close_owner, open_plans
from ...coordinator.nodes.presence import bury, clear_graves, oldest_term
from ...coordinator.nodes.records import BatchRecord
from ...coordinator.service.clock import DEFAULT_TIMEOUT_S, Deadline, Timeout, bounded_s
from ...coordinator.service.store import CoordinationStore
from ...storage.constants import DELETED_FILE_RETENTION_DEFAULT_MS, DELETED_FILE_RETENTION_KEY, LOG_FOLDER, PROBE_PREFIX
from ...storage.dataclass import dataclass
from ...storage.errors import AccessDenied, InvalidRequest, StorageFull, Unavailable, VersionNotFound
from ...storage.intervals import interval_ms
from ...storage.log.segment import list_versions
from ...storage.log.snapshot import Snapshot
from ...storage.stores.objects import KeepsUnfinished, ObjectInfo, ObjectStore, Unfinished
from ..client.access import Access
from ..client.horizon import horizon_of, raise_horizon
from ..client.time_limits import in_time
from ..write.change import Change
from ..write.commit_change import commit_change, new_transaction_id
from .garbage import Candidate, Garbage, Reason, Shown, candidates, judge, named_by
from .log_cleanup import expired_log, remove_log

__all__ = ["VacuumReport", "vacuum"]

_log = logging.getLogger(__name__)
_HOUR_MS: Final = 3600 * 1000
_DELETIONS_MAX: Final = 16
_DELETED_AT_ONCE: Final = 1024
_LISTED_AT_ONCE: Final = 256
_SESSIONS_MAX: Final = 5


@dataclass(frozen=True, slots=True)
class VacuumReport:
    """What a vacuum deleted, or, when it was a dry run, would have: objects with their reasons, and files of the log.

    `foreign` are the old files of the folder that were left alone because nothing says that they are the table's.
    """

    garbage: tuple[Garbage, ...]
    log_files: tuple[str, ...]
    retain_hours: float
    dry_run: bool
    foreign: tuple[Garbage, ...] = ()

    @property
    def size_bytes(self) -> int:
        """The sizes of the objects together, without the log's."""
        return sum(each.size for each in self.garbage)

    @property
    def counts(self) -> dict[str, int]:
        """How many objects there are of each reason."""
        reasons = [each.reason for each in self.garbage]
        return {reason.value: reasons.count(reason) for reason in Reason if reason in reasons}


def vacuum(
    access: Access,
    *,
    retain_hours: float | None = None,
    dry_run: bool = False,
    force: bool = False,
    include_foreign: bool = False,
    timeout_s: Timeout | None = None,
) -> VacuumReport:
    """Delete what no version within retention needs and no transaction can come to need, and the log's expired files.

    `retain_hours` is how long files of replaced rows are kept for readers of older versions (the table's
    `delta.deletedFileRetentionDuration`, 7 days by default); a shorter one is refused without `force`. A dry run tells what would
    go. Files that nothing accounts for go, by their age, with `include_foreign` only. Raises InvalidRequest, Unavailable, the latter
    also when it takes longer than `timeout_s` (None: as long as it takes): what is not deleted then is left.
    """
    clock = access.ours.context.clock
    run = _Run(access, retain_hours, dry_run, force, include_foreign, None if timeout_s is None else Deadline.of(timeout_s, clock))
    if run.limit is None:
        return run.work()
    try:
        return in_time(run.limit, run.work, run.late)
    except OutcomeUnknown as unknown:  # of the commit that tells of it
        raise run.late() from unknown


@dataclass(slots=True)
class _Run:
    """A vacuum under way."""

    access: Access
    retain_hours: float | None
    dry_run: bool
    force: bool
    include_foreign: bool
    limit: Deadline | None
    deleted: int = 0

    def work(self) -> VacuumReport:
        """Do all of it."""
        access, dry_run = self.access, self.dry_run
        self.check()
        configuration = access.read(consistency="latest").configuration
        retention_ms, own_ms = _retention(configuration.get(DELETED_FILE_RETENTION_KEY), self.retain_hours, force=self.force)
        now_ms, full = _now_of(access.store)
        found = _find(access, now_ms, retention_ms, own_ms, dry_run=dry_run, check=self.check)
        garbage = [each for each in found if self.include_foreign or each.reason is not Reason.FOREIGN]
        foreign = () if self.include_foreign else tuple(each for each in found if each.reason is Reason.FOREIGN)
        self.check()
        log_files = expired_log(access, now_ms)
        if not dry_run:
            self._delete(garbage, retention_ms, own_ms, full=full)
            remove_log(access.store, log_files, self.check)
            clear_graves(access.ours.context.coordination, now_ms=access.ours.context.clock.now_ms())
        return VacuumReport(tuple(garbage), tuple(file.key for file in log_files), retention_ms / _HOUR_MS, dry_run, foreign)

    def check(self) -> None:
        """Raise Unavailable when the time is over."""
        if self.limit is not None and self.limit.over:
            raise self.late()

    def late(self) -> Unavailable:
        """What is said when the time is over."""
        return Unavailable(
            f"the time given was over before the vacuum of {self.access.address.location} was done: {self.deleted} files were deleted, and "
            "what is left is found by the next one; give it more time",
            location=self.access.address.location,
            deleted=self.deleted,
        )

    def _delete(self, garbage: Sequence[Garbage], retention_ms: int, own_ms: int, *, full: bool) -> None:
        """Delete, between two commits that say so, as Delta's VACUUM makes them; none where there is nothing to delete.

        A store that is full has no room for the first one: there the second one alone tells.
        """
        if not garbage:
            return
        access = self.access
        parameters = {"retentionCheckEnabled": str(retention_ms >= own_ms).lower(), "specifiedRetentionMillis": str(retention_ms)}
        sizes = {"numFilesToDelete": str(len(garbage)), "sizeOfDataToDelete": str(sum(each.size for each in garbage))}
        if not full:
            self._note("VACUUM START", {**parameters, "defaultRetentionMillis": str(own_ms)}, sizes)
        with ThreadPoolExecutor(_DELETIONS_MAX, thread_name_prefix="sluice-vacuum") as pool:
            for start in range(0, len(garbage), _DELETED_AT_ONCE):
                some = garbage[start : start + _DELETED_AT_ONCE]
                for _ in pool.map(partial(_remove, access.store, self.check), some):
                    self.deleted += 1
        self._note("VACUUM END", {"status": "COMPLETED"}, {"numDeletedFiles": str(len(garbage))}, ack="ratified" if full else "published")

    def _note(self, operation: str, parameters: dict[str, str], metrics: dict[str, str], *, ack: str = "published") -> None:
        self.check()
        access = self.access
        change = Change(new_transaction_id(access), operation, access.current(), (), parameters=parameters, metrics=metrics)
        commit_change(access, change, ack=ack, timeout_s=DEFAULT_TIMEOUT_S if self.limit is None else self.limit)


def _retention(configured: str | None, retain_hours: float | None, *, force: bool) -> tuple[int, int]:
    """For how long replaced files are kept, and for how long the table says, in ms. Raises InvalidRequest for too short a time."""
    own_ms = DELETED_FILE_RETENTION_DEFAULT_MS if configured is None else interval_ms(configured, name=DELETED_FILE_RETENTION_KEY)
    if retain_hours is None:
        return own_ms, own_ms
    if type(retain_hours) not in (int, float) or not 0 <= retain_hours < float("inf"):
        raise InvalidRequest(f"retain_hours is {retain_hours!r}; give hours, 0 or more", retain_hours=retain_hours)
    asked_ms = int(retain_hours * _HOUR_MS)
    if asked_ms < own_ms and not force:
        raise InvalidRequest(
            f"retain_hours={retain_hours:g} is shorter than the {own_ms / _HOUR_MS:g} hours for which this table keeps replaced files "
            f"({DELETED_FILE_RETENTION_KEY}): readers of older versions, and other engines in the middle of a read, would lose theirs. "
            "Wait, change the property, or force it when nobody reads anything but the latest version",
            retain_hours=retain_hours,
        )
    return asked_ms, own_ms


def _now_of(store: ObjectStore) -> tuple[int, bool]:
    """The object store's time, by which its objects are dated, in ms since the epoch; and whether the store is full.

    Where not even an empty object finds room it is the time of the newest object of the log: earlier than now, so that less goes.
    """
    full = False
    for content in (b"what time is it?", b""):
        probe = PROBE_PREFIX + uuid.uuid4().hex
        try:
            store.put(probe, content)
        except StorageFull:
            full = True
            continue
        now_ms = store.head(probe).modified_ms
        store.delete(probe)
        return now_ms, full
    return max((each.modified_ms for each in store.list_from(LOG_FOLDER)), default=0), full


def _find(access: Access, now_ms: int, retention_ms: int, own_ms: int, *, dry_run: bool, check: Callable[[], None]) -> list[Garbage]:
    """The garbage there is, and the old files that nothing accounts for; `check` raises when the time is over."""
    cutoff_ms = now_ms - retention_ms
    check()
    begun = _unfinished(access.store)
    listed = _listed(access.store, check)
    check()
    first = access.read(consistency="latest")
    shown = Shown(access.address.location)
    shown.add_files(first)
    shown.add_tombstones(first, cutoff_ms)
    found = candidates(listed, shown, first.partition_columns, begun)
    owners = {each.owner for each in found if each.owner is not None and each.info.key not in shown.replaced}
    plans_before_ms = now_ms - max(retention_ms, own_ms, DELETED_FILE_RETENTION_DEFAULT_MS)
    refused = frozenset[str]() if dry_run else _refused_late(access)
    gone, busy = _owners(access.ours.context, owners, plans_before_ms, refused, dry_run=dry_run)
    check()
    last = access.read(consistency="latest")
    shown.add_files(last)
    shown.add_tombstones(last, cutoff_ms)
    _add_named(access, shown, found, last, cutoff_ms, whole=retention_ms > own_ms)
    check()
    horizon = horizon_of(access, cutoff_ms, last)
    shown.keep_what_went_after(horizon)
    if not dry_run:
        raise_horizon(access, cutoff_ms, horizon)
    if not _add_pinned(access, shown):
        return []
    created_ms = last.metadata.created_time or 0
    return list(judge(found, shown, gone=gone, busy=busy, cutoff_ms=cutoff_ms, created_ms=created_ms))


def _listed(store: ObjectStore, check: Callable[[], None]) -> list[ObjectInfo]:
    listed: list[ObjectInfo] = []
    for each in store.list_from("", recursive=True):
        if len(listed) % _LISTED_AT_ONCE == 0:
            check()
        listed.append(each)
    return listed


def _unfinished(store: ObjectStore) -> list[Unfinished]:
    """What was begun in the store and not completed, where that can be told."""
    if not isinstance(store, KeepsUnfinished):
        return []
    try:
        return list(store.unfinished())
    except (AccessDenied, InvalidRequest) as refused:
        _log.warning("what writers that died left unfinished in %s is not collected: %s", store.location, refused)
        return []


def _remove(store: ObjectStore, check: Callable[[], None], garbage: Garbage) -> None:
    check()
    if garbage.unfinished is None:
        store.delete(garbage.key)
    elif isinstance(store, KeepsUnfinished):
        store.abandon(garbage.unfinished)


def _owners(
    context: TableContext, owners: set[Owner], plans_before_ms: int, refused: frozenset[str], *, dry_run: bool
) -> tuple[dict[Owner, int | None], frozenset[Owner]]:
    """Those owners that are gone (from which term on they are not), and those that are busy, looked for in this order.

    All in one session, whose view never goes back; again from the start when it expired.
    """
    for attempt in range(_SESSIONS_MAX):
        session = context.coordination
        try:
            session.barrier()
            return _gone(context, session, owners, plans_before_ms, dry_run=dry_run), _busy(context, session, refused)
        except SessionLost:
            if attempt == _SESSIONS_MAX - 1:
                raise
    raise AssertionError("the last attempt returns or raises")


def _gone(
    context: TableContext, session: CoordinationStore, owners: set[Owner], plans_before_ms: int, *, dry_run: bool
) -> dict[Owner, int | None]:
    old_plans = {plan.owner for plan in open_plans(context) if plan.since_ms < plans_before_ms}
    for owner in () if dry_run else old_plans:
        close_owner(session, owner)
    ordered = sorted(owners)
    there = session.read_many([owner.path for owner in ordered])
    graves = session.read_many([f"{GRAVES}/{owner.name}" for owner in ordered])
    gone: dict[Owner, int | None] = {}
    for owner, node, grave in zip(ordered, there, graves, strict=True):
        if not owner.is_client:
            if node is None or owner in old_plans:
                gone[owner] = None
        elif grave is not None:
            gone[owner] = None
        elif node is not None:
            gone[owner] = oldest_term(node)
        elif dry_run or bury(session, owner, by=context.client.application, now_ms=context.clock.now_ms()):
            gone[owner] = None
    return gone


def _refused_late(access: Access) -> frozenset[str]:
    """See what became of the slots that came too late for their generation; those transactions that are refused.

    Anybody who asks files such a transaction again where it can be decided, so that it is needed until somebody did. One that
    cannot be read, or is one of several tables, is refused where it stands.
    """
    committer = access.ours
    session, tree, head = committer.context.coordination, committer.context.tree, access.head()
    refused: set[str] = set()
    for generation in (number for number in session.children(tree.generations) or () if int(number) < head.generation):
        for slot in map(SlotName.parse, session.children(f"{tree.generations}/{generation}") or ()):
            if slot is not None:
                deadline = Deadline.after(bounded_s(DEFAULT_TIMEOUT_S), committer.context.clock)
                outcome = committer.outcome(slot.transaction_id, deadline)
                refused |= {slot.transaction_id} if outcome.error is not None else set()
    return frozenset(refused)


def _busy(context: TableContext, session: CoordinationStore, refused: frozenset[str]) -> frozenset[Owner]:
    """The owners with a transaction that is filed and not published yet: an undecided slot, or a verdict beyond `published`.

    `refused` are transactions of which a slot stands that will never be decided.
    """
    tree = context.tree
    ids: set[str] = set()
    looked_at: set[str] = set()
    while unseen := set(session.children(tree.generations) or ()) - looked_at:
        # in their order, until there is no other: what came too late for one is filed again in a later one
        for generation in sorted(unseen, key=lambda name: (len(name), name)):
            slots = map(SlotName.parse, session.children(f"{tree.generations}/{generation}") or ())
            ids.update(slot.transaction_id for slot in slots if slot is not None and slot.transaction_id not in refused)
        looked_at |= unseen
    names = [name for name in map(VerdictName.parse, session.children(tree.verdicts) or ()) if name is not None]
    state = context.read_published()
    reached = (-1, -1, -1) if state is None else (state[0].generation, state[0].slot, state[0].version)
    pending = [tree.verdict(name) for name in names if (name.generation, name.slot, name.version) > reached]
    for node in session.read_many(pending):
        if node is not None:
            ids.update(verdict.transaction_id for verdict in BatchRecord.decode(node.data).verdicts)
    return frozenset(owner for each in ids if (owner := owner_of(each)) is not None)


def _add_named(access: Access, shown: Shown, found: Sequence[Candidate], last: Snapshot, cutoff_ms: int, *, whole: bool) -> None:
    """What commits within retention name and the snapshot does not tell: change data, and tombstones a checkpoint has dropped."""
    changes = [each for each in found if each.reason is Reason.CHANGES and each.info.modified_ms >= cutoff_ms]
    if not changes and not whole:
        return
    listing = list_versions(access.store)
    recent = [version for version, file in listing.commits.items() if file.modified_ms >= cutoff_ms and version <= last.version]
    first = min(recent, default=last.version + 1)
    published = max(listing.commits, default=-1)
    versions = sorted({*range(first, last.version + 1), *range(published + 1, last.version + 1)})
    shown.add_names(named_by(actions for _, actions in access.ours.log.commits(versions)))


def _add_pinned(access: Access, shown: Shown) -> bool:
    """Add what pinned versions need; False when nothing may be deleted because a pin cannot be read."""
    for version in sorted(pinned_versions(access.ours.context)):
        if version == EVERYTHING:
            _log.warning("nothing of %s is deleted: somebody pinned versions in a way this sluice cannot read", access.address.location)
            return False
        try:
            shown.add_files(access.at(version))
        except VersionNotFound as gone:
            _log.info("a pin on version %d of %s keeps nothing: %s", version, access.address.location, gone)
    return True
