"""Random statements carried out: valid ones do what SQLite does, by one version at most; wrong ones raise, and change nothing."""

from __future__ import annotations

import re
import sqlite3
import tempfile
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import sluice
from sluice.coordinator.service.connect import release
from sluice.statements.duckdb.engine import run

TABLES = ("a", "b")
numbers = st.one_of(st.none(), st.integers(-2, 6)).map(lambda value: "NULL" if value is None else str(value))
names = st.sampled_from(TABLES)
columns = st.sampled_from(["k", "v"])
compared = st.sampled_from(["=", "<>", "<", ">="])
asked = st.tuples(st.sampled_from(["max", "min", "count"]), columns, names)
scalars = st.one_of(
    columns,
    numbers,
    st.tuples(columns, st.sampled_from("+-*"), st.integers(0, 3)).map(lambda each: f"({each[0]} {each[1]} {each[2]})"),
    asked.map(lambda each: f"(SELECT {each[0]}({each[1]}) FROM sales_{each[2]})"),
)
plain = st.one_of(
    st.tuples(scalars, compared, scalars).map(" ".join),
    columns.map(lambda name: f"{name} IS NULL"),
    st.tuples(columns, st.lists(numbers, min_size=1, max_size=3)).map(lambda each: f"{each[0]} IN ({', '.join(each[1])})"),
    st.tuples(columns, columns, names).map(lambda each: f"{each[0]} IN (SELECT {each[1]} FROM sales_{each[2]})"),
    st.tuples(names, compared).map(lambda each: f"EXISTS (SELECT 1 FROM sales_{each[0]} x WHERE x.k {each[1]} 2)"),
)
joined = st.tuples(plain, st.sampled_from(["AND", "OR"]), plain).map(lambda each: f"({each[0]}) {each[1]} NOT ({each[2]})")
conditions = st.one_of(plain, joined)
rows = st.lists(st.tuples(numbers, numbers), min_size=1, max_size=3).map(lambda found: ", ".join(f"({k}, {v})" for k, v in found))
valid = st.one_of(
    st.tuples(names, rows).map(lambda each: f"INSERT INTO sales_{each[0]} VALUES {each[1]}"),
    st.tuples(names, names, conditions).map(
        lambda each: f"INSERT INTO sales_{each[0]} (v, k) SELECT k, v FROM sales_{each[1]} WHERE {each[2]}"
    ),
    st.tuples(names, columns, scalars, conditions).map(lambda each: f"UPDATE sales_{each[0]} SET {each[1]} = {each[2]} WHERE {each[3]}"),
    st.tuples(names, conditions).map(lambda each: f"DELETE FROM sales_{each[0]} WHERE {each[1]}"),
)
SPOILT = {
    "sales_a": "sales_c",
    "k": "kk",
    "WHERE": "WHEN",
    "INTO": "IN",
    "SET": "",
    "VALUES (": "VALUES (1, ",
    "SELECT": "SELECT 1,",
}
wrong = st.tuples(valid, st.sampled_from(sorted(SPOILT))).filter(lambda each: each[1] in each[0])


@dataclass(frozen=True)
class Place:
    """The tables of sluice."""

    coordinator: str
    tables: list[sluice.Table]

    def run(self, text: str) -> None:
        run(text.replace("sales_", "sales."), coordinator=self.coordinator)

    def begin_again(self) -> None:
        for table in self.tables:
            table.overwrite(pa.table({"k": [1, 2, None, 4], "v": [2, None, 3, 4]}))

    def held(self) -> tuple[int, list[list[tuple[int | None, int | None]]]]:
        """How many versions there are, and the rows of both tables."""
        snapshots = [table.refresh().snapshot() for table in self.tables]
        found = [each.to_arrow().to_pylist() for each in snapshots]
        return sum(each.version for each in snapshots), [sorted(((row["k"], row["v"]) for row in rows), key=repr) for rows in found]


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    address = f"memory://{uuid.uuid4().hex}"
    with tempfile.TemporaryDirectory() as root:
        sluice.Catalog(address, root=root).create_namespace("sales")
        for number, name in enumerate(TABLES):
            kept = f"TBLPROPERTIES ('delta.enableDeletionVectors' = '{str(number == 1).lower()}')"
            run(f"CREATE TABLE sales.{name} (k BIGINT, v BIGINT) USING sluice {kept}", coordinator=address)
        catalog = sluice.Catalog(address)
        yield Place(address, [catalog.open(f"sales.{name}") for name in TABLES])
        release(address)


@pytest.mark.costly
@pytest.mark.slow
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=st.lists(valid, min_size=1, max_size=4), bad=wrong)
@example(
    texts=["UPDATE sales_a SET k = NULL WHERE (v IN (SELECT k FROM sales_a)) OR NOT (EXISTS (SELECT 1 FROM sales_a x WHERE x.k < 2))"],
    bad=("DELETE FROM sales_a WHERE k = 1", "WHERE"),
)
def test_valid_statements_do_what_sqlite_does_and_wrong_ones_nothing(place: Place, texts: list[str], bad: tuple[str, str]) -> None:
    twin = sqlite3.connect(":memory:")
    place.begin_again()
    for name in TABLES:
        twin.execute(f"CREATE TABLE sales_{name} (k INTEGER, v INTEGER)")
        twin.execute(f"INSERT INTO sales_{name} VALUES (1, 2), (2, NULL), (NULL, 3), (4, 4)")
    before, rows = place.held()
    for text in texts:
        place.run(text)
        for name in TABLES:  # SQLite runs a subquery again for each row, and would see the rows that the statement changed before
            twin.execute(f"DROP TABLE IF EXISTS before_{name}")
            twin.execute(f"CREATE TABLE before_{name} AS SELECT * FROM sales_{name}")
        twin.execute(re.sub("(?<!DELETE )FROM sales_", "FROM before_", text))
        versions, rows = place.held()
        assert rows == [sorted(twin.execute(f"SELECT k, v FROM sales_{name}"), key=repr) for name in TABLES], text
        assert versions - before in (0, 1), text
        before = versions
    twin.close()
    text = bad[0].replace(bad[1], SPOILT[bad[1]], 1)
    try:
        place.run(text)
    except sluice.errors.SluiceError:
        assert place.held() == (before, rows), text
    else:
        assert place.held()[0] - before in (0, 1), text
