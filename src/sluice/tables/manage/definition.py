"""Changes of a table's definition: columns, properties, clustering, features of the protocol, and users' metadata domains.

Each returns the change to commit, or None if nothing would change. No data file is written again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import pyarrow as pa

from ...coordinator.api import Change, Reads
from ...coordinator.rules.intent import IsolationLevel, Terms
from ...storage.actions import Action, DomainMetadata, Metadata, Protocol
from ...storage.actions.features import (
    CLUSTERING_DOMAIN,
    CLUSTERING_FEATURE,
    FEATURE_PREFIX,
    ICEBERG_KEYS,
    asked_features,
    check_asked_features,
    check_writable,
    clustering_columns,
    clustering_domain,
    dotted,
    features_of_types,
    is_on,
    reader_features,
    supported_feature,
    with_features,
    writer_features,
)
from ...storage.arguments import checked
from ...storage.data.assignments import check_definitions
from ...storage.data.constraints import Constraints
from ...storage.data.scan import TableScan
from ...storage.data.statistics import Leaf
from ...storage.dataclass import dataclass
from ...storage.errors import ConstraintViolated, InvalidRequest
from ...storage.expressions.sql import outline_of
from ...storage.jsontext import dumps
from ...storage.log.snapshot import Snapshot
from ...storage.schema.datatypes import DEFAULT_KEY, default_of, defined, features_of_columns, generated_of, is_identity
from ...storage.schema.mapping import MODE_KEY, is_same_type, logical_name, mapping_mode, physical_name, physical_path
from ...storage.schema.schema import (
    Place,
    PrimitiveType,
    StructField,
    StructType,
    added,
    changed,
    check_new_schema,
    field_at,
    from_arrow,
    removed,
)
from ...storage.schema.sqltypes import column_type_sql, nested_limits
from ..client.open_table import OpenTable
from ..client.property_rules import (
    CONSTRAINT_PREFIX,
    PRIMARY_KEY,
    check_asked,
    check_clustering,
    check_names_to_unset,
    check_settings,
    clustered_by,
    path_of,
    primary_key_of,
    with_defaults,
)
from ..write.evolution import with_type
from ..write.redefinition import refuse_row_tracking, struct_of
from ..write.requirements import snapshot_for_change
from .analyzing import lacks

_COMMENT: Final = "comment"
_RESERVED_DOMAINS: Final = "delta."
_READER_VERSION: Final = 3
_WRITER_VERSION: Final = 7
_MAPPING_VERSION: Final = 2


# -- columns -------------------------------------------------------------------------------------------------------------


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

    `first` and `after` move the column, `name` is a new, free one. A `type` is a wider one, also of an `element`, a `key` or a `value`.
    """

    path: tuple[str, ...]
    comment: str | None = None
    nullable: bool | None = None
    first: bool = False
    after: str | None = None
    default: str | None = None
    name: str | None = None
    type: pa.DataType | None = None


def add_columns(table: OpenTable, columns: Sequence[NewColumn]) -> Change | None:
    """Add columns, which are null in the rows that are there. Raises InvalidRequest for one that may not be null, or is there already."""
    snapshot = snapshot_for_change(table)
    schema = snapshot.metadata.schema
    for each in columns:
        field = each.stored
        _require_addable(field, ".".join((*each.path, field.name)))
        schema = added(schema, each.path, field, _place(each))
    parameters = {"columns": dumps([{"column": str(each.stored)} for each in columns]).decode()}
    return _change_columns(table, snapshot, schema, "ADD COLUMNS", parameters)


def _require_addable(field: StructField, name: str) -> None:
    """Raise InvalidRequest unless the rows that are there may lack the column of this name."""
    if not field.nullable:
        remedy = "add it without NOT NULL, give the rows a value, and then ALTER COLUMN ... SET NOT NULL"
        raise InvalidRequest(f"column {name} is NOT NULL, but the rows that are there have no value: {remedy}", column=name)
    # The rows that are there would have no value, or another.
    if default_of(field) is not None:
        raise InvalidRequest(
            f"column {name} has a DEFAULT, which the rows that are there do not get (Delta's rule): add it without one, and then ALTER "
            f"COLUMN {name} SET DEFAULT {default_of(field)}",
            column=name,
        )
    if generated_of(field) is not None or is_identity(field):
        raise InvalidRequest(
            f"column {name} is GENERATED, but the rows that are there would have no value: add it without that and give it one, or "
            "create the table anew",
            column=name,
        )


def alter_columns(table: OpenTable, changes: Sequence[ColumnChange]) -> Change | None:
    """Change comments, places, names, types and whether columns may be null. Raises ConstraintViolated for nulls where none may be."""
    snapshot = snapshot_for_change(table)
    old = schema = snapshot.metadata.schema
    required: list[str] = []
    new_names: dict[str, str] = {}
    for each in changes:
        if each.type is not None:
            [wanted] = from_arrow(pa.schema([pa.field(each.path[-1], each.type)])).fields
            if not isinstance(wanted.type, PrimitiveType):
                raise InvalidRequest(f"{'.'.join(each.path)} gets the type {wanted.type}: name the part of it that gets another plain type")
            schema = with_type(snapshot, schema, each.path, wanted.type)
            if each == ColumnChange(each.path, type=each.type):
                continue
        was = field_at(schema, each.path)
        if each.default and len(each.path) > 1:
            raise InvalidRequest(f"{'.'.join(each.path)} is in another column; only columns of the table itself have defaults")
        if each.nullable is False and was.nullable:
            if len(each.path) > 1:
                raise InvalidRequest(f"{'.'.join(each.path)} is in another column; only columns of the table itself can become NOT NULL")
            required.append(logical_name(physical_name(was), old))  # the rows are read under the names that they have now
        if each.name is not None and each.name != was.name:
            _require_unnamed(snapshot, each.path, f"column {dotted(each.path)} cannot be called {each.name}")
            new_names |= {was.name: each.name} if len(each.path) == 1 else {}
        schema = changed(schema, each.path, partial(_changed, each), _place(each))
        check_new_schema(schema, ())  # a later change would mean the first of two columns of one name
    if required:
        for batch in TableScan(table.store, old, snapshot.partition_columns, snapshot.version).batches(snapshot.files, required):
            for name in required:
                if pa.Table.from_batches([batch]).column(name).null_count:
                    raise ConstraintViolated(
                        f"column {name} cannot become NOT NULL: in version {snapshot.version} of the table rows have no value there; give "
                        "them one first",
                        constraint="NOT NULL",
                        column=name,
                        version=snapshot.version,
                    )
    parameters = {"columns": dumps([".".join(each.path) for each in changes]).decode()}
    operation, renamed = "CHANGE COLUMN", {dotted(each.path): each.name for each in changes if each.name is not None}
    if renamed:
        operation, parameters = "RENAME COLUMN", {**parameters, "newNames": dumps(renamed).decode()}
    partitions = tuple([new_names.get(name, name) for name in snapshot.partition_columns])
    return _change_columns(table, snapshot, schema, operation, parameters, needs_rows=bool(required), partitions=partitions)


def drop_columns(table: OpenTable, names: Iterable[str]) -> Change | None:
    """Take columns out of the schema; files keep their values, which nobody reads any more. Raises InvalidRequest."""
    snapshot = snapshot_for_change(table)
    schema = snapshot.metadata.schema
    paths = [path_of(name, schema) for name in names]
    for path in paths:
        _require_unneeded(snapshot, path)
        schema = removed(schema, path)
    return _change_columns(table, snapshot, schema, "DROP COLUMNS", {"columns": dumps(list(map(dotted, paths))).decode()})


def replace_columns(table: OpenTable, columns: pa.Schema | StructType) -> Change | None:
    """Make these the columns of the table, in this order: those that it has, by name, stay and get these comments; the others are dropped,
    and new ones are null in the rows that are there. Raises InvalidRequest, also for a column of another type.
    """
    snapshot = snapshot_for_change(table)
    schema, columns = snapshot.metadata.schema, struct_of(columns)
    fields: list[StructField] = []
    for new in columns.fields:
        old = schema.get(new.name)
        if old is None:
            _require_addable(new, new.name)
        elif not is_same_type(old, new):
            raise InvalidRequest(f"column {old.name} is {old.type} and cannot become {new.type} by REPLACE COLUMNS", column=old.name)
        said = {_COMMENT: new.metadata[_COMMENT]} if _COMMENT in new.metadata else {}
        fields.append(new if old is None else replace(old, metadata={**old.metadata, **said}))
    for gone in schema.fields:
        if columns.get(gone.name) is None:
            _require_unneeded(snapshot, (gone.name,))
    parameters = {"columns": dumps([str(each) for each in fields]).decode()}
    return _change_columns(table, snapshot, StructType(fields), "REPLACE COLUMNS", parameters)


def _require_unneeded(snapshot: Snapshot, path: Sequence[str]) -> None:
    """Raise InvalidRequest if the table needs the column at `path`, which is to be dropped."""
    what, schema = f"column {dotted(tuple(path))} cannot be dropped", snapshot.metadata.schema
    _require_unnamed(snapshot, path, what)
    clustered = [each[0] for each in clustering_columns(snapshot.domains, schema)]
    if field_at(schema, path[:1]).name in (*snapshot.partition_columns, *clustered):
        raise InvalidRequest(f"{what}: the table is partitioned or clustered by it", column=dotted(tuple(path)))


def _require_unnamed(snapshot: Snapshot, path: Sequence[str], what: str) -> None:
    """Raise InvalidRequest if columns have no names apart from those in files, or if an expression of the table names the one at `path`."""
    configuration, schema = snapshot.configuration, snapshot.metadata.schema
    if mapping_mode(configuration) == "none":
        raise InvalidRequest(
            f"{what}: the files of the table have the columns' names. Set the property {MODE_KEY} to 'name' first, which changes no file",
            property=MODE_KEY,
        )
    field_at(schema, path)
    of_types = {f"{column_type_sql(each)} of {each.name}" for each in schema.fields}  # limits of lengths, which go with their column
    if len(path) == 1:
        of_types |= {f"length of {name}" for each in schema.fields for name, _, _ in nested_limits(each)}
    constraints = [each for each in Constraints.of(schema, snapshot.metadata).constraints if each.name not in of_types]
    uses: dict[str, Collection[tuple[str, ...]]] = {f"the constraint {c.name}": c.paths for c in constraints}
    texts = {each.name: text for each in schema.fields if (text := generated_of(each)) is not None}
    uses |= {f"generated column {name}": {(each,) for each in outline_of(text, clock=False).columns} for name, text in texts.items()}
    uses[PRIMARY_KEY] = {(name,) for name in primary_key_of(configuration, schema)}
    place = tuple(name.lower() for name in path)
    for use, columns in uses.items():
        lowered = [tuple(name.lower() for name in column) for column in columns]
        if any(each[: len(place)] == place or place[: len(each)] == each for each in lowered):
            raise InvalidRequest(f"{what}: {use} names it, and would mean something else then; take that away first", column=dotted(place))


def _place(column: NewColumn | ColumnChange) -> Place | None:
    return Place(column.after) if column.first or column.after is not None else None


def _changed(change: ColumnChange, field: StructField) -> StructField:
    metadata = dict(field.metadata)
    for key, text in ((_COMMENT, change.comment), (DEFAULT_KEY, change.default)):
        if text:
            metadata[key] = text
        elif text is not None:
            metadata.pop(key, None)
    nullable = field.nullable if change.nullable is None else change.nullable
    return replace(field, name=field.name if change.name is None else change.name, metadata=metadata, nullable=nullable)


def _change_columns(
    table: OpenTable,
    snapshot: Snapshot,
    schema: StructType,
    operation: str,
    parameters: dict[str, str],
    *,
    needs_rows: bool = False,
    partitions: tuple[str, ...] | None = None,
) -> Change | None:
    columns = snapshot.partition_columns if partitions is None else partitions
    metadata = replace(snapshot.metadata.with_schema(schema), partition_columns=columns)
    if metadata.schema_string == snapshot.metadata.schema_string:
        return None
    check_new_schema(schema := metadata.schema, columns)
    check_clustering(clustering_columns(snapshot.domains, schema), schema, columns, snapshot.configuration)
    check_definitions(schema)
    needed = features_of_types(schema) | features_of_columns(schema)
    needed |= {"invariants"} if any(not each.nullable for each in schema.fields) else set()
    return _change(table, snapshot, operation, [*_protocol_with(snapshot, needed), metadata], parameters, schema, needs_rows=needs_rows)


def _protocol_with(snapshot: Snapshot, needed: Collection[str]) -> list[Action]:
    """The protocol with these features; nothing if it has them."""
    return [] if frozenset(needed) <= writer_features(snapshot.protocol) else [with_features(snapshot.protocol, needed)]


def _change(
    table: OpenTable,
    snapshot: Snapshot,
    operation: str,
    actions: Sequence[Action],
    parameters: Mapping[str, str],
    schema: StructType,
    *,
    needs_rows: bool,
) -> Change:
    """The change. What it `needs_rows` for must hold for the rows that are there, and also for those added meanwhile."""
    protocol = next((each for each in actions if isinstance(each, Protocol)), snapshot.protocol)
    check_writable(protocol, next((each for each in actions if isinstance(each, Metadata)), snapshot.metadata))
    reads, isolation = (Reads(predicates=("",)), IsolationLevel.SERIALIZABLE.value) if needs_rows else (None, None)
    own, terms = table.new_transaction_id(), Terms(isolation)
    return Change(own, operation, snapshot, actions, reads=reads, terms=terms, parameters=parameters, schema=schema)


# -- properties and clustering -------------------------------------------------------------------------------------------


def set_properties(table: OpenTable, properties: Mapping[str, str]) -> Change | None:
    """Set properties, with the table features they need; None if all have these values already.

    Raises InvalidRequest for an unknown or protected property, an invalid value, and incompatible properties; UnsupportedFeature;
    ConstraintViolated, naming a row, if existing rows break a new constraint.
    """
    check_asked(properties, creating=False)
    snapshot = snapshot_for_change(table)
    refuse_row_tracking(snapshot, properties)
    kept = {key: value for key, value in properties.items() if not key.startswith(FEATURE_PREFIX)}
    parameters = {"properties": dumps(dict(properties)).decode()}
    configuration = with_defaults({**snapshot.configuration, **kept})
    return _change_properties(table, snapshot, configuration, asked_features(properties), "SET TBLPROPERTIES", parameters)


def unset_properties(table: OpenTable, names: Iterable[str]) -> Change | None:
    """Remove properties, not features; None if none of them is set. Raises InvalidRequest for a protected one, and one that others need."""
    gone = list(names)
    snapshot = snapshot_for_change(table)
    check_names_to_unset(gone, snapshot.configuration)
    left = {key: value for key, value in snapshot.configuration.items() if key not in gone}
    return _change_properties(table, snapshot, left, (), "UNSET TBLPROPERTIES", {"properties": dumps(gone).decode(), "ifExists": "true"})


def _change_properties(
    table: OpenTable,
    snapshot: Snapshot,
    configuration: Mapping[str, str],
    features: Collection[str],
    operation: str,
    parameters: Mapping[str, str],
) -> Change | None:
    """Another configuration with what it needs, and `features` that are requested by name."""
    schema = snapshot.metadata.schema
    check_settings(configuration, schema)
    check_clustering(clustering_columns(snapshot.domains, snapshot.metadata.schema), schema, snapshot.partition_columns, configuration)
    different = {key: value for key, value in configuration.items() if snapshot.configuration.get(key) != value}
    check_asked_features({**different, **{FEATURE_PREFIX + name: "supported" for name in features}})
    metadata = replace(snapshot.metadata, configuration=dict(configuration))
    if mapping_mode(configuration) != mapping_mode(snapshot.configuration):
        _require_new_mode(snapshot, mapping_mode(configuration))
        metadata = metadata.with_schema(schema, keep_names=True)
        schema = metadata.schema
    needs_rows = _check_rows(table, snapshot, metadata, schema)
    actions = _protocol_with(snapshot, asked_features(different) | frozenset(features))
    if dict(metadata.configuration) != dict(snapshot.configuration):
        actions.append(metadata)
    return _change(table, snapshot, operation, actions, parameters, schema, needs_rows=needs_rows) if actions else None


def _require_new_mode(snapshot: Snapshot, mode: str) -> None:
    """Raise InvalidRequest unless the columns of a table with files can be mapped that way from now on."""
    before = mapping_mode(snapshot.configuration)
    if (before, mode) != ("none", "name"):
        why = {
            "none": "files have names of columns that only the mapping knows: make another table, CREATE TABLE ... AS SELECT",
            "id": "files may lack the numbers of columns: create the table with it",
            "name": "columns are found by their numbers in files: make another table, CREATE TABLE ... AS SELECT",
        }[mode]
        raise InvalidRequest(f"{MODE_KEY} is {before} and cannot become {mode}, for {why}", property=MODE_KEY, value=mode)


def _check_rows(table: OpenTable, snapshot: Snapshot, metadata: Metadata, schema: StructType) -> bool:
    """Whether the change restricts rows. Raises ConstraintViolated with the values of a row that violates it."""
    old, new = snapshot.configuration, metadata.configuration
    key = primary_key_of(new, schema)
    keyed = bool(key) and key != primary_key_of(old, schema)
    if keyed and snapshot.num_files:
        raise InvalidRequest(
            f"{PRIMARY_KEY} can be set only while the table is empty: the rows of its {snapshot.num_files} files were never checked for "
            f"duplicates of {', '.join(key)}; create a table with it and copy the rows",
            property=PRIMARY_KEY,
            files=snapshot.num_files,
        )
    on = [name for name in ICEBERG_KEYS if is_on(new, name) and not is_on(old, name)]
    if on and snapshot.num_files:
        raise InvalidRequest(
            f"{on[0]} can be set only while the table is empty: its files may lack partition columns, and numbers of columns; create a "
            "table with it and copy the rows",
            property=on[0],
            files=snapshot.num_files,
        )
    changed_keys = [name for name, text in new.items() if old.get(name) != text]
    new_checks = {name[len(CONSTRAINT_PREFIX) :] for name in changed_keys if name.lower().startswith(CONSTRAINT_PREFIX)}
    if new_checks:
        constraints = Constraints(tuple(each for each in Constraints.of(schema, metadata).constraints if each.name in new_checks))
        columns: Sequence[str] = sorted({name for each in constraints.constraints for name in each.predicate.columns}) or schema.names[:1]
        for batch in TableScan(table.store, schema, snapshot.partition_columns, snapshot.version).batches(snapshot.files, columns):
            try:
                constraints.check(pa.Table.from_batches([batch]))
            except ConstraintViolated as broken:  # whose row number only counts within the rows read at once
                name, expression, values = (broken.details.get(each) for each in ("constraint", "expression", "values"))
                shown = ", ".join(f"{column} = {value!r}" for column, value in (values or {}).items())
                such = f"has rows that break it, such as one with {shown}; correct or delete those first"
                raise ConstraintViolated(
                    f"the constraint {name} ({expression}) was not added, for version {snapshot.version} of the table "
                    f"{such if shown else f'breaks it: {broken.message}'}",
                    constraint=name,
                    expression=expression,
                    values=values or {},
                    version=snapshot.version,
                ) from broken
    return keyed or bool(new_checks)


def cluster_by(table: OpenTable, columns: str | Iterable[str]) -> Change | None:
    """Cluster by these columns from now on, or by none; None if that is so already.

    Raises InvalidRequest for columns by which a table cannot be clustered, and for new ones of which files have no statistics.
    """
    snapshot = snapshot_for_change(table)
    schema = snapshot.metadata.schema
    old = clustering_columns(snapshot.domains, schema)
    new = clustered_by(columns, schema, snapshot.partition_columns, snapshot.configuration)
    if new == old:
        return None
    missing = [path for path in new if path not in old]
    texts = snapshot.files["stats"].to_pylist() if missing else []
    for path in missing:  # the protocol demands statistics of every file
        if lacking := sum(lacks(text, [Leaf(physical_path(path, schema), None)]) for text in texts):
            raise InvalidRequest(
                f"{lacking} of {snapshot.num_files} files have no statistics of {dotted(path)}, which clustering needs: get them first by "
                f"analyze([...]), ANALYZE TABLE ... COMPUTE STATISTICS FOR COLUMNS {dotted(path)}",
                files=lacking,
                column=dotted(path),
            )
    actions = _protocol_with(snapshot, asked_features({FEATURE_PREFIX + CLUSTERING_FEATURE: "supported"}))
    if CLUSTERING_DOMAIN not in snapshot.domains:
        # a concurrent change that partitions the table writes no domain yet, and has to meet something: it changes the metadata
        actions.append(snapshot.metadata)
    actions.append(clustering_domain(new, schema))
    parameters = {"oldClusteringColumns": ",".join(map(dotted, old)), "newClusteringColumns": ",".join(map(dotted, new))}
    return Change(table.new_transaction_id(), "CLUSTER BY", snapshot, actions, parameters=parameters, schema=schema)


# -- features ------------------------------------------------------------------------------------------------------------


def add_feature(table: OpenTable, name: str) -> Change | None:
    """Add a feature, and those it needs; None if the protocol has them. Raises UnsupportedFeature for one that sluice lacks."""
    asked = {FEATURE_PREFIX + supported_feature(name): "supported"}
    snapshot = snapshot_for_change(table)
    needed = asked_features(asked)
    if needed <= writer_features(snapshot.protocol):
        return None
    refuse_row_tracking(snapshot, asked)
    check_writable(with_features(snapshot.protocol, needed), snapshot.metadata)
    return _upgrade(table, snapshot, with_features(snapshot.protocol, needed))


def upgrade_protocol(table: OpenTable, reader: int, writer: int) -> Change | None:
    """Raise the protocol to at least these versions; None if it has them. A table of sluice's has writer version 7."""
    if reader == _READER_VERSION and writer < _WRITER_VERSION:
        raise InvalidRequest(f"reader version {_READER_VERSION} goes with writer version {_WRITER_VERSION}, and {writer} was given")
    snapshot = snapshot_for_change(table)
    if reader <= snapshot.protocol.min_reader_version:
        return None
    if reader == _MAPPING_VERSION:  # which is column mapping; with writer version 7 features are named
        return _upgrade(table, snapshot, with_features(snapshot.protocol, {"columnMapping"}))
    after = replace(snapshot.protocol, min_reader_version=reader, reader_features=tuple(sorted(reader_features(snapshot.protocol))))
    return _upgrade(table, snapshot, after)


def _upgrade(table: OpenTable, snapshot: Snapshot, after: Protocol) -> Change:
    protocol = {
        "minReaderVersion": after.min_reader_version,
        "minWriterVersion": after.min_writer_version,
        "readerFeatures": list(after.reader_features or ()),
        "writerFeatures": list(after.writer_features or ()),
    }
    return Change(table.new_transaction_id(), "UPGRADE PROTOCOL", snapshot, (after,), parameters={"newProtocol": dumps(protocol).decode()})


# -- domains -------------------------------------------------------------------------------------------------------------


def domains_of(snapshot: Snapshot) -> dict[str, str]:
    """The users' metadata domains with their configurations; omits those of the protocol (`delta.`)."""
    return {name: each.configuration for name, each in sorted(snapshot.domains.items()) if not name.lower().startswith(_RESERVED_DOMAINS)}


def set_domain(table: OpenTable, name: str, configuration: str | None) -> Change | None:
    """Set the configuration (any text, by custom JSON) of a user's metadata domain, or remove it (None); None if that is so already.

    If two clients write one domain at the same time, the later one gets ConcurrentTransactionException; one that adds the table feature
    while another does gets ProtocolChangedException. Raises InvalidRequest for a reserved name.
    """
    if name.lower().startswith(_RESERVED_DOMAINS):
        raise InvalidRequest(f"the metadata domain {name!r} belongs to the protocol; use a name without {_RESERVED_DOMAINS!r}", domain=name)
    snapshot = snapshot_for_change(table)
    current = snapshot.domains.get(name)
    if configuration == (None if current is None else current.configuration):
        return None
    if configuration is None and current is not None:
        domain, operation = replace(current, removed=True), "REMOVE DOMAIN"
    else:
        domain, operation = DomainMetadata(name, configuration or "", removed=False), "SET DOMAIN"
    actions = [*_protocol_with(snapshot, {"domainMetadata"}), domain]
    return Change(table.new_transaction_id(), operation, snapshot, actions, parameters={"domain": name})
