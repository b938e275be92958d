"""The end of a store's troubles, in an order that no thread's speed changes."""

from __future__ import annotations

from concurrent.futures import wait

from sluice.coordinator.publication.background import Background
from sluice.storage.stores.memory import MemoryDisk

__all__ = ["mend", "publishers_are_idle"]


def publishers_are_idle() -> None:
    """Return when no thread of this process publishes any more what was ratified before. A commit acknowledged as ratified leaves its
    publication to such a thread, which may be late.
    """
    for each in list(Background._all):
        running = each._running
        assert running is None or not wait([running], 30.0).not_done, "a publication in the background neither succeeds nor fails"


def mend(disk: MemoryDisk) -> None:
    """Take the faults away, after the threads that publish in the background have met them: none publishes because it was late."""
    publishers_are_idle()
    disk.faults.clear()
