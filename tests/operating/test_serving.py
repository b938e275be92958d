"""What the exporter and the daemon serve: metrics and probes; what the exporter reads again; and which loggers are documented."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
import uuid
from pathlib import Path

import pyarrow as pa
import pytest
from prometheus_client.parser import text_string_to_metric_families

import sluice
from sluice.commands.programs import _until_interrupted
from sluice.operating import upkeep
from sluice.operating.daemon import Daemon, serve_probes
from sluice.operating.document import Coordinator, Status, Upkeep
from sluice.operating.exporter import looks, serve
from sluice.storage.log.snapshot import Snapshot

ROOT = Path(__file__).resolve().parents[2]
ROWS = pa.table({"id": [1, 2, 3]})


def asked(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, refused.read().decode()


@pytest.mark.parametrize(("trouble", "ready"), [(None, 200), ("nobody answers", 503)])
def test_the_exporter_is_alive_whatever_the_coordinator_does_and_ready_while_that_can_be_asked(trouble: str | None, ready: int) -> None:
    seen = Status(
        at="",
        ok=trouble is None,
        coordinator=Coordinator(
            address="", write_s=None, trouble=trouble, servers=(), may_stop_before_commits_do=0, may_be_lost_before_data_are=0, clients=None
        ),
        tables=(),
        limited_by="workload",
        messages=(),
    )
    port, end = serve(lambda: seen, "127.0.0.1", 0)
    try:
        assert asked(port, "/healthz") == (200, "OK\n")
        assert asked(port, "/readyz")[0] == ready
        code, text = asked(port, "/metrics?name[]=sluice_up")
        assert (code, f"sluice_up {float(trouble is None)}" in text) == (200, True)
        assert asked(port, "/")[0] == 404
    finally:
        end()


def test_the_exporter_reads_a_log_again_only_when_the_table_has_another_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    coordinator = f"memory://{uuid.uuid4().hex}"
    table = sluice.Table.create(tmp_path / "table", ROWS.schema, coordinator=coordinator)
    read: list[object] = []
    reading = upkeep._read

    def noted(snapshot: Snapshot) -> Upkeep:
        read.append(snapshot.version)
        return reading(snapshot)

    monkeypatch.setattr(upkeep, "_read", noted)
    look = looks(coordinator, upkeep=True, storage_options=None)
    versions = []
    for append in (False, False, True, False):
        if append:
            table.append(ROWS)
        [seen] = look().tables
        assert seen.upkeep is not None
        versions.append(seen.upkeep.version)
    assert (versions, read) == ([0, 0, 1, 1], [0, 1])


def test_the_daemon_serves_its_own_metrics() -> None:
    program = [sys.executable, "-m", "sluice", "daemon", "--port", "0", "--json", "--coordinator", f"memory://{uuid.uuid4().hex}"]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        text = ""
        for line in running.stdout:
            text += line
            if line == "}\n":
                break
        try:
            port = int(json.loads(text)["url"].split(":")[2].split("/")[0])
            code, served = asked(port, "/metrics")
            assert asked(port, "/healthz") == (200, "OK\n")
            running.terminate()
            assert running.wait(60) == 0
        finally:
            running.kill()
    assert code == 200
    names = {family.name for family in text_string_to_metric_families(served)}
    assert {"sluice_commits", "sluice_vacuumed_bytes", "sluice_sessions_lost", "sluice_store_requests"} <= names


@pytest.mark.parametrize("taken_by", ["another thread", "the program before it waits"])
def test_a_signal_ends_a_program_however_it_comes(taken_by: str) -> None:
    """The kernel may give a signal to any thread, and at any moment: neither wakes a thread that waits for a lock."""
    too_late = threading.Event()
    watch = threading.Timer(20, too_late.set)
    sent = threading.Timer(0.2, lambda: signal.pthread_kill(threading.get_ident(), signal.SIGTERM))
    before = signal.getsignal(signal.SIGTERM)
    try:
        watch.start()
        _until_interrupted(sent.start if taken_by == "another thread" else lambda: os.kill(os.getpid(), signal.SIGTERM), too_late)
    finally:
        watch.cancel()
        signal.signal(signal.SIGTERM, before)
    assert not too_late.is_set()


def test_without_metrics_the_daemon_has_its_probes() -> None:
    port, end = serve_probes(Daemon(f"memory://{uuid.uuid4().hex}"), "127.0.0.1", 0)
    try:
        assert asked(port, "/healthz")[0] == 200
        assert asked(port, "/metrics")[0] == 404
    finally:
        end()


def test_each_logger_that_says_something_is_in_the_table_of_loggers() -> None:
    """By its own name or its room's, with the levels at which it says it; what only DEBUG shows is in the last row."""
    page = (ROOT / "docs" / "operations" / "metrics.md").read_text().split("| logger | level | says |")[1]
    documented: dict[str, str] = {}
    names: list[str] = []
    for first, level in re.findall(r"^\|([^|]*)\| ([A-Z]+) \|", page, re.MULTILINE):
        names = re.findall(r"`([\w.]+)`", first) or names
        for name in names:
            documented[name] = documented.get(name, "") + level
    missing, said = [], set[tuple[str, str]]()
    for path in (ROOT / "src" / "sluice").rglob("*.py"):
        text = path.read_text()
        levels = set(re.findall(r"\b_?log\.(info|warning|error|exception)\(", text))
        own = re.search(r'getLogger\("([\w.]+)"\)', text)
        module = ".".join(path.relative_to(ROOT / "src").with_suffix("").parts)
        logger = own[1] if own and "getLogger(__name__)" not in text else module
        for level in levels:
            word = "WARNING" if level in ("exception", "error") else str(level).upper()
            said |= {(name, word) for name in documented if logger == name or logger.startswith(f"{name}.")}
            rooms = [name for name in documented if logger == name or logger.startswith(f"{name}.")]
            if not any(word in documented[name] for name in rooms):
                missing.append((logger, word))
    assert "\n".join(f"{name} {level}" for name, level in sorted(set(missing))) == ""
    rows = {(name, word) for name, levels in documented.items() for word in ("INFO", "WARNING") if word in levels}
    by_level = {("sluice.commits", "INFO"), ("sluice.operating", "INFO"), ("sluice.operating", "WARNING")}  # said by `log(level, ...)`
    assert rows - said - by_level == set()
