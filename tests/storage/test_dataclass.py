"""The decorator of the small classes does what the standard library's does."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from collections.abc import Callable
from dataclasses import field
from typing import Any, NamedTuple

import pytest

from sluice.storage.dataclass import dataclass

OPTIONS = [{"frozen": True}, {"frozen": True, "slots": True}, {"slots": True}, {"frozen": True, "slots": True, "order": True}]


class Pair(NamedTuple):
    ours: Any
    theirs: Any


def both(make: Callable[[Any], type], **options: bool) -> Pair:
    """One class, made by this decorator and by the standard one."""
    return Pair(make(dataclass(**options)), make(dataclasses.dataclass(**options)))


def point(decorate: Any) -> type:
    @decorate
    class Point:
        """A place."""

        x: int
        y: float = 2.0
        tags: list[str] = field(default_factory=list, hash=False)
        note: str = field(default="n", repr=False, compare=False)
        seen: dict[str, int] = field(default_factory=dict, init=False, compare=False)

        @property
        def sum(self) -> float:
            return self.x + self.y

    return Point


def told(cls: Any, does: Callable[[Any], Any]) -> Any:
    """What a call answers, or the type and text of its error; classes' names are the same on both sides."""
    try:
        return does(cls)
    except (AttributeError, TypeError) as error:
        return type(error), str(error)


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize(
    "does",
    [
        lambda cls: repr(cls(1)),
        lambda cls: repr(cls(1, 3.0, ["a"], "m")),
        lambda cls: (cls(1) == cls(1), cls(1) == cls(2), cls(1, note="a") == cls(1, note="b"), cls(1) == 1),
        lambda cls: (cls(float("nan")) == cls(float("nan")), cls(1) < cls(2), cls(1) >= cls(2)),
        lambda cls: hash(cls(1)) == hash(cls(1, note="b")),
        lambda cls: hash(cls(1, tags=["a"])) == hash(cls(1, tags=["b"])),
        lambda cls: cls(1) < 1,
        lambda cls: cls(1).tags is cls(1).tags,
        lambda cls: cls(),
        lambda cls: cls(1, seen={}),
        lambda cls: setattr(cls(1), "x", 2),
        lambda cls: delattr(cls(1), "x"),
        lambda cls: dataclasses.asdict(cls(1, tags=["a"])),
        lambda cls: dataclasses.replace(cls(1), y=4.0) == cls(1, 4.0),
        lambda cls: copy.deepcopy(cls(1, tags=["a"])) == cls(1, tags=["a"]),
        lambda cls: [(each.name, each.type, each.init) for each in dataclasses.fields(cls)],
        lambda cls: cls.__match_args__,
        lambda cls: hasattr(cls(1), "__dict__"),
        lambda cls: [(each.name, each.kind) for each in inspect.signature(cls).parameters.values()],
        lambda cls: cls.__init__.__annotations__.keys(),
        lambda cls: cls(1).sum,
    ],
)
def test_it_does_what_the_standard_one_does(options: dict[str, bool], does: Callable[[Any], Any]) -> None:
    made = both(point, **options)
    assert told(made.ours, does) == told(made.theirs, does)


@dataclass(frozen=True, slots=True)
class Kept:
    """Has to be found by its name to be pickled."""

    one: int
    many: tuple[str, ...] = ()


@dataclass(frozen=True)
class Alone:
    """One field, which tuples compare by identity first."""

    value: Any


def test_frozen_ones_travel_between_processes() -> None:
    assert pickle.loads(pickle.dumps(Kept(1, ("a",)))) == Kept(1, ("a",))
    assert pickle.loads(pickle.dumps(Alone(2))) == Alone(2)


def test_one_value_is_compared_as_in_a_tuple() -> None:
    nan = float("nan")
    assert Alone(nan) == Alone(nan)
    assert Alone(nan) != Alone(float("nan"))


def test_what_a_class_defines_itself_stays() -> None:
    @dataclass(frozen=True, slots=True)
    class Own:
        value: int

        def __init__(self, text: str) -> None:
            object.__setattr__(self, "value", int(text))

        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 7

        def __repr__(self) -> str:
            return "own"

    assert (Own("1").value, Own("1") == 5, hash(Own("1")), repr(Own("1"))) == (1, True, 7, "own")


def test_the_last_word_is_the_class_s_own() -> None:
    @dataclass(slots=True)
    class Checked:
        value: int

        def __post_init__(self) -> None:
            self.value += 1

    assert Checked(1).value == 2


def test_a_field_by_keyword_only_is_refused() -> None:
    with pytest.raises(TypeError, match=r"use dataclasses\.dataclass"):

        @dataclass(frozen=True)
        class Odd:
            value: int = field(kw_only=True)


def test_a_class_costs_one_compilation(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []

    def counting(source: str, *places: Any) -> None:
        compiled.append(source)
        exec(source, *places)

    for module in ("sluice.storage.dataclass", "dataclasses"):
        monkeypatch.setattr(f"{module}.exec", counting, raising=False)
    point(dataclass(frozen=True, slots=True))
    assert len(compiled) == 1
