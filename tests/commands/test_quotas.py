"""`sluice quotas`: what is listed, and what setting and removing one say."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

import sluice
from sluice.cli import main

ROWS = pa.table({"id": [1]})


@pytest.fixture
def coordinator() -> str:
    return f"memory://{uuid.uuid4().hex}"


def run(coordinator: str, *arguments: str, exit_code: int = 0) -> Result:
    result = CliRunner().invoke(main, ["quotas", *arguments, "--coordinator", coordinator])
    assert result.exit_code == exit_code, result.output
    return result


def listed(coordinator: str) -> Any:
    return json.loads(run(coordinator, "--json").stdout)


def test_quotas_are_set_listed_replaced_and_removed(coordinator: str, tmp_path: Path) -> None:
    assert run(coordinator).output == "none\n"
    assert run(coordinator, "set", "--slots", "16").output == "set: application * on table *: slots: 16\n"
    named = ("--application", "backfill", "--table", str(tmp_path / "t"))
    answer = run(coordinator, "set", *named, "--commits-per-second", "0.5", "--bytes-per-second", "50mb")
    said = answer.stdout
    assert f"keeps no table at file://{tmp_path}/t yet" in answer.stderr
    assert said == f"set: application backfill on table file://{tmp_path}/t: commits per second: 0.5, bytes per second: 52,428,800\n"
    every, backfill = listed(coordinator)
    assert every == {
        "application": "*",
        "table": "*",
        "slots": 16,
        "commits_per_s": None,
        "bytes_per_s": None,
        "in_flight": 0,
        "waiting": 0,
        "waiting_since": None,
    }
    assert (backfill["table"], backfill["slots"], backfill["bytes_per_s"]) == (f"file://{tmp_path}/t", None, 50 << 20)
    run(coordinator, "set", *named, "--slots", "2")
    assert [each["slots"] for each in listed(coordinator)] == [16, 2]
    assert "commits/s" in run(coordinator).output
    assert run(coordinator, "remove", *named).stdout == f"removed: application backfill on table file://{tmp_path}/t: no limit\n"
    assert [each["application"] for each in listed(coordinator)] == ["*"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("set",), "give at least one of --slots"),
        (("set", "--slots", "0"), "a whole number, 1 or more"),
        (("set", "--slots", "many"), "a whole number, 1 or more"),
        (("set", "--commits-per-second", "0"), "more than 0"),
        (("set", "--commits-per-second", "-1"), "more than 0"),
        (("set", "--bytes-per-second", "some"), "a size like"),
        (("set", "--slots", "1", "--table", "ftp://x/y"), "ftp"),
        (("remove",), "has no quota on table *"),
    ],
)
def test_what_is_wrong_is_said(coordinator: str, arguments: tuple[str, ...], says: str) -> None:
    assert says in run(coordinator, *arguments, exit_code=2).output
    assert listed(coordinator) == []


def test_without_options_the_quotas_are_listed(coordinator: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLUICE_COORDINATOR", coordinator)
    result = CliRunner().invoke(main, ["quotas"])
    assert (result.exit_code, result.output) == (0, "none\n")


def test_a_quota_concerns_the_next_commit(coordinator: str, tmp_path: Path) -> None:
    table = sluice.Table.create(tmp_path / "t", ROWS.schema, coordinator=coordinator, application="load")
    table.append(ROWS)
    run(coordinator, "set", "--application", "load", "--commits-per-second", "0.01")
    table.append(ROWS)
    with pytest.raises(sluice.errors.QuotaExceeded):
        table.append(ROWS, timeout_s=1)
    run(coordinator, "remove", "--application", "load")
    table.append(ROWS, timeout_s=1)
