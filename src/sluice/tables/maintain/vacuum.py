"""Garbage collection: deletes objects that no version needs and no transaction can ever need (I7).

The order of the steps makes it safe. An object that is deleted as an orphan was

1. listed before anything else was read, so that the transaction that wrote it had begun by then;
2. of an owner that was then found gone: a client buried in a multi that fails if the client is present, or that had given up the
   term; or a plan without a node. From then on nothing more of the owner is filed, since a transaction is filed in a multi
   that checks its owner's node;
3. of an owner without a slot, and without a verdict whose version was not published: read after (2) in the same session;
4. not shown by the latest version, including ratified ones, as read after (3).

A transaction filed before (2) was either seen undecided in (3), and then all objects of its owner stay, or decided before (3), and then
its files are shown in (4) or were refused. So no version shows the object, and none ever will; a collector that is paused between (4) and
the deletion does no harm either. Replaced files never come back: a commit only adds new ones.

A file without an owner in its name goes by age, unless somebody is adopting files: whoever does so opens a plan, and then asks the horizon
which files a collector may have given up before it saw that plan (`manage/adopting.py`).

None of this depends on clocks. But when a file was replaced is known by its writer's clock, and the present by the object store's:
`retain_hours` must be much longer than their difference.

The log is cleaned up by the protocol's rules ("Metadata Cleanup" in PROTOCOL.md). Commits are kept for `delta.logRetentionDuration`
(30 days), counted from midnight UTC, by their own time and their file's. Among older ones, everything before the newest checkpoint that is
also older is deleted, so that every version within retention can be rebuilt. Sidecars that no checkpoint names any more go when they are a
day old. In addition, everything stays that a pinned version needs or that an undecided transaction is compared with.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from typing import Final

from ...coordinator import api
from ...coordinator.api import Timeout
from ...coordinator.errors import OutcomeUnknown, table_moved
from ...coordinator.rules.intent import Terms
from ...storage.actions.features import PROTECTED_BEFORE_KEY, reader_features, writer_features
from ...storage.caches import at_once
from ...storage.constants import DELETED_FILE_RETENTION_DEFAULT_MS, DELETED_FILE_RETENTION_KEY, LOG_FOLDER, PROBE_PREFIX
from ...storage.dataclass import dataclass
from ...storage.errors import AccessDenied, InvalidRequest, LogGap, StorageFull, Unavailable, VersionNotFound
from ...storage.log.paths import LogFile, LogKind
from ...storage.log.segment import list_log, list_versions
from ...storage.log.sidecars import unnamed_sidecars
from ...storage.log.snapshot import Snapshot
from ...storage.log.timetravel import version_at
from ...storage.observing import observed
from ...storage.progress import followed
from ...storage.stores.objects import KeepsUnfinished, ObjectInfo, ObjectStore, Unfinished
from ...storage.times import interval_ms
from ..client.open_table import OpenTable
from ..client.time_limits import in_time
from .garbage import Candidate, Garbage, Reason, Shown, candidates, judge

_log = logging.getLogger(__name__)
_HOUR_MS: Final = 3600 * 1000
_OBJECTS_AT_ONCE: Final = 16
_DELETED_AT_ONCE: Final = 1024
_LISTED_AT_ONCE: Final = 256
_COMMITS_AT_ONCE: Final = 64

_DAY_MS: Final = 24 * 3600 * 1000
_RETENTION_KEY: Final = "delta.logRetentionDuration"
_RETENTION_DEFAULT_MS: Final = 30 * _DAY_MS
_ENABLED_KEY: Final = "delta.enableExpiredLogCleanup"
_LOG_FILES_AT_ONCE: Final = 8


@dataclass(frozen=True, slots=True)
class VacuumReport:
    """The result of a vacuum: the objects and files of the log that it deleted, or would delete (dry run).

    `foreign` are old files in the folder that stay because nothing says that they are the table's.
    """

    garbage: tuple[Garbage, ...]
    log_files: tuple[str, ...]
    retain_hours: float
    dry_run: bool
    foreign: tuple[Garbage, ...] = ()

    @property
    def size_bytes(self) -> int:
        """The total size of the objects, without the log's."""
        return sum(each.size for each in self.garbage)

    @property
    def counts(self) -> dict[str, int]:
        """How many objects there are of each reason."""
        reasons = [each.reason for each in self.garbage]
        return {reason.value: reasons.count(reason) for reason in Reason if reason in reasons}


def vacuum(
    table: OpenTable,
    *,
    retain_hours: float | None = None,
    dry_run: bool = False,
    force: bool = False,
    include_foreign: bool = False,
    timeout_s: Timeout | None = None,
) -> VacuumReport:
    """Delete what no version within retention needs and no transaction can ever need, and the log's expired files.

    `retain_hours` is how long files of replaced rows are kept for readers of older versions (the table's
    `delta.deletedFileRetentionDuration`, 7 days by default); a shorter time is refused without `force`. A dry run only reports, and need
    not be allowed to write. Files that nothing accounts for are deleted, by age, only with `include_foreign`. Raises InvalidRequest;
    Unavailable, also if `timeout_s` (None: no limit) is over: what is not deleted by then stays.
    """
    limit = None if timeout_s is None else api.Deadline.of(timeout_s, table.clock)
    run = _Run(table, retain_hours, dry_run, force, include_foreign, limit)
    if run.limit is None:
        return run.work()
    try:
        return in_time(run.limit, run.work, run.late)
    except OutcomeUnknown as unknown:  # of the commit that records it
        raise run.late() from unknown


@observed("deletions", _remove="vacuum")
@dataclass(slots=True)
class _Run:
    """A vacuum in progress."""

    table: OpenTable
    retain_hours: float | None
    dry_run: bool
    force: bool
    include_foreign: bool
    limit: api.Deadline | None
    deleted: int = 0

    def work(self) -> VacuumReport:
        """Do all of it."""
        table, dry_run = self.table, self.dry_run
        self.check()
        latest = table.read(consistency="latest")
        if not dry_run:
            latest.require_order()
        retention_ms, own_ms = _retention(latest.configuration.get(DELETED_FILE_RETENTION_KEY), self.retain_hours, force=self.force)
        try:
            now_ms, full = now_of(table.store)
        except AccessDenied:
            if not dry_run:
                raise
            now_ms, full = table.clock.now_ms(), False  # what only looks need not write
        judged = self._find(now_ms, retention_ms, own_ms)
        garbage = [each for each in judged if self.include_foreign or each.reason is not Reason.FOREIGN]
        foreign = () if self.include_foreign else tuple(each for each in judged if each.reason is Reason.FOREIGN)
        self.check()
        sidecars, log_files = expired_sidecars(table, now_ms), expired_log(table, now_ms)
        if not dry_run:
            self._delete(garbage, retention_ms, own_ms, full=full)
            remove_sidecars(table.store, sidecars, self.check)
            remove_log(table.store, log_files, self.check, protected=protected_before(latest) > 0)
            api.clear_graves(table.context.coordination, now_ms=table.clock.now_ms())
            api.clear_rooms(table.context.coordination, table.clock.now_ms())
        return VacuumReport(tuple(garbage), (*sidecars, *(file.key for file in log_files)), retention_ms / _HOUR_MS, dry_run, foreign)

    def check(self) -> None:
        """Raise Unavailable if the time is over."""
        if self.limit is not None and self.limit.over:
            raise self.late()

    def late(self) -> Unavailable:
        """The error when the time is over."""
        return Unavailable(
            f"the time given was over before the vacuum of {self.table.location} was done: it deleted {self.deleted} files, and "
            "the next one finds the rest; give it more time",
            location=self.table.location,
            deleted=self.deleted,
        )

    def _find(self, now_ms: int, retention_ms: int, own_ms: int) -> list[Garbage]:
        """The garbage, and the old files that nothing accounts for."""
        table, cutoff_ms = self.table, now_ms - retention_ms
        self.check()
        begun = _unfinished(table.store)
        listed: list[ObjectInfo] = []
        for each in table.store.list_from("", recursive=True):
            if len(listed) % _LISTED_AT_ONCE == 0:
                self.check()
            listed.append(each)
        self.check()
        first = table.read(consistency="latest")
        shown = Shown(table.location)
        shown.add_files(first, cutoff_ms)
        found = candidates(listed, shown, first.metadata.physical_partitions, begun)
        owners = {each.owner for each in found if each.owner is not None and each.info.key not in shown.replaced}
        plans_before_ms = now_ms - max(retention_ms, own_ms, DELETED_FILE_RETENTION_DEFAULT_MS)
        gone, busy = api.gone_and_busy(table, owners, plans_before_ms, dry_run=self.dry_run)
        self.check()
        # check: latest-is-read-last (table.read(consistency="latest") -> first)
        last = table.read(consistency="latest")
        shown.add_files(last, cutoff_ms)
        _add_named(table, shown, found, last, cutoff_ms, whole=retention_ms > own_ms)
        self.check()
        horizon = _horizon_of(table, cutoff_ms, last)
        # check: a-removal-counts-from-its-version
        shown.keep_what_went_after(horizon)
        # check: horizon-before-pins (after the next)
        if not self.dry_run:
            api.raise_horizon(table.context, horizon.version, cutoff_ms, foreign=self.include_foreign)
        if not _add_pinned(table, shown):
            return []
        # check: adopted-files-are-kept (api.is_adopting(table.context) -> False)
        adopting = api.is_adopting(table.context)
        # check: what-is-followed-is-kept
        _add_followed(table, shown, last)
        # check: restored-files-are-seen
        shown.add_files(table.read(consistency="latest"))
        # check: a-vacuum-ends-where-the-table-left
        if table.successor is not None:  # who is gone was asked at the former coordinator, and what it keeps is not looked at any more
            raise table_moved(table.location, str(table.successor.address.coordinator))
        found = [each for each in found if each.owner is not None or each.info.key in shown.replaced] if adopting else found
        return list(judge(found, shown, gone=gone, busy=busy, cutoff_ms=cutoff_ms, created_ms=last.metadata.created_time or 0))

    def _delete(self, garbage: Sequence[Garbage], retention_ms: int, own_ms: int, *, full: bool) -> None:
        """Delete, between two commits that record it, like Delta's VACUUM; a full store has no room for the first of them."""
        if not garbage:
            return
        parameters = {"retentionCheckEnabled": str(retention_ms >= own_ms).lower(), "specifiedRetentionMillis": str(retention_ms)}
        sizes = {"numFilesToDelete": str(len(garbage)), "sizeOfDataToDelete": str(sum(each.size for each in garbage))}
        if not full:
            self._note("VACUUM START", {**parameters, "defaultRetentionMillis": str(own_ms)}, sizes)
        with ThreadPoolExecutor(_OBJECTS_AT_ONCE, thread_name_prefix="sluice-vacuum") as pool:
            starts = range(0, len(garbage), _DELETED_AT_ONCE)
            removed = (each for start in starts for each in pool.map(self._remove, garbage[start : start + _DELETED_AT_ONCE]))
            for _ in followed(removed, len(garbage), "files deleted"):
                self.deleted += 1
        self._note("VACUUM END", {"status": "COMPLETED"}, {"numDeletedFiles": str(len(garbage))}, ack="ratified" if full else "published")

    def _remove(self, garbage: Garbage) -> None:
        self.check()
        store = self.table.store
        if garbage.unfinished is None:
            store.delete(garbage.key)
        elif isinstance(store, KeepsUnfinished):
            store.abandon(garbage.unfinished)

    def _note(self, operation: str, parameters: dict[str, str], metrics: dict[str, str], *, ack: str = "published") -> None:
        self.check()
        table = self.table
        terms = Terms(ack=ack)
        change = api.Change(table.new_transaction_id(), operation, table.current(), (), terms=terms, parameters=parameters, metrics=metrics)
        api.submit(table, change, timeout_s=self.limit)


def _retention(configured: str | None, retain_hours: float | None, *, force: bool) -> tuple[int, int]:
    """How long replaced files are kept, and how long the table asks for, in ms. Raises InvalidRequest for too short a time."""
    own_ms = DELETED_FILE_RETENTION_DEFAULT_MS if configured is None else interval_ms(configured, name=DELETED_FILE_RETENTION_KEY)
    if retain_hours is None:
        return own_ms, own_ms
    asked_ms = int(retain_hours * _HOUR_MS)
    # check: short-retentions-are-refused
    if asked_ms < own_ms and not force:
        raise InvalidRequest(
            f"retain_hours={retain_hours:g} is shorter than the {own_ms / _HOUR_MS:g} hours for which this table keeps replaced files "
            f"({DELETED_FILE_RETENTION_KEY}): readers of older versions, and other engines in the middle of a read, would lose theirs. "
            "Wait, change the property, or force it if no program reads older versions",
            retain_hours=retain_hours,
        )
    return asked_ms, own_ms


def now_of(store: ObjectStore) -> tuple[int, bool]:
    """The object store's time, by which its objects are dated, in ms since the epoch; and whether the store is full.

    If not even an empty object fits, it is the time of the log's newest object: earlier than now, so that less is deleted.
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


def _horizon_of(table: OpenTable, cutoff_ms: int, latest: Snapshot) -> Snapshot:
    """The version from which on all files are kept: the last one of `cutoff_ms`, or the first that can be read where that is later."""
    if cutoff_ms >= latest.timestamp_ms:
        return latest
    try:
        version = version_at(table.store, cutoff_ms)
    except VersionNotFound as edge:
        version = int(edge.details.get("version", latest.version))
    return latest if version >= latest.version else table.at(version)


def _unfinished(store: ObjectStore) -> list[Unfinished]:
    """Unfinished uploads in the store, if it can tell."""
    if not isinstance(store, KeepsUnfinished):
        return []
    try:
        return list(store.unfinished())
    except (AccessDenied, InvalidRequest) as refused:
        _log.warning("unfinished uploads of dead writers in %s are not collected: %s", store.location, refused)
        return []


def _add_named(table: OpenTable, shown: Shown, candidates: Sequence[Candidate], last: Snapshot, cutoff_ms: int, *, whole: bool) -> None:
    """Add what commits within retention name and the snapshot lacks: change data, and tombstones that a checkpoint dropped."""
    changes = [each for each in candidates if each.reason is Reason.CHANGES and each.info.modified_ms >= cutoff_ms]
    if not changes and not whole:
        return
    listing = list_versions(table.store)
    recent = [version for version, file in listing.commits.items() if file.modified_ms >= cutoff_ms and version <= last.version]
    first = min(recent, default=last.version + 1)
    versions = sorted({*range(first, last.version + 1), *range(max(listing.commits, default=-1) + 1, last.version + 1)})
    # check: change-data-is-kept
    shown.add_named_by(table.log.commits(versions))


def _add_followed(table: OpenTable, shown: Shown, last: Snapshot) -> None:
    """Add what consumers will read: what versions after their positions removed, and their change data."""
    first = api.followed_from(table.context)
    if first is None or first >= last.version:
        return
    try:
        shown.keep_what_went_after(table.at(max(first, 0)))
        for start in range(first + 1, last.version + 1, _COMMITS_AT_ONCE):
            shown.add_named_by(table.log.commits(range(start, min(start + _COMMITS_AT_ONCE, last.version + 1))))
    except (VersionNotFound, LogGap) as gone:
        _log.info("the position of a consumer at version %d of %s keeps nothing: %s", first, table.location, gone)


def _add_pinned(table: OpenTable, shown: Shown) -> bool:
    """Add what pinned versions need; False if nothing may be deleted because a pin cannot be read."""
    for version in sorted(api.pinned_versions(table.context)):
        if version == api.EVERYTHING:
            _log.warning("nothing of %s is deleted: this sluice cannot read a pin of a version there", table.location)
            return False
        try:
            # check: pins-are-kept (shown.add_files(table.at(version)) -> table.at(version))
            shown.add_files(table.at(version))
        except VersionNotFound as gone:
            _log.info("a pin on version %d of %s keeps nothing: %s", version, table.location, gone)
    return True


def expired_log(table: OpenTable, now_ms: int) -> list[LogFile]:
    """The files of the log that may be deleted, in the order of their versions."""
    configuration = table.current().configuration
    return log_until(table, (now_ms - log_kept_ms(configuration)) // _DAY_MS * _DAY_MS) if _cleans_up(configuration) else []


def log_kept_ms(configuration: Mapping[str, str]) -> int:
    """How long a table keeps the versions of its log, in milliseconds."""
    retention = configuration.get(_RETENTION_KEY)
    return _RETENTION_DEFAULT_MS if retention is None else interval_ms(retention, name=_RETENTION_KEY)


def log_until(table: OpenTable, cutoff_ms: int) -> list[LogFile]:
    """The files of the log that only versions up to `cutoff_ms` need and nobody is known to use, in the order of their versions."""
    listing = list_versions(table.store)
    commits = sorted(listing.commits)
    latest = commits[-1] if commits else -1
    try:
        by_time = version_at(table.store, cutoff_ms)
    except VersionNotFound as beyond:
        by_time = latest if beyond.details.get("version") == latest and latest > (commits[0] if commits else 0) else -1
    last = -1  # the newest commit that, like all before it, is not newer than the cutoff
    for version in commits:
        if version > by_time or listing.commits[version].modified_ms > cutoff_ms:
            break
        last = version
    # check: the-log-of-pinned-versions-is-kept (min([last, *api.needed_versions(table.context)]) -> last)
    needed = min([last, *api.needed_versions(table.context)])
    checkpoint = listing.newest_checkpoint(needed)
    # check: protected-checkpoints-go-all-at-once (without or checkpoint.version < protected_before(table.current()))
    if checkpoint is None or checkpoint.version < protected_before(table.current()):
        return []
    # of compactions also one that begins with the checkpoint's version, which no reader uses
    return [file for file in list_log(table.store) if file.version < checkpoint.version + (file.kind is LogKind.COMPACTED)]


def expired_sidecars(table: OpenTable, now_ms: int) -> list[str]:
    """The keys of sidecars and indexes that no checkpoint names, at least a day old: one that is being written names the others."""
    snapshot = table.current()
    if "v2Checkpoint" not in reader_features(snapshot.protocol) or not _cleans_up(snapshot.configuration):
        return []
    return unnamed_sidecars(table.store, (now_ms - _DAY_MS) // _DAY_MS * _DAY_MS)


def remove_sidecars(store: ObjectStore, keys: Sequence[str], check: Callable[[], None]) -> None:
    """Delete these sidecars; `check` may raise between any two.

    Those that the checkpoints which go in the same run name are left to the next run: whoever read such a checkpoint a moment ago may be
    reading its sidecars, or naming them again.
    """

    def delete(key: str) -> None:
        check()
        store.delete(key)

    at_once(delete, keys, _LOG_FILES_AT_ONCE, "sluice-log")


def _cleans_up(configuration: Mapping[str, str]) -> bool:
    return configuration.get(_ENABLED_KEY, "true").lower() != "false"


def protected_before(snapshot: Snapshot) -> int:
    """The version before which checkpoints and commits only go all at once ("checkpointProtection"); 0 without the feature."""
    return int(snapshot.configuration.get(PROTECTED_BEFORE_KEY, 0)) if "checkpointProtection" in writer_features(snapshot.protocol) else 0


def remove_log(store: ObjectStore, files: Sequence[LogFile], check: Callable[[], None], *, protected: bool = False) -> None:
    """Delete files of the log so that the rest can be rebuilt at every moment; `check` may raise between any two.

    Of a run of commits, the checkpoint before them goes first, since it is what makes them count; a `protected` one, by which older readers
    know what they cannot read, goes after them.
    """

    def delete(file: LogFile) -> None:
        check()
        store.delete(file.key)

    # check: the-log-is-cleaned-in-order (_runs(files) -> reversed(list(_runs(files))))
    for run in _runs(files):
        # check: protected-checkpoints-go-last
        if protected:
            at_once(delete, [each for each in run if not each.is_checkpoint], _LOG_FILES_AT_ONCE, "sluice-log")
            run = [each for each in run if each.is_checkpoint]
        for file in run[:1]:
            delete(file)
        # check: the-log-is-cleaned-in-order (run[1:] -> run[:0:-1])
        at_once(delete, run[1:], _LOG_FILES_AT_ONCE, "sluice-log")


def _runs(files: Iterable[LogFile]) -> Iterator[list[LogFile]]:
    """The files in runs that begin with a checkpoint, or with the first commit of all."""

    def order(file: LogFile) -> tuple[int, bool, bool]:
        return file.version, not file.is_checkpoint, file.kind is not LogKind.COMMIT

    run: list[LogFile] = []
    for _, group in groupby(sorted(files, key=order), key=lambda file: file.version):
        of_version = list(group)
        if run and of_version[0].is_checkpoint:
            yield run
            run = []
        run += of_version
    if run:
        yield run
