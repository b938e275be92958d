from __future__ import annotations

import json
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.storage.actions import DeletionVector
from sluice.storage.actions.records import live_count, record_count, wide
from tests.storage.logs import add, statistics_of
from tests.storage.strategies import schemas, tables, unhurried


def exactly(text: str) -> object:
    return json.loads(text, parse_float=Decimal)


@unhurried
@given(st.data())
def test_only_the_mark_is_new_and_comes_once(data: st.DataObject) -> None:
    schema, partitions = data.draw(schemas())
    stats = statistics_of(data.draw(tables(schema)), schema, partitions)
    marked = wide(stats)
    assert marked is not None
    assert wide(marked) == marked
    assert list(exactly(marked).items()) == [*exactly(stats).items(), ("tightBounds", False)]  # type: ignore[attr-defined]
    assert record_count(marked) == record_count(stats) == exactly(stats)["numRecords"]  # type: ignore[index]


def test_digits_that_a_float_lacks_stay() -> None:
    text = '{"numRecords":1,"minValues":{"d":12345678901234567890.120,"tightBounds":true,"i":9223372036854775807},"tightBounds":true}'
    assert wide(text) == text[: text.rindex("true")] + "false}"


@pytest.mark.parametrize("text", [None, "", "[]", "no JSON", '{"numRecords":', '{"a":NaN}', '{"a":"\\ud800"}'])
def test_what_is_no_statistics_stays_and_counts_nothing(text: str | None) -> None:
    assert wide(text) == text
    assert record_count(text) is None


@pytest.mark.parametrize("count", ["true", "-1", "1.0", '"1"', "null"])
def test_a_count_is_a_number_of_rows(count: str) -> None:
    assert record_count(f'{{"numRecords":{count}}}') is None


def test_rows_that_are_left() -> None:
    vector = DeletionVector("u", "x" * 20, 10, 3, 1)
    assert live_count(add("a", stats='{"numRecords":5}')) == 5
    assert live_count(add("a", stats='{"numRecords":5}', deletion_vector=vector)) == 2
    assert live_count(add("a", deletion_vector=vector)) is None
