"""The conflict rules, as a table: Delta's ordered checks and MaxCompute's matrices.

A rule asks one question about a transaction's reads and writes and a winner (a commit that came first), at some isolation levels and under
some conflict policies, each of which may ask it in its own way. `check` returns the first conflict. Pure: no I/O, no clock.

Source: Delta Lake's ConflictChecker, restated as data. Deliberate differences, all towards fewer refusals and none of them under
`DELTA_LAKE`: a winner's statistics count; its reorganised files (`dataChange` = false) and those that only got a deletion vector have no
new rows, so they do not count as appended; with deletion vectors, reorganised files do not count as removed under a reader either, and
changes of the same file are compared row by row (see `row_changes`); a blind append commits after types became wider. One goes the other
way: a transaction that writes an application's number depends on that application, whether it read the number or not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from typing import Any, Final, TypeAlias

from ...storage.actions import AddFile, Metadata
from ...storage.actions.features import ROW_TRACKING_DOMAIN, check_writable
from ...storage.actions.metadata_change import is_harmless, only_marks
from ...storage.dataclass import dataclass
from ...storage.errors import UnsupportedFeature
from ...storage.times import text_of
from .intent import ConflictPolicy, IsolationLevel
from .policies import MATRICES, conflicting_class
from .read_scope import ReadScope
from .refusal import Refusal
from .winner import Footprint, Window, Winner

# A feature of which no property is set is not in use.
_NAMED_MAX: Final = 3
"""The most files, partitions or domains that a conflict names."""
_NO_METADATA: Final = Metadata("", '{"type":"struct","fields":[]}', (), {})
_ALL: Final = frozenset(IsolationLevel)
_NOT_SNAPSHOT: Final = frozenset({IsolationLevel.SERIALIZABLE, IsolationLevel.WRITE_SERIALIZABLE})
_NOT_SERIALIZABLE: Final = _ALL - {IsolationLevel.SERIALIZABLE}

DELTA_LAKE: Final = "delta-lake"
"""The policy of Delta Lake itself, without sluice's refinements: what `explain` compares with. No table has it."""
_FILES: Final = (ConflictPolicy.DELTA, ConflictPolicy.DATABRICKS, DELTA_LAKE)
_ANY: Final = (*_FILES, *MATRICES)

_NAME_CHARACTERS_MAX: Final = 200
_WHO_TEXTS: Final = {"application": "application", "host": "host", "transaction_id": "id"}
_WHO_NUMBERS: Final = {"pid": "pid", "time_ms": "claimedAt"}

APPENDED: Final = "appended-what-i-read"
APPENDED_LOCKED: Final = "appended-what-i-lock"
BY_STATISTICS: Final = (APPENDED, APPENDED_LOCKED)
"""The rules that statistics decide: reading the files may clear them."""
CHANGING_OPERATIONS: Final = (
    "WRITE",
    "STREAMING UPDATE",
    "DELETE",
    "TRUNCATE",
    "UPDATE",
    "MERGE",
    "CONVERT",
    "CREATE TABLE AS SELECT",
    "REPLACE TABLE",
    "CREATE OR REPLACE TABLE",
    "RESTORE",
    "CLONE",
    "TRANSACTION",
)
"""Operations that change data by their nature (Delta's `changesData`), whatever their actions say."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The input of a rule: the transaction's reads and writes, the winner, and the level to compare them at."""

    mine: Footprint
    winner: Winner
    level: IsolationLevel
    cleared: frozenset[str] = frozenset()
    """Added files that were read and contain nothing that the transaction read."""
    reconciled: frozenset[str] = frozenset()
    """Files that both changed in compatible rows."""
    shared_rows: Mapping[str, int] = field(default_factory=dict)
    """How many rows both changed, by file."""
    both_added: frozenset[str] = frozenset()
    """Files that were there before either transaction, and that both add."""
    lost_rows: Mapping[str, int] = field(default_factory=dict)
    """How many of the rows that I read were deleted by the winner, by file."""
    window: Window | None = None
    """The winner with those that I meet after it and before it; None if it is the only one."""


@dataclass(frozen=True, slots=True)
class Conflict:
    """A rule that applies: `what` names the partitions, files, application or domain."""

    rule: Rule
    winner: Winner
    what: str
    facts: Mapping[str, Any] = field(default_factory=dict)


Detect: TypeAlias = Callable[[Comparison], str | None]
"""Asks a question: returns what is concerned, or None if the answer is no."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One row of the table: name, question, scope, error and remedy."""

    name: str
    asks: str
    policies: Mapping[str, Detect]
    """The policies that ask, each in its way."""
    error: str
    advice: str
    levels: frozenset[IsolationLevel] = _ALL


Questions: TypeAlias = Mapping[str, Mapping[IsolationLevel, tuple[tuple[Rule, Detect], ...]]]
"""Rules in their order, by policy and level, each with the way in which this policy asks."""


def _some(names: Iterable[str]) -> str:
    listed = sorted(set(names))
    more = f" and {len(listed) - _NAMED_MAX} more" if len(listed) > _NAMED_MAX else ""
    return ", ".join(listed[:_NAMED_MAX]) + more


def shared_in_words(rows: Mapping[str, int]) -> str:
    """Numbers of rows by file, in words: "2 rows of part-0.parquet"."""
    return _some(f"{count} {'row' if count == 1 else 'rows'} of {path}" for path, count in rows.items())


# check: rule-protocol-unsupported
def _protocol_unsupported(at: Comparison) -> str | None:
    if at.winner.protocol is None:
        return None
    try:
        check_writable(at.winner.protocol, at.winner.metadata or _NO_METADATA)
    except UnsupportedFeature as refused:
        return f"the table's protocol: {refused.message}"
    return None


# check: rule-protocol-changed
def _protocol_written(at: Comparison) -> str | None:
    return None if at.winner.protocol is None else "the table's protocol"


def _protocol_changed(at: Comparison) -> str | None:
    described = at.winner.protocol_change
    taken = None if described is None else described.get("removed")
    written = _protocol_written(at)
    if written is None or at.mine.protocol or taken is None:
        return written
    return f"{written}, from which it took {_some(taken)}" if taken else None


# check: rule-metadata-changed
def _metadata_written(at: Comparison) -> str | None:
    described = at.winner.metadata_change or {}
    if at.winner.metadata is None or (only_marks(described) and not at.mine.metadata):
        return None
    renamed = described.get("renamed")
    changes = [f"{old} is {'gone' if new is None else f'{new} now'}" for old, new in (renamed if isinstance(renamed, dict) else {}).items()]
    changes = changes or list(described.get("configuration", {}))
    return f"the table's metadata ({_some(changes)})" if changes else "the table's metadata"


def _metadata_changed(at: Comparison, *, as_delta_lake: bool = False) -> str | None:
    described = at.winner.metadata_change
    # check: only-appends-ignore-columns (at.mine.plain_append and not as_delta_lake -> True)
    harmless = described is not None and is_harmless(described, appends=at.mine.plain_append and not as_delta_lake)
    return None if harmless and not at.mine.metadata else _metadata_written(at)


# check: rule-same-domain
def _same_domain(at: Comparison) -> str | None:
    common = at.winner.domains.intersection(at.mine.domains) - {ROW_TRACKING_DOMAIN}
    return f"metadata domain {_some(common)}" if common else None


# check: rule-application-advanced
def _application_advanced(at: Comparison, *, only_read: bool = False) -> str | None:
    """`only_read`: a number that the transaction writes counts only if it has read it."""
    theirs, mine = at.winner.app_versions, at.mine
    common = set(theirs).intersection(mine.read_apps)
    if not only_read:
        # check: applications-are-depended-on
        common |= {app for app, number in mine.app_versions.items() if theirs.get(app, number) != number}
    return f"application transaction {_some(common)}" if common else None


# check: rule-class-refused
def _class_refused(at: Comparison) -> str | None:
    return conflicting_class(at.mine, at.winner)


# check: rule-adopted-what-i-adopt
def _adopted_what_i_adopt(at: Comparison) -> str | None:
    return f"files {_some(at.both_added)}" if at.both_added else None


# check: rule-appended-what-i-read
def _appended_what_i_read(at: Comparison, *, as_delta_lake: bool = False) -> str | None:
    mine = at.mine
    if mine.reads_nothing_here:
        return None
    # check: serializable-is-strict (at.level is IsolationLevel.WRITE_SERIALIZABLE -> True)
    lenient = at.level is IsolationLevel.WRITE_SERIALIZABLE and not mine.metadata
    return _appended_where(at, mine.predicates, whole_table=mine.whole_table, blind=not lenient, as_delta_lake=as_delta_lake)


# check: rule-appended-what-i-lock
def _appended_what_i_lock(at: Comparison) -> str | None:
    return _appended_where(at, at.mine.locks, whole_table=False, blind=True) if at.mine.locks else None


def _appended_where(
    at: Comparison, predicates: tuple[str, ...], *, whole_table: bool, blind: bool, as_delta_lake: bool = False
) -> str | None:
    """The partitions or files of the winner's new rows that may satisfy a predicate, according to statistics.

    `blind`: blind appends count, too. `as_delta_lake`: files that were moved count, too, and statistics do not.
    """
    mine, winner = at.mine, at.winner
    if winner.blind_append and not blind:
        return None
    # check: databricks-compares-partitions (mine.by_partitions -> False)
    by_partitions = mine.by_partitions

    def candidates(winner: Winner) -> Sequence[AddFile]:
        if winner.blind_append and not blind:
            return ()
        if by_partitions:
            return [replace(a, stats=None) for a in winner.adds if _holds_new_rows(a, winner, whole=True)]
        new = [a for a in winner.adds if as_delta_lake or _holds_new_rows(a, winner, whole=False)]
        return winner.adds if len(new) == len(winner.adds) else new  # with what it knows of them already

    def touched(adds: Sequence[AddFile]) -> list[AddFile]:
        if not adds:
            return []
        return ReadScope.of(predicates, mine.partition_types, mine.column_types).touched(adds, statistics=not as_delta_lake)

    if whole_table or not (mine.partition_types or predicates):
        left = [a for a in candidates(winner) if a.path not in at.cleared]
        return f"files {_some(a.path for a in left)}" if left else None
    question = (predicates, blind, by_partitions)
    found = touched(candidates(winner)) if at.window is None else at.window.picked(winner, question, candidates, touched)
    hit = [a for a in found if a.path not in at.cleared]
    if not hit:
        return None
    if not mine.partition_types:
        return f"files {_some(a.path for a in hit)}"
    return f"partitions {_some('/'.join(f'{name}={value}' for name, value in a.partition_values.items()) or a.path for a in hit)}"


def _holds_new_rows(add: AddFile, winner: Winner, *, whole: bool) -> bool:
    """Whether an added file has new rows: not if its rows were only moved, or (unless `whole` files count) if it only lost rows."""
    before = winner.removed.get(add.path)
    if before is None or whole or not add.data_change:
        return add.data_change
    dead, dead_before = (0 if v is None else v.cardinality for v in (add.deletion_vector, before.deletion_vector))
    return dead < dead_before


# check: rule-removed-what-i-read
def _removed_what_i_read(at: Comparison) -> str | None:
    mine, winner = at.mine, at.winner
    if mine.blind_append or not winner.removed:
        return None
    removed = winner.removes
    if mine.row_level:
        removed = winner.lost
    if mine.whole_table or mine.read_files is None:
        return f"files {_some(removed)}" if removed else None
    common = removed & set(mine.read_files)
    if common:
        return f"files {_some(common)}"
    return shared_in_words(at.lost_rows) if at.lost_rows else None


# check: rule-removed-what-i-remove
def _removed_what_i_remove(at: Comparison) -> str | None:
    mine, winner = at.mine, at.winner
    if mine.removes is None:
        return f"files {_some(winner.removes)}" if winner.removed else None
    common = (winner.removes & set(mine.removes)) - at.reconciled
    if not common:
        return None
    shared = {path: count for path, count in at.shared_rows.items() if path in common}
    return f"files {_some(common)}" if not shared else shared_in_words(shared)


RULES_BEFORE_ROWS: Final[tuple[Rule, ...]] = (
    Rule(
        "protocol-unsupported",
        "Did the winner change the protocol to one that this sluice does not implement?",
        dict.fromkeys(ConflictPolicy, _protocol_unsupported),
        "ProtocolChangedException",
        "use a newer sluice",
    ),
    Rule(
        "protocol-changed",
        "Did the winner change the protocol, and do I too, or did it take a feature away? (under `databricks`: did it change it at all?)",
        # check: databricks-refuses-all-beside-changes (_protocol_written -> _protocol_changed)
        {**dict.fromkeys(_ANY, _protocol_changed), ConflictPolicy.DATABRICKS: _protocol_written},
        "ProtocolChangedException",
        "open the table again and repeat the operation; change the protocol when nobody writes",
    ),
    Rule(
        "metadata-changed",
        "Did the winner change schema, partitioning or properties, other than by what concerns no writer, or by wider types beside my "
        "plain append? (under `databricks`: other than by marks of identity columns?)",
        # check: databricks-refuses-all-beside-changes (_metadata_written -> _metadata_changed)
        {
            **dict.fromkeys(_ANY, _metadata_changed),
            ConflictPolicy.DATABRICKS: _metadata_written,
            DELTA_LAKE: partial(_metadata_changed, as_delta_lake=True),
        },
        "MetadataChangedException",
        "refresh the table and repeat the operation; change schema and properties in one job only",
    ),
    Rule(
        "same-domain",
        "Did the winner write a metadata domain that I write too?",
        dict.fromkeys(_ANY, _same_domain),
        "ConcurrentTransactionException",
        "let one job write this metadata domain",
    ),
    Rule(
        "application-advanced",
        "Did the winner write the application transaction that I read, or another number of the one that I write?",
        {**dict.fromkeys(_ANY, _application_advanced), DELTA_LAKE: partial(_application_advanced, only_read=True)},
        "ConcurrentTransactionException",
        "run one instance of this application (or stream checkpoint) at a time",
    ),
    Rule(
        "adopted-what-i-adopt",
        "Did the winner add a file that I adopt, which was there before?",
        dict.fromkeys(_ANY, _adopted_what_i_adopt),
        "ConcurrentAppendException",
        "its rows are in the table; adopt the other files alone",
    ),
    Rule(
        "class-refused",
        "Does the policy's matrix refuse my kind of operation after the winner's in a partition that both touch?",
        dict.fromkeys(MATRICES, _class_refused),
        "PolicyConflictException",
        "repeat the operation; let jobs that run at the same time work on their own partitions",
    ),
    Rule(
        APPENDED,
        "Did the winner add files where I read? (under WriteSerializable blind appends do not count)",
        {**dict.fromkeys(_FILES, _appended_what_i_read), DELTA_LAKE: partial(_appended_what_i_read, as_delta_lake=True)},
        "ConcurrentAppendException",
        "repeat the operation, or name the partitions it works on in its condition",
        _NOT_SNAPSHOT,
    ),
    Rule(
        APPENDED_LOCKED,
        "Did the winner add files, blindly or not, where I read for update?",
        dict.fromkeys(_FILES, _appended_what_i_lock),
        "ConcurrentAppendException",
        "repeat the operation; read for update only the rows that must not change",
        _NOT_SERIALIZABLE,
    ),
    Rule(
        "removed-what-i-read",
        "Did the winner remove a file that I read (with deletion vectors: a row of it that I read)?",
        dict.fromkeys(_FILES, _removed_what_i_read),
        "ConcurrentDeleteReadException",
        "repeat the operation, or name the partitions it works on in its condition",
    ),
)
"""The rules that are checked before changes of the same file are compared row by row."""
RULES_OF_ROWS: Final[tuple[Rule, ...]] = (
    Rule(
        "removed-what-i-remove",
        "Did the winner remove a file that I remove too (with deletion vectors: the same row of it)?",
        dict.fromkeys(_ANY, _removed_what_i_remove),
        "ConcurrentDeleteDeleteException",
        "repeat the operation; give jobs that rewrite data their own partitions",
    ),
)
"""The rule that is checked after it."""
RULES: Final = RULES_BEFORE_ROWS + RULES_OF_ROWS


def questions(rules: Iterable[Rule]) -> Questions:
    """What the rules ask, for each policy and level. Looking this up costs a decision less than asking each rule whether it applies."""
    asked = tuple(rules)
    return {
        policy: {
            level: tuple((each, each.policies[policy]) for each in asked if level in each.levels and policy in each.policies)
            for level in _ALL
        }
        for policy in _ANY
    }


_EVERY: Final = questions(RULES)
BEFORE_ROWS: Final = questions(RULES_BEFORE_ROWS)
OF_ROWS: Final = questions(RULES_OF_ROWS)
APPLICATION: Final = questions(rule for rule in RULES if rule.name == "application-advanced")
"""The only rule that compares application numbers."""


def effective_level(mine: Footprint, level: IsolationLevel, operation: str) -> IsolationLevel:
    """The level a commit is checked at: SNAPSHOT for one that changes no data."""
    other_actions = mine.metadata or mine.protocol or mine.app_versions or set(mine.domains) - {ROW_TRACKING_DOMAIN}
    if mine.data_change or other_actions:
        return level
    if level is IsolationLevel.WRITE_SERIALIZABLE and operation in CHANGING_OPERATIONS:
        return level
    return IsolationLevel.SNAPSHOT


def check(comparison: Comparison, rules: Questions = _EVERY) -> Conflict | None:
    """The first rule by which the winner stops the transaction, or None if both can commit."""
    for rule, detect in rules[comparison.mine.policy][comparison.level]:
        what = detect(comparison)
        if what is not None:
            return Conflict(rule, comparison.winner, what)
    return None


def refusal(conflict: Conflict) -> Refusal:
    """The conflict as it is recorded and reported: rule, winner, what is concerned, and what would have avoided it."""
    rule, winner = conflict.rule, conflict.winner
    who, operation = _author(winner)
    return Refusal(
        rule=rule.name,
        error=rule.error,
        message=f"{rule.name}: version {winner.version} ({operation}) came first and concerns {conflict.what}; {rule.advice}",
        winning_version=winner.version,
        winning_operation=winner.operation,
        facts={"what": conflict.what, "advice": rule.advice, **who, **conflict.facts},
    )


def version_taken(winner: Winner) -> Refusal:
    """The refusal of a transaction whose expected version was taken by the winner."""
    who, operation = _author(winner)
    return Refusal(
        rule="expected-version",
        error="ConcurrentModification",
        message=f"expected-version: version {winner.version} ({operation}) came first, "
        f"but nothing may come after version {winner.version - 1}; read the table again, and repeat the operation",
        winning_version=winner.version,
        winning_operation=winner.operation,
        facts=who,
    )


def _author(winner: Winner) -> tuple[dict[str, Mapping[str, str | int]], str]:
    """The author of a commit as a fact, from its first transaction and the number of `more`; and with its operation in words.

    No fact if its `commitInfo` has none. "WRITE by nightly on host-7 (process 12), transaction <id>, at 2013-01-01T00:00:00.000Z".
    """
    operation = winner.operation or "a commit"
    if not winner.transactions:
        return {}, operation
    first, others = winner.transactions[0], len(winner.transactions) - 1
    texts = {name: str(first.get(key, ""))[:_NAME_CHARACTERS_MAX] for name, key in _WHO_TEXTS.items()}
    numbers = {name: value for name, key in _WHO_NUMBERS.items() if type(value := first.get(key, 0)) is int and 0 <= value < 2**53}
    more = f" and {others} more" if others else ""
    process = f"{texts['application'] or 'somebody'} on {texts['host'] or 'a host'} (process {numbers.get('pid', 0)})"
    words = f"{operation} by {process}, transaction {texts['transaction_id']}{more}, at {text_of(numbers.get('time_ms', 0))}"
    return {"winner": {**texts, **numbers, "more": others}}, words
