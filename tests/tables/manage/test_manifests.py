"""Manifests for engines that read files by lists."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from sluice.storage.errors import InvalidRequest, UnsupportedFeature
from tests.tables.conftest import Place, flights


def manifests(place: Place) -> dict[str, list[str]]:
    root = Path(place.location) / "_symlink_format_manifest"
    return {str(each.relative_to(root)): each.read_text().splitlines() for each in root.rglob("manifest")}


def test_each_partition_lists_its_files(place: Place) -> None:
    table = place.create()
    table.append(flights(("JFK", 1, 1), ("EWR", 2, 2)))
    table.append(flights(("JFK", 1, 3)))
    assert table.generate("symlink_format_manifest") == 2
    found = manifests(place)
    assert {name: len(files) for name, files in found.items()} == {"origin=JFK/month=1/manifest": 2, "origin=EWR/month=2/manifest": 1}
    listed = [file.removeprefix("file://") for files in found.values() for file in files]
    assert sum(pq.read_metadata(file).num_rows for file in listed) == 3
    table.delete("origin = 'EWR'")
    assert table.generate() == 1
    assert set(manifests(place)) == {"origin=JFK/month=1/manifest"}
    assert table.vacuum(retain_hours=0, force=True).garbage
    assert set(manifests(place)) == {"origin=JFK/month=1/manifest"}


def test_a_table_without_partitions_has_one(place: Place) -> None:
    table = place.create(partition_by=[])
    table.generate()
    assert manifests(place) == {"manifest": []}


def test_deleted_rows_cannot_be_listed(place: Place) -> None:
    table = place.create(properties={"delta.enableDeletionVectors": "true"})
    table.append(flights(("JFK", 1, 1), ("JFK", 1, 2)))
    table.delete("delay = 1")
    with pytest.raises(UnsupportedFeature, match="deletion vectors"):
        table.generate()
    with pytest.raises(InvalidRequest, match="symlink_format_manifest"):
        table.generate("list")
