"""Every type has one form in JSON, which does not depend on the row."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner

import sluice
from sluice.cli import main
from sluice.shell.printing import as_csv, as_json, values_of

INTERVALS = pa.month_day_nano_interval()
FORMS: list[tuple[Any, pa.DataType, Any]] = [
    (True, pa.bool_(), True),
    (2**63 - 1, pa.int64(), 2**63 - 1),
    (0.1, pa.float32(), 0.1),
    (0.5, pa.float16(), 0.5),
    (0.1, pa.float64(), 0.1),
    (float("nan"), pa.float64(), "NaN"),
    (float("inf"), pa.float32(), "Infinity"),
    (float("-inf"), pa.float64(), "-Infinity"),
    (Decimal("2.50"), pa.decimal128(10, 2), "2.50"),
    (Decimal("0E-10"), pa.decimal128(20, 10), "0.0000000000"),
    (Decimal(7), pa.decimal256(60, 0), "7"),
    ("a", pa.large_string(), "a"),
    ("a", pa.string_view(), "a"),
    (b"\x00\xff", pa.binary(), "00FF"),
    (b"ab", pa.binary(2), "6162"),
    (19_782, pa.date32(), "2024-02-29"),
    (10**7, pa.date32(), "29349-01-26"),
    (1_500_000, pa.timestamp("us"), "1970-01-01T00:00:01.500000"),
    (1_000_000_001, pa.timestamp("ns", "Europe/Paris"), "1970-01-01T00:00:01Z"),
    (253_402_300_800, pa.timestamp("s", "UTC"), "10000-01-01T00:00:00Z"),
    (3_600, pa.time32("s"), "01:00:00"),
    (1_500_000_000, pa.time64("ns"), "00:00:01.500000"),
    (90_061_500_000, pa.duration("us"), "P1DT1H1M1.5S"),
    (-500, pa.duration("ms"), "PT-0.5S"),
    (0, pa.duration("s"), "PT0S"),
    ((14, 3, 4_000_000_000), INTERVALS, "P1Y2M3DT4S"),
    ((-1, 0, 0), INTERVALS, "P-1M"),
    ([1, None], pa.list_(pa.int8()), [1, None]),
    ([Decimal("1.0")], pa.list_(pa.decimal128(3, 1), 1), ["1.0"]),
    ([(True, float("nan"))], pa.map_(pa.bool_(), pa.float64()), {"true": "NaN"}),
    ({"a": [{"b": b"x"}]}, pa.struct([("a", pa.list_(pa.struct([("b", pa.binary())])))]), {"a": [{"b": "78"}]}),
]


@pytest.mark.parametrize(("value", "kind", "form"), FORMS, ids=lambda each: str(each)[:40])
def test_each_type_has_one_form(value: Any, kind: pa.DataType, form: Any) -> None:
    """Also where a batch begins in the middle of an array, beside null, and in nested values."""
    array = pa.array([None, value, None, value], kind)
    assert values_of(array) == [None, form, None, form]
    assert values_of(array[1:2]) == [form]
    rows = pa.table({"a": array})
    assert [json.loads(line)["a"] for line in as_json(rows)] == [None, form, None, form]
    assert len(list(as_csv(rows))) == 5


def test_dictionaries_and_nulls() -> None:
    assert values_of(pa.array(["a", None, "a"]).dictionary_encode()) == ["a", None, "a"]
    assert values_of(pa.nulls(2)) == [None, None]


@pytest.fixture
def run(coordinator: str) -> Callable[..., Any]:
    return lambda *arguments: CliRunner().invoke(main, ["sql", "--engine", "local", "--coordinator", coordinator, *arguments])


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 1 AS a, 2 AS a",
        "SELECT * FROM (SELECT 1 AS id) x JOIN (SELECT 1 AS id) y ON x.id = y.id",
        "SELECT sum(a) AS s, max(a) AS s FROM (SELECT 1 AS a) v",
    ],
)
def test_columns_of_one_name_are_no_object(run: Callable[..., Any], text: str) -> None:
    done = run("--json", "-e", text)
    assert done.exit_code == 2
    assert "2 columns are called" in done.stderr
    assert "give each another one" in done.stderr
    assert done.stdout == ""
    assert len(run("--csv", "-e", text).stdout.splitlines()[0].split(",")) >= 2


def test_fields_of_one_name_are_no_object() -> None:
    twice = pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    with pytest.raises(sluice.errors.InvalidRequest, match="2 fields of column 'x' are called 'a'"):
        list(as_json(pa.table({"x": twice})))


def test_a_decimal_is_text_in_each_row(run: Callable[..., Any]) -> None:
    done = run("--json", "-e", "SELECT * FROM VALUES (CAST(0.1 AS DECIMAL(38, 20))), (CAST(2 AS DECIMAL(38, 20))) AS v(d)")
    assert [json.loads(line) for line in done.stdout.splitlines()] == [{"d": "0.10000000000000000000"}, {"d": "2.00000000000000000000"}]


def test_an_interval_ends_no_shell(run: Callable[..., Any]) -> None:
    done = run("--json", "-e", "SELECT INTERVAL '1' DAY AS a; SELECT INTERVAL '14' MONTH AS a; SELECT array(INTERVAL '1' HOUR) AS a")
    assert [json.loads(line) for line in done.stdout.splitlines()] == [{"a": "P1D"}, {"a": "P1Y2M"}, {"a": ["PT1H"]}]
    for form in ((), ("--csv",)):
        assert "P1D" in run(*form, "-e", "SELECT INTERVAL '1' DAY AS a").stdout
