"""Changes of a table's columns: what they commit, or None if nothing would change. No data file is written again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import pyarrow as pa

from ...coordinator.api import Change, Reads
from ...coordinator.rules.intent import Kind, Terms
from ...coordinator.rules.isolation import IsolationLevel
from ...storage.actions.clustering import clustering_columns
from ...storage.actions.features import new_protocol, with_features, writer_features
from ...storage.arguments import checked
from ...storage.data.filling import check_definitions
from ...storage.data.scan import TableScan
from ...storage.dataclass import dataclass
from ...storage.errors import ConstraintViolated, InvalidRequest
from ...storage.jsontext import dumps
from ...storage.log.snapshot import Snapshot
from ...storage.schema.computed import DEFAULT_KEY, default_of, defined, features_of_columns, generated_of
from ...storage.schema.evolution import Place, added, changed, field_at
from ...storage.schema.schema import StructField, StructType, check_new_schema, parse_schema, schema_to_json
from ..client.clustering_rules import check_clustering
from ..client.open_table import OpenTable
from ..write.requirements import snapshot_for_change

_COMMENT: Final = "comment"


@checked
@dataclass(frozen=True, slots=True)
class NewColumn:
    """A column to add to the struct at `path` (() is the table itself): at the end, `first`, or `after` the one of that name.

    Arrays and maps are passed by `element`, `key` and `value`.
    """

    field: StructField | pa.Field
    path: tuple[str, ...] = ()
    first: bool = False
    after: str | None = None

    @property
    def stored(self) -> StructField:
        """The field as Delta's type. Raises UnsupportedFeature for a type that Delta lacks."""
        return self.field if isinstance(self.field, StructField) else defined(pa.schema([self.field])).fields[0]


@checked
@dataclass(frozen=True, slots=True)
class ColumnChange:
    """A change of the column at `path`; None leaves a part as it is. An empty comment or default (SQL) removes it.

    `first` and `after` move the column.
    """

    path: tuple[str, ...]
    comment: str | None = None
    nullable: bool | None = None
    first: bool = False
    after: str | None = None
    default: str | None = None


def add_columns(table: OpenTable, columns: Sequence[NewColumn]) -> Change | None:
    """Add columns, which are null in the rows that are there. Raises InvalidRequest for one that may not be null, or is there already."""
    snapshot = snapshot_for_change(table)
    schema = parse_schema(snapshot.metadata.schema_string)
    for each in columns:
        field = each.stored
        name = ".".join((*each.path, field.name))
        if not field.nullable:
            remedy = "add it without NOT NULL, give the rows a value, and then ALTER COLUMN ... SET NOT NULL"
            raise InvalidRequest(f"column {name} is NOT NULL, but the rows that are there have no value: {remedy}", column=name)
        _refuse_value(field, name)
        schema = added(schema, each.path, field, _place(each))
    parameters = {"columns": dumps([{"column": str(each.stored)} for each in columns]).decode()}
    return _change(table, snapshot, schema, "ADD COLUMNS", parameters)


def alter_columns(table: OpenTable, changes: Sequence[ColumnChange]) -> Change | None:
    """Change comments, places and whether columns may be null. Raises ConstraintViolated if rows have a null where none may be."""
    snapshot = snapshot_for_change(table)
    old = schema = parse_schema(snapshot.metadata.schema_string)
    required: list[str] = []
    for each in changes:
        was = field_at(schema, each.path)
        if each.default and len(each.path) > 1:
            raise InvalidRequest(f"{'.'.join(each.path)} is in another column; only columns of the table itself have defaults")
        if each.nullable is False and was.nullable:
            if len(each.path) > 1:
                raise InvalidRequest(f"{'.'.join(each.path)} is in another column; only columns of the table itself can become NOT NULL")
            required.append(was.name)
        schema = changed(schema, each.path, lambda field, asked=each: _changed(field, asked), _place(each))  # type: ignore[misc]
    _check_no_nulls(table, snapshot, old, required)
    parameters = {"columns": dumps([".".join(each.path) for each in changes]).decode()}
    return _change(table, snapshot, schema, "CHANGE COLUMN", parameters, needs_rows=bool(required))


def _refuse_value(field: StructField, name: str) -> None:
    """Raise InvalidRequest for a new column with a default, or a generated one: the rows that are there would have no value, or another."""
    if default_of(field) is not None:
        raise InvalidRequest(
            f"column {name} has a DEFAULT, which the rows that are there do not get (Delta's rule): add it without one, and then ALTER "
            f"COLUMN {name} SET DEFAULT {default_of(field)}",
            column=name,
        )
    if generated_of(field) is not None:
        raise InvalidRequest(
            f"column {name} is GENERATED, but the rows that are there would have no value: add it without that and give it one, or create "
            "the table anew",
            column=name,
        )


def _place(asked: NewColumn | ColumnChange) -> Place | None:
    return Place(asked.after) if asked.first or asked.after is not None else None


def _changed(field: StructField, asked: ColumnChange) -> StructField:
    metadata = dict(field.metadata)
    if asked.comment is not None:
        metadata[_COMMENT] = asked.comment
        if not asked.comment:
            del metadata[_COMMENT]
    if asked.default is not None:
        metadata[DEFAULT_KEY] = asked.default
        if not asked.default:
            del metadata[DEFAULT_KEY]
    return replace(field, metadata=metadata, nullable=field.nullable if asked.nullable is None else asked.nullable)


def _check_no_nulls(table: OpenTable, snapshot: Snapshot, schema: StructType, names: Sequence[str]) -> None:
    if not names:
        return
    for batch in TableScan(table.store, schema, snapshot.partition_columns, snapshot.version).batches(snapshot.files, names):
        for name in names:
            count = pa.Table.from_batches([batch]).column(name).null_count
            if count:
                raise ConstraintViolated(
                    f"column {name} cannot become NOT NULL: in version {snapshot.version} of the table rows have no value there; give them "
                    "one first",
                    constraint="NOT NULL",
                    column=name,
                    version=snapshot.version,
                )


def _change(
    table: OpenTable, snapshot: Snapshot, schema: StructType, operation: str, parameters: dict[str, str], *, needs_rows: bool = False
) -> Change | None:
    text = schema_to_json(schema)
    if parse_schema(text) == parse_schema(snapshot.metadata.schema_string) and text == snapshot.metadata.schema_string:
        return None
    check_new_schema(schema, snapshot.partition_columns)
    check_clustering(clustering_columns(snapshot.domains), schema, snapshot.partition_columns, snapshot.configuration)
    check_definitions(schema)
    protocol = snapshot.protocol
    needed = writer_features(new_protocol(schema)) & {"timestampNtz", *features_of_columns(schema)}
    actions = [] if needed <= writer_features(protocol) else [with_features(protocol, needed)]
    return Change(
        table.new_transaction_id(),
        operation,
        snapshot,
        (*actions, replace(snapshot.metadata, schema_string=text)),
        # what must hold for the rows that are there must also hold for those added meanwhile
        reads=Reads(predicates=("",)) if needs_rows else None,
        terms=Terms(IsolationLevel.SERIALIZABLE.value if needs_rows else None),
        parameters=parameters,
        schema=schema,
        kind=Kind.OTHER,
    )
