"""Rows deleted by deletion vectors, for Spark's own scan: bitmaps in which it looks up rows by file and position.

Spark's scan knows each row's file and its position in it, while it still reads in batches and skips row groups. The bitmaps,
with one bit per row of a file, are broadcast: the cost per row does not depend on how many are deleted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import accumulate
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from ...storage.actions.records import DeletionVector
from ...storage.data.vectors import Rows, positions_of, read_vector
from ...storage.schema.partitions import uri_to_path
from ...storage.stores.objects import ObjectStore

__all__ = ["BITMAPS_BYTES_MAX", "deleted_rows", "without_deleted"]

BITMAPS_BYTES_MAX: Final = 128 * 1024 * 1024
"""Larger bitmaps are not broadcast; enough for a thousand million rows in files with vectors."""

_THREADS: Final = 16
# File names without escapes in Spark's column of file names.
_PLAIN_NAME: Final = re.compile(r"[A-Za-z0-9._=-]+")
_WORD_BITS: Final = 64
_WORD_SHIFT: Final = 6


def deleted_rows(store: ObjectStore, files: pa.Table) -> pa.Table | str:
    """For the files with a deletion vector: `file`, and the deleted rows in `words` of 64 rows each.

    A text is the reason why Spark's scan cannot omit the rows. Raises the errors of `read_vector`.
    """
    files = files.select(["path", "deletion_vector"]).filter(pc.is_valid(files["deletion_vector"]))
    names = [uri_to_path(uri).rpartition("/")[2] for uri in files["path"].to_pylist()]
    for name in names:
        if not _PLAIN_NAME.fullmatch(name):
            return f"Spark may spell the name of {name}, which has a deletion vector, in another way"
    if len(set(names)) < len(names):
        return "files with deletion vectors have the same name in several partitions"
    vectors = [DeletionVector(**each) for each in files["deletion_vector"].to_pylist()]
    if sum(each.size_in_bytes for each in vectors) > BITMAPS_BYTES_MAX:
        return "its deletion vectors are too large to be broadcast"
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="sluice-vectors") as pool:
        deleted = list(pool.map(partial(read_vector, store), vectors))
    if sum(rows.max() // 8 for rows in deleted if rows) > BITMAPS_BYTES_MAX:
        return "its deletion vectors are too large to be broadcast"
    bitmaps = [_words(rows) for rows in deleted]
    offsets = pa.array([0, *accumulate(map(len, bitmaps))], pa.int32())
    words = pa.ListArray.from_arrays(offsets, pa.concat_arrays([pa.array([], pa.int64()), *bitmaps]))
    return pa.table({"file": pa.array(names, pa.string()), "words": words})


def _words(rows: Rows) -> pa.Array:
    """The bits of all positions up to the last deleted one."""
    count = (rows.max() // _WORD_BITS + 1 if rows else 0) * _WORD_BITS
    everything = Rows()
    everything.add_range(0, count)
    # Arrow packs booleans, the first in the lowest bit
    bits = pc.is_in(positions_of(everything), value_set=positions_of(rows))
    return pa.Array.from_buffers(pa.int64(), count // _WORD_BITS, [None, bits.buffers()[1]])


def without_deleted(spark: SparkSession, frame: DataFrame, deleted: pa.Table, columns: Mapping[str, Column]) -> DataFrame:
    """`columns` of Spark's scan of the files in `deleted`, without the deleted rows."""
    prefix = "sluice_"
    while any(name.lower().startswith(prefix) for name in columns):
        prefix += "_"
    file, words, row, name = (prefix + each for each in ("file", "words", "row", "name"))
    hidden = frame.metadataColumn("_metadata")
    located = frame.select(*columns.values(), hidden["row_index"].alias(row), hidden["file_name"].alias(name))
    bitmaps = spark.createDataFrame(deleted.rename_columns([file, words]))
    joined = located.join(F.broadcast(bitmaps), F.col(name) == F.col(file), "left")
    word = F.get(F.col(words), F.shiftright(F.col(row), _WORD_SHIFT).cast("int"))
    # beyond the last word all rows are live
    is_deleted = F.coalesce(F.getbit(word, F.col(row).bitwiseAND(_WORD_BITS - 1).cast("int")), F.lit(0).cast("byte"))
    return joined.where(is_deleted == 0).select(*[F.col("`" + each.replace("`", "``") + "`") for each in columns])
