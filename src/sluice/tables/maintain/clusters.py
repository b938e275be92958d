"""Which files of a clustered table an OPTIMIZE rewrites. Pure: reads the file table only.

What one run writes together is a cluster. A run takes the files that belong to none, and with them the clusters, from the smallest on,
that are not larger than what it rewrites already. So a row is rewritten once in each doubling of the data around it, and there are never
more clusters than the logarithm of the table's size.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from ...storage.actions.clustering import CLUSTER_COLUMNS_TAG, CLUSTER_TAG, Path, columns_tag
from .bins import Bin, packed

__all__ = ["CLUSTER_BYTES_MAX", "plan_clusters"]

CLUSTER_BYTES_MAX: Final = 100 * 1024**3
"""A larger cluster is complete, as in Delta Lake: it is not rewritten with others."""


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

    Files clustered by other columns than these are left alone, and so is a table that is one cluster. With `base`, files with a deletion
    vector are taken from their clusters; with `full` every file is taken, but those of complete clusters.
    """
    some = _candidates(files, columns, full=full, base=base)
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
        if full or weight <= nbytes:
            taken.append(cluster)
            nbytes += weight
    chosen = some.filter(pc.or_(some["loose"], pc.is_in(some["cluster"], value_set=pa.array(taken, pa.string()))))
    indices, sizes = (array("q", chosen[name].to_pylist()) for name in ("index", "size"))
    groups = packed(sizes, cluster_bytes_max, files_max)
    return [Bin((), tuple(indices[group.start : group.stop]), sum(sizes[group.start : group.stop])) for group in groups]


def _candidates(files: pa.Table, columns: Sequence[Path], *, full: bool, base: bool) -> pa.Table:
    """The files with their `index` and `size`, as one Arrow table: there may be millions.

    `cluster` names the file's cluster, or is null if other columns or none clustered the file. `loose` files are rewritten in any case.
    """
    tags, is_clustered = files["tags"], pc.is_valid(files["clustering_provider"])
    by_columns = pc.equal(pc.map_lookup(tags, pa.scalar(CLUSTER_COLUMNS_TAG), "first"), columns_tag(columns))
    names = pc.map_lookup(tags, pa.scalar(CLUSTER_TAG), "first")
    is_taken_out = pc.and_(pc.is_valid(files["deletion_vector"]), base)
    stays = pc.and_(pc.and_(is_clustered, pc.fill_null(by_columns, False)), pc.invert(is_taken_out))
    cluster = pc.if_else(stays, names, pa.scalar(None, pa.string()))
    unclustered = pc.and_(pc.is_null(cluster), pc.or_(pc.invert(is_clustered), full))
    return pa.table(
        {
            "index": pa.array(range(files.num_rows), pa.int64()),
            "size": files["size"],
            "cluster": cluster,
            "loose": pc.or_(is_taken_out, unclustered),
        }
    )
