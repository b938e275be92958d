"""Small worlds until the first promise that is broken, each for a few seconds: `python -m tests.mutations.worlds <seconds> <name>...`."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from tests.explore.actor import Actor
from tests.explore.surroundings import in_a_small_world
from tests.explore.worlds import WORLDS, search_of


def main(arguments: Sequence[str]) -> int:
    """1 when a world broke a promise; the report is that of `python -m tests.explore`."""
    seconds, *names = arguments
    for name in names:
        world = WORLDS[name]
        with in_a_small_world():
            findings = search_of(world).run(float(seconds)).findings
            Actor.forget_all()
        if findings:
            print(f"VIOLATION in world {name} ({world.about})\n  {findings[0].what}")
            return 1
    return 0


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":  # the order of sets is part of a schedule
        os.execve(sys.executable, [sys.executable, "-m", "tests.mutations.worlds", *sys.argv[1:]], {**os.environ, "PYTHONHASHSEED": "0"})
    sys.exit(main(sys.argv[1:]))
