"""Rows for people and for programs: a table, JSON Lines (docs/sql.md has its forms), CSV. No value of any type is an error."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, Final, TextIO

import orjson
import pyarrow as pa
import pyarrow.compute as pc
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from ..storage.errors import InvalidRequest

_DAY_US: Final = 86_400_000_000
_INFINITE: Final = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def values_of(array: pa.Array) -> list[Any]:
    """The values of an array: None, booleans, numbers, texts, lists, and dictionaries with texts as keys."""
    types, kind = pa.types, array.type
    if isinstance(kind, pa.BaseExtensionType):
        return values_of(array.storage)
    if types.is_dictionary(kind):
        return values_of(array.dictionary_decode())
    if types.is_struct(kind):
        valid = array.is_valid().to_pylist()
        columns = [values_of(each) for each in array.flatten()]
        rows = zip(*columns, strict=True) if columns else [()] * len(array)
        names = [each.name for each in kind]
        return [dict(zip(names, row, strict=True)) if there else None for there, row in zip(valid, rows, strict=True)]
    if types.is_map(kind):
        valid = array.is_valid().to_pylist()
        keys, items = values_of(array.keys), values_of(array.items)
        pairs = [(text_of(key), item) for key, item in zip(keys, items, strict=True)]
        spans = pairwise(array.offsets.to_pylist())
        return [dict(pairs[first:last]) if there else None for there, (first, last) in zip(valid, spans, strict=True)]
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        inner, lengths = values_of(array.flatten()), pc.list_value_length(array).to_pylist()
        lists, at = [], 0
        for length in lengths:
            lists.append(None if length is None else inner[at : at + length])
            at += length or 0
        return lists
    return _plain(array)


def text_of(value: Any, null: str = "null") -> str:
    """A value as people read it, and as CSV has it."""
    if value is None:
        return null
    if isinstance(value, str):
        return value
    return orjson.dumps(value).decode() if isinstance(value, (bool, dict, list)) else str(value)


def _plain(array: pa.Array) -> list[Any]:
    types, kind = pa.types, array.type
    form: Callable[[Any], Any] = str
    if types.is_boolean(kind) or types.is_integer(kind) or types.is_null(kind) or types.is_string(kind) or types.is_large_string(kind):
        return list(array.to_pylist())
    if types.is_date(kind):
        return list(array.cast(pa.date32()).cast(pa.string()).to_pylist())
    if types.is_floating(kind):
        form = _number
        if kind != pa.float64():  # a FLOAT has the digits that it needs, not those of its DOUBLE
            array = array.cast(pa.string())
    elif types.is_decimal(kind):
        form = "{:f}".format
    elif types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        form = _hexadecimal
    elif types.is_timestamp(kind):
        array = array.cast(pa.timestamp("us", None if kind.tz is None else "UTC"), safe=False).cast(pa.timestamp("us")).cast(pa.string())
        form = partial(_time, zone="" if kind.tz is None else "Z")
    elif types.is_time(kind):
        array, form = array.cast(pa.time64("us"), safe=False).cast(pa.string()), _time
    elif types.is_duration(kind):
        array, form = array.cast(pa.duration("us"), safe=False).cast(pa.int64()), partial(_interval, 0)
    elif kind == pa.month_day_nano_interval():
        return [None if each is None else _interval(each[0], each[1] * _DAY_US + each[2] // 1000) for each in array.to_pylist()]
    return [None if each is None else form(each) for each in array.to_pylist()]


def _number(value: float | str) -> float | str:
    number = float(value)
    return number if math.isfinite(number) else _INFINITE[str(number)]


def _hexadecimal(value: bytes) -> str:
    return value.hex().upper()


def _time(text: str, zone: str = "") -> str:
    """In ISO 8601, without a fraction of zeros. Arrow writes times beyond its years as <value out of range: ...>."""
    return text if text.startswith("<") else text.replace(" ", "T").removesuffix(".000000") + zone


def _interval(months: int, microseconds: int) -> str:
    """In ISO 8601, where each number has the sign: P1Y2M3DT4H5M6.5S, PT0S. A day has 24 hours."""
    date = ""
    for value, unit, large, small in [(months, 12, "Y", "M"), (microseconds, _DAY_US, "D", "")]:
        whole, rest = _divided(value, unit)
        date += (f"{whole}{large}" if whole else "") + (f"{rest}{small}" if rest and small else "")
    _, rest = _divided(microseconds, _DAY_US)
    hours, rest = _divided(rest, 3_600_000_000)
    minutes, rest = _divided(rest, 60_000_000)
    seconds = f"{'-' if rest < 0 else ''}{abs(rest) // 1_000_000}.{abs(rest) % 1_000_000:06d}".rstrip("0").rstrip(".") if rest else ""
    clock = "".join(f"{value}{unit}" for value, unit in ((hours, "H"), (minutes, "M"), (seconds, "S")) if value)
    return f"P{date}{'T' if clock else ''}{clock}" if date or clock else "PT0S"


def _divided(value: int, unit: int) -> tuple[int, int]:
    """Quotient and remainder with the value's sign."""
    sign = -1 if value < 0 else 1
    whole, rest = divmod(abs(value), unit)
    return sign * whole, sign * rest


_LEFT: Final = "…"
_FEW_COLUMNS: Final = 4
_ANY_WIDTH: Final = 1_000_000
PIPE_WIDTH: Final = 160


def console_on(stream: TextIO) -> Console:
    """A console that prints texts as they are; a pipe has PIPE_WIDTH columns."""
    console = Console(file=stream, highlight=False, markup=False)
    if not console.is_terminal:
        console.width = PIPE_WIDTH
    return console


def draw(console: Console, rows: pa.Table, most: int, *, expanded: bool = False, null: str = "null") -> None:
    """Draw the first `most` rows; says how many there are more. Nothing for rows without columns.

    Rows are lines of one table if it has few columns, or is not wider than the console. Otherwise, and if `expanded`, each row is a
    list of its columns. A value that is too wide is folded, never cut.
    """
    if rows.num_columns == 0:
        return
    absent = Text(null, style="dim")
    shown = [[absent if value is None else Text(text_of(value)) for value in row] for row in _rows(rows.slice(0, most))]
    grid = Grid(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold")
    for field in rows.schema:
        numeric = pa.types.is_integer(field.type) or pa.types.is_floating(field.type) or pa.types.is_decimal(field.type)
        grid.add_column(Text(field.name), justify="right" if numeric else "left", overflow="fold")
    for row in shown:
        grid.add_row(*row)
    wide = console.options.update(width=_ANY_WIDTH)
    if not shown or (not expanded and (rows.num_columns <= _FEW_COLUMNS or console.measure(grid, options=wide).maximum <= console.width)):
        console.print(grid)
    else:
        for number, row in enumerate(shown, 1):
            console.print(Text(f"row {number}", style="italic"), _listed(rows.column_names, row), sep="\n")
    if rows.num_rows > most:
        console.print(Text(f"{_LEFT} and {rows.num_rows - most} rows more (--max-rows)", style="dim"))


def _listed(names: Sequence[str], row: Sequence[Text]) -> Grid:
    """One row: a line for each column."""
    grid = Grid(show_header=False, box=None, pad_edge=False)
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, cell in zip(names, row, strict=True):
        grid.add_row(Text(name), cell)
    return grid


def as_json(rows: pa.Table) -> Iterator[str]:
    """One line of JSON for each row: an object of its columns. Raises InvalidRequest if two columns, or fields of one, have one name."""
    _require_names_once(rows.schema, "columns")
    for row in _rows(rows):
        yield orjson.dumps(dict(zip(rows.column_names, row, strict=True))).decode()


def _require_names_once(fields: pa.Schema | pa.DataType, what: str) -> None:
    names = [each.name for each in fields]
    if (twice := next((name for name in names if names.count(name) > 1), None)) is not None:
        raise InvalidRequest(
            f"{names.count(twice)} {what} are called {twice!r}, and an object of JSON has one value of a name: "
            f"give each another one ({twice} AS other), or print a table or CSV",
            column=twice,
        )
    for each in fields:
        for inner in _structs_in(each.type):
            _require_names_once(inner, f"fields of column {each.name!r}")


def _structs_in(kind: pa.DataType) -> Iterator[pa.DataType]:
    if pa.types.is_struct(kind):
        yield kind
    elif pa.types.is_nested(kind) and not pa.types.is_union(kind):
        for number in range(kind.num_fields):
            yield from _structs_in(kind.field(number).type)


def as_csv(rows: pa.Table) -> Iterator[str]:
    """A line of names, and a line for each row; null is empty, nested values are JSON."""
    if rows.num_columns == 0:
        return
    yield _csv_line(rows.column_names)
    for row in _rows(rows):
        yield _csv_line([text_of(value, "") for value in row])


def _csv_line(values: list[str]) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(values)
    return line.getvalue()


def _rows(rows: pa.Table) -> Iterator[tuple[Any, ...]]:
    for batch in rows.to_batches():
        yield from zip(*(values_of(column) for column in batch.columns), strict=True)
