"""Writing data: a plan that travels to the rows, and the files that come back.

A plan has everything that a writer of data files needs, and nothing that reaches the coordinator: executors use only the object store.

Spark itself may write files for a plan, beside the table. If their footers do not suffice, tasks that look at every row write the rows
once more: those name the row, the rule and the remedy.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from functools import lru_cache
from pathlib import Path
from typing import Final, Protocol, TypeAlias, cast

import pyarrow as pa

from ...coordinator.rules.intent import Terms
from ...storage.actions import AddFile, DomainMetadata, Metadata
from ...storage.actions import Protocol as TableProtocol
from ...storage.actions.features import RowIdColumns, in_data_files, with_row_ids
from ...storage.constants import COMPRESSION
from ...storage.data.assignments import Filling
from ...storage.data.constraints import Constraints
from ...storage.data.datafiles import write_files
from ...storage.data.numbers import Take, TaskNumbers, numbered
from ...storage.data.statistics import WrittenFooter, read_written_footer
from ...storage.dataclass import dataclass
from ...storage.errors import ConstraintViolated, InvalidRequest, PredicateError, SchemaMismatch
from ...storage.pruning.predicate import Predicate
from ...storage.schema.conform import check_values, conform
from ...storage.schema.datatypes import as_nullable, features_of_columns, generated_of, is_filled, is_list, to_give, types_inside
from ...storage.schema.identity import identities
from ...storage.schema.mapping import physical
from ...storage.schema.partitions import decode_column, folder, path_to_uri
from ...storage.schema.schema import VOID, ArrayType, DataType, MapType, PrimitiveType, StructType, parse_schema, to_arrow, void_columns
from ...storage.stores.local import LocalStore
from ...storage.stores.objects import ObjectStore
from ..client.address import TableAddress
from ..client.property_rules import layout_of


class ArrowStream(Protocol):
    """Data that exports itself as an Arrow stream (the Arrow PyCapsule interface): of Polars, DuckDB, nanoarrow, ..."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """A capsule with the stream."""


class ArrowArray(Protocol):
    """Data that exports itself as one Arrow array, a struct for each row (the Arrow PyCapsule interface)."""

    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]:
        """Capsules with the schema and the array."""
        ...


Rows: TypeAlias = "pa.Table | pa.RecordBatch | pa.RecordBatchReader | ArrowStream | ArrowArray | Iterable[pa.RecordBatch]"

_FOOTERS_AT_ONCE: Final = 4
_ACCEPTED = (
    "give a pyarrow Table, RecordBatch or reader, anything that exports Arrow (such as a Polars DataFrame or a DuckDB result), or batches "
    "of these"
)


def arrow_of(rows: Rows) -> Rows:
    """The rows as Arrow's own classes; call it once, since some data can be read only once. Raises InvalidRequest."""
    if isinstance(rows, (pa.Table, pa.RecordBatch, pa.RecordBatchReader)):
        return rows
    try:
        if hasattr(rows, "__arrow_c_stream__"):
            return pa.RecordBatchReader.from_stream(rows)
        if hasattr(rows, "__arrow_c_array__"):
            return pa.record_batch(rows)
    except (pa.ArrowException, TypeError, ValueError) as cause:
        raise InvalidRequest(f"the data of type {type(rows).__name__} cannot be read as rows of columns: {cause}; give a table") from cause
    return rows


def batches_of(rows: Rows) -> Iterator[pa.RecordBatch | pa.Table]:
    """The rows in pieces, whatever their Arrow form. Raises InvalidRequest for anything else."""
    rows = arrow_of(rows)
    if isinstance(rows, (pa.Table, pa.RecordBatch)):
        yield rows
        return
    if isinstance(rows, (str, bytes, Mapping)) or not isinstance(rows, Iterable):
        raise InvalidRequest(f"the data is of type {type(rows).__name__}; {_ACCEPTED}")
    for batch in rows:
        if isinstance(batch, (pa.RecordBatch, pa.Table)):
            yield batch
        elif hasattr(batch, "__arrow_c_stream__") or hasattr(batch, "__arrow_c_array__"):
            yield from batches_of(batch)
        else:
            raise InvalidRequest(f"the data holds a {type(batch).__name__}; {_ACCEPTED}")


def schema_of(rows: Rows) -> pa.Schema | None:
    """The Arrow schema of the rows, if it is known without reading them."""
    schema = getattr(rows, "schema", None)
    return schema if isinstance(schema, pa.Schema) else None


@lru_cache(maxsize=64)
def _constraints(schema_string: str, configuration: tuple[tuple[str, str], ...], generated: bool) -> Constraints:
    schema = parse_schema(schema_string)
    metadata = Metadata(id="", schema_string=schema_string, partition_columns=(), configuration=dict(configuration))
    constraints = Constraints.of(schema, metadata)
    return constraints + Constraints.of_generated(schema) if generated else constraints


@lru_cache(maxsize=64)
def _filling(schema_string: str, names: tuple[str, ...], now: datetime) -> Filling:
    return Filling.of(parse_schema(schema_string), names, now)


def constraints_of(metadata: Metadata, *, generated: bool = False) -> Constraints:
    """The constraints on rows, with `generated` also on generated columns. Raises UnsupportedFeature for one that sluice cannot check."""
    return _constraints(metadata.schema_string, tuple(sorted(metadata.configuration.items())), generated)


def check_rows(metadata: Metadata, *, computed: bool = False, where: str | None = None) -> Callable[[pa.Table], None]:
    """A check that raises ConstraintViolated for rows that break a constraint of the table, and SchemaMismatch for illegal values.

    `computed`: generated columns are right. `where`: the rows overwrite those that satisfy this, and must satisfy it, too. Raises
    UnsupportedFeature for a constraint that sluice cannot check.
    """
    constraints = constraints_of(metadata, generated=not computed)
    schema = metadata.schema
    overwritten = None if where is None else Predicate.parse(where, schema)

    def check(rows: pa.Table) -> None:
        check_values(rows, schema)
        if constraints.constraints:
            constraints.check(rows)
        if overwritten is None:
            return
        mask = overwritten.mask(rows)
        outside = len(rows) - (mask.true_count if isinstance(mask, pa.BooleanArray) else sum(bool(v) for v in mask.to_pylist()))
        if outside:
            raise ConstraintViolated(
                f"{outside} of the rows do not satisfy the overwritten condition ({where}); filter the data, or widen the condition",
                where=where,
                rows=outside,
            )

    return check


def _lacks(missing: Sequence[str], why: str) -> SchemaMismatch:
    return SchemaMismatch(f"the data lacks column {', '.join(map(repr, missing))} of the table; {why}", columns=missing)


def require_whole_structs(data: pa.Schema, schema: StructType) -> None:
    """Raise SchemaMismatch if a struct of the data, on any level, lacks a field of the table's, whose values it would replace."""
    columns = [(each, column) for each in data if (column := schema.get(each.name)) is not None]
    missing = [name for each, column in columns for name in _lacking_inside(each.type, column.type, column.name)]
    if missing:
        raise _lacks(missing, "structs are replaced as a whole: give all their fields")


def _lacking(data: Iterable[pa.Field], schema: StructType, path: str = "") -> Iterator[str]:
    """The columns of a schema that the data lack, inside structs, too; `void` columns cannot be lacking."""
    types = {each.name.lower(): each.type for each in data}
    for each in schema.fields:
        name = f"{path}{each.name}"
        if each.name.lower() in types:
            yield from _lacking_inside(types[each.name.lower()], each.type, name)
        elif each.type != VOID:
            yield name


def _lacking_inside(data: pa.DataType, dtype: DataType, path: str) -> Iterator[str]:
    match dtype:
        case StructType() if pa.types.is_struct(data):
            yield from _lacking(data.fields, dtype, f"{path}.")
        case ArrayType(element, _) if is_list(data):
            yield from _lacking_inside(data.value_type, element, f"{path}.element")
        case MapType(key, value, _) if pa.types.is_map(data):
            yield from _lacking_inside(data.key_type, key, f"{path}.key")
            yield from _lacking_inside(data.item_type, value, f"{path}.value")
        case _:
            return


@dataclass(frozen=True, slots=True)
class Redefinition:
    """The table after an overwrite that redefines it; `operation` is the overwrite's name in the history (WRITE, REPLACE TABLE, ...)."""

    metadata: Metadata
    protocol: TableProtocol
    operation: str = "WRITE"
    clustering: tuple[DomainMetadata, ...] = ()
    """() if the table never was clustered."""

    @property
    def replaces_table(self) -> bool:
        """Whether the table itself is replaced, rather than its rows by rows of another schema."""
        return self.operation != "WRITE"


@dataclass(frozen=True, slots=True)
class WritePlan:
    """How the rows of one transaction become files, and on what terms these are committed; picklable."""

    address: TableAddress
    transaction_id: str
    metadata: Metadata
    """The table's, with the columns that merging the schemas adds."""
    mode: str = "append"
    """What becomes of the table's rows: "append" keeps them, "overwrite" replaces them, "dynamic" those of the new rows' partitions."""
    where: str | None = None
    """The rows that an overwrite replaces; None: all."""
    read_version: int = -1
    """The version that the plan was made on; -1: it creates the table."""
    terms: Terms = Terms()
    read_where: str | None = None
    """The rows that were read of `terms.read_version`; None: of an append all of them, of a replacement those that it replaces."""
    changes_metadata: bool = False
    """Whether the commit has `metadata`, too."""
    redefines: Redefinition | None = None
    """What the overwrite makes of the table's schema, partitioning or properties; None: they stay."""
    clustering: tuple[DomainMetadata, ...] = ()
    """The metadata domain with the clustering columns, if the write creates a clustered table."""
    leases: tuple[str, ...] = ()
    """The nodes of the leases held when it was planned: it is committed only while they exist."""
    planned_ms: int = 0
    """The planner's wall clock."""
    max_records_per_file: int | None = None
    compression: str | None = None
    """The files' codec by Arrow's name; None: the writer's default."""
    computed: bool = False
    """Whether the rows have every column that is filled in, and generated ones the right values; else the plan's writer fills them in."""
    numbers: TaskNumbers | None = None
    """The numbers of identity columns for tasks; None: there are none, or each call of `write` gets its own `take`."""
    source_known: bool = True
    """Whether it is known what the rows were computed from. Else it may be the table itself, and an append of them is not blind."""

    @property
    def depends(self) -> bool:
        """Whether the commit depends on the contents of the version that was read, all of it or the rows that satisfy `read_where`."""
        return self.terms.read_version is not None and (self.mode == "append" or self.read_where is not None)

    @property
    def schema(self) -> StructType:
        """The schema that the rows must fit."""
        return self.metadata.schema

    def write(
        self,
        rows: Rows,
        *,
        label: str = "",
        task: int | None = None,
        row_ids: RowIdColumns | None = None,
        store: ObjectStore | None = None,
        take: Take | None = None,
    ) -> tuple[AddFile, ...]:
        """Write the rows as data files, not visible yet; `label` distinguishes tasks and attempts of one transaction.

        Columns with defaults, generated and identity columns that rows lack are filled in. In a table with identity columns each call needs
        the number of its `task`, from 0 on, or something that can `take` numbers. With `row_ids` the files get these columns, too, for rows
        that bring their ids along. `store` is the one below the address, if it is open. Raises SchemaMismatch and ConstraintViolated before
        a file with the offending rows exists.
        """
        if take is None and self.numbers is not None and task is not None:
            take = self.numbers.of(task)
        files = write_files(
            store or self.address.store(),
            self._filled(batches_of(rows), take),
            layout_of(self.metadata, compression=self.compression or COMPRESSION, max_file_rows=self.max_records_per_file, row_ids=row_ids),
            transaction_id=self.transaction_id,
            label=label,
            check=check_rows(self.metadata, computed=self.computed, where=self.where if self.mode == "overwrite" else None),
        )
        return tuple(files)

    def gather(self, rows: Rows, take: Take | None = None, *, whole: bool = False) -> pa.Table:
        """The rows as one table of exactly the schema, in memory; constraints are not checked. Raises SchemaMismatch. `take` numbers them.

        `whole`: they replace rows, and must have every column that is not generated, inside structs, too: nulls and defaults would
        replace values.
        """
        fitted = [conform(batch, self.schema) for batch in self._filled(batches_of(rows), take, whole=whole)]
        return pa.concat_tables(fitted) if fitted else to_arrow(self.schema).empty_table()

    def require_partitions(self, data: pa.Schema) -> None:
        """Raise SchemaMismatch if the data lacks a partition column."""
        present = {name.lower() for name in data.names}
        missing = [
            name for name in self.metadata.partition_columns if name.lower() not in present and not is_filled(self.schema.named(name))
        ]
        if missing:
            raise _lacks(missing, "it is a partition column: add it (nulls are fine where it is nullable)")

    def require_fit(self, data: pa.Schema, row_ids: RowIdColumns | None = None) -> None:
        """Raise SchemaMismatch unless rows of this schema, maybe with ids, fit the table; they may lack what is filled in."""
        conform(data.empty_table(), with_row_ids(to_give(self.schema, data.names), row_ids))

    def require_filling(self, data: pa.Schema) -> None:
        """Raise UnsupportedFeature if the writer of these rows had to evaluate an expression that only Spark evaluates."""
        check_rows(self.metadata, computed=self.computed)
        _filling(self.metadata.schema_string, tuple(data.names), self._now())

    def _now(self) -> datetime:
        """The moment of the write, one for all its tasks if somebody planned it."""
        return datetime.fromtimestamp(self.planned_ms / 1000, timezone.utc) if self.planned_ms else datetime.now(timezone.utc)

    def _filled(
        self, batches: Iterable[pa.RecordBatch | pa.Table], take: Take | None, *, whole: bool = False
    ) -> Iterator[pa.RecordBatch | pa.Table]:
        """The batches with what their writer fills in. Raises SchemaMismatch for columns that cannot be filled."""
        checked: pa.Schema | None = None
        now = self._now() if features_of_columns(self.schema) else None
        for batch in batches:
            if batch.schema is not checked:
                self.require_partitions(batch.schema)
                if whole:
                    missing = list(_lacking(batch.schema, StructType(each for each in self.schema.fields if generated_of(each) is None)))
                    if missing and not {*missing}.isdisjoint(each.name for each in identities(self.schema)):
                        said = f"rows are replaced as a whole, and would get other numbers in the identity column {missing[0]!r}"
                        raise InvalidRequest(f"{said}: use MERGE, which keeps the numbers of the rows that match")
                    if missing:
                        raise _lacks(missing, "rows are replaced as a whole: give all their values")
                checked = batch.schema
            if now is not None:
                rows = batch if self.computed else numbered(batch, self.schema, take)
                batch = _filling(self.metadata.schema_string, tuple(rows.schema.names), now).apply(rows)
            yield batch


# -- files that Spark itself wrote for a plan, beside the table; their footers say all that is recorded of them ---------------


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A Parquet file with the plan's columns but the partition columns, whose `values` the log has; names are those of files."""

    path: Path
    values: Mapping[str, str | None]


def why_rows_are_needed(plan: WritePlan) -> str | None:
    """Why footers do not suffice to check rows that are written by this plan; None if they do."""
    schema, partitions = plan.schema, plan.metadata.partition_columns
    if any(void_columns(schema)):
        return "it has a column of type void, which Parquet lacks"
    if constraints_of(plan.metadata).constraints:
        return "it has constraints"
    if in_data_files(plan.metadata.configuration) and partitions:
        return "its files have the partition columns, too"
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
    layout = layout_of(plan.metadata, compression=plan.compression or COMPRESSION)
    with ThreadPoolExecutor(_FOOTERS_AT_ONCE, thread_name_prefix="sluice-footers") as pool:
        footers = list(pool.map(lambda each: read_written_footer(each.path, layout.stored, layout.indexed_columns), staged))
    filled = [(file, footer) for file, footer in zip(staged, footers, strict=True) if footer.rows]
    if (reason := next(_unfit(plan, filled), None)) is not None:
        return reason
    tag = f"{plan.transaction_id}-{label}-files" if label else f"{plan.transaction_id}-files"
    moves: dict[str, Path] = {}
    added: list[AddFile] = []
    for number, (file, footer) in enumerate(filled):
        below = folder(layout.partitions, file.values)
        name = f"part-{number:05d}-{tag}-c000{layout.suffix}"
        key = f"{below}/{name}" if below else name
        moves[key] = file.path
        size, now = file.path.stat().st_size, time.time_ns() // 1_000_000
        added.append(AddFile(path_to_uri(key), dict(file.values), size, now, data_change=True, stats=footer.stats))
    store.adopt(moves)
    return tuple(added)


def _unfit(plan: WritePlan, files: Sequence[tuple[StagedFile, WrittenFooter]]) -> Iterator[str]:
    """Why rows of the files may not be in the table, as far as plans allow files by Spark."""
    required = [each.name for each in physical(plan.schema).fields if not each.nullable]
    for file, footer in files:
        for column in footer.illegal:
            yield f"{column} has values that not every reader can read"
        for name in required:
            if file.values[name] is None if name in file.values else footer.nulls.get(name) != 0:
                yield f"{name} is NOT NULL"
    if plan.mode == "overwrite" and plan.where is not None and files:
        inside = Predicate.parse(plan.where, plan.schema).physical(plan.schema)
        values: dict[str, pa.Array] = {}
        for partition in map(physical(plan.schema).named, inside.columns):
            texts = pa.array([file.values[partition.name] for file, _ in files], pa.string())
            values[partition.name] = decode_column(texts, cast(PrimitiveType, partition.type))
        try:
            satisfied = all(inside.mask(pa.table(values)).to_pylist())
        except PredicateError:
            satisfied = False
        if not satisfied:
            yield f"rows do not satisfy {plan.where}"
