"""What a transaction says that it knows is what it was compared with: others commit between each two of its steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import sluice
from sluice.tables.write import commit_change as transactions

from .conftest import Place, flights, rows_of


@pytest.fixture
def table(place: Place) -> sluice.Table:
    place.create()
    table = place.open()
    table.append(flights(("JFK", 1, 1), ("EWR", 2, 2)))
    return table


def doomed(table: sluice.Table) -> sluice.Transaction:
    begun = table.begin()
    begun.update({"delay": "delay + 1"}, "origin = 'JFK'")
    return begun


def test_the_last_version_before_it_counts(place: Place, table: sluice.Table) -> None:
    begun = doomed(table)
    place.open().delete("origin = 'JFK'")
    with pytest.raises(sluice.ConcurrentModification):
        begun.commit()


@pytest.mark.parametrize("step", ["prepared", "intent_of"])
def test_what_comes_after_it_was_compared_counts(place: Place, table: sluice.Table, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """Somebody is faster right before it is compared with the others, or right before it is written down what it knows."""
    begun, other = doomed(table), place.open()
    honest: Callable[..., Any] = getattr(transactions, step)

    def overtaken(*arguments: Any, **options: Any) -> Any:
        monkeypatch.undo()
        other.delete("origin = 'JFK'")
        return honest(*arguments, **options)

    monkeypatch.setattr(transactions, step, overtaken)
    with pytest.raises(sluice.ConcurrentModification):
        begun.commit()
    assert rows_of(table.refresh().snapshot().to_arrow()) == [("EWR", 2, 2)]
