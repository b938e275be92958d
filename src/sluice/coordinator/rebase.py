"""A transaction and the commits that came first: may it stand, and what becomes of its actions then.

Winners are met one after the other, in the order of their versions::

    attempt --meet(winner r+1)--> attempt' --meet(winner r+2)--> attempt'' ... --> committed, or a Finding

Meeting costs no reading of data, however many came: at most deletion vectors are united. Pure, but for looking up vectors,
which are immutable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from ..storage.actions import Action, AddFile, DeletionVector, RemoveFile, decode_commit, encode_all
from ..storage.lineage import moved_rows
from ..storage.vectors import Rows
from .conflicts import APPENDED, RULES, Encounter, Finding, Rule, check, effective_level, replaces, shared_in_words
from .content import Member, Winner
from .footprint import OWN_PARTITIONS, Footprint
from .isolation import ConflictPolicy, IsolationLevel
from .policies import partition_key
from .read_scope import ReadScope
from .records import Intent
from .rows import Merge, VectorLookup, merge, replace_all

__all__ = ["Attempt", "meet", "meet_all"]

# What was adapted is told line by line up to this many: intents and verdict records have to fit into the coordinator's nodes.
_NOTES_MAX: Final = 50
_BEFORE_ROWS: Final[tuple[Rule, ...]] = RULES[:-1]
_ROWS: Final[tuple[Rule, ...]] = RULES[-1:]


@dataclass(frozen=True, slots=True)
class Attempt:
    """A transaction on its way to a place in the log.

    `encoded` are its actions as filed; `actions` the same decoded, as far as somebody had to look at them, and adapted to
    the winners met so far; `notes` say in words what was adapted, the first of `noted` in all; `objects` are vectors that were
    made for it, and `planned` their rows. `strict` compares as Delta Lake does; `cleared` are winners' files known not to hold
    what was read. `only_reads`: it is the share of a table that a transaction over several reads, and is there for what it read.
    """

    transaction_id: str
    operation: str
    footprint: Footprint
    level: IsolationLevel
    encoded: bytes = b""
    actions: tuple[Action, ...] | None = None
    now_ms: int = 0
    notes: tuple[str, ...] = ()
    noted: int = 0
    objects: Mapping[str, bytes] = field(default_factory=dict)
    planned: Mapping[str, Rows] = field(default_factory=dict)
    strict: bool = False
    cleared: frozenset[str] = frozenset()
    only_reads: bool = False

    @property
    def rebased(self) -> tuple[str, ...]:
        """What was adapted, in words; of very much only the beginning, and how much more there was."""
        more = self.noted - len(self.notes)
        return (*self.notes, f"and {more} more") if more else self.notes

    @staticmethod
    def of(member: Member) -> Attempt:
        """What an intent asks for."""
        intent = member.intent
        return Attempt(
            transaction_id=intent.transaction_id,
            operation=intent.operation,
            footprint=intent.footprint,
            level=IsolationLevel(intent.isolation),
            encoded=member.actions,
            now_ms=intent.claimed_ms,
            only_reads=intent.only_reads,
        )

    def decoded(self) -> tuple[Action, ...]:
        """The actions. Raises CorruptLogFile."""
        if self.actions is not None:
            return self.actions
        return tuple(decode_commit(self.encoded, name=self.transaction_id)) if self.encoded else ()

    def lines(self) -> bytes:
        """The actions as log lines: those filed, byte for byte, unless they were adapted."""
        return encode_all(self.actions) if self.actions is not None and self.noted else self.encoded

    def member(self, intent: Intent) -> Member:
        """The intent with the actions it is committed with."""
        return Member(intent, self.lines(), self.rebased)


def meet(attempt: Attempt, winner: Winner, lookup: VectorLookup) -> Attempt | Finding:
    """What becomes of the attempt after a winner: itself, adapted if need be, or the rule by which it is stopped."""
    if _is_coarse(attempt.footprint, winner):
        attempt = _exact(attempt)
    mine = attempt.footprint
    level = attempt.level if attempt.only_reads else effective_level(mine, attempt.level, attempt.operation)
    encounter = Encounter(mine, winner, level, strict=attempt.strict, cleared=attempt.cleared)
    finding = check(encounter, _BEFORE_ROWS)
    if finding is not None:
        return _telling_rows(finding, attempt, winner, lookup)
    merged = _adapted(attempt, winner, lookup)
    if merged is not None:
        encounter = replace(encounter, reconciled=frozenset(merged.reconciled), shared_rows=merged.shared)
    finding = check(encounter, _ROWS)
    if finding is not None:
        return finding
    return _reading_on(attempt if merged is None or not merged.reconciled else _after(attempt, merged), winner)


def meet_all(attempt: Attempt, winners: Iterable[Winner], lookup: VectorLookup) -> Attempt | Finding:
    """Meet winners in the order of their versions, up to the first that stops the attempt."""
    for winner in winners:
        met = meet(attempt, winner, lookup)
        if isinstance(met, Finding):
            return met
        attempt = met
    return attempt


def _telling_rows(finding: Finding, attempt: Attempt, winner: Winner, lookup: VectorLookup) -> Finding:
    """The finding; where rows that both changed were added again elsewhere it says which these are, for new files tell less."""
    if finding.rule.name != APPENDED or not attempt.footprint.row_level:
        return finding
    merged = _adapted(attempt, winner, lookup)
    if merged is None or not merged.shared:
        return finding
    return replace(finding, what=f"{finding.what}; both changed {shared_in_words(merged.shared)}")


def _adapted(attempt: Attempt, winner: Winner, lookup: VectorLookup) -> Merge | None:
    """The actions adapted to a winner that changed the same files, or whose rows are to be replaced; None where neither is so."""
    mine = attempt.footprint
    if attempt.strict:
        return None
    if replaces(mine):
        if not winner.adds and not winner.removed:
            return None
        actions = attempt.decoded()
        return replace_all(actions, winner, _inside(mine, actions), attempt.now_ms)
    if not mine.row_level or not winner.removed or not winner.removes & set(mine.removes or ()):
        return None

    def known(vector: DeletionVector) -> Rows:
        planned = attempt.planned.get(vector.unique_id)
        return lookup(vector) if planned is None else planned

    return merge(attempt.decoded(), winner, attempt.transaction_id, known)


def _inside(mine: Footprint, actions: Iterable[Action]) -> Callable[[list[AddFile]], Iterable[AddFile]]:
    """Picks those of a winner's files that lie in what an overwrite replaces."""
    if not mine.scope:
        return list
    if mine.scope != OWN_PARTITIONS:
        return partial(ReadScope.of((mine.scope,), mine.partition_types, {}).touched, statistics=False)
    own = {partition_key(action.partition_values) for action in actions if isinstance(action, AddFile)}
    return lambda adds: [add for add in adds if partition_key(add.partition_values) in own]


def _reading_on(attempt: Attempt, winner: Winner) -> Attempt:
    """The same, depending on the files that a winner's compaction made of those it read: their rows are what was read."""
    mine = attempt.footprint
    if attempt.strict or not mine.row_level or not mine.read_files or not winner.removed:
        return attempt
    moved = [path for path in mine.read_files if path in winner.removed and not winner.removed[path].data_change]
    if not moved:
        return attempt
    outputs: set[str] = set()
    for path in moved:
        moves = moved_rows(winner.removed[path])
        outputs |= {add.path for add in winner.adds if not add.data_change} if moves is None else {move.path for move in moves}
    read = (*(path for path in mine.read_files if path not in moved), *sorted(outputs))
    return replace(attempt, footprint=replace(mine, read_files=read))


def _is_coarse(mine: Footprint, winner: Winner) -> bool:
    """Whether the footprint leaves out, for its length, what a rule will ask for."""
    by_partitions = mine.policy != ConflictPolicy.DELTA.value and mine.scope is None
    return (mine.removes is None and bool(winner.removed)) or (mine.partitions is None and by_partitions)


def _exact(attempt: Attempt) -> Attempt:
    """The same with the files it removes and the partitions it touches listed from its actions, however many they are."""
    actions, mine = attempt.decoded(), attempt.footprint
    removes = tuple(a.path for a in actions if isinstance(a, RemoveFile))
    partitions = mine.partitions
    if partitions is None and mine.scope is None:
        values = [a.partition_values for a in actions if isinstance(a, (AddFile, RemoveFile))]
        told = [each for each in values if each is not None]
        partitions = tuple({partition_key(each) for each in told}) if len(told) == len(values) else None
    return replace(attempt, footprint=replace(mine, removes=removes, partitions=partitions), actions=actions)


def _after(attempt: Attempt, merged: Merge) -> Attempt:
    removes = tuple(a.path for a in merged.actions if isinstance(a, RemoveFile))
    return replace(
        attempt,
        footprint=replace(attempt.footprint, removes=removes),
        actions=merged.actions,
        notes=(*attempt.notes, *merged.what)[:_NOTES_MAX],
        noted=attempt.noted + len(merged.what),
        objects={**attempt.objects, **merged.objects},
        planned={**attempt.planned, **merged.planned},
    )
