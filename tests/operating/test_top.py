"""`sluice top`: the status in a terminal, what is wrong first."""

from __future__ import annotations

import io
import os
import pty
import select
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pyarrow as pa
from click.testing import CliRunner
from rich.console import Console

import sluice
from sluice.cli import main
from sluice.operating.document import Coordinator, Message, Queue, Status, Transaction
from sluice.operating.document import Table as TableStatus
from sluice.operating.top import frame_of, rows_of

ROWS = pa.table({"id": [1]})
STUCK = Transaction(id="t", operation="WRITE", application="load.py", host="h", pid=1, waits_s=44.04, clock_ahead_s=0)


def many(count: int) -> Status:
    tables = [TableStatus(location=f"s3://lake/t{n:03}", name=f"shop.t{n:03}", version=n) for n in range(count - 2)]
    tables.append(TableStatus(location="s3://lake/busy", name="shop.busy", commits_per_s=3.5, refused=2))
    tables.append(TableStatus(location="s3://lake/stuck", name="shop.stuck", queue=Queue(3, STUCK), limited_by="client"))
    messages = tuple(
        Message(name="commit-waits", severity="error", what=f"a wait {n}", since=None, where="s3://lake/stuck", remedy="look")
        for n in range(9)
    )
    return Status(
        at="2026-11-28T10:00:00.000Z",
        ok=False,
        coordinator=Coordinator(
            address="zk://a/sluice",
            write_s=0.004,
            trouble=None,
            servers=(),
            may_stop_before_commits_do=1,
            may_be_lost_before_data_are=1,
            clients={"1": 3},
        ),
        tables=tuple(tables),
        limited_by="client",
        messages=messages,
    )


def drawn(seen: Status, height: int, width: int = 140) -> list[str]:
    console = Console(file=io.StringIO(), width=width)
    console.print(frame_of(seen, height))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def test_what_is_wrong_comes_first_then_what_is_busy() -> None:
    assert [row["table"] for row in rows_of(many(5).tables)] == ["shop.stuck", "shop.busy", "shop.t000", "shop.t001", "shop.t002"]


def test_a_frame_has_room_on_the_screen_and_says_what_it_leaves_out() -> None:
    for height in (12, 24, 50):
        lines = drawn(many(300), height)
        assert len(lines) <= height
        text = "\n".join(lines)
        assert "44.0 s, load.py" in text
        assert "more tables" in text
        assert "more messages" in text


def test_without_a_terminal_one_frame_has_everything(tmp_path: Path) -> None:
    coordinator = f"memory://{uuid.uuid4().hex}"
    for n in range(30):
        sluice.Table.create(tmp_path / f"t{n:02}", ROWS.schema, coordinator=coordinator)
    result = CliRunner().invoke(main, ["top", "--coordinator", coordinator])
    assert result.exit_code == 0
    assert all(f"t{n:02}" in result.output for n in range(30))
    assert "limited by: workload" in result.output


def test_in_a_terminal_it_goes_on_until_it_is_interrupted() -> None:
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120", "LINES": "30"}
    # a shell lets the programs that it runs in the background ignore this signal
    program = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from sluice.cli import main; main()"
    command = [sys.executable, "-c", program, "top", "--coordinator", "memory://top"]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment) as running:
        os.close(theirs)
        seen, end = b"", time.monotonic() + 30
        while seen.count(b"memory://top: a write") < 2 and time.monotonic() < end:
            if select.select([ours], [], [], 0.2)[0]:
                seen += os.read(ours, 65_536)
        running.send_signal(signal.SIGINT)
        try:
            assert running.wait(20) == 0
        finally:
            running.kill()
    os.close(ours)
    assert seen.count(b"memory://top: a write") >= 2
