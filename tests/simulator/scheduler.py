"""One thread at a time, in virtual time.

Every simulated thread has a stack of its own (a greenlet) and runs until it waits: for a call's reply, a time, an event.
Then it says when it wants to go on, and hands the baton to the task that is due first. Nothing ever sleeps: time jumps to the next
thing that is due. What is due at what time is decided by dice, so the same seed gives the same history.

::

    task --pause(0.013)--> due list: (t=4.120 task a) (t=4.125 watch) (t=4.133 this task) ...
                                     the first one gets the baton, and `now` becomes its time

All of it happens in one real thread, so handing on costs next to nothing. It also means that a task that waits for something
real while it holds the baton waits for ever: locks that are held across calls have to be simulated ones.
"""

from __future__ import annotations

import gc
import heapq
from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

from greenlet import getcurrent, greenlet

_STEPS_BETWEEN_COLLECTIONS = 500


class Crashed(BaseException):
    """Raised at a scheduling point of a client that died: unwinds its threads, and nothing it does then has an effect."""


class Owner(Protocol):
    """Whose tasks may be paused or dead."""

    dead: bool
    paused_until: float


class Task(greenlet):
    def __init__(self, scheduler: Scheduler, owner: Owner | None, body: Callable[[], None], name: str) -> None:
        super().__init__(self._run, scheduler.hub)
        self.scheduler, self.owner, self.name = scheduler, owner, name
        self.epoch = 0
        self.done = False
        self.failure: BaseException | None = None
        self.local: dict[int, dict[str, Any]] = {}
        self._body: Callable[[], None] | None = body

    def _run(self) -> None:
        body, self._body = self._body, None
        assert body is not None
        try:
            if not (self.owner and self.owner.dead):
                body()
        except Crashed:
            self.failure = None
        except BaseException as error:  # noqa: BLE001 - raised again where the simulation was started
            self.failure = error
        self.done = True
        self.scheduler.finished(self)


_Due: TypeAlias = "tuple[float, int, Task | Callable[[], None], int]"


def current() -> Task | None:
    """The simulated thread that is running here, or None outside of a simulation."""
    here = getcurrent()
    return here if isinstance(here, Task) else None


class TaskLocal:
    """`threading.local` for simulated threads."""

    def __getattr__(self, name: str) -> Any:
        try:
            return _values_of(self)[name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name: str, value: Any) -> None:
        _values_of(self)[name] = value


def _values_of(local: TaskLocal) -> dict[str, Any]:
    task = current()
    assert task is not None
    return task.local.setdefault(id(local), {})


class Scheduler:
    """Virtual time, and who goes on when. It belongs to the thread that made it."""

    def __init__(self, steps_max: int) -> None:
        self.now = 0.0
        self.steps = 0
        self.steps_between_collections = _STEPS_BETWEEN_COLLECTIONS
        """When garbage is collected, nothing but the seed decides: some things go when nobody refers to them any more."""
        self.exhausted = False
        self.on_exhaustion: Callable[[], None] | None = None
        self.tasks: set[Task] = set()
        self.failed: list[tuple[str, BaseException]] = []
        self.hub = getcurrent()
        self._steps_max = steps_max
        self._due: list[_Due] = []
        self._order = 0

    # -- from outside ------------------------------------------------------------------------------------------------

    def spawn(self, owner: Owner | None, body: Callable[[], None], name: str, *, delay: float = 0.0) -> Task:
        """A new simulated thread, which starts after `delay` seconds."""
        task = Task(self, owner, body, name)
        self.tasks.add(task)
        self.push(self.now + delay, task)
        return task

    def at(self, time: float, event: Callable[[], None]) -> None:
        """Let something happen at a time; it must not wait for anything."""
        self._push(time, event, 0)

    def run(self) -> list[str]:
        """Run until nothing is due any more; the names of the tasks that wait for ever."""
        while (following := self._next()) is not None:
            following.epoch += 1
            begins: Any = following
            while isinstance(begins, Task):
                begins = begins.switch()  # comes back when another task begins, one has ended, or nothing is due
        return sorted(task.name for task in self.tasks)

    # -- from tasks --------------------------------------------------------------------------------------------------

    def push(self, time: float, task: Task) -> None:
        """Let a task go on at a time, unless something lets it go on earlier."""
        self._push(time, task, task.epoch)

    def pause(self, seconds: float) -> None:
        """Wait; what a task calls for itself."""
        task = current()
        assert task is not None
        self.require_alive(task)
        time = self.now + max(seconds, 0.0)
        if not self._goes_on(task, time):
            self.push(time, task)
            self.switch(task)

    def _goes_on(self, task: Task, time: float) -> bool:
        """Whether it is its own successor, without being put on the list and taken from it again."""
        steps = self.steps + 1
        if (self._due and self._due[0][0] <= time) or (task.owner is not None and task.owner.paused_until > time):
            return False
        if steps % self.steps_between_collections == 0 or steps >= self._steps_max:
            return False
        task.epoch += 1
        self.now, self.steps = time, steps
        return True

    def switch(self, task: Task) -> None:
        """Hand the baton to the task that is due; returns when this task has it again."""
        following = self._next()
        if following is None:
            self.hub.switch()
        else:
            following.epoch += 1
            if following:
                if following is not task:
                    following.switch()
            else:
                self.hub.switch(following)  # in place of here: its stack would lie above that of this task
        self.require_alive(task)

    @staticmethod
    def require_alive(task: Task) -> None:
        """Raise Crashed in a thread of a client that died."""
        if task.owner is not None and task.owner.dead:
            raise Crashed

    def finished(self, task: Task) -> None:
        """A task ended; the simulation gives the baton to the next one."""
        self.tasks.discard(task)
        if task.failure is not None:
            self.failed.append((task.name, task.failure))

    def wake_all(self, owner: Owner) -> None:
        """Let all tasks of somebody who just died come to their end."""
        for task in sorted(self.tasks, key=lambda each: each.name):
            if task.owner is owner:
                self.push(self.now, task)

    # -- inside ------------------------------------------------------------------------------------------------------

    def _push(self, time: float, what: Task | Callable[[], None], epoch: int) -> None:
        self._order += 1
        heapq.heappush(self._due, (time, self._order, what, epoch))

    def _next(self) -> Task | None:
        while self._due:
            time, _, what, epoch = heapq.heappop(self._due)
            if not isinstance(what, Task):
                self.now = max(self.now, time)
                try:
                    what()
                except Exception as error:  # noqa: BLE001 - raised again where the simulation was started
                    self.failed.append(("an event", error))
                continue
            if what.done or what.epoch != epoch:
                continue
            owner = what.owner
            if owner is not None and not owner.dead and owner.paused_until > time:
                self._push(owner.paused_until, what, epoch)
                continue
            self.now = max(self.now, time)
            self.steps += 1
            if self.steps % self.steps_between_collections == 0:
                gc.collect(1)
            if self.steps == self._steps_max:
                self.exhausted = True
                if self.on_exhaustion is not None:
                    self.on_exhaustion()
            return what
        return None


class Event:
    """The events that production code gets from a simulated clock. A set takes effect after `delay()` seconds."""

    def __init__(self, scheduler: Scheduler, delay: Callable[[], float]) -> None:
        self._scheduler, self._delay = scheduler, delay
        self._is_set = False
        self._waiting: list[Task] = []

    def set(self) -> None:
        """Let the waiting tasks go on, a moment later."""
        self._scheduler.at(self._scheduler.now + self._delay(), self._arrive)

    def _arrive(self) -> None:
        self._is_set = True
        for task in self._waiting:
            self._scheduler.push(self._scheduler.now, task)
        self._waiting.clear()

    def clear(self) -> None:
        self._is_set = False

    def is_set(self) -> bool:
        return self._is_set

    def wait(self, timeout: float | None = None) -> bool:
        task = current()
        assert task is not None
        self._scheduler.require_alive(task)
        if not self._is_set:
            self._waiting.append(task)
            if timeout is not None:
                self._scheduler.push(self._scheduler.now + max(timeout, 0.0), task)
            self._scheduler.switch(task)
            if task in self._waiting:
                self._waiting.remove(task)
        return self._is_set


class Lock:
    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._held = False
        self._waiting: list[Event] = []

    def acquire(self, blocking: bool = True) -> bool:
        """Take it, or say that it is taken."""
        while self._held:
            if not blocking:
                return False
            free = Event(self._scheduler, lambda: 0.0)
            self._waiting.append(free)
            free.wait()
        self._held = True
        return True

    def release(self) -> None:
        self._held = False
        for each in self._waiting:
            each.set()
        self._waiting.clear()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()
