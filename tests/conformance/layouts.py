"""The tables: every feature, with and without partitions and deletion vectors; change data and kinds of checkpoints take turns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any, Final

from .model import KEY, Model
from .operations import Add, Delete, Drop, Insert, Merge, Operation, Optimize, Rename, Update, Widen

__all__ = ["LAYOUTS", "Layout"]

_COLUMNS: Final = {KEY: "BIGINT", "v": "STRING", "n": "INT", "p": "STRING"}
_CHECKPOINTS: Final[Mapping[str, Mapping[str, str]]] = {
    "no checkpoints": {"delta.checkpointInterval": "1000"},
    "classic checkpoints": {"delta.checkpointInterval": "3"},
    "V2 checkpoints": {"delta.checkpointInterval": "3", "delta.checkpointPolicy": "v2"},
}


@dataclass(frozen=True)
class _Feature:
    """One feature: how its table is made, and what is done to it besides what every table sees."""

    properties: Mapping[str, str] = field(default_factory=dict)
    columns: Mapping[str, str] = field(default_factory=dict)
    """Further columns."""
    declared: Mapping[str, str] = field(default_factory=dict)
    """What the definition of a column says besides its type."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """What columns hold where a row is inserted without a value."""
    computed: Mapping[str, Callable[[Mapping[str, Any]], Any]] = field(default_factory=dict)
    """What engines compute from a row."""
    numbered: Sequence[str] = ()
    """Identity columns."""
    operations: Sequence[Operation] = ()
    vectors: Sequence[bool] = (False, True)
    clustered: bool = False


_TYPES: Final = {
    "b": "BOOLEAN",
    "d": "DATE",
    "t": "TIMESTAMP",
    "u": "TIMESTAMP_NTZ",
    "m": "DECIMAL(10,2)",
    "f": "DOUBLE",
    "y": "BINARY",
    "s": "STRUCT<x: BIGINT, y: STRING>",
    "l": "ARRAY<STRING>",
    "c": "MAP<STRING, BIGINT>",
}
_MODE: Final = "delta.columnMapping.mode"
_SCHEMA_CHANGES: Final = (Rename("v", "v, w"), Add("more", "STRING"), Insert((30, 31)), Drop("n"), Rename("p", "part"))

_FEATURES: Final[Mapping[str, _Feature]] = {
    "plain": _Feature(),
    "types": _Feature(columns=_TYPES, properties={"delta.feature.timestampNtz": "supported"}),
    "added columns": _Feature(operations=(Add("more", "STRING"), Insert((30, 31)), Add("last", "BIGINT"))),
    "column mapping by name": _Feature({_MODE: "name"}, {"a b": "STRING", "s": _TYPES["s"]}, operations=_SCHEMA_CHANGES),
    "column mapping by id": _Feature({_MODE: "id"}, {"a b": "STRING", "s": _TYPES["s"]}, operations=_SCHEMA_CHANGES),
    "type widening": _Feature(
        {"delta.enableTypeWidening": "true"},
        {"m": "DECIMAL(10,2)"},
        operations=(Widen("n", "BIGINT"), Widen("m", "DECIMAL(12,2)"), Insert((30, 31))),
    ),
    "column defaults": _Feature({"delta.feature.allowColumnDefaults": "supported"}, declared={"n": "DEFAULT 5"}, defaults={"n": 5}),
    "generated columns": _Feature(
        columns={"g": "BIGINT"}, declared={"g": "GENERATED ALWAYS AS (k * 2)"}, computed={"g": lambda row: row[KEY] * 2}
    ),
    "identity columns": _Feature(columns={"i": "BIGINT"}, declared={"i": "GENERATED ALWAYS AS IDENTITY"}, numbered=("i",)),
    "constraints": _Feature(declared={KEY: "NOT NULL"}, properties={"delta.constraints.positive": "k >= 0"}),
    "row tracking": _Feature({"delta.enableRowTracking": "true"}),
    "in-commit timestamps": _Feature({"delta.enableInCommitTimestamps": "true"}),
    "clustering": _Feature(clustered=True),
    "append only": _Feature({"delta.appendOnly": "true"}),
}


_LACKS: Final[Mapping[str, Mapping[str, str]]] = {
    "Delta Lake's SQL": dict.fromkeys(("generated columns", "identity columns"), "it makes none; tests/delta_spark tries its builders"),
    "DuckDB": {"column mapping, partitions": "it reads partition columns as null where columns are mapped, whoever wrote the table"},
    "deltalake": {"type widening": "it refuses the feature"},
}
"""What others lack: the words of layouts that they cannot read or make, and why."""


@dataclass(frozen=True)
class Layout:
    """One table, and what happens to it."""

    name: str
    properties: Mapping[str, str]
    columns: Mapping[str, str]
    declared: Mapping[str, str]
    filled: Mapping[str, Any]
    """How the model fills in columns, by the names of its fields."""
    partitioned: bool
    clustered: bool
    changes: bool
    operations: Sequence[Operation]

    def model(self) -> Model:
        """The table as it is created."""
        return Model(dict(self.columns), **self.filled)

    def lack_of(self, other: str) -> str | None:
        """Why another engine does not read or make the table, if it does not."""
        lacks = _LACKS[other].items()
        return next((reason for words, reason in lacks if all(word in self.name for word in words.split(", "))), None)

    @property
    def definition(self) -> str:
        """The columns, as CREATE TABLE has them."""
        return ", ".join(f"`{name}` {kind} {self.declared.get(name, '')}".strip() for name, kind in self.columns.items())


def _layouts() -> Iterator[Layout]:
    # Latin squares: every pair of (change data, checkpoints) meets every feature and every layout of files in some table.
    turns = product((True, False), _CHECKPOINTS)
    queue = list(turns)
    number = 0
    for name, feature in _FEATURES.items():
        for vectors, partitioned in product(feature.vectors, (False,) if feature.clustered else (False, True)):
            changes, checkpoints = queue[number % len(queue)]
            number += 1
            yield _layout(name, feature, vectors, partitioned, changes, checkpoints)
        number += 1


def _layout(name: str, feature: _Feature, vectors: bool, partitioned: bool, changes: bool, checkpoints: str) -> Layout:
    properties = {
        **feature.properties,
        **_CHECKPOINTS[checkpoints],
        "delta.enableDeletionVectors": str(vectors).lower(),
        "delta.enableChangeDataFeed": str(changes).lower(),
    }
    words = (
        name,
        *(["partitions"] if partitioned else []),
        *(["vectors"] if vectors else []),
        *(["change data"] if changes else []),
        checkpoints,
    )
    return Layout(
        ", ".join(words),
        properties,
        {**_COLUMNS, **feature.columns},
        feature.declared,
        {"defaults": feature.defaults, "computed": feature.computed, "numbered": feature.numbered},
        partitioned,
        feature.clustered,
        changes,
        _script(feature),
    )


def _script(feature: _Feature) -> Sequence[Operation]:
    inserts = (Insert(range(6)), Insert(range(6, 15)))
    if feature.properties.get("delta.appendOnly") == "true":
        return (*inserts, Add("more", "STRING"), Insert((20, 21)))
    return (
        *inserts,
        Delete((1, 5, 9)),
        Update((2, 3, 10), "v"),
        Merge((4, 11, 20, 21), "v"),
        *feature.operations,
        Delete((3, 20)),
        Optimize(),
        Insert((40, 41)),
        Delete((40,)),
    )


LAYOUTS: Final = tuple(_layouts())
