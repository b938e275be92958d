"""How often Spark's processes read a table's list of files: never for an append, once for a read."""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import LongType
from pyspark.sql.types import StructType as SparkStruct

import sluice
from sluice.spark_integration.data_source.reader import SluiceReader
from sluice.spark_integration.data_source.source import SluiceDataSource
from sluice.spark_integration.data_source.writer import SluiceWriter
from sluice.storage.errors import CorruptLogFile
from sluice.storage.log.checkpoint_part import CheckpointPart

from ..conftest import Place

NUMBERS = pa.schema([("id", pa.int64())])
SCHEMA = SparkStruct().add("id", LongType())


def table_with_checkpoint(create: Callable[..., sluice.Table]) -> sluice.Table:
    table = create(NUMBERS)
    for number in range(3):
        table.append(pa.table({"id": [number]}))
    table.checkpoint()
    table.append(pa.table({"id": [3]}))
    return table


@pytest.fixture
def lists_read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The columns with files that were read of checkpoints."""
    read: list[str] = []
    files = CheckpointPart.files

    def counting(part: CheckpointPart, column: Any) -> list[pa.RecordBatch]:
        read.append(column)
        return files(part, column)

    monkeypatch.setattr(CheckpointPart, "files", counting)
    return read


@pytest.fixture
def source(tmp_path: Path) -> SluiceDataSource:
    """What Spark makes in each of its processes; here they are all this one, with pickles between them."""
    location, coordinator = str(tmp_path / "numbers"), f"memory://{uuid.uuid4().hex}"
    table_with_checkpoint(lambda schema: sluice.Table.create(location, schema, coordinator=coordinator))
    return SluiceDataSource({"path": location, "coordinator": coordinator})


def test_an_append_never_reads_the_list(source: SluiceDataSource, lists_read: list[str]) -> None:
    writer = source.writer(SCHEMA, overwrite=False)
    in_task: SluiceWriter = pickle.loads(pickle.dumps(writer))
    written = in_task.write(iter([pa.record_batch({"id": [4, 5]})]))
    at_commit: SluiceWriter = pickle.loads(pickle.dumps(writer))
    at_commit.commit([pickle.loads(pickle.dumps(written))])
    assert lists_read == []
    table = sluice.Table.open(source.options["path"], coordinator=source.options["coordinator"])
    assert sorted(table.snapshot().to_arrow()["id"].to_pylist()) == [0, 1, 2, 3, 4, 5]
    assert lists_read == ["add"]


def test_a_read_reads_the_list_once(source: SluiceDataSource, lists_read: list[str]) -> None:
    assert source.schema() == SCHEMA
    reader: SluiceReader = pickle.loads(pickle.dumps(source)).reader(SCHEMA)
    assert lists_read == []
    partitions = reader.partitions()
    assert lists_read == ["add"]
    rows = [row for part in partitions for batch in pickle.loads(pickle.dumps(reader)).read(part) for row in batch["id"].to_pylist()]
    assert (sorted(rows), lists_read) == ([0, 1, 2, 3], ["add"])


def test_the_driver_leaves_the_list_to_the_data_source(place: Place, lists_read: list[str]) -> None:
    """A condition that speaks of times is for the data source, where the session is not in UTC."""
    times = pa.schema([("at", pa.timestamp("us", tz="UTC"))])
    place.create(times).append(pa.table({"at": [1_000_000, 2_000_000]}, schema=times))
    place.table().checkpoint()
    lists_read.clear()
    frame = place.scan(where="CAST(at AS DATE) >= DATE '1970-01-01'")
    assert lists_read == []
    assert frame.count() == 2
    assert place.scan().count() == 2
    assert lists_read == ["add"]


@pytest.mark.costly
def test_spark_appends_without_the_list(place: Place) -> None:
    """Real processes: the paths in the checkpoint are destroyed, which nobody notices who does not read them."""
    table_with_checkpoint(place.create)
    place.table().close()
    checkpoint = next(Path(place.location).glob("_delta_log/*.checkpoint.parquet"))
    data = checkpoint.read_bytes()
    with pq.ParquetFile(checkpoint) as file:
        group = file.metadata.row_group(1)
        end = next(
            column.data_page_offset + column.total_compressed_size
            for column in map(group.column, range(group.num_columns))
            if column.path_in_schema == "add.path"
        )
    checkpoint.write_bytes(data[: end - 20] + b"\xff" * 20 + data[end:])
    place.write(place.spark.createDataFrame([(4,)], "id long"))
    assert place.table().refresh().snapshot().version == 5
    with pytest.raises(CorruptLogFile, match=checkpoint.name):
        place.rows()
    checkpoint.write_bytes(data)
    assert sorted(row["id"] for row in place.rows()) == [0, 1, 2, 3, 4]
