"""Checks made before any rows: whether the table may be written, and whether rows of a schema fit it."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from ...coordinator.rules.isolation import table_policy
from ...storage.actions import Metadata
from ...storage.actions.features import check_writable
from ...storage.data.row_ids import refuse_reserved
from ...storage.errors import InvalidRequest, UnsupportedFeature
from ...storage.log.snapshot import Snapshot
from ...storage.pruning.predicate import Predicate
from ...storage.schema.schema import from_arrow, merge, parse_schema, schema_to_json
from ..client.access import Access
from ..client.address import TableAddress
from .data_writing import Redefinition, WritePlan

__all__ = ["MODES", "newest_for_append", "plan_on", "require_replaceable", "snapshot_for_change"]

MODES = ("append", "overwrite", "dynamic")


def newest_for_append(access: Access, *, numbered: bool = False) -> Snapshot:
    """The snapshot for a plain append: the one in hand, brought up to the last change of metadata. Raises UnsupportedFeature.

    MaxCompute's policies compare appends with earlier commits: there it is the latest one. An append with an application's
    number needs everything acknowledged to any client before this call.
    """
    head = access.ours.fresh_head() if numbered else access.ours.head(ahead=True)
    snapshot = access.current()
    is_behind = head.version > snapshot.version
    compares = numbered or table_policy(snapshot.configuration).by_classes
    if is_behind and (compares or head.metadata_version > snapshot.version):
        snapshot = access.latest()
    check_writable(snapshot.protocol, snapshot.metadata)
    return snapshot


def snapshot_for_change(access: Access, read_version: int | None, *, numbered: bool = False) -> Snapshot:
    """The snapshot for a transaction that reads: the latest version, or the requested one. Raises UnsupportedFeature, VersionNotFound.

    One with an application's number needs everything acknowledged to any client before this call.
    """
    _ = access.ours  # refuses a table opened for reading
    if numbered:
        access.ours.fresh_head()
    latest = access.latest()
    check_writable(latest.protocol, latest.metadata)
    return latest if read_version is None else access.at(read_version)


def require_replaceable(location: str, snapshot: Snapshot) -> None:
    """Raise UnsupportedFeature if nothing in the table may be replaced or deleted."""
    if snapshot.configuration.get("delta.appendOnly", "").lower() == "true":
        raise UnsupportedFeature(
            f"{location} is append-only (delta.appendOnly): nothing in it may be replaced or deleted; append to it, "
            "or let its owner change the property",
            features=["appendOnly"],
            access="write",
        )


def plan_on(
    address: TableAddress,
    metadata: Metadata,
    schema: pa.Schema | None,
    *,
    transaction_id: str,
    read_version: int,
    mode: str = "append",
    where: str | None = None,
    merge_schema: bool = False,
    transaction: tuple[str, int] | None = None,
    redefines: Redefinition | None = None,
) -> WritePlan:
    """A plan for rows of this schema in a table with this metadata, or one that is redefined. Raises InvalidRequest and its kinds."""
    if mode not in MODES:
        raise InvalidRequest(f"mode is {mode!r}; use one of {', '.join(MODES)}")
    if redefines is not None and (mode != "overwrite" or where is not None):
        raise InvalidRequest(
            "overwrite_schema replaces the whole table: leave where and dynamic out, or overwrite with the schema that the table has"
        )
    if redefines is not None and redefines.metadata == metadata and not (redefines.replaces_table or redefines.clustering):
        redefines = None
    planned = metadata if redefines is None else redefines.metadata
    struct = parse_schema(planned.schema_string)
    if schema is not None and merge_schema and redefines is None:
        merged = merge(struct, from_arrow(schema))
        if merged != struct:
            refuse_reserved(metadata.configuration, merged)
            planned = replace(metadata, schema_string=schema_to_json(merged))
            struct = merged
    if where is not None:
        Predicate.parse(where, struct)
    if mode == "dynamic" and not planned.partition_columns:
        raise InvalidRequest(f"dynamic partition overwrite needs a partitioned table; {address.location} is not partitioned")
    plan = WritePlan(
        address=address,
        transaction_id=transaction_id,
        metadata=planned,
        mode=mode,
        where=where,
        read_version=read_version,
        changes_metadata=planned is not metadata,
        transaction=transaction,
        redefines=redefines,
    )
    if schema is not None:
        plan.require_partitions(schema)
    return plan
