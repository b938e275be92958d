"""Which commits that came first stop a transaction: Delta's ordered checks, as a table of rules.

A rule asks one question about (what I read and write, what the winner did) at some isolation levels. `check` asks them in
the table's order, cheap and fatal first, and gives the first finding. Pure: no I/O, no clock.

Source: Delta Lake's ConflictChecker, restated as data. Two deliberate differences, both towards fewer refusals: a plain
append reads nothing, so a winning delete or overwrite never stops it; and a winner's reorganised files (`dataChange` =
false) hold no new rows, so they do not count as appended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa

from ..storage.actions import AddFile
from ..storage.partitions import decode_column
from ..storage.predicate import Predicate
from ..storage.schema import PrimitiveType, StructField, StructType
from .content import Winner
from .isolation import IsolationLevel
from .records import Footprint, Refusal

__all__ = ["RULES", "Encounter", "Finding", "Rule", "check", "effective_level", "refusal"]

_ALL: Final = frozenset(IsolationLevel)
_NOT_SNAPSHOT: Final = frozenset({IsolationLevel.SERIALIZABLE, IsolationLevel.WRITE_SERIALIZABLE})


@dataclass(frozen=True, slots=True)
class Encounter:
    """What a rule looks at: what I read and write, what the winner did, and the level at which both must stand."""

    mine: Footprint
    winner: Winner
    level: IsolationLevel


@dataclass(frozen=True, slots=True)
class Finding:
    """A rule that applies: `what` names the partitions, files, application or domain concerned."""

    rule: Rule
    winner: Winner
    what: str
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Rule:
    """One row of the table: its name, the question it asks, the levels at which it is asked, the error, and the remedy.

    `detect` gives what is concerned, or None when the question's answer is no.
    """

    name: str
    asks: str
    levels: frozenset[IsolationLevel]
    detect: Callable[[Encounter], str | None]
    error: str
    advice: str


def _some(names: Iterable[str], most: int = 3) -> str:
    listed = sorted(set(names))
    more = f" and {len(listed) - most} more" if len(listed) > most else ""
    return ", ".join(listed[:most]) + more


def _protocol_changed(at: Encounter) -> str | None:
    return "the table's protocol" if at.winner.protocol is not None else None


def _metadata_changed(at: Encounter) -> str | None:
    return "the table's metadata" if at.winner.metadata is not None else None


def _same_domain(at: Encounter) -> str | None:
    common = at.winner.domains.intersection(at.mine.domains)
    return f"metadata domain {_some(common)}" if common else None


def _application_advanced(at: Encounter) -> str | None:
    common = set(at.winner.app_versions).intersection(at.mine.read_apps)
    return f"application transaction {_some(common)}" if common else None


def _appended_what_i_read(at: Encounter) -> str | None:
    mine, winner = at.mine, at.winner
    if mine.blind_append or (at.level is IsolationLevel.WRITE_SERIALIZABLE and winner.blind_append and not mine.metadata):
        return None
    candidates = [a for a in winner.adds if a.data_change]
    if not candidates:
        return None
    if mine.whole_table or not mine.partition_types:
        return f"files {_some(a.path for a in candidates)}"
    hit = _in_partitions(candidates, mine)
    return f"partitions {_some(_partition(a) for a in hit)}" if hit else None


def _removed_what_i_read(at: Encounter) -> str | None:
    mine, winner = at.mine, at.winner
    if mine.blind_append or not winner.removes:
        return None
    if mine.whole_table or mine.read_files is None:
        return f"files {_some(winner.removes)}"
    common = winner.removes.intersection(mine.read_files)
    return f"files {_some(common)}" if common else None


def _removed_what_i_remove(at: Encounter) -> str | None:
    mine, winner = at.mine, at.winner
    if mine.removes is None:
        return f"files {_some(winner.removes)}" if winner.removes else None
    common = winner.removes.intersection(mine.removes)
    return f"files {_some(common)}" if common else None


RULES: Final[tuple[Rule, ...]] = (
    Rule(
        "protocol-changed",
        "Did the winner change the table's protocol?",
        _ALL,
        _protocol_changed,
        "ProtocolChangedException",
        "open the table again and repeat the operation; change the protocol when nobody writes",
    ),
    Rule(
        "metadata-changed",
        "Did the winner change schema, partitioning or properties?",
        _ALL,
        _metadata_changed,
        "MetadataChangedException",
        "refresh the table and repeat the operation; change schema and properties in one job only",
    ),
    Rule(
        "same-domain",
        "Did the winner write a metadata domain that I write too?",
        _ALL,
        _same_domain,
        "ConcurrentTransactionException",
        "let one job write this metadata domain",
    ),
    Rule(
        "application-advanced",
        "Did the winner write the application transaction that I read?",
        _ALL,
        _application_advanced,
        "ConcurrentTransactionException",
        "run one instance of this application (or stream checkpoint) at a time",
    ),
    Rule(
        "appended-what-i-read",
        "Did the winner add files where I read? (under WriteSerializable blind appends do not count)",
        _NOT_SNAPSHOT,
        _appended_what_i_read,
        "ConcurrentAppendException",
        "repeat the operation, or name the partitions it works on in its condition",
    ),
    Rule(
        "removed-what-i-read",
        "Did the winner remove a file that I read?",
        _ALL,
        _removed_what_i_read,
        "ConcurrentDeleteReadException",
        "repeat the operation, or name the partitions it works on in its condition",
    ),
    Rule(
        "removed-what-i-remove",
        "Did the winner remove a file that I remove too?",
        _ALL,
        _removed_what_i_remove,
        "ConcurrentDeleteDeleteException",
        "repeat the operation; give jobs that rewrite data partitions of their own",
    ),
)


def effective_level(mine: Footprint, level: IsolationLevel) -> IsolationLevel:
    """The level a commit is checked at: one that only reorganises data is compared by what both wrote."""
    other_actions = mine.metadata or mine.protocol or mine.domains or mine.app_versions or mine.read_apps
    return level if mine.data_change or other_actions else IsolationLevel.SNAPSHOT


def check(mine: Footprint, winner: Winner, level: IsolationLevel, rules: tuple[Rule, ...] = RULES) -> Finding | None:
    """The first rule by which `winner` stops the transaction, or None when both can stand."""
    encounter = Encounter(mine, winner, effective_level(mine, level))
    for rule in rules:
        if encounter.level in rule.levels:
            what = rule.detect(encounter)
            if what is not None:
                return Finding(rule, winner, what)
    return None


def refusal(finding: Finding) -> Refusal:
    """The finding as it is recorded and told: rule, winner, what is concerned, and what would have avoided it."""
    rule, winner = finding.rule, finding.winner
    operation = winner.operation or "a commit"
    return Refusal(
        rule=rule.name,
        error=rule.error,
        message=f"{rule.name}: version {winner.version} ({operation}) came first and concerns {finding.what}; {rule.advice}",
        winning_version=winner.version,
        winning_operation=winner.operation,
        facts={"what": finding.what, "advice": rule.advice, **finding.facts},
    )


def _partition(add: AddFile) -> str:
    return "/".join(f"{name}={value}" for name, value in add.partition_values.items()) or add.path


@lru_cache(maxsize=256)
def _parsed(sql: str, types: tuple[tuple[str, str], ...]) -> Predicate:
    schema = StructType(tuple(StructField(name, PrimitiveType(kind), True, {}) for name, kind in types))
    return Predicate.parse(sql, schema)


def _in_partitions(adds: list[AddFile], mine: Footprint) -> list[AddFile]:
    """Those of the files that lie where one of my partition predicates read ("" is everywhere)."""
    if not mine.predicates:
        return []
    if "" in mine.predicates:
        return adds
    types = tuple(sorted(mine.partition_types.items()))
    columns = {
        name: decode_column(pa.array([a.partition_values.get(name) for a in adds], pa.string()), PrimitiveType(kind))
        for name, kind in types
    }
    table = pa.table(columns)
    hit: set[int] = set()
    for sql in mine.predicates:
        mask = _parsed(sql, types).mask(table)
        hit.update(n for n, inside in enumerate(mask.to_pylist()) if inside)
    return [adds[n] for n in sorted(hit)]
