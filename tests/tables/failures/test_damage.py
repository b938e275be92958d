"""Tables that were damaged, or written past the coordinator: told by name, never skipped, and nothing is made worse."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

import sluice
from sluice.storage.log.paths import checkpoint_path, commit_path
from tests.tables.conftest import Place, Refused, flights, rows_of

Way = Callable[[], object]


@pytest.fixture
def table(place: Place) -> sluice.Table:
    """A table of four versions: a row of JFK, of EWR and of LGA, each in a commit of its own."""
    table = place.create()
    for number, origin in enumerate(("JFK", "EWR", "LGA")):
        table.append(flights((origin, 1, number)))
    return table


def log_file(place: Place, version: int) -> Path:
    return Path(place.location) / commit_path(version)


def readers(place: Place) -> list[Way]:
    return [place.open, lambda: place.open(consistency="published")]


# -- the log -------------------------------------------------------------------------------------------------------------


def truncated(data: bytes) -> bytes:
    return data[: len(data) - len(data) // 4]


def emptied(data: bytes) -> bytes:
    return b""


def garbled(data: bytes) -> bytes:
    first, _, rest = data.partition(b"\n")
    return first + b"\n\x00\xff" + rest[2:]


def with_a_strange_field(data: bytes) -> bytes:
    return data.replace(b'"size":', b'"size":-"",', 1)


@pytest.mark.parametrize("damage", [truncated, emptied, garbled, with_a_strange_field])
@pytest.mark.parametrize("version", [1, 3])
def test_a_damaged_log_file_is_named_and_never_skipped(
    place: Place, table: sluice.Table, refused: Refused, version: int, damage: Callable[[bytes], bytes]
) -> None:
    path = log_file(place, version)
    path.write_bytes(damage(path.read_bytes()))
    for way in readers(place):
        with refused(sluice.errors.CorruptLogFile, commit_path(version), "restore it from a copy, do not delete it") as caught:
            way()
        assert caught.value.file == commit_path(version)


def test_a_damaged_log_file_met_by_a_table_that_is_open(place: Place, table: sluice.Table, refused: Refused) -> None:
    published, other = place.open(consistency="published"), place.open()
    table.append(flights(("JFK", 2, 9)))
    log_file(place, 4).write_bytes(truncated(log_file(place, 4).read_bytes()))
    ways: list[Way] = [
        published.refresh,
        other.refresh,
        lambda: other.snapshot(version=4),
        lambda: other.delete("month = 1"),
        lambda: other.overwrite(flights(("JFK", 1, 1))),
    ]
    for way in ways:
        with refused(sluice.errors.CorruptLogFile, commit_path(4), "restore it from a copy"):
            way()
    assert other.snapshot(version=3).to_arrow().num_rows == 3


def test_a_damaged_checkpoint(place: Place, table: sluice.Table, refused: Refused) -> None:
    table.checkpoint()
    path = Path(place.location) / checkpoint_path(3)
    path.write_bytes(truncated(path.read_bytes()))
    for way in readers(place):
        with refused(sluice.errors.CorruptLogFile, checkpoint_path(3), "restore it from a copy"):
            way()


@pytest.mark.parametrize(("version", "words"), [(2, [commit_path(2), "restore it from a copy"]), (3, ["restore the file"])])
def test_a_version_missing_from_the_log(place: Place, table: sluice.Table, refused: Refused, version: int, words: list[str]) -> None:
    """One in the middle, and a published one at the end, of which only the coordinator knows."""
    log_file(place, version).unlink()
    for way in readers(place)[: 2 if version == 2 else 1]:
        with refused(sluice.errors.LogGap, f"version {version}", place.location, *words):
            way()


# -- data files ----------------------------------------------------------------------------------------------------------


def test_a_missing_data_file_is_named_with_the_version_that_needs_it(place: Place, refused: Refused) -> None:
    table = place.create(partition_by=[])
    table.append(flights(("JFK", 1, 1), ("JFK", 2, 2)))
    [path] = Path(place.location).glob("*.parquet")
    path.unlink()
    ways: list[Way] = [
        lambda: table.snapshot().to_arrow(),
        lambda: list(table.snapshot().to_batches()),
        lambda: table.snapshot().to_arrow(columns=["delay"], where="month = 1"),
        lambda: place.open(consistency="published").snapshot().to_arrow(),
        lambda: table.delete("month = 1"),
    ]
    for way in ways:
        with refused(sluice.errors.MissingObject, path.name, "of version 1", place.location, "restore it"):
            way()
    # its rows were staged before the others were looked at: garbage, but no version
    with pytest.raises(sluice.errors.MissingObject, match=f"{path.name}.*of version 1.*restore it"):
        table.overwrite(flights(("EWR", 1, 1)), where="month = 1")
    assert table.refresh().version == 1
    # what need not read the file goes on
    assert table.snapshot().to_arrow(where="month = 5").num_rows == 0
    assert table.append(flights(("LGA", 3, 3))) is not None
    assert table.delete("month > 0") is not None


def test_a_damaged_data_file(place: Place, table: sluice.Table, refused: Refused) -> None:
    [path] = Path(place.location).glob("origin=EWR/month=1/*.parquet")
    path.write_bytes(truncated(path.read_bytes()))
    with refused(sluice.errors.Corrupt, path.name, "restore it from a copy"):
        table.snapshot().to_arrow()
    assert rows_of(table.snapshot().to_arrow(where="origin <> 'EWR'")) == [("JFK", 1, 0), ("LGA", 1, 2)]


# -- written past the coordinator ----------------------------------------------------------------------------------------


@pytest.fixture
def attached(place: Place) -> sluice.Table:
    """A table of deltalake's, attached: version 0 is its, version 1 ours."""
    deltalake.write_deltalake(place.location, flights(("JFK", 1, 1)), partition_by=["origin", "month"])
    return sluice.Table.attach(place.location, coordinator=place.coordinator)


def write_past_the_coordinator(place: Place, version: int, *, in_commit_timestamp: bool = False) -> bytes:
    """What an engine would do that does not know the protocol's writer features, or just ours."""
    info = {"operation": "WRITE", "engineInfo": "stranger", "timestamp": 1} | ({"inCommitTimestamp": 2**42} if in_commit_timestamp else {})
    content = json.dumps({"commitInfo": info}).encode() + b"\n"
    log_file(place, version).write_bytes(content)
    return content


@pytest.mark.parametrize("knowing", [True, False])
def test_a_foreign_commit_made_while_nobody_had_the_table_open(
    place: Place, attached: sluice.Table, refused: Refused, knowing: bool
) -> None:
    attached.append(flights(("EWR", 1, 1)))
    attached.close()
    write_past_the_coordinator(place, 3, in_commit_timestamp=knowing)
    words = ("version 3", place.location, "stop that writer", "move the log's files")
    with refused(sluice.errors.ForeignCommit, *words) as caught:
        place.open()
    assert caught.value.version == 3
    with (
        refused(sluice.errors.ForeignCommit, *words)
        if knowing
        else refused(sluice.errors.CorruptLogFile, commit_path(3), "stop that engine")
    ):
        sluice.Table.attach(place.location, coordinator=place.coordinator)


def test_a_foreign_commit_met_when_the_next_version_is_published(place: Place, attached: sluice.Table) -> None:
    """All writers hear of it, and no client has replaced the file or written after it; then all that is ratified is published."""
    other = place.open()
    foreign = write_past_the_coordinator(place, 2)
    for writer, origin in ((attached, "EWR"), (other, "LGA")):
        with pytest.raises(sluice.errors.ForeignCommit, match=rf"{commit_path(2)} in .*/flights was written by a program") as caught:
            writer.append(flights((origin, 1, 1)))
        assert caught.value.version == 2
        assert "stop that writer" in str(caught.value)
        assert "to another place" in str(caught.value)
    assert log_file(place, 2).read_bytes() == foreign
    assert not log_file(place, 3).exists()
    log_file(place, 2).rename(Path(place.location) / "taken-away.json")
    assert place.open().append(flights(("EWR", 2, 2))) is not None
    expected = [("EWR", 1, 1), ("EWR", 2, 2), ("JFK", 1, 1), ("LGA", 1, 1)]
    assert rows_of(place.open().snapshot().to_arrow()) == expected
    assert rows_of(deltalake.DeltaTable(place.location).to_pyarrow_table().select(["origin", "month", "delay"])) == expected


@pytest.mark.parametrize("knowing", [True, False])
def test_a_foreign_commit_is_not_read_by_a_table_that_is_open(place: Place, attached: sluice.Table, knowing: bool) -> None:
    write_past_the_coordinator(place, 2, in_commit_timestamp=knowing)
    with pytest.raises(sluice.errors.VersionNotFound, match="the latest version is 1"):
        attached.snapshot(version=2)
    assert attached.refresh().version == 1
    assert [entry.version for entry in attached.history()] == [1, 0]


def test_a_folder_that_was_replaced_by_another_table(place: Place, table: sluice.Table, refused: Refused) -> None:
    other = Place(place.location + "-other", place.coordinator)
    other.create().append(flights(("EWR", 1, 1)))
    shutil.rmtree(place.location)
    Path(other.location).rename(place.location)
    with refused(sluice.errors.ForeignCommit, place.location, "belongs to another table", "restore it, or use another location"):
        place.open()


def test_a_log_that_vanished(place: Place, table: sluice.Table, refused: Refused) -> None:
    shutil.rmtree(Path(place.location) / "_delta_log")
    with refused(
        sluice.errors.LogGap,
        place.location,
        "version 3",
        "its log is gone",
        "restore the log from a copy, or let go of the table: sluice forget",
    ):
        place.open()
    with refused(
        sluice.errors.InvalidRequest, place.location, "version 3", "Restore the log; or let go of that table first: sluice forget"
    ):
        place.create()
    shutil.rmtree(place.location)
    with refused(sluice.errors.LogGap, place.location, "version 3", "its log is gone"):
        place.open()
    with refused(sluice.errors.TableNotFound, place.location):
        place.open(consistency="published")


# -- features ------------------------------------------------------------------------------------------------------------


def make_foreign(place: Place, protocol: dict[str, Any], configuration: dict[str, str] | None = None) -> None:
    """A Delta table of one commit with this protocol."""
    schema = {"type": "struct", "fields": [{"name": "a", "type": "long", "nullable": True, "metadata": {"delta.identity.start": 1}}]}
    metadata = {
        "id": "t",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(schema),
        "partitionColumns": [],
        "configuration": configuration or {},
    }
    log_file(place, 0).parent.mkdir(parents=True)
    log_file(place, 0).write_text("".join(json.dumps(action) + "\n" for action in ({"protocol": protocol}, {"metaData": metadata})))


@pytest.mark.parametrize(
    ("protocol", "named"),
    [
        (
            {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["variantShredding"], "writerFeatures": ["variantShredding"]},
            "variantShredding",
        ),
        ({"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["fromTheFuture"], "writerFeatures": ["fromTheFuture"]}, "fromT"),
        ({"minReaderVersion": 4, "minWriterVersion": 7, "writerFeatures": []}, "reader version 4"),
    ],
)
def test_a_table_that_needs_a_feature_to_be_read(place: Place, refused: Refused, protocol: dict[str, Any], named: str) -> None:
    make_foreign(place, protocol)
    ways: list[Way] = [*readers(place), lambda: sluice.Table.attach(place.location, coordinator=place.coordinator)]
    for way in ways:
        with refused(sluice.errors.UnsupportedFeature, "reading this table needs", named, "use an engine that does") as caught:
            way()
        assert caught.value.access == "read"


@pytest.mark.parametrize(
    ("protocol", "named"),
    [
        ({"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["somethingNew", "appendOnly"]}, "needs somethingNew,"),
        ({"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["fromTheFuture"]}, "fromTheFuture"),
        ({"minReaderVersion": 1, "minWriterVersion": 8}, "writer version 8"),
    ],
)
def test_a_table_that_needs_a_feature_to_be_written_can_be_read(
    place: Place, refused: Refused, protocol: dict[str, Any], named: str
) -> None:
    make_foreign(place, protocol)
    with refused(sluice.errors.UnsupportedFeature, "writing this table needs", named, "use an engine that does") as caught:
        sluice.Table.attach(place.location, coordinator=place.coordinator)
    assert caught.value.access == "write"
    assert place.open(consistency="published").snapshot().to_arrow() == pa.table({"a": pa.array([], pa.int64())})


def test_a_table_with_an_isolation_level_that_sluice_lacks_is_not_attached(place: Place, refused: Refused) -> None:
    make_foreign(place, {"minReaderVersion": 1, "minWriterVersion": 2}, {"delta.isolationLevel": "ReadCommitted"})
    with refused(sluice.errors.InvalidRequest, "'ReadCommitted'", "Serializable, WriteSerializable, SnapshotIsolation"):
        sluice.Table.attach(place.location, coordinator=place.coordinator)
