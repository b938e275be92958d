"""ALTER TABLE ... CLUSTER BY: by which columns the next OPTIMIZE clusters."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...coordinator.facade.values import Change
from ...coordinator.rules.operation_kinds import Kind
from ...storage.actions import Action
from ...storage.actions.clustering import CLUSTERING_DOMAIN, CLUSTERING_FEATURE, Path, clustering_columns, clustering_domain, dotted
from ...storage.actions.features import FEATURE_PREFIX, asked_features, check_writable, with_features, writer_features
from ...storage.data.statistics import Leaf
from ...storage.errors import InvalidRequest
from ...storage.log.snapshot import Snapshot
from ...storage.schema.schema import parse_schema
from ..client.access import Access
from ..client.clustering_rules import clustered_by
from .analyzing import lacks

__all__ = ["cluster_by"]


def cluster_by(access: Access, columns: str | Iterable[str]) -> Change | None:
    """Cluster by these columns from now on, or by none; None if that is so already. No file is written again.

    Raises InvalidRequest for columns by which a table cannot be clustered, and for new ones of which files have no statistics.
    """
    _ = access.ours  # fails before anything is read if the table was opened for reading only
    snapshot = access.latest()
    check_writable(snapshot.protocol, snapshot.metadata)
    schema = parse_schema(snapshot.metadata.schema_string)
    old = clustering_columns(snapshot.domains)
    new = clustered_by(columns, schema, snapshot.partition_columns, snapshot.configuration)
    if new == old:
        return None
    _require_statistics(snapshot, [path for path in new if path not in old])
    actions: list[Action] = []
    needed = asked_features({FEATURE_PREFIX + CLUSTERING_FEATURE: "supported"})
    if not needed <= writer_features(snapshot.protocol):
        actions.append(with_features(snapshot.protocol, needed))
    if CLUSTERING_DOMAIN not in snapshot.domains:
        # a concurrent change that partitions the table writes no domain yet, and has to meet something: it changes the metadata
        actions.append(snapshot.metadata)
    actions.append(clustering_domain(new))
    parameters = {"oldClusteringColumns": ",".join(map(dotted, old)), "newClusteringColumns": ",".join(map(dotted, new))}
    return Change(access.new_transaction_id(), "CLUSTER BY", snapshot, actions, parameters=parameters, schema=schema, kind=Kind.OTHER)


def _require_statistics(snapshot: Snapshot, paths: Sequence[Path]) -> None:
    """Raise InvalidRequest unless every file has statistics of these columns, as the protocol demands."""
    texts = snapshot.files["stats"].to_pylist() if paths else []
    for path in paths:
        lacking = sum(lacks(text, [Leaf(path, None)]) for text in texts)
        if lacking:
            raise InvalidRequest(
                f"{lacking} of {snapshot.num_files} files have no statistics of {dotted(path)}, which clustering needs: get them first by "
                f"analyze([...]), ANALYZE TABLE ... COMPUTE STATISTICS FOR COLUMNS {dotted(path)}",
                files=lacking,
                column=dotted(path),
            )
