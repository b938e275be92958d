"""`sluice.Transaction`: several operations on one table that become one commit, or nothing."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa

from ..coordinator import api
from ..coordinator.api import Commit, Priority, Timeout
from ..coordinator.errors import ConcurrentModification, NotCommitted, TableMoved
from ..coordinator.rules.intent import Kind, Terms, stricter, table_isolation, table_policy
from ..storage.actions import Action, AddCDCFile, AddFile
from ..storage.actions.file_removals import Actions
from ..storage.actions.records import readable_stats
from ..storage.arguments import RULES, checked
from ..storage.dataclass import dataclass
from ..storage.errors import InvalidRequest
from ..storage.log.snapshot import Snapshot
from ..storage.pruning.predicate import Predicate
from ..storage.schema.datatypes import features_of_columns
from ..storage.schema.identity import needs_numbers
from ..storage.schema.partitions import uri_to_path
from ..storage.schema.schema import StructType, from_arrow, to_arrow
from .client.open_table import OpenTable, where_it_is
from .client.property_rules import newest_key
from .maintain.compaction import CompactionRequest, stage_compaction
from .write.change_data_files import capture_changes
from .write.data_writing import Redefinition, Rows, WritePlan, arrow_of, schema_of
from .write.draft import Draft
from .write.merging import Keys, newest_rows, require_key_scope, upsert_rows
from .write.numbering import Numbering
from .write.redefinition import Replaced, redefined
from .write.repeated_writes import done_before
from .write.requirements import complete_plan, require_no_key, require_no_later_version, require_replaceable, require_unchanged
from .write.row_operations import (
    RowOperation,
    Step,
    add_files,
    commit_metrics,
    delete_rows,
    operation_of,
    reads_of,
    require_room_for,
    rows_read,
    scope_of,
    truncate_rows,
    update_rows,
)
from .write.terms import transaction_actions
from .write.transaction_end import OpenTransaction

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ForeignRows:
    """Rows that are not Arrow data, such as those of a Spark DataFrame, which others write."""

    schema: pa.Schema
    write: Callable[[WritePlan, str], Sequence[AddFile]]
    """Writes the rows by a plan; the text distinguishes the files from those of other operations."""
    depend: Callable[[Transaction], object]
    """Makes a transaction depend on what the rows were computed from."""
    rows_max: Callable[[], int | None]
    """How many rows they are at most, if that is known."""


@checked
class Transaction(OpenTransaction["Commit | None"]):
    """Operations on one version of a table, which become one commit or nothing. `Table.begin` makes one; use it in one thread.

    Each operation sees what the ones before it did; nobody else sees anything before `commit`. A `with` block commits at its end, and
    aborts when it raises.
    """

    _moves = True
    """Whether it may still move to another version; all parts of a transaction over several tables are read as of one moment."""
    _foreign: Callable[[Any], ForeignRows | None] | None = None
    """Knows rows that others than sluice write."""

    def __init__(
        self,
        table: OpenTable,
        snapshot: Snapshot,
        terms: Terms,
        priority: Priority,
        *,
        transaction_id: str | None = None,
        planned: WritePlan | None = None,
        filed_after: int | None = None,
        committed: Callable[[Commit], object] | None = None,
    ) -> None:
        """A transaction on a snapshot. Its id is `transaction_id`, that of the plan `planned`, or a new one.

        A plan's id had no commit up to version `filed_after`. `committed` gets the commit.
        """
        stricter(table_isolation(snapshot.configuration), terms.isolation)
        own_id = transaction_id or (table.new_transaction_id() if planned is None else planned.transaction_id)
        super().__init__(own_id, terms.timeout_s, priority, table.clock, filed_again=planned is not None)
        self._table, self._terms, self._planned = table, terms, planned
        self._draft = Draft(table.store, snapshot, own_id, partial(api.require_room, table))
        self._steps: list[Step] = []
        """The operations in order, also those that changed nothing."""
        self._calls = self._worked_ms = 0
        self._filed_after = snapshot.version if filed_after is None else filed_after
        self._numbered_since = snapshot.version if planned is None else planned.read_version
        self._committed = committed
        self._noted: dict[str, int] = {}
        self._source_unknown = False
        self._change: api.Change | None = None
        self._compacted: api.Change | None = None

    # -- what it is --------------------------------------------------------------------------------------------------

    @property
    def read_version(self) -> int:
        """The version on which the operations are made."""
        return self._draft.base.version

    def latest_version(self) -> int:
        """The table's last version now, of all writers. Costs one look at the head."""
        with api.bounding(self._timeout_s, self._clock):
            return self._table.head().version

    @property
    def struct(self) -> StructType:
        """The table's schema as the operations so far left it."""
        return self._draft.schema

    @property
    def steps(self) -> Sequence[Step]:
        """The operations that changed something so far, as the history will show them."""
        return [step for step in self._steps if step.changes]

    @property
    def basis(self) -> tuple[Snapshot, api.Reads | None]:
        """That version, and what was read of it so far, on which the commit depends; None if nothing was read."""
        return self._draft.base, reads_of([step.reads for step in self._steps])

    # -- reading -----------------------------------------------------------------------------------------------------

    def scan(self, columns: Sequence[str] | None = None, where: str | None = None, *, for_update: bool = False) -> pa.Table:
        """The rows that satisfy `where`, all columns or the given ones, as the operations so far left them.

        The commit depends on these rows: it is refused if others changed or deleted one meanwhile (without deletion vectors: a row of their
        files). Rows that others added count as the isolation level says; with `for_update` at every level, also those of blind appends.
        Raises InvalidRequest for `for_update` under a policy that compares no rows.
        """
        self._require_open()
        draft = self._draft
        self._require_policy_of_rows("for_update=True", needed=for_update, remedy="take a lease on the table instead (Table.lease)")
        predicate = None if where is None else Predicate.parse(where, draft.schema)
        files = draft.candidates(predicate)
        sql = "" if predicate is None else predicate.to_sql()
        reads = api.Reads(predicates=(sql,), locks=(sql,) if for_update else ())
        if predicate is not None and draft.uses_vectors:
            rows, positions = draft.read_rows(columns, predicate, files)
            self._steps.append(Step.reading("SCAN", replace(reads, rows=positions)))
            return rows
        rows = draft.read(columns, predicate, files)
        paths = files["path"].to_pylist()
        # check: scans-are-remembered (tuple(path for path in paths if not draft.is_own(path)) -> ())
        self._steps.append(Step.reading("SCAN", replace(reads, files=tuple(path for path in paths if not draft.is_own(path)))))
        return rows

    def depend_on(self, where: str | None = None, *, version: int | None = None) -> None:
        """Depend on the rows that satisfy `where` (None: the whole table), which were read elsewhere, as if they were scanned here.

        They are rows of `version` (None: the version that the transaction reads). Raises InvalidRequest for a later version. For an
        earlier version it raises the conflict if others changed since then what was read. In a table with deletion vectors the rows are
        looked up if the files that may hold them have 64 MiB at most; otherwise these files count as a whole.
        """
        self._require_open()
        self._require_policy_of_rows("read_version=", needed=True, remedy="use if_version=, or take a lease on the table (Table.lease)")
        base = self._draft.base
        if version is not None and version != base.version:
            require_no_later_version(self._table.location, version, base.version)
            with api.bounding(self._timeout_s, self._clock):
                require_unchanged(self._table, version, base, where, self._id, self._terms)
        self._steps.append(Step.reading("READ", rows_read(Draft(self._table.store, base, self._id), where)))

    def move_to(self, version: int) -> None:
        """Work on an earlier version, from which the rows to write were computed: rows that others added since then stay.

        Does nothing after the first operation, with `if_version`, and for a part of a transaction over several tables.
        """
        if not self._moves or self._steps or self._terms.if_version is not None or version >= self.read_version:
            return
        with api.bounding(self._timeout_s, self._clock):
            self._draft = Draft(self._table.store, self._table.at(version), self._id, partial(api.require_room, self._table))
        self._filed_after = self._numbered_since = version

    def with_part(self, location: str, operation: Callable[[Transaction], object]) -> None:
        """Run an operation on the part that this transaction has, or will have, in the table at a location; on nothing if it has none."""
        if location == self._table.location:
            operation(self)

    @property
    def applications(self) -> Mapping[str, int]:
        """The applications' numbers in the version read, by application id."""
        return {name: each.version for name, each in self._draft.base.app_transactions.items()}

    def note(self, applications: Mapping[str, int]) -> None:
        """Let the commit carry these applications' numbers, too: of two transactions with other numbers of one the later is refused."""
        self._require_open()
        for each in applications.items():
            RULES["transaction"].check("applications", each)
        self._noted.update(applications)

    # -- changing ----------------------------------------------------------------------------------------------------

    def append(self, rows: Rows | ForeignRows, *, merge_schema: bool = False) -> None:
        """Add rows; in a table with a primary key they replace rows with the same key. `merge_schema` adds columns that the table lacks."""
        self._write(rows, "append", None, merge_schema)

    def overwrite(
        self,
        rows: Rows | ForeignRows,
        where: str | None = None,
        *,
        dynamic: bool = False,
        merge_schema: bool = False,
        overwrite_schema: bool = False,
        partition_by: Sequence[str] | None = None,
        cluster_by: str | Sequence[str] | None = None,
    ) -> None:
        """Replace the whole table; with `where` the rows that satisfy it; with `dynamic` the partitions of the new rows.

        With `overwrite_schema` the table gets the schema of the rows, and is partitioned by `partition_by` and clustered by `cluster_by`
        (None: as it is).
        """
        if dynamic and where is not None:
            raise InvalidRequest(f"where={where!r} and dynamic=True were given; give one of them")
        replaced = Replaced.of(overwrite_schema, partition_by, cluster_by)
        redefine = None if replaced is None else partial(replaced.by, self._draft.base)
        self._write(rows, "dynamic" if dynamic else "overwrite", where, merge_schema and replaced is None, redefine)

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
    ) -> None:
        """Replace the table: schema (None: that of `rows`), partitioning, clustering, properties, comment; all rows by `rows`, if any.

        `create` says that the caller would have created the table, which the history shows (CREATE OR REPLACE TABLE).
        """
        rows = None if rows is None else arrow_of(rows)
        of_rows = None if rows is None else schema_of(rows)
        fields = schema if schema is not None or of_rows is None else from_arrow(of_rows)
        if fields is None:
            raise InvalidRequest("replace() needs the table's schema: give schema=, or rows whose schema is known before they are read")
        operation = f"{'CREATE OR ' if create else ''}REPLACE TABLE{'' if rows is None else ' AS SELECT'}"
        redefines = redefined(self._draft.base, fields, partition_by, properties or {}, operation, cluster_by, comment)
        new_rows = to_arrow(redefines.metadata.schema).empty_table() if rows is None else rows
        self._write(new_rows, "overwrite", None, False, lambda _: redefines)

    def delete(self, where: str) -> None:
        """Delete the rows that satisfy `where`, a Spark SQL condition."""
        with self._operation():
            self._steps.append(delete_rows(self._draft, where))

    def update(self, set: Mapping[str, str], where: str | None = None) -> None:  # noqa: A002 - the word of SQL
        """Set the columns in `set` to Spark SQL expressions over the old row, in the rows that satisfy `where`."""
        with self._operation() as label:
            self._steps.append(update_rows(self._draft, set, where, label=label))

    def upsert(self, rows: Rows, on: str | Sequence[str] | None = None) -> None:
        """Replace the rows that have the key of one of `rows` (its columns `on`, by default the primary key), and add the others.

        Of several rows with one primary key the last counts. A null in a key equals nothing. The rows are held in memory.
        """
        with self._operation() as label:
            rows = arrow_of(rows)
            # check: upserts-bring-every-column (without , whole=True)
            data = self._plan(schema_of(rows)).gather(rows, whole=True)
            self._steps.append(upsert_rows(self._draft, data, on, label=label))

    def truncate(self, where: str | None = None) -> None:
        """Remove all rows, or all partitions that satisfy `where`, without reading them."""
        with self._operation():
            self._steps.append(truncate_rows(self._draft, where))

    def compact(
        self,
        mode: str = "minor",
        where: str | None = None,
        *,
        target_file_size: int | str | None = None,
        z_order_by: str | Sequence[str] | None = None,
    ) -> None:
        """Rewrite files as fewer, larger ones, as `Table.compact` does; it must be the last operation of its transaction.

        It takes the files that the operations before it left unchanged. Raises InvalidRequest beside others in a table whose conflict
        policy knows single operations only.
        """
        with self._operation() as label:
            self._require_policy_of_rows("compact() beside other operations", needed=bool(self.steps))
            staged = stage_compaction(
                self._table,
                CompactionRequest(mode, where, target_file_size, z_order_by),
                snapshot=self._draft.base,
                untouched=self._draft.untouched,
                transaction_id=self._draft.transaction_id,
                label=label,
            )
            if staged is None:
                return
            self._compacted = change = staged.change
            counts = {name: int(count) for name, count in change.metrics.items()}
            self._steps.append(Step(change.operation, change.kind, change.parameters, counts, change.reads))

    def stage(self, plan: WritePlan, files: Sequence[AddFile]) -> None:
        """Add the files of a plan to the transaction, as the plan's mode says; without statistics that cannot be read."""
        with self._operation(replaces=plan.mode != "append"):
            self._draft.staged.update(uri_to_path(each.path) for each in files)
            if plan.numbers is not None:
                numbering = self._numbering(plan)
                assert numbering is not None
                numbering.resume(plan.numbers)
                plan = numbering.ended(plan, files)
            self._steps.append(add_files(self._draft, plan, [replace(each, stats=readable_stats(each.stats)) for each in files]))
        self._source_unknown |= not plan.source_known

    @contextmanager
    def operation(self, operation: str, *, replaces: bool = True) -> Iterator[RowOperation]:
        """An operation in which others such as Spark's tasks change rows: the block makes its changes in the draft, and sets their `step`.

        `operation` is its name in the history; append-only tables allow it unless it `replaces` rows. Nothing is done if the block raises.
        """
        with self._operation(replaces=replaces) as label:
            plan = self._plan(None)
            change = RowOperation(self._draft, plan, label, Step.reading(operation, None), self._numbering(plan))
            yield change
            if change.numbering is not None:
                ended = change.numbering.ended(replace(plan, metadata=self._draft.metadata), change.numbered)
                if ended.changes_metadata:
                    self._draft.adopt(ended.metadata)
            self._steps.append(change.step)

    # -- ending ------------------------------------------------------------------------------------------------------

    def finish(self) -> api.Change | None:
        """The change to commit, staged for good; without actions if the transaction only read, None if nothing was done or read."""
        self._require_open()
        draft, begun_ms = self._draft, self._clock.now_ms()
        if draft.uncopied:
            draft.foresee()
            self.check()
        finished = draft.finish(self._clock.now_ms())
        noted = self._terms.once is not None or bool(self._noted)
        if not finished.actions and self._compacted is None and draft.metadata is draft.base.metadata and not noted:
            level = logging.WARNING if any(step.operation == "WRITE" for step in self._steps) else logging.INFO
            _log.log(level, "transaction %s on %s changes nothing: no version was made", self._id, self._table.location)
            return self._change_of((), {}) if self.basis[1] is not None or self._terms.if_version is not None else None
        changes = capture_changes(draft) if draft.captures_changes else ()
        metrics = commit_metrics(self.steps, finished, len(changes), self._worked_ms + self._clock.now_ms() - begun_ms)
        return self._change_of(Actions(finished.actions, () if self._compacted is None else self._compacted.actions, changes), metrics)

    def repeated(self) -> Commit | None:
        """The commit that wrote the application's transaction; version -1 if its log file was cleaned up."""
        once, ack, since = self._terms.once, self._terms.ack, self._numbered_since
        return None if once is None else where_it_is(self._table, lambda table: done_before(table, once, ack, since=since))

    def check(self) -> None:
        """Raise the conflict now if what was read and changed so far can no longer commit. Costs one look at the head.

        `timeout_s` of the transaction bounds the requests to the coordinator, of this call and of each operation, and not reading rows.
        """
        self._require_open()
        with api.bounding(self._timeout_s, self._clock):
            try:
                if self._table.head().version > self.read_version:
                    api.validate(self._table, self._change_of(self._draft.outline(self._clock.now_ms()), {}))
            except ConcurrentModification as lost:
                self._note_loss(lost)
                raise
            except TableMoved as moved:
                self._table = self._table.follow(moved)
                self.check()

    def __repr__(self) -> str:
        return f"Transaction({self._id!r}, {self._state}, read_version={self.read_version})"

    # -- inside ------------------------------------------------------------------------------------------------------

    @contextmanager
    def _operation(self, *, replaces: bool = True) -> Iterator[str]:
        """One operation, all of it or, if it raises, nothing; yields a label for its files."""
        self._require_open()
        if self._compacted is not None:
            raise InvalidRequest(
                "compact() is the last operation of a transaction: call the others before it, or begin another transaction"
            )
        if replaces:
            require_replaceable(self._table.location, self._draft.base)
        readers = [step for step in self._steps if step.reads is not None]
        if readers or self._terms.if_version is not None:
            self.check()  # do not stage anything large for a transaction that has already lost
        self._calls += 1
        begun_ms = self._clock.now_ms()
        with self._draft.atomically():
            yield "" if self._calls == 1 else f"o{self._calls}"
        self._worked_ms += self._clock.now_ms() - begun_ms

    def _require_policy_of_rows(self, what: str, *, needed: bool, remedy: str = "commit it by itself") -> None:
        if needed and table_policy(self._draft.base.configuration).by_classes:
            raise InvalidRequest(
                f"{what}: the conflict policy of {self._table.location} (sluice.conflictPolicy) compares kinds of operations "
                f"and no rows; {remedy}"
            )

    def _write(
        self,
        rows: Rows | ForeignRows,
        mode: str,
        where: str | None,
        merge_schema: bool,
        redefine: Callable[[pa.Schema | None], Redefinition] | None = None,
    ) -> None:
        if self._foreign is not None:
            rows = self._foreign(rows) or rows
        if isinstance(rows, ForeignRows):
            rows.depend(self)
            schema: pa.Schema | None = rows.schema
        else:
            rows = arrow_of(rows)
            schema = schema_of(rows)
        redefines = None if redefine is None else redefine(schema)
        if merge_schema and schema is None:
            raise InvalidRequest("merge_schema needs data whose schema is known before it is read: a table, a batch or a reader")
        with self._operation(replaces=mode != "append") as label:
            plan = self._plan(schema, mode=mode, where=where, merge_schema=merge_schema, redefines=redefines)
            numbering = self._numbering(plan)
            if isinstance(rows, ForeignRows):
                require_no_key(self._table.location, plan.metadata)
                require_room_for(self._draft, plan)
                if numbering is not None and needs_numbers(plan.schema, rows.schema.names):
                    plan = replace(plan, numbers=numbering.for_tasks(rows.rows_max()))
                files = rows.write(plan, label)
                self._steps.append(add_files(self._draft, plan if numbering is None else numbering.ended(plan, files), files))
                return
            key = newest_key(plan.metadata, plan.schema)
            if key and mode == "append":
                if plan.changes_metadata:
                    self._draft.adopt(plan.metadata)
                gathered = plan.gather(rows, whole=True)
                self._steps.append(upsert_rows(self._draft, gathered, None, label=label, kind=Kind.APPEND))
                return
            if key:
                require_key_scope(plan, key)
                gathered = plan.gather(rows)
                rows = newest_rows(gathered, Keys.of(gathered, key, plan.metadata.partition_columns))
            require_room_for(self._draft, plan)
            files = plan.write(rows, label=label, store=self._table.store, take=numbering)
            self._steps.append(add_files(self._draft, plan if numbering is None else numbering.ended(plan), files))

    def _numbering(self, plan: WritePlan) -> Numbering | None:
        """What numbers the rows of an operation; None in a table without identity columns."""
        if "identityColumns" not in features_of_columns(plan.schema):
            return None
        return Numbering(self._table, self._draft.base.metadata, plan.metadata, self._terms, self._priority.nodes)

    def _plan(
        self,
        schema: pa.Schema | None,
        *,
        mode: str = "append",
        where: str | None = None,
        merge_schema: bool = False,
        redefines: Redefinition | None = None,
    ) -> WritePlan:
        if redefines is not None and self.steps:
            raise InvalidRequest(
                "what replaces the table's schema, partitioning or properties is the first operation of its transaction: leave out those "
                "before it, whose rows it would replace"
            )
        address, draft = self._table.address, self._draft
        plan = WritePlan(address, draft.transaction_id, draft.metadata, mode, where, draft.base.version, redefines=redefines)
        return complete_plan(plan, schema, draft, merge_schema=merge_schema)

    def _heard(self, limit: Timeout, *, withdrawing: bool) -> Commit | None:
        outcome = api.outcome_of(self._table, self._id, limit, after=self.read_version, withdrawing=withdrawing)
        if outcome.error is not None:
            raise outcome.error
        return None if outcome.commit is None else outcome.commit if self._change is None else self._change.measured(outcome.commit)

    def _stage(self) -> None:
        self._change = self.finish()

    def _submit(self, limit: Timeout) -> Commit | None:
        if self._change is None or not self._change.actions:
            return None
        self._filing()
        change = replace(
            self._change,
            transaction_id=self._id,
            filed_after=self._filed_after if self._filed_again else None,
            leases=(*self._change.leases, *self._priority.nodes),
        )
        return api.submit(self._table, change, timeout_s=limit, filing=self._filed_under)

    def _note_loss(self, lost: NotCommitted) -> None:
        if isinstance(lost, ConcurrentModification):
            self.tell_loss(lost)
        super()._note_loss(lost)

    def parts_read(self) -> list[tuple[api.TableLeases, api.PartitionScope | None]]:
        """The part of the table that was read so far (None: the whole); nothing of a planned write, which nobody repeats by itself."""
        snapshot, reads = self.basis
        return [] if reads is None or self._planned is not None else [(self._table.leases, api.touched_by_reads(snapshot, reads))]

    def tell_loss(self, lost: ConcurrentModification) -> None:
        """Add to a refusal which operation lost."""
        operations = [(step.operation, step.reads) for step in self._steps]
        if (operation := api.operation_that_lost(self._table, self._change_of((), {}), operations, lost)) is not None:
            number, name = operation
            of_several = f"; of this transaction operation {number} ({name}) lost" if len(operations) > 1 else ""
            lost.tell(of_several, lost_operation=number, lost_operation_name=name)

    def _discard(self) -> None:
        actions = () if self._change is None else self._change.actions
        self._draft.discard(uri_to_path(each.path) for each in actions if isinstance(each, (AddFile, AddCDCFile)))

    def _concluded(self, answer: Commit | None) -> None:
        if answer is not None and self._committed is not None:
            self._committed(answer)

    def _change_of(self, files: Collection[Action], metrics: Mapping[str, str]) -> api.Change:
        draft, terms, planned = self._draft, self._terms, self._planned
        steps = self.steps
        kind, operation, parameters = operation_of(steps)
        actions: list[Action] = [] if draft.protocol is draft.base.protocol else [draft.protocol]
        actions += [] if draft.metadata is draft.base.metadata else [draft.metadata]
        actions += draft.clustering
        for application in [*self._noted.items()] if terms.once is None else [terms.once, *self._noted.items()]:
            actions += transaction_actions(application, self._clock.now_ms())
        return api.Change(
            transaction_id=self._id,
            operation=operation,
            snapshot=draft.base,
            actions=Actions(actions, files),
            reads=reads_of([step.reads for step in self._steps]),
            reads_elsewhere=self._source_unknown,
            terms=terms,
            parameters=parameters,
            metrics=metrics,
            schema=draft.schema,
            kind=kind,
            scope=scope_of(steps) if kind is Kind.OVERWRITE else None,
            keeps_id=planned is not None,
            numbered_since=self._numbered_since,
            leases=() if planned is None else planned.leases,
        )
