"""Long calls say how far they are: to a listener, in the log, and as a bar in a terminal."""

from __future__ import annotations

import logging
import os
import pty
import select
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sluice
from sluice.shell.engines import Engines
from sluice.storage import progress
from sluice.storage.caches import at_once
from sluice.storage.progress import followed, told_to
from sluice.tables.manage.recovery import recover_all

SCHEMA = pa.schema([("day", pa.string()), ("id", pa.int64())])
ROWS = pa.table({"day": ["a", "b", "c"], "id": [1, 2, 3]}, SCHEMA)


@pytest.fixture
def coordinator() -> str:
    return f"memory://{uuid.uuid4().hex}"


@pytest.fixture
def table(coordinator: str, tmp_path: Path) -> sluice.Table:
    made = sluice.Table.create(tmp_path / "table", SCHEMA, partition_by=["day"], coordinator=coordinator)
    for _ in range(3):
        made.append(ROWS)
    return made


def told(work: Callable[[], object]) -> list[tuple[int, int, str]]:
    heard: list[tuple[int, int, str]] = []
    with told_to(lambda *each: heard.append(each)):
        work()
    return heard


def counts(what: str, total: int) -> list[tuple[int, int, str]]:
    return [(done, total, what) for done in range(1, total + 1)]


def test_a_compaction_counts_the_groups_that_it_writes(table: sluice.Table) -> None:
    assert told(table.compact) == counts("groups of files rewritten", 3)


def test_a_vacuum_counts_the_files_that_it_deletes(table: sluice.Table) -> None:
    table.compact()
    heard = told(lambda: table.vacuum(0, force=True))
    assert heard == counts("files deleted", 9)


def test_a_restore_counts_the_files_that_it_looks_for(table: sluice.Table) -> None:
    table.delete("id = 1")
    table.delete("id = 2")
    heard = told(lambda: table.restore(version=3))
    assert heard
    assert {each[2] for each in heard} == {"files looked for"}


def test_a_deep_clone_counts_the_files_that_it_copies(table: sluice.Table, tmp_path: Path) -> None:
    assert told(lambda: table.clone(tmp_path / "clone", deep=True)) == counts("files copied", 9)


def test_a_conversion_counts_the_files_that_it_reads(coordinator: str, tmp_path: Path) -> None:
    for n in range(4):
        (tmp_path / "loose").mkdir(exist_ok=True)
        pq.write_table(ROWS, tmp_path / "loose" / f"{n}.parquet")
    assert told(lambda: sluice.Table.convert(tmp_path / "loose", coordinator=coordinator)) == counts("files read", 4)


def test_copy_into_counts_the_files_that_it_reads(table: sluice.Table, tmp_path: Path, coordinator: str) -> None:
    (tmp_path / "new").mkdir()
    for n in range(3):
        pq.write_table(ROWS, tmp_path / "new" / f"{n}.parquet")
    engines = Engines("local", coordinator=coordinator)
    heard = told(lambda: engines.run(f"COPY INTO delta.`{table.location}` FROM '{tmp_path}/new' FILEFORMAT = PARQUET"))
    assert heard == counts("files read", 3)


def test_a_recovery_counts_the_tables(table: sluice.Table, tmp_path: Path) -> None:
    other = f"memory://{uuid.uuid4().hex}"
    sluice.Table.create(tmp_path / "other", SCHEMA, coordinator=other)
    heard = told(lambda: list(recover_all(tmp_path, coordinator=f"memory://{uuid.uuid4().hex}", wait_s=0)))
    assert heard == counts("tables recovered", 2)


def test_nothing_is_told_after_the_block() -> None:
    heard: list[tuple[int, int, str]] = []
    with told_to(lambda *each: heard.append(each)):
        assert list(followed("ab", 2, "letters")) == ["a", "b"]
    list(followed("cd", 2, "letters"))
    at_once(str, [1, 2], 2, "test", "numbers")
    assert heard == counts("letters", 2)


def test_an_item_counts_when_it_is_done() -> None:
    heard: list[tuple[int, int, str]] = []
    with told_to(lambda *each: heard.append(each)):
        items = followed("ab", 2, "letters")
        next(items)
        assert heard == []
        next(items)
        assert heard == counts("letters", 2)[:1]


def test_without_a_listener_there_is_a_line_now_and_then(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    with caplog.at_level(logging.INFO, "sluice.storage.progress"):
        list(followed(range(1000), 1000, "files deleted"))
        assert caplog.messages == []
        monkeypatch.setattr(progress, "EVERY_S", 0.05)
        for _ in followed(range(1_200), 1_200, "files deleted"):
            time.sleep(0.0002)
    assert caplog.messages
    assert len(caplog.messages) < 30
    assert caplog.messages[-1].endswith(" of 1,200 files deleted")


SLOW = """
import signal, sys, time
import click
from sluice import cli
from sluice.commands import care, parts
from sluice.storage.progress import followed
parts._BAR_AFTER_S = 0.1
def slow():
    for _ in followed(range(20), 20, "files deleted"):
        time.sleep(0.03)
care.vacuum_command = click.command("vacuum")(slow)
cli.main(sys.argv[1:])
"""


@pytest.mark.parametrize("quiet", [False, True])
def test_a_command_draws_a_bar_in_a_terminal_unless_it_is_to_be_quiet(quiet: bool) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-c", SLOW, *(["--quiet"] if quiet else []), "vacuum"]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    with subprocess.Popen(command, stderr=theirs, stdout=subprocess.PIPE, env=environment) as running:
        os.close(theirs)
        seen = b""
        while running.poll() is None or select.select([ours], [], [], 0)[0]:
            if select.select([ours], [], [], 0.1)[0]:
                try:
                    seen += os.read(ours, 65_536)
                except OSError:  # the terminal was closed
                    break
        assert running.wait(20) == 0
        assert running.stdout is not None
        assert running.stdout.read() == b""
    os.close(ours)
    assert (b"files deleted" in seen) is not quiet


def test_a_command_without_a_terminal_draws_nothing() -> None:
    done = subprocess.run([sys.executable, "-c", SLOW, "vacuum"], capture_output=True, check=True)
    assert (done.stdout, done.stderr) == (b"", b"")
