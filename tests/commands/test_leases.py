"""`sluice leases`: what is listed, and what breaking one does to its holder."""

from __future__ import annotations

import json
import threading
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

import sluice
from sluice.cli import main

SCHEMA = pa.schema([pa.field("id", pa.int64()), pa.field("origin", pa.string())])


@pytest.fixture
def coordinator() -> str:
    return f"memory://{uuid.uuid4().hex}"


@pytest.fixture
def table(tmp_path: Path, coordinator: str) -> sluice.Table:
    return sluice.Table.create(tmp_path / "t", SCHEMA, partition_by=["origin"], coordinator=coordinator, application="nightly")


def run(*arguments: str, answer: str | None = None) -> Result:
    return CliRunner().invoke(main, ["leases", *arguments], input=answer)


def listed(location: str, coordinator: str, *more: str) -> Any:
    result = run(location, "--coordinator", coordinator, "--json", *more)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_the_list_tells_who_holds_and_who_waits_for_whom(table: sluice.Table, coordinator: str) -> None:
    with table.lease(where="origin = 'JFK'", name="load") as lease:
        asking = threading.Thread(target=lambda: table.lease("shared", wait_s=5).release())
        asking.start()
        while len(listed(table.location, coordinator)["leases"]) < 2:
            pass
        held, waiting = listed(table.location, coordinator)["leases"]
        text = run(table.location, "--coordinator", coordinator).stdout
        lease.release()
        asking.join(30)
    assert held["held"]
    assert (held["mode"], held["where"], held["name"], held["application"]) == ("exclusive", "origin = 'JFK'", "load", "nightly")
    assert held["token"] == lease.token
    assert held["age_ms"] >= 0
    assert (waiting["held"], waiting["waits_for"], waiting["mode"]) == (False, held["lease"], "shared")
    assert f"waits for {held['lease']}" in " ".join(text.split()) or held["lease"][:20] in text
    assert listed(table.location, coordinator) == {"leases": [], "broken": []}


def test_a_name_that_is_no_table(coordinator: str) -> None:
    with sluice.lease("nightly load/../x", coordinator=coordinator, application="job"):
        [entry] = listed("nightly load/../x", coordinator, "--name")["leases"]
    assert (entry["application"], entry["name"]) == ("job", "nightly load/../x")
    assert listed("nobody", coordinator, "--name") == {"leases": [], "broken": []}


def test_a_broken_lease_is_lost_and_on_record(table: sluice.Table, coordinator: str) -> None:
    rows = pa.table({"id": [1], "origin": ["JFK"]}, schema=SCHEMA)
    lease = table.lease()
    [entry] = listed(table.location, coordinator)["leases"]
    asked = run("break", table.location, entry["lease"], "--coordinator", coordinator, answer="n\n")
    assert asked.exit_code == 1
    assert "take the exclusive lease on" in asked.stderr
    assert lease.held
    table.append(rows)

    result = run("break", table.location, entry["lease"], "--coordinator", coordinator, "--yes", "--reason", "it hangs")
    assert result.exit_code == 0, result.output
    assert lease.lost.wait(5)
    with pytest.raises(sluice.errors.LeaseLost):
        table.append(rows)
    with pytest.raises(sluice.errors.LeaseLost, match=r"broken by .*@.* \(it hangs\)"), lease:
        assert not lease.held
    table.append(rows)
    [record] = listed(table.location, coordinator)["broken"]
    assert (record["node"], record["reason"]) == (entry["lease"], "it hangs")
    assert "nightly on" in record["holder"]
    assert "(it hangs)" in run(table.location, "--coordinator", coordinator).stdout


def test_a_commit_under_a_broken_lease_tells_who_broke_it_and_why(table: sluice.Table, coordinator: str) -> None:
    with suppress(sluice.errors.LeaseLost), table.lease():
        [entry] = listed(table.location, coordinator)["leases"]
        run("break", table.location, entry["lease"], "--coordinator", coordinator, "--yes", "--reason", "it hangs")
        with pytest.raises(sluice.errors.LeaseLost, match=r"is gone, broken by .*@.* \(it hangs\); take the lease again"):
            table.append(pa.table({"id": [1], "origin": ["JFK"]}, schema=SCHEMA))


@pytest.mark.parametrize("lease", ["l-x-0000000000", "../head", "head", ""])
def test_breaking_what_is_not_there(table: sluice.Table, coordinator: str, lease: str) -> None:
    result = run("break", table.location, lease, "--coordinator", coordinator, "--yes")
    assert result.exit_code == 2
    assert "sluice: InvalidRequest:" in result.stderr


@pytest.mark.parametrize("command", [["NOTHERE"], ["break", "NOTHERE", "l-1", "--yes"]])
def test_a_table_that_is_not_there_has_no_leases(tmp_path: Path, coordinator: str, command: list[str]) -> None:
    words = [str(tmp_path / "no table") if word == "NOTHERE" else word for word in command]
    result = run(*words, "--coordinator", coordinator)
    assert result.exit_code == 2
    assert result.stderr.startswith("sluice: TableNotFound: the coordinator keeps no table at file://")
