"""TCP lines between clients and servers that can be cut, silenced one way or both, slowed down and made to break.

All lines live in one thread. A line is silent when its bytes are held back; they arrive when the silence ends, as after a
partition of a network, also when their sender gave up long ago.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
from collections import Counter
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Wire", "Wires"]

_CHUNK_BYTES = 65536
_POLL_S = 0.02


@dataclass
class Wire:
    """The lines of one client; set its fields from any thread."""

    name: str
    hosts: str = ""
    is_cut: bool = False
    """Connections are broken, and every further one as soon as it is made."""
    silent: frozenset[str] = frozenset()
    """Directions in which nothing passes: "up" to the servers, "down" from them."""
    delay_s: float = 0.0
    breaks: float = 0.0
    """The probability that a connection breaks at a piece of data, which is lost with it."""
    open: set[asyncio.StreamWriter] = field(default_factory=set)

    def heal(self) -> None:
        """Nothing is wrong any more."""
        self.is_cut, self.silent, self.delay_s, self.breaks = False, frozenset(), 0.0, 0.0


class Wires:
    """All lines. `counts` says how often which thing happened to them."""

    def __init__(self, ports: Sequence[int], seed: int) -> None:
        self._ports = ports
        self._random = random.Random(f"{seed}/wires")
        self._loop = asyncio.new_event_loop()
        self._servers: list[asyncio.Server] = []
        self.counts: Counter[str] = Counter()
        self.wires: dict[str, Wire] = {}
        self._thread = threading.Thread(target=self._loop.run_forever, name="chaos-wires", daemon=True)
        self._thread.start()

    def wire(self, name: str) -> Wire:
        """The lines of a client; made when they are first asked for."""
        if name not in self.wires:
            wire = Wire(name)
            wire.hosts = ",".join(f"127.0.0.1:{self._call(self._listen(wire, port))}" for port in self._ports)
            self.wires[name] = wire
        return self.wires[name]

    def cut(self, wire: Wire) -> None:
        """Break all connections of a client, and every further one until it is healed."""
        wire.is_cut = True
        self._call(self._break(wire))

    def close(self) -> None:
        self._call(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _call(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    async def _listen(self, wire: Wire, port: int) -> int:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await self._serve(wire, port, reader, writer)

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        self._servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    async def _break(self, wire: Wire) -> None:
        for writer in list(wire.open):
            self.counts["connections cut"] += 1
            writer.transport.abort()

    async def _stop(self) -> None:
        for server in self._servers:
            server.close()
        for task in asyncio.all_tasks():
            if task is not asyncio.current_task():
                task.cancel()
        await asyncio.sleep(0.1)

    async def _serve(self, wire: Wire, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if wire.is_cut:
            self.counts["connections refused"] += 1
            writer.transport.abort()
            return
        try:
            up_reader, up_writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            writer.transport.abort()
            return
        wire.open.add(writer)
        pumps = {
            asyncio.ensure_future(self._pump(wire, "up", reader, up_writer)),
            asyncio.ensure_future(self._pump(wire, "down", up_reader, writer)),
        }
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            wire.open.discard(writer)
            for end in (writer, up_writer):
                end.transport.abort()

    async def _pump(self, wire: Wire, direction: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(_CHUNK_BYTES):
                if wire.breaks and self._random.random() < wire.breaks:
                    self.counts[f"data lost with its connection, {direction}"] += 1
                    return
                if wire.delay_s:
                    self.counts["data delayed"] += 1
                    await asyncio.sleep(wire.delay_s)
                if direction in wire.silent:
                    self.counts[f"data held back, {direction}"] += 1
                    while direction in wire.silent:
                        await asyncio.sleep(_POLL_S)
                writer.write(data)
                await writer.drain()
