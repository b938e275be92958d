"""The bitmaps in which Spark's scan looks up deleted rows."""

from __future__ import annotations

import pytest

from sluice.spark_integration.scan.deletions import bitmaps_of
from sluice.storage.data.vectors import Rows


@pytest.mark.parametrize(
    "positions",
    [[0], [63], [64], [0, 63, 64, 127], [5, 1_000_000], [*range(200)], [*range(0, 5000, 7)], [20_000_063, 1, 2]],
    ids=lambda each: str(len(each)),
)
def test_a_bitmap_has_the_bits_of_the_deleted_rows_and_no_other(positions: list[int]) -> None:
    table = bitmaps_of({"gone.parquet": Rows(positions), "whole.parquet": Rows()})
    assert not isinstance(table, str)
    assert table["file"].to_pylist() == ["gone.parquet", "whole.parquet"]
    words, none = table["words"].to_pylist()
    assert none == []
    assert len(words) == max(positions) // 64 + 1
    found = [64 * at + bit for at, word in enumerate(words) if word for bit in range(64) if word % 2**64 >> bit & 1]
    assert found == sorted(positions)
