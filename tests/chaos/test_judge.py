"""The judge on histories made by hand: it is content with what is right, and notices each kind of wrong."""

from __future__ import annotations

import ast
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sluice.coordinator.nodes.presence import another_id, new_client, new_id, new_plan_id, owner_of

from .evidence import _plan_in
from .history import UNNAMED, Asked, Diary, Held, History, Operation, Read, read_history
from .judge import Judge
from .meaning import Step, digest
from .rawlog import LogReader, Wrong

Line = tuple[str, str, int]


def identity(number: int) -> str:
    return f"{number:08x}-0000-8000-8000-0000000000aa"


@dataclass
class Books:
    """A table's objects, written as a writer would; `rows` is what a version shows."""

    name: str
    objects: dict[str, bytes] = field(default_factory=dict)
    versions: list[list[Line]] = field(default_factory=list)
    live: dict[str, tuple[dict[str, Any], list[Line]]] = field(default_factory=dict)
    mark: int | None = None
    """The high-water mark of the identity column, in a table that has one."""

    def count(self, ids: Sequence[int], numbers: Mapping[str, int | None], mark: int, **told: Any) -> int:
        """Add rows with these values in the identity column, and raise the mark."""
        self.mark = mark
        return self.commit(ids, [(name, "p", 1) for name in numbers], numbers=numbers, **told)

    def commit(self, ids: Sequence[int], rows: Sequence[Line], *, by: str = "w", operation: str = "WRITE", **told: Any) -> int:
        """Add the rows as one file per partition and transaction; the first transaction gets them all."""
        number, actions = len(self.versions), list[dict[str, Any]]()
        numbers = told.pop("numbers", None)
        if self.mark is not None:
            said = {"delta.identity.start": 5, "delta.identity.step": 3, "delta.identity.highWaterMark": self.mark}
            actions.append({"metaData": {"schemaString": json.dumps({"fields": [{"name": "n", "metadata": said}]})}})
        if told.pop("replace", False):
            actions += [{"remove": {"path": path, "partitionValues": add["partitionValues"]}} for path, (add, _) in self.live.items()]
            self.live.clear()
        entries = [
            {"id": identity(each), "ordinal": place, "operation": operation, "readVersion": number - 1, "application": by, **told}
            for place, each in enumerate(ids)
        ]
        for part in sorted({part for _, part, _ in rows}):
            path = f"part={part}/f{number}-{identity(ids[0])}.parquet"
            mine = [row for row in rows if row[1] == part]
            sink = io.BytesIO()
            columns = {"id": [row[0] for row in mine], "value": pa.array([row[2] for row in mine], pa.int64())}
            if numbers is not None:
                columns["n"] = pa.array([numbers[row[0]] for row in mine], pa.int64())
            pq.write_table(pa.table(columns), sink)
            self.objects[path] = sink.getvalue()
            add = {"path": path, "partitionValues": {"part": part}}
            actions.append({"add": add})
            self.live[path] = (add, mine)
        info = {"commitInfo": {"inCommitTimestamp": 1000 + number, "sluice": {"transactions": entries}}}
        self.objects[f"_delta_log/{number:020d}.json"] = b"\n".join(json.dumps(each).encode() for each in [info, *actions])
        self.versions.append([row for _, mine in self.live.values() for row in mine])
        return number

    def shown(self, version: int) -> dict[str, tuple[int, str]]:
        return {self.name: (version, digest(self.versions[version]))}


@dataclass
class Case:
    """Two tables, one that notes the changes of the left one, and one that counts, with their history.

    Everything in it is right until a test changes it. The right table is the one that is clustered.
    """

    history: History = field(default_factory=History)
    left: Books = field(default_factory=lambda: Books("left"))
    right: Books = field(default_factory=lambda: Books("right"))
    notes: Books = field(default_factory=lambda: Books("notes"))
    numbered: Books = field(default_factory=lambda: Books("numbered"))

    def operation(self, name: str, does: Mapping[str, Sequence[Step]], ids: Sequence[int], **facts: Any) -> Operation:
        """One operation; committed unless `facts` say otherwise."""
        known: dict[str, Any] = {
            "answer": "committed",
            "ended": 0.0,
            "kind": "a kind",
            "process": name.partition(".")[0],
            "begun": 0.0,
            **facts,
        }
        made = Operation(
            name=name, does={table: list(steps) for table, steps in does.items()}, ids=[identity(each) for each in ids], **known
        )
        self.history.operations[name] = made
        return made

    def append(self, name: str, id_: int, *rows: Line, **facts: Any) -> Operation:
        """An append to the left table, in the log and in the history."""
        version = self.left.commit([id_], rows, by=name.partition(".")[0])
        return self.operation(
            name, {"left": [{"do": "append", "rows": [list(row) for row in rows]}]}, [id_], **{"places": {"left": (version, 0)}, **facts}
        )

    def count(self, name: str, id_: int, mark: int, **numbers: int | None) -> None:
        """An append to the table with an identity column, of rows with these values."""
        rows = {f"{name}/{key}": value for key, value in numbers.items()}
        version = self.numbered.count([id_], rows, mark, by=name.partition(".")[0])
        steps: list[Step] = [{"do": "append", "rows": [[row, "p", 1] for row in rows]}]
        self.operation(name, {"numbered": steps}, [id_], places={"numbered": (version, 0)}, ended=20.0)

    def read(self, shown: Mapping[str, tuple[int, str]], level: str = "latest", *, asked: float = 9.0, total: int | None = None) -> None:
        """A read of a process of its own."""
        self.history.reads.append(Read("reader", level, asked, dict(shown), total))

    def violations(self) -> list[str]:
        judge = Judge(self.history, kept_s=10.0, follows={"notes": "left"}, clustered="right")
        for books in (self.left, self.right, self.notes, self.numbered):
            table = judge.table(books.name)
            for version in LogReader(books.objects).versions():
                table.take(version)
        return judge.finish()


def right_case() -> Case:
    """Appends, a change, a pair of transfers, reads, a lease, questions: all as it should be."""
    case = Case()
    for books in (case.left, case.right):
        books.commit([1 if books is case.left else 2], [], operation="CREATE TABLE")
    case.append("w.0", 10, ("w.0/0", "p", 5), ("w.0/1", "q", 7), ended=1.0)
    case.right.commit([11], [("w.1/0", "p", 3)])
    case.operation("w.1", {"right": [{"do": "append", "rows": [["w.1/0", "p", 3]]}]}, [11], places={"right": (1, 0)})
    steps = ({"do": "update", "id": "w.0/0", "part": "p", "add": -2}, {"do": "update", "id": "w.1/0", "part": "p", "add": 2})
    joint = {"s3://b/left": 2, "s3://b/right": 2}
    case.left.commit([12], [("w.0/0", "p", 3), ("w.0/1", "q", 7)], operation="UPDATE", replace=True, joint=joint)
    case.right.commit([12], [("w.1/0", "p", 5)], operation="UPDATE", replace=True, joint=joint)
    case.operation("w.2", {"left": [steps[0]], "right": [steps[1]]}, [12], places={"left": (2, 0), "right": (2, 0)}, ended=2.0)
    case.operation(
        "w.3", {"left": [{"do": "delete", "part": "p", "lo": 0, "hi": 9}]}, [13], answer="refused", error="ConcurrentAppendException"
    )
    case.operation("w.4", {"left": [{"do": "append", "rows": [["w.4/0", "p", 1]]}]}, [], answer="")
    case.read(case.left.shown(1), asked=1.5)
    case.read(case.left.shown(2), asked=3.0)
    case.read({**case.left.shown(2), **case.right.shown(2)}, "together", total=15)
    case.notes.commit([3], [], operation="CREATE TABLE")
    case.notes.commit([14], [("1+w.0/0", "p", 5), ("1+w.0/1", "q", 7)], by="consumer")
    case.notes.commit([15], [("2-w.0/0", "p", 5), ("2+w.0/0", "p", 3), ("2-w.0/1", "q", 7), ("2+w.0/1", "q", 7)], by="consumer")
    case.history.followed["notes"] = 2
    case.count("n.0", 30, 14, a=5, b=8)
    case.numbered.count([31], {}, 3005, operation="RAISE IDENTITY")
    case.count("m.0", 32, 3005, a=14)
    case.history.asked.append(Asked(identity(12), "committed", {"left": (2, 0), "right": (2, 0)}))
    case.history.asked.append(Asked(identity(13), "refused", {}))
    case.history.held.append(Held("w", "exclusive", "left", "p", 0, 2))
    return case


def test_what_is_right_is_right() -> None:
    assert right_case().violations() == []


Spoil: TypeAlias = "Callable[[Case], object]"


def lost(case: Case) -> None:
    case.operation("x.0", {"left": [{"do": "append", "rows": [["x.0/0", "p", 1]]}]}, [20], places={"left": (3, 0)})


def row_lost_from_a_file(case: Case) -> None:
    case.append("x.0", 20, ("x.0/0", "p", 1))
    case.history.operations["x.0"].does["left"][0]["rows"].append(["x.0/1", "p", 1])


def row_lost_by_a_compaction(case: Case) -> None:
    case.left.commit([20], [("w.0/0", "p", 3)], operation="OPTIMIZE", replace=True)


def doubled(case: Case) -> None:
    case.append("x.0", 20, ("x.0/0", "p", 1))
    case.left.commit([21], [("x.0/0", "p", 1)], by="x")


def twice_by_number(case: Case) -> None:
    for number in (20, 21):
        case.append(f"x.{number}", number, (f"n1/{number}", "p", 1), number=("loader", 1))


def visible(answer: str, error: str) -> Spoil:
    """An append that had another answer is there."""
    return lambda case: case.append("x.0", 20, ("x.0/0", "p", 1), answer=answer, places={}, error=error)


def noted(name: str) -> Spoil:
    """A row of the table of notes."""
    return lambda case: case.notes.commit([21], [(name, "p", 5)], by="consumer")


def told(state: str, **places: tuple[int, int]) -> Spoil:
    """What `outcome` said of the first append."""
    return lambda case: case.history.asked.append(Asked(identity(10), state, places))


def torn_pair(case: Case) -> None:
    del case.right.objects[f"_delta_log/{2:020d}.json"]
    case.history.reads.pop()
    case.history.asked.clear()


def block(case: Case, *, of_both: bool) -> None:
    """A block of SQL, whose answer names versions; its key is its number."""
    for books in (case.left, case.right) if of_both else (case.left,):
        books.commit([20], [(f"x.0/{books.name}", "p", 1)], by="sql", apps={"sluice.key:x.0": 0})
    does = {name: [{"do": "append", "rows": [[f"x.0/{name}", "p", 1]]}] for name in ("left", "right")}
    places = {"left": (3, UNNAMED), "right": (3, UNNAMED)}
    case.operation("x.0", does, [], number=("sluice.key:x.0", 0), places=places, ended=20.0)


def torn_block(case: Case) -> None:
    block(case, of_both=False)


def block_of_another_version(case: Case) -> None:
    block(case, of_both=True)
    case.history.operations["x.0"].places["right"] = (2, UNNAMED)


def fits_nothing(case: Case) -> None:
    case.read({"left": (2, digest([("w.0/0", "p", 5), ("w.0/1", "q", 7)]))})


def of_no_version(case: Case) -> None:
    case.read({"left": (7, digest([]))})


def stale(case: Case) -> None:
    case.history.reads.append(Read("other", "latest", 3.0, case.left.shown(1), None))


def backwards(case: Case) -> None:
    case.read(case.left.shown(2), "session")
    case.read(case.left.shown(1), "session", asked=10.0)


def torn_read(case: Case) -> None:
    case.history.reads.append(Read("other", "together", 1.9, {**case.left.shown(1), **case.right.shown(2)}, 17))


def lost_update(case: Case) -> None:
    case.left.commit([20], [("w.0/0", "p", 4), ("w.0/1", "q", 7)], operation="UPDATE", replace=True, readVersion=1)
    case.operation("x.0", {"left": [{"do": "update", "id": "w.0/0", "part": "p", "add": -1}]}, [20], places={"left": (3, 0)})


def not_serial(case: Case) -> None:
    case.append("x.0", 20, ("x.0/0", "q", 1), isolation="Serializable")
    case.left.commit([21], [("w.0/0", "p", 3), ("x.0/0", "q", 1)], operation="DELETE", replace=True, readVersion=2)
    steps = [{"do": "delete", "part": "q", "lo": 0, "hi": 50}]
    case.operation("x.1", {"left": steps}, [21], places={"left": (4, 0)}, isolation="Serializable")


def nobodys(case: Case) -> None:
    case.left.commit([20], [("x.0/0", "p", 1)], by="stranger")


def lease_ignored(case: Case) -> None:
    case.append("x.0", 20, ("x.0/0", "p", 1))
    case.history.held.append(Held("w", "exclusive", "left", "p", 2, 3))


def of_the_stream_lost(case: Case) -> None:
    case.history.inputs["stream+0"] = [("stream+0/0", "p", 1)]
    case.history.drained = True


def not_noted(case: Case) -> None:
    case.append("x.0", 20, ("x.0/0", "p", 1))
    case.history.followed["notes"] = 3


def half_noted(case: Case) -> None:
    case.append("x.0", 20, ("x.0/0", "p", 1), ("x.0/1", "p", 1))
    case.notes.commit([21], [("3+x.0/0", "p", 1)], by="consumer")
    case.history.followed["notes"] = 3


def noted_with_another_value(case: Case) -> None:
    case.notes.commit([21], [("3+x.0/0", "p", 2)], by="consumer")
    case.append("x.0", 20, ("x.0/0", "p", 1))


def never_drained(case: Case) -> None:
    case.history.followed.clear()


def counted(mark: int, **numbers: int | None) -> Spoil:
    """Two more rows of the table with an identity column."""
    return lambda case: case.count("x.0", 40, mark, **numbers)


def refused_for(winner: str, *steps: Step) -> Spoil:
    """Something was refused in the table that is clustered, for a version of this operation."""

    def spoil(case: Case) -> None:
        rows = [("w.1/0", "p", 5)] if winner == "OPTIMIZE" else []
        version = case.right.commit([20], rows, by="other", operation=winner, replace=True)
        if winner != "OPTIMIZE":
            gone: Step = {"do": "delete", "part": "p", "lo": 0, "hi": 9}
            case.operation("y.0", {"right": [gone]}, [20], places={"right": (version, 0)}, ended=20.0)
        case.operation("x.0", {"right": steps}, [21], answer="refused", error="ConcurrentModification", winner=version)

    return spoil


def broken(case: Case) -> None:
    case.operation("x.0", {"left": []}, [], answer="broken", error="InvariantBroken: I5")


def collected_early(case: Case) -> None:
    case.history.other.append({"event": "expired", "process": "r", "level": "latest", "asked": 1.0, "t": 2.0, "error": "MissingObject"})


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lost, "lost: x.0"),
        (row_lost_from_a_file, "rows: left version 3"),
        (row_lost_by_a_compaction, "rows: left version 3"),
        (doubled, "doubled: left version 4"),
        (doubled, "twice: x.0"),
        (twice_by_number, "twice: x.20"),
        (visible("refused", "LeaseHeld"), "refused and visible: x.0"),
        (visible("unavailable", "StorageUnavailable"), "refused and visible: x.0"),
        (torn_pair, "torn: w.2"),
        (torn_pair, "torn: left version 2"),
        (torn_block, "torn: x.0"),
        (torn_block, "lost: x.0 (a kind) had the answer right version 3"),
        (block_of_another_version, "lost: x.0 (a kind) had the answer right version 2"),
        (fits_nothing, "fits nothing: read latest"),
        (of_no_version, "fits nothing: read latest"),
        (stale, "stale: read latest"),
        (backwards, "backwards: read session"),
        (torn_read, "torn read: read together"),
        (lost_update, "lost update: left version 3"),
        (not_serial, "not serial: left version 4"),
        (nobodys, "nobody's: left version 3"),
        (told("unknown"), "outcome: 0000000a"),
        (told("committed", left=(2, 0)), "outcome: 0000000a"),
        (lease_ignored, "lease: w held"),
        (of_the_stream_lost, "lost: rows"),
        (not_noted, "lost: notes does not note that [('x.0/0', ('p', 1))] have come in left version 3"),
        (half_noted, "lost: notes does not note that [('x.0/1', ('p', 1))] have come in left version 3"),
        (noted("1+w.0/0"), "doubled: notes version 3"),
        (noted("2-w.0/7"), "invented: notes notes that [('w.0/7', ('p', 5))] have gone in left version 2"),
        (noted_with_another_value, "invented: notes notes that [('x.0/0', ('p', 2))] have come in left version 3"),
        (noted("w.0/7"), "invented: notes holds w.0/7"),
        (never_drained, "behind: notes"),
        (counted(3005, a=17, b=5), "numbers: the value 5 of row x.0/b in version 3 is that of row n.0/a, too (numbered)"),
        (counted(3005, a=17, b=18), "numbers: the value 18 in version 3 is none of"),
        (counted(3005, a=17, b=None), "numbers: row x.0/b of version 3 has the value None"),
        (counted(3005, a=17, b=3008), "numbers: the mark 3005 of version 3 does not cover the number 1001"),
        (counted(2005, a=17, b=20), "numbers: Marked(start=5, step=3, mark=3005) became"),
        (refused_for("OPTIMIZE", {"do": "delete", "part": "p", "lo": 0, "hi": 1}), "stood in the way: x.0"),
        (refused_for("DELETE"), "stood in the way: x.0"),
        (broken, "broken: x.0"),
        (collected_early, "collected early: r"),
    ],
)
def test_what_is_wrong_is_noticed(spoil: Spoil, said: str) -> None:
    case = right_case()
    spoil(case)
    assert any(violation.startswith(said) for violation in case.violations()), case.violations()


def test_one_who_died_may_have_committed() -> None:
    case = right_case()
    case.left.commit([20], [("w.4/0", "p", 1)])
    assert case.violations() == []


@pytest.mark.parametrize("spoil", [refused_for("OPTIMIZE"), refused_for("DELETE", {"do": "delete", "part": "p", "lo": 0, "hi": 9})])
def test_two_who_move_rows_or_change_them_may_refuse_each_other(spoil: Spoil) -> None:
    case = right_case()
    spoil(case)
    assert case.violations() == []


def repeated_number(case: Case) -> Case:
    """A loader gave up and appended the same number again: the first request found the second one's commit."""
    number: Any = {"number": ("loader", 7)}
    rows = {"left": [{"do": "append", "rows": [["n7/0", "p", 1]]}]}
    case.left.commit([20], [("n7/0", "p", 1)], by="x", apps={"loader": 7})
    case.operation("x.0", rows, [20], places={"left": (3, 0)}, ended=20.0, **number)
    case.operation("y.0", rows, [21], answer="unknown", ended=20.0, **number)
    return case


def test_an_answer_may_name_the_version_alone() -> None:
    case = right_case()
    block(case, of_both=True)
    assert case.violations() == []


def test_the_outcome_of_a_repeated_number_is_the_place_of_its_first_commit() -> None:
    case = repeated_number(right_case())
    case.history.asked.append(Asked(identity(21), "committed", {"left": (3, 0)}))
    assert case.violations() == []
    case.history.asked.append(Asked(identity(21), "committed", {"left": (2, 0)}))
    assert [each for each in case.violations() if each.startswith("outcome: 00000015")]


def test_a_repeated_number_that_was_never_filed_is_unknown() -> None:
    case = repeated_number(right_case())
    case.history.asked.append(Asked(identity(21), "unknown", {}))
    assert case.violations() == []
    case.history.asked.append(Asked(identity(20), "unknown", {}))
    assert [each for each in case.violations() if each.startswith("outcome: 00000014")]


def test_a_blind_append_may_stand_before_one_that_did_not_see_it() -> None:
    case = right_case()
    case.append("x.0", 20, ("x.0/0", "q", 1), ended=20.0)
    case.left.commit([21], [("w.0/0", "p", 3), ("x.0/0", "q", 1)], operation="DELETE", replace=True, readVersion=2)
    case.operation("x.1", {"left": [{"do": "delete", "part": "q", "lo": 0, "hi": 50}]}, [21], places={"left": (4, 0)}, ended=20.0)
    assert case.violations() == []


def test_a_log_with_a_gap_is_no_log() -> None:
    case = right_case()
    del case.left.objects[f"_delta_log/{1:020d}.json"]
    with pytest.raises(Wrong, match=r"not dense from 0: missing are \[1\]"):
        case.violations()


def test_a_version_that_is_no_link_of_the_chain_is_wrong() -> None:
    with pytest.raises(Wrong, match=r"I5: version 0 has the chain None instead of .*'previous': ''"):
        list(LogReader(right_case().left.objects, chained=True).versions())


def test_what_a_killed_process_did_not_finish_writing_does_not_count(tmp_path: Path) -> None:
    diary = Diary(tmp_path / "w-1.jsonl", "w-1")
    name = diary.begin("append", {"left": [{"do": "append", "rows": [["w-1.0/0", "p", 1]]}]}, number=("loader", 3))
    diary.note("filing", op=name, id=identity(1))
    with (tmp_path / "w-1.jsonl").open("ab") as file:
        file.write(b'{"event": "end", "op": "w-1.0", "answ')
    [operation] = read_history(tmp_path).operations.values()
    assert (operation.name, operation.number, operation.ids, operation.answer) == ("w-1.0", ("loader", 3), [identity(1)], "")


def test_files_of_plans_name_the_plan() -> None:
    planned, committed = new_plan_id(1_795_398_584_146), new_id(new_client(), 1, 1, 1_795_398_584_146)
    for id_ in (planned, another_id(planned)):
        owner = owner_of(id_)
        assert owner is not None
        assert _plan_in(f"part=p/part-00000-{id_}-0-12-c000.zstd.parquet") == owner.name
    assert _plan_in(f"part-00000-{committed}-c000.parquet") == ""


def test_the_judge_shares_no_code_with_what_it_judges() -> None:
    here = Path(__file__).parent
    for file in (
        *(here / f"{name}.py" for name in ("evidence", "history", "judge", "meaning", "rawlog")),
        *(here.parent / f"raw_{name}.py" for name in ("chain", "numbers", "vectors")),
    ):
        tree = ast.parse(file.read_text())
        imported = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
        imported += [f"{'.' * node.level}{node.module}" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
        assert not any(
            each.startswith(("sluice", "..", "tests")) for each in imported if each not in ("..raw_chain", "..raw_numbers", "..raw_vectors")
        ), imported
        assert not {each for each in imported if each.startswith(".")} & {".run", ".world", ".worker", ".jobs", ".staff"}
