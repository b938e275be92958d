"""Functions on terms that Arrow lacks, or computes differently from Spark.

A term is an array, a scalar, or an expression of a dataset's filter. For expressions, exact Python functions are registered
with Arrow under their own names (`sluice.<name>:<takes>-><gives>`). A scan raises their exceptions unchanged.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from ..caches import ForkSafeLock

__all__ = ["Term", "and_", "is_nan", "or_", "per_array", "per_value"]

Term: TypeAlias = pa.Array | pa.Scalar | pc.Expression

_REGISTERED: Final[set[str]] = set()
_LOCK: Final = ForkSafeLock()


def or_(left: Term, right: Term) -> Term:
    """Null if either side is null; for expressions, pyarrow's own wrapper calls a function that does not exist."""
    return pc.Expression._call("or", [left, right]) if isinstance(left, pc.Expression) else pc.or_(left, right)


def and_(left: Term, right: Term) -> Term:
    """Null if either side is null."""
    return pc.Expression._call("and", [left, right]) if isinstance(left, pc.Expression) else pc.and_(left, right)


def is_nan(term: Term, kind: pa.DataType) -> Term:
    """Whether the float `term` is NaN, computed so that Arrow cannot use Parquet's statistics, which omit NaN.

    If a row group's smallest and largest value are equal, Arrow assumes that value for every row. The result of a random
    number (always less than 2) cannot be known beforehand.
    """
    if not isinstance(term, pc.Expression):
        return pc.is_nan(term)
    always = pc.less(pc.Expression._call("random", [], pc.RandomOptions(initializer=0)), 2.0)
    return pc.is_nan(pc.if_else(always, term, pa.scalar(None, kind)))


def per_value(name: str, change: Callable[[Any], Any], term: Term, takes: pa.DataType, gives: pa.DataType) -> Term:
    """`change` applied to every non-null value of `term`, once per distinct value of a batch."""

    def run(values: pa.Array) -> pa.Array:
        encoded = values.dictionary_encode()
        changed = [None if value is None else change(value) for value in encoded.dictionary.to_pylist()]
        return pa.array(changed, gives).take(encoded.indices)

    return per_array(name, run, term, takes, gives)


def per_array(name: str, change: Callable[[pa.Array], pa.Array], term: Term, takes: pa.DataType, gives: pa.DataType) -> Term:
    """`change` applied to the whole of `term`, batch by batch; it must preserve the length."""

    def run(_: Any, values: pa.Array | pa.Scalar) -> pa.Array | pa.Scalar:
        if isinstance(values, pa.Scalar):
            return change(pa.array([values.as_py()], takes))[0]
        return change(values)

    if not isinstance(term, pc.Expression):
        return run(None, term)
    full = f"sluice.{name}:{takes}->{gives}"
    with _LOCK:
        if full not in _REGISTERED:
            about = {"summary": f"{name} as Spark does it", "description": f"from {takes} to {gives}"}
            pc.register_scalar_function(run, full, about, {"values": takes}, gives)
            _REGISTERED.add(full)
    return pc.Expression._call(full, [term])
