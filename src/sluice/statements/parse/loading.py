"""COPY INTO, REORG, FSCK, ANALYZE, ATTACH and DETACH."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from ...storage.dataclass import dataclass
from .columns import properties_in
from .cursor import Cursor, Name, Span


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
    """ANALYZE TABLE target COMPUTE [DELTA] STATISTICS [FOR ALL COLUMNS | FOR COLUMNS a, b]; `columns` is None for all.

    `refused` are the words and the place of something that sluice does not do.
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


Statement: TypeAlias = CopyInto | Reorganise | Repair | Analyze | Attach | Detach


def copy_into(here: Cursor) -> CopyInto:
    """COPY INTO."""
    target = here.name()
    here.expect("FROM")
    source, columns = here, None
    if here.sees("("):
        source = here.inside()
        source.expect("SELECT")
        columns = source.until(lambda at: at.sees("FROM"), "columns")
        source.expect("FROM")
    begin = source.at
    path = source.string("a path")
    at = Span(source.tokens[begin].start, source.tokens[source.at - 1].end)
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
    while not here.is_done() and not here.sees(";"):
        if here.clause("FILES", of="which files"):
            here.expect("=")
            files = _files(here.inside())
        elif here.clause("PATTERN", of="which files"):
            here.expect("=")
            pattern = here.string("a pattern")
        elif here.clause("FORMAT_OPTIONS"):
            format_options = properties_in(here.inside())
        elif here.clause("COPY_OPTIONS"):
            copy_options = properties_in(here.inside())
        else:
            raise here.unreadable("expected FILES, PATTERN, FORMAT_OPTIONS or COPY_OPTIONS")
    return CopyInto(target, path, at, kind, files, pattern, format_options, copy_options, columns)


def _files(within: Cursor) -> tuple[str, ...]:
    names = within.each_once(lambda: within.string("the name of a file"), "file")
    within.finish()
    return names


def reorganise(here: Cursor) -> Reorganise:
    """REORG."""
    here.expect("TABLE")
    target = here.name()
    where = here.until(lambda at: at.sees("APPLY"), "a condition") if here.clause("WHERE") else None
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
        return Analyze(target, refused=("PARTITION", here.rest("COMPUTE STATISTICS")))
    here.expect("COMPUTE")
    here.take("DELTA")
    here.expect("STATISTICS")
    if here.sees("NOSCAN"):
        return Analyze(target, refused=("NOSCAN", here.rest("NOSCAN")))
    if here.clause("FOR", "ALL", "COLUMNS") or not here.clause("FOR", "COLUMNS"):
        return Analyze(target)
    within = here.inside() if here.sees("(") else here
    columns = within.each_once(lambda: within.name().quoted, "column")
    if within is not here:
        within.finish()
    return Analyze(target, columns)


def attach(here: Cursor) -> Attach:
    """ATTACH."""
    here.expect("TABLE")
    return Attach(here.name(), here.name() if here.take("AS") else None)


def detach(here: Cursor) -> Detach:
    """DETACH."""
    here.expect("TABLE")
    return Detach(here.name())


READERS: Final[Mapping[tuple[str, ...], Callable[[Cursor], Statement | None]]] = {
    ("COPY", "INTO"): copy_into,
    ("REORG",): reorganise,
    ("FSCK",): repair,
    ("ANALYZE",): analyze,
    ("ATTACH",): attach,
    ("DETACH",): detach,
}
"""The reader of what follows these words."""
