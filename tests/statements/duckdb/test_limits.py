"""What no engine can take, and what is not there yet: a clear error that names a limit, never a parser's own words.

No text makes the engine without Spark fail with anything but sluice's errors, nor changes what it does not name.
"""

from __future__ import annotations

import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from itertools import product
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sluice
from sluice.coordinator.service.connect import release
from sluice.statements.duckdb.engine import run
from sluice.statements.parse.cursor import words_in
from sluice.storage.expressions.parse import LEVELS_MAX, OPERATORS_MAX, TERMS_MAX
from sluice.storage.stores.local import LocalStore
from tests.statements.duckdb.conftest import Warehouse, warehouse
from tests.storage.strategies import examples

__all__ = ["warehouse"]


@pytest.fixture
def numbers(warehouse: Warehouse) -> Warehouse:
    warehouse.sql("CREATE TABLE sales.n (id INT, name STRING) USING sluice", "INSERT INTO sales.n VALUES (1, 'a'), (2, 'b')")
    return warehouse


FORMS = {
    "SELECT": "SELECT * FROM sales.n WHERE {}",
    "DELETE": "DELETE FROM sales.n WHERE {}",
    "UPDATE": "UPDATE sales.n SET name = 'c' WHERE {}",
}
CONDITIONS = {
    "brackets": ("(" * 500 + "id = 9" + ")" * 500, f"nested too deeply, 500 brackets where at most {LEVELS_MAX}"),
    "not": ("NOT " * 3000 + "id = 9", "nested too deeply"),
    "sum": ("id = 9" + " + 1" * 3000, "nested too deeply"),
    "and": (" AND ".join(["id = 9"] * 20_000), f"19999 ANDs and ORs, and at most {TERMS_MAX}"),
}


@pytest.mark.costly
@pytest.mark.parametrize(
    ("form", "condition", "message"),
    [
        # To take 20,000 conditions to pieces needs seconds.
        pytest.param(form, *CONDITIONS[name], id=f"{verb} {name}", marks=[pytest.mark.long] * (name == "and" and verb != "DELETE"))
        for (verb, form), name in product(FORMS.items(), CONDITIONS)
    ],
)
def test_conditions_have_a_limit(numbers: Warehouse, form: str, condition: str, message: str) -> None:
    began = time.process_time()
    with pytest.raises(sluice.errors.SluiceError, match=message) as refused:
        numbers.rows(form.format(condition))
    assert len(str(refused.value)) < 1500
    assert time.process_time() - began < 10  # it was some 20 s for 20,000 ANDs
    assert numbers.rows("SELECT id, name FROM sales.n") == [(1, "a"), (2, "b")]


def test_python_has_the_same_limits(numbers: Warehouse) -> None:
    table = numbers.catalog.open("sales.n")
    for where in ("(" * 500 + "id = 9" + ")" * 500, " OR ".join(["id = 9"] * 20_000)):
        with pytest.raises(sluice.errors.PredicateError, match="at most"):
            table.delete(where=where)
    assert table.refresh().version == 1


@pytest.mark.long
def test_what_is_within_the_limits_is_done(numbers: Warehouse) -> None:
    deep = "(" * LEVELS_MAX + "id = 1" + ")" * LEVELS_MAX
    chain = "id" + " + 0" * (OPERATORS_MAX - 10) + " = 1"
    many = "id IN (1, " + ", ".join(map(str, range(10, 20_000))) + ")"
    for where in (deep, chain, many):
        assert numbers.rows(f"SELECT id FROM sales.n WHERE {where}") == [(1,)]
    for where in (deep, chain):
        numbers.sql(f"UPDATE sales.n SET name = 'x' WHERE {where}")
    assert numbers.rows("SELECT id, name FROM sales.n") == [(1, "x"), (2, "b")]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT",
        "SELECT * FROM",
        "SELECT * FROM sales.n WHERE",
        "SELECT * FROM sales.n WHERE id =",
        "SELECT * FROM sales.n JOIN",
        "SELECT * FROM sales.n ORDER BY",
        "SELECT * FROM sales.n VERSION AS OF",
        "INSERT INTO sales.n SELECT",
        "INSERT INTO sales.n VALUES",
        "CREATE TABLE sales.m AS SELECT * FROM",
    ],
)
def test_a_statement_that_is_not_complete_says_so(numbers: Warehouse, text: str) -> None:
    for written in (text, f"{text} ;"):
        with pytest.raises(sluice.errors.InvalidRequest, match="is not complete: something is missing after"):
            numbers.rows(written)


@pytest.mark.parametrize("nested", [41, 100, 1200])
def test_a_schema_has_a_depth(warehouse: Warehouse, tmp_path: Path, nested: int) -> None:
    kind: pa.DataType = pa.int32()
    for _ in range(nested):
        kind = pa.list_(kind)
    with pytest.raises(sluice.errors.SchemaMismatch, match=r"nested too deeply|at most 40 levels"):
        sluice.Table.create(tmp_path / "t", pa.schema([("a", kind)]), coordinator=warehouse.coordinator)
    written = "array<" * nested + "int" + ">" * nested
    for text in (
        f"CREATE TABLE sales.d (a {written}) USING sluice",
        f"CREATE TABLE sales.d (a {written.replace('array<', 'struct<x: ')}) USING sluice",
    ):
        with pytest.raises(sluice.errors.SchemaMismatch, match="nested too deeply"):
            warehouse.sql(text)
    table = sluice.Table.create(tmp_path / "u", pa.schema([("a", pa.int32())]), coordinator=warehouse.coordinator)
    with pytest.raises(sluice.errors.SchemaMismatch):
        table.append(pa.table({"a": [1], "b": pa.array([None], kind)}), merge_schema=True)
    assert table.refresh().version == 0


def test_copy_into_with_files_looks_at_those_only(warehouse: Warehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    warehouse.sql("CREATE TABLE sales.c (id INT) USING sluice")
    folder = tmp_path / "in"
    folder.mkdir()
    for name in ("a.json", "b.json", "c.json"):
        (folder / name).write_text('{"id": 1}\n')
    asked: list[str] = []
    get, listed = LocalStore.get, LocalStore.list_from

    def get_one(self: LocalStore, key: str) -> bytes:
        asked.append(key)
        return get(self, key)

    monkeypatch.setattr(LocalStore, "get", get_one)

    def list_from(self: LocalStore, *arguments: object, **options: object) -> object:
        assert "/in" not in str(self.location), "the folder is listed"
        return listed(self, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(LocalStore, "list_from", list_from)
    warehouse.sql(f"COPY INTO sales.c FROM '{folder}' FILEFORMAT = JSON FILES = ('b.json')")
    assert [each for each in asked if each.endswith(".json") and not each.startswith("_delta_log")] == ["b.json"]
    with pytest.raises(sluice.errors.InvalidRequest, match=r"d\.json is not there"):
        warehouse.sql(f"COPY INTO sales.c FROM '{folder}' FILEFORMAT = JSON FILES = ('a.json', 'd.json')")


STATEMENTS = (
    "SELECT id, count(*) FROM sales.t WHERE name = 'a' AND id > 1 GROUP BY id ORDER BY 2 LIMIT 3",
    "WITH q AS (SELECT * FROM sales.t VERSION AS OF 0) SELECT q.id FROM q JOIN sales.t USING (id)",
    "SELECT id FROM table_changes('sales.t', 1, 2)",
    "DESCRIBE HISTORY sales.t LIMIT 1",
    "SHOW TBLPROPERTIES sales.t ('owner')",
    "SHOW TABLES IN sales LIKE 'o*'",
    "UPDATE sales.t SET name = upper(name) WHERE id BETWEEN 1 AND 2",
    "DELETE FROM sales.t AS x WHERE x.id = 3",
    "INSERT INTO sales.t (id, name) VALUES (1, 'x'), (2, NULL)",
    "ALTER TABLE sales.t ALTER COLUMN name COMMENT 'x'",
    "VACUUM sales.t RETAIN 200 HOURS DRY RUN",
    "FSCK REPAIR TABLE sales.t DRY RUN",
    "COMPACT TABLE sales.t MINOR",
    "BEGIN ATOMIC INSERT INTO sales.t VALUES (1, 'x'); DELETE FROM sales.t WHERE id = 1; END",
    "EXPLAIN CONFLICT DELETE FROM sales.t WHERE id = 1 WITH UPDATE sales.t SET name = 'x' AT LEVEL SNAPSHOT",
    "MERGE INTO sales.t t USING (SELECT 1 AS id, 'm' AS name) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET *",
)
SYMBOLS = words_in("( ) [ ] , . ; * = ? : @ ' \" ` -- /* */ X'0G' 1e999 {{ $1 FROM")
WORDS = sorted({word for text in STATEMENTS for word in text.split()} | SYMBOLS)
texts = st.one_of(
    st.tuples(st.sampled_from(STATEMENTS), st.integers(0, 90), st.integers(0, 12), st.sampled_from(["", *WORDS])).map(
        lambda cut: cut[0][: cut[1]] + " " + cut[3] + " " + cut[0][cut[1] + cut[2] :]
    ),
    st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join),
    st.text(max_size=30).map(lambda text: f"SELECT '{text}' AS x FROM sales.t WHERE {text}"),
)


@pytest.fixture(scope="module")
def coordinator() -> Iterator[str]:
    address = f"memory://{uuid.uuid4().hex}"
    with tempfile.TemporaryDirectory() as root:
        catalog = sluice.Catalog(address, root=root)
        catalog.create_namespace("sales")
        for name in ("sales.t", "sales.other"):
            run(f"CREATE TABLE {name} (id INT, name STRING) USING sluice", coordinator=address)
            run(f"INSERT INTO {name} VALUES (1, 'a'), (2, 'b')", coordinator=address)
        yield address
        assert catalog.open("sales.other").version == 1
        assert {each.full_name for each in catalog.tables("sales")} == {"sales.t", "sales.other"}
        release(address)


@pytest.mark.costly
@examples(100)
@given(text=texts, value=st.text(max_size=8))
def test_no_text_is_too_much(coordinator: str, text: str, value: str) -> None:
    with suppress(sluice.errors.SluiceError):
        run(text, {"p": value}, coordinator=coordinator)
    assert run("SELECT :p AS p", {"p": value}, coordinator=coordinator).column(0).to_pylist() == [value]
