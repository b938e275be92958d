r"""How an open transaction ends, be it over one table or over several.

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

What has ended stays so: `commit` gives the same answer, or raises the same refusal, as often as it is called.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Final, Generic, TypeVar

from ...coordinator.errors import NotCommitted, OutcomeUnknown, Withdrawn
from ...coordinator.rules.refusal import Refusal, refusal_error, withdrawal
from ...coordinator.service.clock import Timeout
from ...storage.errors import InvalidRequest, Unavailable

__all__ = ["OpenTransaction"]

_OPEN: Final = "open"
_UNDECIDED: Final = "undecided"
_COMMITTED: Final = "committed"
_REFUSED: Final = "refused"
_ABORTED: Final = "aborted"
_WITHDRAWN: Final = "withdrawn"

Answer = TypeVar("Answer")


class OpenTransaction(ABC, Generic[Answer]):
    """What all open transactions have in common: they end once. Not for several threads."""

    def __init__(self, *, timeout_s: Timeout, filed_again: bool = False) -> None:
        self._timeout_s = timeout_s
        self._filed_again = filed_again
        """Whether it may have been filed before, so that the decision has to look for that."""
        self._in_doubt = False
        """Whether it was, or may have been, filed, and nobody could be asked since then."""
        self._state = _OPEN
        self._answer: tuple[Answer] | None = None
        self._refusal: NotCommitted | None = None

    # -- what each kind brings ---------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def id(self) -> str:
        """The transaction's GUID."""

    @abstractmethod
    def _heard(self, limit: Timeout, against: Refusal | None = None) -> Answer | None:
        """What became of it since it was filed; None when there is no trace, so that it may be filed again. Raises the refusal.

        Where it is undecided it is decided now: it is refused, when something is given `against` it.
        """

    @abstractmethod
    def _submit(self, limit: Timeout) -> Answer:
        """Commit it, or find that it is nothing or was done before; calls `_filing` right before anything is filed."""

    @abstractmethod
    def _concluded(self, answer: Answer) -> None:
        """It is committed."""

    @abstractmethod
    def _note_loss(self, lost: NotCommitted) -> None:
        """It was refused, for this reason."""

    @abstractmethod
    def _ended(self, *, won: bool) -> None:
        """It is over: committed, or not and never."""

    # -- the same for all of them ------------------------------------------------------------------------------------

    @property
    def state(self) -> str:
        """One of "open", "committed", "refused", "aborted", "withdrawn", and "undecided": `commit` brought no answer yet; call it again."""
        return self._state

    def _end(self, timeout_s: Timeout | None) -> Answer:
        """See it decided. Raises what refused it, and what hinders the answer."""
        if self._answer is not None:
            return self._answer[0]
        if self._refusal is not None:
            raise self._refusal
        if self._state == _ABORTED:
            self._require_open()
        try:
            answer = self._decided(self._limit(timeout_s))
        except NotCommitted as refusal:
            self._lost(refusal)
            raise
        return self._won(answer)

    @property
    def timeout_s(self) -> Timeout:
        """How long `commit` and `withdraw` may take where they are not told."""
        return self._timeout_s

    def _limit(self, timeout_s: Timeout | None) -> Timeout:
        return self._timeout_s if timeout_s is None else timeout_s

    def _won(self, answer: Answer) -> Answer:
        self._state, self._answer = _COMMITTED, (answer,)
        self._ended(won=True)
        self._concluded(answer)
        return answer

    def _lost(self, refusal: NotCommitted) -> None:
        self._state = _WITHDRAWN if isinstance(refusal, Withdrawn) else _REFUSED
        self._refusal = refusal
        self._note_loss(refusal)
        self._ended(won=False)

    def _take_back(self, timeout_s: Timeout | None) -> Answer | None:
        """See to it that it is never committed; the answer when it is committed already."""
        if self._answer is not None:
            return self._answer[0]
        if self._state in (_OPEN, _UNDECIDED):
            against = withdrawal(self.id)
            try:
                known = self._known(self._limit(timeout_s), against) if self._state == _UNDECIDED else None
            except NotCommitted as refusal:
                self._lost(refusal)
                return None
            if known is not None:
                return self._won(known)
            self._lost(refusal_error(against, self.id, filed=False))  # there is no trace of it, and nobody will file it any more
        return None

    def _decided(self, limit: Timeout) -> Answer:
        if self._state == _UNDECIDED:
            known = self._known(limit)
            if known is not None:
                return known
            self._filed_again = True
        try:
            return self._submit(limit)
        except OutcomeUnknown as unknown:
            self._in_doubt = unknown.details.get("stage") == "intent"
            raise

    def _known(self, limit: Timeout, against: Refusal | None = None) -> Answer | None:
        """What `_heard` says. That somebody is away would mean that nothing was written, which is not known of what was filed."""
        try:
            known = self._heard(limit, against)
        except Unavailable as away:
            if not self._in_doubt:
                raise
            raise OutcomeUnknown(
                f"transaction {self.id} was filed, or may have been, and what became of it cannot be asked now ({away.message}); ask "
                "outcome(transaction_id), or call again",
                transaction_id=self.id,
                stage="intent",
            ) from away
        self._in_doubt = False
        return known

    def _filing(self) -> None:
        """From here on others may decide it."""
        self._state = _UNDECIDED

    def abort(self) -> None:
        """Give the transaction up: nothing of it was or becomes visible. Data files it wrote are left to garbage collection."""
        if self._state in (_COMMITTED, _UNDECIDED):
            raise InvalidRequest(
                f"transaction {self.id} cannot be aborted: it was {'committed' if self._state == _COMMITTED else 'sent to be decided'}; "
                "call commit() to hear what became of it, or withdraw() to take it back if it is undecided",
                transaction_id=self.id,
            )
        if self._state == _OPEN:
            self._state = _ABORTED
            self._ended(won=False)

    def __enter__(self) -> OpenTransaction[Answer]:
        self._require_open()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._state != _OPEN:
            return
        if error is None:
            self._end(None)
        else:
            self.abort()

    def _require_open(self) -> None:
        if self._state != _OPEN:
            raise InvalidRequest(f"transaction {self.id} is {self._state}; begin another one", transaction_id=self.id, state=self._state)
