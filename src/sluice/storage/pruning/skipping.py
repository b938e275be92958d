"""Data skipping: what partition values and statistics prove about the rows of a file.

For every file and every part of a predicate it is asked which answers (true, false, null) some row could have. The answer errs on the side
of "could": statistics are bounds, not exact values; they may be missing, be wide (`tightBounds: false`), leave out NaN, or be cut off
(strings to a prefix, timestamps to milliseconds). All of it is done for all files at once, on Arrow arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from ..dataclass import dataclass
from ..errors import PredicateError
from ..expressions import types
from ..expressions.evaluate import run
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
from ..schema.partitions import decode_column
from ..schema.schema import PrimitiveType, StructType
from .partition_maps import partition_texts
from .statistics import Stats

__all__ = ["MONOTONE", "MOST_OPTIONS", "after_all", "is_monotone", "matches_all", "may_match", "numbers_in"]


# Longer lists are taken as the range from their smallest to their largest value.
MOST_OPTIONS: Final = 64
MONOTONE: Final = frozenset(("year", "trunc", "date_trunc"))
_LAST_CODE_POINT: Final = 0x10FFFF
_SURROGATES: Final = range(0xD800, 0xE000)
_EVIDENCE: Final = ["partition_values", "stats"]


@dataclass(frozen=True, slots=True)
class _Answers:
    """For every file: which answers a condition could have for some row."""

    true: pa.BooleanArray
    false: pa.BooleanArray
    null: pa.BooleanArray


@dataclass(frozen=True, slots=True)
class _Span:
    """For every file: what a value could be for some row. A null bound is no bound; NaN lies outside of the bounds."""

    low: pa.Array
    high: pa.Array
    null: pa.BooleanArray
    value: pa.BooleanArray
    nan: pa.BooleanArray


def may_match(root: Node, files: pa.Table, *, schema: StructType, partition_columns: Sequence[str]) -> pa.BooleanArray:
    """False for files no row of which can satisfy `root`."""
    partitions = frozenset(partition_columns)
    by_stats: list[Node] = []
    by_values: list[Node] = []
    for term in root.terms if isinstance(root, And) else (root,):
        (by_values if all(path[0] in partitions for path in columns(term)) else by_stats).append(term)
    left, result = files.select(_EVIDENCE), None
    for terms in (by_values, by_stats):
        if not terms or not left.num_rows:
            continue
        evidence = _Evidence(left, terms, schema, partition_columns, numbers_in(terms))
        true = reduce(pc.and_, (evidence.answers(term).true for term in terms))
        result = true if result is None else pc.replace_with_mask(result, result, true)
        if terms is by_values and by_stats and pc.any(pc.invert(true)).as_py():
            left = left.filter(true)  # statistics are parsed only for the files whose partition can match
    return pa.repeat(pa.scalar(True), files.num_rows) if result is None else result


def matches_all(root: Node, files: pa.Table, *, schema: StructType, partition_columns: Sequence[str]) -> pa.BooleanArray:
    """True only for files every row of which satisfies `root`."""
    if not files.num_rows:
        return pa.array([], pa.bool_())
    answers = _Evidence(files, (root,), schema, partition_columns).answers(root)
    return pc.invert(pc.or_(answers.false, answers.null))


class _Evidence:
    """What is known of some files."""

    def __init__(
        self,
        files: pa.Table,
        roots: Sequence[Node],
        schema: StructType,
        partition_columns: Sequence[str],
        numbers: frozenset[Node] = frozenset(),
    ) -> None:
        """`roots` is all that will be asked about; in the rows asked about the columns `numbers` are not NaN."""
        self._numbers = numbers
        self._count = files.num_rows
        self._yes, self._no = (pa.repeat(pa.scalar(answer), self._count) for answer in (True, False))
        self._unknown = _Answers(self._yes, self._yes, self._yes)
        read = {part.path: part.type for root in roots for part in walk(root) if isinstance(part, Column)}
        tops = {path[0] for path in read}
        fields = {name: field for name in partition_columns if (field := schema.get(name)) is not None and field.name in tops}
        typed = {name: field.type for name, field in fields.items() if isinstance(field.type, PrimitiveType)}
        texts = partition_texts(files["partition_values"], list(typed)) if typed else []
        values = {fields[name].name: decode_column(column, typed[name]) for name, column in zip(typed, texts, strict=True)}
        self._partitions = frozenset(values)
        self._values = pa.table(values) if values else pa.table({"": pa.nulls(self._count)})
        wanted = {path: kind for path, kind in read.items() if path[0] not in values and not pa.types.is_struct(kind)}
        self._stats = Stats.parse(files["stats"], wanted) if wanted else None

    def _is_exact(self, node: Node) -> bool:
        """Whether the value of `node` is the same for all rows of a file, and known."""
        return all(path[0] in self._partitions for path in columns(node))

    def answers(self, node: Node) -> _Answers:
        if self._is_exact(node):
            return self._exact_answers(node)
        match node:
            case Not():
                inner = self.answers(node.term)
                return _Answers(inner.false, inner.true, inner.null)
            case And() | Or():
                return reduce(_and if isinstance(node, And) else _or, map(self.answers, node.terms))
            case IsNull():
                span = self.span(node.term)
                return _Answers(span.null, span.value, self._no)
            case Compare() if pa.types.is_null(node.at):
                return self._unknown  # of two void columns, which Arrow does not compare
            case Compare():
                return self._compared(node.op, self.span_at(node.left, node.at), self.span_at(node.right, node.at))
            case In():
                return self._contained(node)
            case Like():
                return self._matched(node)
            case Column():
                span = self.span(node)
                return _Answers(span.value, span.value, span.null)
        return self._unknown

    def _exact_answers(self, node: Node) -> _Answers:
        try:
            truth = run(node, self._values)
        except PredicateError:
            return self._unknown  # a row may never reach it: the rest of the predicate decides
        return _Answers(pc.fill_null(truth, False), pc.fill_null(pc.invert(truth), False), pc.is_null(truth))

    def span(self, node: Node) -> _Span:
        """What the value of `node` could be."""
        if self._is_exact(node):
            return self._exact_span(node)
        if isinstance(node, Column) and self._stats is not None and not pa.types.is_struct(node.type):
            return self._stats_span(node, self._stats)
        if isinstance(node, Cast) and is_monotone(node.term.type, node.type):
            return self.span_at(node.term, node.type)
        if isinstance(node, Call) and node.name in MONOTONE:
            return self._moved(node, next(arg for arg in node.args if not isinstance(arg, Literal)))
        return self._anything(node.type)

    def span_at(self, node: Node, kind: pa.DataType) -> _Span:
        """What the value of `node` could be once it is cast to `kind`."""
        if node.type == kind:
            return self.span(node)
        moved = Cast(node, kind)
        if self._is_exact(node):
            return self._exact_span(moved)
        return self._moved(moved, node) if is_monotone(node.type, kind) else self._anything(kind)

    def _anything(self, kind: pa.DataType) -> _Span:
        nothing = pa.nulls(self._count, kind)
        return _Span(nothing, nothing, self._yes, self._yes, self._yes)

    def _exact_span(self, node: Node) -> _Span:
        try:
            values = run(node, self._values)
        except PredicateError:
            return self._anything(node.type)
        nan = pc.fill_null(pc.is_nan(values), False) if pa.types.is_floating(node.type) else self._no
        bound = pc.if_else(nan, pa.scalar(None, node.type), values)
        return _Span(bound, bound, pc.is_null(values), pc.is_valid(values), nan)

    def _stats_span(self, column: Column, stats: Stats) -> _Span:
        low, high = stats.bounds(column.path)
        nulls, records = stats.nulls(column.path), stats.records
        null = pc.fill_null(pc.greater(nulls, 0), True)
        value = pc.fill_null(pc.less(nulls, records), True)
        may_be_nan = pa.types.is_floating(column.type) and column not in self._numbers
        return _Span(low, high, null, value, value if may_be_nan else self._no)

    def _moved(self, node: Node, inner: Node) -> _Span:
        """The span of a function of `inner` that never falls where `inner` rises."""
        span = self.span(inner)
        stand_in = Column(("value",), inner.type)
        moved = rewrite(node, lambda child: stand_in if child == inner else child)
        try:
            low, high = (run(moved, pa.table({"value": bound})) for bound in (span.low, span.high))
        except PredicateError:
            low = high = pa.nulls(self._count, node.type)
        return _Span(low, high, span.null, span.value, span.nan)

    def _compared(self, op: str, left: _Span, right: _Span) -> _Answers:
        both = pc.and_(left.value, right.value)
        same = "=" if op == "<=>" else op
        true, false = (pc.and_(both, _could(which, left, right)) for which in (same, OPPOSITE[same]))
        if op != "<=>":
            return _Answers(true, false, pc.or_(left.null, right.null))
        one_null = pc.or_(pc.and_(left.null, right.value), pc.and_(left.value, right.null))
        return _Answers(pc.or_(true, pc.and_(left.null, right.null)), pc.or_(false, one_null), self._no)

    def _contained(self, node: In) -> _Answers:
        span = self.span_at(node.term, node.at)
        options = pa.array([option.value for option in node.options if option.value == option.value], node.at)
        with_nan = len(options) < len(node.options)
        if len(options) <= MOST_OPTIONS:
            hits = [pc.and_(_below(span.low, option), _below(option, span.high)) for option in options]
        else:
            hull = pc.min_max(options)
            hits = [pc.and_(_below(span.low, hull["max"]), _below(hull["min"], span.high))]
        if with_nan:
            hits.append(span.nan)
        true = pc.and_(span.value, reduce(pc.or_, hits, self._no))
        single = pc.fill_null(pc.equal(span.low, span.high), False)
        surely = pc.and_(pc.and_(single, pc.is_in(span.low, value_set=options)), pc.invert(span.nan))
        missing = pc.and_(span.value, pc.invert(surely))
        return _Answers(true, self._no, pc.or_(span.null, missing)) if node.with_null else _Answers(true, missing, span.null)

    def _matched(self, node: Like) -> _Answers:
        span = self.span(node.term)
        true = false = span.value
        if prefix := node.prefix:
            true = pc.and_(true, _below(pa.scalar(prefix), span.high))
            if (after := after_all(prefix)) is not None:
                true = pc.and_(true, pc.fill_null(pc.less(span.low, after), True))
            if node.parts == (prefix, True):
                all_begin = pc.and_(pc.starts_with(span.low, pattern=prefix), pc.starts_with(span.high, pattern=prefix))
                false = pc.and_(false, pc.invert(pc.fill_null(all_begin, False)))
        return _Answers(true, false, span.null)


def _and(left: _Answers, right: _Answers) -> _Answers:
    not_false = pc.and_(pc.or_(left.true, left.null), pc.or_(right.true, right.null))
    return _Answers(pc.and_(left.true, right.true), pc.or_(left.false, right.false), pc.and_(not_false, pc.or_(left.null, right.null)))


def _or(left: _Answers, right: _Answers) -> _Answers:
    negated = _and(_Answers(left.false, left.true, left.null), _Answers(right.false, right.true, right.null))
    return _Answers(negated.false, negated.true, negated.null)


def numbers_in(terms: Sequence[Node]) -> frozenset[Node]:
    """The columns that cannot be NaN in a row for which all `terms` are true, such as that of a BETWEEN."""
    found: set[Node] = set()
    for term in terms:
        match term:
            case Compare(op="<" | "<=" | "=", left=Column() as column, right=Literal(value=bound)) if bound == bound:
                found.add(column)
            case Compare(op=">" | ">=" | "=", left=Literal(value=bound), right=Column() as column) if bound == bound:
                found.add(column)
            case In(term=Column() as column) if all(option.value == option.value for option in term.options):
                found.add(column)
    return frozenset(found)


def _below(low: pa.Array | pa.Scalar, high: pa.Array | pa.Scalar) -> pa.BooleanArray:
    """Whether something from `low` up could be at most `high`."""
    return pc.fill_null(pc.less_equal(low, high), True)


def _could(op: str, left: _Span, right: _Span) -> pa.BooleanArray:
    """Whether `left op right` could be true, given that neither is null. NaN is greater than everything and equal to itself."""
    if op in (">", ">="):
        return _could(FLIPPED[op], right, left)
    if op == "<":
        return pc.or_(pc.fill_null(pc.less(left.low, right.high), True), right.nan)
    if op == "<=":
        return pc.or_(_below(left.low, right.high), right.nan)
    nan = pc.or_(left.nan, right.nan)
    if op == "=":
        overlap = pc.and_(_below(left.low, right.high), _below(right.low, left.high))
        return pc.or_(overlap, pc.and_(left.nan, right.nan))
    points = (pc.equal(left.low, left.high), pc.equal(right.low, right.high), pc.equal(left.low, right.low))
    return pc.or_(pc.invert(pc.fill_null(reduce(pc.and_kleene, points), False)), nan)


def is_monotone(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether a cast keeps order; one that fails for some row may be thought to."""
    moments = (pa.types.is_date, pa.types.is_timestamp)
    if types.is_numeric(source):
        return types.is_numeric(target)
    return any(is_moment(source) for is_moment in moments) and any(is_moment(target) for is_moment in moments)


def after_all(prefix: str) -> str | None:
    """The smallest string greater than all that begin with `prefix`, in the order of code points (which is that of UTF-8 bytes)."""
    for end in range(len(prefix), 0, -1):
        following = ord(prefix[end - 1]) + 1
        if following <= _LAST_CODE_POINT:
            return prefix[: end - 1] + chr(following if following != _SURROGATES.start else _SURROGATES.stop)
    return None
