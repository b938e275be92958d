"""One version of a table: its schema and properties, and its files as an Arrow table."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from ..actions.features import check_readable, in_commit_timestamps
from ..actions.filetable import adds_of, removes_of, rows_at
from ..actions.records import Action, AddFile, CommitInfo, DomainMetadata, Metadata, Protocol, RemoveFile, Txn
from ..errors import CorruptLogFile, InvalidRequest, LogGap, MissingObject, ObjectNotFound, VersionNotFound
from ..stores.objects import ObjectStore
from .log_state import fetch_actions, read_state
from .replay import ReplayState
from .segment import LogFile, LogSegment, list_segment, list_versions
from .timetravel import in_commit_timestamp, leading_commit_info, refuse_copies

_log = logging.getLogger(__name__)
# If a list cannot be read because files of the log are gone, it is read from the present log.
_LOOKS_MAX: Final = 3
# A snapshot with more commits after it is read anew, from the last checkpoint.
_REFRESHED_MAX: Final = 200


class Snapshot:
    """An immutable version of a table.

    Its state (protocol, metadata, application transactions, domains) is loaded at once. The lists of files and tombstones
    are Arrow tables, read from the checkpoint on first use: a client that only appends never reads them. `advance` shares
    everything with the snapshot it starts from and costs only what the new commits cost.
    """

    def __init__(self, location: str, version: int, timestamp_ms: int, state: ReplayState, store: ObjectStore | None = None) -> None:
        if state.protocol is None or state.metadata is None:
            lacking = "protocol" if state.protocol is None else "metaData"
            raise CorruptLogFile(
                f"the log of {location} up to version {version} has no {lacking} action, so the table cannot be read; "
                f"ask the engine that wrote it: the first version of a table has both",
                location=location,
                version=version,
            )
        self._location = location
        self._version = version
        self._timestamp_ms = timestamp_ms
        self._state = state
        self._store = store
        self._protocol = state.protocol
        self._metadata = state.metadata
        self._size_bytes: int | None = None
        self._file: LogFile | None = None
        """The commit file of the version, if a listing showed it."""

    @classmethod
    def load(cls, store: ObjectStore, *, version: int | None = None) -> Snapshot:
        """The snapshot of `version`, or of the latest one in the log.

        Raises the errors of `list_segment`, CorruptLogFile for a damaged file, UnsupportedFeature if the table needs a
        reader feature that sluice lacks.
        """
        segment = list_segment(store, version)
        try:
            return cls._load(store, segment)
        except ObjectNotFound as cause:
            # A cleanup, or a writer of another checkpoint, may have interfered between listing and reading, or between two
            # reads.
            try:
                return cls._load(store, list_segment(store, version))
            except ObjectNotFound:
                named = f"the log of {store.location} names a file that is not there: {cause}"
                raise MissingObject(named, location=store.location) from cause

    @classmethod
    def _load(cls, store: ObjectStore, segment: LogSegment) -> Snapshot:
        snapshot = cls(segment.location, segment.version, 0, read_state(store, segment), store)
        check_readable(snapshot.protocol, snapshot.metadata)
        snapshot._look_at_disorder()
        snapshot._timestamp_ms = _timestamp(store, segment, snapshot)
        snapshot._file = segment.last_commit
        return snapshot

    def advance(self, commits: Sequence[tuple[int, Iterable[Action]]], *, modified_ms: Mapping[int, int] | None = None) -> Snapshot:
        """The snapshot after `commits`, which are (version, actions) and follow this version without a gap.

        `modified_ms` gives the times of the commit files, for tables without in-commit timestamps; without it the writer's
        own timestamp is used. Raises InvalidRequest for versions that do not follow.
        """
        expected = range(self._version + 1, self._version + 1 + len(commits))
        versions = [version for version, _ in commits]
        if versions != list(expected):
            raise InvalidRequest(f"commits {versions} do not follow version {self._version}: give consecutive ones", versions=versions)
        if not commits:
            return self
        state = self._state.after(actions for _, actions in commits)
        version, timestamp = versions[-1], None
        if state.commit_info is not None:
            timestamp = state.commit_info.in_commit_timestamp
        if timestamp is None and modified_ms is not None:
            timestamp = modified_ms.get(version)
        if timestamp is None and state.commit_info is not None:
            timestamp = state.commit_info.timestamp
        snapshot = Snapshot(self._location, version, self._timestamp_ms if timestamp is None else timestamp, state, self._store)
        if snapshot.protocol is not self.protocol or snapshot.metadata is not self.metadata:
            check_readable(snapshot.protocol, snapshot.metadata)
        if state.disorder != self._state.disorder:
            snapshot._look_at_disorder()
        return snapshot

    def _look_at_disorder(self) -> None:
        """Warn if somebody changed the time of a commit. Raises CorruptLogFile if a file is another version's copy."""
        if self._state.disorder and self._store is not None:
            refuse_copies(self._store, self._state.disorder)
            _log.warning("%s can be read, and not written: %s", self._location, self._state.disorder)

    def require_order(self) -> None:
        """Raise CorruptLogFile if in-commit timestamps do not grow: then nothing is written, since commits go by them."""
        if self._state.disorder:
            raise CorruptLogFile(
                f"{self._location} can be read, and not written: {self._state.disorder}. Somebody changed one of the two files after its "
                "commit; sluice doctor names it; restore it from a copy",
                location=self._location,
                version=self._version,
            )

    def refresh(self, store: ObjectStore) -> Snapshot:
        """The snapshot of the latest version in the log: this one advanced by the commits since.

        If the file of this version is not the one that was read, the log is another table's or was cleaned up: it is read
        anew. So it is after very many commits: a checkpoint has them.
        """
        listed = list_versions(store, self._version).commits
        if (listed.pop(self._version, None) != self._file and self._file is not None) or len(listed) > _REFRESHED_MAX:
            return Snapshot.load(store)
        commits = [listed[version] for version in sorted(listed)]
        if [each.path.version for each in commits] != list(range(self._version + 1, self._version + 1 + len(commits))):
            return Snapshot.load(store)  # names the gap, or starts from a later checkpoint
        fetched = zip((each.path.version for each in commits), fetch_actions(store, commits), strict=True)
        fresh = self.advance(list(fetched), modified_ms={each.path.version: each.modified_ms for each in commits})
        fresh._file = commits[-1] if commits else self._file
        return fresh

    @property
    def location(self) -> str:
        """The table's root."""
        return self._location

    @property
    def version(self) -> int:
        """The number of the version."""
        return self._version

    @property
    def timestamp_ms(self) -> int:
        """The version's in-commit timestamp, or the time of its commit file."""
        return self._timestamp_ms

    @property
    def protocol(self) -> Protocol:
        """The versions and features that a client must implement to use the table."""
        return self._protocol

    @property
    def metadata(self) -> Metadata:
        """The table's id, schema, partitioning and properties."""
        return self._metadata

    @property
    def partition_columns(self) -> tuple[str, ...]:
        """The names of the partition columns, in order."""
        return self._metadata.partition_columns

    @property
    def configuration(self) -> Mapping[str, str]:
        """The table's properties."""
        return self._metadata.configuration

    @property
    def commit_info(self) -> CommitInfo | None:
        """The commitInfo of this version's commit, if it was read."""
        return self._state.commit_info

    @property
    def commit_file(self) -> LogFile | None:
        """The commit file of the version, if a listing showed it."""
        return self._file

    @property
    def files(self) -> pa.Table:
        """The live files, in `filetable.FILES_SCHEMA`.

        The first access reads the list. Raises CorruptLogFile for a damaged checkpoint, MissingObject if the checkpoint was
        cleaned up since the snapshot was loaded and no newer one up to this version exists.
        """
        return self._listed(lambda state: state.files.table)

    @property
    def tombstones(self) -> pa.Table:
        """The removed files still in the log, in `filetable.TOMBSTONES_SCHEMA`. Reads and raises like `files`."""
        return self._listed(lambda state: state.tombstones.table)

    def _listed(self, look: Callable[[ReplayState], pa.Table], looks: int = _LOOKS_MAX) -> pa.Table:
        try:
            return look(self._state)
        except (ObjectNotFound, MissingObject) as gone:
            if looks == 1:
                raise self._not_listed(gone) from gone
            self._state = self._read_again(gone)
        return self._listed(look, looks - 1)

    def _read_again(self, gone: ObjectNotFound | MissingObject) -> ReplayState:
        """The state with its lists as the log has them now: a cleanup removed the files they were to be read from.

        The lists may be of any version from the planned one up to this one. The known changes may be in them already, and
        applying them again gives the same result.
        """
        assert self._store is not None, "only a snapshot loaded from a store reads lists later"
        listing = list_versions(self._store)
        there = (*listing.commits, *(each.version for each in listing.checkpoints))
        version = max((each for each in there if each <= self._version), default=-1)
        try:
            if version >= self._state.lists_at:
                other = read_state(self._store, list_segment(self._store, version))
                if other.metadata is None or other.metadata.id != self._metadata.id:
                    gone.add_note("and the log now belongs to another table")
                    raise self._not_listed(gone) from gone
                files, tombstones = self._state.files.on(other.files), self._state.tombstones.on(other.tombstones)
                return replace(self._state, files=files, tombstones=tombstones)
        except (VersionNotFound, LogGap, ObjectNotFound) as cause:
            gone.add_note(f"and the log as it is now: {cause}")
        raise self._not_listed(gone) from gone

    def _not_listed(self, gone: ObjectNotFound | MissingObject) -> MissingObject:
        return MissingObject(
            f"the list of files of version {self._version} of {self._location} cannot be read: {gone.message}; if the log was cleaned up, "
            "read a newer version",
            location=self._location,
            version=self._version,
        )

    @property
    def app_transactions(self) -> Mapping[str, Txn]:
        """The newest transaction of each application."""
        return self._state.app_transactions

    @property
    def domains(self) -> Mapping[str, DomainMetadata]:
        """The configuration of each domain except removed ones."""
        return self._state.domains

    @property
    def num_files(self) -> int:
        """How many files are live."""
        return int(self.files.num_rows)

    @property
    def size_bytes(self) -> int:
        """The total size of the live files."""
        if self._size_bytes is None:
            self._size_bytes = pc.sum(self.files.column("size")).as_py() or 0
        return self._size_bytes

    @property
    def held(self) -> Mapping[int, int]:
        """The bytes of each table of the lists in memory, by its identity, since snapshots share tables."""
        return {**self._state.files.held, **self._state.tombstones.held}

    def add_files(self, indices: Iterable[int] | None = None) -> Iterator[AddFile]:
        """The records of the live files, or of those in the given rows of `files`."""
        files = self.files
        return adds_of(files if indices is None else rows_at(files, list(indices)))

    def remove_files(self) -> Iterator[RemoveFile]:
        """The records of the tombstones."""
        return removes_of(self.tombstones)

    def __repr__(self) -> str:
        return f"Snapshot({self._location!r}, version={self._version})"


def _timestamp(store: ObjectStore, segment: LogSegment, snapshot: Snapshot) -> int:
    """The time of the latest version: its in-commit timestamp, else the time of its file.

    A version that switches in-commit timestamps off still has one, which may be later than its file's time.
    """
    commit = segment.last_commit
    if commit is None:
        # The commit file was cleaned up; the checkpoint was written soon after it.
        assert segment.checkpoint is not None
        return segment.checkpoint.parts[0].modified_ms
    info = snapshot.commit_info if segment.deltas else leading_commit_info(store, segment.version)
    if info is not None and info.in_commit_timestamp is not None:
        return info.in_commit_timestamp
    return in_commit_timestamp(store, segment.version) if in_commit_timestamps(snapshot.protocol, snapshot.metadata) else commit.modified_ms
