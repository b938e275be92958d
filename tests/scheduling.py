"""Which worker of pytest-xdist runs which tests: few of them start a JVM of Spark.

A JVM needs several seconds of processor time to start, and several times as much until what it runs often is compiled. So the tests with
the Spark session begin on one worker, or on two if they are many, and those with JVMs of their own or for their programs on another; the
remaining tests keep the other workers busy. An idle worker steals tests as `--dist worksteal` does: first those of a JVM that it has, which
few can run; those of a JVM that it does not have only where many are left.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest
from xdist.scheduler.worksteal import MIN_PENDING, WorkStealingScheduling

__all__ = ["OTHERS", "PROGRAMS", "SESSIONS", "FewJvms", "bounds_of", "kind_of"]

PROGRAMS: Final = 0
SESSIONS: Final = 1
OTHERS: Final = 2

WORTH_A_JVM: Final = 50
"""So many tests that wait for one worker justify that another one starts a JVM, too."""


def kind_of(item: pytest.Item) -> int:
    """PROGRAMS, SESSIONS or OTHERS: which of a worker's JVMs a test needs."""
    names = getattr(item, "fixturenames", ())
    if "spark_jvm" in names:
        return PROGRAMS
    return SESSIONS if "spark" in names else OTHERS


def bounds_of(items: Sequence[pytest.Item]) -> str:
    """Of items in the order of their kinds: the numbers of the first of SESSIONS and of the first of OTHERS."""
    kinds = [kind_of(item) for item in items]
    return f"{kinds.count(PROGRAMS)} {len(kinds) - kinds.count(OTHERS)}"


class FewJvms(WorkStealingScheduling):  # type: ignore[misc]  # xdist has no types
    """The scheduler of `--dist worksteal`, for tests in the order of their kinds; a worker has written `bounds_of` them to a file."""

    def __init__(self, config: pytest.Config, log: Any, bounds: Path) -> None:
        super().__init__(config, log)
        self.steal_requested_from_node: Any = None
        self._file = bounds
        self._bounds: list[int] = []
        self._have: dict[int, list[Any]] = defaultdict(list)

    def check_schedule(self) -> None:
        """Hand out the tests that no worker has; then an idle worker steals from another one, or ends if there is nothing for it."""
        up = [node for node in self.node2pending if not node.shutting_down]
        idle = [node for node in up if len(self.node2pending[node]) < MIN_PENDING]
        if not idle:
            return
        if self.pending:
            self._hand_out(idle)
            idle = [node for node in idle if len(self.node2pending[node]) < MIN_PENDING]
        if self.steal_requested_from_node is not None:
            return
        for thief in idle:
            (_, spoils), victim = max(((self._spoils(node, thief), node) for node in up), key=lambda each: (each[0][0], len(each[0][1])))
            if spoils:
                victim.send_steal(spoils)
                self.steal_requested_from_node = victim
                return
        for node in idle:
            node.shutdown()  # it runs its last test now instead of waiting for another one

    def _kind(self, test: int) -> int:
        if not self._bounds:
            self._bounds = [int(number) for number in self._file.read_text().split()]
        return sum(test >= bound for bound in self._bounds)

    def _hand_out(self, idle: Sequence[Any]) -> None:
        """Divide the tests that no worker has: at the start by kind, later among those that have the JVM, or among all that are idle."""
        tests = {kind: [test for test in self.pending if self._kind(test) == kind] for kind in (PROGRAMS, SESSIONS, OTHERS)}
        self.pending.clear()
        takers = {kind: [node for node in idle if node in self._have[kind]] or idle for kind in tests}
        takers[OTHERS] = idle
        if not any(self._have.values()):
            # Many of them take half of the run: one worker would still have most when the others are idle, who would all start a JVM then.
            of_sessions = min(len(tests[SESSIONS]), 2 if len(tests[SESSIONS]) > WORTH_A_JVM and len(idle) > 3 else 1)
            with_session = idle[1 : 1 + of_sessions]
            takers = {PROGRAMS: idle[:1], SESSIONS: with_session or idle, OTHERS: [node for node in idle if node not in with_session]}
        for kind, nodes in takers.items():
            for number, node in enumerate(nodes):
                share = tests[kind][number * len(tests[kind]) // len(nodes) : (number + 1) * len(tests[kind]) // len(nodes)]
                if share:
                    self._have[kind].append(node)
                    self.node2pending[node].extend(share)
                    node.send_runtest_some(share)

    def _spoils(self, victim: Any, thief: Any) -> tuple[bool, list[int]]:
        """Half of a worker's tests of one kind, those that it would run last; of those that the thief may take. And whether they need a JVM
        that the thief has: what any worker can run is left for the end, when it keeps all of them busy.
        """
        waiting = self.node2pending[victim][MIN_PENDING:]
        jvms = [kind for kind in (SESSIONS, PROGRAMS) if thief in self._have[kind]]
        for kind in (*jvms, OTHERS, SESSIONS, PROGRAMS):
            tests = [test for test in waiting if self._kind(test) == kind]
            if tests and (kind == OTHERS or kind in jvms or len(tests) > WORTH_A_JVM):
                return kind in jvms, tests[len(tests) // 2 :]
        return False, []
