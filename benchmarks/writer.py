"""One writer process: ``python -m benchmarks.writer <system> <number> <target> <file>``.

It talks with the measuring process in lines: says `opened`; reads `warm`, appends once, says `ready`; reads the start
and the deadline (in time.monotonic, which all processes of a machine share), and appends until the deadline. A
transaction that has begun is finished; then it says `done`. Every acknowledgement is a line in `file` at once, so that nothing is forgotten
when the process is killed: sequence, begun, acknowledged, version or null. The last line is an object with the processor time of all
threads since the start, in seconds, and the transactions that took it.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TextIO

from .systems import load
from .systems.base import Append, Target, batch

__all__ = ["main"]


def _append(append: Append, writer: int, sequence: int, log: TextIO) -> None:
    rows = batch(writer, sequence)
    begun = time.monotonic()
    print(json.dumps([sequence, begun]), file=log, flush=True)
    version = append(rows)
    print(json.dumps([sequence, begun, time.monotonic(), version]), file=log, flush=True)


def main(system: str, number: str, target: str, file: str) -> None:
    """Open, warm up, write until the deadline."""
    writer = int(number)
    append = load(system, Target.from_json(target)).writer()
    with Path(file).open("w") as log:
        print("opened", flush=True)
        sys.stdin.readline()
        _append(append, writer, 0, log)
        print("ready", flush=True)
        start, deadline = (float(word) for word in sys.stdin.readline().split())
        time.sleep(max(0.0, start - time.monotonic()))
        sequence, busy = 0, time.process_time()
        while time.monotonic() < deadline:
            sequence += 1
            _append(append, writer, sequence, log)
        print(json.dumps({"cpu_s": time.process_time() - busy, "transactions": sequence}), file=log, flush=True)
        print("done", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
