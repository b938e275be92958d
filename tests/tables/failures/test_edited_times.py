"""A table whose in-commit timestamps another engine edited: it opens with a warning, can be read, and is not written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import orjson
import pyarrow as pa
import pytest

import sluice
from sluice.storage.errors import CorruptLogFile
from sluice.storage.log.paths import commit_path

ROWS = pa.table({"id": [1, 2, 3]})


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "table"


@pytest.fixture
def coordinator(tmp_path: Path) -> str:
    return f"memory://{tmp_path.name}-times"


def edit(place: Path, version: int, change: Callable[[int], int]) -> None:
    path = place / commit_path(version)
    first, *rest = path.read_bytes().splitlines()
    line = orjson.loads(first)
    line["commitInfo"]["inCommitTimestamp"] = change(line["commitInfo"]["inCommitTimestamp"])
    path.write_bytes(b"\n".join([orjson.dumps(line), *rest, b""]))


EDITS: dict[str, tuple[int, Callable[[int], int]]] = {
    "the last one, 30 days back": (3, lambda ms: ms - 30 * 24 * 3600 * 1000),
    "one in the middle, to the future": (1, lambda ms: ms + 30 * 24 * 3600 * 1000),
    "the last one, to nothing": (3, lambda _: 0),
    "the first one, to the future": (0, lambda ms: ms * 2),
}


@pytest.fixture(params=EDITS)
def edited(place: Path, coordinator: str, request: pytest.FixtureRequest) -> Path:
    table = sluice.Table.create(place, ROWS.schema, coordinator=coordinator)
    for _ in range(3):
        table.append(ROWS)
    table.close()
    edit(place, *EDITS[request.param])
    return place


@pytest.mark.shows("edited-times")
@pytest.mark.parametrize("consistency", ["latest", "published", "serial", "session"])
def test_it_opens_with_a_warning_and_every_version_can_be_read(
    edited: Path, coordinator: str, consistency: str, caplog: pytest.LogCaptureFixture
) -> None:
    table = sluice.Table.open(edited, coordinator=coordinator, consistency=consistency)
    assert table.snapshot().to_arrow().num_rows == 9
    for version in range(4):
        assert table.snapshot(version=version).to_arrow().num_rows == 3 * version
    assert len(list(table.history())) == 4
    assert "can be read, and not written" in caplog.text


WRITES: dict[str, Callable[[sluice.Table], object]] = {
    "append": lambda table: table.append(ROWS),
    "overwrite": lambda table: table.overwrite(ROWS),
    "delete": lambda table: table.delete("id = 1"),
    "update": lambda table: table.update({"id": "id + 1"}),
    "truncate": lambda table: table.truncate(),
    "compact": lambda table: table.compact(),
    "properties": lambda table: table.set_properties({"a": "b"}),
    "restore": lambda table: table.restore(version=1),
    "checkpoint": lambda table: table.checkpoint(),
    "vacuum": lambda table: table.vacuum(retain_hours=0, force=True),
    "detach": lambda table: table.detach(),
}


@pytest.mark.parametrize("way", WRITES)
def test_it_is_not_written(edited: Path, coordinator: str, way: str) -> None:
    table = sluice.Table.open(edited, coordinator=coordinator)
    before = sorted((path, path.stat().st_mtime_ns) for path in edited.rglob("*") if path.is_file())
    with pytest.raises(CorruptLogFile, match=r"can be read, and not written.*sluice doctor names it; restore it from a copy"):
        WRITES[way](table)
    assert sorted((path, path.stat().st_mtime_ns) for path in edited.rglob("*") if path.is_file()) == before


def test_it_is_neither_attached_nor_recovered(edited: Path, tmp_path: Path) -> None:
    other = f"memory://{tmp_path.name}-other"
    with pytest.raises(CorruptLogFile, match="can be read, and not written"):
        sluice.recover(edited, coordinator=other, wait_s=0)
    with pytest.raises(CorruptLogFile, match="can be read, and not written"):
        sluice.Table.attach(edited, coordinator=other)


def test_doctor_names_the_version_and_writing_goes_on_when_it_is_restored(place: Path, coordinator: str) -> None:
    table = sluice.Table.create(place, ROWS.schema, coordinator=coordinator)
    for _ in range(3):
        table.append(ROWS)
    table.close()
    kept = (place / commit_path(2)).read_bytes()
    edit(place, 2, lambda ms: ms - 1_000_000)
    report = sluice.doctor(place, coordinator=coordinator)
    assert [each.about for each in report.findings if "timestamp" in each.what] == [commit_path(2)]
    (place / commit_path(2)).write_bytes(kept)
    again = sluice.Table.open(place, coordinator=coordinator)
    again.append(ROWS)
    assert again.snapshot().to_arrow().num_rows == 12
