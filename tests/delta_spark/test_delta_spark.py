"""Delta Lake on Spark reads what sluice wrote, refuses to write it, and takes it over where it was given back."""

from __future__ import annotations

from collections import Counter
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sluice

from .engine import Delta, DeltaError, DuckDB

pytestmark = [pytest.mark.delta_spark, pytest.mark.timeout(600)]

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("p", pa.string()),
        pa.field("v", pa.float64()),
        pa.field("day", pa.date32()),
        pa.field("at", pa.timestamp("us", "UTC")),
        pa.field("price", pa.decimal128(10, 2)),
        pa.field("many", pa.list_(pa.int32())),
        pa.field("inner", pa.struct([pa.field("a", pa.int32())])),
    ]
)
PROPERTIES: dict[str, dict[str, str]] = {
    "plain": {},
    "vectors": {"delta.enableDeletionVectors": "true"},
    "changes": {"delta.enableDeletionVectors": "true", "delta.enableChangeDataFeed": "true"},
    "tracked": {"delta.enableDeletionVectors": "true", "delta.enableRowTracking": "true"},
}
SIMPLE = ("id", "p", "v", "day", "price", "many", "inner")
"""The columns whose values both sides print alike; `at` is compared as a time."""


def rows(first: int, last: int) -> pa.Table:
    """Rows `first` to `last` - 1, with nulls, and partition values that need escaping."""
    start = datetime(2020, 1, 1, tzinfo=timezone.utc)
    return pa.table(
        {
            "id": list(range(first, last)),
            "p": [None if i % 11 == 0 else f"x={i % 3}/ä" for i in range(first, last)],
            "v": [i / 4 for i in range(first, last)],
            "day": [date(2020, 1, 1 + i % 28) for i in range(first, last)],
            "at": [start + timedelta(minutes=i, microseconds=i) for i in range(first, last)],
            "price": [Decimal(i).scaleb(-2) for i in range(first, last)],
            "many": [[i, None] for i in range(first, last)],
            "inner": [{"a": i} if i % 5 else None for i in range(first, last)],
        },
        schema=SCHEMA,
    )


def plain(value: Any) -> Any:
    """A value as JSON has it, numbers and times made comparable; None stands for what is missing."""
    if isinstance(value, dict):
        return tuple(sorted((name, plain(v)) for name, v in value.items() if v is not None))
    if isinstance(value, list):
        return tuple(plain(v) for v in value)
    if isinstance(value, Decimal):
        return float(value)
    return value.isoformat() if isinstance(value, date) and not isinstance(value, datetime) else value


def of_sluice(table: pa.Table, *more: str) -> Counter[Any]:
    return Counter(_key(row, row["at"], more) for row in table.to_pylist())


def of_delta(found: list[dict[str, Any]], *more: str) -> Counter[Any]:
    return Counter(_key(row, datetime.fromisoformat(row["at"].replace("Z", "+00:00")), more) for row in found)


def _key(row: dict[str, Any], at: datetime, more: tuple[str, ...]) -> tuple[Any, ...]:
    return (at, *(plain(row.get(name)) for name in (*SIMPLE, *more)))


@pytest.fixture(params=PROPERTIES)
def table(request: pytest.FixtureRequest, tmp_path: Path, zookeeper_address: str) -> sluice.Table:
    """A table that went through everything, with a checkpoint on the way."""
    properties = {**PROPERTIES[request.param], "delta.checkpointInterval": "7"}
    made = sluice.Table.create(tmp_path / "t", SCHEMA, partition_by=["p"], properties=properties, coordinator=zookeeper_address)
    for first in range(0, 200, 40):
        made.append(rows(first, first + 40))
    made.delete("id % 7 = 3")
    made.update({"v": "v + 1"}, "id % 5 = 2")
    made.compact()
    made.delete("id = 100 OR id > 180 AND p IS NULL")
    made.upsert(rows(190, 210), on="id")
    made.delete("p = 'x=1/ä' AND id < 50")
    return made


def test_it_reads_every_version_and_duckdb_does(table: sluice.Table, delta: Delta, duckdb: DuckDB) -> None:
    newest = table.snapshot().version
    for version in range(1, newest + 1):
        ours = of_sluice(table.snapshot(version).to_arrow())
        assert of_delta(delta.read(table.location, versionAsOf=version)) == ours, f"version {version}"
        assert of_sluice(duckdb.read(table.location, version)) == ours, f"version {version}, DuckDB"
    assert of_delta(delta.read(table.location)) == of_sluice(table.snapshot().to_arrow())


def test_it_finds_versions_by_their_times(table: sluice.Table, delta: Delta) -> None:
    for entry in table.history(6):
        at = datetime.fromtimestamp(entry.timestamp / 1000, timezone.utc).strftime("%Y-%m-%d %H:%M:%S.%f")
        assert of_delta(delta.read(table.location, timestampAsOf=at)) == of_sluice(table.snapshot(entry.version).to_arrow())


def test_its_history_tells_the_operations(table: sluice.Table, delta: Delta) -> None:
    theirs = delta.sql(f"DESCRIBE HISTORY delta.`{table.location}`")
    assert {row["version"]: row["operation"] for row in theirs} == {entry.version: entry.operation for entry in table.history(None)}


def test_it_reads_the_change_feed(tmp_path: Path, zookeeper_address: str, delta: Delta) -> None:
    location, properties = tmp_path / "t", PROPERTIES["changes"]
    made = sluice.Table.create(location, SCHEMA, partition_by=["p"], properties=properties, coordinator=zookeeper_address)
    made.append(rows(0, 40))
    made.delete("id % 7 = 3")
    made.update({"v": "v + 1", "p": "'elsewhere'"}, "id % 5 = 2")
    made.compact()
    made.upsert(rows(30, 50), on="id")
    made.truncate("p = 'elsewhere'")
    told = ("_change_type", "_commit_version")
    theirs = delta.read(str(location), readChangeFeed="true", startingVersion=1)
    assert of_delta(theirs, *told) == of_sluice(made.changes(after=0), *told)
    assert {row["_change_type"] for row in theirs} == {"insert", "delete", "update_preimage", "update_postimage"}


def test_it_reads_a_table_with_more_columns_than_its_older_files(tmp_path: Path, zookeeper_address: str, delta: Delta) -> None:
    made = sluice.Table.create(tmp_path / "t", SCHEMA, partition_by=["p"], coordinator=zookeeper_address)
    made.append(rows(0, 10))
    wider = rows(10, 20).append_column("more", pa.array([f"m{i}" for i in range(10)]))
    made.append(wider, merge_schema=True)
    theirs = delta.read(made.location)
    assert of_delta(theirs, "more") == of_sluice(made.refresh().snapshot().to_arrow(), "more")


def test_one_half_of_a_transaction_over_two_tables_is_a_version_like_others(tmp_path: Path, zookeeper_address: str, delta: Delta) -> None:
    both = [sluice.Table.create(tmp_path / name, SCHEMA, partition_by=["p"], coordinator=zookeeper_address) for name in ("a", "b")]
    with sluice.transaction(zookeeper_address) as transaction:
        for number, each in enumerate(both):
            transaction.part(each).append(rows(10 * number, 10 * number + 10))
    for number, each in enumerate(both):
        assert sorted(row["id"] for row in delta.read(each.location)) == list(range(10 * number, 10 * number + 10))


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM {} WHERE id = 1",
        "UPDATE {} SET v = 0 WHERE id = 1",
        "INSERT INTO {} SELECT * FROM {} LIMIT 1",
        "OPTIMIZE {}",
        "VACUUM {}",
        "ALTER TABLE {} SET TBLPROPERTIES ('a' = 'b')",
    ],
)
def test_it_refuses_to_write(tmp_path: Path, zookeeper_address: str, delta: Delta, statement: str) -> None:
    made = sluice.Table.create(tmp_path / "t", SCHEMA, partition_by=["p"], coordinator=zookeeper_address)
    made.append(rows(0, 10))
    made.append(rows(10, 20))  # so that there is something to optimize
    with pytest.raises(DeltaError, match="sluice"):
        delta.sql(statement.format(*[f"delta.`{made.location}`"] * 2))
    assert made.refresh().version == 2


def _statements(name: str) -> list[str]:
    return [
        f"DELETE FROM {name} WHERE id % 13 = 5",
        f"UPDATE {name} SET v = -v WHERE id % 17 = 4",
        f"OPTIMIZE {name}",
        f"DELETE FROM {name} WHERE id IN (11, 12, 14)",
        (
            f"MERGE INTO {name} t USING (SELECT id + 500 AS other, * FROM {name} WHERE id < 5) s ON t.id = s.other "
            "WHEN NOT MATCHED THEN INSERT (id, p, v, day, at, price, many, inner) "
            "VALUES (s.other, s.p, s.v, s.day, s.at, s.price, s.many, s.inner)"
        ),
    ]


def test_it_takes_over_what_was_given_back_and_gives_it_back(table: sluice.Table, delta: Delta, zookeeper_address: str) -> None:
    def read() -> Counter[Any]:
        return of_delta(delta.read(table.location))

    table.detach()
    for statement in _statements(f"delta.`{table.location}`"):
        delta.sql(statement)
    after = read()
    again = sluice.Table.attach(table.location, coordinator=zookeeper_address)
    assert of_sluice(again.snapshot().to_arrow()) == after
    again.delete("id % 10 = 4")
    again.append(rows(2000, 2010))
    again.compact()
    again.update({"v": "v * 2"}, "id >= 2005")
    assert of_sluice(again.snapshot().to_arrow()) == read() != after
    again.checkpoint()
    [named] = sluice.doctor(table.location, coordinator=zookeeper_address).findings  # its versions have no chain; ours go on with its files
    assert (named.severity, named.what.partition(":")[0].endswith("have no chain")) == ("note", True)
    with pytest.raises(DeltaError, match="sluice"):
        delta.sql(f"DELETE FROM delta.`{table.location}` WHERE id = 1")
