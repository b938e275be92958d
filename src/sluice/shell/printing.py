"""Rows for people and for programs: a table, JSON Lines, CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from typing import Any, Final, TextIO

import orjson
import pyarrow as pa
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from ..storage.errors import InvalidRequest
from .values import text_of, values_of

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
    shown = [[_cell(value, null) for value in row] for row in _rows(rows.slice(0, most))]
    grid = _grid(rows.schema, shown)
    if not shown or (
        not expanded
        and (
            rows.num_columns <= _FEW_COLUMNS
            or console.measure(grid, options=console.options.update(width=_ANY_WIDTH)).maximum <= console.width
        )
    ):
        console.print(grid)
    else:
        for number, row in enumerate(shown, 1):
            console.print(Text(f"row {number}", style="italic"), _listed(rows.column_names, row), sep="\n")
    if rows.num_rows > most:
        console.print(Text(f"{_LEFT} and {rows.num_rows - most} rows more (--max-rows)", style="dim"))


def _cell(value: Any, null: str) -> Text:
    return Text(null, style="dim") if value is None else Text(text_of(value))


def _grid(schema: pa.Schema, rows: Sequence[Sequence[Text]]) -> Grid:
    grid = Grid(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold")
    for field in schema:
        numeric = pa.types.is_integer(field.type) or pa.types.is_floating(field.type) or pa.types.is_decimal(field.type)
        grid.add_column(Text(field.name), justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        grid.add_row(*row)
    return grid


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
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
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
    """The rows' values as JSON has them."""
    for batch in rows.to_batches():
        yield from zip(*(values_of(column) for column in batch.columns), strict=True)
