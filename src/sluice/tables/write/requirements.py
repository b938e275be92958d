"""Before rows are written: the terms that keywords say, whether the table may be written, rows fit it, and a plan can be committed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa

from ...coordinator.api import Change, Reads, Timeout, require_room, validate
from ...coordinator.rules.intent import OWN_PARTITIONS, Kind, Terms, table_policy
from ...storage.actions import Action, AddFile, Metadata, Txn
from ...storage.actions.features import check_writable
from ...storage.actions.file_removals import Actions, Removals
from ...storage.errors import InvalidRequest, UnsupportedFeature
from ...storage.log.snapshot import Snapshot
from ...storage.pruning.predicate import Predicate
from ...storage.schema.datatypes import features_of_columns
from ...storage.schema.identity import check_given
from ...storage.schema.schema import from_arrow
from ..client.open_table import OpenTable
from ..client.property_rules import primary_key_of
from .data_writing import WritePlan
from .draft import Draft
from .evolution import evolved
from .row_operations import reads_in, replaced_by, replaced_whole, require_room_for, rows_read
from .terms import application_transaction

MODES = ("append", "overwrite", "dynamic")


def terms_of(args: Mapping[str, Any], *, ack: str, timeout_s: Timeout) -> Terms:
    """The terms that keywords say; `ack` and `timeout_s` are the table's own. Raises InvalidRequest for keywords that contradict."""
    key, once = args.get("key"), args.get("transaction")
    once = once if key is None else application_transaction(once, key)
    said = {name: value for name, value in args.items() if value is not None and name not in ("transaction", "key")}
    return Terms(**{"ack": ack, "timeout_s": timeout_s, "once": once, **said})


def newest_for_append(table: OpenTable, *, numbered: bool = False) -> Snapshot:
    """The snapshot for a plain append: the one in hand, brought up to the last change of metadata. Raises UnsupportedFeature.

    MaxCompute's policies compare appends with earlier commits: there it is the latest one. An append with an application's number needs
    everything acknowledged to any client before this call.
    """
    head = table.fresh_head() if numbered else table.head(ahead=True)
    snapshot = table.current()
    compares = numbered or table_policy(snapshot.configuration).by_classes
    if head.version > snapshot.version and (compares or head.metadata_version > snapshot.version):
        snapshot = table.latest()
    check_writable(snapshot.protocol, snapshot.metadata)
    return snapshot


def snapshot_for_change(table: OpenTable, read_version: int | None = None, *, numbered: bool = False) -> Snapshot:
    """The snapshot for a transaction that reads: the latest version, or the requested one. Raises UnsupportedFeature, VersionNotFound.

    One with an application's number needs everything acknowledged to any client before this call.
    """
    if numbered:
        table.fresh_head()
    latest = table.latest()
    check_writable(latest.protocol, latest.metadata)
    return latest if read_version is None else table.at(read_version)


def require_no_later_version(location: str, version: int, works_on: int) -> None:
    """Raise InvalidRequest if rows of a table's `version` are to be written by a transaction that works on an earlier one."""
    if version > works_on:
        raise InvalidRequest(
            f"the rows were read from version {version} of {location}, and the transaction works on version {works_on}: it would take "
            "others' later rows into account, and miss their later changes. Begin the transaction after the rows are read, or read version "
            f"{works_on} (versionAsOf)",
            rule="later-source",
            version=version,
        )


def require_unchanged(table: OpenTable, version: int, base: Snapshot, where: str | None, transaction_id: str, terms: Terms) -> None:
    """Raise the conflict if others changed what an earlier `version` than `base` held, all of it or the rows that satisfy `where`."""
    earlier = table.at(version)
    is_same = earlier.metadata.schema_string == base.metadata.schema_string  # another one is a conflict, whatever was read
    draft = Draft(table.store, earlier, transaction_id)
    reads = rows_read(draft, where if is_same else None)
    change = Change(transaction_id, "READ", earlier, (), reads=reads, schema=draft.schema, terms=Terms(terms.isolation))
    validate(table, change, only_reads=True)


def require_replaceable(location: str, snapshot: Snapshot) -> None:
    """Raise UnsupportedFeature if nothing in the table may be replaced or deleted."""
    if snapshot.configuration.get("delta.appendOnly", "").lower() == "true":
        raise UnsupportedFeature(
            f"{location} is append-only (delta.appendOnly): nothing in it may be replaced or deleted; append to it, "
            "or let its owner change the property",
            features=["appendOnly"],
            access="write",
        )


def require_no_key(location: str, metadata: Metadata) -> None:
    """Raise InvalidRequest for a table with a primary key, whose rows must be compared before they are written."""
    if key := primary_key_of(metadata.configuration, metadata.schema):
        raise InvalidRequest(
            f"{location} has the primary key ({', '.join(key)}), so that its rows cannot be written in parts that do not know "
            "of one another: use append, overwrite or upsert of sluice.Table, which keep the newest row of each key",
            location=location,
        )


def complete_plan(plan: WritePlan, schema: pa.Schema | None, base: Snapshot | Draft, *, merge_schema: bool = False) -> WritePlan:
    """The plan for rows of this schema, whose new columns the table gets with `merge_schema`, and their wider types, if `base` may.

    Raises InvalidRequest and its kinds.
    """
    metadata, redefines = plan.metadata, plan.redefines
    if redefines is not None and (plan.mode != "overwrite" or plan.where is not None):
        raise InvalidRequest(
            "overwrite_schema replaces the whole table: leave where and dynamic out, or overwrite with the schema that the table has"
        )
    if redefines is not None and redefines.metadata == metadata and not (redefines.replaces_table or redefines.clustering):
        redefines = None
    planned = metadata if redefines is None else redefines.metadata
    struct = planned.schema
    if schema is not None and merge_schema and redefines is None:
        planned = evolved(base, metadata, from_arrow(schema))
        struct = planned.schema
    if plan.where is not None:
        Predicate.parse(plan.where, struct)
    if plan.mode == "dynamic" and not planned.partition_columns:
        raise InvalidRequest(f"dynamic partition overwrite needs a partitioned table; {plan.address.location} is not partitioned")
    if planned is not metadata or redefines is not plan.redefines:
        plan = replace(plan, metadata=planned, redefines=redefines, changes_metadata=planned is not metadata)
    if schema is not None:
        plan.require_partitions(schema)
        if features_of_columns(plan.schema):
            check_given(plan.schema, schema.names)
    return plan


def check_plan(table: OpenTable, plan: WritePlan, files: Sequence[AddFile] = ()) -> None:
    """Raise the conflict, if any, by which a plan can no longer be committed; `files` are those its writers made, as far as known.

    Costs one look at the head, and reads no row. The plan may still be refused: others go on committing, and the rows that a condition on
    data columns replaces are known only at the commit. A plan that creates its table always passes.
    """
    if plan.read_version < 0:
        return
    if plan.mode not in ("append", "dynamic") and not files:
        require_room_for(_draft(table, plan, table.at(plan.read_version)), plan)
    if table.head().version <= plan.read_version:
        return
    latest = table.latest()
    if plan.terms.once is not None:
        app, number = plan.terms.once
        recorded = latest.app_transactions.get(app)
        if recorded is not None and recorded.version >= number:
            return  # the existing commit will be the answer
    is_plain = plan.mode == "append" and not plan.depends and plan.terms.if_version is None
    if is_plain and plan.terms.once is None and latest.metadata == plan.metadata:
        return
    validate(table, _outline(table, plan, table.at(plan.read_version), files))


def require_distinct(files: Sequence[AddFile]) -> None:
    """Raise InvalidRequest, naming the path, where two files of a plan have one: the later one was written over the other."""
    paths = Counter(each.path for each in files)
    # check: files-of-a-plan-are-distinct
    if len(paths) < len(files):
        path = next(path for path, count in paths.items() if count > 1)
        raise InvalidRequest(
            f"two calls of `write` made {path!r}, and the rows of the first are gone: write them all again, and give each call a `label` "
            "of its own; nothing was committed",
            path=path,
        )


def _draft(table: OpenTable, plan: WritePlan, snapshot: Snapshot) -> Draft:
    draft = Draft(table.store, snapshot, plan.transaction_id, partial(require_room, table))
    if plan.changes_metadata:
        draft.adopt(plan.metadata, plan.redefines)
    return draft


def _outline(table: OpenTable, plan: WritePlan, snapshot: Snapshot, files: Sequence[AddFile]) -> Change:
    """The certain part of the commit."""
    redefines = plan.redefines
    actions: list[Action] = [plan.metadata] if plan.changes_metadata else []
    if redefines is not None:
        if redefines.protocol != snapshot.protocol:
            actions.append(redefines.protocol)
        actions += redefines.clustering
    if plan.terms.once is not None:
        actions.append(Txn(*plan.terms.once))
    removals: Collection[Action] = ()
    reads: Reads | None = None
    kind, scope = Kind.APPEND, None
    if plan.mode != "append":
        draft = _draft(table, plan, snapshot)
        gone = replaced_by(draft, plan, files)
        removals = Removals(replaced_whole(draft, gone), table.clock.now_ms())
        reads, kind, scope = gone.reads, gone.kind, OWN_PARTITIONS if plan.mode == "dynamic" else gone.scope
    elif plan.depends:  # as far as it is known without reading rows
        draft = Draft(table.store, snapshot, plan.transaction_id)
        predicate = Predicate.parse(plan.read_where, draft.schema) if plan.read_where else None
        candidates = draft.candidates(predicate)
        reads = reads_in(draft, predicate, candidates)
        if predicate is None:
            reads = replace(reads, files=tuple(candidates["path"].to_pylist()))
    all_actions = Actions(actions, removals, files)
    return Change(
        plan.transaction_id, "WRITE", snapshot, all_actions, reads=reads, schema=plan.schema, kind=kind, scope=scope, terms=plan.terms
    )
