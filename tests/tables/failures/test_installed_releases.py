"""What docs/operations/upgrades.md promises, with releases that are installed from their wheels, in environments of their own.

`test_releases.py` tries single steps with changed copies of the package. Here whole programs of two releases work on one table at once,
on a real ZooKeeper, forth and back, and one is killed.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import deltalake
import orjson
import pytest

import sluice
from sluice.installation import __version__
from tests.releases import BEING_COMPILED, NAMED, Edit, raised

pytestmark = [pytest.mark.zookeeper, pytest.mark.long]

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = """
import json, sys
import pyarrow as pa
import sluice
from sluice.coordinator.limits import Limits

order = json.loads(sys.argv[1])
limits = Limits(patience_s=0.05, patience_s_max=0.5, publication_wait_s=order.get("wait_s", 20.0), fast_path=order.get("fast_path", True))
say = lambda **facts: print(json.dumps(facts), flush=True)
say(release=sluice.__version__, file=sluice.__file__)
if order.get("reads"):
    say(rows=sluice.Table.open(order["location"], coordinator=order["coordinator"], consistency="published").snapshot().to_arrow().num_rows)
    raise SystemExit
try:
    if order.get("creates"):
        sluice.Table.create(order["location"], pa.schema([("id", pa.int64())]), coordinator=order["coordinator"])
    table = sluice.Table.open(order["location"], coordinator=order["coordinator"], limits=limits, timeout_s=order.get("timeout_s", 60))
    for value in order.get("values", ()):
        if value % 5 == 4 and order.get("deletes"):
            table.delete(f"id = {value - 1}")
            say(deleted=value - 1)
        commit = table.append(pa.table({"id": pa.array([value], pa.int64())}))
        say(appended=value, version=commit.version)
    if order.get("delete"):
        table.delete("id = %d" % order["delete"])
        say(deleted=order["delete"])
    if order.get("clients"):
        from sluice.coordinator.api import connect, list_clients
        say(clients=sorted({each.version for each in list_clients(connect(order["coordinator"]))}))
except sluice.errors.SluiceError as error:
    say(error=[each.__name__ for each in type(error).__mro__], message=error.message, cause=str(error.__cause__))
"""


@dataclass(frozen=True, slots=True)
class Installed:
    """A release in an environment of its own."""

    version: str
    python: Path
    program: Path

    def start(self, dies_at: str = "", **order: object) -> subprocess.Popen[str]:
        clean = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        environment = {**clean, **({"SLUICE_FAILPOINT": dies_at} if dies_at else {})}
        command = [str(self.python), str(self.program), json.dumps(order)]
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True, cwd=self.program.parent)

    def run(self, dies_at: str = "", **order: object) -> list[dict[str, object]]:
        """What it says, line by line, besides which release it is."""
        with self.start(dies_at, **order) as process:
            output, _ = process.communicate(timeout=120)
        assert process.returncode == (-signal.SIGKILL if dies_at else 0), output
        first, *said = map(json.loads, output.splitlines())
        assert first["release"] == self.version
        assert str(self.python.parent.parent) in str(first["file"])
        return said


def install(folder: Path, edits: Sequence[Edit]) -> Installed:
    """Build the wheel of a changed copy of the project, and install it beside the test environment's other packages."""
    source = folder / "source"
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns(BEING_COMPILED, "__pycache__", "*.egg-info"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    for each in edits:
        file = source / "src" / "sluice" / each.file
        file.write_text(each.applied(file.read_text()))

    def run(*command: str) -> None:
        subprocess.run([sys.executable, "-m", *command], check=True, cwd=source, stdout=subprocess.DEVNULL, timeout=240)

    run("build", "--wheel", "--no-isolation", "--outdir", str(folder))
    [wheel] = folder.glob("*.whl")
    run("venv", "--without-pip", str(folder / "venv"))
    python = folder / "venv" / "bin" / "python"
    run("pip", "--python", str(python), "install", "--no-deps", "--ignore-installed", "--no-index", "--quiet", str(wheel))
    [packages] = (folder / "venv" / "lib").glob("python*/site-packages")
    (packages / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")  # without the links to this source, which lie there, too
    (folder / "program.py").write_text(PROGRAM)
    return Installed(wheel.name.split("-")[1], python, folder / "program.py")


def with_rendering() -> Sequence[Edit]:
    shaped = Edit(
        "coordinator/publication/rendering.py",
        '    return orjson.dumps({"commitInfo": info}) + b"\\n"',
        '    return orjson.dumps({"commitInfo": {**info, **({"shape": "new"} if by.number > 2 else {})}}) + b"\\n"',
    )
    return (*raised("RENDERING"), shaped)


_KNOWS_THE_FORMAT_BEFORE = {
    constant: (Edit("coordinator/nodes/records.py", f"LATER: ClassVar = frozenset({fields})", "LATER: ClassVar = frozenset()"),)
    for constant, fields in (("HEAD_FORMAT", '{"digest", "files"}'), ("BATCH_FORMAT", '{"previous", "files"}'))
}
"""Only the first formats lacked these fields."""


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return install(tmp_path_factory.mktemp("older"), ())


@pytest.fixture(scope="module")
def named(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return install(tmp_path_factory.mktemp("named"), NAMED)


@pytest.fixture(scope="module")
def newer(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return install(tmp_path_factory.mktemp("newer"), with_rendering())


class World:
    """A table, and what programs were told of it."""

    def __init__(self, folder: Path, coordinator: str) -> None:
        self.at = {"location": str(folder / "table"), "coordinator": coordinator}
        self.ids: set[int] = set()
        self.next = 0

    def values(self, count: int) -> list[int]:
        self.next += 1000
        return list(range(self.next, self.next + count))

    def note(self, output: str) -> None:
        """Take in what a program said."""
        for fact in map(json.loads, output.splitlines()):
            assert "error" not in fact, fact
            self.ids |= {fact["appended"]} if "appended" in fact else set()
            self.ids -= {fact["deleted"]} if "deleted" in fact else set()

    def check(self, *, unknown: int = 0) -> set[str]:
        """The rows are those that were acknowledged, at most `unknown` more; returns who signed the versions."""
        rows = deltalake.DeltaTable(self.at["location"]).to_pyarrow_table()["id"].to_pylist()
        assert len(rows) == len(set(rows))
        assert len(set(rows) ^ self.ids) <= unknown
        diagnosis = sluice.doctor(self.at["location"], coordinator=self.at["coordinator"])
        assert diagnosis.ok, diagnosis.findings
        log = sorted(Path(self.at["location"]).glob("_delta_log/*.json"))
        return {orjson.loads(each.read_bytes().splitlines()[0])["commitInfo"]["engineInfo"] for each in log}


@pytest.fixture
def world(tmp_path: Path, zookeeper_address: str) -> World:
    return World(tmp_path, zookeeper_address)


def at_once(world: World, *releases: Installed, count: int = 12) -> None:
    """Programs of these releases write the table at the same time."""
    programs = [each.start(values=world.values(count), deletes=True, **world.at) for each in releases]
    for program in programs:
        with program:
            output, _ = program.communicate(timeout=120)
        assert program.returncode == 0, output
        world.note(output)


def test_without_a_raised_number_clients_are_replaced_one_by_one_and_back(world: World, older: Installed, named: Installed) -> None:
    assert (older.version, named.version) == (__version__, "0.2.0")
    world.note("\n".join(map(json.dumps, older.run(creates=True, values=world.values(3), **world.at))))
    at_once(world, older, older, named)
    with named.start(values=world.values(500), **world.at) as killed:
        assert killed.stdout is not None
        first = [killed.stdout.readline() for _ in range(6)]
        [clients] = [fact["clients"] for fact in older.run(clients=True, **world.at)]
        assert clients == [__version__, "0.2.0"]
        killed.kill()
        world.note("".join([*first, *killed.stdout.readlines()]))
    at_once(world, named, named, older)
    at_once(world, named, named)
    at_once(world, older, older)  # and back
    assert world.check(unknown=1) == {f"sluice/{__version__}", "sluice/0.2.0"}


def test_with_a_raised_rendering_an_older_client_waits_for_a_newer_one(world: World, older: Installed, newer: Installed) -> None:
    world.note("\n".join(map(json.dumps, older.run(creates=True, values=world.values(3), **world.at))))
    at_once(world, older, newer, newer)
    newer.run("after-ratify", values=world.values(1), **world.at)
    world.ids.add(world.next)  # it is ratified
    started = time.monotonic()
    [refused] = older.run(delete=1000, wait_s=1.0, timeout_s=4, **world.at)
    assert "ProtocolMismatch" in refused["error"], refused  # type: ignore[operator]
    assert "rendering" in str(refused["message"])
    assert time.monotonic() - started < 30
    world.note("\n".join(map(json.dumps, newer.run(values=world.values(1), **world.at))))  # let a newer client commit once
    at_once(world, older, older)  # and go back
    world.note("\n".join(map(json.dumps, older.run(delete=1000, **world.at))))
    assert world.check() == {f"sluice/{__version__}", "sluice/0.2.0"}
    shapes = ["shape" in file.read_text() for file in sorted(Path(world.at["location"]).glob("_delta_log/*.json"))]
    assert any(shapes)
    assert not all(shapes)


@pytest.mark.parametrize(
    ("constant", "dies_at", "heard"),
    [
        ("INTENT_FORMAT", "after-claim", "OutcomeUnknown"),
        ("BATCH_FORMAT", "after-ratify", "ProtocolMismatch"),
        ("HEAD_FORMAT", "", "ProtocolMismatch"),
        ("PUBLISHED_FORMAT", "", "ProtocolMismatch"),
        ("NODE_PROTOCOL", "", "ProtocolMismatch"),
    ],
)
def test_an_older_client_does_nothing_with_what_it_does_not_know(
    world: World, older: Installed, tmp_path: Path, constant: str, dies_at: str, heard: str
) -> None:
    """The rows of the page's table; where it says that this passes, a newer client lets the older one go on."""
    newer = install(tmp_path, (*raised(constant), *_KNOWS_THE_FORMAT_BEFORE.get(constant, ())))
    creates = newer if constant == "NODE_PROTOCOL" else older
    world.note("\n".join(map(json.dumps, creates.run(creates=True, values=world.values(2), **world.at))))
    if constant != "NODE_PROTOCOL":
        world.note("\n".join(map(json.dumps, newer.run(values=world.values(1), **world.at))))
    if dies_at:
        newer.run(dies_at, values=world.values(1), fast_path=constant != "INTENT_FORMAT", **world.at)
        world.ids.add(world.next)
    before = sorted(Path(world.at["location"]).rglob("*.json"))
    mine = world.values(1)
    order: dict[str, Any] = {"values": mine} if constant == "INTENT_FORMAT" else {"delete": 1000}
    *_, said = older.run(wait_s=1.0, timeout_s=3, **order, **world.at)
    assert heard in said["error"], said  # type: ignore[operator]
    assert "this release of sluice knows up to" in f"{said['message']}{said['cause']}" or constant == "NODE_PROTOCOL"
    assert sorted(Path(world.at["location"]).rglob("*.json")) == before
    [read] = older.run(reads=True, **world.at)
    assert read["rows"] == len(world.ids) - (1 if dies_at else 0)
    if dies_at:
        world.note("\n".join(map(json.dumps, newer.run(values=world.values(1), **world.at))))
        world.ids |= set(mine) if constant == "INTENT_FORMAT" else set()  # it was filed, and is decided now
        rows = deltalake.DeltaTable(world.at["location"]).to_pyarrow_table()["id"].to_pylist()
        assert sorted(rows) == sorted(world.ids)
