"""`sluice.Table`: a Delta table that any number of writers commit to, in a fair order."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from types import TracebackType
from typing import TypeVar

import pyarrow as pa

from ..coordinator.commit.outcomes import Commit, Outcome
from ..coordinator.leases.lease import Lease
from ..coordinator.limits import Limits
from ..coordinator.service.clock import DEFAULT_TIMEOUT_S, Deadline, SystemClock, Timeout, bounding
from ..storage.errors import InvalidRequest
from ..storage.log.snapshot import Snapshot
from ..storage.log.timetravel import version_at
from ..storage.schema.schema import StructType, parse_schema, to_arrow
from .client.access import Access
from .client.address import TableAddress
from .client.leasing import LeaseOn, leases, pin_version, table_lease
from .maintain.compaction import compact
from .maintain.vacuum import VacuumReport, vacuum
from .manage import creation
from .manage.dropping import DropReport, drop
from .manage.properties import domains_of, remove_domain, set_domain, set_properties, unset_properties
from .read.changes import ChangesPart, changes, iter_changes, split_changes
from .read.history import HistoryEntry, history
from .read.table_snapshot import TableSnapshot
from .table_writes import TableWrites
from .transact import ATTEMPTS, transact
from .transaction import Transaction

__all__ = ["Table"]

T = TypeVar("T")


class Table(TableWrites):
    """A Delta table under sluice. Made by `create`, `open` or `attach`; safe for several threads.

    Every write is one transaction: it is committed as a whole or not at all, after everything that claimed its place
    before. Writes raise NotCommitted (ConcurrentModification: repeat the operation), OutcomeUnknown (ask `outcome`) or
    Unavailable (nothing is lost, repeat later), and InvalidRequest before anything is written.
    """

    # -- making and opening ------------------------------------------------------------------------------------------

    @classmethod
    def create(
        cls,
        location: str | os.PathLike[str],
        schema: pa.Schema | StructType,
        *,
        partition_by: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        allow_nonempty: bool = False,
        coordinator: str | None = None,
        storage_options: Mapping[str, str] | None = None,
        application: str | None = None,
        ack: str = "published",
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> Table:
        """Create a table: its version 0. Raises TableExists, also for the slower of two who create it at once.

        A folder with other files in it is refused (InvalidRequest) without `allow_nonempty`.

        `location` is a path, `file://`, `s3://bucket/prefix`; `coordinator` is `zk://host:port,.../chroot` or
        `embedded://` (the default, or what SLUICE_COORDINATOR says). `timeout_s` bounds this commit and later ones, as for `open`.
        """
        address = TableAddress.of(location, coordinator, storage_options, application)
        columns = [partition_by] if isinstance(partition_by, str) else list(partition_by)
        with bounding(timeout_s, SystemClock()) as limit:
            access, _ = creation.create(address, schema, columns, properties or {}, allow_nonempty=allow_nonempty, timeout_s=limit)
        return cls(access, ack=ack, timeout_s=timeout_s)

    @classmethod
    def open(
        cls,
        location: str | os.PathLike[str],
        *,
        coordinator: str | None = None,
        storage_options: Mapping[str, str] | None = None,
        consistency: str = "latest",
        application: str | None = None,
        ack: str = "published",
        timeout_s: float = DEFAULT_TIMEOUT_S,
        limits: Limits | None = None,
    ) -> Table:
        """Open a table that sluice manages; with `consistency="published"` any Delta table, to read, without a coordinator.

        `consistency` is what reads see where they do not say it themselves: "latest" (never older than the last commit that anybody
        was told of), "serial" (what is undecided is decided first) or "session" (at least what was committed through this object).
        `ack` says when a write returns: "published" (every engine finds it) or "ratified" (decided for good, one
        object-store write earlier). `timeout_s` bounds each commit. Raises TableNotFound, NotATable, UnsupportedFeature,
        ForeignCommit, CoordinatorUnavailable.
        """
        address = TableAddress.of(location, coordinator, storage_options, application)
        return cls(Access.opened(address, limits, consistency), ack=ack, timeout_s=timeout_s)

    @classmethod
    def attach(
        cls,
        location: str | os.PathLike[str],
        *,
        coordinator: str | None = None,
        storage_options: Mapping[str, str] | None = None,
        application: str | None = None,
        ack: str = "published",
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> Table:
        """Bring an existing Delta table under sluice; see `creation.attach`. An attached one is opened."""
        with bounding(timeout_s, SystemClock()) as limit:
            access, _ = creation.attach(TableAddress.of(location, coordinator, storage_options, application), timeout_s=limit)
        return cls(access, ack=ack, timeout_s=timeout_s)

    def detach(self, *, timeout_s: Timeout | None = None) -> Commit:
        """Give the table back to every Delta engine; sluice commits nothing to it from then on."""
        with self._bounding(timeout_s) as limit:
            return creation.detach(self._access, timeout_s=limit)

    def drop(self, *, keep_data: bool = False, timeout_s: Timeout | None = None) -> DropReport:
        """Take the table out of the coordinator and delete its files; with `keep_data` they stay, a Delta table for any engine to write.

        What was filed before is decided first. Files that nothing says are the table's stay, and are named in the report. Whoever has
        the table open gets TableDropped; the location is free for another table at once. A drop that was interrupted is finished by
        `sluice drop`.
        """
        self.close()
        return drop(self._access.address, keep_data=keep_data, timeout_s=self._limit(timeout_s))

    # -- what it is --------------------------------------------------------------------------------------------------

    @property
    def location(self) -> str:
        """The normalised URI of the table."""
        return self._access.address.location

    @property
    def version(self) -> int:
        """The version this object has read, never older than its own commits; `refresh` moves it on."""
        return self._shown().version

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the version this object has read."""
        return to_arrow(self.struct)

    @property
    def struct(self) -> StructType:
        """The same as Delta's schema type."""
        return parse_schema(self._shown().metadata.schema_string)

    @property
    def partition_columns(self) -> tuple[str, ...]:
        """The columns the table is partitioned by."""
        return self._shown().partition_columns

    @property
    def properties(self) -> Mapping[str, str]:
        """The table's properties."""
        return self._shown().configuration

    @property
    def domains(self) -> Mapping[str, str]:
        """The configurations of the users' metadata domains, by name."""
        return domains_of(self._shown())

    def _shown(self) -> Snapshot:
        """The snapshot in hand, brought up to what was committed through this object."""
        shown, committer = self._access.current(), self._access.committer
        if committer is None or committer.last_committed <= shown.version:
            return shown
        return self._access.read(None, "session", timeout_s=self._timeout_s)

    def refresh(self, consistency: str | None = None, *, timeout_s: Timeout | None = None) -> Table:
        """Read up to the newest version that the level shows (see `snapshot`); returns the table."""
        self._access.read(None, consistency, timeout_s=self._limit(timeout_s))
        return self

    # -- reorganising and settings -----------------------------------------------------------------------------------

    def compact(
        self,
        mode: str = "minor",
        where: str | None = None,
        *,
        target_file_size: int | str | None = None,
        z_order_by: str | Sequence[str] | None = None,
        timeout_s: Timeout | None = None,
    ) -> Commit | None:
        """Write files again as fewer, larger ones; no row changes. None, and no version, when there is nothing to do.

        "minor" merges small files; "major" also writes those with deleted rows again, so that these are physically gone.
        `where` names partition columns only; files get `target_file_size` (bytes, or a text like "128mb"; the property
        delta.targetFileSize by default). `z_order_by` orders all rows by up to 8 columns at once: always a major compaction.

        One commit replaces up to 50,000 files, or the files of one partition that are z-ordered; for more there are several, each
        complete in itself, and the answer is the last of them (`Commit.commits`). With `timeout_s` the call ends in that time: with
        OutcomeUnknown when it was not enough, and whole commits at most. Without it only each commit is bounded, as others are.
        """
        commit = compact(
            self._access,
            mode,
            where,
            target_file_size=target_file_size,
            z_order_by=z_order_by,
            ack=self._ack,
            timeout_s=timeout_s,
            commit_timeout_s=self._timeout_s,
        )
        return self._note(commit)

    def set_properties(self, properties: Mapping[str, str], *, timeout_s: Timeout | None = None) -> Commit | None:
        """Set properties, and add the table features they need; None when they are so already.

        Raises InvalidRequest for what is no property or means nothing, ConstraintViolated when rows break a new constraint.
        """
        with self._bounding(timeout_s) as limit:
            return self._note(set_properties(self._access, properties, ack=self._ack, timeout_s=limit))

    def unset_properties(self, names: Iterable[str], *, timeout_s: Timeout | None = None) -> Commit | None:
        """Take properties away, constraints too; None when none of them is set."""
        with self._bounding(timeout_s) as limit:
            return self._note(unset_properties(self._access, names, ack=self._ack, timeout_s=limit))

    def set_domain(self, name: str, configuration: str, *, timeout_s: Timeout | None = None) -> Commit | None:
        """Keep a text of the users' own with the table; of two who write one domain at once the later is refused."""
        with self._bounding(timeout_s) as limit:
            return self._note(set_domain(self._access, name, configuration, ack=self._ack, timeout_s=limit))

    def remove_domain(self, name: str, *, timeout_s: Timeout | None = None) -> Commit | None:
        """Remove such a text; None when there is none of that name."""
        with self._bounding(timeout_s) as limit:
            return self._note(remove_domain(self._access, name, ack=self._ack, timeout_s=limit))

    # -- keeping others out ------------------------------------------------------------------------------------------

    def lease(self, mode: str = "exclusive", where: str | None = None, wait_s: Timeout | None = None, name: str | None = None) -> Lease:
        """Take a lease on the table, or on the partitions that satisfy `where`; use it in a `with` block, or call its `release`.

        While an "exclusive" one is held nobody else commits what reads or changes what it covers: such commits wait, each for its own
        time. While "shared" ones are held only their holders change it. Leases that meet are granted in the order of asking; this
        one waits for `wait_s` seconds (None: as long as it takes). What this thread commits while it is held is ratified only
        if it still stands. Raises LeaseHeld (with holder, host and since when), DeadlockDetected, CoordinatorUnavailable.
        """
        return leases([self.lease_on(mode, where, name=name)], wait_s=wait_s)

    def lease_on(self, mode: str = "exclusive", where: str | None = None, *, name: str | None = None) -> LeaseOn:
        """The same to ask for together with others, by `sluice.leases`."""
        return table_lease(self._access, mode, where, name)

    def transact(
        self, work: Callable[[Transaction], T], *, attempts: int = ATTEMPTS, isolation: str | None = None, timeout_s: Timeout | None = None
    ) -> T:
        """Run `work(transaction)` and commit it; when another commit came first, run it again on the new state, `attempts` times in all.

        After three losses it takes an exclusive lease over what it reads, so that it gets through beside any number of writers.
        Returns what `work` returned. Raises the last conflict, and what `work` raises, after which nothing is committed.
        """
        application = self._access.ours.context.client.application
        limit = self._limit(timeout_s)
        return transact(self, work, attempts=attempts, isolation=isolation, timeout_s=limit, application=application)

    # -- reading -----------------------------------------------------------------------------------------------------

    def snapshot(
        self,
        version: int | None = None,
        timestamp: int | None = None,
        *,
        consistency: str | None = None,
        timeout_s: Timeout | None = None,
    ) -> TableSnapshot:
        """The latest version, or that of a number, or the one that was current at a time (ms since the epoch, UTC).

        What is the latest one is up to `consistency`: "latest", "published", "serial" or "session", as `open` explains them; the
        table's own when None. Raises VersionNotFound for what is beyond the latest version or was cleaned up.
        """
        if version is not None and timestamp is not None:
            raise InvalidRequest(f"version={version} and timestamp={timestamp} were given; give one of them")
        if timestamp is not None:
            if type(timestamp) is not int:
                raise InvalidRequest(
                    f"timestamp {timestamp!r} is no time: give milliseconds since the epoch, such as int(when.timestamp() * 1000)",
                    timestamp=timestamp,
                )
            version = version_at(self._access.store, timestamp)
        pin = None if self._access.committer is None else partial(pin_version, self._access)
        return TableSnapshot(self._access.store, self._access.read(version, consistency, timeout_s=self._limit(timeout_s)), pin=pin)

    def changes(
        self,
        after: int,
        up_to: int | None = None,
        *,
        by: str = "version",
        columns: Sequence[str] | None = None,
        where: str | None = None,
        consistency: str | None = None,
        timeout_s: Timeout | None = None,
    ) -> pa.Table:
        """The rows that versions after `after`, up to `up_to` (the latest when None), inserted and deleted, oldest first.

        `after` = -1 is before the first version; with `by` = "timestamp" both are ms since the epoch. Beside the table's columns (or
        `columns`) stand `_change_type`, `_commit_version` and `_commit_timestamp`; `where` may name them too. Raises VersionNotFound and
        MissingObject, which say what is still there, for history that was cleaned up. `changes_batches` needs bounded memory only.
        `timeout_s` bounds what the coordinator is asked, here and in what follows; the store takes what it takes.
        """
        with self._bounding_reads(timeout_s):
            return changes(self._access, after, up_to, by=by, columns=columns, where=where, consistency=consistency)

    def changes_batches(
        self,
        after: int,
        up_to: int | None = None,
        *,
        by: str = "version",
        columns: Sequence[str] | None = None,
        where: str | None = None,
        consistency: str | None = None,
        timeout_s: Timeout | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Like `changes`, batch by batch. Commits that are missing are told at the call, data files while reading."""
        with self._bounding_reads(timeout_s):
            return iter_changes(self._access, after, up_to, by=by, columns=columns, where=where, consistency=consistency)

    def split_changes(
        self,
        after: int,
        up_to: int | None = None,
        *,
        by: str = "version",
        consistency: str | None = None,
        parts: int = 1,
        timeout_s: Timeout | None = None,
    ) -> list[ChangesPart]:
        """The same in up to `parts` pieces, at least one, for readers elsewhere, who only need to reach the object store."""
        with self._bounding_reads(timeout_s):
            return split_changes(self._access, after, up_to, by=by, consistency=consistency, parts=parts)

    def history(self, limit: int | None = 20, *, timeout_s: Timeout | None = None) -> list[HistoryEntry]:
        """The latest transactions, newest first."""
        with self._bounding_reads(timeout_s):
            return history(self._access, limit)

    def outcome(self, transaction_id: str, *, timeout_s: Timeout | None = None) -> Outcome:
        """What became of a transaction, whoever ran it; an undecided one is decided now."""
        with self._bounding(timeout_s) as deadline:
            return self._access.ours.outcome(transaction_id, deadline)

    def vacuum(
        self,
        retain_hours: float | None = None,
        *,
        dry_run: bool = False,
        force: bool = False,
        include_foreign: bool = False,
        timeout_s: Timeout | None = None,
    ) -> VacuumReport:
        """Delete what no version within retention needs and no transaction can come to need, and the log's expired files.

        `retain_hours` is for how long replaced files are kept for readers of older versions: the table's
        `delta.deletedFileRetentionDuration` (7 days) when None; a shorter time is refused unless it is forced. Files of writers that
        are alive stay however old they are; those of dead ones go however young. A dry run tells what would go. Old files that nothing
        accounts for are reported (`VacuumReport.foreign`), and go with `include_foreign` only.

        With `timeout_s` the call ends in that time, with Unavailable when it was not enough: what was not deleted by then is left to the
        next one. Without it nothing bounds the whole, for it takes as long as there is to list and to delete.
        """
        return vacuum(
            self._access,
            retain_hours=retain_hours,
            dry_run=dry_run,
            force=force,
            include_foreign=include_foreign,
            timeout_s=timeout_s,
        )

    def checkpoint(self, *, timeout_s: Timeout | None = None) -> int:
        """Write a checkpoint of the latest published version now; returns that version. `timeout_s` bounds what is asked of ZooKeeper."""
        with self._bounding_reads(timeout_s):
            return self._checkpointer.now()

    def _bounding_reads(self, timeout_s: Timeout | None) -> AbstractContextManager[Deadline]:
        """The same as `_bounding`, where there may be no coordinator."""
        return bounding(self._limit(timeout_s), SystemClock()) if self._access.committer is None else self._bounding(timeout_s)

    def close(self) -> None:
        """See what was ratified published, and wait for a checkpoint under way, for up to the table's `timeout_s` together.

        The session with the coordinator is the process's and stays.
        """
        limit = Deadline.after(self._timeout_s)
        if self._access.committer is not None:
            self._access.committer.background.drain(limit.left_s)
        self._checkpointer.wait(limit.left_s)

    def __enter__(self) -> Table:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Table({self.location!r}, version={self.version})"
