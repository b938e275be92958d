"""Updates: which rows get which values, what of it is refused, and what becomes of the files."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

import sluice
from tests.tables.conftest import Place, flights, rows_of
from tests.tables.pictures import files_below

VECTORS = {"delta.enableDeletionVectors": "true"}


@pytest.fixture(params=[{}, VECTORS], ids=["copies", "vectors"])
def table(place: Place, request: pytest.FixtureRequest) -> sluice.Table:
    """Four rows in three partitions, in version 1."""
    table = place.create(properties=request.param)
    table.append(flights(("JFK", 1, 1), ("JFK", 1, None), ("JFK", 2, 3), ("EWR", 2, 4)))
    return table


def now(table: sluice.Table) -> list[tuple[Any, ...]]:
    return rows_of(table.refresh().snapshot().to_arrow())


@pytest.mark.parametrize(
    ("assigned", "where", "expected"),
    [
        ({"delay": "delay + 10"}, "origin = 'JFK'", [("EWR", 2, 4), ("JFK", 1, None), ("JFK", 1, 11), ("JFK", 2, 13)]),
        ({"delay": "0"}, None, [("EWR", 2, 0), ("JFK", 1, 0), ("JFK", 1, 0), ("JFK", 2, 0)]),
        ({"delay": "NULL"}, "delay > 3", [("EWR", 2, None), ("JFK", 1, None), ("JFK", 1, 1), ("JFK", 2, 3)]),
        ({"origin": "'LGA'"}, "month = 2", [("JFK", 1, None), ("JFK", 1, 1), ("LGA", 2, 3), ("LGA", 2, 4)]),
        ({"month": "delay", "delay": "month"}, "delay IS NOT NULL", [("EWR", 4, 2), ("JFK", 1, None), ("JFK", 1, 1), ("JFK", 3, 2)]),
        ({"DELAY": "CASE WHEN month = 1 THEN 1 ELSE delay END"}, None, [("EWR", 2, 4), ("JFK", 1, 1), ("JFK", 1, 1), ("JFK", 2, 3)]),
        ({"delay": "delay"}, "delay = 1", [("EWR", 2, 4), ("JFK", 1, None), ("JFK", 1, 1), ("JFK", 2, 3)]),
    ],
)
def test_rows_get_the_values_of_expressions_over_the_old_row(
    place: Place, table: sluice.Table, assigned: dict[str, str], where: str | None, expected: list[tuple[Any, ...]]
) -> None:
    commit = table.update(assigned, where)
    assert commit is not None
    assert commit.version == 2
    assert now(table) == expected
    found = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(place.location)).execute("SELECT * FROM t").read_all()
    assert rows_of(pa.table(found).select(["origin", "month", "delay"])) == expected


def test_the_history_tells_the_condition_and_the_numbers(table: sluice.Table) -> None:
    table.update({"delay": "delay + 10"}, "month = 1 AND delay = 1")
    entry = table.history(1)[0]
    copies = "delta.enableDeletionVectors" not in table.properties
    assert (entry.operation, entry.parameters, entry.kind) == ("UPDATE", {"predicate": "month = 1 AND delay = 1"}, "change")
    assert entry.metrics["numUpdatedRows"] == "1"
    assert entry.metrics["numCopiedRows"] == ("1" if copies else "0")
    assert entry.metrics["numAddedFiles"] == ("2" if copies else "1")
    assert entry.metrics["numDeletionVectorsAdded"] == ("0" if copies else "1")


def test_no_row_makes_no_version(table: sluice.Table) -> None:
    assert table.update({"delay": "1"}, "origin = 'LGA'") is None
    assert table.update({"delay": "1"}, "delay = 12345") is None
    assert table.refresh().version == 1


def test_a_null_condition_selects_nothing(table: sluice.Table) -> None:
    table.update({"delay": "99"}, "delay <> 1")
    assert now(table) == [("EWR", 2, 99), ("JFK", 1, None), ("JFK", 1, 1), ("JFK", 2, 99)]


@pytest.mark.parametrize(
    ("assigned", "where", "error", "words"),
    [
        ({}, None, sluice.errors.InvalidRequest, "nothing to set"),
        ({"nowhere": "1"}, None, sluice.errors.InvalidRequest, "nowhere"),
        ({"delay": "1", "DELAY": "2"}, None, sluice.errors.InvalidRequest, "twice"),
        ({"delay": "my_function(delay)"}, None, sluice.errors.PredicateError, "my_function"),
        ({"delay": "delay +"}, None, sluice.errors.PredicateError, r"delay \+"),
        ({"delay": "'late'"}, None, sluice.errors.SluiceError, "delay"),
        ({"delay": "1"}, "nowhere = 1", sluice.errors.PredicateError, "nowhere"),
        ({"origin": "NULL"}, None, sluice.errors.NullNotAllowed, "NOT NULL"),
        ({"month": "delay * 1000000000000"}, "delay = 4", sluice.errors.SluiceError, "month"),
        ({"delay": "10 div (delay - 3)"}, None, sluice.errors.PredicateError, "delay"),
    ],
)
def test_what_cannot_be_done_is_refused_and_leaves_nothing(
    tmp_path: Path, table: sluice.Table, assigned: dict[str, str], where: str | None, error: type[sluice.errors.SluiceError], words: str
) -> None:
    before = files_below(tmp_path)
    with pytest.raises(error, match=words):
        table.update(assigned, where)
    assert files_below(tmp_path) == before
    assert table.refresh().version == 1


@pytest.mark.parametrize("properties", [{}, VECTORS], ids=["copies", "vectors"])
def test_constraints_hold_for_the_new_rows(place: Place, tmp_path: Path, properties: dict[str, str]) -> None:
    table = place.create(properties={**properties, "delta.constraints.sane": "delay BETWEEN 0 AND 100"})
    table.append(flights(("JFK", 1, 1), ("JFK", 1, 60)))
    before = files_below(tmp_path)
    with pytest.raises(sluice.errors.ConstraintViolated, match="sane"):
        table.update({"delay": "delay * 2"})
    assert files_below(tmp_path) == before
    assert table.update({"delay": "delay * 2"}, "delay < 50") is not None
    assert now(table) == [("JFK", 1, 2), ("JFK", 1, 60)]


def test_rows_that_others_append_meanwhile_stay_as_they_are(place: Place, table: sluice.Table) -> None:
    begun = table.begin()
    begun.update({"delay": "-1"})
    place.open().append(flights(("LGA", 3, 10)))
    assert begun.commit() is not None
    assert now(table) == [("EWR", 2, -1), ("JFK", 1, -1), ("JFK", 1, -1), ("JFK", 2, -1), ("LGA", 3, 10)]


def test_an_update_of_nested_and_wide_types_keeps_the_other_columns(place: Place) -> None:
    schema = pa.schema(
        [("id", pa.int64()), ("tags", pa.list_(pa.string())), ("at", pa.timestamp("us", "UTC")), ("price", pa.decimal128(20, 4))]
    )
    table = sluice.Table.create(place.location, schema, coordinator=place.coordinator, properties=VECTORS)
    rows = pa.table(
        [
            pa.array([1, 2]),
            pa.array([["a"], None]),
            pa.array([0, None], schema.types[2]),
            pa.array([Decimal(1), Decimal(2)], schema.types[3]),
        ],
        schema=schema,
    )
    table.append(rows)
    table.update({"price": "price + 0.5", "at": "TIMESTAMP '2024-01-01 00:00:00'"}, "id = 2")
    after = table.snapshot().to_arrow().sort_by("id").to_pylist()
    assert after[0] == rows.to_pylist()[0]
    assert (after[1]["tags"], str(after[1]["price"]), after[1]["at"].isoformat()) == (None, "2.5000", "2024-01-01T00:00:00+00:00")
