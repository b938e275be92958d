"""The bytes of each kind of node: what a release wrote is read by those after it, and by those before.

A client of another node protocol says so and does nothing, also when the tree changes under it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from operator import methodcaller
from pathlib import Path
from typing import Any

import orjson
import pytest

from sluice.coordinator.commit.transactions import settle_queue
from sluice.coordinator.contention import Batch, Contention
from sluice.coordinator.errors import ProtocolMismatch
from sluice.coordinator.formats import NODE_PROTOCOL, MalformedRecord, NodeData, Record
from sluice.coordinator.leases.consumers import ConsumerRecord
from sluice.coordinator.leases.pins import PinNode
from sluice.coordinator.nodes.context import require_head
from sluice.coordinator.nodes.creation import check_tree
from sluice.coordinator.nodes.plans import OpenPlan
from sluice.coordinator.nodes.presence import ClientNode, Grave
from sluice.coordinator.nodes.records import (
    SHARED,
    BatchRecord,
    Broken,
    CatalogRecord,
    DroppedRecord,
    Grants,
    Head,
    LeaseNode,
    NameRecord,
    NamespaceRecord,
    Published,
    Rebased,
    Rendering,
    Tombstone,
    Verdict,
    VersionPlan,
    WaitNode,
)
from sluice.coordinator.nodes.removal import DeleterNode
from sluice.coordinator.rules.intent import ClientName, DeclaredReads, Intent, Joint
from sluice.coordinator.rules.refusal import Refusal
from sluice.coordinator.service.clock import Deadline
from sluice.coordinator.service.store import ANY_VERSION
from tests.coordinator.world import DIRECT, QUICK, Client, World, append_intent, claim_slot

ME = ClientName("here", 7, "app")
JOINT = Joint(("memory://x", "memory://y"))
READS = DeclaredReads(predicates=("a = 1",), partition_types={"a": "integer"}, read_files=None, read_rows={"f": "0"}, scope="*")
UNLINKED = VersionPlan(8, 101, (5, 6), "d", (Rebased(6, ("a column",), actions="{}\n"),), 100, {"memory://x": 8, "memory://y": 2})
PLAN = replace(UNLINKED, previous="p", files="f")
FIELDS: list[Any] = ["t", "WRITE", 7, 8, 5, "Serializable", READS, "{}\n", "s", "d", {"mode": "Append"}, {"n": "1"}, ME, 9, "id"]
FIELDS += [True, True, ("a",), {"x": [1, None]}, {"y": {}}, 3, ("/l",), JOINT, "hello"]
FULL_INTENT = Intent(*FIELDS)
VERDICTS = (
    Verdict(5, "t", 8, 0),
    Verdict(6, "u", refusal=Refusal("r", "Refused", "no", 7, "WRITE", {"winner": {"pid": 1}})),
    Verdict(7, "t", 8, 0, repeats=True),
)
CONTENTION = Contention(
    *(5, "app", "here", 7, "refused", "s3://b/x", "t", "DELETE", "other", "there", "WRITE", 8, "r", "files f", 1.5, 2, "repeat it")
)
RECORDS: list[NodeData] = [
    Head(7, 1, 20, 5, 3, "id", True, 40, 1, "d", "f"),
    Head(),
    Published(7, 1, 20, "v-1", {"t": (20, 7, 0, 5)}),
    BatchRecord("b", 1, Rendering(5, "sluice/0.1"), VERDICTS, (PLAN,), "{}"),
    BatchRecord("b", 0, Rendering(5, "sluice/0.1"), (), (VersionPlan(1, 2, (0,)),)),
    FULL_INTENT,
    Intent("t", "WRITE", 0, 0, 1),
    CatalogRecord("s3://b/x"),
    NamespaceRecord("Sales", "s3://b/x/sales", "all", {"a": "b"}, 5),
    NameRecord("Orders", "s3://b/x", "id", True, 5),
    DroppedRecord("sales", "Orders", "s3://b/x", "id", True, 5, "me@here", True),
    ConsumerRecord("c", 7, 2, 1, ("s3://b/o",), 5, ME),
    LeaseNode(SHARED, "a = 1", {"a": "integer"}, "n", ME, 5, ("/held",)),
    Grants(("l-1",), (Broken("l-0", "n", "holder", "me", 5, "slow"),)),
    WaitNode("g", ("/p",), ("/h",), ("/w",)),
    PinNode(7, "here", 7, "app", 5, True),
    OpenPlan("s3://b/x", 5, "here", 7, "app"),
    Tombstone(7, 5, True),
    DeleterNode("id", "here", 7, 5),
    ClientNode("here", 7, "app", 5, "0.1", 3),
    Grave("me", 5),
    Batch((CONTENTION,), 3, 6),
    Batch(),
]
WRITTEN = Path(__file__).with_name("written_records.jsonl").read_bytes().splitlines()
"""The same records, as a build before this codec wrote them, with the fields that came since."""
BEFORE_CHAINS: list[tuple[Record, bytes]] = list(
    zip(
        (
            Head(7, 1, 20, 5, 3, "id", True, 40, 1),
            Head(),
            BatchRecord("b", 1, Rendering(5, "sluice/0.1"), VERDICTS, (UNLINKED,), "{}", format=1),
            BatchRecord("b", 0, Rendering(5, "sluice/0.1"), (), (VersionPlan(1, 2, (0,)),), format=1),
        ),
        Path(__file__).with_name("written_before_chains.jsonl").read_bytes().splitlines(),
        strict=True,
    )
)
"""Records of format 1, as builds without chains wrote them, and what is read in them."""
STRICT = [record for record in RECORDS if isinstance(record, Record)]
LENIENT = [record for record in RECORDS if not isinstance(record, Record)]


def kind(record: NodeData) -> str:
    return record.KIND


def changed(record: NodeData, change: Callable[[dict[str, Any]], object]) -> bytes:
    fields = orjson.loads(record.encode())
    change(fields)
    return orjson.dumps(fields)


@pytest.mark.parametrize(
    ("record", "data"), list(zip(RECORDS, WRITTEN, strict=True)), ids=lambda each: each.KIND if isinstance(each, NodeData) else ""
)
def test_a_record_has_the_bytes_it_always_had(record: NodeData, data: bytes) -> None:
    assert type(record).decode(data) == record
    assert record.encode() == data


@pytest.mark.parametrize("record", STRICT, ids=kind)
def test_what_is_decided_on_has_exactly_its_fields(record: Record) -> None:
    for name in orjson.loads(record.encode()):
        with pytest.raises(MalformedRecord, match=rf"^{record.KIND}.*\b{name}\b"):
            type(record).decode(changed(record, methodcaller("pop", name)))
    with pytest.raises(
        MalformedRecord, match=rf"^{record.KIND} has the unknown field {record.KIND}\.more: it is of a newer version of sluice"
    ):
        type(record).decode(changed(record, lambda fields: fields.update(more=1)))


@pytest.mark.notices("older-formats-are-read")
@pytest.mark.parametrize(("record", "data"), BEFORE_CHAINS, ids=lambda each: each.KIND if isinstance(each, Record) else "")
def test_records_of_a_release_without_chains_are_read(record: Record, data: bytes) -> None:
    assert type(record).decode(data) == record
    fields = orjson.loads(data)
    inner = fields if isinstance(record, Head) else fields["versions"][0]
    for name in inner.keys() - {"format"}:
        kept = inner.pop(name)
        with pytest.raises(MalformedRecord, match=rf"lacks {record.KIND}\b.*\b{name}\b|{record.KIND}\b.*missing required field {name}"):
            type(record).decode(orjson.dumps(fields))
        inner[name] = kept
    with pytest.raises(MalformedRecord, match=rf"has the unknown field {record.KIND}.*\.files"):
        type(record).decode(orjson.dumps(fields | {"files": ""} if inner is fields else {**fields, "versions": [{**inner, "files": ""}]}))


@pytest.mark.parametrize("record", LENIENT, ids=kind)
def test_what_only_informs_may_have_fields_of_a_newer_release(record: NodeData) -> None:
    assert type(record).decode(changed(record, lambda fields: fields.update(more=1))) == record


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda fields: fields["client"].pop("pid"), r"intent lacks intent\.client\.pid"),
        (lambda fields: fields["reads"].update(more=1), r"intent has the unknown field intent\.reads\.more"),
        (lambda fields: fields["joint"].update(more=1), r"intent has the unknown field intent\.joint\.more"),
        (lambda fields: fields["client"].update(pid="7"), r"intent\.client\.pid: Expected int, got str"),
        (lambda fields: fields.update(claimed_ms=True), r"intent\.claimed_ms: Expected int, got bool"),
        (lambda fields: fields.update(claimed_ms=1.0), r"intent\.claimed_ms: Expected int, got float"),
        (lambda fields: fields.update(claimed_ms=None), r"intent\.claimed_ms: Expected int, got null"),
        (lambda fields: fields.update(detach=1), r"intent\.detach: Expected bool, got int"),
        (lambda fields: fields.update(leases=["a", 1]), r"intent\.leases\[1\]: Expected str, got int"),
        (lambda fields: fields.update(parameters={"a": 1}), r"intent\.parameters\[\.\.\.\]: Expected str, got int"),
        (lambda fields: fields.update(isolation="none"), r"intent\.isolation: .*Serializable\|WriteSerializable\|SnapshotIsolation"),
        (lambda fields: fields.update(isolation="Serializable\n"), r"intent\.isolation: .*Serializable"),
        (lambda fields: fields["reads"].update(kind=""), r"intent\.reads\.kind: .*append\|overwrite"),
    ],
)
def test_a_malformed_record_is_told_by_its_field(change: Callable[[dict[str, Any]], object], problem: str) -> None:
    with pytest.raises(MalformedRecord, match=f"^{problem}"):
        Intent.decode(changed(FULL_INTENT, change))


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"null", b"\xff", b'"\\ud800"', b'{"a":' * 2000])
@pytest.mark.parametrize("record", STRICT, ids=kind)
def test_data_that_are_no_record_are_malformed(record: Record, data: bytes) -> None:
    with pytest.raises(MalformedRecord, match=f"^a {record.KIND} record"):
        type(record).decode(data)


def test_what_is_nested_too_deeply_to_be_written_is_malformed() -> None:
    deep = b'{"a":' * 500 + b"1" + b"}" * 500
    data = Intent("t", "WRITE", 0, 0, 1, metadata_change={}).encode().replace(b'"metadata_change":{}', b'"metadata_change":' + deep)
    with pytest.raises(MalformedRecord, match="nested too deeply"):
        Intent.decode(data)


def test_the_order_and_the_spelling_of_the_json_do_not_matter() -> None:
    fields = orjson.loads(FULL_INTENT.encode())
    assert Intent.decode(orjson.dumps(dict(reversed(fields.items())), option=orjson.OPT_INDENT_2)) == FULL_INTENT


def test_a_node_without_data_has_the_defaults() -> None:
    assert Grants.readable(b"") == Grants()
    assert WaitNode.readable(b"") is None


def raise_protocol(world: World, number: object) -> None:
    """What an upgrade of the tree does."""
    session = world.coordination.connect()
    root = session.read(world.tree.root)
    assert root is not None
    session.write(world.tree.root, orjson.dumps({**orjson.loads(root.data), "protocol": number}), version=ANY_VERSION)


def settle_a_slot(client: Client) -> None:
    claim_slot(client.context, append_intent(client.head()), client.head(), Deadline.after(5, client.context.clock))
    settle_queue(client.coordinated, Deadline.after(30, client.context.clock))


VERBS: dict[str, Callable[[Client], object]] = {
    "a commit on the fast path": lambda client: client.append(),
    "a commit in the queue": lambda client: client.append(),
    "a claim": settle_a_slot,
}


@pytest.mark.notices("multis-are-of-one-protocol")
@pytest.mark.parametrize("number", [NODE_PROTOCOL - 1, NODE_PROTOCOL + 1, "x", None])
@pytest.mark.parametrize("verb", VERBS)
def test_a_tree_that_is_raised_under_an_open_table_is_left_alone(world: World, verb: str, number: object) -> None:
    client = world.client(DIRECT if "fast" in verb else QUICK)
    client.append("before.parquet")
    head = client.head()
    raise_protocol(world, number)
    before = [node for node in world.coordination.tree.walk() if node.path.startswith(world.tree.root)]
    with pytest.raises(ProtocolMismatch, match=rf"node protocol {number!r}, but this sluice uses {NODE_PROTOCOL}"):
        VERBS[verb](client)
    assert [node for node in world.coordination.tree.walk() if node.path.startswith(world.tree.root)] == before
    assert client.world.files() == {"before.parquet"}
    assert head.version == 0


@pytest.mark.parametrize("number", [NODE_PROTOCOL - 1, NODE_PROTOCOL + 1])
def test_a_client_that_comes_later_does_nothing_either(world: World, number: int) -> None:
    raise_protocol(world, number)
    for attempt in (
        lambda: require_head(world.client().context),
        lambda: check_tree(world.client().context),
        lambda: world.client().append(),
    ):
        with pytest.raises(ProtocolMismatch, match="use the version of sluice that the other writers use"):
            attempt()


def test_what_was_filed_before_is_decided_by_those_who_understand_it(world: World) -> None:
    client = world.client()
    client.append("before.parquet")
    intent = append_intent(client.head(), "filed.parquet")
    claim_slot(client.context, intent, client.head(), Deadline.after(5, client.context.clock))
    raise_protocol(world, NODE_PROTOCOL + 1)
    with pytest.raises(ProtocolMismatch):
        client.append()
    raise_protocol(world, NODE_PROTOCOL)
    assert world.client().append("after.parquet").ordinal == 1  # behind what was filed, in one version with it
    assert world.files() == {"before.parquet", "filed.parquet", "after.parquet"}
