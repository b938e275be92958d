"""Shallow clones: tables of their own over another table's files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

import sluice
from sluice.storage.errors import InvalidRequest, TableExists
from tests.tables.conftest import Place, flights, rows_of

NOW: Any = {"retain_hours": 0, "force": True}
ALL = [("EWR", 2, 2), ("JFK", 1, 1), ("JFK", 1, 4)]


def source(place: Place, **properties: str) -> sluice.Table:
    table = place.create(properties=properties)
    table.append(flights(("JFK", 1, 1), ("JFK", 1, 4), ("EWR", 2, 2)))
    return table


def rows(table: sluice.Table) -> list[tuple[Any, ...]]:
    return rows_of(table.refresh().snapshot().to_arrow())


def files(folder: str) -> set[str]:
    return {str(each) for each in Path(folder).rglob("*.parquet") if "_delta_log" not in str(each)}


def test_a_clone_has_the_rows_of_a_version_and_other_engines_read_it(place: Place) -> None:
    table = source(place, owner="ops")
    table.append(flights(("LGA", 3, 3)))
    clone = table.clone(place.location + " copy", 1, properties={"owner": "me"})
    assert rows(clone) == ALL
    assert (clone.properties["owner"], clone.partition_columns) == ("me", ("origin", "month"))
    assert clone.snapshot().raw.metadata.id != table.snapshot().raw.metadata.id
    assert files(clone.location.removeprefix("file://")) == set()
    (told,) = clone.history()
    assert told.operation == "CLONE"
    assert told.parameters == {"source": table.location, "sourceVersion": "1", "isShallow": "true"}
    assert told.metrics["sourceNumOfFiles"] == "2"
    assert len(rows(table.clone(place.location + "-2"))) == 4
    with pytest.raises(TableExists):
        table.clone(place.location + "-2")
    with pytest.raises(InvalidRequest, match="its own clone"):
        table.clone(place.location)
    with pytest.raises(InvalidRequest, match="another kind of store"):
        table.clone("s3://bucket/t")


def test_delta_rs_reads_a_clone(place: Place) -> None:
    """Its own engine does; `to_pyarrow_table` and polars take absolute URIs for relative ones."""
    clone = source(place).clone(place.location + "-copy")
    engine = deltalake.QueryBuilder().register("clone", deltalake.DeltaTable(clone.location))
    assert pa.table(engine.execute("select * from clone").read_all()).num_rows == 3


@pytest.mark.parametrize("vectors", ["true", "false"], ids=["vectors", "copies"])
@pytest.mark.parametrize("many", [4, 20_000], ids=["inline", "stored"])
def test_a_clone_is_changed_and_vacuumed_without_touching_the_original(place: Place, vectors: str, many: int) -> None:
    table = source(place, **{"delta.enableDeletionVectors": vectors})
    table.append(flights(*[("BOS", 5, n) for n in range(many)]))
    table.delete("origin = 'BOS' and delay % 3 = 1")
    before, theirs = rows(table), files(place.location)
    clone = table.clone(place.location + "-copy")
    assert rows(clone) == before
    clone.delete("origin = 'BOS' and delay % 3 = 2")
    clone.update({"delay": "7"}, where="origin = 'EWR'")
    expected = [("BOS", 5, n) for n in range(0, many, 3)] + [("EWR", 2, 7), ("JFK", 1, 1), ("JFK", 1, 4)]
    assert rows(clone) == expected
    clone.compact("major")
    clone.vacuum(**NOW)
    assert rows(clone) == expected
    assert files(place.location) == theirs
    assert rows(table) == before
    assert rows_of(clone.snapshot(0).to_arrow()) == before
    table.vacuum(**NOW)
    assert rows(table) == before
    clone.drop()
    assert rows(table) == before


def test_rows_keep_their_ids(place: Place) -> None:
    table = source(place, **{"delta.enableRowTracking": "true"})
    table.update({"delay": "9"}, where="delay = 4")
    clone = table.clone(place.location + "-copy")
    ids = [sorted(str(add.base_row_id) for add in each.snapshot().raw.add_files()) for each in (table.refresh(), clone)]
    assert ids[0] == ids[1]
    clone.append(flights(("LGA", 3, 3)))
    known = [add.base_row_id for add in clone.refresh().snapshot().raw.add_files()]
    assert len(set(known)) == len(known)
    assert max(each for each in known if each is not None) not in [int(each) for each in ids[0]]


def test_a_clone_replaces_a_table(place: Place) -> None:
    table = source(place)
    target = place.location + "-copy"
    first = table.clone(target, replace=True)
    assert first.version == 0
    first.append(flights(("LGA", 3, 3)))
    table.delete("origin = 'EWR'")
    again = table.clone(target, replace=True)
    assert (again.version, rows(again)) == (2, [("JFK", 1, 1), ("JFK", 1, 4)])
    (told,) = again.history(1)
    assert (told.operation, told.metrics["numRemovedFiles"]) == ("CLONE", "3")
    assert rows_of(again.snapshot(1).to_arrow()) == [*ALL[:1], *ALL[1:], ("LGA", 3, 3)]
