"""What is counted: the functions that a call runs, and the code as it is written."""

from __future__ import annotations

import ast
import gc
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

import sluice

SOURCE: Final = Path(sluice.__file__).parent
WARM: Final = 2
"""Calls before the one that is counted: imports and first looks are not counted."""
COMPREHENSIONS: Final = {"<listcomp>", "<setcomp>", "<dictcomp>"}

Ran = set[tuple[str, int, str]]
"""The functions that ran: module, line and name."""


def functions_run(call: Callable[[], Any]) -> Ran:
    """The functions of sluice that this call runs in its own thread, after it ran `WARM` times.

    Threads in the background are not counted: how far they come during the call depends on the time. Comprehensions are not, either: they
    are functions in some of Python's versions only.
    """
    codes: set[CodeType] = set()

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            codes.add(frame.f_code)

    for _ in range(WARM):
        call()
    gc.collect()
    gc.disable()  # a finaliser would run wherever the search for garbage happens to begin
    before = sys.getprofile()
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(before)
        gc.enable()
    return {
        (str(Path(code.co_filename).relative_to(SOURCE)), code.co_firstlineno, code.co_name)
        for code in codes
        if code.co_filename.startswith(f"{SOURCE}/") and code.co_name not in COMPREHENSIONS
    }


def size_of(ran: Ran) -> dict[str, int]:
    return {"modules": len({module for module, _, _ in ran}), "functions": len(ran)}


def written() -> dict[str, int]:
    """The source as a whole. Code lines are those without blanks, comments and docstrings."""
    lines = code = functions = parameters = single = 0
    paths = sorted(SOURCE.rglob("*.py"))
    for path in paths:
        text = path.read_text()
        nodes = list(ast.walk(ast.parse(text)))
        defined = [node for node in nodes if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
        lines += len(text.splitlines())
        code += sum(1 for _ in code_lines(text, nodes))
        functions += len(defined)
        parameters = max(parameters, *(parameters_of(node.args) for node in defined), 0)
        single += len(single_use(nodes, [node.name for node in defined]))
    return {
        "code lines": code,
        "lines": lines,
        "modules": len(paths),
        "functions": functions,
        "parameters of a function": parameters,
        "private functions used once": single,
    }


def code_lines(text: str, nodes: list[ast.AST]) -> Iterator[str]:
    documented: set[int] = set()
    for node in nodes:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            documented.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.lstrip().startswith("#") and number not in documented:
            yield line


def parameters_of(arguments: ast.arguments) -> int:
    """How many a caller may give: without `self` and `cls`."""
    names = [each.arg for each in (*arguments.posonlyargs, *arguments.args)]
    own = sum(1 for _ in filter(None, (arguments.vararg, arguments.kwarg)))
    return len(names) - (names[:1] in (["self"], ["cls"])) + len(arguments.kwonlyargs) + own


def single_use(nodes: list[ast.AST], defined: list[str]) -> list[str]:
    """The private functions and methods of a module that it mentions once; a name that is defined twice is left out."""
    used = Counter(
        node.id if isinstance(node, ast.Name) else node.attr
        for node in nodes
        if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Load)
    )
    private = [name for name, times in Counter(defined).items() if times == 1 and name.startswith("_") and not name.startswith("__")]
    return [name for name in private if used[name] == 1]
