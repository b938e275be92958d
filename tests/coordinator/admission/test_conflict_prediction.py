"""What is foreseen of two operations against what becomes of them: "ok" is a promise, a refusal a possibility."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable

import pyarrow as pa
import pytest

import sluice
from sluice.coordinator.admission import conflict_prediction
from sluice.coordinator.api import Foreseen, ForeseenTable, advice_of
from sluice.coordinator.rules.intent import IsolationLevel

SCHEMA = pa.schema([pa.field("id", pa.int64()), pa.field("day", pa.string()), pa.field("v", pa.float64())])

Operation = tuple[Foreseen, Callable[[sluice.Transaction], object]]


def rows(*wanted: tuple[int, str]) -> pa.Table:
    return pa.Table.from_pylist([{"id": number, "day": day, "v": 1.0} for number, day in wanted], SCHEMA)


def changed(where: str, adds: str) -> Operation:
    return Foreseen("UPDATE", where, where, adds), lambda tx: tx.update({"v": "v + 1"}, where or None)


OPERATIONS: dict[str, Operation] = {
    "insert": (Foreseen("INSERT", adds="day = 'mo' AND id = 7"), lambda tx: tx.append(rows((7, "mo")))),
    "insert elsewhere": (Foreseen("INSERT", adds=""), lambda tx: tx.append(rows((7, "we")))),
    "update all": changed("", ""),
    "update 1": changed("id = 1", "id = 1"),
    "update 2": changed("id = 2", "id = 2"),
    "update tuesday": changed("day = 'tu'", "day = 'tu'"),
    "delete 1": (Foreseen("DELETE", "id = 1", "id = 1"), lambda tx: tx.delete("id = 1")),
    "delete wednesday": (Foreseen("DELETE", "day = 'we'", "day = 'we'"), lambda tx: tx.delete("day = 'we'")),
    "overwrite": (Foreseen("INSERT OVERWRITE", "", "", "", whole_files=True), lambda tx: tx.overwrite(rows((9, "mo")))),
    "replace monday": (
        Foreseen("INSERT OVERWRITE", "day = 'mo'", "day = 'mo'", "day = 'mo'", whole_files=True),
        lambda tx: tx.overwrite(rows((9, "mo")), "day = 'mo'"),
    ),
    "truncate tuesday": (Foreseen("TRUNCATE", "day = 'tu'", "day = 'tu'", whole_files=True), lambda tx: tx.truncate("day = 'tu'")),
    "compact": (Foreseen("OPTIMIZE", removes="", changes_data=False), lambda tx: tx.compact()),
    "order": (Foreseen("OPTIMIZE ZORDER", removes="", changes_data=False), lambda tx: tx.compact(z_order_by="id")),
}
FEW = ["insert", "update 1", "update tuesday", "compact"]
PAIRS = [
    pytest.param(one, other, marks=() if one in FEW and other in FEW else pytest.mark.long)
    for one, other in itertools.product(OPERATIONS, OPERATIONS)
]


@pytest.fixture(params=[False, True], ids=["copies", "vectors"])
def coordinator(request: pytest.FixtureRequest) -> tuple[str, bool]:
    return f"memory://{uuid.uuid4().hex}", request.param


def table(coordinator: tuple[str, bool], level: IsolationLevel) -> sluice.Table:
    address, vectors = coordinator
    made = sluice.Table.create(
        f"memory://{uuid.uuid4().hex}",
        SCHEMA,
        coordinator=address,
        partition_by=["day"],
        properties={"delta.enableDeletionVectors": str(vectors).lower(), "delta.isolationLevel": level.value},
    )
    for start in (0, 4):  # two files in each partition, so that there is something to compact
        made.append(rows(*[(number, day) for day in ("mo", "tu") for number in range(start, start + 4)]))
    return made


@pytest.mark.parametrize(("first", "second"), PAIRS)
@pytest.mark.many
def test_what_cannot_conflict_commits(coordinator: tuple[str, bool], first: str, second: str) -> None:
    for level in (IsolationLevel.SERIALIZABLE, IsolationLevel.WRITE_SERIALIZABLE):
        made = table(coordinator, level)
        (theirs, win), (mine, follow) = OPERATIONS[first], OPERATIONS[second]
        foreseen = ForeseenTable(made.snapshot().raw).meets(mine, theirs, level)
        winner, later = made.begin(), made.begin()
        follow(later)
        win(winner)
        winner.commit()
        if foreseen.verdict == "ok":
            later.commit()
        else:
            assert foreseen.rule is not None


@pytest.mark.parametrize(
    ("first", "second", "copies", "vectors"),
    [
        ("insert", "insert", "ok", "ok"),
        ("insert", "update 1", "ok", "ok"),
        ("insert", "update all", "appended-what-i-read", "appended-what-i-read"),
        ("insert elsewhere", "delete 1", "appended-what-i-read", "appended-what-i-read"),
        ("update 2", "update 1", "appended-what-i-read", "ok"),
        ("update 1", "update 1", "appended-what-i-read", "appended-what-i-read"),
        ("update tuesday", "replace monday", "ok", "ok"),
        ("compact", "update 1", "removed-what-i-read", "ok"),
        ("order", "update 1", "removed-what-i-read", "ok"),
        ("update 1", "compact", "removed-what-i-remove", "ok"),
        ("insert", "delete wednesday", "ok", "ok"),
    ],
)
def test_the_rule_that_is_foreseen(coordinator: tuple[str, bool], first: str, second: str, copies: str, vectors: str) -> None:
    made = table(coordinator, IsolationLevel.SERIALIZABLE)
    found = ForeseenTable(made.snapshot().raw).meets(OPERATIONS[second][0], OPERATIONS[first][0], IsolationLevel.SERIALIZABLE)
    assert (found.rule or "ok") == (vectors if coordinator[1] else copies)
    assert (advice_of(found.rule) is None) == (found.verdict == "ok")


def test_new_rows_may_go_to_partitions_that_do_not_exist_yet(coordinator: tuple[str, bool]) -> None:
    made = table(coordinator, IsolationLevel.SERIALIZABLE)
    known = ForeseenTable(made.snapshot().raw)
    merge = Foreseen("MERGE", reads="day = 'we'", adds="")
    assert known.meets(merge, Foreseen("INSERT", adds=""), IsolationLevel.SERIALIZABLE).rule == "appended-what-i-read"
    assert known.meets(merge, Foreseen("INSERT", adds="day = 'th'"), IsolationLevel.SERIALIZABLE).verdict == "ok"


def test_a_file_that_both_change_is_compared_among_many(coordinator: tuple[str, bool], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conflict_prediction, "_FILES_MAX", 1)
    known = ForeseenTable(table(coordinator, IsolationLevel.SERIALIZABLE).snapshot().raw)
    everything, one_row = Foreseen("DELETE", "", ""), Foreseen("DELETE", "id = 5 AND day = 'tu'", "id = 5 AND day = 'tu'")
    for mine, theirs in itertools.permutations((everything, one_row)):
        assert known.meets(mine, theirs, IsolationLevel.SERIALIZABLE).verdict != "ok"


def test_partitions_that_are_not_read_are_left_out_of_what_is_named(coordinator: tuple[str, bool]) -> None:
    known = ForeseenTable(table(coordinator, IsolationLevel.SERIALIZABLE).snapshot().raw)
    foreseen = known.meets(OPERATIONS["update tuesday"][0], Foreseen("INSERT", adds=""), IsolationLevel.SERIALIZABLE)
    assert foreseen.winner_did == "concerns partitions day=tu"
