"""The table of cases says what Delta Lake on Spark answers."""

from __future__ import annotations

import pytest

from ..spark_integration.rows.cases import CASES, Case, columns_of
from .cases_on_delta import carried_out
from .engine import Delta, DeltaError

pytestmark = pytest.mark.delta_spark


@pytest.mark.parametrize("case", [pytest.param(each, id=each.name) for each in CASES])
def test_delta_lake_answers_what_the_table_says(delta: Delta, case: Case) -> None:
    if case.fails is None:
        assert carried_out(delta, case) == (list(columns_of(case.made).names), sorted(case.gives or (), key=repr))
        return
    with pytest.raises(DeltaError) as refused:
        carried_out(delta, case)
    assert case.fails in str(refused.value)
