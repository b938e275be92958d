"""A run of a streaming query, and the rule that its micro-batches are written once, by one run at a time.

A batch is written under Delta's application transaction (the query's id, the batch's number), which a restarted query finds in the
table. The id comes from the checkpoint, so a second run of the same checkpoint has it, too, and would take the first one's batches
for its own: it would leave out its rows. So a run holds an exclusive lease on (query, table) from its first batch to its end. Every
commit depends on it, which stops a run that was taken for dead. Decision 0024 has the reasons.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Callable, Sequence
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from ...coordinator.errors import ConcurrentTransactionException, LeaseHeld, LeaseLost
from ...coordinator.facade.administration import Address
from ...coordinator.facade.leasing import Lease, lease_on, leases, lent_to_threads
from ...storage.dataclass import dataclass
from ...storage.errors import InvalidRequest, TableNotFound
from ...tables.client.address import TableAddress
from ...tables.table import Table
from ...tables.write.repeated_writes import done_in_all

__all__ = ["QUERY_ID", "Batch", "Run", "is_written", "lease_name", "opened", "patience_s"]

_log = logging.getLogger(__name__)

QUERY_ID: Final = "sql.streaming.queryId"
"""Spark's local property with the id of the query that a thread, or a task, works for."""
# A batch whose lease is lost is written again under another one, so often.
_ATTEMPTS: Final = 3
# Waits longer than a session lasts: a server ends a dead client's session late by a tick or two.
_SESSIONS: Final = 1.5
_MARGIN_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Batch:
    """A micro-batch: the query's id, its number, and the `reference` of the lease under which it is written."""

    query: str
    number: int
    lease: str

    @property
    def transaction(self) -> tuple[str, int]:
        """The application transaction under which the batch is written."""
        return self.query, self.number


class Run:
    """One run of a query that writes to some tables, all of one coordinator. Batches come one at a time, in any thread."""

    def __init__(self, tables: Sequence[TableAddress]) -> None:
        self._tables = tuple(tables)
        self._lock = threading.Lock()
        self._lease: Lease | None = None
        self._over = False
        self.failure: BaseException | None = None
        """What the last batch raised."""

    def each(self, write: Callable[[DataFrame, Batch], None]) -> Callable[[DataFrame, int], None]:
        """A function for `foreachBatch` that writes each batch by `write`, while this run holds its lease.

        It raises ConcurrentTransactionException if another run of the query is alive, or went on without this one.
        """

        def batch(frame: DataFrame, number: int) -> None:
            try:
                self._write(frame, number, write)
            except BaseException as failure:
                self.failure = failure
                raise

        return batch

    def end(self) -> None:
        """Give the lease back: the query has ended. A batch that is still being written cannot be committed any more."""
        with self._lock:
            self._over = True
            self._let_go()

    def _write(self, frame: DataFrame, number: int, write: Callable[[DataFrame, Batch], None]) -> None:
        query = _query_of(frame.sparkSession)
        for attempt in range(1, _ATTEMPTS + 1):
            lease, is_there = self._held(query, number)
            if is_there:
                _log.info("batch %d of query %s is in the table already", number, query)
                _compute(frame)
                return
            try:
                with lease.bind():
                    write(frame, Batch(query, number, lease.reference))
            except LeaseLost as lost:
                with self._lock:
                    self._let_go()
                if attempt == _ATTEMPTS:
                    raise
                _log.info("batch %d of query %s is written again: %s", number, query, lost)
            else:
                return

    def _held(self, query: str, number: int) -> tuple[Lease, bool]:
        """The run's lease, and whether a run before wrote this batch. Raises ConcurrentTransactionException."""
        with self._lock:
            if self._over:
                raise InvalidRequest(f"query {query} has ended: batch {number} is not written any more", query=query, batch=number)
            if self._lease is not None and not self._lease.lost.is_set():
                return self._lease, False
            self._let_go()
            self._lease = _taken(self._tables, query, number)
            try:
                # Commits of the run before are refused from now on, so what the tables tell stays true.
                return self._lease, _is_there(self._tables, query, number)
            except BaseException:
                self._let_go()
                raise

    def _let_go(self) -> None:
        if self._lease is not None:
            self._lease.release()
            self._lease = None


def lease_name(query: str, location: str) -> str:
    """The name of the lease that a query's live run holds for a table."""
    return f"stream {query} {hashlib.blake2b(location.encode(), digest_size=8).hexdigest()}"


def patience_s(coordinator: str | None) -> float:
    """How long a run waits for the lease of a run that may be dead, in seconds: a little longer than a session lasts without a client."""
    return _SESSIONS * Address.parse(coordinator).session_timeout_s + _MARGIN_S


def is_written(tables: Sequence[Table], query: str, number: int) -> bool:
    """Whether the tables have the batch. Raises ConcurrentTransactionException if one has a later batch of the query.

    A query repeats at most the batch after the last one that its checkpoint knows to be written: if it repeats others, the checkpoint
    is an old copy. Raises HalfCommitted if some of the tables lost their part of the batch.
    """
    for table in tables:
        known = table.snapshot().raw.app_transactions.get(query)
        if known is not None and known.version > number:
            raise ConcurrentTransactionException(
                f"{table.location} has batch {known.version} of query {query} already, and this run is about to write batch {number}: "
                "another run went on from the same checkpoint, or the checkpoint is an old copy. Rows would be lost or written twice: go "
                "on from the newest checkpoint, or give this query an empty one",
                rule="stream-behind",
                facts={"table": table.location, "query": query, "batch": number, "written": known.version},
            )
    since = {table.location: table.version for table in tables}
    return bool(done_in_all({table.location: table.access for table in tables}, (query, number), "published", since))


def _is_there(tables: Sequence[TableAddress], query: str, number: int) -> bool:
    found: list[Table] = []
    for address in tables:
        try:
            found.append(opened(address))
        except TableNotFound:  # the batch creates it
            continue
    return is_written(found, query, number)


def _compute(frame: DataFrame) -> None:
    """Compute the rows and drop them: a query that counts or joins keeps its state only for batches that were computed."""
    frame.write.format("noop").mode("overwrite").save()


def opened(address: TableAddress) -> Table:
    """The table at an address. Raises TableNotFound and the like."""
    return Table.open(
        address.location, coordinator=address.coordinator, storage_options=address.storage_options, application=address.application
    )


def _taken(tables: Sequence[TableAddress], query: str, number: int) -> Lease:
    """The lease on the query's batches in all of its tables, which belongs to no thread. Raises ConcurrentTransactionException."""
    coordinator = tables[0].coordinator
    wanted = [
        lease_on(lease_name(query, each.location), coordinator=each.coordinator, application=each.application)
        for each in sorted(tables, key=lambda each: each.location)
    ]
    wait_s = patience_s(coordinator)
    as_before = lent_to_threads()
    try:
        return leases(wanted, wait_s=wait_s)
    except LeaseHeld as held:
        facts = held.details.get("facts", {})
        holder = f"{facts.get('holder') or 'somebody'} on {facts.get('host')} (process {facts.get('pid')})"
        raise ConcurrentTransactionException(
            f"another run of query {query} writes to {', '.join(each.location for each in tables)}: {holder}. It was alive {wait_s:g} s "
            f"ago and is alive still, so batch {number} is not written. Stop it, or start this query with a checkpoint of its own",
            rule="stream-runs",
            facts={**facts, "query": query, "batch": number},
        ) from held
    finally:
        as_before()


def _query_of(spark: SparkSession) -> str:
    """The id of the query whose batch this thread writes. Raises InvalidRequest."""
    query = spark.sparkContext.getLocalProperty(QUERY_ID)
    if not query:
        raise InvalidRequest(
            "the id of the streaming query is unknown in this thread: call it in the function of foreachBatch itself, and leave "
            "PYSPARK_PIN_THREAD as it is"
        )
    return query
