"""Row tracking: every new file's rows get ids that nobody had before, in whatever order and grouping commits come."""

from __future__ import annotations

from dataclasses import replace

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.coordinator.commit.decision import Decision, DecisionInput, Queued, resolve
from sluice.coordinator.limits import Limits
from sluice.coordinator.nodes.records import Head, Rendering
from sluice.coordinator.publication.rendering import render
from sluice.coordinator.rules.intent import DeclaredReads, Intent
from sluice.coordinator.rules.winner import Member
from sluice.storage.actions import AddFile, DomainMetadata, RemoveFile, decode_commit
from sluice.storage.actions.features import ROW_TRACKING_DOMAIN
from sluice.storage.actions.texts import lines
from tests.coordinator.world import add, append_intent, intent_of, no_vectors, remove
from tests.storage.strategies import examples

BASE = Head(version=3, slot=0, timestamp_ms=1_000, metadata_version=0, row_ids=41)


def appending(rows: int, name: str) -> Intent:
    return intent_of(BASE, [add(name, stats=orjson.dumps({"numRecords": rows}).decode())], DeclaredReads(nothing=True))


def rewriting(rows: int, name: str, old: str) -> Intent:
    reads = DeclaredReads(read_files=(old,), partition_types={"p": "string"}, keeps_row_ids=False)
    return intent_of(BASE, [remove(old), add(name, stats=orjson.dumps({"numRecords": rows}).decode())], reads)


def decided(intents: list[Intent], head: Head = BASE) -> Decision:
    queue = [Queued(n + 1, i.transaction_id, Member(i, i.actions.encode())) for n, i in enumerate(intents)]
    return resolve(DecisionInput(head, queue, {}, Limits(), no_vectors), room=100)


@examples(100)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 9)), min_size=1, max_size=12))
def test_ids_are_given_without_gap_or_overlap(kinds: list[tuple[bool, int]]) -> None:
    intents = [appending(rows, f"n{n}") if blind else rewriting(rows, f"n{n}", f"old{n}") for n, (blind, rows) in enumerate(kinds)]
    decision = decided(intents)
    following = BASE.row_ids or 0
    following += 1
    for plan in decision.versions:
        actions = decode_commit(render(plan, decision.members[plan.version], Rendering(0)), name="v")
        for action in actions:
            if isinstance(action, AddFile):
                assert action.base_row_id == following
                assert action.default_row_commit_version == plan.version
                following += orjson.loads(action.stats or "{}")["numRecords"]
        (mark,) = [a for a in actions if isinstance(a, DomainMetadata)]
        assert mark.domain == ROW_TRACKING_DOMAIN
        assert orjson.loads(mark.configuration) == {"rowIdHighWaterMark": following - 1}
    assert decision.head.row_ids == following - 1


def test_a_file_that_is_added_again_keeps_its_ids() -> None:
    again = add("old", base_row_id=7, default_row_commit_version=2)
    intent = intent_of(BASE, [RemoveFile("old", True, deletion_timestamp=1), again], DeclaredReads(read_files=("old",)))
    decision = decided([intent])
    actions = decode_commit(render(decision.versions[0], decision.members[4], Rendering(0)), name="v")
    (kept,) = [a for a in actions if isinstance(a, AddFile)]
    assert (kept.base_row_id, kept.default_row_commit_version) == (7, 2)
    assert decision.head.row_ids == 41


def test_a_file_without_a_row_count_is_refused_and_stops_nobody() -> None:
    bad = intent_of(BASE, [add("bad", stats=None)], DeclaredReads(nothing=True))
    decision = decided([bad, appending(2, "good")])
    first, second = decision.verdicts
    assert first.refusal is not None
    assert "numRecords" in first.refusal.message
    assert second.refusal is None


def test_a_table_that_does_not_track_rows_gets_no_ids() -> None:
    decision = decided([append_intent(BASE)], replace(BASE, row_ids=None))
    actions = decode_commit(render(decision.versions[0], decision.members[4], Rendering(0)), name="v")
    assert not any(isinstance(a, DomainMetadata) for a in actions)
    assert all(a.base_row_id is None for a in actions if isinstance(a, AddFile))


@pytest.mark.parametrize(("intent", "told"), [(appending(1, "a"), "true"), (rewriting(1, "a", "old"), "false")])
def test_the_commit_says_whether_row_ids_were_kept(intent: Intent, told: str) -> None:
    decision = decided([intent])
    info = orjson.loads(next(lines(render(decision.versions[0], decision.members[4], Rendering(0)))))["commitInfo"]
    assert info["tags"] == {"delta.rowTracking.preserved": told}
