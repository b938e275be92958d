"""Logs that were not written by sluice, and checkpoints that sluice wrote for others."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sluice.storage.actions import Action, CommitInfo, DomainMetadata, Protocol, Txn, decode, encode_all
from sluice.storage.errors import VersionNotFound
from sluice.storage.log.checkpoint_writer import write_checkpoint
from sluice.storage.log.paths import checkpoint_path, commit_path
from sluice.storage.log.segment import list_segment
from sluice.storage.log.snapshot import Snapshot
from sluice.storage.log.timetravel import commit_info
from sluice.storage.stores.local import LocalStore
from tests.storage.logs import removed_files

deltalake = pytest.importorskip("deltalake")
polars = pytest.importorskip("polars")

UTC = dt.timezone.utc
ALL_TYPES = pa.table(
    {
        "boolean": [True, None],
        "byte": pa.array([1, -128], pa.int8()),
        "short": pa.array([1, 2**15 - 1], pa.int16()),
        "integer": pa.array([1, None], pa.int32()),
        "long": [2**62, -(2**62)],
        "float": pa.array([0.5, None], pa.float32()),
        "double": [1e300, -0.0],
        "decimal": [Decimal("12.30"), Decimal("-0.01")],
        "string": ['é"\\\n', ""],
        "binary": [b"\x00\xff", None],
        "date": [dt.date(1, 1, 1), dt.date(9999, 12, 31)],
        "timestamp": pa.array([dt.datetime(2024, 1, 2, 3, 4, 5, 678901, tzinfo=UTC), None], pa.timestamp("us", "UTC")),
        "struct": [{"x": 1, "y": "a"}, None],
        "list": [[1, None], []],
        "map": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int64())),
    }
)
PARTITIONS = ["plain", "a b", "a/b", "50%", "x=y", "é:?#&+", "", None, "[1]", "'\"", "%2F", "emoji 🦆"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "table"


def store_at(folder: Path) -> LocalStore:
    return LocalStore(folder.as_uri())


def compare(folder: Path) -> Snapshot:
    """Our snapshot, after comparing it with what deltalake sees."""
    ours, theirs = Snapshot.load(store_at(folder)), deltalake.DeltaTable(folder)
    assert ours.version == theirs.version()
    metadata, protocol = theirs.metadata(), theirs.protocol()
    about = str(metadata.id), metadata.partition_columns, metadata.configuration
    assert (ours.metadata.id, list(ours.partition_columns), dict(ours.configuration)) == about
    assert json.loads(ours.metadata.schema_string) == json.loads(theirs.schema().to_json())
    assert ours.protocol.min_reader_version == protocol.min_reader_version
    assert ours.protocol.min_writer_version == protocol.min_writer_version
    assert dict(files_of_ours(ours)) == dict(files_of_theirs(theirs))
    return ours


def files_of_ours(snapshot: Snapshot) -> Iterator[tuple[str, Any]]:
    for each in snapshot.add_files():
        stats = json.loads(each.stats or "{}")
        values = {name: value or None for name, value in each.partition_values.items()}
        yield each.path, (each.size, each.modification_time, values, stats.get("numRecords"), stats.get("nullCount"))


def files_of_theirs(table: Any) -> Iterator[tuple[str, Any]]:
    for row in pa.table(table.get_add_actions()).to_pylist():
        values = {name: None if value is None else str(value) for name, value in (row.get("partition") or {}).items()}
        yield row["path"], (row["size_bytes"], row["modification_time"], values, row["num_records"], present(row.get("null_count")))


def present(value: Any) -> Any:
    """A struct without its nulls, which JSON leaves out."""
    return {name: present(inner) for name, inner in value.items() if inner is not None} if isinstance(value, dict) else value


def test_all_types(folder: Path) -> None:
    for _ in range(3):
        deltalake.write_deltalake(folder, ALL_TYPES, mode="append")
    assert compare(folder).num_files == 3
    deltalake.DeltaTable(folder).create_checkpoint()
    snapshot = compare(folder)
    assert list_segment(store_at(folder)).checkpoint is not None
    assert snapshot.num_files == 3


def test_the_life_of_a_table(folder: Path) -> None:
    data = pa.table({"id": list(range(10)), "p": [str(number % 3) for number in range(10)]})
    for step in range(3):
        deltalake.write_deltalake(folder, data, mode="append", partition_by=["p"], target_file_size=200 + step)
    table = deltalake.DeltaTable(folder)
    table.delete("id = 4")
    table.update({"id": "id + 100"}, predicate="p = '1'")
    before = compare(folder)
    table.create_checkpoint()
    assert list(compare(folder).add_files()) != []
    only = pa.table({"id": [1, 2], "p": ["2", "2"]})
    deltalake.write_deltalake(folder, only, mode="overwrite", predicate="p = '2'")
    deltalake.write_deltalake(folder, data.append_column("more", pa.array([1.5] * 10)), mode="append", schema_mode="merge")
    table = deltalake.DeltaTable(folder)
    table.optimize.compact()
    after = compare(folder)
    assert {each.path for each in removed_files(before)} <= {each.path for each in removed_files(after)}
    assert before.refresh(store_at(folder)).files.sort_by("path").equals(after.files.sort_by("path"))
    deltalake.write_deltalake(folder, data, mode="overwrite", schema_mode="overwrite")
    assert compare(folder).tombstones.num_rows > after.tombstones.num_rows
    info = commit_info(store_at(folder), 3)
    assert info is not None
    assert info.operation == "DELETE"


def test_special_characters_in_partitions(folder: Path) -> None:
    data = pa.table({"id": list(range(len(PARTITIONS))), "p": PARTITIONS, "q": pa.array([dt.date(2024, 1, 1)] * len(PARTITIONS))})
    deltalake.write_deltalake(folder, data, partition_by=["p", "q"])
    snapshot = compare(folder)
    assert {each.partition_values["p"] or None for each in snapshot.add_files()} == {each or None for each in PARTITIONS}
    table = deltalake.DeltaTable(folder)
    table.delete("id % 2 = 0")
    assert compare(folder).num_files == len(PARTITIONS) // 2
    table.create_checkpoint()
    assert compare(folder).num_files == len(PARTITIONS) // 2


def test_application_transactions(folder: Path) -> None:
    data = pa.table({"id": [1]})
    for version in (1, 2):
        properties = deltalake.CommitProperties(
            app_transactions=[deltalake.Transaction("app", version, 77), deltalake.Transaction(f"a{version}", 1)]
        )
        deltalake.write_deltalake(folder, data, mode="append", commit_properties=properties)
    deltalake.DeltaTable(folder).create_checkpoint()
    snapshot = compare(folder)
    assert {name: each.version for name, each in snapshot.app_transactions.items()} == {"app": 2, "a1": 1, "a2": 1}


def test_a_cleaned_log(folder: Path) -> None:
    data = pa.table({"id": [1]})
    configuration = {"delta.logRetentionDuration": "interval 0 days", "delta.enableExpiredLogCleanup": "true"}
    for _ in range(8):
        deltalake.write_deltalake(folder, data, mode="append", configuration=configuration)
    table = deltalake.DeltaTable(folder)
    table.create_checkpoint()
    table.cleanup_metadata()
    snapshot = compare(folder)
    assert snapshot.num_files == 8
    log = sorted(path.name for path in (folder / "_delta_log").iterdir())
    if commit_path(0).rpartition("/")[2] not in log:
        with pytest.raises(VersionNotFound, match="only version 7 is"):
            Snapshot.load(store_at(folder), version=0)


def test_every_line_of_a_foreign_log_is_kept_whole(folder: Path) -> None:
    data = pa.table({"id": [1, 2, 3], "p": ["a", "b", None]})
    deltalake.write_deltalake(folder, data, partition_by=["p"], configuration={"delta.appendOnly": "false"}, name="n", description="d")
    deltalake.DeltaTable(folder).delete("id = 1")
    store = store_at(folder)
    for version in (0, 1):
        lines = store.get(commit_path(version)).splitlines()
        for line in lines:
            assert without_nulls(json.loads(encode_all([decode(line)]))) == without_nulls(json.loads(line))


def without_nulls(line: dict[str, Any]) -> dict[str, Any]:
    return {name: {key: value for key, value in body.items() if value is not None} for name, body in line.items()}


# ------------------------------------------------------------------------------------------ what others see of ours


def rows_of(folder: Path) -> list[tuple[int, str | None]]:
    """The rows as deltalake and polars see them, which must be the same."""
    theirs = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(folder)).execute("SELECT id, p FROM t").read_all()
    found = sorted(zip(*(pa.table(theirs).column(name).to_pylist() for name in ("id", "p")), strict=True), key=str)
    frame = polars.read_delta(str(folder)).select("id", "p")
    assert sorted(frame.rows(), key=str) == found
    return found


def test_others_read_our_checkpoint(folder: Path) -> None:
    data = pa.table({"id": list(range(len(PARTITIONS))), "p": PARTITIONS})
    for _ in range(3):
        deltalake.write_deltalake(folder, data, mode="append", partition_by=["p"])
    deltalake.DeltaTable(folder).delete("id = 3")
    expected = rows_of(folder)
    store = store_at(folder)
    write_checkpoint(store, Snapshot.load(store))
    for version in range(3):
        store.delete(commit_path(version))
    # Without the commits everything they see comes from the checkpoint.
    assert rows_of(folder) == expected
    compare(folder)
    deltalake.write_deltalake(folder, data, mode="append")
    assert len(rows_of(folder)) == len(expected) + len(PARTITIONS)
    compare(folder)


def test_others_read_our_checkpoint_of_a_table_that_only_sluice_may_write(folder: Path) -> None:
    deltalake.write_deltalake(folder, pa.table({"id": [1, 2], "p": ["a", "b"]}), partition_by=["p"])
    store = store_at(folder)
    features = ("appendOnly", "domainMetadata", "inCommitTimestamp", "invariants", "sluice")
    guard = Protocol(1, 7, None, features)
    actions: list[Action] = [CommitInfo({"inCommitTimestamp": 2**41}), guard, Txn("app", 7), DomainMetadata("mine", '{"a":1}', False)]
    store.put(commit_path(1), encode_all(actions))
    write_checkpoint(store, Snapshot.load(store))
    store.delete(commit_path(0))
    table = deltalake.DeltaTable(folder)
    assert (table.version(), table.transaction_version("app")) == (1, 7)
    assert sorted(table.protocol().writer_features) == sorted(features)
    assert rows_of(folder) == [(1, "a"), (2, "b")]
    with pytest.raises(deltalake.exceptions.CommitFailedError):
        deltalake.write_deltalake(folder, pa.table({"id": [3], "p": ["c"]}), mode="append")


def test_a_foreign_checkpoint_of_ours_loses_nothing(folder: Path) -> None:
    deltalake.write_deltalake(folder, ALL_TYPES)
    store = store_at(folder)
    store.put(commit_path(1), encode_all([CommitInfo({}), Protocol(1, 7, None, ("domainMetadata", "sluice")), Txn("app", 7, 5)]))
    store.put(commit_path(2), encode_all([CommitInfo({}), DomainMetadata("mine", '{"a":1}', False)]))
    before = Snapshot.load(store)
    deltalake.DeltaTable(folder).create_checkpoint()
    for version in (0, 1):
        store.delete(commit_path(version))
    assert store.head(checkpoint_path(2)).size > 0
    after = Snapshot.load(store)
    assert (after.protocol, after.app_transactions, after.domains) == (before.protocol, before.app_transactions, before.domains)
    (one,), (other,) = before.add_files(), after.add_files()
    assert (one.path, one.size, one.partition_values) == (other.path, other.size, other.partition_values)
    assert json.loads(one.stats or "") == json.loads(other.stats or "")


def test_others_read_checkpoints_of_ours_that_share_their_files(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """polars reads no table with this feature."""
    for module in ("sidecars", "checkpoint_writer"):
        monkeypatch.setattr(f"sluice.storage.log.{module}.ROWS_MAX", 4)
    data = pa.table({"id": list(range(len(PARTITIONS))), "p": PARTITIONS})
    deltalake.write_deltalake(folder, data, mode="append", partition_by=["p"])
    store = store_at(folder)
    metadata = Snapshot.load(store).metadata
    policy = replace(metadata, configuration={"delta.checkpointPolicy": "v2"})
    store.put(commit_path(1), encode_all([CommitInfo({}), Protocol(3, 7, ("v2Checkpoint",), ("v2Checkpoint",)), policy]))
    for number in range(3):
        write_checkpoint(store, Snapshot.load(store))
        deltalake.write_deltalake(folder, data.slice(number, 2), mode="append")
    deltalake.DeltaTable(folder).delete("id = 3")
    write_checkpoint(store, Snapshot.load(store))
    latest = Snapshot.load(store).version
    for version in range(latest):
        store.delete(commit_path(version))
        store.delete(checkpoint_path(version))
    assert compare(folder).num_files == len(PARTITIONS) + 2 * 3 - 2
    found = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(folder)).execute("SELECT id FROM t").read_all()
    expected = sorted([*(each for each in range(len(PARTITIONS)) if each != 3), 0, 1, 1, 2, 2])
    assert sorted(pa.table(found).column("id").to_pylist()) == expected
