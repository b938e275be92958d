"""A table whose in-commit timestamps another engine edited: it opens with a warning, can be read, and is not written.

A log file that another version's copy overwrote, or that was damaged, while clients work: they notice, and stop.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

import orjson
import pyarrow as pa
import pytest

import sluice
from sluice.coordinator.nodes.records import VersionPlan
from sluice.coordinator.publication import publisher
from sluice.storage.errors import Corrupt, CorruptLogFile
from sluice.storage.log.paths import commit_path
from tests.tables.conftest import present

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


@pytest.fixture
def table(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> sluice.Table:
    monkeypatch.setattr(publisher, "_FILES_EVERY_S", 0.0)
    made = sluice.Table.create(place, ROWS.schema, coordinator=f"memory://{tmp_path.name}")
    for _ in range(6):
        made.append(ROWS)
    return made


def copy_over(place: Path, source: int, target: int) -> None:
    (place / commit_path(target)).write_bytes((place / commit_path(source)).read_bytes())


@pytest.mark.notices("timestamps-grow")
@pytest.mark.parametrize(("source", "target"), [(3, 5), (5, 3), (5, 6), (2, 6), (6, 5)])
def test_a_copy_over_another_version_is_refused_by_readers(table: sluice.Table, place: Path, source: int, target: int) -> None:
    coordinator = table.access.address.coordinator
    copy_over(place, source, target)
    for consistency in ("latest", "published"):
        with pytest.raises(CorruptLogFile, match=r"in-commit timestamp.*sluice doctor names it"):
            sluice.Table.open(place, coordinator=coordinator, consistency=consistency).snapshot().to_arrow()


DAMAGE: dict[str, Callable[[Path], object]] = {
    "another version's copy": lambda place: copy_over(place, 4, 6),
    "cut off": lambda place: (place / commit_path(6)).write_bytes((place / commit_path(6)).read_bytes()[:50]),
    "removed": lambda place: (place / commit_path(6)).unlink(),
    "an older one": lambda place: copy_over(place, 4, 2),
}


@pytest.mark.notices("damage-stops-writers")
@pytest.mark.parametrize("kind", DAMAGE)
def test_living_writers_stop_behind_a_damaged_file_and_go_on_when_it_is_restored(table: sluice.Table, place: Path, kind: str) -> None:
    kept = {path: path.read_bytes() for path in (place / "_delta_log").iterdir()}
    DAMAGE[kind](place)

    def write() -> None:
        for _ in range(50):
            table.append(ROWS)
            time.sleep(0.01)  # the look is in the background

    with pytest.raises(Corrupt, match=r"differs from the commit of version [26]"):
        write()
    latest = table.snapshot().version
    assert latest < 50
    for path, content in kept.items():
        path.write_bytes(content)
    table.append(ROWS)
    assert sluice.doctor(place, coordinator=table.access.address.coordinator).ok


def test_a_transaction_over_several_tables_stops_behind_a_damaged_file(table: sluice.Table, place: Path, tmp_path: Path) -> None:
    coordinator = table.access.address.coordinator
    other = sluice.Table.create(tmp_path / "other", ROWS.schema, coordinator=coordinator)
    table.coordinated.publisher.log_checks._damaged = VersionPlan(6, 0, (), "another digest")
    both = sluice.transaction(tables=[table, other])
    both[table].append(ROWS)
    both[other].append(ROWS)
    with pytest.raises(Corrupt, match="differs from the commit of version 6"):
        both.commit()
    assert (table.snapshot().version, other.snapshot().version) == (6, 0)


def test_a_log_that_is_gone_is_no_damaged_file(table: sluice.Table, place: Path) -> None:
    """A look at the log may come upon the deleted folder first."""
    doomed = table.begin()
    doomed.append(ROWS)
    shutil.rmtree(place)
    table.coordinated.publisher.log_checks._damaged = VersionPlan(doomed.read_version, 0, (), "what it had")
    with pytest.raises(sluice.errors.LogGap, match="sluice forget"):
        doomed.commit()


@pytest.mark.notices("damage-is-no-clean-up")
def test_a_log_that_was_cleaned_up_is_no_damage(table: sluice.Table, place: Path) -> None:
    table.checkpoint()
    for version in range(6):
        (place / commit_path(version)).unlink()
    for _ in range(12):
        table.append(ROWS)
    table.close()
    assert table.coordinated._helping.drain(10)
    table.coordinated.publisher.log_checks.require_sound()
    assert sluice.Table.open(place, coordinator=table.access.address.coordinator).version == 18


def test_a_look_at_the_log_delays_no_publication(table: sluice.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store answers no look, as one that takes long; what was acknowledged as ratified is published meanwhile."""
    looked, go = threading.Event(), threading.Event()

    def wait(*_: object) -> None:
        looked.set()
        assert go.wait(30)

    files = table.coordinated.publisher.log_checks
    monkeypatch.setattr(files, "due", lambda: True)
    monkeypatch.setattr(files, "look", wait)
    try:
        table.append(ROWS, ack="ratified")
        assert looked.wait(10)
        last = present(table.append(ROWS, ack="ratified"))
        assert table.coordinated.background.drain(10)
        assert table.coordinated.published_version() == last.version
    finally:
        go.set()
