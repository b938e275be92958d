"""All tables of a lost coordinator are recovered together: they wait once."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import deltalake
import pytest
from click.testing import CliRunner

import sluice
from sluice.cli import main
from sluice.coordinator.service.clock import SystemClock
from sluice.storage.log.paths import commit_path
from sluice.storage.stores.location import normalise, open_store
from sluice.storage.stores.memory import MemoryStore
from sluice.tables.manage import recovery as recovering
from sluice.tables.manage.recovery import Recovered, tables_below
from tests.tables.conftest import Place, flights, rows_of
from tests.tables.elsewhere import former_of, lose_everything

NAMES = ["a", "b/c", "b/d", "Upper", "_hidden", "z-last"]


@pytest.fixture
def places(tmp_path: Path) -> list[Place]:
    coordinator = f"memory://all-{os.urandom(8).hex()}"
    made = [Place(str(tmp_path / "lake" / name), coordinator) for name in NAMES]
    for place in made:
        place.create()
        place.open().append(flights(("JFK", 1, 1)))
    return made


def all_of(places: list[Place], **options: Any) -> dict[str, Recovered]:
    root = places[0].location.rpartition("/")[0]
    return {each.location: each for each in sluice.recover_all(root, coordinator=places[0].coordinator, **options)}


def test_they_wait_once_and_all_go_on(places: list[Place], monkeypatch: pytest.MonkeyPatch) -> None:
    former = former_of(places[0])
    lose_everything(places[0])
    together = threading.Barrier(len(places), timeout=60)
    slept: list[float] = []

    def sleep(_: object, seconds: float) -> None:
        slept.append(seconds)
        together.wait()  # who waits alone waits for ever

    monkeypatch.setattr(SystemClock, "sleep", sleep)
    monkeypatch.setattr(recovering, "_AT_WORK_MAX", 2)
    said: list[str] = []
    done = all_of(places, former=former, told=said.append)
    assert slept == [540.0] * len(places)
    assert len(said) == 1
    assert said[0].startswith(f"{len(places)} tables")
    assert set(done) == {normalise(place.location) for place in places}
    assert all(each.report is not None and each.report.version == 2 for each in done.values()), done
    for place in places:
        assert rows_of(place.open().snapshot().to_arrow()) == [("JFK", 1, 1)]


def test_what_is_done_is_left_alone_and_what_fails_holds_up_no_other(places: list[Place], tmp_path: Path) -> None:
    former = former_of(places[0])
    lose_everything(places[0])
    sluice.recover(places[1].location, coordinator=places[1].coordinator, former=former, wait_s=0)
    (Path(places[2].location) / commit_path(1)).write_bytes(b"{broken")
    deltalake.write_deltalake(str(tmp_path / "lake" / "theirs"), flights(("JFK", 1, 1)))
    done = all_of(places, former=former, wait_s=0)
    assert done[normalise(places[1].location)].left == "has its nodes"
    assert done[normalise(str(tmp_path / "lake" / "theirs"))].left == "not managed by sluice"
    broken = done[normalise(places[2].location)]
    assert isinstance(broken.error, sluice.errors.CorruptLogFile)
    assert sum(each.report is not None for each in done.values()) == len(places) - 2
    again = all_of(places, former=former, wait_s=0)
    assert sum(each.left == "has its nodes" for each in again.values()) == len(places) - 1


def test_without_the_id_nothing_is_taken_over(places: list[Place]) -> None:
    lose_everything(places[0])
    done = all_of(places, wait_s=0)
    assert {type(each.error) for each in done.values()} == {sluice.errors.WrongCoordinator}


def test_the_command_prints_a_line_for_each(places: list[Place]) -> None:
    former = former_of(places[0])
    lose_everything(places[0])
    root = places[0].location.rpartition("/")[0]
    arguments = ["recover", "--all", root, "--coordinator", places[0].coordinator, "--wait-s", "0", "--former", str(former)]
    ran = CliRunner().invoke(main, arguments)
    assert ran.exit_code == 0, ran.output
    assert ran.stdout.count("recovered: ") == len(places)
    ran = CliRunner().invoke(main, [*arguments, "--json"])
    assert (ran.exit_code, ran.stdout.count('"has its nodes"')) == (0, len(places))
    (Path(places[0].location) / commit_path(1)).write_bytes(b"{broken")
    ran = CliRunner().invoke(main, arguments)
    assert (ran.exit_code, "failed: " in ran.stdout) == (1, True)
    empty = CliRunner().invoke(main, ["recover", "--all", f"{root}/a/_delta_log/nowhere", "--coordinator", places[0].coordinator])
    assert (empty.exit_code, "no table" in empty.stderr) == (2, True)


def test_tables_are_found_without_listing_what_they_hold(places: list[Place]) -> None:
    root = places[0].location.rpartition("/")[0]
    assert list(tables_below(open_store(normalise(root)))) == sorted(NAMES)
    assert list(tables_below(open_store(normalise(places[0].location)))) == [""]
    store = MemoryStore(f"memory://found-{os.urandom(8).hex()}")
    for table in ("t", "t-1", "t0", "u/v"):
        for number in range(3):
            store.put(f"{table}/_delta_log/{number:020d}.json", b"")
            store.put(f"{table}/part-{number}.parquet", b"")
    store.put("t/x/notes.txt", b"")
    assert list(tables_below(store)) == ["t-1", "t", "t0", "u/v"]
    store.forget()
