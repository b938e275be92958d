"""What append, overwrite and delete mean in terms of files."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from ..coordinator.clock import Clock
from ..storage.actions import Action, AddFile, RemoveFile
from ..storage.datafiles import write_files
from ..storage.objects import ObjectStore
from ..storage.predicate import Predicate
from ..storage.scan import read_files
from ..storage.schema import StructType
from ..storage.snapshot import Snapshot
from .transactions import Reads
from .writing import file_size_of, indexed_columns_of

__all__ = ["Deletion", "delete_rows", "remove_all", "row_count"]


@dataclass(frozen=True, slots=True)
class Deletion:
    """What deleting rows comes to: files removed, files written with the rows that stay, what was read for it."""

    actions: tuple[Action, ...] = ()
    reads: Reads = field(default_factory=Reads)
    removed_files: int = 0
    rewritten_files: int = 0
    deleted_rows: int = 0
    copied_rows: int = 0
    metrics: dict[str, str] = field(default_factory=dict)


def row_count(adds: Iterable[AddFile]) -> int:
    """The rows of files as their statistics count them; a file without statistics counts none."""
    return sum(int(orjson.loads(add.stats).get("numRecords") or 0) for add in adds if add.stats)


def removal(add: AddFile, now_ms: int) -> RemoveFile:
    """The action that removes a file, with its metadata, so that the file can be found and its space be counted."""
    return RemoveFile(
        path=add.path,
        data_change=True,
        deletion_timestamp=now_ms,
        extended_file_metadata=True,
        partition_values=add.partition_values,
        size=add.size,
        deletion_vector=add.deletion_vector,
        base_row_id=add.base_row_id,
        default_row_commit_version=add.default_row_commit_version,
        stats=add.stats,
        tags=add.tags,
    )


def remove_all(snapshot: Snapshot, clock: Clock) -> Deletion:
    """Remove every file of the table."""
    adds = list(snapshot.add_files())
    now_ms = clock.now_ms()
    return Deletion(
        actions=tuple(removal(a, now_ms) for a in adds),
        reads=Reads(predicates=("",), files=tuple(a.path for a in adds)),
        removed_files=len(adds),
        deleted_rows=row_count(adds),
    )


def _indices(mask: pa.BooleanArray | pa.ChunkedArray) -> list[int]:
    found: list[int] = pc.indices_nonzero(mask).to_pylist()
    return found


def delete_rows(
    store: ObjectStore, snapshot: Snapshot, schema: StructType, predicate: Predicate, *, transaction_id: str, clock: Clock
) -> Deletion:
    """Delete the rows that satisfy `predicate`, copy-on-write.

    Files whose rows all satisfy it are removed unread; of the others that may hold such rows, the rest is written again.
    """
    files = snapshot.files
    columns = snapshot.partition_columns
    inside, _rest = predicate.split(columns)
    read_as = "" if inside is None else inside.to_sql()
    candidates = files.filter(predicate.may_match(files, schema=schema, partition_columns=columns))
    whole = predicate.matches_all(candidates, schema=schema, partition_columns=columns)
    adds = list(_adds(snapshot, candidates))
    now_ms = clock.now_ms()
    actions: list[Action] = []
    deleted = copied = removed = rewritten = 0
    surely = set(_indices(whole))
    for number, add in enumerate(adds):
        if number in surely:
            actions.append(removal(add, now_ms))
            removed += 1
            deleted += row_count([add])
            continue
        one = candidates.slice(number, 1)
        rows = read_files(store, one, schema=schema, partition_columns=columns, columns=None, predicate=None, version=snapshot.version)
        hit = pc.fill_null(predicate.mask(rows), False)
        kept = rows.filter(pc.invert(hit))
        if len(kept) == len(rows):
            continue
        deleted += len(rows) - len(kept)
        copied += len(kept)
        removed += 1
        actions.append(removal(add, now_ms))
        if len(kept):
            written = write_files(
                store,
                [kept],
                schema=schema,
                partition_columns=columns,
                transaction_id=transaction_id,
                target_file_bytes=file_size_of(snapshot.configuration),
                indexed_columns=indexed_columns_of(snapshot.configuration),
                label=f"d{number}",
            )
            actions.extend(written)
            rewritten += len(written)
    metrics = {
        "numRemovedFiles": str(removed),
        "numAddedFiles": str(rewritten),
        "numDeletedRows": str(deleted),
        "numCopiedRows": str(copied),
    }
    reads = Reads(predicates=(read_as,), files=tuple(a.path for a in adds))
    return Deletion(tuple(actions), reads, removed, rewritten, deleted, copied, metrics)


def _adds(snapshot: Snapshot, candidates: pa.Table) -> Iterable[AddFile]:
    """The AddFiles of some rows of the snapshot's file table."""
    wanted = pc.index_in(candidates["path"], value_set=snapshot.files["path"].combine_chunks()).to_pylist()
    return snapshot.add_files(wanted)
