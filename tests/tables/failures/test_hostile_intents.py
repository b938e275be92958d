"""Slots that hold anything at all: each gets a verdict, the queue goes on, and no client fails."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest

from sluice import Table
from sluice.coordinator.api import outcome_of
from sluice.coordinator.commit.outcomes import Outcome
from sluice.coordinator.errors import NotCommitted
from sluice.coordinator.limits import Limits
from sluice.coordinator.nodes.layout import SlotName, TableTree, VerdictName
from sluice.coordinator.nodes.records import Head
from sluice.coordinator.rules.intent import DeclaredReads, Intent
from sluice.coordinator.service.clock import Deadline, SystemClock
from sluice.coordinator.service.connect import close_all, connect
from sluice.storage.actions import Action, CommitInfo, DeletionVector, Metadata, Protocol, Txn, encode_all
from sluice.storage.actions.texts import sha256
from sluice.storage.data.vectors import Rows, plan_vector
from tests.coordinator.world import add, append_intent, intent_of, remove
from tests.tables.conftest import present

pytestmark = pytest.mark.slow

SCHEMA = pa.schema([("p", pa.string()), ("i", pa.int64())])
ROWS = pa.table({"p": ["a", "b"], "i": [1, 2]})
QUICK = Limits(fast_path=False, patience_s=0.02, patience_s_max=0.2)
BLIND = DeclaredReads(nothing=True)
EMPTY = '{"type":"struct","fields":[]}'
VECTOR, _ = plan_vector(Rows([1, 5]), owner="x")

Services = tuple[str, str]
"""A coordinator and a location."""


on_zookeeper_too = pytest.mark.parametrize("services", ["memory", pytest.param("zookeeper", marks=pytest.mark.zookeeper)], indirect=True)
"""For what depends on the service: the names and the sizes of its nodes."""


@pytest.fixture
def services(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Services]:
    name = uuid.uuid4().hex
    real = getattr(request, "param", "memory") == "zookeeper"
    coordinator = request.getfixturevalue("zookeeper_address") if real else f"memory://{name}"
    yield coordinator, str(tmp_path / "t")
    close_all()


class Victim:
    """A table that somebody else may write into the queue of."""

    def __init__(self, services: Services, **created: Any) -> None:
        self.coordinator, self.location = services
        self.table = Table.create(self.location, SCHEMA, partition_by=["p"], coordinator=self.coordinator, **created)
        self.table.append(ROWS)
        self.tree = TableTree(self.table.location)
        self.session = connect(self.coordinator)

    @property
    def head(self) -> Head:
        node = present(self.session.read(self.tree.head))
        return Head.decode(node.data)

    def write(self, data: bytes | Intent, transaction_id: str | None = None) -> str:
        """Put something into a slot, as a session of one's own can."""
        if isinstance(data, Intent):
            transaction_id, data = transaction_id or data.transaction_id, data.encode()
        guid = transaction_id or str(uuid.uuid4())
        self.session.create(self.tree.slot_prefix(self.head.generation, guid), data, sequential=True)
        return guid

    def open(self) -> Table:
        return Table.open(self.location, coordinator=self.coordinator, limits=QUICK, timeout_s=20)

    def outcome(self, guid: str) -> Outcome:
        return outcome_of(self.open().coordinated, guid, Deadline.after(20, SystemClock()))

    def refuses(self, guid: str, match: str = ".") -> None:
        """The verdict is a refusal, for every client that asks; the queue goes on before and behind it, and the table reads."""
        with pytest.raises(NotCommitted, match=match):
            raise self.outcome(guid).error or AssertionError("it was committed")
        self.goes_on()

    def goes_on(self) -> None:
        table = self.open()
        before = table.snapshot().to_arrow().num_rows
        assert table.append(ROWS) is not None
        table.delete("i = 3")
        table.delete("p = 'none'")
        assert self.open().snapshot().to_arrow().num_rows == before + 2
        assert len(self.open().history()) >= 3
        assert Table.open(self.location, consistency="published").snapshot().to_arrow().num_rows == before + 2


def sealed(intent: Intent, actions: bytes) -> Intent:
    return replace(intent, actions=actions.decode(), actions_digest=sha256(actions))


def lying(actions: list[Action], reads: DeclaredReads = BLIND, **changes: Any) -> Callable[[Head], Intent]:
    return lambda head: intent_of(head, actions, reads, changes)


def json_of(head: Head, **changes: Any) -> bytes:
    fields = {**orjson.loads(append_intent(head).encode()), **changes}
    return orjson.dumps({name: value for name, value in fields.items() if value is not ...})


NOT_RECORDS: dict[str, Callable[[Head], bytes]] = {
    "nothing": lambda _: b"",
    "no JSON": lambda _: b"\xff\x00{",
    "no object": lambda _: b"[1,2]",
    "null": lambda _: b"null",
    "a million brackets": lambda _: b"[" * 500_000,
    "cut off": lambda head: append_intent(head).encode()[:-40],
    "half a megabyte of text": lambda head: json_of(head, operation="x" * 600_000),
    "no id": lambda head: json_of(head, transaction_id=...),
    "a field of a newer version": lambda head: json_of(head, quantum=True),
    "reads of a newer version": lambda head: json_of(head, reads={**asdict(BLIND), "quantum": 1}),
    "NaN": lambda head: append_intent(head).encode().replace(b'"claimed_ms":', b'"claimed_ms":NaN,"x":'),
    "a number beyond 64 bits": lambda head: append_intent(head).encode().replace(b'"claimed_ms":', b'"claimed_ms":9999999999999999999999'),
    "a truth value for a number": lambda head: json_of(head, claimed_ms=True),
    "a fraction": lambda head: json_of(head, validated_through=0.5),
    "text for a number": lambda head: json_of(head, read_version="1"),
    "text for a process": lambda head: json_of(head, client={"pid": "x"}),
    "infinity for a process": lambda head: json_of(head, client={"pid": 7}).replace(b'"pid":7', b'"pid":1e400'),
    "a list for actions": lambda head: json_of(head, actions=["x"]),
    "a very long wrong value": lambda head: json_of(head, actions=["x" * 400_000]),
    "an unknown level": lambda head: json_of(head, isolation="Chaos"),
    "an unknown policy": lambda head: json_of(head, reads={"policy": "none"}),
    "numbers for predicates": lambda head: json_of(head, reads={"predicates": [1]}),
    "another digest": lambda head: json_of(head, actions_digest="0" * 64),
    "staged nowhere": lambda head: json_of(head, actions="", staged=f"_delta_log/_staged_commits/{uuid.uuid4()}.json"),
    "staged outside": lambda head: json_of(head, actions="", staged="../../etc/passwd"),
    "staged in the log": lambda head: json_of(head, actions="", staged="_delta_log/00000000000000000000.json"),
    "staged with a way up": lambda head: json_of(head, actions="", staged="_delta_log/_staged_commits/../x.json"),
    "leases that are none": lambda head: json_of(head, leases=["/../x", "", "no/path"]),
    "joint that is none": lambda head: json_of(head, joint={"tables": 7}),
    "a description that is too deep": lambda head: json_of(head, metadata_change={}).replace(
        b'"metadata_change":{}', b'"metadata_change":' + b'{"a":' * 300 + b"1" + b"}" * 300
    ),
    "a description of another shape": lambda head: json_of(head, metadata_change={"configuration": 7}),
    "features of another shape": lambda head: json_of(head, protocol_change={"removed": [[1], {}]}),
}

NUMBERS: dict[str, dict[str, Any]] = {
    "beyond the head": {"validated_through": 10**6},
    "far below the table": {"validated_through": -(10**18)},
    "read far below the table": {"read_version": -5},
    "a time before time": {"claimed_ms": -1},
    "a time after time": {"claimed_ms": 2**62},
    "row ids of no new table": {"row_ids": 5},
    "row ids beyond counting": {"row_ids": 2**63 - 1, "table_id": "x"},
    "another version than the next": {"expected_version": -7},
    "a version far beyond the next": {"expected_version": 70},
    "a table given back": {"detach": True},
}

LIES: dict[str, Callable[[Head], Intent]] = {
    "an application twice": lying([Txn("app", 7), Txn("app", 8)]),
    "an append that removes": lying([remove("x")], DeclaredReads(kind="append")),
    "a compaction that changes data": lying([add("y.parquet")], DeclaredReads(kind="minor-compaction")),
    "a second commitInfo": lying([CommitInfo({"inCommitTimestamp": 1})]),
    "a file twice": lying([add("y.parquet"), add("y.parquet")]),
    "a file above the table": lying([add("../other/y.parquet")]),
    "a file above the table, encoded": lying([add("a/%2e%2e/%2E%2E/y.parquet")]),
    "a file of the machine": lying([add("file:///etc/passwd")]),
    "an absolute path": lying([add("/etc/passwd")]),
    "a file of another bucket": lying([add("s3://other/secret.parquet")]),
    "a file of the log": lying([add("_delta_log/00000000000000000001.json")]),
    "a path with a line break": lying([add("a%0Ab.parquet")]),
    "a path of invalid text": lying([add("%ff.parquet")]),
    "a path that is too long": lying([add("x" * 5000)]),
    "a file of negative size": lying([add("y.parquet", size=-1)]),
    "a negative number of rows": lying([add("y.parquet", stats='{"numRecords":-5}')]),
    "a text for a number of rows": lying([add("y.parquet", stats='{"numRecords":"5"}')]),
    "statistics that are none": lying([add("y.parquet", stats="[1]")]),
    "statistics cut off": lying([add("y.parquet", stats='{"numRecords":1')]),
    "a vector beyond its file": lying([add("y.parquet", deletion_vector=VECTOR)]),
    "a vector that lists a row beyond its file": lying([add("y.parquet", stats='{"numRecords":4}', deletion_vector=VECTOR)]),
    "a vector of another size": lying([add("y.parquet", stats=None, deletion_vector=replace(VECTOR, size_in_bytes=3))]),
    "a vector of garbage": lying([add("y.parquet", stats=None, deletion_vector=DeletionVector("i", "0000000000", 8, 1))]),
    "a vector of no kind": lying([add("y.parquet", stats=None, deletion_vector=DeletionVector("z", "x", 8, 1))]),
    "a vector elsewhere": lying([add("y.parquet", stats=None, deletion_vector=DeletionVector("u", "../../x", 8, 1))]),
    "a schema that is none": lying([Metadata("id", "nonsense", (), {})], DeclaredReads()),
    "a partition column that is none": lying([Metadata("id", EMPTY, ("q",), {})], DeclaredReads()),
    "a protocol of the future": lying([Protocol(9, 9)], DeclaredReads()),
    "a protocol without sluice": lying([Protocol(1, 2)], DeclaredReads()),
    "metadata twice": lying([Metadata(n, EMPTY, (), {}) for n in "ab"], DeclaredReads()),
    "another table's id": lying([Metadata("id", EMPTY, (), {})], DeclaredReads(), table_id="other"),
}

LINES: dict[str, bytes] = {
    "no JSON": b"garbage\n",
    "cut off": encode_all([add("y.parquet")])[:-1],
    "cut off earlier": encode_all([add("y.parquet")])[:-9] + b"\n",
    "an unknown action": b'{"subtract":{}}\n',
    "two actions in one": b'{"add":{},"remove":{}}\n',
    "an empty add": b'{"add":{}}\n',
    "an add of numbers": b'{"add":{"path":1,"partitionValues":{},"size":1,"modificationTime":1,"dataChange":true}}\n',
    "a size beyond 64 bits": encode_all([add("y.parquet")]).replace(b'"size":1', b'"size":99999999999999999999'),
    "NaN": encode_all([add("y.parquet")]).replace(b'"size":1', b'"size":NaN'),
    "deep": b'{"add":{"path":"y","partitionValues":{},"size":1,"modificationTime":1,"dataChange":true,"x":%s1%s}}\n'
    % (b"[" * 400, b"]" * 400),
    "invalid UTF-8 in escapes": b'{"add":{"path":"\\ud800","partitionValues":{},"size":1,"modificationTime":1,"dataChange":true}}\n',
    "a foreign checkpoint": b'{"checkpointMetadata":{"version":1}}\n',
}


@pytest.mark.notices("large-intents-are-not-read")
@pytest.mark.parametrize("case", NOT_RECORDS)
def test_what_is_no_intent_is_refused(services: Services, case: str) -> None:
    victim = Victim(services)
    head = victim.head
    data = NOT_RECORDS[case](head)
    try:
        guid = orjson.loads(data)["transaction_id"]
    except (ValueError, TypeError, KeyError):
        guid = None
    victim.refuses(victim.write(data, guid))


@pytest.mark.notices("known-beyond-the-head-is-refused")
@pytest.mark.parametrize("case", NUMBERS)
def test_numbers_that_cannot_be_are_refused(services: Services, case: str) -> None:
    victim = Victim(services)
    outcome = victim.outcome(victim.write(append_intent(victim.head, **NUMBERS[case])))
    assert outcome.state == "refused"
    victim.goes_on()


@pytest.mark.notices("intents-are-checked", "new-files-are-of-the-table")
@pytest.mark.parametrize("case", LIES)
def test_actions_that_no_transaction_has_are_refused(services: Services, case: str) -> None:
    victim = Victim(services)
    victim.refuses(victim.write(LIES[case](victim.head)), "not acceptable")


@pytest.mark.parametrize("case", LINES)
def test_lines_that_no_reader_could_read_are_refused(services: Services, case: str) -> None:
    victim = Victim(services)
    victim.refuses(victim.write(sealed(append_intent(victim.head), LINES[case])), "not acceptable")


HARMLESS: dict[str, Callable[[Head], Intent]] = {
    "a file that is not there": lying([add("nowhere.parquet", partition_values={"p": "b"}, data_change=True)]),
    "the removal of a file that never was": lying([remove("never.parquet")], DeclaredReads(read_files=("never.parquet",))),
    "an application of any name": lying([Txn("\u0000'; DROP \U0001f600\n", 2**63 - 1)]),
    "metrics that only look like numbers": lying([add("y.parquet")], metrics={"numFiles": "\u00b2", "a": "--5", "b": "9" * 9000}),
    "a very long operation": lying([add("y.parquet")], operation="\u202e" * 16_000),
    "predicates of any kind": lying([remove("x")], DeclaredReads(predicates=("(" * 3000, "'", "i = 1 OR " * 2000 + "TRUE", "\x00"))),
    "types of any kind": lying(
        [remove("x")], DeclaredReads(predicates=("p = 1",), partition_types={"p": "nonsense"}, column_types={"i": "{"})
    ),
    "an overwrite of nonsense": lying(
        [remove("x")],
        DeclaredReads(kind="overwrite", policy="maxcompute-table", scope="((("),
        validated_through=-1,
        read_version=-1,
    ),
    "moves that are none": lying(
        [replace(remove("x"), tags={"sluice.moved": "nonsense"}), add("y")], DeclaredReads(kind="other", row_level=True)
    ),
}


@pytest.mark.parametrize("case", HARMLESS)
def test_what_is_sound_and_means_harm_stops_nobody(services: Services, case: str) -> None:
    """It is committed, or refused for a reason; clients that meet it later go on either way."""
    victim = Victim(services)
    assert victim.outcome(victim.write(HARMLESS[case](victim.head))).state in ("committed", "refused")
    table = victim.open()
    assert table.append(ROWS) is not None
    table.delete("p = 'a' AND i = 1")
    table.update({"i": "i + 1"}, "p = 'a'")
    assert len(victim.open().history()) > 3
    assert victim.open().snapshot().files().num_rows >= 1


@pytest.mark.parametrize(
    "row",
    [
        {"partition_values": {"p": "x" * 2000}},
        {"partition_values": {}},
        {"partition_values": {"q": "?"}},
        {"stats": '{"numRecords":1,"minValues":{"i":"text"},"maxValues":[],"nullCount":7}'},
        {"stats": '{"minValues":{"i":{"deep":[1]}},"maxValues":{"i":1e308}}'},
        {"stats": None},
        {"tags": {"a": None}},
    ],
    ids=str,
)
def test_files_that_say_anything_of_themselves_stop_no_decision(services: Services, row: dict[str, Any]) -> None:
    victim = Victim(services)
    before = victim.open()
    pending = before.begin()
    pending.delete("i = 1 AND p = 'a'")
    assert victim.outcome(victim.write(lying([add("y.parquet", **row)])(victim.head))).state == "committed"
    with contextlib.suppress(NotCommitted):  # a file that does not say what it holds may hold what was read
        pending.commit()
    assert victim.open().append(ROWS) is not None


@on_zookeeper_too
@pytest.mark.parametrize(
    "name",
    [
        "i--0000000001",
        "i-x0000000001",
        "i-guid-\u0661\u0661\u0661\u0661\u0661\u0661\u0661\u0661\u0661\u0661",
        "i-guid-9999999999",
        "i-" + "x" * 5000 + "-0000000001",
        "i-..-0000000009",
        "nonsense",
        "i-gu'id-0000000001",
    ],
    ids=lambda name: name[:20],
)
def test_names_that_no_slot_has_are_passed_over(services: Services, name: str) -> None:
    victim = Victim(services)
    victim.session.create(f"{victim.tree.slots(0)}/{name}", append_intent(victim.head).encode())
    victim.session.create(f"{victim.tree.verdicts}/{name}", b"nonsense")
    victim.session.create(f"{victim.tree.verdicts}/\u0661-1-1-c", b"nonsense")
    victim.goes_on()


@pytest.mark.notices("one-slot-of-each-number")
@on_zookeeper_too
def test_two_slots_of_one_number_are_decided_once(services: Services) -> None:
    """A client with a made-up name may take another's number; the other one is refused, and is not in the log."""
    victim = Victim(services)
    mine = append_intent(victim.head, "mine.parquet")
    first = victim.write(mine)
    [name] = [n for n in map(SlotName.parse, victim.session.children(victim.tree.slots(0)) or ()) if n is not None]
    made_up = append_intent(victim.head, "made-up.parquet", transaction_id="0")
    victim.session.create(victim.tree.slot(0, SlotName(name.sequence, "0")), made_up.encode())
    assert victim.outcome("0").state == "committed"
    assert victim.outcome(first).state in ("refused", "unknown")
    victim.table.refresh()
    paths = victim.open().snapshot().files()["path"].to_pylist()
    assert ("made-up.parquet" in paths, "mine.parquet" in paths) == (True, False)


@on_zookeeper_too
def test_a_flood_of_refusals_with_long_words_fits_into_the_records(services: Services) -> None:
    victim = Victim(services)
    head = victim.head
    for number in range(300):
        victim.write(lying([remove("x" * 3000 + str(number)), add("y" * 3000)], DeclaredReads(kind="append"))(head))
        victim.write(b'{"actions": ["%s"]}' % (b"z" * 3000))
    victim.goes_on()
    records = [
        victim.session.read(victim.tree.verdict(n))
        for n in map(VerdictName.parse, victim.session.children(victim.tree.verdicts) or ())
        if n
    ]
    assert sum(node.data.count(b'"malformed"') for node in records if node is not None) == 600
    assert max(len(node.data) for node in records if node is not None) < 512 * 1024


def test_a_window_into_what_the_log_no_longer_has_is_refused(services: Services) -> None:
    victim = Victim(services)
    for _ in range(3):
        victim.table.append(ROWS)
    victim.table.checkpoint()
    for version in range(2):
        (Path(victim.location) / f"_delta_log/{version:020d}.json").unlink()
    reads = DeclaredReads(predicates=("i = 1",))
    guid = victim.write(lying([remove("x")], reads, validated_through=-1, read_version=-1)(victim.head))
    with pytest.raises(NotCommitted, match="validated up to version -1 only"):
        raise victim.outcome(guid).error or AssertionError("it was committed")
    table = victim.open()
    assert table.append(ROWS) is not None
    table.delete("i = 1")


def test_row_ids_of_files_that_do_not_count_their_rows(services: Services) -> None:
    victim = Victim(services, properties={"delta.enableRowTracking": "true"})
    for stats in (None, "null", "{}"):
        victim.refuses(victim.write(lying([add("y.parquet", stats=stats)])(victim.head)), "numRecords")


def test_staged_actions_of_any_content(services: Services) -> None:
    victim = Victim(services)
    folder = Path(victim.location) / "_delta_log/_staged_commits"
    folder.mkdir(parents=True, exist_ok=True)
    contents = {
        "garbage": b"\x00" * 1000,
        "empty": b"",
        "ten megabytes": b'{"add":' + b"[" * 10_000_000,
        "two numbers": encode_all([Txn("app", 7), Txn("app", 8)]),
    }
    for name, content in contents.items():
        guid = str(uuid.uuid4())
        (folder / f"{guid}.json").write_bytes(content)
        staged = f"_delta_log/_staged_commits/{guid}.json"
        intent = append_intent(victim.head, transaction_id=guid, actions="", staged=staged, actions_digest=sha256(content))
        assert victim.outcome(victim.write(intent)).state == ("committed" if name == "empty" else "refused"), name
    victim.goes_on()


@pytest.mark.parametrize(
    "other", ["memory://nowhere", "s3://../x", "s3://b@c/x", "file://host/x", "memory://a/../b", "memory://a//b", "file:///etc", "s3://_/x"]
)
def test_a_transaction_over_tables_that_are_none_is_refused(services: Services, other: str) -> None:
    victim = Victim(services)
    tables = sorted([victim.tree.location, other])
    data = json_of(victim.head, joint={"tables": tables})
    victim.refuses(victim.write(data, orjson.loads(data)["transaction_id"]))
