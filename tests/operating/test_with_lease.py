"""`sluice with-lease`: a command of any program runs while a lease is held; its end, signals, and the loss of the lease."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

import sluice
from sluice.cli import main
from sluice.coordinator.api import break_lease, connect, list_leases, place_of_table

ROWS = pa.table({"day": ["a"], "id": [1]})


@pytest.fixture
def table(tmp_path: Path) -> sluice.Table:
    return sluice.Table.create(tmp_path / "table", ROWS.schema, partition_by=["day"], coordinator=f"memory://{uuid.uuid4().hex}")


def run(table: sluice.Table, *arguments: str) -> Result:
    assert table.coordinated.context.coordinator is not None
    return CliRunner().invoke(main, ["with-lease", table.location, "--coordinator", table.coordinated.context.coordinator, *arguments])


def program(text: str) -> list[str]:
    return ["--", sys.executable, "-c", text]


@contextmanager
def held_elsewhere(take: Callable[[], sluice.Lease]) -> Iterator[None]:
    """Another thread holds the lease in the block: a thread's own leases are not in its way."""
    with ThreadPoolExecutor(1) as pool:
        lease = pool.submit(take).result()
        try:
            yield
        finally:
            pool.submit(lease.release).result()


def until(condition: Callable[[], object], seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_the_command_has_the_lease_while_it_runs(table: sluice.Table, tmp_path: Path) -> None:
    told = tmp_path / "told"
    result = run(
        table, *program(f"import os; open({str(told)!r}, 'w').write(os.environ['SLUICE_LEASE_TOKEN'] + ' ' + os.environ['SLUICE_LEASE'])")
    )
    assert result.exit_code == 0, result.output
    token, reference = told.read_text().split()
    assert int(token) > 0
    assert "/leases/l-" in reference
    with table.lease(wait_s=0) as later:
        assert later.token > int(token)


@pytest.mark.parametrize(("text", "status"), [("raise SystemExit(7)", 7), ("import os; os.kill(os.getpid(), 15)", 143)])
def test_the_exit_status_is_the_commands(table: sluice.Table, text: str, status: int) -> None:
    assert run(table, *program(text)).exit_code == status
    table.lease(wait_s=0).release()


def test_who_does_not_get_the_lease_in_time_runs_nothing(table: sluice.Table, tmp_path: Path) -> None:
    told = tmp_path / "told"
    with held_elsewhere(lambda: table.lease(where="day = 'a'")):
        result = run(table, "--wait", "0", *program(f"open({str(told)!r}, 'w')"))
        assert (result.exit_code, told.exists()) == (75, False)
        assert "LeaseHeld" in result.output or "held" in result.output
        assert run(table, "--wait", "0", "--where", "day = 'b'", *program("pass")).exit_code == 0
    assert run(table, "--wait", "0", *program("pass")).exit_code == 0


def test_a_shared_lease_is_beside_others(table: sluice.Table) -> None:
    with held_elsewhere(lambda: table.lease("shared")):
        assert run(table, "--mode", "shared", "--wait", "0", *program("pass")).exit_code == 0
        assert run(table, "--wait", "0", *program("pass")).exit_code == 75


def test_a_name_is_held_too(table: sluice.Table) -> None:
    coordinator = table.coordinated.context.coordinator
    assert coordinator is not None
    with held_elsewhere(lambda: sluice.lease("nightly", coordinator=coordinator)):
        arguments = ["with-lease", "nightly", "--name", "--coordinator", coordinator]
        assert CliRunner().invoke(main, [*arguments, "--wait", "0", *program("pass")]).exit_code == 75
    assert CliRunner().invoke(main, [*arguments, *program("pass")]).exit_code == 0
    refused = CliRunner().invoke(main, [*arguments, "--where", "day = 'a'", *program("pass")])
    assert refused.exit_code == 2
    assert "--where" in refused.output


@pytest.mark.parametrize(("command", "status"), [("/nowhere/program", 127), ("/tmp", 126)])
def test_a_command_that_cannot_be_started_leaves_no_lease(table: sluice.Table, command: str, status: int) -> None:
    result = run(table, "--", command)
    assert (result.exit_code, f"{command!r} cannot be started" in result.output) == (status, True)
    table.lease(wait_s=0).release()


def test_who_cannot_ask_the_coordinator_tries_again_later(table: sluice.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object, **__: object) -> None:
        raise sluice.errors.CoordinatorUnavailable("no server answers")

    monkeypatch.setattr(sluice.Table, "open", away)
    assert run(table, *program("pass")).exit_code == 75


def started(tmp_path: Path, place: str, *options: str, text: str) -> subprocess.Popen[str]:
    """The command in a process of its own, at a real coordinator, when its program runs."""
    ready = tmp_path / "ready"
    whole = f"import pathlib, time; pathlib.Path({str(ready)!r}).write_text('x'); {text}"
    arguments = [sys.executable, "-m", "sluice", "with-lease", place, *options, *program(whole)]
    running = subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True)
    until(ready.exists)
    return running


def test_a_signal_that_comes_before_the_command_goes_to_it(table: sluice.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    start = subprocess.Popen

    def slowly(*arguments: Any, **options: Any) -> subprocess.Popen[str]:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.1)  # the handler has run
        return start(*arguments, **options)

    monkeypatch.setattr(subprocess, "Popen", slowly)
    assert run(table, *program("import time; time.sleep(60)")).exit_code == 143
    table.lease(wait_s=0).release()


DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); "


@pytest.mark.zookeeper
@pytest.mark.parametrize(("parent", "child"), [(DEAF, ""), ("", DEAF)], ids=["the command is deaf", "what it started is deaf"])
def test_a_lost_lease_ends_the_command_and_all_it_started(tmp_path: Path, zookeeper_address: str, parent: str, child: str) -> None:
    table = sluice.Table.create(tmp_path / "table", ROWS.schema, coordinator=zookeeper_address)
    grandchild = tmp_path / "grandchild"
    started_by_it = f"{child}import os, pathlib, time; pathlib.Path({str(grandchild)!r}).write_text(str(os.getpid())); time.sleep(600)"
    text = f"{parent}import subprocess, sys; subprocess.Popen([sys.executable, '-c', {started_by_it!r}]); time.sleep(600)"
    with started(tmp_path, table.location, "--coordinator", zookeeper_address, "--grace", "1", text=text) as running:
        until(lambda: grandchild.exists() and grandchild.read_text())
        session = connect(zookeeper_address)
        [held] = list_leases(session, place_of_table(session, table.location))
        assert held.application == Path(sys.executable).name
        break_lease(session, place_of_table(session, table.location), held.lease, by="me", reason="test", at_ms=0)
        assert running.wait(60) == 76
        assert running.stderr is not None
        assert "the lease was lost" in running.stderr.read()
    until(lambda: not alive(int(grandchild.read_text())))


@pytest.mark.zookeeper
def test_a_signal_goes_to_the_command_and_the_lease_outlives_it(tmp_path: Path, zookeeper_address: str) -> None:
    table = sluice.Table.create(tmp_path / "table", ROWS.schema, coordinator=zookeeper_address)
    text = "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: (time.sleep(1), sys.exit(9))); time.sleep(600)"
    with started(tmp_path, table.location, "--coordinator", zookeeper_address, text=text) as running:
        time.sleep(0.5)  # the program has its handler
        running.send_signal(signal.SIGTERM)
        with pytest.raises(sluice.errors.LeaseHeld):
            table.lease(wait_s=0)
        assert running.wait(60) == 9
    table.lease(wait_s=5).release()


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
