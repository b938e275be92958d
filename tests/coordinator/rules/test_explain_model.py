"""`explain --strict-delta` gives the verdict of Delta Lake's conflict checker: random cases, compared with a model of it.

What sluice does better only ever turns a refusal into a success.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from typing import Any

import pytest

from sluice.coordinator.rules.explain.cases import read_case
from sluice.coordinator.rules.explain.decision import explain
from tests.coordinator.delta_model import delta_verdict
from tests.coordinator.explain_cases import DOMAINS, Json, add, domain, info, metadata, protocol, reads, remove, txn

CASES = 800
PREDICATES = ("x = 1", "x = 2", "x > 1", "x < 3", "x IS NULL", "n > 5", "x = 1 OR n > 5", "y = 'a'")
FILES = ("a", "b", "c", "d")


class _Dice:
    """Makes cases of a few files in a few partitions, so that transactions meet often."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.columns = self.random.choice([["x"], ["x"], ["x"], []])

    def some(self, *choices: Any, most: int = 2) -> list[Any]:
        return [self.random.choice(choices) for _ in range(self.random.randint(0, most))]

    def chance(self, one_in: int) -> bool:
        return self.random.randrange(one_in) == 0

    def add(self, path: str, **more: Any) -> Json:
        made = add(path, x=self.random.choice(["1", "2", "3", None]), **more)
        if not self.columns:
            made["add"]["partitionValues"] = {}
        return made

    def files(self, prefix: str, paths: list[str]) -> list[Json]:
        data_change = not self.chance(3)
        added = [self.add(f"{prefix}{n}", data_change=data_change) for n in range(self.random.randint(0, 2))]
        return [*(remove(path, data_change=data_change) for path in dict.fromkeys(paths)), *added]

    def others(self) -> list[Json]:
        configuration = self.random.choice([{"delta.enableDeletionVectors": "true"}, {"k": "v"}, {"delta.checkpointPolicy": "v2"}, {}])
        rare = [metadata(configuration, partitionColumns=self.columns), protocol("appendOnly", "domainMetadata", "checkConstraints")]
        common = [txn("t1"), txn("t2"), domain("d"), domain("delta.rowTracking")]
        return [each for each, odds in ((self.random.choice(rare), 6), (self.random.choice(common), 4)) if self.chance(odds)]

    def read(self) -> Json:
        places = [{"x": x} for x in self.some("1", "2", None)] if self.columns else [{}]
        return self.random.choice(
            [
                reads(*self.some(*PREDICATES)),
                reads(*self.some(*PREDICATES[:4], most=1)),
                reads(self.random.choice(PREDICATES)),
                {"op": "metadata"},
                {"op": "txnVersion", "appId": "t1"},
                {"op": "readFiles", "paths": self.some(*FILES)},
                *([{"op": "readWholeTable"}] if self.chance(2) else []),
                *([{"op": "partitionsOf", "partitionValues": places}] if self.columns else []),
            ]
        )

    def commit(self, number: int) -> list[Json]:
        said = self.some(info(blind=True), info(blind=False), info("OPTIMIZE"), most=1)
        return [*said, *self.others(), *self.files(f"w{number}", self.some(*FILES, most=1))]

    def case(self) -> Json:
        return {
            "partition_columns": self.columns,
            "schema": {"x": "int", "y": "string", "n": "bigint"},
            "table_isolation": self.random.choice(["Serializable", "WriteSerializable", "SnapshotIsolation"]),
            "setup": [metadata(partitionColumns=self.columns), DOMAINS, *(self.add(path) for path in FILES)],
            "txn_reads": [self.read() for _ in range(self.random.randint(0, 2))],
            "winning_commits": [self.commit(n) for n in range(self.random.randint(1, 3))],
            "own_actions": [*self.others(), *self.files("o", self.some(*FILES))],
            "own_operation": self.random.choice(["WRITE", "DELETE", "UPDATE", "OPTIMIZE", "Manual Update"]),
        }


def _told(fields: Json, *, strict: bool) -> str:
    return explain(read_case(json.dumps(fields).encode(), "a case"), strict=strict).verdict


@pytest.mark.slow
def test_random_cases_get_deltas_own_verdict() -> None:
    met: Counter[str] = Counter()
    for seed in range(CASES):
        fields = _Dice(seed).case()
        expected = delta_verdict(fields)
        assert _told(fields, strict=True) == expected, json.dumps(fields)
        met[expected] += 1
    assert len(met) == 7
    assert min(met.values()) >= 5
    assert met["ok"] < CASES * 3 // 4


@pytest.mark.costly
@pytest.mark.slow
def test_what_sluice_does_better_stops_nobody_whom_delta_lets_pass() -> None:
    better = 0
    for seed in range(CASES):
        fields = _Dice(seed).case()
        strict, ours = _told(fields, strict=True), _told(fields, strict=False)
        assert strict != "ok" or ours == "ok", json.dumps(fields)
        better += strict != ours
    assert better >= CASES // 100
