"""The bitmaps in which Spark's scan looks up deleted rows."""

from __future__ import annotations

import pytest

from sluice.spark_integration.scan.file_index import bits_of
from sluice.storage.data.vectors import Rows


@pytest.mark.parametrize(
    "positions",
    [[0], [63], [64], [0, 63, 64, 127], [5, 1_000_000], [*range(200)], [*range(0, 5000, 7)], [20_000_063, 1, 2]],
    ids=lambda each: str(len(each)),
)
def test_a_bitmap_has_the_bits_of_the_deleted_rows_and_no_other(positions: list[int]) -> None:
    bits = bits_of(Rows(positions))
    assert bits is not None
    assert len(bits) == max(positions) // 8 + 1
    assert [8 * at + bit for at, byte in enumerate(bits) if byte for bit in range(8) if byte >> bit & 1] == sorted(positions)


def test_no_deleted_rows_have_no_bits() -> None:
    assert bits_of(Rows()) is None
