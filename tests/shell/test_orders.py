"""What people type beside SQL, and what the shell says beside rows.

Every type has one form in JSON, which does not depend on the row.
The shell shows what a program writes during its start only if the start fails, and always what it writes later.
The prompt: statements of several lines, history, completion, and the end.
"""

from __future__ import annotations

import io
import json
import subprocess
import sys
import time
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

import sluice
from sluice.cli import main
from sluice.shell.engines import Engines, held_back
from sluice.shell.printing import as_csv, as_json, values_of
from sluice.shell.prompting import Completing, order_in, typed
from sluice.shell.running import Shell
from sluice.statements.duckdb.database import LocalRequest


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


def _typed(coordinator: str, monkeypatch: pytest.MonkeyPatch, *texts: str) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("sluice.shell.running.typed", lambda _: iter(texts))
    assert Shell(Engines("local", coordinator=coordinator)).run() == 0


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


INTERVALS = pa.month_day_nano_interval()
FORMS: list[tuple[Any, pa.DataType, Any]] = [
    (True, pa.bool_(), True),
    (2**63 - 1, pa.int64(), 2**63 - 1),
    (0.1, pa.float32(), 0.1),
    (0.5, pa.float16(), 0.5),
    (0.1, pa.float64(), 0.1),
    (float("nan"), pa.float64(), "NaN"),
    (float("inf"), pa.float32(), "Infinity"),
    (float("-inf"), pa.float64(), "-Infinity"),
    (Decimal("2.50"), pa.decimal128(10, 2), "2.50"),
    (Decimal("0E-10"), pa.decimal128(20, 10), "0.0000000000"),
    (Decimal(7), pa.decimal256(60, 0), "7"),
    ("a", pa.large_string(), "a"),
    ("a", pa.string_view(), "a"),
    (b"\x00\xff", pa.binary(), "00FF"),
    (b"ab", pa.binary(2), "6162"),
    (19_782, pa.date32(), "2024-02-29"),
    (10**7, pa.date32(), "29349-01-26"),
    (1_500_000, pa.timestamp("us"), "1970-01-01T00:00:01.500000"),
    (1_000_000_001, pa.timestamp("ns", "Europe/Paris"), "1970-01-01T00:00:01Z"),
    (253_402_300_800, pa.timestamp("s", "UTC"), "10000-01-01T00:00:00Z"),
    (3_600, pa.time32("s"), "01:00:00"),
    (1_500_000_000, pa.time64("ns"), "00:00:01.500000"),
    (90_061_500_000, pa.duration("us"), "P1DT1H1M1.5S"),
    (-500, pa.duration("ms"), "PT-0.5S"),
    (0, pa.duration("s"), "PT0S"),
    ((14, 3, 4_000_000_000), INTERVALS, "P1Y2M3DT4S"),
    ((-1, 0, 0), INTERVALS, "P-1M"),
    ([1, None], pa.list_(pa.int8()), [1, None]),
    ([Decimal("1.0")], pa.list_(pa.decimal128(3, 1), 1), ["1.0"]),
    ([(True, float("nan"))], pa.map_(pa.bool_(), pa.float64()), {"true": "NaN"}),
    ({"a": [{"b": b"x"}]}, pa.struct([("a", pa.list_(pa.struct([("b", pa.binary())])))]), {"a": [{"b": "78"}]}),
]


@pytest.mark.parametrize(("value", "kind", "form"), FORMS, ids=lambda each: str(each)[:40])
def test_each_type_has_one_form(value: Any, kind: pa.DataType, form: Any) -> None:
    """Also where a batch begins in the middle of an array, beside null, and in nested values."""
    array = pa.array([None, value, None, value], kind)
    assert values_of(array) == [None, form, None, form]
    assert values_of(array[1:2]) == [form]
    rows = pa.table({"a": array})
    assert [json.loads(line)["a"] for line in as_json(rows)] == [None, form, None, form]
    assert len(list(as_csv(rows))) == 5


def test_dictionaries_and_nulls() -> None:
    assert values_of(pa.array(["a", None, "a"]).dictionary_encode()) == ["a", None, "a"]
    assert values_of(pa.nulls(2)) == [None, None]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 1 AS a, 2 AS a",
        "SELECT * FROM (SELECT 1 AS id) x JOIN (SELECT 1 AS id) y ON x.id = y.id",
        "SELECT sum(a) AS s, max(a) AS s FROM (SELECT 1 AS a) v",
    ],
)
def test_columns_of_one_name_are_no_object(run: Callable[..., Any], text: str) -> None:
    done = run("--json", "-e", text)
    assert done.exit_code == 2
    assert "2 columns are called" in done.stderr
    assert "give each another one" in done.stderr
    assert done.stdout == ""
    assert len(run("--csv", "-e", text).stdout.splitlines()[0].split(",")) >= 2


def test_fields_of_one_name_are_no_object() -> None:
    twice = pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    with pytest.raises(sluice.errors.InvalidRequest, match="2 fields of column 'x' are called 'a'"):
        list(as_json(pa.table({"x": twice})))


def test_an_interval_ends_no_shell(run: Callable[..., Any]) -> None:
    done = run("--json", "-e", "SELECT INTERVAL '1' DAY AS a; SELECT INTERVAL '14' MONTH AS a; SELECT array(INTERVAL '1' HOUR) AS a")
    assert [json.loads(line) for line in done.stdout.splitlines()] == [{"a": "P1D"}, {"a": "P1Y2M"}, {"a": ["PT1H"]}]
    for form in ((), ("--csv",)):
        assert "P1D" in run(*form, "-e", "SELECT INTERVAL '1' DAY AS a").stdout


PROGRAM = """
import sys
print("first", file=sys.stderr, flush=True)
print("started", flush=True)
sys.stdin.readline()
print("second", file=sys.stderr, flush=True)
"""


def started(stderr: int) -> subprocess.Popen[str]:
    program = subprocess.Popen([sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, text=True)
    assert program.stdout is not None
    assert program.stdout.readline() == "started\n"
    return program


def ended(program: subprocess.Popen[str]) -> None:
    program.communicate("\n", timeout=60)


def test_what_comes_later_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    told = io.StringIO()
    monkeypatch.setattr(sys, "stderr", told)
    with held_back() as stderr:
        program = started(stderr)
    assert told.getvalue() == ""
    ended(program)
    deadline = time.monotonic() + 30
    while "second" not in told.getvalue() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert told.getvalue() == "second\n"


def test_a_failure_tells_what_was_held(monkeypatch: pytest.MonkeyPatch) -> None:
    told = io.StringIO()
    monkeypatch.setattr(sys, "stderr", told)
    programs: list[subprocess.Popen[str]] = []

    def fail() -> None:
        with held_back() as stderr:
            programs.append(started(stderr))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert told.getvalue() == "first\n"
    ended(programs[0])


@pytest.fixture
def completing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Completing:
    monkeypatch.setenv("SLUICE_HOME", str(tmp_path / "home"))
    return Completing(lambda text: LocalRequest(text, None, "memory://prompt"))


@pytest.mark.parametrize(
    ("typed_keys", "texts"),
    [
        ("SELECT 1,\r';' AS x;\rSELECT 2;\rquit\rSELECT 3;\r", ["SELECT 1,\n';' AS x;", "SELECT 2;"]),
        ("\\x\rSELECT 1;\rSELECT 2,\r\\q\rSELECT 3;\r", ["\\x", "SELECT 1;"]),
        ("SELECT 1\x03SELECT 2;\r\x04", ["SELECT 2;"]),  # Ctrl-C forgets what was begun
    ],
    ids=["several lines", "quit in the middle of a statement", "the end of the input"],
)
def test_what_is_typed_is_carried_out_and_remembered(completing: Completing, tmp_path: Path, typed_keys: str, texts: list[str]) -> None:
    with create_pipe_input() as keys, create_app_session(input=keys, output=DummyOutput()):
        keys.send_text(typed_keys)
        assert list(typed(completing)) == texts
    assert f"+{texts[-1]}" in (tmp_path / "home" / "sql_history").read_text()


def test_a_home_that_cannot_be_written_remembers_nothing(completing: Completing, tmp_path: Path) -> None:
    (tmp_path / "home").write_text("a file")
    with create_pipe_input() as keys, create_app_session(input=keys, output=DummyOutput()):
        keys.send_text("SELECT 1;\rquit\r")
        assert list(typed(completing)) == ["SELECT 1;"]


def test_plain_lines_do_without_a_toolkit(completing: Completing, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = iter(["SELECT 1", ";", "", "exit"])
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    monkeypatch.setattr("builtins.input", lambda _: next(lines))
    assert list(typed(completing)) == ["SELECT 1\n;"]
