"""Programs that change the columns of a table with column mapping, and append to it meanwhile, for tests that kill them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import pyarrow as pa

import sluice
from sluice.coordinator.limits import Limits
from sluice.statements.duckdb.engine import run
from sluice.tables.client.open_table import OpenTable

__all__ = ["change", "dies", "writes"]


def _table(location: str, coordinator: str, *, fast_path: bool = False, staged: bool = False) -> sluice.Table:
    limits = Limits(fast_path=fast_path, patience_s=0.05, patience_s_max=0.5, inline_bytes_max=16 if staged else 64 * 1024)
    return sluice.Table.open(location, coordinator=coordinator, limits=limits)


STATEMENTS = {
    "rename": ("RENAME COLUMN v TO w", "RENAME COLUMN w TO v"),
    "drop": ("DROP COLUMN v", "ADD COLUMN v STRING"),
}
"""What is done in turns."""


def change(location: str, coordinator: str, does: str, in_sql: bool, staged: bool) -> None:
    """Rename the column v to w and back, or drop it and add it again, until it is killed: others may publish the first ones.

    Prints the id of each transaction that it begins, and "changed" where one was acknowledged.
    """
    plain = OpenTable.new_transaction_id

    def noted(self: OpenTable) -> str:
        made = plain(self)
        print(made, flush=True)
        return made

    setattr(OpenTable, "new_transaction_id", noted)  # noqa: B010 - it is final everywhere else
    table = _table(location, coordinator, staged=staged)
    for turn in count():
        if in_sql:
            run(f"ALTER TABLE sluice.`{location}` {STATEMENTS[does][turn % 2]}", coordinator=coordinator)
        elif does == "rename":
            old, new = ("v", "w") if turn % 2 == 0 else ("w", "v")
            table.alter_columns([sluice.ColumnChange((old,), name=new)])
        elif turn % 2 == 0:
            table.drop_columns(["v"])
        else:
            table.add_columns([sluice.NewColumn(pa.field("v", pa.string()))])
        print("changed", flush=True)


def appends(location: str, coordinator: str, writer: int, until: Path | None, *, staged: bool = False) -> None:
    """Append a row at a time until there is a file of that name, or for ever; prints the id of each row that was acknowledged.

    Writers with odd numbers fill the column that is renamed, by the name that it has when they look, or leave it out where it is gone.
    """
    table = _table(location, coordinator, fast_path=writer % 4 < 2, staged=staged)
    number = 1000 * writer
    while until is None or not until.exists():
        name = _changing(table.refresh().schema) if writer % 2 else None
        row = {"id": [number], "p": ["ab"[writer % 2]]}
        try:
            table.append(pa.table(row if name is None else {**row, name: [f"v{number}"]}))
        except sluice.errors.SchemaMismatch:  # the column got its new name after we looked: nothing was written
            if name is None:
                raise
            continue
        except sluice.errors.NotCommitted as refusal:
            print(f"refused: {refusal}", file=sys.stderr)
            raise
        os.write(1, f"{number}\n".encode())  # in one piece, for others print, too
        number += 1


def writes(location: str, coordinator: str, writers: list[int], until: str) -> None:
    """Several writers as threads of one process."""
    with ThreadPoolExecutor(len(writers)) as pool:
        each: Callable[[int], None] = lambda writer: appends(location, coordinator, writer, Path(until))  # noqa: E731
        list(pool.map(each, writers))


def dies(location: str, coordinator: str, writer: int, staged: bool) -> None:
    """One writer that goes on until it is killed."""
    appends(location, coordinator, writer, None, staged=staged)


def _changing(schema: pa.Schema) -> str | None:
    return next((name for name in schema.names if name not in ("id", "p")), None)
