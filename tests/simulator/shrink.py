"""A failing run made smaller: fewer operations and fewer faults, as long as it fails in the same way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from .run import Plan, Result


def kind_of(violation: str) -> str:
    """What sort of violation a sentence tells: its first words, without names and numbers."""
    return " ".join(word for word in violation.split()[:6] if not any(letter.isdigit() for letter in word))


def _without(items: Sequence[str], fails: Callable[[Sequence[str]], bool]) -> list[str]:
    """A small part of `items` with which it still fails: halves are tried first, then quarters, ..., then single ones."""
    kept, pieces = list(items), 2
    while kept:
        size = max(1, len(kept) // pieces)
        for start in range(0, len(kept), size):
            fewer = kept[:start] + kept[start + size :]
            if fails(fewer):
                kept, pieces = fewer, max(2, pieces - 1)
                break
        else:
            if size == 1:
                return kept
            pieces *= 2
    return kept


def _fewer_operations(plan: Plan, names: Sequence[str], fails: Callable[[Plan], bool]) -> Plan:
    def keeping(some: Sequence[str]) -> Plan:
        return replace(plan, without=plan.without | (set(names) - set(some)))

    return keeping(_without(names, lambda some: fails(keeping(some))))


def _fewer_faults(plan: Plan, fails: Callable[[Plan], bool]) -> Plan:
    kept = _without(plan.faults or (), lambda some: fails(replace(plan, faults=tuple(some))))
    return replace(plan, faults=tuple(kept))


def shrink(failed: Result, run: Callable[[Plan], Result], *, attempts: int = 300) -> tuple[Plan, Result]:
    """The smallest plan found within that many runs, and what it comes to."""
    wanted = {kind_of(violation) for violation in failed.violations}
    best = failed
    left = attempts

    def still_fails(plan: Plan) -> bool:
        nonlocal best, left
        if left <= 0:
            return False
        left -= 1
        result = run(plan)
        if not wanted & {kind_of(violation) for violation in result.violations}:
            return False
        best = result
        return True

    plan = replace(failed.plan, faults=tuple(name for name, _ in failed.faults))
    if not still_fails(plan):  # the names say it all: it must fail with exactly its own faults
        return failed.plan, failed
    for _ in range(2):
        plan = _fewer_operations(plan, sorted(best.operations), still_fails)
        plan = _fewer_faults(plan, still_fails)
    return plan, best
