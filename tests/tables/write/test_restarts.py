"""A job that is restarted with the same key, or the same number of its application, does not write twice, whatever killed it."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

import sluice
from sluice.coordinator.limits import Limits
from sluice.coordinator.publication.failure_points import FAILPOINTS
from tests.killed import until_killed
from tests.tables.conftest import Place, flights, rows_of
from tests.tables.restarted_program import ROWS, run

SCHEMA = pa.schema([pa.field("sku", pa.int64()), pa.field("n", pa.int64())])
IMPATIENT = Limits(patience_s=0.05, patience_s_max=0.5)
KEY: dict[str, Any] = {"key": "nightly-2026-01-01"}

# -- killed by SIGKILL --------------------------------------------------------------------------------------------------

QUEUED = [(failpoint, "append", KEY, False) for failpoint in FAILPOINTS]
DIRECT = [(failpoint, "append", KEY, True) for failpoint in ("before-ratify", "after-ratify", "after-publish", "before-ack")]
SEVERAL = [
    (f, "several", KEY, False) for f in ("data-staged", "before-claim", "after-claim", "after-ratify", "after-publish", "before-ack")
]
OTHERS: list[tuple[str, str, dict[str, Any], bool]] = [
    ("after-claim", "append", {"transaction": ("job", 7)}, False),
    ("after-claim", "several", {"transaction": ("job", 7)}, False),
    ("after-ratify", "upsert", KEY, False),
    ("after-claim", "plan", KEY, False),
]


@pytest.mark.shows("job-restarted")
@pytest.mark.zookeeper
@pytest.mark.parametrize(("failpoint", "how", "once", "fast_path"), [*QUEUED, *DIRECT, *SEVERAL, *OTHERS])
def test_a_job_killed_at_any_step_and_started_again(
    failpoint: str, how: str, once: dict[str, Any], fast_path: bool, tmp_path: Path, zookeeper_address: str
) -> None:
    tables = [tmp_path / "orders", tmp_path / "stock"]
    for each in tables:
        sluice.Table.create(each, SCHEMA, coordinator=zookeeper_address)
    orders, stock = (sluice.Table.open(each, coordinator=zookeeper_address, limits=IMPATIENT) for each in tables)
    stock.append(pa.table({"sku": [1], "n": [5]}, schema=SCHEMA))
    order: dict[str, Any] = {
        "tables": [str(each) for each in tables],
        "coordinator": zookeeper_address,
        "once": once,
        "how": how,
        "fast_path": fast_path,
        "inline_bytes_max": 16 if failpoint == "actions-staged" else 64 * 1024,
    }
    assert until_killed(run, order, failpoint=failpoint) == ["began"]
    for _ in range(2):  # and once more, for good measure
        run(**order)
    assert rows_of(orders.snapshot().to_arrow()) == rows_of(ROWS)
    assert rows_of(deltalake.DeltaTable(orders.location).to_pyarrow_table()) == rows_of(ROWS)
    assert stock.snapshot().to_arrow()["n"].to_pylist() == [6 if how == "several" else 5]
    assert len([each for each in orders.history() if each.application == "job"]) == 1


# -- in one process -----------------------------------------------------------------------------------------------------

OPERATIONS: dict[str, Callable[..., sluice.Commit | None]] = {
    "append": lambda table, **once: table.append(flights(("JFK", 1, 1)), **once),
    "overwrite": lambda table, **once: table.overwrite(flights(("JFK", 1, 1)), **once),
    "delete": lambda table, **once: table.delete("delay = 0", **once),
    "update": lambda table, **once: table.update({"delay": "delay + 1"}, **once),
    "upsert": lambda table, **once: table.upsert(flights(("LGA", 1, 1)), on="origin", **once),
    "truncate": lambda table, **once: table.truncate(**once),
}


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("once", [KEY, {"transaction": ("app", 3)}], ids=["key", "transaction"])
def test_every_operation_happens_once(place: Place, operation: str, once: dict[str, Any]) -> None:
    table, do = place.create(), OPERATIONS[operation]
    table.append(flights(("LGA", 1, 0)))
    first = do(table, **once)
    assert first is not None
    assert (first.version, first.repeated) == (2, False)
    after = rows_of(table.snapshot().to_arrow())
    files = len(list(Path(place.location).rglob("*.parquet")))
    again = do(place.open(), **once)
    assert again is not None
    assert (again.version, again.repeated) == (2, True)
    assert again.transaction_id == first.transaction_id
    assert rows_of(table.snapshot().to_arrow()) == after
    assert len(list(Path(place.location).rglob("*.parquet"))) == files, "nothing is written for what was done before"


def test_a_transaction_with_a_key_happens_once(place: Place) -> None:
    table = place.create()
    commits: list[sluice.Commit | None] = []
    for _ in range(2):
        with place.open().begin(**KEY) as begun:
            begun.append(flights(("JFK", 1, 1)))
        commits.append(begun.commit())
    assert [commit and commit.version for commit in commits] == [1, 1]
    assert rows_of(table.snapshot().to_arrow()) == [("JFK", 1, 1)]


def test_keys_are_told_apart_from_each_other_and_from_applications(place: Place) -> None:
    table = place.create()
    different: list[dict[str, Any]] = [
        *({"key": key} for key in ("a", "b", "a ", "A")),
        *({"transaction": (app, 0)} for app in ("a", "sluice.key:")),
    ]
    for once in different:
        commit = table.append(flights(("JFK", 1, 1)), **once)
        assert commit is not None
        assert not commit.repeated
    assert table.snapshot().to_arrow().num_rows == len(different)


def test_a_key_belongs_to_its_table(tmp_path: Path) -> None:
    coordinator = f"memory://{uuid.uuid4().hex}"
    for name in ("one", "other"):
        table = Place(str(tmp_path / name), coordinator).create()
        commit = table.append(flights(("JFK", 1, 1)), **KEY)
        assert commit is not None
        assert not commit.repeated


@pytest.mark.parametrize("once", [{"key": ""}, {"key": 7}, {"key": "k" * 1001}, {"key": "k", "transaction": ("a", 1)}])
def test_what_is_no_key_is_refused_before_anything_is_written(place: Place, once: dict[str, Any]) -> None:
    table = place.create()
    for do in OPERATIONS.values():
        with pytest.raises(sluice.errors.InvalidRequest, match=r"key(=| is)"):
            do(table, **once)
    with pytest.raises(sluice.errors.InvalidRequest, match=r"key(=| is)"):
        table.begin(**once)
    with pytest.raises(sluice.errors.InvalidRequest, match=r"key(=| is)"):
        sluice.transaction(**once)
    with pytest.raises(sluice.errors.InvalidRequest, match=r"key(=| is)"):
        table.plan_write(None, **once)
    assert list(Path(place.location).rglob("*.parquet")) == []


@pytest.mark.parametrize("fast_path", [True, False], ids=["direct", "queued"])
def test_of_many_at_once_one_writes(place: Place, fast_path: bool) -> None:
    place.create()
    tables = [place.open(limits=IMPATIENT.but(fast_path=fast_path)) for _ in range(6)]
    with ThreadPoolExecutor(6) as pool:
        told = list(pool.map(lambda table: table.append(flights(("JFK", 1, 1)), **KEY), tables))
    assert sorted(commit.repeated for commit in told if commit is not None) == [False, *[True] * 5]
    assert len({commit.version for commit in told if commit is not None}) == 1
    assert rows_of(tables[0].snapshot().to_arrow()) == [("JFK", 1, 1)]
