"""What clients do about records and renderings of a newer release than theirs: nothing, and they say so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import orjson
import pytest

from sluice.coordinator.commit.transactions import outcome_of, settle_queue
from sluice.coordinator.errors import NotCommitted, OutcomeUnknown, ProtocolMismatch, UnknownFormat
from sluice.coordinator.formats import BATCH_FORMAT, HEAD_FORMAT, INTENT_FORMAT, PUBLISHED_FORMAT, RENDERING, MalformedRecord, Release
from sluice.coordinator.nodes.layout import SlotName
from sluice.coordinator.nodes.records import Head, Published
from sluice.coordinator.rules.intent import Intent
from sluice.coordinator.service.clock import Deadline
from sluice.coordinator.service.store import ANY_VERSION
from sluice.storage.errors import Unavailable
from tests.coordinator.world import DIRECT, QUICK, Client, World, append_intent, decide, prune, rewrite_intent, soon

NEWER = Release("sluice/0.2.0", rendering=RENDERING + 1)
NAMED = Release("sluice/0.2.0")
SHORT = replace(QUICK, publication_wait_s=0.1)


@pytest.fixture
def world(world: World) -> World:
    world.client().append("0.parquet")
    return world


def ratified_only(client: Client) -> Intent:
    """Ratify an append and do no more, as one who dies then."""
    intent = append_intent(client.head())
    client.claim(intent)
    assert decide(client.coordinated)
    return intent


def changed(world: World, path: str, change: Callable[[dict[str, Any]], None]) -> None:
    """Change a record in its node."""
    session = world.coordination.connect()
    node = session.read(path)
    assert node is not None
    record = orjson.loads(node.data)
    change(record)
    session.write(path, orjson.dumps(record), version=ANY_VERSION)


def nodes(world: World) -> list[tuple[str, bytes]]:
    return [(node.path, node.data) for node in world.coordination.tree.walk() if node.path.startswith(world.tree.root)]


@pytest.mark.notices("engine-is-recorded")
@pytest.mark.parametrize("mine", [Release(), NAMED])
def test_whoever_publishes_signs_with_the_name_of_who_ratified(world: World, mine: Release) -> None:
    theirs = NAMED if mine == Release() else Release()
    ratified_only(world.client(release=theirs))
    world.client(release=mine).append()
    names = [commit[0]["commitInfo"]["engineInfo"] for commit in world.log()]  # type: ignore[index]
    assert names == [Release().engine, theirs.engine, mine.engine]


@pytest.mark.notices("unknown-renderings-wait")
def test_a_rendering_that_is_not_known_is_waited_for(world: World) -> None:
    ratified_only(world.client(release=NEWER))
    before = nodes(world), len(world.log())
    old = world.client(SHORT)
    for attempt in (old.coordinated.publisher.publish_pending, lambda: old.coordinated.log.content(1)):
        with pytest.raises(UnknownFormat, match=r"rendering of version 1 by sluice/0\.2\.0 is 3, this release of sluice knows up to 2"):
            attempt()
    prune(old.context)
    assert (nodes(world), len(world.log())) == before
    assert (
        outcome_of(old.coordinated, ratified_only(world.client(release=NEWER)).transaction_id, soon()).state == "committed"
    )  # the record tells
    world.client(release=NEWER).append()
    assert old.coordinated.log.content(1)
    assert old.append().published


def test_an_intent_behind_what_is_not_known_is_filed_and_says_why_it_waits(world: World) -> None:
    ratified_only(world.client(release=NEWER))
    old = world.client(SHORT)
    intent = rewrite_intent(old.head(), "0.parquet", "1.parquet", validated_through=0)
    with pytest.raises(OutcomeUnknown, match="rendering of version 1") as waits:
        old.commit(intent, timeout_s=0.5)
    assert isinstance(waits.value.__cause__, ProtocolMismatch)
    world.client(release=NEWER).append()
    assert old.outcome(intent.transaction_id).state == "committed"


def test_the_outcome_of_others_is_no_unknown_outcome_of_who_waits_for_the_queue(world: World) -> None:
    ratified_only(world.client(release=NEWER))
    old = world.client(SHORT)
    intent = rewrite_intent(old.head(), "0.parquet", "1.parquet", validated_through=0)
    old.claim(intent)
    with pytest.raises(Unavailable, match=f"transaction {intent.transaction_id} is first in it"):
        settle_queue(old.coordinated, Deadline.after(0.5, old.context.clock))


@pytest.mark.notices("unknown-formats-wait", "unknown-formats-stop-nobody-before-them")
def test_an_intent_of_a_newer_format_stops_older_clients_where_the_head_admits_it(world: World) -> None:
    client = world.client(SHORT)
    first = append_intent(client.head())
    claims = [client.claim(each) for each in (first, append_intent(client.head()))]
    newer = world.tree.slot(0, SlotName(claims[1].slot, claims[1].transaction_id))
    changed(world, newer, lambda intent: intent.update(format=INTENT_FORMAT + 1))
    changed(world, world.tree.head, lambda head: head.update(intents=INTENT_FORMAT + 1))
    assert client.outcome(first.transaction_id, 1).state == "committed"  # what stands before it is decided
    with pytest.raises(UnknownFormat, match=r"intent\.format is 2"):
        client.outcome(claims[1].transaction_id, 0.3)
    assert world.coordination.tree.node(newer, world.coordination.tree.zxid) is not None
    changed(world, newer, lambda intent: intent.update(format=INTENT_FORMAT))
    assert client.outcome(claims[1].transaction_id).state == "committed"


@pytest.mark.notices("formats-are-admitted")
def test_an_intent_of_a_format_that_nobody_files_is_refused(world: World) -> None:
    """Otherwise any client that may create slots could stop a table."""
    client = world.client()
    intent = append_intent(client.head())
    claim = client.claim(intent)
    changed(world, claim.path(world.tree), lambda record: record.update(format=999))
    assert isinstance(client.outcome(intent.transaction_id).error, NotCommitted)
    client.append()


@pytest.mark.notices("formats-are-admitted-first")
def test_who_files_a_newer_format_says_so_in_the_head_first(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    client = world.client()
    monkeypatch.setattr("sluice.coordinator.commit.queue.INTENT_FORMAT", 2)
    client.append()
    assert client.head().intents == 2
    monkeypatch.undo()
    client.append()  # it stays so
    assert client.head().intents == 2


def test_a_refusal_that_only_newer_releases_understand_is_kept(world: World) -> None:
    limits = replace(QUICK, verdicts_kept=3, backlog_versions_max=2)
    client = world.client(limits)
    intent = append_intent(client.head())
    client.claim(intent)
    outcome_of(client.coordinated, intent.transaction_id, soon(), withdrawing=True)
    [refusal] = [path for path, _ in nodes(world) if path.startswith(f"{world.tree.refused}/") and "/t-" in path]
    changed(world, refusal, lambda record: record.update(format=BATCH_FORMAT + 1))
    for _ in range(6):
        client.append()
    prune(client.context)
    assert refusal in dict(nodes(world))
    with pytest.raises(UnknownFormat, match=rf"verdict\.format is {BATCH_FORMAT + 1}"):  # "unknown" would be a lie
        client.outcome(intent.transaction_id)
    changed(world, refusal, lambda record: record.update(format=1))
    assert client.outcome(intent.transaction_id).state == "refused"


@pytest.mark.notices("unknown-formats-wait")
@pytest.mark.parametrize("name", ["head", "published"])
def test_a_head_that_is_not_known(world: World, name: str) -> None:
    path = world.tree.head if name == "head" else world.tree.published
    number = HEAD_FORMAT if name == "head" else PUBLISHED_FORMAT
    changed(world, path, lambda record: record.update(format=number + 1))
    before = nodes(world)
    told = rf"{name}\.format is {number + 1}, this release of sluice knows up to {number}"
    for limits in (QUICK, DIRECT):
        with pytest.raises((ProtocolMismatch, OutcomeUnknown), match=told):
            Client(world, limits).commit(append_intent(Head(version=0)), timeout_s=0.3)
    assert [path for path, _ in nodes(world) if "/slots/" not in path] == [path for path, _ in before if "/slots/" not in path]
    changed(world, path, lambda record: record.update(format=number))


@pytest.mark.parametrize(("kind", "record"), [(Head, Head()), (Published, Published()), (Intent, append_intent(Head()))])
def test_a_record_of_a_known_format_has_known_fields_only(kind: Any, record: Any) -> None:
    fields = orjson.loads(record.encode())
    assert kind.decode(orjson.dumps(fields)) == record
    for wrong in (
        {**fields, "more": 1},
        {**fields, "format": 0},
        {**fields, "format": "1"},
        {k: v for k, v in fields.items() if k != "format"},
    ):
        with pytest.raises(MalformedRecord):
            kind.decode(orjson.dumps(wrong))
