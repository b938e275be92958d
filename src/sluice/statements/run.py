"""Carries out statements: those about tables of sluice here, with an engine for queries and rows; all others are the engine's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, Final, cast

from ..tables.read.table_snapshot import TableSnapshot
from ..tables.table import Table
from ..tables.transaction import Transaction
from ..tables.write.merging import RowCounts
from . import maintenance, partitions
from .concurrency.blocks import NOT_OURS, atomic, expected
from .concurrency.conflicts import explain_conflict
from .concurrency.locks import lock, show_state, unlock
from .definitions import namespaces, showing, tables
from .engine import AboutNames, Engine, R, RowChange, T
from .loading import copy_into
from .parse.altering import Alter, DropPartitions
from .parse.compound import Atomic, ExplainConflict
from .parse.cursor import Span
from .parse.locks import Lock, ShowState, Unlock
from .parse.maintenance import Analyze, Attach, Compact, Convert, CopyInto, Detach, Generate, Optimize, Reorganise, Repair, Restore, Vacuum
from .parse.namespaces import Comment, CreateNamespace, DropNamespace, ShowNamespaces
from .parse.reading import COORDINATED_ONLY, ENGINE_ONLY, IfVersion, Malformed, Other, Statement
from .parse.rows import Delete, Insert, Merge, Truncate, Update
from .parse.tables import Clone, Create, Describe, Drop, Foreign, Like, Show, ShowTables, Undrop
from .places import SluiceRelation, not_found, opened, relations_of_sluice, required_place
from .reports import NOTHING, Answer, affected, merged
from .request import Place, Request
from .sources import at_one_moment, current_tables, sources_of

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
    Drop: tables.drop,
    Alter: tables.alter,
    DropPartitions: partitions.drop,
    Truncate: partitions.truncate,
    Show: showing.show,
    Describe: showing.describe,
    Foreign: tables.foreign,
}
"""Statements about an existing table that no engine has to run."""
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
            if request.has_only_sluice or _is_ours(engine, request, statement):
                raise request.refused(statement.at, statement.message)
            return engine.carry_out(request, statement)
        case Create() if not engine.creates(request, statement):
            return _carry_out(engine, request, statement)
        case CreateNamespace() | DropNamespace() | ShowNamespaces() | ShowTables() | Comment() | Like():
            return engine.about_names(request, statement)
        case Atomic() | ExplainConflict() | Lock() | Unlock() | ShowState() | Create() | Clone() | Convert() | Attach() | Undrop():
            return engine.result(request, _without_target(engine, request, statement))
    place = request.place_of(statement.target)
    if place is None and isinstance(statement, _OURS_ALONE) and not request.has_delta_lake:
        place = required_place(request, statement.target)
    if place is None:
        return _carry_out(engine, request, statement)
    match statement:
        case Insert():
            insert_rows(engine, request, statement, place)
            answer = NOTHING
        case Update() | Delete():
            answer = affected(change_rows(engine, request, statement, place))
        case Merge():
            answer = merged(change_rows(engine, request, statement, place))
        case _:
            answer = ON_PLACES[type(statement)](request, cast(Any, statement), place)
    return engine.result(request, answer)


def _carry_out(engine: Engine[R, T], request: R, statement: Any) -> T:
    """Leave a statement about another table to the engine."""
    if request.if_version is not None and not request.has_only_sluice:
        raise request.refused(getattr(statement, "target", None) or Span(0, 0), NOT_OURS)
    return engine.carry_out(request, statement)


def _is_ours(engine: Engine[R, Any], request: R, statement: Malformed) -> bool:
    """Whether a statement that cannot be read is about a table of sluice."""
    if statement.words[0] in ENGINE_ONLY or not COORDINATED_ONLY.isdisjoint({statement.words[:1], statement.words[:2]}):
        return True
    if statement.target is not None and request.place_of(statement.target) is not None:
        return True
    return statement.words[0] in ("CREATE", "REPLACE") and engine.creates(request, statement)


def _without_target(engine: Engine[R, Any], request: R, statement: Any) -> Answer:
    """Carry out a statement about several tables, a new one, or what the coordinator knows."""
    match statement:
        case Atomic():
            return atomic(engine, request, statement)
        case ExplainConflict():
            return explain_conflict(engine, request, statement)
        case Lock():
            return lock(engine, request, statement)
        case Unlock():
            return unlock(request, statement)
        case ShowState():
            return show_state(request, statement)
        case Create():
            return _create(engine, request, statement)
        case Clone():
            return maintenance.clone(request, statement, required_place(request, statement.source))
        case Convert():
            return maintenance.convert(request, statement)
        case Attach():
            return maintenance.attach(request, statement)
    return tables.undrop(request, statement)


def _create(engine: Engine[R, Any], request: R, statement: Create) -> Answer:
    definition = tables.definition_of(request, statement)
    if statement.query is None:
        return tables.create(request, definition)
    tables.with_rows(request, statement, lambda place: engine.create_with_rows(request, statement, definition, place))
    return NOTHING


def names_answer(request: Request, statement: AboutNames) -> Answer:
    """What the coordinator alone says to a statement about names."""
    match statement:
        case CreateNamespace():
            return namespaces.create(request, statement)
        case DropNamespace():
            return namespaces.drop(request, statement)
        case ShowNamespaces():
            return namespaces.show(request, statement)
        case ShowTables():
            shown = showing.tables_of(request, statement)
            if shown is None:
                raise request.refused(statement.namespace or Span(0, 0), "there is no such namespace; SHOW NAMESPACES lists them")
            return shown
        case Like():
            return tables.create_like(request, statement, required_place(request, statement.source))
    answer = namespaces.comment(request, statement)
    if answer is None:
        raise not_found(request, statement.target)
    return answer


def change_rows(engine: Engine[R, Any], request: R, statement: RowChange, place: Place) -> RowCounts:
    """Commit a change of rows, read with all other tables as of one moment. Raises the conflict if another commit came first; then nothing
    has changed.
    """
    table = opened(place)
    relations = relations_of_sluice(request, statement.relations)
    snapshots = _current(request, relations, table)
    with _begun(request, table, snapshots) as part:
        if any(each.location == table.location for each in current_tables(relations)):
            part.depend_on()
        return engine.change(request, statement, part, sources_of(request, relations, snapshots))


def insert_rows(engine: Engine[R, Any], request: R, statement: Insert, place: Place) -> None:
    """Commit an INSERT, whose query reads all tables as of one moment. Raises the conflict if others changed what it read or replaces."""
    table = opened(place)
    relations = relations_of_sluice(request, statement.relations)
    snapshots = _current(request, relations, table)
    appends = not (statement.overwrite or statement.where is not None or statement.relations)
    with _begun(request, table, snapshots, appends=appends) as part:
        engine.insert(request, statement, part, table, sources_of(request, relations, snapshots))


def _current(request: Request, relations: Sequence[SluiceRelation], table: Table) -> Mapping[str, TableSnapshot]:
    """What a statement reads of tables as they are now, and the table that it changes, at one moment; empty if it reads none of them."""
    read = current_tables(relations)
    return at_one_moment([*read, table], table, request.if_version) if read else {}


def _begun(request: Request, table: Table, snapshots: Mapping[str, TableSnapshot], *, appends: bool = False) -> Transaction:
    """A transaction on the table as the statement reads it; one that only `appends` needs no look at the latest version."""
    if appends and request.if_version is None:
        return table.begin_append(**request.terms)
    version = snapshots[table.location].version if snapshots else None
    return table.begin(read_version=version, **request.terms)
