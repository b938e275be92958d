"""Transactions over several tables, their outcomes, and reads of several tables at one moment."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeAlias

from ..coordinator import api
from ..coordinator.api import Commit, Outcome, Priority, Timeout
from ..coordinator.errors import ConcurrentModification, NotCommitted, TableMoved
from ..coordinator.rules.intent import TABLES_MAX, Terms
from ..storage.arguments import checked
from ..storage.errors import InvalidRequest
from ..storage.log.snapshot import Snapshot
from ..storage.stores.location import normalise
from .client.address import TableAddress
from .client.open_table import OpenTable, open_coordinated, open_table
from .client.published_table import beyond
from .read.table_snapshot import TableSnapshot, snapshot_of
from .table_writes import TableWrites
from .transaction import ForeignRows, Transaction
from .write.repeated_writes import done_in_all
from .write.requirements import snapshot_for_change, terms_of
from .write.terms import OnceArgs
from .write.transaction_end import OpenTransaction

if TYPE_CHECKING:
    from typing_extensions import Unpack

_log = logging.getLogger(__name__)
_OUTCOME_TIMEOUT_S: Final = 120.0
_RECORDS_ONLY: Final = 2**62
"""Beyond the end of every log, so that only the coordinator's records are searched."""

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

    def __init__(self, joint: JointTransaction, table: TableWrites, snapshot: Snapshot, terms: Terms) -> None:
        super().__init__(table.coordinated, snapshot, terms, joint._priority, transaction_id=joint.id, committed=table.noted)
        self._joint = joint
        self._foreign = joint._foreign

    def with_part(self, location: str, operation: Callable[[Transaction], object]) -> None:
        """Run an operation on the part in the table at a location: now, or once that table takes part."""
        if (part := self._joint._parts.get(location)) is None:
            self._joint._waiting.setdefault(location, []).append(operation)
        else:
            operation(part)

    def depend_on(self, where: str | None = None, *, version: int | None = None) -> None:
        """As in every transaction; a conflict names the table."""
        with api.naming(self._table.location):
            super().depend_on(where, version=version)

    def check(self) -> None:
        """As in every transaction; a conflict names the table."""
        with api.naming(self._table.location):
            super().check()

    def _note_loss(self, lost: NotCommitted) -> None:
        super()._note_loss(lost)
        self._joint._losses = self._losses

    def _end(self, limit: Timeout | None = None, *, timeout_s: Timeout | None = None) -> NoReturn:
        """Raises InvalidRequest: parts neither commit nor end in another way by themselves."""
        raise InvalidRequest(
            f"this is the part of transaction {self.id} in {self._table.location}: end the whole transaction, not one of its parts",
            transaction_id=self.id,
        )

    commit = withdraw = abort = _end

    def merge(self, *_: object, **__: object) -> NoReturn:
        """Raises InvalidRequest: only Spark merges rows of a DataFrame."""
        raise InvalidRequest("merge() is carried out by Spark: begin the transaction with a session, sluice.transaction(spark, ...)")


@checked
class JointTransaction(OpenTransaction[CommitInfo]):
    """Operations on several tables that become one commit, or nothing. `sluice.transaction` makes one; use it in one thread.

    Each operation sees what the ones before it did; nobody else sees anything before `commit`. All tables are read as of one moment: the
    first use of one of them, or the beginning if `tables` names them. A `with` block commits at its end, and aborts when it raises.
    """

    _leases: tuple[str, ...] = ()
    """The nodes of leases that it needs beside those of its changes."""

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
        self._terms = terms_of(terms, ack="published", timeout_s=api.DEFAULT_TIMEOUT_S)
        priority = Priority()
        if after is not None:
            with api.bounding(self._terms.timeout_s, api.SystemClock()) as deadline:
                priority = api.priority_after(after.losses, after.parts_read(), deadline)
        super().__init__("", self._terms.timeout_s, priority, api.SystemClock())
        self._coordinator = coordinator
        self._storage_options = storage_options
        self._foreign, self._by_engine = foreign, by_engine
        self._parts: dict[str, Part] = {}
        self._waiting: dict[str, list[Callable[[Transaction], object]]] = {}
        """Operations on the parts of tables that do not take part yet."""
        self._if_version = {_location(table): version for table, version in (if_version or {}).items()}
        if tables or if_version:
            try:
                self._begin([self._open(table) for table in (*tables, *(if_version or ()))])
            except BaseException:
                self._priority.end()
                raise

    # -- what it is --------------------------------------------------------------------------------------------------

    @property
    def read_versions(self) -> Mapping[str, int]:
        """The versions on which the operations are made, by location."""
        return {location: part.read_version for location, part in self._parts.items()}

    def repeated(self) -> CommitInfo | None:
        """The commits that wrote the application's transaction before, in the tables that take part. Raises HalfCommitted."""
        with api.bounding(self._timeout_s, self._clock):
            commits = self._done_before()
        return CommitInfo(commits) if commits else None

    def parts_read(self) -> list[tuple[api.TableLeases, api.PartitionScope | None]]:
        """The parts of tables that were read so far (None: the whole of one)."""
        return [read for part in self._parts.values() for read in part.parts_read()]

    @property
    def commit_info(self) -> CommitInfo:
        """The commit in each table that was written; empty before `commit`, and if nothing was changed."""
        return CommitInfo({}) if self._answer is None else self._answer[0]

    # -- its parts ---------------------------------------------------------------------------------------------------

    def __getitem__(self, table: Named) -> Any:
        """A table's part, which begins with its first use. Its operations are those of `Transaction`, also with Spark DataFrames for rows.

        In a transaction begun with a Spark session they are those of `sluice.delta.DeltaTable`, which Spark's tasks carry out.
        """
        return self.part(table) if self._by_engine is None else self._by_engine(self, table)

    def part(self, table: Named) -> Part:
        """A table's part with the operations of `Transaction`, whatever the transaction was begun with."""
        self._require_open()
        location = _location(table)
        if location not in self._parts:
            self._begin([self._open(table)])
        return self._parts[location]

    def __repr__(self) -> str:
        return f"JointTransaction({self._id!r}, {self._state}, read_versions={dict(self.read_versions)!r})"

    # -- inside ------------------------------------------------------------------------------------------------------

    def _open(self, table: Named) -> TableWrites:
        if not isinstance(table, TableWrites):
            return TableWrites(open_table(TableAddress.of(table, self._coordinator, self._storage_options)))
        if self._coordinator is not None:
            api.require_coordinator(table.coordinated.context, self._coordinator)
        return table

    def _begin(self, tables: Sequence[TableWrites]) -> None:
        """Add tables, as of the moment of the tables that take part already."""
        fresh = {each.coordinated.location: each for each in tables}
        contexts = {location: part._table.context for location, part in self._parts.items()}
        contexts |= {location: table.coordinated.context for location, table in fresh.items()}
        if (count := len(contexts)) > TABLES_MAX:
            raise InvalidRequest(
                f"this transaction would be over {count} tables, and one may be over {TABLES_MAX}: commit to some of them afterwards",
                tables=count,
            )
        first = next(iter(fresh.values())).coordinated
        with api.bounding(self._timeout_s, first.clock) as deadline:
            try:
                api.require_one_coordinator(list(contexts.values()))
                versions = self._versions(fresh, contexts, deadline)
            except TableMoved as moved:
                for table in fresh.values():
                    moved.leaves(table)  # the next transaction finds it
                raise
            for location, latest in versions.items():
                if self._if_version.get(location, -1) > latest:
                    raise beyond(location, self._if_version[location], latest)
            self._id = self._id or first.new_transaction_id()
            parts: dict[str, Part] = {}
            for location, table in fresh.items():
                terms = replace(self._terms, if_version=self._if_version.get(location))
                parts[location] = Part(self, table, snapshot_for_change(table.coordinated, versions[location]), terms)
        self._parts.update(parts)
        self._clock = next(iter(self._parts.values()))._table.clock
        for location, part in parts.items():
            for operation in self._waiting.pop(location, ()):
                operation(part)

    def _versions(self, fresh: Iterable[str], contexts: Mapping[str, api.TableContext], deadline: api.Deadline) -> dict[str, int]:
        """The version to begin each new table on: its latest at the moment of which the others were read."""
        latest = dict(zip(contexts, api.versions_together(list(contexts.values()), deadline), strict=True))
        gone_on = [
            (contexts[location], part.read_version) for location, part in self._parts.items() if latest[location] != part.read_version
        ]
        if not gone_on:
            return {location: latest[location] for location in fresh}
        versions: dict[str, int] = {}
        for location in fresh:
            version = api.version_beside(gone_on, contexts[location])
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

    def _stage(self) -> None:
        for _, part in sorted(self._parts.items()):
            part._stage()

    def _submit(self, limit: Timeout) -> CommitInfo:
        finished = self._finished()
        written = [location for location, _, change in finished if change.actions]
        if not written:
            _log.info("transaction %s changes nothing: no version was made", self._id)
            return CommitInfo({})
        self._filing()
        changes: list[tuple[OpenTable, api.Change]] = []
        for _, part, change in finished:
            filed_after = part.read_version if self._filed_again else None
            leases = (*change.leases, *self._priority.nodes, *self._leases)
            changes.append((part._table, replace(change, transaction_id=self._id, filed_after=filed_after, leases=leases)))
        commits = api.submit_together(changes, timeout_s=limit, filing=self._filed_under, done_before=self._done_before)
        return CommitInfo({location: commits[location] for location in written if location in commits})

    def _finished(self) -> list[tuple[str, Part, api.Change]]:
        """The parts that have a change, with it."""
        return [(location, part, part._change) for location, part in sorted(self._parts.items()) if part._change is not None]

    def _note_loss(self, lost: NotCommitted) -> None:
        table = str(lost.details.get("facts", {}).get("table"))
        if isinstance(lost, ConcurrentModification) and (part := self._parts.get(table)) is not None:
            part.tell_loss(lost)
        super()._note_loss(lost)

    def _discard(self) -> None:
        for part in self._parts.values():
            part._discard()

    def _concluded(self, answer: CommitInfo) -> None:
        for location, commit in answer._commits.items():
            self._parts[location]._concluded(commit)

    def _heard(self, limit: Timeout, *, withdrawing: bool) -> CommitInfo | None:
        commits: dict[str, Commit] = {}
        for location, part, change in self._finished():
            outcome = api.outcome_of(part._table, self._id, limit, after=part.read_version, withdrawing=withdrawing)
            if outcome.error is not None:
                raise outcome.error
            if outcome.commit is not None and change.actions:
                commits[location] = outcome.commit
        return CommitInfo(commits) if commits else None

    def _done_before(self) -> Mapping[str, Commit]:
        once = self._terms.once
        if once is None or not self._parts:
            return {}
        return done_in_all({location: part._table for location, part in self._parts.items()}, once, self._terms.ack, self.read_versions)


@checked
def read_together(
    tables: Sequence[Named], *, coordinator: str | None = None, timeout_s: Timeout = api.DEFAULT_TIMEOUT_S
) -> list[TableSnapshot]:
    """Snapshots of several tables at one moment, including everything acknowledged to anybody before the call.

    A transaction over several of them is in all of these snapshots or in none. Locations are opened at `coordinator`. Raises
    InvalidRequest for tables of different coordinators.

    Examples:
        ```python
        orders, payments = (each.to_arrow() for each in sluice.read_together([table, other]))
        ```
    """
    accesses = [
        each.coordinated if isinstance(each, TableWrites) else open_coordinated(TableAddress.of(each, coordinator)) for each in tables
    ]
    contexts = [table.context for table in accesses]
    api.require_one_coordinator(contexts)
    with api.bounding(timeout_s, accesses[0].clock) as deadline:
        versions = api.versions_together(contexts, deadline)
    return [snapshot_of(table, version, timeout_s=deadline) for table, version in zip(accesses, versions, strict=True)]


@checked
def outcome(
    transaction_id: str,
    coordinator: str | None = None,
    *,
    storage_options: Mapping[str, str] | None = None,
    timeout_s: Timeout = _OUTCOME_TIMEOUT_S,
) -> Outcome:
    """The outcome of any client's transaction over one table or several; any process may ask. Decides an undecided one.

    The search goes through all tables of the coordinator: first the coordinator's records, which is quick, then the tables' logs from
    their ends. `Outcome.commits` has the commit of each table. "unknown" means that there is no trace: no table has the transaction.
    """
    only_read = Outcome("unknown")
    with api.bounding(timeout_s) as limit:
        tables: list[OpenTable] = []
        for location in api.known_locations(api.connect(coordinator)):
            try:
                address = TableAddress.of(location, coordinator, storage_options)
            except InvalidRequest:
                continue  # not a table's node
            tables.append(OpenTable.of(address))
        for after in (_RECORDS_ONLY, -1):
            for table in tables:
                result = api.outcome_of(table, transaction_id, limit, after=after)
                if result.error is not None:
                    return result
                if result.commit is not None and result.commit.ordinal >= 0:
                    return _with_others(table, result.commit, tables, limit)
                only_read = only_read if result.commit is None else result
    return only_read


def _with_others(here: api.CoordinatedTable, commit: Commit, tables: Sequence[api.CoordinatedTable], timeout_s: Timeout) -> Outcome:
    """The outcome, with the commits that were made together with this one."""
    entry = next((t for t in here.log.winner(commit.version).transactions if t.get("id") == commit.transaction_id), {})
    commits = {here.location: commit}
    for other in tables:
        version = entry.get("joint", {}).get(other.location)
        if version is None or other.location == here.location:
            continue
        if (theirs := api.outcome_of(other, commit.transaction_id, timeout_s, after=int(version) - 1).commit) is not None:
            commits[other.location] = theirs
    return replace(Outcome.committed(commit), commits=commits)
