"""The writing half of `sluice.Table`: every call is one transaction, or plans one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ..coordinator.api import (
    DEFAULT_TIMEOUT_S,
    Change,
    Commit,
    Deadline,
    PartitionScope,
    Priority,
    TableLeases,
    Timeout,
    bounding,
    priority_after,
    submit,
)
from ..coordinator.rules.intent import Terms
from ..storage.actions import AddFile
from ..storage.arguments import checked
from ..storage.errors import InvalidRequest
from ..storage.schema.schema import StructType
from .client.open_table import OpenTable, ReadTable
from .client.property_rules import PRIMARY_KEY
from .client.published_table import PublishedTable, beyond
from .maintain.checkpoints import Checkpointer
from .planned_writes import commit_write_once, plan_write
from .transaction import Transaction
from .write.data_writing import Rows, WritePlan
from .write.redefinition import Replaced
from .write.requirements import check_plan, newest_for_append, snapshot_for_change
from .write.terms import WriteArgs, terms_of
from .write.transaction_end import OpenTransaction

if TYPE_CHECKING:
    from typing_extensions import Unpack


@checked
class TableWrites:
    """The operations of `sluice.Table` on rows."""

    def __init__(self, table: ReadTable, *, ack: str = "published", timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        self._access = table
        self._ack = ack
        self._timeout_s = timeout_s
        self._checkpointer = Checkpointer(table)

    def begin(self, *, after: OpenTransaction[Any] | None = None, **terms: Unpack[WriteArgs]) -> Transaction:
        """Begin a transaction of several operations, which become one commit; use it in a `with` block, or call its `commit`.

        It sees the latest version, or `read_version`. A loop that repeats a transaction gives the one that lost as `after`: then others
        wait until the new one ends, the more of them the more often it lost (docs/locks.md). Its `isolation` may be stricter than the
        table's level, never weaker. With `transaction` = (application id, number) or a `key` it happens once, as for `append`.
        `user_metadata` is a text that the history shows with the commit. With `if_version` it sees that version, and commits only as the
        very next one.
        """
        return self._begun(self._terms(terms), after)

    def begin_append(self, **terms: Unpack[WriteArgs]) -> Transaction:
        """Begin a transaction that only adds rows which depend on nothing in the table. It works on the newest version that this process
        knows, so that no look at the latest one is needed.
        """
        return self._begun(self._terms(terms), blind=True)

    @property
    def access(self) -> ReadTable:
        """How this process reaches the table; for operations on several tables."""
        return self._access

    @property
    def coordinated(self) -> OpenTable:
        """The same, with its coordinator. Raises InvalidRequest if the table was opened to be read only."""
        if isinstance(self._access, PublishedTable):
            raise InvalidRequest(
                f"{self._access.location} was opened with consistency='published', which only reads; open it without that to write"
            )
        return self._access

    def append(self, rows: Rows, *, merge_schema: bool = False, read_where: str | None = None, **terms: Unpack[WriteArgs]) -> Commit | None:
        """Add rows; in a table with a primary key they replace rows with the same key. Returns None, and makes no version, for no rows.

        Nullable columns that the rows lack are null. `merge_schema` adds columns that the table lacks. With `transaction` = (application
        id, number) the append happens once: if the table has that number, or a higher one, the call returns the existing commit
        (`Commit.repeated`). A `key` does the same: any text that distinguishes this write from all others to the table, such as
        "nightly-2026-01-01".

        A plain append depends on nothing that others do. If the rows were computed from the table, give `read_version`: then the append
        is refused (ConcurrentModification) if others changed what that version held, all of it or the rows that satisfy `read_where`.
        With `if_version` it commits only as the very next version: nothing may come in between, not even a compaction. The history shows
        the text `user_metadata` with the commit.
        """
        commit_terms = self._terms(terms)
        if read_where is not None and commit_terms.read_version is None:
            raise InvalidRequest(
                f"read_where={read_where!r} was given without read_version: give the version that was read", where=read_where
            )

        def write(each: Transaction) -> None:
            if commit_terms.read_version is not None:
                each.depend_on(read_where)
            each.append(rows, merge_schema=merge_schema)

        return self._done(commit_terms, write, blind=commit_terms.read_version is None and commit_terms.if_version is None)

    def overwrite(
        self,
        rows: Rows,
        where: str | None = None,
        *,
        dynamic: bool = False,
        merge_schema: bool = False,
        overwrite_schema: bool = False,
        partition_by: Sequence[str] | None = None,
        cluster_by: str | Sequence[str] | None = None,
        **terms: Unpack[WriteArgs],
    ) -> Commit | None:
        """Replace the whole table; with `where` the rows that satisfy it; with `dynamic` the partitions of the new rows.

        The rows must satisfy `where` (ConstraintViolated). The overwrite replaces what `read_version` holds (None: the latest version).
        Give the version from which your rows were computed: rows that others appended since then stay, and a change of what you read
        raises ConcurrentModification. `transaction`, `key` and `if_version` mean the same as for `append`, here and in the methods below.

        With `overwrite_schema` the table gets the schema of the rows in the same commit, and is partitioned by `partition_by` and clustered
        by `cluster_by` (None: by the same columns as before).
        """

        def write(each: Transaction) -> None:
            each.overwrite(
                rows,
                where,
                dynamic=dynamic,
                merge_schema=merge_schema,
                overwrite_schema=overwrite_schema,
                partition_by=partition_by,
                cluster_by=cluster_by,
            )

        return self._done(self._terms(terms), write)

    def replace(
        self,
        schema: pa.Schema | StructType | None = None,
        rows: Rows | None = None,
        *,
        partition_by: Sequence[str] = (),
        cluster_by: str | Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        comment: str | None = None,
        create: bool = False,
        **terms: Unpack[WriteArgs],
    ) -> Commit | None:
        """Replace the table in one commit: schema (None: the one of `rows`), partitioning, clustering, properties, comment, and all rows.

        The table keeps its id, its history and its versions, applications' numbers and users' metadata domains. Others that write it at
        the same time are refused, or this call is (MetadataChangedException, ConcurrentAppendException). Raises InvalidRequest,
        SchemaMismatch, UnsupportedFeature. `create` makes the history say CREATE OR REPLACE TABLE.
        """

        def change(each: Transaction) -> None:
            each.replace(
                schema, rows, partition_by=partition_by, cluster_by=cluster_by, properties=properties, comment=comment, create=create
            )

        return self._done(self._terms(terms), change)

    def delete(self, where: str, **terms: Unpack[WriteArgs]) -> Commit | None:
        """Delete the rows that satisfy `where`, a Spark SQL condition. Returns None, and makes no version, if there are none.

        With deletion vectors (`delta.enableDeletionVectors`) data files stay as they are, and vectors list the deleted rows; without
        them the other rows of these files are written again.
        """
        return self._done(self._terms(terms), lambda each: each.delete(where))

    def update(
        self,
        set: Mapping[str, str],  # noqa: A002 - the word of SQL
        where: str | None = None,
        **terms: Unpack[WriteArgs],
    ) -> Commit | None:
        """Change the rows that satisfy `where` (all when None): `set` gives columns the values of Spark SQL expressions.

        `table.update({"delay": "delay + 1"}, where="origin = 'JFK'")`; expressions see the old row, and their values
        are cast to the columns' types (ANSI). Returns None, and makes no version, if there are no such rows. Raises PredicateError for
        expressions that sluice cannot evaluate, ConstraintViolated, and SchemaMismatch, which names a value that does not fit.
        """
        return self._done(self._terms(terms), lambda each: each.update(set, where))

    def upsert(self, rows: Rows, on: str | Sequence[str] | None = None, **terms: Unpack[WriteArgs]) -> Commit | None:
        """Replace the rows that have the key of one of `rows`, and add the others; `on` names the key's columns.

        `on` is by default the table's primary key (`sluice.primaryKey`). Of several rows with one primary key the last counts; any
        other key may occur only once (InvalidRequest). A null in a key equals nothing. The rows must have every column of the table,
        because they replace whole rows (SchemaMismatch). They are held in memory.
        """
        return self._done(self._terms(terms), lambda each: each.upsert(rows, on))

    def truncate(self, where: str | None = None, **terms: Unpack[WriteArgs]) -> Commit | None:
        """Remove all rows, or whole partitions, without reading them. Returns None, and makes no version, if there are none.

        `where` may name partition columns only (InvalidRequest; `delete` takes any condition).
        """
        return self._done(self._terms(terms), lambda each: each.truncate(where))

    def plan_write(
        self,
        schema: pa.Schema | None,
        *,
        mode: str = "append",
        where: str | None = None,
        read_where: str | None = None,
        merge_schema: bool = False,
        replaced: Replaced | None = None,
        **terms: Unpack[WriteArgs],
    ) -> WritePlan:
        """A picklable plan for writing rows of this schema elsewhere; `commit_write` commits the files that a writer made for it.

        With `read_version` an append depends on what that version held, as for `append`. With `replaced` an overwrite gives the table the
        schema of the rows, too.
        """
        commit_terms = self._terms(terms)
        with bounding(commit_terms.timeout_s, self._access.clock):
            return plan_write(
                self.coordinated,
                schema,
                replace(commit_terms, timeout_s=self._timeout_s),
                mode=mode,
                where=where,
                read_where=read_where,
                merge_schema=merge_schema,
                replaced=replaced,
            )

    def check_write(self, plan: WritePlan, *, timeout_s: Timeout | None = None) -> None:
        """Raise the conflict by which a plan can no longer commit, before its rows are written, which may take long.

        Costs one look at the head. A plan that passes may still be refused, because others go on committing.
        """
        with self._bounding(timeout_s):
            check_plan(self.coordinated, plan)

    def commit_write(self, plan: WritePlan, files: Sequence[AddFile], *, timeout_s: Timeout | None = None) -> Commit | None:
        """Commit the files of a plan. Returns None if there is nothing to change.

        A plan commits once: called again (after OutcomeUnknown, by a restarted job) this returns the existing commit, or raises the
        refusal.
        """
        return self.noted(commit_write_once(self.coordinated, plan, files, timeout_s=self._limit(timeout_s)))

    def _terms(self, args: Mapping[str, Any]) -> Terms:
        """The terms that a call's keywords say. Raises InvalidRequest for keywords that contradict."""
        return terms_of(args, ack=self._ack, timeout_s=self._timeout_s)

    def _limit(self, timeout_s: Timeout | None) -> Timeout:
        """How long a call may take: its own time, or the table's."""
        return self._timeout_s if timeout_s is None else timeout_s

    def _bounding(self, timeout_s: Timeout | None) -> AbstractContextManager[Deadline]:
        """Bounds the call's requests to the coordinator within the block."""
        return bounding(self._limit(timeout_s), self._access.clock)

    def _done(self, terms: Terms, change: Callable[[Transaction], None], *, blind: bool = False) -> Commit | None:
        """One operation, committed; the existing commit if the application did it before. All its waits share one time.

        A `blind` one reads nothing of the table.
        """
        with bounding(terms.timeout_s, self.coordinated.clock) as deadline:
            begun = self._begun(terms, blind=blind)
        try:
            with bounding(deadline):
                done = begun.repeated()
            left = deadline.rest_of(terms.timeout_s)  # the time in which the rows are written does not count
            if done is None:
                change(begun)
        except BaseException:
            begun.abort()
            raise
        if done is not None:
            begun.abort()
            return self.noted(done)
        return begun.commit(timeout_s=left)

    def _begun(self, terms: Terms, after: OpenTransaction[Any] | None = None, *, blind: bool = False) -> Transaction:
        """A transaction, which repeats the one `after` which it is begun; a `blind` one is a plain append."""
        table = self.coordinated
        numbered = terms.once is not None
        with bounding(terms.timeout_s, table.clock) as deadline:
            priority = Priority() if after is None else priority_after(after.losses, self._read_here(after), deadline)
            try:
                if not blind:
                    snapshot = snapshot_for_change(table, terms.version, numbered=numbered)
                elif PRIMARY_KEY in (snapshot := newest_for_append(table, numbered=numbered)).configuration:
                    snapshot = snapshot_for_change(table)
                return Transaction(table, snapshot, terms, priority, committed=self.noted)
            except BaseException:
                priority.end()
                raise

    def _read_here(self, after: OpenTransaction[Any]) -> list[tuple[TableLeases, PartitionScope | None]]:
        """The part of this table that a transaction read. Raises InvalidRequest if it read others."""
        read = after.parts_read()
        if any(part.key != self.coordinated.leases.key for part, _ in read):
            raise InvalidRequest(
                f"after={after!r} is a transaction on other tables than {self._access.location}: give one that Table.begin made for it"
            )
        return read

    def _change(self, make: Callable[[OpenTable], Change | None], args: Mapping[str, Any]) -> Commit | None:
        """Commit a change of the table as a whole on the terms that keywords say; None if there is none."""
        table, terms = self.coordinated, self._terms(args)
        with bounding(terms.timeout_s, table.clock) as limit:
            if terms.if_version is not None and terms.if_version > (latest := table.latest().version):
                raise beyond(table.location, terms.if_version, latest)
            change = make(table)
            return None if change is None else self.noted(submit(table, change.on(terms), timeout_s=limit))

    def noted(self, commit: Commit | None) -> Commit | None:
        """Take note of a commit to this table, if there is one: reads show it, and a checkpoint may be due. Returns it."""
        if commit is not None:  # also for commits learned of later or made before, so that reads of this session show them
            self.coordinated.note(commit.version)
        if commit is not None and not commit.repeated:
            self._checkpointer.committed(commit.version)
        return commit
