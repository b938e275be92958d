"""`make soak HOURS=8`: simulator seeds never run before, and chaos, in turns for as long as you like; one page says what they found.

A turn is some minutes of the simulator and one run of chaos; the last one may end some minutes after the time. Seeds come from the clock:
those of the simulator follow one another from the microsecond in which the soak began, that of chaos is the second in which it begins. The
page is written again after each part, so it is whole whenever the soak ends: when its time is over, or at Ctrl-C. The exit status is 1 if
a promise was broken.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import sluice

__all__ = ["Part", "Soak", "page_of"]

_SEEDS_AT_ONCE = 100
_SIMULATOR_S = 600.0
_CHAOS_S = 300.0
_CHAOS_MIN_S = 30.0
_SHOWN_LINES = 200


@dataclass(frozen=True, slots=True)
class Part:
    """One run: of the simulator's seeds from `seed` on, or of chaos with one."""

    kind: str
    seed: int
    facts: Mapping[str, Any]
    took_s: float
    command: str
    broken: str = ""
    """What it printed, if a promise was broken or it failed itself."""


@dataclass(slots=True)
class Soak:
    """What ran so far."""

    began_s: float
    hours: float
    revision: str
    parts: list[Part] = field(default_factory=list[Part])

    @property
    def left_s(self) -> float:
        """How much time is left."""
        return self.began_s + self.hours * 3600 - time.time()

    def run(self, workers: int, more: Sequence[str] = ()) -> Iterator[Part]:
        """Each part, after it ran, until the time is over."""
        seed = int(self.began_s * 1_000_000)
        while self.left_s > 0:
            end = time.time() + min(_SIMULATOR_S, self.left_s / 2)
            while time.time() < end:
                arguments = ("--seeds", str(_SEEDS_AT_ONCE), "--first", str(seed), "--workers", str(workers))
                yield self._add(run_part("simulator", seed, *arguments))
                seed += _SEEDS_AT_ONCE
            seconds = min(_CHAOS_S, max(_CHAOS_MIN_S, self.left_s))
            chosen = int(time.time())
            yield self._add(run_part("chaos", chosen, "--minutes", f"{seconds / 60:.2f}", "--seed", str(chosen), *more))

    def _add(self, part: Part) -> Part:
        self.parts.append(part)
        return part


def run_part(kind: str, seed: int, *arguments: str) -> Part:
    """Run a program to its end, in a group of its own; what it says of itself is the JSON in its last line."""
    command = [sys.executable, "-m", f"tests.{kind}", *arguments]
    began = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)
    try:
        output, _ = process.communicate()
    except BaseException:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait()
        raise
    lines = output.splitlines()
    facts: Mapping[str, Any] = {}
    if lines and lines[-1].startswith("{"):
        facts = json.loads(lines.pop())
    failed = process.returncode != 0 or not facts
    broken = "\n".join(lines[-_SHOWN_LINES:]) or f"exit status {process.returncode}" if failed else ""
    return Part(kind, seed, facts, time.monotonic() - began, f"python -m tests.{kind} {' '.join(arguments)}", broken)


def page_of(soak: Soak) -> str:
    """The page: what ran, what was found, and how to see it again."""
    when = datetime.fromtimestamp(soak.began_s, timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    broken = [each for each in soak.parts if each.broken]
    verdict = f"**{len(broken)} parts broke a promise or failed**" if broken else "No promise was broken"
    lines = [f"# Soak of {when}", "", f"{verdict}, in {sum(each.took_s for each in soak.parts) / 3600:.2f} of {soak.hours:g} hours.", ""]
    lines += [f"sluice {sluice.__version__}, revision {soak.revision}, Python {sys.version.split()[0]}, {os.cpu_count()} processors.", ""]
    lines += ["| | parts | minutes | seeds | what they did |", "|---|---|---|---|---|"]
    for kind in ("simulator", "chaos"):
        mine = [each for each in soak.parts if each.kind == kind]
        if mine:
            total: dict[str, float] = {}
            for each in mine:
                for name, value in each.facts.items():
                    if isinstance(value, (int, float)) and name not in ("seed", "seeds", "seconds"):
                        total[name] = total.get(name, 0) + value
            last = mine[-1].seed + (mine[-1].facts.get("seeds", 0) - 1 if kind == "simulator" else 0)
            seeds = ", ".join(str(each.seed) for each in mine) if kind == "chaos" else f"{mine[0].seed} to {last}"
            did = ", ".join(f"{name} {value:,.0f}" for name, value in total.items())
            lines.append(f"| {kind} | {len(mine)} | {sum(each.took_s for each in mine) / 60:.1f} | {seeds} | {did} |")
    for each in broken:
        lines += [
            "",
            f"## {each.kind}, seed {each.seed}",
            "",
            "Run it again:",
            "",
            "```sh",
            each.command,
            "```",
            "",
            "It said:",
            "",
            "```text",
        ]
        lines += [each.broken, "```"]
    return "\n".join([*lines, ""])


def _revision() -> str:
    done = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def main() -> int:
    """Run until the time is over, and write the page after each part."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description="Simulator and chaos in turns.")
    parser.add_argument("--hours", type=float, default=1.0)
    parser.add_argument("--page", type=Path, help="where the page goes (default: soak-TIME.md)")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="how many processes share the simulator's seeds")
    parser.add_argument("--no-spark", action="store_true", help="chaos without the Spark application")
    arguments = parser.parse_args()
    soak = Soak(time.time(), arguments.hours, _revision())
    stamp = datetime.fromtimestamp(soak.began_s, timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    page = arguments.page or Path(f"soak-{stamp}.md")
    try:
        for part in soak.run(arguments.workers, ["--no-spark"] if arguments.no_spark else []):
            page.write_text(page_of(soak))
            well = "BROKEN" if part.broken else "well"
            print(f"{part.kind} {part.seed}: {well}; {max(0.0, soak.left_s) / 60:.0f} min left", file=sys.stderr, flush=True)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
    page.write_text(page_of(soak))
    print(page)
    return 1 if any(each.broken for each in soak.parts) else 0


if __name__ == "__main__":
    sys.exit(main())
