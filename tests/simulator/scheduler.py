"""One thread at a time, in virtual time.

Every simulated thread is a real one that holds the baton while it runs. Where it waits (for a call's reply, a time, an event)
it says when it wants to go on, and hands the baton to whoever is due first. Nothing ever sleeps: time jumps to the next thing
that is due. What is due at what time is decided by dice, so the same seed gives the same history.

::

    task --pause(0.013)--> due list: (t=4.120 task a) (t=4.125 watch) (t=4.133 this task) ...
                                     the first one gets the baton, and `now` becomes its time
"""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable
from typing import Protocol, TypeAlias

__all__ = ["Crashed", "Event", "Lock", "Owner", "Scheduler", "Stuck", "Task", "current"]

_HANGS_S = 120.0
"""Real seconds without the baton moving, after which the simulator itself is taken to hang."""


class Crashed(BaseException):
    """Raised at a scheduling point of a client that died: unwinds its threads, and nothing it does then has an effect."""


class Stuck(Exception):
    """Raised when a real thread does not hand on the baton: it waits for something the simulator does not control."""


class Owner(Protocol):
    """Whose tasks may be paused or dead."""

    dead: bool
    paused_until: float


class Task:
    """One simulated thread."""

    def __init__(self, scheduler: Scheduler, owner: Owner | None, body: Callable[[], None], name: str) -> None:
        self.scheduler, self.owner, self.name = scheduler, owner, name
        self.epoch = 0
        self.done = False
        self.error: BaseException | None = None
        self.gate = threading.Lock()
        self.gate.acquire()
        self._body = body
        self._thread: threading.Thread | None = None

    def resume(self) -> None:
        """Give it the baton."""
        self.epoch += 1
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)
            self._thread.start()
        else:
            self.gate.release()

    def join(self) -> None:
        """Wait for the real thread's end, from outside."""
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        _here.task = self
        try:
            if not (self.owner and self.owner.dead):
                self._body()
        except Crashed:
            self.error = None
        except BaseException as error:  # noqa: BLE001 - whoever started the simulation is told
            self.error = error
        self.done = True
        self.scheduler.finished(self)


_Due: TypeAlias = "tuple[float, int, Task | Callable[[], None], int]"


class _Here(threading.local):
    task: Task | None = None


_here = _Here()


def current() -> Task | None:
    """The simulated thread that is running here, or None outside of a simulation."""
    return _here.task


class Scheduler:
    """Virtual time, and who goes on when."""

    def __init__(self, steps_max: int) -> None:
        self.now = 0.0
        self.steps = 0
        self.exhausted = False
        self.on_exhaustion: Callable[[], None] | None = None
        self.tasks: set[Task] = set()
        self.failed: list[tuple[str, BaseException]] = []
        self._steps_max = steps_max
        self._ended: list[Task] = []
        self._due: list[_Due] = []
        self._order = 0
        self._idle = threading.Lock()
        self._idle.acquire()

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
        following = self._next()
        if following is not None:
            following.resume()
            if not self._idle.acquire(timeout=_HANGS_S):
                raise Stuck("a simulated thread does not hand on the baton: it waits for something real")
        for task in self._ended:  # they may still be letting go of what they held
            task.join()
        self._ended.clear()
        return sorted(task.name for task in self.tasks)

    # -- from tasks --------------------------------------------------------------------------------------------------

    def push(self, time: float, task: Task) -> None:
        """Let a task go on at a time, unless something lets it go on earlier."""
        self._push(time, task, task.epoch)

    def pause(self, seconds: float) -> None:
        """Wait; what a task calls for itself."""
        task = _here.task
        assert task is not None
        self.require_alive(task)
        self.push(self.now + max(seconds, 0.0), task)
        self.switch(task)

    def switch(self, task: Task) -> None:
        """Hand the baton to whoever is due; returns when this task has it again."""
        following = self._next()
        if following is task:
            task.epoch += 1
        else:
            if following is None:
                self._idle.release()
            else:
                following.resume()
            task.gate.acquire()
        self.require_alive(task)

    @staticmethod
    def require_alive(task: Task) -> None:
        """Raise Crashed in a thread of a client that died."""
        if task.owner is not None and task.owner.dead:
            raise Crashed

    def finished(self, task: Task) -> None:
        """A task ended; the next one gets the baton."""
        self.tasks.discard(task)
        self._ended.append(task)
        if task.error is not None:
            self.failed.append((task.name, task.error))
        following = self._next()
        if following is None:
            self._idle.release()
        else:
            following.resume()

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
                except Exception as error:  # noqa: BLE001 - whoever started the simulation is told
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
            if self.steps == self._steps_max:
                self.exhausted = True
                if self.on_exhaustion is not None:
                    self.on_exhaustion()
            return what
        return None


class Event:
    """The events that production code gets from a simulated clock. Whoever sets one is heard after `delay()` seconds."""

    def __init__(self, scheduler: Scheduler, delay: Callable[[], float]) -> None:
        self._scheduler, self._delay = scheduler, delay
        self._is_set = False
        self._waiting: list[Task] = []

    def set(self) -> None:
        """Let whoever waits go on, a moment later."""
        self._scheduler.at(self._scheduler.now + self._delay(), self._arrive)

    def _arrive(self) -> None:
        self._is_set = True
        for task in self._waiting:
            self._scheduler.push(self._scheduler.now, task)
        self._waiting.clear()

    def clear(self) -> None:
        """Let the next `wait` wait again."""
        self._is_set = False

    def is_set(self) -> bool:
        """Whether it is set."""
        return self._is_set

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is set, for at most `timeout` seconds."""
        task = _here.task
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
    """A lock among simulated threads."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._held = False
        self._free = Event(scheduler, lambda: 0.0)

    def acquire(self, blocking: bool = True) -> bool:
        """Take it, or say that it is taken."""
        while self._held:
            if not blocking:
                return False
            self._free.clear()
            self._free.wait()
        self._held = True
        return True

    def release(self) -> None:
        """Give it back."""
        self._held = False
        self._free.set()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()
