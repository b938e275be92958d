"""Which files Spark's own scan reads correctly: those whose folders agree with the log about their partition.

Spark takes partition values from folder names. It is configured to read them as text; this module computes that text like
Spark and compares it with the log, which alone is authoritative.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

import pyarrow as pa

from ...storage.actions.uris import key_inside
from ...storage.schema.partitions import HIVE_DEFAULT_PARTITION
from ...storage.schema.schema import PrimitiveType, StructType

_ESCAPE: Final = re.compile("%([0-9A-Fa-f]{2})")
# SparkHadoopUtil.isGlobPath. Disabling patterns does not help: then each such path stands for all the others, too.
_GLOB: Final = frozenset("{}[]*?\\")
_ZONED: Final = re.compile(r"(Z|[+-]\d{2}:?\d{2})$")


def spelled_paths(root: str, location: str, files: pa.Table, schema: StructType, partition_columns: Sequence[str]) -> list[str] | str:
    """The files' paths if Spark's own scan can read all of them; otherwise the reason.

    `root` is Spark's spelling of the table's `location`.
    """
    timestamps = [each for each in partition_columns if (field := schema.get(each)) and field.type == PrimitiveType("timestamp")]
    known: dict[str, dict[str, str | None] | None] = {}
    paths: list[str] = []
    for uri, values in zip(files.column("path").to_pylist(), files.column("partition_values").to_pylist(), strict=True):
        key = key_inside(location, uri)
        if key is None:
            return f"{uri} lies outside of the table's folder"
        folder, _, name = key.rpartition("/")
        if name.startswith(("_", ".")) or name.endswith("._COPYING_"):
            return f"Spark takes {key} for hidden"
        path = f"{root}/{key}"
        if not _GLOB.isdisjoint(path):
            return f"Spark takes {path} for a pattern"
        if folder not in known:
            known[folder] = _spelled(folder, partition_columns)
        told = {column: value or None for column, value in values}
        if known[folder] != told or any(_depends_on_session(told, each) for each in timestamps):
            return f"the folder of {key} does not match its partition, {told}"
        paths.append(path)
    return paths


def _spelled(folder: str, partition_columns: Sequence[str]) -> dict[str, str | None] | None:
    """The partition values that Spark reads from a folder's name; None if it is not a partition's folder."""
    parts = folder.split("/") if folder else []
    if len(parts) != len(partition_columns):
        return None
    values: dict[str, str | None] = {}
    for part, column in zip(parts, partition_columns, strict=True):
        name, equals, value = part.partition("=")
        if not equals or not value or part.startswith(".") or unescaped(name) != column:
            return None
        values[column] = None if value == HIVE_DEFAULT_PARTITION else unescaped(value)
    return values


def unescaped(text: str) -> str:
    """Like ExternalCatalogUtils.unescapePathName: one character per escape, whatever its encoding."""
    return _ESCAPE.sub(lambda match: chr(int(match[1], 16)), text)


def _depends_on_session(values: Mapping[str, str | None], column: str) -> bool:
    """Whether a timestamp is written without its zone: UTC for sluice, the session's zone for Spark."""
    value = values.get(column)
    return value is not None and _ZONED.search(value) is None
