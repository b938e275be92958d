"""Single commits of the log, and the version that was current at a time ("In-Commit Timestamps" in PROTOCOL.md)."""

from __future__ import annotations

from bisect import bisect_right
from functools import partial
from operator import getitem

from ..actions.codec import actions_of, decode
from ..actions.features import in_commit_timestamps
from ..actions.records import CommitInfo
from ..actions.texts import Text, lines, stored_text
from ..constants import ICT_ENABLEMENT_VERSION_KEY
from ..errors import CorruptLogFile, LogGap, ObjectNotFound, VersionNotFound
from ..stores.objects import ObjectStore
from ..times import text_of
from .paths import commit_path
from .replay import read_state
from .segment import LogListing, list_segment, list_versions

# A commit's first line is its commitInfo, which is nearly always smaller than this.
_FIRST_READ_BYTES = 64 * 1024


def read_commit(store: ObjectStore, version: int) -> Text:
    """A version's commit file, a reference if it is large. Raises VersionNotFound, or LogGap if there are commits before and after it."""
    try:
        return stored_text(store, commit_path(version))
    except ObjectNotFound as cause:
        commits = sorted(list_versions(store).commits)
        if commits and commits[0] < version < commits[-1]:
            raise LogGap(
                f"version {version} of {store.location} is missing: {commit_path(version)} is not there, but versions {commits[0]} and "
                f"{commits[-1]} are; restore it from a copy",
                location=store.location,
                version=version,
            ) from cause
        there = f"the log has the commits of versions {commits[0]} to {commits[-1]}" if commits else "the log has no commit"
        raise VersionNotFound(
            f"the commit of version {version} of {store.location} is not there: {there}",
            location=store.location,
            version=version,
            earliest=commits[0] if commits else None,
            latest=commits[-1] if commits else None,
        ) from cause


def commit_info(store: ObjectStore, version: int) -> CommitInfo | None:
    """The commitInfo of a version, or None if it has none. Raises the errors of `read_commit`."""
    if (leading := leading_commit_info(store, version)) is not None:
        return leading
    actions = actions_of(read_commit(store, version), name=commit_path(version))
    return next((action for action in actions if isinstance(action, CommitInfo)), None)


def leading_commit_info(store: ObjectStore, version: int) -> CommitInfo | None:
    """The commitInfo if it is the commit's first action, as with in-commit timestamps; None otherwise. Costs one small request."""
    try:
        start = store.get_range(commit_path(version), 0, _FIRST_READ_BYTES)
    except ObjectNotFound:
        return None
    if not start.startswith(b'{"commitInfo"'):
        return None
    line, newline, _ = start.partition(b"\n")
    if not newline and len(start) == _FIRST_READ_BYTES:
        line = next(lines(read_commit(store, version)))
    action = decode(line)
    return action if isinstance(action, CommitInfo) else None


def refuse_copies(store: ObjectStore, disorder: str) -> None:
    """Raise CorruptLogFile if two commits of the log are one transaction's: one file was copied over the other, whose rows are lost.

    `disorder` says by what that was noticed.
    """
    versions: dict[str, int] = {}
    for version in sorted(list_versions(store).commits):
        info = commit_info(store, version)
        transaction = None if info is None else info.fields.get("txnId")
        if transaction is None:
            continue
        if transaction in versions:
            raise CorruptLogFile(
                f"{disorder}: versions {versions[transaction]} and {version} have one content, so one file was copied over the other. "
                "sluice doctor names it; restore it from a copy",
                file=commit_path(version),
            )
        versions[transaction] = version


def in_commit_timestamp(store: ObjectStore, version: int) -> int:
    """The in-commit timestamp of a version that must have one. Raises CorruptLogFile if it has none."""
    info = commit_info(store, version)
    if info is None or info.in_commit_timestamp is None:
        name = commit_path(version)
        raise CorruptLogFile(
            f"{name} has no in-commit timestamp, but the table has them switched on: restore it from a copy; if an engine wrote it that "
            f"ignores the table's features, stop that engine and move the file to another place",
            file=name,
            line=1,
        )
    return info.in_commit_timestamp


def version_at(store: ObjectStore, timestamp_ms: int) -> int:
    """The latest version that existed at `timestamp_ms` (since the epoch, UTC).

    From the version that switched in-commit timestamps on, these count; before it, the times of the commit files count, each
    moved to 1 ms after its predecessor's if it is not later. Raises VersionNotFound for a time before the first version that
    can be rebuilt, or after the latest one.
    """
    segment = list_segment(store)
    listing = list_versions(store)
    earliest = listing.earliest
    commits = [version for version in sorted(listing.commits) if earliest is not None and earliest <= version <= segment.version]
    if not commits:
        raise VersionNotFound(
            f"no version of {store.location} can be found by time: the log has a checkpoint of version {segment.version}, but no commit; "
            f"ask for the version by its number",
            location=store.location,
            timestamp_ms=timestamp_ms,
        )
    state = read_state(store, segment)
    versions, by_commit = commits, list[int]()
    if state.metadata is not None and in_commit_timestamps(state.protocol, state.metadata):
        # Without an enablement version they were on from the beginning.
        first = int(state.metadata.configuration.get(ICT_ENABLEMENT_VERSION_KEY, 0))
        versions, by_commit = [each for each in commits if each < first], [each for each in commits if each >= first]
    if by_commit and (not versions or timestamp_ms >= in_commit_timestamp(store, by_commit[0])):
        # Each is read when the search needs it: it needs few.
        versions, time_of = by_commit, partial(in_commit_timestamp, store)
    else:
        time_of = partial(getitem, file_times(listing))
    index = bisect_right(versions, timestamp_ms, key=time_of) - 1
    beyond = versions[-1] == commits[-1] and index == len(versions) - 1 and timestamp_ms > time_of(versions[-1])
    if index < 0 or beyond:
        edge, nearest = ("latest", versions[-1]) if beyond else ("earliest available", versions[0])
        time = text_of(time_of(nearest))
        raise VersionNotFound(
            f"{store.location} has no version for {text_of(timestamp_ms)}: its {edge} version is {nearest}, of {time}",
            location=store.location,
            timestamp_ms=timestamp_ms,
            version=nearest,
        )
    return versions[index]


def file_times(listing: LogListing) -> dict[int, int]:
    """The times of the existing commit files (ms since the epoch), each later than its predecessor's."""
    times: dict[int, int] = {}
    previous: int | None = None
    for version in sorted(listing.commits):
        modified = listing.commits[version].modified_ms
        previous = modified if previous is None or modified > previous else previous + 1
        times[version] = previous
    return times
