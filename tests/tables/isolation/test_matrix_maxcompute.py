"""MaxCompute's matrices, cell by cell, through transactions that run at the same time on a real ZooKeeper.

Which cell says what is read from the documentation's own tables (tests/coordinator/conflict_matrices.json). Each pair of
operations is in a matrix twice, as (earlier, later) and as (later, earlier), so that both orders of arrival are met.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from sluice.coordinator.rules.isolation import ConflictPolicy
from sluice.storage.stores.memory import MemoryStore
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


def one_of_each() -> Iterator[Case]:
    """One pair for each cell in each layout, in turns, so that every operation has its turn in both places.

    With a primary key only the cells that differ there: those of an INSERT, and in different partitions none.
    """
    turn: dict[tuple[str, str], int] = {}
    for (_, layout, cell), group in itertools.groupby(every_case(), lambda case: (case.policy, case.layout, case.cell)):
        if layout == "primary key, different partitions" or (layout == "primary key" and "INSERT" not in cell):
            continue
        cases = list(group)
        words = WORDS[layout]
        earlier = words[cell[0]][turn.setdefault(("earlier", cell[0]), 0) % len(words[cell[0]])]
        later = words[cell[1]][turn.setdefault(("later", cell[1]), 0) % len(words[cell[1]])]
        turn["earlier", cell[0]] += 1
        turn["later", cell[1]] += 1
        yield next(case for case in cases if (case.earlier, case.later) == (earlier, later))


@pytest.fixture
def place(zookeeper_hosts: str) -> Iterator[Place]:
    """A table of its own, in memory, in a tree of the real coordinator that the module's tests share."""
    name = uuid.uuid4().hex
    yield Place(f"memory://{name}", f"zk://{zookeeper_hosts}/matrices")
    MemoryStore.open(name).forget()


def check(place: Place, case: Case, *, begun_later: bool = True, monkeypatch: pytest.MonkeyPatch | None = None) -> None:
    sides = (FIRST, OTHER_PARTITION if case.is_apart else SECOND)
    partitioned = case.layout != "no partitions"
    if monkeypatch is None:
        met = meet(
            place,
            case.earlier,
            case.later,
            properties=case.properties,
            partitioned=partitioned,
            sides=sides,
            begun_later=begun_later,
        )
    else:
        with queue(monkeypatch) as together:
            met = meet(place, case.earlier, case.later, properties=case.properties, partitioned=partitioned, sides=sides, together=together)
    assert met.verdict == case.documented, f"{case.cell}: {met.refusal}"
    if met.refusal is not None:
        assert met.refusal.details["rule"] == "class-refused"
        assert case.cell[0] in met.refusal.message
        assert ("part=1" if partitioned else "the table") in met.refusal.message
    elif OPERATIONS[case.later].replaces and not case.is_apart:
        assert met.rebased, "what the earlier one left was replaced without being told"


@pytest.mark.parametrize("case", list(one_of_each()), ids=str)
def test_a_cell(place: Place, case: Case) -> None:
    check(place, case)


@pytest.mark.long
@pytest.mark.parametrize("case", list(every_case()), ids=str)
def test_every_operation_of_a_cell_begun_the_other_way_round(place: Place, case: Case) -> None:
    check(place, case, begun_later=False)


@pytest.mark.long
@pytest.mark.parametrize("case", list(every_case()), ids=str)
def test_every_operation_of_a_cell_in_one_queue(place: Place, case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    check(place, case, monkeypatch=monkeypatch)


def test_no_cell_and_no_operation_is_left_out() -> None:
    """That the cases above are all there are: a matrix's every cell in every layout, each operation in both places."""
    cases = list(one_of_each())
    for policy in POLICIES:
        cells = {(before, after) for before, row in MATRICES[policy].items() for after in row}
        for layout in ("no partitions", "same partition", "different partitions"):
            assert {case.cell for case in cases if (case.policy, case.layout) == (policy, layout)} == cells
        for place_in_pair in ("earlier", "later"):
            tried = {getattr(case, place_in_pair) for case in cases if case.policy == policy}
            assert tried >= {*WHOLE, *ONE_PARTITION, *OTHERS["UPDATE_DELETE"], *COMPACTIONS, "append"}
    assert {case.earlier for case in every_case()} == OPERATIONS.keys() - {"z-order"}


@pytest.mark.parametrize("policy", POLICIES)
def test_an_overwrite_of_rows_is_an_update(place: Place, policy: str) -> None:
    """One whose condition names data columns replaces no partition: it is refused where UPDATE and DELETE are."""
    met = meet(place, "append", "overwrite partition", properties={"sluice.conflictPolicy": policy}, partitioned=False)
    assert met.verdict == REFUSED
