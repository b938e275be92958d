"""Caches hold so many bytes, however many values that are."""

from __future__ import annotations

import threading
from collections import Counter

from sluice.storage.caches import BytesBounded, LazyProperty, cached_by_size


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
