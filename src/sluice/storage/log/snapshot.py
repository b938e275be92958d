"""One version of a table: its schema and properties, and its files as an Arrow table."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Literal

import pyarrow as pa
import pyarrow.compute as pc

from ..actions.features import check_readable, in_commit_timestamps
from ..actions.filetable import adds_of
from ..actions.records import Action, AddFile
from ..errors import CorruptLogFile, InvalidRequest, LogGap, MissingObject, ObjectNotFound, VersionNotFound
from ..stores.objects import ObjectStore
from .checksum import compare_checksum, content_of
from .paths import LogFile
from .replay import ReplayState, fetch_actions, read_state
from .segment import LogSegment, list_segment, list_versions
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
        self._store = store
        self._state = state
        self._to_compare = False
        """Whether the version's checksum is to be compared when the list of files is read."""
        self.location: Final = location
        """The table's root."""
        self.version: Final = version
        """The number of the version."""
        self.timestamp_ms = timestamp_ms
        """The version's in-commit timestamp, or the time of its commit file."""
        self.commit_file: LogFile | None = None
        """The commit file of the version, if a listing showed it."""
        self.protocol: Final = state.protocol
        """The versions and features that a client must implement to use the table."""
        self.metadata: Final = state.metadata
        """The table's id, schema, partitioning and properties."""
        self.partition_columns: Final = state.metadata.partition_columns
        """The names of the partition columns, in order."""
        self.configuration: Final = state.metadata.configuration
        """The table's properties."""
        self.commit_info: Final = state.commit_info
        """The commitInfo of this version's commit, if it was read."""
        self.app_transactions: Final = state.app_transactions
        """The newest transaction of each application."""
        self.domains: Final = state.domains
        """The configuration of each domain except removed ones."""

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
        snapshot._to_compare = segment.has_checksum
        snapshot.commit_file = commit = segment.last_commit
        if commit is None:
            # It was cleaned up; the checkpoint was written soon after it.
            assert segment.checkpoint is not None
            snapshot.timestamp_ms = segment.checkpoint.parts[0].modified_ms
            return snapshot
        # A version that switches in-commit timestamps off still has one, which may be later than its file's time.
        info = snapshot.commit_info if segment.deltas else leading_commit_info(store, segment.version)
        if info is not None and info.in_commit_timestamp is not None:
            snapshot.timestamp_ms = info.in_commit_timestamp
        elif in_commit_timestamps(snapshot.protocol, snapshot.metadata):
            snapshot.timestamp_ms = in_commit_timestamp(store, segment.version)
        else:
            snapshot.timestamp_ms = commit.modified_ms
        return snapshot

    def advance(self, commits: Sequence[tuple[int, Iterable[Action]]], *, modified_ms: Mapping[int, int] | None = None) -> Snapshot:
        """The snapshot after `commits`, which are (version, actions) and follow this version without a gap.

        `modified_ms` gives the times of the commit files, for tables without in-commit timestamps; without it the writer's
        own timestamp is used. Raises InvalidRequest for versions that do not follow.
        """
        versions = [version for version, _ in commits]
        if versions != list(range(self.version + 1, self.version + 1 + len(commits))):
            raise InvalidRequest(f"commits {versions} do not follow version {self.version}: give consecutive ones", versions=versions)
        if not commits:
            return self
        state = self._state.after([actions for _, actions in commits])
        version, timestamp = versions[-1], None
        if state.commit_info is not None:
            timestamp = state.commit_info.in_commit_timestamp
        if timestamp is None and modified_ms is not None:
            timestamp = modified_ms.get(version)
        if timestamp is None and state.commit_info is not None:
            timestamp = state.commit_info.timestamp
        snapshot = Snapshot(self.location, version, self.timestamp_ms if timestamp is None else timestamp, state, self._store)
        if snapshot.protocol is not self.protocol or snapshot.metadata is not self.metadata:
            check_readable(snapshot.protocol, snapshot.metadata)
        if state.disorder != self._state.disorder:
            snapshot._look_at_disorder()
        return snapshot

    def _look_at_disorder(self) -> None:
        """Warn if somebody changed the time of a commit. Raises CorruptLogFile if a file is another version's copy."""
        if self._state.disorder and self._store is not None:
            refuse_copies(self._store, self._state.disorder)
            _log.warning("%s can be read, and not written: %s", self.location, self._state.disorder)

    def require_order(self) -> None:
        """Raise CorruptLogFile if in-commit timestamps do not grow: then nothing is written, since commits go by them."""
        if self._state.disorder:
            raise CorruptLogFile(
                f"{self.location} can be read, and not written: {self._state.disorder}. Somebody changed one of the two files after its "
                "commit; sluice doctor names it; restore it from a copy",
                location=self.location,
                version=self.version,
            )

    def refresh(self, store: ObjectStore) -> Snapshot:
        """The snapshot of the latest version in the log: this one advanced by the commits since.

        If the file of this version is not the one that was read, the log is another table's or was cleaned up: it is read
        anew. So it is after very many commits: a checkpoint has them.
        """
        listed = list_versions(store, self.version).commits
        if (listed.pop(self.version, None) != self.commit_file and self.commit_file is not None) or len(listed) > _REFRESHED_MAX:
            return Snapshot.load(store)
        commits = [listed[version] for version in sorted(listed)]
        if [each.version for each in commits] != list(range(self.version + 1, self.version + 1 + len(commits))):
            return Snapshot.load(store)  # names the gap, or starts from a later checkpoint
        fetched = zip((each.version for each in commits), fetch_actions(store, commits), strict=True)
        fresh = self.advance(list(fetched), modified_ms={each.version: each.modified_ms for each in commits})
        fresh.commit_file = commits[-1] if commits else self.commit_file
        return fresh

    @property
    def files(self) -> pa.Table:
        """The live files, in `filetable.FILES_SCHEMA`.

        The first access reads the list. Raises CorruptLogFile for a damaged checkpoint, MissingObject if the checkpoint was
        cleaned up since the snapshot was loaded and no newer one up to this version exists.
        """
        files = self._listed("files")
        if self._to_compare and self._store is not None:
            self._to_compare = False
            compare_checksum(self._store, self.version, self.summary())
        return files

    @property
    def tombstones(self) -> pa.Table:
        """The removed files still in the log, in `filetable.TOMBSTONES_SCHEMA`. Reads and raises like `files`."""
        return self._listed("tombstones")

    def _listed(self, name: Literal["files", "tombstones"]) -> pa.Table:
        for _ in range(_LOOKS_MAX - 1):
            try:
                return getattr(self._state, name).table
            except (ObjectNotFound, MissingObject) as gone:
                self._state = self._read_again(gone)
        try:
            return getattr(self._state, name).table
        except (ObjectNotFound, MissingObject) as gone:
            raise self._not_listed(gone) from gone

    def _read_again(self, gone: ObjectNotFound | MissingObject) -> ReplayState:
        """The state with its lists as the log has them now: a cleanup removed the files they were to be read from.

        The lists may be of any version from the planned one up to this one. The known changes may be in them already, and
        applying them again gives the same result.
        """
        assert self._store is not None, "only a snapshot loaded from a store reads lists later"
        listing = list_versions(self._store)
        there = (*listing.commits, *(each.version for each in listing.checkpoints))
        version = max((each for each in there if each <= self.version), default=-1)
        try:
            if version >= self._state.lists_at:
                other = read_state(self._store, list_segment(self._store, version))
                if other.metadata is None or other.metadata.id != self.metadata.id:
                    gone.add_note("and the log now belongs to another table")
                    raise self._not_listed(gone) from gone
                files, tombstones = self._state.files.on(other.files), self._state.tombstones.on(other.tombstones)
                return replace(self._state, files=files, tombstones=tombstones)
        except (VersionNotFound, LogGap, ObjectNotFound) as cause:
            gone.add_note(f"and the log as it is now: {cause}")
        raise self._not_listed(gone) from gone

    def _not_listed(self, gone: ObjectNotFound | MissingObject) -> MissingObject:
        return MissingObject(
            f"the list of files of version {self.version} of {self.location} cannot be read: {gone.message}; if the log was cleaned up, "
            "read a newer version",
            location=self.location,
            version=self.version,
        )

    @property
    def lists_at_hand(self) -> bool:
        """Whether the list of files takes no request to the store."""
        return self._state.lists_held or self._state.files.is_read

    @property
    def num_files(self) -> int:
        """How many files are live."""
        return int(self.files.num_rows)

    @property
    def size_bytes(self) -> int:
        """The total size of the live files."""
        return pc.sum(self.files.column("size")).as_py() or 0

    @property
    def held(self) -> Mapping[int, int]:
        """The bytes of each table of the lists in memory, by its identity, since snapshots share tables."""
        return {**self._state.files.held, **self._state.tombstones.held}

    def summary(self) -> dict[str, Any]:
        """What the version has, as its version checksum says it. Reads the list of files."""
        content = content_of(self.metadata, self.protocol, self.app_transactions.values(), self.domains.values())
        content |= {"tableSizeBytes": self.size_bytes, "numFiles": self.num_files}
        transaction = None if self.commit_info is None else self.commit_info.fields.get("txnId")
        if isinstance(transaction, str):
            content["txnId"] = transaction
        if in_commit_timestamps(self.protocol, self.metadata):
            content["inCommitTimestampOpt"] = self.timestamp_ms
        return content

    def add_files(self) -> Iterator[AddFile]:
        """The records of the live files."""
        return adds_of(self.files)

    def __repr__(self) -> str:
        return f"Snapshot({self.location!r}, version={self.version})"
