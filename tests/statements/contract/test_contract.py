"""Both engines answer what the table of cases says: rows, or the class, words and place of an error."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, get_args

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import sluice
from sluice.coordinator.service.connect import release
from sluice.statements.duckdb.engine import run
from sluice.statements.parse.maintenance import Attach, Convert
from sluice.statements.parse.namespaces import CreateNamespace, DropNamespace, ShowNamespaces
from sluice.statements.parse.reading import Malformed, Statement, read
from sluice.statements.parse.tables import Undrop
from sluice.statements.request import Locks
from sluice.statements.run import ON_PLACES

from ...spark_integration.conftest import spark

__all__ = ["spark"]

Case = Mapping[str, Any]
NO_ENGINE: Final = (*ON_PLACES, Convert, Attach, Undrop, CreateNamespace, DropNamespace, ShowNamespaces, Malformed)
"""Statements in which no engine has a part."""
Sql = Callable[[str], list[dict[str, Any]]]
CASES: Final[list[Case]] = yaml.load(Path(__file__).with_name("cases.yaml").read_bytes(), yaml.CSafeLoader)
T: Final = pa.table({"id": [1, 2, 3], "day": ["mo", "mo", "tu"], "v": [1.0, 2.0, 3.0]})
U: Final = pa.table({"id": [1, 4], "w": ["x", "y"]})


@contextmanager
def tables(folder: Path, coordinator: str | None = None, mapping: str = "none") -> Iterator[tuple[str, sluice.Catalog]]:
    """A new catalog with the tables that every case begins with; without a coordinator in memory. `mapping`: how columns are mapped."""
    address = coordinator or f"memory://{uuid.uuid4().hex}"
    catalog = sluice.Catalog(address, root=folder / "tables")
    catalog.create_namespace("s")
    mapped = {} if mapping == "none" else {"delta.columnMapping.mode": mapping}
    catalog.create("s.t", T.schema, partition_by=["day"], properties=mapped).append(T)
    catalog.create("s.u", U.schema, properties=mapped).append(U)
    (folder / "in.csv").write_text("7,in\n")
    (folder / "old").mkdir()
    pq.write_table(pa.table({"id": [1]}), folder / "old" / "1.parquet")
    try:
        yield address, catalog
    finally:
        release(address)


def held(catalog: sluice.Catalog, name: str) -> list[list[Any]]:
    return in_order([list(row.values()) for row in catalog.open(name).snapshot().to_arrow().to_pylist()])


def state(catalog: sluice.Catalog) -> dict[str, int]:
    """What a refused statement must leave as it is: the tables and their versions."""
    return {each.full_name: catalog.open(each.full_name).version for each in catalog.tables("s")}


def in_order(values: Any) -> list[Any]:
    return sorted(values, key=repr)


def outcome(case: Case, sql: Sql, catalog: sluice.Catalog, folder: Path) -> list[dict[str, Any]] | Exception:
    """The rows of a statement, or its error, which has changed nothing unless the case says why it commits."""
    for text in case.get("before", ()):
        sql(text.replace("{folder}", str(folder)))
    before = state(catalog)
    try:
        return sql(case["do"].replace("{folder}", str(folder)))
    except (sluice.errors.SluiceError, PySparkException) as error:
        assert (state(catalog) != before) == ("commits" in case)
        return error


def mismatch(expected: Case, result: list[dict[str, Any]] | Exception, catalog: sluice.Catalog) -> str:
    """How an outcome differs from the expected one; empty if it does not."""
    if isinstance(result, Exception):
        return not_the_error(expected, result)
    if "error" in expected:
        return f"no error, but {result[:3]}"
    answer = expected.get("answer")
    if isinstance(answer, list) and in_order(list(row.values()) for row in result) != in_order(answer):
        return f"its rows are {result}"
    for column, values in answer.items() if isinstance(answer, dict) else ():
        if in_order(row.get(column) for row in result) != in_order(values):
            return f"{column} of {result}"
    holds = {name: held(catalog, name) for name in expected.get("holds", {})}
    return "" if holds == {name: in_order(rows) for name, rows in expected.get("holds", {}).items()} else f"the tables hold {holds}"


def not_the_error(expected: Case, error: Exception) -> str:
    if expected.get("error") == "Spark":
        is_right = not isinstance(error, sluice.errors.SluiceError)
    else:
        is_right = expected.get("error") in {each.__name__ for each in type(error).__mro__}
    line, _, column = expected.get("at", "").partition(":")
    place = f"line {line}, column {column}:" if line else ""
    if is_right and place in str(error) and re.search(expected.get("says", ""), str(error)):
        return ""
    return f"{type(error).__name__}: {str(error)[:300]}"


def judge(case: Case, engine: str, sql: Sql, catalog: sluice.Catalog, folder: Path) -> None:
    result = outcome(case, sql, catalog, folder)
    if engine in case:
        assert mismatch(case[engine], result, catalog) == ""
        assert mismatch(case, result, catalog), f"the engines agree: take out {engine!r}"
    else:
        assert mismatch(case, result, catalog) == ""


def _id(case: Case) -> str:
    return case["do"][:60].replace("\n", " ")


@pytest.mark.parametrize("case", CASES, ids=_id)
@pytest.mark.many
def test_duckdb(case: Case, tmp_path: Path) -> None:
    on_duckdb(case, tmp_path, "none")


@pytest.mark.long
@pytest.mark.parametrize("mapping", ["name", "id"])
@pytest.mark.parametrize("case", [each for each in CASES if "mapped" not in each], ids=_id)
def test_duckdb_on_mapped_columns(case: Case, mapping: str, tmp_path: Path) -> None:
    on_duckdb(case, tmp_path, mapping)


def on_duckdb(case: Case, tmp_path: Path, mapping: str) -> None:
    with tables(tmp_path, mapping=mapping) as (address, catalog):
        locks = Locks()

        def sql(text: str) -> list[dict[str, Any]]:
            found = run(text, coordinator=address, locks=locks)
            rows: list[dict[str, Any]] = found.to_pylist()
            return rows

        judge(case, "duckdb", sql, catalog, tmp_path)
        sql("UNLOCK TABLES")


def kind_of(text: str) -> str:
    """The class of a statement; of one that cannot be read its first word."""
    statement = read(text)
    return statement.words[0] if isinstance(statement, Malformed) else type(statement).__name__


def _on_spark() -> Iterator[Any]:
    """All cases. In the long tests alone: of statements that no engine has a part in two of three; and where Spark answers as DuckDB does,
    more than one case of a kind of statement that ends in rows, or in errors of one class.
    """
    seen = set[tuple[str, str]]()
    for number, case in enumerate(CASES):
        needs_no_engine = isinstance(read(case["do"]), NO_ENGINE)
        ending = kind_of(case["do"]), case.get("error", "")
        is_short = ("spark" in case or ending not in seen) and not (needs_no_engine and number % 3)
        seen.add(ending)
        marks = [pytest.mark.zookeeper] * ("served" in case) + [pytest.mark.long] * (not is_short)
        yield pytest.param(case, marks=marks, id=_id(case))


@pytest.mark.spark
@pytest.mark.parametrize("case", list(_on_spark()))
@pytest.mark.many
def test_spark(case: Case, request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> None:
    on_spark(case, request, spark, tmp_path, "none")


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.parametrize("case", [each for each in CASES if "mapped" not in each and not isinstance(read(each["do"]), NO_ENGINE)], ids=_id)
def test_spark_on_mapped_columns(case: Case, request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> None:
    on_spark(case, request, spark, tmp_path, "id" if len(case["do"]) % 2 else "name")


def on_spark(case: Case, request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path, mapping: str) -> None:
    served = request.getfixturevalue("zookeeper_address") if "served" in case else None
    with tables(tmp_path, served, mapping) as (address, catalog):
        by_spark = partial(sluice.sql, spark, coordinator=address)
        judge(case, "spark", lambda text: [row.asDict() for row in by_spark(text).collect()], catalog, tmp_path)
        by_spark("UNLOCK TABLES")


def test_every_kind_of_statement_has_cases() -> None:
    kinds = {each.__name__ for each in get_args(Statement)} - {"Malformed"}
    good = {kind_of(case["do"]) for case in CASES if "error" not in case}
    refused = {kind_of(case["do"]) for case in CASES if "error" in case}
    assert kinds - good <= {"Foreign"}, "what others have is only refused"
    lacking = {kind for kind in kinds - refused if not any(word.isupper() and kind.upper().startswith(word) for word in refused)}
    assert lacking == set()


def test_every_difference_has_a_reason() -> None:
    assert all(case[engine].get("why") for case in CASES for engine in ("spark", "duckdb") if engine in case)
