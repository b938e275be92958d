"""Tables of which rows were deleted by deletion vectors, read through Spark."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sluice
from sluice.coordinator.api import Change, Reads, submit
from sluice.storage.actions import Action, AddFile
from sluice.storage.actions.file_removals import removal
from sluice.storage.data.vectors import Rows, plan_vector, vector_key
from sluice.storage.schema.schema import from_arrow
from sluice.tables.client.open_table import open_coordinated
from tests.storage.strategies import rows_of

from ..conftest import Place, arrow, configured, is_native

pytestmark = pytest.mark.spark

PER_FILE = 5_000
SCHEMA = pa.schema([("id", pa.int64()), ("n", pa.int32()), ("sluice_row", pa.string()), ("_metadata", pa.string())])
"""With names that the scan could take for its own."""


def rows(first: int, last: int) -> pa.Table:
    made = [{"id": i, "n": i % 2, "sluice_row": f"row {i}", "_metadata": None if i % 3 else str(i)} for i in range(first, last)]
    return pa.Table.from_pylist(made, schema=SCHEMA)


def delete_positions(place: Place, chosen: Callable[[int, AddFile], Iterable[int]]) -> list[str]:
    """Delete rows by vectors: of each file those at the given positions; returns the storage types of the vectors."""
    access = open_coordinated(place.table().access.address)
    snapshot = access.latest()
    transaction_id = str(uuid.uuid4())
    actions: list[Action] = []
    kinds: list[str] = []
    for number, add in enumerate(sorted(snapshot.add_files(), key=lambda each: each.path)):
        gone = Rows(chosen(number, add))
        if not gone:
            continue
        vector, stored = plan_vector(gone, owner=transaction_id)
        if stored is not None:
            access.store.put(*stored)
        actions += [removal(add, 0), replace(add, deletion_vector=vector)]
        kinds.append(vector.storage_type)
    submit(access, Change(transaction_id, "DELETE", snapshot, actions, reads=Reads()))
    return kinds


def some(number: int, _add: AddFile | None = None) -> Sequence[int]:
    """Of files in turn: nothing; few rows, at the edges of what lies together; many; all."""
    few = [0, 62, 63, 64, 65, 127, 128, PER_FILE - 1]
    many = random.Random(number).sample(range(PER_FILE), PER_FILE // 3)
    return [(), few, many, range(PER_FILE)][number % 4]


@pytest.fixture
def mended(place: Place, request: pytest.FixtureRequest) -> Place:
    """A table of eight files, rows of six deleted."""
    by: tuple[str, ...] = getattr(request, "param", ())
    table = place.create(SCHEMA, partition_by=by, properties={"delta.enableDeletionVectors": "true"})
    step = PER_FILE * (len(by) + 1)
    for first in range(0, 8 * PER_FILE, step):
        table.append(rows(first, first + step))
    assert set(delete_positions(place, some)) == {"i", "u"}
    return place


READS: list[tuple[list[str] | None, str | None]] = [
    (None, None),
    (["_metadata"], None),
    (["sluice_row", "ID"], "n = 1 AND id > 12000"),
    (["id"], "id IN (0, 63, 64, 5000, 5063, 5064, 10064, 30000)"),
    (["n"], "id < 100 OR id > 39990"),
]


@pytest.mark.costly
@pytest.mark.parametrize(
    "mended", [pytest.param((), id="plain"), pytest.param(("n",), id="partitioned", marks=pytest.mark.long)], indirect=True
)
def test_spark_reads_the_rows_that_live(mended: Place) -> None:
    for columns, where in READS:
        expected = mended.table().snapshot().to_arrow(columns, where)
        scanned = mended.scan(columns=columns, where=where)
        assert is_native(scanned)
        assert rows_of(arrow(scanned, from_arrow(expected.schema))) == rows_of(expected), (columns, where)
        loaded = mended.load() if where is None else mended.load(where=where)
        loaded = loaded if columns is None else loaded.select(columns)
        assert rows_of(arrow(loaded, from_arrow(expected.schema))) == rows_of(expected), (columns, where)
    deleted = sum(len(some(number)) for number in range(8))
    assert mended.table().snapshot().to_arrow().num_rows == 8 * PER_FILE - deleted
    assert mended.scan().count() == mended.load().count() == 8 * PER_FILE - deleted
    assert mended.scan(version=mended.table().version - 1).count() == 8 * PER_FILE


def test_filters_reach_the_files_with_vectors(mended: Place) -> None:
    scanned = mended.scan().where("id = 5062")
    plan: Any = scanned._jdf
    assert "PushedFilters: [IsNotNull(id), EqualTo(id,5062)]" in plan.queryExecution().executedPlan().toString()
    assert [row["sluice_row"] for row in scanned.collect()] == ([] if 5062 not in ids(mended) else ["row 5062"])


def ids(place: Place) -> set[int]:
    return set(place.table().snapshot().to_arrow(["id"])["id"].to_pylist())


@pytest.mark.long
def test_row_groups_keep_their_positions(place: Place) -> None:
    """A file of several row groups, of which Spark skips some, and reads others in splits of their own."""
    table = place.create(pa.schema([("id", pa.int64()), ("text", pa.string())]), properties={"delta.enableDeletionVectors": "true"})
    count = 300_000
    numbers = range(count)
    texts = [f"{i * 7919:020}" for i in numbers]
    table.append(pa.table({"id": pa.array(numbers, pa.int64()), "text": texts}))
    gone = set(range(0, count, 1_000)) | set(range(150_000, 160_000)) | {count - 1}
    assert delete_positions(place, lambda *_: gone) == ["u"]
    with configured(place.spark, {"spark.sql.files.maxPartitionBytes": "1m"}):
        scanned = place.scan()
        assert is_native(scanned)
        assert scanned.rdd.getNumPartitions() > 1
        assert {row["id"] for row in scanned.select("id").collect()} == set(numbers) - gone
        assert [row["id"] for row in place.scan(where="id >= 298990 AND id < 299002").sort("id").collect()] == [
            i for i in range(298_990, 299_002) if i != 299_000
        ]


def test_a_missing_vector_is_named(mended: Place) -> None:
    vectors = [add.deletion_vector for add in mended.table().snapshot().raw.add_files() if add.deletion_vector is not None]
    [gone, *_] = [key for each in vectors if (key := vector_key(each))]
    (Path(mended.location) / gone).unlink()
    with pytest.raises(sluice.errors.MissingObject, match=Path(gone).name):
        mended.scan().collect()


@pytest.mark.costly
@pytest.mark.parametrize("setting", ["spark.sql.codegen.wholeStage", "spark.sql.parquet.enableVectorizedReader"])
def test_rows_are_looked_up_without_generated_code_and_row_by_row(mended: Place, setting: str) -> None:
    with configured(mended.spark, {setting: "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}):
        assert {row["id"] for row in mended.scan().select("id").collect()} == ids(mended)
