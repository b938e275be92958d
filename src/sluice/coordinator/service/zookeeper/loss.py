"""Notices, in a client without a connection, that the ensemble has lost its data.

A server that is behind a client closes the client's connection without an answer, so that the client tries another server.
After the ensemble lost its data, all servers do so for ever. So a client without a connection also asks each host, as a new
client, to make a transaction in the quorum. If most hosts answer with numbers (zxid) below one that this client saw before,
the ensemble counts anew, and the client's session is over.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

_PAUSE_S = 1.0
_PAUSE_S_MAX = 10.0


def watch_for_loss(seen: int, newest: Callable[[], int | None], over: Callable[[float], bool], lost: Callable[[], None]) -> None:
    """Start a thread that calls `lost` when the ensemble's transactions begin again below `seen`.

    `newest` asks, as a new client, for the number of the newest transaction (None: no answer). `over` waits for at most that
    many seconds and returns whether the client is connected again or finished: then the thread ends.
    """

    def run() -> None:
        pause_s = _PAUSE_S
        while not over(pause_s):
            found = newest()
            # check: lost-data-are-noticed
            if found is not None and found < seen:
                lost()
                return
            pause_s = min(2 * pause_s, _PAUSE_S_MAX)

    threading.Thread(target=run, name="sluice-zookeeper-loss", daemon=True).start()
