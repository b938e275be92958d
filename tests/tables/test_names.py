"""Names are data, wherever somebody may choose them: ways up, control characters, quotes, and text of every kind."""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

import sluice
from sluice import Table
from sluice.cli import main as sluice_command
from sluice.coordinator.errors import LeaseHeld
from sluice.coordinator.nodes.layout import TABLES, TableTree
from sluice.coordinator.service.connect import close_all, connect
from sluice.storage.errors import InvalidRequest

SCHEMA = pa.schema([("p", pa.string()), ("i", pa.int64())])
NAMES = [
    "it's",
    'a "quoted" name',
    "..a..",
    "a b",
    "tab\tand\nline break",
    "\x01\x1b[31m\x7f",
    "ünïcode-ß-名前-\U0001f600",
    "right\u202eto left",
    "percent%2e%2e%2F%00",
    "a=b&c=d?e#f",
    "$(touch pwned)`touch pwned`",
    "'; DROP TABLE t; --",
    "{0} %s {name}",
    "a\\b",
    "__HIVE_DEFAULT_PARTITION__x",
    "x" * 200,
    "*[?",
]


on_zookeeper_too = pytest.mark.parametrize("coordinator", ["memory", pytest.param("zookeeper", marks=pytest.mark.zookeeper)], indirect=True)
"""Where the names themselves are in its nodes; the long run tries the others there, too."""


@pytest.fixture(params=["memory", pytest.param("zookeeper", marks=[pytest.mark.zookeeper, pytest.mark.long])])
def coordinator(request: pytest.FixtureRequest) -> Iterator[str]:
    yield f"memory://{uuid.uuid4().hex}" if request.param == "memory" else request.getfixturevalue("zookeeper_address")
    close_all()


def rows(values: list[str | None]) -> pa.Table:
    return pa.table({"p": pa.array(values, pa.string()), "i": range(len(values))})


@pytest.mark.parametrize("name", NAMES)
def test_a_table_may_be_called_anything(coordinator: str, tmp_path: Path, name: str) -> None:
    """And so may an application; the command line shows names and does nothing with them."""
    location = tmp_path / name
    table = Table.create(location, SCHEMA, coordinator=coordinator, application=name)
    assert table.append(rows([name])) is not None
    assert Table.open(location, coordinator=coordinator).snapshot().to_arrow().num_rows == 1

    def run(*words: str) -> Result:
        return CliRunner().invoke(sluice_command, [*words[:1], "--coordinator", coordinator, *words[1:]])

    result = run("history", "--json", "--", str(location))
    assert result.exit_code == 0, result.output
    assert {entry["application"] for entry in json.loads(result.output)} == {name}
    plain = run("history", "--", str(location))
    assert plain.exit_code == 0, plain.output
    missing = run("outcome", str(location), name)
    assert missing.exception is None or isinstance(missing.exception, SystemExit), missing.exception
    assert [each.name for each in tmp_path.iterdir()] == [name]
    keys = connect(coordinator).children(TABLES) or []
    assert keys == [TableTree(table.location).root.rpartition("/")[2]]
    assert keys[0].isascii()
    assert keys[0].isprintable()
    assert "/" not in keys[0]


ELSEWHERE = ["", "\0", "a\0b", "memory://../x", "memory://a//b", "s3://b/../x", "s3://b/a/./x", "s3://../x", "s3://", "s3:///x"]


@pytest.mark.parametrize("location", [*ELSEWHERE, "file://host/x", "bogus://x"])
def test_locations_that_lead_elsewhere_are_refused(coordinator: str, location: str) -> None:
    with pytest.raises(InvalidRequest):
        Table.create(location, SCHEMA, coordinator=coordinator)
    assert connect(coordinator).children(TABLES) in (None, [])


def test_ways_up_are_followed_before_a_table_has_a_name(coordinator: str, tmp_path: Path) -> None:
    table = Table.create(tmp_path / "a" / ".." / "t", SCHEMA, coordinator=coordinator)
    assert table.location == f"file://{tmp_path.resolve()}/t"
    assert Table.open(f"{tmp_path}/./b/../t", coordinator=coordinator).location == table.location


def test_partition_values_are_values(coordinator: str, tmp_path: Path) -> None:
    table = Table.create(tmp_path / "t", SCHEMA, partition_by=["p"], coordinator=coordinator)
    values = [*NAMES, "..", ".", "/", "a/../../b", "/etc/passwd", "s3://b/x", None]
    table.append(rows(list(values)))
    assert [each.name for each in tmp_path.iterdir()] == ["t"]
    read = table.snapshot().to_arrow()
    assert sorted(map(repr, read["p"].to_pylist())) == sorted(map(repr, values))
    for value in values:
        if value is not None:
            quoted = value.replace("\\", "\\\\").replace("'", "\\'")
            found = table.snapshot().to_arrow(where=f"p = '{quoted}'")["p"].to_pylist()
            assert found == [value], value
    quoted = "'; DROP TABLE t; --".replace("'", "\\'")
    table.delete(f"p = '{quoted}'")
    assert table.snapshot().to_arrow().num_rows == len(values) - 1


@pytest.mark.parametrize(
    "where",
    [
        "1=1; DROP TABLE t",
        "p = 'a' OR '1'='1",
        "(SELECT 1)",
        "p = (SELECT max(p) FROM t)",
        "i = 1 --",
        "p IN (SELECT p FROM t)",
        "\x00",
        "'",
        "`",
    ],
)
def test_conditions_are_conditions_or_refused(coordinator: str, tmp_path: Path, where: str) -> None:
    table = Table.create(tmp_path / "t", SCHEMA, coordinator=coordinator)
    table.append(rows(["a", "b"]))
    with contextlib.suppress(InvalidRequest):
        table.delete(where)
        assert where == "i = 1 --"  # a comment behind a condition is one
    assert table.snapshot().to_arrow().num_rows == (1 if where == "i = 1 --" else 2)


@on_zookeeper_too
def test_applications_and_transactions_of_any_name(coordinator: str, tmp_path: Path) -> None:
    table = Table.create(tmp_path / "t", SCHEMA, coordinator=coordinator)
    for name in NAMES:
        table = Table.open(tmp_path / "t", coordinator=coordinator, application=name)
        first, second = table.append(rows(["a"]), transaction=(name, 7)), table.append(rows(["a"]), transaction=(name, 7))
        assert first is not None
        assert second is not None
        assert (second.version, second.repeated) == (first.version, True)
    told = {entry.application for entry in table.history(None)}
    assert set(NAMES) <= told
    assert table.snapshot().to_arrow().num_rows == len(NAMES)


@on_zookeeper_too
@pytest.mark.parametrize("name", [*NAMES, "..", "/", "a/b", "../tables"])
def test_leases_of_any_name(coordinator: str, name: str) -> None:
    if not name.isprintable():
        with pytest.raises(InvalidRequest, match="printable"):
            sluice.lease(name, coordinator=coordinator)
        return

    def take() -> str:
        with sluice.lease(name, coordinator=coordinator, wait_s=0):
            return "granted"

    def take_another() -> str:
        with sluice.lease(f"{name}2"[-200:], coordinator=coordinator, wait_s=0):
            return "granted"

    with ThreadPoolExecutor(1) as elsewhere:
        with sluice.lease(name, coordinator=coordinator) as mine:
            assert mine.held
            assert [(each[:7], each.count("/")) for each in mine.nodes] == [("/names/", 4)]
            with pytest.raises(LeaseHeld):
                elsewhere.submit(take).result(20)
            assert elsewhere.submit(take_another).result(20) == "granted"
        assert elsewhere.submit(take).result(20) == "granted"
    store = connect(coordinator)
    assert store.children(TABLES) in (None, [])
    assert {each for each in store.children("/") or () if not each.isalpha()} == set()
