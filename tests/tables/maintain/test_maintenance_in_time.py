"""A store that answers slowly: compactions and vacuums end in the time they are given, and nothing is lost or half done."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import sluice
from sluice.cli import main
from sluice.coordinator.errors import OutcomeUnknown
from sluice.storage.errors import Unavailable
from sluice.storage.stores.local import LocalStore
from sluice.tables.maintain import compaction
from tests.tables.conftest import Place, by_another, flights, present, rows_of

LIMIT_S = 0.6
OVERSHOOT_S = 15.0
"""A busy machine may take so long to notice the end; the requests would wait for half a minute."""


class Slow:
    """Requests to the store that wait until the test ends, from the moment when it says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        self.ended = threading.Event()

    def let_wait(self, verb: str, *, when: Callable[[str], bool] = lambda _: True, after: int = 0) -> None:
        """Let requests of this kind wait, for the keys that are meant, but for the first ones."""
        real: Callable[..., Any] = getattr(LocalStore, verb)
        counted = iter(range(1_000_000))

        def waiting(store: LocalStore, key: Any, *arguments: Any, **options: Any) -> Any:
            if not self.ended.is_set() and when(str(key)) and next(counted) >= after:
                self.ended.wait(30)
            return real(store, key, *arguments, **options)

        self._monkeypatch.setattr(LocalStore, verb, waiting)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[Slow]:
    made = Slow(monkeypatch)
    yield made
    made.ended.set()


def is_data(key: str) -> bool:
    return not key.startswith("_delta_log")


def is_version(key: str) -> bool:
    return key.startswith("_delta_log") and key.endswith(".json")


def data_files(place: Place) -> set[Path]:
    return {path for path in Path(place.location).rglob("*.parquet") if "_delta_log" not in path.parts}


def filled(place: Place, files: int = 4) -> sluice.Table:
    table = place.create(partition_by=["origin"])
    for n in range(files):
        table.append(flights(("JFK", 1, n), ("EWR", 1, n)))
    return table


def timed(call: Callable[[], object], error: type[Exception]) -> Any:
    began = time.monotonic()
    with pytest.raises(error) as raised:
        call()
    assert time.monotonic() - began <= LIMIT_S + OVERSHOOT_S
    return raised.value


def eventually(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.parametrize("verb", ["open_input", "upload"])
def test_a_compaction_whose_files_are_read_or_written_slowly(place: Place, slow: Slow, verb: str) -> None:
    table = filled(place)
    before, rows = data_files(place), rows_of(table.refresh().snapshot().to_arrow())
    slow.let_wait(verb, when=is_data)
    late = timed(lambda: table.compact(timeout_s=LIMIT_S), OutcomeUnknown)
    assert (late.stage, late.retryable) == ("staged", True)
    slow.ended.set()
    assert table.refresh().version == 4
    eventually(lambda: data_files(place) == before)
    assert table.compact(timeout_s=60) is not None
    assert rows_of(table.refresh().snapshot().to_arrow()) == rows


def test_a_compaction_that_is_published_slowly_is_not_said_to_have_failed(place: Place, slow: Slow) -> None:
    table = filled(place)
    slow.let_wait("put_if_absent", when=is_version)
    late = timed(lambda: table.compact(timeout_s=LIMIT_S), OutcomeUnknown)
    assert late.stage == "intent"
    slow.ended.set()
    eventually(lambda: sluice.outcome(late.transaction_id, coordinator=place.coordinator).state == "committed")
    assert place.open().snapshot().raw.num_files == 2


@pytest.mark.shows("compaction-late")
def test_whole_commits_of_a_compaction_stand(place: Place, slow: Slow, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "_FILES_PER_COMMIT", 4)
    monkeypatch.setattr(compaction, "_WRITERS", 1)
    table = filled(place)
    rows = rows_of(table.refresh().snapshot().to_arrow())
    slow.let_wait("upload", when=is_data, after=1)
    late = timed(lambda: table.compact(timeout_s=LIMIT_S), OutcomeUnknown)
    assert (late.stage, late.commits) == ("staged", 1)
    assert "its earlier commits remain (1 commits, the last one is version 5)" in str(late)
    assert table.refresh().version == 5
    assert table.snapshot().raw.num_files == 5
    slow.ended.set()
    again = present(table.compact())
    assert (again.version, again.commits) == (6, 1)
    assert rows_of(table.refresh().snapshot().to_arrow()) == rows


def test_it_commits_under_the_leases_of_its_caller(place: Place) -> None:
    table = filled(place)
    with table.lease():
        assert table.compact(timeout_s=20) is not None
        with pytest.raises((sluice.errors.LeaseHeld, OutcomeUnknown)):
            by_another(lambda: table.append(flights(("JFK", 1, 9)), timeout_s=0.2))


@pytest.mark.shows("vacuum-fails")
@pytest.mark.parametrize(("verb", "when"), [("list_from", is_data), ("delete", is_data), ("put", is_data), ("put_if_absent", is_version)])
def test_a_vacuum_that_waits_for_the_store(place: Place, slow: Slow, verb: str, when: Callable[[str], bool]) -> None:
    table = filled(place)
    table.compact()
    rows, before = rows_of(table.refresh().snapshot().to_arrow()), data_files(place)
    slow.let_wait(verb, when=(lambda _: True) if verb == "put" else when)
    late = timed(lambda: table.vacuum(0, force=True, timeout_s=LIMIT_S), Unavailable)
    assert late.retryable
    assert data_files(place) == before
    slow.ended.set()
    eventually(lambda: not [each for each in threading.enumerate() if each.name == "sluice-in-time"])
    assert rows_of(place.open().snapshot().to_arrow()) == rows
    table.vacuum(0, force=True, timeout_s=60)
    assert len(data_files(place)) == 2
    assert rows_of(place.open().snapshot().to_arrow()) == rows


def test_a_vacuum_cut_short_says_how_far_it_got(place: Place, slow: Slow) -> None:
    table = filled(place)
    table.compact()
    slow.let_wait("delete", when=lambda key: is_data(key) and "EWR" in key)
    late = timed(lambda: table.vacuum(0, force=True, timeout_s=LIMIT_S), Unavailable)
    assert "it deleted" in str(late)
    assert 2 <= len(data_files(place)) < 10
    slow.ended.set()


def test_the_commands_take_a_time(place: Place, slow: Slow) -> None:
    filled(place).close()
    options = [place.location, "--coordinator", place.coordinator, "--timeout"]
    assert CliRunner().invoke(main, ["compact", *options, "60"]).exit_code == 0
    assert CliRunner().invoke(main, ["vacuum", *options, "60", "--retain-hours", "0", "--force"]).exit_code == 0
    slow.let_wait("put")
    began = time.monotonic()
    assert CliRunner().invoke(main, ["vacuum", *options, "0.5", "--retain-hours", "0", "--force"]).exit_code != 0
    assert time.monotonic() - began <= OVERSHOOT_S
