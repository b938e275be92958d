"""Data of other libraries, which export it by the Arrow PyCapsule interface."""

from __future__ import annotations

from typing import Any

import polars as pl
import pyarrow as pa
import pytest

import sluice
from tests.tables.conftest import FLIGHTS, Place, flights, rows_of

ROWS = [("EWR", 2, None), ("JFK", 1, 5)]


class Stream:
    """What knows nothing but to export itself, once."""

    def __init__(self, table: pa.Table) -> None:
        self._reader: pa.RecordBatchReader | None = table.to_reader(max_chunksize=1)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        reader, self._reader = self._reader, None
        assert reader is not None, "it is read once"
        return reader.__arrow_c_stream__(requested_schema)


class Array:
    """One batch that exports itself."""

    def __init__(self, table: pa.Table) -> None:
        [self._batch] = table.combine_chunks().to_batches()

    def __arrow_c_array__(self, requested_schema: Any = None) -> Any:
        return self._batch.__arrow_c_array__(requested_schema)


class Schema:
    """A schema that exports itself."""

    def __arrow_c_schema__(self) -> Any:
        return FLIGHTS.__arrow_c_schema__()


def of_polars(table: pa.Table) -> pl.DataFrame:
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    return frame


FORMS = {
    "stream": Stream,
    "array": Array,
    "polars": of_polars,
    "several": lambda table: [Array(table.slice(0, 1)), of_polars(table.slice(1))],
}


@pytest.mark.parametrize("form", FORMS)
def test_what_exports_arrow_is_written(place: Place, form: str) -> None:
    made: Any = FORMS[form]
    table = sluice.Table.create(place.location, Schema(), coordinator=place.coordinator)
    assert table.snapshot().schema == FLIGHTS
    rows = flights(*ROWS)
    table.append(made(rows))
    assert rows_of(table.snapshot().to_arrow()) == ROWS
    table.overwrite(made(rows), "month > 0")
    with table.begin() as begun:
        begun.upsert(made(rows.set_column(2, "delay", pa.array([7, 8]))), on=["origin", "month"])
        begun.append(made(flights(("LGA", 3, 1), ("LGA", 4, 1))))
    with sluice.transaction() as together:
        together[table].append(made(flights(("PHL", 5, 1), ("PHL", 6, 1))))
    found = rows_of(table.snapshot().to_arrow())
    assert found == [("EWR", 2, 7), ("JFK", 1, 8), ("LGA", 3, 1), ("LGA", 4, 1), ("PHL", 5, 1), ("PHL", 6, 1)]
    if form != "several":
        table.append(made(flights(("SFO", 1, 1)).append_column("carrier", pa.array(["UA"]))), merge_schema=True)
        assert table.snapshot().schema.names == [*FLIGHTS.names, "carrier"]


def test_what_exports_no_rows_of_columns_is_refused(place: Place) -> None:
    table = place.create()
    for bad in (pl.Series([1, 2]), pa.array([1, 2])):
        with pytest.raises(sluice.errors.InvalidRequest, match="cannot be read as rows of columns"):
            table.append(bad)
    with pytest.raises(sluice.errors.InvalidRequest, match="anything that exports Arrow"):
        table.append({"origin": ["JFK"]})
