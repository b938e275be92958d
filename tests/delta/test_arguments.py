"""The checks of arguments: Delta's exception classes for the same mistakes. No table and no Spark is needed to make one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql.types import IntegerType, StructField

import sluice
from sluice.delta.builders import DeltaMergeBuilder, DeltaOptimizeBuilder, DeltaTableBuilder, IdentityGenerator
from sluice.delta.tables import DeltaTable
from sluice.spark_integration.rows.analysis import MergeRequest
from sluice.spark_integration.rows.assignments import no_such_column
from sluice.statements.definitions.tables import Definition

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
    return DeltaOptimizeBuilder(UNUSED)


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


@pytest.mark.parametrize(
    ("feature", "call"),
    [
        ("identityColumns", lambda: builder().addColumn("a", IntegerType(), generatedAlwaysAs=IdentityGenerator())),
        ("identityColumns", lambda: builder().addColumn("a", IntegerType(), generatedByDefaultAs=IdentityGenerator(5, 2))),
        ("identityColumns", lambda: builder().addColumns([StructField("a", IntegerType(), True, {"delta.identity.start": 1})])),
    ],
)
def test_what_sluice_cannot_fill_in_or_keep_is_refused_by_name(feature: str, call: Callable[[], Any]) -> None:
    with pytest.raises(sluice.errors.UnsupportedFeature) as refused:
        call()
    assert refused.value.features == [feature]
    assert isinstance(refused.value, AnalysisException)


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
