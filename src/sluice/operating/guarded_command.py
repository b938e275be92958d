"""A command that runs while a lease is held: `sluice with-lease`, for jobs of other engines, and for orchestrators."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
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
    with _signals_caught() as pass_on_to:
        try:
            child = subprocess.Popen(command, env=environment, start_new_session=True)
        except OSError as error:
            lease.release()
            say(f"{command[0]!r} cannot be started: {error.strerror}; give a program and its arguments after --")
            return NOT_THERE if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE
        pass_on_to(child)
        status: int | None = None
        while status is None:
            if lease.lost.is_set():
                say(f"the lease was lost: ending the command with SIGTERM, and with SIGKILL after {grace_s:g} s")
                _end(child, grace_s)
                status = child.wait()
                break
            with suppress(subprocess.TimeoutExpired):  # handlers of signals run between two waits only
                status = child.wait(_LOOK_EVERY_S)
    lost = lease.lost.is_set()
    lease.release()
    return LOST if lost else _SIGNALLED - status if status < 0 else status


def _end(child: subprocess.Popen[bytes], grace_s: float) -> None:
    """End the command with all that it started; returns when all have ended."""
    end_s = time.monotonic() + grace_s
    goes_on = _signal(child, signal.SIGTERM)
    while goes_on and time.monotonic() < end_s:
        child.poll()
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
def _signals_caught() -> Iterator[Callable[[subprocess.Popen[bytes]], None]]:
    """In the block, signals that would end this process wait for the command that the yielded function names, and go to it from then on."""
    waiting: list[int] = []
    children: list[subprocess.Popen[bytes]] = []

    def catch(number: int, _frame: FrameType | None) -> None:
        waiting.append(number)
        pass_on()

    def pass_on() -> None:
        while children and waiting:
            _signal(children[0], waiting.pop(0))

    def pass_on_to(child: subprocess.Popen[bytes]) -> None:
        children.append(child)
        pass_on()

    before = {number: signal.signal(number, catch) for number in _FORWARDED}
    try:
        yield pass_on_to
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
