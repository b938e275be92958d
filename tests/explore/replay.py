"""One schedule of a small world, step by step, for people."""

from __future__ import annotations

import json
from collections.abc import Sequence

from sluice.coordinator.service.store import Check, Create, Delete, Node, Op, Write

from .requests import Answer, Barrier, Change, Close, Look, ObjectCall, Request, Wait
from .search import Move, Search, State

_WIDTH = 150


def show(search: Search, moves: Sequence[Move]) -> list[str]:
    """Print what happens, and what it breaks; the findings."""
    state = search.start
    found: list[str] = []
    for move in moves:
        state, broken = _step(search, state, move)
        found += broken
    if not search.moves(state) and not found:
        found = search.ending(state)
        for what in found:
            print(f"    in the end: {what}")
    print(f"{len(found)} promises broken")
    return found


def _step(search: Search, state: State, move: Move) -> tuple[State, list[str]]:
    client, how = move
    life = state.lives[client] if how != "landed" else None
    print(f"{search.names_of([move]):14} {_asked(life.request) if life is not None else how}"[:_WIDTH])
    after = search.after(state, move)
    if life is not None:
        later = next((each for each in life.later.values() if each is after.lives[client]), None)
        if later is not None and later.answer is not None:
            print(f"{'':14}   -> {_answered(later.answer)}"[:_WIDTH])
    for told in sorted(after.memory.told - state.memory.told, key=repr):
        print(f"{'':14}   told: {told}")
    broken = list(search.broken)
    search.broken.clear()
    for what in broken:
        print(f"{'':14}   BROKEN: {what}")
    return after, broken


def _asked(request: Request) -> str:
    match request:
        case Look():
            return f"{request.verb} {', '.join(map(_short, request.paths))}{' (watching)' if request.event is not None else ''}"
        case Change():
            return f"{request.verb} {'; '.join(_op(op) for op in request.ops)}"
        case Barrier():
            return "barrier"
        case Close():
            return "close the session"
        case ObjectCall():
            return f"{request.verb} {request.key}"
        case Wait():
            return f"wait {request.seconds} s"
        case _:
            return "end"


def _op(op: Op) -> str:
    match op:
        case Create():
            return f"create {_short(op.path)}{'*' if op.sequential else ''}"
        case Write():
            return f"write {_short(op.path)} if {op.version}"
        case Delete():
            return f"delete {_short(op.path)}"
        case Check():
            return f"check {_short(op.path)}"


def _answered(answer: Answer) -> str:
    if answer.error is not None:
        return f"{type(answer.error).__name__}: {answer.error.message}"
    return _shown(answer.value)


def _shown(value: object) -> str:
    if isinstance(value, Node):
        return f"version {value.version}: {value.data.decode(errors='replace')}"
    if isinstance(value, tuple):
        return "[" + ", ".join(map(_shown, value)) + "]"
    if isinstance(value, bytes):
        return json.dumps(value.decode(errors="replace"))
    return _short(value) if isinstance(value, str) else str(value)


def _short(path: str) -> str:
    """Without what is the same in all paths of a world."""
    parts = path.split("/")
    return "/".join(["~" + parts[2][-1], *parts[3:]]) if len(parts) > 2 and parts[1] == "tables" else path
