"""`sluice tables` and `sluice namespaces`."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import sluice
from sluice.cli import main
from tests.tables.conftest import FLIGHTS


@pytest.fixture
def coordinator(monkeypatch: pytest.MonkeyPatch) -> str:
    address = f"memory://{uuid.uuid4().hex}"
    monkeypatch.setenv("SLUICE_COORDINATOR", address)
    return address


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


def lines(*arguments: str) -> list[str]:
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return result.output.splitlines()


def test_from_the_root_to_the_vacuum(coordinator: str, tmp_path: Path) -> None:
    assert lines("namespaces", "root") == ["root: none"]
    assert lines("namespaces", "root", str(tmp_path / "lake")) == [f"root: file://{tmp_path}/lake"]
    assert lines("namespaces", "create", "Sales", "--comment", "shops", "--property", "owner=a") == ["created: Sales"]
    assert [line.split()[0] for line in lines("namespaces") if line[0] != "─"] == ["name", "default", "Sales"]
    table = sluice.Catalog().create("sales.Orders", FLIGHTS)
    assert table.location.startswith(f"file://{tmp_path}/lake/sales/orders-")
    assert "Sales.Orders" in lines("tables")[2]
    assert "managed" in lines("tables", "sales")[2]
    assert lines("tables", "show", "SALES.ORDERS")[:3] == ["name: Sales.Orders", f"location: {table.location}", "kind: managed"]
    assert lines("tables", "rename", "sales.orders", "Bills") == [f"renamed: default.Bills at {table.location}"]
    assert lines("tables", "drop", "bills", "--yes") == ["dropped: default.Bills; sluice tables undrop default.Bills brings it back"]
    assert "can be brought back" in "".join(lines("tables", "dropped"))
    assert run("tables", "show", "bills").exit_code == 2
    assert lines("tables", "undrop", "bills", "--as", "sales.back") == [f"brought back: Sales.back at {table.location}"]
    assert run("namespaces", "drop", "sales").exit_code == 2
    assert lines("tables", "drop", "sales.back", "--keep-data", "--yes") == [
        f"name taken away: Sales.back; the table stays at {table.location}"
    ]
    assert lines("tables", "register", "sales.again", table.location) == [f"registered: Sales.again at {table.location}"]
    assert run("tables", "drop", "sales.again", "--with-data").exit_code == 1, "not without a yes"
    assert lines("tables", "drop", "sales.again", "--with-data", "--yes")
    assert lines("tables", "vacuum", "--yes") == ["nothing to delete"]
    assert lines("tables", "vacuum", "--retain-hours", "0", "--yes")[0].startswith(f"deleted: {table.location}; ")
    assert lines("namespaces", "drop", "sales") == ["dropped: sales"]


def test_what_is_wrong_is_told_in_one_line(coordinator: str) -> None:
    result = run("tables", "show", "a.b.c")
    assert result.exit_code == 2
    assert result.output.startswith("sluice: InvalidName: 'a.b.c' has 3 parts")
    assert run("tables", "nothing").output.startswith("sluice: NamespaceNotFound: ")
