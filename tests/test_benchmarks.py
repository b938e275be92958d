"""The benchmark counts honestly: it would find a system that loses, repeats or halves a transaction."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import engine, overwrite, snapshots
from benchmarks.load import Load, Transaction
from benchmarks.report import Report, measure, verdict
from benchmarks.systems.base import ROWS, batch, transaction_of

ROOT = Path(__file__).resolve().parent.parent


def transaction(writer: int, sequence: int, acknowledged: float | None = 1.5) -> Transaction:
    return Transaction(writer, sequence, begun=1.0, acknowledged=acknowledged, version=None)


def rows(*transactions: tuple[int, int]) -> list[int]:
    return [row for writer, sequence in transactions for row in batch(writer, sequence)["id"].to_pylist()]


def report(transactions: list[Transaction], present: list[int], *, ack: str = "published", writers: int = 2) -> Report:
    load = Load(start=1.0, deadline=11.0, ended=21.0, transactions=tuple(transactions))
    return measure("sluice", writers, ack, 30.0, load, present)


SOME = [transaction(0, 0), transaction(0, 1), transaction(0, 2), transaction(1, 0), transaction(1, 1)]
THEIR_ROWS = rows((0, 0), (0, 1), (0, 2), (1, 0), (1, 1))


def test_what_is_there_once_is_sound_and_the_warming_up_is_not_counted() -> None:
    result = report(SOME, THEIR_ROWS)
    assert (result.lost, result.duplicated, result.unacknowledged, result.sound) == (0, 0, 0, True)
    assert (result.transactions, result.transactions_per_s, result.versions_per_s) == (3, 0.3, 0.3)
    assert result.slowest_over_mean == pytest.approx(1 / 1.5, abs=1e-3)


@pytest.mark.parametrize(
    ("present", "lost", "duplicated"),
    [
        pytest.param(rows((0, 0), (0, 1), (1, 0), (1, 1)), 1, 0, id="a transaction is missing"),
        pytest.param(THEIR_ROWS[:-1], 1, 0, id="half of one is missing"),
        pytest.param([*THEIR_ROWS, THEIR_ROWS[-1]], 0, 1, id="a row is there twice"),
    ],
)
def test_what_is_lost_and_what_is_repeated_is_not_sound(present: list[int], lost: int, duplicated: int) -> None:
    result = report(SOME, present)
    assert (result.lost, result.duplicated, result.sound) == (lost, duplicated, False)


def test_what_nobody_was_told_of_is_reported_apart() -> None:
    result = report([*SOME, transaction(1, 2, None)], [*THEIR_ROWS, *rows((1, 2))])
    assert (result.unacknowledged, result.unfinished, result.sound) == (1, 1, True)
    assert result.max_ms == 20_000, "it counts with all the time it was given"


def test_what_ends_after_the_measured_time_is_checked_but_not_counted() -> None:
    late = [*SOME, transaction(1, 2, 15.0)]
    assert report(late, THEIR_ROWS).lost == 1
    counted = report(late, [*THEIR_ROWS, *rows((1, 2))])
    assert (counted.transactions, counted.finished_late, counted.max_ms) == (3, 1, 14_000)


def test_ratified_counts_everything_until_the_last_is_published() -> None:
    result = report([*SOME, transaction(1, 2, 15.0)], [*THEIR_ROWS, *rows((1, 2))], ack="ratified")
    assert (result.transactions, result.measured_s, result.transactions_per_s) == (4, 20.0, 0.2)


def test_a_writer_that_got_nothing_done_shows() -> None:
    assert report(SOME, THEIR_ROWS, writers=3).slowest_over_mean == 0.0


def test_versions_are_counted_where_the_system_tells_them() -> None:
    grouped = [Transaction(0, n, 1.0, 1.5, version) for n, version in enumerate([0, 7, 7, 7, 8])]
    result = report(grouped, rows(*((0, n) for n in range(5))), writers=1)
    assert (result.transactions_per_s, result.versions_per_s) == (0.4, 0.2)


def test_ids_tell_whose_they_are() -> None:
    assert {transaction_of(row) for row in batch(31, 9_999)["id"].to_pylist()} == {(31, 9_999)}
    assert batch(0, 1).num_rows == ROWS


def test_the_verdict_names_who_lost() -> None:
    assert verdict({"sluice": report(SOME, [])}) == "verdict: FAILED, sluice lost 5 and duplicated 0"


def printed(module: str, options: str) -> tuple[list[dict[str, Any]], str]:
    """What a benchmark prints, as objects, and what it says beside."""
    command = [sys.executable, "-m", f"benchmarks.{module}", *options.split()]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200, check=False)
    assert result.returncode == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()], result.stderr


@pytest.mark.slow
@pytest.mark.zookeeper
@pytest.mark.long
def test_a_short_run_prints_one_object_per_system() -> None:
    (ours, theirs), said = printed("commits", "--writers 2 --seconds 1 --latency-ms 0 --systems sluice,delta-rs")
    assert (ours["system"], theirs["system"]) == ("sluice", "delta-rs")
    for each in (ours, theirs):
        assert (each["writers"], each["lost"], each["duplicated"]) == (2, 0, 0)
        assert each["transactions"] > 0
        assert each["p99_ms"] >= each["p50_ms"] > 0
    assert "verdict: ok" in said


@pytest.mark.slow
@pytest.mark.zookeeper
@pytest.mark.long
def test_what_contention_costs_is_measured_with_and_without() -> None:
    [found], _ = printed("contention", "--appends 10 --writers 2 --seconds 2 --rounds 1")
    assert found["append"]["pairs"] == 10
    assert found["contended"]["with"][0]["commits_per_s"] > 0
    assert found["contended"]["without"][0]["commits_per_s"] > 0
    assert found["rows"] > 0


def engine_case(rule: str | None, stopped_by: int | None) -> engine.Measured:
    winners, _ = engine.history(20, 2)
    case = next(each for each in engine.cases(20, 2) if each.name == "delete that meets new rows")
    return engine.measure(replace(case, rule=rule, stopped_by=stopped_by), winners, 1)


def test_the_engines_verdicts_are_compared_with_what_the_history_was_made_for() -> None:
    assert engine_case("appended-what-i-read", 20).sound
    assert not engine_case("appended-what-i-read", 19).sound
    assert not engine_case("removed-what-i-read", 20).sound
    assert not engine_case(None, None).sound


@pytest.mark.long
def test_the_engine_is_measured_with_one_command() -> None:
    found, said = printed("engine", "--commits 40 --files 2 --repeat 1")
    assert len(found) == 2 * len(engine.cases(40, 2)) + 2
    assert all(each["sound"] for each in found)
    assert {each["files"] for each in found if each["measure"] == "all-winners"} == {80}
    assert "verdict: ok, every decision is right" in said


@pytest.mark.slow
@pytest.mark.long
def test_the_start_is_measured_in_processes_of_their_own() -> None:
    told = {each["system"]: each["import_s"] for each in printed("start", "--runs 1 --no-spark")[0]}
    assert told.keys() == {"python", "sluice", "sluice.Table", "deltalake", "pyarrow"}
    assert all(seconds >= 0 for seconds in told.values())


@pytest.mark.long
def test_opening_tables_is_measured_with_one_command() -> None:
    lines, said = printed("snapshots", "--files 3000 --wide 500 --row-group 1000 --repeat 1")
    found = [snapshots.Measured(**each) for each in lines]
    assert {(each.system, each.measure, each.partition_columns) for each in found} >= {
        ("sluice", "open", 1),
        ("sluice", "list", 1),
        ("delta-rs", "list", 1),
        ("sluice", "refresh", 1),
        ("sluice", "missing", snapshots.WIDE),
    }
    assert all(each.sound and each.peak_mb >= each.baseline_mb > 10 for each in found)
    assert "verdict: ok, every list has the files that were written" in said
    short = [replace(each, sound=each.measure != "list") for each in found]
    assert snapshots.verdict(short).startswith("verdict: FAILED: ")


@pytest.mark.long
def test_checkpoints_are_measured_with_one_command() -> None:
    found, said = printed("checkpoints", "--files 10000 --runs 1")
    assert all(each["sound"] and each["seconds"] > 0 for each in found)
    assert len(found) == 7
    assert "verdict: ok, every list has the files that were written" in said


@pytest.mark.slow
@pytest.mark.long
def test_long_logs_are_measured_with_one_command() -> None:
    found, said = printed("log_tails", "--commits 40 --latency-ms 0 --runs 1")
    assert {(each["store"], each["read_from"]) for each in found} == {
        (store, source) for store in ("disk", "S3") for source in ("commits", "a compaction", "a checkpoint")
    }
    assert all(each["sound"] for each in found)
    assert "verdict: ok" in said


@pytest.mark.slow
@pytest.mark.long
def test_the_overwrite_is_measured_step_by_step(tmp_path: Path) -> None:
    overwrite.make_table(tmp_path, 50)
    told = [each for step in ("replace", "reopen") for each in printed("overwrite", f"--files 50 --folder {tmp_path} --step {step}")[0]]
    assert [each["step"] for each in told] == ["open", "begin", "overwrite", "compare", "reopen"]
    assert all(each["files"] == 50 and each["peak_mb"] > 0 for each in told)
