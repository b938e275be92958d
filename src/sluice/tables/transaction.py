"""`sluice.Transaction`: several operations on one table that become one commit, or nothing."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

import pyarrow as pa

from ..coordinator.clock import Timeout, bounding
from ..coordinator.isolation import stricter, table_isolation
from ..coordinator.kinds import Kind
from ..coordinator.outcomes import Commit
from ..coordinator.records import Refusal
from ..storage.actions import Action, AddFile, Txn
from ..storage.errors import InvalidRequest
from ..storage.predicate import Predicate
from ..storage.snapshot import Snapshot
from .access import Access
from .capturing import capture_changes
from .changing import add_files, delete_rows, truncate_rows, update_rows
from .done_before import done_before
from .draft import Draft
from .ending import OpenTransaction
from .once import check_application_transaction
from .planning import plan_on, require_replaceable
from .steps import Step, operation_of, reads_of, scope_of, told
from .transactions import (
    DEFAULT_TIMEOUT_S,
    Change,
    Reads,
    commit_change,
    new_transaction_id,
    validate,
)
from .upserting import Keys, newest_key, newest_rows, require_key_scope, upsert_rows
from .writing import Rows, WritePlan, schema_of

__all__ = ["Transaction"]

_log = logging.getLogger(__name__)


class Transaction(OpenTransaction["Commit | None"]):
    """Operations on one version of a table, which become one commit or nothing. Made by `Table.begin`; not for several threads.

    Each operation sees what the ones before it did; nobody else sees anything before `commit`. As a context manager it commits
    when the block ends, and aborts when the block raises.
    """

    def __init__(
        self,
        access: Access,
        snapshot: Snapshot,
        *,
        transaction_id: str | None = None,
        isolation: str | None = None,
        transaction: tuple[str, int] | None = None,
        ack: str = "published",
        timeout_s: Timeout = DEFAULT_TIMEOUT_S,
        filed_after: int | None = None,
        once: bool = False,
        leases: Sequence[str] = (),
        committed: Callable[[Commit], object] | None = None,
    ) -> None:
        super().__init__(timeout_s=timeout_s, filed_again=filed_after is not None)
        check_application_transaction(transaction)
        table_level = table_isolation(snapshot.configuration)
        self._isolation = None if isolation is None else stricter(table_level, isolation)
        self._access = access
        self._application = transaction
        self._ack = ack
        self._draft = Draft(access.store, snapshot, transaction_id or new_transaction_id(access))
        self._filed_id = self._draft.transaction_id
        self._steps: list[Step] = []
        self._reads: list[Reads | None] = []
        self._calls = 0
        self._once = once
        self._filed_after = snapshot.version if filed_after is None else filed_after
        self._leases = tuple(leases)
        self._committed = committed
        self._change: Change | None = None

    # -- what it is --------------------------------------------------------------------------------------------------

    @property
    def id(self) -> str:
        """The transaction's GUID, by which `Table.outcome` finds it.

        It changes when a refusal turned out to be none and the transaction was filed again; `Commit.transaction_id` tells
        the one that stands in the log.
        """
        return self._filed_id

    @property
    def read_version(self) -> int:
        """The version that the operations see, with what this transaction did since."""
        return self._draft.base.version

    @property
    def basis(self) -> tuple[Snapshot, Reads | None]:
        """That version, and what was read of it so far, which the commit depends on; None when nothing was."""
        return self._draft.base, reads_of(self._reads)

    # -- reading -----------------------------------------------------------------------------------------------------

    def scan(self, columns: Sequence[str] | None = None, where: str | None = None) -> pa.Table:
        """The rows that satisfy `where`, all columns or the given ones, as the operations so far left them.

        What is read here is depended upon: the commit is refused when others changed it meanwhile.
        """
        self._require_open()
        draft = self._draft
        predicate = None if where is None else Predicate.parse(where, draft.schema)
        files = draft.candidates(predicate)
        rows = draft.read(columns, predicate, files)
        sql = "" if predicate is None else predicate.to_sql()
        paths = files["path"].to_pylist()
        self._reads.append(Reads(predicates=(sql,), files=tuple(path for path in paths if not draft.is_own(path))))
        return rows

    # -- changing ----------------------------------------------------------------------------------------------------

    def append(self, rows: Rows, *, merge_schema: bool = False) -> None:
        """Add rows; in a table with a primary key they replace those with the same key. `merge_schema` adds columns the table lacks."""
        self._write(rows, "append", None, merge_schema)

    def overwrite(self, rows: Rows, where: str | None = None, *, dynamic: bool = False, merge_schema: bool = False) -> None:
        """Replace the whole table; with `where` the rows that satisfy it; with `dynamic` the partitions the rows lie in."""
        if dynamic and where is not None:
            raise InvalidRequest(f"where={where!r} and dynamic=True were given; give one of them")
        self._write(rows, "dynamic" if dynamic else "overwrite", where, merge_schema)

    def delete(self, where: str) -> None:
        """Delete the rows that satisfy `where`, a Spark SQL condition."""
        with self._operation():
            self._did(*delete_rows(self._draft, where))

    def update(self, set: Mapping[str, str], where: str | None = None) -> None:  # noqa: A002 - the word of SQL
        """Give the columns in `set` the values of Spark SQL expressions over the old row, in the rows that satisfy `where`."""
        with self._operation() as label:
            self._did(*update_rows(self._draft, set, where, label=label))

    def upsert(self, rows: Rows, on: str | Sequence[str] | None = None) -> None:
        """Replace the rows that have the key of one of `rows` (its columns `on`), and add the others.

        `on` is the table's primary key by default; of several rows with one primary key the last counts. A null in a key equals
        nothing. The rows are held in memory.
        """
        with self._operation() as label:
            data = self._plan(schema_of(rows)).gather(rows)
            self._did(*upsert_rows(self._draft, data, on, label=label))

    def truncate(self, where: str | None = None) -> None:
        """Remove all rows, or all partitions that satisfy `where`, without reading them."""
        with self._operation():
            self._did(*truncate_rows(self._draft, where))

    def stage(self, plan: WritePlan, files: Sequence[AddFile]) -> None:
        """Take in what the writers of a plan wrote, as its mode says."""
        with self._operation(replaces=plan.mode != "append"):
            step = add_files(self._draft, plan, files)
            self._did(step.reads, step)

    def write_elsewhere(
        self,
        schema: pa.Schema,
        write: Callable[[WritePlan, str], Sequence[AddFile]],
        *,
        mode: str = "append",
        where: str | None = None,
        merge_schema: bool = False,
    ) -> None:
        """Take in rows that `write(plan, label)` has others write as files, such as the executors of a Spark job."""
        with self._operation(replaces=mode != "append") as label:
            plan = self._plan(schema, mode=mode, where=where, merge_schema=merge_schema)
            if newest_key(plan.metadata, plan.schema):
                raise InvalidRequest(
                    f"{self._access.address.location} has a primary key, so that its rows cannot be written in parts that do not know "
                    "of one another: give the rows as Arrow data"
                )
            step = add_files(self._draft, plan, write(plan, label))
            self._did(step.reads, step)

    # -- ending ------------------------------------------------------------------------------------------------------

    def finish(self) -> Change | None:
        """What was done, staged for good, to be committed together with other tables; None when nothing was done or read.

        What was only read comes without actions.
        """
        self._require_open()
        change = self._finished()
        return self._change_of((), {}) if change is None and self.basis[1] is not None else change

    def repeated(self) -> Commit | None:
        """The commit that wrote the application's transaction; version -1 when the log that tells was cleaned up."""
        return None if self._application is None else done_before(self._access, self._application, self._ack)

    def check(self) -> None:
        """Raise the conflict now when what was read and changed so far can no longer be committed. Costs one look at the head."""
        self._require_open()
        if self._access.head().version > self.read_version:
            validate(self._access, self._change_of(self._draft.outline(self._now_ms()), {}))

    def commit(self, *, timeout_s: Timeout | None = None) -> Commit | None:
        """Commit what was done; None, and no version, when that changes nothing. Called again it gives the same answer.

        Raises the conflict (ConcurrentModification), OutcomeUnknown and Unavailable; after the latter two it may be called again.
        """
        return self._end(timeout_s)

    def withdraw(self, *, timeout_s: Timeout | None = None) -> Commit | None:
        """Take it back. None: it is not committed and never will be, and `commit` raises Withdrawn, or what else refused it.

        The commit, when it was too late: somebody decided it already. Raises OutcomeUnknown and Unavailable; then neither is certain
        yet, and it may be called again.
        """
        return self._take_back(timeout_s)

    def __enter__(self) -> Transaction:
        self._require_open()
        return self

    def __repr__(self) -> str:
        return f"Transaction({self.id!r}, {self._state}, read_version={self.read_version})"

    # -- inside ------------------------------------------------------------------------------------------------------

    @contextmanager
    def _operation(self, *, replaces: bool = True) -> Iterator[str]:
        """One operation: all of it or, when it raises, nothing; gives a label for its files."""
        self._require_open()
        if replaces:
            require_replaceable(self._access.address.location, self._draft.base)
        if any(part is not None for part in self._reads):
            self.check()  # nothing large is staged for a transaction that is lost already
        self._calls += 1
        with self._draft.atomically():
            yield "" if self._calls == 1 else f"o{self._calls}"

    def _did(self, reads: Reads | None, step: Step | None) -> None:
        self._reads.append(reads)
        if step is not None:
            self._steps.append(step)

    def _write(self, rows: Rows, mode: str, where: str | None, merge_schema: bool) -> None:
        schema = schema_of(rows)
        if merge_schema and schema is None:
            raise InvalidRequest(
                "merge_schema needs data whose schema is known before it is read: a Table, RecordBatch or RecordBatchReader"
            )
        with self._operation(replaces=mode != "append") as label:
            plan = self._plan(schema, mode=mode, where=where, merge_schema=merge_schema)
            key = newest_key(plan.metadata, plan.schema)
            if key and mode == "append":
                if plan.changes_metadata:
                    self._draft.adopt(plan.metadata)
                self._did(*upsert_rows(self._draft, plan.gather(rows), None, label=label, kind=Kind.APPEND))
                return
            if key:
                require_key_scope(plan, key)
                gathered = plan.gather(rows)
                rows = newest_rows(gathered, Keys.of(gathered, key, plan.metadata.partition_columns))
            step = add_files(self._draft, plan, plan.write(rows, label=label))
            self._did(step.reads, step)

    def _plan(self, schema: pa.Schema | None, *, mode: str = "append", where: str | None = None, merge_schema: bool = False) -> WritePlan:
        return plan_on(
            self._access.address,
            self._draft.metadata,
            schema,
            transaction_id=self._draft.transaction_id,
            read_version=self.read_version,
            mode=mode,
            where=where,
            merge_schema=merge_schema,
        )

    def _now_ms(self) -> int:
        return self._access.ours.context.clock.now_ms()

    def _heard(self, limit: Timeout, against: Refusal | None = None) -> Commit | None:
        committer = self._access.ours
        with bounding(limit, committer.context.clock) as deadline:
            outcome = committer.outcome(self.id, deadline, after=self.read_version, against=against)
        if outcome.error is not None:
            raise outcome.error
        return outcome.commit

    def _submit(self, limit: Timeout) -> Commit | None:
        repeated = self.repeated()
        if repeated is not None:
            return repeated
        if self._change is None:
            self._change = self._finished()
            if self._change is None:
                return None
        self._filing()
        change = replace(self._change, transaction_id=self.id, filed_after=self._filed_after if self._filed_again else None)
        return commit_change(self._access, change, ack=self._ack, timeout_s=limit, filing=self._filed_under)

    def _concluded(self, answer: Commit | None) -> None:
        if answer is not None and self._committed is not None:
            self._committed(answer)

    def _filed_under(self, transaction_id: str) -> None:
        self._filed_id = transaction_id

    def _finished(self) -> Change | None:
        """The change to commit, staged for good; None when there is none."""
        draft = self._draft
        if draft.must_copy:
            self.check()
        finished = draft.finish(self._now_ms())
        if not finished.actions and draft.metadata is draft.base.metadata and self._application is None:
            level = logging.WARNING if any(step.operation == "WRITE" for step in self._steps) else logging.INFO
            _log.log(level, "transaction %s on %s changes nothing: no version was made", self.id, self._access.address.location)
            return None
        metrics = told(self._steps, finished)
        if not draft.tells_changes:
            return self._change_of(finished.actions, metrics)
        changes = capture_changes(draft)
        return self._change_of((*finished.actions, *changes), {**metrics, "numAddedChangeFiles": str(len(changes))})

    def _change_of(self, files: Sequence[Action], metrics: Mapping[str, str]) -> Change:
        draft = self._draft
        kind, operation, parameters = operation_of(self._steps)
        actions: list[Action] = [] if draft.metadata is draft.base.metadata else [draft.metadata]
        if self._application is not None:
            app, number = self._application
            actions.append(Txn(app_id=app, version=number, last_updated=self._now_ms()))
        return Change(
            transaction_id=self.id,
            operation=operation,
            snapshot=draft.base,
            actions=[*actions, *files],
            reads=reads_of(self._reads),
            parameters=parameters,
            metrics=metrics,
            schema=draft.schema,
            kind=kind,
            scope=scope_of(self._steps),
            isolation=self._isolation,
            once=self._once,
            leases=self._leases,
        )
