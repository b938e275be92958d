"""`sluice doctor` and the coordinator's nodes: each kind of trouble is made and found, and `--fix` mends what is safe, and nothing else."""

from __future__ import annotations

import ast
import json
import re
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path

import orjson
import pyarrow as pa
import pytest
from click.testing import CliRunner

import sluice
from sluice.cli import main
from sluice.coordinator import examination
from sluice.coordinator.commit import moving
from sluice.coordinator.commit.decider import Decider
from sluice.coordinator.errors import OutcomeUnknown
from sluice.coordinator.nodes.context import TableContext
from sluice.coordinator.nodes.creation import make_tree
from sluice.coordinator.nodes.records import Head
from sluice.coordinator.nodes.removal import below
from sluice.coordinator.publication import publisher
from sluice.coordinator.service.memory import MemoryCoordination
from sluice.coordinator.service.store import Create, Write
from sluice.operating import doctor as doctor_module
from sluice.operating import judging
from sluice.storage.log import examination as log_examination
from sluice.tables.client.address import TableAddress
from tests.test_docs_tables import rows, section

ROWS = pa.table({"id": [1, 2, 3]})
A_SLOT = f"i-{uuid.uuid4()}-0000000000"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "table"


@pytest.fixture
def coordinator() -> str:
    return f"memory://{uuid.uuid4().hex}"


@pytest.fixture
def table(place: Path, coordinator: str) -> sluice.Table:
    made = sluice.Table.create(place, ROWS.schema, coordinator=coordinator)
    made.coordinated.alone = False
    made.append(ROWS)
    return made


def everything(coordinator: str, place: Path) -> dict[str, bytes]:
    """All nodes but those of clients, and all files."""
    tree = MemoryCoordination.named(coordinator.removeprefix("memory://")).tree
    nodes = {each.path: each.data for each in tree.walk() if not each.owner_session}
    return nodes | {str(path): path.read_bytes() for path in place.rglob("*") if path.is_file()}


def unpublished(table: sluice.Table, patched: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> bool:
        raise sluice.errors.StorageUnavailable("the store is away")

    with patched.context() as away:
        away.setattr(publisher.Publisher, "publish", fail)
        table.append(ROWS, timeout_s=2)


def undecided(table: sluice.Table, patched: pytest.MonkeyPatch) -> None:
    with patched.context() as nobody:
        nobody.setattr(Decider, "decide", lambda *_: ())
        table.coordinated.alone = False
        with pytest.raises(OutcomeUnknown):
            table.append(ROWS, timeout_s=0.3)
    patched.setattr(doctor_module, "BOUND_S", 0.0)


def made(path: str, data: bytes = b"") -> Callable[[sluice.Table, pytest.MonkeyPatch], None]:
    def make(table: sluice.Table, _: pytest.MonkeyPatch) -> None:
        context = table.coordinated.context
        where = path.replace("TABLE", context.tree.root)
        context.coordination.ensure_path(where.rpartition("/")[0])
        context.coordination.create(where, data)

    return make


MENDED: dict[str, tuple[str, Callable[[sluice.Table, pytest.MonkeyPatch], None], str]] = {
    "a version nobody published": ("publication-pending", unpublished, "version 2 is in the log"),
    "a commit nobody decides": ("commit-waits", undecided, "decided"),
    "a decided slot": ("slot-left", made(f"TABLE/slots/0/{A_SLOT}"), "removed"),
    "a lease of no session": ("node-without-session", made("TABLE/leases/l-x-0000000001"), "removed"),
    "a pin of no session": ("node-without-session", made("TABLE/pins/p-x"), "removed"),
}


@pytest.mark.parametrize("kind", MENDED)
def test_what_is_safe_is_mended_once(
    table: sluice.Table, place: Path, coordinator: str, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    name, trouble, done = MENDED[kind]
    assert sluice.doctor(place, coordinator=coordinator, fix=True).fixed == ()
    trouble(table, monkeypatch)
    seen = sluice.doctor(place, coordinator=coordinator)
    assert name in [each.name for each in seen.findings], seen
    assert seen.fixed == seen.left == ()
    mended = sluice.doctor(place, coordinator=coordinator, fix=True)
    assert any(each.startswith(name) and each.endswith(done) for each in mended.fixed), mended
    assert (mended.ok, mended.findings, mended.left) == (True, (), ())
    before = everything(coordinator, place)
    again = sluice.doctor(place, coordinator=coordinator, fix=True)
    assert (again.fixed, again.findings) == ((), ())
    assert everything(coordinator, place) == before
    table.append(ROWS)
    assert sluice.doctor(place, coordinator=coordinator).findings == ()


def foreign(table: sluice.Table, _: pytest.MonkeyPatch) -> None:
    log = Path(table.location.removeprefix("file://")) / "_delta_log"
    shutil.copy(log / "00000000000000000001.json", log / "00000000000000000002.json")


def lost_file(table: sluice.Table, _: pytest.MonkeyPatch) -> None:
    next(Path(table.location.removeprefix("file://")).glob("part-*")).unlink()


def swapped(table: sluice.Table, _: pytest.MonkeyPatch) -> None:
    log = Path(table.location.removeprefix("file://")) / "_delta_log"
    first, second = log / "00000000000000000000.json", log / "00000000000000000001.json"
    one, two = first.read_bytes(), second.read_bytes()
    first.write_bytes(two)
    second.write_bytes(one)


LEFT: dict[str, tuple[str, Callable[[sluice.Table, pytest.MonkeyPatch], None]]] = {
    "a foreign commit": ("foreign-commit", foreign),
    "a lost data file": ("file-missing", lost_file),
    "two versions swapped": ("version-moved", swapped),
    "a node that nobody knows": ("strange-node", made("TABLE/something")),
    "a slot that is none": ("strange-node", made("TABLE/slots/0/something")),
    "an unreadable record": ("record-unreadable", made("TABLE/verdicts/000000-0000000099-00000000000000000000-c", b"{")),
}


@pytest.mark.parametrize("kind", LEFT)
def test_what_a_person_has_to_judge_is_left_as_it_is(
    table: sluice.Table, place: Path, coordinator: str, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    name, trouble = LEFT[kind]
    trouble(table, monkeypatch)
    before = everything(coordinator, place)
    seen = sluice.doctor(place, coordinator=coordinator, fix=True)
    assert name in [each.name for each in seen.findings], seen
    assert seen.fixed == ()
    assert any(each.startswith(f"{name} ") for each in seen.left), seen
    assert everything(coordinator, place) == before


def test_a_version_beyond_the_head_has_one_remedy(table: sluice.Table, place: Path, coordinator: str) -> None:
    log = place / "_delta_log"
    shutil.copy(log / f"{1:020}.json", log / f"{2:020}.json")
    (log / f"{3:020}.json").write_text("{")
    (log / f"{1:020}.json").write_text((log / f"{1:020}.json").read_text().replace("WRITE", "WRITTEN"))
    seen = sluice.doctor(place, coordinator=coordinator)
    remedies = {(each.about, each.remedy.partition(" ")[0]) for each in seen.findings if each.about.startswith("_delta_log/")}
    assert remedies == {(f"_delta_log/{1:020}.json", "stop"), (f"_delta_log/{2:020}.json", "stop"), (f"_delta_log/{3:020}.json", "stop")}


# -- tables without a log, and nodes of no table -----------------------------------------------------------------------------


def test_a_table_whose_folder_is_gone(table: sluice.Table, place: Path, coordinator: str) -> None:
    shutil.rmtree(place)
    [finding] = sluice.doctor(place, coordinator=coordinator, fix=True).findings
    assert (finding.name, finding.severity) == ("log-gone", "error")
    assert f"sluice forget {table.location}" in finding.remedy
    with pytest.raises(sluice.errors.TableNotFound):
        sluice.doctor(place)


def test_a_table_that_somebody_began_to_create_goes_when_it_is_old(
    table: sluice.Table, tmp_path: Path, coordinator: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = TableAddress.of(tmp_path / "begun", coordinator).context()
    make_tree(context, Head())
    assert [each.name for each in sluice.doctor(tmp_path / "begun", coordinator=coordinator, fix=True).findings] == ["table-begun"]
    monkeypatch.setattr(examination, "_HOUR_MS", -1)
    report = sluice.doctor_all(coordinator, fix=True)
    of_begun = next(each for each in report if each.location.endswith("begun"))
    assert [each.rpartition(": ")[2] for each in of_begun.fixed] == ["removed"]
    assert context.connect().read(context.tree.root) is None
    assert sum(each.num_rows for each in table.snapshot().to_batches()) == 3


@pytest.mark.notices("what-is-being-created-stays")
@pytest.mark.parametrize("again", [False, True])
def test_a_table_that_a_client_creates_after_the_examination_stays(
    tmp_path: Path, coordinator: str, monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    context = TableAddress.of(tmp_path / "begun", coordinator).context()
    make_tree(context, Head())
    remove, root = examination.remove_half_made, context.tree.root
    monkeypatch.setattr(examination, "_HOUR_MS", -1)

    def after_another_client(mine: TableContext, now_ms: int) -> None:
        if again:
            nodes_gone(context)
            make_tree(context, Head())
            monkeypatch.setattr(examination, "_HOUR_MS", 3_600_000)
        else:
            context.coordination.create(f"{context.tree.slots(0)}/{A_SLOT}", b"{}")
        remove(mine, now_ms)

    monkeypatch.setattr("sluice.operating.doctor.api.remove_half_made", after_another_client)
    seen = sluice.doctor(tmp_path / "begun", coordinator=coordinator, fix=True)
    assert (seen.fixed, [each.partition(" ")[0] for each in seen.left]) == ((), ["table-half-made"])
    assert "a client is creating the table" in seen.left[0]
    assert context.connect().read(root) is not None


@pytest.mark.notices("only-nodes-of-no-session-are-removed")
def test_nodes_of_living_clients_stay(table: sluice.Table, place: Path, coordinator: str) -> None:
    copied = b'{"host":"h","pid":1,"application":"a","since_ms":1,"version":"1","oldest_term":0}'
    made("/clients/0123456789ab", copied)(table, pytest.MonkeyPatch())
    with table.lease(), table.snapshot().pin():
        before = everything(coordinator, place)
        *_, shared = sluice.doctor_all(coordinator, fix=True)
        assert [each.partition(": ")[0] for each in shared.fixed] == ["node-without-session /clients/0123456789ab"]
        assert set(before) - set(everything(coordinator, place)) == {"/clients/0123456789ab"}
        table.append(ROWS)
    session = table.coordinated.context.connect()
    alive = next(each for each in session.children("/clients") or ())
    finding = log_examination.Finding("node-without-session", "warning", f"/clients/{alive}", "")
    assert examination.remove_stray(session, finding) is None  # it was taken for one, and is not


@pytest.mark.notices("pins-that-came-along-stay")
def test_pins_that_a_table_brought_along_stay_until_they_end(table: sluice.Table, place: Path, coordinator: str) -> None:
    new = f"memory://{uuid.uuid4().hex}"
    seen = table.snapshot()
    pin = seen.pin()
    table.overwrite(pa.table({"id": [9]}))
    sluice.move(place, new, coordinator=coordinator)
    assert sluice.doctor(place, coordinator=new, fix=True).findings == ()
    moved = sluice.Table.open(place, coordinator=new)
    context = moved.coordinated.context
    [name] = context.connect().children(context.tree.pins) or [""]
    node = f"{context.tree.pins}/{name}"
    finding = log_examination.Finding("node-without-session", "warning", node, "")
    assert examination.remove_stray(context.connect(), finding) is None
    moved.vacuum(0, force=True)
    assert seen.to_arrow().num_rows == 3
    before = context.connect().read(node)
    assert before is not None
    context.connect().write(node, orjson.dumps({**orjson.loads(before.data), "until_ms": 1000}), version=before.version)
    assert sluice.doctor(place, coordinator=new, fix=True).fixed == (f"node-without-session {node}: removed",)
    pin.release()


def interrupted_move(place: Path, new: str, coordinator: str, step: str) -> None:
    """A mover that goes away at a point."""

    def point(name: str) -> None:
        if name == step:
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(moving, "point", point)
        with pytest.raises(KeyboardInterrupt):
            sluice.move(place, new, coordinator=coordinator)


def test_a_table_that_moved_is_no_error_at_its_former_place(tmp_path: Path, coordinator: str) -> None:
    new = f"memory://{uuid.uuid4().hex}"
    table = sluice.Catalog(coordinator, root=tmp_path / "lake").create("t", ROWS.schema)
    sluice.move(table.location, new, coordinator=coordinator)
    seen = sluice.doctor(table.location, coordinator=coordinator, fix=True)
    assert (seen.ok, [(each.name, each.severity) for each in seen.findings]) == (True, [("moved-away", "note")])
    assert new in seen.findings[0].remedy
    assert [each.findings for each in sluice.doctor_all(coordinator, fix=True)] == [()]
    sluice.move(table.location, coordinator, coordinator=new)
    assert sluice.doctor(table.location, coordinator=coordinator).findings == ()


@pytest.mark.parametrize("step", ["move-left", "move-arrived"])
def test_a_move_that_was_interrupted_is_finished(table: sluice.Table, place: Path, coordinator: str, step: str) -> None:
    new = f"memory://{uuid.uuid4().hex}"
    interrupted_move(place, new, coordinator, step)
    assert [each.name for each in sluice.doctor(place, coordinator=coordinator).findings] == ["moved-away"]
    [before] = sluice.doctor_all(coordinator)
    assert [each.name for each in before.findings] == ["move-unfinished"]
    [after] = sluice.doctor_all(coordinator, fix=True)
    assert (after.findings, len(after.fixed), after.left) == ((), 1, ())
    assert table.coordinated.context.connect().children("/tables") == []
    assert sluice.doctor(place, coordinator=new).findings == ()


def test_a_move_that_did_not_arrive_for_a_day_is_noted_and_left(
    table: sluice.Table, place: Path, coordinator: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = f"memory://{uuid.uuid4().hex}"
    interrupted_move(place, new, coordinator, "move-leased")
    [before] = sluice.doctor_all(new, fix=True)
    assert before.findings == ()
    monkeypatch.setattr(examination, "_HOUR_MS", -1)
    [after] = sluice.doctor_all(new, fix=True)
    assert ([each.name for each in after.findings], after.fixed, len(after.left)) == (["arrival-left"], (), 1)


def nodes_gone(context: TableContext) -> None:
    for path in (*below(context.connect(), context.tree.root), context.tree.root):
        context.connect().delete(path)


@pytest.mark.notices("names-of-tables-stay")
def test_a_name_of_nothing_goes_and_one_of_a_table_to_recover_stays(tmp_path: Path, coordinator: str) -> None:
    catalog = sluice.Catalog(coordinator, root=tmp_path / "lake")
    gone, lost, whole = (catalog.create(name, ROWS.schema) for name in ("gone", "lost", "whole"))
    nodes_gone(gone.coordinated.context)
    nodes_gone(lost.coordinated.context)
    shutil.rmtree(gone.location.removeprefix("file://"))
    *_, shared = sluice.doctor_all(coordinator, fix=True)
    assert [each.partition(": ")[0] for each in shared.fixed] == ["name-of-nothing /catalog/namespaces/default/gone"]
    assert [each.name for each in shared.findings] == ["name-without-nodes"]
    session = whole.coordinated.context.connect()
    assert sorted(session.children("/catalog/namespaces/default") or ()) == ["lost", "whole"]
    finding = log_examination.Finding("name-of-nothing", "warning", "/catalog/namespaces/default/whole", "")
    assert examination.remove_stray(session, finding) is None


def test_what_a_drop_left_is_found_and_finished_or_told(table: sluice.Table, place: Path, coordinator: str, tmp_path: Path) -> None:
    other = sluice.Table.create(tmp_path / "other", ROWS.schema, coordinator=coordinator)
    context = other.coordinated.context
    session = context.coordination
    root = session.read(context.tree.root)
    assert root is not None
    content = {**orjson.loads(root.data), "closed": True}
    session.apply([Write(root.path, orjson.dumps(content), root.version), Create(context.tree.closed)])
    made(f"/dropped/{uuid.uuid4().hex}", b'{"last":3,"at_ms":1,"deleting":true}')(table, pytest.MonkeyPatch())
    *_, before = sluice.doctor_all(coordinator)
    assert sorted(each.name for each in before.findings) == ["drop-unfinished", "removal-unfinished"]
    *_, after = sluice.doctor_all(coordinator, fix=True)
    assert [each.name for each in after.findings] == ["drop-unfinished"]
    assert session.read(context.tree.root) is None


STRANGE = {
    "/catalog/dropped/strange": "record-unreadable",
    "/catalog/namespaces/default/strange": "record-unreadable",
    "/catalog/namespaces/strange": "record-unreadable",
    "/contention/strange": "record-unreadable",
    "/dropped/strange": "record-unreadable",
    "/graves/strange": "record-unreadable",
    "/open/strange": "record-unreadable",
    "/quotas": "record-unreadable",
    "/quotas/strange": "record-unreadable",
    "/strange": "strange-node",
}


def test_each_node_that_cannot_be_read_is_named_and_the_rest_is_examined(tmp_path: Path, coordinator: str) -> None:
    catalog = sluice.Catalog(coordinator, root=tmp_path / "lake")
    lost, damaged = (catalog.create(name, ROWS.schema) for name in ("lost", "damaged"))
    nodes_gone(lost.coordinated.context)
    session = lost.coordinated.context.connect()
    session.write(damaged.coordinated.context.tree.head, b"\xff\x00", version=-1)
    for path in sorted(STRANGE):
        session.ensure_path(path.rpartition("/")[0] or "/")
        session.create(path, b"\xff\x00")
    of_damaged, shared = sluice.doctor_all(coordinator)
    assert [(each.name, each.severity) for each in of_damaged.findings] == [("record-unreadable", "error")]
    assert {each.about: each.name for each in shared.findings if "strange" in each.about or each.about == "/quotas"} == STRANGE
    assert [each.about for each in shared.findings if each.name == "name-without-nodes"] == ["/catalog/namespaces/default/lost"]
    assert shared.ok is False


def test_a_table_on_whose_former_place_nothing_can_be_read_is_examined(table: sluice.Table, coordinator: str) -> None:
    context = table.coordinated.context
    context.connect().ensure_path("/dropped")
    context.connect().create(context.tree.tombstone, b"\xff\x00")
    nodes_gone(context)
    assert [each.name for each in sluice.doctor(table.location, coordinator=coordinator).findings] == ["nodes-missing"]


def test_a_consumer_that_cannot_be_read_hides_nothing_else(table: sluice.Table, coordinator: str) -> None:
    with table.consumer("good") as consumer:
        next(consumer)
        consumer.commit()
    context = table.coordinated.context
    made("TABLE/consumers/strange", b"\xff\x00")(table, pytest.MonkeyPatch())
    [finding] = sluice.doctor(table.location, coordinator=coordinator).findings
    assert (finding.name, finding.severity, finding.about) == ("record-unreadable", "error", context.tree.consumer("strange"))
    [seen] = sluice.status(coordinator).tables
    assert (seen.trouble, seen.version, [each.name for each in seen.consumers]) == (None, 1, ["good", "strange (unreadable)"])
    listed = CliRunner().invoke(main, ["consumers", table.location, "--coordinator", coordinator, "--json"])
    assert (listed.exit_code, [each["name"] for each in json.loads(listed.stdout)]) == (0, ["good", "strange (unreadable)"])
    table.remove_consumer("good")


def test_a_clock_apart_is_named(table: sluice.Table, coordinator: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_module, "_CLOCK_MS", -1)
    *_, shared = sluice.doctor_all(coordinator)
    assert [each.name for each in shared.findings] == ["clock-apart"]


# -- all tables, and the command -----------------------------------------------------------------------------------------------


def test_a_table_that_cannot_be_read_holds_up_no_other(table: sluice.Table, place: Path, tmp_path: Path, coordinator: str) -> None:
    bad = sluice.Table.create(tmp_path / "bad", ROWS.schema, coordinator=coordinator)
    session, tree = bad.coordinated.context.coordination, bad.coordinated.context.tree
    session.write(tree.root, b'{"protocol": 99}', version=-1)
    lost_file(table, pytest.MonkeyPatch())
    result = CliRunner().invoke(main, ["doctor", "--all", "--coordinator", coordinator, "--json"])
    assert result.exit_code == 1
    said = {each["location"]: each for each in map(json.loads, result.stdout.splitlines())}
    assert [each["name"] for each in said[bad.location]["findings"]] == ["table-not-read"]
    assert [each["name"] for each in said[table.location]["findings"]] == ["file-missing"]
    assert said[coordinator]["ok"] is True
    text = CliRunner().invoke(main, ["doctor", "--all", "--coordinator", coordinator]).output
    assert f"error: table-not-read: {bad.location}: " in text
    assert f"{coordinator}: in order; examined the coordinator's nodes" in text


def test_a_coordinator_that_was_not_looked_at_is_said_so(table: sluice.Table, place: Path) -> None:
    alone = CliRunner().invoke(main, ["doctor", str(place)])
    assert (alone.exit_code, "NOT the coordinator's nodes: no coordinator was given" in alone.output) == (0, True)
    there = ("--coordinator", "zk://127.0.0.1:1/x?connect_timeout_s=0.2&retry_s=0.2")
    of_all = CliRunner().invoke(main, ["doctor", "--all", *there])
    assert (of_all.exit_code, "CoordinatorUnavailable" in of_all.stderr) == (3, True)
    away = CliRunner().invoke(main, ["doctor", str(place), *there])
    assert (away.exit_code, "NOT ALL EXAMINED" in away.output, "warning: coordinator-away: " in away.output) == (3, True, True)
    for words in (["doctor"], ["doctor", str(place), "--all"], ["doctor", str(place), "--fix"]):
        assert CliRunner().invoke(main, words).exit_code == 2


def test_every_finding_has_its_row_and_every_row_a_finding() -> None:
    """The names are those of the findings in the sources, and of the messages of a status about tables and the coordinator."""
    names = set()
    for module in (examination, log_examination, doctor_module):
        for node in ast.walk(ast.parse(Path(str(module.__file__)).read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("Finding", "report"):
                names |= {node.args[0].value} if isinstance(node.args[0], ast.Constant) else set()
    said = {cell.strip("`"): severity for cell, severity, *_ in rows(section("operations/doctor.md", "The findings"))}
    assert set(said) == names
    assert set(said.values()) <= {"error", "warning", "note", "error, warning", "warning, note"}
    messages = set(re.findall(r'_message\("([a-z-]+)"', Path(str(judging.__file__)).read_text()))
    assert names & messages == {"clock-apart", "coordinator-away", "foreign-commit", "table-not-read"}  # one name, one meaning
