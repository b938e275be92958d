"""What calls return fits into Python: Arrow streams, DataFrames, datasets, times, notebooks, pickles, counts."""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from os import sep
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import sluice
from sluice.tables.read import table_snapshot

SCHEMA = pa.schema([pa.field("day", pa.int32()), pa.field("name", pa.string()), pa.field("amount", pa.int64())])


def rows(day: int | None, *amounts: int | None) -> pa.Table:
    return pa.Table.from_pylist([{"day": day, "name": f"<{amount}>", "amount": amount} for amount in amounts], SCHEMA)


@pytest.fixture
def table(tmp_path: Path) -> sluice.Table:
    """Three partitions, one of them null; rows of two files are deleted by deletion vectors."""
    made = sluice.Table.create(
        tmp_path / "t",
        SCHEMA,
        partition_by=["day"],
        properties={"delta.enableDeletionVectors": "true"},
        coordinator=f"memory://{tmp_path.name}",
    )
    made.append(rows(1, 1, 2, 3))
    made.append(rows(2, 4, None))
    made.append(rows(None, 5, 6))
    made.delete("amount IN (2, 5)")
    return made


def in_order(found: pa.Table) -> list[tuple[object, ...]]:
    return sorted(zip(*(found[name].to_pylist() for name in ("day", "name", "amount")), strict=True), key=repr)


def test_a_snapshot_is_an_arrow_stream(table: sluice.Table) -> None:
    snapshot = table.snapshot()
    assert in_order(pa.table(snapshot)) == in_order(snapshot.to_arrow())
    assert pa.RecordBatchReader.from_stream(snapshot).schema == snapshot.schema
    assert pl.DataFrame(snapshot).height == snapshot.num_rows == 5


def test_data_frames_have_the_rows_of_to_arrow(table: sluice.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = table.snapshot()
    assert snapshot.to_polars(["amount"], "day = 1").to_dict(as_series=False) == {"amount": [1, 3]}
    monkeypatch.setattr(table_snapshot, "find_spec", lambda _: None)
    with pytest.raises(sluice.errors.InvalidRequest, match="pip install pandas"):
        snapshot.to_pandas()
    with pytest.raises(sluice.errors.InvalidRequest, match="pip install polars"):
        snapshot.to_polars()


def test_rows_are_counted_without_reading_data(table: sluice.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> object:
        raise AssertionError("a data file was opened")

    snapshot = table.snapshot()
    monkeypatch.setattr(type(table.access.store), "open_input", refuse)
    assert snapshot.num_rows == 5


def test_files_without_statistics_are_counted(tmp_path: Path) -> None:
    table = sluice.Table.create(tmp_path / "t", SCHEMA, properties={"delta.enableDeletionVectors": "true"}, coordinator="memory://counted")
    table.append(rows(1, 1, 2, 3))
    table.delete("amount = 2")
    files = table.snapshot().raw.files
    snapshot = table.snapshot()
    without = files.set_column(files.schema.get_field_index("stats"), "stats", pa.nulls(files.num_rows, pa.string()))
    object.__setattr__(snapshot, "raw", _WithFiles(snapshot.raw, without))
    assert snapshot.num_rows == 2


class _WithFiles:
    """A snapshot with other files."""

    def __init__(self, raw: object, files: pa.Table) -> None:
        self._raw, self.files = raw, files

    def __getattr__(self, name: str) -> object:
        return getattr(self._raw, name)


def test_a_dataset_has_the_rows_and_skips_partitions(table: sluice.Table) -> None:
    dataset = table.snapshot().to_dataset()
    assert in_order(dataset.to_table()) == in_order(table.snapshot().to_arrow())
    assert dataset.to_table(["amount"], filter=pc.field("day") == 2)["amount"].to_pylist() == [4, None]
    assert dataset.count_rows(filter=pc.field("day").is_null()) == 1
    table.compact("major")
    whole = table.refresh().snapshot().to_dataset()
    assert in_order(whole.to_table()) == in_order(table.snapshot().to_arrow())
    assert len(list(whole.get_fragments(pc.field("day") == 1))) == 1  # the condition leaves the other partitions out
    assert pl.scan_pyarrow_dataset(whole).filter(pl.col("amount") > 3).select("amount").collect()["amount"].sort().to_list() == [4, 6]


def test_a_dataset_of_a_missing_file_says_so(table: sluice.Table) -> None:
    table.compact("major")
    dataset = table.refresh().snapshot().to_dataset()
    for path in Path(table.location.removeprefix("file://")).rglob("*.parquet"):
        path.unlink()
    with pytest.raises(FileNotFoundError):
        dataset.to_table()


def test_times_are_given_in_three_ways(table: sluice.Table) -> None:
    entry = table.history()[1]
    assert entry.time == table.snapshot(entry.version).time == datetime.fromtimestamp(entry.timestamp / 1000, timezone.utc)
    zoned = entry.time.astimezone(timezone(timedelta(hours=5)))
    for moment in (entry.timestamp, entry.time, zoned, zoned.isoformat(), entry.time.isoformat().replace("+00:00", "Z")):
        assert table.snapshot(timestamp=moment).version == entry.version
        assert table.changes(moment, by="timestamp").num_rows == table.changes(entry.version).num_rows
    assert table.snapshot(timestamp=entry.time.replace(tzinfo=None)).version == entry.version  # without a zone: UTC
    restored = table.restore(timestamp=entry.time)
    assert restored is not None
    assert table.history(1)[0].parameters["timestamp"].startswith(entry.time.isoformat(timespec="seconds")[:19])


@pytest.mark.parametrize("wrong", ["yesterday", "", 1.5, True, b"2026-01-01"])
def test_what_is_no_time_is_refused(table: sluice.Table, wrong: object) -> None:
    with pytest.raises(sluice.errors.InvalidRequest, match="ISO 8601"):
        table.snapshot(timestamp=wrong)  # type: ignore[arg-type]
    with pytest.raises(sluice.errors.InvalidRequest):
        table.changes(wrong, by="timestamp")  # type: ignore[arg-type]


def test_commits_say_how_many_rows_they_changed(table: sluice.Table) -> None:
    appended, deleted = table.append(rows(3, 7, 8)), table.delete("amount > 6")
    updated = table.update({"amount": "0"}, "amount = 1")
    assert appended is not None
    assert deleted is not None
    assert updated is not None
    assert appended.metrics["numOutputRows"] == 2
    assert deleted.metrics["numDeletedRows"] == 2
    assert updated.metrics["numUpdatedRows"] == 1
    assert appended.time == table.snapshot(appended.version).time
    [newest] = table.history(1)
    assert {name: int(value) for name, value in newest.metrics.items()} == updated.metrics
    joint = sluice.transaction(coordinator=table.access.address.coordinator)
    joint[table].delete("amount = 3")
    assert joint.commit()[table].metrics["numDeletedRows"] == 1


def test_a_repeated_write_does_not_count_rows_again(table: sluice.Table) -> None:
    first, second = (table.append(rows(4, 9), key="once") for _ in range(2))
    assert first is not None
    assert second is not None
    assert second.repeated
    assert (first.metrics["numOutputRows"], second.metrics) == (1, {})


def test_a_pickled_table_opens_the_same_table(table: sluice.Table) -> None:
    again = pickle.loads(pickle.dumps(table))
    assert (again.location, again.version) == (table.location, table.version)
    assert again.append(rows(5, 10)) is not None
    assert table.refresh().version == again.version


def test_a_table_read_without_a_coordinator_stays_so(table: sluice.Table) -> None:
    read_only = pickle.loads(pickle.dumps(sluice.Table.open(table.location, consistency="published")))
    assert read_only.snapshot().num_rows == 5
    with pytest.raises(sluice.errors.InvalidRequest, match="consistency='published'"):
        read_only.append(rows(1, 1))


def test_notebooks_show_tables(table: sluice.Table) -> None:
    commit = table.append(rows(1, 11), user_metadata="<script>")
    assert commit is not None
    shown = [each._repr_html_() for each in (table, table.snapshot(), commit, table.history(), table.history()[0])]
    assert all("<table>" in text for text in shown)
    assert not any("<script>" in text for text in shown)
    assert "&lt;script&gt;" in shown[3]
    assert table.location in shown[0]
    assert "numOutputRows: 1" in shown[2]
    assert shown[3].count("<tr>") == 1 + len(table.history())


def frames_of_ours(call: Callable[[], object]) -> int:
    with pytest.raises(sluice.errors.SluiceError) as refused:
        call()
    shown = traceback.format_exception(refused.value)
    return sum(f"{sep}src{sep}sluice{sep}" in line for line in shown)


def test_tracebacks_of_refused_calls_show_the_call(table: sluice.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = pa.table({"amount": ["text"]})
    calls: list[Callable[[], object]] = [
        lambda: table.append(wrong),
        lambda: table.snapshot(99),
        lambda: table.delete("nothing = 1"),
        lambda: table.append(rows(1, 1), if_version=0),
        lambda: sluice.Table.open(f"{table.location}/none", coordinator=table.access.address.coordinator),
    ]
    assert all(frames_of_ours(call) > 3 for call in calls[:4])
    monkeypatch.delenv("SLUICE_TRACEBACKS")
    assert all(1 <= frames_of_ours(call) <= 3 for call in calls)


def test_tracebacks_of_damage_keep_their_frames(table: sluice.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    table.compact("major")
    for path in Path(table.location.removeprefix("file://")).rglob("*.parquet"):
        path.unlink()
    monkeypatch.delenv("SLUICE_TRACEBACKS")
    snapshot = table.refresh().snapshot()
    assert frames_of_ours(snapshot.to_arrow) > 3
