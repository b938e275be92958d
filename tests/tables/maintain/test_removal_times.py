"""Removed files have the time of their version, whatever the clock of their writer says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import sluice
from sluice.coordinator.nodes.records import Head, Rendering, VersionPlan
from sluice.coordinator.publication.rendering import render, stamped
from sluice.coordinator.rules.intent import DeclaredReads
from sluice.coordinator.rules.winner import Member
from sluice.coordinator.service.clock import SystemClock
from sluice.storage.actions import Action, CommitInfo, RemoveFile, decode_commit, encode_all
from sluice.storage.actions.texts import LongText, Text, pieces
from tests.coordinator.world import add, intent_of, remove
from tests.tables.conftest import Place, flights, rows_of

DAY_MS = 24 * 3600 * 1000


def removals(text: Text) -> list[RemoveFile]:
    return [each for each in decode_commit(text, name="v") if isinstance(each, RemoveFile)]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], None]]:
    """Sets the clocks of this process so many days back."""
    now_ms = SystemClock.now_ms

    def back(days: int) -> None:
        monkeypatch.setattr(SystemClock, "now_ms", lambda self: now_ms(self) - days * DAY_MS)

    yield back
    monkeypatch.undo()


def in_the_log(place: Place, version: int) -> tuple[CommitInfo, list[RemoveFile]]:
    text = Path(place.location, "_delta_log", f"{version:020}.json").read_bytes()
    info = decode_commit(text, name="v")[0]
    assert isinstance(info, CommitInfo)
    return info, removals(text)


WAYS: dict[str, Callable[[sluice.Table], object]] = {
    "delete": lambda table: table.delete("delay = 1"),
    "overwrite": lambda table: table.overwrite(flights(("JFK", 1, 3))),
    "update": lambda table: table.update({"delay": "delay + 1"}, where="delay = 1"),
    "upsert": lambda table: table.upsert(flights(("JFK", 1, 7)), on=["origin", "month"]),
    "truncate": lambda table: table.truncate(),
    "compact": lambda table: table.compact(),
}


@pytest.mark.parametrize("vectors", ["true", "false"])
@pytest.mark.parametrize("way", WAYS)
def test_a_writer_whose_clock_is_wrong_removes_files_at_the_commits_time(
    place: Place, clock: Callable[[int], None], way: str, vectors: str
) -> None:
    table = place.create(properties={"delta.enableDeletionVectors": vectors})
    for delay in (1, 2):
        table.append(flights(("JFK", 1, delay), ("LAX", 2, delay)))
    clock(30)
    WAYS[way](table)
    info, removed = in_the_log(place, 3)
    assert removed
    assert {each.deletion_timestamp for each in removed} == {info.fields["inCommitTimestamp"]}


def test_a_checkpoint_keeps_what_such_a_writer_removed(place: Place, clock: Callable[[int], None]) -> None:
    table = place.filled(("JFK", 1, 1))
    clock(30)
    table.delete("delay = 1")
    clock(0)
    table.checkpoint()
    again = place.open(consistency="published")
    assert rows_of(again.snapshot().to_arrow()) == []
    (checkpoint,) = Path(place.location, "_delta_log").glob("*.checkpoint.parquet")
    assert [each for each in pq.read_table(checkpoint)["remove"].to_pylist() if each is not None]


def test_a_version_of_the_first_rendering_keeps_its_bytes() -> None:
    actions: list[Action] = [remove("a"), add("b")]
    intent = intent_of(Head(version=3), actions, DeclaredReads(read_files=("a",)))
    plan, members = VersionPlan(4, 5_000, (1,)), [Member(intent, encode_all(actions))]
    (before,) = removals(render(plan, members, Rendering(0, number=1)))
    (now,) = removals(render(plan, members, Rendering(0, number=2)))
    assert before == remove("a")
    assert now.deletion_timestamp == 5_000


@pytest.mark.parametrize(
    "action",
    [
        RemoveFile('a"b,"deletionTimestamp":7\\', data_change=True, deletion_timestamp=1, size=3),
        RemoveFile("a", data_change=False),
        RemoveFile("a", data_change=False, deletion_timestamp=-1, tags={"deletionTimestamp": "8"}),
    ],
)
def test_nothing_else_of_a_removal_changes(action: RemoveFile) -> None:
    text = encode_all([add("x"), action])
    expected = encode_all([add("x"), replace(action, deletion_timestamp=99)])
    assert stamped(text, 99) == expected
    long = stamped(LongText((text[:20], text[20:])), 99)
    assert b"".join(pieces(long)) == expected


def test_fields_in_another_order_are_understood() -> None:
    line = b'{"remove":{"dataChange":true,"path":"a","deletionTimestamp":5}}\n'
    (removed,) = removals(stamped(line, 99))
    assert (removed.path, removed.deletion_timestamp) == ("a", 99)
