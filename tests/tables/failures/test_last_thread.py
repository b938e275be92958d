"""Threads that go on committing after the program's main thread has ended."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import sys, threading
import pyarrow as pa
import sluice
from sluice.coordinator.publication import log_checks

log_checks._FILES_EVERY_S = 0.0
rows = pa.table({"id": [1]})
table = sluice.Table.create(sys.argv[1], rows.schema, coordinator="memory://last-thread", ack=sys.argv[2])

def work():
    threading.main_thread().join()
    for _ in range(70):
        print(table.append(rows).version)

threading.Thread(target=work).start()
"""


@pytest.mark.slow
@pytest.mark.parametrize("ack", ["published", "ratified"])
def test_a_thread_commits_after_the_main_thread_has_ended(tmp_path: Path, ack: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "table"), ack], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stderr == ""
    assert done.stdout.split() == [str(version) for version in range(1, 71)]
    assert (tmp_path / "table" / "_delta_log" / f"{70:020d}.json").exists()
