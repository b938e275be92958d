"""Commits that wait for somebody's lease, each in its turn among the leases.

A commit that a lease stops asks for a place in the same queue as those who want leases: it waits for those that were asked for
before it, and those that are asked for later wait for it. So holders who follow one another cannot starve it. What it asks for
stops no other commit, and any number of commits have it at once: when a lease is released all that waited for it go on together.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Final

from ..errors import LeaseHeld
from ..nodes.lease_records import Place
from ..service.clock import Deadline
from .lease import held_by_this_thread, paths_of
from .queue import LeaseHome, LeaseRequest, Wanted, let_go

__all__ = ["Turn"]

_WHO: Final = "somebody else has"


class Turn:
    """The place of one commit; used by one thread. A context manager that leaves it at the end, when the commit is decided."""

    def __init__(self) -> None:
        self._home: LeaseHome | None = None
        self._wanted: tuple[Wanted, ...] = ()
        self._request: LeaseRequest | None = None

    def wait(self, home: LeaseHome, wanted: Wanted, held: LeaseHeld, deadline: Deadline, *, turns: Sequence[str] = ()) -> None:
        """Wait until nothing that was asked for before is in the way of a commit that was stopped, as `held` tells.

        `wanted` is what it touches of that table. What it waited for before, in another table, is asked for anew together with it:
        who has one place and waits for another might close a circle. Raises `held`, naming who has it now, when the deadline
        passes first; DeadlockDetected when that one waits for a lease that this thread holds. `turns` are reserved for the commit.
        """
        if Place.of_node(str(held.facts.get("lease", ""))) is None:
            raise held
        self.leave()
        self._home, self._wanted = home, tuple(dict.fromkeys((*self._wanted, wanted)))
        request = LeaseRequest(home, self._wanted, (*paths_of(held_by_this_thread(home.coordinator)), *turns))
        try:
            request.obtain(deadline)
        except LeaseHeld as late:
            facts = {**held.facts, **late.facts}
            whose, who = held.message.partition(_WHO)[0], late.message.partition(_WHO)[2]
            message = f"{whose}{_WHO}{who}; wait until it is released, or see `sluice leases`"
            raise LeaseHeld(message, **{**held.details, "facts": facts}) from held
        self._request = request

    def __enter__(self) -> Turn:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.leave()

    def leave(self) -> None:
        """Let those who asked later go on."""
        request, self._request = self._request, None
        if request is not None and self._home is not None:
            let_go(self._home, request.store, list(request.nodes))
