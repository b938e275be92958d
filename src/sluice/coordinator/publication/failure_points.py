"""Named points of the commit protocol at which a test can kill the process.

`SLUICE_FAILPOINT=<name>` (or `<name>:<n>` for the n-th passage) makes the process kill itself with SIGKILL at that point: a
true test of a writer that dies just there. Without that variable a point costs one comparison.
"""

from __future__ import annotations

import os
import signal
import threading
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
_LOCK = threading.Lock()


_NAME, _, _passage = os.environ.get("SLUICE_FAILPOINT", "").partition(":")
if _NAME and _NAME not in FAILPOINTS:
    raise InvalidRequest(f"SLUICE_FAILPOINT names {_NAME!r}, which is not one of {', '.join(FAILPOINTS)}")
_left = iter(range(int(_passage or 1) - 1, -1, -1))


def point(name: str) -> None:
    """Pass a failure point; kills the process if it is the armed one."""
    if name != _NAME:
        return
    with _LOCK:
        if next(_left, None) == 0:
            os.kill(os.getpid(), signal.SIGKILL)
