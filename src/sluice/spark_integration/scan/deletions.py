"""Rows deleted by deletion vectors, for Spark's own scan: bits in which it looks up a row by its position in the file.

Spark's scan knows each row's position while it still reads in batches and skips row groups. A file's bits, one for each row up to the
last deleted one, come to it as a partition value of that file: the cost per row does not depend on how many are deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from ...storage.actions.records import DeletionVector
from ...storage.data.vectors import Rows, positions_of, read_vector
from ...storage.stores.objects import ObjectStore
from ..jvm import analysed, class_in_jvm, items, quoted

Lost: TypeAlias = "Callable[[pa.Table], Mapping[str, Rows]]"
"""The deleted rows of some files of a table, by path; files without deleted rows are left out."""

_THREADS: Final = 16
_BITS: Final = 8
_OBJECTS: Final = "org.apache.spark.sql.catalyst.expressions.objects"


def deleted_rows(store: ObjectStore, files: pa.Table) -> dict[str, Rows]:
    """The deleted rows of the files with a deletion vector, by path. Raises the errors of `read_vector`."""
    files = files.select(["path", "deletion_vector"]).filter(pc.is_valid(files["deletion_vector"]))
    if not files.num_rows:
        return {}
    vectors = [DeletionVector(**each) for each in files["deletion_vector"].to_pylist()]
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="sluice-vectors") as pool:
        return dict(zip(files["path"].to_pylist(), pool.map(partial(read_vector, store), vectors), strict=True))


def bits_of(rows: Rows) -> bytes | None:
    """The bits of all positions up to the last deleted one. It takes time for each deleted row and each byte, not for each row."""
    if not rows:
        return None
    positions = positions_of(rows).cast(pa.int64())
    places, shifts = pc.shift_right(positions, 3), pc.bit_wise_and(positions, _BITS - 1)
    some = pa.table({"place": places, "bits": pc.shift_left(pa.scalar(1, pa.int64()), shifts)})
    some = some.group_by("place").aggregate([("bits", "sum")]).combine_chunks()
    found = pc.index_in(pa.array(range(rows.max() // _BITS + 1), pa.int64()), value_set=some["place"].chunk(0))
    return bytes(pc.fill_null(some["bits_sum"].chunk(0).take(found), 0).cast(pa.uint8()).to_pylist())


def live_rows(frame: DataFrame, bits: str, row: str) -> DataFrame:
    """The rows of a frame that are not deleted: those whose bit is not set, by the columns of their file's bits and their position.

    SQL has no function for a byte at a place, so Spark's tasks call the method by which Spark itself reads bytes.
    """
    session = frame.sparkSession
    bits, row = quoted(bits), quoted(row)
    # never outside, whatever Spark evaluates first
    place = f"least({row} DIV {_BITS}, CAST(length({bits}) AS BIGINT) - 1)"
    first = int(class_in_jvm(session, "org.apache.spark.unsafe.Platform").BYTE_ARRAY_OFFSET)
    array, offset = items(analysed(frame.select(F.expr(f"{bits} AS bits"), F.expr(f"{first} + {place} AS place"))).projectList())
    byte = _called(session, "getByte", "org.apache.spark.unsafe.Platform", [array.child(), offset.child()])
    is_set = F.getbit(byte, F.expr(f"CAST({row} % {_BITS} AS INT)")) == 1
    return frame.where(F.expr(f"{bits} IS NULL OR {row} DIV {_BITS} >= length({bits})") | ~is_set)


def _called(session: SparkSession, method: str, owner: str, arguments: Sequence[Any]) -> Column:
    """What a static method of Java returns for expressions of Spark's: a byte, null if one of them is null."""
    sequence = class_in_jvm(session, "org.apache.spark.api.python.PythonUtils").toSeq
    nothing = class_in_jvm(session, "scala.Option").empty()
    loader = class_in_jvm(session, "java.lang.Thread").currentThread().getContextClassLoader()
    kind = class_in_jvm(session, "org.apache.spark.sql.types.DataType").fromJson('"byte"')
    static = class_in_jvm(session, "java.lang.Class").forName(owner, True, loader), kind, method, sequence(arguments), sequence([])
    call = class_in_jvm(session, f"{_OBJECTS}.StaticInvoke")(*static, True, True, True, nothing)
    return Column(class_in_jvm(session, "org.apache.spark.sql.classic.ExpressionUtils").column(call))
