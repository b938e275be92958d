"""Carries out statements: those about tables of sluice here, with an engine for queries and rows; all others are the engine's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, Final, cast

from . import definitions, maintenance, partitions, showing
from .concurrency import NOT_OURS, atomic, expected, explain_conflict, lock, show_state, unlock
from .engine import Engine, R, RowChange, T
from .loading import copy_into
from .parse.concurrency import Atomic, ExplainConflict, Lock, ShowState, Unlock
from .parse.cursor import Span
from .parse.maintenance import Analyze, Attach, Compact, Convert, CopyInto, Detach, Generate, Optimize, Reorganise, Repair, Restore, Vacuum
from .parse.namespaces import Comment, CreateNamespace, DropNamespace, ShowNamespaces
from .parse.reading import COORDINATED_ONLY, ENGINE_ONLY, IfVersion, Malformed, Other, Statement
from .parse.rows import Delete, Insert, Merge, Truncate, Update
from .parse.tables import Alter, Clone, Create, Describe, Drop, DropPartitions, Foreign, Like, Show, ShowTables, Undrop
from .places import at_one_moment, current_tables, opened, relations_of_sluice, required_place, sources_of
from .request import NOTHING, Answer, Place, Request, counted

ON_PLACES: Final[Mapping[type, Callable[[Request, Any, Place], Answer]]] = {
    Optimize: maintenance.optimize,
    Compact: maintenance.compact,
    Vacuum: maintenance.vacuum,
    Restore: maintenance.restore,
    Generate: maintenance.generate,
    Reorganise: maintenance.reorganise,
    Repair: maintenance.repair,
    Analyze: maintenance.analyze,
    Detach: maintenance.detach,
    CopyInto: copy_into,
    Drop: definitions.drop,
    Alter: definitions.alter,
    DropPartitions: partitions.drop,
    Truncate: partitions.truncate,
    Show: showing.show,
    Describe: showing.describe,
    Foreign: definitions.foreign,
}
"""Statements about an existing table that no engine has to run."""
_WITHOUT_PLACE: Final[Mapping[type, Callable[[Request, Any], Answer]]] = {
    Lock: lock,
    Unlock: unlock,
    ShowState: show_state,
    Clone: maintenance.clone,
    Convert: maintenance.convert,
    Attach: maintenance.attach,
    Undrop: definitions.undrop,
}
"""Statements about several tables, a new one, or what the coordinator knows, which no engine has to run."""
_OURS_ALONE: Final = (Optimize, Compact, Vacuum, Restore, Generate, CopyInto, Reorganise, Repair, Detach)
"""Statements that Spark does not have; Delta Lake has most of them."""


def run(engine: Engine[R, T], request: R, statement: Statement) -> T:
    """Carry out the request's statement. One that raises has written nothing."""
    with nullcontext() if isinstance(statement, Unlock) else request.under_locks():
        return _run(engine, request, statement)


def _run(engine: Engine[R, T], request: R, statement: Statement) -> T:
    match statement:
        case IfVersion():
            return _run(engine, replace(request, if_version=expected(request, statement)), statement.statement)  # type: ignore[type-var]
        case Other():
            return engine.carry_out(request, statement)
        case Malformed():
            words, target = statement.words, statement.target
            is_ours = request.has_only_sluice or words[0] in ENGINE_ONLY or not COORDINATED_ONLY.isdisjoint({words[:1], words[:2]})
            is_ours = is_ours or (target is not None and request.place_of(target) is not None)
            if is_ours or (words[0] in ("CREATE", "REPLACE") and engine.creates(request, statement)):
                raise request.refused(statement.at, statement.message)
            return engine.carry_out(request, statement)
        case Create() if not engine.creates(request, statement):
            return _carry_out(engine, request, statement)
        case CreateNamespace() | DropNamespace() | ShowNamespaces() | ShowTables() | Comment() | Like():
            return engine.about_names(request, statement)
        case Atomic():
            return engine.result(request, atomic(engine, request, statement))
        case ExplainConflict():
            return engine.result(request, explain_conflict(engine, request, statement))
        case Create():
            answer = definitions.create_table(request, statement, partial(engine.create_with_rows, request, statement))
            return engine.result(request, answer)
        case Lock() | Unlock() | ShowState() | Clone() | Convert() | Attach() | Undrop():
            return engine.result(request, _WITHOUT_PLACE[type(statement)](request, cast(Any, statement)))
    place = request.place_of(statement.target)
    if place is None and isinstance(statement, _OURS_ALONE) and not request.has_delta_lake:
        place = required_place(request, statement.target)
    if place is None:
        return _carry_out(engine, request, statement)
    if isinstance(statement, (Insert, Update, Delete, Merge)):
        answer = _committed(engine, request, statement, place)
    else:
        answer = ON_PLACES[type(statement)](request, cast(Any, statement), place)
    return engine.result(request, answer)


def _carry_out(engine: Engine[R, T], request: R, statement: Any) -> T:
    """Leave a statement about another table to the engine."""
    if request.if_version is not None and not request.has_only_sluice:
        raise request.refused(getattr(statement, "target", None) or Span(0, 0), NOT_OURS)
    return engine.carry_out(request, statement)


def _committed(engine: Engine[R, Any], request: R, statement: Insert | RowChange, place: Place) -> Answer:
    """Commit rows or a change of rows, read with all other tables as of one moment. Raises the conflict if others changed what was read or
    is replaced; then nothing has changed.
    """
    table = opened(place)
    relations = relations_of_sluice(request, statement.relations)
    read = current_tables(relations)
    snapshots = at_one_moment([*read, table], table, request.if_version) if read else {}
    appends = isinstance(statement, Insert) and not (statement.overwrite or statement.where is not None or statement.relations)
    if appends and request.if_version is None:
        part = table.begin_append(**request.terms)  # it needs no look at the latest version
    else:
        part = table.begin(read_version=snapshots[table.location].version if snapshots else None, **request.terms)
    with part:
        sources = sources_of(request, relations, snapshots)
        if isinstance(statement, Insert):
            engine.insert(request, statement, part, table, sources)
            return NOTHING
        if table.location in [each.location for each in read]:
            part.depend_on()
        counts = engine.change(request, statement, part, sources)
    return counted(counts, merges=isinstance(statement, Merge))
