"""Decides a transaction over several tables: all of its versions, or none (I11).

Pure, like every decision (I4). In each table the same function decides as for a transaction of that table alone; a refusal
in one table is a refusal in all, with that table's reason and name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from ...storage.actions import DeletionVector
from ...storage.data.vectors import Rows
from ...storage.errors import InvariantBroken
from ..limits import Limits
from ..nodes.records import Head, Verdict
from ..rules.refusal import Refusal
from .decision import Decision, DecisionInput, Queued, resolve

SIBLINGS: Final = "joint-slots"
"""The rule that refuses a transaction that names tables in which it has no slot, or a different one."""


def resolve_joint(parts: Mapping[str, DecisionInput]) -> Mapping[str, Decision]:
    """The decision in each table, by location, for a transaction that is the first undecided one in all of them.

    Each part is the transaction's slot in one table.
    """
    decisions = {location: _alone(part, len(parts)) for location, part in parts.items()}
    # check: joint-committed-before
    if _was_committed(parts, decisions):
        return {at: decision if decision.verdicts[0].repeats else _read_before(parts[at], decision) for at, decision in decisions.items()}
    against = _objection(decisions)
    if against is not None:
        return {location: refused(part.head, part.queue[0], part.limits, against) for location, part in parts.items()}
    versions = {location: plan.version for location, decision in decisions.items() for plan in decision.versions}
    return {
        location: replace(decision, versions=tuple(replace(plan, joint=versions) for plan in decision.versions))
        for location, decision in decisions.items()
    }


def _alone(part: DecisionInput, tables: int) -> Decision:
    """One table's decision. All records share one request, so each gets a share of the room."""
    room = part.limits.batch_bytes_max // tables
    limits = part.limits.but(batch_bytes_max=room, inline_bytes_max=max(1, min(part.limits.inline_bytes_max, room // 2)))
    return resolve(replace(part, limits=limits), room=1, jointly=True)


def _was_committed(parts: Mapping[str, DecisionInput], decisions: Mapping[str, Decision]) -> bool:
    """Whether every table that it writes already has it. Tables that it only reads have no version of it."""
    writes = [at for at, part in parts.items() if part.queue[0].member is None or not part.queue[0].member.intent.only_reads]
    return bool(writes) and all(decisions[at].verdicts[0].repeats for at in writes)


def _read_before(part: DecisionInput, decision: Decision) -> Decision:
    """The share of a table that a committed transaction only read: it stays valid, whatever was committed there since."""
    [verdict] = decision.verdicts
    return replace(decision, verdicts=(Verdict(verdict.slot, verdict.transaction_id, part.head.version, repeats=True),))


def _objection(decisions: Mapping[str, Decision]) -> Refusal | None:
    """Why the transaction cannot be committed in all tables, or None."""
    repeated = {location for location, decision in decisions.items() if decision.verdicts[0].repeats}
    for location, decision in decisions.items():
        refusal = decision.verdicts[0].refusal
        # check: refused-in-one-refused-in-all
        if refusal is not None:
            return replace(refusal, message=f"{location}: {refusal.message}", facts={**refusal.facts, "table": location})
    # check: repeated-in-one-is-said
    if repeated and len(repeated) < len(decisions):
        return Refusal(
            "joint-repeated",
            "ConcurrentTransactionException",
            f"{', '.join(sorted(repeated))}: what this transaction does there was committed before, but not in its other tables",
            facts={"table": min(repeated)},
        )
    return None


def refused(head: Head, queued: Queued, limits: Limits, refusal: Refusal) -> Decision:
    """The decision that refuses a slot."""
    decision = resolve(DecisionInput(head, [replace(queued, member=None, against=refusal)], {}, limits, _no_rows), room=0)
    return replace(decision, verdicts=(replace(decision.verdicts[0], refusal=refusal),))  # the full text, with the table it names


def _no_rows(vector: DeletionVector) -> Rows:
    raise InvariantBroken(f"the deletion vector {vector.unique_id} was looked up for a refusal")


def lacks_siblings(location: str, problem: str) -> Refusal:
    """The refusal of a transaction that names one of its tables wrongly."""
    return Refusal(SIBLINGS, "Refused", f"{location}: {problem}; the transaction is not what its slots say", facts={"table": location})
