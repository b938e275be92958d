"""`python -m tests.chaos --minutes 5 --seed 1`: breaks real things, and judges what is left. See docs/chaos.md."""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from .evidence import Verdict, judge_folder
from .run import Plan, run_chaos, summary

_SHOWN_OF_A_KIND = 8


def main(arguments: list[str] | None = None) -> int:
    """Run or judge; 0 when nothing is violated."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description="Break real things, and judge what is left.")
    parser.add_argument("--minutes", type=float, default=5.0, help="for how long things are broken (default: 5)")
    parser.add_argument("--seed", type=int, default=None, help="decides what is tried and what goes wrong when (default: any)")
    parser.add_argument("--no-spark", action="store_true", help="without the Spark application")
    parser.add_argument("--keep", action="store_true", help="keep the evidence of a run that violates nothing, too")
    parser.add_argument("--judge", type=Path, metavar="FOLDER", help="judge the evidence of an earlier run again")
    asked = parser.parse_args(arguments)
    began = time.monotonic()
    if asked.judge is not None:
        facts = json.loads((asked.judge / "facts.json").read_text())
        plan, verdict, folder = Plan(facts["seed"], facts["seconds"], {}), judge_folder(asked.judge), asked.judge
    else:
        seed = random.SystemRandom().randrange(10**6) if asked.seed is None else asked.seed
        plan = Plan.usual(seed, asked.minutes * 60, spark=not asked.no_spark)
        folder = Path(tempfile.mkdtemp(prefix="sluice-chaos-"))
        try:
            verdict = run_chaos(plan, folder, lambda text: print(f"{time.monotonic() - began:6.1f} s  {text}", file=sys.stderr, flush=True))
        except (KeyboardInterrupt, SystemExit):
            shutil.rmtree(folder)
            print("interrupted; everything that was started was ended", file=sys.stderr)
            return 130
        except Exception:
            print(f"the run itself failed; what it left is in {folder}", file=sys.stderr)
            raise
    _show(verdict)
    if verdict.violations:
        print(f"the evidence is in {folder}; once more: python -m tests.chaos --minutes {plan.seconds / 60:g} --seed {plan.seed}")
    elif asked.judge is None and not asked.keep:
        shutil.rmtree(folder)
    else:
        print(f"the evidence is in {folder}")
    print(json.dumps(summary(plan, verdict)))
    return 1 if verdict.violations else 0


def _show(verdict: Verdict) -> None:
    _table("faults", verdict.faults)
    _table("what they hit", verdict.effects)
    print("operations")
    for kind, answers in sorted(verdict.operations.items()):
        print(f"  {kind:26} " + ", ".join(f"{count} {answer}" for answer, count in answers.most_common()))
    _table("reads", verdict.reads)
    print(f"{verdict.versions} versions, {verdict.transactions} transactions; {verdict.left_by_plans} files of plans that nobody ended")
    print(f"{verdict.consumed} batches were consumed")
    print(f"no commit was told of for at most {verdict.stall_s:.1f} s; the longest that succeeded took {verdict.longest_s:.1f} s")
    print(f"{len(verdict.violations)} violations")
    kinds: dict[str, list[str]] = {}
    for violation in verdict.violations:
        kinds.setdefault(violation.partition(":")[0], []).append(violation)
    for found in kinds.values():
        for violation in found[:_SHOWN_OF_A_KIND]:
            print(f"  {violation}")
        if len(found) > _SHOWN_OF_A_KIND:
            print(f"  and {len(found) - _SHOWN_OF_A_KIND} more of this kind")


def _table(title: str, counts: Mapping[str, int]) -> None:
    print(title)
    for name, count in sorted(counts.items()):
        print(f"  {name:42} {count:6}")


if __name__ == "__main__":
    sys.exit(main())
