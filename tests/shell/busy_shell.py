"""A shell that works through statements: `python -m tests.shell.busy_shell COORDINATOR`, with one statement on each line of its input.

For each it prints one line of JSON: the statement, and the name of the error, null if it was carried out.
"""

from __future__ import annotations

import json
import sys

import sluice
from sluice.shell.engines import LOCAL, Engines


def main(coordinator: str) -> None:
    engines = Engines(LOCAL, coordinator=coordinator)
    for line in sys.stdin.read().splitlines():
        error = None
        try:
            engines.run(line)
        except sluice.errors.SluiceError as raised:
            error = type(raised).__name__
        print(json.dumps([line, error]), flush=True)
    engines.close()


if __name__ == "__main__":
    main(sys.argv[1])
