"""Caches hold so many bytes, however many values that are; whoever gives a generator with threads up waits for none of them."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Generator
from typing import cast

import pyarrow as pa
import pytest

from sluice.storage.actions.filetable import add_rows
from sluice.storage.actions.records import AddFile
from sluice.storage.caches import BytesBounded, LazyProperty, at_once, cached_by_size, threads
from sluice.storage.data.scan import TableScan
from sluice.storage.schema.schema import from_arrow
from sluice.storage.stores.memory import MemoryStore
from tests.storage.logs import parquet

SCHEMA = pa.schema([("id", pa.int64())])


def test_what_was_used_last_is_kept_as_far_as_there_is_room() -> None:
    cache: BytesBounded[str, bytes] = BytesBounded(10_000)
    for name in "abcd":
        cache.keep(name, bytes(2000), 2000)
    assert cache.get("a") is not None
    cache.keep("e", bytes(2000), 2000)
    assert [name for name in "abcde" if name in cache] == ["a", "c", "d", "e"]
    assert cache._values.currsize <= 10_000


def test_what_is_larger_than_all_room_is_not_kept() -> None:
    cache: BytesBounded[str, bytes] = BytesBounded(10_000)
    cache.keep("small", b"1", 1)
    cache.keep("large", bytes(20_000), 20_000)
    assert cache.get("large") is None
    assert cache.get("small") == b"1"
    cache.keep("small", bytes(20_000), 20_000)  # it grew
    assert cache.get("small") is None
    assert cache._values.currsize == 0


def test_a_value_that_is_replaced_gives_its_room_back() -> None:
    cache: BytesBounded[str, bytes] = BytesBounded(10_000)
    for size in range(1000, 9000, 1000):
        cache.keep("one", bytes(size), size)
    assert 8000 <= cache._values.currsize <= 8500


def test_results_are_kept_by_the_length_of_their_texts() -> None:
    called: list[tuple[str, int]] = []

    @cached_by_size(100_000)
    def parsed(text: str, number: int) -> None:
        called.append((text, number))

    for _ in range(3):
        parsed("short", 1)
        parsed("x" * 2000, 1)
    assert called == [("short", 1), *[("x" * 2000, 1)] * 3]


def test_an_object_does_not_wait_for_what_another_one_of_its_class_computes() -> None:
    computed: Counter[int] = Counter()
    begun, over = threading.Event(), threading.Event()

    class Number:
        def __init__(self, number: int) -> None:
            self.number = number

        @LazyProperty
        def double(self) -> int:
            """Twice the number."""
            computed[self.number] += 1
            if self.number == 1:
                begun.set()
                assert over.wait(30)
            return 2 * self.number

    one, two = Number(1), Number(2)
    waiting = threading.Thread(target=lambda: one.double)
    waiting.start()
    assert begun.wait(30)
    other = threading.Thread(target=lambda: two.double)
    other.start()
    other.join(10)
    assert not other.is_alive()
    over.set()
    waiting.join(30)
    assert (one.double, two.double, computed) == (2, 4, {1: 1, 2: 1})
    assert Number.double.__doc__ == "Twice the number."


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
    names = ["a.parquet", "b.parquet", "c.parquet"]
    for name in names:
        store.put(name, parquet([{"id": 1}, {"id": 2}], SCHEMA))
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
