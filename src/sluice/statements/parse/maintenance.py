"""Statements that maintain a table as a whole, load files into it or hand it over: OPTIMIZE, COMPACT, REORG, VACUUM, RESTORE, FSCK,
ANALYZE, GENERATE, COPY INTO, CONVERT, ATTACH and DETACH.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from ...storage.dataclass import dataclass
from .columns import Column, columns_in, properties_in
from .cursor import Cursor, Name, Span
from .rows import partition_values


@dataclass(frozen=True, slots=True)
class CopyInto:
    """COPY INTO target FROM 'path' FILEFORMAT = format [FILES = (...)] [PATTERN = '...'] [FORMAT_OPTIONS (...)] [COPY_OPTIONS (...)].
    `path_at` and `columns` are places in the text: of the path, and of the list in FROM (SELECT list FROM 'path').
    """

    target: Name
    path: str
    path_at: Span
    format: str
    files: tuple[str, ...] | None = None
    pattern: str | None = None
    format_options: Mapping[str, str] | None = None
    copy_options: Mapping[str, str] | None = None
    columns: Span | None = None


@dataclass(frozen=True, slots=True)
class Reorganise:
    """REORG TABLE target [WHERE condition] APPLY (PURGE)."""

    target: Name
    where: Span | None = None


@dataclass(frozen=True, slots=True)
class Repair:
    """FSCK REPAIR TABLE target [DRY RUN]."""

    target: Name
    dry_run: bool


@dataclass(frozen=True, slots=True)
class Analyze:
    """ANALYZE TABLE target COMPUTE [DELTA] STATISTICS [FOR ALL COLUMNS | FOR COLUMNS a, b]; `columns` is None for all. `refused` are the
    words and the place of something that sluice does not do.
    """

    target: Name
    columns: tuple[str, ...] | None = None
    refused: tuple[str, Span] | None = None


@dataclass(frozen=True, slots=True)
class Attach:
    """ATTACH TABLE sluice.`/path` [AS name]."""

    target: Name
    name: Name | None = None


@dataclass(frozen=True, slots=True)
class Detach:
    """DETACH TABLE target."""

    target: Name


def copy_into(here: Cursor) -> CopyInto:
    """COPY INTO."""
    target = here.name()
    here.expect("FROM")
    source, columns = here, None
    if here.sees("("):
        source = here.inside()
        source.expect("SELECT")
        columns = source.until("columns", "FROM")
        source.expect("FROM")
    begin = source.at
    path = source.string("a path")
    at = source.since(begin)
    if columns is not None and not source.is_done():
        raise source.unreadable(
            "COPY INTO takes SELECT columns FROM 'path', and nothing more: load the rows, and change them by INSERT INTO ... SELECT"
        )
    here.required("FILEFORMAT")
    here.expect("=")
    kind = here.word("PARQUET, CSV or JSON").upper()
    files: tuple[str, ...] | None = None
    pattern: str | None = None
    format_options: Mapping[str, str] | None = None
    copy_options: Mapping[str, str] | None = None
    while not here.is_done():
        if here.clause("FILES", of="which files"):
            here.expect("=")
            files = here.bracketed(lambda within: within.string("the name of a file"), "file")
        elif here.clause("PATTERN", of="which files"):
            here.expect("=")
            pattern = here.string("a pattern")
        elif here.clause("FORMAT_OPTIONS"):
            format_options = properties_in(here)
        elif here.clause("COPY_OPTIONS"):
            copy_options = properties_in(here)
        else:
            raise here.unreadable("expected FILES, PATTERN, FORMAT_OPTIONS or COPY_OPTIONS")
    return CopyInto(target, path, at, kind, files, pattern, format_options, copy_options, columns)


def reorganise(here: Cursor) -> Reorganise:
    """REORG."""
    here.expect("TABLE")
    target = here.name()
    where = here.until("a condition", "APPLY") if here.clause("WHERE") else None
    here.required("APPLY")
    within = here.inside()
    if not within.take("PURGE"):
        raise within.unreadable("expected PURGE, the only thing that can be applied")
    within.finish()
    return Reorganise(target, where)


def repair(here: Cursor) -> Repair:
    """FSCK."""
    here.expect("REPAIR", "TABLE")
    return Repair(here.name(), here.clause("DRY", "RUN"))


def analyze(here: Cursor) -> Analyze | None:
    """ANALYZE."""
    if not here.take("TABLE"):
        return None
    target = here.name()
    if here.sees("PARTITION"):
        return Analyze(target, refused=("PARTITION", here.until("COMPUTE STATISTICS")))
    here.expect("COMPUTE")
    here.take("DELTA")
    here.expect("STATISTICS")
    if here.sees("NOSCAN"):
        return Analyze(target, refused=("NOSCAN", here.until("NOSCAN")))
    if here.clause("FOR", "ALL", "COLUMNS") or not here.clause("FOR", "COLUMNS"):
        return Analyze(target)
    read = here.bracketed if here.sees("(") else here.each_once
    return Analyze(target, read(lambda at: at.name().quoted, "column"))


def attach(here: Cursor) -> Attach:
    """ATTACH."""
    here.expect("TABLE")
    return Attach(here.name(), here.name() if here.take("AS") else None)


def detach(here: Cursor) -> Detach:
    """DETACH."""
    here.expect("TABLE")
    return Detach(here.name())


@dataclass(frozen=True, slots=True)
class Optimize:
    """OPTIMIZE target [FULL] [WHERE ...] [ZORDER BY (...)]."""

    target: Name
    where: Span | None = None
    z_order_by: tuple[str, ...] = ()
    full: bool = False


@dataclass(frozen=True, slots=True)
class Compact:
    """ALTER TABLE target [PARTITION (column = value, ...)] COMPACT MINOR|MAJOR, or COMPACT TABLE ...; `mode` is "minor" or "major"."""

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


Statement: TypeAlias = (
    Optimize | Compact | Vacuum | Restore | Convert | Generate | CopyInto | Reorganise | Repair | Analyze | Attach | Detach
)


def optimize(here: Cursor) -> Optimize:
    """OPTIMIZE."""
    target = here.table()
    full = here.clause("FULL")
    where = here.until("a condition", "ZORDER BY") if here.clause("WHERE") else None
    columns: tuple[str, ...] = ()
    if here.clause("ZORDER", "BY"):
        read = here.bracketed if here.sees("(") else here.each_once
        columns = read(lambda at: at.word("the name of a column"), "column")
    return Optimize(target, where, columns, full)


def compact(here: Cursor) -> Compact:
    """COMPACT."""
    here.take("TABLE")
    target = here.name()
    return compaction(here, target, partition_values(here) if here.clause("PARTITION") else ())


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
    while not here.is_done():
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
    kind = here.choice(*_MOMENTS)
    if kind is None:
        raise here.unreadable("expected VERSION AS OF or TIMESTAMP AS OF")
    value = here.until("a version or a time", "TBLPROPERTIES", "LOCATION", *_MOMENTS)
    here.choice(*_MOMENTS)  # raises for a second one
    return kind == "VERSION AS OF", value


_MOMENTS: Final = ("VERSION AS OF", "TIMESTAMP AS OF")


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
    return Convert(target, columns_in(here) if here.clause("PARTITIONED", "BY") else ())


def generate(here: Cursor) -> Generate:
    """GENERATE."""
    mode = here.word("what to generate, symlink_format_manifest,")
    here.expect("FOR", "TABLE")
    return Generate(here.table(), mode.lower())


READERS: Final[Mapping[tuple[str, ...], Callable[[Cursor], Statement | None]]] = {
    ("OPTIMIZE",): optimize,
    ("COMPACT",): compact,
    ("VACUUM",): vacuum,
    ("RESTORE",): restore,
    ("CONVERT",): convert,
    ("GENERATE",): generate,
    ("COPY", "INTO"): copy_into,
    ("REORG",): reorganise,
    ("FSCK",): repair,
    ("ANALYZE",): analyze,
    ("ATTACH",): attach,
    ("DETACH",): detach,
}
