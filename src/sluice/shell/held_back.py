"""Holds back the standard error of a program that a block starts, such as the first lines of Spark's log."""

from __future__ import annotations

import os
import select
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_BYTES: Final = 1 << 16


@contextmanager
def held_back() -> Iterator[int]:
    """A descriptor, the standard error for a program that the block starts.

    What the program writes while the block runs is shown only if the block raises. What it writes later goes to our standard error.
    """
    reading, writing = os.pipe()
    pipe = _Pipe(reading)
    threading.Thread(target=pipe.forward, name="sluice-stderr", daemon=True).start()
    try:
        yield writing
    except BaseException:
        pipe.release(telling=True)
        raise
    else:
        pipe.release(telling=False)
    finally:
        os.close(writing)


class _Pipe:
    """The reading end."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._guard = threading.Lock()
        self._held: list[bytes] | None = []

    def forward(self) -> None:
        """Read until the program ends."""
        while True:
            select.select([self._descriptor], [], [])
            with self._guard:
                if not self._read():
                    os.close(self._descriptor)
                    return

    def release(self, *, telling: bool) -> None:
        """Show the text held so far if `telling`, else forget it; later text is shown as it comes."""
        with self._guard:
            while select.select([self._descriptor], [], [], 0)[0] and self._read():
                pass
            held, self._held = self._held or [], None
        if telling:
            _tell(b"".join(held))

    def _read(self) -> bool:
        """Take what is there; whether there may be more."""
        if not select.select([self._descriptor], [], [], 0)[0]:
            return True  # the other thread took it
        text = os.read(self._descriptor, _BYTES)
        if self._held is None:
            _tell(text)
        else:
            self._held.append(text)
        return bool(text)


def _tell(text: bytes) -> None:
    sys.stderr.write(text.decode(errors="replace"))
    sys.stderr.flush()
