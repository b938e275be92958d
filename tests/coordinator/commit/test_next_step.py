"""What a transaction does next, as a table of states.

Deciding is pure: however a queue is cut into batches, and whichever client decides it, the outcomes are the same (I4).
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Sequence
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.coordinator.commit.decision import Decision, DecisionInput, Queued, resolve, windows_of
from sluice.coordinator.commit.leg import FINISHED, WAIT, Decide, LegState, Phase, Progress, Publish, ReadVerdicts, Step, next_step
from sluice.coordinator.limits import Limits
from sluice.coordinator.nodes.records import Head, Rendering
from sluice.coordinator.publication.rendering import render
from sluice.coordinator.rules.intent import DeclaredReads, Intent
from sluice.coordinator.rules.winner import Member, Winner, winner_of
from sluice.storage.actions import Metadata, decode_commit
from tests.coordinator.world import add, app_intent, append_intent, intent_of, no_vectors, remove
from tests.storage.strategies import examples

QUEUED, NEXT, DECIDED, PUBLISHED, GONE = Phase
BEGUN: Final = Progress()
WITHDRAWN: Final = Progress(withdrawn=True)
COMMITTED: Final = Progress(committed=True)
ACKNOWLEDGED: Final = Progress(committed=True, until_published=False)
REFUSED: Final = Progress(refused=True)
AT_HOME: Final = Progress(refused=True, home=1)


def overdue(phase: Phase) -> LegState:
    """A leg for which the patience with others is over."""
    return LegState(phase, patient=False)


def verdict_read(phase: Phase) -> LegState:
    """A leg whose verdict was read."""
    return LegState(phase, verdict_read=True)


def several(*legs: Phase | LegState) -> tuple[LegState, ...]:
    return tuple(leg if isinstance(leg, LegState) else LegState(leg) for leg in legs)


@pytest.mark.parametrize(
    ("progress", "legs", "step"),
    [
        # one table, nothing known yet
        (BEGUN, several(QUEUED), WAIT),
        (BEGUN, several(overdue(QUEUED)), Decide(0, (0,))),
        (BEGUN, several(NEXT), Decide(0)),
        (BEGUN, several(overdue(NEXT)), Decide(0, (0,))),
        (BEGUN, several(DECIDED), ReadVerdicts((0,))),
        (BEGUN, several(PUBLISHED), ReadVerdicts((0,))),
        (BEGUN, several(GONE), WAIT),
        (BEGUN, several(overdue(GONE)), WAIT),
        # its owner takes it back
        (WITHDRAWN, several(QUEUED), Decide(0)),
        (WITHDRAWN, several(NEXT), Decide(0)),
        (WITHDRAWN, several(DECIDED), ReadVerdicts((0,))),
        # it is committed
        (COMMITTED, several(DECIDED), WAIT),
        (COMMITTED, several(overdue(DECIDED)), Publish((0,))),
        (COMMITTED, several(PUBLISHED), FINISHED),
        (ACKNOWLEDGED, several(DECIDED), FINISHED),
        (REFUSED, several(DECIDED), FINISHED),
        # several tables: the owner decides once it is first in all of them
        (BEGUN, several(NEXT, QUEUED), WAIT),
        (BEGUN, several(NEXT, NEXT), Decide(0)),
        (BEGUN, several(NEXT, overdue(QUEUED)), Decide(0, (1,))),
        (BEGUN, several(overdue(QUEUED), NEXT), Decide(1, (0,))),
        (BEGUN, several(overdue(QUEUED), overdue(QUEUED)), Decide(0, (0, 1))),
        (WITHDRAWN, several(QUEUED, QUEUED), Decide(0)),
        # a table that is gone holds nobody up: the transaction is refused in the others
        (BEGUN, several(QUEUED, GONE), WAIT),
        (BEGUN, several(QUEUED, overdue(GONE)), Decide(0, (1,))),
        # a table refused it as soon as its verdict says so; the others are verdict_read once all of them have one
        (BEGUN, several(DECIDED, QUEUED), ReadVerdicts((0,))),
        (BEGUN, several(verdict_read(DECIDED), QUEUED), WAIT),
        (BEGUN, several(verdict_read(DECIDED), overdue(QUEUED)), Decide(1, (1,))),
        (BEGUN, several(verdict_read(DECIDED), PUBLISHED), ReadVerdicts((1,))),
        # committed in all, published in some
        (COMMITTED, several(PUBLISHED, DECIDED), WAIT),
        (COMMITTED, several(PUBLISHED, overdue(DECIDED)), Publish((1,))),
        (COMMITTED, several(overdue(DECIDED), overdue(DECIDED)), Publish((0, 1))),
        # refused elsewhere: the slot in the table where somebody verdict_read is decided, too
        (REFUSED, several(DECIDED, QUEUED), FINISHED),
        (AT_HOME, several(DECIDED, QUEUED), Decide(1)),
        (AT_HOME, several(DECIDED, NEXT), Decide(1)),
        (AT_HOME, several(QUEUED, DECIDED), FINISHED),
    ],
)
def test_the_table_of_states(progress: Progress, legs: tuple[LegState, ...], step: Step) -> None:
    assert next_step(progress, legs) == step


EVERY_LEG: Final = [LegState(phase, patient, known) for phase in Phase for patient in (True, False) for known in (True, False)]


@pytest.mark.parametrize("progress", [BEGUN, WITHDRAWN, COMMITTED, ACKNOWLEDGED, REFUSED, AT_HOME])
def test_every_state_of_two_tables(progress: Progress) -> None:
    """What holds whatever was seen."""
    for legs in itertools.product(EVERY_LEG, repeat=2):
        step = next_step(progress, legs)
        if isinstance(step, Decide):
            assert legs[step.leg].phase in (QUEUED, NEXT)
        if isinstance(step, ReadVerdicts):
            assert not any(legs[i].verdict_read or legs[i].phase in (QUEUED, NEXT, GONE) for i in step.legs)
        if isinstance(step, Publish):
            assert not any(legs[i].patient for i in step.legs)
        if step is FINISHED:
            assert progress.committed or progress.refused
        if step is WAIT:  # all who have something to do for it have time left
            assert not any(leg.phase in (QUEUED, NEXT) and not leg.patient for leg in legs)
            assert not (progress.committed and not progress.until_published)


def test_nobody_waits_for_ever() -> None:
    """When every patience is over there is something to do, unless no table is left."""
    for phases in itertools.product(Phase, repeat=2):
        legs = [overdue(phase) for phase in phases]
        if phases == (GONE, GONE):
            continue
        assert next_step(BEGUN, legs) is not WAIT
        assert next_step(COMMITTED._replace(home=0), legs) is not WAIT


FILES = [f"{n}.parquet" for n in range(4)]
BASE = Head(version=0, slot=0, timestamp_ms=1_000, metadata_version=0)


def _intent(kind: str, number: int) -> Intent:
    file = FILES[number % len(FILES)]
    if kind == "append":
        return append_intent(BASE)
    if kind == "app":
        return app_intent(BASE, number)
    if kind == "metadata":
        return intent_of(
            BASE,
            [Metadata("id", '{"type":"struct","fields":[]}', (), {}), add(f"{uuid.uuid4()}.parquet")],
            DeclaredReads(partition_types={"p": "string"}),
        )
    reads = DeclaredReads(read_files=(file,), partition_types={"p": "string"})
    return intent_of(BASE, [remove(file), add(f"{uuid.uuid4()}.parquet")], reads)


queues = st.lists(
    st.tuples(st.sampled_from(["append", "append", "app", "rewrite", "rewrite", "metadata"]), st.integers(0, 5)), min_size=1, max_size=12
).map(lambda kinds: [_intent(*k) for k in kinds])


def _queue(intents: Sequence[Intent]) -> list[Queued]:
    return [Queued(n + 1, i.transaction_id, Member(i, i.actions.encode())) for n, i in enumerate(intents)]


def _winners(decision: Decision) -> dict[int, Winner]:
    return {
        p.version: winner_of(p.version, decode_commit(render(p, decision.members[p.version], Rendering(0)), name=str(p.version)))
        for p in decision.versions
    }


def _outcomes(decisions: Sequence[Decision]) -> list[tuple[int, str]]:
    """Per slot: committed, a repetition, or refused by which rule; versions depend on grouping and are left out."""
    verdicts = [v for d in decisions for v in d.verdicts]
    return [(v.slot, v.refusal.rule if v.refusal else "repeats" if v.repeats else "committed") for v in verdicts]


@examples(150)
@given(intents=queues, cuts=st.lists(st.integers(1, 4), min_size=12, max_size=12))
def test_batches_do_not_change_outcomes(intents: list[Intent], cuts: list[int]) -> None:
    queue = _queue(intents)
    whole = resolve(DecisionInput(BASE, queue, {}, Limits(), no_vectors), room=100)
    assert [v.slot for v in whole.verdicts] == [q.slot for q in queue]

    head, rest, known, decisions = BASE, queue, dict[int, Winner](), []
    for cut in cuts:
        if not rest:
            break
        part = rest[:cut]
        needed = range(min(windows_of(head, part), default=head.version) + 1, head.version + 1)
        decision = resolve(DecisionInput(head, part, {v: known[v] for v in needed}, Limits(), no_vectors), room=100)
        known |= _winners(decision)
        decisions.append(decision)
        head, rest = decision.head, rest[len(decision.verdicts) :]
    told = _outcomes(decisions)
    assert told == _outcomes([whole])[: len(told)]


@pytest.mark.notices("backlog-is-bounded")
@examples(140)
@given(intents=queues, room=st.integers(1, 4))
def test_versions_are_dense_times_increase_and_room_is_kept(intents: list[Intent], room: int) -> None:
    decision = resolve(DecisionInput(BASE, _queue(intents), {}, Limits(), no_vectors), room=room)
    versions = [p.version for p in decision.versions]
    assert versions == list(range(1, len(versions) + 1))
    assert len(versions) <= room
    times = [BASE.timestamp_ms, *(p.timestamp_ms for p in decision.versions)]
    assert all(a < b for a, b in itertools.pairwise(times))
    assert decision.head.slot == (decision.verdicts[-1].slot if decision.verdicts else BASE.slot)


def test_appends_share_a_version_and_others_do_not() -> None:
    intents = [_intent(k, n) for n, k in enumerate(["append", "append", "rewrite", "append", "app", "append"])]
    decision = resolve(DecisionInput(BASE, _queue(intents), {}, Limits(), no_vectors), room=100)
    assert [p.slots for p in decision.versions] == [(1, 2), (3,), (4, 5, 6)]


@pytest.mark.notices("times-increase")
def test_a_clock_that_is_ahead_moves_time_only_forward() -> None:
    ahead = append_intent(BASE, claimed_ms=10_000_000)
    behind = append_intent(BASE, claimed_ms=5)
    rewrite = _intent("rewrite", 0)
    decision = resolve(DecisionInput(BASE, _queue([ahead, rewrite, behind]), {}, Limits(), no_vectors), room=100)
    assert next(p.timestamp_ms for p in decision.versions) == 10_000_000
    assert [p.timestamp_ms for p in decision.versions] == sorted({p.timestamp_ms for p in decision.versions})
