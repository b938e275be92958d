"""Programs that die by SIGKILL, each a process of its own, forked from one that has imported sluice already.

A killed writer is a real process with its own session and its own threads; only its imports, most of what it costs, are shared.
One that ends by itself calls no function of `atexit`.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module, reload
from pathlib import Path
from typing import Any

from sluice.coordinator.publication import failure_points

__all__ = ["IMPORTED", "Ended", "until_ended", "until_killed"]

IMPORTED = ("sluice.coordinator.service.zookeeper.session", "sluice.tables.joint_transaction", "sluice.tables.table")
"""What programs load late, too."""

_LIMIT_S = 120
_STARTS = multiprocessing.get_context("forkserver")
_STARTS.set_forkserver_preload([__name__, *IMPORTED])


@dataclass(frozen=True)
class Ended:
    """How a process ended, and what it wrote."""

    status: int | None
    """As `subprocess` has it: minus the number of the signal that killed it. None if it did not end in time."""
    output: str
    errors: str


def until_killed(program: Callable[..., object], order: Mapping[str, Any], *, failpoint: str) -> list[str]:
    """Run a function of a module in a process that kills itself at `failpoint`; returns the words that it printed."""
    ended = until_ended(program, order, SLUICE_FAILPOINT=failpoint)
    told = f"\n{ended.output}{ended.errors}"
    assert ended.status is not None, f"{failpoint}: not reached within {_LIMIT_S} s{told}"
    assert ended.status == -signal.SIGKILL, f"{failpoint}: exit status {ended.status}{told}"
    words = ended.output.split()
    assert "committed" not in words
    return words


def until_ended(program: Callable[..., object], order: Mapping[str, Any], *, limit_s: float = _LIMIT_S, **environment: str) -> Ended:
    """Run a function of a module in a process, with these variables more than this one's; it is killed if it takes too long."""
    with tempfile.TemporaryDirectory() as folder:
        output, errors = Path(folder, "output"), Path(folder, "errors")
        for each in (output, errors):
            each.touch()
        names = (program.__module__, program.__name__)
        given = (*names, dict(order), {**os.environ, **environment}, str(output), str(errors))
        process = _STARTS.Process(target=_run, args=given)
        process.start()
        process.join(limit_s)
        status = process.exitcode
        if status is None:
            process.kill()
            process.join()
        return Ended(status, output.read_text(), errors.read_text())


def _run(module: str, name: str, order: Mapping[str, Any], environment: Mapping[str, str], output: str, errors: str) -> None:
    os.environ.clear()
    os.environ.update(environment)
    for stream, path in ((1, output), (2, errors)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_APPEND), stream)
    reload(failure_points)  # it reads SLUICE_FAILPOINT when it is imported
    getattr(import_module(module), name)(**order)
