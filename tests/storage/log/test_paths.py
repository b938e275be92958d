from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.storage.log.paths import (
    LogKind,
    LogPath,
    checkpoint_part_path,
    checkpoint_path,
    commit_path,
    compacted_path,
    crc_path,
    sidecar_path,
    staged_path,
    version_prefix,
)

VERSIONS = st.integers(0, 2**63 - 1)
UUID = "80a083e8-7026-4e79-81be-64bd76c43a11"


@given(VERSIONS)
def test_names_parse_to_what_they_were_made_of(version: int) -> None:
    for path, kind in (
        (commit_path(version), LogKind.COMMIT),
        (checkpoint_path(version), LogKind.CLASSIC_CHECKPOINT),
        (crc_path(version), LogKind.CRC),
    ):
        assert LogPath.parse(path) == LogPath(path, kind, version, version)
        assert path.startswith(version_prefix(version))


@given(VERSIONS, VERSIONS)
def test_the_order_of_names_is_the_order_of_versions(one: int, other: int) -> None:
    assert (commit_path(one) < commit_path(other)) == (one < other)


def test_names_are_those_of_the_protocol() -> None:
    assert commit_path(7) == "_delta_log/00000000000000000007.json"
    assert checkpoint_path(7) == "_delta_log/00000000000000000007.checkpoint.parquet"
    assert checkpoint_part_path(7, 1, 2) == "_delta_log/00000000000000000007.checkpoint.0000000001.0000000002.parquet"
    assert compacted_path(7, 9) == "_delta_log/00000000000000000007.00000000000000000009.compacted.json"
    assert sidecar_path("s.parquet") == "_delta_log/_sidecars/s.parquet"
    assert staged_path("g") == "_delta_log/_staged_commits/g.json"


def test_parts_uuids_and_ranges_are_read() -> None:
    part = LogPath.parse(checkpoint_part_path(7, 2, 3))
    assert part is not None
    assert (part.kind, part.version, part.part, part.parts) == (LogKind.MULTIPART_CHECKPOINT, 7, 2, 3)
    for suffix in ("json", "parquet"):
        v2 = LogPath.parse(f"{version_prefix(7)}.checkpoint.{UUID}.{suffix}")
        assert v2 is not None
        assert (v2.kind, v2.version, v2.uuid, v2.is_checkpoint) == (LogKind.V2_CHECKPOINT, 7, UUID, True)
    compacted = LogPath.parse(compacted_path(7, 9))
    assert compacted is not None
    assert (compacted.kind, compacted.version, compacted.end_version, compacted.is_checkpoint) == (LogKind.COMPACTED, 7, 9, False)


@pytest.mark.parametrize(
    "key",
    [
        "00000000000000000007.json",
        "_delta_log/7.json",
        "_delta_log/00000000000000000007.json.tmp",
        "_delta_log/x00000000000000000007.json",
        "_delta_log/00000000000000000007.checkpoint.json",
        "_delta_log/00000000000000000007.checkpoint.0000000003.0000000002.parquet",
        "_delta_log/00000000000000000007.checkpoint.0000000000.0000000002.parquet",
        "_delta_log/00000000000000000009.00000000000000000007.compacted.json",
        "_delta_log/99999999999999999999.json",
        "_delta_log/_last_checkpoint",
        "_delta_log/_staged_commits/00000000000000000007.json",
        "_delta_log/",
        "part-00000.parquet",
    ],
)
def test_other_names_are_none_of_the_log(key: str) -> None:
    assert LogPath.parse(key) is None


@pytest.mark.parametrize("version", [-1, 2**63])
def test_versions_have_limits(version: int) -> None:
    with pytest.raises(ValueError, match="a version is between 0"):
        commit_path(version)
