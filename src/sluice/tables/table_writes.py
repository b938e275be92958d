"""The writing half of `sluice.Table`: every call commits, or plans a write."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ..coordinator.api import DEFAULT_TIMEOUT_S, Change, Commit, Deadline, Priority, Timeout, bounding, priority_after, submit
from ..coordinator.errors import MetadataChangedException, TableMoved
from ..coordinator.rules.intent import Terms
from ..storage.actions import AddFile
from ..storage.arguments import checked
from ..storage.errors import InvalidRequest
from ..storage.schema.schema import StructType
from ..storage.times import Moment
from .client.open_table import OpenTable, ReadTable, where_it_is
from .client.property_rules import PRIMARY_KEY
from .client.published_table import PublishedTable, beyond
from .maintain.background import Checkpointer
from .maintain.compaction import CompactionRequest, compact
from .manage.adopting import adopt
from .manage.analyzing import Analysis, analyze
from .manage.definition import (
    ColumnChange,
    NewColumn,
    add_columns,
    add_feature,
    alter_columns,
    cluster_by,
    drop_columns,
    replace_columns,
    set_domain,
    set_properties,
    unset_properties,
    upgrade_protocol,
)
from .manage.dropping_features import drop_feature
from .manage.restoring import repair, restore
from .planned_writes import commit_write_once, plan_write
from .read.table_snapshot import asked_version
from .transaction import Transaction
from .write.data_writing import Rows, WritePlan
from .write.numbering import sync_identity
from .write.redefinition import Replaced
from .write.requirements import check_plan, newest_for_append, snapshot_for_change, terms_of
from .write.terms import ChangeArgs, WriteArgs
from .write.transaction_end import OpenTransaction

if TYPE_CHECKING:
    from typing_extensions import Unpack


@checked
class TableWrites:
    """The operations of `sluice.Table` that commit: on rows, and on the table as a whole."""

    def __init__(self, table: ReadTable, *, ack: str = "published", timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        self.access = table
        """How this process reaches the table; for operations on several tables."""
        self._ack = ack
        self._timeout_s = timeout_s
        self._checkpointer = Checkpointer(table)
        if isinstance(table, OpenTable):
            table.faces.add(self)

    def _go_on_with(self, access: ReadTable) -> None:
        """Reach the table by this object from now on."""
        TableWrites.__init__(self, access, ack=self._ack, timeout_s=self._timeout_s)

    def begin(self, *, after: OpenTransaction[Any] | None = None, **terms: Unpack[WriteArgs]) -> Transaction:
        """Begin a transaction of several operations, which become one commit; use it in a `with` block, or call its `commit`.

        It sees the latest version, or `read_version`. A loop that repeats a transaction gives the one that lost as `after`: then others
        wait until the new one ends, the more of them the more often it lost (docs/locks.md). Its `isolation` may be stricter than the
        table's, never weaker. With `transaction` = (application id, number) or a `key` it happens once, as for `append`. The history shows
        the text `user_metadata`. With `if_version` it sees that version, and commits only as the very next one.

        Examples:
            ```python
            with table.begin(key="close-2026-01") as transaction:
                late = transaction.scan(["id"], where="state = 'late'").num_rows
                transaction.update({"state": "'closed'"}, "state = 'late'")
                transaction.append(pa.table({"id": [100], "state": [f"closed {late}"]}))
            ```
        """
        return self._begun(self._terms(terms), after)

    def begin_append(self, **terms: Unpack[WriteArgs]) -> Transaction:
        """Begin a transaction that only adds rows which depend on nothing in the table, on the newest version known to this process."""
        return self._begun(self._terms(terms), blind=True)

    @property
    def coordinated(self) -> OpenTable:
        """The same, with its coordinator. Raises InvalidRequest if the table was opened to be read only."""
        if isinstance(self.access, PublishedTable):
            raise InvalidRequest(
                f"{self.access.location} was opened with consistency='published', which only reads; open it without that to write"
            )
        return self.access

    def append(self, rows: Rows, *, merge_schema: bool = False, read_where: str | None = None, **terms: Unpack[WriteArgs]) -> Commit | None:
        """Add rows; in a table with a primary key they replace rows with the same key. Returns None, and makes no version, for no rows.

        Nullable columns that the rows lack are null. `merge_schema` adds columns that the table lacks, and makes types wider where the
        table allows it. With `transaction` = (application id, number) the append happens once: if the table has that number, or a higher
        one, the call returns the existing commit (`Commit.repeated`). So does a `key`: any text that distinguishes this write from all
        others to the table, such as "nightly-2026-01-01".

        A plain append depends on nothing that others do. If the rows were computed from the table, give `read_version`: then the append
        is refused (ConcurrentModification) if others changed what that version held, all of it or the rows that satisfy `read_where`.
        With `if_version` it commits only as the very next version: nothing may come in between, not even a compaction. The history shows
        the text `user_metadata`.

        Args:
            rows: Arrow data, or anything that exports Arrow, such as a Polars DataFrame, a reader of batches or another table's snapshot.
            merge_schema: Whether columns that the table lacks are added to it.
            read_where: Which rows of `read_version` the new rows depend on; None for all.
            terms: The terms of the commit.

        Raises:
            SchemaMismatch: The rows do not fit the table; nothing was written. So do NullNotAllowed and ConstraintViolated.
            ConcurrentModification: What the rows depend on was changed, or the schema was; a plain append meets only the latter.
            OutcomeUnknown: No answer came in time: ask `outcome`, and do not append again before that.

        Examples:
            ```python
            commit = table.append(pa.table({"id": [7], "state": ["new"]}), key="orders-2026-01-01")
            assert table.append(pa.table({"id": [7], "state": ["new"]}), key="orders-2026-01-01").repeated
            ```
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
        raises ConcurrentModification. With `overwrite_schema` the table gets the schema of the rows, and is partitioned by `partition_by`
        and clustered by `cluster_by` (None: as before). The other terms are those of `append`, here and below.

        Examples:
            ```python
            read = table.snapshot()
            late = read.to_arrow(where="state = 'late'")
            table.overwrite(late, where="state = 'late'", read_version=read.version)
            ```
        """
        write = partial(
            Transaction.overwrite,
            rows=rows,
            where=where,
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

        The table keeps its id, history, versions, applications' numbers and users' metadata domains. Others that write it at the same time
        are refused, or this call is (MetadataChangedException, ConcurrentAppendException). Raises InvalidRequest, SchemaMismatch,
        UnsupportedFeature. `create` makes the history say CREATE OR REPLACE TABLE.
        """
        change = partial(
            Transaction.replace,
            schema=schema,
            rows=rows,
            partition_by=partition_by,
            cluster_by=cluster_by,
            properties=properties,
            comment=comment,
            create=create,
        )
        return self._done(self._terms(terms), change)

    def delete(self, where: str, **terms: Unpack[WriteArgs]) -> Commit | None:
        """Delete the rows that satisfy `where`, a Spark SQL condition. Returns None, and makes no version, if there are none.

        With deletion vectors (`delta.enableDeletionVectors`) data files stay as they are, and vectors list the deleted rows; without
        them the other rows of these files are written again.

        Raises:
            PredicateError: The condition names an unknown column, or something that sluice cannot evaluate.
            ConcurrentModification: Another commit changed what the condition reads: repeat.

        Examples:
            ```python
            commit = table.delete("state = 'late' AND id > 10")
            ```
        """
        return self._done(self._terms(terms), lambda each: each.delete(where))

    def update(
        self,
        set: Mapping[str, str],  # noqa: A002 - the word of SQL
        where: str | None = None,
        **terms: Unpack[WriteArgs],
    ) -> Commit | None:
        """Change the rows that satisfy `where` (all when None): `set` gives columns the values of Spark SQL expressions.

        `table.update({"delay": "delay + 1"}, where="origin = 'JFK'")`; expressions see the old row, and their values are cast to the
        columns' types (ANSI). Returns None, and makes no version, if there are no such rows. Raises PredicateError for expressions that
        sluice cannot evaluate, ConstraintViolated, and SchemaMismatch, which names a value that does not fit.

        Examples:
            ```python
            table.update({"state": "upper(state)"}, where="id IN (1, 2)")
            ```
        """
        return self._done(self._terms(terms), lambda each: each.update(set, where))

    def upsert(self, rows: Rows, on: str | Sequence[str] | None = None, **terms: Unpack[WriteArgs]) -> Commit | None:
        """Replace the rows that have the key of one of `rows`, and add the others; `on` names the key's columns.

        `on` is by default the table's primary key (`sluice.primaryKey`). Of several rows with one primary key the last counts; any
        other key may occur only once (InvalidRequest). A null in a key equals nothing. The rows must have every column of the table,
        because they replace whole rows (SchemaMismatch). They are held in memory.

        Examples:
            ```python
            table.upsert(pa.table({"id": [1, 99], "state": ["paid", "new"]}), on="id")
            ```
        """
        return self._done(self._terms(terms), lambda each: each.upsert(rows, on))

    def truncate(self, where: str | None = None, **terms: Unpack[WriteArgs]) -> Commit | None:
        """Remove all rows, or whole partitions, without reading them. Returns None, and makes no version, if there are none.

        `where` may name partition columns only (InvalidRequest; `delete` takes any condition).
        """
        return self._done(self._terms(terms), lambda each: each.truncate(where))

    # -- the table as a whole ------------------------------------------------------------------------------------------

    def compact(
        self,
        mode: str = "minor",
        where: str | None = None,
        *,
        target_file_size: int | str | None = None,
        z_order_by: str | Sequence[str] | None = None,
        **terms: Unpack[ChangeArgs],
    ) -> Commit | None:
        """Rewrite files as fewer, larger ones; no row changes. Returns None, and makes no version, if there is nothing to do.

        "minor" merges small files; "major" also rewrites those with deleted rows, so that the new files hold none. `where` names
        partition columns only. Files get `target_file_size` (bytes, or a text like "128mb"; by default the property
        delta.targetFileSize). `z_order_by` orders all rows by up to 8 columns at once: always a major compaction. In a clustered table
        (`cluster_by`) files that are not clustered yet are rewritten in the z-order of its columns, and with them earlier clusters that are
        not larger; "full" takes all files, also those clustered by other columns, unless they are one cluster.

        One commit replaces up to 50,000 files, or the z-ordered files of one partition. More files take several commits, each complete in
        itself; the call returns the last (`Commit.commits`). With `if_version` nothing may come between that version and the commits. With
        `timeout_s` the call ends in that time, with OutcomeUnknown if it was too short; whole commits are then the result. Without it only
        each commit is bounded. The history shows the text `user_metadata` with each.

        Examples:
            ```python
            table.compact()
            table.compact("major", target_file_size="256mb")
            ```
        """
        request = CompactionRequest(mode, where, target_file_size, z_order_by)
        return self.noted(compact(self.coordinated, request, self._terms(terms), limit=terms.get("timeout_s")))

    def set_properties(self, properties: Mapping[str, str], **terms: Unpack[ChangeArgs]) -> Commit | None:
        """Set properties, and add the table features they need. Returns None if they have these values already.

        Raises InvalidRequest for an unknown property or an invalid value, ConstraintViolated if rows break a new constraint.
        """
        return self._change(lambda table: set_properties(table, properties), terms)

    def unset_properties(self, names: Iterable[str], **terms: Unpack[ChangeArgs]) -> Commit | None:
        """Remove properties, also constraints. Returns None if none of them is set."""
        return self._change(lambda table: unset_properties(table, names), terms)

    def add_columns(self, columns: Sequence[NewColumn], **terms: Unpack[ChangeArgs]) -> Commit | None:
        """Add columns, also to structs; they are null in the rows that are there, and no data file is written again.

        Raises InvalidRequest for a column that is there, may not be null, has a default or is generated. If another client changed the
        metadata first, the columns are added to what it made. Plain appends of others commit beside it; whoever read the table gets
        MetadataChangedException, as for every change of the schema.
        """
        return self._change(lambda table: add_columns(table, columns), terms, again=True)

    def alter_columns(self, changes: Sequence[ColumnChange], **terms: Unpack[ChangeArgs]) -> Commit | None:
        """Change columns' names, comments, order, defaults and types, and whether they may be null. Returns None if they are like that
        already.

        A new name needs column mapping (`delta.columnMapping.mode`); no data file is written again, and plain appends of others that know
        the old name commit all the same.

        A type becomes wider if the table's property `delta.enableTypeWidening` is true, and no file is written again. Raises InvalidRequest
        for any other type, and for a column that a constraint or a generated column uses; ConstraintViolated if rows have a null in a
        column that may have none from then on; otherwise as `add_columns`, but plain appends commit after wider types.
        """
        return self._change(lambda table: alter_columns(table, changes), terms, again=True)

    def sync_identity(self, column: str, **terms: Unpack[ChangeArgs]) -> Commit | None:
        """Let an identity column's values go on after the largest that is in the table (the smallest, for a negative step).

        Needed after rows gave values themselves (GENERATED BY DEFAULT). Returns None if they go on after it already: nothing is ever
        lowered. Raises InvalidRequest for another column.
        """
        return self._change(lambda table: sync_identity(table, column), terms, again=True)

    def drop_columns(self, columns: Sequence[str], **terms: Unpack[ChangeArgs]) -> Commit | None:
        """Drop columns, `a` or `a.b` in a struct, from a table with column mapping; no data file is written again.

        Raises InvalidRequest for a column that partitions, clustering, a constraint, a key or a generated column needs, and without column
        mapping. A plain append of another client that has the column commits all the same; whoever read the table is refused.
        """
        return self._change(lambda table: drop_columns(table, columns), terms, again=True)

    def replace_columns(self, schema: pa.Schema | StructType, **terms: Unpack[ChangeArgs]) -> Commit | None:
        """Make the schema's columns the table's, in this order: it keeps those that it has by name, drops others, and adds new ones.

        Raises InvalidRequest as `add_columns` and `drop_columns` do, and for a column of another type.
        """
        return self._change(lambda table: replace_columns(table, schema), terms, again=True)

    def cluster_by(self, columns: str | Sequence[str], **terms: Unpack[ChangeArgs]) -> Commit | None:
        """Let `compact` cluster the table by these columns, up to 4; [] for none. Returns None if it does already.

        No file is written again: `compact("full")` clusters those that are there. The columns have types with an order (numbers, dates,
        times, text) and statistics in files, and the table has no partitions (InvalidRequest). Of two concurrent changes the later is
        refused.
        """
        return self._change(lambda table: cluster_by(table, columns), terms)

    def set_domain(self, name: str, configuration: str, **terms: Unpack[ChangeArgs]) -> Commit | None:
        """Keep a text of your own with the table, under a name. Of two concurrent writes of one name the later is refused."""
        return self._change(lambda table: set_domain(table, name, configuration), terms)

    def remove_domain(self, name: str, **terms: Unpack[ChangeArgs]) -> Commit | None:
        """Remove the text of that name. Returns None if there is none."""
        return self._change(lambda table: set_domain(table, name, None), terms)

    def restore(
        self,
        version: int | None = None,
        timestamp: Moment | None = None,
        *,
        ignore_missing_files: bool = False,
        **terms: Unpack[ChangeArgs],
    ) -> Commit | None:
        """Make the table what it was at a version, or at a time (see `snapshot`): files, schema, partitioning, properties.

        The versions since then stay in the history. Applications' numbers, keys, and users' metadata domains stay, and the protocol is
        never lowered. Returns None, and makes no version, if nothing differs. An exclusive lease keeps others' commits waiting meanwhile.
        Raises MissingObject, naming data files that are gone, before anything is written; with `ignore_missing_files` the table is restored
        without them. Raises VersionNotFound, UnsupportedFeature for an append-only table, LeaseHeld.
        """
        chosen = asked_version(self.access.store, version, timestamp)
        if chosen is None:
            raise InvalidRequest("restore() needs to know what to restore: give a version or a timestamp")
        commit = restore(self.coordinated, chosen, self._terms(terms), timestamp=timestamp, ignore_missing_files=ignore_missing_files)
        return self.noted(commit)

    def repair(self, **terms: Unpack[ChangeArgs]) -> Commit | None:
        """Take data files that the store lacks out of the table, so that the others can be read. Returns None if none is missing.

        The rows of these files are lost, or were before. Raises UnsupportedFeature for an append-only table.
        """
        return self._change(repair, terms)

    def analyze(self, columns: str | Sequence[str] | None = None, **terms: Unpack[ChangeArgs]) -> Analysis:
        """Give data files the statistics that they lack, from their footers or else from their rows, so that readers can skip them.

        Files of converted tables and other engines may lack them, and older files after `delta.dataSkippingNumIndexedCols` was raised.
        `columns` (`a`, `a.b`; all fields of a struct) are by default those that files have statistics of. No row changes: the same files
        are added again, and changes that others make meanwhile are kept. The last commit is None if nothing was to be done; there is one
        for every 10,000 files, and `timeout_s` bounds each.
        """
        done = analyze(self.coordinated, columns, self._terms(terms))
        self.noted(done.commit)
        return done

    def add_feature(self, name: str, **terms: Unpack[ChangeArgs]) -> Commit | None:
        """Add a table feature to the protocol, and those that it needs. Returns None if it has them.

        Raises UnsupportedFeature for a feature that sluice does not implement.
        """
        return self._change(lambda table: add_feature(table, name), terms)

    def drop_feature(self, name: str, *, truncate_history: bool = False, **terms: Unpack[ChangeArgs]) -> Commit | None:
        """Take a table feature out of the protocol. Returns None if the protocol lacks it. Others' commits wait meanwhile.

        What uses the feature goes before: properties are unset, and files are written again if need be. A feature that readers must know,
        too, stays until the log has no version any more that shows it. Then this raises InvalidRequest, which says until when (`ready_ms`);
        after that, `truncate_history` cuts those versions off. Raises UnsupportedFeature for one that cannot be dropped, and
        InvalidRequest, with the remedy, for one whose use only you can end.
        """
        return self.noted(
            drop_feature(self.coordinated, name, self._terms(terms), truncate_history=truncate_history, checkpoint=self._checkpointer.now)
        )

    def upgrade_protocol(self, reader: int, writer: int, **terms: Unpack[ChangeArgs]) -> Commit | None:
        """Raise the protocol to at least these versions (3 and 7 at most). Returns None if it has them; nothing is ever lowered."""
        return self._change(lambda table: upgrade_protocol(table, reader, writer), terms)

    # -- rows that are written elsewhere -------------------------------------------------------------------------------

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

        `read_version` and `read_where` are those of `append`. With `replaced` an overwrite gives the table the schema of the rows, too.

        Examples:
            ```python
            plan = table.plan_write(pa.schema([("id", pa.int64()), ("state", pa.string())]), key="load-7")
            files = plan.write(pa.table({"id": [70], "state": ["new"]}))  # by any process that has the plan
            commit = table.commit_write(plan, files)
            ```
        """
        commit_terms = self._terms(terms)
        with bounding(commit_terms.timeout_s, self.access.clock):
            own = replace(commit_terms, timeout_s=self._timeout_s)
            return plan_write(
                self.coordinated, schema, own, mode=mode, where=where, read_where=read_where, merge_schema=merge_schema, replaced=replaced
            )

    def check_write(self, plan: WritePlan, *, timeout_s: Timeout | None = None) -> None:
        """Raise the conflict by which a plan can no longer commit, before its rows are written, which may take long.

        Costs one look at the head. A plan that passes may still be refused, because others go on committing.
        """
        with self._bounding(timeout_s):
            where_it_is(self.coordinated, lambda table: check_plan(table, plan))

    def commit_write(self, plan: WritePlan, files: Sequence[AddFile], *, timeout_s: Timeout | None = None) -> Commit | None:
        """Commit the files of a plan, once; None if there is nothing to change.

        Called again (after OutcomeUnknown, by a restarted job) this returns the existing commit, or raises the refusal.
        """
        return self.noted(commit_write_once(self.coordinated, plan, files, timeout_s=self._limit(timeout_s)))

    def adopt(
        self, files: Sequence[str | os.PathLike[str]] | Mapping[str | os.PathLike[str], Mapping[str, Any]], **terms: Unpack[ChangeArgs]
    ) -> Commit:
        """Make Parquet files that other programs wrote rows of the table, in one commit; no file is moved or copied.

        A path is relative to the table's folder, or absolute. Partition values come from the folders of a path (`origin=JFK/month=1/...`),
        or from a mapping of paths to them. Files in the table's folder are the table's own from the commit on; those elsewhere are never
        deleted. Columns have the table's names in files and its types; nullable ones may be missing. Rows are read only where footers do
        not tell that they satisfy the table's constraints. Raises SchemaMismatch, ConstraintViolated and InvalidRequest, naming the file,
        for what does not fit, or is in the table already, before anything is written; MissingObject; ConcurrentAppendException if another
        client adopted one of the files first. Then nothing is adopted, and every file stays.
        """
        commit = adopt(self.coordinated, files, self._terms(terms))
        self.noted(commit)
        return commit

    def _terms(self, args: Mapping[str, Any]) -> Terms:
        """The terms that a call's keywords say. Raises InvalidRequest for keywords that contradict."""
        return terms_of(args, ack=self._ack, timeout_s=self._timeout_s)

    def _limit(self, timeout_s: Timeout | None) -> Timeout:
        """How long a call may take: its own time, or the table's."""
        return self._timeout_s if timeout_s is None else timeout_s

    def _bounding(self, timeout_s: Timeout | None) -> AbstractContextManager[Deadline]:
        """Bounds the call's requests to the coordinator within the block."""
        return bounding(self._limit(timeout_s), self.access.clock)

    def _done(self, terms: Terms, change: Callable[[Transaction], None], *, blind: bool = False) -> Commit | None:
        """One operation, committed; the existing commit if the application did it before. All its waits share one time."""
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
            priority = Priority()
            if after is not None:
                read = after.parts_read()
                if any(part.place != table.leases.place for part, _ in read):
                    raise InvalidRequest(
                        f"after={after!r} is a transaction on other tables than {table.location}: give one that Table.begin made for it"
                    )
                priority = priority_after(after.losses, read, deadline)
            try:
                if not blind:
                    snapshot = snapshot_for_change(table, terms.version, numbered=numbered)
                elif PRIMARY_KEY in (snapshot := newest_for_append(table, numbered=numbered)).configuration:
                    snapshot = snapshot_for_change(table)
                return Transaction(table, snapshot, terms, priority, committed=self.noted)
            except TableMoved as moved:
                priority.end()
                table.follow(moved)
            except BaseException:
                priority.end()
                raise
        return self._begun(terms, blind=blind)  # where the table is now

    def _change(self, make: Callable[[OpenTable], Change | None], args: Mapping[str, Any], *, again: bool = False) -> Commit | None:
        """Commit a change of the table as a whole on the terms that keywords say; None if there is none. `again`: if another change of the
        metadata came first, it is made anew.
        """
        table, terms = self.coordinated, self._terms(args)
        with bounding(terms.timeout_s, table.clock) as limit:
            if terms.if_version is not None and terms.if_version > (latest := table.latest().version):
                raise beyond(table.location, terms.if_version, latest)
            while True:
                change = make(table)
                try:
                    return None if change is None else self.noted(submit(table, change.on(terms), timeout_s=limit))
                except MetadataChangedException:
                    # check: columns-are-changed-again (not again or terms.if_version is not None -> True)
                    if not again or terms.if_version is not None:
                        raise

    def noted(self, commit: Commit | None) -> Commit | None:
        """Take note of a commit to this table, if there is one: reads show it, and a checkpoint may be due. Returns it."""
        if commit is not None:  # also for commits learned of later or made before, so that reads of this session show them
            self.coordinated.note(commit.version)
        if commit is not None and not commit.repeated:
            self._checkpointer.committed(commit.version)
        return commit
