"""Work that ends for its caller when the time is over, whatever it waits for: a store that does not answer, say."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import copy_context
from typing import Final, TypeVar

from ...coordinator.leases.lease import lent
from ...coordinator.leases.reserved_turns import lent_turns
from ...coordinator.service.clock import Deadline, bounding

__all__ = ["in_time"]

_T = TypeVar("_T")
_GRACE_S: Final = 0.35
"""How long is waited beyond the time for what the work says itself: its requests to the coordinator end so."""
_ENDING_S: Final = 0.02
_LOOK_EVERY_S: Final = 0.5


def in_time(limit: Deadline, work: Callable[[], _T], late: Callable[[], Exception]) -> _T:
    """What `work` gives or raises; what `late` gives is raised when that is not to be had in the time and a moment.

    The work is done by a thread of its own, under the caller's leases, and is left behind then: it looks at the limit between its
    steps and ends soon after the one that it waits in. `late` sees to it that nothing is done that the caller would have to know of.
    """
    done: Future[_T] = Future()
    borrow, borrow_turns = lent(), lent_turns()

    def run() -> None:
        borrow()
        borrow_turns()
        try:
            done.set_result(work())
        except BaseException as error:  # noqa: BLE001 - the caller's to handle
            done.set_exception(error)

    with bounding(limit, limit.clock):
        context = copy_context()
    ended = threading.Event()
    done.add_done_callback(lambda _: ended.set())
    threading.Thread(target=context.run, args=(run,), name="sluice-in-time", daemon=True).start()
    while not ended.wait(min(limit.left_s, _LOOK_EVERY_S)):
        if limit.over and not ended.wait(_GRACE_S):
            error = late()
            if not ended.wait(_ENDING_S):  # else it had done all of it before that
                raise error
            break
    return done.result()
