"""`make up` starts everything without Docker, serves what it prints, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

import sluice
from sluice.cli import main
from sluice.coordinator.service.connect import release
from tests.deploy import ROOT

pytestmark = [pytest.mark.zookeeper, pytest.mark.s3, pytest.mark.slow]
LIMIT_S = 90.0


def children(process: int) -> set[int]:
    """The processes that a process started, and those that these did."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
        except (OSError, IndexError):  # it has ended
            continue
    family = {process}
    while new := {each for each, parent in parents.items() if parent in family} - family:
        family |= new
    return family - {process}


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return str(answer.read().decode())


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + LIMIT_S
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.2)


def test_what_it_started_ends_even_with_a_killed_program(tmp_path: Path) -> None:
    source = f"""
import pathlib, time
from examples.up import _process
with _process(["sleep", "600"], pathlib.Path({str(tmp_path / "log")!r})) as process:
    print(process.pid, flush=True)
    time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-c", source], cwd=ROOT, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        stat = Path(f"/proc/{int(running.stdout.readline())}/stat")
        running.kill()
    until(lambda: not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z")


@pytest.mark.costly
def test_it_starts_shows_what_happens_and_ends_with_all_that_it_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = [sys.executable, "-m", "examples.up", "--free-ports", "--pause", "0.2"]
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(program, cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True) as running:
        try:
            assert running.stdout is not None
            urls: dict[str, str] = {}
            for line in running.stdout:
                name, _, value = line.strip().partition("=") if line.startswith("export ") else line.strip().partition(":")
                if line.startswith("export "):
                    monkeypatch.setenv(name.removeprefix("export "), value)
                else:
                    urls[name] = value.strip()
                if name == "table":
                    break
            assert {"exporter", "daemon", "writers", "table"} <= set(urls)
            until(lambda: sluice.Table.open(urls["table"], consistency="published").snapshot().version >= 5)
            shown = get(urls["exporter"])
            assert f'sluice_table_version{{table="{urls["table"]}"}}' in shown
            assert "sluice_servers_may_stop 1.0" in shown
            assert get(urls["daemon"]) == "OK\n"
            assert 'sluice_commits_total{outcome="committed"' in get(urls["writers"])
            if "prometheus" in urls:
                until(lambda: '"health":"up"' in get(urls["prometheus"].replace("/alerts", "/api/v1/targets")))
            done = CliRunner().invoke(main, ["health", "--wait", "30"])
            assert done.exit_code == 0, done.output
            release()
            started = children(running.pid)
            assert len(started) >= 6
        finally:
            running.send_signal(signal.SIGHUP)  # a terminal sends it that is closed
        assert running.wait(LIMIT_S) == 0
    assert [each for each in started if Path(f"/proc/{each}").exists()] == []
    assert list(tmp_path.iterdir()) == []
