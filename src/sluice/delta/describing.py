"""What `DeltaTable.detail` says about a table, under Delta's names."""

from __future__ import annotations

from typing import Any

from ..tables.table import Table
from .metrics import moment

__all__ = ["described"]


def described(table: Table, name: str | None) -> dict[str, Any]:
    """The values of the latest version, by Delta's column names."""
    known = table.detail()
    return {
        "format": "delta",
        "id": known.id,
        "name": name or known.name,
        "description": known.description,
        "location": known.location,
        "createdAt": moment(known.created_ms),
        "lastModified": moment(known.modified_ms),
        "partitionColumns": list(known.partition_columns),
        "clusteringColumns": [],
        "numFiles": known.num_files,
        "sizeInBytes": known.size_bytes,
        "properties": dict(known.properties),
        "minReaderVersion": known.min_reader_version,
        "minWriterVersion": known.min_writer_version,
        "tableFeatures": list(known.features),
    }
