"""What this process commits as metrics and as lines of a log; the status of all tables as metrics, served to Prometheus."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import threading
import time
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

import sluice
from sluice.coordinator.admission import commit_events, submission
from sluice.coordinator.admission.commit_events import CommitEvent, listen
from sluice.coordinator.commit.decider import Decider
from sluice.coordinator.commit.outcomes import Commit
from sluice.coordinator.commit.queue import Filing
from sluice.coordinator.commit.transactions import commit_filings
from sluice.coordinator.errors import LeaseHeld, NotCommitted, OutcomeUnknown
from sluice.coordinator.nodes.layout import TableTree
from sluice.operating.daemon import due
from sluice.operating.exporter import StatusMetrics, looks, metrics_of, serve
from sluice.storage.errors import StorageUnavailable

ROWS = pa.table({"id": [1, 2, 3]})


@pytest.fixture
def table(tmp_path: Path) -> sluice.Table:
    return sluice.Table.create(tmp_path / "table", ROWS.schema, coordinator=f"memory://{uuid.uuid4().hex}")


@pytest.fixture
def events() -> Iterator[list[CommitEvent]]:
    heard: list[CommitEvent] = []
    end = listen(heard.append)
    yield heard
    end()


def lose(table: sluice.Table) -> None:
    """Lose a transaction to another one."""
    late = table.begin()
    late.delete("id = 1")
    table.overwrite(ROWS)
    with pytest.raises(NotCommitted):
        late.commit()


def test_each_call_that_commits_is_told_once(table: sluice.Table, events: list[CommitEvent]) -> None:
    began = time.monotonic()
    commit = table.append(ROWS)
    assert commit is not None
    [event] = events
    assert (event.transaction_id, event.outcome, event.operation) == (commit.transaction_id, "committed", "WRITE")
    assert (event.tables, event.versions) == ((table.location,), {table.location: commit.version})
    assert (event.attempts, event.lease_s, event.rule, event.error) == (1, 0.0, "", "")
    assert 0 < event.seconds <= time.monotonic() - began
    assert sum(event.phases.values()) == pytest.approx(event.seconds)
    assert min(event.phases.values()) >= 0


def test_a_refusal_says_what_it_lost_to(table: sluice.Table, events: list[CommitEvent]) -> None:
    table.append(ROWS)
    lose(table)
    refused = events[-1]
    assert (refused.outcome, refused.versions) == ("refused", {})
    assert (refused.rule, refused.error) == ("appended-what-i-read", "ConcurrentAppendException")
    assert refused.winner["application"] == refused.application != ""


def test_a_wait_for_a_lease_is_an_attempt_and_seconds(table: sluice.Table, events: list[CommitEvent]) -> None:
    with table.lease(name="load"):
        waiter = threading.Thread(target=lambda: table.append(ROWS))
        waiter.start()
        time.sleep(0.5)
    waiter.join()
    [event] = events
    assert event.outcome == "committed"
    assert event.attempts >= 2
    assert 0.1 < event.lease_s <= event.seconds


def test_a_commit_that_was_filed_again_is_told_under_the_id_that_committed(
    table: sluice.Table, events: list[CommitEvent], monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = f"{TableTree(table.location).root}/leases/l-{'0' * 32}-0000000000"
    tried: list[str] = []

    def held_at_first(filings: list[Filing], *arguments: Any, **named: Any) -> dict[str, Commit]:
        tried.append(filings[0].member.intent.transaction_id)
        if len(tried) == 1:
            raise LeaseHeld("held", rule="lease-held", facts={"table": table.location, "lease": lease}, filed=True)
        return commit_filings(filings, *arguments, **named)

    monkeypatch.setattr(submission, "commit_filings", held_at_first)
    commit = table.append(ROWS)
    assert commit is not None
    assert tried[0] != tried[1] == commit.transaction_id == events[0].transaction_id


def test_a_commit_of_two_tables_is_one_event(table: sluice.Table, tmp_path: Path, events: list[CommitEvent]) -> None:
    other = sluice.Table.create(tmp_path / "other", ROWS.schema, coordinator=table.coordinated.context.coordinator)
    events.clear()
    with sluice.transaction(table.coordinated.context.coordinator) as joint:
        joint[table].append(ROWS)
        joint[other].append(ROWS)
    [event] = events
    assert set(event.tables) == set(event.versions) == {table.location, other.location}


def test_what_ends_otherwise_is_told_too(table: sluice.Table, events: list[CommitEvent], monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(sluice.errors.VersionNotFound):
        table.append(ROWS, if_version=99)  # refused before it tries to commit
    table.append(ROWS)
    with monkeypatch.context() as patched:
        patched.setattr(Decider, "decide", lambda *_: ())
        table.coordinated.alone = False
        with pytest.raises(OutcomeUnknown):
            table.append(ROWS, timeout_s=0.2)
        patched.setattr(submission, "prepared", lambda *_, **__: (_ for _ in ()).throw(StorageUnavailable("the store is away")))
        with pytest.raises(StorageUnavailable):
            table.append(ROWS)
    assert [(each.outcome, each.error) for each in events] == [
        ("committed", ""),
        ("unknown", "OutcomeUnknown"),
        ("failed", "StorageUnavailable"),
    ]


def test_a_listener_that_fails_breaks_no_commit(table: sluice.Table, caplog: pytest.LogCaptureFixture) -> None:
    def fail(event: CommitEvent) -> None:
        raise ValueError("no")

    end = listen(fail)
    try:
        assert table.append(ROWS) is not None
    finally:
        end()
        end()
    assert "a listener of commits failed" in caplog.text
    caplog.clear()
    table.append(ROWS)
    assert "listener" not in caplog.text


def test_nothing_is_measured_when_nobody_listens(table: sluice.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_events, "_event", lambda *_: pytest.fail("nobody listens"))
    assert table.append(ROWS) is not None


def samples(text: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    return {(s.name, frozenset(s.labels.items())): s.value for family in text_string_to_metric_families(text) for s in family.samples}


def test_metrics_count_commits_attempts_and_refusals(table: sluice.Table) -> None:
    registry = CollectorRegistry()
    end = sluice.metrics.start(registry)
    with pytest.raises(ValueError, match="Duplicated"):
        sluice.metrics.start(registry)
    table.append(ROWS)
    lose(table)
    where = {"table": table.location}
    assert registry.get_sample_value("sluice_commits_total", {**where, "outcome": "committed"}) == 2
    assert registry.get_sample_value("sluice_commits_total", {**where, "outcome": "refused"}) == 1
    assert registry.get_sample_value("sluice_refusals_total", {**where, "rule": "appended-what-i-read"}) == 1
    assert (registry.get_sample_value("sluice_attempts_total", where) or 0) >= 3
    for phase in ("compare", "decide", "publish", "lease", "all"):
        assert registry.get_sample_value("sluice_commit_duration_seconds_count", {"phase": phase}) == 3
    end()
    table.append(ROWS)
    assert registry.get_sample_value("sluice_commits_total", {**where, "outcome": "committed"}) is None
    sluice.metrics.start(registry)()


def test_a_commit_is_a_line_of_json_in_the_log(table: sluice.Table) -> None:
    lines: list[str] = []
    handler = logging.Handler()
    handler.setFormatter(sluice.metrics.JsonFormatter())
    handler.emit = lambda record: lines.append(handler.format(record))  # type: ignore[method-assign]
    log = logging.getLogger("sluice.commits")
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        table.append(ROWS)
        lose(table)
        log.error("%s went wrong", "something", exc_info=ValueError("no"))
    finally:
        log.removeHandler(handler)
        log.setLevel(logging.NOTSET)
    said = [json.loads(line) for line in lines]
    assert [each.get("outcome") for each in said] == ["committed", "committed", "refused", None]
    assert said[0]["versions"] == {table.location: 1}
    assert said[2]["rule"] == "appended-what-i-read"
    assert {"time", "level", "logger", "message", "phases", "seconds"} <= set(said[0])
    assert "ValueError: no" in said[3]["exception"]


def test_the_status_is_served_to_prometheus(table: sluice.Table) -> None:
    table.append(ROWS)
    coordinator = table.coordinated.context.coordinator
    port, end = serve(lambda: sluice.status(coordinator), "127.0.0.1", 0)
    try:
        with table.lease(), urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            found = samples(answer.read().decode())
    finally:
        end()
    where = ("table", table.location)
    assert found["sluice_up", frozenset()] == 1
    assert found["sluice_table_version", frozenset({where})] == 1
    assert found["sluice_leases_held", frozenset({where})] == 1
    assert found["sluice_limited_by", frozenset({where, ("limit", "workload")})] == 1
    assert found["sluice_clients", frozenset({("release", sluice.__version__)})] == 1


def test_the_status_is_served_at_an_address_of_the_sixth_version() -> None:
    port, end = serve(lambda: sluice.status("memory://sixth"), "::1", 0)
    with urllib.request.urlopen(f"http://[::1]:{port}/metrics") as answer:
        assert b"sluice_up 1.0" in answer.read()
    end()


def test_several_scrapers_share_a_look() -> None:
    looks: list[int] = []

    def look() -> sluice.Status:
        looks.append(1)
        return sluice.status("memory://shared-look")

    collector = StatusMetrics(look)
    for _ in range(3):
        assert {each.name for each in collector.collect()} >= {"sluice_up", "sluice_queue_length"}
    assert len(looks) == 1


def exported(seen: sluice.Status) -> set[str]:
    """The names of the metrics that a table has."""
    return {family.name for family in metrics_of(seen) for sample in family.samples if "table" in sample.labels}


def test_a_table_whose_log_cannot_be_read_keeps_the_coordinators_metrics(table: sluice.Table, tmp_path: Path) -> None:
    table.append(ROWS)
    see = looks(table.coordinated.context.coordinator, upkeep=True, storage_options=None)
    before = see()
    (tmp_path / "table").rename(tmp_path / "away")
    seen = see()
    [quiet] = seen.tables
    assert "sluice_publish_lag_seconds" in exported(seen) == exported(before)
    assert quiet.log_trouble is not None
    assert quiet.upkeep == before.tables[0].upkeep is not None
    assert [each.name for each in seen.messages if each.where == table.location] == ["table-not-read"]
    assert due(quiet, 0.0) == ("look",), "the daemon only looks whether the log can be read again"


def test_the_log_of_a_table_that_was_made_again_is_read_again(table: sluice.Table, tmp_path: Path) -> None:
    table.append(ROWS)
    coordinator = table.coordinated.context.coordinator
    see = looks(coordinator, upkeep=True, storage_options=None)
    before = see().tables[0].upkeep
    table.drop()
    made = sluice.Table.create(tmp_path / "table", ROWS.schema, coordinator=coordinator)
    made.append(pa.concat_tables([ROWS] * 1000))
    now = see().tables[0].upkeep
    assert before is not None
    assert now is not None
    assert (now.version, now.bytes > before.bytes) == (before.version, True)


def test_a_scrape_waits_for_no_store_and_serves_what_was_read_last(table: sluice.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    see, answers = looks(table.coordinated.context.coordinator, upkeep=True, storage_options=None), threading.Event()
    upkeep = see().tables[0].upkeep

    def hang(_store: object) -> None:
        answers.wait(60)
        raise StorageUnavailable("the store is away")

    monkeypatch.setattr("sluice.operating.upkeep.list_segment", hang)
    began = time.monotonic()
    seen = [see().tables[0] for _ in range(2)]
    assert time.monotonic() - began < 5
    assert [each.upkeep for each in seen] == [upkeep, upkeep] != [None, None]
    answers.set()


def test_the_exporter_runs_until_it_is_ended() -> None:
    program = [sys.executable, "-m", "sluice", "exporter", "--port", "0", "--json", "--coordinator", "memory://exported"]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        url = ""
        for line in running.stdout:
            url += line
            if line == "}\n":
                break
        with urllib.request.urlopen(json.loads(url)["url"]) as answer:
            assert "sluice_up 1.0" in answer.read().decode()
        running.terminate()
        assert running.wait(20) == 0
