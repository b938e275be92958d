"""No text makes the engine without Spark fail with anything but sluice's errors, nor changes what it does not name."""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Iterator
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

import sluice
from sluice.coordinator.service.connect import release
from sluice.statements.duckdb.running import run
from sluice.statements.parse.cursor import words_in
from tests.storage.strategies import examples

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


@examples(100)
@given(text=texts, value=st.text(max_size=8))
def test_no_text_is_too_much(coordinator: str, text: str, value: str) -> None:
    with suppress(sluice.errors.SluiceError):
        run(text, {"p": value}, coordinator=coordinator)
    assert run("SELECT :p AS p", {"p": value}, coordinator=coordinator).column(0).to_pylist() == [value]
