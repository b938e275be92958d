"""Changes of a table's properties, clustering columns and users' metadata domains: the commit, or None if nothing would change."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

import pyarrow as pa

from ...coordinator.api import Change, Reads
from ...coordinator.rules.intent import Kind, Terms
from ...coordinator.rules.isolation import IsolationLevel
from ...storage.actions import Action, DomainMetadata, Metadata
from ...storage.actions.clustering import CLUSTERING_DOMAIN, CLUSTERING_FEATURE, Path, clustering_columns, clustering_domain, dotted
from ...storage.actions.features import FEATURE_PREFIX, asked_features, check_asked_features, with_features, writer_features
from ...storage.data.constraints import Constraints
from ...storage.data.row_ids import ROW_TRACKING_KEY
from ...storage.data.scan import TableScan
from ...storage.data.statistics import Leaf
from ...storage.errors import ConstraintViolated, InvalidRequest
from ...storage.jsontext import dumps
from ...storage.log.snapshot import Snapshot
from ...storage.schema.schema import StructType, parse_schema
from ..client.clustering_rules import check_clustering, clustered_by
from ..client.open_table import OpenTable
from ..client.property_rules import (
    CONSTRAINT_PREFIX,
    PRIMARY_KEY,
    check_asked,
    check_names_to_unset,
    check_settings,
    is_on,
    primary_key_of,
    with_defaults,
)
from ..write.requirements import snapshot_for_change
from .analyzing import lacks

_RESERVED_DOMAINS: Final = "delta."


def set_properties(table: OpenTable, properties: Mapping[str, str]) -> Change | None:
    """Set properties in one version, with the table features they need; None if all have these values already.

    Raises InvalidRequest for an unknown or protected property, an invalid value, and incompatible properties;
    UnsupportedFeature; ConstraintViolated, naming a row, if existing rows break a new constraint.
    """
    check_asked(properties, creating=False)
    snapshot = snapshot_for_change(table)
    _check_row_tracking(properties, snapshot)
    kept = {key: value for key, value in properties.items() if not key.startswith(FEATURE_PREFIX)}
    parameters = {"properties": dumps(dict(properties)).decode()}
    configuration = with_defaults({**snapshot.configuration, **kept})
    return _change(table, snapshot, configuration, asked_features(properties), "SET TBLPROPERTIES", parameters)


def unset_properties(table: OpenTable, names: Iterable[str]) -> Change | None:
    """Remove properties, which restores their defaults; None if none of them is set. Features stay in the protocol.

    Raises InvalidRequest for a protected property, and one that others need.
    """
    gone = list(names)
    snapshot = snapshot_for_change(table)
    check_names_to_unset(gone, snapshot.configuration)
    left = {key: value for key, value in snapshot.configuration.items() if key not in gone}
    parameters = {"properties": dumps(gone).decode(), "ifExists": "true"}
    return _change(table, snapshot, left, (), "UNSET TBLPROPERTIES", parameters)


def domains_of(snapshot: Snapshot) -> dict[str, str]:
    """The users' metadata domains with their configurations; omits those of the protocol (`delta.`)."""
    return {name: each.configuration for name, each in sorted(snapshot.domains.items()) if not name.lower().startswith(_RESERVED_DOMAINS)}


def set_domain(table: OpenTable, name: str, configuration: str) -> Change | None:
    """Set the configuration (any text, by custom JSON) of a user's metadata domain; None if it has that one already.

    If two clients write one domain at the same time, the later one gets ConcurrentTransactionException; one that adds the
    table feature while another does gets ProtocolChangedException. Raises InvalidRequest for a reserved name.
    """
    _check_domain(name)
    snapshot = snapshot_for_change(table)
    if domains_of(snapshot).get(name) == configuration:
        return None
    return _domain_change(table, snapshot, DomainMetadata(name, configuration, removed=False), "SET DOMAIN")


def remove_domain(table: OpenTable, name: str) -> Change | None:
    """Remove a user's metadata domain; None if it does not exist. Raises the same as `set_domain`."""
    _check_domain(name)
    snapshot = snapshot_for_change(table)
    current = snapshot.domains.get(name)
    return None if current is None else _domain_change(table, snapshot, replace(current, removed=True), "REMOVE DOMAIN")


def _check_row_tracking(properties: Mapping[str, str], snapshot: Snapshot) -> None:
    enabled = is_on(properties, ROW_TRACKING_KEY) and not is_on(snapshot.configuration, ROW_TRACKING_KEY)
    named = FEATURE_PREFIX + "rowTracking" in properties and "rowTracking" not in writer_features(snapshot.protocol)
    if enabled or named:
        raise InvalidRequest(
            "row tracking can be enabled only when a table is created: the existing files have no row ids (or have not kept "
            "them), and every one would have to be given some; create a table with it and copy the rows",
            property=ROW_TRACKING_KEY,
        )


def _change(
    table: OpenTable,
    snapshot: Snapshot,
    configuration: Mapping[str, str],
    features: Collection[str],
    operation: str,
    parameters: Mapping[str, str],
) -> Change | None:
    """Another configuration and what it needs; None if nothing would change. `features` are requested by name."""
    schema = parse_schema(snapshot.metadata.schema_string)
    check_settings(configuration, schema)
    check_clustering(clustering_columns(snapshot.domains), schema, snapshot.partition_columns, configuration)
    changed = {key: value for key, value in configuration.items() if snapshot.configuration.get(key) != value}
    check_asked_features({**changed, **{FEATURE_PREFIX + name: "supported" for name in features}})
    metadata = replace(snapshot.metadata, configuration=dict(configuration))
    needs_rows = _check_rows(table, snapshot, metadata, schema)
    actions: list[Action] = []
    needed = asked_features(changed) | frozenset(features)
    if not needed <= writer_features(snapshot.protocol):
        actions.append(with_features(snapshot.protocol, needed))
    if dict(configuration) != dict(snapshot.configuration):
        actions.append(metadata)
    if not actions:
        return None
    return Change(
        table.new_transaction_id(),
        operation,
        snapshot,
        actions,
        # what holds for existing rows must also hold for rows added meanwhile
        reads=Reads(predicates=("",)) if needs_rows else None,
        terms=Terms(IsolationLevel.SERIALIZABLE.value if needs_rows else None),
        parameters=parameters,
        schema=schema,
        kind=Kind.OTHER,
    )


def _check_rows(table: OpenTable, snapshot: Snapshot, metadata: Metadata, schema: StructType) -> bool:
    """Whether the change restricts rows; raises if existing rows violate it."""
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
    checks = {name: text for name, text in new.items() if name.lower().startswith(CONSTRAINT_PREFIX)}
    added = {name[len(CONSTRAINT_PREFIX) :] for name, text in checks.items() if old.get(name) != text}
    if added:
        every = Constraints.of(schema, metadata)
        _check_constraints(table, snapshot, schema, Constraints(tuple(each for each in every.constraints if each.name in added)))
    return keyed or bool(added)


def _check_constraints(table: OpenTable, snapshot: Snapshot, schema: StructType, constraints: Constraints) -> None:
    """Check the constraints' columns in all rows. Raises ConstraintViolated with the values of a violating row."""
    columns: Sequence[str] = sorted({name for each in constraints.constraints for name in each.predicate.columns}) or schema.names[:1]
    batches = TableScan(table.store, schema, snapshot.partition_columns, snapshot.version).batches(snapshot.files, columns)
    for batch in batches:
        try:
            constraints.check(pa.Table.from_batches([batch]))
        except ConstraintViolated as broken:
            raise _not_added(broken, snapshot.version) from broken


def _not_added(broken: ConstraintViolated, version: int) -> ConstraintViolated:
    """The refusal of a constraint, without the row's number, which only counts within the rows read at once."""
    name, expression, values = (broken.details.get(each) for each in ("constraint", "expression", "values"))
    shown = ", ".join(f"{column} = {value!r}" for column, value in (values or {}).items())
    why = f"has rows that break it, such as one with {shown}; correct or delete those first" if shown else f"breaks it: {broken.message}"
    return ConstraintViolated(
        f"the constraint {name} ({expression}) was not added, for version {version} of the table {why}",
        constraint=name,
        expression=expression,
        values=values or {},
        version=version,
    )


def _check_domain(name: str) -> None:
    if name.lower().startswith(_RESERVED_DOMAINS):
        raise InvalidRequest(f"the metadata domain {name!r} belongs to the protocol; use a name without {_RESERVED_DOMAINS!r}", domain=name)


def _domain_change(table: OpenTable, snapshot: Snapshot, domain: DomainMetadata, operation: str) -> Change:
    actions: list[Action] = [domain]
    if "domainMetadata" not in writer_features(snapshot.protocol):
        actions.insert(0, with_features(snapshot.protocol, {"domainMetadata"}))
    return Change(table.new_transaction_id(), operation, snapshot, actions, parameters={"domain": domain.domain}, kind=Kind.OTHER)


def cluster_by(table: OpenTable, columns: str | Iterable[str]) -> Change | None:
    """Cluster by these columns from now on, or by none; None if that is so already. No file is written again.

    Raises InvalidRequest for columns by which a table cannot be clustered, and for new ones of which files have no statistics.
    """
    snapshot = snapshot_for_change(table)
    schema = parse_schema(snapshot.metadata.schema_string)
    old = clustering_columns(snapshot.domains)
    new = clustered_by(columns, schema, snapshot.partition_columns, snapshot.configuration)
    if new == old:
        return None
    _require_statistics(snapshot, [path for path in new if path not in old])
    actions: list[Action] = []
    needed = asked_features({FEATURE_PREFIX + CLUSTERING_FEATURE: "supported"})
    if not needed <= writer_features(snapshot.protocol):
        actions.append(with_features(snapshot.protocol, needed))
    if CLUSTERING_DOMAIN not in snapshot.domains:
        # a concurrent change that partitions the table writes no domain yet, and has to meet something: it changes the metadata
        actions.append(snapshot.metadata)
    actions.append(clustering_domain(new))
    parameters = {"oldClusteringColumns": ",".join(map(dotted, old)), "newClusteringColumns": ",".join(map(dotted, new))}
    return Change(table.new_transaction_id(), "CLUSTER BY", snapshot, actions, parameters=parameters, schema=schema, kind=Kind.OTHER)


def _require_statistics(snapshot: Snapshot, paths: Sequence[Path]) -> None:
    """Raise InvalidRequest unless every file has statistics of these columns, as the protocol demands."""
    texts = snapshot.files["stats"].to_pylist() if paths else []
    for path in paths:
        lacking = sum(lacks(text, [Leaf(path, None)]) for text in texts)
        if lacking:
            raise InvalidRequest(
                f"{lacking} of {snapshot.num_files} files have no statistics of {dotted(path)}, which clustering needs: get them first by "
                f"analyze([...]), ANALYZE TABLE ... COMPUTE STATISTICS FOR COLUMNS {dotted(path)}",
                files=lacking,
                column=dotted(path),
            )
