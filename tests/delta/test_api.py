"""The surface is Delta Lake's: names, parameters and defaults of the package delta-spark, which a file here lists, and a page tells.

`delta_spark_api.json` has what `delta/tables.py` and `delta/exceptions/base.py` of that package define; no network is needed.
"""

from __future__ import annotations

import inspect
import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrameWriter, DataFrameWriterV2

from sluice import delta
from sluice.delta import exceptions, tables
from sluice.spark_integration.option_tables import NOT_OURS, READING, STREAMING, WRITING
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
