"""Whether a planned write can still be committed, asked before its rows are written, which may take long."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ...coordinator.facade.values import Change, Reads
from ...coordinator.rules.intent import OWN_PARTITIONS
from ...coordinator.rules.isolation import stricter, table_isolation
from ...coordinator.rules.operation_kinds import Kind
from ...storage.actions import Action, AddFile, Txn
from ...storage.actions.file_removals import Actions, Removals
from ...storage.log.snapshot import Snapshot
from ...storage.pruning.predicate import Predicate
from ..client.access import Access
from .data_writing import WritePlan
from .draft import Draft
from .row_operations import reads_in, replaced_by, replaced_whole, require_room_for

__all__ = ["check_plan"]


def check_plan(access: Access, plan: WritePlan, files: Sequence[AddFile] = ()) -> None:
    """Raise the conflict, if any, by which a plan can no longer be committed; `files` are those its writers made, as far as known.

    Costs one look at the head, and reads no row. The plan may still be refused: others go on committing, and the rows that a
    condition on data columns replaces are known only at the commit. A plan that creates its table always passes.
    """
    if plan.read_version < 0:
        return
    if plan.mode not in ("append", "dynamic") and not files:
        require_room_for(_draft(access, plan, access.at(plan.read_version)), plan)
    if access.ours.head().version <= plan.read_version:
        return
    latest = access.latest()
    if plan.transaction is not None:
        app, number = plan.transaction
        known = latest.app_transactions.get(app)
        if known is not None and known.version >= number:
            return  # the existing commit will be the answer
    if plan.mode == "append" and not plan.depends and plan.transaction is None and latest.metadata == plan.metadata:
        return
    access.ours.validate(_outline(access, plan, access.at(plan.read_version), files))


def _draft(access: Access, plan: WritePlan, snapshot: Snapshot) -> Draft:
    draft = Draft(access.store, snapshot, plan.transaction_id, access.ours.require_room)
    if plan.changes_metadata:
        draft.adopt(plan.metadata, plan.redefines)
    return draft


def _outline(access: Access, plan: WritePlan, snapshot: Snapshot, files: Sequence[AddFile]) -> Change:
    """What the commit will certainly do."""
    now_ms = access.ours.now_ms()
    actions: list[Action] = [plan.metadata] if plan.changes_metadata else []
    if plan.redefines is not None and plan.redefines.protocol != snapshot.protocol:
        actions.append(plan.redefines.protocol)
    if plan.redefines is not None:
        actions += plan.redefines.clustering
    if plan.transaction is not None:
        actions.append(Txn(*plan.transaction))
    removals: Collection[Action] = ()
    reads: Reads | None = None
    kind, scope = Kind.APPEND, None
    if plan.mode != "append":
        draft = _draft(access, plan, snapshot)
        gone = replaced_by(draft, plan, files)
        removals = Removals(replaced_whole(draft, gone), now_ms)
        reads, kind, scope = gone.reads, gone.kind, OWN_PARTITIONS if plan.mode == "dynamic" else gone.scope
    elif plan.depends:
        reads = _read_elsewhere(Draft(access.store, snapshot, plan.transaction_id), plan.read_where)
    return Change(
        transaction_id=plan.transaction_id,
        operation="WRITE",
        snapshot=snapshot,
        actions=Actions(actions, removals, files),
        reads=reads,
        schema=plan.schema,
        kind=kind,
        scope=scope,
        isolation=stricter(table_isolation(snapshot.configuration), plan.isolation),
    )


def _read_elsewhere(draft: Draft, where: str | None) -> Reads:
    """What an append depends on, as far as it is known without reading rows."""
    predicate = None if where is None else Predicate.parse(where, draft.schema)
    files = draft.candidates(predicate)
    if predicate is None:
        return Reads(predicates=("",), files=tuple(files["path"].to_pylist()))
    return reads_in(draft, predicate, files)
