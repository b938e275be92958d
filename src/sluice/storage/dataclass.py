"""`dataclass`, like the standard library's, at a third of the cost of making a class.

Each process of a Spark job imports most of sluice, with some 180 small classes, for which `dataclasses` compiles six methods
each: two fifths of the import's time. Here only `__init__` is compiled; all classes share the other methods. Classes behave
the same, including `fields`, `replace`, `asdict` and pickling. Type checkers see the standard decorator.
"""

from __future__ import annotations

import dataclasses
import operator
import sys
from collections.abc import Callable
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from dataclasses import dataclass

__all__ = ["dataclass"]

_T = TypeVar("_T")
_NOT_GIVEN: Final = object()
_ORDERS: Final = {f"__{each.__name__}__": each for each in (operator.lt, operator.le, operator.gt, operator.ge)}


def _dataclass(*, frozen: bool = False, slots: bool = False, order: bool = False) -> Callable[[type[_T]], type[_T]]:
    """The class with the methods of a dataclass. Raises TypeError for a field that needs the standard decorator."""

    def made(cls: type[_T]) -> type[_T]:
        new: Any = dataclasses.dataclass(init=False, repr=False, eq=False, slots=slots)(cls)
        fields = dataclasses.fields(new)
        if any(each.kw_only for each in fields):
            raise TypeError(f"{cls.__qualname__} has a field with kw_only: use dataclasses.dataclass")
        methods: dict[str, Any] = {"__init__": _init(new, fields, frozen=frozen), "__repr__": _repr, **_comparing(fields, order=order)}
        if not frozen:
            methods["__hash__"] = None
        elif slots:
            methods |= {"__getstate__": _getstate, "__setstate__": _setstate}
        for name, method in methods.items():
            if new.__dict__.get(name) is None:  # the class's own definitions stay
                setattr(new, name, method)
        if frozen:
            new.__setattr__ = new.__delattr__ = _refuse
        return new  # type: ignore[no-any-return]

    return made


def _init(cls: Any, fields: tuple[dataclasses.Field[Any], ...], *, frozen: bool) -> Any:
    """`__init__`, compiled, since it runs for every object."""
    names: dict[str, Any] = {"_set": object.__setattr__, "_not_given": _NOT_GIVEN}
    parameters, body = ["self"], []
    for each in fields:
        name = value = each.name
        if each.default_factory is not dataclasses.MISSING:
            names[f"_made_{name}"] = each.default_factory
            value = f"_made_{name}() if {name} is _not_given else {name}" if each.init else f"_made_{name}()"
            parameters += [f"{name}=_not_given"] if each.init else []
        elif not each.init:
            continue
        elif each.default is not dataclasses.MISSING:
            names[f"_default_{name}"] = each.default
            parameters.append(f"{name}=_default_{name}")
        else:
            parameters.append(name)
        body.append(f"_set(self, {name!r}, {value})" if frozen else f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    lines = "".join(f"  {line}\n" for line in body or ["pass"])
    source = f"def make({', '.join(names)}):\n def __init__({', '.join(parameters)}):\n{lines} return __init__"
    made: dict[str, Any] = {}
    exec(source, sys.modules[cls.__module__].__dict__, made)  # noqa: S102 - as `dataclasses` does; the names of fields are identifiers
    init = made["make"](**names)
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    init.__annotations__ = {**{each.name: each.type for each in fields if each.init}, "return": None}
    return init


def _comparing(fields: tuple[dataclasses.Field[Any], ...], *, order: bool) -> dict[str, Any]:
    """Equality and hash by the fields, and the order if requested."""
    values = _values([each.name for each in fields if each.compare])
    hashed = _values([each.name for each in fields if (each.compare if each.hash is None else each.hash)])

    def by(compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
        return lambda one, other: compare(values(one), values(other)) if other.__class__ is one.__class__ else NotImplemented

    orders = {name: by(compare) for name, compare in _ORDERS.items()} if order else {}
    return {"__eq__": by(operator.eq), "__hash__": lambda one: hash(hashed(one)), **orders}


def _values(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    """Returns the values of these attributes, always as a tuple (one alone twice): tuples compare their elements by identity first."""
    return operator.attrgetter(*names, *([] if len(names) > 1 else names)) if names else (lambda _: ())


@recursive_repr()
def _repr(one: Any) -> str:
    shown = ", ".join(f"{each.name}={getattr(one, each.name)!r}" for each in dataclasses.fields(one) if each.repr)
    return f"{type(one).__qualname__}({shown})"


def _refuse(_: Any, name: str, *value: Any) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot {'assign to' if value else 'delete'} field {name!r}")


def _getstate(one: Any) -> list[Any]:
    return [getattr(one, each.name) for each in dataclasses.fields(one)]


def _setstate(one: Any, state: list[Any]) -> None:
    for each, value in zip(dataclasses.fields(one), state, strict=True):
        object.__setattr__(one, each.name, value)


if not TYPE_CHECKING:
    dataclass = _dataclass
