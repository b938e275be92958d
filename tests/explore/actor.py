"""A client's life as a tree: what it asks next, for every sequence of answers it was ever given.

The program of a client is production code, and runs in a greenlet of its own. It reaches the outside through requests only
(no clock, chance, thread or file of its own: `seat.py`), so that what it asks next is a function of the answers so far. That is
what the tree records, and so the code has to run once for each sequence of answers, not once for each interleaving of all
clients in which that sequence comes up. Where another answer is given at a place that was passed before, the program is started
again and led there; on its way it has to ask what it asked before, or the search ends with `Unsteady`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from greenlet import GreenletExit, getcurrent, greenlet

from .requests import Answer, Ended, Request

if TYPE_CHECKING:
    from .seat import Seat

_ALIVE_MAX: Final = 400
"""Greenlets kept where they stopped, over all actors; others are led there again when they are needed."""


class Unsteady(Exception):
    """Raised when a program, given the same answers, asks something else: then nothing recorded of it counts."""


@dataclass(eq=False, slots=True)
class Life:
    """One place in a client's tree of lives: what it asks here, after what it did on the way from the place before.

    `told` is what its caller was told on that way, `marks` which events it set or reset. `number` names the place among the actor's.
    """

    actor: Actor
    number: int
    depth: int
    request: Request
    told: tuple[Any, ...]
    marks: tuple[tuple[int, bool], ...]
    before: Life | None
    answer: Answer | None
    later: dict[Hashable, Life] = field(default_factory=dict)

    @property
    def ended(self) -> bool:
        return isinstance(self.request, Ended)


class _Run(greenlet):
    """One run of a program, which stops at each request."""

    def __init__(self, actor: Actor) -> None:
        super().__init__(self._live)
        self.seat: Seat = actor.sit_down(self)
        self._program = actor.program
        self._given_up = False
        self.told: list[Any] = []
        self.marks: list[tuple[int, bool]] = []

    def _live(self) -> Request:
        """The whole program; its last value is the last request."""
        try:
            self._program(self.seat)
        except Exception as error:  # noqa: BLE001 - a program that fails is a finding
            return Ended(f"{type(error).__name__}: {error}")
        return Ended()

    def ask(self, request: Request) -> Any:
        """Stop here until there is an answer; called in the run itself."""
        if self._given_up:
            raise GreenletExit
        assert self.parent is not None
        try:
            answer: Answer = self.parent.switch(request)
        except GreenletExit:
            self._given_up = True
            raise
        return answer.deliver()


class Actor:
    """A client of a world: its program, and all the lives it was seen to lead."""

    _alive: OrderedDict[Life, _Run] = OrderedDict()  # noqa: RUF012 - shared by all actors on purpose

    def __init__(self, name: str, index: int, program: Callable[[Seat], object], seat: Callable[[Actor, _Run], Seat]) -> None:
        self.name, self.index, self.program = name, index, program
        self._seat = seat
        self.lives = 0
        self.runs = 0
        self.root = self._begin()

    def sit_down(self, run: _Run) -> Seat:
        return self._seat(self, run)

    def advance(self, life: Life, answer: Answer) -> Life:
        """The life after this answer."""
        key = answer.key
        found = life.later.get(key)
        if found is None:
            run = self._alive.pop(life, None) or self._led_to(life)
            found = life.later[key] = self._resume(run, answer, life)
        return found

    def _begin(self) -> Life:
        return self._resume(self._started(), None, None)

    def _started(self) -> _Run:
        self.runs += 1
        return _Run(self)

    def _resume(self, run: _Run, answer: Answer | None, before: Life | None) -> Life:
        request, told, marks = self._step(run, answer)
        self.lives += 1
        life = Life(self, self.lives, 0 if before is None else before.depth + 1, request, told, marks, before, answer)
        if not life.ended:
            self._alive[life] = run
            while len(self._alive) > _ALIVE_MAX:
                self._alive.popitem(last=False)[1].throw()
        return life

    @staticmethod
    def _step(run: _Run, answer: Answer | None) -> tuple[Request, tuple[Any, ...], tuple[tuple[int, bool], ...]]:
        run.told, run.marks = [], []
        request: Request = run.switch() if answer is None else run.switch(answer)
        return request, tuple(run.told), tuple(run.marks)

    def _led_to(self, life: Life) -> _Run:
        path: list[Life] = []
        at: Life | None = life
        while at is not None:
            path.append(at)
            at = at.before
        run = self._started()
        for each in reversed(path):
            found = self._step(run, each.answer)
            if found != (each.request, each.told, each.marks):
                raise Unsteady(f"{self.name} asked {found} where it had asked {(each.request, each.told, each.marks)}")
        return run

    @classmethod
    def forget_all(cls) -> None:
        while cls._alive:
            cls._alive.popitem()[1].throw()


def current_seat() -> Seat | None:
    """The seat of the run that asks, None outside of one."""
    run = getcurrent()
    return run.seat if isinstance(run, _Run) else None
