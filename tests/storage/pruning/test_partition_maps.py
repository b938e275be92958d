"""Partition values of many files at once give what looking each of them up gives, and are decoded for the files that are read next."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.storage.actions.filetable import TEXT_MAP, add_rows
from sluice.storage.data import scan
from sluice.storage.errors import MissingObject
from sluice.storage.pruning.files import partition_texts
from sluice.storage.schema import partitions
from sluice.storage.schema.datatypes import PrimitiveType, StructField, StructType
from tests.storage.data.reading import iter_files, read_files
from tests.storage.logs import add, new_store

NAMES = ["a", "b", "c", "d"]
VALUES = st.sampled_from([None, "", "x", "y"])
ALIKE = st.lists(st.sampled_from(NAMES), unique=True).flatmap(
    lambda names: st.lists(st.tuples(*(VALUES for _ in names)).map(lambda values: list(zip(names, values, strict=True))), max_size=5)
)
ANY = st.lists(st.none() | st.dictionaries(st.sampled_from(NAMES), VALUES).map(lambda values: list(values.items())), max_size=5)


@given(st.lists(ALIKE | ANY, max_size=3), st.integers(0, 3), st.lists(st.sampled_from(NAMES), unique=True, min_size=1))
def test_columns_are_what_each_look_up_gives(chunks: list[list[Any]], skipped: int, names: list[str]) -> None:
    maps = pa.chunked_array([pa.array(chunk, TEXT_MAP).slice(skipped) for chunk in chunks], TEXT_MAP)
    expected = [pc.map_lookup(maps, name, "first").to_pylist() for name in names]
    assert [column.to_pylist() for column in partition_texts(maps, names)] == expected


def test_a_missing_file_is_named_before_all_partition_values_are_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded = 0
    decode = partitions.decode_column

    def counting(texts: pa.Array, kind: PrimitiveType) -> pa.Array:
        nonlocal decoded
        decoded += len(texts)
        return decode(texts, kind)

    monkeypatch.setattr(scan, "decode_column", counting)
    values = {f"p{number}": "1" for number in range(20)}
    files = add_rows([add(f"f{number}.parquet", partition_values=values) for number in range(20_000)])
    schema = StructType([StructField(name, PrimitiveType("integer")) for name in (*values, "id")])
    store = new_store()
    for read in (read_files, iter_files):
        decoded = 0
        with pytest.raises(MissingObject, match=r"f0\.parquet"):
            list(read(store, files, schema=schema, partition_columns=list(values)))
        assert 0 < decoded <= 5000 * len(values)
