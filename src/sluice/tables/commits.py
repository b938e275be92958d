"""The writing operations of a table: plan, stage, commit."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from ..coordinator.clock import Deadline
from ..coordinator.errors import ProtocolChangedException
from ..coordinator.outcomes import Commit
from ..storage.actions import Action, AddFile, Metadata, Txn
from ..storage.errors import InvalidRequest, SchemaMismatch, TableExists, UnsupportedFeature
from ..storage.features import check_writable
from ..storage.predicate import Predicate
from ..storage.schema import StructType, from_arrow, merge, parse_schema, schema_to_json
from ..storage.snapshot import Snapshot
from .access import Access, TableAddress
from .creation import access_for_creation, first_actions, new_table
from .operations import Deletion, delete_rows, remove_all, row_count
from .transactions import (
    Change,
    Reads,
    check_application_transaction,
    commit_change,
    new_transaction_id,
    repeated_application_transaction,
)
from .writing import WritePlan, require_columns

__all__ = ["commit_creation", "commit_write", "commit_write_once", "delete", "plan_creation", "plan_write"]

_log = logging.getLogger(__name__)
_MODES = ("append", "overwrite", "dynamic")


def plan_write(
    access: Access,
    schema: pa.Schema | None,
    *,
    mode: str,
    where: str | None,
    merge_schema: bool,
    transaction: tuple[str, int] | None,
    read_version: int | None = None,
) -> WritePlan:
    """Check what can be checked before any row is there. Raises InvalidRequest and its kinds.

    What replaces rows is made on `read_version` (the latest one when None): rows that others append meanwhile stay.
    """
    if mode not in _MODES:
        raise InvalidRequest(f"mode is {mode!r}; use one of {', '.join(_MODES)}")
    check_application_transaction(transaction)
    if mode != "append":
        access.latest()
    snapshot = _writable(access) if read_version is None else access.at(read_version)
    struct = parse_schema(snapshot.metadata.schema_string)
    metadata = snapshot.metadata
    if mode != "append":
        _require_replaceable(access, snapshot)
    if schema is not None and merge_schema:
        merged = merge(struct, from_arrow(schema))
        if merged != struct:
            metadata = replace(metadata, schema_string=schema_to_json(merged))
            struct = merged
    if schema is not None and not merge_schema:
        require_columns(schema, struct)
    if where is not None:
        Predicate.parse(where, struct)
    if mode == "dynamic" and not snapshot.partition_columns:
        raise InvalidRequest(f"dynamic partition overwrite needs a partitioned table; {access.address.location} is not partitioned")
    return WritePlan(
        address=access.address,
        transaction_id=new_transaction_id(),
        metadata=metadata,
        mode=mode,
        where=where,
        read_version=snapshot.version,
        changes_metadata=metadata is not snapshot.metadata,
        transaction=transaction,
        fill_missing=merge_schema,
    )


def plan_creation(
    address: TableAddress,
    schema: pa.Schema | StructType,
    partition_by: Sequence[str],
    properties: dict[str, str],
    transaction: tuple[str, int] | None,
) -> WritePlan:
    """A plan whose commit creates the table together with its first rows."""
    check_application_transaction(transaction)
    metadata = new_table(schema, partition_by, properties)
    return WritePlan(address, new_transaction_id(), metadata, transaction=transaction)


def commit_creation(plan: WritePlan, files: Sequence[AddFile], *, ack: str, timeout_s: float) -> tuple[Access, Commit | None]:
    """Create the table with its first rows, in version 0.

    When somebody else created it since the plan was made, with the same schema, partitioning and constraints, the rows go
    to that one as the plan's mode says.
    """
    try:
        access = access_for_creation(plan.address)
        first = first_actions(plan.metadata, access.ours.context.clock.now_ms())
        change = Change(
            plan.transaction_id,
            "CREATE TABLE AS SELECT",
            None,
            (*first, *_txn(plan, access), *files),
            reads=Reads(),
            parameters={"partitionBy": str(list(plan.metadata.partition_columns))},
            metrics=_written(files),
            expected_version=0,
            table_id=plan.metadata.id,
        )
        return access, commit_change(access, change, ack=ack, timeout_s=timeout_s)
    except (TableExists, ProtocolChangedException):
        _log.info("%s was created by somebody else first: the rows are written to it", plan.address.location)
    existing = Access.coordinated(plan.address)
    snapshot = existing.latest()
    if _rules(snapshot.metadata) != _rules(plan.metadata):
        raise SchemaMismatch(
            f"{plan.address.location} was created by somebody else at once, with another schema, partitioning or constraints; "
            "write to it again",
            location=plan.address.location,
        )
    again = replace(plan, transaction_id=new_transaction_id(), read_version=snapshot.version, metadata=snapshot.metadata)
    return existing, commit_write(existing, again, files, ack=ack, timeout_s=timeout_s)


def _rules(metadata: Metadata) -> tuple[object, ...]:
    """What data files were written to obey."""
    constraints = {key: text for key, text in metadata.configuration.items() if key.startswith("delta.constraints.")}
    return metadata.schema_string, metadata.partition_columns, constraints


def commit_write_once(access: Access, plan: WritePlan, files: Sequence[AddFile], *, ack: str, timeout_s: float) -> Commit | None:
    """The same for a plan that may have been committed before, by whomever: then that commit is the answer."""
    committer = access.ours
    outcome = committer.outcome(plan.transaction_id, Deadline.after(timeout_s, committer.context.clock), after=plan.read_version)
    if outcome.error is not None:
        raise outcome.error
    if outcome.commit is not None:
        return replace(outcome.commit, repeated=True)
    return commit_write(access, plan, files, ack=ack, timeout_s=timeout_s, filed_again=True)


def commit_write(
    access: Access, plan: WritePlan, files: Sequence[AddFile], *, ack: str, timeout_s: float, filed_again: bool = False
) -> Commit | None:
    """Commit the files of a plan according to its mode; None when nothing would change."""
    if plan.transaction is not None:
        known = access.latest().app_transactions.get(plan.transaction[0])
        if known is not None and known.version >= plan.transaction[1]:
            return _repeated(access, plan.transaction)
    snapshot = _at_plan(access, plan)
    deletion = _replaced(access, snapshot, plan, files)
    if not files and not deletion.actions and not plan.changes_metadata and plan.transaction is None:
        _log.warning("the %s to %s holds no rows: no version was made", plan.mode, access.address.location)
        return None
    actions: list[Action] = [plan.metadata] if plan.changes_metadata else []
    actions += [*_txn(plan, access), *deletion.actions, *files]
    change = Change(
        transaction_id=plan.transaction_id,
        operation="WRITE",
        snapshot=snapshot,
        actions=actions,
        reads=None if plan.mode == "append" else deletion.reads,
        parameters=_parameters(plan),
        metrics=_written(files) | deletion.metrics,
        schema=plan.schema,
        filed_again=filed_again,
    )
    return commit_change(access, change, ack=ack, timeout_s=timeout_s)


def delete(access: Access, where: str, *, ack: str, timeout_s: float) -> Commit | None:
    """Delete rows; None when no row satisfies the condition."""
    access.latest()
    snapshot = _writable(access)
    _require_replaceable(access, snapshot)
    schema = parse_schema(snapshot.metadata.schema_string)
    predicate = Predicate.parse(where, schema)
    transaction_id = new_transaction_id()
    clock = access.ours.context.clock
    deletion = delete_rows(access.store, snapshot, schema, predicate, transaction_id=transaction_id, clock=clock)
    if not deletion.actions:
        _log.info("no row of %s satisfies %s: no version was made", access.address.location, where)
        return None
    change = Change(
        transaction_id=transaction_id,
        operation="DELETE",
        snapshot=snapshot,
        actions=deletion.actions,
        reads=deletion.reads,
        parameters={"predicate": where},
        metrics=deletion.metrics,
        schema=schema,
    )
    return commit_change(access, change, ack=ack, timeout_s=timeout_s)


def _writable(access: Access) -> Snapshot:
    """The newest snapshot in hand, brought up to the last change of metadata. Raises UnsupportedFeature."""
    head = access.head()
    snapshot = access.current()
    if head.metadata_version > snapshot.version:
        snapshot = access.latest()
    check_writable(snapshot.protocol, snapshot.metadata, snapshot.domains)
    return snapshot


def _require_replaceable(access: Access, snapshot: Snapshot) -> None:
    """Raise UnsupportedFeature when nothing in the table may be replaced or deleted."""
    if snapshot.configuration.get("delta.appendOnly", "").lower() == "true":
        raise UnsupportedFeature(
            f"{access.address.location} is append-only (delta.appendOnly): nothing in it may be replaced or deleted; append to it, "
            "or let its owner change the property",
            features=["appendOnly"],
            access="write",
        )


def _at_plan(access: Access, plan: WritePlan) -> Snapshot:
    """The snapshot a plan speaks of: its own version for what replaces, any later one for an append."""
    snapshot = access.current()
    if plan.mode == "append":
        return snapshot if snapshot.version >= plan.read_version else access.latest()
    return access.at(plan.read_version)


def _replaced(access: Access, snapshot: Snapshot, plan: WritePlan, files: Sequence[AddFile]) -> Deletion:
    """What the plan's mode removes."""
    clock = access.ours.context.clock
    if plan.mode == "append":
        return Deletion()
    if plan.mode == "overwrite" and plan.where is None:
        return remove_all(snapshot, clock)
    if plan.where is not None:
        predicate = Predicate.parse(plan.where, plan.schema)
    elif files:
        predicate = Predicate.in_partitions((f.partition_values for f in files), plan.schema)
    else:
        return Deletion()
    return delete_rows(access.store, snapshot, plan.schema, predicate, transaction_id=plan.transaction_id, clock=clock)


def _txn(plan: WritePlan, access: Access) -> tuple[Txn, ...]:
    if plan.transaction is None:
        return ()
    app, number = plan.transaction
    return (Txn(app_id=app, version=number, last_updated=access.ours.context.clock.now_ms()),)


def _repeated(access: Access, transaction: tuple[str, int]) -> Commit:
    """The commit that wrote an application's transaction; version -1 when the log that tells was cleaned up."""
    head = access.head()
    found = repeated_application_transaction(access, dict([transaction]), after=-1, upto=head.version)
    return found or Commit(-1, -1, 0, "", repeated=True)


def _written(files: Sequence[AddFile]) -> dict[str, str]:
    return {
        "numFiles": str(len(files)),
        "numOutputRows": str(row_count(files)),
        "numOutputBytes": str(sum(f.size for f in files)),
    }


def _parameters(plan: WritePlan) -> dict[str, str]:
    parameters = {"mode": "Append" if plan.mode == "append" else "Overwrite"}
    if plan.mode == "dynamic":
        parameters["partitionOverwriteMode"] = "dynamic"
    if plan.where is not None:
        parameters["predicate"] = plan.where
    return parameters
