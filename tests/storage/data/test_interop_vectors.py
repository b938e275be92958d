"""Deletion vectors that sluice wrote, read by others; checkpoints on the way lose none."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from sluice.storage.actions import Action, CommitInfo, DeletionVector, Metadata, RemoveFile, encode_all
from sluice.storage.actions.features import new_protocol
from sluice.storage.actions.records import wide
from sluice.storage.data.datafiles import FileFormat, write_files
from sluice.storage.data.vectors import Rows, plan_vector, vector_key
from sluice.storage.log.checkpoint_writer import write_checkpoint
from sluice.storage.log.paths import commit_path
from sluice.storage.log.snapshot import Snapshot
from sluice.storage.pruning.predicate import Predicate
from sluice.storage.schema.schema import PrimitiveType, StructField, StructType, schema_to_json
from sluice.storage.stores.local import LocalStore
from tests.storage.data.reading import read_files

deltalake = pytest.importorskip("deltalake")
polars = pytest.importorskip("polars")

SCHEMA = StructType([StructField("x", PrimitiveType("long")), StructField("p", PrimitiveType("string"))])
COUNT = 30_000
OWNER = str(uuid.UUID(int=2**127 + 5))
ENABLED = {"delta.enableDeletionVectors": "true"}
# What is hidden in the files of the partitions a, b, ...: as single rows, as runs, over several containers, and nothing.
HIDDEN = {"a": Rows([0, 3, 29_999]), "b": Rows([1, 2]), "c": Rows(range(0, COUNT, 3)), "d": Rows(range(100, COUNT)), "e": Rows()}


class Table:
    """A table of one file a partition, written action by action."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = str(folder)
        self.store = LocalStore(folder.as_uri())
        names = [name for name in HIDDEN for _ in range(COUNT)]
        data = pa.table({"x": pa.array(list(range(COUNT)) * len(HIDDEN), pa.int64()), "p": names})
        adds = write_files(self.store, [data], FileFormat(SCHEMA, ("p",)), transaction_id=OWNER)
        self.adds = {str(add.partition_values["p"]): add for add in adds}
        metadata = Metadata(str(uuid.uuid4()), schema_to_json(SCHEMA), ("p",), ENABLED)
        start: list[Action] = [CommitInfo({"inCommitTimestamp": 1}), new_protocol(SCHEMA, ENABLED), metadata]
        self.store.put(commit_path(0), encode_all([*start, *adds]))

    def hide(self, version: int, hidden: dict[str, Rows]) -> None:
        """A commit that gives files new deletion vectors."""
        actions: list[Action] = [CommitInfo({"inCommitTimestamp": version + 1})]
        for name, rows in hidden.items():
            add = self.adds[name]
            vector, stored = plan_vector(rows, owner=OWNER)
            if stored is not None:
                self.store.put(*stored)
            actions.append(RemoveFile(add.path, True, 2**41, True, add.partition_values, add.size, deletion_vector=add.deletion_vector))
            self.adds[name] = replace(add, deletion_vector=vector, stats=wide(add.stats))
            actions.append(self.adds[name])
        self.store.put(commit_path(version), encode_all(actions))

    def vectors(self) -> dict[str, DeletionVector | None]:
        """The vectors that a fresh look at the log shows."""
        return {str(add.partition_values["p"]): add.deletion_vector for add in Snapshot.load(self.store).add_files()}


def by_sluice(table: Table, bound: int) -> list[tuple[str, int]]:
    where = Predicate.parse(f"x >= {bound}", SCHEMA)
    files = Snapshot.load(table.store).files
    found = read_files(table.store, files, schema=SCHEMA, partition_columns=["p"], predicate=where)
    return sorted((row["p"], row["x"]) for row in found.to_pylist())


def by_deltalake(table: Table, bound: int) -> list[tuple[str, int]]:
    query = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(table.folder))
    found = pa.table(query.execute(f"SELECT p, x FROM t WHERE x >= {bound}"))
    return sorted((row["p"], row["x"]) for row in found.to_pylist())


def by_polars(table: Table, bound: int) -> list[tuple[str, int]]:
    return sorted(polars.scan_delta(table.folder).filter(polars.col("x") >= bound).select("p", "x").collect().rows())


READERS = [by_sluice, by_deltalake, by_polars]


def left(bound: int, hidden: dict[str, Rows]) -> list[tuple[str, int]]:
    return sorted((name, number) for name, rows in hidden.items() for number in range(bound, COUNT) if number not in rows)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    made = Table(tmp_path / "table")
    made.hide(1, {name: rows for name, rows in HIDDEN.items() if rows})
    return made


def test_the_vectors_are_of_every_kind(table: Table) -> None:
    found = [vector for vector in table.vectors().values() if vector is not None]
    assert {vector.storage_type for vector in found} == {"i", "u"}
    # Inline text comes in groups of four bytes: with and without bytes to fill the last one up.
    assert {vector.size_in_bytes % 4 for vector in found if vector.storage_type == "i"} == {0, 2, 3}
    keys = [vector_key(vector) for vector in found if vector.storage_type == "u"]
    assert keys == [info.key for info in table.store.list_from(f"{OWNER}/")]


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("bound", [0, 29_000])
def test_everybody_sees_the_rows_that_are_left(table: Table, reader: Callable[[Table, int], list[tuple[str, int]]], bound: int) -> None:
    assert reader(table, bound) == left(bound, HIDDEN)


@pytest.mark.parametrize("reader", READERS)
def test_a_file_whose_vector_grows_is_seen_with_the_newest(table: Table, reader: Callable[[Table, int], list[tuple[str, int]]]) -> None:
    grown = HIDDEN | {"a": HIDDEN["a"] | Rows(range(0, 20_000, 7)), "b": Rows([1, 2, 4]), "e": Rows([COUNT - 1])}
    table.hide(2, {name: grown[name] for name in "abe"})
    assert reader(table, 0) == left(0, grown)


@pytest.mark.parametrize("writer", ["sluice", "deltalake"])
@pytest.mark.parametrize("reader", READERS)
def test_a_checkpoint_keeps_them(table: Table, reader: Callable[[Table, int], list[tuple[str, int]]], writer: str) -> None:
    before = table.vectors()
    if writer == "sluice":
        write_checkpoint(table.store, Snapshot.load(table.store))
    else:
        deltalake.DeltaTable(table.folder).create_checkpoint()
    for version in (0, 1):
        table.store.delete(commit_path(version))
    assert table.vectors() == before
    assert reader(table, 0) == left(0, HIDDEN)
