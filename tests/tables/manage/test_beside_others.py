"""Creating or replacing a table beside other clients: who was slower tries again, and only where that cannot hurt."""

from __future__ import annotations

import pytest

from sluice.coordinator.errors import ConcurrentAppendException, LeaseHeld
from sluice.storage.errors import TableExists
from sluice.tables.manage.creation import beside_others

LOSSES = [ConcurrentAppendException("another client was faster"), LeaseHeld("another client has a reserved turn 'after 1 loss'")]


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
def test_a_replacement_that_lost_is_tried_again(loss: Exception) -> None:
    losses = [loss]

    def attempt() -> str:
        if losses:
            raise losses.pop()
        return "replaced"

    assert beside_others(attempt, lambda: True, replaces=True) == "replaced"


@pytest.mark.parametrize("loss", [*LOSSES, TableExists("a table exists")], ids=lambda loss: type(loss).__name__)
def test_nothing_else_is(loss: Exception) -> None:
    def attempt() -> None:
        raise loss

    with pytest.raises(type(loss)):
        beside_others(attempt, lambda: False)


def test_a_replacement_gives_up_in_time() -> None:
    def attempt() -> None:
        raise LOSSES[1]

    with pytest.raises(LeaseHeld):
        beside_others(attempt, lambda: True, replaces=True, timeout_s=0.2)
