"""Commits that wait for a lease, each in its turn among the lease requests.

A commit that a lease stops joins the queue of lease requests: it waits for earlier requests, and later ones wait for it, so
successive holders cannot starve it. A waiting commit stops no other commit, and any number of commits may have their turn at
once: when a lease is released, all commits that waited for it go on together.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Final

from ..errors import LeaseHeld
from ..nodes.lease_records import Place
from ..service.clock import Deadline
from .granting import LeaseHome, LeaseRequest, Wanted, let_go
from .lease import held_by_this_thread, paths_of

__all__ = ["Turn"]

_WHO: Final = "another client has"


class Turn:
    """One commit's place in the queue; used by one thread. A context manager that leaves the queue when the commit is decided."""

    def __init__(self) -> None:
        self._home: LeaseHome | None = None
        self._wanted: tuple[Wanted, ...] = ()
        self._request: LeaseRequest | None = None

    def wait(self, home: LeaseHome, wanted: Wanted, held: LeaseHeld, deadline: Deadline, *, turns: Sequence[str] = ()) -> None:
        """Wait until no earlier request is in the way of a commit that the lease in `held` stopped.

        `wanted` is what the commit touches in that table. A place that it has in another table is given up and requested
        again together with the new one: holding one place while waiting for another could close a cycle. Raises `held`,
        naming the present holder, when the deadline passes; DeadlockDetected if that holder waits for a lease that this
        thread holds. `turns` are reserved for the commit.
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
        """Leave the queue, so that later requests go on."""
        request, self._request = self._request, None
        if request is not None and self._home is not None:
            let_go(self._home, request.store, list(request.nodes))
