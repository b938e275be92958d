"""MaxCompute's matrices, cell by cell, through transactions that run at the same time; in the long tests on a real ZooKeeper.

Which cell says what is read from the documentation's own tables (tests/coordinator/conflict_matrices.json). Each pair of
operations is in a matrix twice, as (earlier, later) and as (later, earlier), so that both orders of arrival are met.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from sluice.coordinator.rules.intent import ConflictPolicy
from tests.tables.conftest import Place
from tests.tables.isolation.matrices import COMPACTIONS, FIRST, MATRICES, OPERATIONS, OTHER_PARTITION, SECOND, meet, queue

pytestmark = pytest.mark.zookeeper

POLICIES = tuple(policy.value for policy in ConflictPolicy if policy.value.startswith("maxcompute"))
REFUSED = "PolicyConflictException"
WHOLE = ("overwrite", "truncate")
ONE_PARTITION = ("overwrite partition", "truncate partition", "overwrite dynamically")
OTHERS = {
    "INSERT": ("append",),
    "UPDATE_DELETE": ("update", "delete", "upsert"),
    "SMALL_FILE_MERGE": COMPACTIONS,
    "MINOR_COMPACT": COMPACTIONS[:1],
    "MAJOR_COMPACT": COMPACTIONS[1:],
}
WORDS = {
    "no partitions": {"OVERWRITE": WHOLE, **OTHERS},
    "same partition": {"OVERWRITE": (*ONE_PARTITION, *WHOLE), **OTHERS},
    "different partitions": {"OVERWRITE": ONE_PARTITION, **OTHERS},
    # What has the key of a row replaces it, also what is inserted.
    "primary key": {"OVERWRITE": (*ONE_PARTITION, *WHOLE), **OTHERS, "INSERT": ("append by key",)},
    "primary key, different partitions": {"OVERWRITE": ONE_PARTITION, **OTHERS, "INSERT": ("append by key",)},
}
"""How the tables of a test are laid out, and the operations that a matrix's word stands for there."""


@dataclass(frozen=True)
class Case:
    """One pair in one layout, and what the matrix's cell says about it."""

    policy: str
    layout: str
    cell: tuple[str, str]
    earlier: str
    later: str

    @property
    def documented(self) -> str:
        found: str = MATRICES[self.policy][self.cell[0]][self.cell[1]]
        return "ok" if found == "ok" or self.is_apart else REFUSED

    @property
    def is_apart(self) -> bool:
        return self.layout.endswith("different partitions")

    @property
    def properties(self) -> dict[str, str]:
        # Of the policies that leave it open, one is tried with deletion vectors and one without.
        more = {"delta.enableDeletionVectors": "true"} if self.policy == "maxcompute-transactional" else {}
        if self.layout.startswith("primary key"):
            more["sluice.primaryKey"] = "part, id"
        return {"sluice.conflictPolicy": self.policy, **more}

    def __str__(self) -> str:
        return f"{self.policy}-{self.layout}-{self.earlier}-{self.later}"


def layouts(policy: str) -> list[str]:
    return [layout for layout in WORDS if not layout.startswith("primary key") or policy == "maxcompute-delta"]


def every_case() -> Iterator[Case]:
    """Every operation that a cell can stand for, in every layout."""
    for policy in POLICIES:
        for layout, (before, row) in itertools.product(layouts(policy), MATRICES[policy].items()):
            for after in row:
                for earlier, later in itertools.product(WORDS[layout][before], WORDS[layout][after]):
                    yield Case(policy, layout, (before, after), earlier, later)


def is_tried(policy: str, layout: str, cell: tuple[str, str]) -> bool:
    matrix = MATRICES[policy]
    match layout:
        case "no partitions" | "same partition":
            even = (list(matrix).index(cell[0]) + list(matrix[cell[0]]).index(cell[1])) % 2 == 0
            return even == (layout == "no partitions")
        case "different partitions":
            return bool(matrix[cell[0]][cell[1]] != "ok")
        case _:
            return layout == "primary key" and "INSERT" in cell


def one_of_each() -> Iterator[Case]:
    """One pair for each cell, in turns, so that every operation has its turn in both places.

    Partitions or not, a cell says the same of rows that meet, so that one of both is tried; in different partitions the cells that refuse
    rows that meet; and with a primary key the cells that differ there: those of an INSERT, and in different partitions none.
    """
    turn: Counter[tuple[str, tuple[str, ...]]] = Counter()
    for (policy, layout, cell), group in itertools.groupby(every_case(), lambda case: (case.policy, case.layout, case.cell)):
        if not is_tried(policy, layout, cell):
            continue
        cases = list(group)
        pair: list[str] = []
        for place_in_pair, word in zip(("earlier", "later"), cell, strict=True):
            operations = WORDS[layout][word]
            pair.append(operations[turn[place_in_pair, operations] % len(operations)])
            turn[place_in_pair, operations] += 1
        yield next(case for case in cases if [case.earlier, case.later] == pair)


@pytest.fixture
def place(real_if_long: Place) -> Place:
    return real_if_long


def check(place: Place, case: Case, *, begun_later: bool = True, monkeypatch: pytest.MonkeyPatch | None = None) -> None:
    sides = (FIRST, OTHER_PARTITION if case.is_apart else SECOND)
    partitioned = case.layout != "no partitions"
    options: dict[str, Any] = {"properties": case.properties, "partitioned": partitioned, "sides": sides}
    if monkeypatch is None:
        met = meet(place, case.earlier, case.later, begun_later=begun_later, **options)
    else:
        with queue(monkeypatch) as together:
            met = meet(place, case.earlier, case.later, together=together, **options)
    assert met.verdict == case.documented, f"{case.cell}: {met.refusal}"
    if met.refusal is not None:
        assert met.refusal.details["rule"] == "class-refused"
        assert case.cell[0] in met.refusal.message
        assert ("part=1" if partitioned else "the table") in met.refusal.message
    elif OPERATIONS[case.later].replaces and not case.is_apart:
        assert met.rebased, "what the earlier one left was replaced without being told"


@pytest.mark.slow
@pytest.mark.parametrize("case", list(one_of_each()), ids=str)
@pytest.mark.many
def test_a_cell(place: Place, case: Case) -> None:
    check(place, case)


@pytest.mark.long
@pytest.mark.zookeeper
@pytest.mark.parametrize("in_one_queue", [False, True], ids=["begun the other way round", "in one queue"])
@pytest.mark.parametrize("case", list(every_case()), ids=str)
def test_every_operation_of_a_cell(place: Place, case: Case, in_one_queue: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    check(place, case, begun_later=False, monkeypatch=monkeypatch if in_one_queue else None)


BY_KEY = [case for case in every_case() if case.layout == "primary key" and "append by key" in (case.earlier, case.later)]


@pytest.mark.parametrize("case", [case for case in BY_KEY if {case.earlier, case.later} <= {"append by key", "update"}], ids=str)
def test_appends_by_key_wait_in_a_queue(place: Place, case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever decides a queue checks that each transaction did what it says: an append of rows with new values removes the old ones."""
    check(place, case, monkeypatch=monkeypatch)


def test_no_cell_and_no_operation_is_left_out() -> None:
    """A matrix's every cell, where rows meet and, if it refuses them, where they do not; each operation in both places."""
    cases = list(one_of_each())
    for policy in POLICIES:
        cells = {(before, after) for before, row in MATRICES[policy].items() for after in row}
        met = [case for case in cases if case.policy == policy and case.layout in ("no partitions", "same partition")]
        assert sorted(case.cell for case in met) == sorted(cells)
        assert {case.documented for case in met if case.layout == "no partitions"} == {"ok", REFUSED}
        apart = {case.cell for case in cases if (case.policy, case.layout) == (policy, "different partitions")}
        assert apart == {case.cell for case in met if case.documented == REFUSED}
        for place_in_pair in ("earlier", "later"):
            tried = {getattr(case, place_in_pair) for case in cases if case.policy == policy}
            assert tried >= {*OTHERS["UPDATE_DELETE"], *COMPACTIONS, "append"}
    for place_in_pair in ("earlier", "later"):
        assert {getattr(case, place_in_pair) for case in cases} >= {*WHOLE, *ONE_PARTITION}
    assert {case.earlier for case in every_case()} == OPERATIONS.keys() - {"z-order"}


@pytest.mark.parametrize("policy", POLICIES)
def test_an_overwrite_of_rows_is_an_update(place: Place, policy: str) -> None:
    """One whose condition names data columns replaces no partition: it is refused where UPDATE and DELETE are."""
    met = meet(place, "append", "overwrite partition", properties={"sluice.conflictPolicy": policy}, partitioned=False)
    assert met.verdict == REFUSED
