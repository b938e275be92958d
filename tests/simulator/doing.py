"""How a client does each kind of operation, by sluice's own API."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import pyarrow as pa

import sluice
from sluice.coordinator.commit.outcomes import Commit
from sluice.coordinator.errors import LeaseLost, OutcomeUnknown, WrongCoordinator
from sluice.coordinator.service.clock import Clock
from sluice.storage.errors import Unavailable
from sluice.tables.joint_transaction import JointTransaction
from sluice.tables.manage import creation
from sluice.tables.manage.moving import move
from sluice.tables.read.table_snapshot import TableSnapshot
from sluice.tables.table import Table

from .history import Call, Read
from .model_operations import State, Step
from .opening import COORDINATORS, SCHEMA, rows_as_arrow, rows_of

if TYPE_CHECKING:
    from .client import Program

_T = TypeVar("_T")
Commits: TypeAlias = "Mapping[int, Commit] | None"
"""The commit of each table, by its number; none where nothing was changed; None for what commits nothing."""
_TOGETHER_S = 0.5
"""Those who take numbers at once do so when so much of a second is over again."""


def at_the_next(seconds: float, clock: Clock) -> None:
    """Wait until so many seconds are over again, as all do who meet."""
    clock.sleep(-clock.monotonic_s() % seconds)


def _of(table: int, commit: Commit | None) -> dict[int, Commit]:
    return {} if commit is None else {table: commit}


def _is_wide(table: Table) -> bool:
    return "w" in table.schema.names


def _write(program: Program, call: Call) -> Commits:
    operation = call.operation
    table = program.table(operation.table)
    application = None if operation.application is None else (f"app-{program.machine.number}", operation.application)
    if operation.options["begun"] or len(operation.steps) > 1:
        begun = program.begun[operation.table] = table.begin(transaction=application, after=program.begun.get(operation.table))
        call.has_turn = bool(begun._priority.nodes)
        try:
            for step in operation.steps:
                if operation.options.get("meets"):
                    at_the_next(_TOGETHER_S, program.machine.clock)
                _do_step(begun, step, rows_as_arrow(step.rows, wide=_is_wide(table)))
        except Exception:
            begun.abort()  # as a `with` block does
            raise
        program.machine.clock.sleep(operation.options.get("works_s", 0.0))
        try:
            return _of(operation.table, begun.commit())
        except OutcomeUnknown as unknown:
            return _of(operation.table, _again(program, begun.commit, unknown))
    (step,) = tuple(operation.steps)
    return _of(operation.table, _do_step(table, step, rows_as_arrow(step.rows, wide=_is_wide(table)), transaction=application))


def _do_step(target: Any, step: Step, rows: pa.Table, **once: Any) -> Any:
    """One change of a table, of a transaction, or of a transaction's share of a table; `once` numbers what is its own transaction."""
    match step.kind:
        case "append" | "copy" | "widen":
            return target.append(rows, merge_schema=step.kind == "widen", **once)
        case "overwrite":
            return target.overwrite(rows, step.where, **once)
        case "delete":
            return target.delete(step.where)
        case "upsert":
            return target.upsert(rows, on=["uid"])
        case "scan":
            return None
    return target.update(_assignment(step), step.where)


def _assignment(step: Step) -> dict[str, str]:
    return {"v": f"v + {step.amount}"} if step.kind == "update" else {"k": f"(k + {step.amount}) % 3"}


def _again(program: Program, commit: Callable[[], _T], unknown: OutcomeUnknown) -> _T:
    """Call `commit` again, sometimes: it finds out, or is as unknown as before."""
    if program.machine.draw() < 0.5:
        raise unknown
    try:
        return commit()
    except Unavailable:
        raise unknown from None


# -- several tables ------------------------------------------------------------------------------------------------------


def _joint(program: Program, call: Call) -> Commits:
    operation = call.operation
    tables = {number: program.table(number) for number in operation.tables}
    application = None if operation.application is None else (f"app-{program.machine.number}", operation.application)
    begun = JointTransaction(
        tables=list(tables.values()) if operation.options["named"] else (),
        transaction=application,
        timeout_s=program.timeout_s,
        ack="ratified" if operation.options["ratified"] else "published",
    )
    for step in operation.steps:
        _do_joint_step(begun, tables, step, call)
    call.read_versions = {number: begun.read_versions[table.location] for number, table in tables.items()}
    try:
        info = begun.commit()
    except OutcomeUnknown as unknown:
        info = _again(program, begun.commit, unknown)
    return {number: info[table] for number, table in tables.items() if table.location in info}


def _do_joint_step(begun: JointTransaction, tables: Mapping[int, Table], step: Step, call: Call) -> None:
    seen: State = {}
    if step.source is not None and step.looks_for is not None:
        seen, _ = rows_of(begun[tables[step.source]].scan(where=step.looks_for.sql))
        call.scans.append(seen)
    table = tables[step.table]
    rows: State = {u: (k, len(seen), w) for u, (k, _, w) in step.rows.items()} if step.kind == "copy" else step.rows
    _do_step(begun[table], step, rows_as_arrow(rows, wide=_is_wide(table)))


def _together(program: Program, call: Call) -> Commits:
    numbers = call.operation.options["tables"]
    shown = sluice.read_together([program.table(number) for number in numbers], timeout_s=program.timeout_s)
    for number, snapshot in zip(numbers, shown, strict=True):
        _note_read(program, call, number, "together", snapshot, snapshot.to_arrow())
    return None


# -- one table -----------------------------------------------------------------------------------------------------------


def _leased(program: Program, call: Call) -> Commits:
    """A change under a lease on all of the table; what it costs others, they wait for."""
    options, machine = call.operation.options, program.machine
    commits: list[Commits] = []
    try:
        with program.table(call.operation.table).lease(options["mode"], wait_s=0.5 + 5.0 * machine.draw()):
            machine.clock.sleep(2.0 * machine.draw() ** 4)
            machine.lose_lease(call.operation.number)
            commits.append(_write(program, call))
    except LeaseLost:
        if not commits:
            raise
    return commits[0]  # what was committed under a lease stands, though the lease was lost afterwards


def _plan(program: Program, call: Call) -> Commits:
    operation = call.operation
    table = program.table(operation.table)
    if operation.number not in program.plans:
        plan = table.plan_write(SCHEMA, merge_schema=True)
        program.plans[operation.number] = plan, plan.write(rows_as_arrow(operation.steps[0].rows), task=0)
    plan, files = program.plans[operation.number]
    return _of(operation.table, table.commit_write(plan, files))


def _compact(program: Program, call: Call) -> Commits:
    mode, table = call.operation.options["mode"], program.table(call.operation.table)
    return _of(call.operation.table, table.compact(z_order_by=["v", "uid"]) if mode == "z-order" else table.compact(mode))


def _properties(program: Program, call: Call) -> Commits:
    settings = {"simulated.by": str(call.operation.number), "delta.checkpointInterval": "7"}
    return _of(call.operation.table, program.table(call.operation.table).set_properties(settings))


def _read(program: Program, call: Call) -> Commits:
    operation = call.operation
    level = operation.options["level"]
    shown = program.table(operation.table).snapshot(consistency=level)
    _note_read(program, call, operation.table, level, shown, shown.to_arrow())
    return None


def _pinned(program: Program, call: Call) -> Commits:
    """A long read: its version is pinned, and read when others have collected garbage."""
    operation, machine = call.operation, program.machine
    history = machine.around.history
    table = program.table(operation.table)
    latest = table.snapshot().version
    shown = table.snapshot(max(0, latest - operation.options["back"]))
    with shown.pin() as pin:
        history.at(table.location).pins[pin._path].acknowledged = history.next_tick()
        machine.clock.sleep(8.0 * machine.draw() ** 2)
        _note_read(program, call, operation.table, "pinned", shown, shown.to_arrow())
    return None


def _note_read(program: Program, call: Call, number: int, level: str, shown: TableSnapshot, rows: pa.Table) -> None:
    state, twice = rows_of(rows)
    if twice:
        program.machine.around.history.trouble.append(f"{call}: rows are there twice in version {shown.version}")
    call.reads.append(Read(number, level, shown.version, state))


def _vacuum(program: Program, call: Call) -> Commits:
    forced = call.operation.options["forced"]
    program.table(call.operation.table).vacuum(0 if forced else None, force=forced)
    return None


def _checkpoint(program: Program, call: Call) -> Commits:
    program.table(call.operation.table).checkpoint()
    return None


def _reopen(program: Program, call: Call) -> Commits:
    table = program.tables.pop(call.operation.table, None)
    if table is not None:
        table.close()
    return None


def _rebring(program: Program, call: Call) -> Commits:
    """Give the table back to other engines, and bring it in again."""
    number = call.operation.table
    table = program.table(number)
    del program.tables[number]
    table.detach()
    _, commit = creation.attach(program.addresses[number])
    return _of(number, commit)


def _relocate(program: Program, call: Call) -> Commits:
    """Move a table as an operator does, who may die at any moment of it."""
    options, machine = call.operation.options, program.machine
    name = f"{machine.name}.{machine.incarnation}:move{call.operation.number}"
    if options["dies"] and machine.around.weather.strikes(name, "crash", 0.8, machine.draw(), machine.clock.monotonic_s()):
        machine.around.scheduler.at(machine.clock.monotonic_s() + machine.draw(), machine.crash)
    location, here, there = program.addresses[call.operation.table].location, COORDINATORS[options["from"]], COORDINATORS[options["to"]]
    try:
        move(location, there, coordinator=here, wait_s=options["wait_s"], timeout_s=program.timeout_s)
    except (
        WrongCoordinator,
        Unavailable,
    ) as elsewhere:  # an earlier move failed: the table never was where this one begins, or has not come
        if here == COORDINATORS[0] or not (isinstance(elsewhere, WrongCoordinator) or "on its way" in elsewhere.message):
            raise
        return {}
    return None


DO: dict[str, Callable[[Program, Call], Commits]] = {
    "write": _write,
    "joint": _joint,
    "together": _together,
    "leased": _leased,
    "plan": _plan,
    "compact": _compact,
    "properties": _properties,
    "read": _read,
    "pinned": _pinned,
    "vacuum": _vacuum,
    "checkpoint": _checkpoint,
    "reopen": _reopen,
    "rebring": _rebring,
    "relocate": _relocate,
}
