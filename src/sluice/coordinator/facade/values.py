"""The values that travel between tables and the coordinator, re-exported so that the floors above need not know their modules."""

from __future__ import annotations

from ..admission.change import Change, Reads
from ..admission.change_footprint import touched_by_reads
from ..commit.outcomes import Commit, Outcome
from ..leases.pins import Pin
from ..leases.scopes import PartitionScope
from ..leases.turns import Chance
from ..nodes.records import Head
from ..publication.ratified_log import RatifiedLog
from ..service.clock import DEFAULT_TIMEOUT_S, Clock, Deadline, InParts, SystemClock, Timeout, bounding, within_this_call

__all__ = [
    "DEFAULT_TIMEOUT_S",
    "Chance",
    "Change",
    "Clock",
    "Commit",
    "Deadline",
    "Head",
    "InParts",
    "Outcome",
    "PartitionScope",
    "Pin",
    "RatifiedLog",
    "Reads",
    "SystemClock",
    "Timeout",
    "bounding",
    "touched_by_reads",
    "within_this_call",
]
