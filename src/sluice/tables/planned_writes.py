"""Writes whose rows are written elsewhere: planned and committed here, from a plan."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa

from ..coordinator.api import Commit, Priority, TableName, Timeout, another_id, bounding, close_plan, open_plan, outcome_of, submit
from ..coordinator.errors import ConcurrentModification, ProtocolChangedException, Refused, TableMoved, TransactionExpired
from ..coordinator.rules.intent import Terms, stricter, table_isolation
from ..storage.actions import AddFile, Metadata
from ..storage.actions.file_removals import Actions
from ..storage.errors import InvalidRequest, SchemaMismatch, SluiceError, TableExists
from ..storage.log.snapshot import Snapshot
from ..storage.pruning.predicate import Predicate
from ..storage.schema.datatypes import features_of_columns
from ..storage.schema.identity import needs_numbers
from .client.address import TableAddress
from .client.open_table import OpenTable, open_coordinated
from .manage.creation import NewName, NewTable, first_change, require_empty, table_for_creation
from .manage.naming import give_name
from .transaction import Transaction
from .write.data_writing import WritePlan
from .write.numbering import Numbering
from .write.redefinition import Replaced
from .write.requirements import (
    MODES,
    check_plan,
    complete_plan,
    newest_for_append,
    require_distinct,
    require_no_key,
    require_replaceable,
    snapshot_for_change,
)
from .write.row_operations import written
from .write.terms import transaction_actions

_log = logging.getLogger(__name__)


def plan_write(
    table: OpenTable,
    schema: pa.Schema | None,
    terms: Terms,
    *,
    mode: str,
    where: str | None = None,
    read_where: str | None = None,
    merge_schema: bool = False,
    replaced: Replaced | None = None,
) -> WritePlan:
    """Plan a write, checking what can be checked without rows. Raises InvalidRequest and its kinds.

    A replacement is based on the version of the terms (None: the latest one): rows appended by others meanwhile stay. An append with a
    `read_version` depends on the contents of that version, all of it ("" or None) or the rows that satisfy `read_where`; a replacement
    depends on these rows, too, if `read_where` is given. With `if_version` the plan is made on that version and commits only as the next.
    """
    if mode not in MODES:
        raise InvalidRequest(f"mode is {mode!r}; use one of {', '.join(MODES)}")
    appends_to_newest = mode == "append" and terms.version is None
    read = partial(newest_for_append, table) if appends_to_newest else partial(snapshot_for_change, table, terms.version)
    try:
        snapshot = read(numbered=terms.once is not None)
        if mode != "append":
            require_replaceable(table.location, snapshot)
        anew = None if replaced is None else replaced.by(snapshot, schema)
        require_no_key(table.location, snapshot.metadata if anew is None else anew.metadata)
        held, now_ms, version = table.leases.of_this_thread(), table.clock.now_ms(), snapshot.version
        plan = WritePlan(
            table.address, "", snapshot.metadata, mode, where, version, terms, read_where, redefines=anew, leases=held, planned_ms=now_ms
        )
        stricter(table_isolation(snapshot.configuration), terms.isolation)
        if read_where is not None and not plan.depends:
            raise InvalidRequest(f"read_where={read_where!r} says what was read of read_version: give both, or neither", where=read_where)
        if read_where:
            Predicate.parse(read_where, snapshot.metadata.schema)
        plan = complete_plan(plan, schema, snapshot, merge_schema=merge_schema)
        if features_of_columns(plan.schema) and needs_numbers(plan.schema, () if schema is None else schema.names):
            plan = replace(plan, numbers=Numbering(table, snapshot.metadata, plan.metadata, terms).for_tasks())
        return replace(plan, transaction_id=open_plan(table.context))
    except TableMoved as moved:
        here = table.follow(moved)
        return plan_write(here, schema, terms, mode=mode, where=where, read_where=read_where, merge_schema=merge_schema, replaced=replaced)


def plan_creation(address: TableAddress, new: NewTable, terms: Terms, *, allow_nonempty: bool = False) -> WritePlan:
    """A plan whose commit creates the table with its first rows. Raises InvalidRequest for other files there, unless they are allowed."""
    require_no_key(address.location, new.metadata)
    stricter(table_isolation(new.metadata.configuration), terms.isolation)
    if not allow_nonempty:
        # check: a-creating-write-looks-for-files
        require_empty(address.store())
    table = OpenTable.of(address)
    now_ms = table.clock.now_ms()
    return WritePlan(address, open_plan(table.context), new.metadata, terms=terms, planned_ms=now_ms, clustering=new.clustering)


def commit_creation(
    plan: WritePlan,
    files: Sequence[AddFile],
    *,
    only_new: bool = False,
    name: str | None = None,
    managed: bool = False,
    operation: str = "CREATE TABLE AS SELECT",
) -> tuple[OpenTable, Commit | None]:
    """Create the table with its first rows, in version 0, and with a `name`, if one is given; `managed`: the catalog chose the location.

    `operation` is its name in the history, "WRITE" where rows were saved at a place without a table. If another client created it since the
    plan was made, with the same schema, partitioning and constraints, the rows are written to that table, by the plan's mode; or, with
    `only_new` or a name, this raises TableExists.
    """
    new = None if name is None else NewName(TableName.parse(name), managed, plan.planned_ms)
    try:
        return _create(plan, files, new, operation)
    except (TableExists, ProtocolChangedException):
        if new is not None:  # the name may be taken, and the location is this client's own
            raise
        _log.info("%s was created by another client first", plan.address.location)
    existing = open_coordinated(plan.address)
    mine = outcome_of(existing, plan.transaction_id, plan.terms.timeout_s)
    if mine.commit is not None:
        return existing, replace(mine.commit, repeated=True)
    if only_new:
        raise TableExists(
            f"{plan.address.location} was created by another writer: append to it, or overwrite it", location=plan.address.location
        )
    snapshot = existing.latest()
    if _rules(snapshot.metadata) != _rules(plan.metadata):
        raise SchemaMismatch(
            f"{plan.address.location} was created by another writer at the same time, with another schema, partitioning or constraints; "
            "write to it again",
            location=plan.address.location,
        )
    again = replace(plan, transaction_id=another_id(plan.transaction_id), read_version=snapshot.version, metadata=snapshot.metadata)
    return existing, commit_write_once(existing, again, files, after=0)


def _create(plan: WritePlan, files: Sequence[AddFile], new: NewName | None, operation: str) -> tuple[OpenTable, Commit]:
    require_distinct(files)
    table = table_for_creation(plan.address, allow_nonempty=True, name=new)  # the folder was looked at when the write was planned
    first = first_change(table, NewTable(plan.metadata, plan.clustering), files, new, operation=operation)
    once = [] if plan.terms.once is None else transaction_actions(plan.terms.once, table.clock.now_ms())
    change = replace(
        first,
        transaction_id=plan.transaction_id,
        actions=Actions(first.actions, once),
        terms=replace(plan.terms, read_version=None, if_version=first.terms.if_version),
        metrics={name: str(value) for name, value in written(files).items()},
        leases=plan.leases,
    )
    commit = submit(table, change)
    close_plan(table.context, plan.transaction_id)
    if new is not None:
        give_name(table, new, timeout_s=plan.terms.timeout_s)
    return table, commit


def _rules(metadata: Metadata) -> tuple[object, ...]:
    """The rules that data files were written under."""
    constraints = {key: text for key, text in metadata.configuration.items() if key.startswith("delta.constraints.")}
    return metadata.schema_string, metadata.partition_columns, constraints


def commit_write_once(
    table: OpenTable, plan: WritePlan, files: Sequence[AddFile], *, timeout_s: Timeout | None = None, after: int | None = None
) -> Commit | None:
    """Commit the files of a plan by its mode; None if nothing would change. A plan that any process committed already has that commit.

    That one is looked for in versions higher than `after` (None: the plan's own).
    """
    limit = plan.terms.timeout_s if timeout_s is None else timeout_s
    with bounding(limit, table.clock) as deadline:
        try:
            before = table.head().version  # a concurrent commit of the plan makes a later version
        except TableMoved as moved:
            return commit_write_once(table.follow(moved), plan, files, timeout_s=deadline, after=after)
        outcome = outcome_of(table, plan.transaction_id, deadline, after=plan.read_version if after is None else after)
    left = deadline.rest_of(limit)
    if outcome.error is not None:
        raise outcome.error
    if outcome.commit is not None:
        return replace(outcome.commit, repeated=True)
    try:
        commit = _commit(table, plan, files, left, before)
    except (ConcurrentModification, Refused, TransactionExpired):  # it never can be committed
        close_plan(table.context, plan.transaction_id)
        raise
    table.background.submit(partial(close_plan, table.context, plan.transaction_id))
    return commit


def abandon_plan(plan: WritePlan) -> None:
    """Give a plan up: it cannot be committed any more, its files are garbage. A committed one stays; garbage collection mends failures."""
    try:
        close_plan(OpenTable.of(plan.address).context, plan.transaction_id)
    except SluiceError as trouble:
        _log.info("the plan of transaction %s was not closed: %s", plan.transaction_id, trouble)


def _commit(table: OpenTable, plan: WritePlan, files: Sequence[AddFile], timeout_s: Timeout, filed_after: int) -> Commit | None:
    """Commit the files of a plan that was not committed up to version `filed_after`."""
    require_distinct(files)
    if plan.mode != "append" or plan.depends:
        check_plan(table, plan, files)  # before files are read for what is replaced
    base: Snapshot | None = None
    if plan.mode == "append" and not plan.depends and plan.terms.if_version is None:  # on any later version with the same metadata
        newest = table.current() if table.current().version >= plan.read_version else table.latest()
        base = newest if newest.metadata == plan.metadata else None
    base = table.at(plan.read_version) if base is None else base
    transaction = Transaction(table, base, replace(plan.terms, timeout_s=timeout_s), Priority(), planned=plan, filed_after=filed_after)
    if plan.depends:
        transaction.depend_on(plan.read_where or None)
    transaction.stage(plan, files)
    return transaction.commit()
