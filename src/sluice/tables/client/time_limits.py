"""Ends work for its caller when the time is over, even while it waits, such as for a store that does not answer."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import copy_context
from typing import Final, TypeVar

from ...coordinator.api import Deadline, bounding, lent

_T = TypeVar("_T")
_GRACE_S: Final = 0.35
"""Extra time for the work to end by itself, since its requests to the coordinator end at the same time."""
_ENDING_S: Final = 0.02
_LOOK_EVERY_S: Final = 0.5


def in_time(limit: Deadline, work: Callable[[], _T], late: Callable[[], Exception]) -> _T:
    """The result of `work`; raises the result of `late` if `work` does not end in the time plus a moment.

    The work runs in its own thread, under the caller's leases, and may be left behind: it checks the limit between its
    steps and ends soon after the current one. `late` must prevent any effect that the caller would need to know of.
    """
    done: Future[_T] = Future()
    borrow = lent()

    def run() -> None:
        borrow()
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
            if not ended.wait(_ENDING_S):  # otherwise it had finished before that
                raise error
            break
    return done.result()
