"""The conflict rules, one row per case: what I read and write, what the winner did, and what follows at each level.

The cases restate what Delta Lake documents and tests about its conflict checker, with the two differences that
`conflicts.py` names.
"""

from __future__ import annotations

import pytest

from sluice.coordinator.errors import ConcurrentModification
from sluice.coordinator.rules.conflicts import DELTA_LAKE, RULES, Comparison, Conflict, check, effective_level, refusal
from sluice.coordinator.rules.intent import IsolationLevel, Kind, table_isolation
from sluice.coordinator.rules.rebase import Candidate, check_against
from sluice.coordinator.rules.refusal import refusal_error
from sluice.coordinator.rules.winner import Footprint, Winner
from sluice.storage.actions import AddFile, Metadata, Protocol, RemoveFile
from sluice.storage.data.vectors import Rows
from sluice.storage.errors import InvalidRequest

S, WS = IsolationLevel.SERIALIZABLE, IsolationLevel.WRITE_SERIALIZABLE
TYPES = {"p": "integer", "q": "string"}


def added(p: str | None, q: str | None = "x", *, data_change: bool = True) -> AddFile:
    return AddFile(f"p={p}/q={q}/f.parquet", {"p": p, "q": q}, 1, 1, data_change)


def gone(*paths: str) -> dict[str, RemoveFile]:
    return {path: RemoveFile(path, data_change=True) for path in paths}


def mine(**changes: object) -> Footprint:
    return Footprint(**{"partition_types": TYPES, **changes})  # type: ignore[arg-type]


def asked(footprint: Footprint, winner: Winner, level: IsolationLevel) -> Conflict | None:
    return check(Comparison(footprint, winner, effective_level(footprint, level, "UPDATE" if footprint.data_change else "OPTIMIZE")))


BLIND = mine(blind_append=True)
READS_P1 = mine(predicates=("p = 1",), read_files=("a",), removes=("a",))
LOCKS_P1 = mine(predicates=("p = 1",), locks=("p = 1",))
METADATA = Metadata("id", "{}", (), {})
WIDENED = {"configuration": {}, "schema": "columns", "other": False}
SWITCHED_ON = {"configuration": {"delta.enableDeletionVectors": [None, "true"]}, "schema": "same", "other": False}
APPEND_P1 = Winner(7, "WRITE", blind_append=True, adds=(added("1"),))
READING_APPEND_P1 = Winner(7, "MERGE", adds=(added("1"),))
REMOVE_A = Winner(7, "DELETE", removed=gone("a"))

CASES: list[tuple[str, Footprint, Winner, str | None] | tuple[str, Footprint, Winner, str | None, str | None]] = [
    # name, what I did, what the winner did, rule at Serializable, rule at WriteSerializable if it differs
    ("blind append after blind append", BLIND, APPEND_P1, None),
    ("blind append after delete", BLIND, REMOVE_A, None),
    ("blind append after overwrite", BLIND, Winner(7, "WRITE", adds=(added("1"),), removed=gone("a")), None),
    ("blind append after metadata", BLIND, Winner(7, metadata=METADATA), "metadata-changed"),
    ("blind append after protocol", BLIND, Winner(7, protocol=Protocol(1, 7, None, ())), "protocol-changed"),
    ("protocol is asked before metadata", BLIND, Winner(7, metadata=METADATA, protocol=Protocol(1, 7, None, ())), "protocol-changed"),
    ("read partition, blind append there", READS_P1, APPEND_P1, "appended-what-i-read", None),
    ("read partition, reading append there", READS_P1, READING_APPEND_P1, "appended-what-i-read"),
    ("read partition, append elsewhere", READS_P1, Winner(7, adds=(added("2"),)), None),
    ("typed comparison of partition values", READS_P1, Winner(7, adds=(added("01"),)), "appended-what-i-read"),
    ("null partition is in no comparison", READS_P1, Winner(7, adds=(added(None),)), None),
    ("null partition by IS NULL", mine(predicates=("p IS NULL",)), Winner(7, adds=(added(None),)), "appended-what-i-read"),
    ("IN list", mine(predicates=("p IN (2, 3)",)), Winner(7, adds=(added("3"),)), "appended-what-i-read"),
    ("range", mine(predicates=("p > 5",)), Winner(7, adds=(added("3"),)), None),
    ("two predicates, the second hits", mine(predicates=("p = 9", "q = 'x'")), READING_APPEND_P1, "appended-what-i-read"),
    ("the whole table as a filter", mine(predicates=("",)), READING_APPEND_P1, "appended-what-i-read"),
    ("depends on the whole table", mine(whole_table=True), APPEND_P1, "appended-what-i-read", None),
    ("read nothing, not blind, unpartitioned", Footprint(removes=("z",)), READING_APPEND_P1, "appended-what-i-read"),
    ("read nothing, not blind, partitioned", mine(removes=("z",)), READING_APPEND_P1, None),
    ("own metadata makes blind winners count", mine(predicates=("",), metadata=True), APPEND_P1, "appended-what-i-read"),
    ("a winner that only reorganised", READS_P1, Winner(7, "OPTIMIZE", adds=(added("1", data_change=False),)), None),
    ("I only reorganise, rows were appended", mine(predicates=("p = 1",), data_change=False), READING_APPEND_P1, None),
    ("I only reorganise, my file is gone", mine(read_files=("a",), removes=("a",), data_change=False), REMOVE_A, "removed-what-i-read"),
    ("a file I read was removed", READS_P1, REMOVE_A, "removed-what-i-read"),
    ("another file was removed", READS_P1, Winner(7, removed=gone("b")), None),
    ("any removal, whole table", mine(whole_table=True), Winner(7, removed=gone("b")), "removed-what-i-read"),
    ("any removal, too many files read to list", mine(read_files=None), Winner(7, removed=gone("b")), "removed-what-i-read"),
    ("both remove a file nobody read", mine(removes=("a",)), REMOVE_A, "removed-what-i-remove"),
    ("any removal, too many removes to list", mine(removes=None), Winner(7, removed=gone("b")), "removed-what-i-remove"),
    ("appended is asked before removed", READS_P1, Winner(7, adds=(added("1"),), removed=gone("a")), "appended-what-i-read"),
    ("application I read", mine(read_apps=("app",)), Winner(7, app_versions={"app": 3}), "application-advanced"),
    ("application I write with the same number", mine(app_versions={"app": 3}), Winner(7, app_versions={"app": 3}), None),
    (
        "application I write with another number",
        mine(app_versions={"app": 3}, blind_append=True),
        Winner(7, app_versions={"app": 4}),
        "application-advanced",
    ),
    ("application I neither read nor write", mine(app_versions={"app": 3}), Winner(7, app_versions={"other": 4}), None),
    (
        "a protocol nobody here implements",
        BLIND,
        Winner(7, protocol=Protocol(3, 7, ("fromTheFuture",), ("fromTheFuture",)), protocol_change={"added": ["it"], "removed": []}),
        "protocol-unsupported",
    ),
    (
        "a feature was added",
        BLIND,
        Winner(7, protocol=Protocol(1, 7, None, ("changeDataFeed",)), protocol_change={"added": ["changeDataFeed"], "removed": []}),
        None,
    ),
    (
        "a feature was taken away",
        BLIND,
        Winner(7, protocol=Protocol(1, 7, None, ()), protocol_change={"added": [], "removed": ["appendOnly"]}),
        "protocol-changed",
    ),
    ("deletion vectors were switched on", BLIND, Winner(7, metadata=METADATA, metadata_change=SWITCHED_ON), None),
    (
        "deletion vectors were switched on, and I change metadata",
        mine(metadata=True),
        Winner(7, metadata=METADATA, metadata_change=SWITCHED_ON),
        "metadata-changed",
    ),
    ("types became wider, and I only append", BLIND, Winner(7, metadata=METADATA, metadata_change=WIDENED), None),
    ("types became wider where I read", READS_P1, Winner(7, metadata=METADATA, metadata_change=WIDENED), "metadata-changed"),
    (
        "types became wider, and I change metadata",
        mine(blind_append=True, metadata=True),
        Winner(7, metadata=METADATA, metadata_change=WIDENED),
        "metadata-changed",
    ),
    (
        "types became wider, and another property, too",
        BLIND,
        Winner(7, metadata=METADATA, metadata_change={**WIDENED, "configuration": {"mine": [None, "1"]}}),
        "metadata-changed",
    ),
    (
        "an INSERT after an INSERT into one partition, MaxCompute's Delta tables",
        mine(blind_append=True, kind="append", policy="maxcompute-delta", partitions=('{"p":"1","q":"x"}',)),
        Winner(7, "WRITE", blind_append=True, adds=(added("1"),), kind=Kind.APPEND),
        "class-refused",
    ),
    ("read for update, blind append there", LOCKS_P1, APPEND_P1, "appended-what-i-read", "appended-what-i-lock"),
    ("read for update, blind append elsewhere", LOCKS_P1, Winner(7, "WRITE", blind_append=True, adds=(added("2"),)), None),
    ("the same domain", mine(domains=("d",)), Winner(7, domains=frozenset({"d"})), "same-domain"),
    ("another domain", mine(domains=("d",)), Winner(7, domains=frozenset({"e"})), None),
]


@pytest.mark.notices(
    "rule-appended-what-i-read",
    "rule-removed-what-i-read",
    "rule-appended-what-i-lock",
    "rule-removed-what-i-remove",
    "rule-metadata-changed",
    "rule-protocol-changed",
    "rule-protocol-unsupported",
    "rule-same-domain",
    "rule-application-advanced",
    "rule-class-refused",
    "serializable-is-strict",
    "only-appends-ignore-columns",
)
@pytest.mark.parametrize(("footprint", "winner", "rules"), [(c[1], c[2], c[3:]) for c in CASES], ids=[c[0] for c in CASES])
def test_case(footprint: Footprint, winner: Winner, rules: tuple[str | None, ...]) -> None:
    found = [asked(footprint, winner, level) for level in (S, WS)]
    assert [f and f.rule.name for f in found] == [rules[0], rules[-1]]


def test_delta_lake_itself_refuses_beside_wider_types() -> None:
    winner = Winner(7, metadata=METADATA, metadata_change=WIDENED)
    for policy in (DELTA_LAKE, "databricks"):
        found = asked(mine(blind_append=True, policy=policy), winner, WS)
        assert found is not None
        assert found.rule.name == "metadata-changed"


def test_every_rule_has_a_case() -> None:
    assert {rule.name for rule in RULES} <= {rule for case in CASES for rule in case[3:]} | {"adopted-what-i-adopt"}


@pytest.mark.notices("rule-adopted-what-i-adopt")
def test_a_file_that_was_there_before_is_adopted_once() -> None:
    adopting = Candidate("t-1", "ADOPT", mine(kind="append"), WS, actions=(added("1"),))
    for winner in (Winner(7, "ADOPT", adds=(added("1"),)), Winner(7, "RESTORE", adds=(added("1"),))):
        found = check_against(adopting, winner, lambda _: Rows())
        assert isinstance(found, Conflict)
        assert found.rule.name == "adopted-what-i-adopt"
    assert isinstance(check_against(adopting, Winner(7, "ADOPT", adds=(added("2"),)), lambda _: Rows()), Candidate)


def test_a_refusal_names_rule_winner_and_remedy() -> None:
    finding = asked(READS_P1, READING_APPEND_P1, WS)
    assert finding is not None
    error = refusal_error(refusal(finding), "t-1")
    assert isinstance(error, ConcurrentModification)
    assert type(error).__name__ == "ConcurrentAppendException"
    assert (error.rule, error.winning_version, error.winning_operation) == ("appended-what-i-read", 7, "MERGE")
    for told in ("version 7", "MERGE", "p=1/q=x", "condition"):
        assert told in str(error)


def test_levels_of_tables() -> None:
    assert table_isolation({}) is WS
    assert table_isolation({"delta.isolationLevel": "Serializable"}) is S
    with pytest.raises(InvalidRequest, match="Chaos"):
        table_isolation({"delta.isolationLevel": "Chaos"})
