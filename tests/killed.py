"""Programs that die by SIGKILL, each a process of its own, forked from one that has imported sluice already.

A killed writer is a real process with its own session and its own threads; only its imports, most of what it costs, are shared.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
from collections.abc import Callable, Mapping
from importlib import import_module, reload
from pathlib import Path
from typing import Any

from sluice.coordinator.publication import failure_points

__all__ = ["IMPORTED", "until_killed"]

IMPORTED = ("sluice.coordinator.service.zookeeper.session", "sluice.tables.joint_transaction", "sluice.tables.table")
"""What programs load late, too."""

_LIMIT_S = 120
_STARTS = multiprocessing.get_context("forkserver")
_STARTS.set_forkserver_preload([__name__, *IMPORTED])


def until_killed(program: Callable[..., object], order: Mapping[str, Any], *, failpoint: str) -> list[str]:
    """Run a function of a module in a process that kills itself at `failpoint`; returns the words that it printed."""
    with tempfile.TemporaryDirectory() as folder:
        output, errors = Path(folder, "output"), Path(folder, "errors")
        for each in (output, errors):
            each.touch()
        environment = {**os.environ, "SLUICE_FAILPOINT": failpoint}
        names = (program.__module__, program.__name__)
        process = _STARTS.Process(target=_run, args=(*names, dict(order), environment, str(output), str(errors)))
        process.start()
        process.join(_LIMIT_S)
        if process.is_alive():
            process.kill()
            process.join()
            raise AssertionError(f"{failpoint}: not reached within {_LIMIT_S} s\n{output.read_text()}{errors.read_text()}")
        assert process.exitcode == -signal.SIGKILL, f"{failpoint}: exit status {process.exitcode}\n{output.read_text()}{errors.read_text()}"
        words = output.read_text().split()
    assert "committed" not in words
    return words


def _run(module: str, name: str, order: Mapping[str, Any], environment: Mapping[str, str], output: str, errors: str) -> None:
    os.environ.clear()
    os.environ.update(environment)
    for stream, path in ((1, output), (2, errors)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_APPEND), stream)
    reload(failure_points)  # it reads SLUICE_FAILPOINT when it is imported
    getattr(import_module(module), name)(**order)
