"""`sluice.Table`: a Delta table that any number of writers commit to, in a fair order."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType

import pyarrow as pa

from ..coordinator.clock import Deadline
from ..coordinator.limits import Limits
from ..coordinator.outcomes import Commit, Outcome
from ..storage.actions import AddFile
from ..storage.errors import InvalidRequest
from ..storage.schema import StructType, parse_schema, to_arrow
from ..storage.timetravel import version_at
from . import creation
from .access import Access, TableAddress, check_consistency
from .commits import commit_write, commit_write_once, delete, plan_write
from .compaction import compact
from .history import HistoryEntry, history
from .maintenance import Checkpointer
from .properties import domains_of, remove_domain, set_domain, set_properties, unset_properties
from .transactions import DEFAULT_TIMEOUT_S
from .views import TableSnapshot
from .writing import Rows, WritePlan, schema_of

__all__ = ["Table"]

_ACKS = ("published", "ratified")


class Table:
    """A Delta table under sluice. Made by `create`, `open` or `attach`; safe for several threads.

    Every write is one transaction: it is committed as a whole or not at all, after everything that claimed its place
    before. Writes raise NotCommitted (ConcurrentModification: repeat the operation), OutcomeUnknown (ask `outcome`) or
    Unavailable (nothing is lost, repeat later), and InvalidRequest before anything is written.
    """

    def __init__(self, access: Access, *, ack: str = "published", timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        if ack not in _ACKS:
            raise InvalidRequest(f"ack is {ack!r}; use one of {', '.join(_ACKS)}")
        self._access = access
        self._ack = ack
        self._timeout_s = timeout_s
        self._checkpointer = Checkpointer(access)

    # -- making and opening ------------------------------------------------------------------------------------------

    @classmethod
    def create(
        cls,
        location: str | os.PathLike[str],
        schema: pa.Schema | StructType,
        *,
        partition_by: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        coordinator: str | None = None,
        storage_options: Mapping[str, str] | None = None,
        application: str | None = None,
        ack: str = "published",
    ) -> Table:
        """Create a table: its version 0. Raises TableExists, also for the slower of two who create it at once.

        `location` is a path, `file://`, `s3://bucket/prefix`; `coordinator` is `zk://host:port,.../chroot` or
        `embedded://` (the default, or what SLUICE_COORDINATOR says).
        """
        address = TableAddress.of(location, coordinator, storage_options, application)
        access, _ = creation.create(
            address, schema, [partition_by] if isinstance(partition_by, str) else list(partition_by), properties or {}
        )
        return cls(access, ack=ack)

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
        check_consistency(consistency)
        address = TableAddress.of(location, coordinator, storage_options, application)
        access = Access.published(address) if consistency == "published" else Access.coordinated(address, limits, consistency)
        return cls(access, ack=ack, timeout_s=timeout_s)

    @classmethod
    def attach(
        cls,
        location: str | os.PathLike[str],
        *,
        coordinator: str | None = None,
        storage_options: Mapping[str, str] | None = None,
        application: str | None = None,
        ack: str = "published",
    ) -> Table:
        """Bring an existing Delta table under sluice; see `creation.attach`. An attached one is opened."""
        access, _ = creation.attach(TableAddress.of(location, coordinator, storage_options, application))
        return cls(access, ack=ack)

    def detach(self) -> Commit:
        """Give the table back to every Delta engine; sluice commits nothing to it from then on."""
        return creation.detach(self._access)

    # -- what it is --------------------------------------------------------------------------------------------------

    @property
    def location(self) -> str:
        """The normalised URI of the table."""
        return self._access.address.location

    @property
    def version(self) -> int:
        """The version this object has read; `refresh` moves it on."""
        return self._access.current().version

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the version this object has read."""
        return to_arrow(self.struct)

    @property
    def struct(self) -> StructType:
        """The same as Delta's schema type."""
        return parse_schema(self._access.current().metadata.schema_string)

    @property
    def partition_columns(self) -> tuple[str, ...]:
        """The columns the table is partitioned by."""
        return self._access.current().partition_columns

    @property
    def properties(self) -> Mapping[str, str]:
        """The table's properties."""
        return self._access.current().configuration

    @property
    def domains(self) -> Mapping[str, str]:
        """The configurations of the users' metadata domains, by name."""
        return domains_of(self._access.current())

    def refresh(self, consistency: str | None = None) -> Table:
        """Read up to the newest version that the level shows (see `snapshot`); returns the table."""
        self._access.read(None, consistency, timeout_s=self._timeout_s)
        return self

    # -- writing -----------------------------------------------------------------------------------------------------

    def append(
        self, rows: Rows, *, merge_schema: bool = False, transaction: tuple[str, int] | None = None, timeout_s: float | None = None
    ) -> Commit | None:
        """Add rows. None, and no version, when there are none.

        `merge_schema` adds columns the table lacks. With `transaction` = (application id, number) the append happens
        once: a number that the table has already (or a higher one) is answered with `Commit.repeated`.
        """
        return self._write(rows, "append", merge_schema=merge_schema, transaction=transaction, timeout_s=timeout_s)

    def overwrite(
        self,
        rows: Rows,
        where: str | None = None,
        *,
        dynamic: bool = False,
        merge_schema: bool = False,
        transaction: tuple[str, int] | None = None,
        read_version: int | None = None,
        timeout_s: float | None = None,
    ) -> Commit | None:
        """Replace the whole table; with `where` the rows that satisfy it; with `dynamic` the partitions the rows lie in.

        The rows must satisfy `where` (ConstraintViolated). What is replaced is what `read_version` holds (the latest
        version when None): give the version your rows were computed from, and rows that others appended since then
        stay, while a change of what you read is told as ConcurrentModification.
        """
        if dynamic and where is not None:
            raise InvalidRequest(f"where={where!r} and dynamic=True were given; give one of them")
        mode = "dynamic" if dynamic else "overwrite"
        return self._write(
            rows, mode, where=where, merge_schema=merge_schema, transaction=transaction, read_version=read_version, timeout_s=timeout_s
        )

    def delete(self, where: str, *, timeout_s: float | None = None) -> Commit | None:
        """Delete the rows that satisfy `where`, a Spark SQL condition. None, and no version, when there are none."""
        commit = delete(self._access, where, ack=self._ack, timeout_s=timeout_s or self._timeout_s)
        return self._note(commit)

    def compact(
        self,
        mode: str = "minor",
        where: str | None = None,
        *,
        target_file_size: int | str | None = None,
        z_order_by: str | Sequence[str] | None = None,
        timeout_s: float | None = None,
    ) -> Commit | None:
        """Write files again as fewer, larger ones; no row changes. None, and no version, when there is nothing to do.

        "minor" merges small files; "major" also writes those with deleted rows again, so that these are physically gone.
        `where` names partition columns only; files get `target_file_size` (bytes, or a text like "128mb"; the property
        delta.targetFileSize by default). `z_order_by` orders all rows by up to 8 columns at once: always a major compaction.
        """
        commit = compact(
            self._access,
            mode,
            where,
            target_file_size=target_file_size,
            z_order_by=z_order_by,
            ack=self._ack,
            timeout_s=timeout_s or self._timeout_s,
        )
        return self._note(commit)

    def set_properties(self, properties: Mapping[str, str], *, timeout_s: float | None = None) -> Commit | None:
        """Set properties, and add the table features they need; None when they are so already.

        Raises InvalidRequest for what is no property or means nothing, ConstraintViolated when rows break a new constraint.
        """
        return self._note(set_properties(self._access, properties, ack=self._ack, timeout_s=timeout_s or self._timeout_s))

    def unset_properties(self, names: Iterable[str], *, timeout_s: float | None = None) -> Commit | None:
        """Take properties away, constraints too; None when none of them is set."""
        return self._note(unset_properties(self._access, names, ack=self._ack, timeout_s=timeout_s or self._timeout_s))

    def set_domain(self, name: str, configuration: str, *, timeout_s: float | None = None) -> Commit | None:
        """Keep a text of the users' own with the table; of two who write one domain at once the later is refused."""
        return self._note(set_domain(self._access, name, configuration, ack=self._ack, timeout_s=timeout_s or self._timeout_s))

    def remove_domain(self, name: str, *, timeout_s: float | None = None) -> Commit | None:
        """Remove such a text; None when there is none of that name."""
        return self._note(remove_domain(self._access, name, ack=self._ack, timeout_s=timeout_s or self._timeout_s))

    def plan_write(
        self,
        schema: pa.Schema | None,
        *,
        mode: str = "append",
        where: str | None = None,
        merge_schema: bool = False,
        transaction: tuple[str, int] | None = None,
        read_version: int | None = None,
    ) -> WritePlan:
        """A picklable plan for writing rows of this schema elsewhere; `commit_write` commits the files it made."""
        return plan_write(
            self._access, schema, mode=mode, where=where, merge_schema=merge_schema, transaction=transaction, read_version=read_version
        )

    def commit_write(self, plan: WritePlan, files: Sequence[AddFile], *, timeout_s: float | None = None) -> Commit | None:
        """Commit what a plan's writers wrote; None when there is nothing to change.

        A plan is committed once: called again (after OutcomeUnknown, by a restarted job) this answers with the commit
        there is, or raises the refusal.
        """
        return self._note(commit_write_once(self._access, plan, files, ack=self._ack, timeout_s=timeout_s or self._timeout_s))

    def _write(
        self,
        rows: Rows,
        mode: str,
        *,
        where: str | None = None,
        merge_schema: bool,
        transaction: tuple[str, int] | None,
        read_version: int | None = None,
        timeout_s: float | None,
    ) -> Commit | None:
        schema = schema_of(rows)
        if merge_schema and schema is None:
            raise InvalidRequest(
                "merge_schema needs data whose schema is known before it is read: a Table, RecordBatch or RecordBatchReader"
            )
        plan = self.plan_write(
            schema, mode=mode, where=where, merge_schema=merge_schema, transaction=transaction, read_version=read_version
        )
        files = plan.write(rows)
        return self._note(commit_write(self._access, plan, files, ack=self._ack, timeout_s=timeout_s or self._timeout_s))

    def _note(self, commit: Commit | None) -> Commit | None:
        if commit is not None and not commit.repeated:
            self._checkpointer.committed(commit.version, commit.ordinal)
        return commit

    # -- reading -----------------------------------------------------------------------------------------------------

    def snapshot(self, version: int | None = None, timestamp: int | None = None, *, consistency: str | None = None) -> TableSnapshot:
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
        return TableSnapshot(self._access.store, self._access.read(version, consistency, timeout_s=self._timeout_s))

    def history(self, limit: int | None = 20) -> list[HistoryEntry]:
        """The latest transactions, newest first."""
        return history(self._access, limit)

    def outcome(self, transaction_id: str, *, timeout_s: float | None = None) -> Outcome:
        """What became of a transaction, whoever ran it; an undecided one is decided now."""
        committer = self._access.ours
        return committer.outcome(transaction_id, Deadline.after(timeout_s or self._timeout_s, committer.context.clock))

    def checkpoint(self) -> int:
        """Write a checkpoint of the latest published version now; returns that version."""
        return self._checkpointer.now()

    def close(self) -> None:
        """See what was ratified published, and wait for a checkpoint under way.

        The session with the coordinator is the process's and stays.
        """
        if self._access.committer is not None:
            self._access.committer.background.drain(self._timeout_s)
        self._checkpointer.wait()

    def __enter__(self) -> Table:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Table({self.location!r}, version={self.version})"
