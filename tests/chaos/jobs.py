"""What the processes do: one step of each job."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import sluice
from sluice.coordinator.commit.outcomes import Commit
from sluice.operating import contention, daemon
from sluice.operating.daemon import Daemon

from .blocks import run_block
from .followers import consume, consume_the_rest
from .meaning import Step
from .worker import SCHEMA, Worker, arrow, perform

__all__ = ["ACCOUNTS", "CLUSTERED", "ENDS", "JOBS", "LEDGERS", "NUMBERED", "account", "contention_of", "opening"]

LEDGERS: Final = ("left", "right")
"""The two tables that money moves between."""

NUMBERED: Final = "numbered"
"""The table with an identity column."""

CLUSTERED: Final = "clustered"
"""The table that is clustered while rows are deleted and merged."""

ACCOUNTS: Final = 8
_OPENING: Final = 1000
_PARTS: Final = ("p0", "p1", "p2", "p3", "kept")
_LEASED: Final = "kept"
_KEYS: Final = 24
_LEVELS: Final = ("latest", "published", "serial", "session")


def account(table: str, number: int) -> tuple[str, str]:
    """Id and partition of an account."""
    return f"{table}-{number}", f"a{number % 3}"


def opening(table: str) -> list[list[Any]]:
    return [[*account(table, number), _OPENING] for number in range(ACCOUNTS)]


# -- one table -----------------------------------------------------------------------------------------------------------


def write_events(worker: Worker) -> None:
    """Everything one does to one table."""
    dice = worker.dice
    part = dice.choice(_PARTS)
    isolation = "Serializable" if dice.random() < 0.2 else None
    low = dice.randrange(100)
    span = {"part": part, "lo": low, "hi": low + dice.randint(5, 40)}
    name = worker.diary.next_name()
    drawn = dice.random()
    if drawn < 0.35:
        worker.append("events", worker.rows(name, part, dice.randint(1, 4)))
    elif drawn < 0.50:
        worker.transact("delete", "events", [{"do": "delete", **span}], isolation=isolation)
    elif drawn < 0.65:
        worker.transact("update", "events", [{"do": "update", **span, "add": dice.choice((-7, 3, 11))}], isolation=isolation)
    elif drawn < 0.77:
        keys = dice.sample(range(_KEYS), dice.randint(1, 3))
        rows = [[f"key-{key}", _PARTS[key % 3], dice.randrange(100)] for key in keys]
        worker.transact("upsert", "events", [{"do": "upsert", "rows": rows}], isolation=isolation)
    elif drawn < 0.85:
        rows = worker.rows(name, "p3", dice.randint(1, 5))
        worker.transact("overwrite", "events", [{"do": "overwrite", "part": "p3", "rows": rows}], isolation=isolation)
    else:
        steps: list[Step] = [{"do": "append", "rows": worker.rows(name, part, 2)}, {"do": "delete", **span}]
        steps += [{"do": "update", "part": "p3", "lo": 0, "hi": 50, "add": 1}] if dice.random() < 0.5 else []
        worker.transact("several steps", "events", steps, isolation=isolation)


def load_events(worker: Worker) -> None:
    """Numbered appends of an application that remembers how far it came, and repeats its number when it was restarted."""
    progress = Path(worker.to.folder) / f"{worker.to.name}.progress"
    done = int(progress.read_text()) if progress.exists() else 0
    number = done if done and worker.dice.random() < 0.15 else done + 1
    rows = [[f"{worker.to.name}#{number}/{place}", _PARTS[(number + place) % 3], number % 100] for place in range(3)]
    if worker.append("events", rows, (worker.to.name, number)) == "committed" and number > done:
        fresh = progress.with_name(f"{progress.name}.{worker.to.process}")
        fresh.write_text(str(number))
        fresh.replace(progress)


def hold_events(worker: Worker) -> None:
    """Take a lease on a partition, and commit there while nobody else may."""
    mode = "exclusive" if worker.dice.random() < 0.7 else "shared"
    table = worker.table("events")
    try:
        with table.lease(mode, f"part = '{_LEASED}'", wait_s=worker.to.patience_s) as lease:
            since = table.snapshot(consistency="serial").version
            for _ in range(worker.dice.randint(1, 3)):
                rows = worker.rows(worker.diary.next_name(), _LEASED, 2)
                low = worker.dice.randrange(60)
                steps: list[Step] = [{"do": "delete", "part": _LEASED, "lo": low, "hi": low + 40}, {"do": "append", "rows": rows}]
                worker.transact("under a lease", "events", steps, lease=mode)
            until = table.snapshot(consistency="serial").version
            lease.check()
            worker.diary.note("stood", mode=mode, table="events", part=_LEASED, since=since, until=until)
    except (sluice.errors.LeaseHeld, sluice.errors.LeaseLost, sluice.errors.DeadlockDetected) as refused:
        worker.diary.note("no lease", error=f"{type(refused).__name__}: {refused}"[:300])
    worker.finish.wait(worker.dice.uniform(0.5, 2.0))


def number_rows(worker: Worker) -> None:
    """Rows get numbers: a few, twice in one transaction, or as many as tasks might need; then some of these rows change or go."""
    dice = worker.dice
    part, name, drawn = dice.choice(_PARTS), worker.diary.next_name(), dice.random()
    rows = worker.rows(name, part, dice.randint(2, 6))
    low = dice.randrange(100)
    span = {"part": part, "lo": low, "hi": low + 10}
    if drawn < 0.5:
        worker.append(NUMBERED, rows)
    elif drawn < 0.7:
        steps: list[Step] = [{"do": "append", "rows": rows[:1]}, {"do": "append", "rows": rows[1:]}]
        worker.transact("numbered twice", NUMBERED, steps)
    elif drawn < 0.85:
        _append_by_tasks(worker, rows)
    elif drawn < 0.93:
        worker.transact("update", NUMBERED, [{"do": "update", **span, "add": 3}])
    else:
        worker.transact("delete", NUMBERED, [{"do": "delete", **span}])


def _append_by_tasks(worker: Worker, rows: list[list[Any]]) -> None:
    """A planned write, whose tasks have numbers for many rows, so that the high-water mark is raised."""
    table = worker.table(NUMBERED)
    operation = worker.diary.begin("numbered by tasks", {NUMBERED: [{"do": "append", "rows": rows}]})

    def work() -> Commit | None:
        plan = table.plan_write(SCHEMA)
        worker.diary.note("filing", op=operation, id=plan.transaction_id)
        files = [file for task in range(2) for file in plan.write(arrow(rows[task::2]), label=str(task), task=task)]
        return table.commit_write(plan, files)

    worker.answer(operation, NUMBERED, work)


def change_clustered(worker: Worker) -> None:
    """Rows come, change and go where somebody else clusters them, also by MERGE and DELETE in SQL."""
    dice = worker.dice
    low = dice.randrange(100)
    part = dice.choice(_PARTS)
    span = {"part": part, "lo": low, "hi": low + dice.randint(5, 40)}
    rows = worker.rows(worker.diary.next_name(), part, dice.randint(2, 8))
    drawn = dice.random()
    if drawn < 0.35:
        worker.append(CLUSTERED, rows)
    elif drawn < 0.6:
        worker.transact("delete", CLUSTERED, [{"do": "delete", **span}])
    elif drawn < 0.7:
        worker.transact("update", CLUSTERED, [{"do": "update", **span, "add": 7}])
    elif drawn < 0.85:
        keys = [[f"key-{key}", _PARTS[key % 3], dice.randrange(100)] for key in dice.sample(range(_KEYS), 3)]
        worker.transact("merge", CLUSTERED, [{"do": "upsert", "rows": keys}])
    else:
        run_block(worker, {CLUSTERED: [{"do": "append", "rows": rows} if dice.random() < 0.5 else {"do": "delete", **span}]})


def cluster(worker: Worker) -> None:
    """What came since the last time, or everything."""
    mode = "full" if worker.dice.random() < 0.7 else "minor"
    worker.maintain(f"cluster {mode}", CLUSTERED, lambda table: table.compact(mode, timeout_s=worker.to.patience_s))


# -- two tables ----------------------------------------------------------------------------------------------------------


def move_money(worker: Worker) -> None:
    """Transfers between accounts of two tables, with a mark in both; now and then in one of them, or of marks that go."""
    dice = worker.dice
    source, target = (account(table, dice.randrange(ACCOUNTS)) for table in LEDGERS)
    amount = dice.randint(-20, 20)
    drawn = dice.random()
    if drawn < 0.15:
        table = dice.choice(LEDGERS)
        worker.transact("delete", table, [{"do": "delete", "part": f"m{dice.randrange(3)}", "lo": 0, "hi": 1}])
        return
    name = worker.diary.next_name()
    if drawn < 0.25:
        table = dice.choice(LEDGERS)
        first, second = (account(table, number) for number in dice.sample(range(ACCOUNTS), 2))
        worker.transact("transfer in one table", table, [_moved(first, -amount), _moved(second, amount)])
        return
    _jointly(worker, "transfer", _transfer(name, source, target, amount, f"m{dice.randrange(3)}"))


def move_money_in_sql(worker: Worker) -> None:
    """The same transfers as blocks of SQL; now and then marks go in both tables."""
    dice = worker.dice
    if dice.random() < 0.2:
        gone: Step = {"do": "delete", "part": f"m{dice.randrange(3)}", "lo": 0, "hi": 1}
        run_block(worker, {name: [gone] for name in LEDGERS})
        return
    source, target = (account(table, dice.randrange(ACCOUNTS)) for table in LEDGERS)
    run_block(worker, _transfer(worker.diary.next_name(), source, target, dice.randint(-20, 20), f"m{dice.randrange(3)}"))


def _transfer(name: str, source: tuple[str, str], target: tuple[str, str], amount: int, part: str) -> dict[str, list[Step]]:
    """What a transfer does, with a mark in both tables."""
    mark: Step = {"do": "append", "rows": [[f"{name}/0", part, 0]]}
    return {LEDGERS[0]: [_moved(source, -amount), mark], LEDGERS[1]: [_moved(target, amount), mark]}


def _moved(of: tuple[str, str], amount: int) -> Step:
    return {"do": "update", "id": of[0], "part": of[1], "add": amount}


def _jointly(worker: Worker, kind: str, does: Mapping[str, list[Step]]) -> str:
    tables = {name: worker.table(name) for name in does}
    operation = worker.diary.begin(kind, does)

    def work() -> Mapping[str, Commit]:
        ack = "ratified" if worker.dice.random() < 0.3 else "published"
        named = list(tables.values()) if worker.dice.random() < 0.5 else []
        begun = sluice.transaction(worker.to.coordinator, tables=named, ack=ack, timeout_s=worker.to.patience_s)
        try:
            for name, steps in does.items():
                for step in steps:
                    perform(begun.part(tables[name]), step)
            worker.diary.note("filing", op=operation, id=begun.id)
            info = worker.persist(begun)
            assert isinstance(info, sluice.CommitInfo)
        finally:
            worker.diary.note("filing", op=operation, id=begun.id)
        return {name: info[table] for name, table in tables.items()}

    return worker.answers(operation, work)


# -- everybody else ------------------------------------------------------------------------------------------------------


def tidy_up(worker: Worker) -> None:
    """Compactions, checkpoints, and garbage collection, dry and real."""
    name = worker.dice.choice(list(worker.to.tables))
    drawn = worker.dice.random()
    if drawn < 0.45:
        mode = worker.dice.choice(("minor", "major", "z-order")) if name != CLUSTERED else "minor"
        plain, order = (mode, None) if mode != "z-order" else ("minor", ["value", "id"])
        worker.maintain(f"compact {mode}", name, lambda table: table.compact(plain, z_order_by=order, timeout_s=worker.to.patience_s))
    elif drawn < 0.55:
        worker.maintain("checkpoint", name, lambda table: _nothing(table.checkpoint()))
    elif drawn < 0.7:
        worker.maintain("vacuum dry", name, lambda table: _nothing(table.vacuum(dry_run=True)))
    else:
        worker.maintain("vacuum", name, lambda table: _nothing(table.vacuum()))


def _nothing(_result: object) -> None:
    return None


def keep_house(worker: Worker) -> None:
    """A round of `sluice daemon`, to which more is due, and sooner, than to one in earnest."""
    for each in _daemon_of(worker).round():
        worker.diary.note("kept house", table=each.location, task=each.task, result=each.result, error=each.error[:300])


@cache
def _daemon_of(worker: Worker) -> Daemon:
    hour_s = 0.05
    for name, value in (("FILES_MIN", 5), ("_LATE_S", 2.0), ("_HOUR_S", hour_s)):
        setattr(daemon, name, value)
    setattr(contention, "TAKEN_AFTER_S", 3.0)  # noqa: B010 - for tests
    place = contention_of(worker.to.tables)
    return Daemon(worker.to.coordinator, worker.to.storage_options, interval_s=1.0, doctor_hours=15 / hour_s, contention=place)


def contention_of(tables: Mapping[str, str]) -> str:
    """Where the daemons keep what the others lost to one another."""
    return f"{tables['events'].rpartition('/')[0]}/contention"


def read_all(worker: Worker) -> None:
    """Reads at every level, some of them long and pinned."""
    name = worker.dice.choice(list(worker.to.tables))
    pin_s = worker.dice.uniform(0.5, 4.0) if worker.dice.random() < 0.1 else 0.0
    worker.read(name, "latest" if pin_s else worker.dice.choice(_LEVELS), pin_s=pin_s)


def read_both(worker: Worker) -> None:
    """The two ledgers as of one moment."""
    tables = [worker.table(name) for name in LEDGERS]
    asked = time.monotonic()
    snapshots = sluice.read_together(tables, timeout_s=worker.to.patience_s)
    worker.shown("together", asked, dict(zip(LEDGERS, snapshots, strict=True)))


JOBS: Mapping[str, Callable[[Worker], None]] = {
    "events": write_events,
    "loader": load_events,
    "leases": hold_events,
    "numbers": number_rows,
    "changes": change_clustered,
    "clusterer": cluster,
    "ledgers": move_money,
    "blocks": move_money_in_sql,
    "tidy": tidy_up,
    "daemon": keep_house,
    "reader": read_all,
    "together": read_both,
    "consumer": consume,
}

ENDS: Mapping[str, Callable[[Worker], None]] = {"consumer": consume_the_rest}
"""What is done once after the last step, by those for whom it matters."""
