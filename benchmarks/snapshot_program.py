"""One measurement in a process of its own: ``python -m benchmarks.snapshot_program SYSTEM MEASURE FOLDER`` prints one JSON object.

Little is imported, for the process's memory is what is measured: `baseline_mb` is its peak after the imports that the system needs.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

__all__ = ["main"]


def _peak_mb() -> float:
    """The most memory that this program had in hand; `ru_maxrss` would count what its parent had when it was started, too."""
    with suppress(OSError):
        status = Path("/proc/self/status").read_text()
        return round(int(status.partition("VmHWM:")[2].split()[0]) / 1024, 1)
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1)


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _measured(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What the work finds, with what it took; the clock counts until the work sets `at`."""
    baseline, cpu, begun = _peak_mb(), _cpu_s(), time.perf_counter()
    found = work()
    seconds, used, peak = time.perf_counter() - begun, _cpu_s() - cpu, _peak_mb()
    found.setdefault("seconds", seconds)
    return found | {"cpu_s": round(used, 3), "baseline_mb": baseline, "peak_mb": peak, "seconds": round(found["seconds"], 4)}


def _sluice_open(folder: str) -> dict[str, Any]:
    from sluice.storage.log.snapshot import Snapshot
    from sluice.storage.stores.location import open_store

    def work() -> dict[str, Any]:
        snapshot = Snapshot.load(open_store(f"file://{folder}"))
        return {"app_version": snapshot.app_transactions["bench"].version, "version": snapshot.version}

    return _measured(work)


def _sluice_list(folder: str) -> dict[str, Any]:
    import pyarrow.compute as pc

    from sluice.storage.log.snapshot import Snapshot
    from sluice.storage.stores.location import open_store

    def work() -> dict[str, Any]:
        files = Snapshot.load(open_store(f"file://{folder}")).files
        return {"files": files.num_rows, "bytes": pc.sum(files["size"]).as_py()}

    return _measured(work)


def _sluice_refresh(folder: str) -> dict[str, Any]:
    """One more commit on a list that is there: what it takes to have the next list."""
    from sluice.storage.actions import AddFile, RemoveFile
    from sluice.storage.log.snapshot import Snapshot
    from sluice.storage.stores.location import open_store

    snapshot = Snapshot.load(open_store(f"file://{folder}"))
    path = snapshot.files["path"][snapshot.num_files // 2].as_py()
    values = dict.fromkeys(snapshot.partition_columns, "x")

    def work() -> dict[str, Any]:
        add = AddFile("x.parquet", values, 1, 1, True)
        return {"files": snapshot.advance([(snapshot.version + 1, [add, RemoveFile(path, True, 1)])]).files.num_rows}

    return _measured(work)


def _sluice_missing(folder: str) -> dict[str, Any]:
    """Reading rows of a table whose data files are gone: how soon one is named."""
    from sluice.storage.errors import MissingObject
    from sluice.storage.log.snapshot import Snapshot
    from sluice.storage.stores.location import open_store
    from sluice.tables.read.table_snapshot import TableSnapshot

    store = open_store(f"file://{folder}")
    snapshot = TableSnapshot(store, Snapshot.load(store))
    _ = snapshot.files()

    def work() -> dict[str, Any]:
        try:
            snapshot.to_arrow()
        except MissingObject as missing:
            return {"named": missing.details["path"]}
        return {"named": None}

    return _measured(work)


def _delta_rs_list(folder: str) -> dict[str, Any]:
    import deltalake
    import pyarrow as pa
    import pyarrow.compute as pc

    def work() -> dict[str, Any]:
        actions = pa.table(deltalake.DeltaTable(folder).get_add_actions())
        return {"files": actions.num_rows, "bytes": pc.sum(actions["size_bytes"]).as_py()}

    return _measured(work)


_MEASURES: Final[dict[tuple[str, str], Callable[[str], dict[str, Any]]]] = {
    ("sluice", "open"): _sluice_open,
    ("sluice", "list"): _sluice_list,
    ("sluice", "refresh"): _sluice_refresh,
    ("sluice", "missing"): _sluice_missing,
    ("delta-rs", "list"): _delta_rs_list,
}


def main(system: str, measure: str, folder: str) -> None:
    """Measure, and print what was found."""
    print(json.dumps(_MEASURES[system, measure](folder)))


if __name__ == "__main__":
    main(*sys.argv[1:])
