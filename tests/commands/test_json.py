"""The keys of `--json` are those that docs/operations.md names."""

from __future__ import annotations

import json
import re
import shutil
import uuid
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import click
import pyarrow as pa
import pytest
from click.testing import CliRunner

import sluice
from sluice.cli import main
from sluice.coordinator import contention
from sluice.operating.document import Server
from sluice.tables.manage.recovery import HalfDone
from tests.tables.conftest import Place
from tests.tables.elsewhere import lose_everything
from tests.test_docs_tables import rows, section

ONES = pa.table({"id": [1]})
NAMES_OF_DATA = {"console", "daemon", "dev", "exporter", "properties", "status", "top", "with-lease"}
"""Commands whose keys are names of variables and properties, or that run programs; the document of `status` has a schema of its own."""
SELDOM = {
    "compact": {"commits"},
    "outcome": {"error", "reason"},
    "health": {f"servers.{each}" for each in Server.__struct_fields__},
    "recover": {f"half_done.{each.name}" for each in fields(HalfDone)},
}
"""Keys of many commits, of a refusal after filing, of an ensemble, and of a transaction whose other table is lost."""


class Keys:
    """Runs commands, and notes the keys of their JSON."""

    def __init__(self, coordinator: str) -> None:
        self.coordinator = coordinator
        self.noted: dict[str, set[str]] = defaultdict(set)

    def of(self, command: str, *arguments: str) -> Any:
        """What the command prints; `recover --all` is a command of its own here."""
        result = CliRunner().invoke(main, [*command.split(), *arguments, "--coordinator", self.coordinator, "--json"])
        assert result.exception is None or isinstance(result.exception, SystemExit), result.output
        said = json.loads(result.stdout)
        for each in said if isinstance(said, list) else [said]:
            self.noted[command].update(_keys(each))
        return said


def _keys(facts: dict[str, Any]) -> Iterator[str]:
    """The keys, and as `outer.inner` those of the objects in lists."""
    for key, value in facts.items():
        yield key
        for each in value if isinstance(value, list) else ():
            yield from (f"{key}.{inner}" for inner in each) if isinstance(each, dict) else ()


@pytest.fixture
def keys() -> Keys:
    return Keys(f"memory://{uuid.uuid4().hex}")


def _with_names(keys: Keys, folder: Path) -> None:
    keys.of("namespaces root", str(folder / "lake"))
    keys.of("namespaces create", "s", "--comment", "shops")
    keys.of("namespaces list")
    catalog = sluice.Catalog(keys.coordinator)
    catalog.create("s.m", ONES.schema)
    keys.of("create", str(folder / "x"), "--schema", "id bigint")
    keys.of("tables register", "s.x", str(folder / "x"))
    keys.of("tables rename", "s.x", "s.y")
    keys.of("tables list")
    keys.of("tables show", "s.y")
    keys.of("tables drop", "s.y", "--yes")
    keys.of("tables drop", "s.m", "--yes")
    keys.of("tables dropped")
    keys.of("tables undrop", "s.m")
    catalog.drop("s.m")
    assert keys.of("tables vacuum", "--retain-hours", "0", "--yes")
    keys.of("namespaces drop", "s")


def _with_transactions(keys: Keys, table: sluice.Table) -> None:
    table.append(ONES)
    commit = table.append(ONES)
    assert commit is not None
    keys.of("outcome", table.location, commit.transaction_id)
    late = table.begin()
    late.overwrite(ONES)
    table.delete("id = 1")
    with pytest.raises(sluice.errors.NotCommitted):
        late.commit()
    keys.of("outcome", table.location, late.id)
    contention._recorder.flush(5)  # it is filed within ten seconds
    assert keys.of("conflicts")
    for _ in range(2):
        table.append(ONES)
    keys.of("compact", table.location)
    keys.of("show", table.location)
    assert keys.of("history", table.location)
    assert keys.of("vacuum", table.location, "--retain-hours", "0", "--force", "--dry-run")["garbage"]
    keys.of("clients")
    keys.of("health")


def _with_leases_and_consumers(keys: Keys, table: sluice.Table) -> None:
    lease = table.lease(name="load")
    [held] = keys.of("leases list", table.location)["leases"]
    keys.of("leases break", table.location, held["lease"], "--yes")
    assert keys.of("leases list", table.location)["broken"]
    keys.of("quotas set", "--slots", "5")
    assert keys.of("quotas list")
    keys.of("quotas remove")
    lease.release()
    with table.consumer("copy", after=0) as consumer:
        next(consumer)
        consumer.commit()
    assert keys.of("consumers list", table.location)
    keys.of("consumers reset", table.location, "copy", "--to", "earliest", "--yes")
    keys.of("consumers remove", table.location, "copy", "--yes")
    keys.of("move", table.location, "--to", keys.coordinator)


def _to_the_end(keys: Keys, table: sluice.Table, folder: Path) -> None:
    former = table.properties["sluice.coordinator"]
    table.begin().append(ONES)
    again = ["--wait-s", "0", "--former", former]
    other = sluice.Table.create(folder / "all" / "t", ONES.schema, coordinator=keys.coordinator)
    (folder / "t" / min(table.snapshot().raw.files["path"].to_pylist())).unlink()
    assert keys.of("doctor", table.location)["findings"]
    lose_everything(Place(table.location, keys.coordinator))
    assert keys.of("recover", table.location, *again)["incomplete"]
    keys.of("recover --all", str(folder / "all"), "--wait-s", "0", "--former", former)
    keys.of("detach", table.location)
    keys.of("attach", table.location)
    keys.of("drop", table.location, "--yes")
    shutil.rmtree(folder / "all")
    keys.of("forget", other.location)
    sluice.Table.create(folder / "last", ONES.schema, coordinator=keys.coordinator)
    keys.of("tree backup", str(folder / "backup"))
    lose_everything(Place(table.location, keys.coordinator))
    keys.of("tree restore", str(folder / "backup"), "--wait-s", "0")


def _commands(group: click.Group, *above: str) -> Iterator[str]:
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        if isinstance(command, click.Group):
            yield from _commands(command, *above, name)
        elif command is not None and any(each.name == "as_json" for each in command.params):
            yield " ".join([*above, name])


def test_the_keys_of_json_are_documented(keys: Keys, tmp_path: Path) -> None:
    table = sluice.Table.create(tmp_path / "t", ONES.schema, coordinator=keys.coordinator)
    _with_names(keys, tmp_path)
    _with_transactions(keys, table)
    _with_leases_and_consumers(keys, table)
    _to_the_end(keys, table, tmp_path)
    for command, more in SELDOM.items():
        keys.noted[command] |= more
    assert set(keys.noted) == {*_commands(main)} - NAMES_OF_DATA | {"recover --all"}
    table_of_keys = rows(section("operations.md", "JSON"))
    assert {command.strip("`"): set(re.findall(r"`([^`]+)`", said)) for command, said in table_of_keys} == dict(keys.noted)
