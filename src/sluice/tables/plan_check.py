"""Whether a planned write can still be committed: asked before its rows are written, which may take long."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow.compute as pc

from ..coordinator.footprint import OWN_PARTITIONS
from ..coordinator.isolation import stricter, table_isolation
from ..coordinator.kinds import Kind
from ..storage.actions import Action, AddFile
from ..storage.filetable import adds_of
from ..storage.removals import removal
from ..storage.snapshot import Snapshot
from .access import Access
from .changing import replaced_by
from .draft import Draft
from .transactions import Change, Reads, validate
from .writing import WritePlan

__all__ = ["check_plan"]


def check_plan(access: Access, plan: WritePlan, files: Sequence[AddFile] = ()) -> None:
    """Raise the conflict by which a plan can no longer be committed; `files` are those that its writers made, as far as known.

    Costs one look at the head, and no row is read: what passes may still be refused, for others go on committing, and which
    rows a condition on data columns replaces is seen at the commit. Nothing is known against a plan that creates its table.
    """
    if plan.read_version < 0 or access.head().version <= plan.read_version:
        return
    latest = access.latest()
    if plan.transaction is not None:
        app, number = plan.transaction
        known = latest.app_transactions.get(app)
        if known is not None and known.version >= number:
            return  # the commit there is will be the answer
    if plan.mode == "append" and latest.metadata == plan.metadata:
        return
    validate(access, _outline(access, plan, access.at(plan.read_version), files))


def _outline(access: Access, plan: WritePlan, snapshot: Snapshot, files: Sequence[AddFile]) -> Change:
    """What the commit will do for certain."""
    now_ms = access.ours.context.clock.now_ms()
    actions: list[Action] = [plan.metadata] if plan.changes_metadata else []
    reads: Reads | None = None
    kind, scope = Kind.APPEND, None
    if plan.mode != "append":
        draft = Draft(access.store, snapshot, plan.transaction_id)
        if plan.changes_metadata:
            draft.adopt(plan.metadata)
        gone = replaced_by(draft, plan, files)
        found = gone.files
        if gone.predicate is not None:
            surely = gone.predicate.matches_all(found, schema=draft.schema, partition_columns=draft.partition_columns)
            found = found.filter(pc.fill_null(surely, False))
        actions += [removal(add, now_ms) for add in adds_of(found)]
        reads, kind, scope = gone.reads, gone.kind, OWN_PARTITIONS if plan.mode == "dynamic" else gone.scope
    return Change(
        transaction_id=plan.transaction_id,
        operation="WRITE",
        snapshot=snapshot,
        actions=[*actions, *files],
        reads=reads,
        schema=plan.schema,
        kind=kind,
        scope=scope,
        isolation=stricter(table_isolation(snapshot.configuration), plan.isolation),
    )
