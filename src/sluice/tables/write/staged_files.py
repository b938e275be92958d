"""Data files that Spark itself wrote for a plan, beside the table: which plans allow that, and how the files become the table's.

Footers say all that is recorded of a file. What they do not allow is a reason to write the rows once more, by tasks that look at
every row: those name the row, the rule and the remedy.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pyarrow as pa

from ...storage.actions import AddFile
from ...storage.constants import COMPRESSION
from ...storage.data.datafiles import FileFormat
from ...storage.data.footers import WrittenFooter, read_written_footer
from ...storage.dataclass import dataclass
from ...storage.errors import PredicateError
from ...storage.pruning.predicate import Predicate
from ...storage.schema.computed import features_of_columns
from ...storage.schema.datatypes import MapType, PrimitiveType, StructType, as_nullable, types_inside
from ...storage.schema.partitions import decode_column, folder, path_to_uri
from ...storage.schema.schema import void_columns
from ...storage.stores.local import LocalStore
from ..client.property_rules import file_size_of, indexed_columns_of
from .data_writing import WritePlan, constraints_of

_THREADS: Final = 4


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A Parquet file with the plan's columns but the partition columns, whose `values` are as the log has them."""

    path: Path
    values: Mapping[str, str | None]


def why_rows_are_needed(plan: WritePlan) -> str | None:
    """Why footers do not suffice to check rows that are written by this plan; None if they do."""
    schema, partitions = plan.schema, plan.metadata.partition_columns
    if any(void_columns(schema)):
        return "it has a column of type void, which Parquet lacks"
    if constraints_of(plan.metadata).constraints:
        return "it has constraints"
    if not plan.computed and features_of_columns(schema):
        return "it has columns that are filled in"
    for each in schema.fields:
        if any(isinstance(dtype, MapType) for _, dtype in types_inside(each.type)):
            return f"the keys of maps in {each.name} must be distinct"
        if not isinstance(each.type, PrimitiveType) and (not each.nullable or as_nullable(each).type != each.type):
            return f"{each.name} has parts that are NOT NULL"
    if plan.mode == "overwrite" and plan.where is not None:
        columns = Predicate.parse(plan.where, schema).columns
        if not columns or not columns <= {*partitions}:
            return f"each row must satisfy {plan.where}"
    return None


def adopt_files(plan: WritePlan, store: LocalStore, staged: Sequence[StagedFile], label: str) -> tuple[AddFile, ...] | str:
    """Make files the table's own, not visible yet; or the reason why they do not fit, and then nothing has been done.

    Files without rows stay where they are. `label` distinguishes calls under one transaction.
    """
    configuration = dict(plan.metadata.configuration)
    indexed = indexed_columns_of(configuration)
    codec = plan.compression or COMPRESSION
    layout = FileFormat(plan.schema, plan.metadata.partition_columns, codec, indexed, file_size_of(configuration))
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="sluice-footers") as pool:
        footers = list(pool.map(lambda each: read_written_footer(each.path, layout.stored, layout.indexed_columns), staged))
    filled = [(file, footer) for file, footer in zip(staged, footers, strict=True) if footer.rows]
    reason = next(_unfit(plan, filled), None)
    if reason is not None:
        return reason
    tag = f"{plan.transaction_id}-{label}-files" if label else f"{plan.transaction_id}-files"
    moves: dict[str, Path] = {}
    added: list[AddFile] = []
    for number, (file, footer) in enumerate(filled):
        below = folder(layout.partition_columns, file.values)
        name = f"part-{number:05d}-{tag}-c000{layout.suffix}"
        key = f"{below}/{name}" if below else name
        moves[key] = file.path
        size, now = file.path.stat().st_size, time.time_ns() // 1_000_000
        added.append(AddFile(path_to_uri(key), dict(file.values), size, now, data_change=True, stats=footer.stats))
    store.adopt(moves)
    return tuple(added)


def _unfit(plan: WritePlan, files: Sequence[tuple[StagedFile, WrittenFooter]]) -> Iterator[str]:
    """Why rows of the files may not be in the table, as far as plans allow files by Spark."""
    required = [each.name for each in plan.schema.fields if not each.nullable]
    for file, footer in files:
        for column in footer.illegal:
            yield f"{column} has values that not every reader can read"
        for name in required:
            if file.values[name] is None if name in file.values else footer.nulls.get(name) != 0:
                yield f"{name} is NOT NULL"
    if plan.mode == "overwrite" and plan.where is not None and files:
        inside = Predicate.parse(plan.where, plan.schema)
        values = pa.table({name: _values(plan.schema, name, [file for file, _ in files]) for name in inside.columns})
        try:
            satisfied = all(inside.mask(values).to_pylist())
        except PredicateError:
            satisfied = False
        if not satisfied:
            yield f"rows do not satisfy {plan.where}"


def _values(schema: StructType, name: str, files: Sequence[StagedFile]) -> pa.Array:
    field = schema.get(name)
    assert field is not None
    assert isinstance(field.type, PrimitiveType)
    return decode_column(pa.array([file.values[field.name] for file in files], pa.string()), field.type)
