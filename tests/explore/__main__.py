"""`python -m tests.explore`: every small world, a table of what was seen, and one JSON object on the last line."""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .actor import Actor
from .replay import show
from .search import Finding, Move, Search, Tally
from .surroundings import in_a_small_world
from .worlds import WORLDS, World, search_of

_ROOT = Path(__file__).resolve().parents[2]
_MODEL = _ROOT / "scripts" / "check-model"
_SHORTENING_S = 20.0
_INTERRUPTIONS_MAX = 6


def main(arguments: Sequence[str] | None = None) -> int:
    """Search, or show one schedule; 1 when a promise was broken."""
    options = _options(arguments)
    if options.world is not None:
        return _replay(options.world, options.moves)
    names = options.worlds.split(",") if options.worlds else list(WORLDS)
    unknown = [name for name in names if name not in WORLDS]
    if unknown:
        print(f"there is no world {', '.join(unknown)}; there are: {', '.join(WORLDS)}", file=sys.stderr)
        return 2
    left, violations = options.minutes * 60.0, 0
    total = Tally()
    complete = 0
    print(f"{'world':17}{'states':>10}{'steps':>11}{'executions':>12}{'pruned':>10}{'deepest':>9}{'faults':>9}{'seconds':>9}  looked into")
    for number, name in enumerate(names):
        weights = [WORLDS[each].weight for each in names[number:]]
        seen = _search(WORLDS[name], left * weights[0] / sum(weights))
        tally = seen.tally
        left -= seen.seconds
        violations += len(seen.told)
        complete += tally.complete and WORLDS[name].switches < 0
        print(_line(WORLDS[name], seen))
        print("".join(seen.told), end="", flush=True)
        for name_of_sum in ("states", "transitions", "executions", "faults"):
            setattr(total, name_of_sum, getattr(total, name_of_sum) + getattr(tally, name_of_sum))
    result = {
        "worlds": len(names),
        "complete": complete,
        "executions": total.executions,
        "steps": total.transitions,
        "states": total.states,
        "faults": total.faults,
        "violations": violations,
    }
    if options.model and not options.worlds:
        states, broken = _model()
        result |= {"states": total.states + states, "model_states": states, "violations": violations + broken}
    print(json.dumps(result))
    return 1 if result["violations"] else 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.explore", description=__doc__)
    parser.add_argument("--only", "--worlds", dest="worlds", default="", help="their names, with commas between them; all by default")
    parser.add_argument("--minutes", type=float, default=10.0, help="of one processor core, for all worlds together")
    parser.add_argument("--model", action="store_true", help="check the Promela model, too, where all worlds are searched")
    parser.add_argument("--world", choices=WORLDS, help="show one schedule of this world")
    parser.add_argument("--moves", default="", help="the schedule, as a violation prints it")
    return parser.parse_args(arguments)


def _line(world: World, seen: Seen) -> str:
    tally = seen.tally
    if tally.complete and world.switches < 0:
        how = "complete"
    elif tally.complete:
        how = f"complete up to {world.switches} interruptions"
    elif seen.interruptions >= 0:
        how = f"complete up to {seen.interruptions} interruptions, beyond them up to time"
    else:
        how = "up to time"
    return (
        f"{world.name:17}{tally.states:10}{tally.transitions:11}{tally.executions:12}{tally.pruned:10}{tally.deepest:9}{tally.faults:9}"
        f"{seen.seconds:9.1f}  {how}; {world.bounds}"
    )


@dataclass
class Seen:
    """What was seen of a world: the tally of the last search, up to how many interruptions it was seen before, what to print."""

    tally: Tally
    interruptions: int = -1
    seconds: float = 0.0
    told: list[str] = field(default_factory=list)


def _search(world: World, seconds: float) -> Seen:
    """Search one world; a large one with few interruptions first, and then without a bound for as long as there is time."""
    with in_a_small_world():
        seen = _searched(world, seconds)
        Actor.forget_all()
    return seen


def _searched(world: World, seconds: float) -> Seen:
    seen = Seen(Tally())
    for switches in range(1, _INTERRUPTIONS_MAX + 1) if world.weight > 1.0 else ():
        search = search_of(world, switches=switches)
        seen.tally = search.run(seconds / 3.0 - seen.seconds)
        seen.seconds += seen.tally.seconds
        if seen.tally.findings:
            seen.told.append(_told(world, search, seen.tally.findings[0]))
            return seen
        if not seen.tally.complete:
            break
        seen.interruptions = switches
    search = search_of(world)
    seen.tally = search.run(seconds - seen.seconds)
    seen.seconds += seen.tally.seconds
    if seen.tally.findings:
        seen.told.append(_told(world, *_shortest(world, search, seen.tally.findings)))
    return seen


def _shortest(world: World, search: Search, findings: Sequence[Finding]) -> tuple[Search, Finding]:
    """A violation with as few interruptions of clients as it takes, if that is found soon."""
    for switches in range(_INTERRUPTIONS_MAX):
        other = search_of(world, switches=switches)
        found = other.run(_SHORTENING_S).findings
        if found:
            return other, found[0]
    return search, findings[0]


def _told(world: World, search: Search, finding: Finding) -> str:
    moves = search.names_of(finding.moves)
    return (
        f"VIOLATION in world {world.name} ({world.about})\n  {finding.what}\n  {moves}\n"
        f"  python -m tests.explore --world {world.name} --moves '{moves}'\n"
    )


def _replay(name: str, moves: str) -> int:
    world = WORLDS[name]
    with in_a_small_world():
        search = search_of(world)
        broken = show(search, _moves(search, moves))
        Actor.forget_all()
    return 1 if broken else 0


def _moves(search: Search, text: str) -> list[Move]:
    found: list[Move] = []
    for word in text.split():
        name, _, how = word.partition(":")
        count = re.fullmatch(r"(.*)\*(\d+)", name)
        found += [search.move(count[1] if count else name, how)] * (int(count[2]) if count else 1)
    return found


def _model() -> tuple[int, int]:
    """The states of the Promela model, and the number of its violations."""
    done = subprocess.run([str(_MODEL)], stdout=subprocess.PIPE, text=True, check=False, cwd=_ROOT)
    sys.stdout.write(done.stdout)
    lines = done.stdout.splitlines()
    try:
        return int(json.loads(lines[-1])["states"]), int(done.returncode != 0)
    except (IndexError, ValueError, KeyError):
        return 0, 1


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":  # the order of sets is part of a schedule
        os.execve(sys.executable, [sys.executable, "-m", "tests.explore", *sys.argv[1:]], {**os.environ, "PYTHONHASHSEED": "0"})
    sys.exit(main())
