"""Which transactions share a version, and what a plain append is compared with: nothing but the version of the metadata."""

from __future__ import annotations

from typing import Any

import pytest
from pyarrow.lib import ArrowNotImplementedError

from sluice.coordinator.commit.decision import Decision, DecisionInput, Queued, groupable, resolve, windows_of
from sluice.coordinator.limits import Limits
from sluice.coordinator.nodes.records import Head
from sluice.coordinator.rules.intent import DeclaredReads, Intent
from sluice.coordinator.rules.winner import Member, Winner
from sluice.storage.actions import DomainMetadata, Metadata, Protocol, encode_all
from sluice.storage.errors import AccessDenied, CorruptLogFile, InvalidRequest, NoSuchBucket, StorageUnavailable
from tests.coordinator.world import app_intent, append_intent, intent_of, no_vectors, remove, rewrite_intent

BASE = Head(version=0, slot=0, timestamp_ms=1_000, metadata_version=0)
SCHEMA = '{"type":"struct","fields":[]}'
CHANGED = Metadata("t", SCHEMA, (), {})


def decided(head: Head, intents: list[Intent], winners: dict[int, Winner] | None = None) -> Decision:
    queue = [Queued(head.slot + 1 + n, i.transaction_id, Member(i, i.actions.encode())) for n, i in enumerate(intents)]
    return resolve(DecisionInput(head, queue, {} if winners is None else winners, Limits(), no_vectors), room=100)


def rules(decision: Decision) -> list[str]:
    return ["" if each.refusal is None else each.refusal.rule for each in decision.verdicts]


def metadata_intent(head: Head) -> Intent:
    return intent_of(head, [CHANGED], DeclaredReads())


@pytest.mark.notices("appends-look-at-the-metadata")
def test_an_append_that_was_made_before_the_metadata_changed_is_refused() -> None:
    """It is the one thing that a plain append is compared with, and the head knows of it."""
    head = Head(version=3, slot=0, timestamp_ms=1_000, metadata_version=2)
    changed = Winner(2, "SET TBLPROPERTIES", metadata=CHANGED)
    winners = {1: Winner(1), 2: changed, 3: Winner(3)}
    old = append_intent(head, validated_through=1)
    queue = [Queued(1, old.transaction_id, Member(old, old.actions.encode()))]
    assert min(windows_of(head, queue)) <= 1
    assert rules(decided(head, [old], winners)) == ["metadata-changed"]
    assert rules(decided(head, [append_intent(head, validated_through=2)])) == [""]


@pytest.mark.notices("window-reaches-back")
def test_all_versions_that_it_was_not_validated_against_are_looked_at() -> None:
    """The one that stops it is the first of them."""
    head = Head(version=3, slot=0, timestamp_ms=1_000, metadata_version=0)
    old = rewrite_intent(Head(version=0), "old.parquet", "new.parquet")
    queue = [Queued(1, old.transaction_id, Member(old, old.actions.encode()))]
    assert min(windows_of(head, queue)) == 0
    stopping = Winner(1, removed={"old.parquet": remove("old.parquet")})
    assert rules(decided(head, [old], {1: stopping, 2: Winner(2), 3: Winner(3)})) == ["removed-what-i-read"]
    assert rules(decided(head, [old], {1: Winner(1), 2: Winner(2), 3: Winner(3)})) == [""]


@pytest.mark.notices("head-knows-the-metadata")
def test_the_head_tells_which_version_changed_the_metadata() -> None:
    changing = decided(BASE, [metadata_intent(BASE)])
    assert changing.head.metadata_version == changing.head.version == 1
    assert decided(changing.head, [append_intent(changing.head)]).head.metadata_version == 1


def test_an_append_behind_a_change_of_metadata_in_the_same_batch_is_refused() -> None:
    assert rules(decided(BASE, [metadata_intent(BASE), append_intent(BASE)])) == ["", "metadata-changed"]


@pytest.mark.notices("only-blind-appends-share-a-version", "special-commits-stand-alone")
@pytest.mark.parametrize(
    "special",
    [
        {"actions": encode_all([CHANGED]).decode()},
        {"actions": encode_all([Protocol(3, 7)]).decode()},
        {"actions": encode_all([DomainMetadata("d", "{}", removed=False)]).decode()},
        {"reads": DeclaredReads()},
        {"reads": DeclaredReads(nothing=True, policy="maxcompute-table")},
        {"expected_version": 1},
        {"staged": "_sluice/staged/x.json"},
        {"detach": True},
    ],
    ids=["metadata", "protocol", "domain", "not blind", "a matrix", "one version only", "staged", "gives the table back"],
)
def test_what_is_more_than_an_append_has_a_version_of_its_own(special: dict[str, Any]) -> None:
    plain, other = append_intent(BASE), append_intent(BASE, **special)
    assert groupable(plain, Member(plain, plain.actions.encode()).footprint)
    assert not groupable(other, Member(other, other.actions.encode()).footprint)


def test_an_intent_hides_nothing_that_its_actions_do() -> None:
    """Each says that it read nothing, and removes the same file."""
    both = [intent_of(BASE, [remove("x.parquet")], DeclaredReads(nothing=True)) for _ in range(2)]
    assert rules(decided(BASE, both)) == ["", "removed-what-i-remove"]


@pytest.mark.notices("numbered-appends-are-compared")
def test_of_two_numbers_of_one_application_in_a_batch_the_later_is_refused() -> None:
    """Both depend on what the application had written: so a version never names two numbers of one application."""
    decision = decided(BASE, [app_intent(BASE, 1), app_intent(BASE, 2), append_intent(BASE), app_intent(BASE, 1)])
    assert [plan.slots for plan in decision.versions] == [(1, 3)]
    _, other, _, again = decision.verdicts
    assert other.refusal is not None
    assert other.refusal.rule == "application-advanced"
    assert (again.repeats, again.version, again.ordinal) == (True, decision.versions[0].version, 0)


@pytest.mark.notices("row-ids-go-on")
def test_row_ids_are_not_given_twice_in_one_batch() -> None:
    head = Head(version=0, slot=0, timestamp_ms=1_000, metadata_version=0, row_ids=-1)
    decision = decided(head, [append_intent(head), append_intent(head), rewrite_intent(head, "old.parquet", "new.parquet")])
    assert decision.head.row_ids == 2
    assert [plan.first_row_id for plan in decision.versions] == [0, 2]


class Troubled(dict[int, Winner]):
    """Versions of which there is only trouble."""

    def __init__(self, trouble: Exception) -> None:
        super().__init__()
        self._trouble = trouble

    def get(self, key: int, default: object = None) -> Any:
        raise self._trouble


HEAD = Head(version=2, slot=0, timestamp_ms=1_000, metadata_version=0)
OLD = rewrite_intent(Head(version=1), "old.parquet", "new.parquet")


@pytest.mark.notices("no-rights-are-no-verdict")
@pytest.mark.parametrize("trouble", [AccessDenied("it may not be read"), NoSuchBucket("it is not there"), StorageUnavailable("it is away")])
def test_who_cannot_read_what_it_takes_decides_nothing(trouble: Exception) -> None:
    """It says something of this client, or of now: others may see more, and the transaction is not refused for it."""
    with pytest.raises(type(trouble)):
        decided(HEAD, [OLD], Troubled(trouble))


@pytest.mark.notices("unjudgeable-is-refused")
@pytest.mark.parametrize(
    "trouble",
    [
        CorruptLogFile("?"),
        InvalidRequest("?"),
        ValueError("?"),
        TypeError("?"),
        LookupError("?"),
        AttributeError("?"),
        ZeroDivisionError("?"),
        RecursionError("?"),
        ArrowNotImplementedError("Function 'less' has no kernel matching input types"),
    ],
    ids=lambda each: type(each).__name__,
)
def test_what_cannot_be_judged_is_refused_and_stops_nobody(trouble: Exception) -> None:
    """Whatever an intent or a winner holds, the queue goes on."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sluice.coordinator.commit.decision._log.exception", lambda *_: None)
        decision = decided(HEAD, [OLD, append_intent(HEAD)], Troubled(trouble))
    assert rules(decision) == ["malformed", ""]


def test_an_append_behind_a_change_of_metadata_in_its_own_batch_knows_what_came_before_that() -> None:
    """It was filed before version 4: alone it needs nothing of that, behind the change it does."""
    head = Head(version=4, slot=0, timestamp_ms=1_000, metadata_version=0)
    change, old = metadata_intent(head), append_intent(head, validated_through=3)
    queue = [Queued(n, each.transaction_id, Member(each, each.actions.encode())) for n, each in enumerate((change, old), 1)]
    assert min(windows_of(head, queue[1:])) == 4
    assert min(windows_of(head, queue)) == 3
    assert rules(decided(head, [change, old], {4: Winner(4)})) == ["", "metadata-changed"]
