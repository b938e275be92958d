"""What does a checkpoint of a table of very many files cost after a small commit, and does it slow the commits beside it?

``python -m benchmarks.checkpoints --files 1000000`` writes a table's log of so many files in random order, without data files. Then it
measures a classic checkpoint, a V2 checkpoint that writes all its sidecars, and those after a commit that adds one file, removes one, or
removes a hundred that lie apart. Each is made several times, by a new process that knows nothing of the table but the snapshot that it
just opened; the fastest counts. Then one client appends to a small table while checkpoints of the large one are made in a thread, and while
none is.

One JSON object per measurement goes to standard output, everything else to standard error.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from multiprocessing import get_context
from operator import itemgetter
from pathlib import Path
from typing import Final

import click
import pyarrow as pa
from rich.console import Console
from rich.table import Table as Grid

import sluice
from sluice.storage.actions import Action, AddFile, CommitInfo, Metadata, Protocol, RemoveFile, encode_all
from sluice.storage.actions.filetable import LayeredTable, add_rows
from sluice.storage.log.checkpoint_writer import write_checkpoint
from sluice.storage.log.paths import commit_path
from sluice.storage.log.replay import ReplayState
from sluice.storage.log.snapshot import Snapshot
from sluice.storage.stores.location import open_store
from sluice.storage.stores.objects import ObjectStore

from .report import warn_when_busy

__all__ = ["main"]

_PART: Final = 1 / 20
"""What a checkpoint after a small commit may cost, of one that writes everything."""
_SCHEMA = '{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}}]}'
_STATS = '{"numRecords":1000,"minValues":{"id":%d},"maxValues":{"id":%d},"nullCount":{"id":0}}'
_V2 = Protocol(3, 7, ("v2Checkpoint",), ("v2Checkpoint",))
_METADATA = Metadata("5fba94ed-9794-4965-ba6e-6ee3c0d22af9", _SCHEMA, (), {})
_STEP = 50_000
_APPENDS = 40
_console = Console(stderr=True)


@dataclass(frozen=True, slots=True)
class Written:
    """One measurement: seconds of a checkpoint, with the processor's; or the median of an append beside checkpoints, in `seconds`."""

    what: str
    files: int
    seconds: float
    cpu_s: float
    sound: bool


def _names(count: int) -> Iterator[str]:
    """Names as tables have them that many transactions wrote: in no order."""
    generator = random.Random(7)
    for number in range(count):
        yield f"part-{number % 8:05d}-{generator.getrandbits(128):032x}-c000.zstd.parquet"


def _make(store: ObjectStore, names: Sequence[str]) -> None:
    tables = []
    for start in range(0, len(names), _STEP):
        some = enumerate(names[start : start + _STEP], start)
        tables.append(add_rows([AddFile(name, {}, 1000, 1, True, _STATS % (number, number + 999)) for number, name in some]))
    store.put(commit_path(0), encode_all([CommitInfo({"timestamp": 0}), _V2, _METADATA]))
    state = ReplayState(protocol=_V2, metadata=_METADATA, files=LayeredTable(pa.concat_tables(tables), add_rows))
    write_checkpoint(store, Snapshot(store.location, 0, 0, state))


class _Log:
    """The log that is written: each measurement appends a version."""

    def __init__(self, store: ObjectStore, names: Sequence[str]) -> None:
        self.store = store
        self.names = list(names)
        self._taken = iter(random.Random(3).sample(range(len(names)), 100 * 50))
        self.version = 0
        self.live = len(names)

    def commit(self, *actions: Action) -> None:
        self.version += 1
        self.live += sum(isinstance(each, AddFile) - isinstance(each, RemoveFile) for each in actions)
        self.store.put(commit_path(self.version), encode_all([CommitInfo({"timestamp": self.version}), *actions]))

    def add(self) -> None:
        self.commit(AddFile(f"part-00000-{os.urandom(16).hex()}-c000.zstd.parquet", {}, 1, 1, True, _STATS % (0, 1)))

    def remove(self, count: int) -> None:
        self.commit(*(RemoveFile(self.names[next(self._taken)], True, 2**44, True, {}, 1000) for _ in range(count)))

    def measured(self, what: str, change: Callable[[], object], runs: int) -> Written:
        best = (float("inf"), float("inf"))
        for _ in range(runs):
            change()
            with ProcessPoolExecutor(1, get_context("spawn")) as fresh:
                spent = fresh.submit(_checkpoint, self.store.location).result()
            best = min(best, spent, key=itemgetter(1))
        sound = Snapshot.load(self.store).num_files == self.live
        return Written(what, len(self.names), round(best[0], 4), round(best[1], 4), sound)


def _checkpoint(location: str) -> tuple[float, float]:
    """Write the checkpoint of the latest version; returns the seconds that it took, and those of the processor."""
    store = open_store(location)
    snapshot = Snapshot.load(store)
    begun, cpu = time.perf_counter(), time.process_time()
    write_checkpoint(store, snapshot)
    return time.perf_counter() - begun, time.process_time() - cpu


def _checkpoints(store: ObjectStore, names: Sequence[str], runs: int) -> Iterator[Written]:
    _make(store, names)
    log = _Log(store, names)
    shared = replace(_METADATA, configuration={"delta.checkpointPolicy": "v2"})

    def after_classic() -> None:
        log.commit(_METADATA)
        write_checkpoint(store, Snapshot.load(store))
        log.commit(shared)

    yield log.measured("classic", log.add, 2)
    yield log.measured("V2, all sidecars", after_classic, 2)
    yield log.measured("V2 after an append", log.add, runs)
    yield log.measured("V2 after the removal of one file", lambda: log.remove(1), runs)
    yield log.measured("V2 after the removal of a hundred", lambda: log.remove(100), runs)


def _beside(store: ObjectStore, folder: str, files: int) -> Iterator[Written]:
    """Appends to a table in the same process, while a thread writes checkpoints and while it does not."""
    rows = pa.table({"id": [1]})
    coordinator = f"memory://bench-{os.getpid()}"
    table = sluice.Table.create(f"{folder}/small", rows.schema, coordinator=coordinator, properties={"delta.checkpointInterval": "100000"})
    for what, writes in (("an append, nothing beside it", False), ("an append beside V2 checkpoints", True)):
        ended, log = threading.Event(), _Log(store, [f"{number}" for number in range(files)])
        log.version = Snapshot.load(store).version

        def work(ended: threading.Event = ended, log: _Log = log) -> None:
            while not ended.is_set():
                log.add()
                write_checkpoint(store, Snapshot.load(store))

        thread = threading.Thread(target=work)
        if writes:
            thread.start()
        seconds = []
        for _ in range(_APPENDS):
            begun = time.perf_counter()
            table.append(rows)
            seconds.append(time.perf_counter() - begun)
            time.sleep(0.02)
        ended.set()
        if writes:
            thread.join()
        yield Written(what, files, round(statistics.median(seconds), 4), 0.0, True)
    table.close()


def verdict(found: Sequence[Written]) -> str:
    """Whether every list was right, and whether small commits have small checkpoints."""
    wrong = [each.what for each in found if not each.sound]
    if wrong:
        return f"verdict: FAILED: the files differ after {', '.join(wrong)}"
    whole = next(each for each in found if each.what == "V2, all sidecars")
    lines = [
        f"  {'reached' if each.cpu_s <= whole.cpu_s * _PART else 'MISSED '} {each.what}: 1/{whole.cpu_s / each.cpu_s:.0f} (goal: 1/20)"
        for each in found
        if each.what in ("V2 after an append", "V2 after the removal of one file")
    ]
    return "\n".join(["verdict: ok, every list has the files that were written", *lines])


@click.command(help="Measure checkpoints of a table of very many files.")
@click.option("--files", type=click.IntRange(10_000), default=1_000_000, show_default=True, help="Files of the table.")
@click.option("--runs", type=click.IntRange(1), default=5, show_default=True, help="How often each is measured; the fastest counts.")
@click.option("--json-only", is_flag=True, help="Say no more on standard error than the verdict and warnings.")
def main(files: int, runs: int, json_only: bool) -> None:
    """Make the table, measure, end with 1 when a list of files was not the one that was written."""
    _console.quiet = json_only
    warn_when_busy()
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as folder:
        store = open_store(Path(folder, "large").as_uri())
        found = list(_checkpoints(store, list(_names(files)), runs))
        found += _beside(store, folder, files)
    grid = Grid("what", "s", "cpu s")
    for each in found:
        print(json.dumps(asdict(each)), flush=True)
        grid.add_row(each.what, f"{each.seconds:.3f}", f"{each.cpu_s:.3f}")
    _console.print(grid)
    print(verdict(found), file=sys.stderr)
    sys.exit(0 if all(each.sound for each in found) else 1)


if __name__ == "__main__":
    main()
