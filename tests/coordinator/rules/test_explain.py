"""`sluice explain`: Delta Lake's own verdict and sluice's for every case of the table, and what the command makes of its input."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import orjson
import pytest
from click.testing import CliRunner, Result

from sluice.cli import main
from sluice.coordinator.rules.explain import cases
from sluice.coordinator.rules.explain.cases import read_case
from sluice.coordinator.rules.explain.decision import Explanation, completed, explain
from sluice.coordinator.rules.intent import ConflictPolicy, IsolationLevel
from sluice.storage.actions import Action, AddFile, RemoveFile
from sluice.storage.actions.file_removals import Moved, moved_rows, with_moves
from sluice.storage.data.vectors import Rows, plan_vector
from sluice.storage.errors import InvalidRequest
from tests.coordinator.explain_cases import ERRORS, TABLE, Json, add, case, info, metadata, protocol, reads, remove, unpartitioned
from tests.test_docs_tables import DOCS, names, section

LEVELS = ("Serializable", "WriteSerializable")
MATRICES: Mapping[str, Any] = json.loads((Path(__file__).parents[1] / "conflict_matrices.json").read_text())


def decided(fields: Json, *, strict: bool = False) -> Explanation:
    return explain(read_case(json.dumps(fields).encode(), "a case"), strict=strict)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("mode", ["delta", "sluice"])
@pytest.mark.parametrize(("fields", "delta", "ours"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
@pytest.mark.many
def test_each_case_at_each_level_in_each_mode(fields: Json, delta: str, ours: str, mode: str, level: str) -> None:
    expected = (delta if mode == "delta" else ours).split("/")[LEVELS.index(level)]
    told = decided({**fields, "table_isolation": level}, strict=mode == "delta")
    assert told.verdict == ERRORS[expected], told
    assert (told.rule is None) == (told.verdict == "ok")


def test_the_table_has_a_case_for_every_verdict() -> None:
    assert len({name for name, *_ in TABLE}) == len(TABLE) >= 100
    assert {word for _, _, *both in TABLE for cell in both for word in cell.split("/")} == ERRORS.keys() - {"policy"}


# -- levels ----------------------------------------------------------------------------------------------------------------

LATE_APPEND = case(setup=[add("a", x="1")], txn_reads=[reads("x = 1")], won=[info(blind=True), add("b", x="1")], own=[remove("a")])


def test_the_level_is_the_tables_or_else_the_default_of_whose_verdict_it_is() -> None:
    assert (decided(LATE_APPEND).isolation, decided(LATE_APPEND).verdict) == ("WriteSerializable", "ok")
    assert (decided(LATE_APPEND, strict=True).isolation, decided(LATE_APPEND, strict=True).verdict) == (
        "Serializable",
        "ConcurrentAppendException",
    )
    for strict in (False, True):
        for level, verdict in (("Serializable", "ConcurrentAppendException"), ("WriteSerializable", "ok"), ("SnapshotIsolation", "ok")):
            told = decided({**LATE_APPEND, "setup": [metadata({"delta.isolationLevel": level}), *LATE_APPEND["setup"]]}, strict=strict)
            assert (told.isolation, told.verdict) == (level, verdict)


def test_snapshot_isolation_compares_what_both_wrote_and_what_was_read_and_is_gone() -> None:
    late = {**LATE_APPEND, "table_isolation": "SnapshotIsolation"}
    assert decided({**late, "winning_commits": [[info(blind=False), add("b", x="1")]]}).verdict == "ok"
    assert decided({**late, "winning_commits": [[remove("a")]]}).verdict == ERRORS["read"]
    assert decided({**late, "txn_reads": [], "winning_commits": [[remove("a")]]}).verdict == ERRORS["delete"]


def test_a_commit_without_data_changes_is_compared_at_snapshot_isolation() -> None:
    told = decided(case(txn_reads=[reads("x = 1")], won=[add("a", x="1")], own=[add("b", x="1", data_change=False)], operation="OPTIMIZE"))
    assert (told.verdict, told.isolation) == ("ok", "SnapshotIsolation")
    assert "changes no data" in told.because


# -- several winners -------------------------------------------------------------------------------------------------------


def test_winners_are_met_in_their_order_and_the_first_that_stops_is_named() -> None:
    commits = [[add("z", x="9")], [info("MERGE"), add("b", x="1")], [remove("a")]]
    told = decided({**LATE_APPEND, "winning_commits": commits})
    assert (told.verdict, told.winning_version, told.winning_operation) == (ERRORS["append"], 2, "MERGE")
    assert "version 2 (MERGE)" in told.because
    assert "partitions x=1" in told.because


def test_metadata_is_compared_with_what_the_winner_before_left() -> None:
    enabled = {"delta.enableDeletionVectors": "true"}
    commits = [[metadata(enabled)], [metadata({**enabled, "delta.checkpointPolicy": "v2"})]]
    told = decided({**case(setup=[metadata()], own=[add("a", x="1")]), "winning_commits": commits}, strict=True)
    assert told.verdict == "ok"
    commits.append([metadata()])
    told = decided({**case(setup=[metadata()], own=[add("a", x="1")]), "winning_commits": commits}, strict=True)
    assert (told.verdict, told.winning_version) == (ERRORS["meta"], 3)


def test_a_feature_that_came_and_went_was_never_read() -> None:
    base, more = protocol("appendOnly"), protocol("appendOnly", "checkConstraints")
    told = decided({**case(setup=[base], own=[add("a", x="1")]), "winning_commits": [[more], [base]]}, strict=True)
    assert told.verdict == "ok"


# -- MaxCompute's policies ---------------------------------------------------------------------------------------------------

CELLS = [
    (policy, earlier, later, told)
    for policy, rows in MATRICES.items()
    if policy.startswith("maxcompute")
    for earlier, row in rows.items()
    for later, told in row.items()
]


def actions_of(word: str, path: str, x: str) -> list[Json]:
    """What an operation of a matrix's word does to the partition x."""
    unchanged = word.endswith(("MERGE", "COMPACT"))
    new = add(path, x=x, data_change=not unchanged)
    return [new] if word == "INSERT" else [remove("a", partitionValues={"x": x}, dataChange=not unchanged), new]


@pytest.mark.parametrize(("policy", "earlier", "later", "told"), CELLS, ids=["-".join(cell[:3]) for cell in CELLS])
def test_every_cell_of_maxcomputes_matrices(policy: str, earlier: str, later: str, told: str) -> None:
    fields = case(
        setup=[add("a", x="1"), add("a2", x="2")],
        won=actions_of(earlier, "w", "1"),
        own=actions_of(later, "o", "1"),
        operation=later,
        winning_operation=earlier,
        policy=policy,
    )
    found = decided(fields)
    refused = told == "refuse_later"
    assert (found.verdict, found.rule) == (("PolicyConflictException", "class-refused") if refused else ("ok", None)), found
    assert not refused or f"{earlier}, which came first in partition x=1" in found.because
    elsewhere = {**fields, "winning_commits": [[add("w", x="2", data_change=not earlier.endswith(("MERGE", "COMPACT")))]]}
    assert decided(elsewhere).verdict == "ok"


def test_an_overwrite_that_ends_later_takes_away_what_the_earlier_one_left() -> None:
    fields = case(setup=[add("a", x="1")], won=[add("w", x="1")], own=[remove("a"), add("o", x="1")], operation="INSERT OVERWRITE")
    for policy in ("maxcompute-table", "maxcompute-transactional", "maxcompute-delta"):
        told = decided({**fields, "policy": policy})
        assert told.verdict == "ok"
        assert told.rebased == ("files of version 1 replaced (1 files)",)
    assert decided({**fields, "policy": "maxcompute-delta", "winning_commits": [[add("w", x="2")]]}).rebased == ()


def test_without_names_actions_tell_what_operations_were() -> None:
    fields = case(
        setup=[metadata({"sluice.conflictPolicy": "maxcompute-delta"})], won=[add("w", x="1")], own=[add("o", x="1")], operation=""
    )
    assert decided(fields).verdict == ERRORS["policy"]
    assert decided({**fields, "winning_commits": [[add("w", x="1", data_change=False)]]}).verdict == "ok"
    assert decided({**fields, "own_actions": [remove("w0"), add("w0", x="1")]}).verdict == ERRORS["policy"]


def test_a_merge_that_changes_no_data_merges_small_files() -> None:
    merging = case(setup=[add("a", x="1")], own=[remove("a", data_change=False), add("o", x="1", data_change=False)], operation="MERGE")
    compared = {**merging, "policy": "maxcompute-delta", "winning_commits": [[add("w", x="1")]]}
    assert decided(compared).verdict == "ok"
    assert decided({**compared, "own_actions": [remove("a"), add("o", x="1")]}).verdict == ERRORS["policy"]


def test_what_is_outside_all_classes_is_compared_by_deltas_rules() -> None:
    constraint = case(
        txn_reads=[reads()], won=[add("w", x="1")], own=[metadata({"delta.constraints.c": "n > 0"})], operation="ADD CONSTRAINT"
    )
    assert decided({**constraint, "policy": "maxcompute-table"}).verdict == ERRORS["append"]


def test_a_dynamic_overwrite_replaces_the_partitions_of_the_files_it_removes() -> None:
    fields = case(
        setup=[add("a", x="1")], won=[add("w", x="2")], own=[remove("a")], operation="INSERT OVERWRITE", policy="maxcompute-table"
    )
    assert decided(fields).rebased == ()
    assert decided({**fields, "setup": []}).rebased == ("files of version 1 replaced (1 files)",)


def test_a_removed_file_lies_where_the_setup_says() -> None:
    fields = case(setup=[add("a", x="1")], won=[add("w", x="2")], own=[remove("a")], operation="DELETE", policy="maxcompute-delta")
    assert decided(fields).verdict == "ok"
    assert decided({**fields, "setup": []}).verdict == ERRORS["policy"]
    unknown = {**fields, "own_actions": [remove("a"), remove("z")]}
    assert decided(unknown).verdict == ERRORS["policy"]
    theirs = {**fields, "setup": [add("a", x="1"), add("b", x="2")], "winning_commits": [[info("DELETE"), remove("b")]]}
    assert decided(theirs).verdict == "ok"
    assert decided({**theirs, "setup": [add("a", x="1")]}).verdict == ERRORS["policy"]


# -- row by row --------------------------------------------------------------------------------------------------------------

VECTORS = [metadata({"delta.enableDeletionVectors": "true"}), protocol("appendOnly", reader=("deletionVectors",))]
ROWS = {"numRecords": 100}


def vector(*rows: int) -> Json:
    made, _ = plan_vector(Rows(rows), owner="test")
    return {
        "storageType": "i",
        "pathOrInlineDv": made.path_or_inline_dv,
        "sizeInBytes": made.size_in_bytes,
        "cardinality": made.cardinality,
    }


def in_a_file(cardinality: int, name: str = "ab^-aqEH.-t@S}K{vb[*k^") -> Json:
    return {"storageType": "u", "pathOrInlineDv": name, "offset": 1, "sizeInBytes": 34, "cardinality": cardinality}


def deletes(path: str, told: Json) -> list[Json]:
    return [remove(path), add(path, x="1", stats=ROWS, vector=told)]


def two_deletions(mine: Json, theirs: Json, **more: Any) -> Json:
    return case(
        setup=[*VECTORS, add("a", x="1", stats=ROWS)],
        txn_reads=[reads("x = 1", "n = 5")],
        won=[info("DELETE", blind=False), *deletes("a", theirs)],
        own=deletes("a", mine),
        operation="DELETE",
        **more,
    )


@pytest.mark.parametrize("level", LEVELS)
def test_deletions_of_different_rows_of_a_file_are_united(level: str) -> None:
    told = decided(two_deletions(vector(1, 2), vector(3), table_isolation=level))
    assert told.verdict == "ok"
    assert told.rebased == ("deletion vector of a united with that of version 1",)
    assert told.rebased[0] in told.because


@pytest.mark.parametrize("level", LEVELS)
def test_deletions_of_the_same_row_conflict(level: str) -> None:
    told = decided(two_deletions(vector(1, 2, 3), vector(2, 3), table_isolation=level))
    assert (told.verdict, told.rule) == (ERRORS["delete"], "removed-what-i-remove")
    assert "2 rows of a" in told.because


def test_delta_itself_compares_files() -> None:
    told = decided(two_deletions(vector(1), vector(3), table_isolation="WriteSerializable"), strict=True)
    assert told.verdict == ERRORS["append"]
    reading = two_deletions(vector(1), vector(3), table_isolation="SnapshotIsolation")
    assert decided(reading, strict=True).verdict == ERRORS["read"]


def test_rows_of_vectors_in_files_are_not_known_and_that_is_said() -> None:
    told = decided(two_deletions(vector(1), in_a_file(1)))
    assert told.verdict == ERRORS["delete"]
    assert any("inline" in note for note in told.notes)
    assert decided(two_deletions(vector(1), vector(1))).notes == ()


def test_without_the_feature_files_are_compared() -> None:
    fields = two_deletions(vector(1), vector(3), table_isolation="SnapshotIsolation")
    assert decided({**fields, "setup": [VECTORS[0], protocol("appendOnly"), fields["setup"][2]]}).verdict == ERRORS["read"]
    assert decided({**fields, "setup": [VECTORS[0], fields["setup"][2]]}).verdict == "ok"


def moved_to(path: str) -> Json:
    tags = with_moves(RemoveFile("a", False), [Moved(path, 0, 100, 0)]).tags
    return remove("a", data_change=False, tags=tags)


def test_a_deletion_is_carried_over_to_what_a_compaction_made_of_the_file() -> None:
    compacted = [info("OPTIMIZE"), moved_to("big"), add("big", x="1", data_change=False, stats={"numRecords": 300})]
    told = decided({**two_deletions(vector(7), vector(8)), "winning_commits": [compacted]})
    assert told.verdict == "ok"
    assert told.rebased == ("deletion carried over from a to what version 1 made of it",)
    assert told.notes == ()


COMPACTED = [remove("a", data_change=False), add("big", x="1", data_change=False)]


@pytest.mark.parametrize("level", LEVELS)
def test_a_deletion_and_a_compaction_go_together(level: str) -> None:
    deleting = two_deletions(vector(7), vector(8), table_isolation=level)
    told = decided({**deleting, "winning_commits": [[info("OPTIMIZE"), *COMPACTED]]})
    assert (told.verdict, len(told.rebased)) == ("ok", 1)
    assert "the compaction is assumed to keep their order" in told.notes[0]
    told = decided({**deleting, "winning_commits": [COMPACTED], "winning_operation": "OPTIMIZE ZORDER BY (n)"})
    assert (told.verdict, len(told.rebased)) == ("ok", 1)
    assert decided({**deleting, "winning_commits": [COMPACTED]}, strict=True).verdict == ERRORS["append"]


@pytest.mark.parametrize("level", LEVELS)
def test_a_compaction_leaves_out_what_was_deleted_meanwhile(level: str) -> None:
    fields = two_deletions(vector(7), vector(8), table_isolation=level)
    compacting = {**fields, "own_actions": COMPACTED, "own_operation": "OPTIMIZE"}
    told = decided(compacting)
    assert (told.verdict, told.rebased) == ("ok", ("rows of a left out, which version 1 deleted",))
    assert decided({**compacting, "own_operation": "OPTIMIZE ZORDER BY"}).verdict == "ok"
    assert decided({**compacting, "winning_commits": [COMPACTED]}).verdict == "ok"
    assert decided({**compacting, "setup": fields["setup"][2:]}).verdict == ERRORS["read"]


def test_the_rows_of_several_sources_lie_behind_each_other_in_what_is_assumed() -> None:
    sources = {path: AddFile(path, {"x": x}, 1, 1, True, stats='{"numRecords": 10}') for path, x in (("a", "1"), ("b", "1"), ("c", "2"))}
    outputs = [AddFile(path, {"x": x}, 1, 1, False) for path, x in (("big1", "1"), ("big2", "2"))]
    said = with_moves(RemoveFile("d", False), [Moved("big2", 0, 1, 10)])
    compaction: list[Action] = [*(RemoveFile(path, False) for path in sources), said, RemoveFile("e", True), *outputs]
    actions, assumed = completed(compaction, sources, traced=True)
    moved = {each.path: moved_rows(each) for each in actions if isinstance(each, RemoveFile)}
    assert moved == {
        "a": (Moved("big1", 0, 10, 0),),
        "b": (Moved("big1", 0, 10, 10),),
        "c": (Moved("big2", 0, 10, 0),),
        "d": (Moved("big2", 0, 1, 10),),
        "e": None,
    }
    assert assumed == {"a", "b", "c"}


# -- what a case may leave open, and what it may not ---------------------------------------------------------------------------


def test_a_case_may_be_short() -> None:
    told = decided({"own_actions": [{"add": {"path": "b"}}], "winning_commits": [[{"add": {"path": "a"}}, {"remove": {"path": "z"}}]]})
    assert (told.verdict, told.policy) == ("ok", "delta")
    assert decided({}).because == "no commit came first"


def test_the_table_is_described_by_its_own_metadata_where_the_case_says_nothing() -> None:
    fields = case(setup=[metadata(), add("a", x="1")], txn_reads=[reads("x = 1")], won=[add("b", x="2")], own=[remove("a")])
    assert decided({key: value for key, value in fields.items() if key not in ("schema", "partition_columns")}).verdict == "ok"
    changed = {"metaData": {"configuration": {"delta.enableDeletionVectors": "true"}}}
    assert decided({**fields, "winning_commits": [[changed]]}).verdict == "ok"


def test_what_cannot_be_evaluated_is_noted() -> None:
    [note] = decided(case(txn_reads=[reads("year > 2019")])).notes
    assert "year" in note
    assert "counts as TRUE" in note
    [note] = decided({"partition_columns": ["p"]}).notes
    assert "'p'" in note
    assert decided(case(txn_reads=[reads("x = 1 -- one", "n > 2")], schema={"x": "int", "n": "bigint", "v": "variant"})).notes == ()


def test_a_comment_in_a_predicate_ends_with_its_line() -> None:
    fields = case(setup=[add("a", x="1")], txn_reads=[reads("x = 1 -- one", "n > 2")], won=[add("b", x="2")], own=[remove("a")])
    assert decided(fields, strict=True).verdict == "ok"


def test_a_flag_of_the_own_commit_is_not_believed() -> None:
    fields = unpartitioned(won=[add("a")], own=[info(blind=True), remove("z")])
    assert decided(fields).verdict == ERRORS["append"]


def test_names_that_are_no_field_are_remarks() -> None:
    assert decided({**LATE_APPEND, "title": "a late append", "expected": "ok"}).verdict == "ok"


BAD: list[tuple[Any, str]] = [
    ([], r"a case contains \[\]; write one JSON object"),
    ({"winning_comits": []}, "winning_comits is not a field of a case; did you mean winning_commits"),
    ({"winning_commits": [{"add": {"path": "a"}}]}, r"winning_commits\[0\] is .*; write a list of Delta actions"),
    ({"setup": [{"add": {}}]}, r"setup\[0\] is not a Delta action: add: lacks path"),
    ({"setup": [{"add": {"path": 1}}]}, r"setup\[0\] is not a Delta action: add: path must be text, not 1"),
    ({"setup": [{"add": {"path": "a"}, "remove": {"path": "a"}}]}, r"setup\[0\] is not a Delta action: must have exactly one action"),
    ({"own_actions": ["a"]}, r"own_actions\[0\] is 'a'; write a Delta action"),
    ({"own_operation": 7}, "own_operation is 7; write text"),
    ({"schema": {"x": "strng"}}, "schema.x cannot be used: 'strng' is not a type of Spark SQL"),
    ({"schema": ["x"]}, r"schema is \['x'\]; write an object"),
    ({"schema": {"x": "array<int>"}, "partition_columns": ["x"]}, "schema.x is array<integer>; a partition column has a primitive type"),
    ({"setup": [{"metaData": {"schemaString": "{"}}]}, "metaData.schemaString is not a schema"),
    ({"partition_columns": "x"}, "partition_columns is 'x'; write a list of text"),
    ({"table_isolation": "serializable"}, "table_isolation cannot be used: .* use one of SnapshotIsolation|Serializable"),
    ({"policy": "maxcompute"}, "policy cannot be used: .*maxcompute-delta"),
    ({"txn_reads": [{"op": "look"}]}, r"txn_reads\[0\].op is 'look'; use one of metadata, filterFiles"),
    ({"txn_reads": [{"op": "txnVersion"}]}, r"txn_reads\[0\].appId is missing; txnVersion needs it"),
    ({"txn_reads": [{"op": "readFiles", "paths": "a"}]}, r"txn_reads\[0\].paths is 'a'; write a list of text"),
    ({"txn_reads": [{"op": "filterFiles", "predicates": ["x ="]}]}, r"txn_reads\[0\].predicates: .*'x =' does not parse"),
    ({"txn_reads": [{"op": "partitionsOf", "partitionValues": [{"q": "1"}]}]}, "names 'q'; the partition columns are none"),
    (
        {"partition_columns": ["x"], "schema": {"x": "int"}, "txn_reads": [{"op": "partitionsOf", "partitionValues": [{"x": "one"}]}]},
        r"txn_reads\[0\].partitionValues cannot be used: .*write partition values as the log does",
    ),
    (
        {"partition_columns": ["x"], "schema": {"x": "int"}, "txn_reads": [{"op": "partitionsOf", "partitionValues": [{"x": 1}]}]},
        "has 1 for x; write partition values as text",
    ),
]


@pytest.mark.parametrize(("fields", "message"), BAD, ids=[message[:40] for _, message in BAD])
def test_a_bad_case_is_told_by_field_and_remedy(fields: Any, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message) as raised:
        decided(fields)
    assert raised.value.case == "a case"


# -- the command -----------------------------------------------------------------------------------------------------------------


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["explain", *map(str, arguments)])


@pytest.fixture
def late(tmp_path: Path) -> Path:
    path = tmp_path / "late.json"
    path.write_text(json.dumps(LATE_APPEND))
    return path


def test_the_command_prints_one_line_for_each_case(late: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    other.write_text("{}")
    result = run(late, other)
    assert (result.exit_code, result.stderr) == (0, "")
    first, second = map(json.loads, result.stdout.splitlines())
    assert (first["verdict"], first["rule"], first["case"]) == ("ok", None, str(late))
    assert second["because"] == "no commit came first"
    assert list(first)[:3] == ["verdict", "rule", "because"]


def test_a_refusal_is_an_answer(late: Path) -> None:
    result = run("--strict-delta", late)
    assert result.exit_code == 0
    told = json.loads(result.stdout)
    assert (told["verdict"], told["rule"], told["winning_version"]) == (ERRORS["append"], "appended-what-i-read", 1)


def test_a_case_that_cannot_be_used_does_not_keep_the_others_from_being_decided(late: Path, tmp_path: Path) -> None:
    bad, missing = tmp_path / "bad.json", tmp_path / "missing.json"
    bad.write_text("{")
    result = run(bad, missing, late)
    assert result.exit_code == 2
    assert [json.loads(line)["case"] for line in result.stdout.splitlines()] == [str(late)]
    lines = result.stderr.splitlines()
    assert [line.startswith("sluice: InvalidRequest: ") for line in lines] == [True, True]
    assert str(bad) in lines[0]
    assert "is not JSON" in lines[0]
    assert "No such file" in lines[1]


def test_without_a_case_the_command_says_how_to_call_it() -> None:
    result = run()
    assert result.exit_code == 2
    assert "CASE.json" in result.stderr


# -- docs/explain.md ---------------------------------------------------------------------------------------------------------------


def test_the_page_tells_every_field() -> None:
    assert names(section("explain.md", "A case")) == list(cases.FIELDS)
    assert names(section("explain.md", "What a transaction reads")) == list(cases.READ_OPS)
    shown = names(section("explain.md", "Would two transactions conflict? explain").split("## A case")[0])
    assert shown == [field.name for field in fields(Explanation)]
    words = set(re.findall(r"`([\w-]+)`", section("explain.md", "A case")))
    assert words >= {level.value for level in IsolationLevel} | {policy.value for policy in ConflictPolicy}


def test_the_case_on_the_page_is_decided_as_it_says() -> None:
    [shown] = re.findall(r"```json\n(.*?)```", section("explain.md", "A case"), re.DOTALL)
    told = explain(read_case(shown.encode(), "late-append.json"))
    [printed] = re.findall(r"```json\n(.*?)```", (DOCS / "explain.md").read_text().split("## A case")[0], re.DOTALL)
    expected = json.loads(printed)
    assert told.because.startswith(expected.pop("because").removesuffix("..."))
    assert {name: value for name, value in json.loads(orjson.dumps(told)).items() if name != "because"} == expected
