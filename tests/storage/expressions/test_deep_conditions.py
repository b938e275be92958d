"""Conditions that are nested beyond all measure are refused by name, wherever they are used."""

from __future__ import annotations

import pyarrow as pa
import pytest

from sluice.storage.errors import PredicateError
from sluice.storage.expressions.parse import parse, parse_widely
from sluice.storage.pruning.predicate import Predicate
from sluice.storage.schema.schema import from_arrow

SCHEMA = pa.schema([("a", pa.int64())])


@pytest.mark.parametrize(
    "text",
    ["(" * 2000 + "a = 1" + ")" * 2000, "NOT " * 2000 + "a = 1", "a = " + "-(" * 2000 + "1" + ")" * 2000, "a" + " + 1" * 5000 + " = 1"],
    ids=["parentheses", "not", "minus", "sum"],
)
def test_what_is_nested_too_deeply_is_refused(text: str) -> None:
    with pytest.raises(PredicateError, match="nested too deeply") as caught:
        parse(text, SCHEMA)
    assert len(str(caught.value)) < 500
    parse_widely("a = 1", SCHEMA)


def test_what_people_write_is_not() -> None:
    table = pa.table({"a": [1, 2, 3]})
    schema = from_arrow(SCHEMA)
    deep = "(" * 20 + "a = 1" + ")" * 20
    wide = " OR ".join(f"a = {number}" for number in range(1000))
    for text in (deep, wide):
        assert Predicate.parse(text, schema).mask(table).true_count >= 1
