"""Statements that reorganise a table or go back in it: OPTIMIZE, COMPACT, VACUUM, RESTORE, CONVERT."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from ..storage.dataclass import dataclass
from .columns import Column, columns_in
from .cursor import Cursor, Name, Span
from .rows import partition_in


@dataclass(frozen=True, slots=True)
class Optimize:
    """OPTIMIZE target [FULL] [WHERE ...] [ZORDER BY (...)]."""

    target: Name
    where: Span | None = None
    z_order_by: tuple[str, ...] = ()
    full: bool = False


@dataclass(frozen=True, slots=True)
class Compact:
    """ALTER TABLE target [PARTITION (column = value, ...)] COMPACT MINOR|MAJOR, or COMPACT TABLE target ...

    `mode` is "minor" or "major".
    """

    target: Name
    mode: str
    partition: tuple[tuple[str, Span | None], ...] = ()


@dataclass(frozen=True, slots=True)
class Vacuum:
    """VACUUM target [RETAIN hours HOURS] [DRY RUN]."""

    target: Name
    hours: str | None = None
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class Restore:
    """RESTORE TABLE target TO VERSION AS OF n, or TO TIMESTAMP AS OF t."""

    target: Name
    is_version: bool
    value: Span


@dataclass(frozen=True, slots=True)
class Convert:
    """CONVERT TO DELTA parquet.`/path` [PARTITIONED BY (column type, ...)]; SLUICE means the same as DELTA."""

    target: Name
    partitioned_by: tuple[Column, ...] = ()


Statement: TypeAlias = Optimize | Compact | Vacuum | Restore | Convert


def optimize(here: Cursor) -> Optimize:
    """OPTIMIZE."""
    target = here.name()
    full = here.take("FULL")
    where = here.until(lambda at: at.sees("ZORDER", "BY"), "a condition") if here.take("WHERE") else None
    columns: tuple[str, ...] = ()
    if here.take("ZORDER", "BY"):
        columns = here.names("the name of a column") if here.sees("(") else _bare_names(here)
    return Optimize(target, where, columns, full)


def _bare_names(here: Cursor) -> tuple[str, ...]:
    found = [here.word("the name of a column")]
    while here.take(","):
        found.append(here.word("the name of a column"))
    return tuple(found)


def compact(here: Cursor) -> Compact:
    """COMPACT."""
    here.take("TABLE")
    target = here.name()
    partition = partition_in(here) if here.take("PARTITION") else ()
    return compaction(here, target, partition)


def compaction(here: Cursor, target: Name, partition: tuple[tuple[str, Span | None], ...]) -> Compact:
    """The compaction that MINOR or MAJOR, which may be in quotes, asks for. Raises Unreadable."""
    token = here.peek()
    mode = "" if token is None else token.value.lower()
    if mode not in ("minor", "major"):
        raise here.unreadable("expected MINOR or MAJOR")
    here.at += 1
    return Compact(target, mode, partition)


def vacuum(here: Cursor) -> Vacuum:
    """VACUUM."""
    target, hours, dry_run = here.name(), None, False
    while not here.is_done() and not here.sees(";"):
        if here.take("RETAIN"):
            hours = here.number("a number of hours")
            if here.take_one("HOURS", "HOUR") is None:
                raise here.unreadable("expected HOURS")
        elif here.take("DRY", "RUN"):
            dry_run = True
        elif here.take_one("FULL", "LITE") is None:
            raise here.unreadable("expected RETAIN n HOURS or DRY RUN")
    return Vacuum(target, hours, dry_run)


def when(here: Cursor) -> tuple[bool, Span]:
    """VERSION AS OF n or TIMESTAMP AS OF t: whether it is a version, and the place of the value."""
    kind = here.take_one("VERSION AS OF", "TIMESTAMP AS OF")
    if kind is None:
        raise here.unreadable("expected VERSION AS OF or TIMESTAMP AS OF")
    value = here.until(lambda at: at.sees("TBLPROPERTIES") or at.sees("LOCATION"), "a version or a time")
    return kind.startswith("VERSION"), value


def restore(here: Cursor) -> Restore:
    """RESTORE."""
    here.take("TABLE")
    target = here.name()
    here.take("TO")
    return Restore(target, *when(here))


def convert(here: Cursor) -> Convert:
    """CONVERT TO."""
    here.expect("TO")
    if here.take_one("DELTA", "SLUICE") is None:
        raise here.unreadable("expected DELTA or SLUICE")
    target = here.name()
    here.take("NO", "STATISTICS")
    return Convert(target, columns_in(here.inside()) if here.take("PARTITIONED", "BY") else ())


READERS: Final[Mapping[tuple[str, ...], Callable[[Cursor], Statement]]] = {
    ("OPTIMIZE",): optimize,
    ("COMPACT",): compact,
    ("VACUUM",): vacuum,
    ("RESTORE",): restore,
    ("CONVERT",): convert,
}
"""The reader of what follows these words."""
