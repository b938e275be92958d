"""The footprint of a change: what others have to know of it to tell whether both can stand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import orjson

from ..coordinator.footprint import Footprint
from ..coordinator.isolation import ConflictPolicy, table_policy
from ..coordinator.kinds import Kind
from ..coordinator.policies import partition_key
from ..storage.actions import Action, AddCDCFile, AddFile, DomainMetadata, Metadata, Protocol, RemoveFile, Txn
from ..storage.errors import InvalidRequest
from ..storage.features import deletion_vectors
from ..storage.predicate import Predicate
from ..storage.schema import PrimitiveType, StructType, schema_to_json
from ..storage.snapshot import Snapshot

if TYPE_CHECKING:
    from .transactions import Change

__all__ = ["bounded", "footprint_of"]

_PREDICATE_CHARACTERS_MAX: Final = 8 * 1024
# Beside the actions it has to fit into a node of the coordinator.
_SCOPE_CHARACTERS_MAX: Final = 64 * 1024


def footprint_of(change: Change, *, files_max: int) -> Footprint:
    """What it read as told, what it writes as its actions say.

    Lists that are too long are left out, which means "everything": a footprint may become coarser, never smaller.
    """
    actions, snapshot, reads = change.actions, change.snapshot, change.reads
    files = [a for a in actions if isinstance(a, (AddFile, RemoveFile, AddCDCFile))]
    removes = tuple(a.path for a in files if isinstance(a, RemoveFile))
    predicates = tuple(p if len(p) <= _PREDICATE_CHARACTERS_MAX else "" for p in (reads.predicates if reads else ()))
    read_files = reads.files if reads else ()
    whole_table = reads is not None and reads.whole_table
    policy = _policy(change)
    reads_nothing = not predicates and not read_files and not whole_table
    return Footprint(
        predicates=predicates,
        partition_types=_partition_types(snapshot, change.schema),
        column_types=_column_types(predicates, snapshot, change.schema),
        read_files=read_files if len(read_files) <= files_max else None,
        whole_table=whole_table,
        read_apps=reads.apps if reads else (),
        removes=removes if len(removes) <= files_max else None,
        app_versions={a.app_id: a.version for a in actions if isinstance(a, Txn)},
        domains=tuple(a.domain for a in actions if isinstance(a, DomainMetadata)),
        metadata=any(isinstance(a, Metadata) for a in actions),
        protocol=any(isinstance(a, Protocol) for a in actions),
        data_change=any(a.data_change for a in files),
        blind_append=reads_nothing and all(isinstance(a, AddFile) for a in files),
        kind=change.kind.value,
        policy=policy.value,
        row_level=snapshot is not None and deletion_vectors(snapshot.protocol, snapshot.metadata),
        partitions=_partitions(files, change.scope, files_max),
        scope=None if policy is ConflictPolicy.DELTA else _scope(change.scope),
        keeps_row_ids=change.kind not in (Kind.CHANGE, Kind.MINOR, Kind.MAJOR) or not _new_files(actions),
    )


def _scope(scope: str | None) -> str | None:
    """What an overwrite replaces, which must not become coarser. Raises InvalidRequest where it cannot be told."""
    if scope is not None and len(scope) > _SCOPE_CHARACTERS_MAX:
        raise InvalidRequest(
            f"the conditions of what is overwritten are {len(scope):,} characters long, and a table with a conflict policy takes "
            f"{_SCOPE_CHARACTERS_MAX:,}: overwrite dynamically and in a transaction of its own, or part by part",
            characters=len(scope),
        )
    return scope


def _policy(change: Change) -> ConflictPolicy:
    """The table's; Delta's for an operation that no other policy speaks of (a new constraint reads all rows, say)."""
    if change.snapshot is None or change.kind is Kind.OTHER:
        return ConflictPolicy.DELTA
    return table_policy(change.snapshot.configuration)


def bounded(mine: Footprint, *, files_max: int) -> Footprint:
    """The footprint as it is filed: lists that became too long while it was compared with others are left out again."""
    read, removes, partitions = mine.read_files, mine.removes, mine.partitions
    return replace(
        mine,
        read_files=None if read is None or len(read) > files_max else read,
        removes=None if removes is None or len(removes) > files_max else removes,
        partitions=None if partitions is None or len(partitions) > files_max else partitions,
    )


def _partition_types(snapshot: Snapshot | None, schema: StructType | None) -> dict[str, str]:
    if snapshot is None or schema is None:
        return {}
    types = {f.name: f.type for f in schema.fields}
    return {c: t.name for c in snapshot.partition_columns if isinstance(t := types.get(c), PrimitiveType)}


def _column_types(predicates: Iterable[str], snapshot: Snapshot | None, schema: StructType | None) -> dict[str, str]:
    """The types of the data columns that conditions name, as in Delta's schema JSON."""
    if snapshot is None or schema is None:
        return {}
    named = {column for sql in predicates if sql for column in Predicate.parse(sql, schema).columns} - set(snapshot.partition_columns)
    fields = orjson.loads(schema_to_json(StructType([f for f in schema.fields if f.name in named])))["fields"]
    return {f["name"]: orjson.dumps(f["type"]).decode() for f in fields}


def _partitions(files: Sequence[AddFile | RemoveFile | AddCDCFile], scope: str | None, most: int) -> tuple[str, ...] | None:
    """The partitions it touches; None for all, or when they are too many to list or not told."""
    if scope == "" or any(f.partition_values is None for f in files):
        return None
    keys = {partition_key(f.partition_values) for f in files if f.partition_values is not None}
    return tuple(sorted(keys)) if len(keys) <= most else None


def _new_files(actions: Sequence[Action]) -> bool:
    """Whether files were written; a file that only got a deletion vector is none of them."""
    removed = {a.path for a in actions if isinstance(a, RemoveFile)}
    return any(isinstance(a, AddFile) and a.path not in removed for a in actions)
