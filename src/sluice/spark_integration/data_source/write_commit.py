"""Commits a write through the data source, beside the driver: once, however often Spark calls it."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from ...coordinator.facade.values import Commit
from ...storage.actions import AddFile
from ...storage.errors import TableNotFound
from ...tables.planned_writes import abandon_plan, commit_creation
from ...tables.table import Table
from ...tables.write.data_writing import WritePlan
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
        ack=options.ack,
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
            ack=options.ack,
            timeout_s=options.timeout_s,
            only_new=options.only_new,
            name=options.name,
            managed=options.managed,
        )[1]
    with open_table(options) as table:  # this process ends with the job, and nobody else writes a checkpoint that is due now
        return table.commit_write(plan, files)
