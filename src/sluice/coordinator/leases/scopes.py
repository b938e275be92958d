"""The scopes of leases: whether two leases meet, and whether a commit touches one.

Both answers are sound: "no" means that no partition can satisfy both conditions. Conditions that constants alone do not
separate count as meeting.

A condition implies facts about the partitions where it holds: bounds of their values, and where they are null. These have
the form of statistics about the rows of a file, so the skipper decides whether the other condition can hold there, too; and
vice versa (`overlap`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from ...storage.caches import cached_by_size
from ...storage.dataclass import dataclass
from ...storage.errors import PredicateError
from ...storage.expressions.casts import converted
from ...storage.expressions.evaluate import constant
from ...storage.expressions.nodes import FLIPPED, OPPOSITE, And, Cast, Column, Compare, In, IsNull, Literal, Node, Not, Or, Value
from ...storage.log.snapshot import Snapshot
from ...storage.pruning.files import HIGH, LOW, NULLS, RECORDS, Files
from ...storage.pruning.predicate import Predicate
from ...storage.pruning.skipping import Skipper
from ...storage.schema.mapping import physical
from ...storage.schema.schema import PrimitiveType, StructType
from ..nodes.layout import Place
from ..nodes.records import PASSING, SHARED, LeaseNode
from ..rules.read_scope import condition, schema_of
from ..rules.winner import Footprint

_CACHED_BYTES_MAX: Final = 16 * 1024 * 1024
_SQL_CHARACTERS_MAX: Final = 8 * 1024
_ALTERNATIVES_MAX: Final = 1024
_Types = tuple[tuple[str, str], ...]


def clash(mine: LeaseNode, theirs: LeaseNode, their_path: str) -> bool:
    """Whether a request has to wait for an earlier one (whose node is `their_path`).

    A commit may be waiting for the very lease that this request's owner holds; such a commit is not waited for.
    """
    if (mine.mode == theirs.mode and mine.mode in (SHARED, PASSING)) or their_path in mine.holds:
        return False
    if theirs.mode == PASSING and any(Place.of_node(held) == Place.of_node(their_path) for held in mine.holds):
        return False
    # check: shared-stand-together (return -> return SHARED not in (mine.mode, theirs.mode) and)
    return scopes_meet(mine.where, mine.partition_types, theirs.where, theirs.partition_types)


def scopes_meet(one: str, one_types: Mapping[str, str], other: str, other_types: Mapping[str, str]) -> bool:
    """Whether a partition could satisfy both conditions ("" is everything). The mappings give the columns' Delta types."""
    if not one or not other:
        return True
    if any(other_types.get(name, kind) != kind for name, kind in one_types.items()):
        # check: unlike-conditions-meet-when-in-doubt (True -> False)
        return True  # the table is partitioned differently by now
    return _meet(one, other, tuple(sorted({**one_types, **other_types}.items())))


def writes_in(footprint: Footprint, lease: LeaseNode) -> bool:
    """Whether a commit changes something that the lease covers."""
    if not lease.where or footprint.metadata or footprint.protocol or footprint.partitions is None:
        return True
    if footprint.scope is not None and scopes_meet(footprint.scope, footprint.partition_types, lease.where, lease.partition_types):
        return True
    types = tuple(lease.partition_types.items())
    return any(_in_partition(key, lease.where, types) for key in footprint.partitions)


def reads_in(footprint: Footprint, lease: LeaseNode) -> bool:
    """Whether a commit depends on something that the lease covers."""
    if footprint.blind_append:
        return False
    if footprint.whole_table or (footprint.read_files is None and not footprint.predicates):
        return True
    return any(scopes_meet(sql, footprint.partition_types, lease.where, lease.partition_types) for sql in footprint.predicates)


@cached_by_size(_CACHED_BYTES_MAX)
def _meet(one: str, other: str, types: _Types) -> bool:
    columns = dict(types)
    return overlap(condition(one, columns), condition(other, columns), schema_of(columns))


@cached_by_size(_CACHED_BYTES_MAX)
def _skipper(where: str, types: _Types) -> Skipper:
    columns = dict(types)
    return Skipper(condition(where, columns), schema_of(columns), tuple(columns))


@cached_by_size(_CACHED_BYTES_MAX)
def _in_partition(key: str, where: str, types: _Types) -> bool:
    values = orjson.loads(key)
    if not isinstance(values, dict) or not all(v is None or isinstance(v, str) for v in values.values()):
        return True
    if not {name for name, _ in types} <= values.keys():
        return True  # the table is partitioned differently by now
    return _skipper(where, types).in_partitions([values])[0]


@dataclass(frozen=True, slots=True)
class PartitionScope:
    """Partitions of a table: a condition over its partition columns as SQL, and the types of these columns."""

    sql: str
    types: tuple[tuple[str, str], ...]

    @staticmethod
    def of(snapshot: Snapshot, condition: Predicate | None) -> PartitionScope | None:
        """The partitions that satisfy a condition, under their columns' names in files; None, the whole table, without a condition."""
        if condition is None:
            return None
        schema = snapshot.metadata.schema
        types = {field.name: field.type for field in physical(schema).fields}
        partitions = snapshot.metadata.physical_partitions
        kinds = tuple((name, kind.name) for name in partitions if isinstance(kind := types.get(name), PrimitiveType))
        return PartitionScope(condition.physical(schema).to_sql(), kinds)

    @staticmethod
    def covering(snapshot: Snapshot, condition: Predicate | None) -> PartitionScope | None:
        """Like `of`; also the whole table if the condition would be too long to keep."""
        scope = PartitionScope.of(snapshot, condition)
        return None if scope is None or len(scope.sql) > _SQL_CHARACTERS_MAX else scope


def overlap(one: Node, other: Node, schema: StructType) -> bool:
    """False only if no values of the columns satisfy both conditions."""
    return _may_hold(one, _places(other), schema) and _may_hold(other, _places(one), schema)


@dataclass(slots=True)
class _Values:
    """The possible values of a column: within bounds, null, not null."""

    low: Value = None
    high: Value = None
    null: bool = True
    value: bool = True


def _may_hold(asked: Node, places: Sequence[dict[Column, _Values]], schema: StructType) -> bool:
    if not places:
        return False
    columns = {RECORDS.path: pa.repeat(pa.scalar(1, pa.int64()), len(places))}
    for column in {column for place in places for column in place}:
        values = [place.get(column) or _Values() for place in places]
        columns |= {
            (LOW, *column.path): pa.array([each.low for each in values], column.type),
            (HIGH, *column.path): pa.array([each.high for each in values], column.type),
            (NULLS, *column.path): pa.array([None if each.null and each.value else int(each.null) for each in values], pa.int64()),
        }
    answers = Skipper(asked, schema, ()).may_match(Files.of_columns(len(places), columns))
    return bool(pc.any(answers).as_py())


def _places(condition: Node) -> list[dict[Column, _Values]]:
    """The facts about the columns where the condition holds, one per alternative."""
    return [place for terms in _alternatives(_without_not(condition)) if (place := _values_by_column(terms)) is not None]


def _without_not(node: Node, *, truth: bool = True) -> Node:
    """The condition that `node` is `truth`, without NOT before AND, OR and comparisons."""
    match node:
        case Not():
            return _without_not(node.term, truth=not truth)
        case And() | Or():
            join = And if isinstance(node, And) is truth else Or
            return join(tuple(_without_not(term, truth=truth) for term in node.terms))
        case Compare() if not truth and node.op in OPPOSITE:
            return Compare(OPPOSITE[node.op], node.left, node.right, node.at)
    return node if truth else Not(node)


def _alternatives(node: Node) -> list[list[Node]]:
    """Conjunctions, one of which is true where `node` is; parts that would make too many are omitted, or kept whole."""
    match node:
        case And():
            found: list[list[Node]] = [[]]
            for term in node.terms:
                more = _alternatives(term)
                if len(found) * len(more) <= _ALTERNATIVES_MAX:
                    found = [[*some, *others] for some in found for others in more]
            return found
        case Or():
            found = [each for term in node.terms for each in _alternatives(term)]
        case In():
            found = [[Compare("=", node.term, option, node.at)] for option in node.options]
        case _:
            found = [[node]]
    return found if len(found) <= _ALTERNATIVES_MAX else [[node]]


def _values_by_column(terms: Sequence[Node]) -> dict[Column, _Values] | None:
    """The facts about columns where all of the terms hold; None if they never do."""
    values: dict[Column, _Values] = {}
    for term in terms:
        match term:
            case Literal() if term.value is not True:
                return None
            case IsNull(term=Column() as column):
                values.setdefault(column, _Values()).value = False
            case Not(term=IsNull(term=Column() as column)):
                values.setdefault(column, _Values()).null = False
            case Column():
                _narrow(values.setdefault(term, _Values()), "=", True)
            case Not(term=Column() as column):
                _narrow(values.setdefault(column, _Values()), "=", False)
            case Compare(left=Literal() as literal, right=Column() as column):
                _compare(values.setdefault(column, _Values()), FLIPPED[term.op], literal, column.type, term.at)
            case Compare(left=Column() as column, right=Literal() as literal):
                _compare(values.setdefault(column, _Values()), term.op, literal, column.type, term.at)
    for each in values.values():
        bounded = each.low is not None and each.high is not None
        if not each.null and (not each.value or (bounded and each.low > each.high)):  # type: ignore[operator]
            return None
    return values


def _compare(values: _Values, op: str, literal: Literal, kind: pa.DataType, at: pa.DataType) -> None:
    """Keep the values of a column of type `kind` for which `value op literal` is true, compared at the type `at`."""
    if literal.value is not None:
        _narrow(values, op, _stored(literal, kind, at))
    elif op == "<=>":
        values.value = False
    else:
        values.null = values.value = False


def _narrow(values: _Values, op: str, bound: Value) -> None:
    """Keep the values for which `value op bound` is true; None is an unknown bound."""
    values.null = False
    if bound is None or bound != bound:
        return
    if op in ("=", "<=>", ">", ">="):
        values.low = bound if values.low is None else max(values.low, bound)
    if op in ("=", "<=>", "<", "<="):
        values.high = bound if values.high is None else min(values.high, bound)


def _stored(literal: Literal, kind: pa.DataType, at: pa.DataType) -> Value:
    """The column's value if it equals a constant at the type `at`; None if there is none, or it is unknown."""
    try:
        value = constant(Cast(literal, at))
    except PredicateError:
        return None
    if kind == at:
        return value
    stored = None if pa.types.is_floating(at) else converted(value, kind)
    return stored if stored == value else None
