"""A table's schema, partitioning, properties and all its rows replaced in one commit; and what `create` does where a table is."""

from __future__ import annotations

import json
import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

import sluice
from sluice.storage.errors import ConstraintViolated, InvalidRequest, SchemaMismatch, TableExists, TableNotFound, UnsupportedFeature
from sluice.tables.client.address import TableAddress
from sluice.tables.client.open_table import OpenTable, open_coordinated
from sluice.tables.manage import creation
from sluice.tables.write.redefinition import Replaced
from tests.tables.conftest import FLIGHTS, Place, flights, present, rows_of

GATES = pa.schema([pa.field("gate", pa.string()), pa.field("seats", pa.int32())])


def gates(*rows: tuple[str, int]) -> pa.Table:
    return pa.table({"gate": [gate for gate, _ in rows], "seats": pa.array([seats for _, seats in rows], pa.int32())}, schema=GATES)


def rows(table: sluice.Table) -> list[tuple[Any, ...]]:
    return rows_of(table.refresh().snapshot().to_arrow())


def filled(place: Place, **properties: str) -> sluice.Table:
    return place.filled(("JFK", 1, 1), ("EWR", 2, 2), properties={"owner": "ops", **properties})


# -- an overwrite that brings another schema ---------------------------------------------------------------------------


@pytest.mark.parametrize("vectors", ["true", "false"], ids=["vectors", "copies"])
def test_an_overwrite_brings_its_schema(place: Place, vectors: str) -> None:
    table = filled(place, **{"delta.enableDeletionVectors": vectors, "delta.enableChangeDataFeed": "true"})
    table.delete("origin = 'EWR'")
    assert present(table.overwrite(gates(("B4", 100)), overwrite_schema=True, partition_by=["gate"])).version == 3
    table.refresh()
    assert (table.schema.names, table.partition_columns) == (["gate", "seats"], ("gate",))
    assert table.properties["owner"] == "ops", "properties stay"
    assert rows(table) == [("B4", 100)]
    (told,) = table.history(1)
    assert (told.operation, told.parameters) == ("WRITE", {"mode": "Overwrite", "partitionBy": '["gate"]'})
    assert told.metrics["numRemovedFiles"] == "1"
    old = table.snapshot(version=1)
    assert old.schema.names == ["origin", "month", "delay"]
    assert old.to_arrow().num_rows == 2
    table.append(gates(("C1", 7)))
    table.delete("seats = 100")
    assert rows(place.open()) == [("C1", 7)]
    if vectors == "false":
        assert deltalake.DeltaTable(place.location).to_pyarrow_table().to_pylist() == [{"gate": "C1", "seats": 7}]


def test_the_partitioning_stays_where_its_columns_do(place: Place) -> None:
    table = filled(place)
    narrow = flights(("JFK", 1, 1)).drop_columns("delay").append_column("gate", pa.array(["B4"]))
    table.overwrite(narrow, overwrite_schema=True)
    assert table.refresh().partition_columns == ("origin", "month")
    with pytest.raises(InvalidRequest, match="partition_by="):
        table.overwrite(gates(("B4", 1)), overwrite_schema=True)
    table.overwrite(gates(("B4", 1)), overwrite_schema=True, partition_by=[])
    assert table.refresh().partition_columns == ()


def test_the_same_schema_is_an_overwrite(place: Place) -> None:
    table = filled(place)
    table.overwrite(flights(("LGA", 3, 3)), overwrite_schema=True)
    lines = (Path(place.location) / "_delta_log" / f"{2:020}.json").read_text().splitlines()
    assert not any("metaData" in json.loads(line) or "protocol" in json.loads(line) for line in lines)
    assert rows(table) == [("LGA", 3, 3)]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"where": "delay = 1"}, "replaces the whole table"),
        ({"dynamic": True}, "replaces the whole table"),
        ({"overwrite_schema": False, "partition_by": ["gate"]}, "overwrite_schema=True"),
        ({"overwrite_schema": "yes"}, "give true or false"),
        ({"partition_by": ["nothing"]}, "nothing"),
        ({"partition_by": ["gate", "seats"]}, "at least one must remain"),
    ],
)
def test_what_does_not_go_together_is_refused(place: Place, options: dict[str, Any], says: str) -> None:
    table = filled(place)
    call: dict[str, Any] = {"overwrite_schema": True, "partition_by": [], **options}
    with pytest.raises(InvalidRequest, match=says):
        table.overwrite(gates(("B4", 100)), **call)
    assert rows(table) == [("EWR", 2, 2), ("JFK", 1, 1)]


def test_a_constraint_on_a_column_that_goes_is_named(place: Place) -> None:
    table = filled(place, **{"delta.constraints.late": "delay < 100"})
    with pytest.raises((InvalidRequest, ConstraintViolated), match=r"late|delay"):
        table.overwrite(gates(("B4", 100)), overwrite_schema=True, partition_by=[])
    assert table.refresh().version == 1


def test_it_is_the_first_operation_of_its_transaction_and_others_see_it(place: Place) -> None:
    table = filled(place)
    with table.begin() as part:
        part.overwrite(gates(("B4", 100), ("B5", 5)), overwrite_schema=True, partition_by=[])
        part.update({"seats": "seats + 1"}, where="gate = 'B5'")
        part.append(gates(("B6", 6)))
        assert part.scan(where="seats < 10").num_rows == 2
    assert rows(table) == [("B4", 100), ("B5", 6), ("B6", 6)]
    late = table.begin()
    late.append(gates(("B7", 7)))
    with pytest.raises(InvalidRequest, match="first operation"):
        late.overwrite(flights(("JFK", 1, 1)), overwrite_schema=True, partition_by=[])
    late.commit()
    assert rows(table)[-1] == ("B7", 7)


def test_a_plan_brings_another_schema(place: Place) -> None:
    table = filled(place)
    plan = table.plan_write(GATES, mode="overwrite", replaced=Replaced(["gate"], properties={"owner": "gates"}))
    plan = pickle.loads(pickle.dumps(plan))
    files = plan.write(gates(("B4", 100), ("B5", 5)))
    commit = present(table.commit_write(plan, files))
    assert rows(table) == [("B4", 100), ("B5", 5)]
    assert (table.properties["owner"], table.partition_columns) == ("gates", ("gate",))
    assert table.history(1)[0].operation == "REPLACE TABLE AS SELECT"
    again = present(table.commit_write(plan, files))
    assert (again.version, again.repeated) == (commit.version, True)


def test_a_replacement_has_the_comment_that_it_is_given_and_no_other(place: Place) -> None:
    table = filled(place)
    for comment in ("seats of each gate", None):
        table.replace(GATES, comment=comment)
        assert table.refresh().detail().description == comment
    with pytest.raises(InvalidRequest, match="comment is 5"):
        table.replace(GATES, comment=5)  # type: ignore[arg-type]


def test_a_type_brings_its_feature(place: Place) -> None:
    table = filled(place)
    table.overwrite(pa.table({"at": pa.array([1], pa.timestamp("us")), "n": [1]}), overwrite_schema=True, partition_by=[])
    protocol = table.refresh().snapshot().raw.protocol
    assert "timestampNtz" in (protocol.reader_features or ())
    assert "timestampNtz" in (protocol.writer_features or ())


# -- replace -----------------------------------------------------------------------------------------------------------


def test_everything_is_replaced_in_one_commit(place: Place) -> None:
    table = filled(place, **{"delta.enableChangeDataFeed": "true"})
    before = table.snapshot().raw.metadata
    commit = present(table.replace(GATES, partition_by=["gate"], properties={"team": "blue", "delta.enableDeletionVectors": "true"}))
    assert commit.version == 2
    table.refresh()
    own = {key for key in before.configuration if key.startswith(("sluice.", "delta.enableInCommit"))}
    assert dict(table.properties) == {
        **{key: before.configuration[key] for key in own},
        "team": "blue",
        "delta.enableDeletionVectors": "true",
    }
    after = table.snapshot().raw
    assert (after.metadata.id, after.metadata.created_time) == (before.id, before.created_time)
    assert {"changeDataFeed", "deletionVectors"} <= set(after.protocol.writer_features or ()), "never lowered"
    assert rows(table) == []
    (told,) = table.history(1)
    assert told.operation == "REPLACE TABLE"
    assert told.parameters["partitionBy"] == '["gate"]'
    assert json.loads(told.parameters["properties"])["team"] == "blue"
    table.append(gates(("B4", 1), ("B4", 2)))
    table.delete("seats = 1")
    assert any(add.deletion_vector for add in table.refresh().snapshot().raw.add_files())


def test_a_replacement_with_rows(place: Place) -> None:
    table = filled(place)
    table.replace(rows=gates(("B4", 100)))
    assert rows(table) == [("B4", 100)]
    assert table.partition_columns == ()
    assert table.history(1)[0].operation == "REPLACE TABLE AS SELECT"
    key = pa.schema([pa.field("gate", pa.string(), nullable=False), pa.field("seats", pa.int32())])
    keyed = {"sluice.conflictPolicy": "maxcompute-delta", "sluice.primaryKey": "gate"}
    table.replace(key, gates(("B4", 1), ("B4", 2)), properties=keyed)
    assert rows(table) == [("B4", 2)], "of two rows with one key the last counts"
    with pytest.raises(InvalidRequest, match="needs the table's schema"):
        table.replace()
    with pytest.raises(InvalidRequest, match="row tracking"):
        table.replace(GATES, properties={"delta.enableRowTracking": "true"})


def test_rows_ids_go_on(place: Place) -> None:
    table = filled(place, **{"delta.enableRowTracking": "true"})
    used = {add.base_row_id for add in table.snapshot().raw.add_files()}
    table.replace(rows=gates(("B4", 100)))
    (add,) = table.refresh().snapshot().raw.add_files()
    assert add.base_row_id is not None
    assert add.base_row_id > max(each for each in used if each is not None)
    assert table.properties["delta.enableRowTracking"] == "true"


def test_an_append_only_table_is_not_replaced(place: Place) -> None:
    with pytest.raises(UnsupportedFeature, match="append-only"):
        filled(place, **{"delta.appendOnly": "true"}).replace(GATES)


def test_whoever_writes_at_the_same_time_loses_or_comes_after(place: Place) -> None:
    table, other = filled(place), place.open()
    replacing = table.begin()
    replacing.replace(GATES)
    other.append(flights(("LGA", 3, 3)))
    with pytest.raises(sluice.errors.ConcurrentModification, match="appended-what-i-read"):
        replacing.commit()
    appending, changing = other.begin(), other.begin()
    appending.append(flights(("BOS", 4, 4)))
    changing.update({"delay": "0"}, where="origin = 'JFK'")
    table.replace(GATES)
    for each in (appending, changing):
        with pytest.raises(sluice.errors.MetadataChangedException):
            each.commit()
    with pytest.raises(SchemaMismatch):
        other.append(flights(("BOS", 4, 4)))
    assert rows(table) == []


# -- create where a table is -------------------------------------------------------------------------------------------


def test_the_modes_of_create(place: Place) -> None:
    with pytest.raises(TableNotFound):
        place.create(mode="replace")
    table = place.filled(("JFK", 1, 1), mode="if_not_exists")
    assert table.history()[-1].parameters["partitionBy"] == '["origin","month"]'
    first = Place(f"{place.location}-2", place.coordinator).create(mode="or_replace")
    assert (first.version, first.history()[0].operation) == (0, "CREATE TABLE")
    with pytest.raises(TableExists):
        place.create()
    assert rows(place.create(mode="if_not_exists", partition_by=[])) == [("JFK", 1, 1)]
    assert table.refresh().version == 1
    again = place.create(mode="or_replace", partition_by=["origin"], properties={"owner": "ops"})
    assert (again.version, again.partition_columns, again.properties["owner"]) == (2, ("origin",), "ops")
    assert again.history(1)[0].operation == "CREATE OR REPLACE TABLE"
    assert rows(again) == []
    place.create(mode="replace")
    assert table.refresh().history(1)[0].operation == "REPLACE TABLE"
    with pytest.raises(InvalidRequest, match="give one of create, if_not_exists, or_replace, replace"):
        place.create(mode="overwrite")


def test_a_table_of_another_engine_is_not_replaced(place: Place) -> None:
    deltalake.write_deltalake(place.location, flights(("JFK", 1, 1)))
    for mode in ("if_not_exists", "or_replace", "replace"):
        with pytest.raises(sluice.errors.NotATable, match="attach"):
            place.create(mode=mode)


def test_a_table_that_is_created_right_after_the_look_is_found(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = []

    def slow_look(address: TableAddress) -> OpenTable:
        looks.append(address)
        try:
            return open_coordinated(address)
        finally:
            if len(looks) == 1:
                sluice.Table.create(place.location, FLIGHTS, coordinator=place.coordinator)

    monkeypatch.setattr(creation, "open_coordinated", slow_look)
    table = sluice.Table.create(place.location, FLIGHTS, mode="if_not_exists", coordinator=place.coordinator)
    assert (len(looks), table.version) == (2, 0)


def test_many_that_create_a_table_if_there_is_none_get_one_table(place: Place) -> None:
    def create(number: int) -> int:
        table = sluice.Table.create(place.location, FLIGHTS, mode="if_not_exists", coordinator=place.coordinator)
        table.append(flights(("JFK", 1, number)))
        return number

    with ThreadPoolExecutor(6) as pool:
        assert sorted(pool.map(create, range(6))) == list(range(6))
    assert len(rows(place.open())) == 6
