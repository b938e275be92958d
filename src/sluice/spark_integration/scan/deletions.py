"""Rows deleted by deletion vectors, for Spark's own scan: bitmaps in which it looks up rows by file and position.

Spark's scan knows each row's file and its position in it, while it still reads in batches and skips row groups. The bitmaps,
with one bit per row of a file, are broadcast: the cost per row does not depend on how many are deleted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from ...storage.stores.objects import ObjectStore
from ..jvm import quoted

BITMAPS_BYTES_MAX: Final = 128 * 1024 * 1024
"""Larger bitmaps are not broadcast; enough for a thousand million rows in files with vectors."""

_THREADS: Final = 16
_TOO_LARGE: Final = "its deletion vectors are too large to be broadcast"
_WORD_BITS: Final = 64
_WORD_SHIFT: Final = 6
_ONE: Final = pa.scalar(1, pa.uint64())


def deleted_rows(store: ObjectStore, files: pa.Table) -> dict[str, Rows] | str:
    """The deleted rows of the files with a deletion vector, by path.

    A text is the reason why Spark's scan cannot omit the rows. Raises the errors of `read_vector`.
    """
    files = files.select(["path", "deletion_vector"]).filter(pc.is_valid(files["deletion_vector"]))
    vectors = [DeletionVector(**each) for each in files["deletion_vector"].to_pylist()]
    if sum(each.size_in_bytes for each in vectors) > BITMAPS_BYTES_MAX:
        return _TOO_LARGE
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="sluice-vectors") as pool:
        return dict(zip(files["path"].to_pylist(), pool.map(partial(read_vector, store), vectors), strict=True))


def bitmaps_of(deleted: Mapping[str, Rows]) -> pa.Table | str:
    """For these files by the key that Spark's scan has for them: `file`, and the deleted rows in `words` of 64 rows each.

    A text is the reason why Spark's scan cannot omit the rows.
    """
    if sum(rows.max() // 8 for rows in deleted.values() if rows) > BITMAPS_BYTES_MAX:
        return _TOO_LARGE
    bitmaps = [_words(rows) for rows in deleted.values()]
    offsets = pa.array([0, *accumulate(map(len, bitmaps))], pa.int32())
    words = pa.ListArray.from_arrays(offsets, pa.concat_arrays([pa.array([], pa.int64()), *bitmaps]))
    return pa.table({"file": pa.array(list(deleted), pa.string()), "words": words})


def facts_of(files: pa.Table, keys: Sequence[str], lost: Mapping[str, Rows]) -> pa.Table | str:
    """Like `bitmaps_of` for all of these files, with the ids of their rows: `base` of the first one, and their commit `version`.

    `lost` is by path, `keys` are the files' by Spark's scan.
    """
    bitmaps = bitmaps_of({key: lost.get(uri, Rows()) for key, uri in zip(keys, files["path"].to_pylist(), strict=True)})
    if isinstance(bitmaps, str):
        return bitmaps
    return bitmaps.append_column("base", files["base_row_id"]).append_column("version", files["default_row_commit_version"])


def _words(rows: Rows) -> pa.Array:
    """The bits of all positions up to the last deleted one. It takes time for each deleted row and each word, not for each row."""
    if not rows:
        return pa.array([], pa.int64())
    positions = positions_of(rows).cast(pa.uint64())
    bits = pc.shift_left(_ONE, pc.bit_wise_and(positions, pa.scalar(_WORD_BITS - 1, pa.uint64())))
    some = pa.table({"word": pc.shift_right(positions, pa.scalar(_WORD_SHIFT, pa.uint64())), "bits": bits})
    some = some.group_by("word").aggregate([("bits", "sum")]).combine_chunks()
    every = Rows()
    every.add_range(0, rows.max() // _WORD_BITS + 1)
    places = pc.index_in(positions_of(every).cast(pa.uint64()), value_set=some["word"].chunk(0))
    return pc.fill_null(some["bits_sum"].chunk(0).take(places), 0).view(pa.int64())


def without_deleted(
    spark: SparkSession, frame: DataFrame, deleted: pa.Table, columns: Mapping[str, Column], ids: tuple[str, str] | None = None
) -> DataFrame:
    """`columns` of Spark's scan of the files in `deleted`, without the deleted rows.

    `ids` names the columns with the ids and commit versions that rows carry; others get what `facts_of` says of their file.
    """
    prefix = "sluice_"
    while any(name.lower().startswith(prefix) for name in columns):
        prefix += "_"
    file, words, row, name, base, version = (prefix + each for each in ("file", "words", "row", "name", "base", "version"))
    hidden = frame.metadataColumn("_metadata")
    located = frame.select(*columns.values(), hidden["row_index"].alias(row), hidden["file_path"].alias(name))
    bitmaps = spark.createDataFrame(deleted.rename_columns([file, words, base, version][: deleted.num_columns]))
    joined = located.join(F.broadcast(bitmaps), F.col(name) == F.col(file), "left")
    shown = {each: F.col("`" + each.replace("`", "``") + "`") for each in columns}
    if ids is not None:
        shown |= {
            carried: F.coalesce(shown[carried], default).alias(carried)
            for carried, default in zip(ids, (F.col(base) + F.col(row), F.col(version)), strict=True)
        }
    return joined.where(_is_live(words, row)).select(*shown.values())


def live_rows(frame: DataFrame, deleted: pa.Table, located: tuple[str, str], names: Sequence[str]) -> DataFrame:
    """A frame without the rows in `deleted`, which has columns for the rows' file and position in it, `located`.

    Only the rows of this frame are looked up: a join or a condition may choose few before. The frame gets the columns of `deleted`
    under these `names`.
    """
    bitmaps = frame.sparkSession.createDataFrame(deleted.rename_columns(list(names)))
    joined = frame.join(F.broadcast(bitmaps), F.expr(f"{quoted(located[0])} = {quoted(names[0])}"), "left")
    return joined.where(_is_live(names[1], located[1]))


def _is_live(words: str, row: str) -> Column:
    """Whether a row's bit is not set; beyond the last word all rows are live."""
    words, row = quoted(words), quoted(row)
    word = f"get({words}, CAST(shiftright({row}, {_WORD_SHIFT}) AS INT))"
    return F.expr(f"coalesce(getbit({word}, CAST({row} & {_WORD_BITS - 1} AS INT)), CAST(0 AS TINYINT)) = 0")
