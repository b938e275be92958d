"""ANALYZE: which files lack statistics, where they come from, and that no row and no change of others is lost."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import replace
from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sluice
from sluice.storage.actions import AddFile, decode_commit
from sluice.storage.actions.records import merged
from sluice.storage.data.statistics import Leaf, read_footer
from sluice.storage.log.paths import commit_path
from sluice.tables.manage import analyzing
from sluice.tables.manage.analyzing import lacks
from tests.tables.conftest import Place, present, rows_of

A, B = Leaf(("a",), "integer"), Leaf(("s", "b"), None)


@pytest.mark.parametrize(
    ("stats", "expected"),
    [
        (None, True),
        ("", True),
        ("no json", True),
        ("[]", True),
        ('{"numRecords":2}', True),
        ('{"minValues":{"a":1},"maxValues":{"a":1},"nullCount":{"a":0,"s":{"b":0}}}', True),
        ('{"numRecords":2,"minValues":{"a":1},"maxValues":{"a":1},"nullCount":{"a":0}}', True),
        ('{"numRecords":2,"nullCount":{"a":0,"s":{"b":0}}}', True),
        ('{"numRecords":2,"nullCount":{"a":2,"s":{"b":0}}}', False),
        ('{"numRecords":2,"minValues":{"a":1},"nullCount":{"a":0,"s":{"b":1}}}', False),
        ('{"numRecords":0,"nullCount":{"a":0,"s":{"b":0}}}', False),
    ],
)
def test_what_lacks_statistics(stats: str | None, expected: bool) -> None:
    assert lacks(stats, [A, B]) is expected
    assert lacks('{"numRecords":2}', []) is False


def test_statistics_are_united_digit_by_digit() -> None:
    one = '{"numRecords":2,"minValues":{"d":0.10000000000000000000000001,"s":{"x":1}},"tightBounds":false}'
    other = '{"numRecords":2,"minValues":{"s":{"y":12345678901234567890123}},"nullCount":{"d":0}}'
    assert merged(one, other) == (
        '{"numRecords":2,"minValues":{"d":0.10000000000000000000000001,"s":{"x":1,"y":12345678901234567890123}},"tightBounds":false,'
        '"nullCount":{"d":0}}'
    )
    assert merged(None, other) == merged("damaged", other) == other
    assert merged(one, None) == one
    assert merged(None, None) is None


SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("price", pa.decimal128(20, 4)),
        ("at", pa.timestamp("us", "UTC")),
        ("ratio", pa.float64()),
        ("s", pa.struct([("x", pa.int32()), ("tags", pa.list_(pa.string()))])),
        ("flag", pa.bool_()),
    ]
)
FIRST = [
    {
        "id": number,
        "name": f"n{number}",
        "price": Decimal(number) / 8,
        "at": datetime(2026, 1, 1 + number, tzinfo=timezone.utc),
        "ratio": number / 3,
        "s": None if number == 2 else {"x": -number, "tags": ["a"]},
        "flag": None,
    }
    for number in range(5)
]


def without_statistics(place: Place, tmp_path: Path, **properties: str) -> sluice.Table:
    """A table of two files whose log entries, as some engines write them, have no statistics."""
    table = sluice.Table.create(place.location, SCHEMA, coordinator=place.coordinator, properties=properties)
    table.append(pa.Table.from_pylist(FIRST, SCHEMA))
    table.append(pa.Table.from_pylist([{"id": 100, "ratio": math.nan}, {"id": 200, "ratio": 1.5}], SCHEMA))
    table.detach()
    theirs = shutil.copytree(place.location, tmp_path / "theirs", ignore=shutil.ignore_patterns("*.crc"))
    for path in (theirs / "_delta_log").glob("*.json"):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        for line in lines:
            line.get("add", {}).pop("stats", None)
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return sluice.Table.attach(theirs, coordinator=place.coordinator)


def stats_of(table: sluice.Table) -> list[dict[str, Any]]:
    found = table.refresh().snapshot().raw.files.column("stats").to_pylist()
    return sorted((json.loads(each) for each in found), key=lambda each: -each["numRecords"])


def read_for(table: sluice.Table, where: str) -> int:
    return table.refresh().snapshot().files(where).num_rows


def test_files_get_what_they_lack_and_rows_stay(place: Place, tmp_path: Path) -> None:
    table = without_statistics(place, tmp_path)
    before = repr(table.snapshot().to_arrow().to_pylist())
    assert read_for(table, "id = 100") == 2
    done = table.analyze()
    assert done.commit is not None
    assert (done.files, done.lacking, done.from_footers + done.from_rows, done.elsewhere) == (2, 2, 2, 0)
    assert read_for(table, "id = 100") == read_for(table, "s.x = -4") == read_for(table, "name = 'n1'") == 1
    assert stats_of(table)[0] == {
        "numRecords": 5,
        "minValues": {
            "id": 0,
            "name": "n0",
            "price": 0.0,
            "at": "2026-01-01T00:00:00.000Z",
            "ratio": 0.0,
            "s": {"x": -4},
        },
        "maxValues": {
            "id": 4,
            "name": "n4",
            "price": 0.5,
            "at": "2026-01-05T00:00:00.000Z",
            "ratio": 4 / 3,
            "s": {"x": 0},
        },
        "nullCount": {"id": 0, "name": 0, "price": 0, "at": 0, "ratio": 0, "s": {"x": 1, "tags": 1}, "flag": 5},
    }
    assert "ratio" not in stats_of(table)[1]["maxValues"]
    assert repr(table.snapshot().to_arrow().to_pylist()) == before
    key = commit_path(done.commit.version)
    actions = list(decode_commit(Path(table.location.removeprefix("file://"), key).read_bytes(), name=key))
    assert [(each.data_change, type(each)) for each in actions[1:]] == [(False, AddFile)] * 2  # type: ignore[union-attr]
    entry = table.history(1)[0]
    assert (entry.operation, entry.metrics) == ("COMPUTE STATS", {"numFiles": "2"})
    again = table.analyze()
    assert (again.commit, again.lacking) == (None, 0)
    assert list(table.changes(done.commit.version, done.commit.version).to_pylist()) == []
    assert len(deltalake.DeltaTable(table.location).to_pyarrow_table(columns=["id"])) == 7


def test_a_footer_is_enough_where_it_is_exact(place: Place, tmp_path: Path) -> None:
    folder = tmp_path / "plain"
    folder.mkdir()
    for number in range(3):
        pq.write_table(pa.table({"id": [number, number], "ratio": [0.5, number]}), folder / f"{number}.parquet")
    table = sluice.Table.convert(folder, coordinator=place.coordinator)
    assert (read_for(table, "id = 1"), read_for(table, "ratio < 0.3")) == (1, 3)
    done = table.analyze("ratio")
    assert (done.lacking, done.from_footers, done.from_rows) == (3, 0, 3)
    assert done.bytes_read == sum(each.stat().st_size for each in folder.glob("*.parquet"))
    assert (read_for(table, "id = 1"), read_for(table, "ratio < 0.3")) == (1, 1)


def test_a_higher_number_of_indexed_columns(place: Place) -> None:
    table = place.create(partition_by=(), properties={"delta.dataSkippingNumIndexedCols": "1"})
    for number in range(3):
        table.append(pa.Table.from_pylist([{"origin": "JFK", "month": number, "delay": number}], table.schema))
    assert read_for(table, "delay = 1") == 3
    assert table.analyze().commit is None
    some = table.analyze(["month"])
    assert (some.from_footers, some.from_rows) == (3, 0)
    assert (read_for(table, "month = 1"), read_for(table, "delay = 1")) == (1, 3)
    table.set_properties({"delta.dataSkippingNumIndexedCols": "3"})
    table.analyze()
    assert read_for(table, "delay = 1") == 1
    assert all(set(each["minValues"]) == {"origin", "month", "delay"} for each in stats_of(table))


def test_deleted_rows_count_and_bounds_are_not_tight(place: Place, tmp_path: Path) -> None:
    table = without_statistics(place, tmp_path, **{"delta.enableDeletionVectors": "true"})
    table.delete("id = 4")
    assert table.analyze(["id", "s"]).commit is not None
    (found,) = [each for each in stats_of(table) if each["numRecords"] == 5]
    assert (found["tightBounds"], found["minValues"]["id"], found["maxValues"]["id"]) == (False, 0, 4)
    assert sorted(row["id"] for row in table.snapshot().to_arrow().to_pylist()) == [0, 1, 2, 3, 100, 200]
    assert table.analyze(["id"]).commit is None


def test_what_others_do_meanwhile_is_kept(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = without_statistics(place, tmp_path)
    other = sluice.Table.open(table.location, coordinator=place.coordinator)
    read = read_footer

    def beside(*arguments: Any) -> Any:
        if read_for(other, "id < 0 OR id >= 0") == 2:
            other.delete("id = 100")
            other.append(pa.Table.from_pylist([{"id": 300}], SCHEMA))
        return read(*arguments)

    monkeypatch.setattr(analyzing, "_READERS", 1)
    monkeypatch.setattr(analyzing, "read_footer", beside)
    done = table.analyze()
    assert done.commit is not None
    assert table.history(1)[0].metrics == {"numFiles": "1"}
    assert sorted(row["id"] for row in table.refresh().snapshot().to_arrow().to_pylist()) == [0, 1, 2, 3, 4, 200, 300]
    assert rows_of(table.snapshot().to_arrow().select(["id"])) == rows_of(other.refresh().snapshot().to_arrow().select(["id"]))


def test_a_commit_that_came_between_is_no_failure(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A transaction that was filed before the lease may come first: its version is the one that was expected."""
    table = without_statistics(place, tmp_path)
    other = sluice.Table.open(table.location, coordinator=place.coordinator)
    make, made = analyzing._change, 0

    def late(*arguments: Any) -> Any:
        nonlocal made
        made += 1
        change = present(make(*arguments))
        # the version that another commit took
        return replace(change, terms=replace(change.terms, if_version=table.version - 1)) if made == 1 else change

    monkeypatch.setattr(analyzing, "_change", late)
    assert table.analyze().commit is not None
    assert made == 2
    assert other.refresh().snapshot().files("id = 100").num_rows == 1


def test_what_cannot_be_analyzed(place: Place) -> None:
    table = place.create()
    with pytest.raises(sluice.errors.InvalidRequest, match="column 'missing' is not in the table"):
        table.analyze(["missing"])
    with pytest.raises(sluice.errors.InvalidRequest, match="'origin' is a partition column"):
        table.analyze("origin")
    assert table.analyze().commit is None
    assert table.version == 0


def test_row_ids_stay(place: Place) -> None:
    table = place.create(partition_by=(), properties={"delta.enableRowTracking": "true", "delta.dataSkippingNumIndexedCols": "0"})
    table.append(pa.Table.from_pylist([{"origin": "JFK", "month": 1, "delay": 1}], table.schema))
    before = table.snapshot().to_arrow(row_ids=True)
    assert table.analyze("delay").commit is not None
    table.append(pa.Table.from_pylist([{"origin": "LAX", "month": 1, "delay": 1}], table.schema))
    after = table.snapshot().to_arrow(row_ids=True)
    assert rows_of(after)[0] == rows_of(before)[0]
    assert len(set(after["_row_id"].to_pylist())) == 2
