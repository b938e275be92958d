"""What people type beside SQL, and what the shell says beside rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from sluice.cli import main
from sluice.shell.engines import Engines
from sluice.shell.prompting import Completing, order_in, typed
from sluice.shell.running import Shell, ShellOptions
from sluice.statements.duckdb.queries import LocalRequest


@pytest.fixture
def run(coordinator: str) -> Callable[..., Any]:
    return lambda *arguments: CliRunner().invoke(main, ["sql", "--engine", "local", "--coordinator", coordinator, *arguments])


@pytest.mark.parametrize(
    ("text", "order"),
    [
        ("help", "help"),
        ("?", "help"),
        ("\\help", "help"),
        ("HELP;", "help"),
        ("exit", "quit"),
        ("\\q;", "quit"),
        ("SELECT 1,\n\\q", "quit"),
        ("SELECT 1,\nquit", None),
        ("\\x", "expanded"),
        ("\\timing ", "timing"),
        ("SELECT help", None),
        ("", None),
    ],
)
def test_orders_are_known(text: str, order: str | None) -> None:
    assert order_in(text) == order


def test_q_ends_the_shell_in_the_middle_of_a_statement(coordinator: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("SLUICE_HOME", str(tmp_path / "home"))
    completing = Completing(lambda text: LocalRequest(text, None, coordinator))
    with create_pipe_input() as keys, create_app_session(input=keys, output=DummyOutput()):
        keys.send_text("\\x\rSELECT 1;\rSELECT 2,\r\\q\rSELECT 3;\r")
        assert list(typed(completing)) == ["\\x", "SELECT 1;"]


def _typed(coordinator: str, monkeypatch: pytest.MonkeyPatch, *texts: str) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("sluice.shell.running.typed", lambda _: iter(texts))
    assert Shell(ShellOptions(coordinator=coordinator, engine="local")).run() == 0


def test_help_timing_and_expanded_rows(coordinator: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    _typed(coordinator, monkeypatch, "\\help", "SELECT 1 AS a;", "\\x", "\\timing", "SELECT 2 AS a, 3 AS b;", "\\x", "SELECT 4 AS c;")
    shown = capsys.readouterr()
    for word in ("\\timing", "\\x", "\\q", "USE sales", "sluice.`/a/path`"):
        assert word in shown.err
    table, listed = shown.out.split("row 1", 1)
    assert table == "a\n─\n1\n"
    assert listed.split() == ["a", "2", "b", "3", "c", "─", "4"]
    first, second, third = [line for line in shown.err.splitlines() if line.startswith("-- by")]
    assert first.endswith(" s")
    assert second == third == "-- by DuckDB: 1 row"


def test_use_needs_no_spark(run: Callable[..., Any]) -> None:
    script = """
    CREATE NAMESPACE shop; USE shop;
    CREATE TABLE t (id INT) USING sluice; INSERT INTO t VALUES (1), (2); UPDATE t SET t.id = 3 WHERE id = 1;
    WITH t2 AS (SELECT * FROM t) SELECT sum(t.id) AS n FROM t JOIN t2 ON t.id = t2.id;
    SHOW TABLES;
    USE sales; SHOW TABLES; CREATE TABLE u AS SELECT id FROM shop.t; USE NAMESPACE shop; SELECT count(*) AS n FROM sales.u, t;
    BEGIN ATOMIC INSERT INTO t SELECT 7; DELETE FROM t WHERE id = 2; END; SELECT * FROM t ORDER BY id;
    SELECT count(*) AS n FROM table_changes('t', 1, 1);
    """
    done = run("--json", "-e", script)
    assert done.exit_code == 0, done.stderr
    assert [line for line in done.stdout.splitlines() if not line.startswith('{"statement"')] == [
        '{"num_affected_rows":1}',
        '{"n":5}',
        '{"namespace":"shop","tableName":"t","isTemporary":false}',
        '{"n":4}',
        '{"id":3}',
        '{"id":7}',
        '{"n":2}',
    ]
    assert "there is no namespace shopp; did you mean shop?" in run("-e", "USE shopp").stderr
    assert run("-e", "USE").exit_code == 2


def test_an_insert_says_rows_and_version(run: Callable[..., Any]) -> None:
    run("-e", "CREATE TABLE sales.t (id INT) USING sluice")
    assert run("-e", "INSERT INTO sales.t VALUES (1), (2)").stderr.startswith("-- by sluice: 2 rows written, version 1, ")


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM `/tmp/t`",
        "SELECT * FROM '/tmp/t' WHERE id = 1",
        'SELECT * FROM "/tmp/t"',
        "SELECT * FROM /tmp/t",
        "FROM /tmp/t;",
        "SELECT (SELECT count(*) FROM '/tmp/t')",
        "WITH `a/b` AS (SELECT 1 AS id) SELECT * FROM `a/b` JOIN '/tmp/t' USING (id)",
        "INSERT INTO '/tmp/t' VALUES (1)",
        "DELETE FROM /tmp/t",
        "UPDATE /tmp/t SET id = 1",
        "DESCRIBE '/tmp/t'",
    ],
)
def test_a_location_without_sluice_gets_a_hint(run: Callable[..., Any], statement: str) -> None:
    done = run("-e", statement)
    assert (done.exit_code != 0, "a location is written sluice.`/tmp/t`" in done.stderr) == (True, True), done.stderr


def test_a_location_with_a_scheme_gets_the_hint_and_other_text_none(run: Callable[..., Any]) -> None:
    for statement in ("SELECT * FROM s3://b/t", "SELECT * FROM 's3://b/t'"):
        assert "a location is written sluice.`s3://b/t`" in run("-e", statement).stderr
    assert "a location" not in run("-e", "SELECT '/a' FROM /* a/b */t").stderr
    done = run("--csv", "-e", "WITH `a/b` AS (SELECT trim(BOTH '/' FROM '/x/') AS c) SELECT c FROM `a/b`")
    assert done.stdout.split() == ["c", "x"]


def test_a_managed_table_without_a_root_says_how_to_get_one() -> None:
    address = "memory://no-root"
    done = CliRunner().invoke(main, ["sql", "--engine", "local", "--coordinator", address, "-e", "CREATE TABLE t (id INT) USING sluice"])
    assert "CREATE TABLE ... LOCATION" in done.stderr
    assert "sluice namespaces root LOCATION" in done.stderr


def test_the_shell_says_why_it_starts_spark(coordinator: str, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []

    def on_spark(self: Engines, _: str) -> pa.Table:
        self._session = type("Session", (), {"version": "4"})()
        return pa.table({"a": [1]})

    monkeypatch.setattr(Engines, "_on_spark", on_spark)
    engines = Engines(coordinator=coordinator, tell=said.append)
    for _ in range(2):
        engines.run("SELECT frobnicate(1)")
    why = "DuckDB has no frobnicate, or one that may give another answer than Spark's"
    assert said == [f"-- starting Spark: this statement needs it ({why})"]
