"""Which tests carry a marker with names, and the tables of docs/ that list them.

    python -m tests.marked      writes these tables

``@pytest.mark.notices(NAME, ...)``: the test fails when one of these checks of the source is switched off (docs/mutations.md).
``@pytest.mark.shows(ID, ...)``: the test shows what happens in this trouble (the anchors of docs/operations/failures.md).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from tests.mutations.catalogue import CHECKS, HELD, Check

__all__ = ["ROOT", "marked", "pages"]

ROOT: Final = Path(__file__).resolve().parent.parent
_MUTATIONS: Final = "docs/mutations.md"
_FAILURES: Final = "docs/operations/failures.md"
_GENERATED: Final = "<!-- `python -m tests.marked` writes what follows -->\n"


def marked(marker: str, root: Path = ROOT) -> dict[str, list[str]]:
    """The tests with a marker, by the names that are given to it: as pytest names them, without their parameters."""
    found: dict[str, list[str]] = {}
    for path in sorted((root / "tests").rglob("test_*.py")):
        text = path.read_text()
        if f"mark.{marker}(" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef):
                for name in dict.fromkeys(_names(node, marker)):
                    found.setdefault(name, []).append(f"{path.relative_to(root)}::{node.name}")
    return found


def _names(test: ast.FunctionDef, marker: str) -> Iterator[str]:
    """What is given to a marker above a test, or above one of its parameters."""
    for node in (each for decorator in test.decorator_list for each in ast.walk(decorator)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == marker:
            yield from [ast.literal_eval(each) for each in node.args]


def pages(root: Path = ROOT) -> dict[Path, str]:
    """The pages whose tables list tests, as they have to read."""
    mutations, failures = root / _MUTATIONS, root / _FAILURES
    before, found, _ = mutations.read_text().partition(_GENERATED)
    return {
        mutations: before + found + "\n" + "\n".join(_of_checks(marked("notices", root))),
        failures: "\n".join(_of_troubles(failures.read_text().split("\n"), marked("shows", root))),
    }


def _of_checks(tests: dict[str, list[str]]) -> Iterator[str]:
    for holds, words in HELD.items():
        checks = [each for each in CHECKS.values() if each.holds == holds]
        yield f"### {holds}: {words}\n\n| check | what goes wrong without it | noticed by |\n|---|---|---|"
        for each in checks:
            yield f"| {each.name} | {each.without} | {', '.join(_by(each, tests.get(each.name, ()))) or f'nobody: {each.accepted}'} |"
        yield ""


def _by(check: Check, tests: Sequence[str]) -> Iterator[str]:
    yield from dict.fromkeys(f"`{each.rpartition('::')[2]}`" for each in tests)
    if check.world:
        yield f"small world {check.world}"
    if check.seeds:
        yield "simulator"


def _of_troubles(lines: Sequence[str], tests: dict[str, list[str]]) -> Iterator[str]:
    for line in lines:
        row = re.match(r'\| <a id="([a-z-]+)"></a>.* \| (?=[^|]*\|$)', line)
        yield line if row is None else row[0] + ", ".join(f"`{each}`" for each in tests.get(row[1], ())) + " |"


if __name__ == "__main__":
    for page, text in pages().items():
        page.write_text(text)
