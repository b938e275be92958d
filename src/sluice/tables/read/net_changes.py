"""Net changes of rewritten files, without rows that were only copied."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["without_copies"]

_ROW: Final = "row"


def without_copies(deleted: pa.Table, inserted: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Both tables (of one schema) without their common rows, each as often as both have it; the rest keeps its order."""
    if not deleted.num_rows or not inserted.num_rows:
        return deleted, inserted
    both = pa.concat_tables([deleted, inserted])
    names = [f"key{number}" for number in range(both.num_columns)]
    keys = pa.table([_comparable(column) for column in both.columns], names=names)
    keys = keys.append_column(_ROW, pa.array(range(both.num_rows), pa.int64()))
    # One thread, so that a group's rows stay in order: the deleted ones first.
    rows = keys.group_by(names, use_threads=False).aggregate([(_ROW, "list")]).column(f"{_ROW}_list").combine_chunks()
    row, group = pc.list_flatten(rows), pc.list_parent_indices(rows)
    is_deleted = pc.less(row, deleted.num_rows)
    starts = pc.take(rows.offsets, group)
    place = pc.subtract(pa.array(range(both.num_rows), pa.int64()), starts)
    gone = _per_group(is_deleted, group, len(rows))
    common = pc.take(pc.min_element_wise(gone, pc.subtract(pc.list_value_length(rows), gone)), group)
    # Of a group's d deleted and i inserted rows, the first min(d, i) of each cancel each other.
    ordinal = pc.if_else(is_deleted, place, pc.subtract(place, pc.take(gone, group)))
    left = pc.filter(row, pc.greater_equal(ordinal, common))
    left = left.take(pc.sort_indices(left))
    split = pc.sum(pc.less(left, deleted.num_rows)).as_py() or 0
    return deleted.take(left.slice(0, split)), inserted.take(pc.subtract(left.slice(split), deleted.num_rows))


def _per_group(flags: pa.Array, group: pa.Array, groups: int) -> pa.Array:
    """How many of the flags of each group are set; groups are contiguous."""
    counted = pa.table({"group": group, "n": flags.cast(pa.int64())}).group_by("group", use_threads=False).aggregate([("n", "sum")])
    assert counted.num_rows == groups
    return counted.column("n_sum").combine_chunks()


def _comparable(column: Any) -> Any:
    """A column that Arrow can group by: nested values become texts that are equal exactly if the values are."""
    if not pa.types.is_nested(column.type):
        return column
    return pa.chunked_array(
        [[None if value is None else repr(value) for value in chunk.to_pylist()] for chunk in column.chunks], pa.string()
    )
