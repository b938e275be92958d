"""Shells as processes on a real ZooKeeper: two that work at once, and one that is killed."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import deltalake
import pytest

import sluice
from sluice.coordinator.publication.failure_points import FAILPOINTS
from sluice.shell.engines import LOCAL, Engines

pytestmark = pytest.mark.zookeeper

NAMES = ("sales.a", "sales.b", "sales.c")
EXPECTED = {"TableExists", "TableNotFound", "TableDropped", "NotATable", "LeaseHeld"}


def statements(seed: int, count: int) -> list[str]:
    """Statements of one shell. A row names its shell and its statement."""
    chance = random.Random(seed)
    found: list[str] = []
    for number in range(count):
        one, other = chance.sample(NAMES, 2)
        row = f"'{seed}-{number}'"
        found.append(
            chance.choice(
                [
                    f"CREATE TABLE {one} (id STRING) USING sluice",
                    f"CREATE TABLE IF NOT EXISTS {one} (id STRING) USING sluice",
                    f"CREATE TABLE {one} USING sluice AS SELECT {row} AS id",
                    f"ALTER TABLE {one} RENAME TO {other}",
                    f"DROP TABLE {one}",
                    f"UNDROP TABLE {one}",
                    *[f"INSERT INTO {one} VALUES ({row})"] * 4,
                    f"BEGIN ATOMIC INSERT INTO {one} VALUES ({row}); INSERT INTO {other} VALUES ({row}); END",
                ]
            )
        )
    return found


def is_conflict(name: str) -> bool:
    found = getattr(sluice.errors, name, None)
    return found is not None and issubclass(found, sluice.errors.ConcurrentModification)


@pytest.mark.costly
@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in (2, 3, 4))])
def test_two_shells_create_rename_drop_and_write_at_once(tmp_path: Path, zookeeper_address: str, seed: int) -> None:
    catalog = sluice.Catalog(zookeeper_address, root=tmp_path / "tables")
    catalog.create_namespace("sales")
    command = [sys.executable, "-m", "tests.shell.busy_shell", zookeeper_address]
    shells = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    try:
        for number, each in enumerate(shells):
            assert each.stdin is not None
            each.stdin.write("\n".join(statements(10 * seed + number, 30)))
            each.stdin.close()
        told = [json.loads(line) for each in shells if each.stdout is not None for line in each.stdout]
        assert [each.wait(60) for each in shells] == [0, 0]
    finally:
        for each in shells:
            each.kill()
            each.wait()
            if each.stdout is not None:
                each.stdout.close()
    unclear = [(text, error) for text, error in told if error is not None and error not in EXPECTED and not is_conflict(error)]
    assert unclear == []
    acknowledged = Counter(row for text, error in told if error is None for row in re.findall(r"'(\d+-\d+)'", text))
    written: Counter[str] = Counter()
    for first in (tmp_path / "tables").rglob("_delta_log/00000000000000000000.json"):  # also those of tables that were dropped
        written.update(deltalake.DeltaTable(str(first.parent.parent)).to_pyarrow_table()["id"].to_pylist())
    assert written == acknowledged
    engines = Engines(LOCAL, coordinator=zookeeper_address)
    for table in catalog.tables("sales"):
        assert engines.run(f"DESCRIBE DETAIL {table.full_name}").rows.column("location").to_pylist() == [table.location]
    engines.close()


BLOCK = """BEGIN ATOMIC KEY 'once'
  INSERT INTO sales.loaded SELECT id FROM sales.seats WHERE n > 1;
  MERGE INTO sales.seats t USING (SELECT max(id) AS id FROM sales.loaded) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET n = t.n + 1;
END"""
COPY = "COPY INTO sales.loaded FROM '{folder}' FILEFORMAT = CSV"
IN_QUEUE = ("before-claim", "after-claim")
FEW = {("block", "after-claim"), ("block", "after-ratify"), ("copy", "before-ratify"), ("copy", "after-ratify")}
STEPS = [
    pytest.param(what, step, marks=() if (what, step) in FEW else pytest.mark.long)
    for what in ("block", "copy")
    for step in FAILPOINTS
    if step != "actions-staged" and not (what == "copy" and step in IN_QUEUE)  # a COPY alone ratifies without a slot
]


@pytest.mark.costly
@pytest.mark.parametrize(("what", "step"), STEPS)
@pytest.mark.many
def test_a_shell_that_is_killed_and_its_script_repeated(tmp_path: Path, zookeeper_address: str, what: str, step: str) -> None:
    catalog = sluice.Catalog(zookeeper_address, root=tmp_path / "tables")
    catalog.create_namespace("sales")
    engines = Engines(LOCAL, coordinator=zookeeper_address)
    engines.run("CREATE TABLE sales.loaded (id BIGINT) USING sluice")
    engines.run("CREATE TABLE sales.seats USING sluice AS SELECT * FROM VALUES (1L, 1L), (2L, 2L), (3L, 3L) AS x(id, n)")
    files = tmp_path / "files"
    files.mkdir()
    for number in (2, 3):
        (files / f"{number}.csv").write_text(f"{number}\n", encoding="utf-8")
    text = BLOCK if what == "block" else COPY.format(folder=files)

    def held() -> tuple[list[int], list[int]]:
        loaded, seats = sluice.read_together([catalog.open("sales.loaded"), catalog.open("sales.seats")])
        ordered = sorted(seats.to_arrow().to_pylist(), key=lambda row: row["id"])
        return sorted(loaded.to_arrow()["id"].to_pylist()), [row["n"] for row in ordered]

    before: tuple[list[int], list[int]] = ([], [1, 2, 3])
    after = ([2, 3], [1, 2, 4] if what == "block" else [1, 2, 3])
    command = [sys.executable, "-m", "sluice", "sql", "--engine", "local", "--coordinator", zookeeper_address, "-e", text]
    done = subprocess.run(command, env={**os.environ, "SLUICE_FAILPOINT": step}, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == -signal.SIGKILL, f"{step}: exit status {done.returncode}\n{done.stdout}{done.stderr}"
    nothing_filed = step in ("data-staged", "before-claim") or (what == "copy" and step == "before-ratify")
    engines.run("INSERT INTO sales.seats VALUES (0, 0)")  # decides what the dead one left in the queue
    expected = before if nothing_filed else after
    assert held() == (expected[0], [0, *expected[1]])
    for _ in range(2):
        engines.run(text)
        assert held() == (after[0], [0, *after[1]])
    engines.close()
