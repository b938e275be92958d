"""Statements that reorganise a table, go back in it or make files beside it: OPTIMIZE, COMPACT, VACUUM, RESTORE, CONVERT, GENERATE."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from ...storage.dataclass import dataclass
from .columns import Column, columns_in
from .cursor import Cursor, Name, Span
from .rows import partition_values


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


@dataclass(frozen=True, slots=True)
class Generate:
    """GENERATE mode FOR TABLE target; `mode` is in lower case."""

    target: Name
    mode: str


_COLUMN: Final = "the name of a column"
Statement: TypeAlias = Optimize | Compact | Vacuum | Restore | Convert | Generate


def optimize(here: Cursor) -> Optimize:
    """OPTIMIZE."""
    target = here.table()
    full = here.clause("FULL")
    where = here.until(lambda at: at.sees("ZORDER", "BY"), "a condition") if here.clause("WHERE") else None
    columns: tuple[str, ...] = ()
    if here.clause("ZORDER", "BY"):
        columns = here.names(_COLUMN) if here.sees("(") else here.each_once(lambda: here.word(_COLUMN), "column")
    return Optimize(target, where, columns, full)


def compact(here: Cursor) -> Compact:
    """COMPACT."""
    here.take("TABLE")
    target = here.name()
    partition = partition_values(here) if here.clause("PARTITION") else ()
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
    target, hours, dry_run = here.table(), None, False
    while not here.is_done() and not here.sees(";"):
        if here.clause("RETAIN"):
            hours = here.number("a number of hours")
            if here.take_one("HOURS", "HOUR") is None:
                raise here.unreadable("expected HOURS")
        elif here.clause("DRY", "RUN"):
            dry_run = True
        elif not here.clause("FULL", of="kind") and not here.clause("LITE", of="kind"):
            raise here.unreadable("expected RETAIN n HOURS or DRY RUN")
    return Vacuum(target, hours, dry_run)


def when(here: Cursor) -> tuple[bool, Span]:
    """VERSION AS OF n or TIMESTAMP AS OF t: whether it is a version, and the place of the value."""
    is_version = _as_of(here, "VERSION")
    if not is_version and not _as_of(here, "TIMESTAMP"):
        raise here.unreadable("expected VERSION AS OF or TIMESTAMP AS OF")
    value = here.until(_ends_when, "a version or a time")
    any(_as_of(here, kind) for kind in ("VERSION", "TIMESTAMP"))  # raises for a second one
    return is_version, value


def _as_of(here: Cursor, kind: str) -> bool:
    return here.clause(kind, "AS", "OF", of="moment")


def _ends_when(here: Cursor) -> bool:
    return any(here.sees(*words.split()) for words in ("TBLPROPERTIES", "LOCATION", "VERSION AS OF", "TIMESTAMP AS OF"))


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
    here.clause("NO", "STATISTICS")
    return Convert(target, columns_in(here.inside()) if here.clause("PARTITIONED", "BY") else ())


def generate(here: Cursor) -> Generate:
    """GENERATE."""
    mode = here.word("what to generate, symlink_format_manifest,")
    here.expect("FOR", "TABLE")
    return Generate(here.table(), mode.lower())


READERS: Final[Mapping[tuple[str, ...], Callable[[Cursor], Statement]]] = {
    ("OPTIMIZE",): optimize,
    ("COMPACT",): compact,
    ("VACUUM",): vacuum,
    ("RESTORE",): restore,
    ("CONVERT",): convert,
    ("GENERATE",): generate,
}
"""The reader of what follows these words."""
