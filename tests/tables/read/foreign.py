"""Tables of other engines that sluice refuses by name, for tests of every face."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

FEATURES = (
    "adaptiveMetadata-preview",
    "catalogManaged",
    "catalogOwned-preview",
    "geospatial",
    "icebergV4Metadata",
    "timestampNanos",
    "variantShredding",
    "variantShredding-preview",
    "somethingNew",
)
TYPES = ("geography(OGC:CRS84, spherical)", "geometry(OGC:CRS84)", "hologram", "interval year to month", "timestamp_nanos")
CASES = [*((feature, "long") for feature in FEATURES), *(("", kind) for kind in TYPES)]
"""A feature that readers must know, or "" and a type that no feature announces."""


def foreign(folder: Path, feature: str, kind: str) -> str:
    """A table of one column, all of whose data are lost: whoever reads anything of them fails in another way. Returns its place."""
    features: Sequence[str] = [feature] if feature else []
    fields = [{"name": "a", "type": kind, "nullable": True, "metadata": {}}]
    metadata = {
        "id": "0b7c3a52-2f4e-4b0e-9d3c-5f2f3c1a7e11",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "partitionColumns": [],
        "configuration": {},
    }
    add = {"path": "lost.parquet", "partitionValues": {}, "size": 100, "modificationTime": 0, "dataChange": True}
    actions = [
        {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": features, "writerFeatures": features}},
        {"metaData": metadata},
        {"add": add},
    ]
    (folder / "_delta_log").mkdir(parents=True)
    (folder / "_delta_log" / f"{0:020}.json").write_text("\n".join(map(json.dumps, actions)) + "\n")
    return str(folder)
