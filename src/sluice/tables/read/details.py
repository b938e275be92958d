"""The description of a version of a table: id, name, size, properties, protocol."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow.compute as pc

from ...storage.actions.features import reader_features, writer_features
from ...storage.constants import NAME_KEY
from ...storage.dataclass import dataclass
from ..client.clustering_rules import clustering_names
from .table_snapshot import TableSnapshot

__all__ = ["TableDetail", "detail_of"]


@dataclass(frozen=True, slots=True)
class TableDetail:
    """A version of a table: times in ms since the epoch, `size_bytes` of its data files as they are stored.

    `name` is the one in the coordinator's catalog, or what another engine called the table. `created_ms` is None if the log does not say.
    """

    version: int
    id: str
    name: str | None
    description: str | None
    location: str
    created_ms: int | None
    modified_ms: int
    partition_columns: tuple[str, ...]
    clustering_columns: tuple[str, ...]
    num_files: int
    size_bytes: int
    properties: Mapping[str, str]
    min_reader_version: int
    min_writer_version: int
    features: tuple[str, ...]


def detail_of(snapshot: TableSnapshot, location: str) -> TableDetail:
    """What describes this version."""
    raw = snapshot.raw
    metadata, protocol = raw.metadata, raw.protocol
    return TableDetail(
        version=snapshot.version,
        id=metadata.id,
        name=metadata.configuration.get(NAME_KEY) or metadata.name,
        description=metadata.description,
        location=location,
        created_ms=metadata.created_time,
        modified_ms=snapshot.timestamp,
        partition_columns=tuple(metadata.partition_columns),
        clustering_columns=clustering_names(raw),
        num_files=snapshot.num_files,
        size_bytes=pc.sum(raw.files["size"]).as_py() or 0,
        properties=dict(metadata.configuration),
        min_reader_version=protocol.min_reader_version,
        min_writer_version=protocol.min_writer_version,
        features=tuple(sorted(reader_features(protocol) | writer_features(protocol))),
    )
