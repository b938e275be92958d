"""The surface is Delta Lake's: names, parameters and defaults of the package delta-spark, which a file here lists, and a page tells.

`delta_spark_api.json` has what `delta/tables.py` and `delta/exceptions/base.py` of that package define; no network is needed.

The checks of arguments: Delta's exception classes for the same mistakes. No table and no Spark is needed to make one.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrameWriter, DataFrameWriterV2
from pyspark.sql.types import IntegerType

from sluice import delta
from sluice.delta import exceptions, tables
from sluice.delta.builders import DeltaMergeBuilder, DeltaOptimizeBuilder, DeltaTableBuilder, IdentityGenerator
from sluice.delta.tables import DeltaTable
from sluice.spark_integration.option_tables import NOT_OURS, READING, STREAMING, WRITING
from sluice.spark_integration.rows.analysis import MergeRequest
from sluice.spark_integration.rows.assignments import no_such_column
from sluice.statements.definitions import Definition
from sluice.tables.write.terms import WriteArgs
from tests.test_docs_tables import names, rows, section

PAGE = "coming-from-delta.md"
FACTS: dict[str, Any] = json.loads(Path(__file__).with_name("delta_spark_api.json").read_text())
METHODS = [
    (cls, method, parameters)
    for cls, methods in FACTS["tables"].items()
    if cls != "IdentityGenerator"
    for method, parameters in methods.items()
]


def told(function: Any) -> tuple[list[str], list[str]]:
    """The parameters of a method as the facts write them, and those that are given by name only."""
    positional, by_name = [], []
    for each in list(inspect.signature(function).parameters.values()):
        if each.name == "self":
            continue
        if each.kind is inspect.Parameter.KEYWORD_ONLY:
            by_name.append(each.name)
        elif each.kind is inspect.Parameter.VAR_POSITIONAL:
            positional.append(f"*{each.name}")
        else:
            positional.append(each.name + ("" if each.default is inspect.Parameter.empty else f"={_told(each.default)}"))
    return positional, by_name


def _told(default: object) -> str:
    return "dict()" if default == {} else repr(default)


@pytest.mark.parametrize(("cls", "method", "parameters"), METHODS, ids=[f"{cls}.{method}" for cls, method, _ in METHODS])
def test_a_method_takes_what_deltas_takes(cls: str, method: str, parameters: list[str]) -> None:
    ours = getattr(getattr(tables, cls), method)
    assert told(ours)[0] == parameters
    assert inspect.getdoc(ours)


def test_no_other_public_method_is_there_but_the_way_to_sluices_table() -> None:
    for cls, methods in FACTS["tables"].items():
        ours = {name for name in vars(getattr(tables, cls)) if not name.startswith("_")}
        assert ours - set(methods) == ({"table"} if cls == "DeltaTable" else set()), cls


def test_an_operation_on_rows_takes_the_terms_of_its_commit() -> None:
    for method in (tables.DeltaTable.delete, tables.DeltaTable.update, tables.DeltaMergeBuilder.execute):
        assert told(method)[1][0] == "attempts"
        assert sorted(told(method)[1][1:]) == sorted(WriteArgs.__annotations__)


def test_identity_generators_are_the_same() -> None:
    assert {each.name: [f"field={each.default}"] for each in fields(tables.IdentityGenerator)} == FACTS["tables"]["IdentityGenerator"]


def test_the_modules_have_the_names_of_deltas() -> None:
    assert sorted(tables.__all__) == sorted(FACTS["tables"])
    assert sorted(exceptions.__all__) == sorted(FACTS["exceptions"])
    assert set(delta.__all__) <= set(FACTS["package_names"])


def test_the_page_has_a_line_for_everything_in_delta_tables() -> None:
    listed = names(section(PAGE, "`delta.tables`"))
    assert len(listed) == len(set(listed))
    assert sorted(listed) == sorted(f"{cls}.{method}" for cls, methods in FACTS["tables"].items() for method in methods)


def test_the_page_has_a_line_for_every_method_of_sparks_writers() -> None:
    listed = names(section(PAGE, "`DataFrameWriter` and `DataFrameWriterV2`"))
    writers = {"DataFrameWriter": DataFrameWriter, "DataFrameWriterV2": DataFrameWriterV2}
    expected = {f"{name}.{method}" for name, cls in writers.items() for method in vars(cls) if not method.startswith("_")}
    assert set(listed) - {f"{name}.partitionedBy" for name in writers} <= expected
    inherited = {f"DataFrameWriter.{method}" for method in ("format",)}
    assert expected - set(listed) - inherited == set()


def test_the_page_has_a_line_for_every_option_of_delta_and_tells_the_truth() -> None:
    told = {name: line[1] for line in rows(section(PAGE, "Options")) for name in names(f"| {line[0]} |")}
    assert set(told) == {*FACTS["options"], "delta.<name>"}
    assert {name for name, here in told.items() if here == "refused"} == set(NOT_OURS)
    known = {*READING, *WRITING, *STREAMING, "path", "checkpointLocation", "queryName", "delta.<name>"}
    assert {name for name, here in told.items() if here in ("yes", "differs")} <= known


def test_every_line_of_the_page_says_whether_it_works() -> None:
    for heading in ("`delta.tables`", "`DataFrameWriter` and `DataFrameWriterV2`", "Options"):
        assert {row[1] for row in rows(section(PAGE, heading))} <= {"yes", "in part", "path only", "not yet", "refused", "differs"}


UNUSED: Any = None


def table() -> DeltaTable:
    return DeltaTable(UNUSED, UNUSED, UNUSED)


def builder() -> DeltaTableBuilder[Any]:
    def make(wanted: Definition) -> DeltaTable:
        raise AssertionError(f"{wanted} is not complete")

    return DeltaTableBuilder(UNUSED, "create", make)


def merge() -> DeltaMergeBuilder:
    return DeltaMergeBuilder(MergeRequest(UNUSED, "t.id = s.id"), UNUSED)


def optimize() -> DeltaOptimizeBuilder:
    return DeltaOptimizeBuilder(UNUSED, UNUSED, {})


WRONG: list[tuple[str, type[Exception], str, Callable[[], Any]]] = [
    ("no session", AssertionError, "SparkSession", lambda: DeltaTable.forPath(UNUSED, "/t")),
    ("a condition of another type", TypeError, "condition is 1.* must be a Spark SQL Column or a string", lambda: table().delete(1)),  # type: ignore[arg-type]
    ("an update without set", ValueError, "set cannot be None", lambda: table().update("true")),
    ("a set that is a list", TypeError, "must be a dict", lambda: table().update(set=[("a", "1")])),  # type: ignore[arg-type]
    ("a key that is no name", TypeError, "Keys of dict in set must contain only", lambda: table().update(set={1: "1"})),  # type: ignore[dict-item]
    ("a value that is no expression", TypeError, "Values of dict in set must contain only", lambda: table().update(set={"a": 1})),  # type: ignore[dict-item]
    ("a merge of nothing", ValueError, "source is None.* cannot be None", lambda: table().merge(UNUSED, "true")),
    ("a merge of rows", TypeError, "must be DataFrame", lambda: table().merge([1], "true")),  # type: ignore[arg-type]
    ("a clause without set", ValueError, "whenMatchedUpdate cannot be None", lambda: merge().whenMatchedUpdate("true")),
    ("a clause without values", ValueError, "whenNotMatchedInsert cannot be None", lambda: merge().whenNotMatchedInsert("true")),
    ("a clause's wrong condition", TypeError, "must be a Spark SQL Column or a string", lambda: merge().whenMatchedDelete(1)),  # type: ignore[arg-type]
    ("a version that is text", ValueError, "version is '1'", lambda: table().restoreToVersion("1")),  # type: ignore[arg-type]
    ("a time that is a number", ValueError, "timestamp is 1", lambda: table().restoreToTimestamp(1)),  # type: ignore[arg-type]
    ("a clone to a number", ValueError, "target is 1", lambda: table().clone(1)),  # type: ignore[arg-type]
    ("a clone half shallow", ValueError, "isShallow", lambda: table().clone("/t", "yes")),  # type: ignore[arg-type]
    ("a clone with numbers", ValueError, "properties are text", lambda: table().clone("/t", True, properties={"a": 1})),  # type: ignore[dict-item]
    ("a protocol in text", ValueError, "readerVersion", lambda: table().upgradeTableProtocol("1", 2)),  # type: ignore[arg-type]
    ("a feature that is none", ValueError, "featureName", lambda: table().addFeatureSupport(1)),  # type: ignore[arg-type]
    ("a history half truncated", ValueError, "truncateHistory", lambda: table().dropFeatureSupport("x", "yes")),  # type: ignore[arg-type]
    ("a filter that is no text", TypeError, "partitionFilter", lambda: optimize().where(1)),  # type: ignore[arg-type]
    ("a z-order by number", TypeError, "z-order column", lambda: optimize().executeZOrderBy("a", 1)),  # type: ignore[arg-type]
    ("a name that is none", TypeError, "identifier is 1", lambda: builder().tableName(1)),  # type: ignore[arg-type]
    ("a location that is none", TypeError, "location", lambda: builder().location(1)),  # type: ignore[arg-type]
    ("a comment that is none", TypeError, "comment", lambda: builder().comment(1)),  # type: ignore[arg-type]
    ("a column without a type", TypeError, "dataType is", lambda: builder().addColumn("a", 1)),  # type: ignore[arg-type]
    ("a column half nullable", TypeError, "nullable", lambda: builder().addColumn("a", IntegerType(), 1)),  # type: ignore[arg-type]
    ("a schema that is text", TypeError, "StructType", lambda: builder().addColumns("a int")),  # type: ignore[arg-type]
    ("a partition by number", TypeError, "partitioning column", lambda: builder().partitionedBy("a", 1)),  # type: ignore[arg-type]
    ("a property that is a number", TypeError, "property", lambda: builder().property("a", 1)),  # type: ignore[arg-type]
    ("a step of 0", ValueError, "step", lambda: builder().addColumn("a", IntegerType(), generatedAlwaysAs=IdentityGenerator(1, 0))),
    (
        "generated twice",
        ValueError,
        "generatedByDefaultAs",
        lambda: builder().addColumn("a", IntegerType(), generatedAlwaysAs="1", generatedByDefaultAs=IdentityGenerator()),
    ),
]


@pytest.mark.parametrize(("error", "match", "call"), [case[1:] for case in WRONG], ids=[case[0] for case in WRONG])
def test_a_wrong_argument_raises_what_delta_raises(error: type[Exception], match: str, call: Callable[[], Any]) -> None:
    with pytest.raises(error, match=match) as raised:
        call()
    assert not isinstance(raised.value, PySparkException)


def test_a_table_needs_a_name_or_a_place() -> None:
    with pytest.raises(AnalysisException, match="neither a name nor a location"):
        builder().execute()


@pytest.mark.parametrize(
    ("text", "part", "told"),
    [
        ("a.b", "a", "'a.b' is not in the table, do you mean `a.b`? there are id, `a.b`, `c``d`"),
        ("idd", "idd", "do you mean id?"),
        ("zzz", "zzz", "'zzz' is not in the table; there are id"),
    ],
)
def test_columns_are_named_as_expressions_name_them(text: str, part: str, told: str) -> None:
    assert told in str(no_such_column(text, part, ["id", "a.b", "c`d"]))


def test_a_merge_needs_clauses_in_an_order_in_which_all_can_apply() -> None:
    with pytest.raises(AnalysisException, match="no clause"):
        merge().execute()
    with pytest.raises(AnalysisException, match="MATCHED THEN DELETE: it has no condition"):
        merge().whenMatchedDelete().whenNotMatchedInsertAll().whenMatchedUpdateAll("s.v > 1").execute()


def test_a_merge_builder_may_be_the_beginning_of_several() -> None:
    begun = merge().whenMatchedUpdateAll("s.v > 1")
    one, other = begun.whenMatchedDelete(), begun.withSchemaEvolution()
    assert [len(each._request.clauses) for each in (begun, one, other)] == [1, 2, 1]
    assert [each._request.schema_evolution for each in (begun, one, other)] == [False, False, True]
