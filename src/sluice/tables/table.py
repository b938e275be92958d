"""`sluice.Table`: a Delta table that any number of writers commit to, in a fair order."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from ..coordinator import api
from ..coordinator.api import Commit, Lease, LeaseOn, Outcome, Timeout
from ..coordinator.limits import Limits
from ..storage.arguments import checked
from ..storage.log.snapshot import Snapshot
from ..storage.notebook import html_of_fields
from ..storage.schema.schema import StructType, to_arrow
from ..storage.times import Moment
from .client.address import TableAddress
from .client.open_table import OpenArgs, Opening, OpenTable, open_table
from .client.property_rules import clustering_names
from .client.published_table import PublishedTable
from .maintain.vacuum import VacuumReport, vacuum
from .manage import creation, definition
from .manage.adopting import MODE, convert, generate
from .manage.cloning import CloneArgs, clone
from .manage.dropping import DropReport, drop
from .manage.restoring import lacking
from .read.changes import ChangesArgs, ChangesPart, RangeArgs, read_changes, split_changes
from .read.following import ConsumerState, Follower, SelectionArgs, consumers, follow, remove_consumer, reset_consumer
from .read.history import History, history
from .read.table_snapshot import TableDetail, TableSnapshot, asked_version, detail_of, snapshot_of
from .read.versions import ChangePlace
from .table_writes import TableWrites
from .transaction import Transaction
from .write.terms import WriteArgs
from .write.transaction_end import ATTEMPTS, repeated

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .consumer import Consumer

T = TypeVar("T")


@checked
class Table(TableWrites):
    """A Delta table under sluice. `create`, `open` and `attach` make one; it is safe for several threads.

    Every write is one transaction, which commits as a whole or not at all, after those filed before it. Writes raise NotCommitted
    (ConcurrentModification: repeat the operation), OutcomeUnknown (ask `outcome`), Unavailable (nothing is lost, repeat later), and
    InvalidRequest before they write anything.
    """

    # -- making and opening ------------------------------------------------------------------------------------------

    @classmethod
    def create(
        cls,
        location: str | os.PathLike[str],
        schema: pa.Schema | StructType,
        *,
        partition_by: Sequence[str] = (),
        cluster_by: str | Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        mode: str = "create",
        allow_nonempty: bool = False,
        **opening: Unpack[OpenArgs],
    ) -> Table:
        """Create a table: its version 0. Raises TableExists, also for the slower of two clients that create it at once.

        With `mode` = "if_not_exists" a table that is there is opened as it is; "or_replace" replaces it, with all its rows, in one commit
        (see `replace`); so does "replace", which raises TableNotFound if there is none. `cluster_by` names up to 4 columns instead of
        partitions: `compact` brings rows together that are close in them. Raises InvalidRequest for a folder that holds other files,
        unless `allow_nonempty` is True.

        Fields of an Arrow schema define columns: their metadata may have `CURRENT_DEFAULT` (SQL of a default),
        `delta.generationExpression` (SQL over other columns) and `comment`; the protocol gets the features that these need.

        Args:
            location: A path, `file://`, `s3://bucket/prefix` or `abfss://`.
            schema: The columns, in order.
            partition_by: Columns whose values become folders.
            cluster_by: Up to 4 columns to cluster by, in the place of partitions.
            properties: Properties of the table: those of Delta, sluice's and any others.
            mode: "create", "if_not_exists", "or_replace" or "replace".
            allow_nonempty: Whether the folder may hold other files.
            opening: `coordinator` is `zk://host:port,.../chroot` or `embedded://` (by default SLUICE_COORDINATOR, else `embedded://`);
                `timeout_s` bounds this commit and later ones, as for `open`.

        Examples:
            ```python
            schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("state", pa.string())])
            orders = sluice.Table.create("orders", schema, properties={"delta.enableDeletionVectors": "true"}, mode="if_not_exists")
            ```
        """
        how = Opening(**opening)
        address = how.at(location)
        with api.bounding(how.timeout_s) as limit:

            def create() -> tuple[OpenTable, Commit]:
                new = creation.new_table(schema, partition_by, properties, cluster_by=cluster_by)
                return creation.create(address, new, allow_nonempty=allow_nonempty, timeout_s=limit)

            opened, made = creation.created_or_found(address, mode, create)
            table = cls(opened, ack=how.ack, timeout_s=how.timeout_s)
            if made is None and mode != "if_not_exists":
                is_or_replace = mode == "or_replace"
                replace = partial(table.replace, schema, partition_by=partition_by, cluster_by=cluster_by, properties=properties)
                creation.beside_others(
                    lambda: replace(create=is_or_replace, timeout_s=limit), lambda: True, replaces=is_or_replace, timeout_s=limit
                )
        return table

    @classmethod
    def open(
        cls, location: str | os.PathLike[str], *, consistency: str = "latest", limits: Limits | None = None, **opening: Unpack[OpenArgs]
    ) -> Table:
        """Open a table that sluice manages; with `consistency="published"` any Delta table, to read, without a coordinator.

        `consistency` is the level of reads that name none: "latest" (at least every commit acknowledged to any client), "serial" (after
        everything that is queued now) or "session" (at least what was committed through this object). `ack` says when a write returns:
        "published" (any engine reads it) or "ratified" (decided for good, one object-store write earlier). `timeout_s` bounds the opening
        and each commit, in seconds. Raises TableNotFound, NotATable, UnsupportedFeature, ForeignCommit, CoordinatorUnavailable.

        Examples:
            ```python
            mine = sluice.Table.open(table.location, coordinator=coordinator, application="nightly load")
            reader = sluice.Table.open(table.location, consistency="published")
            ```
        """
        how = Opening(**opening)
        with api.bounding(how.timeout_s):
            return cls(open_table(how.at(location), limits, consistency), ack=how.ack, timeout_s=how.timeout_s)

    @classmethod
    def named(cls, name: str, *, consistency: str = "latest", limits: Limits | None = None, **opening: Unpack[OpenArgs]) -> Table:
        """Open the table of a name that the coordinator keeps, such as "sales.orders" (`sluice.Catalog`); otherwise like `open`.

        Raises TableNotFound, NamespaceNotFound, InvalidName; TableDropped for a dropped table that can be brought back.
        """
        how = Opening(**opening)
        with api.bounding(how.timeout_s):
            record = api.find_name(api.CatalogClient.at(how.coordinator), api.TableName.parse(name)).record
            assert record is not None
            return cls(open_table(how.at(record.location), limits, consistency), ack=how.ack, timeout_s=how.timeout_s)

    @classmethod
    def attach(cls, location: str | os.PathLike[str], **opening: Unpack[OpenArgs]) -> Table:
        """Bring an existing Delta table under sluice: from then on other engines read it and refuse to write it.

        Opens a table that is attached already. Raises WrongCoordinator, TableNotFound, NotATable, UnsupportedFeature.
        """
        how = Opening(**opening)
        with api.bounding(how.timeout_s) as limit:
            table, _ = creation.attach(how.at(location), timeout_s=limit)
        return cls(table, ack=how.ack, timeout_s=how.timeout_s)

    @classmethod
    def convert(
        cls,
        location: str | os.PathLike[str],
        partition_schema: pa.Schema | StructType | None = None,
        properties: Mapping[str, str] | None = None,
        **opening: Unpack[OpenArgs],
    ) -> Table:
        """Make a table of the Parquet files in a folder, in place: no row is read or written.

        `partition_schema` has the columns of the folders (`origin=JFK/month=1/...`), in order and with their types. The schema has the
        columns of all files, whose statistics come from their footers. Names that begin with `_` or `.` are ignored. Nobody must write
        there meanwhile. Raises TableExists, TableNotFound, and InvalidRequest or SchemaMismatch, naming a file that does not fit, before
        anything is written.
        """
        how = Opening(**opening)
        with api.bounding(how.timeout_s) as limit:
            table, _ = convert(how.at(location), partition_schema, properties or {}, timeout_s=limit)
        return cls(table, ack=how.ack, timeout_s=how.timeout_s)

    def detach(self, *, timeout_s: Timeout | None = None) -> Commit:
        """Give the table back to other engines, once the commit is published; sluice commits nothing to it until it is attached again."""
        with self._bounding(timeout_s) as limit:
            return creation.detach(self.coordinated, timeout_s=limit)

    def clone(
        self,
        target: str | os.PathLike[str],
        version: int | None = None,
        timestamp: Moment | None = None,
        *,
        coordinator: str | None = None,
        timeout_s: Timeout | None = None,
        **how: Unpack[CloneArgs],
    ) -> Table:
        """Make a clone at `target`: a table of its own with the rows of a version (by default the latest), its schema and properties.

        A shallow clone shares the original's files: it names them by absolute URIs, and never deletes them. A vacuum of the original does,
        once the original needs them no more, which breaks the clone: keep its retention longer than the clone lives. With `deep` it has
        copies, made by the store itself where it can. With `replace` the clone replaces a table at `target` in one commit; a deep one then
        copies only what that table does not have. Repeated after a failure, it copies nothing twice.

        `properties` come on top of the original's; `coordinator` is by default the same. The history and change data of the original stay
        there. `timeout_s` bounds the requests to the coordinator. Raises TableExists, UnsupportedFeature, MissingObject for a file that is
        gone, and InvalidRequest for a shallow clone in another kind of store.
        """
        own = self.access.address
        address = TableAddress.of(target, own.coordinator if coordinator is None else coordinator, own.storage_options, own.application)
        return self._cloned(address, version, timestamp, how, timeout_s=timeout_s)

    def _cloned(
        self,
        address: TableAddress,
        version: int | None,
        timestamp: Moment | None,
        how: CloneArgs,
        name: creation.NewName | None = None,
        timeout_s: Timeout | None = None,
    ) -> Table:
        """Like `clone`, also for the catalog."""
        table = self.access
        with api.bounding(self._limit(timeout_s)) as limit:
            chosen = asked_version(table.store, version, timestamp)
            at = table.read(None, timeout_s=limit).version if chosen is None else chosen
            if not how.get("deep"):
                return self._beside(clone(table, at, address, how, name, limit)[0])
        return self._beside(clone(table, at, address, how, name, self._limit(timeout_s))[0])  # copying takes none of it

    def _beside(self, made: OpenTable) -> Table:
        return type(self)(made, ack=self._ack, timeout_s=self._timeout_s)

    def drop(self, *, keep_data: bool = False, timeout_s: Timeout | None = None) -> DropReport:
        """Take the table out of the coordinator and delete its files; with `keep_data` they stay, a Delta table for any engine to write.

        Transactions that were filed before are decided first. Files that are not provably the table's stay, and the report names them.
        Clients that have the table open get TableDropped. The location is free at once. `sluice drop` finishes an interrupted drop.
        """
        self.close()
        return drop(self.access.address, keep_data=keep_data, timeout_s=self._limit(timeout_s))

    # -- what it is --------------------------------------------------------------------------------------------------

    @property
    def location(self) -> str:
        """The normalised URI of the table."""
        return self.access.location

    @property
    def version(self) -> int:
        """The version that this object shows, never older than its own commits; `refresh` moves it on."""
        return self._shown().version

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of that version."""
        return to_arrow(self.struct)

    @property
    def struct(self) -> StructType:
        """The schema as Delta's type."""
        return self._shown().metadata.schema

    @property
    def partition_columns(self) -> tuple[str, ...]:
        """The columns by which the table is partitioned."""
        return self._shown().partition_columns

    @property
    def clustering_columns(self) -> tuple[str, ...]:
        """The columns by which the table is clustered, `a` or `a.b`; () if it is not."""
        return clustering_names(self._shown())

    @property
    def properties(self) -> Mapping[str, str]:
        """The table's properties."""
        return self._shown().configuration

    @property
    def domains(self) -> Mapping[str, str]:
        """The texts of the users' own metadata domains, by name."""
        return definition.domains_of(self._shown())

    def _shown(self) -> Snapshot:
        """The current snapshot, with all that was committed through this object."""
        shown, table = self.access.current(), self.access
        if isinstance(table, PublishedTable) or self.coordinated.last_committed <= shown.version:
            return shown
        return self.access.read(None, "session", timeout_s=self._timeout_s)

    def refresh(self, consistency: str | None = None, *, timeout_s: Timeout | None = None) -> Table:
        """Read up to the newest version that the level shows (see `snapshot`); returns the table."""
        self.access.read(None, consistency, timeout_s=self._limit(timeout_s))
        return self

    # -- keeping others out ------------------------------------------------------------------------------------------

    def lease(self, mode: str = "exclusive", where: str | None = None, wait_s: Timeout | None = None, name: str | None = None) -> Lease:
        """Take a lease on the table, or on the partitions that satisfy `where`; use it in a `with` block, or call its `release`.

        An "exclusive" lease makes commits of others wait that read or change what it covers, each for its own time. "shared" leases
        leave changes to their holders. Overlapping leases are granted in the order of the requests; this one waits its turn for `wait_s`
        seconds (None: without limit; a Deadline ends its requests, too). What this thread commits meanwhile is ratified only if the lease
        still exists. Raises LeaseHeld (with holder, host and since when), DeadlockDetected, CoordinatorUnavailable.

        Examples:
            ```python
            with table.lease(wait_s=60):
                rows = table.snapshot().to_arrow()
                table.overwrite(rows)
            ```
        """
        return api.leases([self.lease_on(mode, where, name=name)], wait_s=wait_s)

    def lease_on(self, mode: str = "exclusive", where: str | None = None, *, name: str | None = None) -> LeaseOn:
        """A lease on the table to request together with others, by `sluice.leases`."""
        return api.lease_on_table(self.coordinated.leases, self._shown(), mode, where, name)

    def transact(self, work: Callable[[Transaction], T], *, attempts: int = ATTEMPTS, **terms: Unpack[WriteArgs]) -> T:
        """Run `work(transaction)` and commit it; if another commit came first, run it again on the new state, up to `attempts` times.

        Each loss gives the next attempt more priority (docs/locks.md), so that it gets through against any number of writers. With
        `if_version` it is not run again once that version has another successor. Returns the result of `work`. Raises the last conflict,
        and the exceptions of `work`, after which nothing is committed.
        """
        return repeated(partial(self._begun, self._terms(terms)), work, attempts)

    # -- reading -----------------------------------------------------------------------------------------------------

    def snapshot(
        self,
        version: int | None = None,
        timestamp: Moment | None = None,
        *,
        consistency: str | None = None,
        timeout_s: Timeout | None = None,
    ) -> TableSnapshot:
        """The latest version, the version of a number, or the version that was current at a time: a `datetime`, ISO 8601 text or ms.

        `consistency` says which version is the latest: "latest", "published", "serial" or "session", as `open` explains them; by
        default the table's own level. Raises VersionNotFound for a version after the latest one, or one that was cleaned up.

        Args:
            version: A version's number; None for the latest.
            timestamp: A moment, in the place of a number.
            consistency: How new the latest version must be.
            timeout_s: Bounds the requests to the coordinator.

        Examples:
            ```python
            rows = table.snapshot().to_arrow(columns=["id"], where="state = 'new'")
            before = table.snapshot(version=1)
            ```
        """
        version = asked_version(self.access.store, version, timestamp)
        return snapshot_of(self.access, version, consistency, timeout_s=self._limit(timeout_s))

    def changes(
        self, after: Moment, up_to: Moment | None = None, *, timeout_s: Timeout | None = None, **chosen: Unpack[ChangesArgs]
    ) -> pa.Table:
        """The rows that the versions after `after`, up to and including `up_to` (None: the latest), inserted and deleted, oldest first.

        `after` = -1 is before the first version; with `by` = "timestamp" both are times (`snapshot`). The result has the table's columns
        (or `columns`), `_change_type`, `_commit_version` and `_commit_timestamp`; `where` may name these, too. Raises VersionNotFound
        and MissingObject for history that was cleaned up, which say what still exists. `changes_batches` needs bounded memory only.
        `timeout_s` bounds the requests to the coordinator, here and below, not those to the store.

        Examples:
            ```python
            for row in table.changes(after=0, columns=["id"], where="_change_type = 'insert'").to_pylist():
                print(row["_commit_version"], row["id"])
            ```
        """
        with self._bounding(timeout_s):
            return read_changes(self.access, after, up_to, chosen).to_arrow()

    def changes_batches(
        self, after: Moment, up_to: Moment | None = None, *, timeout_s: Timeout | None = None, **chosen: Unpack[ChangesArgs]
    ) -> Iterator[pa.RecordBatch]:
        """Like `changes`, batch by batch. The call raises for missing commits, the iteration for missing data files."""
        with self._bounding(timeout_s):
            return read_changes(self.access, after, up_to, chosen).batches()

    def split_changes(
        self,
        after: Moment,
        up_to: Moment | None = None,
        *,
        parts: int = 1,
        timeout_s: Timeout | None = None,
        **chosen: Unpack[RangeArgs],
    ) -> list[ChangesPart]:
        """Like `changes`, in up to `parts` pieces for readers elsewhere, which need only the object store. There is at least one."""
        with self._bounding(timeout_s):
            return split_changes(self.access, after, up_to, chosen, parts)

    def follow(
        self,
        after: int | ChangePlace | None = None,
        *,
        timeout_s: Timeout | None = None,
        poll_s: float = 1.0,
        **chosen: Unpack[SelectionArgs],
    ) -> Follower:
        """Iterate over the changes after a version (-1: before the first; None: the latest) as they are published, and wait for more.

        Gives a `ChangeBatch` for each version, or for up to `max_versions` of one schema, with record batches of up to `max_rows` rows.
        `rows` = "changes" gives inserted and deleted rows like `changes`; "inserted" gives inserted rows, and updated ones as they became,
        with the table's columns only. `columns` and `where` are those of `changes`. Versions without such rows, such as compactions, are
        passed over. After files of `max_bytes` a batch takes no further file, so a large version becomes several. `after` may be the `end`
        of a batch, also within a version, or the `place` of a follower.

        Ends when nothing comes for `timeout_s` (None: never), or by `Follower.close`. Only a table opened with `consistency="published"`
        asks its log meanwhile, every `poll_s` seconds; others ask the object store nothing. Raises HistoryGone if commits or files were
        cleaned up, VersionNotFound for a version after the latest one, InvalidRequest.

        Examples:
            ```python
            for change in table.follow(after=-1, rows="inserted", timeout_s=0):  # without timeout_s it waits for more
                print(change.version, change.to_arrow().num_rows)
            ```
        """
        return follow(self.access, after, chosen, timeout_s=timeout_s, poll_s=poll_s)

    def consumer(
        self,
        name: str,
        *,
        after: int | None = -1,
        into: Sequence[Table | str | os.PathLike[str]] = (),
        wait_s: Timeout | None = None,
        timeout_s: Timeout | None = None,
        **chosen: Unpack[SelectionArgs],
    ) -> Consumer:
        """Become the consumer of a name: iterate over the changes after its position, which the coordinator keeps.

        Without a position it begins after the version `after`, as in `follow`, which explains the other arguments. With `into`, the tables
        that get its results, each batch is consumed exactly once: `Consumer.transaction` commits results and position together. One
        instance at a time is the consumer; others wait, for `wait_s` seconds (None: without limit; 0: not at all). Raises LeaseHeld, which
        names the instance that runs; HalfCommitted if an output lost its part of the last batch with the coordinator's data; HistoryGone,
        VersionNotFound, InvalidRequest, CoordinatorUnavailable.

        Examples:
            ```python
            with table.consumer("copy", into=[other], rows="inserted", timeout_s=0) as consumer:
                for change in consumer:
                    with consumer.transaction() as tx:
                        tx[other].append(change.to_arrow())
            ```
        """
        from .consumer import Consumer  # most programs need neither it nor transactions over several tables

        of = self.access.address
        opened = partial(Table.open, coordinator=of.coordinator, storage_options=of.storage_options)
        outputs = [each if isinstance(each, Table) else opened(each) for each in into]
        return Consumer(self.coordinated, name, after=after, into=outputs, chosen=chosen, wait_s=wait_s, timeout_s=timeout_s)

    def consumers(self, *, timeout_s: Timeout | None = None) -> list[ConsumerState]:
        """The table's named consumers: position, lag in versions and bytes, and who runs each."""
        with self._bounding(timeout_s):
            return consumers(self.coordinated)

    def reset_consumer(self, name: str, after: int | None, *, timeout_s: Timeout | None = None) -> int:
        """Let a consumer go on after another version (-1: before the first; None: the latest), earlier or later; returns that version.

        Raises LeaseHeld while an instance runs, which it names; InvalidRequest for an unknown consumer; VersionNotFound.
        """
        with self._bounding(timeout_s):
            return reset_consumer(self.coordinated, name, after)

    def remove_consumer(self, name: str, *, timeout_s: Timeout | None = None) -> None:
        """Remove a consumer's position. Raises LeaseHeld while it runs, InvalidRequest for an unknown consumer.

        Its outputs still say how far it got: a consumer of the same name with these outputs goes on there.
        """
        with self._bounding(timeout_s):
            remove_consumer(self.coordinated, name)

    def history(self, limit: int | None = 20, *, timeout_s: Timeout | None = None) -> History:
        """The latest transactions, newest first.

        Examples:
            ```python
            for entry in table.history(limit=10):
                print(entry.version, entry.operation, entry.application, entry.waited_ms)
            ```
        """
        with self._bounding(timeout_s):
            return history(self.access, limit)

    def detail(self, *, timeout_s: Timeout | None = None) -> TableDetail:
        """The description of the latest version: id, size, properties, protocol and others."""
        with self._bounding(timeout_s):
            return detail_of(self.refresh("latest").snapshot(), self.location)

    def missing_files(self, *, timeout_s: Timeout | None = None) -> Mapping[str, str]:
        """Why files of the latest version cannot be read, by their path in the log; {} if all are there. One request for each file."""
        return lacking(self.access, self.access.read(None, timeout_s=self._limit(timeout_s)))

    def outcome(self, transaction_id: str, *, timeout_s: Timeout | None = None) -> Outcome:
        """The outcome of any client's transaction. Decides an undecided one."""
        return api.outcome_of(self.coordinated, transaction_id, self._limit(timeout_s))

    def vacuum(
        self,
        retain_hours: float | None = None,
        *,
        dry_run: bool = False,
        force: bool = False,
        include_foreign: bool = False,
        timeout_s: Timeout | None = None,
    ) -> VacuumReport:
        """Delete files that no version within retention and no transaction needs, and the log's expired files.

        `retain_hours` says how long replaced files are kept for readers of older versions: by default the table's
        `delta.deletedFileRetentionDuration` (7 days). A shorter time needs `force`. Files of living writers stay however old they are;
        files of dead ones go however young they are. A dry run only reports. Old files that nothing accounts for are in
        `VacuumReport.foreign`, and go only with `include_foreign`. With `timeout_s` the call ends in that time, with Unavailable if it was
        too short; the next vacuum finds the rest. Without it nothing limits the listing and deleting.

        Examples:
            ```python
            report = table.vacuum(dry_run=True)
            print(report.counts)
            ```
        """
        return vacuum(
            self.coordinated, retain_hours=retain_hours, dry_run=dry_run, force=force, include_foreign=include_foreign, timeout_s=timeout_s
        )

    def checkpoint(self, *, timeout_s: Timeout | None = None) -> int:
        """Write a checkpoint of the latest published version now; returns that version. `timeout_s` bounds the requests to ZooKeeper."""
        with self._bounding(timeout_s):
            return self._checkpointer.now()

    def generate(self, mode: str = MODE, *, timeout_s: Timeout | None = None) -> int:
        """Write manifests of the latest version for engines that read files by lists; returns how many ("symlink_format_manifest" only).

        `_symlink_format_manifest/<partition>/manifest` names the partition's files, and is generated again after changes. Raises
        UnsupportedFeature for files with deletion vectors.
        """
        return generate(self.access.store, self.access.read(None, timeout_s=self._limit(timeout_s)), mode)

    def close(self) -> None:
        """Wait until all that was ratified is published, and for a checkpoint under way, for up to the table's `timeout_s` in all.

        The process keeps its session with the coordinator.
        """
        limit = api.Deadline.after(self._timeout_s)
        if isinstance(self.access, OpenTable):
            self.coordinated.background.drain(limit.left_s)
        self._checkpointer.wait(limit.left_s)

    def __enter__(self) -> Table:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Table({self.location!r}, version={self.version})"

    def _repr_html_(self) -> str:
        shown = {"version": self.version, "partitioned by": self.partition_columns, "properties": self.properties}
        return html_of_fields(self.location, shown | {"columns": {column.name: column.type for column in self.schema}})

    def __reduce__(self) -> tuple[object, ...]:
        """A pickled table opens the same table where it is unpickled; the pickle has the storage options, also credentials."""
        return _reopened, (type(self), self.access.address, self.access.consistency, self._ack, self._timeout_s)


def _reopened(kind: type[Table], address: TableAddress, consistency: str, ack: str, timeout_s: float) -> Table:
    return kind(open_table(address, None, consistency), ack=ack, timeout_s=timeout_s)
