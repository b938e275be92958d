"""Functions that Spark's tasks run over their rows as Arrow batches, and what they return.

A Python data source costs four more Python processes for each job: Spark looks the source up, makes it, makes its writer and
commits in their own processes. So the results of tasks come back as a frame's rows do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import BinaryType, StructType
from pyspark.sql.udf import UserDefinedFunction
from pyspark.util import PythonEvalType

from ..jvm import quoted
from ..workers import forget_finders

_SCHEMA: Final = StructType().add("result", BinaryType())


def results_of_tasks(frame: DataFrame, work: Callable[[Iterator[pa.RecordBatch]], bytes]) -> list[bytes]:
    """What `work`, a function or object that can be pickled, returns for the batches of each task of `frame`.

    A task that Spark runs twice gives one result. Raises what PySpark does if a task fails.
    """
    # DataFrame.mapInArrow without its test for pandas, which such functions do not need
    columns = [frame[quoted(name)] for name in frame.columns]
    called: Any = UserDefinedFunction(_Task(work), _SCHEMA, evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF)(*columns)
    jdf: Any = frame._jdf
    results: list[bytes] = DataFrame(jdf.mapInArrow(called._jc, False, None), frame.sparkSession).toArrow()["result"].to_pylist()
    return results


class _Task:
    """Runs the work of one task in a Python worker."""

    def __init__(self, work: Callable[[Iterator[pa.RecordBatch]], bytes]) -> None:
        self._work = work

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        result = self._work(batches)
        forget_finders()
        yield pa.record_batch({"result": pa.array([result], pa.binary())})
