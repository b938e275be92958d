"""Rows for people and for programs: a table, JSON Lines, CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final

import orjson
import pyarrow as pa
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

_LEFT: Final = "…"
_FEW_COLUMNS: Final = 4
_ANY_WIDTH: Final = 1_000_000


def draw(console: Console, rows: pa.Table, most: int) -> None:
    """Draw the first `most` rows; says how many there are more. Nothing for rows without columns.

    Rows are lines of one table if it has few columns, or is not wider than the console. Otherwise each row is a list of its columns.
    """
    if rows.num_columns == 0:
        return
    shown = [[_cell(value) for value in row] for row in _rows(rows.slice(0, most))]
    grid = _grid(rows.schema, shown)
    if (
        not shown
        or rows.num_columns <= _FEW_COLUMNS
        or console.measure(grid, options=console.options.update(width=_ANY_WIDTH)).maximum <= console.width
    ):
        console.print(grid)
    else:
        for number, row in enumerate(shown, 1):
            console.print(_listed(rows.column_names, number, row))
    if rows.num_rows > most:
        console.print(Text(f"{_LEFT} and {rows.num_rows - most} rows more (--max-rows)", style="dim"))


def _cell(value: Any) -> Text:
    return Text("null", style="dim") if value is None else Text(_shown(value))


def _grid(schema: pa.Schema, rows: Sequence[Sequence[Text]]) -> Grid:
    grid = Grid(header_style="bold")
    for field in schema:
        numeric = pa.types.is_integer(field.type) or pa.types.is_floating(field.type) or pa.types.is_decimal(field.type)
        grid.add_column(Text(field.name), justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        grid.add_row(*row)
    return grid


def _listed(names: Sequence[str], number: int, row: Sequence[Text]) -> Grid:
    """One row: a line for each column."""
    grid = Grid(title=f"row {number}", title_justify="left", show_header=False)
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, cell in zip(names, row, strict=True):
        grid.add_row(Text(name), cell)
    return grid


def as_json(rows: pa.Table) -> Iterator[str]:
    """One line of JSON for each row: an object of its columns."""
    for row in _rows(rows):
        yield orjson.dumps(dict(zip(rows.column_names, row, strict=True)), default=_plain, option=orjson.OPT_NON_STR_KEYS).decode()


def as_csv(rows: pa.Table) -> Iterator[str]:
    """A line of names, and a line for each row; null is empty, nested values are JSON."""
    if rows.num_columns == 0:
        return
    yield _csv_line(rows.column_names)
    for row in _rows(rows):
        yield _csv_line(["" if value is None else _shown(value) for value in row])


def _csv_line(values: list[str]) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(values)
    return line.getvalue()


def _rows(rows: pa.Table) -> Iterator[tuple[Any, ...]]:
    """The rows as Python's values; maps as dictionaries."""
    for batch in rows.to_batches():
        columns = [[_python(value, field.type) for value in batch.column(at).to_pylist()] for at, field in enumerate(batch.schema)]
        yield from zip(*columns, strict=True)


def _python(value: Any, kind: pa.DataType) -> Any:
    if value is None:
        return None
    if pa.types.is_map(kind):
        return {_key(key): _python(item, kind.item_type) for key, item in value}
    if pa.types.is_struct(kind):
        return {field.name: _python(value[field.name], field.type) for field in kind}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return [_python(each, kind.value_type) for each in value]
    return value


def _key(key: Any) -> str:
    return key if isinstance(key, str) else _shown(key)


def _shown(value: Any) -> str:
    """A value as people read it."""
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case bytes():
            return value.hex().upper()
        case dict() | list():
            return orjson.dumps(value, default=_plain, option=orjson.OPT_NON_STR_KEYS).decode()
        case datetime():
            return value.isoformat(" ")
        case date() | time():
            return value.isoformat()
    return str(value)


def _plain(value: Any) -> Any:
    """What JSON has no form for."""
    match value:
        case Decimal():
            return float(value) if value == Decimal(repr(float(value))) else str(value)
        case bytes() | timedelta():
            return _shown(value)
    raise TypeError(f"{type(value).__name__} has no form in JSON")
