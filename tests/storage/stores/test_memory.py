"""The memory store's fault model: each fault does what the module's header says, once, and then stops."""

from __future__ import annotations

import itertools
import pickle
import uuid

import pytest

from sluice.storage.errors import StorageFull, StorageUnavailable
from sluice.storage.stores.location import open_store
from sluice.storage.stores.memory import Fault, MemoryStore


def test_stores_of_one_name_share_their_objects(store: MemoryStore) -> None:
    store.put("a", b"x")
    assert open_store(store.location).get("a") == b"x"
    assert pickle.loads(pickle.dumps(store)).disk is store.disk
    assert list(MemoryStore.open(uuid.uuid4().hex).list_from("")) == []
    store.forget()
    assert list(open_store(store.location).list_from("")) == []


def test_fail_before_has_no_effect_and_fail_after_has_it(store: MemoryStore) -> None:
    store.disk.fail_before("put", "b")
    with pytest.raises(StorageUnavailable, match="did not arrive"):
        store.put("b", b"x")
    assert "b" not in store.disk.objects
    store.put("b", b"y")
    assert store.get("b") == b"y"
    store.disk.fail_after("put_if_absent", "a")
    with pytest.raises(StorageUnavailable, match="reply to put_if_absent was lost"):
        store.put_if_absent("a", b"x")
    assert store.get("a") == b"x"
    assert store.put_if_absent("a", b"x") is False


def test_faults_fit_verb_and_key_and_are_counted(store: MemoryStore) -> None:
    store.disk.fail_before("put", "log/*", skip=1, times=2, error=TimeoutError("mine"))
    outcomes = []
    for key in ["other", "log/0", "log/1", "other", "log/2", "log/3"]:
        try:
            store.put(key, b"")
        except TimeoutError:
            outcomes.append(key)
    assert outcomes == ["log/1", "log/2"]
    assert store.disk.calls[-1] == ("put", "log/3")


def test_throttle_and_slow(store: MemoryStore) -> None:
    store.disk.throttle("list", times=2)
    for _ in range(2):
        with pytest.raises(StorageUnavailable, match="SlowDown") as caught:
            store.list_from("")
        assert caught.value.retryable
    assert list(store.list_from("")) == []
    waited = []
    store.disk.slow("get", lambda: waited.append("yes"))
    store.put("a", b"x")
    assert (store.get("a"), store.get("a"), waited) == (b"x", b"x", ["yes"])


def test_a_full_disk(store: MemoryStore) -> None:
    store.disk.capacity_bytes = 10
    store.put("a", b"12345678")
    for write in (lambda: store.put("b", b"123"), lambda: store.put_if_absent("b", b"123")):
        with pytest.raises(StorageFull, match="'b' would exceed 10 bytes"):
            write()
    store.put("a", b"1234567890")  # replaces
    store.delete("a")
    store.put("b", b"123")
    assert store.disk.objects.keys() == {"b"}


def test_without_conditional_put_a_foreign_put_falls_into_the_gap(store: MemoryStore) -> None:
    store.disk.foreign_put("put_if_absent", "a", b"theirs")
    assert store.put_if_absent("a", b"mine") is False
    assert store.get("a") == b"theirs"
    store.disk.conditional_put = False
    store.disk.foreign_put("put_if_absent", "b", b"theirs")
    assert store.put_if_absent("b", b"mine") is True
    assert store.get("b") == b"mine"


def test_a_fault_of_ones_own_and_a_clock(store: MemoryStore) -> None:
    store.disk.clock_ms = itertools.count(1000).__next__
    seen = []
    store.disk.arm(
        Fault("put", before=lambda: seen.append(store.disk.objects.copy()), after=lambda: seen.append(store.disk.objects.copy()))
    )
    store.put("a", b"x")
    assert seen == [{}, {"a": (b"x", 1000)}]
    assert store.head("a").modified_ms == 1000
