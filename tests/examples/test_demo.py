"""The demo in small: its jobs on a sample of the flights, its ways to end, and whether its proof would find what is wrong."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from rich.console import Console

from examples.demo import flights
from examples.demo.bookings import book
from examples.demo.inventory import take_inventory
from examples.demo.job import Assignment, Input
from examples.demo.processes import JobProcess, Report
from examples.demo.progress import Board, Progress
from examples.demo.proof import difference, log_faults, prove
from examples.demo.workspace import DemoOptions, Workspace, workspace
from sluice.storage.errors import InvalidRequest
from sluice.tables.read.history import HistoryEntry
from sluice.tables.table import Table
from tests.fixtures.spark_jvm import SparkJvm

pytestmark = pytest.mark.slow

ROWS = 2_000
LIMIT_S = 240


def start(temporary: Path, *arguments: str, error: int | None = None) -> subprocess.Popen[str]:
    """The demo as a program of its own, with its temporary files below `temporary`."""
    command = [sys.executable, "-m", "examples.demo", "--rows", str(ROWS), *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=error, text=True, env={**os.environ, "TMPDIR": str(temporary)})


def run(temporary: Path, *arguments: str) -> tuple[int, list[str]]:
    """The exit status and the lines of a whole run."""
    with start(temporary, *arguments) as process:
        output, _ = process.communicate(timeout=LIMIT_S)
    return process.returncode, output.splitlines()


@pytest.mark.costly
@pytest.mark.zookeeper
@pytest.mark.parametrize("store", ["local", pytest.param("s3", marks=pytest.mark.long)])
def test_six_processes_on_one_table_lose_nothing(tmp_path: Path, store: str) -> None:
    status, lines = run(tmp_path, "--no-spark", "--store", store, "--console")
    assert status == 0, "\n".join(lines)
    assert lines[-1].startswith("demo: ok: ")
    assert any(line.startswith("watch it at http://127.0.0.1:") for line in lines)
    assert sum(line.startswith("✓") for line in lines) == 9
    assert any(line.startswith("✓ transactions over two tables") for line in lines)
    assert any(line.startswith("✓ who holds a lease is not disturbed") for line in lines)
    assert not any("✗" in line for line in lines)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
def test_a_spark_application_loads_its_airport(tmp_path: Path, zookeeper_address: str, spark_jvm: SparkJvm) -> None:
    table = Table.create(tmp_path / "flights", flights.SCHEMA, partition_by=flights.PARTITION_BY, coordinator=zookeeper_address)
    files = list(flights.split(flights.read_flights(ROWS, seed=1, typed=False), tmp_path))
    inputs = [Input([str(each.path)], each.rows) for each in files if each.airport == "EWR"][:2]
    reports: queue.SimpleQueue[Report] = queue.SimpleQueue()
    assigned = Assignment("load-EWR", table.location, zookeeper_address, inputs=inputs)
    env = spark_jvm.environment(tmp_path / "home")
    process = JobProcess("spark_load", assigned, log=tmp_path / "log", env=env, reports=reports)
    try:
        heard = [reports.get(timeout=LIMIT_S)]
        assert heard[0].event == "ready", heard
        process.go()
        while heard[-1].event != "ended":
            heard.append(reports.get(timeout=LIMIT_S))
        process.succeeded()
    finally:
        process.end()
    assert [each.facts["rows"] for each in heard if each.event == "commit"] == [each.rows for each in inputs]
    assert [each.application for each in table.history() if each.operation == "WRITE"] == ["load-EWR"] * 2
    loaded = pa.concat_tables(flights.load(flights.read_csv(Path(each.paths[0]))) for each in inputs)
    order = [(name, "ascending") for name in flights.KEY]
    assert difference(table.refresh().snapshot().to_arrow().sort_by(order), loaded.sort_by(order)) is None


@pytest.mark.long  # each of the three applications has a JVM
@pytest.mark.spark
@pytest.mark.zookeeper
def test_with_spark_applications(tmp_path: Path) -> None:
    status, lines = run(tmp_path)
    assert status == 0, "\n".join(lines)
    assert lines[-1].startswith("demo: ok: ")
    assert "without Spark" not in lines[-1]
    assert any("load-EWR" in line and "WRITE" in line for line in lines)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.costly
@pytest.mark.zookeeper
@pytest.mark.parametrize("ending", [pytest.param(signal.SIGINT, marks=pytest.mark.long), signal.SIGTERM])
def test_an_interrupted_run_leaves_nothing_behind(tmp_path: Path, ending: signal.Signals) -> None:
    with start(tmp_path, "--no-spark", error=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("table file://")
        time.sleep(1.0)
        process.send_signal(ending)
        told = process.communicate(timeout=LIMIT_S)
    assert process.returncode != 0, told
    assert list(tmp_path.iterdir()) == []


@pytest.mark.zookeeper
@pytest.mark.long
def test_a_run_out_of_time_has_failed(tmp_path: Path) -> None:
    status, lines = run(tmp_path, "--no-spark", "--time-limit", "1")
    assert status == 1
    assert lines[-1].startswith("demo: FAILED: ")
    assert "did not end within 1 s" in lines[-1]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.zookeeper
@pytest.mark.long
def test_a_job_that_ends_early_is_named(tmp_path: Path) -> None:
    """The log is damaged before the jobs open the table."""
    home = tmp_path / "home"
    home.mkdir()
    with start(tmp_path, "--no-spark", "--location", str(home), "--keep") as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        log = Path(first.split()[1].removeprefix("file://").rstrip(",")) / "_delta_log"
        (log / "00000000000000000000.json").write_text("{")
        output, _ = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 1
    last = output.splitlines()[-1]
    assert last.startswith("demo: FAILED: ")
    assert "CorruptLogFile" in last


@pytest.mark.costly
@pytest.mark.parametrize(
    ("arguments", "error", "remedy"),
    [
        (["--store", "s3", "--location", "/t"], "InvalidRequest", "contradict"),
        (["--rows", "400000", "--coordinator", "memory://demo"], "InvalidRequest", "take 1 to 336776"),
        (["--coordinator", "host:2181"], "UnknownScheme", "zk://host:2181"),
    ],
)
def test_a_call_that_must_be_changed(tmp_path: Path, arguments: list[str], error: str, remedy: str) -> None:
    with start(tmp_path, *arguments, error=subprocess.PIPE) as process:
        _, told = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 2, told
    assert told.startswith(f"sluice: {error}: ")
    assert remedy in told
    assert len(told.splitlines()) == 1


@pytest.fixture(scope="module")
def sample() -> pa.Table:
    return flights.read_flights(ROWS, seed=1)


def test_every_flight_has_a_key_of_its_own() -> None:
    everything = flights.read_flights()
    assert len(everything) == 336_776
    assert len(everything.group_by(list(flights.KEY)).aggregate([])) == len(everything)
    left = pc.and_(pc.is_valid(everything["dep_time"]), pc.not_equal(everything["carrier"], "MQ"))
    assert len(flights.expected(everything)) == len(everything.filter(left)) == 303_358


@pytest.mark.costly
def test_a_sample_is_the_same_for_the_same_seed(sample: pa.Table) -> None:
    assert len(sample) == ROWS
    assert sample.equals(flights.read_flights(ROWS, seed=1))
    assert not sample.equals(flights.read_flights(ROWS, seed=2))


@pytest.mark.parametrize("rows", [0, 336_777])
def test_a_sample_has_its_bounds(rows: int) -> None:
    with pytest.raises(InvalidRequest, match="336776"):
        flights.read_flights(rows)


def test_corrections_mend_midnight_and_add_the_speed() -> None:
    row = flights.load(flights.read_flights(1)).to_pylist()[0]
    given = pa.Table.from_pylist(
        [
            {**row, "dep_time": 2400, "arr_time": 2400, "distance": 500, "air_time": 60},
            {**row, "dep_time": 1, "arr_time": None, "distance": 500, "air_time": None},
        ],
        schema=flights.SCHEMA,
    )
    mended = flights.correct(given)
    assert mended.schema.equals(flights.SCHEMA)
    assert mended.select(["dep_time", "arr_time", "speed_mph"]).to_pylist() == [
        {"dep_time": 0, "arr_time": 0, "speed_mph": 500.0},
        {"dep_time": 1, "arr_time": None, "speed_mph": None},
    ]
    assert flights.correct(mended).equals(mended)


def without_first(rows: pa.Table) -> pa.Table:
    return rows.slice(1)


def first_twice(rows: pa.Table) -> pa.Table:
    return pa.concat_tables([rows, rows.slice(0, 1)])


def first_instead_of_last(rows: pa.Table) -> pa.Table:
    return pa.concat_tables([rows.slice(0, 1), rows.slice(0, len(rows) - 1)])


def other_distance(rows: pa.Table) -> pa.Table:
    index = rows.schema.get_field_index("distance")
    return rows.set_column(index, rows.schema.field(index), pc.add(rows["distance"], pa.scalar(1, pa.int32())))


def of_another_day(rows: pa.Table) -> pa.Table:
    index = rows.schema.get_field_index("day")
    return rows.set_column(index, rows.schema.field(index), pc.add(rows["day"], pa.scalar(40, pa.int32())))


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (without_first, "1 flights lost"),
        (first_twice, "1 flights there more than once"),
        (first_instead_of_last, "1 flights lost"),
        (other_distance, "other values in distance"),
        (of_another_day, "flights too many"),
        (lambda rows: rows.drop_columns(["route"]), "the columns are"),
    ],
)
def test_the_proof_finds_wrong_rows(sample: pa.Table, change: Callable[[pa.Table], pa.Table], found: str) -> None:
    wanted = flights.expected(sample)
    assert difference(wanted.take(pa.array(range(len(wanted) - 1, -1, -1))), wanted) is None
    said = difference(change(wanted), wanted)
    assert said is not None
    assert found in said


def commit(number: int, timestamp: int) -> tuple[int, bytes]:
    return number, orjson.dumps({"commitInfo": {"inCommitTimestamp": timestamp}}) + b"\n" + orjson.dumps({"add": {}}) + b"\n"


@pytest.mark.parametrize(
    ("commits", "version", "found"),
    [
        ([commit(0, 5), commit(1, 6), commit(2, 9)], 2, []),
        ([commit(0, 5), commit(2, 9)], 2, ["it has 2 versions"]),
        ([commit(0, 5), commit(1, 6)], 2, ["it has 2 versions"]),
        ([commit(0, 5), commit(1, 5)], 1, ["version 1 has the in-commit timestamp 5"]),
        ([(0, b'{"protocol":{}}\n')], 0, ["version 0 has the in-commit timestamp 0"]),
    ],
)
def test_the_proof_finds_a_log_out_of_order(commits: list[tuple[int, bytes]], version: int, found: list[str]) -> None:
    faults = log_faults(commits, version)
    assert len(faults) == len(found)
    assert all(fault.startswith(start) for fault, start in zip(faults, found, strict=True))


def entry(version: int, **told: Any) -> HistoryEntry:
    metrics = {"numDeletedRows": "3", "numAddedFiles": "0", "numCopiedRows": "0"} | told.pop("metrics", {})
    return HistoryEntry(version, 0, version, "DELETE", metrics=metrics, transaction_id=f"t{version}", **told)


UNITED = ("deletion vector of part-0 united with that of version 7",)


@pytest.mark.parametrize(
    ("second", "detail"),
    [
        (entry(8, rebased=UNITED), "3 and 3 rows, versions 7 and 8, deletion vectors of 1 files united"),
        (entry(8), None),
        (entry(9, rebased=UNITED), None),
    ],
)
def test_the_proof_finds_deletes_that_were_not_at_once(second: HistoryEntry, detail: str | None) -> None:
    evidence: Any = SimpleNamespace(history=[second, entry(7), entry(6)], withdrawals=["t7", "t8"])
    [finding] = prove(evidence, ["two transactions that delete different rows of one file at once both succeed"])
    assert finding.holds == (detail is not None)
    assert detail is None or finding.detail == detail


def test_the_proof_finds_deletes_that_wrote_files() -> None:
    vectors = pa.table({"deletion_vector": pa.array([{"x": 1}, None], pa.struct([("x", pa.int64())]))})
    table = SimpleNamespace(snapshot=lambda: SimpleNamespace(files=lambda: vectors))
    statement = "deletes rewrite no data file: rows are listed in deletion vectors"
    sound: Any = SimpleNamespace(history=[entry(7), entry(6)], table=table)
    [finding] = prove(sound, [statement])
    assert finding.holds
    assert finding.detail == "6 rows in 2 transactions; 1 of 2 files have deletion vectors"
    wrong: Any = SimpleNamespace(history=[entry(7, metrics={"numAddedFiles": "1"})], table=table)
    [finding] = prove(wrong, [statement])
    assert not finding.holds


@pytest.fixture
def beside(tmp_path: Path) -> Workspace:
    """Where the bookings are, with a coordinator in memory."""
    locations = tuple(str(tmp_path / name) for name in ("seats", "bookings"))
    here: Any = SimpleNamespace(coordinator=f"memory://{uuid.uuid4().hex}", storage_options={}, beside=locations)
    place: Workspace = here
    return place


def test_bookings_wait_while_somebody_holds_the_seats(beside: Workspace) -> None:
    assert book(beside).holds
    found = take_inventory(beside)
    assert found.holds, found.detail
    assert found.detail.startswith("5 versions were made under it")
    assert "4 bookings waited" in found.detail


def test_a_lease_that_keeps_nobody_out_is_found(beside: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    assert book(beside).holds
    monkeypatch.setattr(Table, "lease", lambda *_, **__: nullcontext())
    found = take_inventory(beside)
    assert not found.holds
    assert "got in between" in found.detail


def test_a_store_that_ends_keeps_nothing() -> None:
    with pytest.raises(InvalidRequest, match="--keep"), workspace(DemoOptions(store="s3", keep=True)):
        raise AssertionError("not reached")


def test_progress_counts_what_jobs_tell() -> None:
    board = Board(Console(quiet=True), [Progress("stream", "appends", 40)])
    told = {"version": 7, "transaction_id": "t1", "ms": 12.0}
    with board:
        board.take(Report("stream", "ready"))
        board.take(Report("stream", "commit", {**told, "rows": 20, "repeated": False}))
        board.take(Report("stream", "commit", {**told, "rows": 0, "repeated": True}))
        board.take(Report("stream", "conflict", {"rule": "appended", "message": "..."}))
    progress = board.jobs["stream"]
    assert (progress.rows, progress.commits, progress.repeats, progress.conflicts, progress.version) == (20, 1, 1, 1, 7)
    assert progress.transactions == ["t1"]
    assert str(progress) == "stream: writing, 20 of 40 rows, 1 commits, 1 conflicts repeated, last wait 12 ms"
