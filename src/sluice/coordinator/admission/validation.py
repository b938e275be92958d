"""Compares a change with every commit since it was begun, before it is filed, so that the shared decision has a short window.

It also finds an earlier commit of the same application's transaction, and the operation by which a transaction lost.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from ...storage.actions import AddFile, Txn, encode
from ...storage.actions.file_removals import besides_removals
from ...storage.actions.filetable import add_rows
from ...storage.actions.texts import spooled
from ...storage.data.scan import TableScan
from ...storage.errors import LogGap, SluiceError
from ...storage.log.segment import list_versions
from ...storage.pruning.predicate import Predicate
from ...storage.stores.objects import ObjectStore
from ..commit.decision import DETACHED
from ..commit.outcomes import Commit
from ..commit.table import CoordinatedTable
from ..commit.transactions import see_published
from ..errors import ConcurrentModification, TransactionExpired
from ..nodes.records import Head
from ..rules.conflicts import APPLICATION, BY_STATISTICS, Comparison, Conflict, check, refusal, version_taken
from ..rules.isolation import stricter, table_isolation
from ..rules.read_scope import ReadScope
from ..rules.rebase import Candidate, check_against
from ..rules.refusal import refusal_error
from ..rules.winner import Winner, footprint_of, windows
from .change import Change, Reads, declared_reads

_BYTES_READ_MAX: Final = 64 * 1024 * 1024
"""The most that is read of the files that another commit added."""


def validate(table: CoordinatedTable, change: Change, *, only_reads: bool = False) -> None:
    """Raise the conflict, if any, by which a change can no longer be committed; writes nothing.

    The change may still be refused: others go on committing. If its application has written it since, it is committed
    already.
    """
    known = replace(change, filed_after=change.read_version)
    head = before_itself(table, known, table.head())
    require_next(table, change, head)
    if change.terms.if_version is None:
        try:
            validated(table, change, candidate_of(table, change, only_reads=only_reads), head)
        except ConcurrentModification:
            if written_since(table, change, table.head(), "ratified") is None:
                raise


def require_next(table: CoordinatedTable, change: Change, head: Head) -> None:
    """Raise ConcurrentModification if a change may become only one version, and another transaction has become it."""
    if_version = change.terms.if_version
    if if_version is None or change.table_id or any(isinstance(action, Txn) for action in change.actions):
        return  # that version may have written the application's number: the decision finds out
    if if_version < head.version:
        raise refusal_error(version_taken(table.log.winner(if_version + 1)), change.transaction_id, filed=False)


def before_itself(table: CoordinatedTable, change: Change, head: Head) -> Head:
    """The head; if another process is committing the same change, the head before that: the decision finds the commit.

    An append's snapshot may already have that commit in it, so it is looked for in everything since it was known not to
    exist.
    """
    if change.filed_after is not None:
        for winner in _winners(table, change, range(change.filed_after + 1, head.version + 1)):
            if winner.ordinal_of(change.transaction_id) is not None:
                return replace(head, version=winner.version - 1)
    return head


def validated(table: CoordinatedTable, change: Change, candidate: Candidate, head: Head) -> Candidate:
    """The candidate after every version up to the head, so that the shared decision looks at a short window.

    Raises the conflict, or Refused if the table was detached meanwhile. A file added where this transaction read is read if
    rows count (see `holding_nothing_read`): only rows that were read conflict.
    """
    log = table.log
    if candidate.footprint.app_versions:
        # check: applications-are-depended-on-from-the-plan-on (change.began + 1 -> change.read_version + 1)
        for winner in _winners(table, change, range(change.began + 1, change.read_version + 1)):
            conflict = check(Comparison(candidate.footprint, winner, candidate.level), APPLICATION)
            if conflict is not None:
                raise refusal_error(refusal(conflict), change.transaction_id)
    # check: validated-up-to-the-head (head.version + 1 -> head.version)
    versions = range(change.read_version + 1, head.version + 1)
    for window in windows(_winners(table, change, versions)):
        for winner in window.winners:
            checked = check_against(candidate, winner, log.rows, window)
            if isinstance(checked, Conflict) and checked.rule.name in BY_STATISTICS and candidate.footprint.compares_rows:
                cleared = holding_nothing_read(table.context.objects, change, winner)
                checked = check_against(replace(candidate, cleared=candidate.cleared | cleared), winner, log.rows, window)
            if isinstance(checked, Conflict):
                raise refusal_error(DETACHED if head.detached else refusal(checked), change.transaction_id)
            candidate = checked
    return candidate


def _winners(table: CoordinatedTable, change: Change, versions: range) -> Iterator[Winner]:
    """The versions since a change was made, as winners. Raises TransactionExpired if the log does not have them any more."""
    try:
        yield from table.log.winners(versions)
    except LogGap as gap:
        if gap.details.get("version", -1) >= min(list_versions(table.context.objects).commits, default=-1):
            raise
        raise TransactionExpired(
            f"transaction {change.transaction_id} was begun on version {change.read_version} of {table.location}, and the log "
            "of what came next has been cleaned up (delta.logRetentionDuration); begin it again",
            transaction_id=change.transaction_id,
        ) from gap


def candidate_of(table: CoordinatedTable, change: Change, tables: int = 1, *, only_reads: bool = False) -> Candidate:
    """The change before it is checked against any winner; several `tables` share the room of one request."""
    context = table.context
    configuration = change.snapshot.configuration if change.snapshot else {}
    return Candidate(
        transaction_id=change.transaction_id,
        operation=change.operation,
        footprint=footprint_of(declared_reads(change, files_max=max(1, context.limits.footprint_files_max // tables)), change.actions),
        # check: stricter-levels-count (stricter(table_isolation(configuration), change.terms.isolation) -> table_isolation(configuration))
        level=stricter(table_isolation(configuration), change.terms.isolation),
        encoded=spooled(encode(action) + b"\n" for action in change.actions),
        now_ms=context.clock.now_ms(),
        only_reads=only_reads or (tables > 1 and not change.actions),
    )


def written_since(table: CoordinatedTable, change: Change, head: Head, ack: str) -> Commit | None:
    """The commit that wrote the change's application transaction, with all of its numbers, since the change was begun; None if none did."""
    apps = {action.app_id: action.version for action in besides_removals(change.actions) if isinstance(action, Txn)}
    if not apps or change.terms.if_version is not None:
        return None
    for version in range(head.version, change.began, -1):
        winner = table.log.winner(version)
        # check: repetition-has-every-number (<= -> &)
        if apps.items() <= winner.app_versions.items():
            return commit_by_application(table, winner, winner.ordinal_of_app(next(iter(apps))), ack)
    return None


def commit_by_application(table: CoordinatedTable, winner: Winner, ordinal: int, ack: str) -> Commit:
    """The earlier commit of a version; with `ack` = "published", waits until it is published."""
    timestamp = int(table.log.info(winner.version).get("inCommitTimestamp", 0))
    state = table.context.read_published()
    published = state is not None and winner.version <= state[0].version
    transaction_id = str(winner.entry(ordinal).get("id", ""))
    commit = Commit(winner.version, ordinal, timestamp, transaction_id, published=published, repeated=True)
    return commit if ack == "ratified" else see_published(table, commit)


def holding_nothing_read(store: ObjectStore, change: Change, winner: Winner) -> frozenset[str]:
    """The log paths of a winner's new files without any row that the change would have read.

    Statistics say what a file may contain. In tables with deletion vectors, the owner reads a file that statistics cannot
    exclude before it treats the file as a conflict. Empty if there is too much to read, or if a file cannot be read (any more).
    """
    added = [add for add in winner.adds if add.data_change]
    if change.reads is None or change.schema is None or change.snapshot is None or sum(add.size for add in added) > _BYTES_READ_MAX:
        return frozenset()
    if change.reads.whole_table or "" in change.reads.predicates:
        return frozenset()
    predicates = [Predicate.parse(sql, change.schema) for sql in change.reads.predicates]
    scan = TableScan(store, change.schema, change.snapshot.partition_columns, winner.version)
    cleared: set[str] = set()
    for add in added:
        files = add_rows([add])
        try:
            found = any(batch.num_rows for predicate in predicates for batch in scan.batches(files, [], predicate))
        except SluiceError:
            continue  # unknown, so it stays a conflict
        # check: looking-into-files-finds-rows (always)
        if not found:
            cleared.add(add.path)
    return frozenset(cleared)


def operation_that_lost(
    table: CoordinatedTable, change: Change, operations: Sequence[tuple[str, Reads | None]], lost: ConcurrentModification
) -> tuple[int, str] | None:
    """The number (from 1) and the name of the first operation that conflicts with the winner; None if unknown.

    `operations` are those of the change in order, each with what it read. Statistics decide if rows are not known, so the
    answer is for people: nothing depends on it.
    """
    if len(operations) == 1:
        return 1, operations[0][0]
    version = lost.details.get("winning_version")
    if version is None:
        return None
    try:
        winner = table.log.winner(version)
        parts = [
            (number, name, candidate_of(table, replace(change, actions=(), reads=reads), only_reads=True))
            for number, (name, reads) in enumerate(operations, start=1)
            if reads is not None
        ]
        for number, name, candidate in parts:
            if isinstance(check_against(candidate, winner, table.log.rows), Conflict):
                return number, name
        # files that both remove were found by the operations' conditions
        removed = [AddFile(path, r.partition_values or {}, 0, 0, True, stats=r.stats) for path, r in winner.removed.items()]
        for number, name, candidate in parts:
            mine = candidate.footprint
            if ReadScope.of(mine.predicates, mine.partition_types, mine.column_types).touched(removed):
                return number, name
        return None
    except SluiceError:
        return None
