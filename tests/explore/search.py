"""Every way in which a small world can go, depth first, each state once.

A state is the two services, each client's place in its tree of lives, the faults that are left, and what the judge remembers.
What can happen from there depends on nothing else, so a state that was reached before is not gone into again. States are told
apart by 64 bits of hash.

What can happen in a state (a `Move`):

- a client's next call takes effect and the client goes on to the one after, with or without a fault;
- a client that waits stops waiting before anything wakes it. Such *early* ends are counted; when nobody has anything else to do
  they are free, for then it is time that passes;
- a session ends, of a client that lives (a fault) or of one that died;
- a write that nobody waits for any more takes effect.

Three kinds of steps are not worth a choice, since they come to the same whenever they happen; they happen at once: the reading
of nodes that nobody in this world ever changes (which is checked), the waking of a client whose event is set, and the death of a
client, which follows right after one of its calls that changed something.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from sluice.coordinator.service import tree as twin

from ..judge.glance import Glance, plain
from ..judge.judge import Judge
from ..judge.memory import Memory
from .actor import Actor, Life
from .requests import Answer, Barrier, Change, Close, Look, ObjectCall, Request, Wait
from .services import FAULTS_OF_CHANGES, FAULTS_OF_PUTS, Done, Services

_STEPS_MAX: Final = 3000
_HEALING_STEPS_MAX: Final = 20_000
_MOMENTS: Final = 1_000_000
_WOKEN: Final = Answer(True)
_TIMED_OUT: Final = Answer(False)

_NO_FAULTS: Final = ("", "early", "timeout", "gone", "landed")

Move = tuple[int, str]
"""A client (or the number of a late write) and how it goes: "" as it should, "early", "gone", "landed", or the name of a fault."""


class Quiet(Exception):
    """Raised when a node is changed that was said never to change: the search would have missed something."""


class State(NamedTuple):
    """One state of a world. `last` is the client that moved last, `switches` how often it may still be interrupted."""

    services: Services
    lives: tuple[Life | None, ...]
    memory: Memory
    faults: int
    early: int
    switches: int = -1
    last: int = 0

    def key(self) -> int:
        """The 64 bits by which it is known."""
        at = tuple(0 if life is None else life.number for life in self.lives)
        return hash(
            (self.services.key, at, self.memory.mark, self.faults, self.early, self.switches + 1, self.last if self.switches >= 0 else 0)
        )


@dataclass
class Finding:
    """A broken promise, and the moves that lead there."""

    what: str
    moves: list[Move]


@dataclass
class Tally:
    states: int = 0
    transitions: int = 0
    executions: int = 0
    pruned: int = 0
    ends: int = 0
    deepest: int = 0
    faults: int = 0
    seconds: float = 0.0
    complete: bool = True
    findings: list[Finding] = field(default_factory=list)


class Search:
    """A depth-first search through one world."""

    def __init__(
        self,
        *,
        services: Services,
        actors: list[Actor],
        judge: Judge,
        faults: int,
        kinds: frozenset[str],
        early: int,
        switches: int,
        quiet: frozenset[str],
        asker: Callable[[tuple[tuple[str, str], ...]], Actor],
        victims: frozenset[int],
    ) -> None:
        self._actors, self._judge, self._kinds, self._quiet, self._asker, self._victims = actors, judge, kinds, quiet, asker, victims
        self._faults = faults
        self._ended: dict[tuple[object, ...], list[str]] = {}
        self._askers: dict[tuple[tuple[str, str], ...], Actor] = {}
        self.broken: list[str] = []
        memory = judge.beginning(_glance(services))
        lives: tuple[Life | None, ...] = tuple(actor.root for actor in actors)
        start = State(services, lives, memory, faults, early, switches)
        for client, actor in enumerate(actors):
            start = self._arrived(start, client, actor.root)
        self.start = self._settled(start)
        self.tally = Tally()

    # -- searching ---------------------------------------------------------------------------------------------------

    def run(self, seconds: float, *, findings_max: int = 1, progress: Callable[[Tally], None] | None = None) -> Tally:
        """Search until everything was seen, enough was found, or the time is over."""
        began, tally = time.process_time(), self.tally
        seen = {self.start.key()}
        tally.states = 1
        stack: list[tuple[State, Iterator[Move]]] = [(self.start, iter(self.moves(self.start)))]
        path: list[Move] = []
        fresh = True
        while stack:
            state, moves = stack[-1]
            move = next(moves, None)
            if move is None:
                if fresh:
                    self._end(state, path)
                    fresh = False
                stack.pop()
                if path:
                    path.pop()
            else:
                tally.transitions += 1
                tally.faults += move[1] not in _NO_FAULTS
                path.append(move)
                after = self.after(state, move)
                key = after.key()
                known = key in seen
                if self.broken:
                    self._found(path)
                if known or self.broken or len(path) > _STEPS_MAX:
                    tally.pruned += known
                    tally.executions += 1
                    if len(path) > _STEPS_MAX:
                        self.broken.append(f"liveness: {_STEPS_MAX} steps, and no end")
                        self._found(path)
                    self.broken.clear()
                    path.pop()
                    fresh = False
                else:
                    seen.add(key)
                    tally.states += 1
                    tally.deepest = max(tally.deepest, len(path))
                    stack.append((after, iter(self.moves(after))))
                    fresh = True
            if len(tally.findings) >= findings_max or (tally.transitions % 64 == 0 and time.process_time() - began > seconds):
                tally.complete = False
                break
            if progress is not None and tally.transitions % 20_000 == 0:
                progress(tally)
        tally.seconds = time.process_time() - began
        return tally

    def _end(self, state: State, path: list[Move]) -> None:
        self.tally.executions += 1
        self.tally.ends += 1
        self.broken += self.ending(state)
        if self.broken:
            self._found(path)
            self.broken.clear()

    def _found(self, path: list[Move]) -> None:
        self.tally.findings += [Finding(what, list(path)) for what in dict.fromkeys(self.broken)]

    def names_of(self, moves: Sequence[Move]) -> str:
        """Moves as text; the same client going on is counted."""
        words: list[list[str]] = []
        for number, how in moves:
            name = f"late{number}" if how == "landed" else self._actors[number].name
            if words and not how and words[-1][0] == name and words[-1][1] == "":
                words[-1].append("")
            else:
                words.append([name, how])
        return " ".join(f"{name}:{how}" if how else name + (f"*{len(more) + 1}" if more else "") for name, how, *more in words)

    def move(self, name: str, how: str) -> Move:
        if how == "landed":
            return int(name.removeprefix("late")), how
        return next(actor.index for actor in self._actors if actor.name == name), how

    # -- what can happen ---------------------------------------------------------------------------------------------

    def moves(self, state: State) -> list[Move]:
        """Everything that can happen in a state; the client that moved last goes first."""
        services = state.services
        calling: list[int] = []
        waiting: list[int] = []
        extra: list[Move] = [(number, "landed") for number in range(len(services.late))]
        for client, life in enumerate(state.lives):
            if life is not None and isinstance(life.request, Wait):
                waiting += [client] if life.request.seconds is not None else []
            elif life is not None:
                calling.append(client)
            elif services.nodes.owned(self._session(state, client)):
                extra.append((client, "gone"))
        ordered = sorted(calling, key=lambda client: client != state.last)
        if state.switches == 0 and state.last in calling:
            ordered = [state.last]
        found: list[Move] = [(client, "") for client in ordered] + extra
        if not calling and not services.late:
            found += [(client, "timeout") for client in waiting]
        elif state.early > 0:
            found += [(client, "early") for client in waiting if isinstance(self._life(state, client).request, Wait)]
        if state.faults > 0:
            for client in ordered:
                if client in self._victims:
                    found += [(client, kind) for kind in self._faults_of(state, client)]
            if "expired" in self._kinds:
                found += [
                    (c, "expired") for c in (*calling, *waiting) if c in self._victims and services.nodes.owned(self._session(state, c))
                ]
        return found

    def _faults_of(self, state: State, client: int) -> Iterator[str]:
        """What can go wrong with a client's next call."""
        request = self._life(state, client).request
        if isinstance(request, Look) and "behind" in self._kinds and state.services.may_be_behind(request):
            yield "behind"
        if isinstance(request, (Look, Change, Barrier)) and request.session in state.services.over:
            return
        if isinstance(request, Change):
            yield from (kind for kind in FAULTS_OF_CHANGES if kind in self._kinds)
        if isinstance(request, (Look, Change, Barrier)) and "expired" in self._kinds and not state.services.nodes.owned(request.session):
            yield "expired"
        if isinstance(request, ObjectCall) and request.verb in ("put", "put_if_absent"):
            yield from (kind for kind in FAULTS_OF_PUTS if kind in self._kinds)
        if "crash" in self._kinds and (isinstance(request, Change) or (isinstance(request, ObjectCall) and request.writes)):
            yield "crash"

    def after(self, state: State, move: Move) -> State:
        """The state after a move; what it breaks is in `broken`."""
        client, how = move
        if how == "landed":
            return self._settled(self._judged(state, state.services.landed(client)))
        if how in ("gone", "expired"):
            return self._settled(self._session_ended(state, client, alive=how == "expired"))
        life = self._life(state, client)
        if how in ("timeout", "early"):
            moved = state._replace(early=state.early - (how == "early"))
            return self._settled(self._advanced(self._switched(moved, client), client, _TIMED_OUT))
        dies = how == "crash"
        done = self._performed(state, client, life.request, "" if dies else how)
        moved = self._judged(self._switched(state._replace(faults=state.faults - bool(how)), client), done)
        if dies:
            lives = (*moved.lives[:client], None, *moved.lives[client + 1 :])
            moved = moved._replace(lives=lives, services=moved.services.without_client(client))
        else:
            moved = self._advanced(moved, client, done.answer)
        return self._settled(moved)

    @staticmethod
    def _switched(state: State, client: int) -> State:
        """With the switch counted, if the one that moved last could have gone on."""
        if state.switches < 0:
            return state
        last = state.lives[state.last]
        interrupts = client != state.last and last is not None and not isinstance(last.request, Wait)
        return state._replace(last=client, switches=state.switches - interrupts)

    @staticmethod
    def _life(state: State, client: int) -> Life:
        life = state.lives[client]
        assert life is not None
        return life

    def _session(self, state: State, client: int) -> int:
        """The last session of a client that owns something, or one that nobody has."""
        owners = state.services.nodes.tree._ephemerals
        return max((session for session, paths in owners.items() if paths and session // 1000 == client + 1), default=0)

    def _moment(self, client: int, life: Life | None) -> int:
        """A name for the time of a client's call that is the same in whatever order clients take turns."""
        return (client + 1) * _MOMENTS + (0 if life is None else 2 * life.depth)

    def _performed(self, state: State, client: int, request: Request, fault: str) -> Done:
        services = state.services
        moment = self._moment(client, state.lives[client])
        match request:
            case Look():
                if fault == "expired":
                    services = services.ended(request.session, moment).services
                return services.look(client, request, behind=fault == "behind")
            case Change():
                if fault == "expired":
                    return services.ended(request.session, moment).services.change(client, request, moment)
                return services.change(client, request, moment, fault)
            case Barrier():
                if fault == "expired":
                    services = services.ended(request.session, moment).services
                return services.barrier(request)
            case Close():
                return services.close(client, request, moment)
            case ObjectCall():
                return services.call(request, fault)
            case _:
                raise AssertionError(f"{request} is no call")

    def _session_ended(self, state: State, client: int, *, alive: bool) -> State:
        session = self._session(state, client)
        done = state.services.ended(session, self._moment(client, state.lives[client]) + 1)
        if alive:
            done.services = done.services.with_all_events_set(client)
        return self._judged(state._replace(faults=state.faults - alive), done)

    # -- steps -------------------------------------------------------------------------------------------------------

    def _judged(self, state: State, done: Done) -> State:
        """The state with what a request did to the services."""
        memory = state.memory
        if done.changes:
            before, after = _glance(state.services), _glance(done.services)
            self._require_quiet(done.changes)
            memory, found = self._judge.changed(memory, before, after, [plain(change) for change in done.changes])
            self.broken += found
        if done.stored is not None:
            memory, found = self._judge.stored(memory, _glance(state.services), done.stored)
            self.broken += found
        return state._replace(services=done.services, memory=memory)

    def _require_quiet(self, changes: list[twin.Change]) -> None:
        for change in changes:
            if change.path in self._quiet:
                raise Quiet(f"{change.path} changes in this world; say so where the world is described")

    def _advanced(self, state: State, client: int, answer: Answer) -> State:
        """The state after a client was answered and went on to its next request."""
        life = self._life(state, client)
        return self._arrived(state, client, life.actor.advance(life, answer))

    def _arrived(self, state: State, client: int, life: Life) -> State:
        services, memory = state.services, state.memory
        if life.marks:
            services = services.marked(client, life.marks)
        for what in life.told:
            memory, found = self._judge.told(memory, what)
            self.broken += found
        now: Life | None = life
        if life.ended:
            error = getattr(life.request, "error", "")
            self.broken += [f"unexpected: {life.actor.name} ended with {error}"] if error else []
            services, now = services.without_client(client), None
        return state._replace(services=services, memory=memory, lives=(*state.lives[:client], now, *state.lives[client + 1 :]))

    def _settled(self, state: State) -> State:
        """After everything that is not worth a choice."""
        going = True
        while going:
            going = False
            for client, life in enumerate(state.lives):
                if life is None:
                    continue
                request = life.request
                if isinstance(request, Wait):
                    if (client, request.event) in state.services.set_events:
                        state, going = self._advanced(state, client, _WOKEN), True
                    elif request.seconds is not None and request.seconds <= 0:
                        state, going = self._advanced(state, client, _TIMED_OUT), True
                elif isinstance(request, Look) and self._is_quiet(request) and request.session not in state.services.over:
                    done = state.services.look(client, request)
                    state, going = self._advanced(state._replace(services=done.services), client, done.answer), True
        return state

    def _is_quiet(self, look: Look) -> bool:
        return look.verb != "children" and self._quiet.issuperset(look.paths)

    # -- the end -----------------------------------------------------------------------------------------------------

    def ending(self, state: State) -> list[str]:
        """What is wrong once nothing more happens by itself: everything works again, and somebody asks what became of it all."""
        stuck = [life.actor.name for life in state.lives if life is not None]
        if stuck:
            return [f"liveness: {stuck} wait for ever"]
        services = state.services
        key = (services.nodes.sum, services.objects_sum, state.memory.mark, state.faults == self._faults)
        if key not in self._ended:
            self._ended[key] = self._healed(state)
            self.broken.clear()
        return self._ended[key]

    def _healed(self, state: State) -> list[str]:
        self.broken.clear()
        for client in range(len(self._actors)):
            while self._session(state, client):
                state = self._session_ended(state, client, alive=False)
        filed = tuple(sorted(state.memory.filed))
        if filed not in self._askers:
            self._askers[filed] = self._asker(filed)
        actor = self._askers[filed]
        faultless = state.faults == self._faults
        nobody: tuple[Life | None, ...] = (None,) * len(self._actors)
        state = self._arrived(state._replace(lives=(*nobody, None), faults=0), len(self._actors), actor.root)
        for _ in range(_HEALING_STEPS_MAX):
            state = self._settled(state)
            life = state.lives[-1]
            if life is None or self.broken:
                break
            if isinstance(life.request, Wait):
                state = self._advanced(state, len(self._actors), _TIMED_OUT)
            else:
                done = self._performed(state, len(self._actors), life.request, "")
                state = self._advanced(self._judged(state, done), len(self._actors), done.answer)
        else:
            return ["liveness: whoever asks in the end comes to no end"]
        judge, memory, view = self._judge, state.memory, _glance(state.services)
        return [*self.broken, *judge.ended(memory, view), *judge.answered(memory, view, faultless=faultless)]


def _glance(services: Services) -> Glance:
    return Glance(services.nodes.tree, services.objects)
