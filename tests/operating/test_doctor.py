"""`sluice doctor`: each kind of damage is found and named, and a table in order has none."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner

import sluice
from sluice.cli import main
from sluice.storage.errors import TableNotFound
from sluice.storage.log.paths import checkpoint_path, commit_path
from tests.storage.logs import crc_path

ROWS = pa.table({"id": [1, 2, 3]})


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "table"


@pytest.fixture
def coordinator(tmp_path: Path) -> str:
    return f"memory://{tmp_path.name}"


@pytest.fixture
def table(place: Path, coordinator: str) -> sluice.Table:
    made = sluice.Table.create(place, ROWS.schema, coordinator=coordinator)
    for _ in range(8):
        made.append(ROWS)
    return made


def copy_over(source: int, target: int) -> Callable[[Path], object]:
    return lambda place: (place / commit_path(target)).write_bytes((place / commit_path(source)).read_bytes())


def first_file(place: Path) -> Path:
    return next(place.glob("part-*.parquet"))


def write_crc(place: Path) -> None:
    (place / crc_path(3)).write_text(json.dumps({"inCommitTimestampOpt": 5, "numFiles": 3}))


DAMAGE: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "an earlier version copied over": (copy_over(3, 5), commit_path(5), "has the content of version 3"),
    "a later version copied over": (copy_over(7, 5), commit_path(5), "has the content of version 7"),
    "the last one overwritten": (copy_over(7, 8), commit_path(8), "has the content of version 7"),
    "a version removed": (lambda place: (place / commit_path(4)).unlink(), commit_path(4), "version 4 is missing"),
    "a version damaged": (lambda place: (place / commit_path(4)).write_bytes(b'{"add":'), commit_path(4), "cannot be read"),
    "a checksum of something else": (write_crc, commit_path(3), "the version checksum has inCommitTimestampOpt 5"),
    "a data file removed": (lambda place: first_file(place).unlink(), "part-", "it is not there"),
    "a data file cut off": (lambda place: first_file(place).write_bytes(b"PAR1"), "part-", "this file has 4 bytes"),
    "a checkpoint damaged": (lambda place: (place / checkpoint_path(8)).write_bytes(b"PAR1"), checkpoint_path(8), "cannot be read"),
}


def test_a_table_in_order(table: sluice.Table, place: Path, coordinator: str) -> None:
    table.checkpoint()
    table.delete("id = 1")
    table.vacuum()
    with table.snapshot().pin(), table.consumer("billing"):
        found = sluice.doctor(place, coordinator=coordinator)
    assert (found.ok, found.version, found.coordinated, found.findings) == (True, 9, True, ())
    assert sluice.doctor(place).ok


@pytest.mark.parametrize("kind", DAMAGE)
def test_damage_is_found_and_named(table: sluice.Table, place: Path, coordinator: str, kind: str) -> None:
    damage, about, what = DAMAGE[kind]
    if kind == "a checkpoint damaged":
        table.checkpoint()
    before = sorted(path for path in place.rglob("*") if path.is_file())
    damage(place)
    stored = {path: path.read_bytes() for path in place.rglob("*") if path.is_file()}
    found = sluice.doctor(place, coordinator=coordinator)
    assert not found.ok
    assert any(each.severity == "error" and about in each.about and what in each.what and each.remedy for each in found.findings), found
    assert {path: path.read_bytes() for path in place.rglob("*") if path.is_file()} == stored
    assert set(stored) <= set(before) | {place / crc_path(3)}
    result = CliRunner().invoke(main, ["doctor", str(place), "--coordinator", coordinator, "--json"])
    assert result.exit_code == 1
    assert json.loads(result.output)["ok"] is False
    told = CliRunner().invoke(main, ["doctor", str(place), "--coordinator", coordinator])
    assert "NOT IN ORDER" in told.output
    assert "Remedy:" in told.output


def test_a_checksum_that_counts_otherwise_is_named(table: sluice.Table, place: Path) -> None:
    """It is a warning: what the log says counts. Those of other versions are right."""
    table.checkpoint()
    table.append(pa.table({"id": [100]}))
    version = table.checkpoint()
    assert sluice.doctor(place).findings == ()
    checksum = place / crc_path(version)
    says = json.loads(checksum.read_text())
    checksum.write_text(json.dumps({**says, "numFiles": 3, "setTransactions": [{"appId": "x", "version": 1}]}))
    found = sluice.doctor(place)
    assert found.ok
    (finding,) = found.findings
    assert (finding.severity, finding.about) == ("warning", crc_path(version))
    assert f"numFiles is 3 in it and {says['numFiles']} in the log; setTransactions is {{'x': 1}} in it and {{}}" in finding.what
    assert "remove the checksum" in finding.remedy
    checksum.write_text("{")
    (finding,) = sluice.doctor(place).findings
    assert "cannot be read" in finding.what
    checksum.unlink()
    assert sluice.doctor(place).findings == ()


def test_the_checksums_of_a_log_that_cannot_be_read_are_left_out(table: sluice.Table, place: Path) -> None:
    table.checkpoint()
    (place / commit_path(4)).unlink()
    (place / checkpoint_path(8)).unlink()
    found = sluice.doctor(place).findings
    assert not [each for each in found if each.about == crc_path(8)]


def test_a_last_version_of_equal_size_that_was_not_ratified_is_found(table: sluice.Table, place: Path, coordinator: str) -> None:
    path = place / commit_path(8)
    path.write_bytes(path.read_bytes().replace(b"WRITE", b"WRITF"))
    assert sluice.doctor(place).ok  # without the coordinator nobody knows
    found = sluice.doctor(place, coordinator=coordinator)
    assert [each.about for each in found.findings if each.severity == "error"] == [commit_path(8)]
    assert "differs from the ratified one" in found.findings[0].what


def test_what_does_not_belong_there_is_told(table: sluice.Table, place: Path, coordinator: str) -> None:
    context = table.coordinated.context
    context.coordination.create(f"{context.tree.root}/something")
    context.coordination.create(f"{context.tree.verdicts}/something")
    (place / "_delta_log" / "notes.txt").write_text("hello")
    found = sluice.doctor(place, coordinator=coordinator)
    assert found.ok
    assert sorted(each.about.rpartition("/")[2] for each in found.findings) == ["notes.txt", "something", "something"]


def test_where_there_is_no_table(tmp_path: Path) -> None:
    with pytest.raises(TableNotFound):
        sluice.doctor(tmp_path / "nothing")
