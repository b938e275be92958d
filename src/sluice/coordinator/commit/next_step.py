"""The next step of a filed transaction: one pure function for one table and for several.

A transaction has a leg in each of its tables. The driver looks at every leg, asks `next_step`, performs the answer, and looks again::

            +----------------------------- look at every leg <------------------------------+
            v                                                                               |
        next_step --> Wait          nothing to do until something moves, or patience ends --+
                  --> Decide        its turn has come, or others did not decide in time ----+
                  --> Publish       others did not publish in time -------------------------+
                  --> ReadVerdicts  a table has a verdict: read it -------------------------+
                  --> Finished      the outcome is known: done
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Final, NamedTuple, TypeAlias

from ...storage.dataclass import dataclass


class Phase(Enum):
    """How far a transaction is in one of its tables."""

    QUEUED = "queued"
    """Its slot is undecided, and its owner leaves the decision to others for now."""
    NEXT = "next"
    """Its slot is the first undecided one, and publication keeps up: its owner decides."""
    DECIDED = "decided"
    """The table has a verdict on it that is not published yet."""
    PUBLISHED = "published"
    """The table has a verdict on it, and has published the result."""
    GONE = "gone"
    """The coordinator has no such table (any more)."""


_UNDECIDED: Final = frozenset({Phase.QUEUED, Phase.NEXT, Phase.GONE})


class LegState(NamedTuple):
    """One leg as the last look showed it.

    `patient`: others still have time to do their work. `verdict_read`: its verdict was read.
    """

    phase: Phase
    patient: bool = True
    verdict_read: bool = False


class Progress(NamedTuple):
    """The state of the whole transaction.

    `committed` and `refused` say which verdict it has, if any. `until_published`: its caller waits for publication.
    `withdrawn`: its owner wants it refused if it is undecided. `home` is the leg whose slot is decided in any case before
    the end.
    """

    committed: bool = False
    refused: bool = False
    until_published: bool = True
    withdrawn: bool = False
    home: int | None = None


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait until a table moves, or until patience ends."""


@dataclass(frozen=True, slots=True)
class Finished:
    """Return the outcome to the caller."""


@dataclass(frozen=True, slots=True)
class Decide:
    """Decide the queue of this leg's table; `overdue` legs used up their patience waiting for that."""

    leg: int
    overdue: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Publish:
    """Publish what is ratified in the tables of these legs."""

    legs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ReadVerdicts:
    """Read the verdicts in the tables of these legs."""

    legs: tuple[int, ...]


Step: TypeAlias = Wait | Finished | Decide | Publish | ReadVerdicts
WAIT: Final = Wait()
FINISHED: Final = Finished()


def next_step(progress: Progress, legs: Sequence[LegState]) -> Step:
    """The next step of a transaction, from what was seen of its legs. Pure."""
    if progress.refused:
        home = progress.home
        return Decide(home) if home is not None and legs[home].phase in (Phase.QUEUED, Phase.NEXT) else FINISHED
    if progress.committed:
        return _until_published(progress, legs)
    undecided = [i for i, leg in enumerate(legs) if leg.phase in _UNDECIDED]
    unread = tuple(i for i, leg in enumerate(legs) if leg.phase in (Phase.DECIDED, Phase.PUBLISHED) and not leg.verdict_read)
    if unread:
        return ReadVerdicts(unread)
    return _decided(progress, legs, undecided)


def _until_published(progress: Progress, legs: Sequence[LegState]) -> Step:
    pending = [i for i, leg in enumerate(legs) if leg.phase is not Phase.PUBLISHED]
    # check: answered-when-published (always)
    if not pending or not progress.until_published:
        return FINISHED
    overdue = tuple(i for i in pending if not legs[i].patient)
    # check: patience-publishes (overdue else -> False else)
    return Publish(overdue) if overdue else WAIT


def _decided(progress: Progress, legs: Sequence[LegState], undecided: Sequence[int]) -> Step:
    """The step towards deciding the undecided legs: by their owner in its turn, by any client after a patience (I8)."""
    overdue = tuple(i for i in undecided if not legs[i].patient)
    queued = [i for i in undecided if legs[i].phase in (Phase.QUEUED, Phase.NEXT)]
    mine = [i for i in queued if legs[i].phase is Phase.NEXT]
    # check: patience-decides (without or overdue)
    if queued and (progress.withdrawn or overdue or mine == undecided):
        return Decide(mine[0] if mine else queued[0], overdue)
    return WAIT
