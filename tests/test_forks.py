"""Nothing that runs in a process after a fork takes a lock, or waits: the thread that held the lock does not exist there."""

from __future__ import annotations

import atexit
import faulthandler
import gc
import os
import re
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from queue import LifoQueue
from typing import Any

import pytest
import urllib3

import sluice
from sluice.coordinator.nodes.presence import Presence
from sluice.coordinator.publication.background import Background
from sluice.coordinator.service.connect import connect
from sluice.coordinator.service.embedded import lifecycle
from sluice.coordinator.service.embedded.lifecycle import Membership
from sluice.coordinator.service.memory import MemoryCoordination
from sluice.storage.actions.texts import _Spooled
from sluice.storage.caches import BytesBounded, ForkSafeLock
from sluice.storage.stores import s3
from sluice.tables.maintain.background import Checkpointer
from tests.killed import until_ended
from tests.tables.conftest import FLIGHTS, flights

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

SOURCES = Path(sluice.__file__).parent
CHILD_S = 30
PLAIN_LOCKS = {
    "coordinator/publication/failure_points.py": "held by a process that kills itself",
    "coordinator/service/connect.py": "a forked process makes its own sessions, with their locks",
    "coordinator/service/zookeeper/session.py": "a forked process does not use the session",
    "coordinator/service/zookeeper/wire.py": "part of a session",
    "storage/caches.py": "what ForkSafeLock consists of",
    "storage/stores/s3.py": "replaced after a fork",
    "tables/maintain/compaction.py": "one compaction's, and a forked process does not go on with it",
    "tables/manage/recovery.py": "one run's, and a forked process does not go on with it",
    "dev.py": "a program, not a library",
    "operating/console/": "a program, not a library",
    "shell/": "a program, not a library",
}
"""Where a lock or condition of `threading` may be, and why no forked process waits for it."""


def in_child(work: Callable[[], object]) -> int:
    """Run `work` in a forked process and return how it ended, as `waitstatus_to_exitcode` says: -9 if it waited too long."""
    child = os.fork()  # what Python calls after a fork may hang, too, so it is the parent that has the patience
    if child == 0:
        try:
            faulthandler.dump_traceback_later(CHILD_S - 1, file=2)
            work()
        except BaseException:  # noqa: BLE001 - the parent sees the status
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    patience = threading.Timer(CHILD_S, os.kill, (child, signal.SIGKILL))
    patience.start()
    try:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    finally:
        patience.cancel()


class Surroundings:
    """One of everything that a forked process inherits and may use or end."""

    def __init__(self, folder: Path) -> None:
        lock = os.open(folder / "users.lock", os.O_RDWR | os.O_CREAT)
        self.membership = Membership(folder, lock=lock, jars=None)
        self.background = Background(lambda _: None)
        self.coordinator = f"memory://{folder.name}-{os.urandom(4).hex()}"
        self.presence = Presence(lambda: connect(self.coordinator))
        self.table = sluice.Table.create(self.coordinator, FLIGHTS, coordinator=self.coordinator)
        self.leased = sluice.Table.create(f"{self.coordinator}-leased", FLIGHTS, coordinator=self.coordinator)
        self.lease = self.leased.lease()
        self.cache: BytesBounded[int, int] = BytesBounded(1 << 20)
        self.spooled = _Spooled()
        self.requests = urllib3.HTTPConnectionPool("localhost", 1, maxsize=2)
        gc.collect()

    def use(self) -> None:
        """What a forked process may do with it; then it ends as a program does."""
        self.membership.leave()
        self.background.submit(lambda: None)
        assert self.background.drain(CHILD_S)
        self.presence.begin()
        self.cache.keep(1, 1, 1)
        self.lease.release()
        self.table.append(flights(("JFK", 1, 1)))
        del self.spooled, self.requests
        gc.collect()
        self.table.close()
        Checkpointer.wait_all()
        atexit._run_exitfuncs()

    def close(self) -> None:
        """In the process that made it."""
        self.lease.release()
        self.leased.close()
        self.table.close()
        self.membership.leave()
        self.background.drain(CHILD_S)


@pytest.fixture
def surroundings(tmp_path: Path) -> Iterator[Surroundings]:
    made = Surroundings(tmp_path)
    yield made
    made.close()


def locks_of(surroundings: Surroundings) -> list[Any]:
    """All locks of sluice in this process, those of the events that are set after a fork, and those of queues of connections."""
    spooled: Any = surroundings.spooled._file
    assert not hasattr(spooled, "raw"), "a buffer has a lock that closing the file takes"
    queue = surroundings.requests.pool
    assert isinstance(queue, LifoQueue)
    events = [surroundings.membership._left, surroundings.lease._wake, surroundings.lease.lost]
    return [*ForkSafeLock._all, s3._shared.lock, queue.mutex, *(event._cond for event in events)]  # type: ignore[attr-defined]


@contextmanager
def held_by_another_thread(locks: list[Any]) -> Iterator[None]:
    """Another thread holds all of these."""
    taken, done = threading.Event(), threading.Event()

    def hold() -> None:
        with ExitStack() as stack:
            for each in locks:
                stack.enter_context(each)
            taken.set()
            done.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        assert taken.wait(10)
        yield
    finally:
        done.set()
        thread.join()


def test_a_child_waits_for_no_lock_that_another_thread_held(surroundings: Surroundings) -> None:
    time.sleep(0.05)  # the lease's keeper is waiting
    with held_by_another_thread(locks_of(surroundings)):
        status = in_child(surroundings.use)
    assert status == 0, "the child waited for a lock" if status == -signal.SIGKILL else "the child failed"


@pytest.mark.costly
@pytest.mark.slow
@pytest.mark.parametrize("times", [60, pytest.param(1000, marks=pytest.mark.long)])
def test_children_beside_busy_threads_all_end(tmp_path: Path, times: int) -> None:
    ended = until_ended(fork_many_times, {"folder": str(tmp_path), "times": times}, limit_s=200)
    assert (ended.status, ended.output.split()) == (0, ["{0}"]), ended.errors


def fork_many_times(folder: str, times: int) -> None:
    """In a process of its own, which is small, so that it forks in milliseconds: print how the children ended."""
    surroundings = Surroundings(Path(folder))
    over = threading.Event()
    memory = MemoryCoordination()
    pool = surroundings.requests.pool
    assert pool is not None

    def membership() -> None:
        surroundings.membership._left.clear()
        surroundings.membership._left.set()

    works: list[Callable[[], object]] = [
        membership,
        lambda: pool.put(pool.get()),
        surroundings.lease._wake.set,
        lambda: surroundings.background.submit(lambda: None, unless_busy=True),
        surroundings.presence.announce,
        lambda: surroundings.cache.keep(1, 1, 1),
        lambda: surroundings.spooled.append(b"x"),
        lambda: memory.connect().close(),
        lambda: lifecycle.log.debug("busy"),
    ]

    def repeat(work: Callable[[], object]) -> None:
        while not over.is_set():
            work()
            time.sleep(0.0002)

    threads = [threading.Thread(target=repeat, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    gc.freeze()  # children copy less
    try:
        statuses = set[int]()
        for number in range(times):
            statuses.add(in_child(surroundings.use if number % 50 == 0 else _ends))
            if statuses != {0}:
                break
        print(statuses)
    finally:
        over.set()
        for thread in threads:
            thread.join()
    surroundings.close()


def _ends() -> None:
    """The functions that Python calls after a fork have run already."""
    atexit._run_exitfuncs()


def test_a_lease_and_a_turn_of_the_parent_end_in_the_parent_only(surroundings: Surroundings) -> None:
    def release() -> None:
        assert not surroundings.lease.held
        surroundings.lease.release()

    assert in_child(release) == 0
    assert surroundings.lease.held


def test_locks_are_free_after_a_fork_wherever_they_are() -> None:
    """A forked process may wait for a plain lock of `threading`, and for the one that `cached_property` has before Python 3.12. Each has
    its reason, or is a ForkSafeLock or a LazyProperty.
    """
    made = re.compile(
        r"threading\.(R?Lock|Condition|Semaphore|Barrier)\b|from threading import|import .*cached_property|@.*cached_property"
    )
    found = {str(path.relative_to(SOURCES)) for path in SOURCES.rglob("*.py") if made.search(path.read_text())}
    without = {each for each in found if not each.startswith(tuple(PLAIN_LOCKS))}
    assert not without, "use ForkSafeLock or LazyProperty, or say in PLAIN_LOCKS why no forked process waits for it"
