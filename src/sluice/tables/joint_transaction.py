"""Transactions over several tables, and reads of several tables at one moment."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

import pyarrow as pa

from ..coordinator.api import (
    DEFAULT_TIMEOUT_S,
    Change,
    Commit,
    Deadline,
    PartitionScope,
    Priority,
    SystemClock,
    TableLeases,
    Timeout,
    bounding,
    naming,
    outcome_of,
    priority_after,
    require_coordinator,
    require_one_coordinator,
    submit_together,
    version_beside,
    versions_together,
)
from ..coordinator.errors import ConcurrentModification, NotCommitted
from ..coordinator.rules.intent import TABLES_MAX, Terms
from ..storage.arguments import checked
from ..storage.errors import InvalidRequest
from ..storage.log.snapshot import Snapshot
from ..storage.stores.location import normalise
from .client.address import TableAddress
from .client.open_table import OpenTable, open_table
from .client.published_table import beyond
from .read.table_snapshot import TableSnapshot, snapshot_of
from .table_writes import TableWrites
from .transaction import ForeignRows, Transaction
from .write.data_writing import Redefinition
from .write.repeated_writes import done_in_all
from .write.requirements import snapshot_for_change
from .write.terms import OnceArgs, terms_of
from .write.transaction_end import OpenTransaction

if TYPE_CHECKING:
    from typing_extensions import Unpack

_log = logging.getLogger(__name__)

Named: TypeAlias = "TableWrites | str | os.PathLike[str]"
"""A `sluice.Table`, or its location."""


def _location(table: Named) -> str:
    return table.coordinated.location if isinstance(table, TableWrites) else normalise(table)


class CommitInfo(Mapping[str, Commit]):
    """The commit in each table that was written. Its keys are locations in any spelling, or the `Table`."""

    def __init__(self, commits: Mapping[str, Commit]) -> None:
        self._commits = dict(commits)

    def __getitem__(self, table: Named) -> Commit:
        return self._commits[_location(table)]

    def __iter__(self) -> Iterator[str]:
        return iter(self._commits)

    def __len__(self) -> int:
        return len(self._commits)

    def __repr__(self) -> str:
        return f"CommitInfo({self._commits!r})"


class JointArgs(OnceArgs, total=False):
    """The terms of a transaction over several tables."""

    after: OpenTransaction[Any] | None
    """The transaction that lost, which this one repeats: it has priority over others (docs/locks.md)."""


@checked
class Part(Transaction):
    """The part of a transaction over several tables in one of them. It ends with the others, by the whole transaction."""

    _moves = False

    def __init__(self, joint: JointTransaction, table: OpenTable, snapshot: Snapshot, terms: Terms) -> None:
        super().__init__(table, snapshot, terms, joint._priority, transaction_id=joint.id)
        self._joint = joint

    def with_part(self, location: str, operation: Callable[[Transaction], object]) -> None:
        """Run an operation on the part in the table at a location: now, or once that table takes part."""
        self._joint.run_on(location, operation)

    def depend_on(self, where: str | None = None, *, version: int | None = None) -> None:
        """As in every transaction; a conflict names the table."""
        with naming(self._table.location):
            super().depend_on(where, version=version)

    def check(self) -> None:
        """As in every transaction; a conflict names the table."""
        with naming(self._table.location):
            super().check()

    def _note_loss(self, lost: NotCommitted) -> None:
        super()._note_loss(lost)
        self._joint._losses = self._losses

    def _end(self, timeout_s: Timeout | None = None) -> NoReturn:
        """Raises InvalidRequest: parts neither commit nor end in another way by themselves."""
        raise InvalidRequest(
            f"this is the part of transaction {self.id} in {self._table.location}: end the whole transaction, not one of its parts",
            transaction_id=self.id,
        )

    _take_back = abort = _end

    def merge(self, *_: object, **__: object) -> NoReturn:
        """Raises InvalidRequest: only Spark merges rows of a DataFrame."""
        raise InvalidRequest("merge() is carried out by Spark: begin the transaction with a session, sluice.transaction(spark, ...)")

    def _write(
        self,
        rows: Any,
        mode: str,
        where: str | None,
        merge_schema: bool,
        redefine: Callable[[pa.Schema | None], Redefinition] | None = None,
    ) -> None:
        foreign = self._joint.foreign(rows)
        super()._write(rows if foreign is None else foreign, mode, where, merge_schema, redefine)


@checked
class JointTransaction(OpenTransaction[CommitInfo]):
    """Operations on several tables that become one commit, or nothing. `sluice.transaction` makes one; use it in one thread.

    Each operation sees what the ones before it did, and nobody else sees anything before `commit`. All tables are read as of one
    moment: the first use of one of them, or the beginning if `tables` names them. As a context manager it commits when the block
    ends, and aborts when the block raises.
    """

    def __init__(
        self,
        coordinator: str | None = None,
        *,
        tables: Sequence[Named] = (),
        storage_options: Mapping[str, str] | None = None,
        if_version: Mapping[Any, int] | None = None,
        foreign: Callable[[Any], ForeignRows | None] | None = None,
        by_engine: Callable[[JointTransaction, Named], Any] | None = None,
        **terms: Unpack[JointArgs],
    ) -> None:
        """See `sluice.transaction`. `foreign` knows rows that are not Arrow data; `by_engine` makes what `transaction[table]` gives."""
        after = terms.pop("after", None)
        self._terms = terms_of(terms, ack="published", timeout_s=DEFAULT_TIMEOUT_S)
        priority = Priority()
        if after is not None:
            with bounding(self._terms.timeout_s, SystemClock()) as deadline:
                priority = priority_after(after.losses, after.parts_read(), deadline)
        super().__init__(self._terms.timeout_s, priority)
        self._coordinator = coordinator
        self._storage_options = storage_options
        self._foreign, self._by_engine = foreign, by_engine
        self._tables: dict[str, TableWrites] = {}
        self._parts: dict[str, Part] = {}
        self._waiting: dict[str, list[Callable[[Transaction], object]]] = {}
        """Operations on the parts of tables that do not take part yet."""
        self._id = ""
        self._changes: list[tuple[OpenTable, Change]] | None = None
        self._info = CommitInfo({})
        self._if_version = {_location(table): version for table, version in (if_version or {}).items()}
        if tables or if_version:
            try:
                self._begin([self._open(table) for table in (*tables, *(if_version or ()))])
            except BaseException:
                self._priority.end()
                raise

    # -- what it is --------------------------------------------------------------------------------------------------

    @property
    def id(self) -> str:
        """The transaction's GUID in all its tables, for `sluice.outcome`; "" before the first use of a table."""
        return self._id

    @property
    def read_versions(self) -> Mapping[str, int]:
        """The versions on which the operations are made, by location."""
        return {location: part.read_version for location, part in self._parts.items()}

    def repeated(self) -> CommitInfo | None:
        """The commits that wrote the application's transaction or the key before, in the tables that take part. Raises HalfCommitted."""
        return self._repeated(self._timeout_s)

    def parts_read(self) -> list[tuple[TableLeases, PartitionScope | None]]:
        """The parts of tables that were read so far (None: the whole of one)."""
        return [read for part in self._parts.values() for read in part.parts_read()]

    @property
    def commit_info(self) -> CommitInfo:
        """The commit in each table that was written; empty before `commit`, and if nothing was changed."""
        return self._info

    # -- its parts ---------------------------------------------------------------------------------------------------

    def __getitem__(self, table: Named) -> Any:
        """A table's part, which begins with its first use. Its operations are those of `Transaction`, also with Spark DataFrames for rows.

        In a transaction begun with a Spark session they are those of `sluice.delta.DeltaTable`, carried out by Spark's tasks.
        """
        return self.part(table) if self._by_engine is None else self._by_engine(self, table)

    def part(self, table: Named) -> Part:
        """A table's part with the operations of `Transaction`, whatever the transaction was begun with."""
        self._require_open()
        location = _location(table)
        if location not in self._parts:
            self._begin([self._open(table)])
        return self._parts[location]

    def foreign(self, rows: Any) -> ForeignRows | None:
        """The rows, if others than sluice write them; None for Arrow data."""
        return None if self._foreign is None else self._foreign(rows)

    def run_on(self, location: str, operation: Callable[[Transaction], object]) -> None:
        """Run an operation on the part in a table: now, or once the table takes part."""
        part = self._parts.get(location)
        if part is None:
            self._waiting.setdefault(location, []).append(operation)
        else:
            operation(part)

    # -- ending ------------------------------------------------------------------------------------------------------

    def commit(self, *, timeout_s: Timeout | None = None) -> CommitInfo:
        """Commit the operations, in all tables or in none. Called again it gives the same answer.

        Raises the conflict, which names its table (`error.facts["table"]`), LeaseHeld, LeaseLost, OutcomeUnknown and Unavailable; after
        the last two it may be called again. Raises HalfCommitted if it repeats a transaction of which some tables lost their part.
        """
        with self._bounding(timeout_s) as limit:
            return self._end(limit)

    def withdraw(self, *, timeout_s: Timeout | None = None) -> CommitInfo | None:
        """Take the transaction back in all tables. Returns None if no table has it or ever will: `commit` then raises Withdrawn.

        Returns the commits if it is too late, because somebody decided the transaction already. Raises OutcomeUnknown and Unavailable
        if neither is certain yet; then it may be called again.
        """
        with self._bounding(timeout_s) as limit:
            return self._take_back(limit)

    def __enter__(self) -> JointTransaction:
        self._require_open()
        return self

    def __repr__(self) -> str:
        return f"JointTransaction({self._id!r}, {self._state}, read_versions={dict(self.read_versions)!r})"

    # -- inside ------------------------------------------------------------------------------------------------------

    def _open(self, table: Named) -> TableWrites:
        if self._coordinator is not None and isinstance(table, TableWrites):
            require_coordinator(table.coordinated.context, self._coordinator)
        return _opened(table, self._coordinator, self._storage_options)

    def _begin(self, tables: Sequence[TableWrites]) -> None:
        """Add tables, as of the moment of the tables that take part already."""
        fresh = {each.coordinated.location: each for each in tables}
        count = len({*self._tables, *fresh})
        if count > TABLES_MAX:
            raise InvalidRequest(
                f"this transaction would be over {count} tables, and one may be over {TABLES_MAX}: commit to some of them afterwards",
                tables=count,
            )
        require_one_coordinator([each.coordinated.context for each in (*self._tables.values(), *fresh.values())])
        first = next(iter(fresh.values())).coordinated
        with bounding(self._timeout_s, first.clock) as deadline:
            versions = self._versions(fresh, deadline)
            for location, latest in versions.items():
                if self._if_version.get(location, -1) > latest:
                    raise beyond(fresh[location].access.location, self._if_version[location], latest)
            self._id = self._id or first.new_transaction_id()
            parts: dict[str, Part] = {}
            for location, table in fresh.items():
                terms = replace(self._terms, if_version=self._if_version.get(location))
                snapshot = snapshot_for_change(table.coordinated, versions[location])
                parts[location] = Part(self, table.coordinated, snapshot, terms)
        self._tables.update(fresh)
        self._parts.update(parts)
        for location, part in parts.items():
            for operation in self._waiting.pop(location, ()):
                operation(part)

    def _bounding(self, timeout_s: Timeout | None) -> AbstractContextManager[Deadline]:
        """Bounds the requests to the coordinator within the block, for all tables together."""
        first = next(iter(self._tables.values()), None)
        return bounding(self._limit(timeout_s), SystemClock() if first is None else first.coordinated.clock)

    def _versions(self, fresh: Mapping[str, TableWrites], deadline: Deadline) -> dict[str, int]:
        """The version to begin each new table on: its latest at the moment of which the others were read."""
        contexts = {location: table.coordinated.context for location, table in (*self._tables.items(), *fresh.items())}
        latest = dict(zip(contexts, versions_together(list(contexts.values()), deadline), strict=True))
        gone_on = [
            (contexts[location], part.read_version) for location, part in self._parts.items() if latest[location] != part.read_version
        ]
        if not gone_on:
            return {location: latest[location] for location in fresh}
        versions: dict[str, int] = {}
        for location in fresh:
            version = version_beside(gone_on, contexts[location])
            if version is None:
                raise ConcurrentModification(
                    f"{location}: its version at the moment when transaction {self._id} read its first table is not known any more; begin "
                    "another one, and name all its tables at the beginning (tables=[...])",
                    rule="moment-forgotten",
                    transaction_id=self._id,
                    facts={"table": location},
                )
            versions[location] = version
        return versions

    def _submit(self, limit: Timeout) -> CommitInfo:
        repeated = self._repeated(limit)
        if repeated is not None:
            return repeated
        if self._changes is None:
            finished = ((self._tables[location].coordinated, part.finish()) for location, part in sorted(self._parts.items()))
            self._changes = [(table, change) for table, change in finished if change is not None]
        written = [table.location for table, change in self._changes if change.actions]
        if not written:
            _log.info("transaction %s changes nothing: no version was made", self._id)
            return CommitInfo({})
        self._filing()
        changes = [(table, self._to_file(table, change)) for table, change in self._changes]
        commits = submit_together(
            changes,
            timeout_s=limit,
            filing=self._filed_under,
            done_before=self._done_before,
        )
        return CommitInfo({location: commits[location] for location in written if location in commits})

    def _to_file(self, table: OpenTable, change: Change) -> Change:
        filed_after = self._read_version(table) if self._filed_again else None
        return replace(change, transaction_id=self._id, filed_after=filed_after, leases=(*change.leases, *self._priority.nodes))

    def _note_loss(self, lost: NotCommitted) -> None:
        if isinstance(lost, ConcurrentModification):
            part = self._parts.get(str(lost.details.get("facts", {}).get("table")))
            if part is not None:
                part.tell_loss(lost)
        super()._note_loss(lost)

    def _discard(self) -> None:
        for part in self._parts.values():
            part._discard()

    def _concluded(self, answer: CommitInfo) -> None:
        self._info = answer
        for location, commit in answer.items():
            self._tables[location].noted(commit)

    def _heard(self, limit: Timeout, *, withdrawing: bool) -> CommitInfo | None:
        commits: dict[str, Commit] = {}
        for table, change in self._changes or ():
            outcome = outcome_of(table, self._id, limit, after=self._read_version(table), withdrawing=withdrawing)
            if outcome.error is not None:
                raise outcome.error
            if outcome.commit is not None and change.actions:
                commits[table.location] = outcome.commit
        return CommitInfo(commits) if commits else None

    def _read_version(self, table: OpenTable) -> int:
        return self._parts[table.location].read_version

    def _repeated(self, limit: Timeout) -> CommitInfo | None:
        """The commits that wrote the application's transaction, in the tables that it wrote. Raises HalfCommitted."""
        with self._bounding(limit):
            commits = self._done_before()
        return CommitInfo(commits) if commits else None

    def _done_before(self) -> Mapping[str, Commit]:
        once = self._terms.once
        if once is None or not self._parts:
            return {}
        tables = {location: self._tables[location].coordinated for location in self._parts}
        return done_in_all(tables, once, self._terms.ack, {location: part.read_version for location, part in self._parts.items()})

    def _filed_under(self, transaction_id: str) -> None:
        self._id = transaction_id


def _opened(table: Named, coordinator: str | None, storage_options: Mapping[str, str] | None = None) -> TableWrites:
    """The table, opened if its location was given."""
    return table if isinstance(table, TableWrites) else TableWrites(open_table(TableAddress.of(table, coordinator, storage_options)))


@checked
def read_together(
    tables: Sequence[Named], *, coordinator: str | None = None, timeout_s: Timeout = DEFAULT_TIMEOUT_S
) -> list[TableSnapshot]:
    """Snapshots of several tables at one moment, including everything acknowledged to anybody before the call.

    A transaction over several of them is in all of these snapshots or in none. Tables given by location are opened at
    `coordinator`. Raises InvalidRequest for tables of different coordinators.
    """
    accesses = [_opened(each, coordinator).coordinated for each in tables]
    contexts = [table.context for table in accesses]
    require_one_coordinator(contexts)
    with bounding(timeout_s, accesses[0].clock) as deadline:
        versions = versions_together(contexts, deadline)
    return [snapshot_of(table, version, timeout_s=deadline) for table, version in zip(accesses, versions, strict=True)]
