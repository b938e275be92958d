"""Commits a write, or a micro-batch, through the data source, beside the driver: once, however often Spark calls or repeats it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote, urlsplit

from ...coordinator.api import Commit
from ...storage.actions import AddFile
from ...storage.errors import TableNotFound
from ...tables.client.address import TableAddress
from ...tables.planned_writes import abandon_plan, commit_creation
from ...tables.table import Table
from ...tables.write.data_writing import WritePlan
from ...tables.write.repeated_writes import done_in_all
from ...tables.write.terms import mark_of, marked, require_same_rows
from ..options import WriteOptions

_log = logging.getLogger(__name__)

# The results of transactions that this process began to commit; missing while unknown.
_begun: set[str] = set()
_done: dict[str, Commit | None] = {}


def open_table(options: WriteOptions) -> Table:
    """The table in the options. Raises TableNotFound and the like."""
    address = options.address
    return Table.open(
        address.location,
        coordinator=address.coordinator,
        storage_options=address.storage_options,
        application=address.application,
        ack=options.terms.ack,
        timeout_s=options.timeout_s,
    )


def commit(plan: WritePlan, options: WriteOptions, files: Sequence[AddFile]) -> None:
    """Commit what the tasks wrote. Raises the errors of `Table.append`."""
    transaction_id = plan.transaction_id
    if transaction_id not in _done:
        _done[transaction_id] = _committed_before(plan, options) or _commit(plan, options, files)
    done = _done[transaction_id]
    if done is not None:
        _log.info("transaction %s is version %d of %s", transaction_id, done.version, options.address.location)


def abort(plan: WritePlan, options: WriteOptions) -> None:
    """Log it, and leave the files to garbage collection: Spark also calls this after a commit that succeeded."""
    _log.warning("the write of transaction %s to %s was aborted", plan.transaction_id, options.address.location)
    abandon_plan(plan)


def _committed_before(plan: WritePlan, options: WriteOptions) -> Commit | None:
    """The commit of this transaction, if this process already made it. Raises its refusal if it was refused."""
    transaction_id = plan.transaction_id
    if transaction_id not in _begun:
        _begun.add(transaction_id)
        return None
    try:
        outcome = open_table(options).outcome(transaction_id)
    except TableNotFound:
        return None
    if outcome.error is not None:
        raise outcome.error
    return outcome.commit


def _commit(plan: WritePlan, options: WriteOptions, files: Sequence[AddFile]) -> Commit | None:
    if plan.read_version < 0:
        return commit_creation(
            plan,
            files,
            only_new=options.only_new,
            name=options.name,
            managed=options.managed,
            operation="CREATE TABLE AS SELECT" if options.defines else "WRITE",
        )[1]
    with open_table(options) as table:  # this process ends with the job, and nobody else writes a checkpoint that is due now
        return table.commit_write(plan, files)


# -- micro-batches -------------------------------------------------------------------------------------------------------


def opened(address: TableAddress) -> Table:
    """The table at an address. Raises TableNotFound and the like."""
    return Table.open(
        address.location, coordinator=address.coordinator, storage_options=address.storage_options, application=address.application
    )


def is_written(tables: Sequence[Table], batch: tuple[str, int]) -> bool:
    """Whether the tables have a batch. Raises ConcurrentTransactionException if one has a later one, or other rows under its number.

    A query repeats at most the batch after the last one that its checkpoint knows to be written: if it repeats others, the checkpoint
    is an old copy. Raises HalfCommitted if some of the tables lost their part of the batch.
    """
    for table in tables:
        require_same_rows(table.snapshot().raw.app_transactions, batch, table.location)
    since = {table.location: table.version for table in tables}
    return bool(done_in_all({table.location: table.coordinated for table in tables}, batch, "published", since))


def commit_batch(plan: WritePlan, options: WriteOptions, files: Sequence[AddFile], batch: tuple[str, int], checkpoint: str | None) -> None:
    """Commit the files of a batch (query id, number), unless it is there. Raises the errors of `Table.append`."""
    with marked(batch, _mark(batch[1], checkpoint)):
        if is_written([open_table(options)], batch):
            _log.info("batch %d of query %s is in %s already", batch[1], batch[0], options.address.location)
            abandon_plan(plan)
            return
        commit(replace(plan, terms=replace(plan.terms, once=batch)), options, files)


def _mark(number: int, checkpoint: str | None) -> int | None:
    """The batch's mark by its offsets in the checkpoint; None if the checkpoint is not on this machine's disk."""
    parts = urlsplit(checkpoint or "")
    if parts.scheme not in ("", "file"):
        return None
    folder = unquote(parts.path) if parts.scheme else checkpoint or ""
    try:
        return mark_of(number, (Path(folder) / "offsets" / str(number)).read_bytes())
    except OSError as missing:
        _log.info("batch %d is committed without a mark of its offsets: %s", number, missing)
        return None
