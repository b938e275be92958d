"""Notices, in a client without a connection, that the ensemble has lost its data.

A server refuses a client that saw a later transaction than the server has: it closes the connection without a word, and the client
is to try another server. When the ensemble lost its data all servers do so, for ever. A client without a connection therefore
also asks each of the hosts, as a newcomer, for a transaction of the quorum. If most of the hosts answer, and the numbers (zxid) are
below one that this client saw before, the ensemble counts anew, and the client's session is over.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

__all__ = ["watch_for_loss"]

_PAUSE_S = 1.0
_PAUSE_S_MAX = 10.0


def watch_for_loss(seen: int, newest: Callable[[], int | None], over: Callable[[float], bool], lost: Callable[[], None]) -> None:
    """Start a thread that calls `lost` when the ensemble's transactions begin again below `seen`.

    `newest` asks as a newcomer for the number of the newest transaction (None: nobody answers). `over` waits for at most so many
    seconds and tells whether the client has a connection again, or is finished: then the thread ends.
    """

    def run() -> None:
        pause_s = _PAUSE_S
        while not over(pause_s):
            found = newest()
            if found is not None and found < seen:
                lost()
                return
            pause_s = min(2 * pause_s, _PAUSE_S_MAX)

    threading.Thread(target=run, name="sluice-zookeeper-loss", daemon=True).start()
