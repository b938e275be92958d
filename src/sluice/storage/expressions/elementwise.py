"""What Arrow expressions need beside Arrow's own functions, for the few things Arrow does otherwise than Spark.

Exact Python functions are registered with Arrow under names of their own (`sluice.<name>:<takes>-><gives>`), so that they work in a
dataset's filter too, and see every distinct value of a batch once. An exception raised by one comes out of the scan as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["is_nan", "per_array", "per_value"]

_REGISTERED: Final[set[str]] = set()
_LOCK: Final = Lock()


def is_nan(term: pc.Expression, kind: pa.DataType) -> pc.Expression:
    """Whether the float `term` is NaN, asked so that Arrow cannot answer from Parquet's statistics, which leave NaN out.

    Where a row group's smallest and largest value are equal, Arrow takes every row for that value. What depends on a random number
    (always less than 2) it cannot know beforehand.
    """
    always = pc.less(pc.Expression._call("random", [], pc.RandomOptions(initializer=0)), 2.0)
    return pc.is_nan(pc.if_else(always, term, pc.scalar(pa.scalar(None, kind))))


def per_value(name: str, change: Callable[[Any], Any], term: pc.Expression, takes: pa.DataType, gives: pa.DataType) -> pc.Expression:
    """`change` applied to every value of `term` that is not null."""

    def run(values: pa.Array) -> pa.Array:
        encoded = values.dictionary_encode()
        changed = [None if value is None else change(value) for value in encoded.dictionary.to_pylist()]
        return pa.array(changed, gives).take(encoded.indices)

    return per_array(name, run, term, takes, gives)


def per_array(
    name: str, change: Callable[[pa.Array], pa.Array], term: pc.Expression, takes: pa.DataType, gives: pa.DataType
) -> pc.Expression:
    """`change` applied to the whole of `term`, batch by batch; it must keep the length."""

    def run(_: Any, values: pa.Array | pa.Scalar) -> pa.Array | pa.Scalar:
        if isinstance(values, pa.Scalar):
            return change(pa.array([values.as_py()], takes))[0]
        return change(values)

    full = f"sluice.{name}:{takes}->{gives}"
    with _LOCK:
        if full not in _REGISTERED:
            about = {"summary": f"{name} as Spark does it", "description": f"from {takes} to {gives}"}
            pc.register_scalar_function(run, full, about, {"values": takes}, gives)
            _REGISTERED.add(full)
    return pc.Expression._call(full, [term])
