"""A table as the floors above see it: one object with the verbs that the coordinator carries out."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial, wraps
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from ...storage.errors import TableDropped
from ...storage.log.segment import latest_version
from ...storage.log.snapshot import Snapshot
from ...storage.stores.location import open_store
from ...storage.stores.objects import ObjectStore
from ..admission.change import Change, Reads
from ..admission.table_client import TableClient
from ..commit.outcomes import Commit, Outcome
from ..errors import ConcurrentModification
from ..leases.pins import Pin, pin, require_above_horizon
from ..leases.turns import Chance
from ..limits import DEFAULT_TIMEOUT_S, Limits
from ..nodes.context import TableContext
from ..nodes.creation import check_tree
from ..nodes.layout import TableTree
from ..nodes.presence import presence_of
from ..nodes.records import Head
from ..publication.waiting import VersionWatch
from ..rules.intent import ClientName
from ..rules.refusal import withdrawal
from ..rules.winner import Winner
from ..service.clock import Deadline, Timeout, bounding
from ..service.connect import connect

_P = ParamSpec("_P")
_T = TypeVar("_T")


def this_client(application: str | None = None) -> ClientName:
    """This process's name in the history; `application` defaults to the program's name."""
    name = application or os.environ.get("SLUICE_APPLICATION") or Path(sys.argv[0] or "python").name
    return ClientName(socket.gethostname(), os.getpid(), name)


class CoordinatedTable(TableClient):
    """A table whose commits a coordinator orders. Thread-safe. Its verbs; the other methods are about the table and this client:

    ==================================  ==============================================================================
    ``commit`` (``validate``)           file a change and wait for its decision; check before whether it can still commit
    ``outcome``, ``withdraw``           the outcome of a transaction; refuse one that is undecided
    ``head`` (known, fresh)             the decided state of the table
    ``log``                             the changes of each version
    ``publish``, ``settle``             publish what is ratified; wait until the queue is decided
    ``watch_versions``                  wait for versions to be published
    ``leases``, ``chance``              keep others out: on request, and after a loss
    ``pin``                             keep a version's files from garbage collection
    ``close``                           wait until this process's versions are published
    ==================================  ==============================================================================

    Calls raise CoordinatorUnavailable while the coordinator is away, TableDropped, TreeReplaced and ProtocolMismatch.
    `timeout_s` takes seconds or a Deadline; a call without one waits at most as long as the enclosing `bounding` block
    allows.
    """

    @staticmethod
    def open(
        location: str,
        store: ObjectStore,
        coordinator: str | None,
        *,
        application: str | None = None,
        storage_options: Mapping[str, str] | None = None,
        limits: Limits | None = None,
    ) -> CoordinatedTable:
        """Connect to the coordinator and announce this client, without asking whether a table exists. Raises CoordinatorUnavailable."""
        client = this_client(application)
        context = TableContext(
            objects=store,
            tree=TableTree(location),
            connect=partial(connect, coordinator),
            limits=limits or Limits(),
            client=client,
            presence=presence_of(coordinator, client.application),
            stores=partial(open_store, options=storage_options or {}),
        )
        return CoordinatedTable(context, coordinator)

    # -- what it is --------------------------------------------------------------------------------------------------

    @property
    def store(self) -> ObjectStore:
        """The object store below that location."""
        return self.context.objects

    @property
    def application(self) -> str:
        """The program's name in the history."""
        return self.context.client.application

    def dropped(self) -> TableDropped:
        """The error for a table that was dropped or forgotten."""
        return self.context.dropped()

    def store_beside(self, location: str) -> ObjectStore:
        """The object store below another table's location, with this one's options."""
        return self.context.stores(location)

    def exists(self) -> bool:
        """Whether the coordinator has nodes of this table. Raises ProtocolMismatch."""
        return check_tree(self.context)

    # -- time --------------------------------------------------------------------------------------------------------

    def now_ms(self) -> int:
        """This client's wall clock, in ms since the epoch."""
        return self.context.clock.now_ms()

    def bounding(self, timeout_s: Timeout) -> AbstractContextManager[Deadline]:
        """Limit the requests in the block to this time."""
        return bounding(timeout_s, self.context.clock)

    # -- committing --------------------------------------------------------------------------------------------------

    def new_transaction_id(self, known_version: int = -1) -> str:
        """A GUID that names a transaction for ever and is part of its files' names, so that their owner is known.

        `known_version` is one that this client has read. Raises LogGap or TableDropped if the log with it is gone: then
        nothing is written.
        """
        if known_version >= 0:
            self.committer.publisher.log_presence.require(known_version)
        return self.context.new_transaction_id()

    def validate(self, change: Change, *, only_reads: bool = False) -> None:
        """Raise the conflict, if any, by which a change can no longer be committed.

        Writes nothing; the change may still be refused later. `only_reads`: it is what a transaction read, whose changes are elsewhere.
        """
        from ..admission.validation import validate  # as below: a program that only reads loads none of this

        validate(self, change, only_reads=only_reads)

    def commit(
        self,
        change: Change,
        *,
        timeout_s: Timeout = DEFAULT_TIMEOUT_S,
        ack: str = "published",
        filing: Callable[[str], object] | None = None,
    ) -> Commit:
        """Compare a change with later commits, file it, wait for leases in its way, and wait until it is decided and published.

        With `ack` = "ratified" it returns one object-store write earlier. If it is filed again under a new id, `filing` gets
        the id first. Raises the conflict (ConcurrentModification), LeaseHeld, LeaseLost, Refused, OutcomeUnknown,
        CoordinatorUnavailable.
        """
        from ..admission.submission import submit

        return submit([(self, change)], ack=ack, timeout_s=timeout_s, filing=filing)[self.location]

    def require_room(self, actions_bytes: int) -> None:
        """Raise InvalidRequest if the actions of a transaction are too large for other clients."""
        from ..admission.submission import require_room

        require_room(actions_bytes, self.context.limits)

    def outcome(self, transaction_id: str, timeout_s: Timeout, *, after: int = -1) -> Outcome:
        """The outcome of a transaction, looked for in versions higher than `after`; an undecided one is decided now."""
        with self.bounding(timeout_s) as deadline:
            return self.committer.outcome(transaction_id, deadline, after=after)

    def withdraw(self, transaction_id: str, timeout_s: Timeout, *, after: int = -1) -> Outcome:
        """Like `outcome`, but an undecided transaction is refused (Withdrawn). For its owner only."""
        with self.bounding(timeout_s) as deadline:
            return self.committer.outcome(transaction_id, deadline, after=after, against=withdrawal(transaction_id))

    def commit_of(self, winner: Winner, ordinal: int, ack: str) -> Commit:
        """The earlier commit of a version; with `ack` = "published", waits until it is published."""
        from ..admission.validation import commit_by_application

        return commit_by_application(self, winner, ordinal, ack)

    def operation_that_lost(
        self, change: Change, operations: Sequence[tuple[str, Reads | None]], lost: ConcurrentModification
    ) -> tuple[int, str] | None:
        """The number (from 1) and name of the first of a change's operations that conflicts with the winner; None if unknown."""
        from ..admission.validation import operation_that_lost

        return operation_that_lost(self, change, operations, lost)

    def noted(self, version: int) -> None:
        """Note that a caller has seen this version, so that reads of the session show it."""
        committer = self.committer
        committer.last_committed = max(committer.last_committed, version)

    @property
    def last_committed(self) -> int:
        """The highest version that a caller has seen; -1 for none."""
        return self.committer.last_committed

    # -- the decided state -------------------------------------------------------------------------------------------

    @property
    def is_same_session(self) -> bool:
        """Whether the session that saw the table last is alive; sends nothing in that case."""
        return self.context.same_session

    def settle(self, deadline: Deadline) -> None:
        """Wait until everything queued now is decided. Raises OutcomeUnknown if the deadline passes before that."""
        self.committer.settle_queue(deadline)

    # -- publication -------------------------------------------------------------------------------------------------

    def published_version(self) -> int:
        """The last published version, as far as the coordinator knows; -1 before the first version."""
        state = self.context.read_published()
        return -1 if state is None else state[0].version

    def publish(self, *, up_to_date: bool = False) -> int:
        """Publish what is ratified; returns the last version in the log.

        With `up_to_date` that includes everything acknowledged to any client before this call.
        """
        publish = self.committer.publisher.publish_pending
        return (self.context.up_to_date(publish) if up_to_date else publish()).version

    def watch_versions(self) -> VersionWatch:
        """Knows the last published version, and waits for later ones; it sends no requests while nothing happens."""
        return VersionWatch(self.context, partial(self.publish, up_to_date=True))

    def help_to_publish(self, head: Head) -> None:
        """Publish, in a thread, what a reader found ratified but unpublished: its writer may be dead."""
        self.committer.help_to_publish(head)

    # -- keeping others out ------------------------------------------------------------------------------------------

    def chance(self, *, advises: bool = True) -> Chance:
        """One attempt at a transaction: after a loss, the thread's next attempt has its turn. `advises`: refusals give advice."""
        return Chance(self.context.clock, advises=advises)

    def pin(self, version: int, *, onwards: bool = False) -> Pin:
        """Keep a version readable: garbage collection spares its files while the pin exists. Raises VersionNotFound.

        With `onwards` it also spares the files, and the log, from which the changes after that version are read.
        """

        def look() -> None:
            require_above_horizon(self.context, version)
            latest = latest_version(self.store)
            if latest is not None and version <= latest:  # an unpublished version has lost nothing yet
                Snapshot.load(self.store, version=version)

        return pin(self.context, self.leases.home, version, still_there=look, onwards=onwards)

    # -- ending ------------------------------------------------------------------------------------------------------

    def close(self, timeout_s: float) -> bool:
        """Wait until this process's versions are published; returns whether they were in time.

        The session, the process's own, stays open.
        """
        return self.committer.background.drain(timeout_s)


def of_table(asked: Callable[Concatenate[TableContext, _P], _T]) -> Callable[Concatenate[CoordinatedTable, _P], _T]:
    """A function of a lower room, which takes a table's context, as one that takes the table."""

    @wraps(asked)
    def of(table: CoordinatedTable, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        return asked(table.context, *args, **kwargs)

    return of
