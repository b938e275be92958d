"""How often a write waits for its services: counted at the boundary to them, with the twin in memory and with a real ZooKeeper."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import Any

import pytest

import sluice
from sluice.coordinator.service import connect
from sluice.storage.stores.memory import MemoryStore

from .conftest import Place, flights, present

_VERBS = ("read", "read_many", "look", "children", "create", "ensure_path", "write", "delete", "apply", "barrier")


@pytest.fixture
def place(stored: Place) -> Place:
    return stored


@pytest.fixture
def table(place: Place) -> sluice.Table:
    """A table with a row, as it is opened by somebody else than who made it."""
    place.create(partition_by=[])
    table = place.open()
    table.append(flights(("JFK", 1, 0)))
    return table


@contextmanager
def waits(place: Place, monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """The requests that this thread waited for, one after the other; those of other threads are not on its path."""
    kind: Any = type(connect.connect(place.coordinator))
    seen: Counter[str] = Counter()
    me, inside = threading.get_ident(), [False]

    def counted(verb: str, honest: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(honest)
        def call(*args: Any, **options: Any) -> Any:
            if threading.get_ident() != me or inside[0]:
                return honest(*args, **options)
            inside[0] = True  # what a verb is made of is one wait
            seen[verb] += 1
            try:
                return honest(*args, **options)
            finally:
                inside[0] = False

        return call

    with monkeypatch.context() as patch:
        for verb in _VERBS:
            patch.setattr(kind, verb, counted(verb, getattr(kind, verb)))
        yield seen


def test_an_idle_append_waits_three_times_for_the_coordinator_and_stores_two_objects(
    place: Place, table: sluice.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One look at everything, one request that ratifies, one that raises `published`; a data file and a log file."""
    disk = MemoryStore.open(place.location.removeprefix("memory://")).disk
    for number in range(3):
        table.append(flights(("JFK", 1, number)))
    for number in range(5):
        before = len(disk.calls)
        with waits(place, monkeypatch) as seen:
            commit = present(table.append(flights(("JFK", 2, number))))
        assert commit.published
        assert seen == {"look": 1, "apply": 2}
        stored = [Path(key).suffix for verb, key in disk.calls[before:] if verb not in ("get", "list", "head")]
        assert stored == [".parquet", ".json"]


def test_who_looked_before_somebody_else_committed_queues(place: Place, table: sluice.Table) -> None:
    """The multi is refused, and nothing was written."""
    other = place.open()
    for number in range(3):
        table.append(flights(("JFK", 1, number)))
    begun = table.begin()
    table.coordinated.head(ahead=True)
    begun.append(flights(("JFK", 2, 1)))
    other.append(flights(("JFK", 3, 1)))
    commit = present(begun.commit())
    assert commit.published
    assert table.snapshot().to_arrow().num_rows == 6


def test_what_was_read_ahead_long_ago_is_read_again(place: Place, table: sluice.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    table.append(flights(("JFK", 1, 1)))
    context = table.coordinated.context
    table.coordinated.head(ahead=True)
    first = present(context.cached_state())
    table.append(flights(("JFK", 2, 1)))
    again = present(context.cached_state())
    assert again.head.version == first.head.version + 1
    table.coordinated.head(ahead=True)
    object.__setattr__(context, "limits", replace(context.limits, patience_s=1e-9))
    with waits(place, monkeypatch) as seen:
        assert context.cached_state() is not None
    assert seen == {"look": 1}


def test_who_queues_anyhow_does_not_look_at_the_queue_twice(place: Place, table: sluice.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a batch of several the next append files a slot at once: only who decides looks at the slots and the records."""
    table.coordinated.alone = False
    with waits(place, monkeypatch) as seen:
        commit = present(table.append(flights(("JFK", 1, 2))))
    assert commit.published
    assert seen["look"] == 1
    with waits(place, monkeypatch) as seen:  # it was alone, so the fast path is worth a try again
        table.append(flights(("JFK", 1, 3)))
    assert seen == {"look": 1, "apply": 2}


def test_who_queues_anyhow_asks_for_nothing_that_it_does_not_use(
    place: Place, table: sluice.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each node that is asked for takes processor time of every writer: two before the rows are written, and then no root again."""
    table.coordinated.alone = False
    kind: Any = type(connect.connect(place.coordinator))
    honest, asked = kind.look, list[list[str]]()

    def look(self: Any, nodes: Sequence[str], parents: Sequence[str]) -> Any:
        asked.append([path.rpartition("/")[2] for path in (*nodes, *parents)])
        return honest(self, nodes, parents)

    def read_many(self: Any, paths: Sequence[str]) -> Any:
        return look(self, paths, ())[0]

    with monkeypatch.context() as patch:
        patch.setattr(kind, "look", look)
        patch.setattr(kind, "read_many", read_many)
        table.append(flights(("JFK", 1, 2)))
    root = table.coordinated.context.tree.root.rpartition("/")[2]
    assert asked[:2] == [[root, "head"], ["head", "published", "0", "verdicts"]]
