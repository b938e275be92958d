"""A command that runs while a lease is held: `sluice with-lease`, for jobs of other engines, and for orchestrators."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Final

from ..coordinator.api import Lease

NOT_GRANTED: Final = 75
"""The exit status if the lease was not granted in time, or if nobody could be asked: EX_TEMPFAIL of sysexits.h, "try again later"."""
NOT_EXECUTABLE: Final = 126
NOT_THERE: Final = 127
"""What shells exit with if a command cannot be started, or is not there."""
LOST: Final = 76
"""The exit status if the lease was lost while the command ran."""
_FORWARDED: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_LOOK_EVERY_S: Final = 0.2
_SIGNALLED: Final = 128
"""Shells add this to the number of the signal that ended a command."""


def run_guarded(lease: Lease, command: Sequence[str], *, grace_s: float, say: Callable[[str], object]) -> int:
    """Run a command while a lease is held, and release it when the command ends; returns the exit status.

    That is the command's own; 128 and the number of a signal that ended it; `NOT_EXECUTABLE`, `NOT_THERE` or `LOST`. If the lease is lost,
    the command gets SIGTERM, and after `grace_s` seconds SIGKILL, with all processes of its group. Signals that end this process are passed
    on to the command. Its environment has `SLUICE_LEASE` (for Spark's write option `lease`) and `SLUICE_LEASE_TOKEN` (the fencing token).
    `say` tells the user.
    """
    environment = {**os.environ, "SLUICE_LEASE": lease.reference, "SLUICE_LEASE_TOKEN": str(lease.token)}
    try:
        child = subprocess.Popen(command, env=environment, start_new_session=True)
    except OSError as error:
        lease.release()
        say(f"{command[0]!r} cannot be started: {error.strerror}; give a program and its arguments after --")
        return NOT_THERE if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE
    ended = threading.Event()
    watcher = threading.Thread(target=_end_when_lost, args=(lease, child, ended, grace_s, say), name="sluice-with-lease")
    with _signals_passed_on(child):
        watcher.start()
        status = child.wait()
        ended.set()
        watcher.join()
    lost = lease.lost.is_set()
    lease.release()
    return LOST if lost else _SIGNALLED - status if status < 0 else status


def _end_when_lost(
    lease: Lease, child: subprocess.Popen[bytes], ended: threading.Event, grace_s: float, say: Callable[[str], object]
) -> None:
    """End the command when the lease is lost, with all that it started; returns when it has ended."""
    while not lease.lost.wait(_LOOK_EVERY_S):
        if ended.is_set():
            return
    say(f"the lease was lost: ending the command with SIGTERM, and with SIGKILL after {grace_s:g} s")
    end_s = time.monotonic() + grace_s
    goes_on = _signal(child, signal.SIGTERM)
    while goes_on and time.monotonic() < end_s:
        time.sleep(min(_LOOK_EVERY_S, max(0.0, end_s - time.monotonic())))
        goes_on = _signal(child, 0)
    if goes_on:
        _signal(child, signal.SIGKILL)


def _signal(child: subprocess.Popen[bytes], number: int) -> bool:
    """Signal the command's processes, of which the one that was started may have ended before the others; False if there is none."""
    try:
        os.killpg(child.pid, number)
    except ProcessLookupError:
        return False
    return True


@contextmanager
def _signals_passed_on(child: subprocess.Popen[bytes]) -> Iterator[None]:
    """In the block, signals that would end this process go to the command, so that the lease outlives it."""

    def pass_on(number: int, _frame: FrameType | None) -> None:
        _signal(child, number)

    before = {number: signal.signal(number, pass_on) for number in _FORWARDED}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
