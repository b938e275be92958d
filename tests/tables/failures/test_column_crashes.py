"""Columns are renamed and dropped beside eight writers, and either side dies by SIGKILL at every step, on a real ZooKeeper.

Goal: each append that was acknowledged is there once; no writer is refused; whether the column changed is decided, and the same for
everybody: for `outcome`, for the log as raw text, and for delta-rs.
"""

from __future__ import annotations

import json
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

import sluice
from sluice.coordinator.publication.failure_points import FAILPOINTS
from tests.killed import Ended, until_ended, until_killed
from tests.tables import column_program
from tests.tables.conftest import Place
from tests.tables.mapped import made, rename

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string()), ("p", pa.string())])
WRITERS = range(1, 9)
OPERATIONS = {"rename": ("RENAME COLUMN",), "drop": ("DROP COLUMNS", "ADD COLUMNS")}
NOTHING_FILED = {"data-staged", "actions-staged", "before-claim"}
SLOTS = {"actions-staged", "before-claim", "after-claim"}
"""Points that a commit on the fast path does not pass."""

MATRIX: list[Any] = [("rename", failpoint, False) for failpoint in FAILPOINTS]
MATRIX += [pytest.param("drop", failpoint, False, marks=pytest.mark.long) for failpoint in FAILPOINTS]
MATRIX += [(does, failpoint, True) for does, failpoint in zip(("drop", "rename") * 5, FAILPOINTS, strict=True) if failpoint not in SLOTS]


def create(location: Path, coordinator: str) -> sluice.Table:
    return made(Place(str(location), coordinator), SCHEMA)


def actions_of(location: Path, kind: str) -> list[dict[str, Any]]:
    """The actions of a kind in the log, as it is on the disk."""
    files = sorted((location / "_delta_log").glob("*.json"))
    assert [int(file.stem) for file in files] == list(range(len(files)))
    return [each[kind] for file in files for line in file.read_text().splitlines() if kind in (each := json.loads(line))]


def names_in_log(location: Path) -> list[str]:
    return sorted(field["name"] for field in json.loads(actions_of(location, "metaData")[-1]["schemaString"])["fields"])


def rows_for_delta_rs(location: Path) -> list[dict[str, Any]]:
    rows = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(str(location))).execute("SELECT * FROM t ORDER BY id").read_all()
    return pa.table(rows).to_pylist()


@dataclass
class Crew:
    """Eight writers in two processes, that append until told to stop."""

    location: Path
    coordinator: str
    pool: ThreadPoolExecutor
    running: list[Future[Ended]] = field(default_factory=list)

    @property
    def over(self) -> Path:
        return self.location.with_name("over")

    def __enter__(self) -> Crew:
        for writers in (WRITERS[:4], WRITERS[4:]):
            order = {"location": str(self.location), "coordinator": self.coordinator, "writers": list(writers), "until": str(self.over)}
            self.running.append(self.pool.submit(until_ended, column_program.writes, order))
        self.go_on(10)
        return self

    def __exit__(self, *_: object) -> None:
        self.over.touch()

    def go_on(self, versions: int) -> None:
        """Wait until the writers have made so many versions more."""
        before, deadline = self._versions(), time.monotonic() + 60
        while self._versions() < before + versions and not any(each.done() for each in self.running):
            assert time.monotonic() < deadline, "the writers stand still"
            time.sleep(0.02)

    def _versions(self) -> int:
        return len(list((self.location / "_delta_log").glob("*.json")))

    def acknowledged(self) -> list[int]:
        """The ids of all rows whose appends were acknowledged. Nobody was refused, nor failed otherwise."""
        ended = [each.result() for each in self.running]
        assert [(each.status, each.errors) for each in ended] == [(0, "")] * len(ended)
        return sorted(int(word) for each in ended for word in each.output.split())


@pytest.mark.costly
@pytest.mark.slow
@pytest.mark.zookeeper
@pytest.mark.many
@pytest.mark.shows("columns-killed")
@pytest.mark.parametrize(("does", "failpoint", "in_sql"), MATRIX)
def test_who_changes_a_column_is_killed_beside_eight_writers(
    does: str, failpoint: str, in_sql: bool, tmp_path: Path, zookeeper_address: str
) -> None:
    location = tmp_path / "table"
    table = create(location, zookeeper_address)
    with ThreadPoolExecutor(2) as pool, Crew(location, zookeeper_address, pool) as crew:
        order = {"location": str(location), "coordinator": zookeeper_address, "does": does, "in_sql": in_sql}
        words = until_killed(column_program.change, {**order, "staged": failpoint == "actions-staged"}, failpoint=failpoint)
        crew.go_on(20)
    acknowledged = crew.acknowledged()

    states = [table.outcome(word).state for word in words if word != "changed"]
    assert set(states) <= {"committed", "refused", "unknown"}
    done, told = sum(each["operation"] in OPERATIONS[does] for each in actions_of(location, "commitInfo")), words.count("changed")
    assert done == states.count("committed"), (words, states)
    assert done - told == (failpoint not in NOTHING_FILED) or (in_sql and done == told)
    names = ["id", "p"] if does == "drop" and done % 2 else ["id", "p", "w" if done % 2 else "v"]
    assert sorted(table.refresh().schema.names) == names_in_log(location) == names

    rows = sorted(table.snapshot().to_arrow().to_pylist(), key=lambda row: row["id"])
    assert [row["id"] for row in rows] == acknowledged
    for row in rows:
        value = f"v{row['id']}" if row["id"] // 1000 % 2 else None
        assert row.get("w", row.get("v")) in ([value] if does == "rename" else [value, None])
    assert rows_for_delta_rs(location) == rows

    if len(names) > 2:  # whoever comes next may change it, too
        rename(table, **{names[-1]: "later"})
        assert names_in_log(location) == ["id", "later", "p"]


@pytest.mark.costly
@pytest.mark.slow
@pytest.mark.zookeeper
@pytest.mark.many
@pytest.mark.shows("columns-killed")
@pytest.mark.parametrize("failpoint", FAILPOINTS)
def test_eight_writers_are_killed_while_a_column_is_renamed(failpoint: str, tmp_path: Path, zookeeper_address: str) -> None:
    """Each dies at another passage of the point. Who renames the column goes on all the time, and is never refused."""
    location = tmp_path / "table"
    table = create(location, zookeeper_address)
    order = {"location": str(location), "coordinator": zookeeper_address, "staged": failpoint == "actions-staged"}

    def doomed(writer: int) -> list[int]:
        words = until_killed(column_program.dies, {**order, "writer": writer}, failpoint=f"{failpoint}:{2 + writer // 2}")
        return [int(word) for word in words]

    renamed = 0
    with ThreadPoolExecutor(len(WRITERS)) as pool:
        dying = [pool.submit(doomed, writer) for writer in WRITERS]
        while not all(each.done() for each in dying):
            rename(table, **{table.refresh().schema.names[1]: f"v{renamed}"})
            renamed += 1
        acknowledged = {number for each in dying for number in each.result()}

    rename(table, **{table.refresh().schema.names[1]: "last"})
    rows = table.refresh().snapshot().to_arrow().to_pylist()
    there = [row["id"] for row in rows]
    assert len(set(there)) == len(there)
    assert acknowledged <= {*there}
    ends = {writer: max((n for n in acknowledged if n // 1000 == writer), default=1000 * writer - 1) for writer in WRITERS}
    assert {*there} - acknowledged <= {1 + end for end in ends.values()}, "only what a writer was at when it died may be there, too"
    assert all(row["last"] == (f"v{row['id']}" if row["id"] // 1000 % 2 else None) for row in rows)
    operations = [each["operation"] for each in actions_of(location, "commitInfo")]
    assert operations.count("RENAME COLUMN") == renamed + 1
    assert rows_for_delta_rs(location) == sorted(rows, key=lambda row: row["id"])
