"""Statements about commits beside others: blocks, IF VERSION, EXPLAIN CONFLICT, locks, and what the coordinator knows of them all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, TypeAlias

from ..coordinator import api
from ..coordinator.rules.intent import IsolationLevel
from ..storage.dataclass import dataclass
from ..storage.errors import InvalidRequest, PredicateError
from ..storage.pruning.predicate import Predicate
from ..storage.schema.datatypes import StructType
from ..tables.joint_transaction import JointTransaction
from ..tables.table import Table
from ..tables.write.transaction_end import ATTEMPTS, repeated
from .engine import Engine, R
from .parse.concurrency import Atomic, ExplainConflict, Lock, Part, ShowState, Unlock
from .parse.cursor import Span
from .parse.maintenance import Analyze, Compact, CopyInto, Optimize, Reorganise, Repair, Restore
from .parse.reading import IfVersion, Malformed, Other
from .parse.rows import Delete, Insert, Merge, Truncate, Update
from .parse.tables import Alter, Create, DropPartitions
from .partitions import partition_condition
from .places import SluiceRelation, catalog_of, current_tables, relations_of_sluice, sources_of, table_of
from .request import Answer, LockedTable, Request, moment

# -- BEGIN ATOMIC, IF VERSION --------------------------------------------------------------------------------------------

Changing: TypeAlias = Insert | Update | Delete | Merge | Truncate
"""The statements that a block may have."""

_STEPS: Final = (
    "statement int, operation string, table string, num_affected_rows bigint, num_updated_rows bigint, num_deleted_rows bigint, "
    "num_inserted_rows bigint, version bigint"
)
_KINDS: Final = (Insert, Update, Delete, Merge, Truncate)
_INSTEAD: Final[Mapping[str, str]] = {
    "SELECT": "a query's rows have nowhere to go: run it after the block, or INSERT them into a table",
    "WITH": "a query's rows have nowhere to go: run it after the block, or INSERT them into a table",
    "OPTIMIZE": "a block changes rows, and this changes none: run it after the block",
    "VACUUM": "this deletes files, which nothing takes back: run it after the block",
    "BEGIN": "a block has no blocks in it: leave BEGIN and its END out",
}
_DEFINES: Final = "the statements of a block are INSERT, UPDATE, DELETE, MERGE and TRUNCATE: run this one before or after the block"


@dataclass(frozen=True, slots=True)
class _Step:
    """A statement of a block at its place, the table that it changes, and those that it reads."""

    at: Span
    statement: Changing
    table: Table
    relations: Sequence[SluiceRelation]


_Counts: TypeAlias = tuple[int | None, int | None, int | None]
"""How many rows a step updated, deleted and inserted; None: nobody counted."""


def atomic(engine: Engine[R, Any], request: R, block: Atomic) -> Answer:
    """Run a block: all of its statements become one commit, or nothing. Answers one row for each statement.

    Each step sees what those before it did; all tables are read as of one moment. The block is repeated when other commits came first.
    Raises InvalidRequest, with the place of the step, for one that fails.
    """
    steps = [_step(request, part) for part in block.parts]
    read = [table for step in steps for table in current_tables(step.relations)]
    taking_part = list({table.location: table for table in (*read, *(step.table for step in steps))}.values())
    key = None if block.key is None else str(request.value(block.key, "STRING"))
    versions_before = {step.table: version for step, version in expected_by(request, zip(block.parts, steps, strict=True))}

    def begin(after: JointTransaction | None) -> JointTransaction:
        return JointTransaction(
            request.coordinator,
            tables=taking_part,
            isolation=block.isolation or IsolationLevel.SERIALIZABLE.value,
            key=key,
            storage_options=request.options,
            user_metadata=request.terms.get("user_metadata"),
            if_version=versions_before,
            after=after,
        )

    def work(joint: JointTransaction) -> tuple[JointTransaction, list[_Counts]]:
        if joint.repeated() is not None:
            return joint, [(None, None, None)] * len(steps)
        return joint, [_run(engine, request, joint, step) for step in steps]

    attempts = str(ATTEMPTS) if block.attempts is None else block.attempts
    if not attempts.isdecimal() or int(attempts) < 1:
        raise InvalidRequest(f"ATTEMPTS {attempts}: give a whole number, 1 or more", attempts=attempts)
    joint, counts = repeated(begin, work, int(attempts))
    versions = {location: commit.version for location, commit in joint.commit_info.items()}
    rows: list[tuple[Any, ...]] = []
    for number, (step, count) in enumerate(zip(steps, counts, strict=True), 1):
        verb, name = type(step.statement).__name__.upper(), step.statement.target.title
        affected = None if all(each is None for each in count) else sum(each or 0 for each in count)
        rows.append((number, verb, name, affected, *count, versions.get(step.table.location)))
    return Answer(_STEPS, tuple(rows))


def _step(request: Request, part: Part) -> _Step:
    """The step of a statement. Raises InvalidRequest, with the place, for one that cannot be in a block."""
    statement = part.statement.statement if isinstance(part.statement, IfVersion) else part.statement
    if isinstance(statement, Malformed):
        raise request.refused(statement.at, statement.message)
    if not isinstance(statement, _KINDS):
        first = part.at.of(request.text).split()[0]
        verb = statement.words[0] if isinstance(statement, Other) and statement.words else first.upper()
        raise request.refused(Span(part.at.start, part.at.start + len(first)), _INSTEAD.get(verb, _DEFINES))
    table = table_of(request, statement.target, "part in transactions")
    return _Step(part.at, statement, table, relations_of_sluice(request, getattr(statement, "relations", ())))


def _run(engine: Engine[R, Any], request: R, joint: JointTransaction, step: _Step) -> _Counts:
    """Run a step. A refusal that shows no place in the block gets the step's."""
    statement, table = step.statement, step.table
    try:
        part = joint.part(table)
        if isinstance(statement, Truncate):
            part.truncate(partition_condition(request, statement.partition, part.struct, table.partition_columns))
            return None, None, None
        sources = sources_of(request, step.relations, {each.location: joint.part(each) for each in current_tables(step.relations)})
        if isinstance(statement, Insert):
            engine.insert(request, statement, part, table, sources)
            return None, None, part.steps[-1].metrics.get("numOutputRows") if part.steps else None
        counts = engine.change(request, statement, part, sources)
    except InvalidRequest as error:
        if "place" in error.details:
            raise
        raise request.error(type(error), step.at, error.message, **error.details) from error
    if isinstance(statement, Merge):
        return counts.updated, counts.deleted, counts.inserted
    return (counts.updated, None, None) if isinstance(statement, Update) else (None, counts.deleted, None)


NOT_OURS: Final = "IF VERSION compares versions of a table of sluice, and this is none: leave it out"
_TAKE_IT: Final = (Insert, Update, Delete, Merge, Truncate, DropPartitions, Optimize, Compact, Reorganise, Restore, Repair, Analyze, Alter)
_NO_VERSION: Final[Mapping[type, str]] = {
    Create: "one that makes a table has no version before it, and sluice.Table.replace(if_version=...) replaces one",
    CopyInto: "COPY INTO loads each file once, whatever the version: leave it out",
}
_OF_BLOCKS: Final = "write it before each statement of the block that is about such a table, after BEGIN ATOMIC"
_COMMIT_ONE: Final = (
    "this one commits no version of a table: leave it out, or write it before INSERT, UPDATE, DELETE, MERGE, TRUNCATE, ALTER TABLE, "
    "OPTIMIZE, COMPACT, REORG, RESTORE, FSCK REPAIR or ANALYZE"
)


def expected(request: Request, clause: IfVersion) -> int:
    """The version after which the statement is to commit. Raises InvalidRequest, with the place, if it cannot take one."""
    statement = clause.statement
    if isinstance(statement, Malformed):
        raise request.refused(statement.at, statement.message)
    if not isinstance(statement, _TAKE_IT) or (isinstance(statement, Alter) and statement.action == "rename"):
        is_block = isinstance(statement, Other) and statement.words[:2] == ("BEGIN", "ATOMIC")
        why = _OF_BLOCKS if is_block else _NO_VERSION.get(type(statement), _COMMIT_ONE)
        raise request.refused(clause.at, f"IF VERSION is for statements that commit to a table: {why}")
    version, _ = request.moment(True, clause.version)
    assert version is not None
    return version


def expected_by(request: Request, parts: Iterable[tuple[Part, Any]]) -> Iterator[tuple[Any, int]]:
    """The steps of a block that say a version, and that version. Raises InvalidRequest for two different ones of a table."""
    before: dict[str, int] = {}
    for part, step in parts:
        if isinstance(part.statement, IfVersion):
            version = expected(request, part.statement)
            if (first := before.setdefault(step.table.location, version)) != version:
                said = f"an earlier statement of the block says IF VERSION {first} of this table, and a block is one commit: give one"
                raise request.refused(part.statement.at, said)
            yield step, version


# -- EXPLAIN CONFLICT: decided by what decides commits, without running the statements ------------------------------------

ANY: Final = ""
"""The condition of any row."""
ROWS_MAX: Final = 64
"""Up to this many literal rows of a statement are compared by value; more count as any row."""
_VERDICTS: Final = "second int, isolation string, verdict string, error string, rule string, why string, remedy string"
_COMPARED: Final = (Insert, Update, Delete, Merge, Truncate, Optimize)

Foreseeable: TypeAlias = Insert | Update | Delete | Merge | Truncate | Optimize


def explain_conflict(engine: Engine[R, Any], request: R, statement: ExplainConflict) -> Answer:
    """One row for each isolation level, and for each of the two statements as the one that commits second.

    `verdict` is "cannot conflict" or "may conflict"; then `error` and `rule` are those of the refusal, `remedy` says what avoids it.
    """
    compared: list[Foreseeable] = []
    for part in (statement.one, statement.other):
        if isinstance(part.statement, Malformed):
            raise request.refused(part.statement.at, part.statement.message)
        if not isinstance(part.statement, _COMPARED):
            raise request.refused(part.at, "EXPLAIN CONFLICT takes INSERT, UPDATE, DELETE, MERGE, TRUNCATE and OPTIMIZE")
        compared.append(part.statement)
    tables = [table_of(request, each.target, "part in transactions") for each in compared]
    levels = [level.value for level in IsolationLevel] if statement.isolation is None else [statement.isolation]
    if tables[0].location != tables[1].location:
        names = [each.target.title for each in compared]
        why = f"the statements change different tables, {names[0]} and {names[1]}; what a statement reads of another table does not count"
        return Answer(_VERDICTS, tuple((second, level, "cannot conflict", None, None, why, None) for level in levels for second in (2, 1)))
    both = [_foreseen(engine, request, each, tables[0]) for each in compared]
    table = api.ForeseenTable(tables[0].snapshot().raw)
    rows: list[tuple[Any, ...]] = []
    for level in levels:
        for second in (2, 1):
            met = table.meets(both[second - 1], both[2 - second], IsolationLevel(level))
            if met.verdict == "ok":
                rows.append((second, level, "cannot conflict", None, None, met.because, None))
            else:
                why = f"the first statement {met.winner_did}"
                rows.append((second, level, "may conflict", met.verdict, met.rule, why, api.advice_of(met.rule)))
    return Answer(_VERDICTS, tuple(rows))


def _foreseen(engine: Engine[R, Any], request: R, statement: Foreseeable, table: Table) -> api.Foreseen:
    """What the statement would do, as far as the engine can tell without running it."""
    schema, columns = table.struct, table.partition_columns
    if isinstance(statement, Truncate):
        where = partition_condition(request, statement.partition, schema, columns) or ANY
        return api.Foreseen("TRUNCATE", reads=where, removes=where, whole_files=True)
    if isinstance(statement, Insert):
        new = engine.new_rows(request, statement, table)
        adds = new.adds or partition_condition(request, statement.partition, schema, columns) or ANY
        if new.replaces is None:
            return api.Foreseen("INSERT", reads=new.reads, adds=adds)
        reads = new.replaces if new.reads is None else ANY
        return api.Foreseen("INSERT OVERWRITE", reads=reads, removes=new.replaces, adds=adds, whole_files=True)
    where = engine.sought(request, statement, table)
    if isinstance(statement, Optimize):
        orders = statement.z_order_by or table.clustering_columns
        return api.Foreseen("OPTIMIZE ZORDER" if orders else "OPTIMIZE", removes=where, changes_data=False)
    reads_itself = any(each.location == table.location for each in current_tables(relations_of_sluice(request, statement.relations)))
    if isinstance(statement, Merge):  # whose ON says `where` of the table alone
        kinds = {clause.matched for clause in statement.clauses}
        matching = ANY if "not_matched_by_source" in kinds else where
        new_rows = ANY if any(not clause.action.startswith("delete") for clause in statement.clauses) else None
        removes = None if kinds == {"not_matched"} else matching
        return api.Foreseen("MERGE", reads=ANY if reads_itself else matching, removes=removes, adds=new_rows)
    reads = ANY if reads_itself else where
    if isinstance(statement, Delete):
        return api.Foreseen("DELETE", reads=reads, removes=where)
    adds = ANY
    if where:  # the new rows satisfy the parts of the condition about columns that keep their values
        texts = {each.column.of(request.text).replace("`", "").lower() for each in statement.assignments}
        assigned = {part for text in texts for part in (text, text.split(".")[0], text.split(".")[-1])}
        unchanged, _ = Predicate.parse(where, schema).split([name for name in schema.names if name.lower() not in assigned])
        adds = ANY if unchanged is None else unchanged.to_sql()
    return api.Foreseen("UPDATE", reads=reads, removes=where, adds=adds)


def written_out(rows: Sequence[Mapping[str, Any]], schema: StructType) -> str:
    """A condition that these rows satisfy and few others; ANY if there are too many, or of nothing that can be compared."""
    if len(rows) > ROWS_MAX:
        return ANY
    alike: list[Predicate | None] = []
    for row in rows:
        parts: list[Predicate] = []
        for name, value in row.items():
            with suppress(PredicateError):
                parts.append(Predicate.from_filters([("IsNull" if value is None else "EqualTo", (name,), value)], schema))
        alike.append(Predicate.all_of(parts))
    any_row = Predicate.any_of(alike)
    return ANY if any_row is None else any_row.to_sql()


# -- LOCK TABLE, UNLOCK TABLE: leases that a session holds from one statement to another; SHOW LOCKS, QUEUE and TRANSACTIONS

_HELD: Final = "table string, mode string, condition string, token bigint"


def lock(request: Request, statement: Lock) -> Answer:
    """Take leases for the session, all of them or none. Answers one row for each table: table, mode, condition, token.

    Raises InvalidRequest, with the place, for a condition that leases cannot take.
    """
    requests: list[tuple[api.LeaseOn, LockedTable]] = []
    for each in statement.tables:
        table, mode, where = table_of(request, each.target, "locks"), api.SHARED if each.shared else api.EXCLUSIVE, None
        try:
            if each.where is not None:
                where = request.condition(each.where, table.struct, "LOCK TABLE ... WHERE")
            requests.append((table.lease_on(mode, where), LockedTable(table.location, each.target.title, mode, where)))
        except InvalidRequest as error:
            if each.where is None or "place" in error.details:
                raise
            raise request.refused(each.where, error.message) from error
    taken = request.locks.take(requests, None if statement.wait_s is None else float(statement.wait_s))
    return Answer(_HELD, tuple(taken.rows))


def unlock(request: Request, statement: Unlock) -> Answer:
    """Release leases of the session. Answers their rows. Raises LeaseLost, after it released them, if one of them was lost before."""
    names = {table_of(request, each, "locks").location: each for each in statement.targets}
    locks = request.locks.covering(names)
    covered = {each.location: each.name for lock in locks for each in lock.tables}
    for location, name in names.items():
        if location not in covered:
            raise request.refused(name, f"this session holds no lock on {name.title}; SHOW LOCKS IN {name.title} shows who does")
    if others := sorted({name for location, name in covered.items() if names and location not in names}):
        first = next(iter(names.values()))
        raise request.refused(first, f"it was locked together with {', '.join(others)}: unlock all of them, or UNLOCK TABLES")
    rows = [row for lock in locks for row in lock.rows]
    request.locks.release(locks)
    return Answer(_HELD, tuple(rows))


_LOCKS: Final = (
    "table string, lease string, state string, waits_for string, mode string, condition string, name string, application string, "
    "host string, pid bigint, since timestamp, token bigint"
)
_QUEUE: Final = (
    "table string, position int, transaction_id string, operation string, application string, host string, pid bigint, "
    "isolation string, read_version bigint, since timestamp, tables array<string>"
)
_TRANSACTIONS: Final = (
    "table string, transaction_id string, state string, operation string, version bigint, ordinal int, application string, host string, "
    "pid bigint, at timestamp, waited_ms bigint, rule string, reason string"
)
_LATEST: Final = 20

Row = tuple[Any, ...]


def show_state(request: Request, statement: ShowState) -> Answer:
    """One row for each lease, waiting transaction or transaction of a table, or of all tables that have names."""
    shows, columns = _SHOWN[statement.what]
    limit = None if statement.limit is None else int(statement.limit)
    if (target := statement.target) is not None:
        tables = [(target.title, table_of(request, target, "part in what sluice coordinates"))]
    else:
        catalog = catalog_of(request)
        names = [each.full_name for namespace in catalog.namespaces() for each in catalog.tables(namespace.name)]
        tables = [(name, catalog.open(name)) for name in names]
    return Answer(columns, tuple(row for name, table in tables for row in shows(request, name, table, limit)))


def _locks(request: Request, name: str, table: Table, limit: int | None) -> list[Row]:
    rows: list[Row] = []
    for each in api.list_leases(api.connect(request.coordinator), api.Place.of_table(api.TableTree(table.location)))[:limit]:
        what = (name, each.lease, "held" if each.held else "waits", each.waits_for, each.mode, each.where or None, each.name or None)
        rows.append((*what, each.application, each.host, each.pid, moment(each.since_ms), each.token))
    return rows


def _queue(_: Request, name: str, table: Table, limit: int | None) -> list[Row]:
    rows: list[Row] = []
    for number, each in enumerate(api.list_queue(table.coordinated.context)[:limit], 1):
        what = (name, number, each.transaction_id, each.operation or None, *_who(each.client), each.isolation or None)
        rows.append((*what, each.read_version, moment(each.claimed_ms), list(each.tables) or [table.location]))
    return rows


def _transactions(_: Request, name: str, table: Table, limit: int | None) -> list[Row]:
    """The waiting ones, then those that were decided, the newest first."""
    limit = _LATEST if limit is None else limit
    context = table.coordinated.context
    waiting: list[Row] = []
    for each in api.list_queue(context):
        columns = (name, each.transaction_id, "waiting", each.operation or None, None, None, *_who(each.client))
        waiting.append((*columns, moment(each.claimed_ms), None, None, None))
    decided: list[tuple[int, Row]] = []
    for lost in api.list_refused(context):
        at = (name, lost.transaction_id, "refused", *[None] * 6, moment(lost.decided_ms), None)
        decided.append((lost.decided_ms, (*at, lost.refusal.rule, lost.refusal.message)))
    for entry in table.history(limit):
        what = (name, entry.transaction_id or None, "committed", entry.operation, entry.version, entry.ordinal, *_who(entry))
        decided.append((entry.timestamp, (*what, moment(entry.timestamp), entry.waited_ms, None, None)))
    decided.sort(key=lambda each: each[0], reverse=True)
    return [*waiting, *(row for _, row in decided)][:limit]


def _who(client: Any) -> tuple[str | None, str | None, int | None]:
    """The application, the host and the process of a client; None for what it does not say."""
    return client.application or None, client.host or None, client.pid or None


_SHOWN: Final[Mapping[str, tuple[Callable[[Request, str, Table, int | None], Sequence[Row]], str]]] = {
    "locks": (_locks, _LOCKS),
    "queue": (_queue, _QUEUE),
    "transactions": (_transactions, _TRANSACTIONS),
}
