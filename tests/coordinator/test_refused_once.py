"""What was refused stays refused: also for an owner who heard no answer when it filed, and finds its slot cleaned up."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sluice.coordinator.commit.decision import _Resolution
from sluice.coordinator.errors import Refused
from sluice.coordinator.rules.refusal import Refusal
from sluice.coordinator.service.clock import Deadline, SystemClock
from sluice.coordinator.service.memory import Call, Fault

from .joint_world import JointWorld
from .world import World, append_intent


def soon() -> Deadline:
    return Deadline.after(5, SystemClock())


def refuse_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next decision refuses, and the ones after it find nothing in the way."""
    honest = _Resolution.objection
    refusals = [Refusal("in-the-way", "Refused", "something is in the way")]

    def objection(self: _Resolution, intent: object) -> Refusal | None:
        return refusals.pop() if refusals else honest(self, intent)  # type: ignore[arg-type]

    monkeypatch.setattr(_Resolution, "objection", objection)


def when_it_looks(verbs: list[str], then: Callable[[], object]) -> Callable[[Call], Fault | None]:
    """Lose the reply to the claim, and let something happen when its owner begins to look for it."""

    def hook(call: Call) -> Fault | None:
        if call.verb == verbs[0]:
            verbs.pop(0)
            if not verbs:
                verbs.append("nothing more")
                then()
                return None
            return Fault.REPLY_LOST
        return None

    return hook


def test_a_refusal_that_was_cleaned_up_before_its_owner_looks_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    owner, other = world.client(), world.client()
    intent = append_intent(owner.head(), "x.parquet")
    refuse_once(monkeypatch)
    heard: list[str] = []

    def decide() -> None:
        outcome = other.committer.outcome(intent.transaction_id, soon())
        heard.append(outcome.state)

    world.coordination.before = when_it_looks(["apply", "barrier"], decide)
    with pytest.raises(Refused):
        owner.commit(intent)
    assert heard == ["refused"]
    assert world.log() == []
    assert other.committer.outcome(intent.transaction_id, soon()).state == "refused"


def test_the_same_over_two_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    world = JointWorld("ab")
    owner, other = world.client(), world.client()
    intents = owner.intents("ab")
    transaction = intents["a"].transaction_id
    refuse_once(monkeypatch)
    heard: list[str] = []
    world.coordination.before = when_it_looks(["apply", "barrier"], lambda: heard.append(other.outcome("a", transaction).state))
    with pytest.raises(Refused):
        owner.commit(intents)
    assert heard == ["refused"]
    assert [table.log() for table in world.tables.values()] == [[], []]
