"""No call runs more functions, and the source has no more lines, than the budget says."""

from __future__ import annotations

import ast
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ..spark_integration.conftest import spark
from .budget import budget, differences, lowered
from .counting import Ran, code_lines, functions_run, parameters_of, single_use, size_of, written
from .walks import ON_SPARK, WITHOUT_SPARK, pair

__all__ = ["spark"]

SPARE = {"functions": 5, "modules": 1}
"""What earlier tests of the process may add, such as a lease that a thread still holds; `make budget` has its own process and is exact."""


def over(name: str, ran: Ran) -> list[str]:
    """What is wrong with a walk, and how to see its functions."""
    allowed = budget()[name]
    counted = {
        what: allowed[what] if allowed[what] < count <= allowed[what] + SPARE[what] else count for what, count in size_of(ran).items()
    }
    told = differences({name: counted}, {name: allowed})
    return told and [*told, f"make budget ARGS='--show \"{name}\"' lists them"]


@pytest.mark.parametrize("name", WITHOUT_SPARK)
def test_a_call_runs_no_more_than_its_budget(name: str, tmp_path: Path) -> None:
    with pair(tmp_path) as tables:
        assert over(name, functions_run(partial(WITHOUT_SPARK[name], tables))) == []


@pytest.mark.costly
@pytest.mark.spark
@pytest.mark.parametrize("name", ON_SPARK)
def test_a_call_on_spark_runs_no_more_than_its_budget(name: str, tmp_path: Path, spark: SparkSession) -> None:
    with pair(tmp_path) as tables:
        assert over(name, functions_run(partial(ON_SPARK[name], tables, spark))) == []


def test_the_source_is_no_larger_than_its_budget() -> None:
    assert differences({"source": written()}, budget()) == []


def test_the_budget_has_a_number_for_each_count() -> None:
    assert budget().keys() == {"source", *WITHOUT_SPARK, *ON_SPARK}


def test_a_count_outside_its_number_is_told() -> None:
    allowed = {"append": {"functions": 500, "modules": 90}}
    assert differences({"append": {"functions": 490, "modules": 90}}, allowed) == []
    [above] = differences({"append": {"functions": 501, "modules": 90}}, allowed)
    assert "1 above the budget of 500" in above
    [below] = differences({"append": {"functions": 489, "modules": 90}}, allowed)
    assert "11 below the budget of 500" in below
    assert lowered({"append": {"functions": 501, "modules": 80}}, allowed) == {"append": {"functions": 500, "modules": 80}}


def test_what_is_counted() -> None:
    text = (
        '"""Doc."""\n\n# why\ndef _a(self, b, *c, d=1, **e):\n    """Doc\n    more"""\n    return _b()\n'
        "def _b(): return 1\ndef _c(): _b()\n"
    )
    nodes = list(ast.walk(ast.parse(text)))
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef)]
    assert len(list(code_lines(text, nodes))) == 4
    assert [parameters_of(node.args) for node in functions] == [4, 0, 0]
    assert single_use(nodes, [node.name for node in functions]) == []
    assert single_use(list(ast.walk(ast.parse("def _b(): return 1\n_b()"))), ["_b"]) == ["_b"]
