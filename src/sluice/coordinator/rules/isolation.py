"""Isolation levels, each defined by the anomaly it allows (Delta Lake's names and meaning)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TypeVar

from ...storage.errors import InvalidRequest

ISOLATION_PROPERTY = "delta.isolationLevel"
POLICY_PROPERTY = "sluice.conflictPolicy"
_E = TypeVar("_E", bound=Enum)


class IsolationLevel(str, Enum):
    """How strict a commit is about what others committed since it read.

    The order of strength is SERIALIZABLE > WRITE_SERIALIZABLE > SNAPSHOT.
    """

    SERIALIZABLE = "Serializable"
    """The log is a serial order of all reads and writes."""
    WRITE_SERIALIZABLE = "WriteSerializable"
    """Writes are serializable, but blind appends may be later in the log than in the serial order."""
    SNAPSHOT = "SnapshotIsolation"
    """Only writes are compared; used for commits that reorganise without changing data."""


class ConflictPolicy(str, Enum):
    """Whose rules decide conflicts; chosen per table."""

    DELTA = "delta"
    """Delta Lake's rules, at the table's isolation level."""
    DATABRICKS = "databricks"
    """The tables of Databricks' documentation, cell by cell; every change of protocol or metadata stops all concurrent writes."""
    MAXCOMPUTE_TABLE = "maxcompute-table"
    """MaxCompute's ordinary tables."""
    MAXCOMPUTE_TRANSACTIONAL = "maxcompute-transactional"
    """MaxCompute's transactional tables."""
    MAXCOMPUTE_DELTA = "maxcompute-delta"
    """MaxCompute's Delta tables."""

    @property
    def by_classes(self) -> bool:
        """Whether it compares classes of operations by partition, and neither files nor rows."""
        return self not in (ConflictPolicy.DELTA, ConflictPolicy.DATABRICKS)


_BY_STRENGTH = (IsolationLevel.SNAPSHOT, IsolationLevel.WRITE_SERIALIZABLE, IsolationLevel.SERIALIZABLE)


def table_isolation(configuration: Mapping[str, str]) -> IsolationLevel:
    """The level in a table's properties; WriteSerializable by default. Raises InvalidRequest."""
    return _named(IsolationLevel, configuration.get(ISOLATION_PROPERTY, IsolationLevel.WRITE_SERIALIZABLE.value), ISOLATION_PROPERTY)


def table_policy(configuration: Mapping[str, str]) -> ConflictPolicy:
    """The conflict policy in a table's properties; Delta's by default. Raises InvalidRequest."""
    return _named(ConflictPolicy, configuration.get(POLICY_PROPERTY, ConflictPolicy.DELTA.value), POLICY_PROPERTY)


def stricter(table: IsolationLevel, asked: str | IsolationLevel | None) -> IsolationLevel:
    """The level of one transaction: the table's, or a stricter one if requested. Raises InvalidRequest for a weaker one."""
    if asked is None:
        return table
    level = _named(IsolationLevel, asked, "isolation")
    if _BY_STRENGTH.index(level) < _BY_STRENGTH.index(table):
        raise InvalidRequest(
            f"isolation={level.value!r} is weaker than the table's {table.value}; a transaction may only be stricter than its table",
            value=level.value,
            table=table.value,
        )
    return level


def _named(kind: type[_E], value: str, what: str) -> _E:
    try:
        return kind(value)
    except ValueError:
        names = ", ".join(each.value for each in kind)
        raise InvalidRequest(f"{what} is {value!r}; use one of {names}", property=what, value=value) from None
