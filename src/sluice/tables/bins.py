"""Which files a compaction writes again, and which of them together. Pure: it looks at the file table only."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ..storage.partition_split import PartitionKey
from ..storage.wide_stats import record_count

__all__ = ["Bin", "plan_bins"]


@dataclass(frozen=True, slots=True)
class Bin:
    """Files of one partition that are written again together.

    `indices` are their rows in the snapshot's file table, `nbytes` is about the size of their live rows in files.
    """

    partition: PartitionKey
    indices: tuple[int, ...]
    nbytes: int

    def file_count(self, target_bytes: int) -> int:
        """Into how many files of about the target size the rows fit best."""
        return max(1, round(self.nbytes / target_bytes))


def plan_bins(
    files: pa.Table,
    scope: pa.BooleanArray | None,
    partition_columns: Sequence[str],
    *,
    target_bytes: int,
    base: bool,
    reorder: bool,
) -> list[Bin]:
    """Which of a snapshot's `files` are written again, and which of them together; `scope` is true for those it may be (None: all).

    Small ones are, in the order of the table, as many together as fit into one file; one alone is left as it is. With `base`
    those with a deletion vector are too, however large. With `reorder` all are, those of a partition in one bin.
    """
    chosen: Any = pa.repeat(pa.scalar(True), files.num_rows) if scope is None else pc.fill_null(scope, False)
    dead = pc.is_valid(files.column("deletion_vector"))
    if not reorder:
        # Below half of the target, so that any two of them fit into one.
        small = pc.less(files.column("size"), target_bytes // 2)
        chosen = pc.and_(chosen, pc.or_(small, dead) if base else small)
    candidates = files.append_column("", pa.array(range(files.num_rows), pa.int64())).filter(chosen)
    by_partition: dict[PartitionKey, list[_Candidate]] = {}
    for partition, each in zip(_partitions(candidates, partition_columns), _candidates(candidates), strict=True):
        by_partition.setdefault(partition, []).append(each)
    return [
        Bin(partition, tuple(each.index for each in group), sum(each.nbytes for each in group))
        for partition, members in by_partition.items()
        for group in ([members] if reorder else _packed(members, target_bytes))
        if reorder or len(group) > 1 or (base and group[0].has_vector)
    ]


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A file that may be written again: its row in the file table, about how much of it is live."""

    index: int
    nbytes: int
    has_vector: bool


def _candidates(files: pa.Table) -> Iterator[_Candidate]:
    vectors = files.column("deletion_vector")
    dead = pc.struct_field(vectors, "cardinality").to_pylist()
    indices = files.column(files.num_columns - 1).to_pylist()
    for index, size, deleted, stats in zip(indices, files.column("size").to_pylist(), dead, files.column("stats").to_pylist(), strict=True):
        rows = record_count(stats) if deleted else None
        yield _Candidate(index, size * max(0, rows - deleted) // rows if rows else size, deleted is not None)


def _partitions(files: pa.Table, partition_columns: Sequence[str]) -> Iterator[PartitionKey]:
    if not partition_columns:
        return iter([()] * files.num_rows)
    values = files.column("partition_values")
    return zip(*(pc.map_lookup(values, pa.scalar(name), "first").to_pylist() for name in partition_columns), strict=True)


def _packed(members: Iterable[_Candidate], target_bytes: int) -> Iterator[list[_Candidate]]:
    """Neighbours together, up to the target size; a larger one is alone."""
    group: list[_Candidate] = []
    size = 0
    for each in members:
        if group and size + each.nbytes > target_bytes:
            yield group
            group, size = [], 0
        group.append(each)
        size += each.nbytes
    if group:
        yield group
