"""A stream of one table: reads the log for the planning, keeps what the batch in work needs, and stores which schema it shows."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from typing import Final

import pyarrow as pa

from ....coordinator.api import DEFAULT_TIMEOUT_S, Pin, SystemClock, bounding, pin_version
from ....storage.actions import Metadata, decode_commit, encode_all
from ....storage.actions.filetable import picked
from ....storage.dataclass import dataclass
from ....storage.errors import CorruptLogFile, InvalidRequest, ObjectNotFound, VersionNotFound
from ....storage.log.segment import list_versions
from ....storage.pruning.predicate import Predicate
from ....storage.stores.location import normalise, open_store
from ...client.open_table import ReadTable
from ...client.published_table import PublishedTable
from ..versions import CommitsAhead, PublishedVersions, range_by_time
from .offsets import Limits, Start, StreamOffset, StreamRules, another_table
from .planning import FirstSnapshot, StreamedTable, StreamFiles, end_of_batch, portions

_log = logging.getLogger(__name__)

_BEHIND_MAX: Final = 64
"""The versions behind whose bytes a report counts."""
_KEY: Final = "sluice-schema.json"
_FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class StreamRead:
    """Files of one version, and the condition on the rows to read of them (None: all rows).

    Changes are read by their numbers in `part`, and `whole` unless they can be divided among tasks.
    """

    version: int
    first: bool
    files: pa.Table
    rows: Predicate | None
    part: range
    whole: bool


class TableStream:
    """A table as the source of one streaming query. Not thread-safe: a query asks one thing at a time."""

    def __init__(
        self,
        table: ReadTable,
        published: PublishedVersions,
        rules: StreamRules,
        base: tuple[int, Metadata] | None = None,
        where: str | None = None,
    ) -> None:
        """`base` is the version, and its metadata, whose schema the stream shows (None: the latest one), `where` a condition on rows."""
        self._table, self._published, self._rules = table, published, rules
        self._order = (rules.event_time or "").lower()
        """How an offset tells the order of the first snapshot."""
        if base is None:
            current = table.current()
            base = current.version, current.metadata
        self.shown = StreamedTable(table.location, *base, rules)
        """The table as the stream shows it."""
        self._where = None if where is None else Predicate.parse(where, self.shown.struct)
        self._commits = CommitsAhead(table, published=True)
        self._versions: dict[int, StreamFiles] = {}
        self._first: FirstSnapshot | None = None
        self._pin: Pin | None = None
        self._target: int | None = None

    # -- offsets -----------------------------------------------------------------------------------------------------

    def initial_offset(self, start: Start) -> StreamOffset:
        """Where a query without a checkpoint begins. Raises VersionNotFound."""
        latest = self._published.latest()
        start.require_begun(self.shown.location, latest, SystemClock().now_ms())
        version, first = (latest + 1, False) if start.latest else (latest, True)
        if start.version is not None:
            version, first = start.version, False
        elif start.timestamp_ms is not None:
            try:  # the first version of this time or later; after the latest one if there is none yet
                version = range_by_time(self._table, start.timestamp_ms - 1, None, "published").after + 1
            except VersionNotFound as gone:
                if self._rules.fail_on_data_loss or gone.details.get("earliest") is None:
                    raise
                version = int(gone.details["earliest"])
            first = False
        order = self._order if first else None
        return StreamOffset.beginning(self.shown.metadata.id, version, first=first, changes=self._rules.changes, order=order)

    def latest_offset(self, start: StreamOffset, limits: Limits) -> StreamOffset:
        """The end of the batch that begins at `start`; `start` itself if there is nothing new for the stream.

        Raises the error of a version that stops the stream (InvalidRequest, SchemaMismatch), VersionNotFound for versions that were
        cleaned up.
        """
        latest = self._published.latest() if self._target is None else self._target
        self._check(start, latest)
        return end_of_batch(start, latest, limits, lambda place: self._files(place, latest))

    def stay_until_here(self) -> None:
        """From now on, offer only what is published now."""
        self._target = self._published.latest()

    def reads(self, start: StreamOffset, end: StreamOffset) -> Iterator[StreamRead]:
        """The reads of a batch, version by version."""
        # a batch of whole versions ends at the beginning of the next one, which need not be there yet
        latest = max(end.version if end.index or end.first else end.version - 1, self._published.latest())
        start = start.since(end)
        for place in (start, end):  # Spark keeps only the end of a first batch, and asks for its start again
            self._check(place, latest)
        for place, chosen, part in portions(start, end, lambda place: self._files(place, latest)):
            files, rows = chosen.files, None
            if place.first and chosen.ends is not None:
                rows = self._first_of(place.version).rows_between(part.start, part.stop)
                if rows is not None:
                    files = self._that_may_match(files, rows)
            else:
                files = files.slice(part.start, len(part))
            if (exclude := self._rules.exclude) is not None:
                files = picked(files, pa.array([exclude.search(path) is None for path in files["path"].to_pylist()], pa.bool_()))
            if self._where is not None:
                files = self._that_may_match(files, self._where)
                rows = self._where if rows is None else rows.and_(self._where)
            yield StreamRead(place.version, place.first, files, rows, part, chosen.whole)

    def _that_may_match(self, files: pa.Table, predicate: Predicate) -> pa.Table:
        shown = self.shown
        return picked(files, predicate.may_match(files, schema=shown.struct, partition_columns=shown.metadata.partition_columns))

    def committed(self, end: StreamOffset) -> None:
        """Forget what lies before this offset: it is never asked for again."""
        self._versions = {version: files for version, files in self._versions.items() if version >= end.version}
        if not end.first:
            self._forget_first()

    def behind(self, place: StreamOffset) -> dict[str, int]:
        """The latest version, how many versions lie between it and this place, and their bytes if they are few."""
        latest = self._published.latest()
        count = max(0, latest + 1 - place.version - place.first)
        told = {"version": latest, "versionsBehind": count}
        if count > _BEHIND_MAX:
            return told
        size = 0
        while place.first or place.version <= latest:
            files = self._files(place, latest)
            size += files.size_from(place.index)
            place = files.after(place, files.count)
        return {**told, "bytesBehind": size}

    def close(self) -> None:
        """Let go of what is kept for the stream."""
        self._forget_first()
        self._versions.clear()

    # -- versions ----------------------------------------------------------------------------------------------------

    def _check(self, start: StreamOffset, latest: int) -> None:
        """Raise unless the offset belongs to this table as it is now."""
        shown = self.shown
        if start.table != shown.metadata.id:
            raise another_table(shown.location, start.table, shown.metadata.id)
        if start.changes not in (None, self._rules.changes):
            has, option = ("new rows", "true") if self._rules.changes else ("changes", "false")
            raise InvalidRequest(
                f"the checkpoint belongs to a stream that read {has} of {shown.location}, and this query has readChangeFeed={option}: "
                "use the option as before, or start with a new checkpoint",
                option="readChangeFeed",
            )
        order = self._order
        if start.first and start.index > 0 and start.order not in (None, order):
            had, wanted = [
                f"the order of {each!r}" if each else "the order in which its files were written" for each in (start.order, order)
            ]
            of_before = f"give withEventTimeOrder=true and eventTimeColumn={start.order!r}"
            remedy = of_before if start.order else "leave withEventTimeOrder and eventTimeColumn out"
            raise InvalidRequest(
                f"the checkpoint belongs to a stream that read a part of the first snapshot of {shown.location} in {had}, and this query "
                f"asks for {wanted}, in which other rows are left: {remedy} until that snapshot is read, or start with a new checkpoint",
                option="withEventTimeOrder",
            )
        if start.version > latest + 1 and not start.first:
            raise VersionNotFound(
                f"the stream has read {shown.location} up to version {start.version - 1}, and its latest version is {latest}: the table "
                "was put back to an earlier state; start the query with a new checkpoint",
                location=shown.location,
                version=start.version - 1,
                latest=latest,
            )

    def _files(self, place: StreamOffset, latest: int) -> StreamFiles:
        if place.first:
            try:
                return self._first_of(place.version).files
            except VersionNotFound as gone:
                earliest = min(list_versions(self._table.store).commits, default=None)
                return self._gone(place.version, VersionNotFound(gone.message, **{**gone.details, "earliest": earliest}))
        known = self._versions.get(place.version)
        if known is None:
            try:
                known = self.shown.files(place.version, self._commits.actions(place.version, latest))
            except VersionNotFound as gone:
                known = self._gone(place.version, gone)
            self._versions[place.version] = known
        return known

    def _gone(self, version: int, gone: VersionNotFound) -> StreamFiles:
        """The stream after a version that was cleaned up: it goes on at the earliest one, or raises VersionNotFound."""
        earliest = gone.details.get("earliest")
        there = f"the first one there is {earliest}" if earliest is not None else "no later one is there"
        what = f"version {version} of {self.shown.location}, which the stream has yet to read, was cleaned up; {there}"
        if self._rules.fail_on_data_loss or earliest is None or earliest <= version:
            raise VersionNotFound(
                f"{what}. Read the table with a new checkpoint, or go on from version {earliest}, without the rows between, with "
                "failOnDataLoss=false; delta.logRetentionDuration says how long versions are kept",
                **{**gone.details, "location": self.shown.location, "version": version},
            ) from gone
        _log.warning("%s; it goes on there, since failOnDataLoss=false", what)
        return StreamFiles(following=int(earliest))

    # -- the first snapshot ------------------------------------------------------------------------------------------

    def _first_of(self, version: int) -> FirstSnapshot:
        if self._first is None or self._first.version != version:
            self._first = FirstSnapshot(self._table.at(version), self.shown)
        # Its files are kept from garbage collection until all of them are read.
        if not isinstance(self._table, PublishedTable) and (self._pin is None or not self._pin.held):
            try:
                with bounding(DEFAULT_TIMEOUT_S, self._table.clock):
                    self._pin = pin_version(self._table.context, version)
            except VersionNotFound as beyond:  # a file that is gone is reported when it is read
                _log.info("version %d of %s cannot be pinned: %s", version, self.shown.location, beyond)
        return self._first

    def first_timestamp_ms(self, version: int) -> int:
        """The time of the first snapshot."""
        return self._first_of(version).timestamp_ms

    def _forget_first(self) -> None:
        pin, self._pin, self._first = self._pin, None, None
        if pin is not None:
            pin.release()


class SchemaTracking:
    """The schema that a stream shows, stored in a folder that no other stream uses.

    A stream shows one schema from its start to its end: by default that of the table's latest version at its start. A stream that tracks
    schemas reads up to the version that changes the schema, stores that version, and stops; its next start shows the stored version's
    schema. The object also holds the version's metadata, because a cleanup of the log may remove the version.
    """

    def __init__(self, location: str, storage_options: Mapping[str, str]) -> None:
        """Raises UnknownScheme for a location that is in no store of sluice."""
        self.location = normalise(location)
        self._store = open_store(self.location, storage_options)

    def shown(self) -> tuple[int, Metadata] | None:
        """The version whose schema the stream shows, with its metadata; None before the stream's first start.

        Raises InvalidRequest for an object that sluice did not write, and for one in the format of a later release.
        """
        try:
            text = self._store.get(_KEY)
        except ObjectNotFound:
            return None
        head, _, line = text.partition(b"\n")
        try:
            stored = json.loads(head)
            number, version = stored["format"], stored["version"]
            [metadata] = decode_commit(line, name=_KEY) if number == _FORMAT else [None]
        except (ValueError, KeyError, TypeError, CorruptLogFile) as cause:
            raise InvalidRequest(f"{self.location} has a file {_KEY} that sluice did not write: {cause}", location=self.location) from cause
        if not isinstance(metadata, Metadata) or type(version) is not int:
            raise InvalidRequest(
                f"{self.location} has a file {_KEY} of format {number!r}, and this release reads format {_FORMAT}: use the release that "
                "wrote it, or start with a new checkpoint and another schemaTrackingLocation",
                location=self.location,
            )
        return version, metadata

    def show(self, version: int, metadata: Metadata) -> None:
        """Store the version whose schema the stream shows from its next start on."""
        self._store.put(_KEY, json.dumps({"format": _FORMAT, "version": version}).encode() + b"\n" + encode_all((metadata,)))
