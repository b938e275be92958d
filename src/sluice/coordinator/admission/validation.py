"""Compares a change with every commit since it was begun, before it is filed, so that the shared decision has a short window."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ...storage.actions import Txn, encode
from ...storage.actions.texts import spooled
from ...storage.errors import LogGap
from ...storage.log.segment import list_versions
from ..commit.decision import DETACHED
from ..errors import ConcurrentModification, TransactionExpired
from ..nodes.records import Head
from ..rules.conflicts import APPLICATION, BY_STATISTICS, Encounter, Finding, check, refusal, version_taken
from ..rules.isolation import stricter, table_isolation
from ..rules.rebase import Attempt, meet
from ..rules.refusal import refusal_error
from ..rules.window import windows
from ..rules.winner import Winner
from .added_rows import holding_nothing_read
from .change import Change
from .change_footprint import footprint_of
from .repeated import written_since
from .table_client import TableClient

__all__ = ["attempt_of", "before_itself", "require_next", "validate", "validated"]


def validate(table: TableClient, change: Change) -> None:
    """Raise the conflict, if any, by which a change can no longer be committed; writes nothing.

    The change may still be refused: others go on committing. If its application has written it since, it is committed
    already.
    """
    known = replace(change, filed_after=change.read_version)
    head = before_itself(table, known, table.head())
    require_next(table, change, head)
    if change.expected_version is None:
        try:
            validated(table, change, attempt_of(table, change), head)
        except ConcurrentModification:
            if written_since(table, change, table.head(), "ratified") is None:
                raise


def require_next(table: TableClient, change: Change, head: Head) -> None:
    """Raise ConcurrentModification if a change may become only one version, and another transaction has become it."""
    version = change.expected_version
    if version is None or change.table_id or any(isinstance(action, Txn) for action in change.actions):
        return  # that version may have written the application's number: the decision finds out
    if version <= head.version:
        raise refusal_error(version_taken(table.log.winner(version)), change.transaction_id, filed=False)


def before_itself(table: TableClient, change: Change, head: Head) -> Head:
    """The head; if another process is committing the same change, the head before that: the decision finds the commit.

    An append's snapshot may already have that commit in it, so it is looked for in everything since it was known not to
    exist.
    """
    if change.filed_after is not None:
        for winner in _winners(table, change, range(change.filed_after + 1, head.version + 1)):
            if winner.ordinal_of(change.transaction_id) is not None:
                return replace(head, version=winner.version - 1)
    return head


def validated(table: TableClient, change: Change, attempt: Attempt, head: Head) -> Attempt:
    """The attempt after every version up to the head, so that the shared decision looks at a short window.

    Raises the conflict, or Refused if the table was detached meanwhile. A file added where this transaction read is read if
    rows count (see `added_rows`): only rows that were read conflict.
    """
    log = table.log
    if attempt.footprint.app_versions:
        # check: applications-are-depended-on-from-the-plan-on
        _require_number(table, change, attempt)
    # check: validated-up-to-the-head (head.version + 1 -> head.version)
    versions = range(change.read_version + 1, head.version + 1)
    for window in windows(_winners(table, change, versions)):
        for winner in window.winners:
            met = meet(attempt, winner, log.rows, window)
            if isinstance(met, Finding) and met.rule.name in BY_STATISTICS and attempt.footprint.compares_rows:
                cleared = holding_nothing_read(table.context.objects, change, winner)
                met = meet(replace(attempt, cleared=attempt.cleared | cleared), winner, log.rows, window)
            if isinstance(met, Finding):
                raise refusal_error(DETACHED if head.detached else refusal(met), change.transaction_id)
            attempt = met
    return attempt


def _require_number(table: TableClient, change: Change, attempt: Attempt) -> None:
    """Raise the conflict if the application went on between the version at which its number was free and the change's own."""
    for winner in _winners(table, change, range(change.began + 1, change.read_version + 1)):
        found = check(Encounter(attempt.footprint, winner, attempt.level), APPLICATION)
        if found is not None:
            raise refusal_error(refusal(found), change.transaction_id)


def _winners(table: TableClient, change: Change, versions: range) -> Iterator[Winner]:
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


def attempt_of(table: TableClient, change: Change, tables: int = 1, *, only_reads: bool = False) -> Attempt:
    """The change before it met any winner; several `tables` share the room of one request."""
    context = table.context
    configuration = change.snapshot.configuration if change.snapshot else {}
    return Attempt(
        transaction_id=change.transaction_id,
        operation=change.operation,
        footprint=footprint_of(change, files_max=max(1, context.limits.footprint_files_max // tables)),
        # check: stricter-levels-count (stricter(table_isolation(configuration), change.isolation) -> table_isolation(configuration))
        level=stricter(table_isolation(configuration), change.isolation),
        encoded=spooled(encode(action) + b"\n" for action in change.actions),
        now_ms=context.clock.now_ms(),
        only_reads=only_reads or (tables > 1 and not change.actions),
    )
