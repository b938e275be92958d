"""How long does it take to open a table with many commits after its checkpoint, and what would a log compaction file save?

``python -m benchmarks.log_tails --commits 10,100,1000 --latency-ms 20`` writes tables with a checkpoint and so many commits after it, on a
disk and on an S3 server that adds the latency to every request. Each is opened from its commits, from a log compaction file that covers
all commits but the last, and from a checkpoint in that place. The fastest of several runs counts.

One JSON object per measurement goes to standard output, everything else to standard error.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

import click
from rich.console import Console
from rich.table import Table as Grid

from sluice.dev import S3DevServer
from sluice.storage.actions import Action, AddFile, CommitInfo, Metadata, Protocol, encode_all
from sluice.storage.caches import at_once
from sluice.storage.constants import VERSION_DIGITS
from sluice.storage.log.checkpoint_writer import write_checkpoint
from sluice.storage.log.paths import commit_path, version_prefix
from sluice.storage.log.snapshot import Snapshot
from sluice.storage.stores.location import open_store
from sluice.storage.stores.objects import ObjectStore

from .report import warn_when_busy

__all__ = ["main"]

_FILES = 1000
_BUCKET = "bench"
_SCHEMA = '{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}}]}'
_STATS = '{"numRecords":1000,"minValues":{"id":1},"maxValues":{"id":1000},"nullCount":{"id":0}}'
_console = Console(stderr=True)


@dataclass(frozen=True, slots=True)
class Opened:
    """One measurement: how the commits after the checkpoint were read, and the seconds until the list of files was there."""

    store: str
    commits: int
    read_from: str
    seconds: float
    sound: bool


def _add(version: int, number: int = 0) -> AddFile:
    return AddFile(f"part-{number:05d}-6b0a3866-0000-8015-8000-{version:012d}-c000.zstd.parquet", {}, 1000, version, True, _STATS)


def _commit(version: int) -> list[Action]:
    info = CommitInfo({"timestamp": version, "operation": "WRITE", "operationParameters": {"mode": "Append"}, "txnId": f"{version:036d}"})
    return [info, _add(version)]


def _make(store: ObjectStore, commits: int) -> None:
    first: list[Action] = [Protocol(1, 2), Metadata("5fba94ed-9794-4965-ba6e-6ee3c0d22af9", _SCHEMA, (), {})]
    store.put(commit_path(0), encode_all([*first, *(_add(0, number) for number in range(1, _FILES))]))
    write_checkpoint(store, Snapshot.load(store))
    at_once(lambda version: store.put(commit_path(version), encode_all(_commit(version))), range(1, commits + 1), 16, "bench-log")


def _measured(store: ObjectStore, name: str, commits: int, read_from: str, runs: int) -> Opened:
    seconds = []
    files = 0
    for _ in range(runs):
        begun = time.perf_counter()
        files = Snapshot.load(store).num_files
        seconds.append(time.perf_counter() - begun)
    return Opened(name, commits, read_from, round(min(seconds), 4), files == _FILES - 1 + commits)


def _of_store(store: ObjectStore, name: str, commits: int, runs: int) -> Iterator[Opened]:
    _make(store, commits)
    yield _measured(store, name, commits, "commits", runs)
    compacted = f"{version_prefix(1)}.{commits - 1:0{VERSION_DIGITS}d}.compacted.json"
    store.put(compacted, encode_all(each for version in range(1, commits) for each in _commit(version)[1:]))
    yield _measured(store, name, commits, "a compaction", runs)
    store.delete(compacted)
    write_checkpoint(store, Snapshot.load(store, version=commits - 1))
    yield _measured(store, name, commits, "a checkpoint", runs)


def _sizes(_context: click.Context, _option: click.Parameter, value: str) -> list[int]:
    try:
        return [int(text.replace("_", "")) for text in value.split(",") if text.strip()]
    except ValueError as cause:
        raise click.BadParameter(f"{value!r} is no list of numbers, such as 10,100") from cause


@click.command(help="Measure what it takes to open tables with many commits after their checkpoint.")
@click.option("--commits", default="10,100,300,1000", show_default=True, callback=_sizes, help="Commits after the checkpoint.")
@click.option("--latency-ms", type=click.FloatRange(0.0), default=20.0, show_default=True, help="Added to every request of the S3 server.")
@click.option("--runs", type=click.IntRange(1), default=5, show_default=True, help="How often each is opened; the fastest counts.")
@click.option("--json-only", is_flag=True, help="Say no more on standard error than the verdict and warnings.")
def main(commits: list[int], latency_ms: float, runs: int, json_only: bool) -> None:
    """Make the tables, open them, end with 1 when a list of files was not the one that was written."""
    _console.quiet = json_only
    warn_when_busy()
    opened: list[Opened] = []
    for count in commits:
        with tempfile.TemporaryDirectory(prefix="sluice-bench-") as folder:
            opened += _of_store(open_store(f"file://{folder}"), "disk", count, runs)
        with S3DevServer(latency_ms=latency_ms, bucket=_BUCKET) as server:
            opened += _of_store(open_store(f"s3://{_BUCKET}/t", server.options), "S3", count, runs)
    for each in opened:
        print(json.dumps(asdict(each)), flush=True)
    _show(opened)
    wrong = [each for each in opened if not each.sound]
    print(f"verdict: FAILED: {wrong}" if wrong else "verdict: ok, every list has the files that were written", file=sys.stderr)
    sys.exit(1 if wrong else 0)


def _show(opened: Sequence[Opened]) -> None:
    grid = Grid("store", "commits", "read from", "ms")
    for each in opened:
        grid.add_row(each.store, f"{each.commits}", each.read_from, f"{each.seconds * 1000:.0f}")
    _console.print(grid)


if __name__ == "__main__":
    main()
