"""One version of a table: its schema and properties, and its files as an Arrow table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.compute as pc

from .checkpoint import read_checkpoint
from .codec import decode_commit
from .errors import CorruptLogFile, InvalidRequest, MissingObject, ObjectNotFound
from .features import check_readable, in_commit_timestamps
from .filetable import adds_of, removes_of
from .objects import ObjectStore
from .paths import commit_path
from .records import Action, AddFile, CommitInfo, DomainMetadata, Metadata, Protocol, RemoveFile, Txn
from .replay import ReplayState
from .segment import LogFile, LogSegment, list_log, list_segment
from .timetravel import commit_info, in_commit_timestamp, version_at

__all__ = ["Snapshot", "version_at"]

# Requests for log files under way at once; they are small, so latency is what counts.
_FETCHES_MAX = 8


class Snapshot:
    """An immutable version of a table.

    Files are held in Arrow. `advance` shares everything with the snapshot it starts from and costs what the new commits
    cost; the `files` table itself is put together when somebody looks at it.
    """

    def __init__(self, location: str, version: int, timestamp_ms: int, state: ReplayState) -> None:
        if state.protocol is None or state.metadata is None:
            lacking = "protocol" if state.protocol is None else "metaData"
            raise CorruptLogFile(
                f"the log of {location} up to version {version} has no {lacking} action, so the table cannot be read; "
                f"restore the log from a copy",
                location=location,
                version=version,
            )
        self._location = location
        self._version = version
        self._timestamp_ms = timestamp_ms
        self._state = state
        self._protocol = state.protocol
        self._metadata = state.metadata
        self._size_bytes: int | None = None

    @classmethod
    def load(cls, store: ObjectStore, *, version: int | None = None) -> Snapshot:
        """The snapshot of `version`, or of the latest one in the log.

        Raises what `list_segment` raises, CorruptLogFile for a damaged file, UnsupportedFeature when the table needs a
        reader feature that sluice lacks.
        """
        segment = list_segment(store, version)
        try:
            return cls._load(store, segment)
        except ObjectNotFound as cause:
            # A cleanup may have come between the listing and the read; then a new listing does not show what it removed.
            again = list_segment(store, version)
            if again != segment:
                return cls._load(store, again)
            raise MissingObject(f"the log of {store.location} names a file that is not there: {cause}", location=store.location) from cause

    @classmethod
    def _load(cls, store: ObjectStore, segment: LogSegment) -> Snapshot:
        state = ReplayState() if segment.checkpoint is None else read_checkpoint(store, segment.checkpoint)
        state = state.after(_fetch(store, segment.deltas))
        snapshot = cls(segment.location, segment.version, 0, state)
        check_readable(snapshot.protocol, snapshot.metadata)
        snapshot._timestamp_ms = _timestamp(store, segment, snapshot)
        return snapshot

    def advance(self, commits: Sequence[tuple[int, Sequence[Action]]], *, modified_ms: Mapping[int, int] | None = None) -> Snapshot:
        """The snapshot after `commits`, which are (version, actions) and follow this version without a gap.

        `modified_ms` gives the times of the commit files, for tables without in-commit timestamps; without it the
        writer's own timestamp stands in. Raises InvalidRequest for versions that do not follow.
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
        snapshot = Snapshot(self._location, version, self._timestamp_ms if timestamp is None else timestamp, state)
        if snapshot.protocol is not self.protocol or snapshot.metadata is not self.metadata:
            check_readable(snapshot.protocol, snapshot.metadata)
        return snapshot

    def refresh(self, store: ObjectStore) -> Snapshot:
        """The snapshot of the latest version in the log: this one advanced by the commits that came since."""
        commits = [each for each in list_log(store, self._version + 1) if each.key == commit_path(each.path.version)]
        if [each.path.version for each in commits] != list(range(self._version + 1, self._version + 1 + len(commits))):
            return Snapshot.load(store)  # names the gap, or starts from a checkpoint beyond it
        fetched = zip((each.path.version for each in commits), _fetch(store, commits), strict=True)
        return self.advance(list(fetched), modified_ms={each.path.version: each.modified_ms for each in commits})

    @property
    def location(self) -> str:
        """The table's root."""
        return self._location

    @property
    def version(self) -> int:
        """The version this is."""
        return self._version

    @property
    def timestamp_ms(self) -> int:
        """When the version was made: its in-commit timestamp, or the time of its commit file."""
        return self._timestamp_ms

    @property
    def protocol(self) -> Protocol:
        """What a client must implement to use the table."""
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
        """What the commit of this version says about itself, where it was read."""
        return self._state.commit_info

    @property
    def files(self) -> pa.Table:
        """The live files, in `filetable.FILES_SCHEMA`."""
        return self._state.files.table

    @property
    def tombstones(self) -> pa.Table:
        """The removed files that the log still remembers, in `filetable.TOMBSTONES_SCHEMA`."""
        return self._state.tombstones.table

    @property
    def app_transactions(self) -> Mapping[str, Txn]:
        """The newest transaction of each application."""
        return self._state.app_transactions

    @property
    def domains(self) -> Mapping[str, DomainMetadata]:
        """The configuration of each domain that is not removed."""
        return self._state.domains

    @property
    def num_files(self) -> int:
        """How many files are live."""
        return int(self.files.num_rows)

    @property
    def size_bytes(self) -> int:
        """The sizes of the live files together."""
        if self._size_bytes is None:
            self._size_bytes = pc.sum(self.files.column("size")).as_py() or 0
        return self._size_bytes

    def add_files(self, indices: Iterable[int] | None = None) -> Iterator[AddFile]:
        """The records of the live files, or of those in the given rows of `files`."""
        files = self.files
        return adds_of(files if indices is None else files.take(pa.array(indices, pa.int64())))

    def remove_files(self) -> Iterator[RemoveFile]:
        """The records of the tombstones."""
        return removes_of(self.tombstones)

    def __repr__(self) -> str:
        return f"Snapshot({self._location!r}, version={self._version})"


def _fetch(store: ObjectStore, files: Sequence[LogFile]) -> Iterator[tuple[Action, ...]]:
    """The actions of each file, in order; several files are fetched at once."""
    if len(files) <= 1:
        for each in files:
            yield decode_commit(store.get(each.key), name=each.key)
        return
    with ThreadPoolExecutor(min(_FETCHES_MAX, len(files))) as pool:
        for each, data in zip(files, pool.map(store.get, [each.key for each in files]), strict=True):
            yield decode_commit(data, name=each.key)


def _timestamp(store: ObjectStore, segment: LogSegment, snapshot: Snapshot) -> int:
    """The time of the latest version: the one it carries, else that of its file.

    One that switches in-commit timestamps off carries one still, which may be later than that of its file.
    """
    commit = segment.last_commit
    if commit is None:
        # The commit file was cleaned up; the checkpoint came soon after it.
        assert segment.checkpoint is not None
        return segment.checkpoint.parts[0].modified_ms
    info = snapshot.commit_info if segment.deltas else commit_info(store, segment.version)
    if info is not None and info.in_commit_timestamp is not None:
        return info.in_commit_timestamp
    return in_commit_timestamp(store, segment.version) if in_commit_timestamps(snapshot.metadata) else commit.modified_ms
