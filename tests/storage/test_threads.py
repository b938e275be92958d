"""Threads of generators: whoever gives a generator up, wherever the garbage collector ends it, waits for nobody."""

from __future__ import annotations

import threading
from collections.abc import Generator
from typing import cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sluice.storage.actions.filetable import add_rows
from sluice.storage.actions.records import AddFile
from sluice.storage.data.scan import TableScan
from sluice.storage.schema.schema import from_arrow
from sluice.storage.stores.memory import MemoryStore
from sluice.storage.threads import at_once, threads

SCHEMA = pa.schema([("id", pa.int64())])


def ends_soon(generator: Generator[object]) -> bool:
    """Whether giving the generator up returns, while a thread of its runs."""
    thread = threading.Thread(target=generator.close, daemon=True)
    thread.start()
    thread.join(10)
    return not thread.is_alive()


def test_a_generator_that_is_given_up_waits_for_no_thread() -> None:
    begun, goes_on, never = threading.Event(), threading.Event(), threading.Event()

    def job() -> None:
        begun.set()
        goes_on.wait(60)

    def generator() -> Generator[int]:
        with threads(1, "sluice-test") as pool:
            pool.submit(job)
            pool.submit(never.set)
            yield 1

    given_up = generator()
    next(given_up)
    try:
        assert begun.wait(10)
        assert ends_soon(given_up)
    finally:
        goes_on.set()
    assert not never.wait(0.1), "what has not begun is cancelled"


def test_a_scan_that_is_given_up_waits_for_no_thread() -> None:
    store = MemoryStore("memory://scan-given-up")
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"id": [1, 2]}, SCHEMA), sink)
    names = ["a.parquet", "b.parquet", "c.parquet"]
    for name in names:
        store.put(name, sink.getvalue().to_pybytes())
    begun, goes_on = threading.Event(), threading.Event()

    def wait() -> None:
        begun.set()
        goes_on.wait(60)

    store.disk.slow("get", wait, "c.parquet")
    files = add_rows([AddFile(name, {}, store.head(name).size, 0, data_change=True) for name in names])
    batches = TableScan(store, from_arrow(SCHEMA), (), 0).batches(files)
    try:
        assert next(batches).num_rows == 2
        assert begun.wait(10)
        assert ends_soon(cast("Generator[object]", batches))
    finally:
        goes_on.set()
        store.forget()


def test_a_block_that_ends_waits_for_its_threads() -> None:
    done: list[int] = []
    with threads(2, "sluice-test") as pool:
        for each in range(20):
            pool.submit(done.append, each)
    assert sorted(done) == list(range(20))


@pytest.mark.parametrize("count", [0, 1, 5])
def test_results_come_in_order(count: int) -> None:
    assert at_once(lambda each: each * 2, range(count), 3, "sluice-test") == [each * 2 for each in range(count)]


def test_an_error_of_a_job_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        at_once(lambda each: 1 // each, [1, 0, 2], 2, "sluice-test")
