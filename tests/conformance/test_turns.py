"""Engines take turns on one table: random operations and changes of the schema, and after each turn all of them hold what the model holds.

sluice attaches the table before its turns and detaches it after them, as a team does that moves a table back and forth.
"""

from __future__ import annotations

import os
import tempfile
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from ..delta_spark.engine import Delta
from .comparing import newest, noted, sluice_reads, spark_reads, versions_agree
from .engines import DeltaLake, Engine, OnDuckDB, OnSpark
from .model import KEY, Model
from .operations import ANSWERS, Add, Delete, Drop, Insert, Merge, Operation, Optimize, Rename, Restore, Update, Widen

pytestmark = [pytest.mark.delta_spark, pytest.mark.timeout(3600)]

EXAMPLES = int(os.environ.get("TURNS", "4"))
"""Tables; each takes about a minute."""
COLUMNS = {KEY: "BIGINT", "v": "STRING", "n": "INT", "s": "STRUCT<x: BIGINT, y: STRING>", "p": "STRING"}
NAMES = ("a", "b c", "d.e", "f,g", "h")
KEYS = range(12)


@dataclass(frozen=True)
class Step:
    """A kind of operation, and numbers that choose its keys, columns and names among those that the table has then."""

    kind: str
    keys: frozenset[int]
    choice: int


def operation(step: Step, model: Model) -> Operation:
    """What a step is on the table as it is; where nothing of its kind is possible, rows are inserted."""
    keys = sorted(step.keys)
    usable = [name for name, kind in model.columns.items() if name not in {KEY, "p"} and kind in ANSWERS]
    changeable = [name for name in model.columns if name != KEY]
    fresh = [name for name in NAMES if name not in model.columns]
    narrow = [name for name, kind in model.columns.items() if kind == "INT"]
    match step.kind:
        case "delete":
            return Delete(keys)
        case "update" if usable:
            return Update(keys, usable[step.choice % len(usable)])
        case "merge" if usable:
            return Merge(keys, usable[step.choice % len(usable)])
        case "add" if fresh:
            return Add(fresh[step.choice % len(fresh)], ("STRING", "INT", COLUMNS["s"])[step.choice % 3])
        case "rename" if fresh and changeable:
            return Rename(changeable[step.choice % len(changeable)], fresh[step.choice % len(fresh)])
        case "drop" if len(usable) > 1:
            return Drop(usable[step.choice % len(usable)])
        case "widen" if narrow:
            return Widen(narrow[step.choice % len(narrow)], "BIGINT")
        case "restore":
            return Restore(step.choice % len(model.versions))
        case "optimize":
            return Optimize()
    taken = max((k for _, rows in model.versions for k in rows), default=-1)
    return Insert(range(taken + 1, taken + 1 + len(keys)))


STEPS = st.builds(
    Step,
    st.sampled_from(("insert", "insert", "delete", "update", "merge", "add", "rename", "drop", "widen", "optimize", "restore")),
    st.frozensets(st.sampled_from(KEYS), min_size=1, max_size=4),
    st.integers(0, 20),
)
TURNS = st.lists(
    st.tuples(st.sampled_from(("Delta Lake", "DuckDB", "Spark")), st.lists(STEPS, min_size=1, max_size=4)), min_size=2, max_size=5
)
PROPERTIES = st.fixed_dictionaries(
    {
        "delta.columnMapping.mode": st.sampled_from(("name", "id")),
        "delta.enableTypeWidening": st.just("true"),
        "delta.enableDeletionVectors": st.sampled_from(("true", "false")),
        "delta.enableChangeDataFeed": st.sampled_from(("true", "false")),
        "delta.checkpointPolicy": st.sampled_from(("classic", "v2")),
        "delta.checkpointInterval": st.sampled_from(("2", "5")),
    }
)


def take_turns(
    engines: dict[str, Callable[[], Engine]],
    delta: Delta,
    turns: Sequence[tuple[str, Sequence[Step]]],
    properties: dict[str, str],
    partitioned: bool,
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"t{uuid.uuid4().hex[:8]}"
        model = Model(dict(COLUMNS))
        definition = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
        engines["Delta Lake"]().create(path, definition, partitioned, False, properties)
        noted(model, path)
        for who, steps in turns:
            engine = engines[who]()
            engine.begin(path)
            noted(model, path)
            for step in steps:
                what = operation(step, model)
                engine.do(path, what, model)
                what.apply(model)
                noted(model, path)
            engine.end(path)
            noted(model, path)
            latest = [newest(path)]
            versions_agree(sluice_reads(path), model, latest)
            versions_agree(spark_reads(delta, path), model, latest)
        versions_agree(sluice_reads(path), model)
        versions_agree(spark_reads(delta, path), model)


def test_turns_at_random(delta: Delta, spark: SparkSession, zookeeper_address: str) -> None:
    engines: dict[str, Callable[[], Engine]] = {
        "Delta Lake": lambda: DeltaLake(delta),
        "DuckDB": lambda: OnDuckDB(zookeeper_address),
        "Spark": lambda: OnSpark(spark, zookeeper_address),
    }

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture],
        report_multiple_bugs=False,
    )
    @given(TURNS, PROPERTIES, st.booleans())
    def turns(turns: list[tuple[str, list[Step]]], properties: dict[str, str], partitioned: bool) -> None:
        take_turns(engines, delta, turns, properties, partitioned)

    turns()
