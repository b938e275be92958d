"""Writing data: a plan that travels to wherever the rows are, and the files that come back.

A plan holds all that a writer of data files needs and nothing that reaches the coordinator: executors only talk to the
object store.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

import pyarrow as pa

from ..storage.actions import AddFile, Metadata
from ..storage.conform import conform
from ..storage.constraints import Constraints
from ..storage.datafiles import write_files
from ..storage.errors import ConstraintViolated, InvalidRequest, SchemaMismatch
from ..storage.predicate import Predicate
from ..storage.schema import StructType, parse_schema, to_arrow
from .access import TableAddress

__all__ = [
    "Rows",
    "WritePlan",
    "batches_of",
    "check_rows",
    "file_size_of",
    "indexed_columns_of",
    "require_columns",
    "schema_of",
]

Rows: TypeAlias = "pa.Table | pa.RecordBatch | pa.RecordBatchReader | Iterable[pa.RecordBatch]"

_TARGET_FILE_SIZE_KEY = "delta.targetFileSize"
_INDEXED_COLUMNS_KEY = "delta.dataSkippingNumIndexedCols"
_MIB = 1024 * 1024


def batches_of(rows: Rows) -> Iterator[pa.RecordBatch | pa.Table]:
    """The rows piece by piece, whatever Arrow form they come in. Raises InvalidRequest for anything else."""
    if isinstance(rows, (pa.Table, pa.RecordBatch)):
        yield rows
        return
    if isinstance(rows, (str, bytes, Mapping)) or not isinstance(rows, Iterable):
        raise InvalidRequest(f"the data is of type {type(rows).__name__}; give a pyarrow Table, RecordBatch, reader, or batches")
    for batch in rows:
        if not isinstance(batch, (pa.RecordBatch, pa.Table)):
            raise InvalidRequest(f"the data holds a {type(batch).__name__}; give pyarrow RecordBatches")
        yield batch


def schema_of(rows: Rows) -> pa.Schema | None:
    """The Arrow schema of the rows where it can be told without reading them."""
    schema = getattr(rows, "schema", None)
    return schema if isinstance(schema, pa.Schema) else None


@lru_cache(maxsize=64)
def _schema(schema_string: str) -> StructType:
    return parse_schema(schema_string)


@lru_cache(maxsize=64)
def _constraints(schema_string: str, configuration: tuple[tuple[str, str], ...]) -> Constraints:
    metadata = Metadata(id="", schema_string=schema_string, partition_columns=(), configuration=dict(configuration))
    return Constraints.of(_schema(schema_string), metadata)


def check_rows(metadata: Metadata) -> Callable[[pa.Table], None]:
    """What raises ConstraintViolated for rows that break a constraint of the table. Raises UnsupportedFeature for one it cannot check."""
    return _constraints(metadata.schema_string, tuple(sorted(metadata.configuration.items()))).check


def require_columns(data: pa.Schema, table: StructType) -> None:
    """Raise SchemaMismatch when the data lacks columns of the table."""
    present = {name.lower() for name in data.names}
    missing = [f.name for f in table.fields if f.name.lower() not in present]
    if missing:
        raise SchemaMismatch(
            f"the data lacks column {', '.join(map(repr, missing))} of the table; add it (nulls are fine where it is nullable), or merge "
            "the schemas (merge_schema=True, option mergeSchema), which leaves nullable columns null",
            columns=missing,
        )


def file_size_of(configuration: Mapping[str, str]) -> int:
    """The target size of data files in bytes (`delta.targetFileSize`, plain or with kb, mb, gb); 128 MiB by default."""
    text = configuration.get(_TARGET_FILE_SIZE_KEY, "128mb").strip().lower()
    units = {"kb": 1024, "mb": _MIB, "gb": 1024 * _MIB, "b": 1, "": 1}
    digits = text.rstrip("kmgb")
    unit = text[len(digits) :]
    if not digits.isdigit() or unit not in units or int(digits) == 0:
        raise InvalidRequest(f"{_TARGET_FILE_SIZE_KEY} is {text!r}; use a size like 134217728 or 128mb")
    return int(digits) * units[unit]


def indexed_columns_of(configuration: Mapping[str, str]) -> int:
    """How many columns get statistics (`delta.dataSkippingNumIndexedCols`); -1: all, 32 by default."""
    text = configuration.get(_INDEXED_COLUMNS_KEY, "32")
    if not re.fullmatch(r"-1|[0-9]{1,9}", text):
        raise InvalidRequest(f"{_INDEXED_COLUMNS_KEY} is {text!r}; give a whole number, -1 for all columns")
    return int(text)


@dataclass(frozen=True, slots=True)
class WritePlan:
    """How the rows of one transaction become files; picklable.

    `metadata` is the table's (with the columns that merging the schemas adds); `fill_missing` lets rows lack nullable
    columns, which are null then; `mode` is "append", "overwrite" (with the
    predicate `where`, if given) or "dynamic"; `read_version` is the snapshot it was made on, -1 when it creates the
    table. `transaction` is the application's own (id, number), `isolation` a level stricter than the table's. `leases` are the
    nodes of the leases that were held when it was planned: it is committed only while they stand, by whomever.
    """

    address: TableAddress
    transaction_id: str
    metadata: Metadata
    mode: str = "append"
    where: str | None = None
    read_version: int = -1
    changes_metadata: bool = False
    transaction: tuple[str, int] | None = None
    fill_missing: bool = False
    isolation: str | None = None
    leases: tuple[str, ...] = ()

    @property
    def schema(self) -> StructType:
        """The schema the rows must fit."""
        return _schema(self.metadata.schema_string)

    def write(self, rows: Rows, *, label: str = "") -> tuple[AddFile, ...]:
        """Write the rows as data files, nobody sees them yet; `label` tells apart tasks and attempts of one transaction.

        Raises SchemaMismatch and ConstraintViolated before a file with the offending rows exists.
        """
        configuration = dict(self.metadata.configuration)
        files = write_files(
            self.address.store(),
            self._complete(batches_of(rows)),
            schema=self.schema,
            partition_columns=self.metadata.partition_columns,
            transaction_id=self.transaction_id,
            target_file_bytes=file_size_of(configuration),
            indexed_columns=indexed_columns_of(configuration),
            check=self._checks(),
            label=label,
        )
        return tuple(files)

    def gather(self, rows: Rows) -> pa.Table:
        """The rows as one table of exactly the schema, in memory; constraints are not checked. Raises SchemaMismatch."""
        fitted = [conform(batch, self.schema) for batch in self._complete(batches_of(rows))]
        return pa.concat_tables(fitted) if fitted else to_arrow(self.schema).empty_table()

    def _complete(self, batches: Iterable[pa.RecordBatch | pa.Table]) -> Iterator[pa.RecordBatch | pa.Table]:
        """The batches, each with every column of the table. Raises SchemaMismatch, naming the columns that are missing."""
        checked: pa.Schema | None = None
        for batch in batches:
            if not self.fill_missing and batch.schema is not checked:
                require_columns(batch.schema, self.schema)
                checked = batch.schema
            yield batch

    def _checks(self) -> Callable[[pa.Table], None]:
        constraints = check_rows(self.metadata)
        if self.mode != "overwrite" or self.where is None:
            return constraints
        inside = Predicate.parse(self.where, self.schema)

        def check(table: pa.Table) -> None:
            constraints(table)
            mask = inside.mask(table)
            outside = len(table) - (mask.true_count if isinstance(mask, pa.BooleanArray) else sum(bool(v) for v in mask.to_pylist()))
            if outside:
                raise ConstraintViolated(
                    f"{outside} of the rows do not satisfy the condition that is overwritten ({self.where}); "
                    "filter the data, or widen the condition",
                    where=self.where,
                    rows=outside,
                )

        return check
