"""Objects in memory, deterministic, with faults on demand: the test double of the real stores.

Stores of one name share one `MemoryDisk` within a process (`MemoryStore.open("t").disk`); a store that is pickled into
another process finds another, empty disk there.

The fault model. A fault is armed on the disk for one verb, for the keys that match a pattern (shell style), `times` calls
after the first `skip`; the helpers of `MemoryDisk` are named after what happens in the field:

====================  ==========================================================================================
`fail_before`         the request never arrives: an error, no effect
`fail_after`          the reply is lost: the effect happened, the caller gets an error
`throttle`            the store answers SlowDown for longer than a client's retries last: an error, no effect
`slow`                the call takes long: `wait` is called first (a sleep, a barrier, a simulated clock)
`foreign_put`         another client writes just before the effect of the call; on a store without conditional PUT
                      this hits the gap between the look and the put
`capacity_bytes`      the disk is full: what would go beyond it raises StorageFull, no effect
`conditional_put`     False: the store has none, `put_if_absent` is a look and then a put
`hides`               a listing is not a point in time, as in a folder on a disk: of the keys stored, replaced or removed
                      while it runs (`slow("list", ...)`), it omits those that this selects
====================  ==========================================================================================

Verbs: get (also get_range and open_input), put, put_if_absent, head, list, delete, upload (its end).
"""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, BinaryIO, Literal, TypeAlias

from ..arguments import check_folder, check_key
from ..caches import ForkSafeLock
from ..dataclass import dataclass
from ..errors import ObjectNotFound, StorageFull, StorageUnavailable
from ..observing import observed
from .objects import ObjectInfo

Verb = Literal["get", "put", "put_if_absent", "head", "list", "delete", "upload"]


Objects: TypeAlias = "Mapping[str, tuple[bytes, int]]"
"""Contents and times, by key."""


def listed_meanwhile(before: Objects, after: Objects, hides: Callable[[str], bool]) -> Objects:
    """What a listing shows that began at `before` and ended at `after`: all that stayed, and what changed unless hidden (see `readdir`)."""
    return {key: after.get(key) or before[key] for key in {**before, **after} if before.get(key) == after.get(key) or not hides(key)}


@dataclass(slots=True)
class Fault:
    """A fault of `times` calls of `verb` on keys like `key`, after the first `skip`; see the module's docstring.

    `before` runs before the effect and `after` after it; either may raise.
    """

    verb: Verb
    key: str = "*"
    before: Callable[[], object] | None = None
    after: Callable[[], object] | None = None
    skip: int = 0
    times: int = 1


@dataclass(slots=True)
class MemoryDisk:
    """The state shared by stores of one name: objects (content and time), armed faults, and the calls that were made."""

    clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000
    capacity_bytes: int | None = None
    conditional_put: bool = True
    hides: Callable[[str], bool] | None = None
    objects: dict[str, tuple[bytes, int]] = field(default_factory=dict[str, tuple[bytes, int]])
    faults: list[Fault] = field(default_factory=list[Fault])
    calls: list[tuple[Verb, str]] = field(default_factory=list[tuple[Verb, str]])
    lock: ForkSafeLock = field(default_factory=partial(ForkSafeLock, reentrant=True))

    def arm(self, fault: Fault) -> None:
        """Arm a custom fault."""
        with self.lock:
            self.faults.append(fault)

    def fail_before(self, verb: Verb, key: str = "*", *, skip: int = 0, times: int = 1, error: Exception | None = None) -> None:
        """The request never arrives."""
        self.arm(Fault(verb, key, before=_raiser(error or StorageUnavailable(f"injected: {verb} did not arrive")), skip=skip, times=times))

    def fail_after(self, verb: Verb, key: str = "*", *, skip: int = 0, times: int = 1, error: Exception | None = None) -> None:
        """The reply is lost after the effect."""
        self.arm(
            Fault(verb, key, after=_raiser(error or StorageUnavailable(f"injected: the reply to {verb} was lost")), skip=skip, times=times)
        )

    def throttle(self, verb: Verb, key: str = "*", *, skip: int = 0, times: int = 1) -> None:
        """The store answers SlowDown until the client gives up."""
        self.fail_before(verb, key, skip=skip, times=times, error=StorageUnavailable(f"injected: SlowDown for {verb}", code="SlowDown"))

    def slow(self, verb: Verb, wait: Callable[[], object], key: str = "*", *, skip: int = 0, times: int = 1) -> None:
        """`wait` is called before the effect, without any lock."""
        self.arm(Fault(verb, key, before=wait, skip=skip, times=times))

    def foreign_put(self, verb: Verb, key: str, data: bytes, *, skip: int = 0) -> None:
        """Another client writes `data` to `key` just before the effect of the next `verb` on it."""
        self.arm(Fault(verb, key, before=lambda: self.store(key, data), skip=skip))

    def store(self, key: str, data: bytes) -> None:
        """Write without faults, as another client would. Raises StorageFull."""
        with self.lock:
            replaced = len(self.objects[key][0]) if key in self.objects else 0
            used = sum(len(content) for content, _ in self.objects.values()) if self.capacity_bytes is not None else 0
            if self.capacity_bytes is not None and used - replaced + len(data) > self.capacity_bytes:
                raise StorageFull(f"the memory disk is full: {key!r} would exceed {self.capacity_bytes} bytes", key=key)
            self.objects[key] = (bytes(data), self.clock_ms())

    @contextmanager
    def call(self, verb: Verb, key: str) -> Iterator[None]:
        """One call: records it, and lets the armed faults happen around its effect."""
        with self.lock:
            self.calls.append((verb, key))
            due: list[Fault] = []
            for fault in self.faults:
                if fault.times > 0 and fault.verb == verb and fnmatchcase(key, fault.key):
                    fault.skip -= 1
                    if fault.skip < 0:
                        fault.times -= 1
                        due.append(fault)
        for fault in due:
            if fault.before is not None:
                fault.before()
        yield
        for fault in due:
            if fault.after is not None:
                fault.after()


def _raiser(error: Exception) -> Callable[[], object]:
    def throw() -> None:
        raise error

    return throw


_DISKS: dict[str, MemoryDisk] = {}


@observed("store", get="get", head="head", put="put", put_if_absent="put", upload="put", delete="delete")
class MemoryStore:
    """An ObjectStore in this process's memory. `location` is normalised: `memory://name`."""

    def __init__(self, location: str) -> None:
        self.location = location
        self.disk = _DISKS.setdefault(location, MemoryDisk())

    @classmethod
    def open(cls, name: str) -> MemoryStore:
        """The store `memory://name`."""
        return cls(f"memory://{name}")

    def elsewhere(self, uri: str) -> tuple[MemoryStore, str] | None:
        """This process's store of an object outside this one, and its key there."""
        location = max((each for each in _DISKS if uri.startswith(each + "/")), key=len, default=None)
        return None if location is None else (MemoryStore(location), uri[len(location) + 1 :])

    def forget(self) -> None:
        """Drop the shared disk: the next store of this name starts empty."""
        _DISKS.pop(self.location, None)

    def __repr__(self) -> str:
        return f"MemoryStore({self.location!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return (MemoryStore, (self.location,))

    @property
    def atomic_put_if_absent(self) -> bool:
        """Whether the disk has conditional PUT (a fault switches it off)."""
        return self.disk.conditional_put

    def _read(self, key: str) -> tuple[bytes, int]:
        with self.disk.lock:
            found = self.disk.objects.get(key)
        if found is None:
            raise ObjectNotFound(f"{self.location}/{key}: there is no such object", key=key)
        return found

    def get(self, key: str) -> bytes:
        with self.disk.call("get", check_key(key)):
            return self._read(key)[0]

    def get_range(self, key: str, offset: int, length: int) -> bytes:
        return self.get(key)[offset : offset + length]

    def open_input(self, key: str) -> BinaryIO:
        return _Input(self.get(key))

    def head(self, key: str) -> ObjectInfo:
        with self.disk.call("head", check_key(key)):
            data, modified_ms = self._read(key)
        return ObjectInfo(key, len(data), modified_ms)

    def put(self, key: str, data: bytes) -> None:
        with self.disk.call("put", check_key(key)):
            self.disk.store(key, data)

    def put_if_absent(self, key: str, data: bytes | BinaryIO) -> bool:
        data = data if isinstance(data, bytes) else data.read()
        look_first = not self.disk.conditional_put
        if look_first and check_key(key) in self.disk.objects:
            return False
        with self.disk.call("put_if_absent", check_key(key)), self.disk.lock:
            if not look_first and key in self.disk.objects:
                return False
            self.disk.store(key, data)
            return True

    @contextmanager
    def upload(self, key: str) -> Iterator[BinaryIO]:
        sink = _Sink()
        check_key(key)
        yield sink
        sink.close()
        with self.disk.call("upload", key):
            self.disk.store(key, sink.content)

    def delete(self, key: str) -> None:
        with self.disk.call("delete", check_key(key)), self.disk.lock:
            self.disk.objects.pop(key, None)

    @contextmanager
    def prepared_deletion(self, key: str) -> Iterator[Callable[[], None]]:
        """A function that removes the object that is there now, and no later one."""
        with self.disk.lock:
            now = self.disk.objects.get(check_key(key))

        def delete() -> None:
            with self.disk.call("delete", key), self.disk.lock:
                if self.disk.objects.get(key) is now:
                    self.disk.objects.pop(key, None)

        yield delete

    def list_from(self, prefix: str, start: str = "", *, recursive: bool = False) -> Iterator[ObjectInfo]:
        with self.disk.lock:
            hides, before = self.disk.hides, dict(self.disk.objects) if self.disk.hides is not None else {}
        with self.disk.call("list", check_folder(prefix)), self.disk.lock:
            objects = self.disk.objects if hides is None else listed_meanwhile(before, self.disk.objects, hides)
            found = [
                (key, len(data), modified_ms)
                for key, (data, modified_ms) in objects.items()
                if key >= start and key.startswith(prefix) and (recursive or "/" not in key[len(prefix) :])
            ]
        return (ObjectInfo(*each) for each in sorted(found))


class _Input(io.BytesIO):
    """An object as it was when it was opened; `version` identifies it."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.version = f"{hash(data):x}"


class _Sink(io.BytesIO):
    """A writable stream whose content outlives its close."""

    content = b""

    def close(self) -> None:
        if not self.closed:
            self.content = self.getvalue()
        super().close()
