"""Data skipping: what partition values and statistics prove about the rows of a file.

A condition over rows becomes a condition over files: "could some row of the file be TRUE?". Its columns are the partition values and the
bounds and counts of statistics. If the log lacks one, it is null, and so is a result that depends on it. Only FALSE is a proof, since
statistics are bounds, not exact values; they may be missing, wide (`tightBounds: false`), omit NaN, or be truncated (strings to a prefix,
timestamps to milliseconds). The condition over files is evaluated like any other, for all files at once.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import compress
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from ..actions import AddFile
from ..caches import LazyProperty
from ..dataclass import dataclass
from ..errors import Corrupt, PredicateError
from ..expressions import types
from ..expressions.evaluate import constant, is_number, may_fail, run_over
from ..expressions.nodes import (
    FLIPPED,
    OPPOSITE,
    And,
    Call,
    Cast,
    Column,
    Compare,
    In,
    IsNull,
    Like,
    Literal,
    Node,
    Not,
    Or,
    columns,
    rewrite,
    walk,
)
from ..schema.mapping import is_mapped, physical, physical_name, physical_path
from ..schema.schema import PrimitiveType, StructType, arrow_type, field_at
from .files import HIGH, LOW, NULLS, RECORDS, VALUES, AddedFiles, Files, bound_type

__all__ = ["Skipper", "in_files"]

_MONOTONE: Final = frozenset(("year", "trunc", "date_trunc"))
_PARTITIONS_KEPT: Final = 4096
_YES: Final = Literal(True, pa.bool_())
_NO: Final = Literal(False, pa.bool_())
_UNKNOWN: Final = Literal(None, pa.bool_())
_ZERO: Final = Literal(0, pa.int64())


class Skipper:
    """A condition prepared for files: statistics are parsed only where the partition, looked up once, could match."""

    def __init__(self, root: Node, schema: StructType, partition_columns: Iterable[str]) -> None:
        root = in_files(root, schema) if is_mapped(schema) else root
        read = {path[0] for path in columns(root)}
        fields = [field for name in partition_columns if (field := schema.get(name)) is not None and physical_name(field) in read]
        self._root = root
        self._partitions = {physical_name(field): field.type for field in fields if isinstance(field.type, PrimitiveType)}
        terms = root.terms if isinstance(root, And) else (root,)
        inside = [{path[0] for path in columns(term)} <= self._partitions.keys() for term in terms]
        self._by_values = self._test(list(compress(terms, inside)))
        self._other_terms = [term for term, of_partition in zip(terms, inside, strict=True) if not of_partition]
        self._known: dict[tuple[str | None, ...], bool] = {}

    def may_match(self, files: Files) -> pa.BooleanArray:
        """False for files of which no row can satisfy the condition."""
        if self._by_values is None:
            return pc.fill_null(self._by_stats.answers(files), True) if self._by_stats else pa.repeat(True, files.rows)
        found = pc.fill_null(self._by_values.answers(files), True)
        left = found.true_count
        if not left or self._by_stats is None:
            return found
        some = files if left == files.rows else files.filter(found)
        return pc.replace_with_mask(found, found, pc.fill_null(self._by_stats.answers(some), True))

    def matches_all(self, files: Files) -> pa.BooleanArray:
        """True only for files of which every row satisfies the condition."""
        translation = _Translation(self._partitions)
        other = _Test(translation.could(self._root, False, or_null=True), translation)
        return pc.fill_null(pc.invert(other.answers(files)), False)

    def picked(self, adds: Sequence[AddFile], *, statistics: bool = True) -> list[AddFile]:
        """The files of a commit that may match; unless `statistics` count, by partition values alone."""
        left = adds
        if self._by_values is not None:
            in_partition = self.in_partitions([add.partition_values for add in adds])
            left = adds if all(in_partition) else list(compress(adds, in_partition))
        if not statistics or not left or self._by_stats is None:
            return list(left)
        files = left.files if isinstance(left, AddedFiles) else Files.of_adds(left)
        return [add for add, answer in zip(left, self._by_stats.answers(files).to_pylist(), strict=True) if answer is not False]

    def in_partitions(self, places: Sequence[Mapping[str, str | None]]) -> list[bool]:
        """Whether a row of each of these partitions may match, according to its values."""
        if self._by_values is None:
            return [True] * len(places)
        known = self._known
        texts = [tuple(map(place.get, self._partitions)) for place in places]
        if not all(map(known.__contains__, texts)):
            new = {text: place for text, place in zip(texts, places, strict=True) if text not in known}
            if len(known) + len(new) > _PARTITIONS_KEPT:
                known = self._known = {}
                new = dict(zip(texts, places, strict=True))
            answers = self._by_values.answers(Files(list(new.values()), [None] * len(new))).to_pylist()
            known.update((text, answer is not False) for text, answer in zip(new, answers, strict=True))
        return [known[text] for text in texts]

    @LazyProperty
    def _by_stats(self) -> _Test | None:
        return self._test(self._other_terms)

    def _test(self, terms: Sequence[Node]) -> _Test | None:
        """Whether all terms could be TRUE for a row; None for no terms."""
        translation = _Translation(self._partitions)
        return _Test(translation.all_true(terms), translation) if terms else None


def in_files(node: Node, schema: StructType) -> Node:
    """The node over columns of files, which have other names than those of a schema with column mapping."""
    if not isinstance(node, Column):
        return rewrite(node, lambda child: in_files(child, schema))
    path = physical_path(node.path, schema)
    return Column(path, arrow_type(field_at(physical(schema), path).type))


@dataclass(frozen=True, slots=True)
class _Options:
    """A computed column: for every value of `bound`, the first of the sorted `options` that is not below it."""

    bound: Node
    options: Sequence[Any]
    kind: pa.DataType


class _Test:
    """A condition over files; the translation's options are computed columns."""

    def __init__(self, node: Node, translation: _Translation) -> None:
        self._node, self._fails = node, may_fail(node)
        self._partitions, self._options = translation.partitions, translation.options
        read = [node, *[each.bound for each in self._options.values()]]
        columns_read = {part for root in read for part in walk(root) if isinstance(part, Column)}
        self._stored = [column for column in columns_read if column.path not in self._options]

    def answers(self, files: Files) -> pa.BooleanArray:
        """TRUE, FALSE or null for every file; null also if the condition, or a value of the log, cannot be evaluated."""
        stored = files.columns(self._stored, self._partitions)

        def column(node: Column) -> pa.Array:
            if node.path not in self._options:
                return stored(node)
            computed = self._options[node.path]
            options, plain = computed.options, _plain_type(computed.kind)
            lows = run_over(computed.bound, column, files.rows).cast(plain).to_pylist()
            places = [0 if low is None else bisect_left(options, low) for low in lows]
            return pa.array([options[place] if place < len(options) else None for place in places], plain).cast(computed.kind)

        try:
            return run_over(self._node, column, files.rows, fails=self._fails)
        except (PredicateError, Corrupt):
            if files.rows == 1:
                return pa.nulls(1, pa.bool_())
        half = files.rows // 2
        return pa.concat_arrays([self.answers(files.slice(0, half)), self.answers(files.slice(half, files.rows - half))])


@dataclass(frozen=True, slots=True)
class _Span:
    """The possible values for some row: bounds (unless it is NaN), and whether it could be null, another value, NaN."""

    low: Node
    high: Node
    null: Node
    value: Node
    nan: bool


class _Translation:
    """Translates conditions over rows to conditions over files. `options` collects additional look-ups."""

    def __init__(self, partitions: Mapping[str, PrimitiveType]) -> None:
        self.partitions = partitions
        self._numbers: frozenset[Node] = frozenset()
        self._spans: dict[tuple[tuple[str, ...], bool], _Span] = {}
        self.options: dict[tuple[str, ...], _Options] = {}

    def all_true(self, terms: Sequence[Node]) -> Node:
        """Whether all `terms` could be TRUE for one row. Some terms, such as a BETWEEN's, imply that a column is not NaN."""
        before, numbers = self._numbers, set[Node]()
        for term in terms:
            match term:
                case Compare(op="<" | "<=" | "=", left=Column() as column, right=Literal() as bound) if is_number(bound):
                    numbers.add(column)
                case Compare(op=">" | ">=" | "=", left=Literal() as bound, right=Column() as column) if is_number(bound):
                    numbers.add(column)
                case In(term=Column() as column) if all(map(is_number, term.options)):
                    numbers.add(column)
        self._numbers |= numbers
        condition = _all(*[self.could(term, True, or_null=False) for term in terms])
        self._numbers = before
        return condition

    def could(self, node: Node, truth: bool, *, or_null: bool) -> Node:
        """Whether `node` could be `truth` (or null) for some row."""
        if self._is_exact(node):
            value = self._placed(node)
            if isinstance(value, (Compare, In)) and truth and not or_null:
                return _all(value, Not(IsNull(value)))  # usually false for all, so nulls do not matter
            return Call("coalesce", (value if truth else Not(value), _YES if or_null else _NO), pa.bool_())
        match node:
            case Not():
                return self.could(node.term, not truth, or_null=or_null)
            case And() if truth and not or_null:
                return self.all_true(node.terms)
            case And() | Or():
                join = _all if isinstance(node, And) is truth else _any
                return join(*[self.could(term, truth, or_null=or_null) for term in node.terms])
            case IsNull():
                span = self._span(node.term)
                return span.null if truth else span.value
            case Compare() if not pa.types.is_null(node.at):  # nothing is known about two void columns
                return self._compared(node, truth, or_null=or_null)
            case In():
                return self._contained(node, truth, or_null=or_null)
            case Like():
                span = self._span(node.term)
                condition = _all(_could_match(node, span, truth), span.value)
                return _any(condition, span.null) if or_null else condition
            case Column():
                span = self._span(node)
                edge = Compare("<=", _YES, span.high, node.type) if truth else Compare("<=", span.low, _NO, node.type)
                condition = _all(edge, span.value)
                return _any(condition, span.null) if or_null else condition
        return _UNKNOWN

    def _is_exact(self, node: Node) -> bool:
        """Whether the value of `node` is known and the same for all rows of a file."""
        return {path[0] for path in columns(node)} <= self.partitions.keys()

    def _placed(self, node: Node) -> Node:
        """An exact node over the partition values of files."""
        return Column((VALUES, *node.path), node.type) if isinstance(node, Column) else rewrite(node, self._placed)

    def _span(self, node: Node) -> _Span:
        """The possible values of `node`: a column's by the statistics, of which each is one object."""
        if isinstance(node, Literal):
            null, value = (_YES, _NO) if node.value is None else (_NO, _YES)
            return _Span(node, node, null, value, not is_number(node))
        if self._is_exact(node):
            placed = self._placed(node)
            return _Span(placed, placed, IsNull(placed), Not(IsNull(placed)), pa.types.is_floating(node.type))
        if isinstance(node, Column) and not pa.types.is_struct(node.type):
            nan = pa.types.is_floating(node.type) and node not in self._numbers
            key = (node.path, nan)
            if key not in self._spans:
                bounded = bound_type(node.type) is not None
                low, high = [Column((side, *node.path), node.type) if bounded else Literal(None, node.type) for side in (LOW, HIGH)]
                nulls = Column((NULLS, *node.path), pa.int64())
                some_null, some_value = Compare(">", nulls, _ZERO, pa.int64()), Compare("<", nulls, RECORDS, pa.int64())
                self._spans[key] = _Span(low, high, some_null, some_value, nan)
            return self._spans[key]
        if isinstance(node, Cast) and _is_monotone(node.term.type, node.type):
            return self._span_at(node.term, node.type)
        if isinstance(node, Call) and node.name in _MONOTONE:
            inner = next(arg for arg in node.args if not isinstance(arg, Literal))
            return _moved(self._span(inner), lambda bound: rewrite(node, lambda child: bound if child == inner else child))
        return _anything(node.type)

    def _span_at(self, node: Node, kind: pa.DataType) -> _Span:
        """The possible values of `node` after a cast to `kind`."""
        if node.type == kind:
            return self._span(node)
        if isinstance(node, Literal):
            return self._span(Literal(constant(Cast(node, kind)), kind))
        if self._is_exact(node):
            return self._span(Cast(node, kind))
        if not _is_monotone(node.type, kind):
            return _anything(kind)
        return _moved(self._span(node), lambda bound: Call("try_cast", (bound,), kind))  # a bound that does not fit is no bound

    def _compared(self, node: Compare, truth: bool, *, or_null: bool) -> Node:
        left, right = self._span_at(node.left, node.at), self._span_at(node.right, node.at)
        op = "=" if node.op == "<=>" else node.op
        # bounds first: if they decide, nulls are not needed
        found = _all(_could(op if truth else OPPOSITE[op], left, right, node.at), left.value, right.value)
        if node.op != "<=>":
            return _any(found, left.null, right.null) if or_null else found
        if truth:
            return _any(found, _all(left.null, right.null))
        return _any(found, _all(left.null, right.value), _all(left.value, right.null))

    def _contained(self, node: In, truth: bool, *, or_null: bool) -> Node:
        span = self._span_at(node.term, node.at)
        numbers = tuple([option for option in node.options if option.value == option.value])
        absent: Node = _YES
        if numbers and not span.nan:
            absent = Not(_all(Compare("=", span.low, span.high, node.at), In(span.low, numbers, False, node.at)))
        found = []
        if truth:
            found.append(_all(self._meets(span, numbers, node.at, nan=len(numbers) < len(node.options)), span.value))
        elif not node.with_null:
            found.append(_all(span.value, absent))
        if or_null:
            found += [span.null, _all(span.value, absent)] if node.with_null else [span.null]
        return _any(*found)

    def _meets(self, span: _Span, options: Sequence[Literal], kind: pa.DataType, *, nan: bool) -> Node:
        if (nan and span.nan) or not options:
            return _YES if nan and span.nan else _NO
        if len(options) == 1:
            return _all(Compare("<=", span.low, options[0], kind), Compare("<=", options[0], span.high, kind))
        ordered = pa.array([option.value for option in options], kind).sort().cast(_plain_type(kind))
        path = ("options", str(len(self.options)))
        self.options[path] = _Options(span.low, ordered.to_pylist(), kind)
        last = Literal(ordered[-1:].cast(kind)[0].as_py(), kind)
        return _all(Compare("<=", span.low, last, kind), Compare("<=", Column(path, kind), span.high, kind))


def _joined(join: type[And | Or], neutral: Node, decisive: Node, *terms: Node) -> Node:
    flat = [part for term in terms for part in (term.terms if isinstance(term, join) else (term,)) if part is not neutral]
    # A column has one span, so what is the same is the same object.
    kept = {id(part): part for part in flat}
    if id(decisive) in kept:
        return decisive
    parts = tuple(kept.values())
    return join(parts) if len(parts) > 1 else parts[0] if parts else neutral


_all: Final = partial(_joined, And, _YES, _NO)
_any: Final = partial(_joined, Or, _NO, _YES)


def _anything(kind: pa.DataType) -> _Span:
    nothing = Literal(None, kind)
    return _Span(nothing, nothing, _UNKNOWN, _UNKNOWN, True)


def _moved(span: _Span, move: Callable[[Node], Node]) -> _Span:
    return _Span(move(span.low), move(span.high), span.null, span.value, span.nan)


def _could(op: str, left: _Span, right: _Span, kind: pa.DataType) -> Node:
    """Whether `left op right` could be true, given that neither is null. NaN is greater than everything and equal to itself."""
    if op in (">", ">="):
        return _could(FLIPPED[op], right, left, kind)
    if op in ("<", "<="):
        return _YES if right.nan else Compare(op, left.low, right.high, kind)
    if op == "=":
        if left.nan and right.nan:
            return _YES
        return _all(Compare("<=", left.low, right.high, kind), Compare("<=", right.low, left.high, kind))
    if left.nan or right.nan:
        return _YES
    pairs = [(left.low, left.high), (right.low, right.high), (left.low, right.low)]
    return _any(*(Compare("<>", one, other, kind) for one, other in pairs if one != other))


def _could_match(node: Like, span: _Span, truth: bool) -> Node:
    """Whether a value within the bounds could match, or (`truth` is false) not match."""
    prefix = node.parts[0] if node.parts and isinstance(node.parts[0], str) else ""  # of every match
    if not truth:
        return Not(_all(Like(span.low, node.parts), Like(span.high, node.parts))) if node.parts == (prefix, True) else _YES
    if not prefix:
        return _YES
    # A value with the prefix is at least `low`, so its beginning is at least the one of `low`: by code points, which is by UTF-8 bytes.
    text, first, length = Literal(prefix, pa.string()), Literal(1, pa.int32()), Literal(len(prefix), pa.int32())
    begin = Call("substring", (span.low, first, length), pa.string())
    return _all(Compare("<=", text, span.high, pa.string()), Compare("<=", begin, text, pa.string()))


def _is_monotone(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether a cast preserves order; a cast that fails for some rows may count as monotone."""
    return types.is_numeric(target) if types.is_numeric(source) else source in types.MOMENTS and target in types.MOMENTS


def _plain_type(kind: pa.DataType) -> pa.DataType:
    """Dates and timestamps as numbers: Python does not have all of them."""
    return pa.int64() if pa.types.is_timestamp(kind) else pa.int32() if pa.types.is_date(kind) else kind
