"""Isolation levels, each told by the anomaly it allows (Delta Lake's names and meaning)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from ..storage.errors import InvalidRequest

__all__ = ["ISOLATION_PROPERTY", "IsolationLevel", "table_isolation"]

ISOLATION_PROPERTY = "delta.isolationLevel"


class IsolationLevel(str, Enum):
    """How strict a commit is about what others committed since it read.

    The order of strength is SERIALIZABLE > WRITE_SERIALIZABLE > SNAPSHOT.
    """

    SERIALIZABLE = "Serializable"
    """The log is a serial order of all reads and writes."""
    WRITE_SERIALIZABLE = "WriteSerializable"
    """Writes are serializable, but blind appends may stand later in the log than in the serial order."""
    SNAPSHOT = "SnapshotIsolation"
    """Only what both wrote is compared; used for commits that reorganise without changing data."""


def table_isolation(configuration: Mapping[str, str]) -> IsolationLevel:
    """The level a table's properties ask for; WriteSerializable when they say nothing.

    Raises InvalidRequest for a level that a table cannot choose.
    """
    named = configuration.get(ISOLATION_PROPERTY, IsolationLevel.WRITE_SERIALIZABLE.value)
    allowed = (IsolationLevel.SERIALIZABLE, IsolationLevel.WRITE_SERIALIZABLE)
    for level in allowed:
        if level.value == named:
            return level
    names = " or ".join(level.value for level in allowed)
    raise InvalidRequest(f"{ISOLATION_PROPERTY} is {named!r}; use {names}", property=ISOLATION_PROPERTY, value=named)
