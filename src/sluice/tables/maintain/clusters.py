"""Which files of a clustered table an OPTIMIZE rewrites. Pure: reads the file table only.

What one run writes together is a cluster. A run takes the files that belong to none, and with them the clusters, from the smallest on,
that are not larger than what it rewrites already. So a row is rewritten once in each doubling of the data around it, and there are never
more clusters than the logarithm of the table's size.
"""

from __future__ import annotations

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
    sizes = files["size"].to_pylist()
    permitted = [True] * len(sizes) if scope is None else scope.to_pylist()
    mine, others, vectors = _clusters(files, columns), _clustered(files), pc.is_valid(files["deletion_vector"]).to_pylist()
    chosen: list[int] = []
    clusters: dict[str, list[int]] = {}
    for index, allowed in enumerate(permitted):
        cluster = mine[index]
        if not allowed:
            continue
        if base and vectors[index]:
            chosen.append(index)
        elif cluster is not None:
            clusters.setdefault(cluster, []).append(index)
        elif full or not others[index]:
            chosen.append(index)
    weights = {cluster: sum(sizes[index] for index in members) for cluster, members in clusters.items()}
    open_clusters = sorted((weight, cluster) for cluster, weight in weights.items() if weight < cluster_bytes_max)
    nbytes = sum(sizes[index] for index in chosen)
    if not chosen and not (full and len(open_clusters) > 1):
        return []
    for weight, cluster in open_clusters:
        if full or weight <= nbytes:
            chosen += clusters[cluster]
            nbytes += weight
    chosen.sort()
    some = [sizes[index] for index in chosen]
    groups = packed(some, cluster_bytes_max, files_max)
    return [Bin((), tuple(chosen[group.start : group.stop]), sum(some[group.start : group.stop])) for group in groups]


def _clusters(files: pa.Table, columns: Sequence[Path]) -> list[str | None]:
    """The cluster of each file that is clustered by these columns."""
    tags = files["tags"]
    by_columns = pc.equal(pc.map_lookup(tags, pa.scalar(CLUSTER_COLUMNS_TAG), "first"), columns_tag(columns))
    is_mine = pc.and_(pc.is_valid(files["clustering_provider"]), pc.fill_null(by_columns, False))
    names = pc.map_lookup(tags, pa.scalar(CLUSTER_TAG), "first").to_pylist()
    return [name if ours else None for name, ours in zip(names, is_mine.to_pylist(), strict=True)]


def _clustered(files: pa.Table) -> list[bool]:
    found: list[bool] = pc.is_valid(files["clustering_provider"]).to_pylist()
    return found
