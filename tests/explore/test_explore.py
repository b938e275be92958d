"""The explorer itself: it sees everything there is in a tiny world, its services are the twins, its judge has teeth."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sluice.coordinator.commit import decider
from sluice.coordinator.commit.decider import Batch
from sluice.coordinator.leases.guard import LeaseView
from sluice.coordinator.service.memory import MemoryCoordination
from sluice.coordinator.service.store import ANY_VERSION, ApplyRefused, Check, Create, Delete, Node, Op, Write
from sluice.coordinator.service.tree import Tree

from .actor import Actor, Unsteady
from .programs import appender
from .requests import Change, Look
from .search import Search, Tally
from .seat import Seat
from .services import Services
from .surroundings import in_a_small_world
from .worlds import WORLDS, A, World, search_of

_HERE = Path(__file__).parent
_SECONDS = 60.0


@pytest.fixture(autouse=True)
def small_world() -> Iterator[None]:
    with in_a_small_world():
        yield
    Actor.forget_all()


def searched(world: World) -> Tally:
    tally = search_of(world).run(_SECONDS)
    assert tally.findings or tally.complete, "not in time"
    return tally


@pytest.mark.parametrize("name", ["direct", "queue", "mixed", "behind"])
@pytest.mark.many
def test_a_tiny_world_keeps_every_promise(name: str) -> None:
    tally = searched(WORLDS[name])
    assert tally.findings == []
    assert tally.states > 1000


def orders(search: Search) -> int:
    """The number of ways from a world's beginning to its ends, each walked by itself: no state is known again."""
    ends, stack = 0, [search.start]
    while stack:
        state = stack.pop()
        moves = search.moves(state)
        ends += not moves
        stack += [search.after(state, move) for move in moves]
        assert search.broken == []
    return ends


def test_knowing_states_again_leaves_no_state_out() -> None:
    """Every state that some order of the calls leads to is among those that the search gets to, and the other way round."""
    world = World("lone", "one writer that dies", [("w0", appender(A, "x"))], faults=1, kinds=frozenset({"crash", "reply-lost"}))
    search = search_of(world)
    reached, stack = {search.start.key()}, [search.start]
    while stack:
        state = stack.pop()
        for move in search.moves(state):
            after = search.after(state, move)
            reached.add(after.key())
            stack.append(after)
    assert searched(world).states == len(reached)
    assert orders(search_of(world)) == 8  # it dies after one of four calls, one of three replies is lost, or nothing goes wrong


def test_a_client_is_led_back_to_where_it_was() -> None:
    """A life that was left, and is gone on with by another answer, asks the same on the way there."""
    search = search_of(World("lone", "one writer", [("w0", appender(A, "x"))], faults=1, kinds=frozenset({"request-lost"})))
    states = [search.start]
    while search.moves(states[-1]):
        states.append(search.after(states[-1], (0, "")))
    lost = [search.after(state, move) for state in states for move in search.moves(state) if move[1] == "request-lost"]
    assert len(lost) == 3
    assert search._actors[0].runs == 1 + len(lost)


def test_a_program_that_is_not_the_same_twice_is_found_out() -> None:
    asked = iter(["x", "y", "z"])

    def unsteady(seat: Seat) -> object:
        return appender(A, next(asked))(seat)

    search = search_of(World("unsteady", "", [("w0", unsteady)], faults=1, kinds=frozenset({"request-lost"})))
    with pytest.raises(Unsteady):
        search.run(_SECONDS)


# -- the services ------------------------------------------------------------------------------------------------------


def some_op(random_: random.Random) -> Op:
    path = random_.choice(["/a", "/b", "/a/c", "/a/d", "/b/c"])
    version = random_.choice([ANY_VERSION, 0, 1])
    ops: list[Op] = [
        Create(path, b"1", ephemeral=random_.random() < 0.3),
        Create(path + "/s-", b"2", sequential=True),
        Write(path, b"3", version),
        Delete(path, version),
        Check(path, version),
    ]
    return random_.choice(ops)


@pytest.mark.parametrize("seed", range(20))
def test_the_services_are_those_of_the_twin(seed: int) -> None:
    """Requests, sessions that end and watches come to the same as in the twin that the contract tests know."""
    chosen = random.Random(seed)
    twin = MemoryCoordination()
    sessions = [twin.connect() for _ in range(2)]
    services = Services.of(Tree(), {}, behind=False)
    fired: set[tuple[int, int]] = set()
    for step in range(60):
        who = chosen.randrange(2)
        if chosen.random() < 0.05 and not sessions[who].lost and not sessions[1 - who].lost:
            sessions[who].expire()
            services = services.ended(who + 1, 1000 + step).services.with_all_events_set(who)
        elif chosen.random() < 0.4:
            path, kind = chosen.choice(["/a", "/b", "/a/c", "/b/c"]), chosen.choice(["read", "children"])
            if not sessions[who].lost:
                look = sessions[who].read if kind == "read" else sessions[who].children
                found = look(path, lambda who=who, step=step: fired.add((who, step)))  # type: ignore[misc]
                done = services.look(who, Look(who + 1, kind, (path,), step))
                services = done.services
                assert shape(done.answer.value) == shape(found)
        elif not sessions[who].lost:
            ops = tuple(some_op(chosen) for _ in range(chosen.choice([1, 1, 2, 3])))
            done = services.change(who, Change(who + 1, "apply", ops), 1000 + step)
            services = done.services
            try:
                expected: object = tuple(sessions[who].apply(ops))
            except ApplyRefused as refused:
                expected = (refused.index, type(refused.cause))
            error = done.answer.error
            assert expected == (done.answer.value if error is None else (error.index, type(error.cause)))
        assert [shape(node) for node in twin.tree.walk()] == [shape(node) for node in services.nodes.tree.walk()]
        assert services.set_events == fired
        assert services.nodes.sum == type(services.nodes).of(services.nodes.tree).sum


def shape(found: object) -> object:
    """What was read, but for the zxid: it names a moment here, and counts there."""
    if isinstance(found, Node):
        return (found.path, found.data, found.version, found.owner_session)
    return list(found) if isinstance(found, tuple) else found


# -- checks of the protocol, taken out ------------------------------------------------------------------------------------


def test_a_head_that_is_not_compared_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = decider.ratifying_ops

    def careless(batch: Batch) -> list[Op]:
        ops = honest(batch)
        return [Write(op.path, op.data, ANY_VERSION) if isinstance(op, Write) else op for op in ops]

    monkeypatch.setattr(decider, "ratifying_ops", careless)
    assert "I1" in searched(WORLDS["mixed"]).findings[0].what


@pytest.mark.costly
def test_a_lease_that_is_not_checked_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LeaseView, "checks", lambda *_: [])
    assert "I9" in searched(WORLDS["lease-helped"]).findings[0].what


def test_publishing_out_of_order_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Batch.publish

    def hasty(batch: Batch) -> bool:
        for plan in batch.record.versions[-1:]:
            batch.table.publisher._put(batch.record, plan)
        return honest(batch)

    monkeypatch.setattr(Batch, "publish", hasty)
    assert "I6" in searched(WORLDS["ahead"]).findings[0].what


@pytest.mark.costly
@pytest.mark.slow
def test_the_program_ends_with_one_object(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.explore", "--only", "queue", "--minutes", "1"],
        capture_output=True,
        text=True,
        check=True,
        cwd=_HERE.parents[1],
        env={"PYTHONPATH": f"{_HERE.parents[1] / 'src'}:{_HERE.parents[1]}"},
    )
    assert done.stdout.splitlines()[-1].startswith('{"worlds": 1, "complete": 1, ')
