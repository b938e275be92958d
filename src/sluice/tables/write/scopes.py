"""Which partitions of a table something touches, as a condition over partition columns; None is the whole table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from ...coordinator.rules.policies import partition_key
from ...storage.actions import AddCDCFile, AddFile, Metadata, Protocol, RemoveFile
from ...storage.pruning.predicate import Predicate
from ...storage.schema.schema import parse_schema

if TYPE_CHECKING:
    from ...storage.log.snapshot import Snapshot
    from .change import Change, Reads

__all__ = ["scope_of_change", "scope_of_reads"]

_SCOPE_CHARACTERS_MAX: Final = 8 * 1024
_PARTITIONS_MAX: Final = 100


def scope_of_reads(snapshot: Snapshot, reads: Reads | None) -> str | None:
    """A condition that covers what was read."""
    return None if reads is None else _text(_read(snapshot, reads))


def scope_of_change(change: Change) -> str | None:
    """A condition that covers what a change reads and writes."""
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
        return _text(scope)
    read = _read(snapshot, reads)
    return None if read is None else _text(read if scope is None else scope.or_(read))


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


def _text(scope: Predicate | None) -> str | None:
    text = None if scope is None else scope.to_sql()
    return text if text is not None and len(text) <= _SCOPE_CHARACTERS_MAX else None
