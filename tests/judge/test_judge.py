"""The judge of changes sees each kind of mistake, and none where there is none."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from sluice.coordinator.service.store import ANY_VERSION, Create, Delete, Op, Write
from sluice.coordinator.service.tree import Tree

from .glance import Glance, plain
from .judge import Judge
from .memory import Memory, NodeChange, commit_key, digest

A, B = "memory://a", "memory://b"
_HERE = Path(__file__).parent


class Services:
    """Nodes and objects as plain values; implements View."""

    def __init__(self, nodes: Mapping[str, bytes], objects: Mapping[tuple[str, str], bytes]) -> None:
        self.nodes, self.objects = dict(nodes), dict(objects)

    def data(self, path: str) -> bytes | None:
        return self.nodes.get(path)

    def names(self, path: str) -> list[str]:
        return sorted(each.rpartition("/")[2] for each in self.nodes if each.rpartition("/")[0] == path)

    def content(self, table: str, key: str) -> bytes | None:
        return self.objects.get((table, key))


def root(table: str) -> str:
    return f"/tables/{quote(table, safe='')}"


def commit(version: int, *ids: str, at: int | None = None, actions: Sequence[Mapping[str, Any]] = (), operation: str = "WRITE") -> bytes:
    told = [{"id": each, "ordinal": n, "operation": operation} for n, each in enumerate(ids)]
    info = {"commitInfo": {"inCommitTimestamp": 100 + version if at is None else at, "sluice": {"transactions": told}}}
    return b"\n".join(json.dumps(each).encode() for each in (info, *actions))


def head(version: int, slot: int, generation: int = 0, *, detached: bool = False) -> dict[str, Any]:
    return {"version": version, "generation": generation, "slot": slot, "detached": detached}


def slot(number: int, transaction: str, generation: int = 0) -> str:
    return f"slots/{generation}/i-{transaction}-{number:010d}"


def intent(transaction: str, *, reads: bool = False, **more: Any) -> dict[str, Any]:
    return {"transaction_id": transaction, "reads": {"nothing": not reads}, "leases": [], "joint": None, **more}


def verdict(
    number: int, transaction: str, version: int, ordinal: int = 0, *, refused: bool = False, repeats: bool = False
) -> dict[str, Any]:
    refusal = {"rule": "r"} if refused else None
    return {"slot": number, "transaction_id": transaction, "version": version, "ordinal": ordinal, "refusal": refusal, "repeats": repeats}


def record(*verdicts: Mapping[str, Any], versions: Mapping[int, bytes], generation: int = 0, direct: str = "") -> dict[str, Any]:
    made = [{"version": number, "digest": digest(content)} for number, content in versions.items()]
    return {"generation": generation, "verdicts": verdicts, "versions": made, "direct": direct}


class Run:
    """Two tables, version 0 of which is published; each method is a step, judged as it is taken."""

    def __init__(self, **options: Any) -> None:
        nodes = {f"{root(t)}/{name}": json.dumps(head(0, -1)).encode() for t in (A, B) for name in ("head", "published")}
        self.now = Services(nodes, {(t, commit_key(0)): commit(0, "zero") for t in (A, B)})
        self.judge = Judge((A, B), **{"chained": False, **options})
        self.memory: Memory = self.judge.beginning(self.now)
        self.found: list[str] = []

    def change(self, *changes: tuple[str, str, Any]) -> Run:
        """One request: table, path below it (or from the root), what it holds from now on (None: it goes)."""
        after, made = Services(self.now.nodes, self.now.objects), list[NodeChange]()
        for table, path, value in changes:
            full, data = path if path.startswith("/") else f"{root(table)}/{path}", None if value is None else json.dumps(value).encode()
            made.append((full, after.nodes.get(full), data))
            after.nodes.pop(full, None)
            after.nodes |= {} if data is None else {full: data}
        self.memory, found = self.judge.changed(self.memory, self.now, after, made)
        self.now, self.found = after, self.found + found
        return self

    def file(self, number: int, transaction: str, table: str = A, generation: int = 0, **more: Any) -> Run:
        return self.change((table, slot(number, transaction, generation), intent(transaction, **more)))

    def ratify(self, after: Mapping[str, Any], made: Mapping[str, Any], table: str = A) -> Run:
        return self.change((table, "head", after), (table, f"verdicts/{after['slot']}-{after['version']}", made))

    def put(self, version: int, content: bytes | None, key: str | None = None) -> Run:
        place = A, key or commit_key(version)
        self.memory, found = self.judge.stored(self.memory, self.now, (*place, self.now.objects.get(place), content))
        self.now.objects.pop(place, None)
        self.now.objects |= {} if content is None else {place: content}
        self.found += found
        return self

    def tell(self, *what: Any) -> Run:
        self.memory, found = self.judge.told(self.memory, what)
        self.found += found
        return self

    def end(self) -> Run:
        self.found += self.judge.ended(self.memory, self.now)
        return self

    def answer(self, *, faultless: bool = True) -> Run:
        self.found += self.judge.answered(self.memory, self.now, faultless=faultless)
        return self

    def lose(self) -> Run:
        """All the coordinator's data are gone: nobody changed a node."""
        self.now.nodes.clear()
        return self


ONE, TWO, SEAL = commit(1, "x"), commit(2, "y"), commit(2, "seal", operation="RECOVER")
BOTH = commit(1, "x", "y")
JOINT = {"tables": [A, B]}
LEASE = "leases/l-1"
FIRST = record(verdict(0, "x", 1), versions={1: ONE})


def opened(version: int, generation: int = 1) -> list[tuple[str, str, Any]]:
    """The nodes of table A say that everything up to a version is published, and nothing is filed yet in a generation."""
    return [(A, name, head(version, -1, generation)) for name in ("head", "published")]


def filed(**options: Any) -> Run:
    return Run(**options).file(0, "x").file(1, "y")


def ratified(**options: Any) -> Run:
    """Versions 1 and 2 of table A, of transactions x and y."""
    made = record(verdict(0, "x", 1), verdict(1, "y", 2), versions={1: ONE, 2: TWO})
    return filed(**options).ratify(head(2, 1), made)


def published(**options: Any) -> Run:
    gone = [(A, slot(n, each), None) for n, each in enumerate("xy")]
    return ratified(**options).put(1, ONE).put(2, TWO).change((A, "published", head(2, 1)), *gone)


def leased(mode: str, *, where: str = "", granted: Sequence[str] = ("l-1",)) -> Run:
    return Run().change((A, "leases", {"granted": granted}), (A, LEASE, {"mode": mode, "where": where}))


def committed(run: Run, **more: Any) -> Run:
    return run.file(0, "x", **more).ratify(head(1, 0), FIRST)


def joint(*, names_b: bool = True, ratify_b: bool = True, file_b: bool = True) -> Run:
    alone = {"tables": [B]}
    run, slots = Run(), [(A, slot(0, "x"), intent("x", joint=JOINT)), (B, slot(0, "x"), intent("x", joint=JOINT if names_b else alone))]
    run.change(*(slots if file_b else slots[:1]))
    if not file_b or not names_b:
        return run
    both = [(table, name, value) for table in (A, B) for name, value in (("head", head(1, 0)), ("verdicts/r", FIRST))]
    return run.change(*(both if ratify_b else both[:2]))


def recovered(**options: Any) -> Run:
    """Version 2 of table A is lost, and another one, which seals its log, has its number."""
    run = ratified(**options).put(1, ONE).lose()
    return run.put(2, SEAL).change(*opened(2, 0))


OWN = f"{root(A)}/{LEASE}"
MOVED = commit(1, "z", operation="MOVE")


def left(run: Run, version: int = 1) -> Run:
    """Table A leaves for another coordinator, where it is to go on from this version."""
    move = {"id": "m", "transaction_id": "z", "head": {**head(version, -1, 1), "digest": digest(MOVED)}}
    return run.change((A, "head", None), (A, "published", None), (A, f"/dropped/{quote(A, safe='')}", {"moved": move}))


HONEST: dict[str, Callable[[], Run]] = {
    "everything is published": lambda: published().tell("committed", A, "x", 1, 0, False).tell("asked", A, "y", "committed").end().answer(),
    "several share a version": lambda: filed().ratify(head(1, 1), record(verdict(0, "x", 1), verdict(1, "y", 1, 1), versions={1: BOTH})),
    "one is refused, one repeats": lambda: filed().ratify(
        head(0, 1), record(verdict(0, "x", -1, refused=True), verdict(1, "y", 0, repeats=True), versions={})
    ),
    "no slot": lambda: Run().ratify(head(1, -1), record(verdict(-1, "x", 1), versions={1: ONE}, direct=json.dumps(intent("x")))),
    "the next generation opens": lambda: published().change(*opened(2)),
    "several tables": joint,
    "one's own lease": lambda: committed(leased("exclusive"), leases=[OWN]),
    "shared leases": lambda: committed(
        leased("shared", granted=["l-1", "l-2"]).change((A, "leases/l-2", {"mode": "shared", "where": ""})), leases=[OWN]
    ),
    "a lease that waits": lambda: committed(leased("exclusive", granted=())),
    "a lease on a part": lambda: committed(leased("exclusive", where="k = 1")),
    "a commit that waits for a lease": lambda: committed(leased("commit"), reads=True),
    "a plain append in the turn of another": lambda: committed(leased("turn")),
    "one's own turn": lambda: committed(leased("turn"), reads=True, leases=[OWN]),
    "the table is brought in again": lambda: detached().change((A, "head", head(1, 0, detached=True) | {"row_ids": 3})),
    "nodes are begun and removed": lambda: Run().lose().change(*opened(-1, 0)).change((A, "head", None), (A, "published", None)),
    "recovered": lambda: recovered().tell("committed", A, "y", 2, 0, False).tell("refused", A, "y", "lost"),
    "it goes to another coordinator": lambda: left(leased("exclusive")).put(1, MOVED).lose().change(*opened(1)),
    "recovered, and a straggler came first": lambda: ratified().lose().put(1, ONE).put(2, SEAL),
    "an old file comes late": lambda: published().put(1, ONE),
    "a clean-up": lambda: published(cleaned=True).put(1, None),
}


def detached() -> Run:
    return Run().file(0, "x").ratify(head(1, 0, detached=True), FIRST)


@pytest.mark.parametrize("name", HONEST)
def test_the_judge_lets_pass_what_is_right(name: str) -> None:
    assert HONEST[name]().found == []


def with_file(run: Run) -> Run:
    add = json.dumps({"add": {"path": "f"}})
    return run.file(0, "x", actions=add).ratify(head(1, 0), FIRST)


WRONG: dict[str, tuple[str, Callable[[], Run]]] = {
    "it leaves without a lease": ("I9: ", lambda: left(Run())),
    "it leaves and a slot is undecided": ("I3: ", lambda: left(leased("exclusive").file(0, "x"))),
    "it leaves and a version is not published": ("I3: ", lambda: left(committed(leased("exclusive"), leases=[OWN]), version=2)),
    "it is to go on from another version": ("I3: ", lambda: left(leased("exclusive"), version=2)),
    "it goes on elsewhere before its log says so": ("I6: ", lambda: left(leased("exclusive")).lose().change(*opened(1))),
    "a verdict without a head": ("I1: a verdict", lambda: filed().change((A, "verdicts/r", FIRST))),
    "a head without a verdict": ("I1: the head moved", lambda: filed().change((A, "head", head(1, 0)))),
    "the head goes back": ("I1: the head went", lambda: published().change((A, "head", head(1, 0)))),
    "a slot is undecided again": ("I1: the head went", lambda: published().change((A, "head", head(2, 0)))),
    "a version is left out": ("I1, I2: versions [2]", lambda: filed().ratify(head(2, 0), record(verdict(0, "x", 2), versions={2: ONE}))),
    "a version is given twice": (
        "I1, I2: versions [1]",
        lambda: (
            recovered()
            .lose()
            .change((A, "head", head(-1, -1)), (A, slot(0, "z"), intent("z")))
            .ratify(head(1, 0), record(verdict(0, "z", 1), versions={1: commit(1, "z")}))
        ),
    ),
    "committed twice": (
        "I1: x was committed twice",
        lambda: published().file(2, "x").ratify(head(3, 2), record(verdict(2, "x", 3), versions={3: commit(3, "x")})),
    ),
    "committed as a version that is not there": (
        "I1: x was committed as",
        lambda: filed().ratify(head(1, 0), record(verdict(0, "x", 7), versions={1: ONE})),
    ),
    "nodes are made behind the log": ("I1: nodes were made", lambda: published().lose().change((A, "head", head(1, -1)))),
    "nodes are removed": ("I1: nodes with", lambda: published().change((A, "head", None), (A, "published", None))),
    "published and not ratified": ("I1: version 1", lambda: filed().put(1, ONE)),
    "more in the log than was ratified": ("I1: the log", lambda: _beyond(published()).end()),
    "a version is missing": ("I2: version 1", lambda: _without(published(), 1).end()),
    "a slot is passed over": ("I3: slots [0]", lambda: filed().ratify(head(1, 1), record(verdict(1, "y", 1), versions={1: ONE}))),
    "a slot is decided twice": (
        "I3: slots [1, 2]",
        lambda: (
            ratified()
            .file(2, "z")
            .ratify(head(2, 2), record(verdict(1, "y", 2, repeats=True), verdict(2, "z", 2, repeats=True), versions={}))
        ),
    ),
    "slots are decided in another order": (
        "I3: slots [1, 0]",
        lambda: filed().ratify(head(2, 0), record(verdict(1, "y", 1), verdict(0, "x", 2), versions={1: TWO, 2: ONE})),
    ),
    "slots become versions in another order": (
        "I3: y of slot 1",
        lambda: filed().ratify(head(2, 1), record(verdict(0, "x", 2), verdict(1, "y", 1), versions={1: TWO, 2: ONE})),
    ),
    "slots share a version in another order": (
        "I3: x of slot 0",
        lambda: filed().ratify(head(1, 1), record(verdict(0, "x", 1, 1), verdict(1, "y", 1, 0), versions={1: BOTH})),
    ),
    "the head names another slot": ("I3: the head says", lambda: filed().ratify(head(1, 1), FIRST)),
    "a published version is changed": ("I5: the published", lambda: published().put(2, commit(2, "y", at=999))),
    "a version is no link of the chain": (
        "I5: version 1 has the chain None",
        lambda: filed(chained=True).ratify(head(1, 0), FIRST).put(1, ONE),
    ),
    "another content is published": ("I5: version 1", lambda: ratified().put(1, commit(1, "x", at=999))),
    "a straggler publishes what is lost": ("I5: the published", lambda: recovered().put(2, TWO)),
    "a file of the log was replaced": ("I5: version 1", lambda: _without(published(), 1, ONE + b"\n").end()),
    "published before the one before": ("I6: version 2", lambda: ratified().put(2, TWO)),
    "`published` before the file": ("I6: `published` says 1", lambda: ratified().change((A, "published", head(1, 0)))),
    "`published` beyond the head": ("I6: `published` says {", lambda: published().change((A, "published", head(2, 5)))),
    "`published` goes back": ("I6: `published` went", lambda: published().change((A, "published", head(1, 1)))),
    "`published` is removed": ("I6: `published` is {}", lambda: published().change((A, "published", None))),
    "what a version names is deleted": ("I7: f was deleted", lambda: with_file(Run(files=True).put(0, b"", "f")).put(0, None, "f")),
    "a file of the log is deleted": ("I7: _delta_log", lambda: published().put(1, None)),
    "a version names what is gone": ("I7: x names f", lambda: with_file(Run(files=True))),
    "another's exclusive lease": ("I9: x was ratified while", lambda: committed(leased("exclusive"))),
    "another's shared lease": ("I9: x was ratified while", lambda: committed(leased("shared"))),
    "another's turn": ("I9: x was ratified while", lambda: committed(leased("turn"), reads=True)),
    "one's lease is gone": ("I9: x was ratified and", lambda: committed(Run(), leases=[OWN])),
    "one's lease is not granted": ("I9: x was ratified and", lambda: committed(leased("exclusive", granted=()), leases=[OWN])),
    "an undecided slot goes": ("I10: slot 0", lambda: filed().change((A, slot(0, "x"), None))),
    "a slot goes before it is published": ("I10: slot 0", lambda: ratified().change((A, slot(0, "x"), None))),
    "a generation opens and a version is gone": (
        "I3: a generation was opened, and the head",
        lambda: published().change((A, "head", head(3, -1, 1)), (A, "published", head(2, -1, 1))),
    ),
    "a generation opens before all is published": ("I3: a generation was opened with the head", lambda: ratified().change(*opened(2))),
    "a generation opens and leaves a slot behind": (
        "I3: a generation was opened, and ['i-z",
        lambda: published().file(2, "z").change(*opened(2)),
    ),
    "nobody knows": ("I10: nobody knows", lambda: published().answer()),
    "an outcome is forgotten": ("I10: nobody knows", lambda: filed().tell("asked", A, "x", "unknown").answer()),
    "an outcome is wrong": ("I10: the outcome", lambda: published().tell("asked", A, "x", "refused").answer()),
    "a half is filed": ("I11: x was filed", lambda: joint(file_b=False)),
    "slots name other tables": ("I11: x was filed", lambda: joint(names_b=False)),
    "a half is committed": ("I11: x was committed", lambda: joint(ratify_b=False)),
    "committed, and is not": ("I12: z", lambda: published().tell("committed", A, "z", 2, 0, False)),
    "committed beyond the last version": ("I12: x", lambda: published().tell("committed", A, "x", 7, 0, False)),
    "a repetition beyond the last version": ("I12: z", lambda: published().tell("committed", A, "z", 7, 0, True)),
    "a repetition elsewhere": ("I12: x", lambda: published().tell("committed", A, "x", 2, 0, True)),
    "refused, and is there": ("I12: x", lambda: published().tell("refused", A, "x", "rule")),
    "refused, and comes later": (
        "I12: x was reported as failed (trouble), and is at (1, 0)",
        lambda: (
            filed()
            .tell("failed", A, "x", "trouble")
            .ratify(head(1, 0), FIRST)
            .put(1, ONE)
            .change((A, "published", head(1, 0)), (A, slot(0, "x"), None), (A, slot(1, "y"), None))
            .end()
        ),
    ),
    "what was published is lost": (
        "I12: y was reported as published",
        lambda: ratified().put(1, ONE).tell("published", A, "y", 2, 0, False).lose().put(2, SEAL),
    ),
    "what is lost is reported as published": ("I12: y", lambda: recovered().tell("published", A, "y", 2, 0, False)),
    "what is lost had another place": ("I12: y", lambda: recovered().tell("committed", A, "y", 3, 0, False)),
    "sealed with its nodes": ("I5: version 2", lambda: ratified().put(1, ONE).put(2, SEAL)),
    "time goes back": ("order: version 2", lambda: _early().put(1, ONE).put(2, commit(2, "y", at=100))),
    "removed, and was not live": ("serial: version 1", lambda: _holding([{"remove": {"path": "f"}}]).end()),
    "added, and was live": ("serial: version 1", lambda: _holding([{"add": {"path": "f"}}, {"add": {"path": "f"}}]).end()),
    "not all is published": ("liveness: in the end the head", lambda: ratified().end()),
    "a slot is left": ("liveness: in the end the slots", lambda: published().file(2, "z").end()),
    "trouble out of nothing": ("liveness: ('unknown'", lambda: Run().tell("unknown", A, "x").answer()),
}


def _beyond(run: Run) -> Run:
    run.now.objects[A, commit_key(3)] = b"{}"
    return run


def _without(run: Run, version: int, content: bytes | None = None) -> Run:
    del run.now.objects[A, commit_key(version)]
    run.now.objects |= {} if content is None else {(A, commit_key(version)): content}
    return run


def _early() -> Run:
    late = commit(2, "y", at=100)
    return filed().ratify(head(2, 1), record(verdict(0, "x", 1), verdict(1, "y", 2), versions={1: ONE, 2: late}))


def _holding(actions: Sequence[Mapping[str, Any]]) -> Run:
    content = commit(1, "x", actions=actions)
    run = Run().file(0, "x").ratify(head(1, 0), record(verdict(0, "x", 1), versions={1: content})).put(1, content)
    return run.change((A, "published", head(1, 0)), (A, slot(0, "x"), None))


@pytest.mark.parametrize("name", WRONG)
def test_the_judge_sees_what_is_wrong(name: str) -> None:
    says, wrong = WRONG[name]
    found = wrong().found
    assert any(sentence.startswith(says) for sentence in found), found


@pytest.mark.parametrize("module", ["judge", "memory"])
def test_the_judge_shares_no_code_with_what_it_judges(module: str) -> None:
    tree = ast.parse((_HERE / f"{module}.py").read_text())
    imported = [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and (node.level == 0 or node.module != "memory")]
    imported += [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    assert imported
    assert not [name for name in imported if name and name.startswith(("sluice", "tests", "glance"))]


def test_a_glance_at_what_was_before() -> None:
    """What a request changed is not there yet, what it removed is still there; lists of children are those of before, too."""
    tree = Tree()
    tree.execute([Create("/a", b"1"), Create("/a/b", b"2"), Create("/a/c", b"3")], session=1)
    before = {each: (Glance(tree, {}).data(each), Glance(tree, {}).names(each)) for each in ("/", "/a", "/a/b", "/a/c", "/a/d")}
    ops: list[Op] = [Write("/a", b"4", ANY_VERSION), Delete("/a/b", ANY_VERSION), Create("/a/d", b"5"), Write("/a/d", b"6", ANY_VERSION)]
    _, changes = tree.execute(ops, session=1)
    glance = Glance(tree, {}, [plain(change) for change in changes])
    assert {each: (glance.data(each), glance.names(each)) for each in before} == before
    assert Glance(tree, {}).names("/a") == ["c", "d"]
