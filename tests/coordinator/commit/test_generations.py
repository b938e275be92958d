"""Slots that somebody files again while somebody else looks for them: found by the model of the protocol (docs/model.md)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sluice.coordinator.commit import retention
from sluice.coordinator.commit.queue import Claim, move_slot
from sluice.coordinator.commit.transactions import outcome_of
from sluice.coordinator.nodes.identity import new_client, new_id, owner_of
from sluice.coordinator.rules.intent import Intent
from sluice.coordinator.service.clock import Deadline, SystemClock
from tests.coordinator.world import QUICK, Client, World, append_intent, claim_slot, see_through


def soon() -> Deadline:
    return Deadline.after(5, SystemClock())


class Late:
    """A transaction that came too late for its generation, and clients that find it so."""

    def __init__(self) -> None:
        self.world = World()
        self.owner, self.alive = self.world.client(), self.world.client(QUICK.but(generation_slots_max=1))
        stale = self.alive.head()
        for _ in range(3):
            self.alive.append()
        self.intent: Intent = append_intent(stale, transaction_id=new_id(new_client(), 0, 1, 0))
        owner = owner_of(self.intent.transaction_id)
        assert owner is not None
        self.owner.session.ensure_path(owner.path)
        self.claim: Claim = claim_slot(self.owner.context, self.intent, stale, soon())
        assert self.alive.head().generation > self.claim.generation

    def move(self) -> None:
        """Somebody files it again in the present generation; it is undecided there."""
        assert move_slot(self.alive.context, self.claim, self.intent, self.alive.head()) is not None


def once(
    client: Client,
    verb: str,
    path: str,
    monkeypatch: pytest.MonkeyPatch,
    *,
    before: Callable[[], None] | None = None,
    after: Callable[[], None] | None = None,
) -> None:
    """Have something done right before or after the client's first call of a path."""
    real, left = getattr(client.session, verb), [path]

    def call(asked: str, *rest: object) -> object:
        mine = asked in left
        if mine:
            left.clear()
        if mine and before is not None:
            before()
        answer = real(asked, *rest)
        if mine and after is not None:
            after()
        return answer

    monkeypatch.setattr(client.session, verb, call)


def test_a_slot_is_found_although_it_is_filed_again_while_somebody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    late = Late()
    asking = late.world.client()
    present = late.world.tree.slots(late.alive.head().generation)
    once(asking, "children", present, monkeypatch, after=late.move)
    assert outcome_of(asking.coordinated, late.intent.transaction_id, soon()).state == "committed"


def test_a_slot_that_is_filed_again_between_the_look_and_the_reading_is_looked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    late = Late()
    asking = late.world.client()
    once(asking, "read", late.claim.path(late.world.tree), monkeypatch, before=late.move)
    assert outcome_of(asking.coordinated, late.intent.transaction_id, soon()).state == "committed"


def test_an_owner_whose_slot_others_filed_again_does_not_take_it_for_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    late = Late()
    once(late.owner, "read", late.claim.path(late.world.tree), monkeypatch, before=late.move)
    commit = see_through(late.owner.coordinated, late.claim, late.intent, soon())
    assert commit.transaction_id == late.intent.transaction_id
    assert late.world.transactions().count(late.intent.transaction_id) == 1


def test_files_of_a_slot_that_is_filed_again_in_a_new_generation_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    late = Late()
    collector = late.world.client()

    def a_new_generation_and_the_slot_in_it() -> None:
        late.alive.append()
        late.move()

    once(collector, "children", late.world.tree.generations, monkeypatch, after=a_new_generation_and_the_slot_in_it)
    busy = retention._busy(collector.context, collector.session, frozenset())
    assert owner_of(late.intent.transaction_id) in busy
