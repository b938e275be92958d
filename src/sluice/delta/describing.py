"""What `DeltaTable.detail` says about a table, under Delta's names."""

from __future__ import annotations

from typing import Any

import pyarrow.compute as pc

from ..storage.actions.features import reader_features, writer_features
from ..storage.constants import NAME_KEY
from ..tables.table import Table
from .metrics import moment

__all__ = ["described"]


def described(table: Table, name: str | None) -> dict[str, Any]:
    """The values of the latest version, by Delta's column names."""
    snapshot = table.refresh("latest").snapshot()
    raw = snapshot.raw
    metadata, protocol = raw.metadata, raw.protocol
    return {
        "format": "delta",
        "id": metadata.id,
        "name": name or metadata.configuration.get(NAME_KEY) or metadata.name,
        "description": metadata.description,
        "location": table.location,
        "createdAt": moment(metadata.created_time),
        "lastModified": moment(snapshot.timestamp),
        "partitionColumns": list(metadata.partition_columns),
        "clusteringColumns": [],
        "numFiles": snapshot.num_files,
        "sizeInBytes": pc.sum(raw.files["size"]).as_py() or 0,
        "properties": dict(metadata.configuration),
        "minReaderVersion": protocol.min_reader_version,
        "minWriterVersion": protocol.min_writer_version,
        "tableFeatures": sorted(reader_features(protocol) | writer_features(protocol)),
    }
