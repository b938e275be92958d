"""The error classes: they travel between processes whole, and the trees drawn in the docstrings are the classes there are."""

from __future__ import annotations

import importlib
import pickle
import re
from pathlib import Path
from types import ModuleType

import pytest

import sluice
from sluice.coordinator import errors as coordinator_errors
from sluice.storage import errors as storage_errors
from sluice.storage.errors import InvariantBroken, SluiceError, Unavailable, invariant

TREES = (storage_errors, coordinator_errors)
SOURCE = Path(sluice.__file__).parent


def error_modules() -> list[ModuleType]:
    """The modules that define an error class of ours, found in their text: importing all of sluice would need every extra."""
    defines = [
        (path, found[1], {base.strip().rpartition(".")[2] for base in found[2].split(",")})
        for path in SOURCE.rglob("*.py")
        for found in re.finditer(r"^class (\w+)\(([^)]*)\):$", path.read_text(), re.MULTILINE)
    ]
    names = {"SluiceError"}
    while more := {name for _, name, bases in defines if bases & names} - names:
        names |= more
    paths = {path for path, name, _ in defines if name in names}
    return [importlib.import_module(".".join(("sluice", *path.relative_to(SOURCE).with_suffix("").parts))) for path in sorted(paths)]


CLASSES = sorted(
    (
        each
        for module in error_modules()
        for each in vars(module).values()
        if isinstance(each, type) and issubclass(each, SluiceError) and each.__module__ == module.__name__ and each.__name__[0] != "_"
    ),
    key=lambda cls: cls.__name__,
)


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_it_travels_with_its_facts_and_says_when_it_is_raised_and_whether_the_same_call_may_succeed_later(cls: type[SluiceError]) -> None:
    error = cls("version 7 of s3://b/t: a message with 100 % {braces}", version=7, columns=("a", "b"), location="s3://b/t")
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), copy.details) == (cls, error.details)
    assert str(copy) == str(error) == error.message
    assert (copy.version, copy.columns, copy.location) == (7, ("a", "b"), "s3://b/t")
    assert (cls.__doc__ or "").startswith(("Raised ", "The root of "))
    names = ("ConcurrentModification", "LeaseHeld", "QuotaExceeded", "TableMoved", "TransactionExpired", "UnknownFormat")
    again = tuple(getattr(coordinator_errors, name) for name in names)
    assert cls.retryable == issubclass(cls, (Unavailable, *again))


def test_a_fact_it_does_not_have_is_an_attribute_error() -> None:
    error = SluiceError("message", version=7)
    with pytest.raises(AttributeError, match="SluiceError has no attribute 'verison'"):
        _ = error.verison


def test_a_cause_does_not_hinder_pickling() -> None:
    error = storage_errors.StorageFull("the disk of file:///data is full", path="/data")
    error.__cause__ = OSError(28, "No space left on device")
    assert pickle.loads(pickle.dumps(error)).path == "/data"


def test_an_invariant_that_does_not_hold_is_our_bug() -> None:
    invariant("I1", True)
    with pytest.raises(InvariantBroken, match="invariant I6 does not hold: 9 before 8") as raised:
        invariant("I6", False, "9 before 8")
    assert raised.value.invariant == "I6"


_UNDRAWN = {SluiceError, storage_errors.ObjectNotFound}
"""The root has no parent; ObjectNotFound never leaves the storage floor."""


def drawn(module: ModuleType) -> dict[str, str]:
    """Child -> parent, as the indented tree in the module's docstring draws them."""
    tree = (module.__doc__ or "").split("::", 1)[1]
    parents: dict[str, str] = {}
    above: list[tuple[int, str]] = []
    for line in tree.splitlines():
        indent = len(line) - len(line.lstrip())
        names = re.match(r"[A-Z]\w+(?:, [A-Z]\w+)*,?(?=$|\s{2,})", line.strip())
        if names is None or indent < 4:
            continue
        while above and above[-1][0] >= indent:
            above.pop()
        children = names[0].strip(",").split(", ")
        if above:
            parents.update(dict.fromkeys(children, above[-1][1]))
        above.append((indent, children[-1]))
    return parents


@pytest.mark.parametrize("module", TREES, ids=lambda module: module.__name__)
def test_the_tree_in_the_docstring_is_the_tree_of_the_classes_all_of_which_callers_get(module: ModuleType) -> None:
    defined = {cls.__name__: cls for cls in CLASSES if cls.__module__ == module.__name__}
    parents = drawn(module)
    assert {name: cls.__base__.__name__ for name, cls in defined.items() if cls.__base__ and cls not in _UNDRAWN} == {
        name: parent for name, parent in parents.items() if name in defined
    }
    assert all(hasattr(storage_errors, name) for name in parents if name not in defined)
    assert set(module.__all__) == defined.keys() - {"ObjectNotFound"}, "all that callers get are exported"
    assert all(getattr(sluice.errors, name) is getattr(module, name) for name in module.__all__)


def test_the_classes_of_other_modules_are_found_too() -> None:
    assert {cls.__module__ for cls in CLASSES} > {module.__name__ for module in TREES}
