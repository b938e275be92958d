"""What the log says about files is read once: for a snapshot's table of files, and for the columns that are asked for again."""

from __future__ import annotations

import gc

import pyarrow as pa
import pytest

from sluice.storage.expressions.nodes import Column
from sluice.storage.pruning import files


def test_what_is_known_of_a_table_of_files_lives_as_long_as_the_table() -> None:
    def table() -> pa.Table:
        maps = pa.array([{}] * 300, pa.map_(pa.string(), pa.string()))
        stats = [f'{{"numRecords":1,"minValues":{{"a":{n},"b":{n}}}}}' for n in range(300)]
        return pa.table({"partition_values": maps, "stats": stats})

    first = table()
    known = files.Files.of_table(first)
    assert files.Files.of_table(first) is known
    assert files.Files.of_table(table()) is not known
    key = id(first)
    assert key in files._of_tables
    del first
    gc.collect()
    assert key not in files._of_tables


def test_columns_beyond_the_limit_are_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    stats = [f'{{"numRecords":1,"minValues":{{"a":{n},"b":{-n}}}}}' for n in range(300)]
    known = files.Files([{}] * 300, stats)
    monkeypatch.setattr(files, "_KEPT_BYTES_MAX", 0)
    low = {name: Column((files.LOW, name), pa.int64()) for name in "ab"}
    for _ in range(2):
        for name, sign in (("a", 1), ("b", -1)):
            assert known.columns([low[name]], {})(low[name]).to_pylist() == [sign * n for n in range(300)]
            assert set(known._columns) == {low[name].path}
