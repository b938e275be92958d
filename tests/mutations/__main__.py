"""`make mutate [ONLY=name,...]`, or `python -m tests.mutations`: which evidence notices that a check of the protocol is missing?

    python -m tests.mutations [--only name,...] [--all] [--workers 2]
    python -m tests.mutations --list

Each check is switched off in turn, and the evidence expected to notice is run, the cheapest first, up to the first that does; with
--all all of it, and some seeds of the simulator and some small worlds beside it. One line for each, one JSON object on the last
line. Ends with 1 when nobody noticed and the catalogue does not accept that, with 2 when a check could not be switched off, or the
tree fails its evidence with all checks on.
"""

from __future__ import annotations

import argparse
import json
import queue
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.marked import marked

from .catalogue import CHECKS, FEW_SEEDS, FEW_WORLDS, Check
from .evidence import Evidence, Finding, by_seeds, by_tests, by_worlds, end_all, evidence_for, ran
from .tree import ROOT, Copy, copy_of


@dataclass
class Result:
    """What became of a check switched off: the kinds of evidence that noticed, the first first, and those listed that did not."""

    check: Check
    findings: dict[str, Finding] = field(default_factory=dict[str, Finding])
    silent: list[str] = field(default_factory=list[str])
    took_s: float = 0.0
    error: str = ""
    """Why it could not be tried."""

    @property
    def word(self) -> str:
        """caught, accepted or SURVIVED; ERROR when it could not be tried."""
        return "ERROR" if self.error else "caught" if self.findings else "accepted" if self.check.accepted else "SURVIVED"

    def lines(self) -> Iterator[str]:
        """What is told of it."""
        check = self.check
        by = ", ".join(f"{kind}: {', '.join(map(_short, finding.noticed_by))}" for kind, finding in self.findings.items())
        yield f"{self.word:<8}  {check.holds:<10}  {check.name:<44}  {self.took_s:5.1f} s  {by or check.accepted}"
        yield from [f"          {finding.said[:150]}" for finding in list(self.findings.values())[:1] if finding.said]
        yield from [f"          {line}" for line in self.error.splitlines()[-12:]]
        for name in self.silent:
            yield f"          listed, and did not notice: {name}"


def _short(name: str) -> str:
    return name.rpartition("::")[2]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutations", description="Switches checks off, one at a time.")
    parser.add_argument("--only", default="", help="names of checks, or beginnings of names, separated by commas")
    parser.add_argument("--all", action="store_true", help="all evidence, and the simulator for every check")
    parser.add_argument("--workers", type=int, default=2, help="how many at a time")
    parser.add_argument("--list", action="store_true", help="name the checks")
    return parser.parse_args()


def _chosen(only: str) -> list[Check]:
    names = [name for name in only.split(",") if name]
    unknown = [name for name in names if not any(each.startswith(name) for each in CHECKS)]
    if unknown:
        sys.exit(f"there are no checks {', '.join(unknown)}; --list names them")
    return [each for each in CHECKS.values() if not names or any(each.name.startswith(name) for name in names)]


class Bench:
    """Copies of the tree, each used by one at a time."""

    def __init__(self, folder: Path, workers: int) -> None:
        self._tests = marked("notices")
        self._free: queue.Queue[Copy] = queue.Queue()
        for n in range(workers):
            self._free.put(copy_of(ROOT, folder / str(n)))

    @contextmanager
    def copy(self) -> Iterator[Copy]:
        copy = self._free.get()
        try:
            yield copy
        finally:
            self._free.put(copy)

    def unchanged(self, evidence: Evidence) -> Finding:
        """What the evidence says of the tree as it is."""
        with self.copy() as copy:
            return ran(replace(evidence, limit_s=3600.0), copy)

    def tried(self, check: Check, *, everything: bool) -> Result:
        """Switch the check off, and look who notices."""
        result, begun = Result(check), time.monotonic()
        evidence = evidence_for(check, self._tests.get(check.name, ()), to_the_end=everything)
        if everything and not check.world:
            evidence.append(by_worlds(FEW_WORLDS))
        if everything and not check.seeds:
            evidence.append(by_seeds(FEW_SEEDS))
        with self.copy() as copy:
            try:
                with copy.without(check.name):
                    for each in evidence:
                        if self._look(each, copy, result, everything=everything) and not everything:
                            break
            except (RuntimeError, ValueError) as trouble:
                result.error = str(trouble)
        result.took_s = time.monotonic() - begun
        return result

    @staticmethod
    def _look(evidence: Evidence, copy: Copy, result: Result, *, everything: bool) -> bool:
        """Whether this evidence notices; noted in the result."""
        finding = ran(evidence, copy)
        if finding.noticed_by:
            result.findings[evidence.kind] = finding
        if evidence.kind == "tests":
            noticed = {*finding.noticed_by, *(name.partition("[")[0] for name in finding.noticed_by)}
            silent = [name for name in evidence.names if name not in noticed]
            result.silent += silent if everything or not noticed else []  # else it ended with the first that failed
        elif not finding.noticed_by and (result.check.seeds if evidence.kind == "simulator" else result.check.world):
            result.silent.append(f"{evidence.kind} {', '.join(evidence.names)}")
        return bool(finding.noticed_by)


def _baseline(checks: Sequence[Check], *, everything: bool) -> list[Evidence]:
    """All evidence of the checks, each piece once."""
    marks = marked("notices")
    tests = sorted({test for each in checks for test in marks.get(each.name, ())})
    worlds = sorted({each.world for each in checks if each.world} | set(FEW_WORLDS if everything else ()))
    seeds = {each.seeds for each in checks if each.seeds} | ({FEW_SEEDS} if everything else set())
    found = [by_seeds(each) for each in sorted(seeds)]
    found += [by_tests(tests, [each.name for each in checks], to_the_end=True)] if tests else []
    return found + ([by_worlds(worlds)] if worlds else [])


def _sum(results: Sequence[Result]) -> dict[str, object]:
    by = Counter(next(iter(each.findings)) for each in results if each.findings)
    words = Counter(each.word for each in results)
    return {
        "checks": len(results),
        "caught": words["caught"],
        "survived": words["SURVIVED"],
        "accepted": words["accepted"],
        "by": dict(sorted(by.items())),
    }


def main() -> int:
    arguments = _arguments()
    checks = _chosen(arguments.only)
    if arguments.list:
        print("\n".join(f"{each.holds:<10}  {each.name:<44}  {each.without}" for each in checks))
        return 0
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    begun, results = time.monotonic(), list[Result]()
    with tempfile.TemporaryDirectory(prefix="sluice-mutations-") as folder, ThreadPoolExecutor(arguments.workers) as pool:
        try:
            bench = Bench(Path(folder), arguments.workers)
            baseline = _baseline(checks, everything=arguments.all)
            for evidence, finding in zip(baseline, pool.map(bench.unchanged, baseline), strict=True):
                if finding.noticed_by:
                    print(f"with all checks on, {evidence.kind} fail: {', '.join(finding.noticed_by)}\n{finding.said}")
                    return 2
            print(f"the tree passes all evidence ({time.monotonic() - begun:.0f} s)", flush=True)
            for done in as_completed([pool.submit(bench.tried, each, everything=arguments.all) for each in checks]):
                results.append(done.result())
                print("\n".join(results[-1].lines()), flush=True)
        except RuntimeError as trouble:
            print(f"with all checks on: {trouble}")
            return 2
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            end_all()
            return 130
    print(f"{len(results)} checks in {time.monotonic() - begun:.0f} s")
    print(json.dumps(_sum(results)))
    words = {each.word for each in results}
    return 2 if "ERROR" in words else 1 if "SURVIVED" in words else 0


if __name__ == "__main__":
    sys.exit(main())
