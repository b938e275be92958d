"""The twin's own powers: hooks, scripted faults, lagging sessions, named services, threads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from sluice.coordinator.errors import SessionLost
from sluice.coordinator.service.memory import Call, Fault, MemoryCoordination
from sluice.coordinator.service.store import ApplyRefused, BadVersion, Check, Create, Delete, ReplyLost, Write


@pytest.fixture
def coordination() -> MemoryCoordination:
    return MemoryCoordination()


def test_a_hook_sees_every_call_and_may_choose_a_fault(coordination: MemoryCoordination) -> None:
    store = coordination.connect()
    seen: list[tuple[int, str, str]] = []

    def before(call: Call) -> Fault | None:
        seen.append((call.number, call.verb, call.path))
        return Fault.REPLY_LOST if call.verb == "write" else None

    coordination.before = before
    store.create("/a")
    with pytest.raises(ReplyLost):
        store.write("/a", b"1", version=0)
    found = store.read("/a")
    assert found is not None
    assert found.data == b"1"
    assert seen == [(1, "create", "/a"), (2, "write", "/a"), (3, "read", "/a")]
    assert coordination.calls == {"create": 1, "write": 1, "read": 1}


def test_a_hook_may_take_steps_of_another_session(coordination: MemoryCoordination) -> None:
    slow, quick = coordination.connect(), coordination.connect()
    slow.create("/a")

    def overtake(call: Call) -> None:
        coordination.before = None
        quick.write("/a", b"quick", version=0)

    coordination.before = overtake
    with pytest.raises(BadVersion):
        slow.write("/a", b"slow", version=0)


def test_an_exception_of_a_hook_reaches_the_caller_before_or_after_the_effect() -> None:
    class Crash(Exception):
        pass

    def crash(call: Call) -> None:
        raise Crash

    coordination = MemoryCoordination()
    store = coordination.connect()
    coordination.before = crash
    with pytest.raises(Crash):
        store.create("/before")
    coordination.before, coordination.after = None, crash
    with pytest.raises(Crash):
        store.create("/after")
    coordination.after = None
    assert sorted(store.children("/") or ()) == ["after"]


def test_scripted_faults_match_verb_path_session_and_skip_and_happen_once(coordination: MemoryCoordination) -> None:
    store, other = coordination.connect(), coordination.connect()
    coordination.inject(Fault.REQUEST_LOST, verb="apply", path="/slots", session=store, skip=1)
    store.create("/slots")
    other.apply([Create("/slots/a")])
    store.apply([Create("/elsewhere")])
    store.apply([Create("/slots/b")])
    with pytest.raises(ReplyLost):
        store.apply([Check("/elsewhere", 0), Create("/slots/c")])
    store.apply([Create("/slots/d")])
    assert sorted(store.children("/slots") or ()) == ["a", "b", "d"]


def test_who_hears_no_answer_may_not_see_what_he_did_before_a_barrier(coordination: MemoryCoordination) -> None:
    """A client goes on at another server, which has to show what the client has seen, and it has not seen this."""
    store = coordination.connect()
    store.create("/answered")
    store.lag = 1
    coordination.inject(Fault.REPLY_LOST)
    with pytest.raises(ReplyLost):
        store.create("/unanswered")
    assert sorted(store.children("/") or ()) == ["answered"]
    store.barrier()
    assert sorted(store.children("/") or ()) == ["answered", "unanswered"]


@pytest.mark.parametrize(("fault", "children"), [(Fault.EXPIRED_BEFORE, []), (Fault.EXPIRED_AFTER, ["a"])])
def test_a_session_that_expires_in_a_call_is_lost_after_it(coordination: MemoryCoordination, fault: Fault, children: list[str]) -> None:
    store, other = coordination.connect(), coordination.connect()
    store.create("/e", ephemeral=True)
    coordination.inject(fault)
    with pytest.raises(ReplyLost):
        store.create("/a")
    with pytest.raises(SessionLost):
        store.read("/a")
    assert other.children("/") == children


def test_of_the_call_in_which_a_session_expires_no_ephemeral_node_is_left(coordination: MemoryCoordination) -> None:
    store, other, reader = coordination.connect(), coordination.connect(), coordination.connect()
    coordination.inject(Fault.EXPIRED_AFTER, session=store)
    with pytest.raises(ReplyLost):
        store.create("/e", ephemeral=True)
    assert other.children("/") == []
    coordination.inject(Fault.EXPIRED_AFTER, session=reader)
    with pytest.raises(SessionLost):
        reader.read("/")


class TestLag:
    def test_a_lagging_session_reads_the_past_until_it_writes(self, coordination: MemoryCoordination) -> None:
        writer, reader = coordination.connect(), coordination.connect()
        writer.create("/a", b"0")
        reader.lag = 2
        reader.barrier()
        writer.write("/a", b"1", version=0)
        writer.write("/a", b"2", version=1)
        writer.create("/b")
        found = reader.read("/a")
        assert found is not None
        assert (found.data, found.version) == (b"1", 1)
        assert sorted(reader.children("/") or ()) == ["a"]
        assert reader.read_many(["/a", "/b"]) == [found, None]
        reader.create("/own")
        assert sorted(reader.children("/") or ()) == ["a", "b", "own"]

    def test_a_session_never_goes_back(self, coordination: MemoryCoordination) -> None:
        writer, reader = coordination.connect(), coordination.connect()
        writer.create("/a")
        assert reader.read("/a") is not None
        reader.lag = 100
        writer.create("/b")
        assert sorted(reader.children("/") or ()) == ["a"]

    def test_deleted_nodes_are_still_there_in_the_past(self, coordination: MemoryCoordination) -> None:
        writer, reader = coordination.connect(), coordination.connect()
        writer.apply([Create("/a", b"old"), Create("/a/b")])
        reader.barrier()
        reader.lag = 100
        writer.apply([Delete("/a/b"), Delete("/a"), Create("/a", b"new")])
        found = reader.read("/a")
        assert found is not None
        assert found.data == b"old"
        assert reader.children("/a") == ["b"]
        reader.lag = 0
        assert reader.children("/a") == []

    def test_watches_wait_for_the_server_to_catch_up(self, coordination: MemoryCoordination) -> None:
        writer, reader = coordination.connect(), coordination.connect()
        rings: list[str] = []
        reader.lag = 2
        reader.read("/a", lambda: rings.append("a"))
        writer.create("/a")
        reader.children("/", lambda: rings.append("children, registered too late"))
        assert rings == []
        assert reader.read("/a") is None
        writer.create("/b")
        assert rings == []
        writer.create("/c")
        assert rings == ["a", "children, registered too late"]
        assert sorted(reader.children("/") or ()) == ["a"]


def test_watches_come_in_the_order_of_the_changes(coordination: MemoryCoordination) -> None:
    store = coordination.connect()
    rings: list[str] = []
    for name in ("c", "a", "b"):
        store.read(f"/{name}", lambda name=name: rings.append(name))  # type: ignore[misc]
    store.apply([Create("/b"), Create("/c")])
    store.create("/a")
    assert rings == ["b", "c", "a"]


def test_a_refused_apply_rings_nothing() -> None:
    store = MemoryCoordination().connect()
    rings: list[str] = []
    store.read("/a", lambda: rings.append("a"))
    with pytest.raises(ApplyRefused):
        store.apply([Create("/a"), Check("/b", 0)])
    assert rings == []


def test_a_name_means_the_same_service_everywhere_in_the_process() -> None:
    MemoryCoordination.named("test-memory").connect().create("/a")
    assert MemoryCoordination.named("test-memory").connect().children("/") == ["a"]
    assert MemoryCoordination.named("test-memory-2").connect().children("/") == []


def test_many_threads_increment_one_counter(coordination: MemoryCoordination) -> None:
    coordination.connect().create("/n", b"0")
    coordination.connect().create("/s")

    def work() -> None:
        store = coordination.connect()
        for _ in range(50):
            store.create("/s/i-", sequential=True)
            while True:
                current = store.read("/n")
                assert current is not None
                try:
                    store.apply([Write("/n", str(int(current.data) + 1).encode(), current.version)])
                    break
                except ApplyRefused:
                    continue

    with ThreadPoolExecutor(8) as pool:
        for each in [pool.submit(work) for _ in range(8)]:
            each.result()
    store = coordination.connect()
    assert [found and found.data for found in store.read_many(["/n"])] == [b"400"]
    assert sorted(store.children("/s") or []) == [f"i-{number:010d}" for number in range(400)]
