"""What does it cost to replace a table of very many files? Time and peak memory, in processes of their own.

``python -m benchmarks.overwrite --files 100000,1000000`` writes the log of a table with so many files (the files themselves are not
made: nothing reads them), and then runs, each measured by itself:

===========  ==========================================================================================================
`open`       attach the table and read its list of files: what the rest stands on
`begin`      another client begins a transaction, with a list of files of its own
`overwrite`  replace all files by one of one row, in the same process
`compare`    commit a transaction that another client began before that: it is compared with the overwrite
`reopen`     in another process: read the version of the overwrite from the log
===========  ==========================================================================================================

The coordinator is in memory, the store a local folder. `cpu_s` is the processor time of all threads, which a busy machine changes
less than `seconds`. `peak_mb` is the largest resident set of the process up to the end of the
step, so that a step's own need is what it adds to the step before. Each result is checked. One JSON object per step goes to
standard output, everything else to standard error.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import click
import pyarrow as pa

import sluice
from sluice.storage.actions import Action, AddFile, CommitInfo, Metadata, Protocol, encode_all
from sluice.storage.log.checkpoint_writer import write_checkpoint
from sluice.storage.log.paths import commit_path
from sluice.storage.log.snapshot import Snapshot
from sluice.storage.stores.local import LocalStore

from .report import warn_when_busy

__all__ = ["main", "make_table"]

SCHEMA: Final = (
    '{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}},'
    '{"name":"at","type":"timestamp","nullable":true,"metadata":{}},'
    '{"name":"name","type":"string","nullable":true,"metadata":{}},'
    '{"name":"amount","type":"decimal(10,2)","nullable":true,"metadata":{}},'
    '{"name":"day","type":"date","nullable":true,"metadata":{}}]}'
)
COMMIT_FILES: Final = 50_000


def _add(number: int) -> AddFile:
    """A file as other writers name and describe it: some 600 bytes in the log."""
    day = f"2024-{1 + number % 12:02d}-{1 + number % 28:02d}"
    low = {"id": number * 1000, "at": f"{day}T00:00:00.000Z", "name": "aaa", "amount": 0.01}
    high = {"id": number * 1000 + 999, "at": f"{day}T23:59:59.999Z", "name": "zzz", "amount": 999.99}
    stats = {"numRecords": 1000, "minValues": low, "maxValues": high, "nullCount": dict.fromkeys(low, 0)}
    path = f"day={day}/part-{number:07d}-5fba94ed-9794-4965-ba6e-6ee3c0d22af9.c000.snappy.parquet"
    return AddFile(path, {"day": day}, 1 << 20, 1_700_000_000_000, True, json.dumps(stats, separators=(",", ":")))


def make_table(folder: Path, files: int) -> None:
    """The log of a table with so many files, with a checkpoint of its last version."""
    store = LocalStore(str(folder))
    start: list[Action] = [CommitInfo({"operation": "CREATE TABLE"}), Protocol(1, 2), Metadata("bench", SCHEMA, ("day",), {})]
    store.put(commit_path(0), encode_all(start))
    for version, first in enumerate(range(0, files, COMMIT_FILES), start=1):
        adds = [_add(number) for number in range(first, min(files, first + COMMIT_FILES))]
        store.put(commit_path(version), encode_all([CommitInfo({"operation": "WRITE", "isBlindAppend": True}), *adds]))
    write_checkpoint(store, Snapshot.load(store))


@contextmanager
def _measured(step: str, files: int) -> Iterator[dict[str, Any]]:
    """Time a block, and print what it took with the facts that it notes."""
    facts: dict[str, Any] = {}
    begun, begun_cpu = time.perf_counter(), time.process_time()
    yield facts
    took, cpu = time.perf_counter() - begun, time.process_time() - begun_cpu
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        json.dumps({"step": step, "files": files, "seconds": round(took, 2), "cpu_s": round(cpu, 2), "peak_mb": round(peak_mb), **facts}),
        flush=True,
    )


def _replace(folder: Path, files: int) -> None:
    """Open, overwrite, and let another client's transaction meet the overwrite."""
    coordinator = f"memory://bench-{os.getpid()}"
    with _measured("open", files):
        table = sluice.Table.attach(str(folder), coordinator=coordinator)
        assert table.snapshot().raw.num_files == files
    with _measured("begin", files):
        late = sluice.Table.open(str(folder), coordinator=coordinator).begin()
        late.scan(where="id < 0")
        late.append(_one(table.schema, 2))
    with _measured("overwrite", files) as facts:
        commit = table.overwrite(_one(table.schema, 1))
        assert commit is not None
        assert commit.published
        facts["version_mb"] = round((folder / commit_path(commit.version)).stat().st_size / 1e6)
    with _measured("compare", files):
        later = late.commit()
        assert later is not None
        assert later.version == commit.version + 1


def _one(schema: pa.Schema, number: int) -> pa.Table:
    values = {"id": [number]}
    return pa.table([pa.array(values.get(field.name, [None]), field.type) for field in schema], schema=schema)


def _reopen(folder: Path, files: int) -> None:
    with _measured("reopen", files):
        snapshot = sluice.Table.open(str(folder), consistency="published").snapshot()
        assert snapshot.to_arrow()["id"].to_pylist() in ([1, 2], [2, 1])
        assert snapshot.raw.num_files == 2


@click.command(help="Measure what it costs to overwrite a table of very many files.")
@click.option("--files", default="100000,1000000", show_default=True, help="How many files the tables have.")
@click.option("--step", type=click.Choice(["replace", "reopen"]), hidden=True, help="What to do with --folder, in this process.")
@click.option("--folder", type=click.Path(path_type=Path), hidden=True)
def main(files: str, step: str | None, folder: Path | None) -> None:
    """Make each table, and measure it in processes of their own."""
    if step is not None and folder is not None:
        (_replace if step == "replace" else _reopen)(folder, int(files))
        return
    warn_when_busy()
    for number in map(int, files.split(",")):
        with tempfile.TemporaryDirectory(prefix="sluice-overwrite-") as made:
            print(f"overwrite: a table of {number:,} files, Python {sys.version.split()[0]}", file=sys.stderr, flush=True)
            make_table(Path(made), number)
            for each in ("replace", "reopen"):
                command = [sys.executable, "-m", "benchmarks.overwrite", "--files", str(number), "--step", each, "--folder", made]
                subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
