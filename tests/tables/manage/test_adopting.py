"""Parquet files that other programs wrote become rows of a table, in one commit."""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections.abc import Callable
from datetime import date, datetime
from pathlib import Path
from typing import Any

import deltalake
import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sluice
from sluice.coordinator.api import is_adopting, submit
from sluice.coordinator.nodes.plans import open_plans
from sluice.errors import (
    ConcurrentModification,
    ConstraintViolated,
    InvalidRequest,
    MissingObject,
    NullNotAllowed,
    OutcomeUnknown,
    SchemaMismatch,
    SluiceError,
    UnsupportedFeature,
)
from sluice.storage.data.scan import TableScan
from sluice.storage.stores.location import open_store
from sluice.tables.manage import adopting

from ..conftest import Place, by_another, rows_of

NOW: dict[str, Any] = {"retain_hours": 0, "force": True}
SCHEMA = pa.schema([pa.field("id", pa.int64()), pa.field("v", pa.string())])
HERE = pa.table({"id": [1, 2], "v": ["a", "b"]})


def rows(table: sluice.Table) -> list[tuple[Any, ...]]:
    return rows_of(table.refresh().snapshot().to_arrow())


def created(place: Place, schema: pa.Schema = SCHEMA, **options: Any) -> sluice.Table:
    return sluice.Table.create(place.location, schema, coordinator=place.coordinator, **options)


def written(path: str | Path, data: pa.Table = HERE, **options: Any) -> str:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(data, path, **options)
    return str(path)


def test_files_inside_and_outside_become_rows_in_one_commit(place: Place, tmp_path: Path) -> None:
    table = created(place)
    written(f"{place.location}/in coming/a 1%.parquet")
    outside = written(tmp_path / "else where" / "b ü.parquet", pa.table({"id": [3]}))
    commit = table.adopt(["in coming/a 1%.parquet", Path(outside)], user_metadata="from Polars")
    assert commit.version == 1
    assert rows(table) == [(1, "a"), (2, "b"), (3, None)]
    [entry] = table.history(1)
    assert (entry.operation, entry.user_metadata) == ("ADOPT", "from Polars")
    assert (entry.metrics["numAddedFiles"], entry.metrics["numOutputRows"]) == ("2", "3")
    adds = sorted(table.snapshot().raw.add_files(), key=lambda add: add.path)
    assert [add.path for add in adds] == [f"file://{tmp_path}/else%20where/b%20%C3%BC.parquet", "in%20coming/a%201%25.parquet"]
    assert table.snapshot().files("id > 2").num_rows == 1, "the statistics of footers count"
    assert not list(open_plans(table.coordinated.context))
    engine = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(place.location))
    assert pa.table(engine.execute("select * from t").read_all()).num_rows == 3
    table.delete("id = 1")
    table.truncate()
    table.vacuum(**NOW)
    assert Path(outside).exists()
    assert not list(Path(place.location).rglob("*.parquet")), "what is in the folder is the table's own"


def test_hive_folders_and_given_values(place: Place, tmp_path: Path) -> None:
    schema = pa.schema([*SCHEMA, pa.field("day", pa.date32()), pa.field("n", pa.int32(), nullable=False)])
    table = created(place, schema, partition_by=["day", "n"])
    inside = written(f"{place.location}/day=2026-01-31/n=7/a.parquet")
    deep = written(tmp_path / "x=1" / "day=__HIVE_DEFAULT_PARTITION__" / "n=8" / "b.parquet")
    table.adopt([inside, deep])
    plain = written(tmp_path / "c.parquet"), written(tmp_path / "d.parquet")
    table.adopt({plain[0]: {"DAY": date(2026, 2, 1), "n": 9}, plain[1]: {"day": "2026-02-02", "n": "10"}})
    assert {(row[2], row[3]) for row in rows(table)} == {(date(2026, 1, 31), 7), (None, 8), (date(2026, 2, 1), 9), (date(2026, 2, 2), 10)}
    wrong: list[tuple[Any, str]] = [
        ({written(tmp_path / "e.parquet"): {"day": "x", "n": 1}}, "no value of the partition column 'day'"),
        ({plain[0]: {"day": None, "n": None}}, "file of the table already"),
        ({written(tmp_path / "e.parquet"): {"day": None, "n": None}}, "NOT NULL"),
        ({written(tmp_path / "e.parquet"): {"day": None}}, "the partition columns are day, n"),
        ([written(tmp_path / "e.parquet")], "not in folders"),
        ([written(tmp_path / "day=2026-01-31" / "n=x" / "e.parquet")], "no value of the partition column 'n'"),
    ]
    for files, said in wrong:
        with pytest.raises(InvalidRequest, match=said):
            table.adopt(files)
    assert table.refresh().version == 2


TYPED = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("v", pa.string()),
        pa.field("at", pa.timestamp("us", "UTC")),
        pa.field("s", pa.struct([pa.field("x", pa.int32())])),
    ]
)
MISFITS: list[tuple[pa.Table, type[SluiceError], str]] = [
    (pa.table({"id": [1], "other": [1]}), SchemaMismatch, "'other' is not among the table's"),
    (pa.table({"ID": [1]}), SchemaMismatch, "'ID' is not among .* case counts"),
    (pa.table({"id": pa.array([1], pa.int32())}), SchemaMismatch, "'id' is integer, and the table's long"),
    (pa.table({"v": ["a"]}), SchemaMismatch, "'id' is missing"),
    (pa.table({"id": pa.array([1, None])}), NullNotAllowed, "1 nulls in column 'id'"),
    (pa.table({"id": [1], "at": pa.array([1], pa.timestamp("ns", "UTC"))}), SchemaMismatch, "nanoseconds"),
    (pa.table({"id": [1], "at": pa.array([1], pa.timestamp("us"))}), SchemaMismatch, "'at' is timestamp_ntz"),
    (pa.table({"id": [1], "at": pa.array([2**62], pa.timestamp("us", "UTC"))}), SluiceError, "adopted"),
    (pa.table({"id": [1], "s": pa.array([{"x": 1, "y": 2}])}), SchemaMismatch, "'s' is"),
]


@pytest.mark.parametrize(("data", "error", "said"), MISFITS, ids=[said for _, _, said in MISFITS])
def test_what_does_not_fit_is_refused_by_name(data: pa.Table, error: type[SluiceError], said: str, place: Place, tmp_path: Path) -> None:
    table = created(place, TYPED)
    good = written(tmp_path / "good.parquet", pa.table({"id": [1], "s": pa.array([{"x": 1}], pa.struct([("x", pa.int32())]))}))
    with pytest.raises(error, match=said) as refused:
        table.adopt([good, written(f"{place.location}/bad.parquet", data)])
    assert "bad.parquet" in str(refused.value)
    assert table.refresh().version == 0
    assert Path(place.location, "bad.parquet").exists()
    assert not list(open_plans(table.coordinated.context))
    assert table.adopt([good]).version == 1


@pytest.mark.notices("rows-of-adopted-files-are-checked")
def test_rows_are_read_where_footers_do_not_tell(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = created(place, properties={"delta.constraints.positive": "id > 0"})
    with pytest.raises(ConstraintViolated, match=r"bad\.parquet"):
        table.adopt([written(tmp_path / "a.parquet"), written(tmp_path / "bad.parquet", pa.table({"id": [-1]}))])
    table.adopt([tmp_path / "a.parquet"])
    strict = created(Place(place.location + "-2", place.coordinator), pa.schema([pa.field("id", pa.int64(), nullable=False)]))
    silent = written(tmp_path / "silent.parquet", pa.table({"id": [1, None]}), write_statistics=False)
    with pytest.raises(SluiceError, match=r"silent\.parquet"):
        strict.adopt([silent])
    # footers suffice without constraints
    monkeypatch.setattr(TableScan, "batches", None)
    created(Place(place.location + "-3", place.coordinator)).adopt([tmp_path / "a.parquet"])


def test_generated_columns_are_checked(place: Place, tmp_path: Path) -> None:
    twice = pa.field("twice", pa.int64(), metadata={"delta.generationExpression": "id * 2"})
    table = created(place, pa.schema([pa.field("id", pa.int64()), twice]))
    with pytest.raises(SchemaMismatch, match="'twice' is missing"):
        table.adopt([written(tmp_path / "lacking.parquet", pa.table({"id": [1]}))])
    with pytest.raises(ConstraintViolated, match=r"wrong\.parquet"):
        table.adopt([written(tmp_path / "wrong.parquet", pa.table({"id": [1], "twice": [3]}))])
    table.adopt([written(tmp_path / "right.parquet", pa.table({"id": [1], "twice": [2]}))])
    assert rows(table) == [(1, 2)]


def test_mapped_columns_have_their_names_in_files(place: Place, tmp_path: Path) -> None:
    table = created(place)
    table.set_properties({"delta.columnMapping.mode": "name"})
    table.alter_columns([sluice.ColumnChange(("v",), name="text")])
    with pytest.raises(SchemaMismatch, match="'text' is not among"):
        table.adopt([written(tmp_path / "new.parquet", pa.table({"id": [1], "text": ["a"]}))])
    table.adopt([written(tmp_path / "old.parquet")])
    assert table.snapshot().to_arrow().column_names == ["id", "text"]
    assert rows(table) == [(1, "a"), (2, "b")]
    by_id = created(Place(place.location + "-2", place.coordinator), properties={"delta.columnMapping.mode": "id"})
    with pytest.raises(UnsupportedFeature, match="plan_write"):
        by_id.adopt([tmp_path / "old.parquet"])


KEYED = {"sluice.primaryKey": "id", "sluice.conflictPolicy": "maxcompute-delta"}


@pytest.mark.notices("files-lack-what-the-table-puts-into-them")
def test_tables_that_adopt_nothing(place: Place, tmp_path: Path) -> None:
    materialized = {"delta.enableMaterializePartitionColumnsFeature": "true", "delta.feature.materializePartitionColumns": "supported"}
    whole = created(Place(place.location + "-2", place.coordinator), partition_by=["v"], properties=materialized)
    with pytest.raises(UnsupportedFeature, match=r"its data files have the partition columns.*plan_write"):
        whole.adopt({written(tmp_path / "b.parquet", HERE.select(["id"])): {"v": "a"}})
    keyed = created(place, pa.schema([pa.field("id", pa.int64(), nullable=False)]), properties=KEYED)
    with pytest.raises(InvalidRequest, match="primary key"):
        keyed.adopt([written(tmp_path / "a.parquet")])


@pytest.mark.notices("files-are-adopted-once")
def test_files_that_are_gone_no_parquet_or_somebody_elses(place: Place, tmp_path: Path) -> None:
    table = created(place)
    table.append(HERE)
    own = next(table.snapshot().raw.add_files()).path
    Path(tmp_path / "text.parquet").write_text("no Parquet")
    stray = own.replace("part-00000", "part-00009")
    written(f"{place.location}/{stray}")
    cases: list[tuple[Any, type[SluiceError], str]] = [
        ([own], InvalidRequest, "file of the table already"),
        ([f"file://{place.location}/{own}"], InvalidRequest, "file of the table already"),
        ([stray], InvalidRequest, "belongs to the transaction"),
        (["missing.parquet"], MissingObject, "missing"),
        ([tmp_path / "text.parquet"], SchemaMismatch, "cannot be read as a Parquet file"),
        ([written(f"{place.location}/_hidden/a.parquet")], InvalidRequest, "is hidden"),
        (["s3://bucket/a.parquet"], InvalidRequest, "another kind of store"),
        ([written(tmp_path / "a.parquet"), f"file:{tmp_path}/a.parquet"], InvalidRequest, "twice"),
        (["../a.parquet"], InvalidRequest, "not an object key"),
        ([], InvalidRequest, "at least one"),
        ("a.parquet", InvalidRequest, "a list of paths"),
    ]
    for files, error, said in cases:
        with pytest.raises(error, match=said):
            table.adopt(files)
    assert table.refresh().version == 1


def test_ids_of_rows_are_given_and_inserts_are_change_data(place: Place, tmp_path: Path) -> None:
    table = created(place, properties={"delta.enableRowTracking": "true", "delta.enableChangeDataFeed": "true"})
    table.append(HERE)
    table.adopt([written(tmp_path / "a.parquet")])
    ids = table.refresh().snapshot().to_arrow(["id"], row_ids=True)["_row_id"].to_pylist()
    assert sorted(ids) == [0, 1, 2, 3]
    assert table.changes(1).num_rows == 2
    table.update({"v": "'z'"}, where="id = 1")
    table.compact("major")
    assert rows(table) == [(1, "z"), (1, "z"), (2, "b"), (2, "b")]


@pytest.mark.notices("rule-adopted-what-i-adopt")
def test_of_two_who_adopt_one_file_at_once_the_second_is_refused(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = created(place)
    inside, mine = written(f"{place.location}/in/a.parquet"), written(tmp_path / "mine.parquet")
    file: Callable[..., Any] = submit

    def slower(*given: Any, **named: Any) -> Any:
        monkeypatch.setattr(adopting, "submit", file)
        by_another(lambda: place.open().adopt([inside]))
        return file(*given, **named)

    monkeypatch.setattr(adopting, "submit", slower)
    with pytest.raises(ConcurrentModification, match="adopted-what-i-adopt") as refused:
        table.adopt([mine, inside])
    assert "in/a.parquet" in str(refused.value)
    assert len(rows(table)) == 2
    assert not list(open_plans(table.coordinated.context))
    table.adopt([mine])
    assert len(rows(table)) == 4


def test_many_at_once_add_each_file_once(place: Place, tmp_path: Path) -> None:
    """Beside appends, which nobody refuses."""
    table = created(place)
    shared = [written(tmp_path / f"{n}.parquet", pa.table({"id": [n]})) for n in range(4)]
    outcomes: list[str] = []

    def adopting_all() -> None:
        own = place.open()
        for each in shared:
            try:
                own.adopt([each])
                outcomes.append("adopted")
            except (ConcurrentModification, InvalidRequest):
                outcomes.append("refused")

    def appending() -> None:
        for _ in range(5):
            place.open().append(pa.table({"id": [99]}))

    threads = [threading.Thread(target=each) for each in [*[adopting_all] * 4, appending]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert (outcomes.count("adopted"), outcomes.count("refused")) == (4, 12)
    assert [row[0] for row in rows(table)] == [0, 1, 2, 3, *[99] * 5]


ENGINE = "part-00000-4cc8e7fe-eab3-41a2-aa91-5a38771076f3-c000.snappy.parquet"


@pytest.mark.notices("adopted-files-are-kept")
@pytest.mark.parametrize("name", ["mine.parquet", ENGINE])
def test_a_vacuum_beside_an_adoption_deletes_nothing_of_it(name: str, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes between the look and the commit."""
    table = created(place)
    written(f"{place.location}/{name}")
    file: Callable[..., Any] = submit
    time.sleep(0.01)

    def after_a_vacuum(*given: Any, **named: Any) -> Any:
        by_another(lambda: place.open().vacuum(**NOW, include_foreign=True))
        return file(*given, **named)

    monkeypatch.setattr(adopting, "submit", after_a_vacuum)
    table.adopt([name])
    assert len(rows(table)) == 2


@pytest.mark.notices("files-given-up-are-not-adopted")
@pytest.mark.parametrize("name", ["mine.parquet", ENGINE])
def test_a_file_that_a_vacuum_is_deleting_is_refused(name: str, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The vacuum did not see the plan: the adoption comes between its look at plans and its deletion."""
    table = created(place)
    written(f"{place.location}/{name}")
    time.sleep(0.01)
    look: Callable[..., Any] = is_adopting
    refused: list[str] = []

    def then_adopt(context: Any) -> bool:
        seen = bool(look(context))

        def attempt() -> None:
            with pytest.raises(InvalidRequest, match="may be garbage that a vacuum is deleting") as raised:
                place.open().adopt([name])
            refused.append(str(raised.value))

        by_another(attempt)
        return seen

    monkeypatch.setattr("sluice.coordinator.api.is_adopting", then_adopt)
    table.vacuum(**NOW, include_foreign=True)
    assert len(refused) == 1
    assert rows(table) == []


def test_removed_files_are_restored_and_not_adopted(place: Place) -> None:
    table = created(place)
    written(f"{place.location}/a.parquet")
    table.adopt(["a.parquet"])
    table.truncate()
    with pytest.raises(InvalidRequest, match="was removed from the table"):
        table.adopt(["a.parquet"])
    table.restore(1)
    assert len(rows(table)) == 2


def test_a_plan_that_garbage_collection_closed_commits_nothing(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    table = created(place)
    written(f"{place.location}/a.parquet")
    file: Callable[..., Any] = submit

    def late(*given: Any, **named: Any) -> Any:
        context = table.coordinated.context
        for owner, _ in list(open_plans(context)):
            context.coordination.delete(owner.path)
        return file(*given, **named)

    monkeypatch.setattr(adopting, "submit", late)
    with pytest.raises(SluiceError, match=r"expired|garbage|plan"):
        table.adopt(["a.parquet"])
    assert table.refresh().version == 0


def test_without_an_answer_the_plan_keeps_the_files(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    table = created(place)
    written(f"{place.location}/a.parquet")

    def lost(*_: Any, **__: Any) -> Any:
        raise OutcomeUnknown("injected", transaction_id="t", stage="intent")

    monkeypatch.setattr(adopting, "submit", lost)
    with pytest.raises(OutcomeUnknown):
        table.adopt(["a.parquet"])
    assert len(list(open_plans(table.coordinated.context))) == 1


@pytest.mark.s3
def test_in_a_bucket(s3_options: dict[str, str], s3_location: str) -> None:
    coordinator = f"memory://{uuid.uuid4().hex}"
    table = sluice.Table.create(f"{s3_location}/t", SCHEMA, coordinator=coordinator, storage_options=s3_options)
    buffer = pa.BufferOutputStream()
    pq.write_table(HERE, buffer)
    store = open_store(s3_location, s3_options)
    for key in ("t/in/a.parquet", "else where/b.parquet"):
        store.put(key, buffer.getvalue().to_pybytes())
    table.adopt(["in/a.parquet", f"{s3_location}/else where/b.parquet"])
    assert len(rows(table)) == 4


def test_files_of_polars_and_duckdb_fit(place: Place, tmp_path: Path) -> None:
    schema = pa.schema([pa.field("id", pa.int64()), pa.field("at", pa.timestamp("us")), pa.field("day", pa.date32())])
    table = created(place, schema, partition_by=["day"])
    noon = datetime(2026, 1, 1, 12)  # noqa: DTZ001 (without a zone)
    frame = pl.DataFrame({"id": [1, 2], "at": [noon, None], "day": [date(2026, 1, 1), date(2026, 1, 2)]})
    for day, part in frame.group_by("day"):
        path = tmp_path / f"{day[0]}.parquet"
        part.drop("day").write_parquet(path)
        table.adopt({path: {"day": day[0]}})
    duckdb.from_arrow(frame.to_arrow()).to_parquet(f"{tmp_path}/duck", partition_by=["day"])
    table.adopt([os.fspath(each) for each in (tmp_path / "duck").rglob("*.parquet")])
    assert len(rows(table)) == 4
