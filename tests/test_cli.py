"""The command line: what it prints, on which stream, and with which exit status."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path
from typing import Any

import click
import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

from sluice import Commit, Table, __version__
from sluice.cli import main
from sluice.commands.parts import print_grid
from sluice.coordinator.errors import CoordinatorUnavailable
from sluice.storage.stores.location import open_store
from tests.tables.conftest import Place
from tests.tables.elsewhere import lose_everything

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("origin", pa.string())])


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": list(ids), "origin": ["JFK"] * len(ids)}, schema=SCHEMA)


def sluice(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


def refused(*arguments: str) -> str:
    """What a command that must be changed says."""
    result = sluice(*arguments)
    assert result.exit_code == 2, result.output
    return result.stderr


def told(*arguments: str) -> Any:
    """What a command prints as JSON."""
    result = sluice(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.fixture
def coordinator() -> str:
    return f"memory://{uuid.uuid4().hex}"


@pytest.fixture
def table(tmp_path: Path, coordinator: str) -> Table:
    """A table with three rows in two versions after its first."""
    properties = {"delta.constraints.counted": "id > 0"}
    created = Table.create(
        tmp_path / "t", SCHEMA, partition_by=["origin"], properties=properties, coordinator=coordinator, application="nightly"
    )
    created.append(rows(1, 2))
    created.append(rows(3))
    return created


@pytest.mark.parametrize("command", ["attach", "clients", "detach", "dev", "explain", "history", "outcome", "show"])
def test_each_command_explains_itself(command: str) -> None:
    result = sluice(command, "--help")
    assert (result.exit_code, result.stdout.startswith("Usage: ")) == (0, True)
    assert sluice("--version").stdout.strip().endswith(__version__)


def test_show_counts_in_json_and_text(table: Table, coordinator: str) -> None:
    facts = told("show", table.location)
    assert (facts["location"], facts["partitioned_by"]) == (table.location, ["origin"])
    assert (facts["version"], facts["files"], facts["rows"]) == (2, 2, 3)
    assert facts["column"] == {"id": "int64 not null", "origin": "string"}
    assert facts["property"]["delta.constraints.counted"] == "id > 0"
    shown = sluice("show", table.location, "--coordinator", coordinator).stdout
    for line in ("version: 2", "rows: 3", "partitioned by: origin", "property: delta.constraints.counted = id > 0"):
        assert f"{line}\n" in shown


def test_show_does_not_guess_the_rows_of_files_without_statistics(table: Table) -> None:
    store = open_store(table.location)
    name = "_delta_log/00000000000000000002.json"
    actions = [json.loads(line) for line in store.get(name).splitlines()]
    for action in actions:
        action.get("add", {}).pop("stats", None)
    store.put(name, b"".join(json.dumps(action).encode() + b"\n" for action in actions))
    assert told("show", table.location)["rows"] is None
    assert "rows: unknown\n" in sluice("show", table.location).stdout


@pytest.mark.parametrize("coordinated", [False, True])
def test_history_newest_first_in_json_and_text_and_its_limit(table: Table, coordinator: str, coordinated: bool) -> None:
    entries = told("history", table.location, *(["--coordinator", coordinator] if coordinated else []))
    assert [(each["version"], each["operation"]) for each in entries] == [(2, "WRITE"), (1, "WRITE"), (0, "CREATE TABLE")]
    assert {each["application"] for each in entries} == {"nightly"}
    assert all(each["waited_ms"] >= 0 and each["time"].endswith("Z") for each in entries)
    head, line, newest, _ = sluice("history", table.location, "--limit", "2").stdout.splitlines()
    assert (head.split()[:4], set(line)) == (["version", "ordinal", "time", "operation"], {"─"})
    assert (newest.split()[0], "nightly" in newest) == ("2", True)


def test_outcome_of_a_transaction(table: Table, coordinator: str) -> None:
    commit = table.append(rows(4))
    assert isinstance(commit, Commit)
    facts = told("outcome", table.location, commit.transaction_id, "--coordinator", coordinator)
    assert (facts["state"], facts["version"], facts["ordinal"]) == ("committed", 3, 0)
    unheard = told("outcome", table.location, str(uuid.uuid4()), "--coordinator", coordinator)
    assert (unheard["state"], "version" in unheard) == ("unknown", False)


def test_detach_and_attach(table: Table, coordinator: str) -> None:
    options = (table.location, "--coordinator", coordinator)
    assert told("detach", *options) == {"detached": table.location, "version": 3}
    assert "NotATable" in refused("history", *options)
    assert told("attach", *options) == {"attached": table.location, "version": 4}
    assert told("attach", *options)["version"] == 4, "an attached table is left as it is"


def test_clients(table: Table, coordinator: str) -> None:
    (client,) = told("clients", "--coordinator", coordinator)
    assert (client["pid"], client["application"]) == (os.getpid(), "nightly")
    assert str(os.getpid()) in sluice("clients", "--coordinator", coordinator).stdout


@pytest.mark.parametrize(
    ("arguments", "error", "remedy"),
    [
        (["show", "/there/is/none"], "TableNotFound", "check the location"),
        (["show", "ftp://host/t"], "UnknownScheme", "s3://"),
        (["history", "/t", "--coordinator", "host:2181"], "UnknownScheme", "zk://host:2181"),
        (["show", "s3://bucket/t", "--storage-option", "color=red"], "InvalidRequest", "known are"),
    ],
)
def test_a_call_that_must_be_changed(arguments: list[str], error: str, remedy: str) -> None:
    said = refused(*arguments)
    assert said.startswith(f"sluice: {error}: ")
    assert remedy in said
    assert len(said.splitlines()) == 1


def test_what_click_refuses_is_refused_in_its_words() -> None:
    assert "Error: No such command 'demo'." in refused("demo")
    assert "name=value" in refused("show", "/t", "--storage-option", "region")


def test_an_error_of_the_world_has_status_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def down(*_arguments: object, **_options: object) -> Table:
        raise CoordinatorUnavailable("nobody answers\nat host:2181")

    monkeypatch.setattr(Table, "attach", down)
    result = sluice("attach", str(tmp_path))
    assert (result.exit_code, result.stderr) == (1, "sluice: CoordinatorUnavailable: nobody answers at host:2181\n")


@pytest.mark.zookeeper
@pytest.mark.slow
def test_dev_runs_what_its_settings_say() -> None:
    """A program that gets the printed settings makes a table on that server, through that coordinator."""
    program = (
        "import pyarrow as pa, sluice; t = sluice.Table.create('s3://tables/t', pa.schema([('id', pa.int64())]));"
        "print(t.append(pa.table({'id': [1]})).version)"
    )
    command = [sys.executable, "-m", "sluice", "dev", "--bucket", "tables", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            settings = json.loads("".join(iter(server.stdout.readline, "}\n")) + "}")
            assert settings["SLUICE_COORDINATOR"] == "embedded://"
            used = subprocess.run(
                [sys.executable, "-c", program], env={**os.environ, **settings}, capture_output=True, text=True, timeout=60, check=False
            )
            assert used.stdout == "1\n", used.stderr
        finally:
            server.send_signal(signal.SIGINT)
    assert server.returncode == 0


# -- vacuum and recover --------------------------------------------------------------------------------------------------


def test_vacuum_tells_what_it_would_delete_and_deletes_it(table: Table, coordinator: str) -> None:
    table.overwrite(rows(4))
    place = [table.location, "--coordinator", coordinator]
    assert "shorter than the 168 hours" in refused("vacuum", *place, "--retain-hours", "0")
    dry = sluice("vacuum", *place, "--retain-hours", "0", "--force", "--dry-run")
    assert dry.exit_code == 0, dry.output
    assert dry.stdout.count("origin=JFK/part-00000-") == 2
    assert dry.stdout.splitlines()[-1].startswith("would delete: 2 files (2 replaced), ")
    told_by = told("vacuum", *place, "--retain-hours", "0", "--force")
    assert [each["reason"] for each in told_by["garbage"]] == ["replaced", "replaced"]
    assert (told_by["dry_run"], told_by["retain_hours"], told_by["log_files"]) == (False, 0.0, [])
    assert sluice("vacuum", *place).stdout == "deleted: 0 files (none), 0 bytes; 0 files of the log\n"


def test_recover_rebuilds_a_table_for_another_coordinator(table: Table, coordinator: str) -> None:
    assert sluice("recover", table.location, "--coordinator", coordinator).exit_code == 2
    begun = table.begin()
    begun.append(rows(9))
    fresh, former = f"memory://{uuid.uuid4().hex}", table.properties["sluice.coordinator"]
    command = ("recover", table.location, "--coordinator", fresh, "--wait-s", "0")
    assert f"--former {former}" in refused(*command)
    assert "is alive" in refused(*command, "--former", former)
    lose_everything(Place(table.location, coordinator))
    result = sluice(*command, "--former", former)
    assert result.exit_code == 0, result.output
    assert "the log is at version 2" in result.stderr
    lines = result.stdout.splitlines()
    assert lines[0] == f"recovered: {table.location} goes on from version 3"
    assert begun.id in lines[-1]
    refused(*command, "--json")
    assert Table.open(table.location, coordinator=fresh).append(rows(10)) is not None


# -- create, properties, compact ----------------------------------------------------------------------------------------


def test_create_makes_the_table_that_is_described(tmp_path: Path, coordinator: str) -> None:
    schema = "id bigint not null, origin string, tags map<string, decimal(10,2)>"
    place = [str(tmp_path / "t"), "--coordinator", coordinator]
    made = told("create", *place, "--schema", schema, "--partition-by", "origin", "--property", "delta.enableDeletionVectors=true")
    assert made == {"created": f"file://{tmp_path}/t", "version": 0}
    table = Table.open(tmp_path / "t", coordinator=coordinator)
    assert [(field.name, field.nullable) for field in table.schema] == [("id", False), ("origin", True), ("tags", True)]
    assert (table.partition_columns, table.properties["delta.enableDeletionVectors"]) == (("origin",), "true")
    assert "TableExists" in refused("create", *place, "--schema", schema)


def test_a_clustered_table_is_created_and_compacted(tmp_path: Path, coordinator: str) -> None:
    place = [str(tmp_path / "t"), "--coordinator", coordinator]
    told("create", *place, "--schema", "id bigint, origin string", "--cluster-by", "origin", "--cluster-by", "id")
    table = Table.open(tmp_path / "t", coordinator=coordinator)
    assert table.clustering_columns == ("origin", "id")
    table.append(pa.table({"id": [1], "origin": ["JFK"]}))
    assert told("compact", *place, "--mode", "full")["version"] == 2
    assert told("compact", *place)["version"] is None


@pytest.mark.parametrize(("schema", "reason"), [("id", "not a field"), ("", "no column"), ("id nonsense", "not a type of Spark SQL")])
def test_a_schema_that_is_none_is_refused_before_anything_is_made(schema: str, reason: str, tmp_path: Path, coordinator: str) -> None:
    assert reason in refused("create", str(tmp_path / "t"), "--coordinator", coordinator, "--schema", schema)
    assert not (tmp_path / "t").exists()


def test_properties_are_shown_set_and_taken_away(table: Table, coordinator: str) -> None:
    place = [table.location, "--coordinator", coordinator]
    assert "delta.constraints.counted = id > 0\n" in sluice("properties", table.location).stdout
    changed = told("properties", *place, "--set", "delta.checkpointInterval=20", "--unset", "delta.constraints.counted")
    assert changed["delta.checkpointInterval"] == "20"
    assert "delta.constraints.counted" not in changed
    assert "either set or removed" in refused("properties", *place, "--set", "a.b=1", "--unset", "a.b")


def test_compact_merges_files_once(table: Table, coordinator: str) -> None:
    place = [table.location, "--coordinator", coordinator]
    assert sluice("compact", *place).stdout == f"compacted: {table.location} in version 3; 2 files became 1\n"
    assert sluice("compact", *place).stdout == f"nothing to compact: {table.location}\n"
    ordered = told("compact", *place, "--z-order-by", "id", "--where", "origin = 'JFK'")
    assert (ordered["version"], ordered["added_files"]) == (4, "1")
    assert "depends on rows" in refused("compact", *place, "--where", "id = 1")


# -- what nobody expected ----------------------------------------------------------------------------------------------------


def fail(*_: Any, **__: Any) -> None:
    raise KeyError("a\nb")


def test_an_unexpected_error_ends_in_two_lines_and_a_report(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(Table, "open", fail)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    result = sluice("show", str(tmp_path))
    assert result.exit_code == 1
    first, second = result.stderr.splitlines()
    assert first == "sluice: unexpected KeyError: 'a\\nb'"
    assert second.startswith(f"this is a bug of sluice; the report is in {tmp_path}/sluice-report-")
    report = Path(second.rpartition(" ")[2]).read_text()
    assert report.startswith(f"sluice {__version__}\nTraceback")
    assert report.endswith("KeyError: 'a\\nb'\n")
    shown = sluice("--debug", "show", str(tmp_path))
    assert isinstance(shown.exception, KeyError)


@pytest.mark.costly
def test_a_location_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    location = os.fsencode(tmp_path / "t") + b"\xff"
    for command in ("show", "doctor", "drop", "leases", "attach"):
        done = subprocess.run([sys.executable, "-m", "sluice", command, location], capture_output=True, text=True, check=False, timeout=60)
        assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
        assert "InvalidArgument: location is" in done.stderr


def test_sizes_and_times_without_sense_are_refused(table: Table, coordinator: str) -> None:
    for words in (["vacuum", "--retain-hours", "1e15"], ["vacuum", "--retain-hours", "nan"], ["compact", "--target-file-size", "9" * 400]):
        command, *options = words
        assert len(refused(command, table.location, "--coordinator", coordinator, *options)) < 600


def test_the_help_imports_no_command() -> None:
    """Modules are counted, since time depends on the machine: 640 were loaded before, pyarrow, rich and kazoo among them."""
    code = "import sys, sluice.cli; sluice.cli.main(['--help'], standalone_mode=False); print(len(sys.modules), 'pyarrow' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    *shown, last = done.stdout.splitlines()
    modules, has_arrow = last.split()
    assert has_arrow == "False"
    assert int(modules) < 250
    groups = ["Tables:", "Names:", "Care:", "Coordination:", "Programs:"]
    assert [line for line in shown if line in groups] == groups


def test_each_command_is_where_the_help_says() -> None:
    for name in main.list_commands(click.Context(main)):
        command = main.get_command(click.Context(main), name)
        assert command is not None
        assert command.name == name
        assert command.help


def test_ids_are_folded_and_empty_lists_say_so(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sluice.shell.printing.PIPE_WIDTH", 40)
    print_grid(("id", "more"), [{"id": "0123456789" * 5, "more": "abcdefghij" * 3}])
    shown = capsys.readouterr().out
    assert "…" not in shown
    assert sum(each.isdigit() for each in shown) == 50
    print_grid(("id",), [])
    assert capsys.readouterr().out == "none\n"
