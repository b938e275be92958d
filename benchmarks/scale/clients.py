"""The clients: ``python -m benchmarks.scale.clients FILE`` forks them from one process that has imported everything.

A client is a process with a session of its own, as a Spark driver is. It has one or more writers, each a thread that appends to one table,
one small commit after the other. The program says `ready` when each writer has committed once, reads the start and the deadline (by
time.monotonic), and says `done` when all have finished what they had begun. Each client leaves a file: a line for each transaction that
began (writer, sequence, begun) and for each answer (with acknowledged, version), and at the end one with its processor time.
"""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO

from sluice.dev import REGION

from ..systems.base import SCHEMA, Append, Target, batch

if TYPE_CHECKING:
    from multiprocessing.context import ForkContext
    from multiprocessing.sharedctypes import Synchronized

__all__ = ["Spec", "main", "writers_of"]

_LEAVE_S: Final = 0.2
_START_LIMIT_S: Final = 600.0


@dataclass(frozen=True, slots=True)
class Spec:
    """What the clients do: `writers` writers for each of the tables, spread over the clients one after the other."""

    system: str
    coordinator: str
    targets: tuple[str, ...]
    """For each table, as JSON."""
    clients: int
    writers: int
    folder: str

    def to_json(self) -> str:
        """As text, for the process that forks them."""
        return json.dumps([self.system, self.coordinator, self.targets, self.clients, self.writers, self.folder])

    @classmethod
    def from_json(cls, text: str) -> Spec:
        """The inverse of `to_json`."""
        system, coordinator, targets, clients, writers, folder = json.loads(text)
        return cls(system, coordinator, tuple(targets), clients, writers, folder)


def writers_of(spec: Spec, client: int) -> list[int]:
    """The numbers of a client's writers; writer n writes table n // spec.writers."""
    return list(range(client, len(spec.targets) * spec.writers, spec.clients))


def open_table(spec: Spec, number: int) -> Append:
    """What a writer appends with."""
    target = Target.from_json(spec.targets[number // spec.writers])
    if spec.system == "delta-rs":
        from ..systems.delta_rs import DeltaRs  # only after the fork: its threads do not survive one

        return DeltaRs(target).writer()
    import sluice

    options = {
        "endpoint_url": target.endpoint_url,
        "region": target.region,
        "path_style": "true",
        "access_key_id": target.access_key_id,
        "secret_access_key": target.secret_access_key,
        "conditional_put": "true",
    }
    table = sluice.Table.open(target.location, coordinator=spec.coordinator, storage_options=options, ack=target.ack)

    def append(rows: Any) -> int | None:
        commit = table.append(rows)
        return None if commit is None else commit.version

    return append


class Client:
    """One process."""

    def __init__(self, spec: Spec, number: int, ready: Barrier, window: Synchronized[float], deadline: Synchronized[float]) -> None:
        self._spec, self._number, self._ready, self._window, self._deadline = spec, number, ready, window, deadline
        self._lock = threading.Lock()

    def run(self) -> None:
        """Open, warm up, write, and leave the file."""
        with Path(self._spec.folder, f"client-{self._number}.jsonl").open("w") as log:
            try:
                mine = [(number, open_table(self._spec, number)) for number in writers_of(self._spec, self._number)]
                for number, append in mine:
                    self._append(append, number, 0, log)
            except BaseException:
                self._ready.abort()  # nobody waits for this one
                raise
            self._ready.wait(_START_LIMIT_S)
            while not self._window.value:
                time.sleep(0.02)
            time.sleep(max(0.0, self._window.value - time.monotonic()))
            busy = time.process_time()
            threads = [threading.Thread(target=self._write, args=(number, append, log)) for number, append in mine]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            print(json.dumps({"cpu_s": time.process_time() - busy}), file=log, flush=True)
        time.sleep(_LEAVE_S)
        os._exit(0)  # sessions and threads of many clients that end in order would take minutes

    def _write(self, number: int, append: Append, log: TextIO) -> None:
        sequence = 0
        while time.monotonic() < self._deadline.value:
            sequence += 1
            self._append(append, number, sequence, log)

    def _append(self, append: Append, number: int, sequence: int, log: TextIO) -> None:
        rows = batch(number, sequence)
        begun = time.monotonic()
        self._note([number, sequence, begun], log)
        version = append(rows)
        self._note([number, sequence, begun, time.monotonic(), version], log)

    def _note(self, line: Sequence[object], log: TextIO) -> None:
        with self._lock:
            print(json.dumps(line), file=log, flush=True)


def _import_all(context: ForkContext) -> None:
    """Import what an append needs, so that the clients share it: one that is forked for this appends, and tells its modules."""
    reader, writer = context.Pipe(duplex=False)
    pioneer = context.Process(target=_append_once, args=(writer,), daemon=True)
    pioneer.start()
    for name in reader.recv():
        with suppress(ImportError):
            import_module(name)
    pioneer.join()
    _share_models()
    gc.freeze()  # no collection touches, and so copies, the pages that are shared


def _share_models() -> None:
    """Let all clients use one description of S3: each of them would parse its own, which is half of a client's memory."""
    stores: Any = import_module("sluice.storage.stores.s3")
    session = stores.get_session()
    session.create_client("s3", region_name=REGION, aws_access_key_id="none", aws_secret_access_key="none")
    stores.get_session = lambda: session


def _append_once(told: Connection) -> None:
    import sluice
    import sluice.storage.stores.s3

    with sluice.Table.create("memory://pioneer", SCHEMA, coordinator="memory://pioneer") as table:
        table.append(batch(0, 0))
    told.send([name for name, module in sys.modules.items() if module is not None and name != "__main__"])
    told.close()
    os._exit(0)


def main(path: str) -> None:
    """Fork the clients, and lead them."""
    spec = Spec.from_json(Path(path).read_text())
    context = multiprocessing.get_context("fork")
    _import_all(context)
    ready, window, deadline = context.Barrier(spec.clients + 1), context.Value("d", 0.0), context.Value("d", 0.0)
    clients = [Client(spec, number, ready, window, deadline) for number in range(spec.clients)]
    processes = [context.Process(target=each.run, daemon=True) for each in clients]
    for process in processes:
        process.start()
    ready.wait(_START_LIMIT_S)
    print("ready", flush=True)
    start, end = (float(word) for word in sys.stdin.readline().split())
    deadline.value, window.value = end, start
    for process in processes:
        process.join()
    print("done" if all(process.exitcode == 0 for process in processes) else "failed", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
