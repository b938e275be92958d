"""How many files and bytes do filters read in a table that is not clustered, z-ordered, clustered, and clustered by Delta Lake on Spark?

``python -m benchmarks.clustering --rows 10000000`` writes rows of three independent columns (a time, an account, an amount) and a text, in
files of random rows. It clusters copies of that table by the three columns and counts what queries on each column read, by the files'
statistics and by those of their row groups. Then it appends the same rows in ten parts to a clustered table and clusters after each: the
bytes written for each byte that came. Last it says how large the record is that lets DELETEs follow the rows (``moves``), and how long a
DELETE takes that begins before a clustering and commits after it. All tables must have the same rows.

One JSON object per measurement goes to standard output, everything else to standard error.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import click
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from rich.console import Console

import sluice
from sluice.storage.actions import RemoveFile, decode_commit
from sluice.storage.actions.file_removals import Shuffled, moved_rows
from sluice.storage.data.row_moves import followed
from sluice.storage.data.vectors import Rows, read_vector
from sluice.tables.maintain.curves import places_on_curve

from .report import warn_when_busy

__all__ = ["main"]

_COLUMNS: Final = ("at", "account", "amount")
_SCHEMA: Final = pa.schema([*(pa.field(name, pa.int64()) for name in _COLUMNS), pa.field("note", pa.string())])
_SPAN: Final = 10**9
_QUERIES: Final = 20
_SOURCES: Final = 20
_ON_SPARK: Final = """
import sys, time
from benchmarks.spark_session import session
folder, at, size, *files = sys.argv[1:]
spark = session("delta", folder, {"spark.driver.memory": "3g"}, {"spark.databricks.delta.optimize.maxFileSize": size})
spark.sql(f"CREATE TABLE delta.`{at}` (at BIGINT, account BIGINT, amount BIGINT, note STRING) USING delta CLUSTER BY (at, account, amount)")
spark.read.parquet(*files).write.format("delta").mode("append").save(at)
began = time.time()
spark.sql(f"OPTIMIZE delta.`{at}`")
print("seconds", time.time() - began)
spark.stop()
"""
_console = Console(stderr=True)


@dataclass(frozen=True, slots=True)
class Skipping:
    """What a query reads on average, of `files` files and `mb` MB: whole files, and row groups of them."""

    table: str
    query: str
    files: int
    mb: float
    files_read: float
    mb_of_files: float
    mb_of_row_groups: float


def _rows(count: int, seed: int) -> pa.Table:
    """Random rows; pyarrow draws them."""
    seeds: list[Any] = [seed * 10 + n for n in range(3)]
    columns = [pc.multiply(pc.random(count, initializer=each), _SPAN).cast(pa.int64(), safe=False) for each in seeds]
    note = pc.binary_join_element_wise(columns[0].cast(pa.string()), columns[2].cast(pa.string()), "-")
    return pa.table([*columns, note], schema=_SCHEMA)


def _queries(share: float) -> dict[str, list[tuple[str, list[tuple[int, int]]]]]:
    """By name, conditions as SQL and as a range for each column: points and ranges on each, boxes over all."""
    dice, everything = random.Random(3), (0, _SPAN)
    found: dict[str, list[tuple[str, list[tuple[int, int]]]]] = {}
    for number, name in enumerate(_COLUMNS):
        for kind, width in (("point", 0), ("range", int(_SPAN * share))):
            for _ in range(_QUERIES):
                low = dice.randrange(_SPAN - width)
                box = [everything] * 3
                box[number] = (low, low + width)
                found.setdefault(f"{kind} of {name}", []).append((f"{name} BETWEEN {low} AND {low + width}", box))
    return found


def _measured(name: str, table: sluice.Table, share: float) -> list[Skipping]:
    snapshot, root = table.refresh().snapshot(), Path(table.location.removeprefix("file://"))
    listed = snapshot.files()
    sizes = dict(zip(listed["path"].to_pylist(), listed["size"].to_pylist(), strict=True))
    footers = {path: pq.ParquetFile(root / path).metadata for path in sizes}
    made = []
    for query, conditions in _queries(share).items():
        files, whole, parts = 0, 0, 0
        for where, box in conditions:
            chosen = snapshot.files(where)["path"].to_pylist()
            files += len(chosen)
            whole += sum(sizes[path] for path in chosen)
            parts += sum(_bytes_of_groups(footers[path], box) for path in chosen)
        n = len(conditions)
        made.append(Skipping(name, query, len(sizes), sum(sizes.values()) / 1e6, files / n, whole / n / 1e6, parts / n / 1e6))
    return made


def _bytes_of_groups(footer: Any, box: Sequence[tuple[int, int]]) -> int:
    """The bytes of a file's row groups whose bounds meet a box."""
    total = 0
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        bounds = [group.column(n).statistics for n in range(3)]
        if all(b is None or not b.has_min_max or (b.min <= high and b.max >= low) for b, (low, high) in zip(bounds, box, strict=True)):
            total += sum(group.column(n).total_compressed_size for n in range(group.num_columns))
    return total


def _create(folder: Path, name: str, target: str, **options: Any) -> sluice.Table:
    properties = {"delta.enableDeletionVectors": "true", "delta.targetFileSize": target}
    return sluice.Table.create(folder / name, _SCHEMA, properties=properties, coordinator=f"memory://{folder.name}", **options)


def _filled(table: sluice.Table, rows: int) -> sluice.Table:
    for seed in range(_SOURCES):
        table.append(_rows(rows // _SOURCES, seed))
    return table


def _moves_of(table: sluice.Table, rows: int) -> dict[str, Any]:
    """The size of the record of where rows went, and how long it takes to follow a thousand rows of one source."""
    version = table.refresh().version
    root = Path(table.location.removeprefix("file://"))
    log = (root / "_delta_log" / f"{version:020d}.json").read_bytes()
    moves = [moved_rows(each) for each in decode_commit(log, name="the clustering") if isinstance(each, RemoveFile)]
    shuffled = [each for each in moves if isinstance(each, Shuffled)]
    stored = sum(path.stat().st_size for path in root.rglob("moves/*"))
    store = table.access.store
    began = time.perf_counter()
    followed(Rows(range(0, 10_000, 10)), shuffled[0], Rows(), lambda vector: read_vector(store, vector))
    following = time.perf_counter() - began
    return {
        "what": "moves",
        "sources": len(shuffled),
        "stored_bytes_per_row": round(stored / rows, 2),
        "stored_mb": round(stored / 1e6, 1),
        "in_log_bytes_per_source": len(log) // max(1, len(moves)),
        "read_mb_for_one_source": round((shuffled[0].order.size_in_bytes + shuffled[0].places.size_in_bytes) / 1e6, 2),
        "seconds_to_follow_1000_rows": round(following, 3),
    }


def _clustered_beside_a_delete(table: sluice.Table, run: Any) -> dict[str, Any]:
    """Cluster while a DELETE is under way; returns how long both took and what they were rebased to."""
    late = table.begin()
    began = time.perf_counter()
    late.delete("account BETWEEN 500000 AND 1500000")
    staged = time.perf_counter()
    run()
    clustered = time.perf_counter()
    late.commit()
    ended = time.perf_counter()
    [entry] = table.refresh().history(1)
    return {
        "what": "a DELETE carried over a clustering",
        "delete_s": round(staged - began, 2),
        "clustering_s": round(clustered - staged, 2),
        "commit_s": round(ended - clustered, 2),
        "adapted": entry.rebased[-1] if entry.rebased else "nothing",
    }


def _amplification(folder: Path, rows: int, target: str) -> dict[str, Any]:
    """Ten appends with a run after each: bytes that the runs wrote for each byte that came."""
    table = _create(folder, "incremental", target, cluster_by=list(_COLUMNS))
    came = written = 0
    for seed in range(10):
        before = {each["path"] for each in table.snapshot().files().to_pylist()}
        table.append(_rows(rows // 10, seed))
        came += sum(each["size"] for each in table.refresh().snapshot().files().to_pylist() if each["path"] not in before)
        commit = table.compact()
        assert commit is not None
        [entry] = table.refresh().history(1)
        written += int(entry.metrics["numAddedBytes"])
    clusters = {dict(each["tags"])["ZCUBE_ID"] for each in table.snapshot().raw.files.to_pylist()}
    return {"what": "incremental runs", "runs": 10, "written_per_byte": round(written / came, 2), "clusters": len(clusters)}


def _by_delta_lake(folder: Path, source: Path, target_bytes: int, python: str) -> tuple[Path, float] | None:
    """A clustered table of the same rows that Delta Lake's OPTIMIZE made on Spark, and its seconds; None if it cannot be run."""
    location = folder / "delta-lake"
    files = sorted(str(path) for path in source.glob("*.parquet"))
    done = subprocess.run(
        [python, "-c", _ON_SPARK, str(folder), str(location), str(target_bytes), *files], capture_output=True, text=True, check=False
    )
    if done.returncode:
        _console.print(f"Delta Lake could not be measured: {done.stderr.strip().splitlines()[-1:]}")
        return None
    return location, float(done.stdout.split("seconds")[1].split()[0])


@click.command()
@click.option("--rows", default=10_000_000, show_default=True, help="Rows of each table.")
@click.option("--target", default="4mb", show_default=True, help="The size of clustered files.")
@click.option("--share", default=0.01, show_default=True, help="Which part of a column's values a range has.")
@click.option("--delta-python", default=os.environ.get("DELTA_PYTHON", ""), help="A Python with PySpark and the jars of Delta Lake.")
@click.option("--folder", type=click.Path(path_type=Path), help="Where the tables are made; a temporary folder if not given.")
def main(rows: int, target: str, share: float, delta_python: str, folder: Path | None) -> None:
    """Measure what clustering saves, and what it costs."""
    warn_when_busy()
    _console.print(f"{rows:,} rows in {_SOURCES} files, new files of {target}, Python {sys.version.split()[0]}, pyarrow {pa.__version__}")
    with tempfile.TemporaryDirectory(prefix="sluice-clustering-", dir=folder) as made:
        _measure_all(Path(made), rows, target, share, delta_python)


def _tell(told: Any) -> None:
    print(json.dumps(told), flush=True)


def _measure_all(folder: Path, rows: int, target: str, share: float, delta_python: str) -> None:
    some = _rows(min(rows, 1_000_000), 0)
    for hilbert in (False, True):
        began = time.perf_counter()
        places_on_curve([some[name] for name in _COLUMNS], hilbert=hilbert)
        name = "hilbert" if hilbert else "z-curve"
        _tell({"what": f"places on the {name}", "rows": some.num_rows, "seconds": round(time.perf_counter() - began, 2)})
    plain = _filled(_create(folder, "plain", target), rows)
    total = pc.sum(plain.snapshot().to_arrow(["amount"])["amount"]).as_py()
    skipping = _measured("unclustered", plain, share)
    source = folder / "source"
    source.mkdir()
    for path in (folder / "plain").glob("part-*.parquet"):
        os.link(path, source / path.name)
    began = time.perf_counter()
    plain.compact(z_order_by=list(_COLUMNS))
    _tell({"what": "z-order", "seconds": round(time.perf_counter() - began, 1)})
    skipping += _measured("z-order", plain, share)
    hilbert_table = _filled(_create(folder, "hilbert", target, cluster_by=list(_COLUMNS)), rows)
    began = time.perf_counter()
    hilbert_table.compact()
    _tell({"what": "clustering", "seconds": round(time.perf_counter() - began, 1)})
    skipping += _measured("clustered (Hilbert)", hilbert_table, share)
    _tell(_moves_of(hilbert_table, rows))
    for table in (plain, hilbert_table):
        assert pc.sum(table.snapshot().to_arrow(["amount"])["amount"]).as_py() == total, "rows changed"
    shutil.rmtree(folder / "plain")
    if delta_python and (by_delta := _by_delta_lake(folder, source, _bytes_of(target), delta_python)):
        location, seconds = by_delta
        _tell({"what": "Delta Lake's OPTIMIZE on Spark", "seconds": round(seconds, 1)})
        theirs = sluice.Table.open(location, consistency="published")
        assert pc.sum(theirs.snapshot().to_arrow(["amount"])["amount"]).as_py() == total, "rows changed"
        skipping += _measured("Delta Lake", theirs, share)
    for each in skipping:
        _tell({name: round(value, 2) if isinstance(value, float) else value for name, value in asdict(each).items()})
    hilbert_table.cluster_by(["account", "at", "amount"])
    _tell(_clustered_beside_a_delete(hilbert_table, lambda: hilbert_table.compact("full")))
    _tell(_amplification(folder, rows, target))


def _bytes_of(size: str) -> int:
    return int(size.removesuffix("mb")) * 1024**2


if __name__ == "__main__":
    main()
