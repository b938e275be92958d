"""Rebasing: whether a transaction can commit after the commits that came first, and how its actions change then.

A candidate is checked against winners one after the other, in the order of their versions::

    candidate --winner r+1--> candidate' --winner r+2--> candidate'' ... --> committed, or a Conflict

That reads no data: at most it unites deletion vectors. Pure except for looking up vectors, which are immutable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field, replace
from functools import partial
from typing import Final

from ...storage.actions import Action, AddFile, DeletionVector, RemoveFile, decode_text, encode
from ...storage.actions.file_removals import moved_rows
from ...storage.actions.texts import Text, spooled
from ...storage.data.row_moves import VectorLookup
from ...storage.data.vectors import Rows, from_text, to_text
from ...storage.dataclass import dataclass
from .conflicts import APPENDED, BEFORE_ROWS, BY_STATISTICS, OF_ROWS, Comparison, Conflict, check, effective_level, shared_in_words
from .intent import ADOPTING, OWN_PARTITIONS, IsolationLevel, Kind
from .policies import MATRICES
from .read_scope import ReadScope
from .row_changes import Merge, lost_rows, merge, replace_all, rows_moved
from .winner import Footprint, Member, Window, Winner, footprint_of, partition_key, windows

# Adaptations are listed one by one up to this number: intents and verdict records have to fit into the coordinator's nodes.
_NOTES_MAX: Final = 50
_REORGANISES: Final = (Kind.MINOR, Kind.MAJOR)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A transaction on its way to a place in the log.

    `encoded` are its actions as filed; `actions` are they decoded, once needed, and adapted to the winners so far; `notes` describe the
    adaptations, the first of `noted` in all; `objects` are vectors that were made for it, and `planned` their rows; `cleared` are winners'
    files known not to contain what was read. `only_reads`: this table's share of a transaction over several only reads here.
    """

    transaction_id: str
    operation: str
    footprint: Footprint
    level: IsolationLevel
    encoded: Text = b""
    actions: tuple[Action, ...] | None = None
    now_ms: int = 0
    notes: tuple[str, ...] = ()
    noted: int = 0
    objects: Mapping[str, bytes] = field(default_factory=dict)
    planned: Mapping[str, Rows] = field(default_factory=dict)
    cleared: frozenset[str] = frozenset()
    only_reads: bool = False

    @property
    def rebased(self) -> tuple[str, ...]:
        """The adaptations in words; of very many, the first ones and the number of the others."""
        more = self.noted - len(self.notes)
        return (*self.notes, f"and {more} more") if more else self.notes

    @staticmethod
    def of(member: Member) -> Candidate:
        """The candidate of an intent."""
        intent = member.intent
        return Candidate(
            transaction_id=intent.transaction_id,
            operation=intent.operation,
            footprint=member.footprint,
            level=IsolationLevel(intent.isolation),
            encoded=member.actions,
            now_ms=intent.claimed_ms,
            only_reads=intent.only_reads,
        )

    def each(self) -> Iterator[Action]:
        """The actions one after the other. Raises CorruptLogFile."""
        if self.actions is not None:
            yield from self.actions
        elif self.encoded:
            yield from decode_text(self.encoded, name=self.transaction_id)

    def lines(self) -> Text:
        """The actions as log lines: the filed bytes, unless they were adapted."""
        adapted = self.actions if self.noted else None
        return self.encoded if adapted is None else spooled(encode(action) + b"\n" for action in adapted)


def check_against(candidate: Candidate, winner: Winner, lookup: VectorLookup, window: Window | None = None) -> Candidate | Conflict:
    """Check a candidate against a winner, one of `window`: returns it, adapted if necessary, or the rule that stops it."""
    mine, compared = candidate.footprint, candidate
    # The policy databricks compares whole files in a partitioned table, although the table has deletion vectors; but a compaction and
    # others' changes are reconciled even there.
    # check: databricks-compares-files-in-partitioned-tables
    if mine.row_level and not mine.compares_rows and winner.kind not in _REORGANISES and mine.kind not in _REORGANISES:
        files = None if mine.read_files is None else (*mine.read_files, *mine.read_rows)
        compared = replace(candidate, footprint=replace(mine, row_level=False, read_files=files, read_rows={}))
    by_files, by_partitions = compared is not candidate, mine.policy in MATRICES and mine.scope is None
    # its length made it omit something that a rule needs
    # check: coarse-footprints-are-made-exact
    if (mine.removes is None and winner.removed) or (mine.partitions is None and by_partitions):
        compared = _exact(compared, winner)
    checked = _checked(compared, winner, lookup, window)
    if isinstance(checked, Conflict):
        return checked
    if by_files:
        return candidate
    if compared is candidate or checked.noted > candidate.noted:
        return checked
    # Made exact for this winner only: the lists may be long.
    return replace(checked, footprint=replace(checked.footprint, removes=mine.removes, partitions=mine.partitions))


def _checked(candidate: Candidate, winner: Winner, lookup: VectorLookup, window: Window | None) -> Candidate | Conflict:
    mine = candidate.footprint
    level = candidate.level if candidate.only_reads else effective_level(mine, candidate.level, candidate.operation)
    lost = lost_rows(mine.read_rows, winner, lookup) if mine.read_rows else {}
    # a file that a transaction wrote itself has its id in its name: no other can add it
    both = _both_add(candidate, winner) if candidate.operation == ADOPTING and winner.adds else frozenset[str]()
    comparison = Comparison(mine, winner, level, cleared=candidate.cleared, both_added=both, lost_rows=lost, window=window)
    conflict = check(comparison, BEFORE_ROWS)
    if conflict is not None and not (conflict.rule.name == APPENDED and mine.row_level):
        return conflict
    merged = _adapted(candidate, winner, lookup)
    if conflict is not None:  # if both changed rows and added them again elsewhere, the new files alone say less
        if merged is None or not merged.shared:
            return conflict
        return replace(conflict, what=f"{conflict.what}; both changed {shared_in_words(merged.shared)}")
    if merged is not None:
        comparison = replace(comparison, reconciled=frozenset(merged.reconciled), shared_rows=merged.shared)
    conflict = check(comparison, OF_ROWS)
    if conflict is not None:
        return conflict
    if merged is not None and merged.reconciled:
        actions = merged.actions()
        candidate = replace(
            candidate,
            # It lists every file, so that nobody looks through the actions again for the next winner.
            # check: adapted-effects-are-derived-again (footprint_of(candidate.footprint, actions, lists_all=True) -> candidate.footprint)
            footprint=footprint_of(candidate.footprint, actions, lists_all=True),
            actions=actions,
            notes=(*candidate.notes, *merged.what)[:_NOTES_MAX],
            noted=candidate.noted + len(merged.what),
            objects={**candidate.objects, **merged.objects},
            planned={**candidate.planned, **merged.planned},
        )
    return _reading_on(candidate, winner, lookup)


def _both_add(candidate: Candidate, winner: Winner) -> frozenset[str]:
    added = {add.path for add in winner.adds}
    return frozenset(each.path for each in candidate.each() if isinstance(each, AddFile) and each.path in added)


def check_against_all(
    candidate: Candidate, winners: Iterable[Winner], lookup: VectorLookup, looking: Callable[[Winner], frozenset[str]] | None = None
) -> Candidate | Conflict:
    """Check a candidate against winners in the order of their versions, up to the first that stops it.

    If rows count, `looking` says, before the statistics of a winner's files stop it, which of them contain nothing that it read.
    """
    for window in windows(winners):
        for winner in window.winners:
            checked = check_against(candidate, winner, lookup, window)
            if looking and isinstance(checked, Conflict) and checked.rule.name in BY_STATISTICS and candidate.footprint.compares_rows:
                checked = check_against(replace(candidate, cleared=candidate.cleared | looking(winner)), winner, lookup, window)
            if isinstance(checked, Conflict):
                return checked
            candidate = checked
    return candidate


def _adapted(candidate: Candidate, winner: Winner, lookup: VectorLookup) -> Merge | None:
    """The actions adapted to a winner that changed the same files, or whose rows are replaced; None if neither applies."""
    mine = candidate.footprint
    # check: replacing-replaces
    if mine.kind == Kind.OVERWRITE.value and mine.policy in MATRICES and mine.scope is not None:  # like MaxCompute's overwrite
        if not winner.adds and not winner.removed:
            return None
        actions = tuple(candidate.each())
        return replace_all(actions, winner, _inside(mine, actions), candidate.now_ms, lookup)
    common = winner.removes & set(mine.removes or ()) if mine.row_level and winner.removed else ()
    if not common:
        return None

    def known(vector: DeletionVector) -> Rows:
        planned = candidate.planned.get(vector.unique_id)
        return lookup(vector) if planned is None else planned

    return merge(tuple(candidate.each()), winner, candidate.transaction_id, known)


def _inside(mine: Footprint, actions: Iterable[Action]) -> Callable[[list[AddFile]], Iterable[AddFile]]:
    """Selects the winner's files inside the scope that an overwrite replaces."""
    if not mine.scope:
        return list
    if mine.scope != OWN_PARTITIONS:
        return partial(ReadScope.of((mine.scope,), mine.partition_types, {}).touched, statistics=False)
    own = {partition_key(action.partition_values) for action in actions if isinstance(action, AddFile)}
    return lambda adds: [add for add in adds if partition_key(add.partition_values) in own]


def _reading_on(candidate: Candidate, winner: Winner, lookup: VectorLookup) -> Candidate:
    """The candidate with its reads moved along: what it read is now in the files and rows that the winner's compaction wrote."""
    mine = candidate.footprint
    if not mine.row_level or not winner.removed:
        return candidate
    kept = {add.path for add in winner.adds}
    read = {*(mine.read_files or ()), *mine.read_rows} - kept
    gone = {path: winner.removed[path] for path in read if path in winner.removed}
    moved = {path: remove for path, remove in gone.items() if not remove.data_change}
    files = [path for path in mine.read_files or () if path in moved]
    rows = [path for path in mine.read_rows if path in moved]
    # check: what-was-read-follows-a-compaction (always)
    if not files and not rows:
        return candidate
    made = {add.path for add in winner.adds if not add.data_change}
    outputs: set[str] = set()
    read_rows = {path: text for path, text in mine.read_rows.items() if path not in moved}
    for path in rows:
        followed = rows_moved(mine.read_rows[path], moved[path], made, lookup)
        if followed is None:
            files.append(path)
        else:
            # check: rows-that-were-read-are-followed
            for output, text in followed.items():
                read_rows[output] = to_text(from_text(read_rows[output]) | from_text(text)) if output in read_rows else text
    for path in files:
        moves = moved_rows(moved[path])
        outputs |= {move.path for move in moves} if isinstance(moves, tuple) else made
    read_files = mine.read_files
    if read_files is not None:
        read_files = (*(path for path in read_files if path not in moved), *sorted(outputs))
    return replace(candidate, footprint=replace(mine, read_files=read_files, read_rows=read_rows))


def _exact(candidate: Candidate, winner: Winner) -> Candidate:
    """A copy that lists, from the actions, the files removed by both and the partitions touched."""
    mine = candidate.footprint
    removes: list[str] = []
    touched: set[str] | None = set() if mine.scope is None and mine.partitions is None else None
    for action in candidate.each():
        if not isinstance(action, (AddFile, RemoveFile)):
            continue
        if isinstance(action, RemoveFile) and action.path in winner.removed:
            removes.append(action.path)
        if touched is not None:
            if action.partition_values is None:
                touched = None
            else:
                touched.add(partition_key(action.partition_values))
    partitions = mine.partitions if touched is None else tuple(touched)
    return replace(candidate, footprint=replace(mine, removes=tuple(removes), partitions=partitions))
