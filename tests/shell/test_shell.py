"""`sluice sql` as scripts and people use it."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner

import sluice
from sluice.cli import main
from sluice.shell.engines import Engines
from sluice.shell.printing import as_csv
from sluice.shell.prompting import Completing
from sluice.statements.duckdb.database import LocalRequest

Run = Callable[..., Any]


@pytest.fixture
def run(coordinator: str) -> Run:
    def run(*arguments: str, typed: str | None = None) -> Any:
        return CliRunner().invoke(main, ["sql", "--coordinator", coordinator, *arguments], input=typed)

    return run


def test_a_script_of_several_statements(run: Run, tmp_path: Path) -> None:
    script = tmp_path / "day.sql"
    made = "CREATE TABLE sales.t (id INT, name STRING) USING sluice; -- one; two\n"
    script.write_text(made + "INSERT INTO sales.t VALUES (1, 'a;b'), (2, NULL);")
    done = run("-f", str(script), "-e", "SELECT count(*) AS n FROM sales.t")  # -e comes first
    assert done.exit_code == 2
    assert "there is no table sales.t" in done.stderr
    assert run("-f", str(script)).exit_code == 0
    found = run("--json", "-e", "SELECT * FROM sales.t ORDER BY id; SELECT count(*) AS n FROM sales.t")
    assert [json.loads(line) for line in found.stdout.splitlines()] == [{"id": 1, "name": "a;b"}, {"id": 2, "name": None}, {"n": 2}]
    assert found.stderr.startswith("-- by DuckDB: 2 rows, ")
    assert run("--csv", typed="SELECT id, name FROM sales.t ORDER BY id").stdout == "id,name\n1,a;b\n2,\n"
    drawn = run("--max-rows", "1", "-f", "-", typed="SELECT id, name AS `the name` FROM sales.t ORDER BY id;").stdout
    assert "the name" in drawn
    assert "and 1 rows more" in drawn


def test_the_first_error_ends_a_script_and_shows_its_place(run: Run) -> None:
    done = run(typed="SELECT 1 AS a;\nSELECT 2\n  AS b, nothing;\nSELECT 3 AS c")
    assert done.exit_code == 2
    assert "line 3, column 9:" in done.stderr
    assert "\n    AS b, nothing\n          ^^^^^^^\n" in done.stderr
    assert "3" not in done.stdout
    assert run("-f", "/nowhere.sql").exit_code == 2


def test_values_come_from_the_command_line_and_stay_values(run: Run) -> None:
    done = run("--csv", "--arg", "x='; DROP TABLE t; --", "-e", "SELECT :x AS x")
    assert done.stdout == "x\n'; DROP TABLE t; --\n"
    assert run("-e", "SELECT :y").exit_code == 2
    nasty = "sales.`t; DROP TABLE sales.u; --`"
    assert run("-e", f"CREATE TABLE {nasty} (id INT) USING sluice").exit_code == 2
    assert run("-e", "CREATE TABLE sales.v (id INT) USING sluice LOCATION 'x://y' ; DROP TABLE t'").exit_code == 2
    assert json.loads(run("--json", "-e", "SHOW TABLES IN sales").stdout or "null") is None


def test_what_needs_spark_goes_there_or_says_so(coordinator: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    said: list[str] = []

    def on_spark(self: Engines, text: str) -> pa.Table:
        asked.append(text)
        self._session = type("Session", (), {"version": "4", "stop": lambda _: None})()
        return pa.table({"a": [1]})

    monkeypatch.setattr(Engines, "_on_spark", on_spark)
    auto = Engines(coordinator=coordinator, tell=said.append)
    why = "DuckDB has no frobnicate, or one that may give another answer than Spark's"
    for _ in range(2):
        result = auto.run("SELECT frobnicate(1)")
        assert (result.engine, result.why) == ("Spark 4", why)
    assert asked == ["SELECT frobnicate(1)"] * 2
    assert said == [f"-- starting Spark: this statement needs it ({why})"], "once"
    assert auto.run("SELECT 1").engine == "DuckDB"
    assert auto.run("SELECT * FROM a_view").why == "no table of the coordinator has this name"
    auto.close()
    with pytest.raises(sluice.errors.UnsupportedFeature, match="needs Spark"):
        Engines("local", coordinator=coordinator).run("SELECT frobnicate(1)")
    with pytest.raises(sluice.errors.InvalidRequest):
        Engines(coordinator=coordinator).run("SELECT nothing")
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(sluice.errors.UnsupportedFeature, match="needs Spark"):
        Engines(coordinator=coordinator).run("SELECT frobnicate(1)")


def test_words_are_completed(coordinator: str) -> None:
    schema = pa.schema([("customer", pa.int64())])
    catalog = sluice.Catalog(coordinator)
    catalog.create("sales.orders", schema)
    completing = Completing(lambda text: LocalRequest(text, None, coordinator))
    assert completing.begun("SELECT a, sales.o") == "sales.o"
    assert completing.candidates("SELECT * FROM sales.o", "sales.o") == ["sales.orders"]
    assert completing.candidates("SELECT c FROM sales.orders", "c")[0] == "customer"
    assert completing.candidates("SELECT o.c FROM sales.orders o", "o.c") == ["o.customer"]
    assert completing.candidates("UPDATE sales.orders SET cu", "cu") == ["customer"]
    assert completing.candidates("SEL", "SEL") == ["SELECT"]
    assert [completing.candidates(each, each) for each in ("UNL", "COMPA", "EXPL", "TRANSA", "CASC")] == [
        ["UNLOCK"],
        ["COMPACT"],
        ["EXPLAIN"],
        ["TRANSACTIONS"],
        ["CASCADE"],
    ]
    assert completing.candidates("sel", "sel") == ["select"]
    assert completing.candidates("SELECT ", "") == []
    catalog.create("sales.offers", schema)
    assert completing.candidates("sales.of", "sales.of") == []
    completing.forget()
    assert completing.candidates("sales.of", "sales.of") == ["sales.offers"]


def test_csv_has_json_for_nested_values_and_nothing_for_null() -> None:
    """`test_each_type_has_one_form` has the forms of all types."""
    kinds = pa.struct([("a", pa.list_(pa.int8())), ("m", pa.map_(pa.int32(), pa.decimal128(4, 1)))])
    rows = pa.table({"s": pa.array([{"a": [1], "m": [(1, Decimal("2.5"))]}, None], kinds), "b": pa.array([b"\x00\xff", None])})
    assert list(as_csv(rows)) == ["s,b", '"{""a"":[1],""m"":{""1"":""2.5""}}",00FF', ","]
    assert list(as_csv(pa.table({}))) == []


def test_rows_wider_than_the_console_are_lists(run: Run) -> None:
    run("-e", "CREATE TABLE sales.t (id INT) USING sluice")
    history = run("-e", "DESCRIBE HISTORY sales.t").stdout
    assert history.startswith("row 1")
    assert [line for line in history.splitlines() if "operation " in line and "CREATE TABLE" in line]
    assert run("-e", "SELECT 1 AS a").stdout == "a\n─\n1\n"


def test_an_empty_result_has_a_header(run: Run) -> None:
    run("-e", "CREATE TABLE sales.t (id INT) USING sluice")
    assert "id" in run("-e", "SELECT id FROM sales.t").stdout
