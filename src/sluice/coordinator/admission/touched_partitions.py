"""Which partitions of a table a change, or a read, touches; None is the whole table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ...storage.actions import AddCDCFile, AddFile, Metadata, Protocol, RemoveFile
from ...storage.log.snapshot import Snapshot
from ...storage.pruning.predicate import Predicate
from ...storage.schema.schema import parse_schema
from ..leases.partition_scope import PartitionScope
from ..rules.policies import partition_key
from .change import Change, Reads

__all__ = ["touched_by", "touched_by_reads"]

_PARTITIONS_MAX: Final = 100


def touched_by_reads(snapshot: Snapshot, reads: Reads | None) -> PartitionScope | None:
    """Partitions that cover the reads."""
    return None if reads is None else PartitionScope.covering(snapshot, _read(snapshot, reads))


def touched_by(change: Change) -> PartitionScope | None:
    """Partitions that cover a change's reads and writes."""
    snapshot, reads = change.snapshot, change.reads
    if snapshot is None or not snapshot.partition_columns or change.scope == "":
        return None
    if any(isinstance(action, (Metadata, Protocol)) for action in change.actions):
        return None
    places: dict[str, Mapping[str, str | None]] = {}
    for action in change.actions:
        if isinstance(action, (AddFile, RemoveFile, AddCDCFile)):
            if action.partition_values is None or len(places) > _PARTITIONS_MAX:
                return None
            places[partition_key(action.partition_values)] = action.partition_values
    if len(places) > _PARTITIONS_MAX:
        return None
    scope = Predicate.in_partitions(places.values(), parse_schema(snapshot.metadata.schema_string)) if places else None
    if reads is None:
        return PartitionScope.covering(snapshot, scope)
    read = _read(snapshot, reads)
    return None if read is None else PartitionScope.covering(snapshot, read if scope is None else scope.or_(read))


def _read(snapshot: Snapshot, reads: Reads) -> Predicate | None:
    if reads.whole_table or not reads.predicates or not snapshot.partition_columns:
        return None
    schema = parse_schema(snapshot.metadata.schema_string)
    scope: Predicate | None = None
    for sql in reads.predicates:
        inside = Predicate.parse(sql, schema).split(snapshot.partition_columns)[0] if sql else None
        if inside is None:
            return None
        scope = inside if scope is None else scope.or_(inside)
    return scope
