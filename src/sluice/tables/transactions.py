"""From what an operation wants to do to a commit: footprint, pre-validation, intent."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..coordinator.clock import Deadline
from ..coordinator.conflicts import check, refusal
from ..coordinator.faults import point
from ..coordinator.isolation import IsolationLevel, table_isolation
from ..coordinator.kinds import Kind
from ..coordinator.outcomes import Commit, refusal_error
from ..coordinator.records import Footprint, Head, Intent, digest
from ..storage.actions import Action, AddFile, DomainMetadata, Metadata, Protocol, RemoveFile, Txn, encode_all
from ..storage.errors import InvalidRequest
from ..storage.paths import staged_path
from ..storage.schema import PrimitiveType, StructType
from ..storage.snapshot import Snapshot
from .access import Access

__all__ = ["Change", "Reads", "check_application_transaction", "commit_change", "new_transaction_id", "repeated_application_transaction"]

DEFAULT_TIMEOUT_S = 120.0
_PREDICATE_CHARACTERS_MAX = 8 * 1024


def new_transaction_id() -> str:
    """A GUID: the name of a transaction for ever, and part of the names of all its data files."""
    return str(uuid.uuid4())


def check_application_transaction(transaction: object) -> None:
    """Raise InvalidRequest unless this is None or (application id, number), as Delta's `txn` action holds them."""
    match transaction:
        case None:
            return
        case (str(app), int(number)) if app and type(number) is int and 0 <= number < 2**63:
            return
    raise InvalidRequest(
        f"transaction={transaction!r}: give (application id, number), a text that is not empty and a whole number, 0 or more"
    )


@dataclass(frozen=True, slots=True)
class Reads:
    """What an operation read: conditions as SQL ("" for the whole table as a filter), files by log path.

    `files` are those whose rows the outcome depends on beyond the rows it changes: a change of rows in a table with deletion
    vectors lists none, for there the rows themselves are compared.
    """

    predicates: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    whole_table: bool = False
    apps: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Change:
    """What an operation wants to commit, made on `snapshot` (None: it creates the table)."""

    transaction_id: str
    operation: str
    snapshot: Snapshot | None
    actions: Sequence[Action]
    reads: Reads | None = None
    """None: a blind append."""
    parameters: Mapping[str, str] = field(default_factory=dict)
    metrics: Mapping[str, str] = field(default_factory=dict)
    schema: StructType | None = None
    expected_version: int | None = None
    table_id: str = ""
    detach: bool = False
    claimed_ms: int | None = None
    filed_again: bool = False
    kind: Kind = Kind.OTHER
    scope: str | None = None
    """What an overwrite replaces: "" the table, or a partition condition."""
    isolation: IsolationLevel | None = None
    """A stricter level than the table's."""


def _partition_types(change: Change) -> dict[str, str]:
    if change.snapshot is None or change.schema is None:
        return {}
    types = {f.name: f.type for f in change.schema.fields}
    return {c: t.name for c in change.snapshot.partition_columns if isinstance(t := types.get(c), PrimitiveType)}


def footprint_of(change: Change, *, files_max: int) -> Footprint:
    """The footprint of a change: what it read as told, what it writes as its actions say.

    Lists that are too long are left out, which means "everything": a footprint may become coarser, never smaller.
    """
    actions = change.actions
    removes = tuple(a.path for a in actions if isinstance(a, RemoveFile))
    metadata = any(isinstance(a, Metadata) for a in actions)
    protocol = any(isinstance(a, Protocol) for a in actions)
    domains = tuple(a.domain for a in actions if isinstance(a, DomainMetadata))
    blind = change.reads is None and not removes and not metadata and not protocol and not domains
    reads = change.reads or Reads()
    return Footprint(
        predicates=tuple(p if len(p) <= _PREDICATE_CHARACTERS_MAX else "" for p in reads.predicates),
        partition_types=_partition_types(change),
        read_files=reads.files if len(reads.files) <= files_max else None,
        whole_table=reads.whole_table,
        read_apps=reads.apps,
        removes=removes if len(removes) <= files_max else None,
        app_versions={a.app_id: a.version for a in actions if isinstance(a, Txn)},
        domains=domains,
        metadata=metadata,
        protocol=protocol,
        data_change=any(a.data_change for a in actions if isinstance(a, (AddFile, RemoveFile))),
        blind_append=blind,
    )


def _validate(access: Access, footprint: Footprint, level: IsolationLevel, after: int, head: Head, transaction_id: str) -> None:
    """Check every version this client can already see, so that the shared decision looks at a short window."""
    if footprint.blind_append and head.metadata_version <= after:
        return
    for version in range(after + 1, head.version + 1):
        finding = check(footprint, access.ours.log.winner(version), level)
        if finding is not None:
            raise refusal_error(refusal(finding), transaction_id)


def commit_change(access: Access, change: Change, *, ack: str = "published", timeout_s: float = DEFAULT_TIMEOUT_S) -> Commit:
    """Validate, file and see committed. Raises the conflict, OutcomeUnknown, CoordinatorUnavailable."""
    committer = access.ours
    context = committer.context
    deadline = Deadline.after(timeout_s, context.clock)
    point("data-staged")
    footprint = footprint_of(change, files_max=context.limits.footprint_files_max)
    configuration = change.snapshot.configuration if change.snapshot else {}
    level = table_isolation(configuration)
    read_version = change.snapshot.version if change.snapshot else -1
    # a plain append compares nothing but the version of the metadata, so the head it was planned on will do
    head = access.known_head() if footprint.blind_append and not footprint.app_versions else access.head()
    if change.expected_version is None:
        _validate(access, footprint, level, read_version, head, change.transaction_id)
        repeated = repeated_application_transaction(access, footprint.app_versions, after=read_version, upto=head.version)
        if repeated is not None:
            return repeated
    actions = encode_all(change.actions)
    staged = ""
    if len(actions) > context.limits.inline_bytes_max:
        staged = staged_path(change.transaction_id)
        context.objects.put(staged, actions)
        point("actions-staged")
    intent = Intent(
        transaction_id=change.transaction_id,
        operation=change.operation,
        read_version=read_version,
        validated_through=read_version if change.expected_version is not None else head.version,
        claimed_ms=context.clock.now_ms() if change.claimed_ms is None else change.claimed_ms,
        isolation=level.value,
        footprint=footprint,
        actions="" if staged else actions.decode(),
        staged=staged,
        actions_digest=digest(actions),
        parameters=change.parameters,
        metrics=change.metrics,
        client=context.client,
        expected_version=change.expected_version,
        table_id=change.table_id,
        detach=change.detach,
        filed_again=change.filed_again,
    )
    return committer.commit(intent, head, deadline, ack=ack)


def repeated_application_transaction(access: Access, apps: Mapping[str, int], *, after: int, upto: int) -> Commit | None:
    """The commit of versions (after, upto] that wrote one of these application transactions already, or None."""
    if not apps:
        return None
    log = access.ours.log
    for version in range(upto, after, -1):
        winner = log.winner(version)
        for app, number in apps.items():
            if winner.app_versions.get(app, number - 1) >= number:
                ordinal = winner.ordinal_of_app(app)
                listed = next((t for t in winner.transactions if t.get("ordinal") == ordinal), {})
                timestamp = int(log.info(version).get("inCommitTimestamp", 0))
                return Commit(version, ordinal, timestamp, str(listed.get("id", "")), repeated=True)
    return None
