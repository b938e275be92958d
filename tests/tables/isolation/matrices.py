"""Pairs of concurrent transactions, as the conflict matrices speak of them: two operations begun on one version, committed in turn.

Every operation can be held open between its reading and its commit, has a meaning on a model of the rows, and is made by a
client of its own, so that a pair tells two things: whether the later one was refused, and whether the table holds exactly
what the two mean together.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias

import pyarrow as pa
import pytest

import sluice
from sluice.coordinator.commit import transactions
from sluice.coordinator.commit.outcomes import Claim
from sluice.coordinator.commit.queue import file_intents
from sluice.coordinator.errors import ConcurrentModification
from sluice.coordinator.limits import Limits
from sluice.coordinator.nodes.layout import newest_first
from sluice.coordinator.nodes.records import BatchRecord
from sluice.tables.maintain.compaction import CompactionRequest, stage_compaction
from tests.tables.conftest import Place, present

MATRICES: Final[Mapping[str, Any]] = json.loads(
    Path(__file__).parents[2].joinpath("coordinator", "conflict_matrices.json").read_text(encoding="utf-8")
)
SCHEMA: Final = pa.schema(
    [pa.field("part", pa.int64(), nullable=False), pa.field("id", pa.int64(), nullable=False), pa.field("v", pa.int64())]
)
Rows: TypeAlias = dict[int, tuple[int, int]]
"""What a table holds: id -> (part, v)."""


def table_of(rows: Mapping[int, tuple[int, int]]) -> pa.Table:
    columns = [[part for part, _ in rows.values()], list(rows), [v for _, v in rows.values()]]
    return pa.table([pa.array(column, pa.int64()) for column in columns], schema=SCHEMA)


def read(place: Place) -> Rows:
    """The rows that a client of its own sees; every id once."""
    found = place.open().snapshot().to_arrow()
    ids = found["id"].to_pylist()
    assert len(ids) == len(set(ids)), f"ids that are there twice: {sorted(i for i in set(ids) if ids.count(i) > 1)}"
    return dict(zip(ids, zip(found["part"].to_pylist(), found["v"].to_pylist(), strict=True), strict=True))


def create(place: Place, properties: Mapping[str, str], *, partitioned: bool) -> Rows:
    """A table with two partitions (or values of `part`) of two files each, or two files of both; 8 rows a partition."""
    table = sluice.Table.create(
        place.location, SCHEMA, partition_by=["part"] if partitioned else [], properties=properties, coordinator=place.coordinator
    )
    rows: Rows = {}
    for first in (0, 4):
        new = {part * 10 + number: (part, number) for part in (1, 2) for number in range(first, first + 4)}
        table.append(table_of(new))
        rows |= new
    return rows


@dataclass(frozen=True)
class Side:
    """Where one of two operations works: in which partition, which of its rows it changes (if they are there), and the ids it adds."""

    part: int
    changes: tuple[int, ...]
    adds: tuple[int, ...]

    @property
    def condition(self) -> str:
        return f"part = {self.part} AND id IN ({', '.join(map(str, self.changes))})"


FIRST: Final = Side(1, (10, 12), (100, 101))
SECOND: Final = Side(1, (11, 13), (200, 201))
"""Other rows of the same file."""
SAME_ROWS: Final = Side(1, (10, 12), (200, 201))
OTHER_PARTITION: Final = Side(2, (20, 22), (200, 201))


class Staged(Protocol):
    """What was begun, and can be committed."""

    def commit(self) -> sluice.Commit | None: ...


def _none(rows: Rows, side: Side) -> Rows:
    return {}


@dataclass(frozen=True)
class Operation:
    """An operation that is begun on the latest version. `gone` and `new` say what it means to the rows it saw.

    `replaces` are those that an overwrite takes away; under MaxCompute's policies it takes all that are there when it ends.
    """

    name: str
    stage: Callable[[sluice.Table, Side], Staged]
    gone: Callable[[Rows, Side], Rows] = _none
    new: Callable[[Rows, Side], Rows] = _none
    replaces: bool = False

    def after(self, seen: Rows, before: Rows, side: Side, *, replacing: bool) -> Rows:
        """The rows when it was done on top of `before`, begun when there were those `seen`."""
        gone = self.gone(before if replacing and self.replaces else seen, side)
        return {key: row for key, row in before.items() if key not in gone} | self.new(seen, side)


def _transaction(do: Callable[[sluice.Transaction, Side], object]) -> Callable[[sluice.Table, Side], Staged]:
    def stage(table: sluice.Table, side: Side) -> Staged:
        begun = table.begin()
        do(begun, side)
        return begun

    return stage


def _compaction(mode: str, **options: Any) -> Callable[[sluice.Table, Side], Staged]:
    def stage(table: sluice.Table, side: Side) -> Staged:
        staged = stage_compaction(
            table.coordinated, CompactionRequest(mode, f"part = {side.part}" if table.partition_columns else None, **options)
        )
        assert staged is not None, "there is nothing to compact"
        return staged

    return stage


def _fresh(rows: Rows, side: Side) -> Rows:
    return {key: (side.part, key % 100) for key in side.adds}


def _added(side: Side) -> pa.Table:
    return table_of(_fresh({}, side))


def _of_part(rows: Rows, side: Side) -> Rows:
    return {key: row for key, row in rows.items() if row[0] == side.part}


def _all(rows: Rows, side: Side) -> Rows:
    return rows


def _changed(rows: Rows, side: Side) -> Rows:
    return {key: rows[key] for key in side.changes if key in rows}


def _updated(rows: Rows, side: Side) -> Rows:
    return {key: (part, v + 1000) for key, (part, v) in _changed(rows, side).items()}


def _upserted(rows: Rows, side: Side) -> Rows:
    return dict.fromkeys(side.changes, (side.part, 500)) | _fresh(rows, side)


_OPERATIONS: Final = (
    Operation("append", _transaction(lambda t, side: t.append(_added(side))), new=_fresh),
    # Into a table with a primary key, where it replaces what has the same key.
    Operation("append by key", _transaction(lambda t, side: t.append(table_of(_upserted({}, side)))), _changed, _upserted),
    Operation("overwrite", _transaction(lambda t, side: t.overwrite(_added(side))), _all, _fresh, replaces=True),
    Operation(
        "overwrite partition",
        _transaction(lambda t, side: t.overwrite(_added(side), f"part = {side.part}")),
        _of_part,
        _fresh,
        replaces=True,
    ),
    Operation(
        "overwrite dynamically", _transaction(lambda t, side: t.overwrite(_added(side), dynamic=True)), _of_part, _fresh, replaces=True
    ),
    Operation("truncate", _transaction(lambda t, _: t.truncate()), _all, replaces=True),
    Operation("truncate partition", _transaction(lambda t, side: t.truncate(f"part = {side.part}")), _of_part, replaces=True),
    Operation("delete", _transaction(lambda t, side: t.delete(side.condition)), _changed),
    Operation("update", _transaction(lambda t, side: t.update({"v": "v + 1000"}, side.condition)), _changed, _updated),
    Operation("upsert", _transaction(lambda t, side: t.upsert(table_of(_upserted({}, side)), ["part", "id"])), _changed, _upserted),
    Operation("minor compaction", _compaction("minor")),
    Operation("major compaction", _compaction("major")),
    Operation("z-order", _compaction("major", z_order_by=["v", "id"])),
)
OPERATIONS: Final = {operation.name: operation for operation in _OPERATIONS}
CHANGES: Final = ("delete", "update", "upsert")
"""What Databricks' tables call UPDATE, DELETE and MERGE."""
COMPACTIONS: Final = ("minor compaction", "major compaction")


class Queue:
    """Holds every commit between filing and deciding, so that all of them are undecided at once, in the order they were filed."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self._pool = pool
        self._filed = threading.Semaphore(0)
        self._open = threading.Event()

    def hold(self) -> None:
        """What a client does once its slot is there."""
        if not self._open.is_set():
            self._filed.release()
            assert self._open.wait(120)

    def file(self, commit: Callable[[], sluice.Commit | None]) -> Future[sluice.Commit | None]:
        """Start a commit, and return when it is filed (or came to an end without that)."""
        waiting = threading.Event()
        done = self._pool.submit(commit)
        done.add_done_callback(lambda _: waiting.set())
        while not self._filed.acquire(timeout=0.005) and not waiting.is_set():
            pass
        return done

    def release(self) -> None:
        """Let all that was filed be decided."""
        self._open.set()

    def settle(self, *commits: Callable[[], sluice.Commit | None]) -> list[Future[sluice.Commit | None]]:
        """File these one after the other, and have them decided."""
        futures = [self.file(commit) for commit in commits]
        self.release()
        wait(futures, 120)
        return futures


@contextmanager
def queue(monkeypatch: pytest.MonkeyPatch) -> Iterator[Queue]:
    """A queue for the commits of clients that were opened with `fast_path=False`."""
    with ThreadPoolExecutor(32, thread_name_prefix="queued") as pool, monkeypatch.context() as patched:
        held = Queue(pool)

        def file(*arguments: Any) -> list[Claim | None]:
            claims = file_intents(*arguments)
            held.hold()
            return claims

        patched.setattr(transactions, "file_intents", file)
        try:
            yield held
        finally:
            held.release()


def batches(place: Place) -> list[BatchRecord]:
    """The verdict records that the coordinator has, oldest first."""
    context = place.open().coordinated.context
    names = newest_first(context.coordination.children(context.tree.verdicts) or ())
    nodes = context.coordination.read_many([context.tree.verdict(name) for name in names])
    return [BatchRecord.decode(node.data) for node in reversed(nodes) if node is not None]


@dataclass(frozen=True)
class Met:
    """What became of a pair: why the later one was refused, or what was adapted in it."""

    refusal: ConcurrentModification | None
    rebased: tuple[str, ...] = ()

    @property
    def verdict(self) -> str:
        """The exception's name, "ok" for none."""
        return "ok" if self.refusal is None else type(self.refusal).__name__


def meet(
    place: Place,
    earlier: str,
    later: str,
    *,
    properties: Mapping[str, str],
    partitioned: bool,
    sides: tuple[Side, Side] = (FIRST, SECOND),
    begun_later: bool = True,
    together: Queue | None = None,
) -> Met:
    """Begin both on one version, commit the earlier one, then the later one; the table holds what that means, exactly.

    `begun_later`: whether the one that is committed later was begun later too. With `together` both are in the queue before either
    is decided, by one client for both; else the earlier one is committed before the later one looks.
    """
    seen = create(place, properties, partitioned=partitioned)
    names = (earlier, later)
    limits = Limits(fast_path=together is None)
    one: Callable[[], sluice.Commit | None]
    other: Callable[[], sluice.Commit | None]
    staged: dict[int, Staged] = {}
    for which in (0, 1) if begun_later else (1, 0):
        staged[which] = OPERATIONS[names[which]].stage(place.open(limits=limits), sides[which])
    replacing = properties.get("sluice.conflictPolicy", "delta") != "delta"
    expected = OPERATIONS[earlier].after(seen, seen, sides[0], replacing=replacing)
    if together is not None:
        one, other = (done.result for done in together.settle(staged[0].commit, staged[1].commit))
    else:
        one, other = staged[0].commit, staged[1].commit
    first = present(one())
    if together is None:
        assert read(place) == expected, f"{earlier} alone"
    second: sluice.Commit | None = None
    refusal: ConcurrentModification | None = None
    try:
        second = other()
    except ConcurrentModification as error:
        refusal = error
    if refusal is not None:
        assert read(place) == expected, f"{later} was refused and left something"
        assert refusal.details["winning_version"] == first.version
        return Met(refusal)
    assert present(second).version == first.version + (
        0 if earlier == later == "append" and together and not replacing else 1
    )  # appends share a version
    assert read(place) == OPERATIONS[later].after(seen, expected, sides[1], replacing=replacing), f"{earlier}, then {later}"
    return Met(None, place.open().history(1)[0].rebased)
