"""Which files a compaction rewrites, and which of them together. Pure: reads the file table only.

In a clustered table, what one run writes together is a cluster. A run takes the files that belong to none, those of which half of the rows
are deleted, and the clusters, from the smallest on, that are hardly larger than what it rewrites already. So a row is rewritten once in
each doubling of the data around it, and there are never more clusters than about the logarithm of the table's size.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import field
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from ...storage.actions.features import CLUSTER_COLUMNS_TAG, CLUSTER_CURVE, CLUSTER_CURVE_TAG, CLUSTER_TAG, Path, columns_tag
from ...storage.actions.records import record_count
from ...storage.dataclass import dataclass
from ...storage.schema.partitions import PartitionKey, partition_texts

_ROWS_AT_ONCE: Final = 16_384

_SLACK: Final = 1.25
_DEAD_PART: Final = 2
"""A file has to have one deleted row in so many to be taken from its cluster by any run."""
CLUSTER_BYTES_MAX: Final = 100 * 1024**3
"""A larger cluster is complete, as in Delta Lake: it is not rewritten with others."""


@dataclass(frozen=True, slots=True)
class Bin:
    """Files of one partition that are rewritten together.

    `indices` are their rows in the snapshot's file table, in order, `nbytes` is the approximate size of their live rows in files.
    """

    partition: PartitionKey
    indices: tuple[int, ...]
    nbytes: int

    def file_count(self, target_bytes: int) -> int:
        """The best number of files of about the target size for the rows."""
        return max(1, round(self.nbytes / target_bytes))


def plan_bins(
    files: pa.Table,
    scope: pa.BooleanArray | None,
    partition_columns: Sequence[str],
    *,
    target_bytes: int,
    base: bool,
    reorder: bool,
    files_max: int | None = None,
) -> list[Bin]:
    """Which of a snapshot's `files` are rewritten, and which together; `scope` is true for the permitted ones (None: all).

    Small files are rewritten in the table's order, as many together as fit into one file, and at most `files_max`; a single one is left
    alone. With `base`, so are files with a deletion vector, however large. With `reorder`, all files are, a partition's in one bin.
    """
    by_partition: dict[PartitionKey, _Members] = {}
    first = 0
    for batch in files.select(["partition_values", "size", "deletion_vector", "stats"]).to_batches(max_chunksize=_ROWS_AT_ONCE):
        some = pa.Table.from_batches([batch.append_column("index", pa.array(range(first, first + batch.num_rows), pa.int64()))])
        chosen = pc.is_valid(some["size"]) if scope is None else pc.fill_null(scope.slice(first, batch.num_rows), False)
        if not reorder:
            # Below half of the target, so that any two fit into one.
            small = pc.less(some["size"], target_bytes // 2)
            chosen = pc.and_(chosen, pc.or_(small, pc.is_valid(some["deletion_vector"])) if base else small)
        first += batch.num_rows
        for partition, index, nbytes, has_vector in _candidates(some.filter(chosen), partition_columns):
            members = by_partition.setdefault(partition, _Members())
            members.indices.append(index)
            members.nbytes.append(nbytes)
            members.vectors.append(has_vector)
    return [
        Bin(partition, tuple(members.indices[group.start : group.stop]), sum(members.nbytes[group.start : group.stop]))
        for partition, members in by_partition.items()
        for group in ([range(len(members.indices))] if reorder else packed(members.nbytes, target_bytes, files_max))
        if reorder or len(group) > 1 or (base and members.vectors[group.start])
    ]


@dataclass(frozen=True, slots=True)
class _Members:
    """The files of a partition that may be rewritten, as `_candidates` says, with a few bytes for each: there may be millions."""

    indices: array[int] = field(default_factory=lambda: array("q"))
    nbytes: array[int] = field(default_factory=lambda: array("q"))
    vectors: array[int] = field(default_factory=lambda: array("b"))


def _candidates(files: pa.Table, partition_columns: Sequence[str]) -> Iterator[tuple[PartitionKey, int, int, bool]]:
    """For each file its partition, its row in the file table, its approximate live bytes, and whether it has a deletion vector."""
    values = [texts.to_pylist() for texts in partition_texts(files.column("partition_values"), partition_columns)]
    partitions = zip(*values, strict=True) if values else [()] * files.num_rows
    vectors = files.column("deletion_vector")
    sizes = files.column("size").to_pylist()
    has_vector = pc.is_valid(vectors).to_pylist()
    if any(has_vector):
        dead = pc.struct_field(vectors, "cardinality").to_pylist()
        for number in (each for each, deleted in enumerate(dead) if deleted):
            rows = record_count(files.column("stats")[number].as_py())
            sizes[number] = sizes[number] * max(0, rows - dead[number]) // rows if rows else sizes[number]
    return zip(partitions, files.column("index").to_pylist(), sizes, has_vector, strict=True)


def packed(sizes: Sequence[int], target_bytes: int, files_max: int | None) -> Iterator[range]:
    """Groups of neighbours up to the target size; a larger one is alone."""
    start = size = 0
    for number, nbytes in enumerate(sizes):
        if number > start and (size + nbytes > target_bytes or number - start == files_max):
            yield range(start, number)
            start, size = number, 0
        size += nbytes
    if sizes:
        yield range(start, len(sizes))


def plan_clusters(
    files: pa.Table,
    scope: pa.BooleanArray | None,
    columns: Sequence[Path],
    *,
    full: bool,
    base: bool,
    files_max: int,
    cluster_bytes_max: int = CLUSTER_BYTES_MAX,
) -> list[Bin]:
    """The files to rewrite, in bins that become one cluster each; `scope` is true for the permitted ones (None: all).

    Files clustered by other columns, or along another curve, are left alone, and so is a table that is one cluster. Files with many deleted
    rows are taken from their clusters, with `base` all that have any; with `full` every file is taken, but those of complete clusters.
    """
    some = clustered(files, columns, full=full, base=base)
    if scope is not None:
        some = some.filter(pc.fill_null(scope, False))
    weights = some.filter(pc.is_valid(some["cluster"])).group_by("cluster").aggregate([("size", "sum")])
    by_weight = sorted(zip(weights["size_sum"].to_pylist(), weights["cluster"].to_pylist(), strict=True))
    open_clusters = [(weight, cluster) for weight, cluster in by_weight if weight < cluster_bytes_max]
    loose = some.filter(some["loose"])
    if not loose.num_rows and not (full and len(open_clusters) > 1):
        return []
    nbytes, taken = pc.sum(loose["size"]).as_py() or 0, []
    for weight, cluster in open_clusters:
        # A cluster may be a little larger than the same rows were before: appends of one size still double.
        # check: clusters-of-one-size-are-merged (_SLACK * nbytes -> nbytes)
        if full or weight <= _SLACK * nbytes:
            taken.append(cluster)
            nbytes += weight
    chosen = some.filter(pc.or_(some["loose"], pc.is_in(some["cluster"], value_set=pa.array(taken, pa.string()))))
    indices, sizes = (array("q", chosen[name].to_pylist()) for name in ("index", "size"))
    groups = packed(sizes, cluster_bytes_max, files_max)
    return [Bin((), tuple(indices[group.start : group.stop]), sum(sizes[group.start : group.stop])) for group in groups]


def _many_deleted(files: pa.Table) -> pa.BooleanArray:
    """For each file, whether it has so many deleted rows that it is worth while to write the others again."""
    vectors, stats = files["deletion_vector"], files["stats"]
    if vectors.null_count == len(vectors):
        return pa.repeat(False, len(vectors))
    dead = pc.fill_null(pc.struct_field(vectors, "cardinality"), 0).to_pylist()
    return pa.array([bool(count) and _DEAD_PART * count >= (record_count(stats[n].as_py()) or math.inf) for n, count in enumerate(dead)])


def clustered(files: pa.Table, columns: Sequence[Path], *, full: bool, base: bool) -> pa.Table:
    """The files as one Arrow table; `cluster` is null unless these columns clustered the file, `loose` ones are rewritten in any case."""
    tags, is_clustered = files["tags"], pc.is_valid(files["clustering_provider"])
    by_columns = pc.equal(pc.map_lookup(tags, pa.scalar(CLUSTER_COLUMNS_TAG), "first"), columns_tag(columns))
    if len(columns) > 1:  # by one column all curves are the same
        # check: other-curves-are-other-clusters
        by_columns = pc.and_(by_columns, pc.equal(pc.map_lookup(tags, pa.scalar(CLUSTER_CURVE_TAG), "first"), CLUSTER_CURVE))
    is_taken_out = pc.is_valid(files["deletion_vector"]) if base else _many_deleted(files)
    stays = pc.and_(pc.and_(is_clustered, pc.fill_null(by_columns, False)), pc.invert(is_taken_out))
    cluster = pc.if_else(stays, pc.map_lookup(tags, pa.scalar(CLUSTER_TAG), "first"), pa.scalar(None, pa.string()))
    return pa.table(
        {
            "index": pa.array(range(files.num_rows), pa.int64()),
            "size": files["size"],
            "cluster": cluster,
            "loose": pc.or_(is_taken_out, pc.and_(pc.is_null(cluster), pc.or_(pc.invert(is_clustered), full))),
        }
    )
