"""The runs of the model: which parts of the protocol are in it, how large it is, and which check is left out to see it missed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Run:
    """One search of a model. `claim` names an ltl formula, for what has to happen in the end; else it is what must never happen.

    A `quick` one takes seconds. A `compressed` one (-DCOLLAPSE) needs less memory and more time, and sees the same states.
    `breaks` are the invariants of which one has to be found broken; none: the model has to hold.
    """

    name: str
    model: str
    defines: tuple[str, ...]
    claim: str = ""
    quick: bool = False
    compressed: bool = False
    breaks: tuple[str, ...] = ()


_LIVE: Final = ("CLIENTS=2", "LIVE", "HELPED", "LOSSES=0")

RUNS: Final = (
    Run("two writers", "table", ("CLIENTS=2", "DIRECT"), quick=True),
    Run("one writer, asked", "table", ("CLIENTS=1", "ASKED", "DIRECT", "EXPIRIES=1"), quick=True),
    Run("a lease", "table", ("CLIENTS=2", "LEASES", "DIRECT", "LOSSES=0"), quick=True),
    Run("a generation ends", "table", ("CLIENTS=2", "CLOSE_AT=1", "DIRECT"), quick=True),
    Run("garbage of one writer", "table", ("CLIENTS=1", "COLLECTOR", "EXPIRIES=1", "GIVING_UP", "HELPED"), quick=True),
    Run("two tables", "joint", ("JOINTS=1", "LEFT=1", "LOSSES=1"), quick=True),
    Run("two over two tables", "joint", ("JOINTS=2", "LEFT=0", "LOSSES=0")),
    Run("two tables, a generation ends", "joint", ("JOINTS=1", "LEFT=1", "CLOSE_AT=1", "LOSSES=0"), quick=True),
    Run("two writers, asked", "table", ("CLIENTS=2", "ASKED")),
    Run("two writers, many losses", "table", ("CLIENTS=2", "DIRECT", "LOSSES=3", "CHANGES=3", "ROOM=1")),
    Run("a lease that is lost", "table", ("CLIENTS=2", "LEASES", "DIRECT", "EXPIRIES=1")),
    Run("three writers, a generation ends", "table", ("CLIENTS=3", "CLOSE_AT=1", "LOSSES=0"), compressed=True),
    Run("asked, a generation ends", "table", ("CLIENTS=2", "CLOSE_AT=1", "ASKED", "LOSSES=0")),
    Run("withdrawn, asked", "table", ("CLIENTS=2", "WITHDRAWN", "ASKED", "LOSSES=0")),
    Run("garbage, a generation ends", "table", ("CLIENTS=2", "CLOSE_AT=1", "COLLECTOR", "EXPIRIES=1", "LOSSES=0"), compressed=True),
    Run("garbage", "table", ("CLIENTS=2", "COLLECTOR", "EXPIRIES=1", "LOSSES=0", "GIVING_UP"), compressed=True),
    Run("two over two tables, losses", "joint", ("JOINTS=2", "LEFT=0", "LOSSES=1")),
    Run("every slot is decided", "table", _LIVE, claim="decided"),
    Run("every version is published", "table", _LIVE, claim="seen"),
    Run("who lives is answered", "table", _LIVE, claim="answered"),
)
"""What has to hold."""

_TWO: Final = ("CLIENTS=2", "VERSIONS=3", "SLOTS=4", "RECORDS=6")

_ONE: Final = ("CLIENTS=1", "COLLECTOR", "EXPIRIES=1", "HELPED", "LOSSES=0")

_BOTH: Final = ("JOINTS=1", "LEFT=1", "RIGHT=1", "LOSSES=0", "VERSIONS=4")

MUTATIONS: Final = (
    Run("head is not compared", "table", (*_TWO, "NO_HEAD_CHECK"), breaks=("I1", "I2", "I3")),
    Run("a lost create is sent again", "table", (*_TWO, "NO_GUID_SEARCH"), breaks=("I10",)),
    Run("filed again without saying so", "table", (*_TWO, "NO_MARK"), breaks=("I10",)),
    Run("a lost multi counts as done", "table", (*_TWO, "NO_BATCH_ID"), breaks=("I5",)),
    Run("versions are put out of order", "table", (*_TWO, "NO_PUBLISH_ORDER"), breaks=("I6",)),
    Run("published is raised first", "table", (*_TWO, "RAISE_FIRST"), breaks=("I6",)),
    Run("published is written over", "table", (*_TWO, "NO_PUBLISHED_CHECK"), breaks=("I6",)),
    Run("the lease is not checked", "table", (*_TWO, "LEASES", "NO_LEASE_CHECK"), breaks=("I9",)),
    Run("grants are not checked", "table", (*_TWO, "LEASES", "NO_LEASE_VERSION"), breaks=("I9",)),
    Run("the owner is not checked", "table", (*_ONE, "NO_PRESENCE"), breaks=("I7",)),
    Run("graves are not looked for", "table", (*_ONE, "NO_GRAVE_CHECK"), breaks=("I7",)),
    Run("slots do not keep files", "table", (*_ONE, "NO_BUSY"), breaks=("I7",)),
    Run("slots are read before graves are dug", "table", (*_ONE, "BUSY_FIRST"), breaks=("I7",)),
    Run("a generation opens though slots are left", "table", ("CLIENTS=3", "CLOSE_AT=1", "LOSSES=0", "NOT_DRAINED"), breaks=("I3",)),
    Run("the tables are decided one by one", "joint", (*_BOTH, "TWO_MULTIS"), breaks=("I11",)),
    Run("the other head is not compared", "joint", (*_BOTH, "ONE_HEAD_ONLY"), breaks=("I1", "I2", "I3")),
    Run("what stands before it elsewhere is passed", "joint", (*_BOTH, "NOT_FIRST"), breaks=("I3",)),
    Run("refused in one table, committed in the other", "joint", (*_BOTH, "REFUSED_ALONE"), breaks=("I11",)),
    Run("only its owner decides a slot", "table", (*_LIVE, "NO_HELP"), claim="decided", breaks=("I8",)),
)
"""A check of the protocol is left out of each."""

ALLOWED: Final = ((r"-end-", "the helper, and the world that sessions and leases live in, never end"),)
"""What of the models may be reached in no run, as regular expressions on the text of statements, and why."""
