"""Where a client of a small world sits: its clock, its sessions, its object stores and its chance, all of them requests.

Time is the client's own and moves only while it waits: there is no clock that two clients share, so that none can be faster
than another is slow in every possible way. GUIDs count: client 1's third one is the same in every run.
"""

from __future__ import annotations

import hashlib
import io
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO

from sluice.coordinator.errors import SessionLost
from sluice.coordinator.limits import Limits
from sluice.coordinator.service.store import (
    ANY_VERSION,
    ApplyRefused,
    Create,
    Delete,
    Node,
    NodeExists,
    Op,
    ReplyLost,
    Write,
    check_ops,
    check_path,
)
from sluice.storage.arguments import check_folder, check_key
from sluice.storage.stores.objects import ObjectInfo

from .requests import Barrier, Change, Close, Look, ObjectCall, Request, Wait

if TYPE_CHECKING:
    from .actor import Actor, _Run

EPOCH_MS = 1_700_000_000_000
_SESSIONS = 1000
"""Sessions are numbered by client: client 1 has 2001, 2002 and so on."""

Watch = Callable[[], None]


@dataclass(eq=False)
class Seat:
    """What one run of a client's program has of the world."""

    actor: Actor
    run: _Run
    limits: Limits
    now_s: float = 0.0
    guids: int = 0
    events: int = 0
    conditional_put: bool = True

    def __post_init__(self) -> None:
        self.sessions: list[SeatSession] = []
        self.kept: dict[str, Any] = {}

    @property
    def name(self) -> str:
        return self.actor.name

    def ask(self, request: Request) -> Any:
        """One request to the outside; raises what it is answered with."""
        return self.run.ask(request)

    def tell(self, *what: object) -> None:
        """Note what the client's caller was told, for the judge."""
        self.run.told.append(what)

    def connect(self) -> SeatSession:
        """The session, a new one once the last is known to be over."""
        if not self.sessions or self.sessions[-1].lost:
            self.sessions.append(SeatSession(self, (self.actor.index + 1) * _SESSIONS + len(self.sessions) + 1))
        return self.sessions[-1]

    def guid(self) -> uuid.UUID:
        self.guids += 1
        return uuid.UUID(int=(self.actor.index + 1) << 64 | self.guids, version=4)

    def bits(self, count: int) -> int:
        """So many bits, never the same ones twice."""
        self.guids += 1
        digest = hashlib.sha256(f"{self.actor.index}/{self.guids}".encode()).digest()
        return int.from_bytes(digest, "big") & ((1 << count) - 1)

    def store(self, table: str) -> SeatStore:
        return SeatStore(self, table)

    # -- the clock ---------------------------------------------------------------------------------------------------

    def now_ms(self) -> int:
        return EPOCH_MS + int(self.now_s * 1000)

    def monotonic_s(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.ask(Wait(None, seconds))
        self.now_s += max(0.0, seconds)

    def event(self) -> SeatEvent:
        self.events += 1
        return SeatEvent(self, self.events)


class SeatEvent:
    def __init__(self, seat: Seat, number: int) -> None:
        self.number = number
        self._seat = seat

    def set(self) -> None:
        self._seat.run.marks.append((self.number, True))

    def clear(self) -> None:
        self._seat.run.marks.append((self.number, False))

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is set, for at most so long; whether it is set."""
        woken = bool(self._seat.ask(Wait(self.number, timeout)))
        if not woken and timeout is not None:
            self._seat.now_s += max(0.0, timeout)
        return woken


class SeatSession:
    """A session with the coordination service; implements CoordinationStore."""

    def __init__(self, seat: Seat, session_id: int) -> None:
        self._seat = seat
        self.session_id = session_id
        self.lost = False

    @property
    def connected(self) -> bool:
        """Whether this client has not seen its end; a paused client may have missed it."""
        return not self.lost

    def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False) -> str:
        return str(self._one("create", Create(path, data, ephemeral=ephemeral, sequential=sequential)))

    def ensure_path(self, path: str) -> None:
        parts = path.strip("/").split("/")
        for depth in range(1, len(parts) + 1):
            while True:
                try:
                    self.create("/" + "/".join(parts[:depth]))
                except ReplyLost:
                    continue
                except NodeExists:
                    break
                break

    def read(self, path: str, watch: Watch | None = None) -> Node | None:
        check_path(path)
        found: Node | None = self._ask(Look(self.session_id, "read", (path,), _event(watch)))
        return found

    def read_many(self, paths: Sequence[str]) -> list[Node | None]:
        return list(self._ask(Look(self.session_id, "read_many", tuple(paths)))) if paths else []

    def look(self, nodes: Sequence[str], parents: Sequence[str]) -> tuple[list[Node | None], list[list[str] | None]]:
        """Several nodes, then the names of children; others have their turn in between."""
        return self.read_many(nodes), [self.children(path) for path in parents]

    def children(self, path: str, watch: Watch | None = None) -> list[str] | None:
        check_path(path)
        found = self._ask(Look(self.session_id, "children", (path,), _event(watch)))
        return None if found is None else list(found)

    def write(self, path: str, data: bytes, *, version: int) -> int:
        return int(self._one("write", Write(path, data, version)))

    def delete(self, path: str, *, version: int = ANY_VERSION) -> None:
        self._one("delete", Delete(path, version))

    def apply(self, ops: Sequence[Op]) -> list[str | int | None]:
        check_ops(ops)
        return list(self._ask(Change(self.session_id, "apply", tuple(ops))))

    def barrier(self) -> None:
        self._ask(Barrier(self.session_id))

    def close(self) -> None:
        if not self.lost:
            self._ask(Close(self.session_id))
            self.lost = True

    def _one(self, verb: str, op: Op) -> Any:
        check_ops([op])
        try:
            return self._ask(Change(self.session_id, verb, (op,)))[0]
        except ApplyRefused as refused:
            raise refused.cause from None

    def _ask(self, request: Request) -> Any:
        if self.lost:
            raise SessionLost(f"session {self.session_id} is over", session_id=self.session_id)
        try:
            return self._seat.ask(request)
        except (SessionLost, ReplyLost) as trouble:
            self.lost = isinstance(trouble, SessionLost) or bool(trouble.details.get("expired"))
            raise


def _event(watch: Watch | None) -> int | None:
    if watch is None:
        return None
    owner = getattr(watch, "__self__", None)
    assert isinstance(owner, SeatEvent), "in a small world a watch sets an event of the client's clock"
    return owner.number


class SeatStore:
    """The object store of one table; implements ObjectStore."""

    def __init__(self, seat: Seat, table: str) -> None:
        self._seat, self._table = seat, table

    @property
    def location(self) -> str:
        return self._table

    @property
    def atomic_put_if_absent(self) -> bool:
        return self._seat.conditional_put

    def get(self, key: str) -> bytes:
        return bytes(self._ask("get", check_key(key)))

    def get_range(self, key: str, offset: int, length: int) -> bytes:
        return self.get(key)[offset : offset + length]

    def open_input(self, key: str) -> BinaryIO:
        return io.BytesIO(self.get(key))

    def head(self, key: str) -> ObjectInfo:
        return ObjectInfo(key, int(self._ask("head", check_key(key))), EPOCH_MS)

    def put(self, key: str, data: bytes) -> None:
        self._ask("put", check_key(key), bytes(data))

    def put_if_absent(self, key: str, data: bytes | BinaryIO) -> bool:
        """Write an object unless the key exists; in two steps where the store cannot do it in one."""
        data = data if isinstance(data, bytes) else data.read()
        if self.atomic_put_if_absent:
            return bool(self._ask("put_if_absent", check_key(key), bytes(data)))
        if self._ask("head", check_key(key), missing=True) is not None:
            return False
        self.put(key, data)
        return True

    def upload(self, key: str) -> AbstractContextManager[BinaryIO]:
        return self._upload(check_key(key))

    @contextmanager
    def _upload(self, key: str) -> Iterator[BinaryIO]:
        sink = io.BytesIO()
        yield sink
        self.put(key, sink.getvalue())

    def delete(self, key: str) -> None:
        self._ask("delete", check_key(key))

    @contextmanager
    def prepared_deletion(self, key: str) -> Iterator[Callable[[], None]]:
        yield partial(self.delete, key)

    def list_from(self, prefix: str, start: str = "", *, recursive: bool = False) -> Iterator[ObjectInfo]:
        """The objects of a folder, as of one moment."""
        check_folder(prefix)
        found = self._seat.ask(ObjectCall(self._table, "list", prefix, start=start, recursive=recursive))
        return iter([ObjectInfo(key, size, EPOCH_MS) for key, size in found])

    def _ask(self, verb: str, key: str, data: bytes = b"", *, missing: bool = False) -> Any:
        return self._seat.ask(ObjectCall(self._table, verb, key, data, recursive=missing))
