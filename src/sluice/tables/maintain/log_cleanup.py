"""Cleans up the transaction log by the protocol's rules ("Metadata Cleanup" in PROTOCOL.md).

Commits are kept for `delta.logRetentionDuration` (30 days), counted from midnight UTC. Among older ones, everything before
the newest checkpoint that is also older is deleted; that checkpoint, its commit and everything after it stay, so that every
version within retention can be rebuilt. Both the commit's own time and its file's must be over. In addition to the
protocol's rules, everything stays that a pinned version needs or that an undecided transaction is compared with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from typing import Final

from ...coordinator.facade.maintenance import needed_versions
from ...storage.errors import VersionNotFound
from ...storage.intervals import interval_ms
from ...storage.log.paths import LogKind
from ...storage.log.segment import LogFile, LogListing, list_log, list_versions
from ...storage.log.timetravel import version_at
from ...storage.stores.objects import ObjectStore
from ..client.access import Access

__all__ = ["expired_log", "remove_log"]

_DAY_MS: Final = 24 * 3600 * 1000
_RETENTION_KEY: Final = "delta.logRetentionDuration"
_RETENTION_DEFAULT_MS: Final = 30 * _DAY_MS
_ENABLED_KEY: Final = "delta.enableExpiredLogCleanup"
_DELETIONS_MAX: Final = 8


def expired_log(access: Access, now_ms: int) -> list[LogFile]:
    """The files of the log that may be deleted, in the order of their versions."""
    configuration = access.current().configuration
    if configuration.get(_ENABLED_KEY, "true").lower() == "false":
        return []
    retention = configuration.get(_RETENTION_KEY)
    kept_ms = _RETENTION_DEFAULT_MS if retention is None else interval_ms(retention, name=_RETENTION_KEY)
    cutoff_ms = (now_ms - kept_ms) // _DAY_MS * _DAY_MS
    listing = list_versions(access.store)
    last = _last_expired(access.store, listing, cutoff_ms)
    # check: the-log-of-pinned-versions-is-kept (min([last, *needed_versions(access.ours)]) -> last)
    needed = min([last, *needed_versions(access.ours)])
    checkpoint = listing.newest_checkpoint(needed)
    if checkpoint is None:
        return []
    return [file for file in list_log(access.store) if file.path.version < checkpoint.version]


def _last_expired(store: ObjectStore, listing: LogListing, cutoff_ms: int) -> int:
    """The newest commit that, like all before it, is not newer than the cutoff; -1 for none."""
    commits = sorted(listing.commits)
    latest = commits[-1] if commits else -1
    try:
        by_time = version_at(store, cutoff_ms)
    except VersionNotFound as beyond:
        by_time = latest if beyond.details.get("version") == latest and latest > (commits[0] if commits else 0) else -1
    last = -1
    for version in commits:
        if version > by_time or listing.commits[version].modified_ms > cutoff_ms:
            break
        last = version
    return last


def remove_log(store: ObjectStore, files: Sequence[LogFile], check: Callable[[], None]) -> None:
    """Delete files of the log so that the rest can be rebuilt at every moment; `check` may raise between any two.

    In the order of versions; of a run of commits, the checkpoint before them goes first, since it is what makes them count.
    """

    def delete(file: LogFile) -> None:
        check()
        store.delete(file.key)

    with ThreadPoolExecutor(_DELETIONS_MAX, thread_name_prefix="sluice-log") as pool:
        # check: the-log-is-cleaned-in-order (_runs(files) -> reversed(list(_runs(files))))
        for run in _runs(files):
            delete(run[0])
            # check: the-log-is-cleaned-in-order (run[1:] -> reversed(run[1:]))
            list(pool.map(delete, run[1:]))


def _runs(files: Iterable[LogFile]) -> Iterator[list[LogFile]]:
    """The files in runs that begin with a checkpoint, or with the first commit of all."""

    def order(file: LogFile) -> tuple[int, bool, bool]:
        return file.path.version, not file.path.is_checkpoint, file.path.kind is not LogKind.COMMIT

    run: list[LogFile] = []
    for _, group in groupby(sorted(files, key=order), key=lambda file: file.path.version):
        of_version = list(group)
        if run and of_version[0].path.is_checkpoint:
            yield run
            run = []
        run += of_version
    if run:
        yield run
