"""Named points of the commit protocol: who commits may time them, and a test can kill the process at one.

`SLUICE_FAILPOINT=<name>` (or `<name>:<n>` for the n-th passage) makes the process kill itself with SIGKILL at that point: a
true test of a writer that dies just there. Otherwise a point costs two comparisons.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from ...storage.errors import InvalidRequest

FAILPOINTS: Final = (
    "data-staged",  # data files are uploaded, nothing else happened
    "actions-staged",  # a large intent's actions are staged, too
    "before-claim",  # about to create the slot
    "after-claim",  # the intent exists: the outcome will be decided
    "before-ratify",  # verdicts are computed, but the multi is not sent
    "after-ratify",  # the multi took effect
    "before-publish",  # about to put a version's file
    "after-publish",  # the file exists, but `published` is not raised
    "after-raise",  # `published` is raised, the slots are gone
    "before-ack",  # all done, but the caller has no answer
)
MOVE_POINTS: Final = tuple(f"move-{step}" for step in ("leased", "settled", "left", "sealed", "arrived", "removed"))
"""A move's: writers wait; all is published; it has left; its log names the other coordinator; it goes on there; its nodes here are gone."""
_LOCK = threading.Lock()


_NAME, _, _passage = os.environ.get("SLUICE_FAILPOINT", "").partition(":")
if _NAME and _NAME not in (*FAILPOINTS, *MOVE_POINTS):
    raise InvalidRequest(f"SLUICE_FAILPOINT names {_NAME!r}, which is not one of {', '.join(FAILPOINTS)}")
_left = iter(range(int(_passage or 1) - 1, -1, -1))
_timing = threading.local()


@contextmanager
def timed() -> Iterator[Mapping[str, float]]:
    """When this thread first passes each point in the block, by the monotonic clock in seconds."""
    outer: dict[str, float] | None = getattr(_timing, "times", None)
    times: dict[str, float] = {}
    _timing.times = times
    try:
        yield times
    finally:
        _timing.times = outer


def point(name: str) -> None:
    """Pass a point; kills the process if it is the armed one."""
    times: dict[str, float] | None = getattr(_timing, "times", None)
    if times is not None:
        times.setdefault(name, time.monotonic())
    if name != _NAME:
        return
    with _LOCK:
        if next(_left, None) == 0:
            os.kill(os.getpid(), signal.SIGKILL)
