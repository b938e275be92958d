"""What a transaction does next, as a table of states."""

from __future__ import annotations

import itertools
from typing import Final

import pytest

from sluice.coordinator.commit.next_step import (
    FINISHED,
    WAIT,
    Decide,
    LegState,
    Phase,
    Progress,
    Publish,
    ReadVerdicts,
    Step,
    next_step,
)

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
