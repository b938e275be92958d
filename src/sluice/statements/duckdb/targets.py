"""The numbered rows of a table that a change may concern, and how the change gets into the transaction's draft."""

from __future__ import annotations

from dataclasses import field
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from ...storage.actions import AddFile
from ...storage.data.filling import renewing
from ...storage.data.vectors import Rows as Positions
from ...storage.data.vectors import rows_at
from ...storage.dataclass import dataclass
from ...storage.schema.conform import conform
from ...storage.schema.datatypes import StructType
from ...storage.schema.schema import to_arrow
from ...tables.write.data_writing import check_rows
from ...tables.write.draft import Draft
from ...tables.write.merging import RowCounts
from ...tables.write.row_operations import RowChanges, apply_changes
from ..parse.cursor import Span
from .request import LocalRequest

TARGET: Final = "__sluice_target"
"""The name of the table that is changed, in DuckDB."""
NUMBER: Final = "__sluice_number"
"""The column with the numbers of its rows."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of `files`: their values and numbers in `data`; the file and the position of each; the ids that they keep, if they do."""

    data: pa.Table
    files: tuple[AddFile, ...]
    file_of: pa.Array
    positions: pa.Array
    ids: pa.Table | None

    @staticmethod
    def of(request: LocalRequest, draft: Draft, files: pa.Table) -> Rows:
        """All rows of these files, from the draft's candidates. Raises UnsupportedFeature ("Spark") if one process does not take them."""
        size = pc.sum(files["size"]).as_py() or 0
        if request.max_bytes is not None and size > request.max_bytes:
            said = (
                f"the change looks into {size >> 20} MiB of data files, more than the {request.max_bytes >> 20} MiB that one process takes"
            )
            raise request.needs_spark(Span(0, len(request.text)), said)
        schema = to_arrow(draft.schema)
        batches = list(draft.find(None, files, with_ids=True))
        whole = pa.concat_tables([each.rows for each in batches]) if batches else schema.empty_table()
        ids = None if draft.row_ids is None or not batches else whole.select([draft.row_ids.row_id])
        data = whole.select(schema.names).append_column(NUMBER, pa.array(range(whole.num_rows), pa.int64()))
        file_of = [pa.repeat(pa.scalar(number, pa.int32()), len(each.positions)) for number, each in enumerate(batches)]
        positions = [each.positions for each in batches]
        return Rows(
            data,
            tuple(each.file for each in batches),
            pa.concat_arrays(file_of) if batches else pa.array([], pa.int32()),
            pa.concat_arrays([_whole(each) for each in positions]) if batches else pa.array([], pa.int64()),
            ids,
        )

    def with_values(self, numbers: pa.ChunkedArray, new: pa.Table, schema: StructType) -> pa.Table:
        """The rows of these numbers with new values in some columns, and their numbers; generated columns are made again.

        Raises SchemaMismatch for a forbidden null.
        """
        rows = self.data.drop_columns([NUMBER]).take(numbers)
        for name in new.column_names:
            rows = rows.set_column(rows.column_names.index(name), name, new.column(name))
        whole = renewing(schema, new.column_names).apply(conform(rows, schema))
        return whole.append_column(NUMBER, numbers)

    def places(self, numbers: pa.Array | pa.ChunkedArray) -> dict[str, Positions]:
        """The positions of the rows of these numbers, by file."""
        of = self.file_of.take(numbers)
        at = self.positions.take(numbers)
        chosen = [(self.files[number], at.filter(pc.equal(of, number))) for number in pc.unique(of).to_pylist()]
        return {file.path: rows_at(_whole(positions)) for file, positions in chosen}


def _whole(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


def _no_numbers() -> pa.Array:
    return pa.array([], pa.int64())


@dataclass(frozen=True, slots=True)
class Changes:
    """What happens to rows: those of the numbers `deleted` go, those in `replaced`, with their numbers, get these values; `added` are new.

    The values fit the table's schema.
    """

    deleted: pa.Array | pa.ChunkedArray = field(default_factory=_no_numbers)
    replaced: pa.Table | None = None
    added: pa.Table | None = None

    @property
    def counts(self) -> RowCounts:
        """How many rows."""
        updated, inserted = (0 if each is None else each.num_rows for each in (self.replaced, self.added))
        return RowCounts(updated, len(self.deleted), inserted)


def apply_to(draft: Draft, rows: Rows, changes: Changes, label: str) -> None:
    """Make changes part of the draft. Raises SchemaMismatch and ConstraintViolated for new values, before the draft changes."""
    gone = rows.places(changes.deleted)
    replaced = {} if changes.replaced is None else rows.places(changes.replaced.column(NUMBER))
    draft.foresee(each for each in rows.files if each.path in replaced or each.path in gone)
    # Rows that this transaction added itself stay new to the table.
    own = {path: positions for path, positions in replaced.items() if draft.is_new(path)}
    added, successors = [], []
    if changes.replaced is not None:
        is_new = pa.array([draft.is_new(each.path) for each in rows.files], pa.bool_())
        mine = is_new.take(rows.file_of.take(changes.replaced.column(NUMBER)))
        added += _written(draft, rows, changes.replaced.filter(mine), f"{label}n")
        successors += _written(draft, rows, changes.replaced.filter(pc.invert(mine)), label)
    if changes.added is not None and changes.added.num_rows:
        added += draft.write([changes.added], label=f"{label}i", check=check_rows(draft.metadata))
    deleted = {path: own.get(path, Positions()) | gone.get(path, Positions()) for path in (*own, *gone)}
    old = {path: positions for path, positions in replaced.items() if path not in own}
    apply_changes(draft, RowChanges(deleted=deleted, replaced=old, successors=successors, added=added))


def _written(draft: Draft, rows: Rows, replaced: pa.Table, label: str) -> list[AddFile]:
    """Files with new values of rows, which keep their ids."""
    if not replaced.num_rows:
        return []
    data = replaced.drop_columns([NUMBER])
    if rows.ids is not None:
        data = data.append_column(rows.ids.schema.field(0), rows.ids.column(0).take(replaced.column(NUMBER)))
    return draft.write([data], label=label, check=check_rows(draft.metadata), with_ids=True)
