r"""How an open transaction ends, over one table or several, and how it is repeated when it loses.

::

            commit                     the verdict
    open -----------> undecided ---------------------> committed, refused
     |  \              |  |  ^
     |   \ withdraw    |  +--+  no answer (OutcomeUnknown, Unavailable): call commit or withdraw again
     |    v            |
     |    withdrawn <--+ withdraw, when it comes before the verdict
     | abort
     v
    aborted

An end is final: `commit` returns the same answer, or raises the same refusal, however often it is called. `repeated` does not lose for
ever: each attempt has priority over those that others begin later (`coordinator/leases/lease.py`).
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from ...coordinator.api import Clock, PartitionScope, Priority, TableLeases, Timeout, bounding
from ...coordinator.errors import ConcurrentModification, NotCommitted, OutcomeUnknown, Withdrawn
from ...coordinator.rules.refusal import refusal_error, withdrawal
from ...storage.arguments import checked
from ...storage.errors import InvalidRequest, InvariantBroken, Unavailable

if TYPE_CHECKING:
    from typing_extensions import Self

_log = logging.getLogger(__name__)

ATTEMPTS: Final = 10

_OPEN: Final = "open"
_UNDECIDED: Final = "undecided"
_COMMITTED: Final = "committed"
_REFUSED: Final = "refused"
_ABORTED: Final = "aborted"
_WITHDRAWN: Final = "withdrawn"

Answer = TypeVar("Answer")
T = TypeVar("T")


@checked
class OpenTransaction(ABC, Generic[Answer]):
    """The common part of all open transactions: they end once. Not thread-safe."""

    def __init__(self, transaction_id: str, timeout_s: Timeout, priority: Priority, clock: Clock, *, filed_again: bool = False) -> None:
        """`priority` is that of an attempt whose predecessors lost; `clock` that of its tables."""
        self._id = transaction_id
        self._timeout_s = timeout_s
        self._clock = clock
        self._filed_again = filed_again
        """Whether it may have been filed before, so that the decision must check for that."""
        self._in_doubt = False
        """Whether it was, or may have been, filed, and its outcome could not be asked since."""
        self._priority, self._losses = priority, priority.losses
        self._state = _OPEN
        self._answer: tuple[Answer] | None = None
        self._refusal: NotCommitted | None = None

    # -- what each kind brings ---------------------------------------------------------------------------------------

    @abstractmethod
    def _heard(self, limit: Timeout, *, withdrawing: bool) -> Answer | None:
        """The outcome since it was filed; None if there is no trace, so that it may be filed again. Raises the refusal.

        An undecided one is decided now; if `withdrawing`, it is refused.
        """

    @abstractmethod
    def repeated(self) -> Answer | None:
        """The commit by which the application did it before; None if it did not."""

    @abstractmethod
    def _stage(self) -> None:
        """Write what is left to write before it is submitted, again after an error: operations may have followed it."""

    @abstractmethod
    def _submit(self, limit: Timeout) -> Answer:
        """Commit what is staged, or find that it is empty; calls `_filing` before anything is filed."""

    @abstractmethod
    def _concluded(self, answer: Answer) -> None:
        """Called when it is committed."""

    @abstractmethod
    def parts_read(self) -> list[tuple[TableLeases, PartitionScope | None]]:
        """The parts of tables that were read so far (None: the whole of one)."""

    @abstractmethod
    def _discard(self) -> None:
        """Delete the files of a transaction that is not committed, and never will be."""

    # -- the same for all of them ------------------------------------------------------------------------------------

    @property
    def id(self) -> str:
        """The transaction's GUID, in all its tables, by which `Table.outcome` and `sluice.outcome` find it.

        It is "" before the first use of a table, in a transaction over several. It changes if the transaction is filed again, after a look
        into files; `Commit.transaction_id` is the id in the log.
        """
        return self._id

    @property
    def state(self) -> str:
        """One of "open", "committed", "refused", "aborted", "withdrawn", and "undecided": `commit` got no answer yet; call it again."""
        return self._state

    @property
    def losses(self) -> int:
        """How many attempts in a row, this one included, lost against others' commits, or lost their priority."""
        return self._losses

    def _note_loss(self, lost: NotCommitted) -> None:
        if isinstance(lost, ConcurrentModification) or self._priority.is_to_blame(lost):
            self._losses = self._priority.losses + 1
        if isinstance(lost, ConcurrentModification) and self.parts_read():
            row = f"; it is loss {self._losses} in a row" if self._losses > 1 else ""
            lost.tell(f"{row}; let transact repeat it, or begin the next attempt with after=<this transaction>: then others wait for it")

    def commit(self, *, timeout_s: Timeout | None = None) -> Answer:
        """Commit the operations, in all tables or in none. Called again it gives the same answer.

        Returns the `Commit`, or None if they change nothing, which makes no version; over several tables the `CommitInfo`, which is empty
        then. Raises the conflict (ConcurrentModification; over several tables it names its table, `error.facts["table"]`), LeaseHeld,
        LeaseLost, OutcomeUnknown and Unavailable; after the last two it may be called again. Raises HalfCommitted if it repeats a
        transaction of which some tables lost their part. Reading and writing data files takes none of `timeout_s` seconds.
        """
        limit = self._timeout_s if timeout_s is None else timeout_s
        if self._state == _OPEN:
            with bounding(limit, self._clock) as deadline:
                if (done := self._tried(self.repeated)) is not None:
                    return self._won(done)
            limit = deadline.rest_of(limit)
            self._tried(self._stage)
        with bounding(limit, self._clock) as deadline:
            return self._end(deadline)

    def withdraw(self, *, timeout_s: Timeout | None = None) -> Answer | None:
        """Take the transaction back, in all its tables.

        Returns None if no table has it or ever will: `commit` then raises Withdrawn, or the refusal. Returns what `commit` does if it is
        too late, because somebody decided the transaction already. Raises OutcomeUnknown and Unavailable if neither is certain yet; then
        it may be called again.
        """
        if self._answer is not None:
            return self._answer[0]
        if self._state not in (_OPEN, _UNDECIDED):
            return None
        with bounding(self._timeout_s if timeout_s is None else timeout_s, self._clock) as limit:
            try:
                # check: taken-back-by-a-verdict (self._state == _UNDECIDED -> False)
                answer = self._known(limit, withdraw=True) if self._state == _UNDECIDED else None
            except NotCommitted as refusal:
                self._lost(refusal)
                return None
            # check: too-late-to-take-back
            if answer is not None:
                return self._won(answer)
            # there is no trace of it, and nobody will file it any more
            self._lost(refusal_error(withdrawal(self.id), self.id, filed=False))
            return None

    def _end(self, limit: Timeout) -> Answer:
        """Wait for its decision. Raises its refusal, or why there is no answer."""
        if self._answer is not None:
            return self._answer[0]
        if self._refusal is not None:
            raise self._refusal
        if self._state == _ABORTED:
            self._require_open()
        return self._won(self._tried(partial(self._decided, limit)))

    def _tried(self, act: Callable[[], T]) -> T:
        """What a step of the end gives; its refusal ends the transaction."""
        try:
            return act()
        except NotCommitted as refusal:
            self._lost(refusal)
            raise
        except BaseException:  # nobody may ever ask again
            # check: no-answer-gives-priority-up
            self._give_priority_up()
            raise

    @property
    def timeout_s(self) -> Timeout:
        """The default time of `commit` and `withdraw`."""
        return self._timeout_s

    def _won(self, answer: Answer) -> Answer:
        self._state, self._answer, self._losses = _COMMITTED, (answer,), 0
        self._give_priority_up()
        self._concluded(answer)
        return answer

    def _lost(self, refusal: NotCommitted) -> None:
        self._state = _WITHDRAWN if isinstance(refusal, Withdrawn) else _REFUSED
        self._refusal = refusal
        self._note_loss(refusal)
        self._give_up()

    def _give_up(self) -> None:
        """It is certainly never committed: nobody waits for it, and its files go."""
        self._give_priority_up()
        self._discard()

    def _give_priority_up(self) -> None:
        self._priority.end()
        self._priority = Priority(self._priority.losses)

    def _decided(self, limit: Timeout) -> Answer:
        if self._state == _UNDECIDED:
            if (answer := self._known(limit)) is not None:
                return answer
            if (repeated := self.repeated()) is not None:
                return repeated
            self._filed_again = True
        try:
            return self._submit(limit)
        except InvalidRequest as refused:
            if refused.details.get("filed") is False and not self._filed_again:
                self._state = _ABORTED  # nobody else knows of it, so its files can go
                self._give_up()
            raise
        except OutcomeUnknown as unknown:
            self._in_doubt = unknown.details.get("stage") == "intent"
            raise

    def _known(self, limit: Timeout, *, withdraw: bool = False) -> Answer | None:
        """The result of `_heard`. An error that something is away would suggest that nothing was written, which is unknown after filing."""
        try:
            answer = self._heard(limit, withdrawing=withdraw)
        except Unavailable as away:
            if not self._in_doubt:
                raise
            raise OutcomeUnknown(
                f"transaction {self.id} was filed, or may have been, and its outcome cannot be asked now ({away.message}); ask "
                "outcome(transaction_id), or call again",
                transaction_id=self.id,
                stage="intent",
            ) from away
        self._in_doubt = False
        return answer

    def _filing(self) -> None:
        """Called before filing: from here on others may decide it."""
        self._state = _UNDECIDED

    def _filed_under(self, transaction_id: str) -> None:
        self._id = transaction_id

    def abort(self) -> None:
        """Give the transaction up: nothing of it becomes visible. Its data files are deleted."""
        if self._state in (_COMMITTED, _UNDECIDED):
            raise InvalidRequest(
                f"transaction {self.id} cannot be aborted: it was {'committed' if self._state == _COMMITTED else 'sent to be decided'}; "
                "call commit() for its outcome, or withdraw() to take it back if it is undecided",
                transaction_id=self.id,
            )
        if self._state == _OPEN:
            self._state = _ABORTED
            self._give_up()

    def __enter__(self) -> Self:
        self._require_open()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._state != _OPEN:
            return
        if error is not None:
            self.abort()
            return
        try:
            self.commit()
        except InvalidRequest:  # otherwise `commit` may be called again
            if self._state == _OPEN:
                self.abort()
            raise

    def _require_open(self) -> None:
        if self._state != _OPEN:
            raise InvalidRequest(f"transaction {self.id} is {self._state}; begin another one", transaction_id=self.id, state=self._state)


Begun = TypeVar("Begun", bound="OpenTransaction[Any]")


def repeated(begin: Callable[[Begun | None], Begun], work: Callable[[Begun], T], attempts: int) -> T:
    """Run `work` in a transaction and commit it; repeat both on the new state when another commit came first, up to `attempts` times.

    `begin(after)` makes a transaction with the priority that `after`, the attempt that lost (None: none yet), gives it. Returns the
    result of `work`. Raises the last conflict, and the exceptions of `work`, after which nothing is committed.
    """
    transaction: Begun | None = None
    for attempt in range(1, attempts + 1):
        transaction = begin(transaction)
        losses_before = transaction.losses
        try:
            with transaction:
                result = work(transaction)
        except NotCommitted as lost:
            may_win = lost.rule != "expected-version" if isinstance(lost, ConcurrentModification) else transaction.losses > losses_before
            if attempt == attempts or not may_win:  # an expected version stays taken
                raise
            _log.info("transaction %s lost (%s) and is repeated", transaction.id, lost)
        else:
            return result
    raise InvariantBroken("the last attempt neither returned nor raised")
